// SPDX-License-Identifier: BSD-2-Clause
/*
 * port.c - whether the ports of new services are free, before the first of them formats or creates anything.
 *
 * A service listens with librdmacm, so its port is tried with that: a device of its own has ports of its own.
 */
#include "daemon_own.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_cma.h>

/* Binds the address and releases it again. Returns 0 or an errno value. */
static int try_address(struct sockaddr *address)
{
	struct rdma_cm_id *id;
	int rc;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) != 0)
		return errno;
	rc = rdma_bind_addr(id, address) == 0 ? 0 : errno;
	rdma_destroy_id(id);
	return rc;
}

/* Without an address, a pool listens on all of IPv4, others on all of IPv6 and IPv4 if the machine has both. */
static int try_all(uint16_t port, bool is_pool)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
	int rc = is_pool ? EAFNOSUPPORT : try_address((struct sockaddr *)&six);

	return rc == 0 || rc == EADDRINUSE ? rc : try_address((struct sockaddr *)&four);
}

static bool is_taken(const char *address, uint16_t port, bool is_pool)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICSERV | AI_PASSIVE},
			*list;
	char word[8];
	int rc;

	if (!address)
		return try_all(port, is_pool) == EADDRINUSE;
	snprintf(word, sizeof(word), "%u", port);
	if (getaddrinfo(address, word, &hints, &list) != 0)
		return false; /* the service says more about this error */
	rc = try_address(list->ai_addr);
	freeaddrinfo(list);
	return rc == EADDRINUSE;
}

int port_check(const struct conf_section *s, char *why, size_t size)
{
	const char *address;
	uint16_t port;

	if (!conf_listen_port(s, &port, &address) ||
	    !is_taken(address, port, s->kind == &conf_pool_kind))
		return 0;
	return service_fails(s, conf_line_of(s, "port"), why, size, EADDRINUSE,
			     "cannot listen on port %u: %s; set another port in its section: port "
			     "= PORT",
			     port, strerror(EADDRINUSE));
}
