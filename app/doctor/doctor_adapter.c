// SPDX-License-Identifier: BSD-2-Clause
/*
 * doctor_adapter.c - checks the software adapter: that its library exists and can be loaded into programs, the environment,
 * and which instructions compute CRCs.
 */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "preload.h"
#include "base/crc32c.h"

#define PROGRAM "/bin/true" /* a program to try to load the library into */

extern char **environ;

/* ---- loading the library -------------------------------------------------------- */

/* Returns this environment with another LD_PRELOAD. The caller frees the array. */
static char **environment_with(char *preload)
{
	size_t n = 0, to = 0;
	char **list;

	while (environ[n])
		n++;
	list = calloc(n + 2, sizeof(*list));
	for (size_t i = 0; list && i < n; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0)
			list[to++] = environ[i];
	if (list)
		list[to] = preload;
	return list;
}

/* Uses posix_spawn(): stagd, which has threads, runs this, too. */
static pid_t start_program(const char *library, int out)
{
	CLEANUP_FREE char *words = preload_words(NULL, library), *variable = NULL;
	CLEANUP_FREE char **environment = NULL;
	char *argv[] = {PROGRAM, NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid = -1;

	if (!words || asprintf(&variable, "LD_PRELOAD=%s", words) < 0)
		return -1;
	environment = environment_with(variable);
	if (!environment || posix_spawn_file_actions_init(&actions) != 0)
		return -1;
	posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
	if (posix_spawn(&pid, PROGRAM, &actions, NULL, argv, environment) != 0)
		pid = -1;
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

/* Stores what ld.so prints when it loads the library; "": it was loaded. */
static void try_library(const char *library, char *said, size_t size)
{
	int ends[2], status = 0;
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	said[0] = '\0';
	if (pipe2(ends, O_CLOEXEC) != 0)
		return;
	pid = start_program(library, ends[1]);
	close(ends[1]);
	while (n < size - 1 && (got = read(ends[0], said + n, size - 1 - n)) > 0)
		n += (size_t)got;
	close(ends[0]);
	if (pid > 0)
		waitpid(pid, &status, 0);
	said[n] = '\0';
	said[strcspn(said, "\n")] = '\0';
	if (!*said && (pid < 0 || status != 0))
		snprintf(said, size, "a program does not run with it");
}

static void check_library(struct doctor *d)
{
	char path[PATH_MAX], said[256];

	if (preload_look(NULL, path, sizeof(path), said, sizeof(said)) != 0) {
		doctor_report(d, DOCTOR_FAULT, "library",
			      (struct doctor_words){"no program can use the software adapter",
						    "export STAG_LIB=/PATH/TO/libstag-verbs.so.0"},
			      "%s", said);
		return;
	}
	try_library(path, said, sizeof(said));
	if (*said)
		doctor_report(
			d, DOCTOR_FAULT, "library",
			(struct doctor_words){"ld.so does not load it into programs: they run "
					      "without the software adapter",
					      "ldd $(stag run -- printenv LD_PRELOAD)"},
			"%s: %s", path, said);
	else
		doctor_report(d, DOCTOR_GOOD, "library",
			      (struct doctor_words){"'stag run' loads it into programs; stag's own "
						    "commands load it, too",
						    NULL},
			      "%s", path);
}

/* ---- other preloaded libraries ------------------------------------------------------------ */

static void check_word(struct doctor *d, const char *word)
{
	if (strchr(word, '/') && access(word, R_OK) != 0)
		doctor_report(d, DOCTOR_WARNING, "LD_PRELOAD",
			      (struct doctor_words){"ld.so prints a warning in every program, and "
						    "continues without it",
						    "unset LD_PRELOAD"},
			      "%s: %s", word, strerror(errno));
}

static void check_preloads(struct doctor *d)
{
	const char *preload = getenv("LD_PRELOAD");
	CLEANUP_FREE char *list = strdup(preload ? preload : "");
	char *rest = NULL;

	for (char *w = list ? strtok_r(list, " :", &rest) : NULL; w;
	     w = strtok_r(NULL, " :", &rest))
		check_word(d, w);
	if (access("/etc/ld.so.preload", F_OK) == 0)
		doctor_report(
			d, DOCTOR_NOTE, "ld.so.preload",
			(struct doctor_words){"the libraries in it are loaded into every program, "
					      "before stag's",
					      "cat /etc/ld.so.preload"},
			"/etc/ld.so.preload exists");
}

/* ---- the environment -------------------------------------------------------------------------- */

/* The variables of libstag-verbs(7), stag_xfer(7), stag(1) and stag-pool(1); then those that stag sets for itself. */
static const char *const variables[] = {
	"STAG_CM",
	"STAG_CONGESTION",
	"STAG_CONNECT_TIMEOUT",
	"STAG_CRC",
	"STAG_DEVICE",
	"STAG_DV",
	"STAG_EXTENSIONS",
	"STAG_FIRST_DELAY",
	"STAG_LIB",
	"STAG_LIVE",
	"STAG_LOG",
	"STAG_LOG_FILE",
	"STAG_LOG_TIME",
	"STAG_MARKERS",
	"STAG_MPA_REV",
	"STAG_ONE_SHOT",
	"STAG_P2P",
	"STAG_PART_ID",
	"STAG_POOL",
	"STAG_PORTS",
	"STAG_REFUSED_RETRY",
	"STAG_SECRET_FILE",
	"STAG_STATE",
	"STAG_TLS",
	"STAG_TLS_CA",
	"STAG_TLS_CERT",
	"STAG_TLS_KERNEL",
	"STAG_TLS_KEY",
	"STAG_TLS_NAME",
	"STAG_TLS_PSK",
	"STAG_TRACE",
	"STAG_USER",
	"STAG_WORLD",
	"STAG_XFER_CHECK",
	"STAG_LONG",
	"STAG_SEED",
	"STAG_TEST_ADDR",
	"STAG_TEST_ADDRESS",
	"STAG_TEST_DIVIDE",
	"STAG_TEST_STORE",
	"STAG_BENCH_PEER",
	"STAG_BENCH_PRELOADED",
	"STAG_INFO_PRELOADED",
};

static bool is_known(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		if (strlen(variables[i]) == len && memcmp(variables[i], name, len) == 0)
			return true;
	return false;
}

static void check_environment(struct doctor *d)
{
	for (char **e = environ; *e; e++) {
		size_t len = strcspn(*e, "=");

		if (strncmp(*e, "STAG_", 5) != 0)
			continue;
		if (is_known(*e, len))
			doctor_report(d, DOCTOR_NOTE, "environment",
				      (struct doctor_words){"it changes a default of stag",
							    "man libstag-verbs"},
				      "%s", *e);
		else
			doctor_report(
				d, DOCTOR_WARNING, "environment",
				(struct doctor_words){"nothing of stag reads a variable of this "
						      "name",
						      "man libstag-verbs"},
				"%.*s is set", (int)len, *e);
	}
}

/* ---- the processor ------------------------------------------------------------------------------- */

static void check_crc(struct doctor *d)
{
	const char *name = crc32c_implementation();

	if (strcmp(name, "portable") == 0)
		doctor_report(
			d, DOCTOR_WARNING, "CRC32C",
			(struct doctor_words){
				"this processor has no instruction for it that stag uses: with "
				"CRC a connection is several times slower",
				"stag run --crc off -- PROGRAM (on both sides)"},
			"%s", name);
	else
		doctor_report(d, DOCTOR_GOOD, "CRC32C",
			      (struct doctor_words){"frames are protected by instructions of this "
						    "processor",
						    NULL},
			      "%s", name);
}

void doctor_adapter(struct doctor *d)
{
	check_library(d);
	check_preloads(d);
	check_environment(d);
	check_crc(d);
}
