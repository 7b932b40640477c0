/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wire.h - the bytes of iWARP: MPA (RFC 5044, 6581), DDP (RFC 5041), RDMAP
 * (RFC 5040, 7306). Pure functions over buffers: no sockets, locks or malloc.
 *
 * Words:
 *   STag    steering tag: names a region of memory to a peer
 *   TO      tagged offset: where in that region
 *   QN      queue number of an untagged message: 0 sends, 1 read and atomic
 *           requests, 2 terminate, 3 atomic responses
 *   MSN     message sequence number within a QN, from 1
 *   MO      message offset: where in an untagged message a segment belongs
 *   ULPDU   what MPA carries: one DDP segment, header and payload
 *   FPDU    a framed ULPDU: length, ULPDU, pad, CRC
 *   IRD/ORD how many reads and atomics a side takes, or has outstanding
 *   RTR     the ready-to-receive message that opens a peer-to-peer stream
 *
 * All functions say what the bytes claim. Whether a claim is allowed is the
 * adapter's question.
 */
#ifndef STAG_WIRE_H
#define STAG_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* ---- mpa.c: start-up frames -------------------------------------------- */

#define MPA_FRAME_LEN	 20  /* key, flags, revision, length */
#define MPA_MAX_PRIVATE	 512 /* private data, the enhanced and extension blocks included */
#define MPA_ENHANCED_LEN 4
#define MPA_EXT_LEN	 8
#define MPA_FRAME_MAX	 (MPA_FRAME_LEN + MPA_MAX_PRIVATE)
#define MPA_IRD_MASK	 0x3fff
#define MPA_DEPTH_NONE	 0x3fff /* an IRD or ORD that is not negotiated */

enum mpa_flag {
	MPA_MARKERS = 0x80, /* the sender of this frame wants markers from its peer */
	MPA_CRC = 0x40,
	MPA_REJECT = 0x20,	 /* replies only */
	MPA_ENHANCED = 0x10,	 /* RFC 6581: IRD, ORD and RTR lead the private data */
	MPA_ESCAPE_OFFER = 0x08, /* stag, requests: "and RDMAP_ESCAPE with subtypes" */
	MPA_SHOT_OFFER = 0x04,	 /* stag, requests: "and one-shot sends, in any encoding" */
	MPA_EXT_OFFER = 0x02,	 /* stag, requests: "I speak the extensions" (a reserved bit) */
	MPA_EXT_ACCEPT = 0x01,	 /* stag, replies: accepted, an extension block follows */
};

enum mpa_rtr { MPA_RTR_SEND = 1, MPA_RTR_WRITE = 2, MPA_RTR_READ = 4 };

/*
 * What two stag peers may do beyond RFC 5040. Every peer of version 1 accepts them all, except one-shot
 * sends and the escape, which a request has to offer: peers of version 1 exist that have neither.
 */
enum mpa_ext_cap {
	MPA_EXT_IMM = 0x0001,	   /* RFC 7306 immediate data */
	MPA_EXT_ATOMIC = 0x0002,   /* RFC 7306 atomics */
	MPA_EXT_BIG_FPDU = 0x0004, /* FPDUs larger than a TCP segment */
	MPA_EXT_SEND_IMM = 0x0008, /* opcode RDMAP_SEND_IMM */
	MPA_EXT_ONE_SHOT = 0x0010, /* sends that advertise and close STags, as the encoding says */
	MPA_EXT_FLUSH = 0x0020,	   /* RDMAP_ESCAPE with RDMAP_SUB_FLUSH */
	MPA_EXT_ESCAPE = 0x0040,   /* RDMAP_ESCAPE with other subtypes */
};

struct mpa_ext {
	uint8_t version;  /* 1 */
	uint8_t encoding; /* enum shot_encoding, with MPA_EXT_ONE_SHOT; else 0 */
	uint16_t caps;	  /* enum mpa_ext_cap */
};

/* How one-shot sends look: figures 5A and 5B of "One-shot RDMA". See rdmap_shot_to_wire(). */
enum shot_encoding {
	SHOT_NONE,    /* not at all */
	SHOT_LITERAL, /* 5A as it is drawn: opcodes 0x8 and 0xc; no RFC 7306 immediate data then */
	SHOT_OPCODES, /* 5A beside RFC 7306: opcodes 0xd and 0xc */
	SHOT_BITS,    /* 5B: two bits of the DDP control byte */
};

struct mpa_frame {
	bool reply;
	uint8_t flags;		     /* enum mpa_flag; unknown bits kept as they came */
	uint8_t rev;		     /* 1 or 2 (0 is taken as 1, as siw does; more is refused) */
	bool p2p;		     /* the rest down to ext: only with MPA_ENHANCED */
	uint8_t rtr;		     /* enum mpa_rtr, bits */
	uint16_t ird, ord;	     /* as the sender of the frame sees it */
	struct mpa_ext ext;	     /* only with MPA_EXT_ACCEPT in a reply */
	const uint8_t *private_data; /* the application's; decode points into the input */
	size_t private_len;
};

/*
 * Writes a frame; the number of bytes, or -EMSGSIZE where it does not fit into
 * size or into MPA_MAX_PRIVATE.
 */
int mpa_encode(const struct mpa_frame *f, uint8_t *buf, size_t size);

/*
 * Reads a frame of the wanted kind; the number of bytes consumed, -EAGAIN when
 * more bytes are needed (as long as what is there can still become a frame), or
 * -EPROTO when these bytes are no such frame: wrong key, revision above 2,
 * private data too long, or too short for the enhanced block. Flags whose block
 * cannot be there are cleared: MPA_ENHANCED before revision 2 (reserved then),
 * MPA_EXT_ACCEPT in a reply where no block with our magic follows.
 */
int mpa_decode(const uint8_t *buf, size_t len, bool want_reply, struct mpa_frame *f);

/* ---- mpa.c: framing ---------------------------------------------------- */

#define MPA_LEN_FIELD  2
#define MPA_CRC_LEN    4
#define MPA_MAX_ULPDU  64768
#define MPA_MIN_MULPDU 128
#define FPDU_MAX_LEN   (MPA_LEN_FIELD + 65535 + 3 + MPA_CRC_LEN) /* a receiver's worst case */

static inline unsigned fpdu_pad(size_t ulpdu_len)
{
	return (unsigned)(-(MPA_LEN_FIELD + ulpdu_len) & 3);
}

static inline size_t fpdu_len(size_t ulpdu_len)
{
	return MPA_LEN_FIELD + ulpdu_len + fpdu_pad(ulpdu_len) + MPA_CRC_LEN;
}

/* The largest ULPDU for a TCP segment size (RFC 5044 §4.5), in [128, 64768]. */
unsigned mpa_mulpdu(unsigned emss, bool markers);

/* ---- markers.c --------------------------------------------------------- */

#define MARKER_LEN	4
#define MARKER_INTERVAL 512

/*
 * pos: the stream offset, from the first byte of full operation, of the first
 * byte (a marker's, if one is due there) of this FPDU. An FPDU here includes
 * its CRC field.
 */

/* How many stream bytes an FPDU of len bytes takes, markers included. */
size_t markers_raw_len(uint64_t pos, size_t len);

/* Copies an FPDU to raw with its markers; returns markers_raw_len(). The CRC is not touched. */
size_t markers_insert(uint64_t pos, const uint8_t *fpdu, size_t len, uint8_t *raw);

/*
 * Takes the markers out of raw_len stream bytes that begin at pos and hold one
 * whole FPDU; the FPDU's length, or -EPROTO where a marker does not point to
 * the FPDU's beginning. fpdu may be raw.
 */
int markers_strip(uint64_t pos, const uint8_t *raw, size_t raw_len, uint8_t *fpdu);

/* ---- faults ------------------------------------------------------------ */

/* What a Terminate message says. Never an errno, never folded into an int. */
struct wire_fault {
	uint8_t layer; /* enum fault_layer */
	uint8_t etype;
	uint8_t code;
	bool set; /* false: no fault */
};

enum fault_layer { FAULT_LAYER_RDMAP = 0, FAULT_LAYER_DDP = 1, FAULT_LAYER_LLP = 2 };

#define WIRE_FAULT(l, t, c)                                                                        \
	((struct wire_fault){.layer = (l), .etype = (t), .code = (c), .set = true})
#define WIRE_OK ((struct wire_fault){.set = false})

/* RFC 5040 §4.8 */
#define FAULT_RDMAP_LOCAL	  WIRE_FAULT(0, 0, 0x00)
#define FAULT_RDMAP_INVALID_STAG  WIRE_FAULT(0, 1, 0x00)
#define FAULT_RDMAP_BASE_BOUNDS	  WIRE_FAULT(0, 1, 0x01)
#define FAULT_RDMAP_ACCESS	  WIRE_FAULT(0, 1, 0x02)
#define FAULT_RDMAP_STAG_STREAM	  WIRE_FAULT(0, 1, 0x03)
#define FAULT_RDMAP_TO_WRAP	  WIRE_FAULT(0, 1, 0x04)
#define FAULT_RDMAP_PROT_CANT_INV WIRE_FAULT(0, 1, 0x09)
#define FAULT_RDMAP_PROT_OTHER	  WIRE_FAULT(0, 1, 0xff)
#define FAULT_RDMAP_VERSION	  WIRE_FAULT(0, 2, 0x05)
#define FAULT_RDMAP_OPCODE	  WIRE_FAULT(0, 2, 0x06)
#define FAULT_RDMAP_STREAM	  WIRE_FAULT(0, 2, 0x07)
#define FAULT_RDMAP_GLOBAL	  WIRE_FAULT(0, 2, 0x08)
#define FAULT_RDMAP_OP_CANT_INV	  WIRE_FAULT(0, 2, 0x09)
#define FAULT_RDMAP_OP_OTHER	  WIRE_FAULT(0, 2, 0xff)
/* RFC 5041 §7.2 */
#define FAULT_DDP_LOCAL		   WIRE_FAULT(1, 0, 0x00)
#define FAULT_DDP_INVALID_STAG	   WIRE_FAULT(1, 1, 0x00)
#define FAULT_DDP_BASE_BOUNDS	   WIRE_FAULT(1, 1, 0x01)
#define FAULT_DDP_STAG_STREAM	   WIRE_FAULT(1, 1, 0x02)
#define FAULT_DDP_TO_WRAP	   WIRE_FAULT(1, 1, 0x03)
#define FAULT_DDP_TAGGED_VERSION   WIRE_FAULT(1, 1, 0x04)
#define FAULT_DDP_INVALID_QN	   WIRE_FAULT(1, 2, 0x01)
#define FAULT_DDP_NO_BUFFER	   WIRE_FAULT(1, 2, 0x02)
#define FAULT_DDP_MSN_RANGE	   WIRE_FAULT(1, 2, 0x03)
#define FAULT_DDP_INVALID_MO	   WIRE_FAULT(1, 2, 0x04)
#define FAULT_DDP_TOO_LONG	   WIRE_FAULT(1, 2, 0x05)
#define FAULT_DDP_UNTAGGED_VERSION WIRE_FAULT(1, 2, 0x06)
/* RFC 5044 §8, RFC 6581 §8 */
#define FAULT_MPA_LOST	 WIRE_FAULT(2, 0, 0x01)
#define FAULT_MPA_CRC	 WIRE_FAULT(2, 0, 0x02)
#define FAULT_MPA_MARKER WIRE_FAULT(2, 0, 0x03)
#define FAULT_MPA_FRAME	 WIRE_FAULT(2, 0, 0x04)
#define FAULT_MPA_LOCAL	 WIRE_FAULT(2, 0, 0x05)
#define FAULT_MPA_IRD	 WIRE_FAULT(2, 0, 0x06)
#define FAULT_MPA_RTR	 WIRE_FAULT(2, 0, 0x07)

/* terminate.c: words for a fault, e.g. "DDP tagged: base or bounds violation" */
const char *wire_fault_str(struct wire_fault f);

/* ---- ddp.c, rdmap.c: headers ------------------------------------------- */

#define DDP_TAGGED_LEN	 14
#define DDP_UNTAGGED_LEN 18
#define DDP_MAX_HDR	 DDP_UNTAGGED_LEN
#define DDP_T		 0x80
#define DDP_L		 0x40
#define DDP_CLOSE	 0x20 /* SHOT_BITS: bit 13 of the control word, where 0 is the lowest */
#define DDP_ADVERTISE	 0x10 /* and bit 12; both are reserved bits to anybody else */

enum ddp_qn { QN_SEND = 0, QN_READ = 1, QN_TERMINATE = 2, QN_ATOMIC = 3, QN_COUNT = 4 };

enum rdmap_op {
	RDMAP_WRITE = 0x0,
	RDMAP_READ_REQ = 0x1,
	RDMAP_READ_RESP = 0x2,
	RDMAP_SEND = 0x3,
	RDMAP_SEND_INV = 0x4,
	RDMAP_SEND_SE = 0x5,
	RDMAP_SEND_SE_INV = 0x6,
	RDMAP_TERMINATE = 0x7,
	RDMAP_IMM = 0x8,    /* RFC 7306 */
	RDMAP_IMM_SE = 0x9, /* RFC 7306 */
	RDMAP_ATOMIC_REQ = 0xa,
	RDMAP_ATOMIC_RESP = 0xb,
	RDMAP_SEND_CLOSE = 0xc,	    /* one-shot: a Send, and the STag in RsvdULP is closed */
	RDMAP_SEND_ADVERTISE = 0xd, /* one-shot: a Send, and the STag in RsvdULP is lent */
	RDMAP_SEND_IMM = 0xe,	    /* stag to stag: a Send whose RsvdULP word is the immediate */
	RDMAP_ESCAPE = 0xf,	    /* stag to stag: see enum rdmap_subtype */
};

#define RDMAP_OPCODES 16 /* 4 bits of the control byte: all are taken */

/*
 * Messages of opcode RDMAP_ESCAPE, which has room for 256 kinds. The subtype is the first byte of the untagged
 * header's RsvdULP word; the other three are the subtype's, and 0 if it has no use for them. Each subtype
 * requires a capability of its own (op_rules in rdmap.c), and each but the flush MPA_EXT_ESCAPE, too: a peer from before
 * there were subtypes sends and takes opcode 0xf as the flush, with 0 in RsvdULP, which is why the flush is number 0.
 * Every other value is refused with a Terminate (FAULT_RDMAP_OPCODE).
 */
enum rdmap_subtype {
	RDMAP_SUB_FLUSH = 0, /* see struct rdmap_flush_req */
};

#define RDMAP_SUBTYPES 1

static inline uint8_t rdmap_subtype(uint32_t ulp)
{
	return (uint8_t)(ulp >> 24);
}

static inline uint32_t rdmap_escape_ulp(enum rdmap_subtype subtype)
{
	return (uint32_t)subtype << 24;
}

/*
 * Reserved bits of RDMAP's control byte, used between stag peers only: a
 * RDMAP_SEND_IMM or a one-shot send asks for a solicited event; a tagged segment is followed at
 * once by the next one of its message, of MPA_MAX_ULPDU (MPA_EXT_BIG_FPDU), or,
 * with both bits, by the next RDMAP_FULL_RUN of them.
 */
#define RDMAP_RSV_SE	    0x10
#define RDMAP_RSV_FULL_NEXT 0x20
#define RDMAP_RSV_FULL_RUN  0x30
#define RDMAP_FULL_RUN	    7

/* A segment's header in host order. */
struct ddp_hdr {
	bool tagged;
	bool last;
	uint8_t opcode; /* enum rdmap_op */
	uint8_t rsv;	/* RDMAP's reserved bits as they came (RDMAP_RSV_SE) */
	uint8_t bits;	/* DDP's reserved bits, of which DDP_CLOSE and DDP_ADVERTISE are used */
	uint32_t stag;	/* tagged; */
	uint64_t to;
	uint32_t ulp; /* untagged: RsvdULP[8:39], the STag to invalidate, close or advertise */
	uint32_t qn, msn, mo;
};

/* 14 or 18: the header's length by its first byte. */
static inline size_t ddp_hdr_len(uint8_t first)
{
	return first & DDP_T ? DDP_TAGGED_LEN : DDP_UNTAGGED_LEN;
}

/* Writes a header (DV and RV are 1); returns its length. */
size_t ddp_encode(const struct ddp_hdr *h, uint8_t *buf);

/*
 * Reads a header; buf holds at least ddp_hdr_len(buf[0]) bytes. Checks the DDP
 * version, then RDMAP's; reserved bits are not checked.
 */
struct wire_fault ddp_decode(const uint8_t *buf, struct ddp_hdr *h);

/*
 * Does this opcode exist (with its subtype; under these extensions, enum mpa_ext_cap; 0 for a
 * standard peer), with this T bit, on this QN, with a payload of this length?
 * FAULT_RDMAP_OPCODE for the first two, FAULT_DDP_INVALID_QN for the third,
 * FAULT_RDMAP_OP_OTHER for a length that the opcode cannot have (opcodes of a
 * fixed length come in one segment, so L must be set too).
 */
struct wire_fault rdmap_check(const struct ddp_hdr *h, size_t payload_len, unsigned caps);

/*
 * One-shot sends: everywhere but on the wire they are RDMAP_SEND_ADVERTISE and RDMAP_SEND_CLOSE, with
 * RDMAP_RSV_SE where they ask for a solicited event. to_wire makes of such a header what the encoding says
 * (SHOT_NONE: a Send, and a Send with Invalidate, as RFC 5040 has them); from_wire is the way
 * back, and goes before rdmap_check(). A header that the encoding does not have: FAULT_RDMAP_OPCODE; one
 * that asks for two things at once: FAULT_RDMAP_OP_OTHER.
 */
void rdmap_shot_to_wire(struct ddp_hdr *h, enum shot_encoding e);
struct wire_fault rdmap_shot_from_wire(struct ddp_hdr *h, enum shot_encoding e);

#define RDMAP_READ_REQ_LEN    28
#define RDMAP_ATOMIC_REQ_LEN  52
#define RDMAP_ATOMIC_RESP_LEN 12
#define RDMAP_FLUSH_REQ_LEN   24
#define RDMAP_IMM_LEN	      8

struct rdmap_read_req {
	uint32_t sink_stag;
	uint64_t sink_to;
	uint32_t size;
	uint32_t src_stag;
	uint64_t src_to;
};

enum rdmap_atomic_op { RDMAP_FETCH_ADD = 0, RDMAP_CMP_SWAP = 2 };

struct rdmap_atomic_req {
	uint8_t op; /* enum rdmap_atomic_op, or a value that is neither */
	uint32_t id;
	uint32_t stag;
	uint64_t to;
	uint64_t data, mask; /* to add or to swap in */
	uint64_t compare, compare_mask;
};

struct rdmap_atomic_resp {
	uint32_t id;
	uint64_t value;
};

/*
 * IBTA's FLUSH as an RDMAP message: an untagged one on the queue of reads, in one segment, which counts
 * as a read does for IRD and ORD. Its answer is a Read Response without payload, in turn with the other
 * answers, given when all that its sender wrote before it, wherever that was, has reached the level.
 * What names no region of the responder's (or one that this stream may not use) is a fault as a
 * read's would be.
 */
enum rdmap_flush_level {
	RDMAP_FLUSH_VISIBLE = 1 << 0, /* to every reader */
	RDMAP_FLUSH_DURABLE = 1 << 1, /* outlives power, as far as the region's memory can */
};

#define RDMAP_FLUSH_REGION (1u << 8) /* to and length do not matter: all of the region */

struct rdmap_flush_req {
	uint32_t flags; /* enum rdmap_flush_level, RDMAP_FLUSH_REGION; others are ignored */
	uint32_t stag;
	uint64_t to, length;
};

void rdmap_put_read_req(uint8_t *buf, const struct rdmap_read_req *r);
void rdmap_get_read_req(const uint8_t *buf, struct rdmap_read_req *r);
void rdmap_put_atomic_req(uint8_t *buf, const struct rdmap_atomic_req *r);
void rdmap_get_atomic_req(const uint8_t *buf, struct rdmap_atomic_req *r);
void rdmap_put_atomic_resp(uint8_t *buf, const struct rdmap_atomic_resp *r);
void rdmap_get_atomic_resp(const uint8_t *buf, struct rdmap_atomic_resp *r);
void rdmap_put_flush_req(uint8_t *buf, const struct rdmap_flush_req *r);
void rdmap_get_flush_req(const uint8_t *buf, struct rdmap_flush_req *r);

/* What an atomic makes of the value found there (RFC 7306 §5.1, masks included). */
uint64_t rdmap_atomic_result(const struct rdmap_atomic_req *r, uint64_t found);

/* ---- terminate.c ------------------------------------------------------- */

#define TERMINATE_MAX (4 + 2 + DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN)

struct terminate {
	struct wire_fault fault;
	bool has_seg_len;	       /* M */
	bool has_ddp;		       /* D: seg_len and ddp[] follow */
	bool has_rdmap;		       /* R: read_req[] follows */
	uint16_t seg_len;	       /* the ULPDU's length */
	uint8_t ddp[DDP_UNTAGGED_LEN]; /* the terminated segment's header as it came */
	uint8_t read_req[RDMAP_READ_REQ_LEN];
};

/*
 * The Terminate message for a fault in the segment whose header bytes are at
 * seg (NULL: none), of which avail bytes are there, and whose ULPDU has
 * ulpdu_len: includes what RFC 5040 §4.8 says for that fault.
 */
void terminate_init(struct terminate *t, struct wire_fault f, const uint8_t *seg, size_t avail,
		    size_t ulpdu_len);

/* The payload of a Terminate message; returns its length, at most TERMINATE_MAX. */
size_t terminate_encode(const struct terminate *t, uint8_t *buf);

/*
 * Reads a Terminate's payload, tolerantly: parts that are announced but not
 * there count as absent. siw on little-endian machines swaps the nibbles of the
 * first byte and mirrors the control bits; *swapped says that only that reading
 * makes sense, and t holds it then. -EPROTO where there are fewer than 3 bytes.
 */
int terminate_decode(const uint8_t *buf, size_t len, struct terminate *t, bool *swapped);

#endif
