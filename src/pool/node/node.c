// SPDX-License-Identifier: BSD-2-Clause
/* node.c - a node of a pool: start, query, switchover, stop (stag/pool.h). */
#include "pool/node/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <netinet/in.h>

#include <openssl/rand.h>

#include "base/clock.h"
#include "base/export.h"
#include "base/log.h"
#include "base/nonblock.h"
#include "pool/admit/fail.h"

#define DEFAULT_LOG   (16ull << 20)
#define MIN_LOG	      (4ull << 20)
#define FIRST_CQ      4096
#define MOST_CQ	      65536
#define LOOK	      NS_PER_MS /* longest interval at which the thread checks memory that peers write to */
#define STARTS_WITHIN 10 /* s */
#define ENDS_WITHIN   10 /* s: service managers do not wait much longer */

/* ---- attributes ----------------------------------------------------------------------------- */

static uint64_t power_of_two(uint64_t n)
{
	uint64_t p = MIN_LOG;

	while (p < n)
		p *= 2;
	return p;
}

/* Records why the start fails, unless a reason is known already. */
static int set_fault(struct stag_pool_node *n, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int set_fault(struct stag_pool_node *n, int rc, const char *fmt, ...)
{
	va_list args;

	if (rc == 0 || n->fault[0])
		return rc;
	va_start(args, fmt);
	vsnprintf(n->fault, sizeof(n->fault), fmt, args);
	va_end(args);
	return rc;
}

static int copy_name(struct stag_pool_node *n, char to[ROLL_NAME_LEN], const char *name,
		     const char *what)
{
	if (!name_is_valid(name))
		return set_fault(n, -EINVAL,
				 "'%s' is no name of a %s: letters, digits and . - _, 63 at most",
				 name, what);
	strncpy(to, name, ROLL_NAME_LEN - 1);
	return 0;
}

static int copy_attr(struct stag_pool_node *n, const struct stag_pool_node_attr *attr)
{
	char host[ROLL_NAME_LEN] = "";
	int rc;

	if (!attr->roll || strlen(attr->roll) >= sizeof(n->conf.where) || !attr->state)
		return set_fault(n, -EINVAL, "a node needs a roll, and a state directory");
	rc = -stag_pool_node_check(attr);
	if (rc != 0)
		return set_fault(n, rc, "%s", stag_pool_error());
	snprintf(n->conf.where, sizeof(n->conf.where), "%s", attr->roll);
	gethostname(host, sizeof(host) - 1);
	rc = copy_name(n, n->conf.pool, attr->pool ? attr->pool : "pool", "pool");
	if (rc == 0)
		rc = copy_name(n, n->conf.name, attr->node ? attr->node : host, "node");
	if (rc == 0) {
		rc = users_make(&n->users, attr->secret, attr->also, attr->users, attr->num_users);
		set_fault(n, rc, "%s", stag_pool_error());
	}
	memcpy(n->conf.us.name, n->conf.name, sizeof(n->conf.name));
	n->conf.log = attr->log;
	n->conf.log_arg = attr->log_arg;
	n->conf.flags = attr->flags;
	n->conf.tls = attr->tls;
	n->conf.expire_s = attr->expire_s ? attr->expire_s : 3600;
	n->conf.client_timeout =
		(attr->client_timeout_ms ? attr->client_timeout_ms : 30000) * NS_PER_MS;
	n->conf.user_clients = attr->user_clients ? attr->user_clients : 16384;
	n->conf.retry = (attr->retry_s ? attr->retry_s : 60) * NS_PER_S;
	n->conf.log_size = power_of_two(attr->log_bytes ? attr->log_bytes : DEFAULT_LOG);
	n->conf.format =
		(struct pool_format){.size = (attr->size + POOL_PAGE - 1) & ~(POOL_PAGE - 1ull),
				     .address = attr->memory ? attr->memory : POOL_DEFAULT_ADDRESS,
				     .max_clients = attr->clients};
	return rc;
}

/* Sets the address that other nodes use: as configured, or where the node listens, with the port. */
static int set_address(struct stag_pool_node *n, const struct stag_pool_node_attr *attr)
{
	const char *host = attr->advertise ? attr->advertise : attr->address;
	char own[ROLL_NAME_LEN] = "";
	int rc;

	n->info.port = ntohs(rdma_get_src_port(n->adapter.listener));
	if (!host) {
		gethostname(own, sizeof(own) - 1);
		host = own;
	}
	if (attr->advertise && strrchr(host, ':') > strchr(host, ']') && host[0] == '[')
		rc = snprintf(n->conf.us.address, sizeof(n->conf.us.address), "%s", host);
	else if (attr->advertise && strchr(host, ':') && strchr(host, ':') == strrchr(host, ':'))
		rc = snprintf(n->conf.us.address, sizeof(n->conf.us.address), "%s", host);
	else if (strchr(host, ':') && host[0] != '[')
		rc = snprintf(n->conf.us.address, sizeof(n->conf.us.address), "[%s]:%u", host,
			      n->info.port);
	else
		rc = snprintf(n->conf.us.address, sizeof(n->conf.us.address), "%s:%u", host,
			      n->info.port);
	return rc > 0 && (size_t)rc < sizeof(n->conf.us.address) ? 0 : -ENAMETOOLONG;
}

/* ---- resources ---------------------------------------------------------------------------------- */

/*
 * Returns the adapter of the address that the node listens on, or the first adapter if it listens on all
 * addresses.
 */
static struct ibv_context *find_adapter(const struct stag_pool_node *n)
{
	struct ibv_context **list, *found = n->adapter.listener->verbs;

	if (found)
		return found;
	list = rdma_get_devices(NULL);
	for (int i = 0; list && list[i]; i++) /* prefers stag0 to roce0, which does not forward */
		if (!found || (dv_shares(found, list[i]) &&
			       list[i]->device->transport_type == IBV_TRANSPORT_IWARP))
			found = list[i];
	if (list)
		rdma_free_devices(list);
	return found;
}

/* Queries the adapter. On some adapters a completion queue cannot grow later: it is made as long as it will ever be. */
static int query_limits(struct stag_pool_node *n)
{
	struct ibv_device_attr attr;
	int reads = NODE_READS;

	if (ibv_query_device(n->adapter.context, &attr) != 0)
		return -EIO;
	n->adapter.clients.size = n->adapter.dv		   ? FIRST_CQ
				  : attr.max_cqe < MOST_CQ ? attr.max_cqe
							   : MOST_CQ;
	n->adapter.links.size = attr.max_cqe < FIRST_CQ ? attr.max_cqe : FIRST_CQ;
	reads = reads < attr.max_qp_rd_atom ? reads : attr.max_qp_rd_atom;
	reads = reads < attr.max_qp_init_rd_atom ? reads : attr.max_qp_init_rd_atom;
	n->adapter.reads = (uint8_t)reads;
	return 0;
}

static int create_cq(struct stag_pool_node *n, struct node_cq *q)
{
	q->cq = ibv_create_cq(n->adapter.context, q->size, NULL, n->adapter.channel, 0);
	return q->cq ? 0 : -errno;
}

static int open_adapter(struct stag_pool_node *n)
{
	const struct dv *dv = dv_find();
	int rc;

	n->adapter.context = find_adapter(n);
	if (!n->adapter.context)
		return set_fault(n, -EOPNOTSUPP,
				 "no RDMA adapter found: start the program with 'stag run --'");
	n->adapter.dv = dv && dv->is_supported(n->adapter.context->device) ? dv : NULL;
	if (!n->adapter.dv)
		node_log(n, LOG_LEVEL_INFO,
			 "%s is not stag's adapter: software enforces the lease, and forwards "
			 "values",
			 ibv_get_device_name(n->adapter.context->device));
	rc = query_limits(n);
	if (rc != 0)
		return rc;
	for (unsigned int d = 0; d < NODE_DOMAINS; d++) {
		n->adapter.pd[d] = ibv_alloc_pd(n->adapter.context);
		if (!n->adapter.pd[d])
			return -errno;
	}
	n->adapter.channel = ibv_create_comp_channel(n->adapter.context);
	if (!n->adapter.channel || set_nonblocking(n->adapter.channel->fd) != 0)
		return -errno;
	rc = create_cq(n, &n->adapter.clients);
	if (rc == 0)
		rc = create_cq(n, &n->adapter.links);
	return rc == 0 ? pulls_create(n) : rc;
}

static int add_to_epoll(struct stag_pool_node *n, int fd, enum node_fd what)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u32 = what};

	return epoll_ctl(n->loop.epoll, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
}

static int open_loop(struct stag_pool_node *n)
{
	uint64_t half = n->role.times.lease.beat / 2;
	/* RDMA Writes to our memory raise no event: check it periodically. */
	struct itimerspec every = {.it_interval = {.tv_nsec = (long)(half < LOOK ? half : LOOK)}};
	int fds[NODE_FDS], rc = 0;

	every.it_value = every.it_interval;
	n->loop.epoll = epoll_create1(EPOLL_CLOEXEC);
	n->loop.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	n->loop.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (n->loop.epoll < 0 || n->loop.timer < 0 || n->loop.wake < 0 ||
	    timerfd_settime(n->loop.timer, 0, &every, NULL) != 0)
		return -errno;
	fds[NODE_FD_TIMER] = n->loop.timer;
	fds[NODE_FD_WAKE] = n->loop.wake;
	fds[NODE_FD_COMPLETIONS] = n->adapter.channel->fd;
	fds[NODE_FD_CONNECTIONS] = n->adapter.events->fd;
	fds[NODE_FD_ROLLS] = rolls_fd(n->rolls);
	for (enum node_fd i = 0; rc == 0 && i < NODE_FDS; i++)
		rc = add_to_epoll(n, fds[i], i);
	return rc;
}

static int open_state(struct stag_pool_node *n, const char *path)
{
	int rc;

	n->disk.dir = state_open(path);
	if (n->disk.dir < 0)
		return n->disk.dir;
	rc = state_load(n->disk.dir, &n->disk.state);
	if (rc == -ENOENT)
		rc = 0;
	memcpy(n->disk.state.node, n->conf.name, sizeof(n->conf.name));
	return rc == 0 ? saver_start(&n->disk.saver, n->disk.dir) : rc;
}

static int create_pool(struct stag_pool_node *n)
{
	int rc;

	if (RAND_bytes(n->conf.format.uuid, sizeof(n->conf.format.uuid)) != 1)
		return -EIO;
	rc = memory_create(n);
	if (rc == 0)
		role_create(&n->role, n->conf.format.uuid, &n->conf.us, false);
	return rc;
}

static int open_all(struct stag_pool_node *n, const struct stag_pool_node_attr *attr)
{
	struct role_times times = check_times(attr);
	struct pool_tls_files files = {attr->tls_cert, attr->tls_key, attr->tls_ca};
	uint16_t port = attr->port ? attr->port : STAG_POOL_PORT;
	int rc;

	rc = open_state(n, attr->state);
	set_fault(n, rc, "the state directory %s: %s", attr->state,
		  rc == -EBUSY ? "another node holds it" : strerror(-rc));
	if (rc == 0) {
		rc = tls_open_node(n, &files);
		set_fault(n, rc, "%s", stag_pool_error());
	}
	if (rc == 0)
		rc = listen_open(n, attr->address, attr->flags & STAG_POOL_ANY_PORT ? 0 : port);
	if (rc == 0)
		rc = open_adapter(n);
	if (rc == 0)
		rc = set_address(n, attr);
	if (rc != 0)
		return rc;
	rc = rolls_open(n->conf.where, &n->rolls);
	if (rc == 0)
		rc = rolls_watch(n->rolls);
	if (rc != 0)
		return set_fault(n, rc, "the roll %s: %s", n->conf.where, strerror(-rc));
	watch_own_life(n);
	role_init(&n->role, &times, n->conf.name, n->disk.state.epoch, node_read_clock(n));
	if (attr->flags & STAG_POOL_CREATE)
		rc = create_pool(n);
	return rc == 0 ? open_loop(n) : rc;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void close_all(struct stag_pool_node *n)
{
	rolls_close(n->rolls);
	saver_stop(&n->disk.saver);
	if (n->adapter.listener)
		rdma_destroy_id(n->adapter.listener);
	door_close(n);
	if (n->adapter.events)
		rdma_destroy_event_channel(n->adapter.events);
	memory_destroy(n);
	node_staging_destroy(n);
	pulls_destroy(n);
	if (n->adapter.clients.cq)
		ibv_destroy_cq(n->adapter.clients.cq);
	if (n->adapter.links.cq)
		ibv_destroy_cq(n->adapter.links.cq);
	if (n->adapter.channel)
		ibv_destroy_comp_channel(n->adapter.channel);
	for (unsigned int d = 0; d < NODE_DOMAINS; d++)
		if (n->adapter.pd[d])
			ibv_dealloc_pd(n->adapter.pd[d]);
	admit_destroy(n->admit);
	users_free(&n->users);
	tls_close_node(n);
	close_fd(n->loop.epoll);
	close_fd(n->loop.timer);
	close_fd(n->loop.wake);
	watch_end(n);
	close_fd(n->disk.dir);
	life_end(
		&n->proof.own); /* last: its release proves that nothing of the node runs any more */
	pthread_cond_destroy(&n->program.told);
	lock_destroy(&n->program.lock);
	lock_destroy(&n->pulse.lock);
	lock_destroy(&n->door.lock);
	events_end(&n->events);
	free(n);
}

/* ---- the calls ------------------------------------------------------------------------------------ */

void node_set_fault(struct stag_pool_node *n, const char *why)
{
	set_fault(n, -EIO, "%s", why);
}

void node_report_started(struct stag_pool_node *n, int error)
{
	if (n->program.started) /* only this thread changes it */
		return;
	node_show(n); /* callers that are notified query it */
	HOLD_FOR_SCOPE(&n->program.lock);
	n->program.started = true;
	n->program.start_error = error;
	pthread_cond_broadcast(&n->program.told);
}

/* Returns the time ns from now, for conditions that init_cond() made. */
static struct timespec deadline_after(uint64_t ns)
{
	uint64_t until = clock_ns() + ns;

	return (struct timespec){.tv_sec = (time_t)(until / NS_PER_S),
				 .tv_nsec = (long)(until % NS_PER_S)};
}

static int await_start(struct stag_pool_node *n)
{
	struct timespec until = deadline_after(STARTS_WITHIN * NS_PER_S);
	int rc = 0;

	HOLD_FOR_SCOPE(&n->program.lock);
	/* If the roll backend does not respond, the node keeps waiting; the caller does not. */
	while (!n->program.started && rc == 0)
		rc = lock_wait_until(&n->program.lock, &n->program.told, &until);
	return -n->program.start_error;
}

/* Waits use the monotonic clock, so setting the time of day does not change them. */
static void init_cond(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

static struct stag_pool_node *alloc_node(void)
{
	struct stag_pool_node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->loop.epoll = n->loop.timer = n->loop.wake = n->disk.dir = n->primary.seat =
		n->proof.primary.fd = -1;
	n->proof.own = LIFE_NONE;
	list_init(&n->conns);
	list_init(&n->ended);
	turns_init(&n->serve.turns);
	list_init(&n->serve.replies);
	list_init(&n->serve.switchovers);
	list_init(&n->serve.unsent);
	list_init(&n->pulling.pulls);
	list_init(&n->pulling.idle_pulls);
	list_init(&n->pulling.free_slots);
	lock_init(&n->program.lock);
	lock_init(&n->pulse.lock);
	lock_init(&n->door.lock);
	events_begin(&n->events);
	list_init(&n->door.waiting);
	n->door.stop = -1;
	init_cond(&n->program.told);
	return n;
}

/* Sets the error text, in the thread of the caller that started the node. */
static void set_error(struct stag_pool_node *n, int rc)
{
	if (rc == -ENOENT)
		set_fault(n, rc, "there is no such pool in %s", n->conf.where);
	else if (rc == -EEXIST)
		set_fault(n, rc, "there is a pool in %s already", n->conf.where);
	else if (rc == -ENOTRECOVERABLE)
		set_fault(n, rc, "its memory was the only copy, and is lost");
	pool_fail(-rc, "pool %s, node %s: %s", n->conf.pool, n->conf.name,
		  n->fault[0] ? n->fault : strerror(-rc));
}

STAG_EXPORT struct stag_pool_node *stag_pool_node_start(const struct stag_pool_node_attr *attr)
{
	struct stag_pool_node *n = alloc_node();
	int rc;

	if (!n) {
		errno = -pool_fail(ENOMEM, "no memory");
		return NULL;
	}
	rc = copy_attr(n, attr);
	if (rc == 0)
		rc = open_all(n, attr);
	if (rc == 0)
		rc = pulse_start(n);
	if (rc == 0)
		rc = door_start(n);
	if (rc == 0)
		rc = -pthread_create(&n->loop.thread, NULL, node_run_loop, n);
	if (rc == 0)
		pthread_setname_np(n->loop.thread, "stag-node");
	if (rc != 0) {
		pulse_stop(n);
		door_stop(n);
		set_error(n, rc);
		close_all(n);
		errno = -rc;
		return NULL;
	}
	rc = await_start(n);
	if (rc != 0) {
		set_error(n, rc);
		stag_pool_node_stop(n);
		errno = -rc;
		return NULL;
	}
	return n;
}

void node_wake(struct stag_pool_node *n)
{
	uint64_t one = 1;

	if (write(n->loop.wake, &one, sizeof(one)) != sizeof(one))
		log_err("node %s: cannot be woken", n->conf.name);
}

static bool is_shown_primary(struct stag_pool_node *n)
{
	HOLD_FOR_SCOPE(&n->program.lock);
	return n->program.shown.role == STAG_POOL_ROLE_PRIMARY;
}

/*
 * Returns how long a primary takes at most to hand over, wait for the successor, and take the handover back,
 * unless the roll backend does not respond.
 */
static uint64_t time_to_switch(const struct stag_pool_node *n)
{
	return 3 * n->role.times.link;
}

static int switch_within(struct stag_pool_node *n, const char *to, uint64_t ns)
{
	struct timespec until = deadline_after(ns);
	int rc = 0;

	HOLD_FOR_SCOPE(&n->program.lock);
	n->program.switch_to = to ? to : "";
	n->program.switched = -EINPROGRESS;
	node_wake(n);
	while (n->program.switched == -EINPROGRESS && rc == 0)
		rc = lock_wait_until(&n->program.lock, &n->program.told, &until);
	if (n->program.switched != -EINPROGRESS)
		return n->program.switched;
	n->program.switch_to = NULL;
	return -ETIMEDOUT;
}

static void log_no_handover(struct stag_pool_node *n, int rc)
{
	const char *why = "no standby was promoted";
	struct stag_pool_node_info info;

	stag_pool_node_query(n, &info, sizeof(info));
	if (rc == -ETIMEDOUT)
		why = info.why[0] ? info.why
				  : "no standby was promoted, and the roll cannot be changed";
	node_log(n, LOG_LEVEL_WARN, "ends without a handover: %s", why);
}

/*
 * Waits as long as a handover usually takes; after that, the next primary promotes itself. If the roll is gone, no
 * node can be promoted, and we cannot take the handover back: so there is no point in waiting, as clients cannot
 * read here any more.
 */
static void hand_over(struct stag_pool_node *n)
{
	uint64_t within = time_to_switch(n);
	int rc;

	lock_acquire(&n->program.lock);
	n->program.leaving = true;
	lock_release(&n->program.lock);
	if (!is_shown_primary(n))
		return;
	rc = switch_within(n, NULL,
			   within < ENDS_WITHIN * NS_PER_S ? within : ENDS_WITHIN * NS_PER_S);
	if (rc == -EBUSY || rc == -ETIMEDOUT)
		log_no_handover(n, rc);
}

STAG_EXPORT void stag_pool_node_stop(struct stag_pool_node *n)
{
	if (!n)
		return;
	hand_over(n);
	lock_acquire(&n->program.lock);
	n->program.stopping = true;
	lock_release(&n->program.lock);
	node_wake(n);
	pthread_join(n->loop.thread, NULL);
	close_all(n);
}

STAG_EXPORT int stag_pool_node_switchover(struct stag_pool_node *n, const char *to)
{
	return -switch_within(n, to, time_to_switch(n) + STARTS_WITHIN * NS_PER_S);
}

STAG_EXPORT int stag_pool_node_query(struct stag_pool_node *n, struct stag_pool_node_info *info,
				     size_t size)
{
	if (!info || size < sizeof(info->comp_mask))
		return EINVAL;
	HOLD_FOR_SCOPE(&n->program.lock);
	memcpy(info, &n->program.shown,
	       size < sizeof(n->program.shown) ? size : sizeof(n->program.shown));
	return 0;
}
