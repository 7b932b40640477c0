// SPDX-License-Identifier: BSD-2-Clause
/*
 * part.c - CPUs, memory, clocks and errors, for the parts of a benchmark.
 */
#include "part.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "stag.h"

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
		bench_die("cannot map %zu MiB: %s", size >> 20, strerror(errno));
	return p;
}

void *bench_zeroed(size_t size)
{
	void *p = calloc(1, size ? size : 1);

	if (!p)
		bench_die("out of memory");
	return p;
}

uint64_t bench_clock(clockid_t id)
{
	struct timespec ts = {0};

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}
