/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stranger.h - connections of somebody who is not a client of ours, made of plain sockets: silent ones, pieces of
 * Requests, greetings of a pool. They cost their maker next to nothing, so that one process can have thousands.
 *
 * Of the attackers (flood.c) and of bench/idle. Functions return -errno, and print nothing.
 */
#ifndef STAG_TEST_STRANGER_H
#define STAG_TEST_STRANGER_H

#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>

/* Where connections go, and where they seem to come from. */
struct stranger_way {
	struct sockaddr_in to;
	struct sockaddr_in from; /* family 0: any source address */
};

/* from: NULL, or an address of this machine; every address of 127.0.0.0/8 is one. */
int stranger_way(struct stranger_way *way, const char *host, uint16_t port, const char *from);

/* Connects. Returns a descriptor, which blocks, for 20 s at most. */
int stranger_dial(const struct stranger_way *way);
void stranger_reset(int fd); /* closes with a RST, so that the port is free at once */
int stranger_send(int fd, const void *bytes, size_t length);
int stranger_take(int fd, void *bytes, size_t length); /* all of it, or -errno */

#define STRANGER_FRAME 512u

/* Builds an MPA Request with this private data. Returns its length. */
size_t stranger_request(const void *private_data, size_t length, uint8_t frame[STRANGER_FRAME]);
/* Receives the Reply. Returns 1 if it accepts, 0 if it rejects. *length: of the private data, in: the room. */
int stranger_reply(int fd, void *private_data, size_t *length);

/* Builds the Request of a pool's client that says hello. */
size_t stranger_hello(const char *user, uint8_t frame[STRANGER_FRAME]);
/*
 * Is admitted to a pool as this user, and sends nothing more. Returns a descriptor; -EACCES: refused, -EAGAIN:
 * refused for now.
 */
int stranger_join_pool(const struct stranger_way *way, const char *user, const char *secret);
/* Likewise as a node of the pool. */
int stranger_join_pool_as_node(const struct stranger_way *way, const char *node,
			       const char *secret);

/* Raises the limit of descriptors to the hard one. Returns the limit. */
unsigned long stranger_raise_limit(void);

#endif
