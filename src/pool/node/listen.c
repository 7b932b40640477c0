// SPDX-License-Identifier: BSD-2-Clause
/* listen.c - a node's listener, whose requests are the door's (door.c), and events of its connections. */
#include "pool/node/node.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/nonblock.h"
#include "pool/admit/tls.h"

#define BACKLOG                                                                                    \
	4096 /* all clients reconnect at once after a failover; a request that is lost is repeated only a second later */

/* Parses HOST, HOST:PORT or [IPv6]:PORT. */
int listen_address(const char *host_port, uint16_t port, int flags, struct sockaddr_storage *to)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *found;
	char host[ROLL_ADDRESS_LEN], service[8];
	const char *colon = strrchr(host_port, ':'), *end = host_port + strlen(host_port);
	bool bracket = host_port[0] == '[';

	snprintf(service, sizeof(service), "%u", port);
	if (colon && (bracket ? colon[-1] == ']' : strchr(host_port, ':') == colon)) {
		snprintf(service, sizeof(service), "%s", colon + 1);
		end = colon;
	}
	snprintf(host, sizeof(host), "%.*s", (int)(end - host_port) - 2 * bracket,
		 host_port + bracket);
	if (getaddrinfo(host, service, &hints, &found) != 0)
		return -EHOSTUNREACH;
	memcpy(to, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return 0;
}

static int listen_at(struct stag_pool_node *n, const char *address, uint16_t port)
{
	struct sockaddr_storage at = {.ss_family = AF_INET};
	int rc = 0;

	((struct sockaddr_in *)&at)->sin_port = htons(port);
	if (address)
		rc = listen_address(address, port, 0, &at);
	if (rc != 0)
		return rc;
	if (rdma_bind_addr(n->adapter.listener, (struct sockaddr *)&at) != 0 ||
	    rdma_listen(n->adapter.listener, BACKLOG) != 0)
		return -errno;
	return 0;
}

int listen_open(struct stag_pool_node *n, const char *address, uint16_t port)
{
	int rc;

	rc = door_open(n);
	if (rc != 0)
		return rc;
	n->adapter.events = rdma_create_event_channel();
	if (!n->adapter.events)
		return -errno;
	if (set_nonblocking(n->adapter.events->fd) != 0 ||
	    rdma_create_id(n->door.events, &n->adapter.listener, NULL, RDMA_PS_TCP) != 0)
		return -errno;
	rc = pool_tls_set(n->adapter.listener, n->tls.listener, n->conf.tls);
	if (rc == 0)
		rc = listen_at(n, address, port);
	if (rc != 0)
		node_log(n, LOG_LEVEL_ERR, "cannot listen on port %u: %s", port, strerror(-rc));
	return rc;
}

/* Writes HOST:PORT of the peer, an IPv6 host in brackets. */
void listen_describe_peer(struct rdma_cm_id *id, char *to, size_t room)
{
	const struct sockaddr *peer = rdma_get_peer_addr(id);
	bool is_6 = peer->sa_family == AF_INET6;
	char host[INET6_ADDRSTRLEN], port[8];

	if (getnameinfo(peer, is_6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in), host,
			sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		snprintf(to, room, "an unknown address");
	else
		snprintf(to, room, is_6 ? "[%s]:%s" : "%s:%s", host, port);
}

void listen_events(struct stag_pool_node *n)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(n->adapter.events, &event) == 0) {
		struct node_conn *c = event->id->context;

		n->loop.busy = true;
		if (c && !c->over)
			c->ops->event(c, event);
		rdma_ack_cm_event(event);
	}
}
