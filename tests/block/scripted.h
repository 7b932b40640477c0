/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scripted.h - a target that behaves as a test says: over TCP, iSER or one-shot, in a thread of its own. Include it
 * after cmocka.h.
 *
 * It accepts every login, has a unit of SCRIPTED_SIZE bytes, and responds to the commands of a probe. For all other
 * commands and task management requests the test's functions are called; they send all responses.
 */
#ifndef STAG_TEST_SCRIPTED_H
#define STAG_TEST_SCRIPTED_H

#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "block/scsi/scsi.h"
#include "block/iscsi/iscsi.h"

#define SCRIPTED_SIZE (64u << 10)
#define SCRIPTED_NAME "iqn.2026-01.x:scripted"

struct scripted {
	enum stag_block_transport kind;
	/* called by the thread */
	void (*on_command)(struct scripted *s, const struct pdu *p);
	void (*on_task)(struct scripted *s, const struct pdu *p);
	uint16_t port;
	uint64_t size;	       /* that the unit reports */
	uint32_t target_recv;  /* TargetRecvDataSegmentLength; default: 512 */
	unsigned int logins;   /* logins so far */
	unsigned int commands; /* calls of on_command */
	unsigned int step;     /* for the test */
	struct pdu kept;       /* for the test */
	uint32_t kept_stag;    /* for the test */
	uint8_t bytes[SCRIPTED_SIZE];

	/* of the current command */
	uint8_t data[8192]; /* of a write */
	uint32_t data_len;
	uint32_t stag; /* that it lent */
	bool leaves;   /* the connection ends after it */

	/* private */
	pthread_t thread;
	bool stop; /* atomic */
	uint32_t stat_sn, exp_cmd_sn;
	int listener, fd;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listening, *id;
	struct ibv_mr *mr;
	uint8_t *memory;
};

void scripted_start(struct scripted *s, enum stag_block_transport kind);
void scripted_stop(struct scripted *s);
const char *scripted_url(const struct scripted *s);

/* For functions that its thread calls: */
void scripted_good(struct scripted *s,
		   const struct pdu *p); /* carries out the command, and responds */
void scripted_answer(struct scripted *s, const struct pdu *p, uint8_t status, uint32_t sense);
/* The same, but closes this STag instead of the one that was lent; 0: none. */
void scripted_close(struct scripted *s, const struct pdu *p, uint32_t stag);
void scripted_fetch(struct scripted *s, const struct pdu *p); /* fetches lent data of a write */
/* Writes len bytes to the memory of an STag by RDMA Write. */
void scripted_poke(struct scripted *s, uint32_t stag, uint64_t at, uint32_t len);
void scripted_leave(struct scripted *s); /* requests the initiator to log out and reconnect */
void scripted_task(struct scripted *s, const struct pdu *p, enum task_outcome outcome);
void scripted_say(struct scripted *s, const void *bytes,
		  uint32_t len); /* raw bytes: a send, or part of the TCP stream */
void scripted_say_closing(struct scripted *s, const void *bytes, uint32_t len, uint32_t stag);

#endif
