// SPDX-License-Identifier: BSD-2-Clause
/*
 * pair.c - two connected ends: see pair.h. Uses only the public interface, as a program does.
 */
#include "pair.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANARY	    4096
#define CANARY_BYTE 0xc5 /* the byte that canaries are filled with */

/* ---- memory ---- */

static struct region *add_region(struct pair *p, struct ibv_pd *pd, size_t len, int access)
{
	struct region *r = calloc(1, sizeof(*r));
	uint8_t *room = aligned_alloc(CANARY, (len + 3 * CANARY - 1) / CANARY * CANARY);

	assert_non_null(r);
	assert_non_null(room);
	memset(room, CANARY_BYTE, CANARY);
	memset(room + CANARY, 0, len);
	memset(room + CANARY + len, CANARY_BYTE, CANARY);
	r->at = room + CANARY;
	r->len = len;
	r->mr = ibv_reg_mr(pd, r->at, len, access);
	assert_non_null(r->mr);
	r->next = p->regions;
	p->regions = r;
	return r;
}

struct region *near_region(struct pair *p, size_t len)
{
	int access = IBV_ACCESS_LOCAL_WRITE;

	/* On iWARP a read's response is a write of the peer to this memory. */
	if (p->context->device->transport_type == IBV_TRANSPORT_IWARP)
		access |= IBV_ACCESS_REMOTE_WRITE;
	return add_region(p, p->near_pd, len, access);
}

struct region *far_region(struct pair *p, size_t len, int access)
{
	if (access & IBV_ACCESS_REMOTE_WRITE)
		access |= IBV_ACCESS_LOCAL_WRITE;
	return add_region(p, p->far_pd, len, access);
}

static void expect_canary_intact(const struct region *r, const uint8_t *at)
{
	for (size_t i = 0; i < CANARY; i++)
		if (at[i] != CANARY_BYTE)
			fail_msg("a canary of the region of %zu bytes was overwritten, %td bytes "
				 "from it",
				 r->len, at + i - r->at);
}

static void check_canary(const struct region *r)
{
	expect_canary_intact(r, r->at - CANARY);
	expect_canary_intact(r, r->at + r->len);
}

void check_canaries(const struct pair *p)
{
	for (const struct region *r = p->regions; r; r = r->next)
		check_canary(r);
}

void drop_region(struct pair *p, struct region *r)
{
	struct region **at = &p->regions;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	check_canary(r);
	assert_int_equal(ibv_dereg_mr(r->mr), 0);
	free(r->at - CANARY);
	free(r);
}

/* ---- events ---- */

static bool has_seen(const struct end *e, enum rdma_cm_event_type type)
{
	return e->seen & 1u << type;
}

static void handle_event(struct pair *p, struct rdma_event_channel *channel)
{
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_get_cm_event(channel, &ev), 0);
	if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		p->request = ev->id;
	else
		((struct end *)ev->id->context)->seen |= 1u << ev->event;
	rdma_ack_cm_event(ev);
}

static void await_event(struct pair *p, struct rdma_event_channel *channel, const char *what)
{
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};

	if (poll(&ready, 1, PATIENCE_MS) != 1)
		fail_msg("no event: %s", what);
	handle_event(p, channel);
}

static void await_near(struct pair *p, struct end *e, enum rdma_cm_event_type type)
{
	while (!has_seen(e, type)) {
		await_event(p, p->near_events, rdma_event_str(type));
		if (has_seen(e, RDMA_CM_EVENT_REJECTED) || has_seen(e, RDMA_CM_EVENT_UNREACHABLE) ||
		    has_seen(e, RDMA_CM_EVENT_CONNECT_ERROR))
			fail_msg("no connection: events 0x%x", e->seen);
	}
}

/* ---- connecting ---- */

static struct sockaddr_in address(uint16_t port)
{
	const char *name = getenv("STAG_TEST_ADDRESS");
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = port};

	assert_int_equal(inet_pton(AF_INET, name ? name : "127.0.0.1", &at.sin_addr), 1);
	return at;
}

/* Exits with 77 (skipped) if there is no RDMA device. */
static struct rdma_event_channel *new_events(void)
{
	struct rdma_event_channel *events = rdma_create_event_channel();

	if (!events) {
		fprintf(stderr, "no RDMA device: %s\n", strerror(errno));
		exit(77);
	}
	return events;
}

static void start_listening(struct pair *p)
{
	struct sockaddr_in at = address(0);

	assert_int_equal(rdma_create_id(p->far_events, &p->listener.id, &p->listener, RDMA_PS_TCP),
			 0);
	if (rdma_bind_addr(p->listener.id, (struct sockaddr *)&at)) {
		fprintf(stderr, "no RDMA device has this address: %s\n", strerror(errno));
		exit(77);
	}
	assert_int_equal(rdma_listen(p->listener.id, 8), 0);
}

static uint32_t value_or_default(uint32_t wanted, uint32_t otherwise)
{
	return wanted ? wanted : otherwise;
}

static uint32_t send_wr(const struct pair *p)
{
	return value_or_default(p->wish.send_wr, 64);
}

static struct ibv_cq *new_send_cq(struct pair *p, uint32_t rails)
{
	uint32_t cqe = value_or_default(p->wish.cqe, rails * send_wr(p));
	struct ibv_cq *cq = ibv_create_cq(p->context, (int)cqe, p, p->channel, 0);

	assert_non_null(cq);
	return cq;
}

/*
 * Creates the objects that all rails of the near end share, once the first rail knows its device.
 */
static void create_near_objects(struct pair *p, struct ibv_context *context)
{
	uint32_t rails = p->wish.rails;

	if (p->near_pd)
		return;
	p->context = context;
	p->near_pd = ibv_alloc_pd(context);
	assert_non_null(p->near_pd);
	if (p->wish.channel)
		assert_non_null(p->channel = ibv_create_comp_channel(context));
	for (uint32_t i = 0; i < rails; i++)
		p->rails[i].cq = i && p->wish.one_cq ? p->rails[0].cq
						     : new_send_cq(p, p->wish.one_cq ? rails : 1);
}

static void create_far_objects(struct pair *p, struct ibv_context *context)
{
	if (p->far_pd)
		return;
	p->far_pd = ibv_alloc_pd(context);
	assert_non_null(p->far_pd);
	p->far_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	assert_non_null(p->far_cq);
}

static void create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	attr->qp_type = IBV_QPT_RC;
	attr->cap.max_recv_wr = attr->cap.max_recv_sge = 1;
	assert_int_equal(rdma_create_qp(id, pd, attr), 0);
}

static struct rdma_conn_param params(const struct pair *p)
{
	uint8_t reads = (uint8_t)value_or_default(p->wish.reads, 16);

	return (struct rdma_conn_param){.initiator_depth = reads, .responder_resources = reads};
}

static void resolve(struct pair *p, struct rail *r)
{
	struct sockaddr_in to = address(rdma_get_src_port(p->listener.id));
	struct end *e = &r->near;

	*e = (struct end){0};
	assert_int_equal(rdma_create_id(p->near_events, &e->id, e, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&to, PATIENCE_MS), 0);
	await_near(p, e, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(e->id, PATIENCE_MS), 0);
	await_near(p, e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_near_objects(p, e->id->verbs);
}

static void request_connection(struct pair *p, struct rail *r)
{
	struct rdma_conn_param param = params(p);
	struct ibv_qp_init_attr attr = {.send_cq = r->cq,
					.recv_cq = r->cq,
					.cap = {.max_send_wr = send_wr(p),
						.max_send_sge = value_or_default(p->wish.sge, 4)},
					.sq_sig_all = p->wish.sig_all};

	resolve(p, r);
	attr.send_cq = attr.recv_cq = r->cq;
	create_qp(r->near.id, p->near_pd, &attr);
	assert_int_equal(rdma_connect(r->near.id, &param), 0);
}

static void accept_connection(struct pair *p, struct rail *r)
{
	struct rdma_conn_param param = params(p);
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 1, .max_send_sge = 1}};

	while (!p->request)
		await_event(p, p->far_events, "a request for a connection");
	r->far = (struct end){.id = p->request};
	r->far.id->context = &r->far;
	p->request = NULL;
	create_far_objects(p, r->far.id->verbs);
	attr.send_cq = attr.recv_cq = p->far_cq;
	create_qp(r->far.id, p->far_pd, &attr);
	assert_int_equal(rdma_accept(r->far.id, &param), 0);
}

static void connect_rail(struct pair *p, struct rail *r)
{
	request_connection(p, r);
	accept_connection(p, r);
	await_near(p, &r->near, RDMA_CM_EVENT_ESTABLISHED);
	/* siw loses messages that arrive before the connection is established. */
	while (!has_seen(&r->far, RDMA_CM_EVENT_ESTABLISHED))
		await_event(p, p->far_events, "far: ESTABLISHED");
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {0};
	struct ibv_qp_init_attr init;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void pair_open(struct pair *p, const struct pair_wish *wish)
{
	*p = (struct pair){.wish = wish ? *wish : (struct pair_wish){0}};
	p->wish.rails = value_or_default(p->wish.rails, 1);
	assert_true(p->wish.rails <= PAIR_MAX_RAILS);
	p->near_events = new_events();
	p->far_events = new_events();
	start_listening(p);
	for (unsigned int i = 0; i < p->wish.rails; i++)
		connect_rail(p, &p->rails[i]);
	/* The queue pair is connected: a device that says RESET now reports no state at all. */
	p->mute = state_of(pair_qp(p, 0)) == IBV_QPS_RESET;
}

struct ibv_qp *pair_qp(const struct pair *p, unsigned int rail)
{
	return p->rails[rail].near.id->qp;
}

/* ---- ending ---- */

/* Destroys the id, and with it the events that were not acknowledged. */
static void drop_id(struct rdma_cm_id *id)
{
	if (!id)
		return;
	if (id->qp)
		rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void set_error(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (!id || !id->qp)
		return;
	assert_int_equal(ibv_modify_qp(id->qp, &attr, IBV_QP_STATE), 0);
	((struct end *)id->context)->ended = true;
}

/* Returns whether fd is the TCP socket between these ports. */
static bool is_between(int fd, uint16_t from, uint16_t to)
{
	struct sockaddr_storage here, there;
	socklen_t here_len = sizeof(here), there_len = sizeof(there);
	const struct sockaddr_in *h = (void *)&here, *t = (void *)&there;

	/* The port is at the same offset in both address families. */
	return getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
	       getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 &&
	       (here.ss_family == AF_INET || here.ss_family == AF_INET6) && h->sin_port == from &&
	       t->sin_port == to;
}

/* Returns the socket of an id if the adapter is in this process, or -1. */
static int socket_of(struct rdma_cm_id *id)
{
	DIR *dir = opendir("/proc/self/fd");
	int found = -1;

	assert_non_null(dir);
	for (struct dirent *e; found < 0 && (e = readdir(dir));)
		if (is_between(atoi(e->d_name), rdma_get_src_port(id), rdma_get_dst_port(id)))
			found = atoi(e->d_name);
	closedir(dir);
	return found;
}

static void reset_connection(struct rdma_cm_id *id)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	int fd = id ? socket_of(id) : -1;

	/* Connecting to AF_UNSPEC resets the existing connection (connect(2)). */
	if (fd < 0 || connect(fd, &none, sizeof(none)))
		set_error(id);
}

/* Disconnects, unless the connection has ended already. */
static void disconnect(struct rdma_cm_id *id)
{
	if (id)
		rdma_disconnect(id);
}

void pair_end(struct pair *p, unsigned int rail, enum pair_end how)
{
	struct rdma_cm_id *near = p->rails[rail].near.id, *far = p->rails[rail].far.id;

	switch (how) {
	case END_NEAR_DISCONNECTS:
		return disconnect(near);
	case END_FAR_DISCONNECTS:
		return disconnect(far);
	case END_NEAR_ERROR:
		return set_error(near);
	case END_FAR_ERROR:
		return set_error(far);
	case END_NEAR_RST:
		return reset_connection(near);
	case END_FAR_RST:
		return reset_connection(far);
	case END_FAR_GONE:
		drop_id(far);
		p->rails[rail].far.id = NULL;
		return;
	case END_WAYS:
		break;
	}
	fail_msg("no such end: %d", how);
}

static void handle_events(struct pair *p, struct rdma_event_channel *channel)
{
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};

	while (poll(&ready, 1, 0) == 1)
		handle_event(p, channel);
}

bool pair_is_up(struct pair *p, unsigned int rail)
{
	struct end *near = &p->rails[rail].near;

	handle_events(p, p->near_events);
	if (near->ended || has_seen(near, RDMA_CM_EVENT_DISCONNECTED))
		return false;
	return p->mute || state_of(near->id->qp) == IBV_QPS_RTS;
}

bool pair_ended_unreported(struct pair *p, unsigned int rail)
{
	return p->mute && !pair_is_up(p, rail);
}

bool pair_is_siw(const struct pair *p)
{
	return strncmp(ibv_get_device_name(p->context->device), "siw", 3) == 0;
}

struct rdma_cm_id *pair_replace(struct pair *p, unsigned int rail)
{
	struct rail *r = &p->rails[rail];
	struct rdma_cm_id *old = r->near.id;

	set_error(old);
	drop_id(r->far.id);
	r->far.id = NULL;
	/* Its late events are ignored. */
	old->context = &p->listener;
	connect_rail(p, r);
	return old;
}

void pair_discard(struct rdma_cm_id *old)
{
	drop_id(old);
}

struct ibv_qp *pair_reconnect(struct pair *p, unsigned int rail)
{
	struct rail *r = &p->rails[rail];

	drop_id(r->near.id);
	drop_id(r->far.id);
	connect_rail(p, r);
	return pair_qp(p, rail);
}

void pair_serve(struct pair *p)
{
	struct ibv_wc wc;

	ibv_poll_cq(p->far_cq, 1, &wc);
}

static void destroy_send_cqs(struct pair *p)
{
	for (unsigned int i = 0; i < p->wish.rails; i++)
		if (!i || !p->wish.one_cq)
			assert_int_equal(ibv_destroy_cq(p->rails[i].cq), 0);
}

void pair_close(struct pair *p)
{
	for (unsigned int i = 0; i < p->wish.rails; i++) {
		drop_id(p->rails[i].near.id);
		drop_id(p->rails[i].far.id);
	}
	assert_int_equal(rdma_destroy_id(p->listener.id), 0);
	while (p->regions)
		drop_region(p, p->regions);
	destroy_send_cqs(p);
	assert_int_equal(ibv_destroy_cq(p->far_cq), 0);
	if (p->channel)
		assert_int_equal(ibv_destroy_comp_channel(p->channel), 0);
	assert_int_equal(ibv_dealloc_pd(p->near_pd), 0);
	assert_int_equal(ibv_dealloc_pd(p->far_pd), 0);
	rdma_destroy_event_channel(p->near_events);
	rdma_destroy_event_channel(p->far_events);
}
