/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * live.h - what this process says of itself: what its files share.
 */
#ifndef STAG_LIVE_H
#define STAG_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>

#include "base/histogram.h"
#include "stag/stagdv.h"

#define LIVE_MOST                                                                                  \
	(8u << 20) /* bytes of a document; what would be beyond is counted, and left off */

/* live.c */
void live_start(void);	    /* with the engine; says so in the log where it cannot */
void live_after_fork(void); /* in the child: what is open is its parent's */

/* live_text.c: a text that grows, up to a bound; then failed is set, and it stays as it is */
struct live_text {
	char *at;
	size_t length, room, most;
	bool failed;
};

void text_add(struct live_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_add_string(struct live_text *t,
		     const char *s); /* quoted; bytes that are no UTF-8: U+FFFD */
void text_add_histogram(struct live_text *t, const struct stag_histogram *h);
void text_free(struct live_text *t);

/* live_tell.c: the document that a word asks for; false: there is no such word, or no memory */
bool live_tell(const char *word, struct live_text *t);

/* qp_table.c: a queue pair, as it is seen from outside */
struct qp_look {
	uint32_t number;
	enum ibv_qp_state state;
	bool on_store, stag_peer;
	bool linked; /* the addresses are those of its connection */
	struct sockaddr_storage local, peer;
	struct stagdv_counters counters;
	uint32_t sq_used, sq_size, rq_used, rq_size;
	struct stag_histogram times;
};

/* Up to n of them, those from slot *at on; *at becomes where to go on. The engine waits as long. */
size_t qp_table_look(uint32_t *at, struct qp_look *out, size_t n);

/* keys.c: what is lent, as it is seen from outside */
struct key_look {
	uint32_t stag;
	const char *kind;
	uint64_t base, length, lease;
	unsigned access;
};

void key_each_look(void (*fn)(const struct key_look *k, void *arg), void *arg);

#endif
