// SPDX-License-Identifier: BSD-2-Clause
/*
 * iser.c - PDUs in sends, with or without the header of iSER (RFC 7145 §9), and the private data of connections.
 */
#include "block/iscsi/iscsi.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"

enum { CONTROL = 0x10, KIND = 0xf0, WRITE_VALID = 0x08, READ_VALID = 0x04 };

int iscsi_iser_decode(const uint8_t *bytes, size_t len, struct iser *h)
{
	if (len < ISER_LEN || (bytes[0] & KIND) != CONTROL)
		return -EPROTO;
	h->write = bytes[0] & WRITE_VALID;
	h->read = bytes[0] & READ_VALID;
	h->write_stag = get_be32(bytes + 4);
	h->write_base = get_be64(bytes + 8);
	h->read_stag = get_be32(bytes + 16);
	h->read_base = get_be64(bytes + 20);
	return 0;
}

void iscsi_iser_encode(const struct iser *h, uint8_t bytes[ISER_LEN])
{
	memset(bytes, 0, ISER_LEN);
	bytes[0] = (uint8_t)(CONTROL | (h->write ? WRITE_VALID : 0) | (h->read ? READ_VALID : 0));
	if (h->write) {
		put_be32(bytes + 4, h->write_stag);
		put_be64(bytes + 8, h->write_base);
	}
	if (h->read) {
		put_be32(bytes + 16, h->read_stag);
		put_be64(bytes + 20, h->read_base);
	}
}

const char *iscsi_iser_parse(const uint8_t *bytes, uint32_t len, bool headed, struct arrival *a)
{
	uint32_t head = headed ? ISER_LEN : 0, ahs, data;

	if (len < head + BHS_LEN)
		return "a send that is too short for a PDU";
	if (headed && iscsi_iser_decode(bytes, len, &a->lent) != 0)
		return "a send without iSER's header";
	a->bhs = bytes + head;
	iscsi_pdu_lengths(a->bhs, &ahs, &data);
	len -= head + BHS_LEN;
	if (ahs > len || data > len - ahs || len - ahs - data > 3)
		return "a PDU of another length than its send";
	a->ahs = a->bhs + BHS_LEN;
	a->data = a->ahs + ahs;
	a->decoded = iscsi_pdu_decode(a->bhs, &a->pdu) == 0;
	return NULL;
}

/* ---- private data -------------------------------------------------------------------- */

static const uint8_t one_shot[4] = {'S', 't', 'B', '1'};

size_t iscsi_iser_hello_make(const struct iser_hello *h, uint8_t bytes[ISER_HELLO_MAX])
{
	memset(bytes, 0, ISER_HELLO_MAX);
	bytes[0] = (uint8_t)(ISER_NO_ZBVA | (h->invalidates ? 0 : ISER_NO_INVALIDATE));
	if (!h->one_shot)
		return 4;
	memcpy(bytes + 4, one_shot, sizeof(one_shot));
	return ISER_HELLO_MAX;
}

void iscsi_iser_hello_read(const uint8_t *bytes, size_t len, struct iser_hello *h)
{
	h->invalidates = len >= 4 && !(bytes[0] & ISER_NO_INVALIDATE);
	h->one_shot = len >= ISER_HELLO_MAX && memcmp(bytes + 4, one_shot, sizeof(one_shot)) == 0;
}
