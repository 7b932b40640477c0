/* SPDX-License-Identifier: BSD-2-Clause */
/* live.h - queries from other processes: declarations that live*.c share. */
#ifndef STAG_LIVE_H
#define STAG_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>

#include "base/histogram.h"
#include "stag/stagdv.h"
#include "tls/tls.h"

#define LIVE_MOST (8u << 20) /* bytes of a document; entries beyond are counted and omitted */

/* live.c */
void live_start(void);	    /* starts with the engine; logs a failure */
void live_after_fork(void); /* in the child: closes what belongs to its parent */

/* live_text.c: a text that grows up to a bound; then failed is set, and the text stays as it is */
struct live_text {
	char *at;
	size_t length, room, most;
	bool failed;
};

void text_add(struct live_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* quotes it; bytes that are not UTF-8 become U+FFFD */
void text_add_string(struct live_text *t, const char *s);
void text_add_histogram(struct live_text *t, const struct stag_histogram *h);
void text_free(struct live_text *t);

/*
 * live_tell.c: writes the document that a word requests. Returns false for an unknown word or
 * if memory runs out.
 */
bool live_tell(const char *word, struct live_text *t);

/* qp_table.c: a snapshot of a queue pair */
struct qp_look {
	uint32_t number;
	enum ibv_qp_state state;
	bool on_store, stag_peer;
	bool linked; /* connected: the addresses are valid */
	bool encrypted;
	struct tls_info tls; /* if it is encrypted */
	struct sockaddr_storage local, peer;
	struct stagdv_counters counters;
	uint32_t sq_used, sq_size, rq_used, rq_size;
	struct stag_histogram times;
};

/*
 * Takes snapshots of up to n queue pairs from slot *at on, and advances *at. Holds the engine
 * lock meanwhile.
 */
size_t qp_table_look(uint32_t *at, struct qp_look *out, size_t n);

/* keys.c: a snapshot of a valid key */
struct key_look {
	uint32_t stag;
	const char *kind;
	uint64_t base, length, lease;
	unsigned access;
};

void key_each_look(void (*fn)(const struct key_look *k, void *arg), void *arg);

#endif
