// SPDX-License-Identifier: BSD-2-Clause
/* cm_message.c - the messages that connect queue pairs of roce0: see cm_message.h. */
#include "wire/cm_message.h"

#include <errno.h>
#include <string.h>

#include "wire/wire.h"

static const uint8_t magic[8] = {CM_MESSAGE_FIRST, 't', 'a', 'g', 'C', 'O', 'N', 'N'};

#define MAX_24	  0xffffff
#define MAX_RETRY 7  /* 3 bits */
#define MAX_TIME  31 /* 5 bits */
#define MAX_MTU	  5  /* 4096 */

enum flag { FLAG_SRQ = 1, FLAG_FLOW_CONTROL = 2 };

/* Offsets */
enum {
	AT_VERSION = 8,
	AT_KIND = 10,
	AT_SPACE = 11,
	AT_REASON = 12,
	AT_FLAGS = 14,
	AT_QPN = 16,
	AT_PSN = 20,
	AT_INITIATOR_DEPTH = 24,
	AT_RESPONDER_RESOURCES = 25,
	AT_RETRY = 26,
	AT_RNR_RETRY = 27,
	AT_MTU = 28,
	AT_TIMEOUT = 29,
	AT_ZERO = 30, /* reserved */
	AT_GID = 32,
	AT_REST = 48, /* reserved */
	AT_PRIVATE = 60,
};

_Static_assert(AT_PRIVATE + CM_REP_PRIVATE == CM_MESSAGE_LEN, "private data ends the message");

size_t cm_message_private(uint8_t kind)
{
	switch (kind) {
	case CM_REQ:
		return CM_REQ_PRIVATE;
	case CM_REP:
		return CM_REP_PRIVATE;
	case CM_REJ:
		return CM_REJ_PRIVATE;
	default:
		return 0;
	}
}

void cm_message_encode(const struct cm_message *m, uint8_t buf[CM_MESSAGE_LEN])
{
	memset(buf, 0, CM_MESSAGE_LEN);
	memcpy(buf, magic, sizeof(magic));
	put_be16(buf + AT_VERSION, CM_MESSAGE_VERSION);
	buf[AT_KIND] = m->kind;
	buf[AT_SPACE] = m->space;
	put_be16(buf + AT_REASON, m->reason);
	buf[AT_FLAGS] = (m->srq ? FLAG_SRQ : 0) | (m->flow_control ? FLAG_FLOW_CONTROL : 0);
	put_be32(buf + AT_QPN, m->qpn);
	put_be32(buf + AT_PSN, m->psn);
	buf[AT_INITIATOR_DEPTH] = m->initiator_depth;
	buf[AT_RESPONDER_RESOURCES] = m->responder_resources;
	buf[AT_RETRY] = m->retry_count;
	buf[AT_RNR_RETRY] = m->rnr_retry_count;
	buf[AT_MTU] = m->mtu;
	buf[AT_TIMEOUT] = m->timeout;
	memcpy(buf + AT_GID, m->gid, sizeof(m->gid));
	memcpy(buf + AT_PRIVATE, m->private_data, cm_message_private(m->kind));
}

static bool has_legal_numbers(const struct cm_message *m)
{
	return m->qpn <= MAX_24 && m->psn <= MAX_24 && m->retry_count <= MAX_RETRY &&
	       m->rnr_retry_count <= MAX_RETRY && m->timeout <= MAX_TIME && m->mtu >= 1 &&
	       m->mtu <= MAX_MTU;
}

static bool is_legal(const struct cm_message *m)
{
	switch (m->kind) {
	case CM_REQ:
		return has_legal_numbers(m) &&
		       (m->space == CM_SPACE_TCP || m->space == CM_SPACE_IB);
	case CM_REP:
		return has_legal_numbers(m);
	case CM_RTU:
	case CM_REJ:
	case CM_DREQ:
	case CM_DREP:
		return true;
	default:
		return false;
	}
}

int cm_message_decode(const uint8_t *buf, size_t len, struct cm_message *m)
{
	size_t known = len < sizeof(magic) ? len : sizeof(magic);

	if (memcmp(buf, magic, known))
		return -EPROTO;
	if (len < CM_MESSAGE_LEN)
		return -EAGAIN;
	if (get_be16(buf + AT_VERSION) != CM_MESSAGE_VERSION)
		return -EPROTO;
	*m = (struct cm_message){
		.kind = buf[AT_KIND],
		.space = buf[AT_SPACE],
		.reason = get_be16(buf + AT_REASON),
		.srq = buf[AT_FLAGS] & FLAG_SRQ,
		.flow_control = buf[AT_FLAGS] & FLAG_FLOW_CONTROL,
		.qpn = get_be32(buf + AT_QPN),
		.psn = get_be32(buf + AT_PSN),
		.initiator_depth = buf[AT_INITIATOR_DEPTH],
		.responder_resources = buf[AT_RESPONDER_RESOURCES],
		.retry_count = buf[AT_RETRY],
		.rnr_retry_count = buf[AT_RNR_RETRY],
		.mtu = buf[AT_MTU],
		.timeout = buf[AT_TIMEOUT],
	};
	memcpy(m->gid, buf + AT_GID, sizeof(m->gid));
	memcpy(m->private_data, buf + AT_PRIVATE, cm_message_private(m->kind));
	return is_legal(m) ? CM_MESSAGE_LEN : -EPROTO;
}
