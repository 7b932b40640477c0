// SPDX-License-Identifier: BSD-2-Clause
/* client.c - an open pool: operations are submitted, driven, and fetched when they are done. */
#include "pool/client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <openssl/rand.h>

#include "base/clock.h"
#include "base/export.h"
#include "base/nonblock.h"
#include "pool/admit/tls.h"

#define OPEN_MS 5000
#define STILL_NS                                                                                   \
	(100 *                                                                                     \
	 NS_PER_MS) /* a step that is late by this much: the process, or the machine, was stopped, */
#define SLOW_STEPS 8 /* unless this many steps were late before: then the machine is slow */
#define ABSENT	   2 /* failed calls in a row after which a node counts as absent */
#define RETRY_MS   30000
#define DETACH_NS  (250 * NS_PER_MS)
#define SLAB_OPS   (sizeof(((struct slab *)0)->ops) / sizeof(struct op))

/* ---- lists of operations -------------------------------------------------------------------- */

void client_op_push(struct client_op_list *list, struct op *op)
{
	op->next = NULL;
	if (list->last)
		list->last->next = op;
	else
		list->first = op;
	list->last = op;
	list->count++;
}

void client_op_push_front(struct client_op_list *list, struct op *op)
{
	op->next = list->first;
	list->first = op;
	if (!list->last)
		list->last = op;
	list->count++;
}

struct op *client_op_pop(struct client_op_list *list)
{
	struct op *op = list->first;

	if (!op)
		return NULL;
	list->first = op->next;
	if (!list->first)
		list->last = NULL;
	list->count--;
	return op;
}

/* ---- operations -------------------------------------------------------------------------------- */

static bool grow_table(struct stag_pool *p)
{
	struct op **ops = realloc(p->queue.ops, (p->queue.num_ops + SLAB_OPS) * sizeof(*ops));

	if (ops)
		p->queue.ops = ops;
	return ops;
}

static struct slab *make_slab(struct stag_pool *p)
{
	struct slab *slab = grow_table(p) ? calloc(1, sizeof(*slab)) : NULL;

	if (!slab)
		return NULL;
	slab->small = aligned_alloc(POOL_PAGE, SLAB_OPS * CLIENT_SMALL);
	if (slab->small && (!p->device.pd || memory_register_slab(p, slab) == 0))
		return slab;
	free(slab->small);
	free(slab);
	return NULL;
}

static bool add_slab(struct stag_pool *p)
{
	struct slab *slab = make_slab(p);

	if (!slab)
		return false;
	slab->next = p->queue.slabs;
	p->queue.slabs = slab;
	for (uint32_t i = 0; i < SLAB_OPS; i++) {
		struct op *op = &slab->ops[i];

		op->small = slab->small + (size_t)i * CLIENT_SMALL;
		op->index = p->queue.num_ops;
		p->queue.ops[p->queue.num_ops++] = op;
		client_op_push(&p->queue.idle, op);
	}
	return true;
}

struct op *client_op_get(struct stag_pool *p)
{
	struct op *op;

	if (!p->queue.idle.first && !add_slab(p)) {
		pool_fail(ENOMEM, "no memory for one more operation");
		return NULL;
	}
	op = client_op_pop(&p->queue.idle);
	op->outcome = (struct stag_pool_done){0};
	op->whose = OP_FOR_POLL;
	op->sent = op->begun = false;
	op->name_length = 0;
	op->sequence = op->taken_back = 0;
	return op;
}

void client_op_put(struct stag_pool *p, struct op *op)
{
	free(op->answer);
	op->answer = NULL;
	op->serial++;
	op->stage = OP_IDLE;
	client_op_push_front(&p->queue.idle,
			     op); /* reused first: its memory is in the processor's cache */
}

/* Returns the flags that the program may set, of those that the operation allows on the wire. */
static uint32_t allowed_flags(uint8_t op)
{
	uint8_t flags = pool_operations[op].flags;

	return (flags & POOL_COMPARE ? STAG_POOL_COMPARE : 0u) |
	       (flags & POOL_EXCLUSIVE ? STAG_POOL_EXCLUSIVE : 0u);
}

static bool is_of_program(uint32_t op)
{
	return op != STAG_POOL_IMPLICIT && op < POOL_OP_ATTACH && pool_operation((uint8_t)op);
}

static int set_name(struct op *op, const char *name)
{
	size_t length = name ? strnlen(name, STAG_POOL_NAME_MAX + 1) : 0;

	if (length == 0 || length > STAG_POOL_NAME_MAX)
		return pool_fail(EINVAL, "a name has 1 to %d bytes", STAG_POOL_NAME_MAX);
	memcpy(op->name, name, length + 1);
	op->name_length = (uint16_t)length;
	return 0;
}

int client_op_set(struct op *op, const struct stag_pool_io *io)
{
	bool is_implicit = io->op == STAG_POOL_IMPLICIT;
	uint32_t flags = is_implicit ? io->flags & ~STAG_POOL_VALUE : io->flags;
	uint32_t wanted =
		is_implicit ? pool_op_implied((io->flags & STAG_POOL_VALUE) || io->length != 0,
					      io->ptr.generation != 0)
			    : io->op;
	uint8_t what = is_of_program(wanted) ? (uint8_t)wanted : STAG_POOL_IMPLICIT;
	bool reads = pool_op_reads(what), writes = pool_op_takes(what, POOL_TAKES_VALUE);

	if (io->comp_mask != 0 || what == STAG_POOL_IMPLICIT || (flags & ~allowed_flags(what)) != 0)
		return pool_fail(EINVAL, "invalid operation %u with flags %x", io->op, io->flags);
	if ((reads && io->length != 0 && !io->to) || (writes && io->length != 0 && !io->from))
		return pool_fail(EINVAL, "%s of %zu bytes: no buffer given", pool_op_name(what),
				 io->length);
	if (writes && io->length > STAG_POOL_VALUE_MAX)
		return pool_fail(EINVAL, "a value has at most %u bytes", STAG_POOL_VALUE_MAX);
	op->io = *io;
	op->io.op = what;
	op->io.flags = flags;
	op->wire_op = (uint8_t)io->op;
	op->outcome.user = io->user;
	op->outcome.op = what;
	if (!reads && !writes)
		op->io.length = 0;
	if (reads && io->length > STAG_POOL_VALUE_MAX)
		op->io.length = STAG_POOL_VALUE_MAX;
	if (pool_op_takes(what, POOL_TAKES_NAME))
		return set_name(op, io->name);
	return 0;
}

void client_op_start(struct stag_pool *p, struct op *op)
{
	if (pool_op_reads(op->wire_op)) {
		read_start(p, op);
		return;
	}
	op->stage = OP_TO_ASK;
	client_op_push(&p->queue.to_ask, op);
}

void client_op_finish(struct stag_pool *p, struct op *op, int error)
{
	memory_release(p, op);
	p->counts.changes += error == 0 && ask_is_change(op);
	ask_release(p, op);
	op->outcome.error = error;
	op->stage = OP_DONE;
	switch (op->whose) {
	case OP_FOR_POLL:
		client_op_push(&p->queue.done, op);
		break;
	case OP_FOR_CALL:
		break;
	case OP_FOR_US:
		if (op->wire_op == POOL_OP_FRESH)
			read_proven(p, op, error);
		else if (error == 0)
			seek_status(p, op->answer, (uint32_t)op->outcome.length);
		p->nodes.has_queried = true;
		client_op_put(p, op);
		break;
	}
}

/* ---- driving -------------------------------------------------------------------------------------- */

static void fail_list(struct stag_pool *p, struct client_op_list *list)
{
	struct op *op;

	while ((op = client_op_pop(list)))
		client_op_finish(p, op, ETIMEDOUT);
}

static void note_earliest(struct stag_pool *p, const struct op *op)
{
	if (op->taken_back != 0 &&
	    (p->nodes.taken_back == 0 || op->taken_back < p->nodes.taken_back))
		p->nodes.taken_back = op->taken_back;
}

static void note_requeued(struct stag_pool *p, const struct client_op_list *list, uint64_t now)
{
	for (struct op *op = list->first; op; op = op->next) {
		if (op->taken_back == 0)
			op->taken_back = now;
		note_earliest(p, op);
	}
}

void client_op_requeue(struct stag_pool *p, uint64_t now)
{
	p->nodes.taken_back = 0;
	note_requeued(p, &p->queue.to_read, now);
	note_requeued(p, &p->queue.to_ask, now);
}

static void fail_overdue(struct stag_pool *p, struct client_op_list *list, uint64_t now)
{
	struct client_op_list all = *list;
	struct op *op;

	*list = (struct client_op_list){0};
	while ((op = client_op_pop(&all))) {
		if (op->taken_back != 0 && now - op->taken_back >= p->conf.retry_ns) {
			client_op_finish(p, op, ETIMEDOUT);
			continue;
		}
		client_op_push(list, op);
		note_earliest(p, op);
	}
}

static bool waits_too_long(const struct stag_pool *p, uint64_t since, uint64_t now)
{
	return since != 0 && p->conf.retry_ns != 0 && now - since >= p->conf.retry_ns;
}

/*
 * Fails waiting operations, and refuses new ones, when no primary was found for retry_ms, until one is found. If
 * nodes admit us, and disconnect us before they have answered, there always seems to be a primary: so each
 * operation also has its own limit while no link is up.
 */
static void enforce_retry_limit(struct stag_pool *p, uint64_t now)
{
	if (p->link.stage != LINK_UP && waits_too_long(p, p->nodes.taken_back, now)) {
		p->nodes.taken_back = 0;
		fail_overdue(p, &p->queue.to_read, now);
		fail_overdue(p, &p->queue.to_ask, now);
	}
	if (!waits_too_long(p, p->nodes.sought, now))
		return;
	p->nodes.lost = true;
	fail_list(p, &p->queue.to_read);
	fail_list(p, &p->queue.to_ask);
}

/* Fetches the list of members from time to time: only known nodes can be called when the primary is lost. */
static void refresh_members(struct stag_pool *p, uint64_t now)
{
	struct op *op;

	if (p->link.stage != LINK_UP ||
	    (p->link.refreshed != 0 && now - p->link.refreshed < REFRESH_NS))
		return;
	p->link.refreshed = now;
	op = client_op_get(p);
	if (!op)
		return;
	op->io = (struct stag_pool_io){.length = sizeof(struct node_status)};
	op->wire_op = POOL_OP_NODES;
	op->whose = OP_FOR_US;
	client_op_start(p, op);
}

static bool is_busy(const struct stag_pool *p)
{
	return p->queue.asking != 0 || p->queue.reading != 0 || p->link.stage != LINK_UP;
}

void client_step(struct stag_pool *p)
{
	uint64_t now = clock_ns();

	while (link_poll(p, now))
		continue;
	/* Polling the connection manager is a system call: do it only when there is a reason. */
	if (p->waiting.look || p->nodes.calls != 0 || p->link.stage != LINK_UP ||
	    (is_busy(p) && now - p->link.heard > p->link.quiet)) {
		p->waiting.look = false;
		seek_step(p, now);
	}
	if (!is_busy(p))
		p->link.heard = now;
	enforce_retry_limit(p, now);
	if (p->queue.to_read.first || p->queue.to_ask.first || p->link.refreshed == 0)
		refresh_members(p, now);
	read_pump(p);
	read_prove(p);
	ask_pump(p);
}

/* Returns when a wait that began at `since` ends, if that is before `next`. */
static uint64_t deadline_of(const struct stag_pool *p, uint64_t since, uint64_t next)
{
	return since != 0 && p->conf.retry_ns != 0 && since + p->conf.retry_ns < next
		       ? since + p->conf.retry_ns
		       : next;
}

static uint64_t next_deadline(const struct stag_pool *p)
{
	uint64_t next = seek_next(p);

	if (!p->nodes.lost)
		next = deadline_of(p, p->nodes.sought, next);
	return p->link.stage == LINK_UP ? next : deadline_of(p, p->nodes.taken_back, next);
}

/* Returns for how long the process was stopped, if it should have continued at `since`; 0: it was not. */
static uint64_t stopped_for(uint64_t since)
{
	uint64_t now = clock_ns();

	return now > since && now - since > STILL_NS ? now - since : 0;
}

uint64_t client_sleep(struct stag_pool *p, uint64_t until)
{
	struct pollfd fds[] = {
		{.fd = p->nodes.events->fd, .events = POLLIN},
		{.fd = p->device.channel ? p->device.channel->fd : -1, .events = POLLIN}};
	uint64_t now = clock_ns(), next = next_deadline(p), left;
	struct timespec ts;

	if (!link_arm(p))
		return 0;
	next = next < until ? next : until;
	left = next > now ? next - now : 0;
	ts = (struct timespec){.tv_sec = (time_t)(left / NS_PER_S),
			       .tv_nsec = (long)(left % NS_PER_S)};
	ppoll(fds, 2, next == UINT64_MAX ? NULL : &ts, NULL);
	p->waiting.look = true;
	return stopped_for(next);
}

/* ---- waiting elsewhere -------------------------------------------------------------------------------- */

int client_watch(struct stag_pool *p, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	return p->waiting.epoll < 0 || epoll_ctl(p->waiting.epoll, EPOLL_CTL_ADD, fd, &event) == 0
		       ? 0
		       : -errno;
}

/* Makes the descriptor readable as long as there are outcomes to fetch. */
static void ring_bell(struct stag_pool *p)
{
	uint64_t one = 1;
	bool should = p->queue.done.first != NULL;

	if (p->waiting.epoll < 0 || p->waiting.rung == should)
		return;
	if ((should ? write(p->waiting.bell, &one, sizeof(one))
		    : read(p->waiting.bell, &one, sizeof(one))) == sizeof(one))
		p->waiting.rung = should;
}

static void set_timer(struct stag_pool *p)
{
	uint64_t next = next_deadline(p);
	struct itimerspec at = {0};

	if (next == p->waiting.timer_at && next > clock_ns())
		return;
	p->waiting.timer_at = next;
	if (next != UINT64_MAX)
		at.it_value = (struct timespec){.tv_sec = (time_t)(next / NS_PER_S),
						.tv_nsec = (long)(next % NS_PER_S) + 1};
	timerfd_settime(p->waiting.timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static int make_fds(struct stag_pool *p)
{
	int rc;

	p->waiting.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	p->waiting.bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	p->waiting.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (p->waiting.timer < 0 || p->waiting.bell < 0 || p->waiting.epoll < 0)
		return -errno;
	rc = client_watch(p, p->waiting.timer);
	if (rc == 0)
		rc = client_watch(p, p->waiting.bell);
	if (rc == 0)
		rc = client_watch(p, p->nodes.events->fd);
	return rc == 0 && p->device.channel ? client_watch(p, p->device.channel->fd) : rc;
}

static void close_fds(struct stag_pool *p)
{
	int *fds[] = {&p->waiting.epoll, &p->waiting.timer, &p->waiting.bell};

	for (int i = 0; i < 3; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

/* ---- opening ---------------------------------------------------------------------------------------------- */

void client_new_id(struct stag_pool *p)
{
	RAND_bytes((unsigned char *)p->self.id, sizeof(p->self.id));
	p->self.enrolled = false;
	p->self.next_sequence = p->self.lowest = 1;
	memset(p->self.window, 0, sizeof(p->self.window));
}

static int set_attr(struct stag_pool *p, const struct stag_pool_attr *a)
{
	const struct pool_tls_files files = {a->tls_cert, a->tls_key, a->tls_ca};
	const char *user = a->user ? a->user : "client";

	if (a->comp_mask != 0 || a->depth > CLIENT_MAX_DEPTH)
		return pool_fail(EINVAL, "invalid attributes: comp_mask or depth");
	if (!name_is_valid(user))
		return pool_fail(EINVAL, "invalid user name '%s'", user);
	strcpy(p->conf.user, user);
	p->conf.secret = strdup(a->secret ? a->secret : "");
	p->conf.depth = a->depth ? a->depth : CLIENT_DEPTH;
	p->conf.requests = p->conf.depth < NODE_DEPTH ? p->conf.depth : NODE_DEPTH;
	if (a->retry_ms >= 0)
		p->conf.retry_ns = (uint64_t)(a->retry_ms ? a->retry_ms : RETRY_MS) * NS_PER_MS;
	if (!p->conf.secret)
		return pool_fail(ENOMEM, "no memory");
	return pool_tls_open(&p->conf.tls, a->tls, &files, ADMIT_CLIENT, p->conf.user,
			     p->conf.secret);
}

static int make_channel(struct stag_pool *p)
{
	p->nodes.events = rdma_create_event_channel();
	if (!p->nodes.events)
		return pool_fail(errno, "no RDMA connection manager: %s", strerror(errno));
	if (set_nonblocking(p->nodes.events->fd) != 0)
		return pool_fail(errno, "%s", strerror(errno));
	return 0;
}

static int make_messages(struct stag_pool *p)
{
	size_t size = (size_t)NODE_DEPTH * NODE_MESSAGE;

	p->device.receives = aligned_alloc(POOL_PAGE, size);
	p->device.messages_at = aligned_alloc(POOL_PAGE, size);
	p->device.messages = calloc(NODE_DEPTH, sizeof(*p->device.messages));
	if (!p->device.receives || !p->device.messages_at || !p->device.messages)
		return pool_fail(ENOMEM, "no memory");
	for (uint32_t i = 0; i < NODE_DEPTH; i++) {
		p->device.messages[i].index = (uint16_t)i;
		p->device.messages[i].bytes = p->device.messages_at + (size_t)i * NODE_MESSAGE;
	}
	ask_lost(p);
	return 0;
}

/* Returns whether no node has listened at any of the addresses for a while. */
static bool are_all_absent(const struct stag_pool *p)
{
	for (unsigned int i = 0; i < p->nodes.num_peers; i++)
		if (p->nodes.peers[i].absent < ABSENT)
			return false;
	return true;
}

/*
 * Waits until the primary has answered, also with the list of members, or a node refuses us. If the program sets
 * no timeout, gives up when all nodes are absent. Time in which this process was stopped does not count, because
 * no answer could have been seen.
 */
static int find_primary(struct stag_pool *p, int timeout_ms)
{
	uint64_t deadline =
		clock_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : OPEN_MS) * NS_PER_MS;
	unsigned int slow = 0;

	seek_start(p, clock_ns());
	for (;;) {
		uint64_t began = clock_ns(), still, soon;

		client_step(p);
		if (p->link.stage == LINK_UP && p->nodes.has_queried)
			return 0;
		/* A wrong address among several is no reason to give up. */
		if (p->nodes.refused == -EACCES ||
		    (p->nodes.refused == -EPROTO && p->nodes.num_peers == 1))
			return p->nodes.refused;
		still = stopped_for(began);
		if (still && slow++ < SLOW_STEPS)
			deadline += still;
		if (clock_ns() > deadline || (timeout_ms <= 0 && are_all_absent(p)))
			break;
		soon = clock_ns() + STILL_NS;
		deadline += client_sleep(p, soon < deadline ? soon : deadline);
	}
	if (p->nodes.refused != 0)
		return p->nodes.refused;
	for (unsigned int i = 0; i < p->nodes.num_peers; i++)
		if (p->nodes.peers[i].absent == 0)
			return pool_fail(ETIMEDOUT, "no node is primary, or it does not respond");
	return pool_fail(ECONNREFUSED, "%s: no node listens there", p->nodes.peers[0].address);
}

static int open_pool(struct stag_pool *p, const char *where, const struct stag_pool_attr *attr)
{
	int rc = set_attr(p, attr);

	p->waiting.epoll = p->waiting.timer = p->waiting.bell = -1;
	if (rc == 0)
		rc = where_add_list(p, where);
	if (rc == 0)
		rc = make_channel(p);
	if (rc == 0)
		rc = make_messages(p);
	if (rc != 0)
		return rc;
	p->conf.dv = dv_find();
	client_new_id(p);
	return find_primary(p, attr->timeout_ms);
}

/* Tells the pool that it need not remember the outcomes of our requests any more. */
static void detach(struct stag_pool *p)
{
	uint64_t deadline = clock_ns() + DETACH_NS;
	struct op *op;

	if (p->link.stage != LINK_UP || !p->self.enrolled ||
	    !(p->link.facts.rights & STAG_POOL_RIGHT_WRITE))
		return;
	op = client_op_get(p);
	if (!op)
		return;
	op->io = (struct stag_pool_io){0};
	op->wire_op = POOL_OP_DETACH;
	op->whose = OP_FOR_CALL;
	op->stage = OP_TO_ASK;
	client_op_push_front(&p->queue.to_ask, op);
	while (op->stage != OP_DONE && p->link.stage == LINK_UP && clock_ns() < deadline) {
		client_step(p);
		if (op->stage != OP_DONE)
			client_sleep(p, deadline);
	}
}

static void close_pool(struct stag_pool *p)
{
	link_close(p);
	for (uint32_t i = 0; i < p->queue.num_ops; i++) {
		memory_release(p, p->queue.ops[i]);
		free(p->queue.ops[i]->answer);
	}
	seek_stop(p);
	link_free_device(p);
	close_fds(p);
	if (p->nodes.events)
		rdma_destroy_event_channel(p->nodes.events);
	memory_free_all(p);
	free(p->names.page);
	free(p->events.page);
	free(p->queue.ops);
	free(p->device.messages);
	free(p->device.messages_at);
	free(p->device.receives);
	if (p->conf.secret)
		explicit_bzero(p->conf.secret, strlen(p->conf.secret));
	free(p->conf.secret);
	pool_tls_close(&p->conf.tls);
	free(p);
}

STAG_EXPORT struct stag_pool *stag_pool_open(const char *where, const struct stag_pool_attr *attr)
{
	static const struct stag_pool_attr plain;
	struct stag_pool *p = calloc(1, sizeof(*p));
	int rc;

	if (!p) {
		errno = ENOMEM;
		return NULL;
	}
	rc = open_pool(p, where, attr ? attr : &plain);
	if (rc == 0)
		return p;
	close_pool(p);
	errno = -rc;
	return NULL;
}

STAG_EXPORT void stag_pool_close(struct stag_pool *p)
{
	if (!p)
		return;
	detach(p);
	close_pool(p);
}

/* ---- the calls ------------------------------------------------------------------------------------------ */

STAG_EXPORT int stag_pool_lend(struct stag_pool *p, void *addr, size_t length)
{
	if (!addr || length == 0)
		return -pool_fail(EINVAL, "cannot lend an empty buffer");
	return -memory_lend(p, addr, length);
}

STAG_EXPORT int stag_pool_unlend(struct stag_pool *p, void *addr)
{
	return -memory_unlend(p, addr);
}

/* Makes all of the operations, or none. */
static int make_ops(struct stag_pool *p, const struct stag_pool_io *io, int n,
		    struct client_op_list *list)
{
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		struct op *op = client_op_get(p);

		if (!op)
			return -ENOMEM;
		rc = client_op_set(op, &io[i]);
		client_op_push(list, op);
	}
	return rc;
}

STAG_EXPORT int stag_pool_submit(struct stag_pool *p, const struct stag_pool_io *io, int n)
{
	struct client_op_list list = {0};
	struct op *op;
	int rc = p->nodes.lost ? pool_fail(ENOTCONN, "no primary found for retry_ms")
			       : make_ops(p, io, n, &list);

	while ((op = client_op_pop(&list))) {
		if (rc == 0)
			client_op_start(p, op);
		else
			client_op_put(p, op);
	}
	if (rc == 0 && !is_busy(p))
		p->link.heard = clock_ns();
	read_pump(p);
	ask_pump(p);
	ring_bell(p);
	return -rc;
}

static int deliver_outcomes(struct stag_pool *p, struct stag_pool_done *done, int n)
{
	struct op *op;
	int got = 0;

	while (got < n && (op = client_op_pop(&p->queue.done))) {
		done[got++] = op->outcome;
		client_op_put(p, op);
	}
	return got;
}

STAG_EXPORT int stag_pool_poll(struct stag_pool *p, struct stag_pool_done *done, int n)
{
	int got;

	client_step(p);
	got = deliver_outcomes(p, done, n);
	if (p->waiting.epoll < 0)
		return got;
	while (got == 0 && n > 0 && (p->waiting.look = true) && !link_arm(p)) {
		client_step(p);
		got = deliver_outcomes(p, done, n);
	}
	if (got == 0)
		set_timer(p);
	ring_bell(p);
	return got;
}

STAG_EXPORT int stag_pool_wait(struct stag_pool *p, int timeout_ms)
{
	uint64_t now = clock_ns(), spin = now + SPIN_NS;
	uint64_t deadline = timeout_ms < 0 ? UINT64_MAX : now + (uint64_t)timeout_ms * NS_PER_MS;

	for (;;) {
		client_step(p);
		ring_bell(p);
		if (p->queue.done.first)
			return 0;
		now = clock_ns();
		if (now >= deadline)
			return -pool_fail(ETIMEDOUT, "timed out: no operation is done");
		if (now >= spin)
			client_sleep(p, deadline);
	}
}

STAG_EXPORT int stag_pool_fd(struct stag_pool *p)
{
	int rc = p->waiting.epoll >= 0 ? 0 : make_fds(p);

	if (rc == 0) {
		ring_bell(p);
		return p->waiting.epoll;
	}
	close_fds(p);
	errno = -pool_fail(-rc, "no descriptor: %s", strerror(-rc));
	return -1;
}
