// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_api.c - the pure parts of the management API: arbitrary paths, bodies and headers.
 *
 * The first byte selects one of the properties below, the second a route.
 */
#include "fuzz.h"

#include <strings.h>

#include "http.h"

enum { TARGET, BODY, GUARD, KINDS };

static const char token[] = "a-token-that-nobody-guesses";

/* Checks that an error is valid JSON, whatever the input. */
static void check_fault(const struct fault *f)
{
	json_t *o = fault_json(f);
	char *text = json_dumps(o, JSON_COMPACT);

	CHECK(f->status >= 400 && f->status < 600 && f->code && *f->message);
	CHECK(o && text);
	free(text);
	json_decref(o);
}

/* Returns the rest of the input as text, up to its first zero. */
static char *text_of(struct input in)
{
	char *text = malloc(in.len + 1);

	CHECK(text);
	if (in.len)
		memcpy(text, in.p, in.len);
	text[in.len] = '\0';
	return text;
}

/* ---- paths ------------------------------------------------------------------------------ */

static void check_parts(const struct target *t)
{
	CHECK(t->num_segments <= TARGET_SEGMENTS && t->num_queries <= TARGET_QUERIES);
	for (unsigned int i = 0; i < t->num_segments; i++) {
		const char *s = t->segments[i];

		CHECK(*s && strcmp(s, ".") != 0 && strcmp(s, "..") != 0);
		CHECK(s >= t->text && s + strlen(s) < t->text + sizeof(t->text));
		CHECK(t->odd[i] || (!strchr(s, '/') && utf8_is_valid(s, strlen(s))));
	}
	for (unsigned int i = 0; i < t->num_queries; i++)
		CHECK(target_query(t, t->queries[i].name) == t->queries[i].value);
}

/* Only the name of a value may have unusual characters. */
static void check_match(const struct target *t, const struct match *m)
{
	for (unsigned int i = 0; i < ROUTE_PARAMS && m->params[i]; i++)
		for (unsigned int k = 0; k < t->num_segments; k++)
			if (t->segments[k] == m->params[i] && t->odd[k])
				CHECK(strstr(m->route->path, "{value}") && i == 1);
}

static void target(struct input in, enum method method)
{
	static struct target t;
	char *raw = text_of(in);
	struct fault f = {0};
	struct match m;

	if (target_parse(&t, raw, &f) != 0) {
		CHECK(f.status == 400 || f.status == 404 || f.status == 414);
		check_fault(&f);
	} else {
		check_parts(&t);
		if (route_find(&t, method, &m, &f) == 0) {
			CHECK(m.route->method == method);
			check_match(&t, &m);
		} else {
			CHECK(f.status == 400 || f.status == 404 || f.status == 405);
			CHECK((f.status == 405) == (*f.allow != '\0'));
			check_fault(&f);
		}
	}
	free(raw);
}

/* ---- bodies ------------------------------------------------------------------------------ */

/* Checks that no string has a control character: strings are written to an INI file. */
static void check_lines(const json_t *value)
{
	const char *name;
	json_t *inner;
	size_t i;

	if (json_is_string(value))
		for (i = 0; i < json_string_length(value); i++)
			CHECK((unsigned char)json_string_value(value)[i] >= ' ');
	json_array_foreach (value, i, inner)
		check_lines(inner);
	json_object_foreach ((json_t *)(uintptr_t)value, name, inner)
		check_lines(inner);
}

static void body(struct input in, const struct route *route)
{
	uint8_t *exact = copy_of(in.p, in.len);
	struct fault f = {0};
	struct field field;
	json_t *o = NULL;

	if (route->body != BODY_JSON) {
		free(exact);
		return;
	}
	if (body_parse(route, (char *)exact, in.len, &o, &f) != 0) {
		CHECK(f.status == 400 && !o);
		check_fault(&f);
	} else {
		CHECK(json_is_object(o));
		for (unsigned int i = 0; route_field(route, i, &field); i++)
			CHECK(!field.required || json_object_get(o, field.name));
		check_lines(o);
	}
	json_decref(o);
	free(exact);
}

/* ---- headers ------------------------------------------------------------------------------ */

/* Checks an admitted request: it has the token and a known Host, and is not from another site's page. */
static void check_admitted(const struct credentials *c, const struct route *route)
{
	char name[256];

	CHECK(host_name(c->host, name, sizeof(name)));
	CHECK(strcmp(name, "localhost") == 0 || strcmp(name, "::1") == 0 ||
	      strcmp(name, "127.0.0.1") == 0);
	if (route->role == ROLE_NONE)
		return;
	CHECK(route->role <= ROLE_OPERATE);
	CHECK(c->authorization && strncasecmp(c->authorization, "Bearer ", 7) == 0 &&
	      strcmp(c->authorization + 7, token) == 0);
	CHECK(!c->site || strcmp(c->site, "same-origin") == 0 || strcmp(c->site, "none") == 0);
	CHECK(!c->origin || strcasecmp(strstr(c->origin, "//") + 2, c->host) == 0);
}

static const char *next_line(char **text)
{
	char *line = *text;

	*text += strcspn(line, "\n");
	if (**text)
		*(*text)++ = '\0';
	return *line ? line : NULL;
}

static void guard(struct input in, const struct route *route)
{
	const struct guard g = {false, " localhost 127.0.0.1 ::1 "};
	struct token one = {.name = "one", .role = ROLE_OPERATE};
	const struct access access = {.refs = 1, .count = 1, .list = &one};
	struct who who;
	char *text = text_of(in), *at = text;
	struct credentials c = {0};
	struct fault f = {0};

	c.host = next_line(&at);
	c.authorization = next_line(&at);
	c.origin = next_line(&at);
	c.site = next_line(&at);
	c.mode = next_line(&at);
	c.type = next_line(&at);
	CHECK(token_hash(token, one.hash));
	if (guard_check(&g, &access, &c, route, &who, &f) == 0)
		check_admitted(&c, route);
	else
		check_fault(&f);
	(void)accepts_gzip(next_line(&at));
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	unsigned int kind = (unsigned int)take(&in, 1) % KINDS, which = (unsigned int)take(&in, 1);

	if (kind == TARGET)
		target(in, which % METHOD_OTHER);
	else if (kind == BODY)
		body(in, &routes[which % num_routes]);
	else
		guard(in, &routes[which % num_routes]);
	return 0;
}
