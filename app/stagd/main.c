// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.c - stagd: serves what one INI file says, until it is told to stop.
 *
 * It needs the software adapter in its own process, where there is no other: it is run once more with it.
 */
#include "stagd.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "preload.h"

enum { EXIT_USAGE = 2 };

static const char help_text[] =
	"usage: stagd [--config FILE] [--json]\n"
	"       stagd --check [--config FILE]\n\n"
	"Serves nodes of memory pools, as an INI file says, until it gets SIGTERM: then a node "
	"that\n"
	"is primary hands over to a standby, and it ends. See stagd(8), and stag.ini(5) on the "
	"file;\n"
	"'stag pool create' and 'stag pool join' write one.\n\n"
	"  -c, --config FILE  the INI file (" CONF_PATH ")\n"
	"  --check            say what is wrong with it, each with its line, and serve nothing\n"
	"  --json             say what is served as JSON\n"
	"  -h, --help\n"
	"  -V, --version\n\n"
	"Exit codes: 0 done, 1 failed, 2 wrong usage.\n";

struct options {
	const char *config;
	bool check, json;
};

void complain(const char *fmt, ...)
{
	va_list ap;

	fputs("stagd: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

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

/* -1: go on; else the exit code. */
static int take_options(struct options *o, int argc, char **argv)
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
	complain("what is '%s'? The file is named by --config", argv[optind]);
	return usage_error();
}

static int check(const struct conf *conf)
{
	for (unsigned int i = 0; i < conf->num_pools; i++)
		printf("%s: pool %s, node %s: good\n", conf->path, conf->pools[i].name,
		       conf->pools[i].node);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct options o = {.config = CONF_PATH};
	struct conf conf;
	int rc = take_options(&o, argc, argv);

	if (rc >= 0)
		return rc;
	if (!o.check && preload_program(argv) != 0)
		return EXIT_FAILURE;
	if (conf_read(&conf, o.config, stderr) != 0) {
		complain(o.check ? "%s is not good" : "%s is not good, nothing is served",
			 o.config);
		rc = EXIT_FAILURE;
	} else {
		rc = o.check ? check(&conf) : serve(&conf, o.json);
	}
	conf_free(&conf);
	return rc;
}
