/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor.h - checks what this machine has and what stag uses of it.
 *
 * doctor_examine() tries features rather than reading their settings, changes nothing, and takes well under a second. The
 * findings apply to the calling process: its limits, namespaces and environment.
 *
 *	{"version": "0.1.0", "counts": {"good": 17, "note": 3, "warning": 0, "fault": 0},
 *	 "findings": [{"area": "storage", "subject": "io_uring", "level": "fault",
 *	               "found": "refused: kernel.io_uring_disabled is 2",
 *	               "means": "files and block devices cannot be stores, ...",
 *	               "next": "sysctl -w kernel.io_uring_disabled=0"}, ...]}
 *
 *	good      as good as it can be
 *	note      stag uses something else than the best; or it is worth knowing
 *	warning   it works, but worse than it should
 *	fault     something of stag does not work on this machine
 *
 * next is null only in good findings, and if there is nothing to do.
 */
#ifndef STAG_APP_DOCTOR_H
#define STAG_APP_DOCTOR_H

#include <jansson.h>

json_t *doctor_examine(void); /* owned by the caller; NULL: out of memory */

/* ---- for the files of this folder ------------------------------------------------------------- */

enum doctor_level { DOCTOR_GOOD, DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_FAULT, DOCTOR_LEVELS };

struct doctor {
	const char *area; /* of the next findings */
	json_t *findings;
	int counts[DOCTOR_LEVELS];
};

/* The meaning of a finding, and what to do (NULL: nothing); doctor_report() adds what was found. */
struct doctor_words {
	const char *means, *next;
};
void doctor_report(struct doctor *d, enum doctor_level level, const char *subject,
		   struct doctor_words w, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Reads the first line of a file of /proc or /sys; "": there is none. */
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
