// SPDX-License-Identifier: BSD-2-Clause
/*
 * media_load.c - random reads or writes of a file through src/media, DEPTH operations in flight.
 *
 * usage: media_load FILE randread|randwrite DEPTH SECONDS poll|sleep [buffered] [shared] [SIZE]
 *
 * Prints operations per second and microseconds of processor time per operation. poll: spins for
 * completions; sleep: waits for the medium's eventfd, as the engine thread does.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "media/media.h"

struct job {
	struct media_op op;
	struct iovec iov;
};

static struct media *medium;
static uint64_t dice_state = 88172645463325252u, size = 4096, blocks, done;
static bool stopping, failed;
static unsigned int in_flight;

/* xorshift64 */
static uint64_t dice(void)
{
	dice_state ^= dice_state << 13;
	dice_state ^= dice_state >> 7;
	return dice_state ^= dice_state << 17;
}

static void start_job(struct job *j)
{
	j->op.offset = dice() % blocks * size;
	in_flight++;
	if (media_submit(medium, &j->op))
		failed = stopping = true;
}

static void on_done(struct media_op *op)
{
	done++;
	in_flight--;
	if (op->result) {
		fprintf(stderr, "media_load: %s\n", strerror(-op->result));
		failed = stopping = true;
	}
	if (!stopping)
		start_job((struct job *)op);
}

static void run_polling(uint64_t until)
{
	for (unsigned int i = 1; in_flight > 0; i++) {
		media_poll(medium);
		if (i % 64 == 0 && clock_ns() > until)
			stopping = true;
	}
}

static void run_asleep(uint64_t until)
{
	struct pollfd p = {.fd = media_event_fd(medium), .events = POLLIN};

	while (in_flight > 0) {
		if (media_poll(medium) == 0) {
			media_arm(medium);
			poll(&p, 1, 1000);
			media_disarm(medium);
			media_clear_event(medium);
		}
		if (clock_ns() > until)
			stopping = true;
	}
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static struct job *make_jobs(unsigned int depth, bool writes)
{
	struct job *jobs = calloc(depth, sizeof(*jobs));
	uint8_t *memory;

	if (!jobs || posix_memalign((void **)&memory, 4096, depth * size))
		exit(1);
	memset(memory, 0x5a, depth * size);
	for (unsigned int i = 0; i < depth; i++) {
		jobs[i].iov = (struct iovec){memory + i * size, size};
		jobs[i].op = (struct media_op){.kind = writes ? MEDIA_WRITE : MEDIA_READ,
					       .length = size,
					       .iov = &jobs[i].iov,
					       .n_iov = 1,
					       .done = on_done};
	}
	return jobs;
}

static void run_load(unsigned int depth, double seconds, bool writes, bool asleep)
{
	struct job *jobs = make_jobs(depth, writes);
	uint64_t begin = clock_ns(), until = begin + (uint64_t)(seconds * NS_PER_S);
	double cpu = cpu_seconds();
	struct media_counters c;

	for (unsigned int i = 0; i < depth; i++)
		start_job(&jobs[i]);
	media_kick(medium);
	if (asleep)
		run_asleep(until);
	else
		run_polling(until);
	media_query(medium, &c);
	printf("%.0f\t%.3f\t%.2f\n", (double)done * 1e9 / (double)(clock_ns() - begin),
	       (cpu_seconds() - cpu) * 1e6 / (double)done, (double)done / (double)c.submits);
	free(jobs[0].iov.iov_base);
	free(jobs);
}

int main(int argc, char **argv)
{
	struct media_attr attr = {.fd = argc < 6 ? -1 : open(argv[1], O_RDWR | O_CLOEXEC)};
	int err;

	if (argc < 6) {
		fprintf(stderr, "usage: media_load FILE randread|randwrite DEPTH SECONDS "
				"poll|sleep [buffered] [shared] [SIZE]\n");
		return 2;
	}
	for (int i = 6; i < argc; i++) {
		if (strcmp(argv[i], "buffered") == 0)
			attr.flags |= MEDIA_BUFFERED;
		else if (strcmp(argv[i], "shared") == 0)
			attr.flags |= MEDIA_SHARED;
		else
			size = strtoull(argv[i], NULL, 0);
	}
	err = media_open(&medium, &attr);
	if (err) {
		fprintf(stderr, "media_load: %s: %s\n", argv[1], strerror(-err));
		return 1;
	}
	blocks = media_size(medium) / size;
	run_load((unsigned int)atoi(argv[3]), atof(argv[4]), strcmp(argv[2], "randwrite") == 0,
		 strcmp(argv[5], "sleep") == 0);
	media_close(medium);
	close(attr.fd);
	return failed;
}
