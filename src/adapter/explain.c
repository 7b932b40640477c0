// SPDX-License-Identifier: BSD-2-Clause
/*
 * explain.c - why an access was refused, in words: see explain.h.
 *
 * For people, after the decision: what keys.c decided is not decided again.
 */
#include "adapter/explain.h"

#include <byteswap.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "adapter/misuse.h"
#include "adapter/pd.h"
#include "adapter/qp.h"
#include "base/log.h"

/* A text of EXPLAIN_ROOM bytes to which words are appended. */
static void __attribute__((format(printf, 2, 3))) append(char *text, const char *fmt, ...)
{
	size_t used = strlen(text);
	va_list args;

	va_start(args, fmt);
	vsnprintf(text + used, EXPLAIN_ROOM - used, fmt, args);
	va_end(args);
}

static const char *kind_words(enum key_kind kind)
{
	switch (kind) {
	case KEY_MW1:
	case KEY_MW2:
		return "window";
	case KEY_SHOT:
		return "one-shot STag";
	case KEY_MR:
	case KEY_FAST_MR:
	case KEY_STORE:
		break;
	}
	return "region";
}

/* The last byte of a range; of an empty one, its first. */
static unsigned long long last_byte(uint64_t from, uint64_t len)
{
	return from + (len ? len - 1 : 0);
}

static void append_range(char *text, const struct key_facts *k)
{
	append(text, "0x%llx to 0x%llx (%llu bytes)", (unsigned long long)k->base,
	       last_byte(k->base, k->length), (unsigned long long)k->length);
}

static void append_rights(char *text, unsigned rights, const char *none)
{
	static const struct {
		unsigned bit;
		const char *words;
	} known[] = {
		{IBV_ACCESS_LOCAL_WRITE, "local write"},
		{IBV_ACCESS_REMOTE_READ, "remote read"},
		{IBV_ACCESS_REMOTE_WRITE, "remote write"},
		{IBV_ACCESS_REMOTE_ATOMIC, "remote atomic"},
	};
	const char *between = "";

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (rights & known[i].bit) {
			append(text, "%s%s", between, known[i].words);
			between = ", ";
		}
	if (!*between)
		append(text, "%s", none);
}

static void append_invalid(char *text, uint32_t stag, const struct key_facts *k)
{
	struct key_facts swapped;

	switch (k->is) {
	case KEY_IS_VALID:
		append(text, "it is the key of a %s, which this access may not use",
		       kind_words(k->kind));
		return;
	case KEY_IS_NOT_VALID:
		append(text, "the %s of this key is not %s, or was invalidated",
		       kind_words(k->kind), k->kind == KEY_FAST_MR ? "registered" : "bound");
		return;
	case KEY_IS_FREED:
		append(text, "the %s of this key was %s; it was ", kind_words(k->kind),
		       k->kind == KEY_MW1 || k->kind == KEY_MW2 ? "deallocated" : "deregistered");
		append_range(text, k);
		return;
	case KEY_IS_OTHER:
	case KEY_IS_UNKNOWN:
		break;
	}
	append(text, "no region has this key");
	if (k->is == KEY_IS_OTHER && k->now)
		append(text, "; 0x%08x has its place now", k->now);
	key_find_facts(bswap_32(stag), &swapped);
	if (swapped.is == KEY_IS_VALID)
		append(text,
		       "; with its bytes swapped it is a key, 0x%08x: a key that was sent to "
		       "a peer needs ntohl()",
		       bswap_32(stag));
}

/* Returns whether there is more to say than the fault's own words. */
static bool explain_valid(const struct key_access *a, const struct stag_pd *pd, enum key_fault f,
			  const struct key_facts *k, char *text)
{
	switch (f) {
	case KEY_BOUNDS:
		append(text, "outside of the %s, which is from ", kind_words(k->kind));
		append_range(text, k);
		return true;
	case KEY_RIGHTS:
		append(text, "the %s has no ", kind_words(k->kind));
		append_rights(text, a->access & ~k->access, "such");
		append(text, " right; it has: ");
		append_rights(text, k->access, "local read");
		return true;
	case KEY_OTHER_PD:
		append(text, "the %s is of protection domain %u, the queue pair of %u",
		       kind_words(k->kind), k->pd, pd->ibv.handle);
		return true;
	case KEY_OTHER_QP:
		append(text, "the %s is of another queue pair, %u", kind_words(k->kind), k->qpn);
		return true;
	default:
		return false;
	}
}

const char *explain_key(const struct key_access *a, const struct stag_pd *pd, enum key_fault f,
			char text[EXPLAIN_ROOM])
{
	struct key_facts k;

	*text = '\0';
	key_find_facts(a->stag, &k);
	if (f == KEY_INVALID)
		append_invalid(text, a->stag, &k);
	else if (k.is != KEY_IS_VALID || !explain_valid(a, pd, f, &k, text))
		append(text, "%s", key_fault_str(f));
	return text;
}

void log_refused_access(const struct stag_qp *qp, const char *what, const struct key_access *a,
			enum key_fault f)
{
	static const char format[] =
		"qp %u: the peer's %s of %llu bytes at 0x%llx under rkey 0x%08x is refused: %s";
	char why[EXPLAIN_ROOM];

	explain_key(a, qp->pd, f, why);
	if (f == KEY_LAPSED)
		log_info(format, qp->ibv.qp_num, what, (unsigned long long)a->len,
			 (unsigned long long)a->to, a->stag, why);
	else
		peer_misuse(key_fault_str(f), qp->ibv.qp_num, format, qp->ibv.qp_num, what,
			    (unsigned long long)a->len, (unsigned long long)a->to, a->stag, why);
}

void log_bad_sge(const struct stag_qp *qp, uint64_t wr_id, uint32_t i, const char *of,
		 const struct ibv_sge *sge, unsigned access, enum key_fault f)
{
	const struct key_access a = {
		.stag = sge->lkey, .to = sge->addr, .len = sge->length, .access = access};
	char why[EXPLAIN_ROOM];

	misuse(key_fault_str(f), qp->ibv.qp_num,
	       "qp %u: wr_id 0x%llx: SGE %u of %s (lkey 0x%08x, %u bytes at 0x%llx): %s",
	       qp->ibv.qp_num, (unsigned long long)wr_id, i, of, sge->lkey, sge->length,
	       (unsigned long long)sge->addr, explain_key(&a, qp->pd, f, why));
}

/* ---- a peer's Terminate ---- */

static const struct {
	uint8_t layer, etype, code; /* RFC 5040 §4.8 */
	const char *words;
} refusals[] = {
	{0, 1, 0x00, "the rkey is not valid there: wrong, or its region was deregistered"},
	{1, 1, 0x00, "the rkey is not valid there: wrong, or its region was deregistered"},
	{0, 1, 0x01, "the range is outside of the peer's region"},
	{1, 1, 0x01, "the range is outside of the peer's region"},
	{0, 1, 0x02, "the peer's region does not have that right"},
	{0, 1, 0x03, "the rkey is of another protection domain or queue pair of the peer"},
	{1, 1, 0x02, "the rkey is of another protection domain or queue pair of the peer"},
	{0, 1, 0x04, "the range wraps around the end of the address space"},
	{1, 1, 0x03, "the range wraps around the end of the address space"},
	{0, 1, 0x09, "this connection may not invalidate that STag"},
	{0, 2, 0x09, "that STag is not valid, or was invalidated before"},
	{1, 2, 0x02, "the peer had no receive posted"},
	{1, 2, 0x05, "the message is longer than the peer's receive"},
};

static const char *refusal_words(const struct terminate *t, bool is_request)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		if (refusals[i].layer != t->fault.layer || refusals[i].etype != t->fault.etype ||
		    refusals[i].code != t->fault.code)
			continue;
		if (is_request && t->fault.layer == FAULT_LAYER_DDP && t->fault.etype == 2)
			return "more requests at once than the peer takes (its IRD)";
		return refusals[i].words;
	}
	return NULL;
}

static void append_write(char *text, const struct terminate *t, const struct ddp_hdr *h)
{
	append(text, "a write");
	if (t->has_seg_len && t->seg_len >= DDP_TAGGED_LEN)
		append(text, " of %u bytes", t->seg_len - DDP_TAGGED_LEN);
	append(text, " at 0x%llx under rkey 0x%08x", (unsigned long long)h->to, h->stag);
}

static void append_read(char *text, const struct terminate *t)
{
	struct rdmap_read_req r;

	rdmap_get_read_req(t->read_req, &r);
	append(text, "a read of %u bytes at 0x%llx under rkey 0x%08x", r.size,
	       (unsigned long long)r.src_to, r.src_stag);
}

const char *explain_terminate(const struct terminate *t, char text[EXPLAIN_ROOM])
{
	struct ddp_hdr h = {0};
	bool known = t->has_ddp && !ddp_decode(t->ddp, &h).set;
	bool is_request = known && !h.tagged && h.qn == QN_READ;
	const char *why = refusal_words(t, is_request);

	*text = '\0';
	if (!known)
		append(text, "the connection");
	else if (h.tagged)
		append_write(text, t, &h);
	else if (t->has_rdmap)
		append_read(text, t);
	else
		append(text, "%s %u", is_request ? "read or atomic number" : "send number", h.msn);
	append(text, ": %s", why ? why : wire_fault_str(t->fault));
	if (why)
		append(text, " (%s)", wire_fault_str(t->fault));
	return text;
}
