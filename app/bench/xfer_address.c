// SPDX-License-Identifier: BSD-2-Clause
/*
 * xfer_address.c - parses addresses, and finds the device by which they are reached.
 */
#include "part.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

/* Splits "HOST:PORT". Text with several colons and no brackets is a host without a port. */
static void split_address(char *text, char **host, char **port)
{
	char *colon = strrchr(text, ':');

	*host = text;
	*port = NULL;
	if (*text == '[') {
		char *end = strchr(text, ']');

		*host = text + 1;
		if (!end)
			return;
		*end = '\0';
		colon = end[1] == ':' ? end + 1 : NULL;
	} else if (colon && strchr(text, ':') != colon) {
		return;
	}
	if (colon) {
		*colon = '\0';
		*port = colon + 1;
	}
}

void bench_resolve(const char *text, uint16_t port, struct sockaddr_storage *out)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	char copy[256], standard[8], *host, *named;
	int err;

	snprintf(copy, sizeof(copy), "%s", text);
	snprintf(standard, sizeof(standard), "%u", port);
	split_address(copy, &host, &named);
	err = getaddrinfo(host, named ? named : standard, &hints, &found);
	if (err)
		bench_die("%s: %s", text, gai_strerror(err));
	memset(out, 0, sizeof(*out));
	memcpy(out, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
}

void bench_print_address(const struct sockaddr *addr, char *text, size_t size)
{
	socklen_t len = addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						    : sizeof(struct sockaddr_in);
	char host[64] = "?", port[8] = "?";

	getnameinfo(addr, len, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(text, size, addr->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static bool leads_to(const struct ifaddrs *a, const char *device)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	bool same = false;

	if (!channel)
		return false;
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0) {
		same = rdma_bind_addr(id, a->ifa_addr) == 0 && id->verbs &&
		       !strcmp(ibv_get_device_name(id->verbs->device), device);
		rdma_destroy_id(id);
	}
	rdma_destroy_event_channel(channel);
	return same;
}

void bench_address_of(const char *device, struct sockaddr_storage *out)
{
	struct ifaddrs *all, *a;

	if (getifaddrs(&all))
		bench_die("cannot list the addresses of this machine");
	for (a = all; a; a = a->ifa_next)
		if (a->ifa_addr && (a->ifa_flags & IFF_UP) && a->ifa_addr->sa_family == AF_INET &&
		    leads_to(a, device))
			break;
	if (!a)
		bench_die("%s has no address here; 'stag info' shows the devices", device);
	memset(out, 0, sizeof(*out));
	memcpy(out, a->ifa_addr, sizeof(struct sockaddr_in));
	freeifaddrs(all);
}
