// SPDX-License-Identifier: BSD-2-Clause
/*
 * 02-ping - two processes, one message each way.
 *
 *     cc 02-ping.c -libverbs -lrdmacm -o 02-ping
 *     stag run -- ./02-ping server                     says which port it listens on
 *     stag run -- ./02-ping client 127.0.0.1 PORT
 *
 * The connection manager (rdma_...) works with IP addresses and ports, as
 * sockets do. A message goes only where the receiver has posted a buffer for
 * it: so both sides post theirs before there is a connection.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

static char in[16], out[16];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* An id with a queue pair of its own; a listening one if there is no host. */
static struct rdma_cm_id *make_id(const char *host, const char *port)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
				      .ai_flags = host ? 0 : RAI_PASSIVE};
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
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

static void wait_for(int (*get)(struct rdma_cm_id *, struct ibv_wc *), struct rdma_cm_id *id)
{
	struct ibv_wc wc;

	if (get(id, &wc) < 0)
		die("waiting for a completion");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "failed: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void say(struct rdma_cm_id *id, struct ibv_mr *mr, const char *word)
{
	strcpy(out, word);
	if (rdma_post_send(id, NULL, out, sizeof(out), mr, IBV_SEND_SIGNALED))
		die("rdma_post_send");
	wait_for(rdma_get_send_comp, id);
}

static void hear(struct rdma_cm_id *id, const char *expected)
{
	wait_for(rdma_get_recv_comp, id);
	printf("heard '%s'\n", in);
	if (strcmp(in, expected))
		exit(1);
}

int main(int argc, char **argv)
{
	int server = argc == 2 && !strcmp(argv[1], "server");
	struct rdma_cm_id *first, *id;
	struct ibv_mr *in_mr, *out_mr;

	if (!server && (argc != 4 || strcmp(argv[1], "client"))) {
		fprintf(stderr, "usage: %s server | client HOST PORT\n", argv[0]);
		return 2;
	}
	first = server ? make_id(NULL, "0") : make_id(argv[2], argv[3]);
	id = server ? wait_for_client(first) : first;
	in_mr = rdma_reg_msgs(id, in, sizeof(in));
	out_mr = rdma_reg_msgs(id, out, sizeof(out));
	if (!in_mr || !out_mr || rdma_post_recv(id, NULL, in, sizeof(in), in_mr))
		die("preparing the buffers");
	if (server ? rdma_accept(id, NULL) : rdma_connect(id, NULL))
		die("connecting");

	if (server) {
		hear(id, "ping");
		say(id, out_mr, "pong");
	} else {
		say(id, out_mr, "ping");
		hear(id, "pong");
	}

	rdma_disconnect(id);
	rdma_dereg_mr(in_mr);
	rdma_dereg_mr(out_mr);
	rdma_destroy_ep(id);
	if (id != first)
		rdma_destroy_ep(first); /* a listener goes after what came from it */
	return 0;
}
