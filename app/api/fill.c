// SPDX-License-Identifier: BSD-2-Clause
/*
 * fill TEMPLATE OUTPUT - a build-time program that copies a template and replaces its markers by text from the tables of
 * settings and routes.
 *
 * A marker is alone in its line. Fields get the indentation of the line.
 *
 *	@manual KIND@     the settings of a section, as Markdown (stag.ini.5.md.in)
 *	@example KIND@    the section, as INI (stag.ini.example.in)
 *	@fields ROUTE@    the fields of a request's body, as YAML (openapi.yaml.in): required, properties
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf.h"
#include "http.h"

/* ---- fields of bodies as YAML ------------------------------------------------------------------ */

static void print_words(FILE *out, const char *const *words)
{
	for (unsigned int i = 0; words[i]; i++)
		fprintf(out, "%s%s", i ? ", " : "", words[i]);
}

static void print_schema(FILE *out, const struct field *f)
{
#define REF(name) "allOf: [{$ref: \"#/components/schemas/" name "\"}]"
	switch (f->kind) {
	case FIELD_TEXT:
	case FIELD_SECRET:
		fputs(REF("Text"), out);
		return;
	case FIELD_NAME:
		fputs(REF("Name"), out);
		return;
	case FIELD_SIZE:
		fputs(REF("Size"), out);
		return;
	case FIELD_NUMBER:
		fprintf(out, "type: integer, minimum: %llu, maximum: %llu",
			(unsigned long long)f->least, (unsigned long long)f->most);
		return;
	case FIELD_FLAG:
		fputs("type: boolean", out);
		return;
	case FIELD_TEXTS:
	case FIELD_OBJECTS:
		fprintf(out,
			"type: array, maxItems: %d, items: {$ref: \"#/components/schemas/%s\"}",
			BODY_ARRAY_MAX, f->schema);
		return;
	case FIELD_CHOICE:
		fputs("enum: [", out);
		print_words(out, f->words);
		fputs("]", out);
		return;
	}
#undef REF
}

static void print_required(FILE *out, const struct route *route, int indent)
{
	struct field f;
	unsigned int n = 0;

	for (unsigned int i = 0; route_field(route, i, &f); i++)
		if (f.required) {
			if (n++ == 0)
				fprintf(out, "%*srequired: [%s", indent, "", f.name);
			else
				fprintf(out, ", %s", f.name);
		}
	if (n > 0)
		fputs("]\n", out);
}

static void print_fields(FILE *out, const struct route *route, int indent)
{
	struct field f;

	print_required(out, route, indent);
	fprintf(out, "%*sproperties:\n", indent, "");
	for (unsigned int i = 0; route_field(route, i, &f); i++) {
		fprintf(out, "%*s%s: {", indent + 2, "", f.name);
		print_schema(out, &f);
		fprintf(out, ", description: \"%s\"}\n", f.help);
	}
}

/* The role that an operation requires, which OpenAPI 3.1 allows beside any security scheme. */
static void print_security(FILE *out, const struct route *route, int indent)
{
	if (route->role == ROLE_NONE)
		fprintf(out, "%*ssecurity: [{}]\n", indent, "");
	else
		fprintf(out, "%*ssecurity: [{token: [%s]}]\n", indent, "", role_word(route->role));
}

/* ---- templates --------------------------------------------------------------------------------- */

static const struct route *find_route(const char *word)
{
	for (unsigned int i = 0; i < num_routes; i++)
		if (strcmp(route_word(routes[i].name), word) == 0)
			return &routes[i];
	return NULL;
}

static bool fill_marker(FILE *out, const char *what, const char *name, int indent)
{
	const struct conf_kind *kind = conf_kind_of(name);
	const struct route *route = find_route(name);

	if (strcmp(what, "manual") == 0 && kind)
		conf_print_manual(out, kind);
	else if (strcmp(what, "example") == 0 && kind)
		conf_print_example(out, kind);
	else if (strcmp(what, "security") == 0 && route)
		print_security(out, route, indent);
	else if (strcmp(what, "fields") == 0 && route && route->body == BODY_JSON)
		print_fields(out, route, indent);
	else
		return false;
	return true;
}

static bool fill_line(FILE *out, const char *line)
{
	int indent = (int)strspn(line, " ");
	char what[16], name[32], end;

	if (line[indent] != '@' ||
	    sscanf(line + indent, "@%15s %31[a-z_]%c", what, name, &end) != 3 || end != '@')
		return fputs(line, out) >= 0;
	if (fill_marker(out, what, name, indent))
		return true;
	fprintf(stderr, "fill: unknown marker %s", line);
	return false;
}

int main(int argc, char **argv)
{
	FILE *in = argc == 3 ? fopen(argv[1], "re") : NULL;
	FILE *out = in ? fopen(argv[2], "we") : NULL;
	char *line = NULL;
	size_t room = 0;
	bool good = out;

	while (good && getline(&line, &room, in) > 0)
		good = fill_line(out, line);
	free(line);
	if (out && (ferror(in) || ferror(out) || fclose(out) != 0))
		good = false;
	if (in)
		fclose(in);
	if (!good)
		fprintf(stderr, "usage: fill TEMPLATE OUTPUT\n");
	return good ? 0 : 1;
}
