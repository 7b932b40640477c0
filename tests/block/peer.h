/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer.h - a target that is stepped, and initiators that send arbitrary PDUs, valid or not.
 *
 * No threads: a function that waits steps the target meanwhile. Sockets are real, on loopback.
 */
#ifndef STAG_TEST_BLOCK_PEER_H
#define STAG_TEST_BLOCK_PEER_H

#include "block/target/target.h"

#define PEER_DATA (1u << 20)

struct peer {
	struct stag_block_target *target;
	int fd;
	uint32_t cmd_sn, exp_stat_sn, next_itt;
	uint8_t isid[ISID_LEN];
	bool header_digest, data_digest;
	bool spoil_header, spoil_data; /* corrupt the digests of the next PDU */
	struct pdu in;		       /* the last PDU received */
	uint8_t data[PEER_DATA];       /* and its data */
};

struct stag_block_target *make_target(
	const struct stag_block_target_attr *attr); /* attr NULL: defaults */
void end_target(struct stag_block_target *t);	    /* with its sessions */

void peer_connect(struct peer *p, struct stag_block_target *t);
void peer_connect_to(struct peer *p, uint16_t port); /* a target with a thread of its own */
void peer_close(struct peer *p);
void peer_say_bytes(struct peer *p, const void *bytes, size_t len);
void peer_say(struct peer *p, struct pdu *out, const void *data,
	      uint32_t len);	/* with the sequence numbers of p */
bool peer_hear(struct peer *p); /* receives into in and data; false: the target has closed */
void peer_hear_a(struct peer *p, uint8_t opcode);
bool peer_hears_nothing(struct peer *p); /* after the target has done all its work */
void peer_must_be_closed(struct peer *p);

/* Logs in with one request, with additional keys (or NULL) of len bytes. */
void peer_login_with(struct peer *p, const char *keys, size_t len);
void peer_login(struct peer *p);

/* Sends a command to LUN 1 with the next sequence numbers. Returns its ITT. */
uint32_t peer_command(struct peer *p, const uint8_t cdb[16], uint8_t flags, uint32_t expected,
		      const void *data, uint32_t len);
uint32_t peer_read(struct peer *p, uint32_t block, uint16_t blocks);
uint32_t peer_write(struct peer *p, uint32_t block, uint16_t blocks, const void *immediate,
		    uint32_t len, uint8_t flags);
/* Sends a Data-Out. */
void peer_data(struct peer *p, uint32_t itt, uint32_t ttt, uint32_t sn, uint32_t offset,
	       const void *data, uint32_t len, bool final);
void peer_answer_r2t(
	struct peer *p,
	const uint8_t *all); /* answers the R2T in `in` from all of the command's data */
/* Receives PDUs up to the response, data-in to to. Returns the status. */
uint8_t peer_finish(struct peer *p, uint32_t itt, uint8_t *to);
uint32_t peer_sense(const struct peer *p); /* key << 16 | asc << 8 | ascq, of the response */
void peer_clear_attention(struct peer *p);

#endif
