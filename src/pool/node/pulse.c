// SPDX-License-Identifier: BSD-2-Clause
/*
 * pulse.c - heartbeats, echoes and leases, on a thread of their own, which nothing that a peer does can delay.
 *
 * The pulse makes no decision: it sends heartbeats that are due, echoes those of our primary, and extends our lease by
 * the echoes of our standbys (role.h, "events of the pulse"). Whom to beat for, when to promote, whom to drop, is
 * decided by the node's thread. So that thread may be busy with clients, strangers or a copy for longer than a
 * lease, and nobody fails over. If it does nothing for STANDSTILL, the pulse falls silent, too: a node that hangs is
 * not to be kept alive by its pulse.
 *
 * One lock protects the role, and what the pulse may touch of the links: pulse.standbys and pulse.primary. A link is
 * withdrawn from there before its queue pair or its memory ends. Under the lock nothing waits: the role computes, and
 * heartbeats are posted inline. Actions of the role that are the pulse's are carried out by either thread, under the lock.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

#define STANDSTILL (2 * NS_PER_S)
/*
 * Each completion wakes the node's thread, so only every so many ask for one: it frees the places in the send queue
 * of those before it, too. Only those count that were posted, so the queue cannot be full of others alone.
 */
#define BEATS_A_COMPLETION 16

/* ---- actions ------------------------------------------------------------------------------ */

/*
 * Writes to the memory of a peer. A failure is not reported: the connection's other work requests fail, too, and
 * the node's thread ends it.
 */
static int write_inline(struct node_conn *c, const void *bytes, uint32_t length, uint64_t to,
			uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)bytes, length, 0};
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)&c->lost,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_INLINE,
				 .wr.rdma = {to, rkey}},
			   *bad;
	int rc;

	assert(lock_held(&c->node->pulse.lock));
	if ((c->beats + 1) % BEATS_A_COMPLETION == 0)
		wr.send_flags |= IBV_SEND_SIGNALED;
	rc = -ibv_post_send(c->id->qp, &wr, &bad);
	if (rc == 0)
		c->beats++;
	return rc;
}

static void do_beat(struct stag_pool_node *n, const struct role_action *a)
{
	struct standby *l = n->pulse.standbys[a->seat];
	struct link_beat beat = {.sent = a->time,
				 .epoch = a->epoch,
				 .revision = a->revision,
				 .settled = n->pulse.settled};

	if (!l)
		return;
	beat.check = link_check(&beat, sizeof(beat) / 8);
	write_inline(&l->conn, &beat, sizeof(beat), l->hello.beat, l->hello.beat_rkey);
}

static int send_echo(struct follow *f)
{
	f->echo.check = link_check(&f->echo, sizeof(f->echo) / 8);
	return write_inline(&f->conn, &f->echo, sizeof(f->echo), f->welcome.echo,
			    f->welcome.echo_rkey);
}

static void do_echo(struct stag_pool_node *n, const struct role_action *a)
{
	struct follow *f = n->pulse.primary;

	if (!f || (f->echo.sent == a->time && f->echo.epoch == a->epoch))
		return;
	f->echo.sent = a->time;
	f->echo.epoch = a->epoch;
	send_echo(f);
}

static void do_lease(struct stag_pool_node *n, uint64_t until)
{
	if (n->pulse.lease != 0 && n->pulse.lease < clock_boot_ns() && until != 0)
		atomic_fetch_add_explicit(&n->pulse.lapses, 1, memory_order_relaxed);
	n->pulse.lease = until;
	memory_lease(n, until);
}

void pulse_act(struct stag_pool_node *n)
{
	struct role_action a;

	assert(lock_held(&n->pulse.lock));
	while (role_next_pulse(&n->role, &a)) {
		if (a.what == ROLE_BEAT)
			do_beat(n, &a);
		else if (a.what == ROLE_ECHO)
			do_echo(n, &a);
		else
			do_lease(n, a.time);
	}
}

/* ---- what the pulse may touch --------------------------------------------------------------- */

void pulse_set_standby(struct stag_pool_node *n, unsigned int seat, struct standby *l)
{
	HOLD_FOR_SCOPE(&n->pulse.lock);
	n->pulse.standbys[seat] = l;
}

void pulse_set_primary(struct stag_pool_node *n, struct follow *f)
{
	HOLD_FOR_SCOPE(&n->pulse.lock);
	n->pulse.primary = f;
}

void pulse_forget_primary(struct stag_pool_node *n, const struct follow *f)
{
	HOLD_FOR_SCOPE(&n->pulse.lock);
	if (n->pulse.primary == f)
		n->pulse.primary = NULL;
}

int pulse_report_applied(struct follow *f, uint64_t applied, uint64_t number)
{
	HOLD_FOR_SCOPE(&f->conn.node->pulse.lock);
	f->echo.applied = applied;
	f->echo.number = number;
	return send_echo(f);
}

/* ---- the thread ------------------------------------------------------------------------------- */

/* Reads the echo first; the clock does not matter (role.h). */
static void hear_standby(struct stag_pool_node *n, unsigned int seat)
{
	struct standby *l = n->pulse.standbys[seat];
	struct link_echo echo;

	if (!l)
		return;
	memcpy(&echo, &l->own->echo, sizeof(echo));
	atomic_thread_fence(memory_order_acquire);
	if (echo.check == link_check(&echo, sizeof(echo) / 8))
		role_pulse_echoed(&n->role, clock_boot_ns(), seat, echo.epoch, echo.sent);
}

/* Reads the heartbeat first, the clock then (role.h). */
static void hear_primary(struct stag_pool_node *n)
{
	struct follow *f = n->pulse.primary;
	struct link_beat beat;

	if (!f)
		return;
	memcpy(&beat, f->beat, sizeof(beat));
	atomic_thread_fence(memory_order_acquire);
	if (beat.sent == f->echo.sent || beat.check != link_check(&beat, sizeof(beat) / 8))
		return;
	role_pulse_heard(&n->role, clock_boot_ns(), f->seat, beat.epoch, beat.sent);
}

static void beat_once(struct stag_pool_node *n)
{
	HOLD_FOR_SCOPE(&n->pulse.lock);
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		hear_standby(n, s);
	hear_primary(n);
	role_pulse(&n->role, clock_boot_ns());
	pulse_act(n);
}

/* Returns for how long the node's thread has been in its present round. */
static uint64_t round_length(struct stag_pool_node *n)
{
	uint64_t round = atomic_load_explicit(&n->pulse.round_at, memory_order_relaxed);
	uint64_t now = clock_boot_ns();

	return now > round ? now - round : 0;
}

static void *run_pulse(void *arg)
{
	struct stag_pool_node *n = arg;
	uint64_t half = n->role.times.lease.beat / 2;
	struct timespec rest = {.tv_sec = (time_t)(half / NS_PER_S),
				.tv_nsec = (long)(half % NS_PER_S)};

	while (!atomic_load(&n->pulse.over)) {
		uint64_t length = round_length(n);

		/* Reads what has arrived, and takes nothing. In a short round the node's thread does it. */
		if (length > half)
			ibv_poll_cq(n->adapter.links.cq, 0, NULL);
		if (length <= STANDSTILL)
			beat_once(n);
		nanosleep(&rest, NULL);
	}
	return NULL;
}

int pulse_start(struct stag_pool_node *n)
{
	sigset_t all, old;
	int rc;

	atomic_store(&n->pulse.round_at, clock_boot_ns());
	sigfillset(&all); /* the program's signals are for its own threads */
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = -pthread_create(&n->pulse.thread, NULL, run_pulse, n);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	n->pulse.running = rc == 0;
	if (rc == 0)
		pthread_setname_np(n->pulse.thread, "stag-pulse");
	return rc;
}

void pulse_stop(struct stag_pool_node *n)
{
	if (!n->pulse.running)
		return;
	atomic_store(&n->pulse.over, true);
	pthread_join(n->pulse.thread, NULL);
	n->pulse.running = false;
}
