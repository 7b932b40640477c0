// SPDX-License-Identifier: BSD-2-Clause
/*
 * verbs_link.c - one measured connection between the two sides, over rdma_cm.
 *
 * Sets up and tears down. What goes over the connection is verbs_pair.c's.
 */
#include "verbs_link.h"
#include "pair.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define RESOLVE_MS 2000

struct link link;

static struct rdma_cm_event *get_event(void)
{
	struct rdma_cm_event *ev;

	if (rdma_get_cm_event(link.events, &ev))
		pair_die("rdma_get_cm_event");
	return ev;
}

/*
 * The client goes on as soon as its own side is established: its next request
 * may come before the server has heard how the last connection ended up.
 */
static struct rdma_cm_event *next_event(enum rdma_cm_event_type want)
{
	static struct rdma_cm_event *early;
	struct rdma_cm_event *ev;

	if (want == RDMA_CM_EVENT_CONNECT_REQUEST && early) {
		ev = early;
		early = NULL;
		return ev;
	}
	ev = get_event();
	if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST && ev->event != want && !early) {
		early = ev;
		ev = get_event();
	}
	if (ev->event != want)
		pair_die("connection event %s, wanted %s, status %d", rdma_event_str(ev->event),
			 rdma_event_str(want), ev->status);
	return ev;
}

static void expect_event(enum rdma_cm_event_type want)
{
	rdma_ack_cm_event(next_event(want));
}

/* The first connection says which device it is; all later ones share its objects. */
static void open_device(struct ibv_context *dev)
{
	struct ibv_device_attr attr;
	size_t idle = options.idle;

	if (link.pd)
		return;
	if (ibv_query_device(dev, &attr))
		pair_die("ibv_query_device");
	link.reads = attr.max_qp_rd_atom < attr.max_qp_init_rd_atom ? attr.max_qp_rd_atom
								    : attr.max_qp_init_rd_atom;
	if (link.reads > 128)
		link.reads = 128;
	link.pd = ibv_alloc_pd(dev);
	if (options.sleep)
		link.channel = ibv_create_comp_channel(dev);
	link.cq = ibv_create_cq(dev, RECV_DEPTH + SEND_DEPTH + (int)idle, NULL, link.channel, 0);
	if (!link.pd || !link.cq)
		pair_die("protection domain or completion queue");
	if (link.channel && ibv_req_notify_cq(link.cq, 0))
		pair_die("ibv_req_notify_cq");
}

static void create_qp(struct rdma_cm_id *id, bool measured)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = measured ? SEND_DEPTH : 16,
			.max_recv_wr = measured ? RECV_DEPTH : 16,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_MAX},
	};

	open_device(id->verbs);
	attr.send_cq = link.cq;
	attr.recv_cq = link.cq;
	if (rdma_create_qp(id, link.pd, &attr))
		pair_die("rdma_create_qp");
}

static struct rdma_conn_param parameters(char *flag)
{
	struct rdma_conn_param p = {
		.private_data = flag,
		.private_data_len = 1,
		.responder_resources = (uint8_t)link.reads,
		.initiator_depth = (uint8_t)link.reads,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	return p;
}

static struct rdma_cm_id *connect_one(char flag, bool measured)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(link.port)};
	struct rdma_conn_param p;
	struct rdma_cm_id *id;

	inet_pton(AF_INET, options.address, &to.sin_addr);
	if (rdma_create_id(link.events, &id, NULL, RDMA_PS_TCP))
		pair_die("rdma_create_id");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS))
		pair_die("rdma_resolve_addr");
	expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, RESOLVE_MS))
		pair_die("rdma_resolve_route");
	expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_qp(id, measured);
	p = parameters(&flag);
	if (rdma_connect(id, &p))
		pair_die("rdma_connect");
	expect_event(RDMA_CM_EVENT_ESTABLISHED);
	return id;
}

static struct rdma_cm_id *accept_one(char *flag, bool measured)
{
	struct rdma_cm_event *ev = next_event(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = ev->id;
	struct rdma_conn_param p;

	*flag = *(const char *)ev->param.conn.private_data;
	rdma_ack_cm_event(ev);
	create_qp(id, measured);
	p = parameters(flag);
	if (rdma_accept(id, &p))
		pair_die("rdma_accept");
	expect_event(RDMA_CM_EVENT_ESTABLISHED);
	return id;
}

struct rdma_cm_id *link_connect(char flag)
{
	return connect_one(flag, false);
}

struct rdma_cm_id *link_accept(char *flag)
{
	return accept_one(flag, false);
}

void link_disconnect(struct rdma_cm_id *id)
{
	if (!pair_is_server && rdma_disconnect(id))
		pair_die("rdma_disconnect");
	expect_event(RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);
	if (rdma_destroy_id(id))
		pair_die("rdma_destroy_id");
}

static void listen_here(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};

	inet_pton(AF_INET, options.address, &sa.sin_addr);
	if (rdma_create_id(link.events, &link.listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(link.listener, (struct sockaddr *)&sa) ||
	    rdma_listen(link.listener, 128))
		pair_die("listen on %s", options.address);
	link.port = ntohs(rdma_get_src_port(link.listener));
}

/* Each connection may be a descriptor. */
static void raise_descriptor_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}

/* The measured connection is in the middle, so that a search among them all shows as it would. */
static void connect_all(void)
{
	size_t n = options.idle + 1, measured = options.idle / 2;
	char flag = 0;

	link.ids = calloc(n, sizeof(struct rdma_cm_id *));
	for (size_t i = 0; i < n; i++) {
		if (pair_is_server)
			link.ids[i] = accept_one(&flag, i == measured);
		else
			link.ids[i] = connect_one(flag, i == measured);
	}
	link.qp = link.ids[measured]->qp;
}

static void register_memory(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	size_t half = options.list * options.size;
	size_t len = 2 * half;

	link.in = half;
	link.receives = len;
	if (options.size <= INLINE_MAX)
		len += RECV_DEPTH * options.size;
	link.data = pair_memory(len);
	link.words = pair_memory(sizeof(*link.words));
	link.data_mr = ibv_reg_mr(link.pd, link.data, len, access);
	link.words_mr = ibv_reg_mr(link.pd, (void *)link.words, sizeof(*link.words), access);
	if (!link.data_mr || !link.words_mr)
		pair_die("ibv_reg_mr");
}

static void exchange_addresses(void)
{
	struct link_remote mine = {.data = (uintptr_t)link.data,
				   .words = (uintptr_t)link.words,
				   .data_key = link.data_mr->rkey,
				   .words_key = link.words_mr->rkey};

	pair_tell(&mine, sizeof(mine));
	pair_hear(&link.remote, sizeof(link.remote));
}

void link_open(void)
{
	raise_descriptor_limit();
	link.events = rdma_create_event_channel();
	if (!link.events)
		pair_die("rdma_create_event_channel");
	if (pair_is_server) {
		listen_here();
		pair_tell(&link.port, sizeof(link.port));
	} else {
		pair_hear(&link.port, sizeof(link.port));
	}
	connect_all();
	register_memory();
	exchange_addresses();
}
