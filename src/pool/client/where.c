// SPDX-License-Identifier: BSD-2-Clause
/*
 * where.c - addresses of nodes: "HOST[:PORT]", an IPv6 address in brackets.
 */
#include "pool/client/client.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

/* Where the host ends, and the port begins (NULL: there is none). false: neither. */
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

static int resolve_seat(const char *address, struct sockaddr_storage *to)
{
	char text[ROLL_ADDRESS_LEN], usual[8], *host;
	const char *port;

	snprintf(text, sizeof(text), "%s", address);
	snprintf(usual, sizeof(usual), "%u", STAG_POOL_PORT);
	if (!split_address(text, &host, &port))
		return pool_fail(EINVAL, "'%s' is no HOST[:PORT]", address);
	return look_up(host, port ? port : usual, to);
}

static struct seat *find_seat(struct stag_pool *p, const struct sockaddr_storage *at)
{
	for (unsigned int i = 0; i < p->nodes.num_seats; i++)
		if (memcmp(&p->nodes.seats[i].sockaddr, at, sizeof(*at)) == 0)
			return &p->nodes.seats[i];
	return NULL;
}

/* Of one that the program did not name, and that was silent for the longest time. */
static struct seat *find_spare_seat(struct stag_pool *p)
{
	struct seat *oldest = NULL;

	for (unsigned int i = 0; i < p->nodes.num_seats; i++) {
		struct seat *seat = &p->nodes.seats[i];

		if (!seat->given && seat->stage == CALL_NONE && p->link.seat != seat &&
		    (!oldest || seat->answered < oldest->answered))
			oldest = seat;
	}
	return oldest;
}

struct seat *where_add(struct stag_pool *p, const char *address)
{
	struct sockaddr_storage at;
	struct seat *seat;

	for (unsigned int i = 0; i < p->nodes.num_seats; i++)
		if (strcmp(p->nodes.seats[i].address, address) == 0)
			return &p->nodes.seats[i];
	if (strlen(address) >= ROLL_ADDRESS_LEN || resolve_seat(address, &at) != 0)
		return NULL;
	seat = find_seat(p, &at);
	if (seat)
		return seat;
	seat = p->nodes.num_seats < CLIENT_SEATS ? &p->nodes.seats[p->nodes.num_seats++]
						 : find_spare_seat(p);
	if (!seat)
		return NULL;
	*seat = (struct seat){.sockaddr = at};
	strcpy(seat->address, address);
	return seat;
}

static int add_given(struct stag_pool *p, const char *text, size_t length)
{
	char address[ROLL_ADDRESS_LEN];
	struct seat *seat;

	if (length == 0 || length >= sizeof(address))
		return pool_fail(EINVAL, "'%.*s' is no HOST[:PORT]",
				 (int)(length < 256 ? length : 256), text);
	memcpy(address, text, length);
	address[length] = 0;
	seat = where_add(p, address);
	if (seat)
		seat->given = true;
	return seat ? 0 : -EHOSTUNREACH;
}

int where_add_list(struct stag_pool *p, const char *where)
{
	int rc = pool_fail(EINVAL, "where is the pool? HOST[:PORT]"), one;

	for (const char *end; where && *where; where = *end ? end + 1 : end) {
		end = strchrnul(where, ',');
		one = add_given(p, where, (size_t)(end - where));
		if (one == -EINVAL)
			return one;
		if (rc != 0)
			rc = one; /* one that is known is enough */
	}
	return rc;
}
