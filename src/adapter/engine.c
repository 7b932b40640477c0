// SPDX-License-Identifier: BSD-2-Clause
/*
 * engine.c - the thread that makes progress when no thread of the program does.
 *
 * The engine waits for the descriptors that are armed with it. A thread that polls a completion queue,
 * or sleeps in ibv_get_cq_event(), watches its sockets itself: it claims them (claim.c), and
 * they are disarmed here, because a needless wake-up of this thread costs ten times as much as
 * a message. While there are claims, the engine checks at every tick whether their owner still
 * polls, and takes the claims back if not.
 *
 * A program may close every descriptor that it does not know (daemons do). An engine that has
 * lost its descriptors ends, and all connections with it; later connections get a new engine.
 */
#include "adapter/engine.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "adapter/claim.h"
#include "adapter/device.h"
#include "adapter/gid.h"
#include "adapter/live.h"
#include "adapter/misuse.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#define TICK_MS		 2 /* a claim outlives its owner's last poll by at most two ticks of this length, */
#define MAX_TICK_MS	 16    /* or of this one, while all owners sleep */
#define AWAKE_NS	 50000 /* how long to spin for the next request of a peer */
#define AWAKE_AFTER	 16    /* credits from which on the engine spins */
#define AWAKE_CREDIT	 256   /* most credits */
#define AWAKE_LONG	 8     /* credits that a late request costs */
#define AWAKE_PRICE	 32    /* credits that spinning in vain costs; doubled each time, */
#define AWAKE_PRICE_MOST 512   /* up to this */
#define MAX_EVENTS	 64

struct slot {
	struct watch *watch; /* NULL: free */
	uint32_t gen;	     /* distinguishes an event from one for the slot's previous watch */
};

static struct {
	/* Two mutexes make the lock fair: a thread that waits for `main` holds `gate`. */
	pthread_mutex_t gate, main;
	_Atomic(pthread_t) owner;
	unsigned depth;

	struct lock start_lock;
	bool started, lost; /* lost: an earlier engine ended */
	pthread_t thread;
	_Atomic int epoll_fd;
	int wake_fd;
	struct slot *slots; /* under the engine lock */
	uint32_t n_slots;
	/* forks and lost engines so far; older watches are not registered here */
	_Atomic unsigned forks;

	struct lock queue_lock; /* a leaf; protects the rest */
	struct list timers;	/* ordered by deadline */
	struct list works;
	unsigned round;	     /* of run_due(): work that is queued in this one runs in the next */
	bool work_left;	     /* when the last round ended; only the engine thread reads it */
	struct list polled;  /* stag_cq.polled_link */
	bool woken;	     /* wake_fd was written, and not read yet */
	_Atomic int tick_ms; /* while sockets are claimed */
} engine = {
	.gate = PTHREAD_MUTEX_INITIALIZER,
	.main = PTHREAD_MUTEX_INITIALIZER,
	.start_lock = LOCK_INITIALIZER,
	.queue_lock = LOCK_INITIALIZER,
	.timers = {&engine.timers, &engine.timers},
	.works = {&engine.works, &engine.works},
	.polled = {&engine.polled, &engine.polled},
	.tick_ms = TICK_MS,
	.epoll_fd = -1,
	.wake_fd = -1,
};

struct stag_totals stag_totals;
static struct watch wake_watch;

/* ---- the lock ---- */

bool engine_locked(void)
{
	return pthread_equal(atomic_load(&engine.owner), pthread_self());
}

void engine_lock(void)
{
	if (engine_locked()) {
		engine.depth++;
		return;
	}
	pthread_mutex_lock(&engine.gate);
	pthread_mutex_lock(&engine.main);
	pthread_mutex_unlock(&engine.gate);
	atomic_store(&engine.owner, pthread_self());
	engine.depth = 1;
}

static bool engine_trylock(void)
{
	if (engine_locked() || pthread_mutex_trylock(&engine.main))
		return false;
	atomic_store(&engine.owner, pthread_self());
	engine.depth = 1;
	return true;
}

void engine_unlock(void)
{
	assert(engine_locked());
	if (--engine.depth)
		return;
	atomic_store(&engine.owner, (pthread_t)0);
	pthread_mutex_unlock(&engine.main);
}

/* ---- watches ---- */

static int grow_slots(void)
{
	uint32_t n = engine.n_slots ? engine.n_slots * 2 : 64;
	struct slot *s = realloc(engine.slots, n * sizeof(*s));

	if (!s)
		return -ENOMEM;
	memset(s + engine.n_slots, 0, (n - engine.n_slots) * sizeof(*s));
	engine.slots = s;
	engine.n_slots = n;
	return 0;
}

/* Returns a free slot. 0 is never used, so that a zeroed watch is one that was not added. */
static int find_slot(void)
{
	static uint32_t hint = 1;

	assert(engine_locked());
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < engine.n_slots; i++) {
			uint32_t at = (hint + i) % engine.n_slots;

			if (at && !engine.slots[at].watch) {
				hint = at + 1;
				return (int)at;
			}
		}
		hint = engine.n_slots ? engine.n_slots : 1;
		if (grow_slots())
			return -ENOMEM;
	}
	return -ENOMEM;
}

static uint64_t cookie(uint32_t slot)
{
	return (uint64_t)engine.slots[slot].gen << 32 | slot;
}

int watch_add(struct watch *w, int fd, uint32_t events, void (*fn)(struct watch *, uint32_t))
{
	struct epoll_event ev = {.events = events};
	int slot;

	assert(engine_locked());
	slot = find_slot();
	if (slot < 0)
		return slot;
	engine.slots[slot].gen++;
	ev.data.u64 = cookie((uint32_t)slot);
	*w = (struct watch){.fd = fd, .events = events, .fn = fn, .slot = (uint32_t)slot};
	w->forks = engine.forks;
	w->cookie = ev.data.u64;
	if (epoll_ctl(engine.epoll_fd, EPOLL_CTL_ADD, fd, &ev)) {
		w->slot = 0;
		return -errno;
	}
	engine.slots[slot].watch = w;
	return 0;
}

unsigned engine_age(void)
{
	return engine.forks;
}

static bool is_watched(const struct watch *w)
{
	return w->slot != 0 && w->forks == engine.forks;
}

int watch_mod(struct watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.u64 = w->cookie};

	if (!is_watched(w) || w->events == events)
		return 0;
	w->events = events;
	return epoll_ctl(engine.epoll_fd, EPOLL_CTL_MOD, w->fd, &ev) ? -errno : 0;
}

void watch_del(struct watch *w)
{
	assert(engine_locked());
	if (!is_watched(w))
		return;
	epoll_ctl(engine.epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	engine.slots[w->slot].watch = NULL;
	w->slot = 0;
}

static void dispatch(const struct epoll_event *ev)
{
	uint32_t slot = (uint32_t)ev->data.u64;
	struct watch *w = slot < engine.n_slots ? engine.slots[slot].watch : NULL;

	assert(engine_locked());
	if (w && cookie(slot) == ev->data.u64)
		w->fn(w, ev->events);
}

/* ---- waking, timers, work ---- */

static void wake_thread(void)
{
	uint64_t one = 1;

	assert(lock_held(&engine.queue_lock));
	if (!engine.started || engine.woken || pthread_equal(engine.thread, pthread_self()))
		return;
	engine.woken = true;
	if (write(engine.wake_fd, &one, sizeof(one)) < 0)
		log_err("engine: cannot wake its thread: %s", strerror(errno));
}

static void on_wake(struct watch *w, uint32_t revents)
{
	uint64_t n;

	lock_acquire(&engine.queue_lock);
	engine.woken = false;
	if (read(w->fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		log_err("engine: cannot read its wake-up descriptor: %s", strerror(errno));
	lock_release(&engine.queue_lock);
}

void timer_set(struct timer *t, uint64_t deadline, void (*fn)(struct timer *))
{
	struct list *at;

	lock_acquire(&engine.queue_lock);
	if (t->armed)
		list_del(&t->link);
	t->armed = true;
	t->deadline = deadline;
	t->fn = fn;
	/* Most timers have the same delay: the place is near the end. */
	for (at = engine.timers.prev; at != &engine.timers; at = at->prev)
		if (list_entry(at, struct timer, link)->deadline <= deadline)
			break;
	list_add_tail(at->next, &t->link);
	if (engine.timers.next == &t->link)
		wake_thread();
	lock_release(&engine.queue_lock);
}

void timer_cancel(struct timer *t)
{
	assert(engine_locked());
	lock_acquire(&engine.queue_lock);
	if (t->armed) {
		list_del(&t->link);
		t->armed = false;
	}
	lock_release(&engine.queue_lock);
}

void work_queue(struct work *w, void (*fn)(struct work *))
{
	lock_acquire(&engine.queue_lock);
	w->fn = fn;
	if (!w->queued) {
		w->queued = true;
		w->round = engine.round;
		list_add_tail(&engine.works, &w->link);
		wake_thread();
	}
	lock_release(&engine.queue_lock);
}

void work_cancel(struct work *w)
{
	assert(engine_locked());
	lock_acquire(&engine.queue_lock);
	if (w->queued) {
		list_del(&w->link);
		w->queued = false;
	}
	lock_release(&engine.queue_lock);
}

/*
 * Removes and returns a timer that is due, or NULL. *fn: copied, because the timer may be set
 * again once the lock is free.
 */
static struct timer *due_timer(uint64_t now, void (**fn)(struct timer *))
{
	struct timer *t = NULL;

	lock_acquire(&engine.queue_lock);
	if (!list_empty(&engine.timers)) {
		t = list_entry(engine.timers.next, struct timer, link);
		if (t->deadline <= now) {
			list_del(&t->link);
			t->armed = false;
			*fn = t->fn;
		} else {
			t = NULL;
		}
	}
	lock_release(&engine.queue_lock);
	return t;
}

/* The same for work that was queued before this round. first: begins the round. */
static struct work *next_work(void (**fn)(struct work *), bool first)
{
	struct work *w = NULL;

	lock_acquire(&engine.queue_lock);
	engine.round += first;
	engine.work_left = !list_empty(&engine.works);
	if (engine.work_left)
		w = list_entry(engine.works.next, struct work, link);
	if (w && w->round == engine.round)
		w = NULL;
	if (w) {
		list_del(&w->link);
		w->queued = false;
		*fn = w->fn;
	}
	lock_release(&engine.queue_lock);
	return w;
}

static bool has_work(void)
{
	bool has;

	lock_acquire(&engine.queue_lock);
	has = !list_empty(&engine.works);
	lock_release(&engine.queue_lock);
	return has;
}

static void run_due(void)
{
	void (*do_work)(struct work *);
	void (*ring)(struct timer *);
	struct timer *t;
	struct work *w;

	assert(engine_locked());
	for (w = next_work(&do_work, true); w; w = next_work(&do_work, false))
		do_work(w);
	while ((t = due_timer(clock_ns(), &ring)))
		ring(t);
}

/* ---- completion queues that somebody polls ---- */

void engine_note_polled(struct stag_cq *cq)
{
	if (atomic_load_explicit(&cq->in_polled, memory_order_relaxed))
		return;
	lock_acquire(&engine.queue_lock);
	if (!atomic_exchange(&cq->in_polled, true)) {
		cq->seen_ticks = atomic_load(&cq->poll_ticks) - 1;
		list_add_tail(&engine.polled, &cq->polled_link);
		engine.tick_ms = TICK_MS;
		wake_thread();
	}
	lock_release(&engine.queue_lock);
}

void engine_forget_polled(struct stag_cq *cq)
{
	assert(engine_locked());
	lock_acquire(&engine.queue_lock);
	if (atomic_exchange(&cq->in_polled, false))
		list_del(&cq->polled_link);
	lock_release(&engine.queue_lock);
}

static bool was_polled(struct stag_cq *cq)
{
	uint32_t ticks = atomic_load(&cq->poll_ticks);
	bool polled = ticks != cq->seen_ticks;

	cq->seen_ticks = ticks;
	return polled;
}

/*
 * Returns the queue after `last` in the list, or NULL. Queues leave the list under the engine
 * lock only.
 */
static struct stag_cq *next_polled(struct stag_cq *last)
{
	struct list *l;

	lock_acquire(&engine.queue_lock);
	l = last ? last->polled_link.next : engine.polled.next;
	lock_release(&engine.queue_lock);
	return l == &engine.polled ? NULL : list_entry(l, struct stag_cq, polled_link);
}

static void take_back_claims(void)
{
	struct stag_cq *cq = next_polled(NULL), *next;
	bool active = false;

	assert(engine_locked());
	for (; cq; cq = next) {
		bool polled = was_polled(cq);

		next = next_polled(cq);
		active |= polled;
		/* A thread that holds the lock makes progress, for however long. */
		if (polled || claim_is_slept_on(cq) || !lock_try(&cq->qps_lock))
			continue;
		/* Both under the lock: a queue that is not in the list must have no claims. */
		engine_forget_polled(cq);
		claim_release(cq);
		lock_release(&cq->qps_lock);
	}
	/* If all owners sleep, less frequent checks are enough. */
	if (active)
		engine.tick_ms = TICK_MS;
	else if (engine.tick_ms < MAX_TICK_MS)
		engine.tick_ms *= 2;
}

/* ---- the thread ---- */

static int wait_ms(void)
{
	int ms = -1;

	lock_acquire(&engine.queue_lock);
	if (!list_empty(&engine.timers)) {
		uint64_t now = clock_ns();
		uint64_t at = list_entry(engine.timers.next, struct timer, link)->deadline;

		ms = at <= now ? 0 : (int)((at - now + NS_PER_MS - 1) / NS_PER_MS);
	}
	if (!list_empty(&engine.polled) && (ms < 0 || ms > engine.tick_ms))
		ms = engine.tick_ms;
	if (!list_empty(&engine.works))
		ms = 0;
	lock_release(&engine.queue_lock);
	return ms;
}

/*
 * Peers that use storage, or read a little memory, often make requests in quick succession.
 * Then the engine spins for the next one: being woken takes longer than answering. Each request
 * that comes soon earns a credit. A request that does not come in time costs many, and more
 * each time, so that an engine that shares a processor with the peer soon sleeps instead. It
 * costs nothing if a poller has answered a request meanwhile.
 */
static struct {
	_Atomic bool asked; /* a request came since the last wait */
	int credit;
	int price;
} awake = {.price = AWAKE_PRICE};

void engine_note_asked(void)
{
	if (!atomic_load_explicit(&awake.asked, memory_order_relaxed))
		atomic_store_explicit(&awake.asked, true, memory_order_relaxed);
}

static void came_soon(void)
{
	if (awake.credit < AWAKE_CREDIT)
		awake.credit++;
	if (awake.price > AWAKE_PRICE)
		awake.price--;
}

static void came_late(void)
{
	if (awake.credit > 0)
		awake.credit -= AWAKE_LONG;
}

static void waited_in_vain(void)
{
	if (atomic_load_explicit(&awake.asked, memory_order_relaxed))
		return;
	awake.credit -= awake.price;
	if (awake.price < AWAKE_PRICE_MOST)
		awake.price *= 2;
}

static int wait_asleep(struct epoll_event *ev)
{
	return epoll_wait(engine.epoll_fd, ev, MAX_EVENTS, wait_ms());
}

/* Returns 0 if nothing came in time. */
static int wait_awake(struct epoll_event *ev)
{
	uint64_t until = clock_ns() + AWAKE_NS;
	int n;

	do
		n = epoll_wait(engine.epoll_fd, ev, MAX_EVENTS, 0);
	while (n == 0 && clock_ns() < until);
	if (n == 0)
		waited_in_vain();
	else
		came_soon();
	return n;
}

static int wait_events(struct epoll_event *ev)
{
	uint64_t since;
	int n;

	if (!atomic_exchange_explicit(&awake.asked, false, memory_order_relaxed) ||
	    engine.work_left)
		return wait_asleep(ev); /* not at all, if there is work */
	if (awake.credit >= AWAKE_AFTER) {
		n = wait_awake(ev);
		return n ? n : wait_asleep(ev);
	}
	since = clock_ns();
	n = wait_asleep(ev);
	if (clock_ns() - since < AWAKE_NS)
		came_soon();
	else
		came_late();
	return n;
}

/*
 * Ends the engine. From here on no watched descriptor is touched: its number may belong to
 * another file. Pollers and sleepers are notified by the ends of their queue pairs.
 */
static void end_after_lost_descriptors(int error)
{
	engine_lock();
	log_err("engine: the program has closed its descriptors (%s): all connections end",
		strerror(error));
	lock_acquire(&engine.queue_lock);
	engine.epoll_fd = engine.wake_fd = -1;
	engine.woken = true; /* there is no thread to wake */
	lock_release(&engine.queue_lock);
	free(engine.slots);
	engine.slots = NULL;
	engine.n_slots = 0;
	engine.forks++;
	qp_table_end_all();
	do
		run_due();
	while (has_work()); /* its consequences, too */
	engine_unlock();
	lock_acquire(&engine.start_lock);
	lock_acquire(&engine.queue_lock);
	engine.started = false;
	lock_release(&engine.queue_lock);
	engine.lost = true;
	lock_release(&engine.start_lock);
}

static void *engine_main(void *arg)
{
	struct epoll_event ev[MAX_EVENTS];
	uint64_t last_tick = 0;

	for (;;) {
		int n = wait_events(ev);
		uint64_t now;

		if (n < 0 && errno != EINTR) {
			end_after_lost_descriptors(errno);
			return NULL;
		}
		atomic_fetch_add_explicit(&stag_totals.engine_wakeups, 1, memory_order_relaxed);
		engine_lock();
		for (int i = 0; i < n; i++)
			dispatch(&ev[i]);
		run_due();
		now = clock_ns();
		if (now - last_tick >= (uint64_t)engine.tick_ms * NS_PER_MS) {
			last_tick = now;
			take_back_claims();
		}
		engine_unlock();
	}
	return NULL;
}

/*
 * Runs the engine's callbacks on a poller's thread: the engine thread may be waiting for the
 * same processor.
 */
void engine_help(void)
{
	struct epoll_event ev[MAX_EVENTS];
	int n;

	if (!engine_trylock())
		return;
	n = engine.epoll_fd < 0 ? 0 : epoll_wait(engine.epoll_fd, ev, MAX_EVENTS, 0);
	for (int i = 0; i < n; i++)
		if (ev[i].data.u64 != wake_watch.cookie) /* for the engine thread itself */
			dispatch(&ev[i]);
	engine_unlock();
}

static int start_thread(void)
{
	sigset_t all, old;
	int err;

	assert(lock_held(&engine.start_lock));
	/*
	 * The program's signals are for its own threads, except SIGBUS, which the program's
	 * memory may raise here.
	 */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&engine.thread, NULL, engine_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return -err;
	pthread_setname_np(engine.thread, "stag-engine");
	pthread_detach(engine.thread);
	return 0;
}

static int open_descriptors(void)
{
	int err;

	assert(lock_held(&engine.start_lock));
	engine.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (engine.epoll_fd < 0)
		return -errno;
	engine.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine.wake_fd < 0) {
		err = -errno;
		close(engine.epoll_fd);
		return err;
	}
	engine_lock();
	err = watch_add(&wake_watch, engine.wake_fd, EPOLLIN, on_wake);
	engine_unlock();
	if (err) {
		close(engine.wake_fd);
		close(engine.epoll_fd);
	}
	return err;
}

/* Clears the queues of a forked child, so that cancelling an entry finds it idle. */
static void forget_queue(void)
{
	list_for_each_safe (l, &engine.timers) {
		list_del(l);
		list_entry(l, struct timer, link)->armed = false;
	}
	list_for_each_safe (l, &engine.works) {
		list_del(l);
		list_entry(l, struct work, link)->queued = false;
	}
	list_for_each_safe (l, &engine.polled) {
		list_del(l);
		atomic_store(&list_entry(l, struct stag_cq, polled_link)->in_polled, false);
	}
}

/*
 * A forked child has no engine thread, and what it inherited belongs to its parent. The child
 * starts an engine of its own for its own objects.
 */
static void forget_after_fork(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	engine.gate = engine.main = fresh;
	lock_init(&engine.start_lock);
	lock_init(&engine.queue_lock);
	keys_after_fork();
	qp_table_after_fork();
	port_after_fork();
	gid_after_fork();
	ctx_after_fork();
	live_after_fork();
	misuse_after_fork();
	atomic_store(&engine.owner, (pthread_t)0);
	if (engine.epoll_fd >= 0) {
		close(engine.epoll_fd);
		close(engine.wake_fd);
	}
	engine.epoll_fd = engine.wake_fd = -1;
	engine.slots = NULL;
	engine.n_slots = 0;
	engine.forks++;
	engine.started = engine.woken = engine.lost = false;
	forget_queue();
}

/* Work that was queued while there was no engine runs now. */
static void set_started(void)
{
	assert(lock_held(&engine.start_lock));
	lock_acquire(&engine.queue_lock);
	engine.started = true;
	engine.woken = false;
	if (engine.lost)
		wake_thread();
	lock_release(&engine.queue_lock);
}

int engine_start(void)
{
	static bool atfork_set;
	int err = 0;

	lock_acquire(&engine.start_lock);
	if (!engine.started) {
		if (!atfork_set)
			atfork_set = !pthread_atfork(NULL, NULL, forget_after_fork);
		err = open_descriptors();
		if (!err)
			err = start_thread();
		if (err)
			log_err("engine: cannot start: %s", strerror(-err));
		else
			set_started();
		if (!err && !engine.lost) /* live.c's thread may lose its own */
			live_start();
	}
	lock_release(&engine.start_lock);
	return err;
}
