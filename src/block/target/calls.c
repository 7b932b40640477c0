// SPDX-License-Identifier: BSD-2-Clause
/*
 * calls.c - the public calls of a target (stag/block.h): its thread carries them out for other threads.
 */
#include "block/target/target.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/export.h"

#define SLEEP_MS  500
#define STOP_NS	  (NS_PER_S / 2) /* time for sessions to log out */
#define REMOVE_MS 10000		 /* time for a unit's commands to end */

/* ---- from thread to thread ---------------------------------------------------------------- */

static struct target_call *new_call(int (*fn)(struct stag_block_target *t, struct target_call *c))
{
	struct target_call *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;

	if (!c)
		return NULL;
	c->fn = fn;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->cond, &attr);
	pthread_condattr_destroy(&attr);
	return c;
}

static void free_call(struct target_call *c)
{
	pthread_cond_destroy(&c->cond);
	free(c);
}

static void finish_call(struct stag_block_target *t, struct target_call *c, int result)
{
	bool left;

	if (result != 0)
		snprintf(c->words, sizeof(c->words), "%s", stag_block_error());
	lock_acquire(&t->calls.lock);
	c->result = result;
	c->done = true;
	left = c->left;
	pthread_cond_signal(&c->cond);
	lock_release(&t->calls.lock);
	if (left)
		free_call(c);
}

void target_calls_run(struct stag_block_target *t)
{
	for (;;) {
		struct target_call *c = NULL;
		int rc;

		lock_acquire(&t->calls.lock);
		if (!list_empty(&t->calls.queue)) {
			c = list_entry(t->calls.queue.next, struct target_call, link);
			list_del(&c->link);
		}
		lock_release(&t->calls.lock);
		if (!c)
			return;
		rc = c->fn(t, c);
		if (rc != -EINPROGRESS)
			finish_call(t, c, rc);
	}
}

static void wait_for_call(struct stag_block_target *t, struct target_call *c, int timeout_ms)
{
	struct timespec until;

	assert(lock_held(&t->calls.lock));
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	while (!c->done)
		if (timeout_ms < 0)
			lock_wait(&t->calls.lock, &c->cond);
		else if (lock_wait_until(&t->calls.lock, &c->cond, &until) == ETIMEDOUT)
			break;
	c->left = !c->done;
}

/* Has the target's thread execute a call, and frees it. After the timeout (< 0: none) returns -EBUSY; the call goes on. */
static int run_call(struct stag_block_target *t, struct target_call *c, int timeout_ms)
{
	uint64_t one = 1;
	int rc;

	lock_acquire(&t->calls.lock);
	list_add_tail(&t->calls.queue, &c->link);
	if (write(t->loop.call_watch.fd, &one, sizeof(one)) < 0)
		abort(); /* cannot happen: the counter has 64 bits */
	wait_for_call(t, c, timeout_ms);
	lock_release(&t->calls.lock);
	if (c->left)
		return block_fail(EBUSY, "commands are still in flight");
	rc = c->result;
	if (rc != 0)
		block_fail(-rc, "%s", c->words);
	free_call(c);
	return rc;
}

/* ---- its thread --------------------------------------------------------------------------------- */

static void end_all_conns(struct stag_block_target *t)
{
	list_for_each_safe (it, &t->conns.list)
		target_conn_end(list_entry(it, struct target_conn, link));
}

/* Returns true when all sessions have ended. Sessions that do not log out before the deadline are dropped. */
static bool has_ended(struct stag_block_target *t)
{
	if (!t->stop.requested)
		return false;
	if (clock_ns() >= t->stop.deadline)
		end_all_conns(t);
	return list_empty(&t->sessions.list) &&
	       (list_empty(&t->conns.list) || clock_ns() >= t->stop.deadline);
}

static void *run_target(void *arg)
{
	struct stag_block_target *t = arg;

	while (!has_ended(t))
		target_step(t, t->stop.requested ? 10 : SLEEP_MS);
	end_all_conns(t);
	target_step(t, 0);
	return NULL;
}

static int start_thread(struct stag_block_target *t)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	sigdelset(&all, SIGBUS); /* unit/map.c handles it; blocked, it would end the process */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&t->calls.thread, NULL, run_target, t);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc == 0 ? 0 : block_fail(rc, "cannot start a thread: %s", strerror(rc));
}

STAG_EXPORT struct stag_block_target *stag_block_target_start(
	const struct stag_block_target_attr *attr)
{
	struct stag_block_target *t;
	int rc = target_create(attr, &t);

	if (rc == 0) {
		rc = start_thread(t);
		if (rc != 0)
			target_destroy(t);
	}
	if (rc == 0)
		return t;
	errno = -rc;
	return NULL;
}

static int do_stop(struct stag_block_target *t, struct target_call *c)
{
	t->stop.requested = true;
	t->stop.deadline = clock_ns() + STOP_NS;
	target_portal_close(t);
	target_rdma_close(t);
	list_for_each (it, &t->sessions.list) {
		struct target_session *s = list_entry(it, struct target_session, link);

		if (s->conn)
			target_session_request_logout(s);
	}
	return 0;
}

STAG_EXPORT void stag_block_target_stop(struct stag_block_target *t)
{
	struct target_call *c;

	if (!t)
		return;
	c = new_call(do_stop);
	if (!c)
		abort(); /* without memory there is no way to reach the thread */
	run_call(t, c, -1);
	pthread_join(t->calls.thread, NULL);
	target_destroy(t);
}

STAG_EXPORT uint16_t stag_block_target_port(const struct stag_block_target *t)
{
	return t->portal.port;
}

static int do_set_rights(struct stag_block_target *t, struct target_call *c)
{
	return target_replace_rules(t, c->in);
}

STAG_EXPORT int stag_block_target_set_rights(struct stag_block_target *t,
					     const struct stag_block_target_attr *attr)
{
	struct target_call *c = new_call(do_set_rights);

	if (!c)
		return ENOMEM;
	c->in = attr;
	return -run_call(t, c, -1);
}

/* ---- units ------------------------------------------------------------------------------------------ */

static int do_add(struct stag_block_target *t, struct target_call *c)
{
	const struct stag_block_lun *attr = c->in;
	struct lun *l;
	int rc;

	if (scsi_target_find(t->scsi, attr->lun))
		return block_fail(EEXIST, "LUN %u: already exists", attr->lun);
	rc = lun_open(t->units, attr, &l);
	if (rc != 0)
		return rc;
	rc = scsi_target_add(t->scsi, attr->lun, l);
	if (rc != 0)
		lun_close(l);
	return rc;
}

STAG_EXPORT int stag_block_target_add(struct stag_block_target *t, const struct stag_block_lun *lun)
{
	struct target_call *c = new_call(do_add);

	if (!c)
		return ENOMEM;
	c->in = lun;
	return -run_call(t, c, -1);
}

struct removal {
	struct stag_block_target *target;
	struct target_call *call;
};

static void on_removed(void *arg, struct lun *l)
{
	struct removal r = *(struct removal *)arg;

	free(arg);
	lun_close(l);
	finish_call(r.target, r.call, 0);
}

static int do_remove(struct stag_block_target *t, struct target_call *c)
{
	struct removal *r = malloc(sizeof(*r));
	int rc;

	if (!r)
		return block_fail(ENOMEM, "out of memory");
	*r = (struct removal){t, c};
	rc = scsi_target_remove(t->scsi, c->lun, on_removed, r);
	if (rc == 0)
		return -EINPROGRESS;
	free(r);
	return block_fail(-rc, "LUN %u: does not exist", c->lun);
}

STAG_EXPORT int stag_block_target_remove(struct stag_block_target *t, uint16_t lun)
{
	struct target_call *c = new_call(do_remove);

	if (!c)
		return ENOMEM;
	c->lun = lun;
	return -run_call(t, c, REMOVE_MS);
}

static int do_resized(struct stag_block_target *t, struct target_call *c)
{
	struct lun *l = scsi_target_find(t->scsi, c->lun);
	int rc;

	if (!l)
		return block_fail(ENOENT, "LUN %u: does not exist", c->lun);
	rc = lun_refresh_size(l);
	if (rc > 0)
		scsi_target_resized(t->scsi, c->lun);
	return rc < 0 ? rc : 0;
}

STAG_EXPORT int stag_block_target_resized(struct stag_block_target *t, uint16_t lun)
{
	struct target_call *c = new_call(do_resized);

	if (!c)
		return ENOMEM;
	c->lun = lun;
	return -run_call(t, c, -1);
}

/* ---- listing ------------------------------------------------------------------------------------------- */

static int do_query(struct stag_block_target *t, struct target_call *c)
{
	*(struct stag_block_counters *)c->out = t->counters;
	return 0;
}

STAG_EXPORT int stag_block_target_query(struct stag_block_target *t,
					struct stag_block_counters *counters, size_t size)
{
	struct stag_block_counters all = {0};
	struct target_call *c = new_call(do_query);
	int rc;

	if (!c)
		return ENOMEM;
	c->out = &all;
	rc = run_call(t, c, -1);
	if (rc == 0)
		memcpy(counters, &all, size < sizeof(all) ? size : sizeof(all));
	return -rc;
}

struct ledger {
	struct stag_block_stag *list;
	size_t room, n;
};

static int read_ledger(struct stag_block_target *t, struct target_call *c)
{
	struct ledger *l = c->out;

	l->n = target_stags_query(t, l->list, l->room);
	return 0;
}

/* Reads all entries to memory of this call, then copies them cut, or padded with zeroes, to the caller's size. */
STAG_EXPORT int stag_block_target_stags(struct stag_block_target *t, struct stag_block_stag *list,
					size_t n, size_t size)
{
	struct ledger l = {.list = calloc(n ? n : 1, sizeof(*list)), .room = n};
	struct target_call *c = new_call(read_ledger);
	int rc = -ENOMEM;

	if (l.list && c) {
		c->out = &l;
		rc = run_call(t, c, -1);
	} else if (c) {
		free_call(c);
	}
	for (size_t i = 0; rc == 0 && i < n && i < l.n; i++) {
		uint8_t *to = (uint8_t *)list + i * size;

		memset(to, 0, size);
		memcpy(to, &l.list[i], size < sizeof(*list) ? size : sizeof(*list));
	}
	free(l.list);
	return rc == 0 ? (int)l.n : rc;
}

static struct target_session *next_session(struct stag_block_target *t, uint64_t id)
{
	struct target_session *best = NULL;

	list_for_each (it, &t->sessions.list) {
		struct target_session *s = list_entry(it, struct target_session, link);

		if (s->conn && s->id > id && (!best || s->id < best->id))
			best = s;
	}
	return best;
}

static void fill_tls(const struct stagdv_tls_info *from, struct stag_block_tls_info *to)
{
	to->encrypted = from->encrypted;
	to->kernel = from->kernel;
	memcpy(to->version, from->version, sizeof(to->version));
	memcpy(to->cipher, from->cipher, sizeof(to->cipher));
}

static int do_next_session(struct stag_block_target *t, struct target_call *c)
{
	struct stag_block_session *out = c->out;
	const struct target_session *s = next_session(t, out->id);
	uint64_t mask = out->comp_mask;

	if (!s)
		return block_fail(ENOENT, "no more sessions");
	/* The struct of an older program ends before tls. */
	memset(out, 0,
	       mask & STAG_BLOCK_SESSION_TLS ? sizeof(*out)
					     : offsetof(struct stag_block_session, tls));
	out->comp_mask = mask;
	out->id = s->id;
	out->transport = s->conn->ops->kind;
	out->encoding = s->conn->encoding;
	out->counters = s->counters;
	snprintf(out->initiator, sizeof(out->initiator), "%s", s->initiator);
	snprintf(out->address, sizeof(out->address), "%s", s->conn->peer);
	snprintf(out->user, sizeof(out->user), "%s", s->user ? s->user : "");
	if (mask & STAG_BLOCK_SESSION_TLS)
		fill_tls(&s->conn->tls, &out->tls);
	return 0;
}

STAG_EXPORT bool stag_block_target_next(struct stag_block_target *t,
					struct stag_block_session *session)
{
	struct target_call *c = new_call(do_next_session);

	if (!c)
		return false;
	c->out = session;
	return run_call(t, c, -1) == 0;
}
