// SPDX-License-Identifier: BSD-2-Clause
/*
 * machine.c - describes the machine, and measures the load of other programs on it.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "part.h"

/* CPU time of all CPUs since boot, in ticks. */
struct ticks {
	unsigned long long all, steal;
};

static struct {
	struct ticks ticks;
	double load;
} before;

/* Copies the rest of the first line that begins so, after the separator; "" if there is none. */
static void line_of(const char *file, const char *begins, const char *separator, char *to,
		    size_t size)
{
	CLEANUP_FREE char *line = NULL;
	FILE *f = fopen(file, "r");
	size_t room = 0;

	*to = '\0';
	while (f && !*to && getline(&line, &room, f) > 0) {
		const char *at = strstr(line, separator);

		if (strncmp(line, begins, strlen(begins)) != 0 || !at)
			continue;
		at += strlen(separator);
		at += strspn(at, " \t\"");
		snprintf(to, size, "%.*s", (int)strcspn(at, "\"\n"), at);
	}
	if (f)
		fclose(f);
}

static struct ticks read_ticks(void)
{
	unsigned long long v[8] = {0};
	struct ticks t = {0};
	char text[256];

	line_of("/proc/stat", "cpu ", "cpu ", text, sizeof(text));
	sscanf(text, "%llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4],
	       &v[5], &v[6], &v[7]);
	for (int i = 0; i < 8; i++)
		t.all += v[i];
	t.steal = v[7];
	return t;
}

static double load_now(void)
{
	double load = 0;

	return getloadavg(&load, 1) == 1 ? load : 0;
}

void machine_watch(void)
{
	before.ticks = read_ticks();
	before.load = load_now();
}

static double steal_percent(void)
{
	struct ticks now = read_ticks();

	return now.all > before.ticks.all ? 100.0 * (double)(now.steal - before.ticks.steal) /
						    (double)(now.all - before.ticks.all)
					  : 0;
}

json_t *machine_noise(void)
{
	json_t *a = json_array();
	double steal = steal_percent();

	if (before.load > 0.3)
		json_array_append_new(
			a,
			json_sprintf("at the start, other programs had a load of %.1f on %u CPUs",
				     before.load, bench_cpus()));
	if (steal > 1)
		json_array_append_new(
			a, json_sprintf("the host of this virtual machine took %.1f %% of its time "
					"away",
					steal));
	if (bench_cpus() < 2)
		json_array_append_new(
			a,
			json_string(
				"one CPU for both sides of a connection: a side that polls keeps "
				"the other from working"));
	return a;
}

json_t *machine_facts(const struct suite *s)
{
	char cpu[128], os[128], memory[64], governor[64], congestion[64], flags[4096];
	struct utsname u = {0};

	uname(&u);
	line_of("/proc/cpuinfo", "model name", ":", cpu, sizeof(cpu));
	line_of("/proc/cpuinfo", "flags", ":", flags, sizeof(flags));
	line_of("/etc/os-release", "PRETTY_NAME", "=", os, sizeof(os));
	line_of("/proc/meminfo", "MemTotal", ":", memory, sizeof(memory));
	line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", "", governor,
		sizeof(governor));
	line_of("/proc/sys/net/ipv4/tcp_congestion_control", "", "", congestion,
		sizeof(congestion));
	return json_pack(
		"{s:s s:i s:b s:s s:s s:s s:I s:s s:s s:b s:f s:f}", "cpu", *cpu ? cpu : u.machine,
		"cpus", (int)bench_cpus(), "virtual", strstr(flags, "hypervisor") != NULL, "kernel",
		u.release, "architecture", u.machine, "system", os, "memory_bytes",
		(json_int_t)strtoll(memory, NULL, 10) * 1024, "governor",
		*governor ? governor : "unknown", "congestion", congestion, "private_network",
		s->private_network, "load_before", before.load, "steal_percent", steal_percent());
}
