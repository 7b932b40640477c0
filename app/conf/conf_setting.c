// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_setting.c - parses, presets, compares and frees the settings of a section, as the table of its kind says.
 */
#include "conf.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/name.h"
#include "suggest.h"

#define MS 1000ull

static const char *const wanted[] = {
	[CONF_TEXT] = "a word",
	[CONF_NAME] = "a name of letters, digits and . - _, 63 at most",
	[CONF_FILE] = "a path",
	[CONF_COUNT] = "a number",
	[CONF_ADDRESS] = "an address, such as 0x200000000000",
	[CONF_SIZE] = "a size, such as 512M or 1G",
	[CONF_TIME] = "a time with its unit, such as 500us, 20ms, 5s, 10m or 1h",
	[CONF_SWITCH] = "yes or no",
};

static const char *wanted_of(const struct conf_setting *s)
{
	return s->wanted ? s->wanted : wanted[s->type];
}

static unsigned int index_of(const struct conf_section *s, const char *name)
{
	unsigned int i = 0;

	while (i < s->kind->num_settings && strcmp(s->kind->settings[i].name, name) != 0)
		i++;
	return i;
}

unsigned int conf_line_of(const struct conf_section *s, const char *name)
{
	unsigned int i = index_of(s, name);

	return i < s->kind->num_settings && s->lines[i] ? s->lines[i] : s->line;
}

bool conf_is_set(const struct conf_section *s, const char *name)
{
	return s->lines[index_of(s, name)] != 0;
}

char *conf_resolve_path(const struct conf *conf, const char *name)
{
	CLEANUP_FREE char *copy = strdup(conf->path);
	char *path = NULL;

	if (*name == '/')
		return strdup(name);
	if (!copy || asprintf(&path, "%s/%s", dirname(copy), name) < 0)
		return NULL;
	return path;
}

/* ---- values ----------------------------------------------------------------------------- */

static bool parse_number(const struct conf_setting *s, const char *value, uint64_t *n)
{
	switch (s->type) {
	case CONF_COUNT:
	case CONF_ADDRESS:
		return conf_parse_count(value, n);
	case CONF_SIZE:
		return conf_parse_size(value, n);
	default:
		return conf_parse_time(value, n);
	}
}

static const char *unit_word(const struct conf_setting *s)
{
	if (s->type != CONF_TIME)
		return s->unit == 4096 ? "4096" : "512";
	return s->unit == MS ? "a millisecond" : "a second";
}

static void set_number(struct conf *conf, const struct conf_setting *s, unsigned int line,
		       const char *value, uint64_t *to)
{
	uint64_t n;

	if (!parse_number(s, value, &n))
		conf_fault(conf, line, "%s must be %s, not '%s'", s->name, wanted_of(s), value);
	else if (n < s->least || n > s->most)
		conf_fault(conf, line, "%s = %s is too %s", s->name, value,
			   n < s->least ? "small" : "large");
	else if (s->unit && n % s->unit)
		conf_fault(conf, line, "%s = %s is not a multiple of %s", s->name, value,
			   unit_word(s));
	else
		*to = n;
}

static void set_choice(struct conf *conf, const struct conf_setting *s, unsigned int line,
		       const char *value, uint64_t *to)
{
	for (unsigned int i = 0; s->words[i]; i++)
		if (strcmp(s->words[i], value) == 0) {
			*to = i;
			return;
		}
	conf_fault(conf, line, "%s must be %s, not '%s'", s->name, wanted_of(s), value);
}

static void set_text(struct conf *conf, const struct conf_setting *s, unsigned int line,
		     const char *value, char **to)
{
	if (s->type == CONF_NAME && !name_is_valid(value)) {
		conf_fault(conf, line, "%s must be %s, not '%s'", s->name, wanted_of(s), value);
		return;
	}
	free(*to); /* the default */
	if (s->type == CONF_FILE)
		*to = conf_resolve_path(conf, value);
	else
		*to = s->type == CONF_MADE ? s->make(conf, value) : strdup(value);
	if (!*to)
		conf_fault(conf, line, "%s must be %s, not '%s'", s->name, wanted_of(s), value);
}

static void set_value(struct conf *conf, const struct conf_setting *s, unsigned int line,
		      const char *value, void *to)
{
	switch (s->type) {
	case CONF_TEXT:
	case CONF_NAME:
	case CONF_FILE:
	case CONF_MADE:
		set_text(conf, s, line, value, to);
		return;
	case CONF_COUNT:
	case CONF_ADDRESS:
	case CONF_SIZE:
	case CONF_TIME:
		set_number(conf, s, line, value, to);
		return;
	case CONF_CHOICE:
		set_choice(conf, s, line, value, to);
		return;
	case CONF_SWITCH:
		if (!conf_parse_switch(value, to))
			conf_fault(conf, line, "%s must be yes or no, not '%s'", s->name, value);
		return;
	}
}

/* ---- items ------------------------------------------------------------------------------- */

static bool is_of_family(const struct conf_setting *family, const char *name)
{
	return family && strncmp(name, family->name, strlen(family->name)) == 0;
}

static const struct conf_item *find_item(const struct conf_item *items, unsigned int n,
					 const char *name)
{
	for (unsigned int i = 0; i < n; i++)
		if (strcmp(items[i].name, name) == 0)
			return &items[i];
	return NULL;
}

const struct conf_item *conf_item_of(const struct conf_section *s, const char *name)
{
	return find_item(s->items, s->num_items, name);
}

/* Adds the item of a setting, whose name begins with the prefix of its family. */
static void add_item(struct conf *conf, struct conf_item **items, unsigned int *n,
		     const char *prefix, unsigned int line, const char *setting, const char *value)
{
	const char *name = setting + strlen(prefix);
	const struct conf_item *before = find_item(*items, *n, name);
	struct conf_item *list, item = {.line = line};

	if (before) {
		conf_fault(conf, line, "%s is already set at line %u", setting, before->line);
		return;
	}
	if (!*name || !*value) {
		conf_fault(conf, line, "%s requires a name behind the dot, and a value", setting);
		return;
	}
	list = realloc(*items, (*n + 1) * sizeof(*list));
	if (list)
		*items = list;
	item.name = strdup(name);
	item.value = strdup(value);
	if (!list || !item.name || !item.value) {
		conf_fault(conf, line, "out of memory");
		free(item.name);
		free(item.value);
		return;
	}
	list[(*n)++] = item;
}

bool conf_is_same_items(const void *a, const void *b)
{
	const struct conf_section *x = a, *y = b;

	if (x->num_items != y->num_items)
		return false;
	for (unsigned int i = 0; i < x->num_items; i++) {
		const struct conf_item *other = conf_item_of(y, x->items[i].name);

		if (!other || strcmp(other->value, x->items[i].value) != 0)
			return false;
	}
	return true;
}

/* ---- unknown settings ----------------------------------------------------------------- */

/* Considers the family for the part of the name up to its dot: "lun." for "lnu.1". Returns whether it is the nearest so far. */
static bool consider_family(struct suggestion *s, const struct conf_setting *family)
{
	const char *dot = strchr(s->word, '.');
	char head[32];
	struct suggestion of = {.word = head, .best = s->best, .distance = s->distance};

	if (!family || !dot || (size_t)(dot + 1 - s->word) >= sizeof(head))
		return false;
	snprintf(head, sizeof(head), "%.*s", (int)(dot + 1 - s->word), s->word);
	suggest_consider(&of, family->name);
	if (of.best != family->name)
		return false;
	s->best = of.best;
	s->distance = of.distance;
	return true;
}

static void fault_unknown(struct conf *conf, const struct conf_kind *kind, unsigned int line,
			  const char *name)
{
	struct suggestion nearest = {.word = name};
	const char *rest = "";
	bool is_family, is_other;

	for (unsigned int i = 0; i < kind->num_settings; i++)
		suggest_consider(&nearest, kind->settings[i].name);
	is_family = consider_family(&nearest, kind->family);
	is_other = consider_family(&nearest, kind->other);
	if (is_family || is_other)
		rest = strchr(name, '.') + 1;
	conf_fault(conf, line, "%s%s%s has no setting '%s'; %s%s%s%s", kind->is_single ? "[" : "a ",
		   kind->word, kind->is_single ? "]" : "", name,
		   nearest.best ? "did you mean '" : "see stag.ini(5)",
		   nearest.best ? nearest.best : "", rest,
		   nearest.best ? "'? See stag.ini(5)" : "");
}

/* ---- sections ------------------------------------------------------------------------- */

void conf_set(struct conf *conf, struct conf_section *s, unsigned int line, const char *name,
	      const char *value)
{
	unsigned int i = index_of(s, name);
	const struct conf_setting *setting = &s->kind->settings[i];

	if (is_of_family(s->kind->family, name)) {
		add_item(conf, &s->items, &s->num_items, s->kind->family->name, line, name, value);
		return;
	}
	if (is_of_family(s->kind->other, name)) {
		add_item(conf, &s->others, &s->num_others, s->kind->other->name, line, name, value);
		return;
	}
	if (i == s->kind->num_settings) {
		fault_unknown(conf, s->kind, line, name);
		return;
	}
	if (s->lines[i]) {
		conf_fault(conf, line, "%s is already set at line %u", name, s->lines[i]);
		return;
	}
	s->lines[i] = line;
	if (!*value)
		conf_fault(conf, line, "%s has no value; it must be %s", name, wanted_of(setting));
	else
		set_value(conf, setting, line, value, (char *)s + setting->at);
}

void conf_preset(struct conf *conf, struct conf_section *s)
{
	for (unsigned int i = 0; i < s->kind->num_settings; i++) {
		const struct conf_setting *setting = &s->kind->settings[i];

		if (setting->preset)
			set_value(conf, setting, s->line, setting->preset, (char *)s + setting->at);
	}
}

static bool is_text(const struct conf_setting *s)
{
	return s->type == CONF_TEXT || s->type == CONF_NAME || s->type == CONF_FILE ||
	       s->type == CONF_MADE;
}

static bool is_same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_same_value(const struct conf_setting *s, const void *a, const void *b)
{
	if (is_text(s))
		return is_same_text(*(char *const *)a, *(char *const *)b);
	if (s->type == CONF_SWITCH)
		return *(const bool *)a == *(const bool *)b;
	return *(const uint64_t *)a == *(const uint64_t *)b;
}

static const char *first_difference(const void *a, const void *b, bool even_live)
{
	const struct conf_kind *kind = ((const struct conf_section *)a)->kind;

	for (unsigned int i = 0; i < kind->num_settings; i++) {
		const struct conf_setting *s = &kind->settings[i];

		if ((even_live || !s->live) &&
		    !is_same_value(s, (const char *)a + s->at, (const char *)b + s->at))
			return s->name;
	}
	return kind->differs ? kind->differs(a, b) : NULL;
}

const char *conf_differs(const void *a, const void *b)
{
	return first_difference(a, b, true);
}

const char *conf_needs_restart(const void *a, const void *b)
{
	return ((const struct conf_section *)a)->kind->live ? NULL : first_difference(a, b, false);
}

static void free_items(struct conf_item *items, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		free(items[i].name);
		free(items[i].value);
	}
	free(items);
}

void conf_clear(struct conf_section *s)
{
	for (unsigned int i = 0; i < s->kind->num_settings; i++)
		if (is_text(&s->kind->settings[i]))
			free(*(char **)((char *)s + s->kind->settings[i].at));
	free_items(s->items, s->num_items);
	free_items(s->others, s->num_others);
}
