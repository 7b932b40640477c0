/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * one_shot.h - STags that go with sends.
 */
#ifndef STAG_ONE_SHOT_H
#define STAG_ONE_SHOT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"
#include "stag/stagdv.h"

struct key_slot;
struct shot;
struct stag_qp;

/* Those of one queue pair. */
struct shots {
	struct lock lock;	/* behind tx_lock, before the key table's */
	struct list open, idle; /* shot.link; idle: the longest first */
	unsigned count;		/* in both */
	uint64_t advertised, closed, withdrawn, orphaned;
	_Atomic uint64_t late;
};

void shots_init(struct stag_qp *qp);
void shots_free(struct stag_qp *qp);
/* Lends the memory of wr: -ENOMEM, -EINVAL, -EPERM (logged). */
int shot_open(struct stag_qp *qp, const struct stagdv_advertise *wr, uint32_t *stag);
/* 0: it is refused from now on. -ENOENT: no such is open; -EACCES: it is another queue pair's. */
int shot_end(struct stag_qp *qp, uint32_t stag, enum stagdv_stag_end how, uint32_t *reference);
void shots_orphan(struct stag_qp *qp); /* all of them: the connection has ended */
void shot_read(
	const struct key_slot *k); /* counts the peer's read, if the key is one; by the receiver, */
void shot_written(const struct key_slot *k);	   /* and a reference to the slot */
void shot_late(struct stag_qp *qp, uint32_t stag); /* refused; was it one once? */
bool shot_is_open(const struct shot *s);	   /* of a slot that is held, as the next */
void shot_describe(const struct shot *s, struct stagdv_stag *out);

#endif
