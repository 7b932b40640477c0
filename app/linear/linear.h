/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * linear.h - checks whether a history is linearizable: can every operation have taken effect at one
 * moment between its call and its return, as if there were one client? After Wing and Gong (1993),
 * with Lowe's just-in-time linearization (2017).
 *
 * Each object is checked by itself: a history is linearizable if that of each object is. An object
 * is a value with a version, or absent, and begins as absent. An operation of unknown outcome may
 * have taken effect once, at any time after its call, or never.
 *
 * A small library of its own: it depends on libc only.
 */
#ifndef STAG_APP_LINEAR_H
#define STAG_APP_LINEAR_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum linear_kind {
	LINEAR_READ,   /* of value and version */
	LINEAR_PUT,    /* creates or replaces */
	LINEAR_INSERT, /* requires that the object is absent */
	LINEAR_UPDATE, /* requires that the object exists */
	LINEAR_DELETE,
};

enum linear_outcome {
	LINEAR_OK,
	LINEAR_ABSENT,	 /* the object did not exist */
	LINEAR_PRESENT,	 /* the object existed: of an insert */
	LINEAR_MISMATCH, /* the object had another version than `expected` */
	LINEAR_UNKNOWN,
};

#define LINEAR_NEVER UINT64_MAX

struct linear_op {
	uint64_t object;
	uint64_t call, ret; /* times; ret is LINEAR_NEVER if it did not return */
	uint64_t value;	   /* written or read; distinct values make the check faster and stricter */
	uint64_t expected; /* the version that the change requires; 0: any */
	/* after the operation (OK) or before it (MISMATCH); grows with each change; 0: unknown */
	uint64_t version;
	uint32_t client;
	uint8_t kind, outcome;
};

enum linear_result { LINEAR_GOOD, LINEAR_BAD, LINEAR_UNDECIDED };

struct linear_verdict {
	enum linear_result result;
	uint64_t object; /* for BAD and UNDECIDED */
	size_t op;	 /* index in ops of the operation that cannot be linearized */
	size_t most;	 /* configurations that were kept at once */
};

/*
 * Returns LINEAR_UNDECIDED if too many operations of unknown outcome overlap, or memory runs out.
 */
enum linear_result linear_check(const struct linear_op *ops, size_t num_ops,
				struct linear_verdict *verdict);

/* Prints the operations on the verdict's object around the failure, one per line. */
void linear_explain(const struct linear_op *ops, size_t num_ops,
		    const struct linear_verdict *verdict, FILE *to);

#endif
