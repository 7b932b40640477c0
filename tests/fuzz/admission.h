/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * admission.h - admission to a pool, and texts that a roll backend or a user gives it to read: for
 * fuzz_pool.
 */
#ifndef STAG_FUZZ_ADMISSION_H
#define STAG_FUZZ_ADMISSION_H

#include "fuzz.h"

void greetings(struct input *in); /* request to a node */
void welcomes(struct input *in);  /* answer to a client */
void texts(struct input *in);	  /* a roll, a file of secrets, a place in etcd */

#endif
