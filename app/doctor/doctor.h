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
 *	               "next": "sysctl -w kernel.io_uring_disabled=0"}, ...],
 *	 "daemons": [{"program": "stagd", "pid": 4711, "runs": true, "answers": true, "name": "main", "config": PATH, "started": RFC3339,
 *	              "serves": [{"what": "pool shop/a primary", "port": 7175}, ...], "error": null}, ...]}
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
#include <stdbool.h>

json_t *doctor_examine(void); /* owned by the caller; NULL: out of memory */

/* ---- for the files of this folder ------------------------------------------------------------- */

enum doctor_level { DOCTOR_GOOD, DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_FAULT, DOCTOR_LEVELS };

struct doctor {
	const char *area; /* of the next findings */
	json_t *findings;
	json_t *daemons;
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

/* doctor_port.c: the name of a process's program; and who listens at a port, "stagd, process 4711" (empty: another user's). */
const char *doctor_program(int pid, char *name, size_t size);
#define DOCTOR_PORTS 16
unsigned int doctor_ports_of(
	int pid, unsigned int ports[DOCTOR_PORTS]); /* that it listens at; returns how many */
bool doctor_port_owner(unsigned int port, char *who, size_t size);

/* doctor_daemon.c, doctor_adapter.c, doctor_device.c, doctor_system.c, doctor_storage.c, doctor_net.c, doctor_place.c */
void doctor_daemons(struct doctor *d);
void doctor_adapter(struct doctor *d);
void doctor_devices(struct doctor *d);
void doctor_system(struct doctor *d);
void doctor_storage(struct doctor *d);
void doctor_net(struct doctor *d);
void doctor_places(struct doctor *d);

#endif
