// SPDX-License-Identifier: BSD-2-Clause
/*
 * run.c - stag run: executes a program with the software adapter in it.
 *
 * Sets LD_PRELOAD and the STAG_ variables that stand behind the options
 * (libstag-verbs(7)), and is gone: the program takes over this process.
 */
#include "stag.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "verb.h"

enum kind { SWITCH, WORD, NUMBER, FILE_NAME, TRACE_FILE };

/* The options that are variables of the environment. */
static const struct setting {
	const char *option;
	const char *variable;
	enum kind kind;
	const char *words; /* WORD: the ones there are, NULL for any */
} settings[] = {
	{"crc", "STAG_CRC", SWITCH, NULL},
	{"markers", "STAG_MARKERS", SWITCH, NULL},
	{"extensions", "STAG_EXTENSIONS", SWITCH, NULL},
	{"one-shot", "STAG_ONE_SHOT", WORD, "opcodes literal bits off"},
	{"p2p", "STAG_P2P", SWITCH, NULL},
	{"mpa-rev", "STAG_MPA_REV", WORD, "1 2"},
	{"connect-timeout", "STAG_CONNECT_TIMEOUT", NUMBER, NULL},
	{"congestion", "STAG_CONGESTION", WORD, NULL},
	{"trace", "STAG_TRACE", TRACE_FILE, NULL},
	{"log", "STAG_LOG", WORD, "none err warn info debug"},
	{"log-file", "STAG_LOG_FILE", FILE_NAME, NULL},
};

#define N_SETTINGS (sizeof(settings) / sizeof(*settings))

enum { OPTION_HELP = 'h', OPTION_LIBRARY = 256, OPTION_SETTING };

static const char help_text[] =
	"usage: stag run [OPTION]... [--] PROGRAM [ARGUMENT]...\n\n"
	"Runs a program with the software adapter: its verbs and RDMA CM calls find the device\n"
	"stag0 beside the real ones. The program need not know.\n\n"
	"  --trace FILE           write what passes the adapter to FILE as pcapng; %p in it "
	"becomes\n"
	"                         the process id. Each process writes a file of its own\n"
	"  --log LEVEL            none, err, warn (the default), info or debug\n"
	"  --log-file FILE        where the log goes, instead of standard error\n"
	"  --crc on|off           protect every frame by a CRC (on); off: only if the peer asks\n"
	"  --markers on|off       ask peers for markers in their stream (off)\n"
	"  --extensions on|off    offer atomics, immediate data and large frames to peers (on)\n"
	"  --one-shot ENCODING    of one-shot sends: opcodes (the default), literal, bits or off\n"
	"  --p2p on|off           offer peer-to-peer set-up, RFC 6581 (on)\n"
	"  --mpa-rev 1|2          revision of the set-up frames (2)\n"
	"  --connect-timeout MS   give up connecting after so many milliseconds (10000)\n"
	"  --congestion NAME      TCP congestion control of the adapter's sockets\n"
	"  --library FILE         the libstag-verbs.so to load (or STAG_LIB)\n"
	"  -h, --help\n\n"
	"Ends with the exit code of the program; 126 if it cannot be executed, 127 if there is "
	"none.\n\n"
	"  stag run -- rping -s -a 127.0.0.1 -C 10 -v &\n"
	"  stag run --trace ping.pcapng -- rping -c -a 127.0.0.1 -C 10 -v\n";

/* Is value one of the words in a list that spaces divide? */
static bool is_one_of(const char *words, const char *value)
{
	size_t len = strlen(value);

	for (const char *p = words; len && (p = strstr(p, value)); p += len)
		if ((p == words || p[-1] == ' ') && (p[len] == ' ' || !p[len]))
			return true;
	return false;
}

static bool is_number(const char *value)
{
	return *value && strspn(value, "0123456789") == strlen(value) && strlen(value) < 10;
}

static const char *what_is_wrong(const struct setting *s, const char *value)
{
	if (s->kind == SWITCH && !is_one_of("on off", value))
		return "on or off";
	if (s->kind == WORD && s->words && !is_one_of(s->words, value))
		return s->words;
	if (s->kind == NUMBER && !is_number(value))
		return "a number";
	return *value ? NULL : "a value";
}

/* The program may change its directory before it opens the file. */
static char *absolute(const char *name)
{
	CLEANUP_FREE char *here = NULL;
	char *path = NULL;

	if (*name == '/')
		return strdup(name);
	here = getcwd(NULL, 0);
	if (!here || asprintf(&path, "%s/%s", here, name) < 0)
		return NULL;
	return path;
}

/*
 * An earlier run's trace makes room: the adapter itself never overwrites one. A
 * file that a running process writes to is locked, and stays.
 */
static int clear_old_trace(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EEXIST;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return 0;
	return unlink(path) == 0 ? 0 : -errno;
}

/* Can a file be made there? Better said now than when the first connection comes. */
static int check_trace(const char *path)
{
	CLEANUP_FREE char *dir = strdup(path);
	int err = clear_old_trace(path);

	if (err)
		return err;
	if (!dir)
		return -ENOMEM;
	*(strrchr(dir, '/') + 1) = '\0';
	return access(dir, W_OK) == 0 ? 0 : -errno;
}

static int set_file(const struct setting *s, const char *value)
{
	CLEANUP_FREE char *path = absolute(value);
	int err = path ? 0 : -ENOMEM;

	if (!err && s->kind == TRACE_FILE)
		err = check_trace(path);
	if (err) {
		complain("cannot write the trace %s: %s", value, strerror(-err));
		return EXIT_FAILED;
	}
	return setenv(s->variable, path, 1) == 0 ? EXIT_OK : EXIT_FAILED;
}

static int set(const struct command *self, const struct setting *s, const char *value)
{
	const char *wanted = what_is_wrong(s, value);

	if (wanted) {
		complain("--%s wants %s, not '%s'", s->option, wanted, value);
		return usage_error(self);
	}
	if (s->kind == FILE_NAME || s->kind == TRACE_FILE)
		return set_file(s, value);
	return setenv(s->variable, value, 1) == 0 ? EXIT_OK : EXIT_FAILED;
}

static void fill_options(struct option *o)
{
	*o++ = (struct option){"help", no_argument, NULL, OPTION_HELP};
	*o++ = (struct option){"library", required_argument, NULL, OPTION_LIBRARY};
	for (size_t i = 0; i < N_SETTINGS; i++)
		*o++ = (struct option){settings[i].option, required_argument, NULL,
				       OPTION_SETTING + (int)i};
	*o = (struct option){0};
}

static int execute(char **argv)
{
	char path[PATH_MAX];
	const char *obstacle;
	int err = program_find(argv[0], path, sizeof(path));

	if (err == 0) {
		obstacle = program_obstacle(path);
		if (obstacle)
			complain("warning: %s will run without the adapter: %s", path, obstacle);
		execvp(argv[0], argv);
		err = -errno;
	}
	complain("%s: %s", argv[0], err == -ENOENT ? "no such program" : strerror(-err));
	return err == -ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE;
}

static int run(const struct command *self, int argc, char **argv)
{
	struct option options[N_SETTINGS + 3];
	char library[PATH_MAX];
	const char *chosen = NULL;
	int c, rc;

	fill_options(options);
	while ((c = verb_option("stag run", argc, argv, "+h", options)) != -1) {
		if (c == OPTION_HELP) {
			fputs(self->help, stdout);
			return EXIT_OK;
		}
		if (c == '?')
			return usage_error(self);
		if (c == OPTION_LIBRARY) {
			chosen = optarg;
			continue;
		}
		rc = set(self, &settings[c - OPTION_SETTING], optarg);
		if (rc != EXIT_OK)
			return rc;
	}
	if (optind == argc) {
		complain("which program shall run?");
		return usage_error(self);
	}
	if (preload_find(chosen, library, sizeof(library)) || preload_set(library))
		return EXIT_FAILED;
	return execute(argv + optind);
}

const struct command run_command = {"run", "run a program with the software adapter", help_text,
				    run, NULL};
