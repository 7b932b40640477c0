/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config.h - the environment, read once.
 */
#ifndef STAG_CONFIG_H
#define STAG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "tls/tls.h"
#include "wire/wire.h"

struct stag_config {
	bool crc;	 /* STAG_CRC: ask for CRCs (default on), */
	bool crc_near;	 /* on roce0 also within this machine: only if it was set to on */
	bool markers;	 /* STAG_MARKERS: ask the peer for markers (default off) */
	bool extensions; /* STAG_EXTENSIONS: offer the stag extensions (default on) */
	/*
	 * STAG_ONE_SHOT: encoding for peers that connect to us (default SHOT_OPCODES); SHOT_NONE:
	 * no one-shot sends
	 */
	enum shot_encoding one_shot;
	bool p2p;	  /* STAG_P2P: offer RFC 6581 peer-to-peer mode (default on) */
	unsigned mpa_rev; /* STAG_MPA_REV: 1 or 2 (default 2) */
	/*
	 * STAG_FIRST_DELAY: pause before the first FPDU to a standard peer (default 10): siw
	 * accepts it only some time after its Reply
	 */
	unsigned first_delay_ms;
	unsigned connect_timeout_ms; /* STAG_CONNECT_TIMEOUT: TCP and MPA set-up (default 10000) */
	/*
	 * STAG_REFUSED_RETRY: how long a refused TCP connect is retried before it is reported
	 * (default 200)
	 */
	unsigned refused_retry_ms;
	unsigned part_id; /* STAG_PART_ID: vendor_part_id, by which some programs choose a device */
	const char *trace;	/* STAG_TRACE: pcapng file, %p in it becomes the process id */
	const char *congestion; /* STAG_CONGESTION: TCP congestion control, NULL: the system's */
	enum tls_mode tls;	/* STAG_TLS: off, allowed or required (default off) */
	/* STAG_TLS_CERT, _KEY, _CA, _PSK: files; STAG_TLS_NAME: of servers; NULL: not set */
	const char *tls_cert, *tls_key, *tls_ca, *tls_psk, *tls_name;
	bool tls_kernel;  /* STAG_TLS_KERNEL: let the kernel encrypt, if it can (default off) */
	unsigned devices; /* STAG_DEVICE: a bit for each enum face that is listed (default iwarp) */
	uint16_t first_port, last_port; /* STAG_PORTS: of roce0's queue pairs; 0: any */
	bool live; /* STAG_LIVE: other processes may query this one (default on) */
};

const struct stag_config *config(void);

#endif
