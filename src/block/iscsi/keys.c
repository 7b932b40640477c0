// SPDX-License-Identifier: BSD-2-Clause
/*
 * keys.c - the operational keys (RFC 7143 §13, RFC 7144 §7, RFC 7145 §6) and the rules by which they are negotiated.
 *
 * Keys for identification and authentication (AuthMethod, CHAP_*, names, SessionType) are handled by the login.c of each side.
 */
#include "block/iscsi/iscsi.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum rule {
	RULE_AND,
	RULE_OR,
	RULE_MIN,
	RULE_MAX,
	RULE_DECLARED,	  /* has no answer */
	RULE_DIGEST,	  /* the first supported value of a list */
	RULE_REPORTING,	  /* a list, of which only RFC3720 is supported */
	RULE_OBSOLETE_NO, /* RFC 7143 §13.25: answered, but never in use */
	RULE_OBSOLETE_REJECT,
};

enum when {
	ALWAYS = 1 << 0, /* may be negotiated in full feature phase, too */
	NORMAL = 1 << 1, /* irrelevant in discovery sessions */
	RDMA = 1 << 2,	 /* understood over RDMA only */
};

static const struct key {
	const char *name;
	enum rule rule;
	unsigned int when;
	uint32_t low, high, initial;
	size_t field; /* in struct keys */
} table[] = {
#define K(field) offsetof(struct keys, field)
	{"HeaderDigest", RULE_DIGEST, 0, 0, 0, DIGEST_NONE, K(header_digest)},
	{"DataDigest", RULE_DIGEST, 0, 0, 0, DIGEST_NONE, K(data_digest)},
	{"MaxConnections", RULE_MIN, NORMAL, 1, 65535, 1, K(max_connections)},
	{"InitialR2T", RULE_OR, NORMAL, 0, 1, 1, K(initial_r2t)},
	{"ImmediateData", RULE_AND, NORMAL, 0, 1, 1, K(immediate_data)},
	{"MaxRecvDataSegmentLength", RULE_DECLARED, ALWAYS, 512, DATA_MAX, 8192, K(peer_recv_max)},
	{"MaxBurstLength", RULE_MIN, NORMAL, 512, DATA_MAX, 262144, K(max_burst)},
	{"FirstBurstLength", RULE_MIN, NORMAL, 512, DATA_MAX, 65536, K(first_burst)},
	{"DefaultTime2Wait", RULE_MAX, 0, 0, 3600, 2, K(time2wait)},
	{"DefaultTime2Retain", RULE_MIN, 0, 0, 3600, 20, K(time2retain)},
	{"MaxOutstandingR2T", RULE_MIN, NORMAL, 1, 65535, 1, K(max_r2t)},
	{"DataPDUInOrder", RULE_OR, NORMAL, 0, 1, 1, K(pdu_in_order)},
	{"DataSequenceInOrder", RULE_OR, NORMAL, 0, 1, 1, K(sequence_in_order)},
	{"ErrorRecoveryLevel", RULE_MIN, 0, 0, 2, 0, K(recovery_level)},
	{"TaskReporting", RULE_REPORTING, NORMAL, 0, 0, 0, K(task_reporting)},
	{"iSCSIProtocolLevel", RULE_MIN, NORMAL, 0, 31, 1, K(protocol_level)},
	{"IFMarker", RULE_OBSOLETE_NO, 0, 0, 0, 0, K(if_marker)},
	{"OFMarker", RULE_OBSOLETE_NO, 0, 0, 0, 0, K(of_marker)},
	{"IFMarkInt", RULE_OBSOLETE_REJECT, 0, 0, 0, 0, K(if_marker)},
	{"OFMarkInt", RULE_OBSOLETE_REJECT, 0, 0, 0, 0, K(of_marker)},
	{"RDMAExtensions", RULE_AND, RDMA, 0, 1, 0, K(rdma_extensions)},
	{"TargetRecvDataSegmentLength", RULE_MIN, RDMA, 512, DATA_MAX, 8192, K(target_recv)},
	{"InitiatorRecvDataSegmentLength", RULE_MIN, RDMA, 512, DATA_MAX, 8192, K(initiator_recv)},
	{"MaxOutstandingUnexpectedPDUs", RULE_DECLARED, RDMA, 0, UINT32_MAX, 0, K(max_unexpected)},
	{"MaxAHSLength", RULE_DECLARED, RDMA, 0, UINT32_MAX, 256, K(max_ahs)},
	{"TaggedBufferForSolicitedDataOnly", RULE_DECLARED, RDMA, 0, 1, 0, K(tagged_for_solicited)},
	{"iSERHelloRequired", RULE_AND, RDMA, 0, 1, 0, K(hello_required)},
#undef K
};

#define N_KEYS (sizeof(table) / sizeof(*table))

_Static_assert(N_KEYS <= 64, "a bit for each key");

static uint32_t *field_of(struct keys *k, const struct key *key)
{
	return (uint32_t *)((uint8_t *)k + key->field);
}

static uint32_t wish_for(const struct negotiation *n, const struct key *key)
{
	return *(const uint32_t *)((const uint8_t *)&n->wishes->keys + key->field);
}

void iscsi_keys_begin(struct negotiation *n, const struct key_wishes *wishes)
{
	memset(n, 0, sizeof(*n));
	n->wishes = wishes;
	for (size_t i = 0; i < N_KEYS; i++)
		*field_of(&n->agreed, &table[i]) = table[i].initial;
}

static const struct key *find(const struct negotiation *n, const char *name)
{
	for (size_t i = 0; i < N_KEYS; i++)
		if (strcmp(table[i].name, name) == 0)
			return (table[i].when & RDMA) && !n->wishes->rdma ? NULL : &table[i];
	return NULL;
}

/* ---- one function per rule -------------------------------------------------------------- */

static bool is_boolean(const struct key *key)
{
	return key->low == 0 && key->high == 1;
}

/* Parses a number within its range, or a boolean. */
static bool parse(const struct key *key, const char *value, uint32_t *out)
{
	uint64_t number;
	bool yes;

	if (is_boolean(key)) {
		if (!iscsi_text_bool(value, &yes))
			return false;
		*out = yes;
		return true;
	}
	if (!iscsi_text_number(value, &number) || number < key->low || number > key->high)
		return false;
	*out = (uint32_t)number;
	return true;
}

static uint32_t agree(enum rule rule, uint32_t a, uint32_t b)
{
	bool smaller = rule == RULE_AND || rule == RULE_MIN;

	return (a < b) == smaller ? a : b;
}

static void negotiate_value(struct negotiation *n, const struct key *key, const char *value,
			    struct text_out *out)
{
	uint32_t *field = field_of(&n->agreed, key), offered;

	if (!parse(key, value, &offered)) {
		iscsi_text_add(out, key->name, "Reject");
		return;
	}
	if (key->rule == RULE_DECLARED) {
		*field = offered;
		return;
	}
	*field = agree(key->rule, offered, wish_for(n, key));
	if (is_boolean(key))
		iscsi_text_add(out, key->name, *field ? "Yes" : "No");
	else
		iscsi_text_addf(out, key->name, "%u", *field);
}

static void negotiate_digest(struct negotiation *n, const struct key *key, const char *value,
			     struct text_out *out)
{
	bool can = wish_for(n, key) == DIGEST_CRC32C && !n->wishes->rdma;

	for (const char *p = value; *p;) {
		size_t len = strcspn(p, ",");

		if (len == 6 && can && memcmp(p, "CRC32C", 6) == 0) {
			*field_of(&n->agreed, key) = DIGEST_CRC32C;
			iscsi_text_add(out, key->name, "CRC32C");
			return;
		}
		if (len == 4 && memcmp(p, "None", 4) == 0) {
			iscsi_text_add(out, key->name, "None");
			return;
		}
		p += len + (p[len] == ',');
	}
	iscsi_text_add(out, key->name, "Reject");
}

static void negotiate_key(struct negotiation *n, const struct key *key, const char *value,
			  struct text_out *out)
{
	switch (key->rule) {
	case RULE_AND:
	case RULE_OR:
	case RULE_MIN:
	case RULE_MAX:
	case RULE_DECLARED:
		negotiate_value(n, key, value, out);
		return;
	case RULE_DIGEST:
		negotiate_digest(n, key, value, out);
		return;
	case RULE_REPORTING:
		iscsi_text_add(out, key->name,
			       iscsi_text_list_has(value, "RFC3720") ? "RFC3720" : "Reject");
		return;
	case RULE_OBSOLETE_NO:
		iscsi_text_add(out, key->name, "No");
		return;
	case RULE_OBSOLETE_REJECT:
		iscsi_text_add(out, key->name, "Reject");
		return;
	}
}

/* ---- the negotiation -------------------------------------------------------------- */

enum key_verdict iscsi_keys_receive(struct negotiation *n, const char *key, const char *value,
				    struct text_out *out)
{
	const struct key *k = find(n, key);
	uint64_t bit;

	if (!k)
		return KEY_UNKNOWN;
	if (n->full && !(k->when & ALWAYS))
		return KEY_WRONG_TIME;
	bit = 1ull << (k - table);
	if (n->seen & bit)
		return KEY_REPEATED;
	n->seen |= bit;
	if (n->discovery && (k->when & NORMAL))
		iscsi_text_add(out, k->name, "Irrelevant");
	else
		negotiate_key(n, k, value, out);
	return KEY_ANSWERED;
}

static bool was_seen(const struct negotiation *n, const char *name)
{
	const struct key *k = find(n, name);

	return k && (n->seen & 1ull << (k - table));
}

/* open-iscsi fails a login that contains MaxOutstandingUnexpectedPDUs: it is sent only to peers that used the key. */
void iscsi_keys_declare(struct negotiation *n, struct text_out *out)
{
	if (n->declared)
		return;
	n->declared = true;
	if (n->agreed.rdma_extensions && was_seen(n, "MaxOutstandingUnexpectedPDUs"))
		iscsi_text_addf(out, "MaxOutstandingUnexpectedPDUs", "%u",
				n->wishes->keys.max_unexpected);
	if (!n->wishes->rdma)
		iscsi_text_addf(out, "MaxRecvDataSegmentLength", "%u", n->wishes->own_recv_max);
}

/* ---- the side that offers ----------------------------------------------------------- */

static bool is_offered(const struct negotiation *n, const struct key *key)
{
	if ((key->when & RDMA) && !n->wishes->rdma)
		return false;
	if (n->discovery && (key->when & NORMAL))
		return false;
	switch (key->rule) {
	case RULE_AND:
	case RULE_OR:
	case RULE_MIN:
	case RULE_MAX:
		return true;
	case RULE_DIGEST:
		return !n->wishes->rdma;
	case RULE_DECLARED:
	case RULE_REPORTING:
	case RULE_OBSOLETE_NO:
	case RULE_OBSOLETE_REJECT:
		break;
	}
	return false;
}

static void offer(const struct negotiation *n, const struct key *key, struct text_out *out)
{
	uint32_t wish = wish_for(n, key);

	if (key->rule == RULE_DIGEST)
		iscsi_text_add(out, key->name, wish ? "CRC32C,None" : "None");
	else if (is_boolean(key))
		iscsi_text_add(out, key->name, wish ? "Yes" : "No");
	else
		iscsi_text_addf(out, key->name, "%u", wish);
}

void iscsi_keys_offer(struct negotiation *n, struct text_out *out)
{
	for (size_t i = 0; i < N_KEYS; i++)
		if (is_offered(n, &table[i])) {
			offer(n, &table[i], out);
			n->offered |= 1ull << i;
			n->seen |= 1ull << i;
		}
	iscsi_keys_declare(n, out);
}

/* Accepts the answer to an offered key, if the rule allows it: the answer is the outcome. */
static int accept_answer(struct negotiation *n, const struct key *key, const char *value)
{
	uint32_t wish = wish_for(n, key), outcome;

	if (strcmp(value, "NotUnderstood") == 0 || strcmp(value, "Irrelevant") == 0 ||
	    strcmp(value, "Reject") == 0)
		return 0; /* the default applies */
	if (key->rule == RULE_DIGEST) {
		*field_of(&n->agreed, key) =
			strcmp(value, "CRC32C") == 0 ? DIGEST_CRC32C : DIGEST_NONE;
		return strcmp(value, "None") == 0 || (wish && strcmp(value, "CRC32C") == 0)
			       ? 0
			       : -EPROTO;
	}
	if (!parse(key, value, &outcome) || agree(key->rule, outcome, wish) != outcome)
		return -EPROTO;
	*field_of(&n->agreed, key) = outcome;
	return 0;
}

int iscsi_keys_answered(struct negotiation *n, const char *key, const char *value,
			struct text_out *out)
{
	const struct key *k = find(n, key);
	uint64_t bit = k ? 1ull << (k - table) : 0;

	if (k && (n->offered & bit)) {
		n->offered &= ~bit;
		return accept_answer(n, k, value);
	}
	switch (iscsi_keys_receive(n, key, value, out)) {
	case KEY_ANSWERED:
		return 0;
	case KEY_UNKNOWN:
		if (strcmp(value, "NotUnderstood") != 0)
			iscsi_text_add(out, key, "NotUnderstood");
		return 0;
	case KEY_REPEATED:
	case KEY_WRONG_TIME:
		break;
	}
	return -EPROTO;
}

/* RFC 7143 §13.14: FirstBurstLength does not exceed MaxBurstLength. */
void iscsi_keys_conclude(struct negotiation *n)
{
	if (n->agreed.first_burst > n->agreed.max_burst)
		n->agreed.first_burst = n->agreed.max_burst;
	if (n->wishes->rdma) /* RFC 7145 §6.1 */
		n->agreed.peer_recv_max = n->agreed.initiator_recv;
}
