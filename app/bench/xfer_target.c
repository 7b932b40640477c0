// SPDX-License-Identifier: BSD-2-Clause
/*
 * xfer_target.c - the target of a benchmark: lends memory to clients that connect.
 *
 * Everything is one-sided. While a client is connected that requested it, this program polls its
 * completion queue, which stays empty: polling drives a software adapter.
 */
#include "part.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "stag.h"

#define POLLS	  1024	       /* polls between two checks for connection events */
#define MAX_BYTES (8ull << 30) /* bytes that a client may request */

static struct {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned int connected, polling; /* of these, clients that requested polling */
} target;

static void open_device(struct ibv_context *verbs)
{
	if (target.pd)
		return;
	target.pd = ibv_alloc_pd(verbs);
	target.cq = ibv_create_cq(verbs, 16, NULL, NULL, 0);
	if (!target.pd || !target.cq)
		bench_die("cannot use %s: %s", ibv_get_device_name(verbs->device), strerror(errno));
}

/* The old memory is unused: all connections of a client request the same size. */
static int lend_memory(size_t bytes)
{
	uint64_t *words;

	if (target.mr && target.mr->length == bytes)
		return 0;
	if (target.connected || !bytes || bytes > MAX_BYTES)
		return -EINVAL;
	if (target.mr) {
		void *old = target.mr->addr;
		size_t length = target.mr->length;

		if (ibv_dereg_mr(target.mr))
			return -errno;
		munmap(old, length);
	}
	words = bench_memory(bytes);
	for (size_t i = 0; i < bytes / 8; i++)
		words[i] = bench_pattern(8 * i);
	target.mr = ibv_reg_mr(
		target.pd, words, bytes,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!target.mr)
		bench_die("cannot register %zu MiB: %s", bytes >> 20, strerror(errno));
	return 0;
}

static int read_hello(const struct rdma_conn_param *p, struct bench_hello *hello)
{
	if (p->private_data_len < sizeof(*hello))
		return -EPROTO;
	memcpy(hello, p->private_data, sizeof(*hello));
	return be32toh(hello->magic) == BENCH_MAGIC ? 0 : -EPROTO;
}

static void make_welcome(struct rdma_cm_id *id, const struct bench_hello *hello,
			 const struct rdma_conn_param *asked)
{
	struct bench_welcome w = {.magic = htobe32(BENCH_MAGIC),
				  .rkey = htobe32(target.mr->rkey),
				  .addr = htobe64((uintptr_t)target.mr->addr)};
	struct rdma_conn_param p = {.private_data = &w,
				    .private_data_len = sizeof(w),
				    .responder_resources = asked->initiator_depth,
				    .initiator_depth = asked->responder_resources,
				    .rnr_retry_count = 7};
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = target.cq,
		.recv_cq = target.cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	bool polls = be32toh(hello->flags) & BENCH_POLL;

	if (rdma_create_qp(id, target.pd, &attr) || rdma_accept(id, &p)) {
		complain("cannot accept: %s", strerror(errno));
		rdma_reject(id, NULL, 0);
		return;
	}
	id->context = polls ? &target : NULL;
	target.connected++;
	target.polling += polls;
}

static void answer_request(struct rdma_cm_event *ev)
{
	struct bench_hello hello;

	open_device(ev->id->verbs);
	if (read_hello(&ev->param.conn, &hello) || lend_memory(be64toh(hello.bytes)))
		rdma_reject(ev->id, NULL, 0);
	else
		make_welcome(ev->id, &hello, &ev->param.conn);
}

static void disconnect_client(struct rdma_cm_id *id)
{
	target.connected--;
	target.polling -= id->context != NULL;
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

static void handle_event(void)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *gone = NULL;

	if (rdma_get_cm_event(target.events, &ev))
		bench_die("connection events: %s", strerror(errno));
	if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		answer_request(ev);
	else if (ev->event == RDMA_CM_EVENT_DISCONNECTED ||
		 ev->event == RDMA_CM_EVENT_CONNECT_ERROR)
		gone = ev->id;
	rdma_ack_cm_event(ev);
	if (gone)
		disconnect_client(gone);
}

static void poll_completions(void)
{
	struct ibv_wc wc[4];

	for (int i = 0; target.polling && i < POLLS; i++)
		ibv_poll_cq(target.cq, 4, wc);
}

static void listen_at(const struct bench_options *o)
{
	struct sockaddr_storage at;
	char text[80];

	bench_resolve(o->listen, BENCH_PORT, &at);
	target.events = rdma_create_event_channel();
	if (!target.events || rdma_create_id(target.events, &target.listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(target.listener, (struct sockaddr *)&at) ||
	    rdma_listen(target.listener, 8))
		bench_die("cannot listen on %s: %s", o->listen, strerror(errno));
	bench_print_address(rdma_get_local_addr(target.listener), text, sizeof(text));
	printf("listening on %s\n", text);
	fflush(stdout);
}

int bench_serve(const struct bench_options *o)
{
	struct pollfd fd;

	listen_at(o);
	fd = (struct pollfd){target.events->fd, POLLIN, 0};
	for (;;) {
		poll_completions();
		if (poll(&fd, 1, target.polling ? 0 : -1) > 0)
			handle_event();
	}
}
