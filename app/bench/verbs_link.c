// SPDX-License-Identifier: BSD-2-Clause
/*
 * verbs_link.c - one measured connection between the two sides, over rdma_cm, or by queue pair number (verbs_number.c).
 *
 * Sets it up and tears it down. part_verbs.c transfers data over it.
 */
#include "verbs_link.h"
#include "pair.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define RESOLVE_MS 2000

struct verbs_link lane;

static struct rdma_cm_event *get_event(void)
{
	struct rdma_cm_event *ev;

	if (rdma_get_cm_event(lane.events, &ev))
		pair_die("rdma_get_cm_event");
	return ev;
}

/*
 * The client continues as soon as its own side is established: its next request
 * may arrive before the server's event for the previous connection.
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
		pair_die("connection event %s, expected %s, status %d", rdma_event_str(ev->event),
			 rdma_event_str(want), ev->status);
	return ev;
}

static void expect_event(enum rdma_cm_event_type want)
{
	rdma_ack_cm_event(next_event(want));
}

/* The first connection determines the device; all later ones share its objects. */
void lane_use(struct ibv_context *dev)
{
	struct ibv_device_attr attr;
	size_t idle = options.idle;

	if (lane.pd)
		return;
	if (ibv_query_device(dev, &attr))
		pair_die("ibv_query_device");
	lane.reads = attr.max_qp_rd_atom < attr.max_qp_init_rd_atom ? attr.max_qp_rd_atom
								    : attr.max_qp_init_rd_atom;
	if (lane.reads > 128)
		lane.reads = 128;
	lane.pd = ibv_alloc_pd(dev);
	if (options.sleep)
		lane.channel = ibv_create_comp_channel(dev);
	lane.cq = ibv_create_cq(dev, RECV_DEPTH + SEND_DEPTH + (int)idle, NULL, lane.channel, 0);
	if (!lane.pd || !lane.cq)
		pair_die("protection domain or completion queue");
	if (lane.channel && ibv_req_notify_cq(lane.cq, 0))
		pair_die("ibv_req_notify_cq");
}

struct ibv_qp_init_attr lane_attributes(bool measured)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.send_cq = lane.cq,
		.recv_cq = lane.cq,
		.cap = {.max_send_wr = measured ? SEND_DEPTH : 16,
			.max_recv_wr = measured ? RECV_DEPTH : 16,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_MAX},
	};
}

static void create_qp(struct rdma_cm_id *id, bool measured)
{
	struct ibv_qp_init_attr attr;

	lane_use(id->verbs);
	attr = lane_attributes(measured);
	if (rdma_create_qp(id, lane.pd, &attr))
		pair_die("rdma_create_qp");
}

static struct rdma_conn_param parameters(char *flag)
{
	struct rdma_conn_param p = {
		.private_data = flag,
		.private_data_len = 1,
		.responder_resources = (uint8_t)lane.reads,
		.initiator_depth = (uint8_t)lane.reads,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	return p;
}

static struct rdma_cm_id *connect_one(char flag, bool measured)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(lane.port)};
	struct rdma_conn_param p;
	struct rdma_cm_id *id;

	inet_pton(AF_INET, options.address, &to.sin_addr);
	if (rdma_create_id(lane.events, &id, NULL, RDMA_PS_TCP))
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

struct rdma_cm_id *lane_connect(char flag)
{
	return connect_one(flag, false);
}

struct rdma_cm_id *lane_accept(char *flag)
{
	return accept_one(flag, false);
}

void lane_disconnect(struct rdma_cm_id *id)
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
	if (rdma_create_id(lane.events, &lane.listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(lane.listener, (struct sockaddr *)&sa) ||
	    rdma_listen(lane.listener, 128))
		pair_die("listen on %s", options.address);
	lane.port = ntohs(rdma_get_src_port(lane.listener));
}

/* Each connection may need a descriptor. */
static void raise_descriptor_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}

/*
 * The measured connection is in the middle, so that a linear search among all connections would
 * show.
 */
static void connect_all(void)
{
	size_t n = options.idle + 1, measured = options.idle / 2;
	char flag = 0;

	lane.ids = calloc(n, sizeof(struct rdma_cm_id *));
	for (size_t i = 0; i < n; i++) {
		if (pair_is_server)
			lane.ids[i] = accept_one(&flag, i == measured);
		else
			lane.ids[i] = connect_one(flag, i == measured);
	}
	lane.qp = lane.ids[measured]->qp;
}

static void register_memory(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	size_t half = options.list * options.size;
	size_t len = 2 * half;

	lane.in = half;
	lane.receives = len;
	if (options.size <= INLINE_MAX)
		len += RECV_DEPTH * options.size;
	lane.data = pair_memory(len);
	lane.words = pair_memory(sizeof(*lane.words));
	lane.data_mr = ibv_reg_mr(lane.pd, lane.data, len, access);
	lane.words_mr = ibv_reg_mr(lane.pd, (void *)lane.words, sizeof(*lane.words), access);
	if (!lane.data_mr || !lane.words_mr)
		pair_die("ibv_reg_mr");
}

static void exchange_addresses(void)
{
	struct lane_remote mine = {.data = (uintptr_t)lane.data,
				   .words = (uintptr_t)lane.words,
				   .data_key = lane.data_mr->rkey,
				   .words_key = lane.words_mr->rkey};

	pair_tell(&mine, sizeof(mine));
	pair_hear(&lane.remote, sizeof(lane.remote));
}

static void open_by_cm(void)
{
	lane.events = rdma_create_event_channel();
	if (!lane.events)
		pair_die("rdma_create_event_channel");
	if (pair_is_server) {
		listen_here();
		pair_tell(&lane.port, sizeof(lane.port));
	} else {
		pair_hear(&lane.port, sizeof(lane.port));
	}
	connect_all();
}

void lane_open(void)
{
	raise_descriptor_limit();
	if (options.device)
		number_open();
	else
		open_by_cm();
	register_memory();
	exchange_addresses();
}
