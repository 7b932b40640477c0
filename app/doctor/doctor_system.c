// SPDX-License-Identifier: BSD-2-Clause
/*
 * doctor_system.c - checks kernel, processors, clock, memory, and the limits of this process.
 */
#include "doctor.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#define MIB (1ull << 20)

#define STAGING	     (16 * MIB) /* bytes of a store or a target, which may use a quarter of the limit */
#define ENOUGH_FILES 4096u
#define ENOUGH_SHM   (64 * MIB)

/* ---- kernel and processors -------------------------------------------------------------------- */

static void check_kernel(struct doctor *d)
{
	unsigned int major = 0, minor = 0;
	struct utsname u = {0};

	uname(&u);
	sscanf(u.release, "%u.%u", &major, &minor);
	if (major > 5 || (major == 5 && minor >= 18))
		doctor_report(d, DOCTOR_GOOD, "kernel",
			      (struct doctor_words){"it has everything that stag needs", NULL},
			      "%s %s %s", u.sysname, u.release, u.machine);
	else
		doctor_report(
			d, major < 5 || (major == 5 && minor < 10) ? DOCTOR_WARNING : DOCTOR_NOTE,
			"kernel",
			(struct doctor_words){"before 5.18 io_uring stops at the first request "
					      "of a list that fails; before 5.10 nothing was "
					      "tried",
					      "apt-get dist-upgrade"},
			"%s %s %s", u.sysname, u.release, u.machine);
}

static void check_processors(struct doctor *d)
{
	char governor[64];
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

	doctor_report(
		d, n > 1 ? DOCTOR_GOOD : DOCTOR_NOTE, "processors",
		(struct doctor_words){n > 1 ? "the adapter's engine runs beside the program"
					    : "the adapter's engine and the program take turns: "
					      "a thread that polls delays the one it waits for",
				      n > 1 ? NULL : "taskset -p -c 0-1 $$"},
		"%d of %ld for this process", n, sysconf(_SC_NPROCESSORS_ONLN));
	doctor_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor,
		    sizeof(governor));
	if (*governor)
		doctor_report(
			d, strcmp(governor, "powersave") ? DOCTOR_GOOD : DOCTOR_NOTE, "governor",
			(struct doctor_words){strcmp(governor, "powersave")
						      ? "processors speed up under load"
						      : "processors may stay slow under load: "
							"latencies are longer",
					      strcmp(governor, "powersave")
						      ? NULL
						      : "cpupower frequency-set -g performance"},
			"%s", governor);
}

static void check_clock(struct doctor *d)
{
	char source[64];
	bool good;

	doctor_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
		    sizeof(source));
	if (!*source)
		return;
	good = strcmp(source, "hpet") != 0 && strcmp(source, "acpi_pm") != 0 &&
	       strcmp(source, "xen") != 0;
	doctor_report(
		d, good ? DOCTOR_GOOD : DOCTOR_WARNING, "clock",
		(struct doctor_words){good ? "reading the time needs no system call"
					   : "reading the time is a system call, at each "
					     "operation that waits",
				      good ? NULL
					   : "cat /sys/devices/system/clocksource/clocksource0/"
					     "available_clocksource"},
		"%s", source);
}

/* ---- memory --------------------------------------------------------------------------------------- */

static void check_shm(struct doctor *d)
{
	struct statvfs fs;
	char size[24], left[24];

	if (statvfs("/dev/shm", &fs) != 0 || access("/dev/shm", W_OK | X_OK) != 0) {
		doctor_report(d, DOCTOR_FAULT, "/dev/shm",
			      (struct doctor_words){"no heap can be made, and no store in memory",
						    "mount -t tmpfs -o mode=1777 tmpfs /dev/shm"},
			      "missing, or not writable");
		return;
	}
	doctor_size((unsigned long long)fs.f_blocks * fs.f_frsize, size);
	doctor_size((unsigned long long)fs.f_bavail * fs.f_frsize, left);
	if ((unsigned long long)fs.f_bavail * fs.f_frsize < ENOUGH_SHM)
		doctor_report(
			d, DOCTOR_WARNING, "/dev/shm",
			(struct doctor_words){"heaps and stores in memory soon run out of space",
					      "mount -o remount,size=1G /dev/shm"},
			"%s, %s free", size, left);
	else
		doctor_report(d, DOCTOR_GOOD, "/dev/shm",
			      (struct doctor_words){"heaps and stores in memory use it", NULL},
			      "%s, %s free", size, left);
}

static void check_huge_pages(struct doctor *d)
{
	long long pages = doctor_number("/proc/sys/vm/nr_hugepages", 0);
	char mode[64];

	doctor_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", mode, sizeof(mode));
	if (pages > 0)
		doctor_report(d, DOCTOR_GOOD, "huge pages",
			      (struct doctor_words){"heaps that request them get them", NULL},
			      "%lld reserved", pages);
	else
		doctor_report(
			d, DOCTOR_NOTE, "huge pages",
			(struct doctor_words){"heaps with STAG_HEAP_TRY_HUGE use ordinary pages, "
					      "and STAG_HEAP_HUGE is refused",
					      "sysctl -w vm.nr_hugepages=128"},
			"none reserved%s%s", *mode ? "; transparent ones of shared memory: " : "",
			mode);
}

static void check_overcommit(struct doctor *d)
{
	long long mode = doctor_number("/proc/sys/vm/overcommit_memory", 0);

	if (mode == 2)
		doctor_report(
			d, DOCTOR_WARNING, "overcommit",
			(struct doctor_words){"heaps and pools reserve more address space than "
					      "they use: large ones are refused",
					      "sysctl -w vm.overcommit_memory=0"},
			"strict (vm.overcommit_memory is 2)");
	else
		doctor_report(d, DOCTOR_GOOD, "overcommit",
			      (struct doctor_words){"reserved address space costs no memory", NULL},
			      "%s", mode == 1 ? "always" : "by the kernel's heuristic");
}

/* ---- limits ------------------------------------------------------------------------------------------ */

static void check_locked_memory(struct doctor *d)
{
	struct rlimit limit = {0};
	char now[24];

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (geteuid() == 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur / 4 >= STAGING)
		doctor_report(
			d, DOCTOR_GOOD, "locked memory",
			(struct doctor_words){"the staging memory of stores is registered with "
					      "the kernel",
					      NULL},
			"%s",
			geteuid() == 0			  ? "unlimited for root"
			: limit.rlim_cur == RLIM_INFINITY ? "unlimited"
							  : doctor_size(limit.rlim_cur, now));
	else
		doctor_report(
			d, DOCTOR_NOTE, "locked memory",
			(struct doctor_words){
				"the staging memory of stores is not registered with the "
				"kernel: each transfer costs a little more. The adapter itself "
				"locks none",
				"ulimit -l 65536 (limits.conf(5), or LimitMEMLOCK=)"},
			"%s", doctor_size(limit.rlim_cur, now));
}

static void check_files(struct doctor *d)
{
	struct rlimit limit = {0};
	bool few;

	getrlimit(RLIMIT_NOFILE, &limit);
	few = limit.rlim_max < ENOUGH_FILES;
	doctor_report(
		d, few ? DOCTOR_WARNING : DOCTOR_GOOD, "open files",
		(struct doctor_words){
			few ? "a server can have few connections: each needs a descriptor or two"
			    : "servers raise their limit to the maximum",
			few ? "ulimit -Hn 65536 (limits.conf(5), or LimitNOFILE=)" : NULL},
		"%llu, at most %llu", (unsigned long long)limit.rlim_cur,
		(unsigned long long)limit.rlim_max);
}

static void check_addresses(struct doctor *d)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
	char size[24];

	getrlimit(RLIMIT_AS, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		return;
	doctor_report(
		d, DOCTOR_WARNING, "address space",
		(struct doctor_words){"heaps, pools and the adapter reserve addresses: some are "
				      "refused",
				      "ulimit -v unlimited"},
		"limited to %s", doctor_size(limit.rlim_cur, size));
}

/* ---- restrictions ---------------------------------------------------------------------------- */

static void check_seccomp(struct doctor *d)
{
	int mode = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);

	if (mode > 0)
		doctor_report(d, DOCTOR_NOTE, "seccomp",
			      (struct doctor_words){"the filter may refuse system calls; findings "
						    "that it causes are listed where they matter",
						    "grep Seccomp /proc/self/status"},
			      "this process has a seccomp filter");
}

static void check_container(struct doctor *d)
{
	const char *what = access("/.dockerenv", F_OK) == 0		 ? "Docker"
			   : access("/run/.containerenv", F_OK) == 0	 ? "Podman"
			   : access("/run/systemd/container", F_OK) == 0 ? "a container"
									 : NULL;

	if (what)
		doctor_report(
			d, DOCTOR_NOTE, "container",
			(struct doctor_words){"limits, /dev/shm and system calls are those of the "
					      "container; other containers do not see its heaps",
					      "docker run --shm-size=1g --ulimit memlock=-1 ..."},
			"this is %s", what);
}

void doctor_system(struct doctor *d)
{
	check_kernel(d);
	check_processors(d);
	check_clock(d);
	check_shm(d);
	check_huge_pages(d);
	check_overcommit(d);
	check_locked_memory(d);
	check_files(d);
	check_addresses(d);
	check_seccomp(d);
	check_container(d);
}
