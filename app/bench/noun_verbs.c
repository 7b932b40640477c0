// SPDX-License-Identifier: BSD-2-Clause
/*
 * noun_verbs.c - stag bench verbs: the software adapter beside raw TCP and libfabric's tcp, in the
 * same loops.
 */
#include "bench.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload.h"

struct verbs_case {
	const char *name, *what, *unit;
	enum suite_better better;
	const char *verbs, *tcp, *fabric; /* command lines of the pairs; NULL: not measured */
	uint64_t size;
	bool quick;
};

#define WINDOW "-w 64 -l 16"

static const struct verbs_case cases[] = {
	{"write_bw_4k", "RDMA Writes of 4 KiB", "GB/s", BETTER_MORE, "write_bw", "stream",
	 "write_bw", 4096, true},
	{"write_bw_16k", "RDMA Writes of 16 KiB", "GB/s", BETTER_MORE, "write_bw", "stream",
	 "write_bw", 16384, false},
	{"write_bw_64k", "RDMA Writes of 64 KiB", "GB/s", BETTER_MORE, "write_bw", "stream",
	 "write_bw", 65536, true},
	{"write_bw_256k", "RDMA Writes of 256 KiB", "GB/s", BETTER_MORE, "write_bw", "stream",
	 "write_bw", 262144, false},
	{"write_bw_1m", "RDMA Writes of 1 MiB", "GB/s", BETTER_MORE, "write_bw", "stream",
	 "write_bw", 1 << 20, true},
	{"read_bw_4k", "RDMA Reads of 4 KiB", "GB/s", BETTER_MORE, "read_bw", "stream", "read_bw",
	 4096, true},
	{"read_bw_16k", "RDMA Reads of 16 KiB", "GB/s", BETTER_MORE, "read_bw", "stream", "read_bw",
	 16384, false},
	{"read_bw_64k", "RDMA Reads of 64 KiB", "GB/s", BETTER_MORE, "read_bw", "stream", "read_bw",
	 65536, true},
	{"read_bw_256k", "RDMA Reads of 256 KiB", "GB/s", BETTER_MORE, "read_bw", "stream",
	 "read_bw", 262144, false},
	{"read_bw_1m", "RDMA Reads of 1 MiB", "GB/s", BETTER_MORE, "read_bw", "stream", "read_bw",
	 1 << 20, true},
	{"write_lat", "8 bytes into the peer's memory, polled, one way", "us", BETTER_LESS,
	 "write_lat", "pingpong", "write_lat", 8, true},
	{"send_lat", "8-byte Send, polled, one way", "us", BETTER_LESS, "send_lat", "pingpong",
	 "send_lat", 8, true},
	{"send_lat_asleep", "8-byte Send, both sides sleep until it arrives, one way", "us",
	 BETTER_LESS, "send_lat -e", "pingpong -e", NULL, 8, true},
	{"read_lat", "8-byte RDMA Read, there and back", "us", BETTER_LESS, "read_lat", "pingpong",
	 "read_lat", 8, false},
	{"write_rate_64", "RDMA Writes of 64 bytes, 16 per post", "M/s", BETTER_MORE,
	 "write_rate " WINDOW, "rate -l 16", "write_rate " WINDOW, 64, true},
	{"send_rate_64", "Sends of 64 bytes, 16 per post", "M/s", BETTER_MORE, "send_rate " WINDOW,
	 "rate -l 16", "send_rate " WINDOW, 64, false},
	{"connect", "connections made and ended", "/s", BETTER_MORE, "connect", "connect -e", NULL,
	 0, false},
};

static const char *tcp_words(const struct verbs_case *v)
{
	if (strcmp(v->tcp, "stream") == 0)
		return "raw TCP, writes of that size, polled or asleep, whichever is faster";
	if (strcmp(v->tcp, "rate -l 16") == 0)
		return "raw TCP, 16 messages per send";
	if (strcmp(v->tcp, "connect -e") == 0)
		return "TCP connect, a byte each way, close";
	return strstr(v->tcp, "-e") ? "raw TCP ping-pong, asleep" : "raw TCP ping-pong, polled";
}

static void list_verbs_cases(struct suite *s)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct verbs_case *v = &cases[i];
		struct suite_case *c = suite_add(s, &suite_verbs, v->name, v->quick);

		if (!c)
			continue;
		snprintf(c->what, sizeof(c->what), "%s", v->what);
		c->unit = v->unit;
		c->better = v->better;
		c->size = v->size;
		c->own = v;
		suite_yardstick(c, "tcp", tcp_words(v));
		if (v->fabric)
			suite_yardstick(c, "libfabric",
					"libfabric's tcp provider, the same operation");
	}
}

/* Returns the path of the pair that uses libfabric, in the build tree or installed, or NULL. */
static const char *fabric_pair(void)
{
	static const char *const places[] = {"../../bench/fabric_pair", "fabric_pair"};
	static char path[PATH_MAX];

	return find_beside_executable(places, 2, X_OK, path) == 0 ? path : NULL;
}

static void begin_verbs(struct suite *s)
{
	json_object_set_new(s->programs, "tcp", json_string("the kernel's, in this program"));
	if (fabric_pair())
		json_object_set_new(s->programs, "libfabric",
				    json_string("as linked, bench/fabric_pair.c"));
	else
		suite_missing(s, &suite_verbs, "libfabric", "apt install libfabric-dev",
			      "bench/fabric_pair is missing: it is built if libfabric-dev is "
			      "installed");
}

/* Appends CASE OPTION... and the options of the run to words; text is the storage. */
static void add_words(const struct suite *s, const struct verbs_case *v, const char *run,
		      const char **words, unsigned int n, char text[256])
{
	bool slow = strstr(run, "-e") != NULL;
	unsigned int trips = (unsigned int)((slow ? 8000 : 40000) * s->o.secs);
	char *save = NULL;

	snprintf(text, 256, "%s -j -s %llu -n %u -t %g", run,
		 (unsigned long long)(v->size ? v->size : 1), trips < 200 ? 200 : trips, s->o.secs);
	for (char *w = strtok_r(text, " ", &save); w && n < 30; w = strtok_r(NULL, " ", &save))
		words[n++] = w;
}

static bool take_verbs_sample(struct suite *s, struct suite_case *c, unsigned int series,
			      struct suite_sample *to)
{
	const struct verbs_case *v = c->own;
	const char *words[32] = {0};
	char text[256];

	if (strcmp(c->series[series].name, "libfabric") == 0) {
		words[0] = fabric_pair();
		add_words(s, v, v->fabric, words, 1, text);
		return yard_pair(child_json(s, CPU_ANY, words), to);
	}
	if (series > 0 && strcmp(v->tcp, "stream") == 0)
		return yard_stream(s, v->size, to);
	words[0] = "STAG_CRC=off";
	words[1] = "bench";
	words[2] = "part";
	words[3] = series > 0 ? "tcp" : "verbs";
	add_words(s, v, series > 0 ? v->tcp : v->verbs, words, 4, text);
	return yard_pair(child_stag(s, CPU_ANY, words), to);
}

static void measure_verbs(struct suite *s, struct suite_case *c, unsigned int pass)
{
	suite_turns(s, c, pass, take_verbs_sample);
}

const struct suite_noun suite_verbs = {"verbs", "the software adapter beside raw TCP and libfabric",
				       list_verbs_cases, begin_verbs, measure_verbs};
