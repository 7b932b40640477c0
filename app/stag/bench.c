// SPDX-License-Identifier: BSD-2-Clause
/*
 * bench.c - stag bench: finds the benchmark; what all of them need of the machine.
 */
#include "bench.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "stag.h"
#include "verb.h"

static const char help_text[] =
	"usage: stag bench BENCHMARK [OPTION]...\n\n"
	"Measures a part of stag on this machine, with its yardstick in the same run.\n\n"
	"  xfer   the transfer manager beside posting by hand\n"
	"  heap   the registered heap beside malloc() and registering\n\n"
	"'stag bench BENCHMARK --help' explains one.\n";

void bench_die(const char *fmt, ...)
{
	va_list ap;

	fputs("stag: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(EXIT_FAILED);
}

bool bench_preloaded(void)
{
	return dlsym(RTLD_DEFAULT, "stagdv_is_supported");
}

unsigned int bench_cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : (unsigned int)CPU_COUNT(&set);
}

void bench_pin(unsigned int nth)
{
	cpu_set_t may, one;

	if (sched_getaffinity(0, sizeof(may), &may))
		return;
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &may) && nth-- == 0)
			CPU_SET(cpu, &one);
	if (CPU_COUNT(&one))
		sched_setaffinity(0, sizeof(one), &one);
}

void *bench_memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		bench_die("no %zu MiB of memory: %s", size >> 20, strerror(errno));
	return p;
}

uint64_t bench_clock(clockid_t id)
{
	struct timespec ts = {0};

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static int bench(const struct command *self, int argc, char **argv)
{
	int rc;
	const char *name = verb_given(self, "which benchmark?", argc, argv, &rc);

	if (!name)
		return rc;
	if (!strcmp(name, "xfer"))
		return bench_xfer(self, argc - 1, argv + 1);
	if (!strcmp(name, "heap"))
		return bench_heap(self, argc - 1, argv + 1);
	complain("no benchmark '%s'", name);
	return usage_error(self);
}

const struct command bench_command = {"bench", "measure a part of stag on this machine", help_text,
				      bench};
