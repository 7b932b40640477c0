// SPDX-License-Identifier: BSD-2-Clause
/*
 * mpa.c - MPA's start-up frames (RFC 5044 §7.1, RFC 6581 §4) and the size of an FPDU.
 *
 * Locates the enhanced block and stag's extension block. The negotiation (CRC, markers, depths,
 * RTR) is src/cm's.
 */
#include "wire/wire.h"

#include <errno.h>

#define KEY_LEN	   16
#define FLAGS_OFF  16
#define REV_OFF	   17
#define LENGTH_OFF 18

static const uint8_t request_key[KEY_LEN] = "MPA ID Req Frame";
static const uint8_t reply_key[KEY_LEN] = "MPA ID Rep Frame";
static const uint8_t ext_magic[4] = "StAg";

/* RFC 6581 §4: bits of the enhanced block's two halves, above 14 bits of depth. */
#define ENHANCED_P2P	   0x8000 /* A, beside IRD */
#define ENHANCED_RTR_SEND  0x4000 /* B, beside IRD */
#define ENHANCED_RTR_WRITE 0x8000 /* C, beside ORD */
#define ENHANCED_RTR_READ  0x4000 /* D, beside ORD */

static const uint8_t *frame_key(bool reply)
{
	return reply ? reply_key : request_key;
}

/*
 * Clears flags whose blocks cannot be there: S is a reserved bit before revision 2, and an
 * extension block only follows an enhanced one.
 */
static uint8_t plausible_flags(bool reply, uint8_t rev, uint8_t flags)
{
	if (rev < 2)
		flags &= (uint8_t)~MPA_ENHANCED;
	if (reply && !(flags & MPA_ENHANCED))
		flags &= (uint8_t)~MPA_EXT_ACCEPT;
	return flags;
}

static bool has_ext(bool reply, uint8_t flags)
{
	return reply && (flags & MPA_EXT_ACCEPT);
}

static void put_enhanced(uint8_t *p, const struct mpa_frame *f)
{
	uint16_t first = f->ird & MPA_IRD_MASK, second = f->ord & MPA_IRD_MASK;

	if (f->p2p) {
		first |= ENHANCED_P2P | (f->rtr & MPA_RTR_SEND ? ENHANCED_RTR_SEND : 0);
		second |= f->rtr & MPA_RTR_WRITE ? ENHANCED_RTR_WRITE : 0;
		second |= f->rtr & MPA_RTR_READ ? ENHANCED_RTR_READ : 0;
	}
	put_be16(p, first);
	put_be16(p + 2, second);
}

static void get_enhanced(const uint8_t *p, struct mpa_frame *f)
{
	uint16_t first = get_be16(p), second = get_be16(p + 2);

	f->ird = first & MPA_IRD_MASK;
	f->ord = second & MPA_IRD_MASK;
	f->p2p = first & ENHANCED_P2P;
	if (!f->p2p) /* RFC 6581 §4: without A the RTR options have no meaning */
		return;
	f->rtr |= first & ENHANCED_RTR_SEND ? MPA_RTR_SEND : 0;
	f->rtr |= second & ENHANCED_RTR_WRITE ? MPA_RTR_WRITE : 0;
	f->rtr |= second & ENHANCED_RTR_READ ? MPA_RTR_READ : 0;
}

static void put_ext(uint8_t *p, const struct mpa_ext *e)
{
	memcpy(p, ext_magic, sizeof(ext_magic));
	p[4] = e->version;
	p[5] = e->encoding;
	put_be16(p + 6, e->caps);
}

static bool get_ext(const uint8_t *p, size_t len, struct mpa_ext *e)
{
	if (len < MPA_EXT_LEN || memcmp(p, ext_magic, sizeof(ext_magic)) != 0)
		return false;
	*e = (struct mpa_ext){.version = p[4], .encoding = p[5], .caps = get_be16(p + 6)};
	return true;
}

int mpa_encode(const struct mpa_frame *f, uint8_t *buf, size_t size)
{
	uint8_t flags = plausible_flags(f->reply, f->rev, f->flags);
	size_t blocks = flags & MPA_ENHANCED ? MPA_ENHANCED_LEN : 0;
	uint8_t *p = buf + MPA_FRAME_LEN;

	if (has_ext(f->reply, flags))
		blocks += MPA_EXT_LEN;
	if (f->private_len > MPA_MAX_PRIVATE - blocks)
		return -EMSGSIZE;
	if (size < MPA_FRAME_LEN + blocks + f->private_len)
		return -EMSGSIZE;

	memcpy(buf, frame_key(f->reply), KEY_LEN);
	buf[FLAGS_OFF] = flags;
	buf[REV_OFF] = f->rev;
	put_be16(buf + LENGTH_OFF, (uint16_t)(blocks + f->private_len));
	if (flags & MPA_ENHANCED) {
		put_enhanced(p, f);
		p += MPA_ENHANCED_LEN;
	}
	if (has_ext(f->reply, flags)) {
		put_ext(p, &f->ext);
		p += MPA_EXT_LEN;
	}
	if (f->private_len)
		memcpy(p, f->private_data, f->private_len);
	return (int)(MPA_FRAME_LEN + blocks + f->private_len);
}

/* Checks the fixed part. Returns 0, -EAGAIN while it may still become valid, or -EPROTO. */
static int check_fixed_part(const uint8_t *buf, size_t len, bool reply)
{
	if (memcmp(buf, frame_key(reply), len < KEY_LEN ? len : KEY_LEN) != 0)
		return -EPROTO;
	if (len > REV_OFF && buf[REV_OFF] > 2)
		return -EPROTO;
	if (len > LENGTH_OFF && buf[LENGTH_OFF] > MPA_MAX_PRIVATE >> 8)
		return -EPROTO;
	return len < MPA_FRAME_LEN ? -EAGAIN : 0;
}

/* Reads the blocks in front of the private data; the rest is the application's. */
static void get_private(const uint8_t *p, size_t len, struct mpa_frame *f)
{
	if (f->flags & MPA_ENHANCED) {
		get_enhanced(p, f);
		p += MPA_ENHANCED_LEN;
		len -= MPA_ENHANCED_LEN;
	}
	if (has_ext(f->reply, f->flags)) {
		if (get_ext(p, len, &f->ext)) {
			p += MPA_EXT_LEN;
			len -= MPA_EXT_LEN;
		} else { /* another implementation uses a reserved bit */
			f->flags &= (uint8_t)~MPA_EXT_ACCEPT;
		}
	}
	f->private_data = p;
	f->private_len = len;
}

int mpa_decode(const uint8_t *buf, size_t len, bool want_reply, struct mpa_frame *f)
{
	int ret = check_fixed_part(buf, len, want_reply);
	uint8_t flags, rev;
	size_t private_len;

	if (ret)
		return ret;
	rev = buf[REV_OFF] ? buf[REV_OFF] : 1;
	flags = plausible_flags(want_reply, rev, buf[FLAGS_OFF]);
	private_len = get_be16(buf + LENGTH_OFF);
	if (private_len > MPA_MAX_PRIVATE)
		return -EPROTO;
	if ((flags & MPA_ENHANCED) && private_len < MPA_ENHANCED_LEN)
		return -EPROTO;
	if (len - MPA_FRAME_LEN < private_len)
		return -EAGAIN;

	*f = (struct mpa_frame){.reply = want_reply, .flags = flags, .rev = rev};
	get_private(buf + MPA_FRAME_LEN, private_len, f);
	return (int)(MPA_FRAME_LEN + private_len);
}

unsigned mpa_mulpdu(unsigned emss, bool markers)
{
	uint64_t overhead = MPA_LEN_FIELD + MPA_CRC_LEN + emss % 4;
	uint64_t room;

	if (markers)
		overhead += MARKER_LEN * (((uint64_t)emss + MARKER_INTERVAL - 1) / MARKER_INTERVAL);
	room = emss > overhead ? emss - overhead : 0;
	if (room < MPA_MIN_MULPDU)
		return MPA_MIN_MULPDU;
	return room > MPA_MAX_ULPDU ? MPA_MAX_ULPDU : (unsigned)room;
}
