/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gid.h - the GID table of roce0: the machine's addresses.
 *
 * Index 0 is never empty. Global IPv4 addresses come first, then global IPv6 addresses; link-local ones, and then
 * 127.0.0.1, only if there are no others. An address that goes leaves a hole: indices never move. Every address of the
 * machine can be a destination, whether it is in the table or not.
 *
 * When the table is found to have changed, contexts of roce0 get an IBV_EVENT_GID_CHANGE.
 */
#ifndef STAG_GID_H
#define STAG_GID_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>

#define GID_MIN_TABLE 16
#define GID_MAX_TABLE 256

struct ifaddrs;

struct gid_entry {
	union ibv_gid gid;
	uint32_t ifindex; /* 0: the entry is empty */
};

struct gid_table {
	struct gid_entry at[GID_MAX_TABLE];
	unsigned len;  /* entries that a program is told of; grows */
	unsigned used; /* filled ones, at most len */
};

/* gid_table.c: pure */

/* Brings a table up to date with the machine's addresses. */
void gid_table_update(struct gid_table *t, const struct ifaddrs *addrs);
/* Fills index 0 of a machine without any address, not even one of the loopback interface. */
void gid_table_add_last_resort(struct gid_table *t);
int gid_table_find(const struct gid_table *t, const union ibv_gid *gid); /* the index; or -1 */
bool gid_table_is_equal(const struct gid_table *a, const struct gid_table *b);
bool gid_is_v4(const union ibv_gid *gid);
bool gid_is_equal(const union ibv_gid *a, const union ibv_gid *b);
void gid_from_addr(const struct sockaddr *addr, union ibv_gid *out);
bool gid_from_ifaddr(const struct ifaddrs *a, union ibv_gid *gid); /* false: no address of IP */

/* gid.c */

/* The table of this machine; it is read again if it is older than a second. */
unsigned gid_table_len(void);
bool gid_get(unsigned index, struct gid_entry *out); /* false: empty, or beyond the table */
int gid_index(const union ibv_gid *gid);	     /* of the entry; or -1 */
/*
 * Returns an index for a path from an address of this machine: its own; or, if the table lacks it (127.0.0.1, ::1), one of its family
 * if there is any. -1: the address is not of this machine.
 */
int gid_index_from(const union ibv_gid *gid);
bool gid_is_local(const union ibv_gid *gid); /* is it an address of this machine? */
enum ibv_mtu gid_mtu(void);		     /* of the interface of index 0 */
void gid_refresh(void);			     /* reads the addresses again now */
void gid_after_fork(void);

/* gid_watch.c: reads the table when addresses change. start: under the engine lock; idempotent */

void gid_watch_start(void);
void gid_watch_stop(void);
void gid_watch_after_fork(void);

/* Converts to a socket address. ifindex: the scope of a link-local address. */
socklen_t gid_to_addr(const union ibv_gid *gid, uint32_t ifindex, uint16_t port,
		      struct sockaddr_storage *out);

#define GID_TEXT 48
const char *gid_text(const union ibv_gid *gid, char buf[GID_TEXT]);

#endif
