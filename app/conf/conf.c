// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf.c - the INI file of stagd: lines, sections and drop-ins (conf.h).
 *
 * inih splits lines into names and values. It reports no line numbers, truncates long lines and names, and takes an indented
 * line for a continuation of the previous one. So lines are read, counted and checked here before inih sees them.
 */
#include "conf.h"

#include <errno.h>
#include <ini.h>
#include <glob.h>
#include <jansson.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/name.h"

#define SECTION_MAX 49 /* inih truncates longer names of sections and settings */
#define TEXT_MAX    (1u << 20)

static const struct conf_kind *const kinds[] = {
	&conf_daemon_kind, &conf_pool_kind, &conf_watch_kind, &conf_store_kind,
	&conf_target_kind, &conf_api_kind,  &conf_token_kind};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))
#define SECTIONS                                                                                   \
	"[pool NAME], [watch NAME], [store NAME], [target NAME], [token NAME], [api] or [daemon]"

struct reader {
	struct conf *conf;
	FILE *file;
	char *text;
	size_t room;
	unsigned int line;
	bool dropin;
	bool in_section; /* a section head was read */
	struct conf_section
		*section; /* that the next settings belong to; NULL: its head had a fault */
};

void conf_fault(struct conf *conf, unsigned int line, const char *fmt, ...)
{
	va_list ap;

	conf->faults++;
	if (!conf->complaints)
		return;
	fprintf(conf->complaints, "%s:", conf->file ? conf->file : conf->path);
	if (line)
		fprintf(conf->complaints, "%u:", line);
	fputc(' ', conf->complaints);
	va_start(ap, fmt);
	vfprintf(conf->complaints, fmt, ap);
	va_end(ap);
	fputc('\n', conf->complaints);
}

/* ---- sections ------------------------------------------------------------------------------ */

const char *conf_kind_word(const struct conf_kind *kind)
{
	return kind->word;
}

const struct conf_kind *conf_kind_of(const char *word)
{
	for (size_t i = 0; i < N_KINDS; i++)
		if (strcmp(kinds[i]->word, word) == 0)
			return kinds[i];
	return NULL;
}

void *conf_next(const struct conf *conf, const struct conf_kind *kind, const void *before)
{
	struct conf_section *s =
		before ? ((const struct conf_section *)before)->next : conf->sections;

	while (s && kind && s->kind != kind)
		s = s->next;
	return s;
}

void *conf_find(const struct conf *conf, const struct conf_kind *kind, const char *name)
{
	struct conf_section *s = NULL;

	while ((s = conf_next(conf, kind, s)))
		if (strcmp(s->name, name) == 0)
			return s;
	return NULL;
}

struct conf_section *conf_get(struct conf_section *s)
{
	__atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
	return s;
}

void conf_put(struct conf_section *s)
{
	if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	if (s->kind->end)
		s->kind->end(s);
	conf_clear(s);
	free(s->name);
	free(s->path);
	free(s->text);
	free(s);
}

static struct conf_section *new_section(struct conf *conf, const struct conf_kind *kind,
					const char *name, unsigned int line)
{
	struct conf_section *s = calloc(1, kind->size), **end = &conf->sections;

	if (!s) {
		conf_fault(conf, line, "out of memory");
		return NULL;
	}
	*s = (struct conf_section){.kind = kind,
				   .name = strdup(name),
				   .path = strdup(conf->file),
				   .text = strdup(""),
				   .line = line,
				   .refs = 1};
	if (!s->name || !s->path || !s->text) {
		conf_fault(conf, line, "out of memory");
		conf_put(s);
		return NULL;
	}
	conf_preset(conf, s);
	while (*end)
		end = &(*end)->next;
	*end = s;
	return s;
}

static void drop_section(struct conf *conf, struct conf_section *s)
{
	struct conf_section **at = &conf->sections;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	conf_put(s);
}

static struct conf_section *add_section(struct reader *r, const struct conf_kind *kind,
					const char *name)
{
	struct conf_section *before = conf_find(r->conf, kind, name), *s;

	if (before && before->dropin == r->dropin) {
		conf_fault(r->conf, r->line,
			   "duplicate section: %s%s%s%s is already at line %u of %s",
			   kind->is_single ? "[" : "", kind->word, kind->is_single ? "]" : " ",
			   name, before->line, before->path);
		return NULL;
	}
	if (before) /* a drop-in's section replaces that of the main file */
		drop_section(r->conf, before);
	s = new_section(r->conf, kind, name, r->line);
	if (s)
		s->dropin = r->dropin;
	return s;
}

/* head: the text between the brackets. */
static struct conf_section *begin_section(struct reader *r, char *head)
{
	char *save, *word = strtok_r(head, " \t", &save), *name = strtok_r(NULL, " \t", &save);
	const struct conf_kind *kind = word ? conf_kind_of(word) : NULL;

	if (!kind || !name != kind->is_single || (name && strtok_r(NULL, " \t", &save))) {
		conf_fault(r->conf, r->line, "unknown section; expected " SECTIONS);
		return NULL;
	}
	if (name && !name_is_valid(name)) {
		conf_fault(r->conf, r->line,
			   "invalid name '%s': use letters, digits and . - _, 63 at most", name);
		return NULL;
	}
	if (r->dropin && kind == &conf_daemon_kind) {
		conf_fault(r->conf, r->line,
			   "[daemon] is not allowed in a drop-in; it belongs in %s", r->conf->path);
		return NULL;
	}
	return add_section(r, kind, name ? name : "");
}

static void parse_section_head(struct reader *r, const char *line)
{
	char head[SECTION_MAX + 1];
	size_t len = strcspn(line, "]\r\n");

	r->in_section = true;
	r->section = NULL;
	if (line[len] != ']')
		return; /* inih reports it */
	if (len > SECTION_MAX) {
		conf_fault(r->conf, r->line,
			   "a section's head has at most %d characters between [ and ]",
			   SECTION_MAX);
		return;
	}
	memcpy(head, line, len);
	head[len] = '\0';
	r->section = begin_section(r, head);
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Settings are reported as JSON later, which must be UTF-8. */
static bool is_utf8(const char *text)
{
	json_t *as_json = json_string(text);

	json_decref(as_json);
	return as_json;
}

/* Reads a line for inih, as fgets(3) does. */
static char *read_line(char *line, int room, void *arg)
{
	struct reader *r = arg;
	ssize_t len = getline(&r->text, &r->room, r->file);
	const char *text;

	if (len < 0)
		return NULL;
	r->line++;
	text = r->text + strspn(r->text, " \t");
	if (strlen(r->text) != (size_t)len) {
		conf_fault(r->conf, r->line, "the line has a zero byte");
		text = "\n";
	} else if (!is_utf8(text)) {
		conf_fault(r->conf, r->line, "the line is not valid UTF-8");
		text = "\n";
	} else if (strlen(text) >= (size_t)room) {
		conf_fault(r->conf, r->line, "a line has at most %d characters", room - 2);
		text = "\n";
	}
	strcpy(line, text);
	if (*line == '[')
		parse_section_head(r, line + 1);
	return line;
}

static void append_text(struct reader *r, const char *name, const char *value)
{
	char *text = NULL;

	if (asprintf(&text, "%s%s = %s\n", r->section->text, name, value) < 0) {
		conf_fault(r->conf, r->line, "out of memory");
		return;
	}
	free(r->section->text);
	r->section->text = text;
}

static int parse_setting(void *arg, const char *section, const char *name, const char *value)
{
	struct reader *r = arg;

	if (!r->in_section) {
		conf_fault(
			r->conf, r->line,
			"setting '%s' is in no section; a head such as [pool NAME] must come first",
			name);
	} else if (*value == ';') { /* inih takes ; behind a blank as a comment, but not here */
		conf_fault(r->conf, r->line, "%s: the value begins with ;, which starts a comment",
			   name);
	} else if (r->section) {
		append_text(r, name, value);
		conf_set(r->conf, r->section, r->line, name, value);
	}
	return 1;
}

static void read_lines(struct conf *conf, FILE *file, const char *path, bool dropin)
{
	struct reader r = {.conf = conf, .file = file, .dropin = dropin};
	int rc;

	conf->file = path;
	rc = ini_parse_stream(read_line, &r, parse_setting, &r);
	free(r.text);
	if (rc > 0)
		conf_fault(
			conf, (unsigned int)rc,
			"invalid line; expected [SECTION NAME], NAME = VALUE, or ; and a comment");
	else if (rc < 0)
		conf_fault(conf, 0, "out of memory");
	if (ferror(file))
		conf_fault(conf, 0, "%s", strerror(errno));
	conf->file = NULL;
}

/* ---- drop-ins ---------------------------------------------------------------------------------- */

static void read_dropin(struct conf *conf, const char *path, const struct conf_instead *instead)
{
	bool is_instead = instead && strcmp(instead->file, basename((char *)path)) == 0;
	FILE *file;

	if (is_instead && !instead->text)
		return;
	file = is_instead ? fmemopen((char *)instead->text, strlen(instead->text), "r")
			  : fopen(path, "re");
	conf->file = path;
	if (!file)
		conf_fault(conf, 0, "%s", strerror(errno));
	else
		read_lines(conf, file, path, true);
	if (file)
		fclose(file);
	conf->file = NULL;
}

/* Reads drop-ins in alphabetical order; one that does not exist yet (instead) comes last. */
static void read_dropins(struct conf *conf, const struct conf_instead *instead)
{
	CLEANUP_FREE char *pattern = NULL, *new = NULL;
	bool is_there = false;
	glob_t found;

	if (asprintf(&pattern, "%s/" CONF_DROPINS "/*.ini", conf->daemon->state) < 0 ||
	    (instead &&
	     asprintf(&new, "%s/" CONF_DROPINS "/%s", conf->daemon->state, instead->file) < 0)) {
		conf_fault(conf, 0, "out of memory");
		return;
	}
	if (glob(pattern, 0, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++) {
			is_there |= new &&strcmp(found.gl_pathv[i], new) == 0;
			read_dropin(conf, found.gl_pathv[i], instead);
		}
		globfree(&found);
	}
	if (new && !is_there)
		read_dropin(conf, new, instead);
}

/* ---- all of it ------------------------------------------------------------------------------------ */

/* Returns whether two nodes would create pools at overlapping addresses. Nodes that join learn the address when they start. */
static bool is_memory_shared(const struct conf_pool *a, const struct conf_pool *b)
{
	uint64_t from_a = a->memory ? a->memory : STAG_POOL_MEMORY;
	uint64_t from_b = b->memory ? b->memory : STAG_POOL_MEMORY;

	return a->create && b->create && from_a < from_b + b->size && from_b < from_a + a->size;
}

static void check_pool_pair(struct conf *conf, const struct conf_pool *a, const struct conf_pool *b)
{
	if (a->state && b->state && strcmp(a->state, b->state) == 0)
		conf_fault(conf, a->at.line, "pools '%s' and '%s' have the same state directory",
			   b->at.name, a->at.name);
	if (is_memory_shared(a, b))
		conf_fault(conf, a->at.line,
			   "pools '%s' and '%s' would be mapped at the same memory; set memory = "
			   "ADDRESS for one of them",
			   b->at.name, a->at.name);
}

bool conf_listen_port(const struct conf_section *s, uint16_t *port, const char **address)
{
	if (s->kind == &conf_pool_kind) {
		*port = ((const struct conf_pool *)s)->attr.port;
		*address = ((const struct conf_pool *)s)->address;
	} else if (s->kind == &conf_store_kind) {
		*port = ((const struct conf_store *)s)->attr.port;
		*address = ((const struct conf_store *)s)->address;
	} else if (s->kind == &conf_target_kind) {
		*port = ((const struct conf_target *)s)->attr.port;
		*address = ((const struct conf_target *)s)->address;
	} else {
		return false;
	}
	return *port != 0;
}

bool conf_has_low_port(const struct conf *conf)
{
	const struct conf_section *s = NULL;
	const char *address, *listen;
	uint16_t port;

	while ((s = conf_next(conf, NULL, s))) {
		listen = s->kind == &conf_api_kind ? ((const struct conf_api *)s)->listen : NULL;
		if ((conf_listen_port(s, &port, &address) && port < 1024) ||
		    (listen && strrchr(listen, ':') && atoi(strrchr(listen, ':') + 1) < 1024 &&
		     atoi(strrchr(listen, ':') + 1) > 0))
			return true;
	}
	return false;
}

bool conf_is_same_port(const struct conf_section *a, const struct conf_section *b)
{
	const char *of_a, *of_b;
	uint16_t port_a, port_b;

	return conf_listen_port(a, &port_a, &of_a) && conf_listen_port(b, &port_b, &of_b) &&
	       port_a == port_b && (!of_a || !of_b || strcmp(of_a, of_b) == 0);
}

static void check_pair(struct conf *conf, const struct conf_section *a,
		       const struct conf_section *b)
{
	const char *address;
	uint16_t port;

	conf->file = a->path;
	if (conf_is_same_port(a, b) && conf_listen_port(a, &port, &address))
		conf_fault(conf, a->line, "%s '%s' and %s '%s' listen on the same port, %u",
			   b->kind->word, b->name, a->kind->word, a->name, port);
	if (a->kind == b->kind && a->kind == &conf_pool_kind)
		check_pool_pair(conf, (const void *)a, (const void *)b);
	if (a->kind == b->kind && a->kind == &conf_store_kind &&
	    ((const struct conf_store *)a)->store && ((const struct conf_store *)b)->store &&
	    strcmp(((const struct conf_store *)a)->store, ((const struct conf_store *)b)->store) ==
		    0)
		conf_fault(conf, a->line, "stores '%s' and '%s' have the same path", b->name,
			   a->name);
	conf->file = NULL;
}

static void check_all_pairs(struct conf *conf)
{
	const struct conf_section *a = NULL, *b;
	bool is_empty = true;

	while ((a = conf_next(conf, NULL, a))) {
		is_empty &= a->kind == &conf_daemon_kind;
		for (b = conf->sections; b != a; b = b->next)
			check_pair(conf, a, b);
	}
	if (is_empty && conf->faults == 0)
		conf_fault(conf, 0, "the file has no section; expected " SECTIONS);
}

static void check_section(struct conf *conf, struct conf_section *s)
{
	conf->file = s->path;
	s->kind->check(conf, s);
	conf->file = NULL;
}

/* Checks [daemon] before the others, whose defaults depend on it. */
static bool check_daemon(struct conf *conf)
{
	conf->daemon = conf_find(conf, &conf_daemon_kind, "");
	conf->file = conf->path;
	if (!conf->daemon)
		conf->daemon = (void *)new_section(conf, &conf_daemon_kind, "", 0);
	if (conf->daemon)
		check_section(conf, &conf->daemon->at);
	conf->file = NULL;
	return conf->daemon && conf->daemon->state;
}

static int check_sections(struct conf *conf, const struct conf_instead *instead)
{
	struct conf_section *s = NULL;

	if (!check_daemon(conf))
		return -EBADMSG;
	if (!(conf->flags & CONF_NO_DROPINS))
		read_dropins(conf, instead);
	while ((s = conf_next(conf, NULL, s)))
		if (s->kind != &conf_daemon_kind)
			check_section(conf, s);
	check_all_pairs(conf);
	return conf->faults == 0 ? 0 : -EBADMSG;
}

int conf_read_stream(struct conf *conf, const char *path, FILE *file, FILE *complaints,
		     unsigned int flags)
{
	*conf = (struct conf){
		.path = strdup(path), .complaints = complaints, .flags = flags | CONF_NO_DROPINS};
	if (!conf->path)
		return -ENOMEM;
	read_lines(conf, file, conf->path, false);
	return check_sections(conf, NULL);
}

int conf_read_as(struct conf *conf, const char *path, FILE *complaints, unsigned int flags,
		 const struct conf_instead *instead)
{
	FILE *file;
	int rc;

	*conf = (struct conf){
		.path = realpath(path, NULL), .complaints = complaints, .flags = flags};
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
	read_lines(conf, file, conf->path, false);
	fclose(file);
	return check_sections(conf, instead);
}

int conf_read(struct conf *conf, const char *path, FILE *complaints)
{
	return conf_read_as(conf, path, complaints, 0, NULL);
}

void conf_free(struct conf *conf)
{
	while (conf->sections) {
		struct conf_section *s = conf->sections;

		conf->sections = s->next;
		s->next = NULL;
		conf_put(s);
	}
	free(conf->path);
	*conf = (struct conf){0};
}
