// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.c - stagd: serves the sections of an INI file until SIGTERM.
 *
 * On a machine without an RDMA device it executes itself again with the software adapter preloaded.
 */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "cli.h"
#include "complain.h"
#include "library.h"
#include "preload.h"
#include "serve.h"

struct options {
	const char *config;
	bool check, json, version;
};

static const struct cli_option stagd_options[] = {
	{"config", .letter = 'c', .value = "FILE", CLI_FILE_AT(struct options, config),
	 .help = "the INI file (" CONF_PATH ")"},
	{"check", CLI_FLAG_AT(struct options, check),
	 .help = "report faults of the file, each with its line, and what it leaves open to "
		 "strangers; serve nothing"},
	{"json", CLI_FLAG_AT(struct options, json), .help = "print what is served as JSON"},
	{"version", .letter = 'V', CLI_FLAG_AT(struct options, version),
	 .help = "show the version"},
	{0},
};

static const struct cli_verb stagd_verb = {
	.name = "", .args = "[--config FILE] [--json]\n--check [--config FILE]\n--version"};

static const struct cli_noun stagd_noun = {
	.call = "stagd",
	.name = "stagd",
	.about =
		"Serves memory pools, stores, block targets and a management API with a web "
		"console, as an INI file describes, until SIGTERM. SIGHUP reads the file again and "
		"applies changes. See stagd(8), and stag.ini(5) about the file; 'stag pool create' "
		"and 'stag pool join' write one.",
	.notes = "Exit codes: 0 done, 1 failed, 2 wrong usage.",
	.verbs = &stagd_verb,
	.num_verbs = 1,
	.options = stagd_options,
};

static int check_config(const char *config)
{
	const struct conf_section *s = NULL;
	struct conf conf;
	int rc = conf_read(&conf, config, stderr);

	while (rc == 0 && (s = conf_next(&conf, NULL, s)))
		if (s->line)
			printf("%s:%u: %s%s%s: good\n", s->path, s->line, conf_kind_word(s->kind),
			       *s->name ? " " : "", s->name);
	if (rc == 0)
		conf_warn(&conf, stderr);
	else
		complain("%s has faults", config);
	conf_free(&conf);
	return rc == 0 ? EXIT_OK : EXIT_FAILED;
}

/* Returns whether there is an example of the INI file beside the program, in the build directory, or where it is installed. */
static bool find_example(char *path, size_t size)
{
	static const char *const places[] = {"stag.ini.example",
					     "../share/doc/stag/stag.ini.example"};
	char program[PATH_MAX], file[2 * PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	program[n > 0 ? n : 0] = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(file, sizeof(file), "%s/%s", dirname(program), places[i]);
		if (realpath(file, path))
			return true;
	}
	return false;
}

/* Advises if there is no INI file: a person who types stagd for the first time does not have one. */
static void advise_missing(const char *config)
{
	char example[PATH_MAX];
	bool found;

	if (access(config, F_OK) == 0 || errno != ENOENT)
		return;
	found = find_example(example, sizeof(example));
	complain_try("'stagd --config FILE': without it, stagd reads " CONF_PATH
		     ". stag.ini(5) describes the file%s%s.",
		     found ? "; every setting is in the example " : "", found ? example : "");
}

static int run_stagd(int argc, char **argv)
{
	struct options o = {.config = CONF_PATH};
	struct cli_call call;
	int rc;

	if (!cli_parse(&stagd_noun, argc, argv, &o, &call, &rc))
		return rc;
	if (o.version) {
		puts("stagd " STAG_VERSION);
		return EXIT_OK;
	}
	library_prepare();
	preload_both_devices();
	if (!o.check && preload_program(argv) != 0)
		return EXIT_FAILED;
	rc = o.check ? check_config(o.config) : serve(o.config, &api_calls, o.json);
	if (rc != EXIT_OK)
		advise_missing(o.config);
	return rc;
}

int main(int argc, char **argv)
{
	return cli_main(&stagd_noun, run_stagd, argc, argv);
}
