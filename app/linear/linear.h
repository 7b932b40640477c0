/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * linear.h - is a history linearizable: could every operation have happened at one moment between its call and its
 * return, as if there were one client? After Wing and Gong (1993), with Lowe's just-in-time linearization (2017).
 *
 * Each object is looked at by itself: what is linearizable by objects is so as a whole. An object is a value with a
 * version, or is absent, and is absent to begin with. An operation of which nobody knows what came of it may have
 * happened, once, at any time after its call, or never.
 *
 * A small library of its own: no dependency but libc.
 */
#ifndef STAG_APP_LINEAR_H
#define STAG_APP_LINEAR_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum linear_kind {
	LINEAR_READ,   /* value, version */
	LINEAR_PUT,    /* there afterwards, whether it was or not */
	LINEAR_INSERT, /* was absent */
	LINEAR_UPDATE, /* was there */
	LINEAR_DELETE,
};

enum linear_outcome {
	LINEAR_OK,
	LINEAR_ABSENT,	 /* it was not there */
	LINEAR_PRESENT,	 /* it was: of an insert */
	LINEAR_MISMATCH, /* it was there with another version than `expected` */
	LINEAR_UNKNOWN,
};

#define LINEAR_NEVER UINT64_MAX

struct linear_op {
	uint64_t object;
	uint64_t call, ret; /* times; LINEAR_NEVER if it never returned */
	uint64_t value;	    /* written, or read; values that differ make it fast and sharp */
	uint64_t expected;  /* only if this is its version; 0: whatever it is */
	uint64_t
		version; /* it has now (OK), or had (MISMATCH); larger with each change; 0: not told */
	uint32_t client;
	uint8_t kind, outcome;
};

enum linear_result { LINEAR_GOOD, LINEAR_BAD, LINEAR_UNDECIDED };

struct linear_verdict {
	enum linear_result result;
	uint64_t object; /* of BAD and UNDECIDED */
	size_t op; /* which could not have happened between its call and its return: index in ops */
	size_t most; /* possibilities that had to be kept in mind at once */
};

/* UNDECIDED: too many at once that nobody knows the fate of, or no memory. */
enum linear_result linear_check(const struct linear_op *ops, size_t num_ops,
				struct linear_verdict *verdict);

/* The operations on the object of a verdict about when it went wrong, one a line. */
void linear_explain(const struct linear_op *ops, size_t num_ops,
		    const struct linear_verdict *verdict, FILE *to);

#endif
