// SPDX-License-Identifier: BSD-2-Clause
/* source.c - see source.h. */
#include "base/source.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#define PREFIX_BYTES 8 /* /64 */

/* Returns the length of the address without its brackets, port, interface and process; *host is its begin. */
static size_t host_length(const char *from, const char **host)
{
	const char *end = strstr(from, " pid "), *colon = strchr(from, ':');

	*host = from + (*from == '[');
	if (end)
		return (size_t)(end - *host);
	if (*from == '[' || (colon && strchr(colon + 1, ':')))
		return strcspn(*host, "]%");
	return strcspn(*host, ":");
}

size_t source_of_address(const struct sockaddr *address, const void **at)
{
	const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;

	if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six)) {
		*at = &six->s6_addr[12];
		return sizeof(struct in_addr);
	}
	if (address->sa_family == AF_INET6) {
		*at = six;
		return PREFIX_BYTES;
	}
	*at = &((const struct sockaddr_in *)address)->sin_addr;
	return sizeof(struct in_addr);
}

size_t source_of_text(const char *from, uint8_t source[SOURCE_ROOM])
{
	const char *host;
	size_t len = host_length(from, &host);
	struct in6_addr six;
	char text[SOURCE_ROOM];

	if (len > SOURCE_ROOM - 1)
		len = SOURCE_ROOM - 1;
	memcpy(text, host, len);
	text[len] = '\0';
	if (inet_pton(AF_INET, text, source) == 1)
		return sizeof(struct in_addr);
	if (inet_pton(AF_INET6, text, &six) == 1 && IN6_IS_ADDR_V4MAPPED(&six)) {
		memcpy(source, &six.s6_addr[12], sizeof(struct in_addr));
		return sizeof(struct in_addr);
	}
	if (inet_pton(AF_INET6, text, &six) == 1) {
		memcpy(source, &six, PREFIX_BYTES);
		return PREFIX_BYTES;
	}
	memcpy(source, text, len);
	return len;
}
