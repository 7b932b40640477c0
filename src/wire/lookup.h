/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lookup.h - the messages by which a program of RDMA_PS_UDP asks a listener for a queue pair's number and Q_Key: what
 * InfiniBand's SIDR REQ and SIDR REP are. Pure functions over buffers.
 *
 * A message is one datagram of UDP of LOOKUP_LEN bytes, big-endian. All have the same length, so that an answer is never
 * longer than its question.
 *
 *    0  magic "sLKP"      4  version (1)    5  kind    6  status    7  length of the private data
 *    8  id of the lookup: a random number of the asking side, which every message repeats
 *   16  cookie
 *   24  queue pair number 28  Q_Key
 *   32  private data, 180 bytes, filled up with zeroes
 *  212  CRC32C of all before it, least significant byte first
 *
 *     asking side                            listener
 *       LOOKUP_ASK, cookie 0        -->
 *                                   <--  LOOKUP_PROVE, with a cookie: a hash of the source's address, which is not kept
 *       LOOKUP_ASK, with the cookie -->        presented to the program: the source receives at its address
 *                                   <--  LOOKUP_ANSWER
 *
 * An asking side repeats its message until it has an answer; an answer is repeated for each repetition.
 */
#ifndef STAG_LOOKUP_H
#define STAG_LOOKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOOKUP_LEN	   216
#define LOOKUP_ASK_PRIVATE 180 /* as InfiniBand has it, without the addresses that rdma_cm adds */
#define LOOKUP_ANS_PRIVATE 136

enum lookup_kind { LOOKUP_ASK = 1, LOOKUP_PROVE = 2, LOOKUP_ANSWER = 3 };

/* The status of an answer: the numbers are those of InfiniBand's SIDR REP, which programs see. */
enum lookup_status { LOOKUP_FOUND = 0, LOOKUP_NO_LISTENER = 1, LOOKUP_REJECTED = 2 };

struct lookup_msg {
	uint8_t kind;	/* enum lookup_kind */
	uint8_t status; /* enum lookup_status; of other kinds than LOOKUP_ANSWER 0 */
	uint8_t private_len;
	uint64_t id;	    /* not 0 */
	uint64_t cookie;    /* 0: none */
	uint32_t qpn, qkey; /* of an answer LOOKUP_FOUND */
	uint8_t private_data[LOOKUP_ASK_PRIVATE];
};

void lookup_encode(const struct lookup_msg *m, uint8_t buf[LOOKUP_LEN]);

bool lookup_is_number(
	uint32_t qpn); /* may a queue pair that receives datagrams have this number? */

/* Returns -EPROTO, and leaves *m alone, unless the len bytes are a message that a peer may send. */
int lookup_decode(const uint8_t *buf, size_t len, struct lookup_msg *m);

#endif
