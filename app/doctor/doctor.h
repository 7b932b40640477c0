/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor.h - what this machine has, what stag uses of it, and why not the better thing.
 *
 * doctor_look() tries things rather than believing what is written about them, changes nothing, and takes well under a
 * second. Its findings are of the process that asks: limits, namespaces and environment are those of the caller.
 *
 *	{"version": "0.1.0", "counts": {"good": 17, "note": 3, "warning": 0, "fault": 0},
 *	 "findings": [{"area": "storage", "subject": "io_uring", "level": "fault",
 *	               "found": "refused: kernel.io_uring_disabled is 2",
 *	               "means": "files and block devices cannot be stores, ...",
 *	               "next": "sysctl -w kernel.io_uring_disabled=0"}, ...]}
 *
 *	good      as well as it can be
 *	note      stag does something else than it could; or it is worth knowing
 *	warning   it works, and worse than it should
 *	fault     something of stag does not work here
 *
 * next is null only of what is good, and of what nobody can do anything about.
 */
#ifndef STAG_APP_DOCTOR_H
#define STAG_APP_DOCTOR_H

#include <jansson.h>

json_t *doctor_look(void); /* the caller's; NULL: no memory */

/* ---- of its own files ------------------------------------------------------------- */

enum doctor_level { DOCTOR_GOOD, DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_FAULT, DOCTOR_LEVELS };

struct doctor {
	const char *area; /* that is looked at */
	json_t *findings;
	int counts[DOCTOR_LEVELS];
};

/* What was found, in words; then what that means, and what to do (NULL: nothing). */
struct doctor_words {
	const char *means, *next;
};
void doctor_say(struct doctor *d, enum doctor_level level, const char *subject,
		struct doctor_words w, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* The first line of a file of /proc or /sys; "": there is none. */
const char *doctor_line(const char *path, char *text, size_t size);
long long doctor_number(const char *path, long long otherwise);
const char *doctor_size(unsigned long long bytes, char text[24]); /* "8 MiB" */

/* doctor_adapter.c, doctor_device.c, doctor_system.c, doctor_storage.c, doctor_net.c, doctor_place.c */
void doctor_adapter(struct doctor *d);
void doctor_devices(struct doctor *d);
void doctor_system(struct doctor *d);
void doctor_storage(struct doctor *d);
void doctor_net(struct doctor *d);
void doctor_places(struct doctor *d);

#endif
