/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * initiator.h - the other side of fuzz_iscsi.c: an initiator that gets arbitrary bytes from a
 * target.
 */
#ifndef STAG_FUZZ_INITIATOR_H
#define STAG_FUZZ_INITIATOR_H

#include "fuzz.h"

/*
 * Over a socket: chunks with two bytes of length each. entered: it is logged in already, and has
 * requests.
 */
void fuzz_initiator(struct input *in, int entered);

/*
 * Over verbs, one-shot or iSER: sends. Each has a byte for the STag that it closes (none, an open
 * one, an unknown one), and two bytes of length. There is no adapter: its completions are made up.
 */
void fuzz_initiator_verbs(struct input *in, int one_shot);

#endif
