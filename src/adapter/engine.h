/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine.h - the thread that serves sleepers: descriptors, timers and work.
 */
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
	uint32_t slot; /* these are private to engine.c */
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

/* fn runs once, soon, on the engine thread, under the engine lock. */
struct work {
	void (*fn)(struct work *w);
	struct list link;
	bool queued;
};

int engine_start(void); /* idempotent; starts the thread */
void engine_lock(void); /* recursive */
void engine_unlock(void);
bool engine_locked(void);  /* by this thread; for asserts */
unsigned engine_age(void); /* another in a forked child, and when the descriptors were lost */

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

/* Those who poll themselves, and the engine */
void engine_note_polled(struct stag_cq *cq); /* somebody polls it: look after it, soon */
void engine_note_asked(void); /* a peer waits for an answer of ours: it may soon ask again */
void engine_help(void);	      /* a poller does what the engine has to do now */
void engine_forget_polled(struct stag_cq *cq);

#endif
