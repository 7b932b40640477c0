/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_message.h - what two connection managers say to each other to connect queue pairs of roce0, over TCP: the messages
 * of InfiniBand's communication management (volume 1, chapter 12), with the fields that are needed here.
 *
 *   REQ -> REP -> RTU          a connection; or REQ -> REJ, or REP -> REJ
 *   DREQ -> DREP               its end
 *
 * All have one length, so that a receiver reads exactly one. Their first byte is neither MPA's ('M') nor TLS's: a port
 * can serve all three.
 */
#ifndef STAG_WIRE_CM_MESSAGE_H
#define STAG_WIRE_CM_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CM_MESSAGE_LEN	   256
#define CM_MESSAGE_VERSION 1
#define CM_MESSAGE_FIRST   's' /* the first byte of each */

/* The sizes of private data. Applications always see all of it. */
#define CM_REQ_PRIVATE 56
#define CM_REP_PRIVATE 196
#define CM_REJ_PRIVATE 148

enum cm_kind { CM_REQ = 1, CM_REP, CM_RTU, CM_REJ, CM_DREQ, CM_DREP };

/* InfiniBand's reasons of a REJ, those that are used here. */
enum cm_reason {
	CM_REJ_NO_SERVICE = 8,	/* nobody listens */
	CM_REJ_TRANSPORT = 9,	/* the port serves stag0 only, or roce0 only */
	CM_REJ_APPLICATION = 28 /* by the application */
};

enum cm_space { CM_SPACE_TCP = 1, CM_SPACE_IB = 2 }; /* port spaces */

/*
 * The fields are from the sender's point of view. REQ and REP have all of them; a REJ has kind, reason and private data; the
 * others have the kind only.
 */
struct cm_message {
	uint8_t kind;  /* enum cm_kind */
	uint8_t space; /* REQ: enum cm_space */
	uint16_t reason;
	bool srq, flow_control;
	uint32_t qpn;
	uint32_t psn; /* the first one that it expects */
	uint8_t initiator_depth, responder_resources;
	uint8_t retry_count; /* of both sides, from the REQ */
	uint8_t rnr_retry_count;
	uint8_t mtu;	 /* enum ibv_mtu; of both sides, from the REQ */
	uint8_t timeout; /* the ACK timeout, as the sender proposes it */
	uint8_t gid[16];
	uint8_t private_data[CM_REP_PRIVATE]; /* zeroes behind what was sent */
};

void cm_message_encode(const struct cm_message *m, uint8_t buf[CM_MESSAGE_LEN]);
/* Returns CM_MESSAGE_LEN; -EAGAIN if more bytes are needed; or -EPROTO if these are no message of this version. */
int cm_message_decode(const uint8_t *buf, size_t len, struct cm_message *m);
/* Returns how much private data a message of this kind has; 0 for those without. */
size_t cm_message_private(uint8_t kind);

#endif
