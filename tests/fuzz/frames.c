// SPDX-License-Identifier: BSD-2-Clause
/* frames.c - FPDUs from the peer of a stream in memory, and checks of those that it receives. */
#include "frames.h"

#include <string.h>

#include "adapter/adapter.h"
#include "base/crc32c.h"
#include "fuzz.h"
#include "peer.h"

/* Writes the sum of a header that says it has one over the bytes behind the header. */
static void put_sum(const struct qp_link *link, uint8_t *fpdu, size_t ulpdu_len)
{
	size_t head = MPA_LEN_FIELD + ddp_hdr_len(fpdu[MPA_LEN_FIELD]);

	if (!link->crc || !(link->caps & MPA_EXT_SUM) || !(fpdu[MPA_LEN_FIELD] & DDP_SUM) ||
	    MPA_LEN_FIELD + ulpdu_len < head + DDP_SUM_LEN)
		return;
	crc32c_put(fpdu + head, crc32c_update(CRC32C_INIT, fpdu, head));
}

void frames_send(const struct qp_link *link, const uint8_t *ulpdu, size_t len, bool spoil)
{
	static uint8_t fpdu[FPDU_MAX_LEN], raw[FPDU_MAX_LEN + 4 * 132];
	size_t whole = fpdu_len(len), raw_len;

	put_be16(fpdu, (uint16_t)len);
	memcpy(fpdu + 2, ulpdu, len);
	memset(fpdu + 2 + len, 0, whole - 2 - len);
	put_sum(link, fpdu, len);
	raw_len = link->markers_rx ? markers_insert(peer.in_len, fpdu, whole, raw) : whole;
	if (!link->markers_rx)
		memcpy(raw, fpdu, whole);
	if (link->crc)
		crc32c_put(raw + raw_len - 4, crc32c_update(CRC32C_INIT, raw, raw_len - 4));
	raw[raw_len - 1] ^= spoil ? 1 : 0;
	peer_sends(raw, raw_len);
}

/* Returns the stream length of the FPDU at p, or 0 if it is incomplete. */
static size_t out_fpdu(const struct qp_link *link, uint64_t pos, const uint8_t *p, size_t len,
		       uint8_t *fpdu)
{
	size_t marker = link->markers_tx && pos % MARKER_INTERVAL == 0 ? MARKER_LEN : 0;
	size_t whole, raw_len;

	if (len < marker + MPA_LEN_FIELD)
		return 0;
	whole = fpdu_len(get_be16(p + marker));
	raw_len = link->markers_tx ? markers_raw_len(pos, whole) : whole;
	if (len < raw_len)
		return 0;
	if (link->crc)
		CHECK(crc32c_matches(p + raw_len - 4, crc32c_update(CRC32C_INIT, p, raw_len - 4)));
	if (link->markers_tx)
		CHECK(markers_strip(pos, p, raw_len, fpdu) == (int)whole);
	else
		memcpy(fpdu, p, whole);
	return raw_len;
}

void frames_check(const struct qp_link *link)
{
	static uint8_t fpdu[FPDU_MAX_LEN];
	bool terminated = false;

	for (size_t off = 0, n; off < peer.out_len; off += n) {
		struct ddp_hdr h;
		size_t len;

		n = out_fpdu(link, off, peer.out + off, peer.out_len - off, fpdu);
		if (n == 0)
			return;
		len = get_be16(fpdu);
		CHECK(!terminated);
		CHECK(len >= DDP_TAGGED_LEN && len >= ddp_hdr_len(fpdu[2]));
		CHECK(!ddp_decode(fpdu + 2, &h).set);
		CHECK(h.summed || !link->crc || !(link->caps & MPA_EXT_SUM) ||
		      fpdu_len(len) <= FPDU_UNSUMMED);
		CHECK(!rdmap_shot_from_wire(&h, link->one_shot).set);
		CHECK(!rdmap_check(&h, len - ddp_hdr_len(fpdu[2]), link->caps).set);
		terminated = h.opcode == RDMAP_TERMINATE;
	}
}
