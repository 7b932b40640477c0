// SPDX-License-Identifier: BSD-2-Clause
/* listen.c - a node's listener: admits or refuses connection requests (admit.h). */
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

	n->adapter.events = rdma_create_event_channel();
	if (!n->adapter.events)
		return -errno;
	if (set_nonblocking(n->adapter.events->fd) != 0 ||
	    rdma_create_id(n->adapter.events, &n->adapter.listener, NULL, RDMA_PS_TCP) != 0)
		return -errno;
	rc = listen_at(n, address, port);
	if (rc != 0)
		node_log(n, LOG_LEVEL_ERR, "cannot listen on port %u: %s", port, strerror(-rc));
	return rc;
}

/* Returns the address without its port. */
static size_t bare_address(struct rdma_cm_id *id, const void **at)
{
	struct sockaddr *peer = rdma_get_peer_addr(id);

	if (peer->sa_family == AF_INET6) {
		*at = &((struct sockaddr_in6 *)peer)->sin6_addr;
		return sizeof(struct in6_addr);
	}
	*at = &((struct sockaddr_in *)peer)->sin_addr;
	return sizeof(struct in_addr);
}

static bool is_primary(const struct role *r)
{
	return r->state == ROLE_PRIMARY || r->state == ROLE_HANDING;
}

/* Returns what a challenge says about the primary. */
static struct admit_place admit_place_of(const struct stag_pool_node *n)
{
	const struct role *r = &n->role;
	struct admit_place p = {.epoch = r->epoch};

	if (r->revision && !is_primary(r) && (int)r->roll.primary != r->seat)
		p.primary = r->roll.members[r->roll.primary].address;
	return p;
}

static void reject_request(struct rdma_cm_id *id)
{
	struct admit_head head = {{'S', 't', 'g', 'P'}, 1, ADMIT_REFUSAL, 0, 1};

	rdma_reject(id, &head, sizeof(head));
}

/* Returns true if a connection owns the id from now on. */
static bool admit_connection(struct stag_pool_node *n, struct rdma_cm_id *id,
			     const struct rdma_conn_param *asked)
{
	uint8_t reply[ADMIT_MAX];
	struct admit_session session;
	struct admit_place where = admit_place_of(n);
	const void *address;
	size_t address_len = bare_address(id, &address), len;
	int rc = -EAGAIN;

	if (!n->admit ||
	    id->verbs !=
		    n->adapter
			    .context) { /* through another adapter, which does not have the region */
		reject_request(id);
		return false;
	}
	if (admit_judge(n->admit, n->now, address, address_len, &where, asked->private_data,
			asked->private_data_len, reply, &len, &session) == ADMIT_NO) {
		n->info.refused++;
		rdma_reject(id, reply, (uint8_t)len);
		return false;
	}
	if (n->serve.running)
		rc = session.as == ADMIT_NODE ? link_accept(n, id, &session)
					      : serve_accept(n, id, &session);
	if (rc != 0)
		reject_request(id);
	return rc == 0;
}

/* Accepts or rejects every request at once, so that no peer is left waiting. */
static void handle_request(struct stag_pool_node *n, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	bool kept = admit_connection(n, id, &event->param.conn);

	rdma_ack_cm_event(event);
	if (!kept)
		rdma_destroy_id(id);
}

void listen_events(struct stag_pool_node *n)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(n->adapter.events, &event) == 0) {
		struct node_conn *c = event->id->context;

		n->loop.busy = true;
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			handle_request(n, event);
			continue;
		}
		if (c && !c->over)
			c->ops->event(c, event);
		rdma_ack_cm_event(event);
	}
}
