// SPDX-License-Identifier: BSD-2-Clause
/*
 * pdu.c - the headers of iSCSI PDUs (RFC 7143 §11), in and out of 48 bytes.
 *
 * One table has the fields of each opcode and their offsets, for encoding and decoding. Reserved bytes are sent as zero and
 * ignored on receipt.
 */
#include "block/iscsi/iscsi.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"

struct pdu_field {
	uint8_t at, width; /* offset and size in the header */
	uint8_t where;	   /* offset in struct pdu */
};

#define F(at, width, name)                                                                         \
	{                                                                                          \
		at, width, offsetof(struct pdu, name)                                              \
	}
#define END                                                                                        \
	{                                                                                          \
		0, 0, 0                                                                            \
	}
#define LUN	       F(8, 8, lun)
#define ITT	       F(16, 4, itt)
#define TTT	       F(20, 4, ttt)
#define FROM_INITIATOR F(24, 4, cmd_sn), F(28, 4, exp_stat_sn)
#define FROM_TARGET    F(24, 4, stat_sn), F(28, 4, exp_cmd_sn), F(32, 4, max_cmd_sn)

_Static_assert(sizeof(struct pdu) < 256, "a field's place fits in a byte");

#define MAX_FIELDS 14

static const struct pdu_kind {
	uint8_t opcode;
	const char *name;
	struct pdu_field fields[MAX_FIELDS];
} kinds[] = {
	{NOP_OUT, "NOP-Out", {LUN, ITT, TTT, FROM_INITIATOR, END}},
	{SCSI_COMMAND,
	 "SCSI Command",
	 {LUN, ITT, F(20, 4, expected), FROM_INITIATOR, F(32, 16, cdb), END}},
	{TASK_REQUEST,
	 "Task Management Request",
	 {LUN, ITT, F(20, 4, ref_tag), FROM_INITIATOR, F(32, 4, ref_cmd_sn), F(36, 4, data_sn),
	  END}},
	{LOGIN_REQUEST,
	 "Login Request",
	 {F(2, 1, code), F(3, 1, status), F(8, 6, isid), F(14, 2, tsih), ITT, F(20, 2, cid),
	  FROM_INITIATOR, END}},
	{TEXT_REQUEST, "Text Request", {LUN, ITT, TTT, FROM_INITIATOR, END}},
	{DATA_OUT,
	 "Data-Out",
	 {LUN, ITT, TTT, F(28, 4, exp_stat_sn), F(36, 4, data_sn), F(40, 4, offset), END}},
	{LOGOUT_REQUEST, "Logout Request", {ITT, F(20, 2, cid), FROM_INITIATOR, END}},
	{SNACK_REQUEST,
	 "SNACK Request",
	 {LUN, ITT, TTT, F(28, 4, exp_stat_sn), F(40, 4, offset), F(44, 4, length), END}},
	{NOP_IN, "NOP-In", {LUN, ITT, TTT, FROM_TARGET, END}},
	{SCSI_RESPONSE,
	 "SCSI Response",
	 {F(2, 1, code), F(3, 1, status), ITT, F(20, 4, ref_tag), FROM_TARGET, F(36, 4, data_sn),
	  F(40, 4, bidi_residual), F(44, 4, residual), END}},
	{TASK_RESPONSE, "Task Management Response", {F(2, 1, code), ITT, FROM_TARGET, END}},
	{LOGIN_RESPONSE,
	 "Login Response",
	 {F(2, 1, code), F(3, 1, status), F(8, 6, isid), F(14, 2, tsih), ITT, FROM_TARGET,
	  F(36, 1, status_class), F(37, 1, status_detail), END}},
	{TEXT_RESPONSE, "Text Response", {LUN, ITT, TTT, FROM_TARGET, END}},
	{DATA_IN,
	 "Data-In",
	 {F(3, 1, status), LUN, ITT, TTT, FROM_TARGET, F(36, 4, data_sn), F(40, 4, offset),
	  F(44, 4, residual), END}},
	{LOGOUT_RESPONSE,
	 "Logout Response",
	 {F(2, 1, code), ITT, FROM_TARGET, F(40, 2, param[0]), F(42, 2, param[1]), END}},
	{R2T,
	 "R2T",
	 {LUN, ITT, TTT, FROM_TARGET, F(36, 4, data_sn), F(40, 4, offset), F(44, 4, length), END}},
	{ASYNC_MESSAGE,
	 "Asynchronous Message",
	 {LUN, ITT, FROM_TARGET, F(36, 1, event), F(37, 1, vcode), F(38, 2, param[0]),
	  F(40, 2, param[1]), F(42, 2, param[2]), END}},
	{REJECT, "Reject", {F(2, 1, code), ITT, FROM_TARGET, F(36, 4, data_sn), END}},
};

#define OPCODE_MASK 0x3f
#define IMMEDIATE   0x40
#define TARGET_BIT  0x20

static const struct pdu_kind *find(uint8_t opcode)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (kinds[i].opcode == opcode)
			return &kinds[i];
	return NULL;
}

static void put(uint8_t *at, uint8_t width, const void *field)
{
	switch (width) {
	case 2:
		put_be16(at, *(const uint16_t *)field);
		return;
	case 4:
		put_be32(at, *(const uint32_t *)field);
		return;
	case 8:
		put_be64(at, *(const uint64_t *)field);
		return;
	default: /* an array of bytes: ISID, CDB */
		memcpy(at, field, width);
	}
}

static void get(const uint8_t *at, uint8_t width, void *field)
{
	switch (width) {
	case 2:
		*(uint16_t *)field = get_be16(at);
		return;
	case 4:
		*(uint32_t *)field = get_be32(at);
		return;
	case 8:
		*(uint64_t *)field = get_be64(at);
		return;
	default:
		memcpy(field, at, width);
	}
}

void iscsi_pdu_encode(const struct pdu *p, uint8_t bhs[BHS_LEN])
{
	const struct pdu_kind *k = find(p->opcode);

	memset(bhs, 0, BHS_LEN);
	bhs[0] = p->opcode | (p->immediate ? IMMEDIATE : 0);
	bhs[1] = p->flags;
	put_be32(bhs + 4, p->data_len & DATA_MAX);
	bhs[4] = (uint8_t)(p->ahs_len / 4);
	for (const struct pdu_field *f = k->fields; f->width; f++)
		put(bhs + f->at, f->width, (const uint8_t *)p + f->where);
}

void iscsi_pdu_lengths(const uint8_t bhs[BHS_LEN], uint32_t *ahs, uint32_t *data)
{
	*ahs = bhs[4] * 4u;
	*data = get_be32(bhs + 4) & DATA_MAX;
}

int iscsi_pdu_decode(const uint8_t bhs[BHS_LEN], struct pdu *p)
{
	const struct pdu_kind *k = find(bhs[0] & OPCODE_MASK);

	memset(p, 0, sizeof(*p));
	p->opcode = bhs[0] & OPCODE_MASK;
	p->immediate = bhs[0] & IMMEDIATE;
	p->flags = bhs[1];
	iscsi_pdu_lengths(bhs, &p->ahs_len, &p->data_len);
	if (!k)
		return -EPROTO;
	for (const struct pdu_field *f = k->fields; f->width; f++)
		get(bhs + f->at, f->width, (uint8_t *)p + f->where);
	return 0;
}

const char *iscsi_pdu_name(uint8_t opcode)
{
	const struct pdu_kind *k = find(opcode);

	return k ? k->name : "unknown PDU";
}

bool iscsi_pdu_from_initiator(uint8_t opcode)
{
	return !(opcode & TARGET_BIT) && find(opcode);
}

int iscsi_ahs_next(const uint8_t *all, uint32_t len, uint32_t *at, struct ahs *out)
{
	const uint8_t *p = all + *at;
	uint32_t n;

	if (*at >= len)
		return 0;
	if (len - *at < 4)
		return -EPROTO;
	n = get_be16(p); /* AHSLength: the byte after the type, and the specific part */
	if (n < 1 || n > len - *at - 3)
		return -EPROTO;
	*out = (struct ahs){.type = p[2], .bytes = p + 4, .len = n - 1};
	*at += (3 + n + 3) & ~3u;
	return 1;
}

const char *iscsi_login_status_name(enum login_status s)
{
	switch (s) {
	case LOGIN_OK:
		return "success";
	case LOGIN_INITIATOR_ERROR:
		return "initiator error";
	case LOGIN_AUTHENTICATION_FAILED:
		return "authentication failed";
	case LOGIN_FORBIDDEN:
		return "not allowed to use this target";
	case LOGIN_NOT_FOUND:
		return "no such target";
	case LOGIN_REMOVED:
		return "the target was removed";
	case LOGIN_BAD_VERSION:
		return "unsupported version";
	case LOGIN_TOO_MANY_CONNECTIONS:
		return "too many connections";
	case LOGIN_MISSING_PARAMETER:
		return "missing parameter";
	case LOGIN_NOT_INCLUDED:
		return "cannot be in this session";
	case LOGIN_NO_SESSION_TYPE:
		return "no such type of session";
	case LOGIN_NO_SESSION:
		return "no such session";
	case LOGIN_INVALID_REQUEST:
		return "invalid during login";
	case LOGIN_TARGET_ERROR:
		return "target error";
	case LOGIN_UNAVAILABLE:
		return "service unavailable";
	case LOGIN_NO_RESOURCES:
		return "out of resources";
	}
	return "unknown status";
}
