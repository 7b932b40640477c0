// SPDX-License-Identifier: BSD-2-Clause
/*
 * noun_storage.c - stag bench store and block: partitions and units, near and far, beside other
 * programs that read and write the same file.
 *
 * `stag store bench` and `stag block bench` load stag's servers; the latter also loads tgt over
 * iSCSI; fio loads nbdkit.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "load.h"

#define IQN  "iqn.2026-01.stag:bench"
#define WARM 1.25 /* stag's loads begin with a warm-up of a quarter of the time */

enum medium { MEDIUM_MEMORY, MEDIUM_DISK, MEDIUM_FAR, MEDIUM_BLOCK };

struct storage_case {
	const char *name, *what;
	enum medium medium;
	const char *op;
	unsigned int depth;
	uint64_t size;
	const char *scheme; /* scheme of the block target's URL */
	bool quick;
};

#define MIB (1ull << 20)

static const struct storage_case store_cases[] = {
	{"near_read_1", "4 KiB read from a partition in memory, one at a time", MEDIUM_MEMORY,
	 "read", 1, 4096, NULL, true},
	{"near_write_1", "4 KiB written to a partition in memory, one at a time", MEDIUM_MEMORY,
	 "write", 1, 4096, NULL, false},
	{"near_read_32", "4 KiB read from a partition in memory, 32 at once", MEDIUM_MEMORY, "read",
	 32, 4096, NULL, true},
	{"near_write_32", "4 KiB written to a partition in memory, 32 at once", MEDIUM_MEMORY,
	 "write", 32, 4096, NULL, false},
	{"disk_read_32", "4 KiB read from a disk, O_DIRECT, 32 at once, asleep", MEDIUM_DISK,
	 "read", 32, 4096, NULL, true},
	{"disk_write_32", "4 KiB written to a disk, O_DIRECT, 32 at once, asleep", MEDIUM_DISK,
	 "write", 32, 4096, NULL, false},
	{"far_read_1", "4 KiB read from a served store, one at a time", MEDIUM_FAR, "read", 1, 4096,
	 NULL, true},
	{"far_write_1", "4 KiB written to a served store, one at a time", MEDIUM_FAR, "write", 1,
	 4096, NULL, false},
	{"far_read_32", "4 KiB read from a served store, 32 at once", MEDIUM_FAR, "read", 32, 4096,
	 NULL, false},
	{"far_write_32", "4 KiB written to a served store, 32 at once", MEDIUM_FAR, "write", 32,
	 4096, NULL, true},
	{"far_read_1m", "1 MiB sequential, 4 reads at once", MEDIUM_FAR, "read", 4, MIB, NULL,
	 true},
	{"far_write_1m", "1 MiB sequential, 4 writes at once", MEDIUM_FAR, "write", 4, MIB, NULL,
	 false},
};

static const struct storage_case block_cases[] = {
	{"read_1", "4 KiB read, one at a time, one-shot STags", MEDIUM_BLOCK, "read", 1, 4096,
	 "stag", true},
	{"write_1", "4 KiB written, one at a time, one-shot STags", MEDIUM_BLOCK, "write", 1, 4096,
	 "stag", false},
	{"read_32", "4 KiB read, 32 at once, one-shot STags", MEDIUM_BLOCK, "read", 32, 4096,
	 "stag", false},
	{"write_32", "4 KiB written, 32 at once, one-shot STags", MEDIUM_BLOCK, "write", 32, 4096,
	 "stag", true},
	{"iser_read_32", "4 KiB read, 32 at once, iSER", MEDIUM_BLOCK, "read", 32, 4096, "iser",
	 false},
	{"iscsi_read_32", "4 KiB read, 32 at once, iSCSI over TCP", MEDIUM_BLOCK, "read", 32, 4096,
	 "iscsi", true},
	{"read_1m", "1 MiB sequential, 4 reads at once, one-shot STags", MEDIUM_BLOCK, "read", 4,
	 MIB, "stag", true},
	{"write_1m", "1 MiB sequential, 4 writes at once, one-shot STags", MEDIUM_BLOCK, "write", 4,
	 MIB, "stag", false},
};

/* A file and the range in it that is loaded. */
struct medium_file {
	char path[280];
	uint64_t offset;
};

static struct {
	struct medium_file memory, disk, unit;
	uint64_t bytes; /* of the range */
	uint16_t port;	/* of ours */
	pid_t ours, nbdkit, tgt;
	uint16_t nbdkit_port, tgt_port;
} here;

/* ---- files ---- */

static bool fill_file(const char *path, uint64_t offset, uint64_t bytes)
{
	CLEANUP_FREE uint64_t *words = malloc(MIB);
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	uint64_t x = 88172645463325252u;

	for (uint64_t at = 0; words && fd >= 0 && at < bytes; at += MIB) {
		for (size_t i = 0; i < MIB / 8; i++)
			words[i] = load_dice(&x);
		if (pwrite(fd, words, MIB, (off_t)(offset + at)) != (ssize_t)MIB)
			return false;
	}
	return words && fd >= 0 && fsync(fd) == 0;
}

/* Makes a store whose partition p has been written once. */
static bool make_store(struct suite *s, const char *dir, struct medium_file *m)
{
	char whole[24], part[24];
	const char *const format[] = {child_self(), "store", "format", m->path,
				      "--size",	    whole,   NULL};
	const char *const add[] = {child_self(),  "store",   "add",	     m->path,
				   "p",		  "--size",  part,	     "--allow",
				   "local:write", "--allow", "remote:write", NULL};
	const char *const show[] = {"store", "show", m->path, "p", "--json", NULL};
	CLEANUP_FREE char *made = NULL;
	CLEANUP_FREE char *added = NULL;
	json_t *o;

	snprintf(m->path, sizeof(m->path), "%s/store", dir);
	snprintf(whole, sizeof(whole), "%lluM", (unsigned long long)here.bytes / MIB + 8);
	snprintf(part, sizeof(part), "%lluM", (unsigned long long)here.bytes / MIB);
	made = child_output(s, CPU_ANY, format);
	added = made ? child_output(s, CPU_ANY, add) : NULL;
	o = added ? child_stag(s, CPU_ANY, show) : NULL;
	if (!o)
		return false;
	m->offset = (uint64_t)json_integer_value(json_object_get(o, "offset"));
	json_decref(o);
	return fill_file(m->path, m->offset, here.bytes);
}

/* ---- servers of others ---- */

static void start_nbdkit(struct suite *s, const struct suite_noun *noun, const char *file)
{
	char port[8];
	const char *const words[] = {"nbdkit", "-f",   "-i", "127.0.0.1", "-p",
				     port,     "file", file, NULL};

	if (!yard_have(s, noun, "nbdkit", "nbdkit", "nbdkit") ||
	    !yard_have(s, noun, "nbdkit", "fio", "fio"))
		return;
	here.nbdkit_port = place_port();
	snprintf(port, sizeof(port), "%u", here.nbdkit_port);
	here.nbdkit = child_serve(s, CPU_SERVER, here.nbdkit_port, words);
	if (here.nbdkit < 0)
		suite_missing(s, noun, "nbdkit", NULL, "nbdkit did not start: %.120s",
			      child_complaint());
}

static bool tgtadm(struct suite *s, const char *socket, const char *const *more)
{
	const char *words[24] = {socket, "timeout", "10", "tgtadm", "--lld", "iscsi"};
	unsigned int n = 6;
	char *said;

	while (*more && n < 23)
		words[n++] = *more++;
	said = child_output(s, CPU_ANY, words);
	free(said);
	return said != NULL;
}

static bool give_tgt_a_disk(struct suite *s, const char *socket, const char *file)
{
	const char *const target[] = {"--mode", "target",	"--op", "new", "--tid",
				      "1",	"--targetname", IQN,	NULL};
	const char *const unit[] = {"--mode",	       "logicalunit", "--op",  "new",
				    "--tid",	       "1",	      "--lun", "1",
				    "--backing-store", file,	      NULL};
	const char *const bind[] = {
		"--mode", "target", "--op", "bind", "--tid", "1", "--initiator-address",
		"ALL",	  NULL};

	return tgtadm(s, socket, target) && tgtadm(s, socket, unit) && tgtadm(s, socket, bind);
}

static void start_tgt(struct suite *s, const struct suite_noun *noun, const char *file)
{
	char portal[48], socket[160];
	const char *const words[] = {socket, "tgtd", "-f", "--iscsi", portal, NULL};

	if (!yard_have(s, noun, "tgt", "tgtd", "tgt"))
		return;
	here.tgt_port = place_port();
	snprintf(portal, sizeof(portal), "portal=127.0.0.1:%u", here.tgt_port);
	snprintf(socket, sizeof(socket), "TGT_IPC_SOCKET=%s/tgtd", s->shm);
	here.tgt = child_serve(s, CPU_SERVER, here.tgt_port, words);
	if (here.tgt < 0 || !give_tgt_a_disk(s, socket, file)) {
		here.tgt = -1;
		suite_missing(s, noun, "tgt", NULL, "tgtd did not start for user %u: %.120s",
			      (unsigned int)getuid(), child_complaint());
	}
}

/* ---- the cases ---- */

static void list_of(struct suite *s, const struct suite_noun *noun,
		    const struct storage_case *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct storage_case *t = &cases[i];
		struct suite_case *c = suite_add(s, noun, t->name, t->quick);

		if (!c)
			continue;
		snprintf(c->what, sizeof(c->what), "%s", t->what);
		c->unit = t->size >= MIB ? "GB/s" : "k/s";
		c->size = t->size;
		c->own = t;
		if (t->size >= MIB)
			suite_yardstick(c, "tcp",
					"a TCP stream of 1 MiB writes, polled or asleep, whichever "
					"is faster");
		if (t->medium == MEDIUM_MEMORY || t->medium == MEDIUM_DISK) {
			suite_yardstick(c, "plain",
					t->depth == 1 ? "pread or pwrite in a loop"
						      : "io_uring in a plain loop");
			suite_yardstick(c, "fio", "fio's io_uring engine, the same file");
		} else {
			suite_yardstick(c, "nbdkit", "nbdkit's file plugin, loaded by fio");
		}
		if (t->medium == MEDIUM_BLOCK)
			suite_yardstick(c, "tgt", "tgt's iSCSI target, our initiator");
	}
}

static void list_store(struct suite *s)
{
	list_of(s, &suite_store, store_cases, sizeof(store_cases) / sizeof(*store_cases));
}

static void list_block(struct suite *s)
{
	list_of(s, &suite_block, block_cases, sizeof(block_cases) / sizeof(*block_cases));
}

static void fail_all(struct suite *s, const struct suite_noun *noun, enum medium medium,
		     const char *why)
{
	for (unsigned int i = 0; i < s->num_cases; i++) {
		const struct storage_case *t = s->cases[i].own;

		if (s->cases[i].noun == noun && t->medium == medium)
			suite_failed(&s->cases[i], why);
	}
}

static void begin_far(struct suite *s)
{
	char port[8];
	const char *const words[] = {
		"STAG_CRC=off", child_self(), "store",	"serve", here.memory.path,
		"--address",	"127.0.0.1",  "--port", port,	 NULL};

	here.port = place_port();
	snprintf(port, sizeof(port), "%u", here.port);
	here.ours = child_serve(s, CPU_SERVER, here.port, words);
	if (here.ours < 0)
		fail_all(s, &suite_store, MEDIUM_FAR, child_complaint());
	start_nbdkit(s, &suite_store, here.memory.path);
}

static void choose_size(const struct suite *s)
{
	here.bytes = (s->o.quick ? 32 : 256) * MIB;
}

static void begin_store(struct suite *s)
{
	choose_size(s);
	if (suite_wants(s, &suite_store, "near_*") || suite_wants(s, &suite_store, "disk_*"))
		yard_have(s, &suite_store, "fio", "fio", "fio");
	if ((suite_wants(s, &suite_store, "near_*") || suite_wants(s, &suite_store, "far_*")) &&
	    !make_store(s, s->shm, &here.memory)) {
		fail_all(s, &suite_store, MEDIUM_MEMORY, child_complaint());
		fail_all(s, &suite_store, MEDIUM_FAR, child_complaint());
		return;
	}
	if (suite_wants(s, &suite_store, "disk_*") &&
	    (!*s->disk || !make_store(s, s->disk, &here.disk)))
		fail_all(s, &suite_store, MEDIUM_DISK,
			 *s->disk ? child_complaint() : "no directory on a disk: see --dir");
	if (suite_wants(s, &suite_store, "far_*"))
		begin_far(s);
}

static void begin_block(struct suite *s)
{
	char port[8], unit[300], runtime[160];
	const char *const words[] = {"STAG_CRC=off", runtime,  child_self(), "block", "serve",
				     "--name",	     IQN,      "--lun",	     unit,    "--address",
				     "127.0.0.1",    "--port", port,	     NULL};

	choose_size(s);
	snprintf(here.unit.path, sizeof(here.unit.path), "%s/unit", s->shm);
	snprintf(unit, sizeof(unit), "1=%s", here.unit.path);
	snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=%s", s->shm);
	here.port = place_port();
	snprintf(port, sizeof(port), "%u", here.port);
	if (!fill_file(here.unit.path, 0, here.bytes)) {
		fail_all(s, &suite_block, MEDIUM_BLOCK, "not enough memory for a unit");
		return;
	}
	here.ours = child_serve(s, CPU_SERVER, here.port, words);
	if (here.ours < 0)
		fail_all(s, &suite_block, MEDIUM_BLOCK, child_complaint());
	start_nbdkit(s, &suite_block, here.unit.path);
	start_tgt(s, &suite_block, here.unit.path);
}

/* ---- a run ---- */

/* Options that all loads share, as text. */
struct words {
	char depth[16], size[24], secs[24], offset[24], bytes[24];
	const char *way; /* --random or --sequential */
};

static struct words words_of(const struct suite *s, const struct storage_case *t,
			     const struct medium_file *m)
{
	struct words w = {.way = t->size >= MIB ? "--sequential" : "--random"};

	snprintf(w.depth, sizeof(w.depth), "%u", t->depth);
	snprintf(w.size, sizeof(w.size), "%llu", (unsigned long long)t->size);
	snprintf(w.secs, sizeof(w.secs), "%g", s->o.secs);
	snprintf(w.offset, sizeof(w.offset), "%llu", (unsigned long long)m->offset);
	snprintf(w.bytes, sizeof(w.bytes), "%llu", (unsigned long long)here.bytes);
	return w;
}

static const struct medium_file *file_of(const struct storage_case *t)
{
	if (t->medium == MEDIUM_BLOCK)
		return &here.unit;
	return t->medium == MEDIUM_DISK ? &here.disk : &here.memory;
}

static double scale_of(const struct storage_case *t)
{
	return t->size >= MIB ? (double)t->size / 1e9 : 1e-3;
}

/* Runs `stag store bench` or `stag block bench`. */
static bool take_ours(struct suite *s, const struct storage_case *t, const char *noun,
		      const char *where, bool sleeps, struct suite_sample *to)
{
	struct words w = words_of(s, t, file_of(t));
	const char *const words[] = {
		"STAG_CRC=off", noun,	 "bench",   where,    "--op", t->op,
		"--depth",	w.depth, "--size",  w.size,   w.way,  sleeps ? "--sleep" : "--poll",
		"--secs",	w.secs,	 "--force", "--json", NULL};

	return yard_sample(child_stag(s, CPU_CLIENT, words), to, scale_of(t));
}

static bool take_stag(struct suite *s, const struct storage_case *t, struct suite_sample *to)
{
	char where[400];

	switch (t->medium) {
	case MEDIUM_MEMORY:
	case MEDIUM_DISK:
		snprintf(where, sizeof(where), "%s:p", file_of(t)->path);
		return take_ours(s, t, "store", where, t->medium == MEDIUM_DISK, to);
	case MEDIUM_FAR:
		snprintf(where, sizeof(where), "127.0.0.1:%u/p", here.port);
		return take_ours(s, t, "store", where, false, to);
	case MEDIUM_BLOCK:
		snprintf(where, sizeof(where), "%s://127.0.0.1:%u/" IQN "/1", t->scheme, here.port);
		return take_ours(s, t, "block", where, false, to);
	}
	return false;
}

static bool take_tgt(struct suite *s, const struct storage_case *t, struct suite_sample *to)
{
	char url[128];

	snprintf(url, sizeof(url), "iscsi://127.0.0.1:%u/" IQN "/1", here.tgt_port);
	return take_ours(s, t, "block", url, false, to);
}

static bool take_plain(struct suite *s, const struct storage_case *t, struct suite_sample *to)
{
	struct words w = words_of(s, t, file_of(t));
	const char *const words[] = {
		"bench",  "part",  "file", w.offset[0] ? file_of(t)->path : "",
		w.offset, w.bytes, t->op,  w.size,
		w.depth,  w.secs,  "json", t->medium == MEDIUM_DISK ? "direct" : NULL,
		NULL};

	return yard_sample(child_stag(s, CPU_CLIENT, words), to, scale_of(t));
}

/* Measures fio on the file, or on nbdkit. */
static bool take_fio(struct suite *s, const struct storage_case *t, bool nbd,
		     struct suite_sample *to)
{
	char where[320], rw[24], bs[32], depth[32], offset[48], size[48], direct[16];
	const char *const words[] = {nbd ? "--ioengine=nbd" : "--ioengine=io_uring",
				     where,
				     rw,
				     bs,
				     depth,
				     offset,
				     size,
				     nbd ? NULL : direct,
				     NULL};

	if (nbd)
		snprintf(where, sizeof(where), "--uri=nbd://127.0.0.1:%u/", here.nbdkit_port);
	else
		snprintf(where, sizeof(where), "--filename=%s", file_of(t)->path);
	snprintf(rw, sizeof(rw), "--rw=%s%s", t->size >= MIB ? "" : "rand", t->op);
	snprintf(bs, sizeof(bs), "--bs=%llu", (unsigned long long)t->size);
	snprintf(depth, sizeof(depth), "--iodepth=%u", t->depth);
	snprintf(offset, sizeof(offset), "--offset=%llu", (unsigned long long)file_of(t)->offset);
	snprintf(size, sizeof(size), "--size=%llu", (unsigned long long)here.bytes);
	snprintf(direct, sizeof(direct), "--direct=%d", t->medium == MEDIUM_DISK);
	if (!yard_fio(s, words, to))
		return false;
	to->value *= scale_of(t);
	return true;
}

static bool take_series_sample(struct suite *s, const struct storage_case *t, const char *name,
			       struct suite_sample *to)
{
	if (strcmp(name, "stag") == 0)
		return take_stag(s, t, to);
	if (strcmp(name, "plain") == 0)
		return take_plain(s, t, to);
	if (strcmp(name, "tgt") == 0)
		return take_tgt(s, t, to);
	if (strcmp(name, "tcp") == 0)
		return yard_stream(s, t->size, to);
	return take_fio(s, t, strcmp(name, "nbdkit") == 0, to);
}

/* Returns the pid of the server, or 0. */
static pid_t server_of(const struct storage_case *t, const char *name)
{
	if (strcmp(name, "stag") == 0)
		return t->medium == MEDIUM_FAR || t->medium == MEDIUM_BLOCK ? here.ours : 0;
	if (strcmp(name, "nbdkit") == 0)
		return here.nbdkit;
	return strcmp(name, "tgt") == 0 ? here.tgt : 0;
}

static bool take_storage_sample(struct suite *s, struct suite_case *c, unsigned int series,
				struct suite_sample *to)
{
	const struct storage_case *t = c->own;
	const char *name = c->series[series].name;
	pid_t server = server_of(t, name);
	uint64_t busy = child_cpu_ns(server);
	bool ok = take_series_sample(s, t, name, to);
	double done =
		to->value / scale_of(t) * s->o.secs * (strcmp(name, "nbdkit") == 0 ? 1 : WARM);

	if (ok && server > 0)
		to->server_us = (double)(child_cpu_ns(server) - busy) / 1e3 / done;
	return ok;
}

static void measure_storage(struct suite *s, struct suite_case *c, unsigned int pass)
{
	suite_turns(s, c, pass, take_storage_sample);
}

const struct suite_noun suite_store = {
	"store", "the store, near and far, beside plain reads and writes, fio, nbdkit and raw TCP",
	list_store, begin_store, measure_storage};
const struct suite_noun suite_block = {"block", "the block target beside tgt, nbdkit and raw TCP",
				       list_block, begin_block, measure_storage};
