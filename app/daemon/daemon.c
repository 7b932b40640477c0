// SPDX-License-Identifier: BSD-2-Clause
/*
 * daemon.c - the list of services: lookup, references, status (daemon.h).
 */
#include "daemon_own.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "start.h"

/* The order of start: targets use stores, so stores come first. */
const struct service_kind *const service_kinds[] = {&store_service, &target_service, &pool_service,
						    &watch_service};
const unsigned int num_service_kinds = sizeof(service_kinds) / sizeof(service_kinds[0]);

/* ---- error messages --------------------------------------------------------------------------- */

int service_fail(char *why, size_t size, int error, const char *fmt, ...)
{
	va_list ap;

	if (why && size) {
		va_start(ap, fmt);
		vsnprintf(why, size, fmt, ap);
		va_end(ap);
	}
	return -error;
}

/* Adds "KIND NAME: " unless the library's message already begins with it. */
int service_fails(const struct conf_section *at, unsigned int line, char *why, size_t size,
		  int error, const char *fmt, ...)
{
	char text[512], head[128];
	size_t len =
		(size_t)snprintf(head, sizeof(head), "%s %s", conf_kind_word(at->kind), at->name);
	bool is_there;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	is_there = strncmp(text, head, len) == 0 && strchr(",: ", text[len]);
	return service_fail(why, size, error, "%s:%u: %s%s%s", at->path, line, is_there ? "" : head,
			    is_there ? "" : ": ", text);
}

void service_tell_rest(const struct service *s, const struct conf_section *to)
{
	const char *differs = conf_needs_restart(s->conf, to);

	if (differs && s->kind == &pool_service && conf_pool_counts_once(differs))
		event_add(
			EVENT_WARN, s->object,
			"%s:%u: %s counts only when a pool is created: this one keeps what it has",
			to->path, to->line, differs);
	else if (differs)
		event_add(EVENT_WARN, s->object, "%s:%u: %s takes effect when stagd is restarted%s",
			  to->path, to->line, differs,
			  s->kind == &pool_service ? "; restart one node after the other, each "
						     "when the others are in sync"
						   : "");
}

/* ---- the list ------------------------------------------------------------------------------ */

struct service *service_new(struct daemon *d, const struct service_kind *kind,
			    struct conf_section *conf)
{
	struct service *s = calloc(1, kind->size);

	if (!s)
		return NULL;
	s->kind = kind;
	s->daemon = d;
	s->conf = conf_get(conf);
	s->now = conf_get(conf);
	return s;
}

void service_free(struct service *s)
{
	conf_put(s->conf);
	conf_put(s->now);
	free(s);
}

static struct service *find_in_list(struct service *list, const struct service_kind *kind,
				    const char *name)
{
	while (list && (list->kind != kind || strcmp(list->conf->name, name) != 0))
		list = list->next;
	return list;
}

struct service *daemon_find(struct daemon *d, const struct service_kind *kind, const char *name)
{
	struct service *s;

	assert(lock_held(&d->changing));
	s = find_in_list(d->services, kind, name);
	return s ? s : find_in_list(d->pending, kind, name);
}

void daemon_list(struct daemon *d, struct service *s)
{
	struct service **end = &d->services;

	HOLD_FOR_SCOPE(&d->lock);
	while (*end)
		end = &(*end)->next;
	*end = s;
	s->next = NULL;
}

void daemon_unlist(struct daemon *d, struct service *s)
{
	struct service **at = &d->services;

	HOLD_FOR_SCOPE(&d->lock);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	while (s->refs > 0)
		lock_wait(&d->lock, &d->put);
}

struct service *daemon_get(struct daemon *d, const struct service_kind *kind, const char *name)
{
	struct service *s;

	HOLD_FOR_SCOPE(&d->lock);
	s = find_in_list(d->services, kind, name);
	if (s)
		s->refs++;
	return s;
}

void daemon_put(struct service *s)
{
	struct daemon *d = s->daemon;

	HOLD_FOR_SCOPE(&d->lock);
	if (--s->refs == 0)
		pthread_cond_broadcast(&d->put);
}

bool daemon_serves_node(struct daemon *d, const char *pool, const char *node)
{
	struct service *s = daemon_get(d, &pool_service, pool);
	bool found = s && strcmp(((const struct conf_pool *)s->conf)->node, node) == 0;

	if (s)
		daemon_put(s);
	return found;
}

struct service **daemon_get_all(struct daemon *d, unsigned int *n)
{
	struct service **all;

	HOLD_FOR_SCOPE(&d->lock);
	*n = 0;
	for (struct service *s = d->services; s; s = s->next)
		(*n)++;
	all = calloc(*n + 1, sizeof(struct service *));
	if (!all) {
		*n = 0;
		return NULL;
	}
	*n = 0;
	for (struct service *s = d->services; s; s = s->next) {
		s->refs++;
		all[(*n)++] = s;
	}
	return all;
}

const char *daemon_path(const struct daemon *d)
{
	return d->path;
}

/* ---- services in use ------------------------------------------------------------------------- */

struct daemon_store *daemon_store_get(struct daemon *d, const char *name)
{
	struct service *s = daemon_get(d, &store_service, name);

	return s ? store_service_get(s) : NULL;
}

struct daemon_target *daemon_target_get(struct daemon *d, const char *name)
{
	struct service *s = daemon_get(d, &target_service, name);

	return s ? target_service_get(s) : NULL;
}

struct daemon_pool *daemon_pool_get(struct daemon *d, const char *name)
{
	struct service *s = daemon_get(d, &pool_service, name);
	struct client *c = s ? pool_client(s) : NULL;

	if (!s)
		s = daemon_get(d, &watch_service, name);
	if (!s)
		return NULL;
	if (!c)
		c = watch_client(s);
	client_lock(c);
	return &c->use;
}

void daemon_pool_put(struct daemon_pool *p)
{
	struct client *c = (struct client *)((char *)p - offsetof(struct client, use));

	client_unlock(c);
	daemon_put(c->service);
}

/* ---- status --------------------------------------------------------------------------- */

static json_t *service_status(struct service *s)
{
	struct conf_section *now;
	json_t *o;

	lock_acquire(&s->daemon->lock);
	now = conf_get(s->now);
	lock_release(&s->daemon->lock);
	o = s->kind->status(s, now);
	if (!json_object_get(o,
			     "now_ns")) /* else the counters are older, and have their own time */
		json_object_set_new(o, "now_ns", json_integer((json_int_t)clock_ns()));
	json_object_set_new(o, "origin",
			    json_pack("{s:s, s:i, s:b}", "file", now->path, "line", (int)now->line,
				      "dropin", now->dropin));
	conf_put(now);
	return o;
}

json_t *daemon_service_status(struct daemon *d, const char *kind, const char *name)
{
	for (unsigned int i = 0; i < num_service_kinds; i++) {
		struct service *s;
		json_t *o;

		if (strcmp(conf_kind_word(service_kinds[i]->conf), kind) != 0)
			continue;
		s = daemon_get(d, service_kinds[i], name);
		o = s ? service_status(s) : NULL;
		if (s)
			daemon_put(s);
		return o;
	}
	return NULL;
}

static json_t *list_of(struct service **all, unsigned int n, const struct service_kind *kind)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < n; i++)
		if (all[i]->kind == kind)
			json_array_append_new(list, service_status(all[i]));
	return list;
}

/* The API's own threads call this, too, even while the API starts or stops: hence the lock. */
json_t *daemon_api_status(struct daemon *d)
{
	HOLD_FOR_SCOPE(&d->lock);
	json_t *o = d->api && d->api_calls->status ? d->api_calls->status(d->api) : NULL;

	return o ? o : json_null();
}

json_t *daemon_status(struct daemon *d)
{
	const struct conf_daemon *c = (const struct conf_daemon *)d->conf;
	unsigned int n;
	struct service **all = daemon_get_all(d, &n);
	CLEANUP_FREE char *start = start_command(d->path);
	char started[48];
	json_t *o;

	log_format_time(&d->started, started, sizeof(started));
	o = json_pack("{s:s, s:i, s:s, s:s, s:I, s:s, s:s?, s:s, s:s?}", "version", STAG_VERSION,
		      "pid", (int)getpid(), "name", c->name, "started", started, "uptime_s",
		      (json_int_t)((clock_ns() - d->started_ns) / NS_PER_S), "config", d->path,
		      "start", start, "state", c->state, "user", c->user);
	for (unsigned int i = 0; i < num_service_kinds; i++)
		json_object_set_new(o, service_kinds[i]->list, list_of(all, n, service_kinds[i]));
	json_object_set_new(o, "api", daemon_api_status(d));
	for (unsigned int i = 0; i < n; i++)
		daemon_put(all[i]);
	free(all);
	return o;
}

char *daemon_settings(struct daemon *d, const char *kind, const char *name)
{
	struct service *s = NULL;
	char *text;

	for (unsigned int i = 0; i < num_service_kinds && !s; i++)
		if (strcmp(conf_kind_word(service_kinds[i]->conf), kind) == 0)
			s = daemon_get(d, service_kinds[i], name);
	if (!s)
		return NULL;
	lock_acquire(&d->lock);
	text = strdup(s->now->text);
	lock_release(&d->lock);
	daemon_put(s);
	return text;
}
