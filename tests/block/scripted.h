/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scripted.h - a target that does what a story wants: over TCP, iSER or one-shot, in a thread of its own. Behind cmocka.h.
 *
 * It lets everybody in, has a unit of SCRIPTED_SIZE bytes, and answers what a probe asks. What else comes is the story's
 * affair: it is called for each command and each task management request. Answers that the story does not give are not
 * given.
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
	/* from the thread */
	void (*on_command)(struct scripted *s, const struct pdu *p);
	void (*on_task)(struct scripted *s, const struct pdu *p);
	uint16_t port;
	uint64_t size;	       /* that it says it has */
	uint32_t target_recv;  /* data that a send brings it; 512 */
	unsigned int logins;   /* how many there were */
	unsigned int commands; /* that on_command was called for */
	unsigned int step;     /* the story's */
	struct pdu kept;       /* the story's */
	uint32_t kept_stag;    /* the story's */
	uint8_t bytes[SCRIPTED_SIZE];

	/* of the command under way */
	uint8_t data[8192]; /* what a write brought */
	uint32_t data_len;
	uint32_t stag; /* what it lent */
	bool leaves;   /* the connection ends with it */

	/* its own */
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

/* From its thread: */
void scripted_good(struct scripted *s, const struct pdu *p); /* does it, and answers */
void scripted_answer(struct scripted *s, const struct pdu *p, uint8_t status, uint32_t sense);
/* The same, and closes this STag instead of what was lent; 0: none. */
void scripted_close(struct scripted *s, const struct pdu *p, uint32_t stag);
void scripted_fetch(struct scripted *s, const struct pdu *p); /* data of a write that was lent */
/* len bytes of RDMA Write to what an STag has. */
void scripted_poke(struct scripted *s, uint32_t stag, uint64_t at, uint32_t len);
void scripted_leave(struct scripted *s); /* asks the initiator to go, and come again */
void scripted_task(struct scripted *s, const struct pdu *p, enum task_outcome outcome);
void scripted_say(struct scripted *s, const void *bytes, uint32_t len); /* a send, or bytes */
void scripted_say_closing(struct scripted *s, const void *bytes, uint32_t len, uint32_t stag);

#endif
