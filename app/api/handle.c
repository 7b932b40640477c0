// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle.c - the table of handlers, shared answers, and the handlers of the daemon itself.
 */
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "console_files.h"
#include "control.h"
#include "doctor.h"
#include "history.h"
#include "openapi.h"

#define HANDLER_ENTRY(name) [ROUTE_##name] = handle_##name,

const handler handlers[NUM_ROUTES] = {ROUTE_NAMES(HANDLER_ENTRY)};

/* ---- shared answers ----------------------------------------------------------------- */

void answer_none(struct request *r, const char *kind, const char *name)
{
	static const struct {
		const char *kind, *code, *next;
	} kinds[] = {
		{"pool", "no_such_pool", "GET /api/v1/pools lists them"},
		{"store", "no_such_store", "GET /api/v1/stores lists them"},
		{"target", "no_such_target", "GET /api/v1/targets lists them"},
		{"heap", "no_such_heap", "GET /api/v1/heaps lists them"},
		{"process", "no_such_process", "GET /api/v1/processes lists them"},
		{"token", "no_such_token", "GET /api/v1/tokens lists them"},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].kind, kind) == 0) {
			answer_fault(r, 404, kinds[i].code, kinds[i].next, "there is no %s '%s'",
				     kind, name);
			return;
		}
}

void answer_daemon(struct request *r, int rc, const char *why)
{
	if (rc == -EPERM)
		answer_fault(r, 409, "in_main_file", "edit the INI file, then POST /api/v1/reload",
			     "%s", why);
	else
		answer_error(r, rc, NULL, why);
}

void answer_list(struct request *r, const char *name)
{
	json_t *status = daemon_status(r->daemon);
	json_t *list = json_incref(json_object_get(status, name));

	json_decref(status);
	answer_json(r, 200, json_pack("{s:o}", name, list ? list : json_array()));
}

/* ---- services --------------------------------------------------------------------------- */

void answer_service(struct request *r, const char *kind)
{
	json_t *o = daemon_service_status(r->daemon, kind, param(r, 0));

	if (o)
		answer_json(r, 200, o);
	else
		answer_none(r, kind, param(r, 0));
}

bool answer_taken(struct request *r, const char *kind, const char *name)
{
	json_t *there = daemon_service_status(r->daemon, kind, name);

	json_decref(there);
	if (there)
		answer_fault(r, 409, "exists", NULL, "%s '%s' already exists", kind, name);
	return there;
}

void answer_made(struct request *r, const char *kind, const char *name)
{
	answer_json(r, 201, daemon_service_status(r->daemon, kind, name));
	snprintf(r->answer.location, sizeof(r->answer.location), "/api/v1/%ss/%s", kind, name);
}

void withdraw_service(struct request *r, const char *kind)
{
	char why[WHY_MAX] = "";
	int rc = daemon_withdraw(r->daemon, kind, param(r, 0), false, why, sizeof(why));

	if (rc == -ENOENT)
		answer_none(r, kind, param(r, 0));
	else if (rc != 0)
		answer_daemon(r, rc, why);
	else
		answer_nothing(r);
}

/* ---- settings --------------------------------------------------------------------------- */

void settings_open(struct settings *s)
{
	*s = (struct settings){0};
	s->file = open_memstream(&s->text, &s->length);
}

static void put_setting(FILE *file, const struct request *r, const struct conf_setting *s)
{
	uint64_t bytes;

	fprintf(file, "%s = ", s->name);
	if (s->type == CONF_COUNT)
		fprintf(file, "%lld\n", (long long)body_number(r, s->json, 0));
	else if (s->type == CONF_SIZE && body_size(r, s->json, &bytes))
		fprintf(file, "%llu\n", (unsigned long long)bytes);
	else if (s->type == CONF_SWITCH)
		fputs(body_flag(r, s->json) ? "yes\n" : "no\n", file);
	else
		fprintf(file, "%s\n", body_text(r, s->json, ""));
}

void settings_put(struct settings *s, const struct request *r, const struct conf_kind *section)
{
	for (unsigned int i = 0; s->file && i < section->num_settings; i++) {
		const struct conf_setting *setting = &section->settings[i];

		if (setting->json && setting->json_use != CONF_JSON_HANDLED &&
		    json_object_get(r->body, setting->json))
			put_setting(s->file, r, setting);
	}
}

int settings_apply(struct settings *s, struct request *r, const char *kind, const char *name)
{
	char why[WHY_MAX] = "";
	int rc = s->file && fclose(s->file) == 0 ? 0 : -ENOMEM;

	if (rc == 0)
		rc = daemon_apply(r->daemon, kind, name, s->text, why, sizeof(why));
	free(s->text);
	if (rc != 0)
		answer_daemon(r, rc, why);
	return rc;
}

/* ---- the daemon ------------------------------------------------------------------------- */

/* For load balancers, without a token: it says nothing but that the daemon answers. */
void handle_health(struct request *r)
{
	answer_json(r, 200, json_pack("{s:s}", "status", "ok"));
}

void handle_status(struct request *r)
{
	answer_json(r, 200, daemon_status(r->daemon));
}

void handle_reload(struct request *r)
{
	char why[WHY_MAX] = "";
	int rc = daemon_reload(r->daemon, why, sizeof(why));

	if (rc != 0)
		answer_daemon(r, rc, why);
	else
		answer_nothing(r);
}

json_t *daemons_json(struct daemon *d)
{
	json_t *list = control_query_others("stagd", "status");

	json_array_insert_new(list, 0, daemon_status(d));
	return list;
}

void handle_daemons(struct request *r)
{
	answer_json(r, 200, json_pack("{s:o}", "daemons", daemons_json(r->daemon)));
}

void handle_doctor(struct request *r)
{
	answer_json(r, 200, doctor_examine());
}

/* ---- events ------------------------------------------------------------------------------- */

static bool is_refusal(const json_t *event)
{
	return event_is_refusal(json_string_value(json_object_get(event, "text")));
}

/* Returns the newest `limit` events, and releases the array. Of more, refusals are left out first, but for half of the limit. */
static json_t *newest_events(json_t *events, size_t limit)
{
	json_t *list = json_array();
	size_t n = json_array_size(events), left_out = n > limit ? n - limit : 0, refusals = 0;
	json_t *e;
	size_t i;

	json_array_foreach (events, i, e)
		refusals += is_refusal(e);
	refusals = refusals > limit / 2 ? refusals - limit / 2 : 0; /* to be left out first */
	if (refusals > left_out)
		refusals = left_out;
	left_out -= refusals;
	json_array_foreach (events, i, e)
		if (refusals && is_refusal(e))
			refusals--;
		else if (left_out)
			left_out--;
		else
			json_array_append(list, e);
	json_decref(events);
	return list;
}

void handle_events(struct request *r)
{
	uint64_t since = 0, limit = EVENTS_MAX;

	if (query_number(r, "since", INT64_MAX, &since) &&
	    query_number(r, "limit", EVENTS_MAX, &limit))
		answer_json(r, 200,
			    json_pack("{s:o s:I}", "events",
				      newest_events(events_since(since, 0), limit), "last",
				      (json_int_t)events_last()));
}

/* Streams events after the id that a reconnecting browser sends in Last-Event-ID; without one, only new events. */
void handle_event_stream(struct request *r)
{
	uint64_t since = events_last();

	if (r->last_event_id && *r->last_event_id)
		since = strtoull(r->last_event_id, NULL, 10);
	if (!query_number(r, "since", INT64_MAX, &since))
		return;
	r->answer.status = 200;
	r->answer.type = "text/event-stream";
	r->answer.stream = true;
	r->answer.since = since;
}

/* ---- files -------------------------------------------------------------------------------- */

void handle_openapi(struct request *r)
{
	answer_fixed(r, "application/json", openapi_json, openapi_json_length);
}

static const struct console_file *find_file(const char *path)
{
	for (unsigned int i = 0; i < num_console_files; i++)
		if (strcmp(console_files[i].path, path) == 0)
			return &console_files[i];
	return NULL;
}

static void answer_file(struct request *r, const struct console_file *f)
{
	bool gzip = f->packed && accepts_gzip(r->accept_encoding);

	answer_fixed(r, f->type, gzip ? f->packed : f->bytes, gzip ? f->packed_length : f->length);
	r->answer.gzip = gzip;
	r->answer.varies = true;
	snprintf(r->answer.etag, sizeof(r->answer.etag), "\"%s%s\"", f->etag, gzip ? "-gzip" : "");
}

void handle_console(struct request *r)
{
	static const char none[] =
		"<!doctype html><html lang=\"en\"><title>stagd</title><p>This stagd has "
		"no console: it was built without one, or <code>console = no</code> is "
		"set. Its API is described at <a "
		"href=\"/openapi.json\">/openapi.json</a>.</p></html>\n";
	const struct console_file *f = r->api->console ? find_file("/index.html") : NULL;

	if (f)
		answer_file(r, f);
	else
		answer_fixed(r, "text/html; charset=utf-8", none, sizeof(none) - 1);
}

void handle_asset(struct request *r)
{
	const struct console_file *f = NULL;
	char path[256];

	if (r->api->console &&
	    snprintf(path, sizeof(path), "/assets/%s", param(r, 0)) < (int)sizeof(path))
		f = find_file(path);
	if (f)
		answer_file(r, f);
	else
		answer_fault(r, 404, "no_such_file", NULL, "the console has no file '%s'",
			     param(r, 0));
}

/* ---- the last ten minutes --------------------------------------------------------------------- */

void handle_history(struct request *r)
{
	const char *text = target_query(&r->target, "since");
	char *end = NULL;
	double since = text ? strtod(text, &end) : 0;

	if (text && (end == text || *end || !(since >= 0 && since < 1e15)))
		answer_fault(r, 400, "bad_query", NULL,
			     "'since' must be a time in seconds since 1970");
	else
		answer_json(r, 200, history_json(r->api->history, since));
}
