/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * door.h - who wants to come into a pool, and what an engine or a user gives it to read: for fuzz_pool.
 */
#ifndef STAG_FUZZ_DOOR_H
#define STAG_FUZZ_DOOR_H

#include "fuzz.h"

void greetings(struct input *in); /* to a node */
void welcomes(struct input *in);  /* to who comes */
void texts(struct input *in);	  /* a roll, a file of secrets, a place in etcd */

#endif
