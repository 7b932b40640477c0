// SPDX-License-Identifier: BSD-2-Clause
/*
 * iscsi_load.c - reads or writes an iSCSI disk, DEPTH operations in flight: a yardstick of
 * bench/store.
 *
 * usage: iscsi_load iscsi://HOST:PORT/TARGET/LUN read|write random|sequential SIZE DEPTH SECONDS
 * OFFSET LENGTH
 *
 * Uses LENGTH bytes from OFFSET on. Prints operations per second and microseconds of processor time
 * per operation. Polls for answers, as `stag store bench` does.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>

#include "base/clock.h"

#define BLOCK 512

struct job {
	struct scsi_iovec iov;
	unsigned char *memory;
};

static struct iscsi_context *iscsi;
static uint64_t dice_state = 88172645463325252u, size, offset, places, next, done;
static bool writes, sequential, stopping, failed;
static unsigned int in_flight;
static int lun;

/* xorshift64 */
static uint64_t dice(void)
{
	dice_state ^= dice_state << 13;
	dice_state ^= dice_state >> 7;
	return dice_state ^= dice_state << 17;
}

static void on_done(struct iscsi_context *context, int status, void *task, void *arg);

static void start_job(struct job *j)
{
	uint64_t at = (offset + (sequential ? next++ : dice()) % places * size) / BLOCK;
	struct scsi_task *t = writes ? iscsi_write16_task(iscsi, lun, at, j->memory, (uint32_t)size,
							  BLOCK, 0, 0, 0, 0, 0, on_done, j)
				     : iscsi_read16_task(iscsi, lun, at, (uint32_t)size, BLOCK, 0,
							 0, 0, 0, 0, on_done, j);

	if (!t) {
		fprintf(stderr, "iscsi_load: %s\n", iscsi_get_error(iscsi));
		failed = stopping = true;
		return;
	}
	if (!writes)
		scsi_task_set_iov_in(t, &j->iov, 1);
	in_flight++;
}

static void on_done(struct iscsi_context *context, int status, void *task, void *arg)
{
	in_flight--;
	done++;
	if (status != SCSI_STATUS_GOOD) {
		fprintf(stderr, "iscsi_load: %s\n", iscsi_get_error(context));
		failed = stopping = true;
	}
	scsi_free_scsi_task(task);
	if (!stopping)
		start_job(arg);
}

/* Handles the events of the connection that are ready. */
static void service_connection(void)
{
	struct pollfd p = {.fd = iscsi_get_fd(iscsi), .events = (short)iscsi_which_events(iscsi)};

	if (poll(&p, 1, 0) > 0 && iscsi_service(iscsi, p.revents) != 0)
		failed = stopping = true;
}

static void run_load(uint64_t ns)
{
	uint64_t until = clock_ns() + ns;

	while (!failed && (done == 0 || clock_ns() < until))
		service_connection();
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static bool log_in(const char *where)
{
	struct iscsi_url *url;

	iscsi = iscsi_create_context("iqn.2026-01.stag:bench");
	url = iscsi ? iscsi_parse_full_url(iscsi, where) : NULL;
	if (!url)
		return false;
	lun = url->lun;
	iscsi_set_targetname(iscsi, url->target);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE);
	return iscsi_full_connect_sync(iscsi, url->portal, lun) == 0;
}

static bool start_all(unsigned int depth)
{
	struct job *jobs = calloc(depth, sizeof(*jobs));

	for (unsigned int i = 0; jobs && i < depth; i++) {
		jobs[i].memory = calloc(1, size);
		jobs[i].iov.iov_base = jobs[i].memory;
		jobs[i].iov.iov_len = size;
		if (!jobs[i].memory)
			return false;
		start_job(&jobs[i]);
	}
	return jobs;
}

int main(int argc, char **argv)
{
	uint64_t ns, cpu, since;

	if (argc != 9) {
		fprintf(stderr, "usage: iscsi_load URL read|write random|sequential SIZE DEPTH "
				"SECONDS OFFSET LENGTH\n");
		return 2;
	}
	writes = strcmp(argv[2], "write") == 0;
	sequential = strcmp(argv[3], "sequential") == 0;
	size = strtoull(argv[4], NULL, 10);
	ns = (uint64_t)(strtod(argv[6], NULL) * 1e9);
	offset = strtoull(argv[7], NULL, 10);
	places = size ? strtoull(argv[8], NULL, 10) / size : 0;
	if (places == 0 || !log_in(argv[1])) {
		fprintf(stderr, "iscsi_load: %s: %s\n", argv[1],
			iscsi ? iscsi_get_error(iscsi) : "no memory");
		return 1;
	}
	if (!start_all((unsigned int)strtoul(argv[5], NULL, 10)))
		return 1;
	run_load(ns / 10);
	done = 0;
	cpu = cpu_ns();
	since = clock_ns();
	run_load(ns);
	ns = clock_ns() - since;
	cpu = cpu_ns() - cpu;
	printf("%.0f\t%.3f\n", (double)done * 1e9 / (double)ns,
	       done ? (double)cpu / 1e3 / (double)done : 0);
	return failed || done == 0;
}
