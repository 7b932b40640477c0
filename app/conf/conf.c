// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf.c - the INI file of stagd: lines and sections (conf.h).
 *
 * inih splits lines into names and values. It tells no line numbers, cuts long lines and names, and takes an indented line for
 * more of the one before: so the lines pass through here first.
 */
#include "conf.h"

#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "pool/pool.h"
#include "pool/roll.h"

#define SECTION_MAX 49 /* what inih keeps of a section's name, and of a setting's */

struct reader {
	struct conf *conf;
	FILE *file;
	char *text;
	size_t room;
	unsigned int line;
	bool in_section;	/* has one begun? */
	struct conf_pool *pool; /* whose settings come; NULL: of a section that was refused */
};

void conf_fault(struct conf *conf, unsigned int line, const char *fmt, ...)
{
	va_list ap;

	conf->faults++;
	if (!conf->complaints)
		return;
	fprintf(conf->complaints, "%s:", conf->path);
	if (line)
		fprintf(conf->complaints, "%u:", line);
	fputc(' ', conf->complaints);
	va_start(ap, fmt);
	vfprintf(conf->complaints, fmt, ap);
	va_end(ap);
	fputc('\n', conf->complaints);
}

static struct conf_pool *find_pool(struct conf *conf, const char *name)
{
	for (unsigned int i = 0; i < conf->num_pools; i++)
		if (strcmp(conf->pools[i].name, name) == 0)
			return &conf->pools[i];
	return NULL;
}

static struct conf_pool *add_pool(struct conf *conf, const char *name, unsigned int line)
{
	struct conf_pool *list = realloc(conf->pools, (conf->num_pools + 1) * sizeof(*conf->pools));

	if (!list) {
		conf_fault(conf, line, "no memory");
		return NULL;
	}
	conf->pools = list;
	conf_pool_init(&list[conf->num_pools], name, line);
	return &list[conf->num_pools++];
}

/* head: what is in the brackets. */
static struct conf_pool *begin_section(struct conf *conf, unsigned int line, char *head)
{
	char *save, *kind = strtok_r(head, " \t", &save), *name = strtok_r(NULL, " \t", &save);
	struct conf_pool *before;

	if (!kind || strcmp(kind, "pool") != 0 || !name || strtok_r(NULL, " \t", &save)) {
		conf_fault(conf, line, "a section is [pool NAME]");
		return NULL;
	}
	if (!roll_name_is_valid(name)) {
		conf_fault(conf, line, "'%s' is no name: letters, digits and . - _, 63 at most",
			   name);
		return NULL;
	}
	before = find_pool(conf, name);
	if (before) {
		conf_fault(conf, line, "the pool '%s' has a section already, at line %u", name,
			   before->line);
		return NULL;
	}
	return add_pool(conf, name, line);
}

static void take_section(struct reader *r, const char *line)
{
	char head[SECTION_MAX + 1];
	size_t len = strcspn(line, "]\r\n");

	r->in_section = true;
	r->pool = NULL;
	if (line[len] != ']')
		return; /* inih complains */
	if (len > SECTION_MAX) {
		conf_fault(r->conf, r->line, "what is between [ and ] has at most %d characters",
			   SECTION_MAX);
		return;
	}
	memcpy(head, line, len);
	head[len] = '\0';
	r->pool = begin_section(r->conf, r->line, head);
}

/* As fgets(3), for inih. */
static char *next_line(char *line, int room, void *arg)
{
	struct reader *r = arg;
	ssize_t len = getline(&r->text, &r->room, r->file);
	const char *text;

	if (len < 0)
		return NULL;
	r->line++;
	text = r->text + strspn(r->text, " \t");
	if (strlen(r->text) != (size_t)len) {
		conf_fault(r->conf, r->line, "there is a zero byte in this line");
		text = "\n";
	} else if (strlen(text) >= (size_t)room) {
		conf_fault(r->conf, r->line, "a line has at most %d characters", room - 2);
		text = "\n";
	}
	strcpy(line, text);
	if (*line == '[')
		take_section(r, line + 1);
	return line;
}

static int take_setting(void *arg, const char *section, const char *name, const char *value)
{
	struct reader *r = arg;

	if (!r->in_section)
		conf_fault(r->conf, r->line,
			   "'%s' is in no section: there is no [pool NAME] before it", name);
	else if (r->pool)
		conf_pool_set(r->conf, r->pool, r->line, name, value);
	return 1;
}

/* Of nodes that make their pools: what others have is known when they are started. */
static bool is_memory_shared(const struct conf_pool *a, const struct conf_pool *b)
{
	uint64_t from_a = a->memory ? a->memory : POOL_DEFAULT_ADDRESS;
	uint64_t from_b = b->memory ? b->memory : POOL_DEFAULT_ADDRESS;

	return a->create && b->create && from_a < from_b + b->size && from_b < from_a + a->size;
}

static void check_together(struct conf *conf)
{
	const struct conf_pool *a, *b;

	if (conf->num_pools == 0 && conf->faults == 0)
		conf_fault(conf, 0, "there is nothing in it: no [pool NAME]");
	for (unsigned int i = 1; i < conf->num_pools; i++)
		for (unsigned int j = 0; j < i; j++) {
			a = &conf->pools[i];
			b = &conf->pools[j];
			if (a->attr.port && a->attr.port == b->attr.port &&
			    (!a->address || !b->address || strcmp(a->address, b->address) == 0))
				conf_fault(conf, a->line,
					   "the pools '%s' and '%s' listen on the same port, %u",
					   b->name, a->name, a->attr.port);
			if (a->state && b->state && strcmp(a->state, b->state) == 0)
				conf_fault(conf, a->line,
					   "the pools '%s' and '%s' have the same state directory",
					   b->name, a->name);
			if (is_memory_shared(a, b))
				conf_fault(conf, a->line,
					   "the pools '%s' and '%s' have the same memory; one of "
					   "them wants another: memory = ADDRESS",
					   b->name, a->name);
		}
}

static int read_lines(struct conf *conf, FILE *file)
{
	struct reader r = {.conf = conf, .file = file};
	int rc = ini_parse_stream(next_line, &r, take_setting, &r);

	free(r.text);
	if (rc > 0)
		conf_fault(conf, (unsigned int)rc,
			   "a line is [pool NAME], NAME = VALUE, or ; a comment");
	else if (rc < 0)
		conf_fault(conf, 0, "no memory");
	if (ferror(file))
		conf_fault(conf, 0, "%s", strerror(errno));
	for (unsigned int i = 0; i < conf->num_pools; i++)
		conf_pool_check(conf, &conf->pools[i]);
	check_together(conf);
	return conf->faults == 0 ? 0 : -EBADMSG;
}

int conf_read(struct conf *conf, const char *path, FILE *complaints)
{
	FILE *file;
	int rc;

	*conf = (struct conf){.path = realpath(path, NULL), .complaints = complaints};
	file = conf->path ? fopen(conf->path, "re") : NULL;
	if (!file) {
		rc = -errno;
		free(conf->path);
		conf->path = strdup(path);
		if (!conf->path)
			return -ENOMEM;
		conf_fault(conf, 0, "%s", strerror(-rc));
		return rc;
	}
	rc = read_lines(conf, file);
	fclose(file);
	return rc;
}

void conf_free(struct conf *conf)
{
	for (unsigned int i = 0; i < conf->num_pools; i++)
		conf_pool_free(&conf->pools[i]);
	free(conf->pools);
	free(conf->path);
	*conf = (struct conf){0};
}
