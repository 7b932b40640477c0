/* SPDX-License-Identifier: BSD-2-Clause */
/* engine.h - the thread that makes progress for sleeping programs: descriptors, timers and work. */
#ifndef STAG_ENGINE_H
#define STAG_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct stag_cq;

/* A descriptor whose readiness is reported to fn, on the engine thread, under the engine lock. */
struct watch {
	int fd;
	uint32_t events; /* EPOLLIN, EPOLLOUT; level-triggered */
	void (*fn)(struct watch *w, uint32_t revents);
	uint32_t slot; /* private to engine.c, as the next two */
	unsigned forks;
	uint64_t cookie;
};

/* fn runs once on the engine thread, under the engine lock, at or after deadline. */
struct timer {
	uint64_t deadline; /* clock_ns() */
	void (*fn)(struct timer *t);
	struct list link;
	bool armed;
};

/*
 * fn runs once, soon, on the engine thread, under the engine lock. If it queues itself again, events, timers and other
 * work get their turn first.
 */
struct work {
	void (*fn)(struct work *w);
	struct list link;
	bool queued;
	unsigned round; /* private to engine.c */
};

int engine_start(void); /* idempotent; starts the thread */
void engine_lock(void); /* recursive */
void engine_unlock(void);
bool engine_locked(void);  /* does this thread hold the lock? For asserts */
unsigned engine_age(void); /* changes in a forked child, and when the descriptors were lost */

/*
 * add and del require the engine lock; mod may be called from anywhere while the
 * watch is added. After del returns fn does not run again.
 */
int watch_add(struct watch *w, int fd, uint32_t events, void (*fn)(struct watch *, uint32_t));
int watch_mod(struct watch *w, uint32_t events);
void watch_del(struct watch *w); /* harmless on one that was zeroed and never added */

/* set: from anywhere (re-arms); cancel: requires the engine lock. Zero-initialise a timer first. */
void timer_set(struct timer *t, uint64_t deadline, void (*fn)(struct timer *));
void timer_cancel(struct timer *t);

/* queue: from anywhere, also twice; cancel: requires the engine lock. */
void work_queue(struct work *w, void (*fn)(struct work *));
void work_cancel(struct work *w);

/* Threads that poll, and the engine. */
/* somebody polls it: the engine checks its claims from now on */
void engine_note_polled(struct stag_cq *cq);
void engine_note_asked(void); /* a peer has made a request: the next one may follow soon */
void engine_help(void);	      /* does the engine's due work on the calling thread */
void engine_forget_polled(struct stag_cq *cq);

#endif
