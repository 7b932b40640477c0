/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xfer.h - the inside of the transfer manager.
 *
 * plan.c turns chains into descriptors and knows no device. queue.c says whose turn it is.
 * rail.c posts descriptors and takes completions. manager.c is the public face that
 * ties them together.
 */
#ifndef XFER_XFER_H
#define XFER_XFER_H

#include "stag/xfer.h"

/* plan.c */

/*
 * Appends to a descriptor (length 0: fresh) as much of the request, from the cursor on, as the
 * limits allow, and moves the cursor. True: all of the request is in descriptors now, and
 * what follows it in another request may join this one.
 */
bool plan_extend(const struct stag_xfer_limits *limits, const struct stag_xfer_req *req,
		 struct stag_xfer_cursor *cursor, struct stag_xfer_desc *desc);

#endif
