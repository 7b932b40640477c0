// SPDX-License-Identifier: BSD-2-Clause
/*
 * module.c - the table by which load.c finds this module's functions.
 */
#include "base/export.h"
#include "tls/openssl.h"

STAG_EXPORT extern const struct tls_module stag_tls_module;

const struct tls_module stag_tls_module = {
	.version = TLS_MODULE_VERSION,
	.context_create = context_create,
	.context_get = context_get,
	.context_put = context_put,
	.open = session_open,
	.hold_finish = session_hold_finish,
	.handshake = session_handshake,
	.events = session_events,
	.why = session_why,
	.describe = session_describe,
	.export = session_export,
	.sendv = session_sendv,
	.recvv = session_recvv,
	.pending = session_pending,
	.shutdown = session_shutdown,
	.rekey = session_rekey,
	.close = session_close,
};
