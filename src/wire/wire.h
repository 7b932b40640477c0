/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wire.h - the bytes of iWARP: MPA (RFC 5044, 6581), DDP (RFC 5041), RDMAP
 * (RFC 5040, 7306). Pure functions over buffers: no sockets, locks or malloc.
 *
 * Words:
 *   STag    steering tag: names a region of memory to a peer
 *   TO      tagged offset: an offset in that region
 *   QN      queue number of an untagged message: 0 sends, 1 read and atomic
 *           requests, 2 terminate, 3 atomic responses
 *   MSN     message sequence number within a QN, from 1
 *   MO      message offset: a segment's offset in an untagged message
 *   ULPDU   the payload of MPA: one DDP segment, header and payload
 *   FPDU    a framed ULPDU: length, ULPDU, pad, CRC
 *   IRD/ORD the most reads and atomics that a side accepts, or has outstanding
 *   RTR     the ready-to-receive message that opens a peer-to-peer stream
 *
 * All functions decode what the bytes claim. The adapter checks whether a claim is allowed.
 */
#ifndef STAG_WIRE_H
#define STAG_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* ---- mpa.c: start-up frames -------------------------------------------- */

#define MPA_FIRST	 'M' /* the first byte of each frame */
#define MPA_FRAME_LEN	 20  /* key, flags, revision, length */
#define MPA_MAX_PRIVATE	 512 /* private data, the enhanced and extension blocks included */
#define MPA_ENHANCED_LEN 4
#define MPA_EXT_LEN	 8
#define MPA_FRAME_MAX	 (MPA_FRAME_LEN + MPA_MAX_PRIVATE)
#define MPA_IRD_MASK	 0x3fff
#define MPA_DEPTH_NONE	 0x3fff /* an IRD or ORD that is not negotiated */

enum mpa_flag {
	MPA_MARKERS = 0x80, /* the sender of this frame requests markers from its peer */
	MPA_CRC = 0x40,
	MPA_REJECT = 0x20,	 /* replies only */
	MPA_ENHANCED = 0x10,	 /* RFC 6581: IRD, ORD and RTR precede the private data */
	MPA_ESCAPE_OFFER = 0x08, /* stag, requests: offers RDMAP_ESCAPE with subtypes */
	MPA_SHOT_OFFER = 0x04,	 /* stag, requests: offers one-shot sends, in any encoding */
	MPA_EXT_OFFER = 0x02,	 /* stag, requests: offers the extensions (a reserved bit) */
	MPA_EXT_ACCEPT = 0x01,	 /* stag, replies: accepts; an extension block follows */
	MPA_SUM_OFFER = 0x01,	 /* stag, requests: offers sums of headers (DDP_SUM) */
};

enum mpa_rtr { MPA_RTR_SEND = 1, MPA_RTR_WRITE = 2, MPA_RTR_READ = 4 };

/*
 * The extensions that two stag peers may use beyond RFC 5040. Every peer of version 1 accepts
 * them all, except one-shot sends, the escape and the sums, which a request has to offer: there
 * are peers of version 1 without them.
 */
enum mpa_ext_cap {
	MPA_EXT_IMM = 0x0001,	   /* RFC 7306 immediate data */
	MPA_EXT_ATOMIC = 0x0002,   /* RFC 7306 atomics */
	MPA_EXT_BIG_FPDU = 0x0004, /* FPDUs larger than a TCP segment */
	MPA_EXT_SEND_IMM = 0x0008, /* opcode RDMAP_SEND_IMM */
	MPA_EXT_ONE_SHOT = 0x0010, /* sends that advertise and close STags */
	MPA_EXT_FLUSH = 0x0020,	   /* RDMAP_ESCAPE with RDMAP_SUB_FLUSH */
	MPA_EXT_ESCAPE = 0x0040,   /* RDMAP_ESCAPE with other subtypes */
	MPA_EXT_SUM = 0x0080,	   /* with CRC: DDP_SUM in every long FPDU */
	MPA_EXT_ACK = 0x0100, /* roce0: acknowledgements, RNR and NAKs (RDMAP_SUB_ACK to _RESUME) */
};

struct mpa_ext {
	uint8_t version;  /* 1 */
	uint8_t encoding; /* enum shot_encoding, with MPA_EXT_ONE_SHOT; else 0 */
	uint16_t caps;	  /* enum mpa_ext_cap */
};

/* Encodings of one-shot sends: figures 5A and 5B of "One-shot RDMA". See rdmap_shot_to_wire(). */
enum shot_encoding {
	SHOT_NONE,    /* no one-shot sends */
	SHOT_LITERAL, /* 5A literally: opcodes 0x8 and 0xc; excludes RFC 7306 immediate data */
	SHOT_OPCODES, /* 5A with RFC 7306: opcodes 0xd and 0xc */
	SHOT_BITS,    /* 5B: two bits of the DDP control byte */
};

struct mpa_frame {
	bool reply;
	uint8_t flags;		     /* enum mpa_flag; unknown bits are kept */
	uint8_t rev;		     /* 1 or 2 (0 is taken as 1, as siw does; more is refused) */
	bool p2p;		     /* p2p to ord: only with MPA_ENHANCED */
	uint8_t rtr;		     /* enum mpa_rtr, bits */
	uint16_t ird, ord;	     /* from the sender's point of view */
	struct mpa_ext ext;	     /* only with MPA_EXT_ACCEPT in a reply */
	const uint8_t *private_data; /* the application's; mpa_decode() points into its input */
	size_t private_len;
};

/*
 * Encodes a frame. Returns its length, or -EMSGSIZE if it does not fit into size or into
 * MPA_MAX_PRIVATE.
 */
int mpa_encode(const struct mpa_frame *f, uint8_t *buf, size_t size);

/*
 * Decodes a request or a reply. Returns the number of bytes consumed; -EAGAIN if more bytes are
 * needed (as long as they can still become a frame); or -EPROTO if these bytes are no such
 * frame: wrong key, revision above 2, private data too long, or too short for the enhanced
 * block. Clears flags whose block cannot be there: MPA_ENHANCED before revision 2 (reserved
 * then), MPA_EXT_ACCEPT in a reply if no block with our magic follows.
 */
int mpa_decode(const uint8_t *buf, size_t len, bool want_reply, struct mpa_frame *f);

/* ---- hello.c: how queue pairs of roce0 meet ------------------------------ */

#define HELLO_LEN     128
#define HELLO_VERSION 1
#define HELLO_MAX_24  0xffffff /* queue pair numbers and PSNs have 24 bits */

enum hello_kind {
	HELLO_ASK = 1,	 /* the first message on a connection */
	HELLO_READY = 2, /* its answer: the stream is the two queue pairs' from here on; */
	HELLO_NO = 3,	 /* or no: whatever the reason, all other fields are zero */
};

enum hello_type { HELLO_RC = 1, HELLO_UC = 2 };
enum hello_flag { HELLO_CRC = 1 }; /* the sender wants CRCs */

struct hello {
	uint8_t kind;	   /* enum hello_kind */
	uint8_t type;	   /* enum hello_type */
	uint16_t flags;	   /* enum hello_flag; unknown ones are kept */
	uint16_t caps;	   /* enum mpa_ext_cap: what the sender has; both use what both have */
	uint16_t ird, ord; /* from the sender's point of view */
	uint32_t from_qpn, to_qpn;
	uint8_t from_gid[16], to_gid[16];
	uint32_t sq_psn, rq_psn;
	uint64_t process; /* a random number of the sender's process */
	uint32_t life;	  /* how many times the sender's queue pair was reset */
	uint32_t
		epoch; /* grows with each attempt of the sender's queue pair, and with each stream */
};

void hello_encode(const struct hello *h, uint8_t buf[HELLO_LEN]);
/*
 * Returns HELLO_LEN; -EAGAIN if more bytes are needed; or -EPROTO if these bytes are no hello of this version.
 */
int hello_decode(const uint8_t *buf, size_t len, struct hello *h);

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

/* Returns the largest ULPDU for a TCP segment size (RFC 5044 §4.5), in [128, 64768]. */
unsigned mpa_mulpdu(unsigned emss, bool markers);

/* ---- markers.c --------------------------------------------------------- */

#define MARKER_LEN	4
#define MARKER_INTERVAL 512

/*
 * pos: the stream offset, from the first byte of full operation, of the first
 * byte (a marker's, if one is due there) of this FPDU. An FPDU here includes
 * its CRC field.
 */

/* Returns the number of stream bytes of an FPDU of len bytes, markers included. */
size_t markers_raw_len(uint64_t pos, size_t len);

/* Copies an FPDU to raw with its markers, and returns markers_raw_len(). The CRC is not changed. */
size_t markers_insert(uint64_t pos, const uint8_t *fpdu, size_t len, uint8_t *raw);

/*
 * Strips the markers from raw_len stream bytes that begin at pos and hold one whole FPDU.
 * Returns the FPDU's length, or -EPROTO if a marker does not point to the FPDU's beginning.
 * fpdu may be raw.
 */
int markers_strip(uint64_t pos, const uint8_t *raw, size_t raw_len, uint8_t *fpdu);

/* ---- faults ------------------------------------------------------------ */

/* The reason in a Terminate message. Never an errno, never folded into an int. */
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

/* terminate.c: describes a fault, e.g. "DDP tagged: base or bounds violation". */
const char *wire_fault_str(struct wire_fault f);

/* ---- ddp.c, rdmap.c: headers ------------------------------------------- */

#define DDP_TAGGED_LEN	 14
#define DDP_UNTAGGED_LEN 18
#define DDP_MAX_HDR	 DDP_UNTAGGED_LEN
#define DDP_T		 0x80
#define DDP_L		 0x40
#define DDP_CLOSE	 0x20 /* SHOT_BITS: bit 13 of the control word, where 0 is the lowest */
#define DDP_ADVERTISE	 0x10 /* and bit 12; both are reserved for standard peers */

/*
 * MPA_EXT_SUM: this bit says that the header is followed by DDP_SUM_LEN bytes, the CRC32C of the
 * FPDU so far (its length field and the header), and then by the payload. The receiver knows
 * from them that the header is right before the rest has arrived, and so where to place the
 * payload. They are part of the ULPDU, and the FPDU's own CRC covers them. If CRC is on, an FPDU
 * of more than FPDU_UNSUMMED bytes has a sum; a shorter one may. Control messages have none.
 */
#define DDP_SUM	      0x08
#define DDP_SUM_LEN   4
#define FPDU_UNSUMMED 8192

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
	RDMAP_SEND_ADVERTISE = 0xd, /* one-shot: a Send, and the STag in RsvdULP is advertised */
	RDMAP_SEND_IMM = 0xe,	    /* stag to stag: a Send whose RsvdULP word is the immediate */
	RDMAP_ESCAPE = 0xf,	    /* stag to stag: see enum rdmap_subtype */
};

#define RDMAP_OPCODES 16 /* 4 bits of the control byte: all are taken */

/*
 * Messages of opcode RDMAP_ESCAPE, which has room for 256 kinds. The subtype is the first byte
 * of the untagged header's RsvdULP word; the other three bytes belong to the subtype, and are 0
 * if it does not use them. Each subtype requires a capability of its own (sub_rules in
 * rdmap.c), and each but the flush requires MPA_EXT_ESCAPE, too: older peers send and accept
 * opcode 0xf as the flush, with 0 in RsvdULP, which is why the flush is number 0. Every other
 * value is refused with a Terminate (FAULT_RDMAP_OPCODE).
 */
enum rdmap_subtype {
	RDMAP_SUB_FLUSH = 0, /* see struct rdmap_flush_req */
	/*
	 * The control messages of roce0. They have no payload: the MSN is the number of a request, and the low bits of
	 * RsvdULP an argument. Requests (sends, writes, writes with immediate, reads, atomics, flushes) are
	 * numbered from 1 for each stream.
	 */
	RDMAP_SUB_ACK = 1, /* all requests up to this one have been carried out */
	RDMAP_SUB_NAK = 2, /* this one has not, those before it have; argument: rdmap_nak() */
	RDMAP_SUB_GO = 3,  /* a receive for this request has been posted */
	RDMAP_SUB_RESUME =
		4, /* after a NAK of kind RNR: this request follows, and those after it */
};

#define RDMAP_SUBTYPES 5

enum rdmap_nak {
	NAK_NONE,
	NAK_RNR,    /* no receive; it and what follows is dropped until RESUME. With a timer code */
	NAK_ACCESS, /* the rest are the responder's last message */
	NAK_REQUEST, /* an invalid request */
	NAK_OP,	     /* the responder could not carry it out */
	NAK_KINDS,
};

/* Returns the argument of a NAK. timer: the code of InfiniBand, 5 bits. */
static inline uint32_t rdmap_nak_arg(enum rdmap_nak kind, uint8_t timer)
{
	return (uint32_t)kind << 8 | timer;
}

static inline uint8_t rdmap_subtype(uint32_t ulp)
{
	return (uint8_t)(ulp >> 24);
}

static inline uint32_t rdmap_escape_ulp(enum rdmap_subtype subtype)
{
	return (uint32_t)subtype << 24;
}

/*
 * Reserved bits of RDMAP's control byte, used between stag peers only. RDMAP_RSV_SE: a
 * RDMAP_SEND_IMM or a one-shot send solicits an event. RDMAP_RSV_FULL_NEXT: a tagged segment is
 * followed immediately by the next one of its message, of MPA_MAX_ULPDU (MPA_EXT_BIG_FPDU);
 * with both bits, by the next RDMAP_FULL_RUN of them.
 */
#define RDMAP_RSV_SE	    0x10
#define RDMAP_RSV_IMM	    0x10 /* roce0, the last segment of a write: its immediate follows */
#define RDMAP_RSV_ASK	    0x20 /* roce0, the last segment of a request: acknowledge it soon */
#define RDMAP_RSV_FULL_NEXT 0x20 /* any other segment */
#define RDMAP_RSV_FULL_RUN  0x30
#define RDMAP_FULL_RUN	    7

/* A segment's header in host order. */
struct ddp_hdr {
	bool tagged;
	bool last;
	bool summed;	/* DDP_SUM; without MPA_EXT_SUM a reserved bit */
	uint8_t opcode; /* enum rdmap_op */
	uint8_t rsv;	/* RDMAP's reserved bits as received (RDMAP_RSV_SE) */
	uint8_t bits;	/* DDP's reserved bits, of which DDP_CLOSE and DDP_ADVERTISE are used */
	uint32_t stag;	/* stag and to: tagged segments */
	uint64_t to;
	uint32_t ulp; /* untagged: RsvdULP[8:39], the STag to invalidate, close or advertise */
	uint32_t qn, msn, mo;
};

/* Returns the header's length by its first byte: 14 or 18. */
static inline size_t ddp_hdr_len(uint8_t first)
{
	return first & DDP_T ? DDP_TAGGED_LEN : DDP_UNTAGGED_LEN;
}

/* Encodes a header (DV and RV are 1). Returns its length, without a sum. */
size_t ddp_encode(const struct ddp_hdr *h, uint8_t *buf);

/*
 * Decodes a header; buf holds at least ddp_hdr_len(buf[0]) bytes. Checks the DDP version, then
 * RDMAP's; reserved bits are not checked.
 */
struct wire_fault ddp_decode(const uint8_t *buf, struct ddp_hdr *h);

/*
 * Checks that the opcode exists (with its subtype, under these extensions, enum mpa_ext_cap; 0
 * for a standard peer), with this T bit, on this QN, with a payload of this length. Returns
 * FAULT_RDMAP_OPCODE for the first two, FAULT_DDP_INVALID_QN for the third,
 * FAULT_RDMAP_OP_OTHER for a length that the opcode cannot have (messages of a fixed length
 * have one segment, so L must be set, too).
 */
struct wire_fault rdmap_check(const struct ddp_hdr *h, size_t payload_len, unsigned caps);

/*
 * One-shot sends: except on the wire they are RDMAP_SEND_ADVERTISE and RDMAP_SEND_CLOSE, with
 * RDMAP_RSV_SE if they solicit an event. to_wire converts such a header to the encoding
 * (SHOT_NONE: a Send, and a Send with Invalidate, as in RFC 5040); from_wire converts it back,
 * and is called before rdmap_check(). Returns FAULT_RDMAP_OPCODE for a header that the encoding
 * does not have, and FAULT_RDMAP_OP_OTHER for one that is both an advertisement and a close, or
 * another kind of send.
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
	uint8_t op; /* enum rdmap_atomic_op, or an unknown value */
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
 * IBTA's FLUSH as an RDMAP message: untagged, on the queue of reads, in one segment; it counts
 * as a read for IRD and ORD. Its response is a Read Response without payload, in order with the
 * other responses, sent when everything that the sender of the flush wrote before, to any
 * region, has reached the level. An STag that is invalid, or that this stream may not use, is a
 * fault as for a read.
 */
enum rdmap_flush_level {
	RDMAP_FLUSH_VISIBLE = 1 << 0, /* visible to every reader */
	RDMAP_FLUSH_DURABLE = 1 << 1, /* survives a power failure, if the memory does */
};

#define RDMAP_FLUSH_REGION (1u << 8) /* the whole region: to and length are ignored */

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

/* Returns the result of an atomic for the value found (RFC 7306 §5.1, masks included). */
uint64_t rdmap_atomic_result(const struct rdmap_atomic_req *r, uint64_t found);

/* ---- terminate.c ------------------------------------------------------- */

#define TERMINATE_MAX (4 + 2 + DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN)

struct terminate {
	struct wire_fault fault;
	bool has_seg_len;	       /* M */
	bool has_ddp;		       /* D: seg_len and ddp[] follow */
	bool has_rdmap;		       /* R: read_req[] follows */
	uint16_t seg_len;	       /* the ULPDU's length */
	uint8_t ddp[DDP_UNTAGGED_LEN]; /* the terminated segment's header as received */
	uint8_t read_req[RDMAP_READ_REQ_LEN];
};

/*
 * Initialises the Terminate message for a fault in the segment whose header bytes are at seg
 * (NULL: none), of which avail bytes were received, and whose ULPDU has ulpdu_len bytes.
 * Includes the parts that RFC 5040 §4.8 requires for that fault.
 */
void terminate_init(struct terminate *t, struct wire_fault f, const uint8_t *seg, size_t avail,
		    size_t ulpdu_len);

/* Encodes the payload of a Terminate message. Returns its length, at most TERMINATE_MAX. */
size_t terminate_encode(const struct terminate *t, uint8_t *buf);

/*
 * Decodes a Terminate's payload tolerantly: announced parts that are missing count as absent.
 * siw on little-endian machines swaps the nibbles of the first byte and mirrors the control
 * bits; *swapped: only that reading makes sense, and t holds it. Returns -EPROTO for fewer than
 * 3 bytes.
 */
int terminate_decode(const uint8_t *buf, size_t len, struct terminate *t, bool *swapped);

#endif
