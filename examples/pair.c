// SPDX-License-Identifier: BSD-2-Clause
/*
 * pair.c - two connected processes that exchange short messages.
 *
 * The connection manager (rdma_...) works with IP addresses and ports, as
 * sockets do. A message can arrive only if the receiver has posted a buffer for
 * it: so both sides post theirs before they connect, and a new one as soon as a
 * message has arrived. All memory that the adapter uses is registered first.
 */
#include "pair.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_verbs.h>

enum { IN, OUT };

void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Makes an id with its own queue pair, or a listening one if host is NULL. */
static struct rdma_cm_id *make_id(const char *host, const char *port)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
				      .ai_flags = host ? 0 : RAI_PASSIVE};
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = PAIR_DEPTH,
			.max_recv_wr = 4,
			.max_send_sge = PAIR_SEGMENTS,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_addrinfo *where;
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo(host, port, &hints, &where))
		die("rdma_getaddrinfo");
	if (rdma_create_ep(&id, where, NULL, &attr))
		die("rdma_create_ep");
	rdma_freeaddrinfo(where);
	return id;
}

static struct rdma_cm_id *wait_for_client(struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id;

	if (rdma_listen(listener, 1))
		die("rdma_listen");
	printf("listening on port %u\n", ntohs(rdma_get_src_port(listener)));
	fflush(stdout);
	if (rdma_get_request(listener, &id))
		die("rdma_get_request");
	return id;
}

static void check_completion(int got, const struct ibv_wc *wc)
{
	if (got < 0)
		die("waiting for a completion");
	if (wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "failed: %s\n", ibv_wc_status_str(wc->status));
		exit(1);
	}
}

static void post_receive(struct pair *p)
{
	if (rdma_post_recv(p->id, NULL, p->buffer[IN], PAIR_MESSAGE, p->mr))
		die("rdma_post_recv");
}

void pair_open(struct pair *p, int argc, char **argv)
{
	/* Reads and atomics that each side may have in flight. */
	struct rdma_conn_param depth = {.responder_resources = 16, .initiator_depth = 16};

	p->server = argc == 2 && !strcmp(argv[1], "server");
	if (!p->server && (argc != 4 || strcmp(argv[1], "client"))) {
		fprintf(stderr, "usage: %s server | client HOST PORT\n", argv[0]);
		exit(2);
	}
	p->listener = p->server ? make_id(NULL, "0") : NULL;
	p->id = p->server ? wait_for_client(p->listener) : make_id(argv[2], argv[3]);
	p->mr = rdma_reg_msgs(p->id, p->buffer, sizeof(p->buffer));
	if (!p->mr)
		die("rdma_reg_msgs");
	post_receive(p);
	if (p->server ? rdma_accept(p->id, &depth) : rdma_connect(p->id, &depth))
		die("connecting");
}

void pair_wait_sent(struct pair *p)
{
	struct ibv_wc wc;
	int got = rdma_get_send_comp(p->id, &wc);

	check_completion(got, &wc);
}

void pair_tell(struct pair *p, const void *message, size_t len)
{
	memcpy(p->buffer[OUT], message, len);
	if (rdma_post_send(p->id, NULL, p->buffer[OUT], len, p->mr, IBV_SEND_SIGNALED))
		die("rdma_post_send");
	pair_wait_sent(p);
}

void pair_hear(struct pair *p, void *message, size_t len)
{
	struct ibv_wc wc;
	int got = rdma_get_recv_comp(p->id, &wc);

	check_completion(got, &wc);
	memcpy(message, p->buffer[IN], len);
	post_receive(p);
}

void pair_close(struct pair *p)
{
	rdma_disconnect(p->id);
	rdma_dereg_mr(p->mr);
	rdma_destroy_ep(p->id);
	if (p->listener)
		rdma_destroy_ep(p->listener); /* after the data that was received in it */
}
