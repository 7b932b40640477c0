/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * adapter.h - the software RNIC: its parts, and the order of its locks.
 *
 * The two public APIs (src/verbs, src/cm) translate their calls into calls on these
 * objects. Functions return 0 or a count, or -errno; constructors take the
 * address of the result.
 *
 * x.h declares what x.c exports. Some files share a header:
 *
 *   device.h pd.h config.h          the devices, contexts, protection domains, the environment
 *   face.h                          what differs between stag0 and roce0: face.c gid.h port.h roce_qp.h
 *                                   qp_moves.h reach.h rc.h ud.h
 *   keys.h guard.h mr.h mw.h        STags, and the memory behind them
 *   one_shot.h ledger.h             STags that go with sends
 *   cq.h channel.h claim.h          completions, and which thread makes progress for them
 *   qp.h                            the queue pair: qp.c, qp_table.c, qp_link.c
 *   sq.h rq.h srq.h latency.h       its queues, and the latency of requests
 *   qp_tx.h qp_rx.h                 its two directions: qp_tx.c and tx_*.c, qp_rx.c and rx_*.c
 *   stream.h trace.h                a stream of bytes, and a record of it
 *   engine.h                        the thread that makes progress for sleeping programs
 *   mirror.h                        forwarding of peers' writes: mirror.c, rx_mirror.c, tx_forward.c
 *   store.h store_peer.h            regions on storage: medium.c, lane.c, store_*.c, rx_store.c, tx_store.c
 *   live.h                          queries from other processes: live*.c
 *
 * A file in this folder includes the headers that it needs. This one is for the public APIs, and includes those that they use.
 *
 * Locks, in the order in which they are acquired (a later one may be acquired while
 * holding an earlier one, never the other way round):
 *
 *   engine        one, recursive; held while a watch, timer or work callback
 *                 runs; guards all state of conn.c and src/cm but the queues of
 *                 event channels
 *   channel->cqs_lock  the completion queues of a channel
 *   cq->qps_lock  the queue pairs of a completion queue, while a thread makes
 *                 progress for it
 *   qp->rx_lock   the receive side of a queue pair
 *   mirror.c's lock  which region has which mirrors
 *   qp->tx_lock   the send queue and the send side; qp->state is written under it
 *   qp->shots.lock  the STags that its sends advertised
 *   device.c's lock  which contexts of roce0 are open
 *   gid.c's lock  the addresses of this machine
 *   qp->rq_lock, srq->lock, cq->lock, channel->lock, ctx->async_lock, the key
 *   table's and the timers' locks: leaves, held for a few lines
 *
 * The threads that move data (see engine.c): a work request is sent by the thread that
 * posts it; a thread that polls an empty completion queue reads the sockets of
 * that queue's queue pairs; the engine thread does both when no other thread does.
 */
#ifndef STAG_ADAPTER_H
#define STAG_ADAPTER_H

#include "adapter/ah.h"
#include "adapter/channel.h"
#include "adapter/config.h"
#include "adapter/congestion.h"
#include "adapter/cq.h"
#include "adapter/device.h"
#include "adapter/engine.h"
#include "adapter/face.h"
#include "adapter/gid.h"
#include "adapter/keys.h"
#include "adapter/ledger.h"
#include "adapter/mcast.h"
#include "adapter/mr.h"
#include "adapter/mw.h"
#include "adapter/one_shot.h"
#include "adapter/pd.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "adapter/sq.h"
#include "adapter/srq.h"
#include "adapter/stream.h"
#include "adapter/ud.h"

#endif
