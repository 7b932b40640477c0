/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * source.h - the source of a connection, as limits by address count it.
 *
 * One host has many ports, and one network of IPv6 has 2^64 addresses, all of which one host may use. So connections count together
 * if they come from the same IPv4 address, from the same /64 network of IPv6, or from the same user of this machine.
 */
#ifndef STAG_BASE_SOURCE_H
#define STAG_BASE_SOURCE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define SOURCE_ROOM 64

/*
 * Gets bytes that are equal for equal sources from an address in text, as logs and the audit log have it: "10.0.0.7:41288",
 * "[2001:db8::1]:7175", "uid 1000 pid 4711", with or without the port. A text of another form is its own source. Returns their number.
 */
size_t source_of_text(const char *from, uint8_t source[SOURCE_ROOM]);

/* Returns the length of the same bytes in an address of IPv4 or IPv6, and where they are. */
size_t source_of_address(const struct sockaddr *address, const void **at);

#endif
