// SPDX-License-Identifier: BSD-2-Clause
/*
 * run.c - stag run: executes a program with the software adapter in it.
 *
 * Sets LD_PRELOAD and the STAG_ variables of the options (libstag-verbs(7)),
 * then executes the program in this process.
 */
#include "stag.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

struct run_options {
	const char *device, *trace, *log, *log_file, *crc, *markers, *extensions, *one_shot, *p2p,
		*mpa_rev;
	const char *connect_timeout, *congestion;
	const char *tls, *tls_cert, *tls_key, *tls_ca, *tls_name, *tls_psk;
	const char *library; /* NULL: the default */
};

/* Returns an absolute name: the program may change its directory before the adapter opens the file. */
static char *absolute_name(const char *name)
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
 * Removes the trace of an earlier run: the adapter itself never overwrites one. A
 * file that a running process writes to is locked, and is kept.
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

/* Checks that the trace can be created: an error now is better than one at the first connection. */
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

/* Checks milliseconds, and keeps them as they were written. */
static bool parse_timeout(void *to, const struct cli_option *o, char *text)
{
	if (!*text || strspn(text, "0123456789") != strlen(text) || strlen(text) >= 10) {
		complain("--%s must be a number of milliseconds, not '%s'", o->name, text);
		return false;
	}
	((struct run_options *)to)->connect_timeout = text;
	return true;
}

static void list_congestion_controls(struct cli_words *w, char *const *args)
{
	char text[256];
	ssize_t n = file_read(AT_FDCWD, "/proc/sys/net/ipv4/tcp_available_congestion_control", text,
			      sizeof(text));

	text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
	cli_offer_list(w, text);
}

#define ON_OFF(field) CLI_WORD_AT(struct run_options, field, "on off")

/* Each option but --library sets a variable of the environment: --log-file sets STAG_LOG_FILE. */
static const struct cli_option run_table[] = {
	{"device", .value = "iwarp|roce|both",
	 CLI_WORD_AT(struct run_options, device, "iwarp roce both"),
	 .help = "what the program sees: roce0, a RoCE adapter, by verbs and in /sys (roce); "
		 "stag0, an iWARP adapter, which also speaks with siw and hardware (iwarp); or "
		 "both (roce; iwarp with options that only iWARP has, and with TLS)"},
	{"trace", .value = "FILE", CLI_FILE_AT(struct run_options, trace),
	 .help = "write what passes the adapter to FILE as pcapng, which Wireshark and tshark "
		 "show message by message; %p in it becomes the process id. Each process writes a "
		 "file of its own"},
	{"log", .value = "LEVEL", CLI_WORD_AT(struct run_options, log, "none err warn info debug"),
	 .help = "what the adapter logs to standard error: none; err; warn: misuse of verbs, with "
		 "the object, its range and its rights, the same one not for ever; info: each "
		 "misuse, lost connections and requests that were refused; debug: changes of "
		 "state, too (warn)"},
	{"log-file", .value = "FILE", CLI_FILE_AT(struct run_options, log_file),
	 .help = "write the log there, instead of to standard error"},
	{"crc", .value = "on|off", ON_OFF(crc),
	 .help = "protect every frame by a CRC (on); off: only if the peer requests it"},
	{"markers", .value = "on|off", ON_OFF(markers),
	 .help = "request markers in the stream from peers (off)"},
	{"extensions", .value = "on|off", ON_OFF(extensions),
	 .help = "offer atomics, immediate data and large frames to peers (on)"},
	{"one-shot", .value = "ENCODING",
	 CLI_WORD_AT(struct run_options, one_shot, "opcodes literal bits off"),
	 .help = "of one-shot sends: opcodes, literal, bits or off (opcodes)"},
	{"p2p", .value = "on|off", ON_OFF(p2p), .help = "offer peer-to-peer set-up, RFC 6581 (on)"},
	{"mpa-rev", .value = "1|2", CLI_WORD_AT(struct run_options, mpa_rev, "1 2"),
	 .help = "revision of the set-up frames (2)"},
	{"connect-timeout", .value = "MS", .type = CLI_TEXT,
	 .at = CLI_OFFSET(struct run_options, connect_timeout, const char *),
	 .parse = parse_timeout, .help = "give up connecting after MS milliseconds (10000)"},
	{"congestion", .value = "NAME", CLI_TEXT_AT(struct run_options, congestion),
	 .list = list_congestion_controls,
	 .help = "TCP congestion control of the adapter's sockets"},
	{"tls", .value = "MODE", CLI_WORD_AT(struct run_options, tls, "off allowed required"),
	 .help = "encrypt connections: off, allowed or required (off). Unless --device says "
		 "otherwise, the program sees stag0: roce0 has no TLS"},
	{"tls-cert", .value = "FILE", CLI_FILE_AT(struct run_options, tls_cert),
	 .help = "the program's certificate, PEM"},
	{"tls-key", .value = "FILE", CLI_FILE_AT(struct run_options, tls_key),
	 .help = "its private key, PEM"},
	{"tls-ca", .value = "FILE", CLI_FILE_AT(struct run_options, tls_ca),
	 .help = "the authorities of the peers' certificates, PEM"},
	{"tls-name", .value = "NAME", CLI_TEXT_AT(struct run_options, tls_name),
	 .help = "the name or address in the certificate of listeners (any)"},
	{"tls-psk", .value = "FILE", CLI_FILE_AT(struct run_options, tls_psk),
	 .help = "a pre-shared key, IDENTITY:HEXDIGITS, instead of certificates"},
	{"library", .value = "FILE", CLI_FILE_AT(struct run_options, library),
	 .help = "the libstag-verbs.so to load (default: STAG_LIB, or the one of this stag)"},
	{0},
};

static const struct cli_verb run_verb = {
	.name = "", .args = "[OPTION]... [--] PROGRAM [ARGUMENT]...", .program = true};

static const struct cli_noun run_noun = {
	.call = "stag run",
	.name = "run",
	.summary = "run a program with the software adapter",
	.about = "Runs a program with the software adapter: its verbs and RDMA CM calls find the "
		 "adapter's device beside the real ones. The program needs no change.",
	.notes = "If the program fails: its mistakes are on standard error; --log info tells more, "
		 "and --trace shows the messages on the wire. Ends with the exit code of the "
		 "program; 126 if it cannot be executed, 127 if it does not exist.",
	.examples = "stag run -- rping -s -a 127.0.0.1 -C 10 -v &\n"
		    "stag run --log info --trace ping.pcapng -- rping -c -a 127.0.0.1 -C 10 -v",
	.verbs = &run_verb,
	.num_verbs = 1,
	.options = run_table,
};

/* ---- the environment ---- */

/* Returns the absolute name of a file that the adapter will use. The caller frees it; NULL after complaining. */
static char *adapter_file(const struct cli_option *o, const char *name)
{
	char *path = absolute_name(name);
	int err = path ? 0 : -ENOMEM;

	if (!err && strcmp(o->name, "trace") == 0)
		err = check_trace(path);
	if (!err)
		return path;
	complain("cannot write the trace %s: %s", name, strerror(-err));
	free(path);
	return NULL;
}

static int set_variable(const struct cli_option *o, const char *value)
{
	CLEANUP_FREE char *path = o->type == CLI_FILE ? adapter_file(o, value) : NULL;
	char variable[64];

	if (o->type == CLI_FILE && !path)
		return EXIT_FAILED;
	snprintf(variable, sizeof(variable), "STAG_%s", o->name);
	for (char *c = variable; *c; c++)
		*c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
	return setenv(variable, path ? path : value, 1) == 0 ? EXIT_OK : EXIT_FAILED;
}

static int refuse_empty(const struct cli_option *o)
{
	complain("--%s of 'stag run' needs a value", o->name);
	return EXIT_USAGE;
}

static int set_variables(const struct run_options *options)
{
	int rc = EXIT_OK;

	for (const struct cli_option *o = run_table; rc == EXIT_OK && !cli_is_end(o); o++) {
		const char *value = *(const char *const *)((const char *)options + o->at);

		if (value && strcmp(o->name, "library") != 0)
			rc = *value ? set_variable(o, value) : refuse_empty(o);
	}
	return rc;
}

static bool is_set(const char *variable)
{
	const char *value = getenv(variable);

	return value && *value;
}

static bool tls_is(const char *mode)
{
	return strcasecmp(getenv("STAG_TLS"), mode) == 0;
}

/* Does the user ask for what roce0 lacks, TLS, or for what is about the bytes of iWARP? */
static bool wants_iwarp(void)
{
	static const char *const of_iwarp[] = {"STAG_MARKERS", "STAG_EXTENSIONS", "STAG_ONE_SHOT",
					       "STAG_P2P", "STAG_MPA_REV"};

	if (is_set("STAG_TLS") && !tls_is("off"))
		return true;
	for (size_t i = 0; i < sizeof(of_iwarp) / sizeof(*of_iwarp); i++)
		if (is_set(of_iwarp[i]))
			return true;
	return false;
}

static int choose_face(void)
{
	const char *device = getenv("STAG_DEVICE");

	if (!is_set("STAG_DEVICE")) /* most programs accept a RoCE adapter */
		return setenv("STAG_DEVICE", wants_iwarp() ? "iwarp" : "roce", 1) == 0
			       ? EXIT_OK
			       : EXIT_FAILED;
	if (!is_set("STAG_TLS") || tls_is("off") || tls_is("allowed") ||
	    strcasecmp(device, "iwarp") == 0)
		return EXIT_OK;
	complain("TLS is required, and roce0 has none: --device %s cannot be used with --tls %s",
		 device, getenv("STAG_TLS"));
	return EXIT_USAGE;
}

/* ---- the program ---- */

static int exec_program(char **argv)
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

/* Has the adapter loaded, and what lets programs find it that look elsewhere than in the libraries that they are linked with. */
static int preload_all(const char *library)
{
	const char *device = getenv("STAG_DEVICE");
	char companion[PATH_MAX];

	if (preload_set(library))
		return -ENOMEM;
	if (preload_find_companion(library, companion) == 0)
		return preload_set(companion);
	if (device && strcmp(device, "iwarp") != 0)
		complain("warning: libstag-found.so is not beside %s: programs that look in /sys "
			 "find no device",
			 library);
	return 0;
}

static int run_program(const struct command *self, int argc, char **argv)
{
	struct run_options o = {0};
	char library[PATH_MAX];
	struct cli_call call;
	int rc;

	if (!cli_parse(&run_noun, argc, argv, &o, &call, &rc))
		return rc;
	rc = set_variables(&o);
	if (rc == EXIT_OK)
		rc = choose_face();
	if (rc != EXIT_OK)
		return rc;
	if (preload_find(o.library, library, sizeof(library)) || preload_all(library))
		return EXIT_FAILED;
	return exec_program(call.args);
}

const struct command run_command = {.noun = &run_noun, .run = run_program};
