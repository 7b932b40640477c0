// SPDX-License-Identifier: BSD-2-Clause
/*
 * yardstick.c - programs of others: finds them, and parses their figures.
 */
#include "bench.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "stag.h"

/* Records the first line of its version. */
static void note_version(struct suite *s, const char *name, const char *program)
{
	const char *const words[] = {program, strcmp(program, "tgtd") == 0 ? "-V" : "--version",
				     NULL};
	CLEANUP_FREE char *text = NULL;

	if (json_object_get(s->programs, name))
		return;
	text = child_output(s, CPU_ANY, words);
	json_object_set_new(s->programs, name,
			    text ? json_stringn(text, strcspn(text, "\n")) : json_string("here"));
}

bool yard_have(struct suite *s, const struct suite_noun *noun, const char *yardstick,
	       const char *program, const char *package)
{
	char path[PATH_MAX], install[64];

	if (program_find(program, path, sizeof(path)) == 0) {
		note_version(s, yardstick, program);
		return true;
	}
	snprintf(install, sizeof(install), "apt install %s", package);
	suite_missing(s, noun, yardstick, install, "%s is not installed", program);
	return false;
}

bool yard_sample(json_t *o, struct suite_sample *to, double scale)
{
	json_t *cpu = json_object_get(o, "cpu_us");

	if (!o)
		return false;
	to->value = json_number_value(json_object_get(o, "iops")) * scale;
	to->cpu_us = json_is_number(cpu) ? json_number_value(cpu) : -1;
	to->latency = json_incref(json_object_get(o, "latency_us"));
	json_decref(o);
	return to->value > 0;
}

bool yard_pair(json_t *o, struct suite_sample *to)
{
	if (!o)
		return false;
	to->value = json_number_value(json_object_get(o, "value"));
	to->cpu_us = json_number_value(json_object_get(o, "cpu_us"));
	to->server_us = json_number_value(json_object_get(o, "server_us"));
	to->latency = json_incref(json_object_get(o, "latency_us"));
	json_decref(o);
	return to->value > 0;
}

/* ---- fio ---- */

/* Converts "99.000000": nanoseconds to "p99": microseconds. */
static json_t *fio_latency(const json_t *io)
{
	json_t *o = json_object(), *v;
	json_t *clat = json_object_get(io, "clat_ns");
	const char *key;
	char name[16];

	json_object_foreach (json_object_get(clat, "percentile"), key, v) {
		snprintf(name, sizeof(name), "p%g", strtod(key, NULL));
		json_object_set_new(o, name, json_real(json_number_value(v) / 1e3));
	}
	json_object_set_new(o, "max", json_real(result_number(clat, "max") / 1e3));
	return o;
}

static bool read_fio(const json_t *out, struct suite_sample *to)
{
	const json_t *job = json_array_get(json_object_get(out, "jobs"), 0);
	const json_t *io = json_object_get(job, "read");
	double cpu = result_number(job, "usr_cpu") + result_number(job, "sys_cpu");

	if (!(result_number(io, "io_bytes") > 0))
		io = json_object_get(job, "write");
	to->value = result_number(io, "iops");
	to->cpu_us =
		cpu / 100 * result_number(io, "runtime") * 1000 / result_number(io, "total_ios");
	to->latency = fio_latency(io);
	return to->value > 0;
}

bool yard_fio(const struct suite *s, const char *const *words, struct suite_sample *to)
{
	char runtime[48];
	const char *all[32] = {"fio",
			       "--name=p",
			       "--time_based",
			       "--norandommap",
			       "--randrepeat=0",
			       "--invalidate=0",
			       runtime,
			       "--output-format=json"};
	unsigned int n = 8;
	json_t *out;
	bool ok;

	snprintf(runtime, sizeof(runtime), "--runtime=%.0fms", s->o.secs * 1000);
	while (*words && n < 31)
		all[n++] = *words++;
	out = child_json(s, CPU_CLIENT, all);
	ok = out && read_fio(out, to);
	json_decref(out);
	return ok;
}

/* ---- a stream ---- */

static bool measure_stream(struct suite *s, uint64_t size, struct suite_sample *to)
{
	char bytes[24], secs[24];
	bool any = false;

	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)size);
	snprintf(secs, sizeof(secs), "%g", s->o.secs);
	for (int asleep = 0; asleep < 2; asleep++) {
		const char *const words[] = {"bench", "part", "tcp", "stream", "-j",
					     "-s",    bytes,  "-t",  secs,     asleep ? "-e" : NULL,
					     NULL};
		struct suite_sample one = {.cpu_us = -1, .server_us = -1};

		if (yard_pair(child_stag(s, CPU_ANY, words), &one) &&
		    (!any || one.value > to->value)) {
			*to = one;
			any = true;
		}
	}
	return any;
}

/* cases of the same size share the measurement */
bool yard_stream(struct suite *s, uint64_t size, struct suite_sample *to)
{
	static struct {
		const struct suite_noun *noun;
		unsigned int pass;
		uint64_t size;
		struct suite_sample sample;
	} known[8];
	static unsigned int n;

	for (unsigned int i = 0; i < n; i++)
		if (known[i].noun == s->noun && known[i].pass == s->pass && known[i].size == size) {
			*to = known[i].sample;
			return true;
		}
	if (!measure_stream(s, size, to))
		return false;
	if (n == sizeof(known) / sizeof(*known))
		n = 0;
	known[n].noun = s->noun;
	known[n].pass = s->pass;
	known[n].size = size;
	known[n++].sample = *to;
	return true;
}
