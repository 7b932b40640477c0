/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer_cases.h - the cases of part_verbs.c, over another library.
 *
 * A peer program provides a transport: functions to open it and to start an
 * operation. Both sides have one region of the same layout, so an offset means
 * the same place on either side.
 */
#ifndef STAG_BENCH_PEER_CASES_H
#define STAG_BENCH_PEER_CASES_H

#include "pair.h"

#define PEER_RECEIVES 512

struct peer_transport {
	void (*write)(size_t from, size_t to, size_t len);
	void (*read)(size_t to, size_t from, size_t len);
	void (*send)(size_t from, size_t len);
	void (*receive)(size_t to, size_t len);
	void (*flush)(void); /* writes so far are placed before later ones; NULL: they always are */
	void (*progress)(void);
};

struct peer {
	const struct peer_transport *transport;
	char *region;
	size_t region_len;
	uint64_t posted;   /* writes, reads and sends started */
	uint64_t done;	   /* of these, finished */
	uint64_t received; /* messages received */
};

extern struct peer peer;
extern const struct pair_case peer_cases[];

/* Returns the size of the region that the options need. */
size_t peer_region_len(void);

#endif
