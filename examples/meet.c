// SPDX-License-Identifier: BSD-2-Clause
/*
 * meet.c - two processes that tell each other over a socket where their queue pairs are.
 *
 * Any way to carry a few bytes would do: a file, a key-value store, or MPI's own
 * launcher. A socket is the usual one, since its addresses also tell which of the
 * device's GIDs the peer can reach.
 */
#include "meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void die(const char *what)
{
	perror(what);
	exit(1);
}

static int wait_for_client(void)
{
	struct sockaddr_in6 here = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
	socklen_t len = sizeof(here);
	int listener = socket(AF_INET6, SOCK_STREAM, 0);
	int sock;

	if (listener < 0 || bind(listener, (struct sockaddr *)&here, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&here, &len))
		die("listen");
	printf("listening on port %u\n", ntohs(here.sin6_port));
	fflush(stdout);
	sock = accept(listener, NULL, NULL);
	if (sock < 0)
		die("accept");
	close(listener);
	return sock;
}

static int connect_to(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *where;
	int sock;

	if (getaddrinfo(host, port, &hints, &where))
		die(host);
	sock = socket(where->ai_family, SOCK_STREAM, 0);
	if (sock < 0 || connect(sock, where->ai_addr, where->ai_addrlen))
		die(host);
	freeaddrinfo(where);
	return sock;
}

/* Opens the first device whose queue pairs are connected by number and GID. */
static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list && list[i] && !context; i++)
		if (list[i]->transport_type == IBV_TRANSPORT_IB)
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (!context) {
		fprintf(stderr, "no InfiniBand or RoCE device; try: stag run --device roce\n");
		exit(1);
	}
	return context;
}

/* A RoCE device has a GID for each address of the machine: an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d. */
static union ibv_gid gid_of(int sock)
{
	struct sockaddr_storage here;
	socklen_t len = sizeof(here);
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	if (getsockname(sock, (struct sockaddr *)&here, &len))
		die("getsockname");
	if (here.ss_family == AF_INET)
		memcpy(gid.raw + 12, &((struct sockaddr_in *)&here)->sin_addr, 4);
	else
		memcpy(gid.raw, &((struct sockaddr_in6 *)&here)->sin6_addr, 16);
	return gid;
}

/* Finds the GID that the peer can reach. Loopback has none: a peer on this machine reaches any, so the first one will do. */
static void choose_gid(struct meeting *m)
{
	union ibv_gid wanted = gid_of(m->sock);
	struct ibv_port_attr port;

	if (ibv_query_port(m->context, 1, &port))
		die("ibv_query_port");
	for (int i = 0; i < port.gid_tbl_len; i++)
		if (!ibv_query_gid(m->context, 1, i, &m->gid) &&
		    !memcmp(&m->gid, &wanted, sizeof(wanted))) {
			m->gid_index = (uint8_t)i;
			return;
		}
	m->gid_index = 0;
	if (ibv_query_gid(m->context, 1, 0, &m->gid))
		die("ibv_query_gid");
}

void meet(struct meeting *m, int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "server") == 0) {
		m->server = true;
		m->sock = wait_for_client();
	} else if (argc == 4 && strcmp(argv[1], "client") == 0) {
		m->server = false;
		m->sock = connect_to(argv[2], argv[3]);
	} else {
		fprintf(stderr, "usage: %s server | client HOST PORT\n", argv[0]);
		exit(2);
	}
	m->context = open_device();
	choose_gid(m);
}

void meet_exchange(struct meeting *m, const void *mine, void *theirs, size_t size)
{
	if (send(m->sock, mine, size, MSG_NOSIGNAL) != (ssize_t)size ||
	    recv(m->sock, theirs, size, MSG_WAITALL) != (ssize_t)size)
		die("the peer");
}

void meet_end(struct meeting *m)
{
	ibv_close_device(m->context);
	close(m->sock);
}

bool meet_peer_waits(struct meeting *m)
{
	struct pollfd sock = {m->sock, POLLIN, 0};

	return poll(&sock, 1, 0) == 1;
}

bool meet_try(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(cq, 1, wc);

	if (n < 0)
		die("ibv_poll_cq");
	if (n && wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "a work request failed: %s\n", ibv_wc_status_str(wc->status));
		exit(1);
	}
	return n > 0;
}

struct ibv_wc meet_wait(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (!meet_try(cq, &wc))
		;
	return wc;
}
