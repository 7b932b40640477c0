// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.c - stagd: serves the sections of an INI file until SIGTERM.
 *
 * On a machine without an RDMA device it executes itself again with the software adapter preloaded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	 .help = "report faults of the file, each with its line, and serve nothing"},
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
	if (rc != 0)
		complain("%s has faults", config);
	conf_free(&conf);
	return rc == 0 ? EXIT_OK : EXIT_FAILED;
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
	if (o.check)
		return check_config(o.config);
	library_prepare();
	if (preload_program(argv) != 0)
		return EXIT_FAILED;
	return serve(o.config, &api_calls, o.json);
}

int main(int argc, char **argv)
{
	return cli_main(&stagd_noun, run_stagd, argc, argv);
}
