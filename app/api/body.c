// SPDX-License-Identifier: BSD-2-Clause
/*
 * body.c - parses a JSON body and checks it against the fields of its route (http.h).
 *
 * A body that passes has all required fields, no unknown ones, and each of the right kind: handlers need not check that again.
 */
#include "http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"
#include "conf.h"

#define TEXT_MAX     512
#define SIZE_MAXIMUM (1ull << 62)

/* Accepts only text that can stand in an INI file: no line break, no comment, no blanks or quotes at its ends. */
static bool is_text(const json_t *value)
{
	const char *text = json_string_value(value);
	size_t len = json_string_length(value);

	if (len == 0 || len > TEXT_MAX || strchr(" ;#\"'", *text) || text[len - 1] == ' ')
		return false;
	for (size_t i = 0; i < len; i++)
		if (is_control(text + i))
			return false;
	return !strstr(text, " ;") && !strstr(text, " #");
}

bool size_parse(const json_t *value, uint64_t *bytes)
{
	if (json_is_string(value))
		return json_string_length(value) < 32 &&
		       conf_parse_size(json_string_value(value), bytes) && *bytes < SIZE_MAXIMUM;
	*bytes = (uint64_t)json_integer_value(value);
	return json_is_integer(value) && json_integer_value(value) >= 0 && *bytes < SIZE_MAXIMUM;
}

static bool are_texts(const json_t *value)
{
	if (!json_is_array(value) || json_array_size(value) > BODY_ARRAY_MAX)
		return false;
	for (size_t i = 0; i < json_array_size(value); i++)
		if (!json_is_string(json_array_get(value, i)) || !is_text(json_array_get(value, i)))
			return false;
	return true;
}

/* Accepts 0, which is the default, as if the field was absent. */
static bool is_size_in_limits(const struct field *field, const json_t *value)
{
	uint64_t bytes;

	return size_parse(value, &bytes) &&
	       (field->most == 0 || bytes == 0 || (bytes >= field->least && bytes <= field->most));
}

static bool is_number_in_limits(const struct field *field, const json_t *value)
{
	json_int_t n = json_integer_value(value);

	return json_is_integer(value) && n >= 0 && (uint64_t)n >= field->least &&
	       (uint64_t)n <= field->most;
}

static bool is_one_of(const char *const *words, const json_t *value)
{
	while (*words && json_is_string(value) && strcmp(*words, json_string_value(value)) != 0)
		words++;
	return json_is_string(value) && *words;
}

static bool is_of_kind(const struct field *field, const json_t *value)
{
	switch (field->kind) {
	case FIELD_TEXT:
	case FIELD_SECRET:
		return json_is_string(value) && is_text(value);
	case FIELD_NAME:
		return json_is_string(value) &&
		       strlen(json_string_value(value)) == json_string_length(value) &&
		       api_name_is_valid(json_string_value(value));
	case FIELD_SIZE:
		return is_size_in_limits(field, value);
	case FIELD_NUMBER:
		return is_number_in_limits(field, value);
	case FIELD_FLAG:
		return json_is_boolean(value);
	case FIELD_TEXTS:
		return are_texts(value);
	case FIELD_OBJECTS:
		return json_is_array(value) && json_array_size(value) <= BODY_ARRAY_MAX;
	case FIELD_CHOICE:
		return is_one_of(field->words, value);
	}
	return false;
}

static const char *kind_words(const struct field *field, char *text, size_t size)
{
	static const char *const words[] = {
		[FIELD_TEXT] = "a line of text",
		[FIELD_SECRET] = "a line of text",
		[FIELD_NAME] = "a name of letters, digits and . - _, 63 at most",
		[FIELD_SIZE] = "a number of bytes, or a size such as \"10G\"",
		[FIELD_FLAG] = "true or false",
		[FIELD_TEXTS] = "an array of lines of text",
		[FIELD_OBJECTS] = "an array of objects",
	};
	int n = 0;

	if (field->kind == FIELD_CHOICE) {
		n = snprintf(text, size, "one of");
		for (unsigned int i = 0; field->words[i] && n < (int)size; i++)
			n += snprintf(text + n, size - (size_t)n, "%s %s", i ? "," : "",
				      field->words[i]);
		return text;
	}
	if (field->kind == FIELD_NUMBER)
		snprintf(text, size, "a whole number from %llu to %llu",
			 (unsigned long long)field->least, (unsigned long long)field->most);
	else if (field->kind == FIELD_SIZE && field->most)
		snprintf(text, size, "%s, from %llu to %llu bytes", words[FIELD_SIZE],
			 (unsigned long long)field->least, (unsigned long long)field->most);
	else
		return words[field->kind];
	return text;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static struct field field_of(const struct conf_setting *s)
{
	static const enum field_kind kinds[] = {
		[CONF_TEXT] = FIELD_TEXT,    [CONF_NAME] = FIELD_NAME,
		[CONF_FILE] = FIELD_TEXT,    [CONF_MADE] = FIELD_TEXT,
		[CONF_COUNT] = FIELD_NUMBER, [CONF_SIZE] = FIELD_SIZE,
		[CONF_ADDRESS] = FIELD_TEXT, [CONF_TIME] = FIELD_TEXT,
		[CONF_SWITCH] = FIELD_FLAG,  [CONF_CHOICE] = FIELD_CHOICE,
	};

	return (struct field){.name = s->json,
			      .kind = kinds[s->type],
			      .required = s->json_use == CONF_JSON_REQUIRED,
			      .least = s->least,
			      .most = s->most,
			      .words = s->words,
			      .help = s->help};
}

/* The fields of an object: listed ones, and the settings of a section. */
struct fields {
	const struct field *listed;	 /* ends with an entry without a name */
	const struct conf_kind *section; /* may be NULL */
};

static bool get_field(const struct fields *fields, unsigned int i, struct field *field)
{
	const struct field *listed = fields->listed;
	unsigned int setting = 0;

	for (; listed->name; listed++, i--)
		if (i == 0) {
			*field = *listed;
			return true;
		}
	for (; fields->section && setting < fields->section->num_settings; setting++) {
		const struct conf_setting *s = &fields->section->settings[setting];

		if (s->json && i-- == 0) {
			*field = field_of(s);
			return true;
		}
	}
	return false;
}

bool route_field(const struct route *route, unsigned int i, struct field *field)
{
	return get_field(&(struct fields){route->fields, route->section}, i, field);
}

static bool find_field(const struct fields *fields, const char *name, struct field *field)
{
	for (unsigned int i = 0; get_field(fields, i, field); i++)
		if (strcmp(field->name, name) == 0)
			return true;
	return false;
}

static int check_object(const struct fields *fields, const char *of, json_t *o, struct fault *f);

static int check_field(const struct field *field, json_t *value, struct fault *f)
{
	const struct fields inner = {field->fields, NULL};
	char text[128];
	int rc = 0;

	if (!is_of_kind(field, value))
		return fault_set(f, 400, "bad_value", NULL, "the field '%s' must be %s",
				 field->name, kind_words(field, text, sizeof(text)));
	if (field->kind == FIELD_OBJECTS)
		for (size_t i = 0; i < json_array_size(value) && rc == 0; i++)
			rc = check_object(&inner, field->name, json_array_get(value, i), f);
	return rc;
}

/* of: the name of the field that holds the object, or "body". */
static int check_object(const struct fields *fields, const char *of, json_t *o, struct fault *f)
{
	struct field field;
	const char *name;
	json_t *value;

	if (!json_is_object(o))
		return fault_set(f, 400, "bad_value", NULL, "the %s must be a JSON object", of);
	json_object_foreach (o, name, value) {
		if (!find_field(fields, name, &field))
			return fault_set(f, 400, "unknown_field",
					 "GET /openapi.json describes the fields of every body",
					 "the %s has an unknown field '%.60s'", of, name);
		if (check_field(&field, value, f) != 0)
			return -EBADMSG;
	}
	for (unsigned int i = 0; get_field(fields, i, &field); i++)
		if (field.required && !json_object_get(o, field.name))
			return fault_set(f, 400, "missing_field",
					 "GET /openapi.json describes the fields of every body",
					 "the %s lacks the field '%s'", of, field.name);
	return 0;
}

int body_parse(const struct route *route, const char *text, size_t len, json_t **body,
	       struct fault *f)
{
	json_error_t error;
	int rc;

	*body = NULL;
	if (len && memchr(text, '\0', len)) /* jansson 2.14 ignores it after a number */
		return fault_set(f, 400, "malformed_json", NULL, "the body has a zero byte");
	*body = len ? json_loadb(text, len, JSON_REJECT_DUPLICATES, &error) : json_object();
	if (!*body && len == 0)
		return fault_set(f, 500, "no_memory", NULL, "out of memory");
	if (!*body)
		return fault_set(f, 400, "malformed_json", NULL, "line %d, column %d: %s",
				 error.line, error.column, error.text);
	rc = check_object(&(struct fields){route->fields, route->section}, "body", *body, f);
	if (rc != 0) {
		json_decref(*body);
		*body = NULL;
	}
	return rc;
}
