/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ud.h - datagrams: UD queue pairs, which send and receive on the UDP socket of their port.
 */
#ifndef STAG_UD_H
#define STAG_UD_H

#include <stdbool.h>

struct qp_port;
struct stag_qp;
struct wqe;

/* At creation and destruction of a UD queue pair, under the engine lock. */
int ud_create(struct stag_qp *qp);
void ud_destroy(struct stag_qp *qp);

/* A UD queue pair goes to RTR, to RTS or back to RESET; in ERR qp_flush() is called as for others. Under tx_lock. */
void ud_moved(struct stag_qp *qp);

/* Sends what is posted, and completes it. Under tx_lock; the queue pair is in RTS. */
void ud_run(struct stag_qp *qp);

/* The port's UDP socket has something. On the engine thread. */
void ud_arrived(struct qp_port *port);

#endif
