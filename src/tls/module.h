/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * module.h - what stag-tls.so offers to the libraries that load it. Private to this folder.
 */
#ifndef STAG_TLS_MODULE_H
#define STAG_TLS_MODULE_H

#include "tls/tls.h"

#define TLS_MODULE_NAME	   "stag-tls.so"
#define TLS_MODULE_SYMBOL  "stag_tls_module"
#define TLS_MODULE_VERSION 2 /* changes with this struct and those of tls.h */

struct tls_module {
	unsigned version; /* always first */
	typeof(tls_context_create) *context_create;
	typeof(tls_context_get) *context_get;
	typeof(tls_context_put) *context_put;
	typeof(tls_open) *open;
	typeof(tls_hold_finish) *hold_finish;
	typeof(tls_handshake) *handshake;
	typeof(tls_events) *events;
	typeof(tls_why) *why;
	typeof(tls_describe) *describe;
	typeof(tls_export) *export;
	typeof(tls_sendv) *sendv;
	typeof(tls_recvv) *recvv;
	typeof(tls_pending) *pending;
	typeof(tls_shutdown) *shutdown;
	typeof(tls_rekey) *rekey;
	typeof(tls_close) *close;
};

#endif
