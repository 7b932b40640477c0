/* SPDX-License-Identifier: BSD-2-Clause */
/* trace_file.h - the pcapng file of a trace, and the IP headers of the packets in it. */
#ifndef STAG_TRACE_FILE_H
#define STAG_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

/* ---- trace_file.c ------------------------------------------------------- */

void trace_file_prepare(void); /* first of all, without the lock */

extern struct lock trace_lock; /* the rest is called with it */

bool trace_file_open(void); /* opens it, the first time; false: there is none */
bool trace_file_is_open(void);
unsigned trace_file_age(void); /* another number in a forked child, which has a file of its own */

/* Appends a packet: its headers, then its payload. */
void trace_file_packet(bool outbound, const uint8_t *headers, size_t headers_len, const void *data,
		       size_t len);

/* ---- trace_ip.c --------------------------------------------------------- */

#define TRACE_IP_MAX 40

struct trace_path { /* of a packet; IPv4 addresses are the first 4 bytes */
	bool ipv6;
	uint8_t from[16], to[16];
	uint8_t traffic_class, hop_limit;
	uint32_t flow_label;
	uint16_t id; /* IPv4 only */
};

struct checksum { /* RFC 1071 */
	uint64_t sum;
	bool odd; /* the number of bytes so far is odd */
};

/* Adds bytes that come in pieces of any length. */
void checksum_add(struct checksum *c, const void *data, size_t len);
uint16_t checksum_end(const struct checksum *c);

/* Adds what TCP's and UDP's checksums have of the IP header. */
void checksum_add_path(struct checksum *c, const struct trace_path *path, uint8_t protocol,
		       size_t len);

/* Writes the IP header of a packet with len bytes behind it. Returns its length. */
size_t trace_put_ip(uint8_t *p, const struct trace_path *path, uint8_t protocol, size_t len);

#endif
