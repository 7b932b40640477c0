/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * initiator.h - the other side of fuzz_iscsi.c: an initiator, and all that a target says to it.
 */
#ifndef STAG_FUZZ_INITIATOR_H
#define STAG_FUZZ_INITIATOR_H

#include "fuzz.h"

/* Over a socket: chunks, two bytes of length before each. entered: it has logged in already, and wants something. */
void fuzz_initiator(struct input *in, int entered);

/*
 * Over verbs, in one-shot or iSER: sends. Each has a byte of what it closes (nothing, an STag of ours, an STag of nobody's), and two of its
 * length before it. There is no adapter: what it would say is made up.
 */
void fuzz_initiator_verbs(struct input *in, int one_shot);

#endif
