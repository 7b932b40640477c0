// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_help.c - the tables of settings as text (conf.h): the manual's lists, and the sections of the shipped example.
 */
#include "conf.h"

#include <string.h>

#define N_SHIFTS 5

/* Prints a limit or unit as the file would have it, with the largest suffix that keeps it whole. */
static void print_number(FILE *out, enum conf_type type, uint64_t n)
{
	static const struct {
		const char *word;
		uint64_t us;
	} times[] = {{"h", 3600000000}, {"s", 1000000}, {"ms", 1000}, {"us", 1}};
	static const char sizes[N_SHIFTS + 1] = "KMGTP";
	unsigned int shift = 0, i = 0;

	if (type == CONF_TIME) {
		while (n % times[i].us)
			i++;
		fprintf(out, "%llu%s", (unsigned long long)(n / times[i].us),
			n ? times[i].word : "us");
	} else if (type == CONF_SIZE) {
		while (shift < N_SHIFTS && n >= 1024 && n % 1024 == 0) {
			n /= 1024;
			shift++;
		}
		fprintf(out, "%llu%.*s", (unsigned long long)n, shift > 0,
			sizes + shift - (shift > 0));
	} else {
		fprintf(out, type == CONF_ADDRESS ? "0x%llx" : "%llu", (unsigned long long)n);
	}
}

/* ---- the manual ------------------------------------------------------------------------- */

static void print_choices(FILE *out, const char *const *words)
{
	for (unsigned int i = 0; words[i]; i++)
		fprintf(out, "%s**%s**", i ? " | " : "", words[i]);
}

static void print_value(FILE *out, const struct conf_setting *s)
{
	static const char *const by_type[] = {
		[CONF_TEXT] = "*text*",	      [CONF_NAME] = "*name*",	  [CONF_FILE] = "*path*",
		[CONF_COUNT] = "*number*",    [CONF_SIZE] = "*size*",	  [CONF_TIME] = "*time*",
		[CONF_ADDRESS] = "*address*", [CONF_SWITCH] = "*switch*",
	};

	if (s->value)
		fputs(s->value, out);
	else if (s->type == CONF_CHOICE)
		print_choices(out, s->words);
	else
		fputs(by_type[s->type], out);
}

static void print_limits(FILE *out, const struct conf_setting *s)
{
	if (s->most) {
		fputs(" Range: ", out);
		print_number(out, s->type, s->least);
		fputs(" to ", out);
		print_number(out, s->type, s->most);
		fputs(".", out);
	}
	if (s->unit > 1 && s->type != CONF_TIME) {
		fputs(" A multiple of ", out);
		print_number(out, CONF_COUNT, s->unit);
		fputs(".", out);
	}
}

static void print_default(FILE *out, const struct conf_setting *s)
{
	if (s->preset)
		fprintf(out, " Default: **%s**.", s->preset);
	else if (s->usual)
		fprintf(out, " Default: %s.", s->usual);
	else
		fputs(" Required.", out);
}

static void print_entry(FILE *out, const struct conf_setting *s)
{
	if (s->group)
		fprintf(out, "## %s\n\n", s->group->heading);
	if (s->group && s->group->text)
		fprintf(out, "%s\n\n", s->group->text);
	fprintf(out, "**%s** = ", s->name);
	print_value(out, s);
	fprintf(out, "\n:   %s", s->help);
	print_default(out, s);
	print_limits(out, s);
	fprintf(out, "%s%s%s\n\n", s->more ? " " : "", s->more ? s->more : "",
		s->live ? " A reload applies it." : "");
}

static void print_family_entry(FILE *out, const struct conf_setting *s)
{
	fprintf(out, "**%s***%s* = %s\n:   %s %s%s\n\n", s->name, s->wanted, s->value, s->help,
		s->more, s->live ? " A reload applies it." : "");
}

void conf_print_manual(FILE *out, const struct conf_kind *kind)
{
	for (unsigned int i = 0; i < kind->num_settings; i++)
		print_entry(out, &kind->settings[i]);
	if (kind->family)
		print_family_entry(out, kind->family);
	if (kind->other)
		print_family_entry(out, kind->other);
}

/* ---- the example --------------------------------------------------------------------------- */

/* Prints Markdown without its stars. */
static void print_plain(FILE *out, const char *text)
{
	for (; *text; text++)
		if (*text != '*')
			fputc(*text, out);
}

/* Returns the value that the example sets, up to the end of its line; NULL: the setting is commented out. */
static const char *value_in_example(const struct conf_kind *kind, const char *name)
{
	const char *line = kind->sample_lines ? kind->sample_lines : "";
	size_t len = strlen(name);

	while (*line && (strncmp(line, name, len) != 0 || strncmp(line + len, " = ", 3) != 0)) {
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	return *line ? line + len + 3 : NULL;
}

static void print_sample(FILE *out, const struct conf_kind *kind, const struct conf_setting *s)
{
	const char *set = value_in_example(kind, s->name);
	const char *usual = s->usual ? s->usual : set ? s->preset : NULL;

	if (s->group)
		fprintf(out, "; ---- %s ----\n\n", s->group->heading);
	fprintf(out, "; %s", s->help);
	if (usual || !s->preset) {
		fputs(usual ? " Default: " : " Required", out);
		print_plain(out, usual ? usual : "");
		fputs(".", out);
	}
	if (set)
		fprintf(out, "\n%s = %.*s\n\n", s->name, (int)strcspn(set, "\n"), set);
	else
		fprintf(out, "\n; %s = %s\n\n", s->name, s->preset ? s->preset : s->sample);
}

static void print_family_samples(FILE *out, const struct conf_setting *s)
{
	const char *line = s->sample;

	fprintf(out, "; %s Examples:\n", s->help);
	while (*line) {
		size_t len = strcspn(line, "\n");

		fprintf(out, "; %.*s\n", (int)len, line);
		line += len + (line[len] == '\n');
	}
	fputs("\n", out);
}

void conf_print_example(FILE *out, const struct conf_kind *kind)
{
	fprintf(out, "%s[%s%s%s]\n\n", kind->sample_lines ? "" : "; ", kind->word,
		kind->sample ? " " : "", kind->sample ? kind->sample : "");
	for (unsigned int i = 0; i < kind->num_settings; i++)
		print_sample(out, kind, &kind->settings[i]);
	if (kind->family)
		print_family_samples(out, kind->family);
	if (kind->other)
		print_family_samples(out, kind->other);
}
