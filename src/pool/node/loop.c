// SPDX-License-Identifier: BSD-2-Clause
/* loop.c - a node's thread: reports events to the role, and carries out the role's actions (role.h). */
#include "pool/node/node.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define BATCH	 64
#define ROUND_WC 512		/* completions per round, so that other work is not delayed */
#define SPIN	 (30 * 1000ull) /* ns without work before the thread sleeps */
/*
 * The same with many clients, one of which is at work: the adapter lets a thread that polls read the sockets of a few
 * connections at once, but of many only those that were active while it polled, and this takes it longer than SPIN.
 */
#define LONG_SPIN    (200 * 1000ull)
#define MANY_CLIENTS 8u
#define LISTEN                                                                                     \
	(100 *                                                                                     \
	 1000ull) /* ns between two checks of the descriptors while the thread does not sleep */

uint64_t node_read_clock(struct stag_pool_node *n)
{
	n->now = clock_boot_ns();
	return n->now;
}

/* ---- actions of the role --------------------------------------------------------------- */

static void do_answer(struct stag_pool_node *n, uint64_t number)
{
	int rc = memory_settle(n, number);

	if (rc == 0) {
		links_acknowledged(n, number);
		serve_answers(n, number);
		return;
	}
	node_log(n, LOG_LEVEL_ERR, "record %llu cannot be applied: %s", (unsigned long long)number,
		 strerror(-rc));
	ROLE_EVENT(n, role_refuse(&n->role, "its memory does not match its records"));
}

static void do_serve(struct stag_pool_node *n, const struct role_action *a)
{
	int rc = serve_start(n);

	if (rc == 0 && pool_superblock(&n->memory.region)->number != a->number)
		rc = -EPROTO;
	if (rc != 0) {
		node_log(n, LOG_LEVEL_ERR, "cannot serve: %s", strerror(-rc));
		ROLE_EVENT(n, role_refuse(&n->role, "its memory cannot be served"));
		return;
	}
	n->info.promotions++;
	node_log(n, LOG_LEVEL_INFO, "primary of epoch %llu, from record %llu",
		 (unsigned long long)a->epoch, (unsigned long long)a->number);
	takeover_report(n);
}

static void do_retire(struct stag_pool_node *n)
{
	if (n->serve.running && n->role.seat != (int)n->role.roll.primary)
		node_log(n, LOG_LEVEL_INFO, "no longer primary: that is %s, of epoch %llu",
			 n->role.roll.members[n->role.roll.primary].name,
			 (unsigned long long)n->role.epoch);
	n->standbys.timed.number = 0;
	serve_stop(n);
	links_end(n);
}

static void do_save(struct stag_pool_node *n, uint64_t epoch)
{
	n->disk.state.epoch = epoch;
	saver_save(&n->disk.saver, &n->disk.state);
}

static void do_action(struct stag_pool_node *n, const struct role_action *a)
{
	uint64_t number;

	switch (a->what) {
	case ROLE_READ:
		if (rolls_read(n->rolls, 0) != 0)
			ROLE_EVENT(n, role_read(&n->role, n->now, -ENOMEM, 0, NULL));
		break;
	case ROLE_SWAP:
		if (rolls_swap(n->rolls, a->id, a->revision, role_wanted(&n->role)) != 0)
			ROLE_EVENT(n, role_swapped(&n->role, n->now, a->id, ROLL_UNKNOWN, 0));
		break;
	case ROLE_FENCE:
		takeover_begin(n);
		node_log(n, LOG_LEVEL_INFO, "fenced the primary of epoch %llu",
			 (unsigned long long)n->role.epoch);
		follow_fence(n);
		number = n->memory.mapped ? pool_superblock(&n->memory.region)->number : 0;
		ROLE_EVENT(n, role_fenced(&n->role, node_read_clock(n), number));
		break;
	case ROLE_FOLLOW:
		follow_start(n, a->seat);
		break;
	case ROLE_SERVE:
		do_serve(n, a);
		break;
	case ROLE_RETIRE:
		do_retire(n);
		break;
	case ROLE_RESYNC: /* the welcome requests it from the standby */
		n->info.resyncs++;
		break;
	case ROLE_CUT:
		link_cut(n, a->seat);
		break;
	case ROLE_ANSWER:
		do_answer(n, a->number);
		break;
	case ROLE_HANDOVER:
		link_handover(n, a);
		break;
	case ROLE_SAVE:
		do_save(n, a->epoch);
		break;
	case ROLE_LEASE: /* carried out by pulse_act() */
	case ROLE_BEAT:
	case ROLE_ECHO:
		break;
	}
}

static bool next_action(struct stag_pool_node *n, struct role_action *a)
{
	HOLD_FOR_SCOPE(&n->pulse.lock);
	if (n->memory.mapped)
		n->pulse.settled = pool_superblock(&n->memory.region)->number;
	pulse_act(n);
	return role_next(&n->role, a);
}

void node_act(struct stag_pool_node *n)
{
	struct role_action a;

	while (next_action(n, &a))
		do_action(n, &a);
}

/* ---- events ------------------------------------------------------------------------------- */

static int poll_cq(struct stag_pool_node *n, struct ibv_cq *cq)
{
	struct ibv_wc wc[BATCH];
	int sum = 0, got;

	while (sum < ROUND_WC && (got = ibv_poll_cq(cq, BATCH, wc)) > 0) {
		node_read_clock(n);
		for (int i = 0; i < got; i++)
			node_conn_completed(&wc[i]);
		sum += got;
	}
	return sum;
}

static int poll_completions(struct stag_pool_node *n)
{
	int of_clients = poll_cq(n, n->adapter.clients.cq);
	int sum = of_clients + poll_cq(n, n->adapter.links.cq);

	if (of_clients)
		n->loop.asked_at = n->now;
	if (sum)
		n->loop.busy = true;
	return sum;
}

static void drain_channel(struct stag_pool_node *n)
{
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(n->adapter.channel, &cq, &context) == 0)
		ibv_ack_cq_events(cq, 1);
}

static void handle_roll(struct stag_pool_node *n, const struct roll_answer *a)
{
	struct role *r = &n->role;
	uint64_t now = node_read_clock(n);

	switch (a->result) {
	case ROLL_READ:
		ROLE_EVENT(n, role_read(r, now, 0, a->revision, &a->roll));
		break;
	case ROLL_CHANGED:
		ROLE_EVENT(n, role_changed(r, now, a->revision, &a->roll));
		break;
	case ROLL_WON:
	case ROLL_LOST:
		ROLE_EVENT(n, role_swapped(r, now, a->id, a->result, a->revision));
		break;
	case ROLL_UNKNOWN:
		if (a->id)
			ROLE_EVENT(n, role_swapped(r, now, a->id, ROLL_UNKNOWN, 0));
		else
			ROLE_EVENT(n, role_read(r, now, a->error, 0, NULL));
		break;
	}
	node_act(n);
}

/* Prepares admission, which needs the pool's identity: known once the roll was read. */
static void create_admission(struct stag_pool_node *n)
{
	struct admit *admit;

	if (n->admit || !n->role.revision)
		return;
	secrets_note(n);
	admit = admit_create(n->role.roll.uuid, &n->users);
	lock_acquire(&n->door.lock);
	n->admit = admit;
	lock_release(&n->door.lock);
	if (!admit)
		node_log(n, LOG_LEVEL_ERR, "cannot admit clients: no memory, or no random numbers");
}

static void handle_rolls(struct stag_pool_node *n)
{
	struct roll_answer a;

	while (rolls_next(n->rolls, &a)) {
		n->loop.busy = true;
		handle_roll(n, &a);
		create_admission(n);
		if (n->role.state == ROLE_REFUSED)
			node_report_started(
				n, n->conf.flags & STAG_POOL_CREATE ? EEXIST : ENOTRECOVERABLE);
		else if (n->role.state != ROLE_STARTING)
			node_report_started(n, 0);
		else if (a.result == ROLL_READ && a.revision == 0 &&
			 !(n->conf.flags & STAG_POOL_CREATE))
			node_report_started(n, ENOENT);
	}
}

static void advance_role(struct stag_pool_node *n)
{
	ROLE_EVENT(n, role_time(&n->role, node_read_clock(n)));
	node_act(n);
	lapses_report(n);
	if (n->role.why == n->why)
		return;
	n->why = n->role.why;
	if (n->why)
		node_log(n, LOG_LEVEL_WARN, "%s: %s", role_state_name(n->role.state), n->why);
}

static void handle_program(struct stag_pool_node *n)
{
	int rc;

	users_adopt(n);
	lock_acquire(&n->program.lock);
	if (n->program.switch_to) {
		rc = n->program.switch_to[0] ? roll_seat(&n->role.roll, n->program.switch_to)
					     : roll_next(&n->role.roll, (unsigned int)n->role.seat);
		n->program.switch_to = NULL;
		if (rc >= 0)
			ROLE_EVENT(n, rc = role_switch(&n->role, node_read_clock(n),
						       (unsigned int)rc));
		n->switchover.running = rc == 0;
		n->switchover.leaves = n->program.leaving;
		if (rc != 0)
			n->program.switched = rc;
		pthread_cond_broadcast(&n->program.told);
	}
	lock_release(&n->program.lock);
	node_act(n);
}

/* Reports the end of a switchover: another node is primary, or the handover was taken back. */
static void finish_switchover(struct stag_pool_node *n)
{
	serve_fail_switchovers(n);
	if (!n->switchover.running || n->role.state == ROLE_HANDING)
		return;
	n->switchover.running = false;
	node_show(n);
	lock_acquire(&n->program.lock);
	n->program.switched = n->role.state == ROLE_PRIMARY ? -EBUSY : 0;
	pthread_cond_broadcast(&n->program.told);
	lock_release(&n->program.lock);
}

/* ---- rounds --------------------------------------------------------------------------------- */

static void handle_descriptors(struct stag_pool_node *n, int timeout)
{
	struct epoll_event events[NODE_FDS];
	int got = epoll_wait(n->loop.epoll, events, NODE_FDS, timeout);
	uint64_t count;

	for (int i = 0; i < got; i++) {
		switch ((enum node_fd)events[i].data.u32) {
		case NODE_FD_TIMER:
			if (read(n->loop.timer, &count, sizeof(count)) < 0)
				continue;
			break;
		case NODE_FD_WAKE:
			if (read(n->loop.wake, &count, sizeof(count)) > 0)
				handle_program(n);
			break;
		case NODE_FD_COMPLETIONS:
			drain_channel(n);
			break;
		case NODE_FD_CONNECTIONS:
			listen_events(n);
			break;
		case NODE_FD_ROLLS:
			handle_rolls(n);
			break;
		case NODE_FDS:
			break;
		}
	}
	n->loop.heard_at = n->now;
}

static void sleep_a_while(struct stag_pool_node *n)
{
	if (ibv_req_notify_cq(n->adapter.links.cq, 0) == 0 &&
	    ibv_req_notify_cq(n->adapter.clients.cq, 0) == 0 && poll_completions(n) == 0)
		handle_descriptors(n, -1);
}

/* Polls for a moment before sleeping: the next request usually follows soon, and sleeping costs more. */
static void stay_awake(struct stag_pool_node *n)
{
	bool is_long = n->serve.num_clients > MANY_CLIENTS && n->now - n->loop.asked_at < LONG_SPIN;

	if (n->loop.busy)
		n->loop.busy_at = n->now;
	else if (n->now - n->loop.busy_at > SPIN && !is_long)
		sleep_a_while(n);
}

static void run_round(struct stag_pool_node *n)
{
	n->loop.busy = false;
	atomic_store_explicit(&n->pulse.round_at, n->now, memory_order_relaxed);
	poll_completions(n);
	if (n->now - n->loop.heard_at > LISTEN)
		handle_descriptors(n, 0);
	links_poll(n);
	follow_poll(n);
	watch_poll(n);
	advance_role(n);
	finish_switchover(n);
	door_update(n);
	door_accept(n);
	if (n->serve.running) {
		pulls_step(n);
		serve_requests(n);
		serve_watch(n);
		expire_clients(n);
		expire_values(n);
		links_send(n);
		links_release(n);
	}
	serve_flush(n);
	node_conns_free_ended(n);
}

static bool is_stopping(struct stag_pool_node *n)
{
	bool stopping;

	lock_acquire(&n->program.lock);
	stopping = n->program.stopping;
	lock_release(&n->program.lock);
	return stopping;
}

static void end_all(struct stag_pool_node *n)
{
	door_stop(n);
	pulse_stop(n);
	memory_lease(n, 0);
	serve_stop(n);
	links_end(n);
	follow_end(n);
	while (!list_empty(&n->conns))
		node_conn_leave(list_entry(n->conns.next, struct node_conn, link));
	node_conns_free_ended(n);
}

void *node_run_loop(void *arg)
{
	struct stag_pool_node *n = arg;

	node_act(n);
	while (!is_stopping(n)) {
		run_round(n);
		node_snapshot(n);
		stay_awake(n);
	}
	end_all(n);
	return NULL;
}
