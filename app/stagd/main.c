// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.c - stagd: serves the sections of an INI file until SIGTERM.
 *
 * On a machine without an RDMA device it executes itself again with the software adapter preloaded.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "complain.h"
#include "library.h"
#include "preload.h"
#include "serve.h"

enum { EXIT_USAGE = 2 };

static const char help_text[] =
	"usage: stagd [--config FILE] [--json]\n"
	"       stagd --check [--config FILE]\n\n"
	"Serves memory pools, stores, block targets and a management API with a web console, as\n"
	"an INI file describes, until SIGTERM. SIGHUP reads the file again and applies changes.\n"
	"See stagd(8), and stag.ini(5) about the file; 'stag pool create' and 'stag pool join'\n"
	"write one.\n\n"
	"  -c, --config FILE  the INI file (" CONF_PATH ")\n"
	"  --check            report faults of the file, each with its line, and serve nothing\n"
	"  --json             print what is served as JSON\n"
	"  -h, --help\n"
	"  -V, --version\n\n"
	"Exit codes: 0 done, 1 failed, 2 wrong usage.\n";

struct options {
	const char *config;
	bool check, json;
};

static int usage_error(void)
{
	fputs("Try 'stagd --help'.\n", stderr);
	return EXIT_USAGE;
}

static const struct option long_options[] = {
	{"config", required_argument, NULL, 'c'}, {"check", no_argument, NULL, 'k'},
	{"json", no_argument, NULL, 'j'},	  {"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},	  {0},
};

/* Returns an exit code, or -1 to continue. */
static int parse_options(struct options *o, int argc, char **argv)
{
	int c;

	while ((c = getopt_long(argc, argv, "c:hV", long_options, NULL)) != -1)
		switch (c) {
		case 'c':
			o->config = optarg;
			break;
		case 'k':
			o->check = true;
			break;
		case 'j':
			o->json = true;
			break;
		case 'h':
			fputs(help_text, stdout);
			return EXIT_SUCCESS;
		case 'V':
			puts("stagd " STAG_VERSION);
			return EXIT_SUCCESS;
		default:
			return usage_error();
		}
	if (optind == argc)
		return -1;
	complain("unexpected argument '%s'; name the INI file with --config", argv[optind]);
	return usage_error();
}

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
	return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	struct options o = {.config = CONF_PATH};
	int rc = parse_options(&o, argc, argv);

	if (rc >= 0)
		return rc;
	if (o.check)
		return check_config(o.config);
	library_prepare();
	if (preload_program(argv) != 0)
		return EXIT_FAILURE;
	return serve(o.config, &api_calls, o.json);
}
