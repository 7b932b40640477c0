// SPDX-License-Identifier: BSD-2-Clause
/*
 * hello.c - the hello: what two queue pairs of roce0 tell each other before the first FPDU.
 *
 * Of a fixed length, so that a receiver reads exactly it. Says what the bytes claim; whether the claim is true of a
 * queue pair is the adapter's question (reach.c).
 */
#include "wire/wire.h"

#include <errno.h>
#include <string.h>

static const uint8_t magic[8] = {'s', 't', 'a', 'g', 'R', 'o', 'C', 'E'}; /* MPA begins with 'M' */

/* Offsets */
enum {
	AT_VERSION = 8,
	AT_KIND = 10,
	AT_TYPE = 11,
	AT_FLAGS = 12,
	AT_CAPS = 14,
	AT_IRD = 16,
	AT_ORD = 18,
	AT_FROM_QPN = 20,
	AT_TO_QPN = 24,
	AT_SQ_PSN = 28,
	AT_RQ_PSN = 32,
	AT_LIFE = 36,
	AT_EPOCH = 40,
	AT_ZERO = 44, /* reserved */
	AT_PROCESS = 48,
	AT_FROM_GID = 56,
	AT_TO_GID = 72,
	AT_REST = 88, /* reserved */
};

void hello_encode(const struct hello *h, uint8_t buf[HELLO_LEN])
{
	memset(buf, 0, HELLO_LEN);
	memcpy(buf, magic, sizeof(magic));
	put_be16(buf + AT_VERSION, HELLO_VERSION);
	buf[AT_KIND] = h->kind;
	if (h->kind == HELLO_NO)
		return;
	buf[AT_TYPE] = h->type;
	put_be16(buf + AT_FLAGS, h->flags);
	put_be16(buf + AT_CAPS, h->caps);
	put_be16(buf + AT_IRD, h->ird);
	put_be16(buf + AT_ORD, h->ord);
	put_be32(buf + AT_FROM_QPN, h->from_qpn);
	put_be32(buf + AT_TO_QPN, h->to_qpn);
	put_be32(buf + AT_SQ_PSN, h->sq_psn);
	put_be32(buf + AT_RQ_PSN, h->rq_psn);
	put_be32(buf + AT_LIFE, h->life);
	put_be32(buf + AT_EPOCH, h->epoch);
	put_be64(buf + AT_PROCESS, h->process);
	memcpy(buf + AT_FROM_GID, h->from_gid, sizeof(h->from_gid));
	memcpy(buf + AT_TO_GID, h->to_gid, sizeof(h->to_gid));
}

static bool has_known_kind(const uint8_t *buf)
{
	if (buf[AT_KIND] == HELLO_NO)
		return true;
	return (buf[AT_KIND] == HELLO_ASK || buf[AT_KIND] == HELLO_READY) &&
	       (buf[AT_TYPE] == HELLO_RC || buf[AT_TYPE] == HELLO_UC);
}

static bool has_legal_numbers(const struct hello *h)
{
	return h->from_qpn <= HELLO_MAX_24 && h->to_qpn <= HELLO_MAX_24 &&
	       h->sq_psn <= HELLO_MAX_24 && h->rq_psn <= HELLO_MAX_24;
}

int hello_decode(const uint8_t *buf, size_t len, struct hello *h)
{
	size_t known = len < sizeof(magic) ? len : sizeof(magic);

	if (memcmp(buf, magic, known))
		return -EPROTO;
	if (len < HELLO_LEN)
		return -EAGAIN;
	if (get_be16(buf + AT_VERSION) != HELLO_VERSION || !has_known_kind(buf))
		return -EPROTO;
	*h = (struct hello){.kind = buf[AT_KIND]};
	if (h->kind == HELLO_NO)
		return HELLO_LEN;
	h->type = buf[AT_TYPE];
	h->flags = get_be16(buf + AT_FLAGS);
	h->caps = get_be16(buf + AT_CAPS);
	h->ird = get_be16(buf + AT_IRD);
	h->ord = get_be16(buf + AT_ORD);
	h->from_qpn = get_be32(buf + AT_FROM_QPN);
	h->to_qpn = get_be32(buf + AT_TO_QPN);
	h->sq_psn = get_be32(buf + AT_SQ_PSN);
	h->rq_psn = get_be32(buf + AT_RQ_PSN);
	h->life = get_be32(buf + AT_LIFE);
	h->epoch = get_be32(buf + AT_EPOCH);
	h->process = get_be64(buf + AT_PROCESS);
	memcpy(h->from_gid, buf + AT_FROM_GID, sizeof(h->from_gid));
	memcpy(h->to_gid, buf + AT_TO_GID, sizeof(h->to_gid));
	return has_legal_numbers(h) ? HELLO_LEN : -EPROTO;
}
