/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config.h - the environment, read once.
 */
#ifndef STAG_CONFIG_H
#define STAG_CONFIG_H

#include <stdbool.h>

#include "wire/wire.h"

struct stag_config {
	bool crc;		     /* STAG_CRC: ask for CRCs (default on) */
	bool markers;		     /* STAG_MARKERS: ask the peer for markers (default off) */
	bool extensions;	     /* STAG_EXTENSIONS: offer the stag extensions (default on) */
	enum shot_encoding one_shot; /* STAG_ONE_SHOT: of one-shot sends, where the peer connects
				      * (default SHOT_OPCODES); SHOT_NONE: no such sends at all */
	bool p2p;		     /* STAG_P2P: offer RFC 6581 peer-to-peer mode (default on) */
	unsigned mpa_rev;	     /* STAG_MPA_REV: 1 or 2 (default 2) */
	unsigned first_delay_ms;     /* STAG_FIRST_DELAY: pause before the first FPDU to a
				  * peer that is not stag (default 10): siw listens for it only
				  * some time after it sent its Reply */
	unsigned connect_timeout_ms; /* STAG_CONNECT_TIMEOUT: TCP and MPA set-up (default 10000) */
	unsigned refused_retry_ms;   /* STAG_REFUSED_RETRY: how long a refused TCP connect is tried
				    * again before the program hears of it (default 200) */
	unsigned part_id;	/* STAG_PART_ID: vendor_part_id, by which some programs choose */
	const char *trace;	/* STAG_TRACE: pcapng file, %p in it becomes the process id */
	const char *congestion; /* STAG_CONGESTION: TCP congestion control, NULL: the system's */
	bool live;		/* STAG_LIVE: others may look at this process (default on) */
};

const struct stag_config *config(void);

#endif
