/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw_peer.h - a bare TCP socket that acts as an iWARP peer, correct or not.
 *
 * It speaks MPA, DDP and RDMAP by hand: a standard peer (revision 2, CRCs, no extensions) unless
 * configured otherwise. raw_segment() makes framing, CRC and markers right; the contents are up to
 * the caller.
 */
#ifndef STAG_TEST_RAW_PEER_H
#define STAG_TEST_RAW_PEER_H

#include "side.h"
#include "wire/wire.h"

struct raw_wish {
	bool no_crc;	 /* does not request CRCs; STAG_CRC=off has the same effect */
	bool extensions; /* acts as a stag peer */
	bool escape;	 /* with extensions: has subtypes (an older peer has none) */
	bool sums;	 /* with extensions: the headers of long frames have sums */
	bool markers;	 /* requests markers; STAG_MARKERS=on has the same effect */
	bool plain;	 /* revision 1 */
	/* As initiator: peer-to-peer mode, sends the first message (RTR). */
	bool p2p;
	uint16_t ird, ord;	     /* default 8 */
	enum shot_encoding one_shot; /* with extensions: the encoding offered, or accepted */
};

struct raw_peer {
	int fd;
	bool crc, markers_tx, markers_rx;
	bool sums;		     /* as negotiated; raw_build() adds one where it is required */
	enum shot_encoding one_shot; /* as negotiated */
	uint64_t tx_pos, rx_pos;     /* stream offsets, for markers */
	uint32_t msn[QN_COUNT];	     /* of the next message sent */
	/* the last segment sent: a Terminate must refer to it */
	uint8_t last[DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN];
	size_t last_len;   /* header, and a Read Request's payload */
	size_t last_ulpdu; /* ULPDU length */
};

/* ---- set-up ------------------------------------------------------------ */

void raw_dial(struct raw_peer *p, uint16_t port); /* TCP only */
int raw_listen(uint16_t *port);
void raw_accept(struct raw_peer *p, int listener); /* TCP only; closes the listener */
void raw_send_request(struct raw_peer *p, const struct raw_wish *w);
void raw_take_reply(struct raw_peer *p, const struct raw_wish *w);
/* Reads the Request, sends an accepting Reply. */
void raw_answer_request(struct raw_peer *p, const struct raw_wish *w);

/* ---- sending ----------------------------------------------------------- */

void raw_bytes(struct raw_peer *p, const void *data, size_t len);

/* Builds an FPDU as it would be sent (raw); returns its length. Remembers it as the last one. */
size_t raw_build(struct raw_peer *p, const struct ddp_hdr *h, const void *payload, size_t len,
		 uint8_t *raw);
size_t raw_frame(struct raw_peer *p, const void *ulpdu, size_t len, uint8_t *raw);
void raw_segment(struct raw_peer *p, const struct ddp_hdr *h, const void *payload, size_t len);

/* Return headers of whole messages, with the next MSN, which is counted. */
struct ddp_hdr write_hdr(uint32_t stag, uint64_t to);
struct ddp_hdr response_hdr(uint32_t stag, uint64_t to);
struct ddp_hdr send_hdr(struct raw_peer *p);
struct ddp_hdr request_hdr(struct raw_peer *p, enum rdmap_op op);

void raw_write(struct raw_peer *p, uint32_t stag, uint64_t to, const void *data, size_t len);
void raw_send(struct raw_peer *p, const void *data, size_t len);
void raw_send_inv(struct raw_peer *p, uint32_t stag, const void *data, size_t len);
void raw_read(struct raw_peer *p, const struct rdmap_read_req *r);
void raw_atomic(struct raw_peer *p, const struct rdmap_atomic_req *r);
void raw_terminate(struct raw_peer *p, const void *payload, size_t len);

void raw_reset(struct raw_peer *p);  /* closes with a RST */
void raw_finish(struct raw_peer *p); /* FIN: nothing more from this end */
void raw_close(struct raw_peer *p);

/* ---- receiving --------------------------------------------------------- */

struct raw_fpdu {
	struct ddp_hdr h;
	uint8_t payload[65536];
	size_t len;
};

void raw_take(struct raw_peer *p, struct raw_fpdu *f); /* the next one, CRC checked */
void raw_take_read(struct raw_peer *p, struct rdmap_read_req *r);
void raw_take_terminate(struct raw_peer *p, struct terminate *t);
void raw_take_terminate_at_last(struct raw_peer *p, struct terminate *t);
/*
 * Expects as the last message a Terminate with this fault, and the headers that belong to it; then
 * FIN.
 */
void expect_terminate(struct raw_peer *p, struct wire_fault fault);
/* Does the same after any other data in flight. */
void expect_terminate_at_last(struct raw_peer *p, struct wire_fault fault);
void expect_hangup(struct raw_peer *p);		/* FIN or RST, and nothing before */
void expect_hangup_at_last(struct raw_peer *p); /* the same, after any data */

/* ---- a scene: a side of ours, a raw peer, and other connections -------- */

struct scene {
	struct side us;
	struct raw_peer peer;
	struct pair *others; /* connected all the time, and not to be disturbed */
};

struct scene_wish {
	struct side_wish us;
	struct raw_wish peer;
	bool we_connect; /* otherwise the raw peer connects */
};

void scene_open(struct scene *s, const struct scene_wish *w);
void scene_close(struct scene *s);

/* For cmocka's group: keep the other connections in *state. */
int others_open(void **state);
int others_close(void **state);

/*
 * The peer broke a rule: expects this Terminate, our queue pair in error with all its work flushed,
 * one notice to the program in each way, and the other connections undisturbed.
 */
void expect_refused(struct scene *s, struct wire_fault fault, enum ibv_event_type event);
/* Does the same where no Terminate is due: checks only what the program sees. */
void expect_broken(struct scene *s, enum ibv_event_type event);
/* Does the same for a connection that the peer closed without an error. */
void expect_closed(struct scene *s);

#endif
