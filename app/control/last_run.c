// SPDX-License-Identifier: BSD-2-Clause
/*
 * last_run.c - see last_run.h.
 */
#include "last_run.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "control.h"

#define PREFIX	 "last-"
#define SUFFIX	 ".json"
#define DIR_ROOM 108

static char path[PATH_MAX]; /* of this process; empty: none */
static json_t *own;

/* ---- processes -------------------------------------------------------------------------------- */

static void boot_id(char *text, size_t size)
{
	ssize_t n = file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, size);

	text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
}

/* Returns when a process started, in ticks since the boot; 0: it does not run. */
static unsigned long long start_of(int pid)
{
	char file[32], text[1024], state = 'Z', *end;
	unsigned long long start = 0;
	ssize_t n;

	snprintf(file, sizeof(file), "/proc/%d/stat", pid);
	n = file_read(AT_FDCWD, file, text, sizeof(text));
	end = n > 0 ? strrchr(text, ')') : NULL; /* behind its name, which may contain anything */
	if (!end || sscanf(end + 1,
			   " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			   "%*d %*d %llu",
			   &state, &start) != 2)
		return 0;
	return strchr("ZX", state) ? 0 : start;
}

static bool lives(const json_t *run)
{
	const char *boot = json_string_value(json_object_get(run, "boot"));
	unsigned long long start = start_of((int)json_integer_value(json_object_get(run, "pid")));
	char now[64];

	boot_id(now, sizeof(now));
	return boot && strcmp(boot, now) == 0 && start &&
	       start == (unsigned long long)json_integer_value(json_object_get(run, "start"));
}

/* ---- the record of this process ------------------------------------------------------------------ */

static json_t *time_now(void)
{
	struct timespec now;
	char text[48];

	clock_gettime(CLOCK_REALTIME, &now);
	log_format_time(&now, text, sizeof(text));
	return json_string(text);
}

/* Names the record after the hash (FNV-1a) of the INI file's path. */
static bool name_record(const char *config)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	char dir[DIR_ROOM];

	if (!control_directory(NULL, dir, sizeof(dir)))
		return false;
	for (const char *c = config; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
	return snprintf(path, sizeof(path), "%s/" PREFIX "%016llx" SUFFIX, dir,
			(unsigned long long)hash) < (int)sizeof(path);
}

static void write_record(void)
{
	char fresh[PATH_MAX + 16];

	snprintf(fresh, sizeof(fresh), "%s.%d", path, (int)getpid());
	if (json_dump_file(own, fresh, JSON_COMPACT) != 0 || rename(fresh, path) != 0)
		unlink(fresh);
}

static bool is_of_another(void)
{
	json_t *found = json_load_file(path, 0, NULL);
	bool other = found && lives(found) &&
		     json_integer_value(json_object_get(found, "pid")) != getpid();

	json_decref(found);
	return other;
}

void last_run_begin(const char *config)
{
	char whole[PATH_MAX], boot[64];

	if (!realpath(config, whole) || !name_record(whole) || is_of_another()) {
		*path = '\0';
		return;
	}
	boot_id(boot, sizeof(boot));
	own = json_pack("{s:i s:I s:s s:s s:o s:n s:n}", "pid", (int)getpid(), "start",
			(json_int_t)start_of(getpid()), "boot", boot, "config", whole, "began",
			time_now(), "ended", "error");
	write_record();
}

void last_run_end(const char *error)
{
	if (!*path)
		return;
	json_object_set_new(own, "ended", time_now());
	json_object_set_new(own, "error", error ? json_string(error) : json_null());
	if (error)
		write_record();
	else
		unlink(path);
	json_decref(own);
	own = NULL;
	*path = '\0';
}

/* ---- all records ---------------------------------------------------------------------------------- */

static bool is_record(const char *name)
{
	size_t n = strlen(name), tail = strlen(SUFFIX);

	return strncmp(name, PREFIX, strlen(PREFIX)) == 0 && n > tail &&
	       strcmp(name + n - tail, SUFFIX) == 0;
}

/* Adds a record; removes one whose INI file is gone. */
static void add_record(json_t *list, const char *file)
{
	json_t *run = json_load_file(file, 0, NULL);
	const char *config = json_string_value(json_object_get(run, "config"));
	bool runs = run && lives(run);

	if (config && (runs || access(config, F_OK) == 0)) {
		json_object_set_new(run, "lives", json_boolean(runs));
		json_array_append(list, run);
	} else if (run) {
		unlink(file);
	}
	json_decref(run);
}

static void add_records(json_t *list, const char *dir)
{
	DIR *d = opendir(dir);

	for (struct dirent *e; d && (e = readdir(d));) {
		char file[DIR_ROOM + sizeof(e->d_name) + 2];

		snprintf(file, sizeof(file), "%s/%s", dir, e->d_name);
		if (is_record(e->d_name))
			add_record(list, file);
	}
	if (d)
		closedir(d);
}

json_t *last_runs(void)
{
	json_t *list = json_array();
	char dir[DIR_ROOM];

	if (control_directory(NULL, dir, sizeof(dir)))
		add_records(list, dir);
	if (strcmp(dir, CONTROL_SYSTEM_DIR) != 0)
		add_records(list, CONTROL_SYSTEM_DIR);
	return list;
}
