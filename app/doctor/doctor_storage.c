// SPDX-License-Identifier: BSD-2-Clause
/*
 * doctor_storage.c - tries io_uring, which stores and targets use for files and block devices.
 */
#include "doctor.h"

#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#define SYSCTL "/proc/sys/kernel/io_uring_disabled"
#define DEPTH  256 /* requests of a medium */

/* Reports why io_uring is refused. */
static void report_refused(struct doctor *d, int error)
{
	static const char means[] =
		"stores and block targets cannot be opened, local or served, not "
		"even stores in memory";
	long long disabled = doctor_number(SYSCTL, 0);

	if (disabled > 0)
		doctor_report(
			d, DOCTOR_FAULT, "io_uring",
			(struct doctor_words){
				means, disabled == 1
					       ? "sysctl -w kernel.io_uring_disabled=0, or be in "
						 "the group of kernel.io_uring_group"
					       : "sysctl -w kernel.io_uring_disabled=0"},
			"refused: kernel.io_uring_disabled is %lld", disabled);
	else if (error == ENOMEM)
		doctor_report(d, DOCTOR_FAULT, "io_uring",
			      (struct doctor_words){means, "ulimit -l 65536"},
			      "refused: the limit of locked memory is reached");
	else if (error == EMFILE || error == ENFILE)
		doctor_report(d, DOCTOR_FAULT, "io_uring",
			      (struct doctor_words){means, "ulimit -n 4096"}, "refused: %s",
			      strerror(error));
	else if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) > 0)
		doctor_report(
			d, DOCTOR_FAULT, "io_uring",
			(struct doctor_words){means, "docker run --security-opt seccomp=unconfined "
						     "..., or SystemCallFilter=@io-event"},
			"refused by a seccomp filter: %s", strerror(error));
	else
		doctor_report(
			d, DOCTOR_FAULT, "io_uring",
			(struct doctor_words){means, "grep IO_URING /boot/config-$(uname -r)"},
			"refused: %s", strerror(error));
}

/* Does the kernel have the operations that src/media uses? */
static bool has_operations(struct io_uring *ring)
{
	static const int used[] = {IORING_OP_READ,   IORING_OP_WRITE,	   IORING_OP_READV,
				   IORING_OP_WRITEV, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED,
				   IORING_OP_FSYNC,  IORING_OP_TIMEOUT};
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	bool all = probe != NULL;

	for (size_t i = 0; all && i < sizeof(used) / sizeof(*used); i++)
		all = io_uring_opcode_supported(probe, used[i]);
	if (probe)
		io_uring_free_probe(probe);
	return all;
}

static void report_accepted(struct doctor *d, struct io_uring *ring, bool whole)
{
	if (!has_operations(ring))
		doctor_report(
			d, DOCTOR_FAULT, "io_uring",
			(struct doctor_words){"stores and block targets cannot read, write or "
					      "flush",
					      "apt-get dist-upgrade (a kernel from 5.10 on)"},
			"available, but without operations that stag uses");
	else
		doctor_report(
			d, whole ? DOCTOR_GOOD : DOCTOR_NOTE, "io_uring",
			(struct doctor_words){
				whole ? "stores and targets use it for files and devices; for "
					"memory (tmpfs) plain system calls, which are faster "
					"there. Its polling thread (SQPOLL) is not used: it "
					"would have a processor to itself"
				      : "a failed request delays the requests after it until the "
					"next call",
				whole ? NULL : "apt-get dist-upgrade (a kernel from 5.18 on)"},
			"%s", whole ? "accepted" : "accepted, without IORING_SETUP_SUBMIT_ALL");
}

void doctor_storage(struct doctor *d)
{
	struct io_uring_params params = {.flags = IORING_SETUP_SUBMIT_ALL};
	struct io_uring ring;
	int err = io_uring_queue_init_params(DEPTH, &ring, &params);
	bool whole = err == 0;

	if (err == -EINVAL)
		err = io_uring_queue_init(DEPTH, &ring, 0);
	if (err != 0) {
		report_refused(d, -err);
		return;
	}
	report_accepted(d, &ring, whole);
	io_uring_queue_exit(&ring);
}
