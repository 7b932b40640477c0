/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * latency.h - how long requests take, from the post to the completion.
 */
#ifndef STAG_LATENCY_H
#define STAG_LATENCY_H

#include <infiniband/verbs.h>

#include "base/histogram.h"

struct stag_qp;

enum latency_kind {
	LATENCY_SEND,
	LATENCY_WRITE,
	LATENCY_READ,
	LATENCY_ATOMIC,
	LATENCY_FLUSH,
	LATENCY_KINDS
};

extern struct histogram latency_times[LATENCY_KINDS]; /* of all queue pairs */
const char *latency_kind_str(enum latency_kind kind);

/* Times one of the requests that are about to be published, from now on. */
void latency_begin(struct stag_qp *qp);
/* ends the timing of that request */
void latency_end(struct stag_qp *qp, enum ibv_wc_status status);

#endif
