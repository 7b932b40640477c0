// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_plan_random.c - plans of random requests, against what the definition says.
 *
 * Of small requests every division there is is weighed, byte by byte, and the plan must have
 * as few descriptors as the best of them. Of large ones the plan brings its own proof that no
 * division has fewer. Of both, the descriptors hold the chain in order, no limit is broken,
 * each ends for the reason that it gives, and a plan can be taken up at any byte.
 *
 * STAG_SEED is the first throw of the dice; a failure prints it, and the request, explained.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "xfer/xfer.h"

#define SMALL_REQUESTS 200000
#define LARGE_REQUESTS 10000

#define MAX_ELEMS    12
#define MAX_BUFS     6 /* of an element */
#define MAX_PIECES   (MAX_ELEMS * MAX_BUFS)
#define MAX_SEGMENTS 16
#define MAX_BYTES    168 /* of a small request */

#define GIB ((uint64_t)1 << 30)

/* ---- random requests --------------------------------------------------- */

static uint64_t first_seed, dice_state;

/* splitmix64 */
static uint64_t dice(void)
{
	uint64_t z = dice_state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static uint64_t below(uint64_t n)
{
	return dice() % n;
}

static bool percent(unsigned int n)
{
	return below(100) < n;
}

struct request {
	struct stag_xfer_limits limits;
	struct stag_xfer_req req;
	struct stag_xfer_elem elems[MAX_ELEMS];
	struct stag_xfer_buf bufs[MAX_ELEMS][MAX_BUFS];
};

/* How a kind of request is thrown. */
struct kind {
	uint64_t (*length)(void); /* of a buffer */
	void (*limits)(struct stag_xfer_limits *limits, uint64_t total);
	unsigned int max_elems, max_bufs;
};

/* Often where the range before it ends; sometimes the last range there is, or the first. */
static uint64_t place(uint64_t after, uint64_t length)
{
	uint64_t addr = percent(65) ? after : percent(50) ? after + below(40) - 20 : dice();

	if (percent(3))
		addr = 0;
	if (percent(3) || (length != 0 && length - 1 > UINT64_MAX - addr))
		addr = length ? UINT64_MAX - length + 1 : UINT64_MAX;
	return addr;
}

static uint64_t throw_bufs(struct stag_xfer_elem *elem, struct stag_xfer_buf *bufs,
			   const struct kind *kind, struct stag_xfer_buf *last)
{
	uint64_t total = 0;

	*elem = (struct stag_xfer_elem){.bufs = bufs, .num_bufs = below(kind->max_bufs + 1)};
	for (uint32_t i = 0; i < elem->num_bufs; i++) {
		uint64_t length = kind->length();

		bufs[i] = (struct stag_xfer_buf){.addr = place(last->addr + last->length, length),
						 .length = length,
						 .lkey = percent(80) ? last->lkey : below(3)};
		total += length;
		if (length != 0)
			*last = bufs[i];
	}
	return total;
}

static void throw_request(struct request *r, const struct kind *kind)
{
	struct stag_xfer_buf last = {.addr = 0x10000};
	uint64_t total = 0, after = 0x1000;
	uint32_t rkey = 1;

	r->req = (struct stag_xfer_req){.op = percent(50) ? STAG_XFER_READ : STAG_XFER_WRITE,
					.elems = r->elems,
					.num_elems = below(kind->max_elems + 1)};
	for (size_t i = 0; i < r->req.num_elems; i++) {
		uint64_t length = throw_bufs(&r->elems[i], r->bufs[i], kind, &last);

		r->elems[i].remote_addr = place(after, length);
		r->elems[i].rkey = percent(85) ? rkey : below(3);
		if (length != 0) {
			after = r->elems[i].remote_addr + length;
			rkey = r->elems[i].rkey;
		}
		total += length;
	}
	kind->limits(&r->limits, total);
}

/* ---- what the definition says ------------------------------------------ */

/* A buffer that has bytes, as a part of the chain. */
struct piece {
	uint64_t at, length; /* bytes of the chain before it; its own */
	uint64_t local, remote;
	uint32_t lkey, rkey;
	struct stag_xfer_cursor begin;
	bool remote_break; /* it is not where the piece before it ends, */
	bool local_break;  /* there or here */
};

struct model {
	const struct request *request;
	struct piece pieces[MAX_PIECES];
	size_t n;
	uint64_t total;
};

static bool follows(uint64_t addr, uint64_t length, uint64_t next)
{
	return length - 1 < UINT64_MAX - addr && next == addr + length;
}

static void add_piece(struct model *m, const struct piece *piece)
{
	struct piece *new = &m->pieces[m->n], *before = new - 1;

	*new = *piece;
	if (m->n != 0) {
		new->remote_break = new->rkey != before->rkey ||
				    !follows(before->remote, before->length, new->remote);
		new->local_break = new->lkey != before->lkey ||
				   !follows(before->local, before->length, new->local);
	}
	m->n++;
	m->total += piece->length;
}

static void make_model(struct model *m, const struct request *r)
{
	*m = (struct model){.request = r};
	for (size_t e = 0; e < r->req.num_elems; e++) {
		const struct stag_xfer_elem *elem = &r->elems[e];
		uint64_t offset = 0;

		for (uint32_t b = 0; b < elem->num_bufs; b++) {
			const struct stag_xfer_buf *buf = &elem->bufs[b];
			struct piece piece = {.at = m->total,
					      .length = buf->length,
					      .local = buf->addr,
					      .remote = elem->remote_addr + offset,
					      .lkey = buf->lkey,
					      .rkey = elem->rkey,
					      .begin = {.elem = e, .offset = offset, .buf = b}};

			if (buf->length != 0)
				add_piece(m, &piece);
			offset += buf->length;
		}
	}
}

/* The piece that has a byte of the chain. */
static const struct piece *piece_of(const struct model *m, uint64_t at)
{
	const struct piece *p = m->pieces;

	while (at - p->at >= p->length)
		p++;
	return p;
}

static struct stag_xfer_cursor cursor_at(const struct model *m, uint64_t at)
{
	const struct piece *p;
	struct stag_xfer_cursor cursor = {.elem = m->request->req.num_elems};

	if (at == m->total)
		return cursor;
	p = piece_of(m, at);
	cursor = p->begin;
	cursor.offset += at - p->at;
	cursor.buf_offset += at - p->at;
	return cursor;
}

/* How often bytes of the chain are not neighbours: here in these, there in those. */
struct breaks {
	uint64_t remote, local;
};

static struct breaks breaks_within(const struct model *m, uint64_t from, uint64_t to)
{
	struct breaks breaks = {0};

	for (size_t i = 0; i < m->n; i++) {
		if (m->pieces[i].at > from && m->pieces[i].at < to) {
			breaks.remote += m->pieces[i].remote_break;
			breaks.local += m->pieces[i].local_break;
		}
	}
	return breaks;
}

/* What a descriptor is: no more than so many bytes, so many segments, one remote range. */
static bool allowed(const struct stag_xfer_limits *limits, uint64_t bytes, struct breaks within)
{
	return bytes != 0 && bytes <= limits->max_transfer && within.remote == 0 &&
	       within.local + 1 <= limits->max_segments;
}

static bool may_be_one(const struct model *m, uint64_t from, uint64_t to)
{
	return allowed(&m->request->limits, to - from, breaks_within(m, from, to));
}

/*
 * Every division of a small chain: fewest[i] becomes the number of descriptors of the best one
 * from byte i on. Each end is tried for each begin; nothing is taken for granted about the
 * descriptors between.
 */
static void weigh_all(const struct model *m, unsigned int *fewest)
{
	struct breaks before[MAX_BYTES + 1] = {{0}}; /* each byte, counting its own */

	for (uint64_t i = 1; i < m->total; i++) {
		const struct piece *p = piece_of(m, i);

		before[i] = before[i - 1];
		before[i].remote += p->at == i && p->remote_break;
		before[i].local += p->at == i && p->local_break;
	}
	fewest[m->total] = 0;
	for (uint64_t i = m->total; i-- > 0;) {
		fewest[i] = UINT32_MAX;
		for (uint64_t j = i + 1; j <= m->total; j++) {
			struct breaks within = {before[j - 1].remote - before[i].remote,
						before[j - 1].local - before[i].local};

			if (allowed(&m->request->limits, j - i, within) &&
			    fewest[j] + 1 < fewest[i])
				fewest[i] = fewest[j] + 1;
		}
	}
}

/* ---- claims ------------------------------------------------------------ */

static uint64_t request_seed;
static uint64_t ended[STAG_XFER_END_KEY + 1]; /* descriptors, by reason */

static void fail_with(const struct request *r, const char *claim, int line)
{
	print_error("line %d: not so: %s\n", line, claim);
	print_error("request of STAG_SEED=%" PRIu64 " (run began with %" PRIu64 ")\n", request_seed,
		    first_seed);
	fflush(stdout);
	stag_xfer_explain(stderr, &r->limits, &r->req);
	fail();
}

#define CLAIM(r, claim)                                                                            \
	do {                                                                                       \
		if (!(claim))                                                                      \
			fail_with(r, #claim, __LINE__);                                            \
	} while (0)

static bool same_cursor(const struct stag_xfer_cursor *a, const struct stag_xfer_cursor *b)
{
	return a->elem == b->elem && a->offset == b->offset && a->buf == b->buf &&
	       a->buf_offset == b->buf_offset;
}

/* The segments are these bytes of the chain, in order. */
static void holds_the_chain(const struct model *m, const struct stag_xfer_desc *desc, uint64_t at)
{
	const struct request *r = m->request;
	const struct piece *p = piece_of(m, at);

	CLAIM(r, desc->remote_addr == p->remote + (at - p->at));
	CLAIM(r, desc->rkey == p->rkey);
	for (uint32_t i = 0; i < desc->num_sge; i++) {
		uint64_t addr = desc->sge[i].addr, left = desc->sge[i].length;

		CLAIM(r, left != 0);
		while (left != 0) {
			uint64_t n;

			CLAIM(r, at < m->total);
			p = piece_of(m, at);
			n = p->at + p->length - at;
			n = n < left ? n : left;
			CLAIM(r, desc->sge[i].lkey == p->lkey);
			CLAIM(r, addr == p->local + (at - p->at));
			addr += n, at += n, left -= n;
		}
	}
}

static uint32_t elems_with_bytes(const struct model *m, uint64_t from, uint64_t to)
{
	uint32_t n = 0;
	size_t last = SIZE_MAX;

	for (size_t i = 0; i < m->n; i++) {
		const struct piece *p = &m->pieces[i];

		if (p->at < to && p->at + p->length > from && p->begin.elem != last) {
			n++;
			last = p->begin.elem;
		}
	}
	return n;
}

/* A descriptor ends before this byte of the chain: is the reason that it gives true? */
static bool ends_rightly(const struct model *m, const struct stag_xfer_desc *desc, uint64_t next)
{
	const struct stag_xfer_limits *limits = &m->request->limits;
	const struct piece *p;

	if (next == m->total)
		return desc->end == STAG_XFER_END_CHAIN;
	p = piece_of(m, next);
	switch (desc->end) {
	case STAG_XFER_END_CHAIN:
		return false;
	case STAG_XFER_END_KEY:
		return p->at == next && p->rkey != desc->rkey;
	case STAG_XFER_END_GAP:
		return p->at == next && p->remote_break && p->rkey == desc->rkey;
	case STAG_XFER_END_SIZE:
		return desc->length == limits->max_transfer && (p->at != next || !p->remote_break);
	case STAG_XFER_END_SEGMENTS:
		return p->at == next && p->local_break && !p->remote_break &&
		       desc->num_sge == limits->max_segments;
	}
	return false;
}

/* One descriptor that begins at this byte of the chain; the byte where the next one begins. */
static uint64_t claims_of_one(const struct model *m, const struct stag_xfer_desc *desc,
			      const struct stag_xfer_cursor *after, uint64_t at)
{
	const struct request *r = m->request;
	uint64_t next = at + desc->length;
	struct stag_xfer_cursor wanted;

	CLAIM(r, next <= m->total);
	CLAIM(r, may_be_one(m, at, next));
	CLAIM(r, desc->num_sge == breaks_within(m, at, next).local + 1);
	CLAIM(r, desc->num_elems == elems_with_bytes(m, at, next));
	CLAIM(r, ends_rightly(m, desc, next));
	ended[desc->end]++;
	holds_the_chain(m, desc, at);
	wanted = cursor_at(m, next);
	CLAIM(r, same_cursor(after, &wanted));
	return next;
}

/*
 * All descriptors of a request: claims of each, and that they are the fewest. Returns their number.
 *
 * The proof that no division has fewer. Let p(0), p(1), ... be the first bytes of the
 * descriptors, and let the bytes from p(i) up to and with p(i + 1) be more than one descriptor may
 * hold, for each i: that is claimed. Any descriptor that holds both p(i) and p(j), i < j, holds all
 * bytes from p(i) to p(i + 1), since a descriptor is one range of the chain. It is not
 * allowed then, since adding bytes to what is not allowed makes nothing allowed: it makes no
 * fewer bytes, no fewer segments, and mends no gap. So every division has a descriptor of its
 * own for each of p(0), p(1), ...
 */
static uint64_t claims_of_all(const struct model *m)
{
	const struct request *r = m->request;
	struct ibv_sge sge[MAX_SEGMENTS];
	struct stag_xfer_desc desc = {.sge = sge};
	struct stag_xfer_cursor cursor = {0};
	uint64_t n = 0, at = 0;

	for (; stag_xfer_form(&r->limits, &r->req, &cursor, &desc); n++) {
		uint64_t next = claims_of_one(m, &desc, &cursor, at);

		CLAIM(r, next == m->total || !may_be_one(m, at, next + 1));
		at = next;
	}
	CLAIM(r, at == m->total);
	CLAIM(r, cursor.elem == r->req.num_elems);
	CLAIM(r, stag_xfer_count(&r->limits, &r->req, NULL) == n);
	return n;
}

static uint64_t count_from(const struct model *m, uint64_t at)
{
	struct stag_xfer_cursor cursor = cursor_at(m, at);

	return stag_xfer_count(&m->request->limits, &m->request->req, &cursor);
}

static void throw_and_model(struct request *r, struct model *m, const struct kind *kind)
{
	uint64_t total;

	dice_state = request_seed;
	throw_request(r, kind);
	make_model(m, r);
	CLAIM(r, stag_xfer_check(&r->req, &total, NULL) == 0);
	CLAIM(r, total == m->total);
}

/* ---- the two kinds ----------------------------------------------------- */

static uint64_t small_length(void)
{
	return percent(20) ? 0 : below(8);
}

static void small_limits(struct stag_xfer_limits *limits, uint64_t total)
{
	limits->max_transfer = 1 + below(percent(80) ? 32 : MAX_BYTES);
	limits->max_segments = 1 + below(percent(80) ? 4 : MAX_SEGMENTS);
}

static const struct kind small = {small_length, small_limits, 8, 3};

static void plans_of_small_requests_are_the_best_of_all_divisions(void **state)
{
	static struct request r;
	static struct model m;
	unsigned int fewest[MAX_BYTES + 1];
	uint64_t descriptors = 0;

	for (size_t i = 0; i < SMALL_REQUESTS; i++) {
		uint64_t at;

		request_seed = first_seed + i;
		throw_and_model(&r, &m, &small);
		CLAIM(&r, m.total <= MAX_BYTES);
		weigh_all(&m, fewest);
		CLAIM(&r, claims_of_all(&m) == fewest[0]);
		at = below(m.total + 1);
		CLAIM(&r, count_from(&m, at) == fewest[at]);
		descriptors += fewest[0];
	}
	print_message("%d requests, %" PRIu64 " descriptors\n", SMALL_REQUESTS, descriptors);
}

/* From a byte to some GiB, each size of size as likely as the others. */
static uint64_t large_length(void)
{
	return percent(10) ? 0 : (GIB * 8 - 1) >> below(33);
}

/* Hardly more than a hundred descriptors. */
static void large_limits(struct stag_xfer_limits *limits, uint64_t total)
{
	uint64_t least = total / 100 + 1, size = UINT32_MAX >> below(32);

	size = size > least ? size : least;
	limits->max_transfer =
		size > UINT32_MAX ? UINT32_MAX : size - (size > least && percent(50));
	limits->max_segments = 1 + below(MAX_SEGMENTS);
}

static const struct kind large = {large_length, large_limits, MAX_ELEMS, MAX_BUFS};

static void plans_of_large_requests_prove_themselves(void **state)
{
	static struct request r;
	static struct model m;
	uint64_t descriptors = 0, bytes = 0;

	for (size_t i = 0; i < LARGE_REQUESTS; i++) {
		uint64_t n, at;

		request_seed = first_seed + SMALL_REQUESTS + i;
		throw_and_model(&r, &m, &large);
		n = claims_of_all(&m);
		at = m.total ? below(m.total) : 0;
		CLAIM(&r, count_from(&m, at) <= n);
		descriptors += n;
		bytes += m.total;
	}
	print_message("%d requests, %" PRIu64 " GiB, %" PRIu64 " descriptors\n", LARGE_REQUESTS,
		      bytes / GIB, descriptors);
}

/* The dice are not loaded: what was claimed above was claimed of every kind of descriptor. */
static void every_reason_to_end_was_met_often(void **state)
{
	for (size_t i = STAG_XFER_END_CHAIN; i <= STAG_XFER_END_KEY; i++) {
		print_message("end %zu: %" PRIu64 "\n", i, ended[i]);
		assert_true(ended[i] > 10000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_of_small_requests_are_the_best_of_all_divisions),
		cmocka_unit_test(plans_of_large_requests_prove_themselves),
		cmocka_unit_test(every_reason_to_end_was_met_often),
	};
	const char *seed = getenv("STAG_SEED");

	first_seed = seed ? strtoull(seed, NULL, 0) : 20020919;
	print_message("STAG_SEED=%" PRIu64 "\n", first_seed);
	return cmocka_run_group_tests_name("xfer plan, random", tests, NULL, NULL);
}
