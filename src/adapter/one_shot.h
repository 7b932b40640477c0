/* SPDX-License-Identifier: BSD-2-Clause */
/* one_shot.h - STags that one-shot sends advertise. */
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

/* The STags of one queue pair. */
struct shots {
	struct lock lock;	/* acquired after tx_lock, before the key table's */
	struct list open, idle; /* shot.link; idle: least recently used first */
	unsigned count;		/* of both lists */
	uint64_t advertised, closed, withdrawn, orphaned;
	_Atomic uint64_t late;
};

void shots_init(struct stag_qp *qp);
void shots_free(struct stag_qp *qp);
/* Advertises the memory of wr. Returns 0, -ENOMEM, -EINVAL or -EPERM (logged). */
int shot_open(struct stag_qp *qp, const struct stagdv_advertise *wr, uint32_t *stag);
/*
 * Ends one. Returns 0: it is invalid from now on; -ENOENT: no such STag is open; -EACCES: it
 * belongs to another queue pair.
 */
int shot_end(struct stag_qp *qp, uint32_t stag, enum stagdv_stag_end how, uint32_t *reference);
void shots_orphan(struct stag_qp *qp); /* ends all of them with the connection */
/* counts a peer's read, if the key is a one-shot STag; under rx_lock, */
void shot_read(const struct key_slot *k);
/* with a reference to the slot. The same for a write */
void shot_written(const struct key_slot *k);
/* counts a refused access, if the STag was one-shot */
void shot_late(struct stag_qp *qp, uint32_t stag);
bool shot_is_open(const struct shot *s); /* the caller holds the slot, here and below */
void shot_describe(const struct shot *s, struct stagdv_stag *out);

#endif
