/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw_peer.h - a bare TCP socket that plays an iWARP peer, well or badly.
 *
 * It speaks MPA, DDP and RDMAP by hand: a standard peer (revision 2, CRCs, no
 * extensions) unless told otherwise. What is sent with raw_segment() is right
 * as to framing, CRC and markers; what it says is the caller's.
 */
#ifndef STAG_TEST_RAW_PEER_H
#define STAG_TEST_RAW_PEER_H

#include "side.h"
#include "wire/wire.h"

struct raw_wish {
	bool no_crc;		     /* does not ask for them; nor does it with STAG_CRC=off */
	bool extensions;	     /* plays a stag peer */
	bool escape;		     /* with extensions: has subtypes (an older one has none) */
	bool markers;		     /* asks for them; so it does with STAG_MARKERS=on */
	bool plain;		     /* revision 1 */
	bool p2p;		     /* as initiator: opens with a message of its own */
	uint16_t ird, ord;	     /* 0: 8 */
	enum shot_encoding one_shot; /* with extensions: offers it, or accepts with this one */
};

struct raw_peer {
	int fd;
	bool crc, markers_tx, markers_rx;
	enum shot_encoding one_shot; /* what was agreed */
	uint64_t tx_pos, rx_pos;     /* stream offsets, for markers */
	uint32_t msn[QN_COUNT];	     /* of the next message out */
	/* the last segment sent: a Terminate must be about it */
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
void raw_answer_request(struct raw_peer *p, const struct raw_wish *w); /* reads it, accepts */

/* ---- sending ----------------------------------------------------------- */

void raw_bytes(struct raw_peer *p, const void *data, size_t len);

/* An FPDU as it would be sent (raw); returns its length. Remembers it as the last one. */
size_t raw_build(struct raw_peer *p, const struct ddp_hdr *h, const void *payload, size_t len,
		 uint8_t *raw);
size_t raw_frame(struct raw_peer *p, const void *ulpdu, size_t len, uint8_t *raw);
void raw_segment(struct raw_peer *p, const struct ddp_hdr *h, const void *payload, size_t len);

/* Headers of whole messages; the MSN is the next one, and counted. */
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
void raw_finish(struct raw_peer *p); /* FIN: nothing more from us */
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
/* The last message is a Terminate with this fault, and with what belongs to it; then FIN. */
void expect_terminate(struct raw_peer *p, struct wire_fault fault);
/* The same behind whatever else is under way. */
void expect_terminate_at_last(struct raw_peer *p, struct wire_fault fault);
void expect_hangup(struct raw_peer *p);		/* FIN or RST, and nothing before */
void expect_hangup_at_last(struct raw_peer *p); /* the same, whatever comes before */

/* ---- a scene: a side of ours, a raw peer, and others ------------------- */

struct scene {
	struct side us;
	struct raw_peer peer;
	struct pair *others; /* connected all along, and not to be disturbed */
};

struct scene_wish {
	struct side_wish us;
	struct raw_wish peer;
	bool we_connect; /* else the raw peer does */
};

void scene_open(struct scene *s, const struct scene_wish *w);
void scene_close(struct scene *s);

/* For cmocka's group: the others, in *state. */
int others_open(void **state);
int others_close(void **state);

/*
 * The peer broke a rule: it gets this Terminate, our queue pair is in error with
 * all its work flushed, the program hears of it once in each way, and the
 * others have not noticed.
 */
void expect_refused(struct scene *s, struct wire_fault fault, enum ibv_event_type event);
/* The same where no Terminate is due: what the program sees. */
void expect_broken(struct scene *s, enum ibv_event_type event);
/* And where nothing was wrong: the peer closed. */
void expect_closed(struct scene *s);

#endif
