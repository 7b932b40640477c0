// SPDX-License-Identifier: BSD-2-Clause
/*
 * where.c - addresses of nodes: "HOST[:PORT]", an IPv6 address in brackets.
 */
#include "pool/client/client.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

/* Splits host and port (NULL: no port). Returns false if the text is invalid. */
static bool split_address(char *text, char **host, const char **port)
{
	char *end = text[0] == '[' ? strchr(text, ']') : strchr(text, ':');

	*host = text;
	*port = NULL;
	if (text[0] == '[') {
		if (!end || (end[1] != 0 && end[1] != ':'))
			return false;
		*host = text + 1;
		*end++ = 0;
	}
	if (end && *end == ':') {
		*end = 0;
		*port = end + 1;
	}
	return **host != 0 && (!*port || (**port != 0 && !strchr(*port, ':')));
}

static int look_up(const char *host, const char *port, struct sockaddr_storage *to)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
	int rc = getaddrinfo(host, port, &hints, &list);

	if (rc != 0)
		return pool_fail(EHOSTUNREACH, "%s: %s", host, gai_strerror(rc));
	memset(to, 0, sizeof(*to));
	memcpy(to, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return 0;
}

static int resolve_peer(const char *address, struct sockaddr_storage *to)
{
	char text[ROLL_ADDRESS_LEN], usual[8], *host;
	const char *port;

	snprintf(text, sizeof(text), "%s", address);
	snprintf(usual, sizeof(usual), "%u", STAG_POOL_PORT);
	if (!split_address(text, &host, &port))
		return pool_fail(EINVAL, "'%s' is not HOST[:PORT]", address);
	return look_up(host, port ? port : usual, to);
}

static struct client_peer *find_peer(struct stag_pool *p, const struct sockaddr_storage *at)
{
	for (unsigned int i = 0; i < p->nodes.num_peers; i++)
		if (memcmp(&p->nodes.peers[i].sockaddr, at, sizeof(*at)) == 0)
			return &p->nodes.peers[i];
	return NULL;
}

/* Returns the address, of those that the program did not name, that was silent for the longest time. */
static struct client_peer *find_spare_peer(struct stag_pool *p)
{
	struct client_peer *oldest = NULL;

	for (unsigned int i = 0; i < p->nodes.num_peers; i++) {
		struct client_peer *peer = &p->nodes.peers[i];

		if (!peer->given && peer->stage == CALL_NONE && p->link.peer != peer &&
		    (!oldest || peer->answered < oldest->answered))
			oldest = peer;
	}
	return oldest;
}

struct client_peer *where_add(struct stag_pool *p, const char *address)
{
	struct sockaddr_storage at;
	struct client_peer *peer;

	for (unsigned int i = 0; i < p->nodes.num_peers; i++)
		if (strcmp(p->nodes.peers[i].address, address) == 0)
			return &p->nodes.peers[i];
	if (strlen(address) >= ROLL_ADDRESS_LEN || resolve_peer(address, &at) != 0)
		return NULL;
	peer = find_peer(p, &at);
	if (peer)
		return peer;
	peer = p->nodes.num_peers < CLIENT_PEERS ? &p->nodes.peers[p->nodes.num_peers++]
						 : find_spare_peer(p);
	if (!peer)
		return NULL;
	*peer = (struct client_peer){.sockaddr = at};
	strcpy(peer->address, address);
	return peer;
}

static int add_given(struct stag_pool *p, const char *text, size_t length)
{
	char address[ROLL_ADDRESS_LEN];
	struct client_peer *peer;

	if (length == 0 || length >= sizeof(address))
		return pool_fail(EINVAL, "'%.*s' is not HOST[:PORT]",
				 (int)(length < 256 ? length : 256), text);
	memcpy(address, text, length);
	address[length] = 0;
	peer = where_add(p, address);
	if (peer)
		peer->given = true;
	return peer ? 0 : -EHOSTUNREACH;
}

int where_add_list(struct stag_pool *p, const char *where)
{
	int rc = pool_fail(EINVAL, "no address given: HOST[:PORT]"), one;

	for (const char *end; where && *where; where = *end ? end + 1 : end) {
		end = strchrnul(where, ',');
		one = add_given(p, where, (size_t)(end - where));
		if (one == -EINVAL)
			return one;
		if (rc != 0)
			rc = one; /* one valid address is enough */
	}
	return rc;
}
