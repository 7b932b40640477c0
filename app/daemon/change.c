// SPDX-License-Identifier: BSD-2-Clause
/*
 * change.c - changes the running services to match the files: at the start, at SIGHUP, and at requests of the management API.
 *
 * A change is all or nothing. New services are started and existing ones changed, kind by kind, dependencies first; if one step
 * fails, all steps before it are undone. Then the drop-in is written, and last the services without a section are stopped; the
 * other services are not interrupted. Only a service that is to go and holds the port of a new one is stopped first, and
 * started again if the change is undone.
 */
#include "daemon_own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit_log.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/name.h"
#include "live.h"

/* ---- a change and its steps ------------------------------------------------------- */

struct step {
	struct service *service;     /* NULL: a service was stopped to free its port */
	struct conf_section *before; /* its section before the change; NULL: it was started */
	struct {
		const struct service_kind *kind;
		struct conf_section *conf, *now;
	} stopped;
};

struct change {
	struct daemon *d;
	struct conf conf;
	struct step *steps;
	unsigned int num_steps;
	bool force; /* even if data is lost */
	char *why;
	size_t size;
};

static void set_now(struct service *s, struct conf_section *now)
{
	struct conf_section *before;

	lock_acquire(&s->daemon->lock);
	before = s->now;
	s->now = conf_get(now);
	lock_release(&s->daemon->lock);
	conf_put(before);
}

static void append_pending(struct daemon *d, struct service *s)
{
	struct service **end = &d->pending;

	while (*end)
		end = &(*end)->next;
	*end = s;
}

static void drop_pending(struct daemon *d, struct service *s)
{
	struct service **at = &d->pending;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	s->next = NULL;
}

static int start_one(struct change *c, const struct service_kind *kind, struct conf_section *conf)
{
	struct service *s = service_new(c->d, kind, conf);
	int rc;

	if (!s)
		return service_fail(c->why, c->size, ENOMEM, "out of memory");
	rc = kind->start(s, c->why, c->size);
	if (rc != 0) {
		service_free(s);
		return rc;
	}
	append_pending(c->d, s);
	c->steps[c->num_steps++] = (struct step){.service = s};
	return 0;
}

static int change_one(struct change *c, struct service *s, struct conf_section *to)
{
	struct conf_section *before = conf_get(s->now);
	int rc = s->kind->change(s, to, c->why, c->size);

	if (rc != 0) {
		conf_put(before);
		return rc;
	}
	set_now(s, to);
	c->steps[c->num_steps++] = (struct step){.service = s, .before = before};
	return 0;
}

static void undo_change(struct change *c, struct step *step)
{
	struct service *s = step->service;

	if (s->kind->undo)
		s->kind->undo(s, step->before);
	else
		s->kind->change(s, step->before, NULL, 0);
	set_now(s, step->before);
	conf_put(step->before);
}

static void put_stopped(struct step *step)
{
	conf_put(step->stopped.conf);
	conf_put(step->stopped.now);
}

/* Starts the service with its first section again, then changes it to its last one. */
static void undo_stop(struct change *c, struct step *step)
{
	struct service *s = service_new(c->d, step->stopped.kind, step->stopped.conf);
	char why[512] = "out of memory";

	if (s && s->kind->start(s, why, sizeof(why)) == 0) {
		if (s->kind->change(s, step->stopped.now, why, sizeof(why)) == 0)
			set_now(s, step->stopped.now);
		else
			event_add(EVENT_ERR, s->object,
				  "restarted, but its changes since then are lost: %s", why);
		daemon_list(c->d, s);
	} else {
		event_add(EVENT_ERR, "daemon",
			  "a service that was stopped to free its port could not be restarted: %s",
			  why);
		if (s)
			service_free(s);
	}
	put_stopped(step);
}

static void undo_steps(struct change *c)
{
	while (c->num_steps > 0) {
		struct step *step = &c->steps[--c->num_steps];

		if (!step->service) {
			undo_stop(c, step);
			continue;
		}
		if (step->before) {
			undo_change(c, step);
			continue;
		}
		drop_pending(c->d, step->service);
		step->service->kind->stop(step->service);
		service_free(step->service);
	}
}

static void stop_one(struct daemon *d, struct service *s)
{
	daemon_unlist(d, s);
	s->kind->stop(s);
	service_free(s);
}

static bool is_served(struct daemon *d, const struct conf_section *s)
{
	for (unsigned int k = 0; k < num_service_kinds; k++)
		if (service_kinds[k]->conf == s->kind)
			return daemon_find(d, service_kinds[k], s->name);
	return false;
}

/* Returns whether the service has no section any more, and a new one needs its port. */
static bool blocks_a_new_port(struct change *c, const struct service *s)
{
	if (!s->kind->frees_port || conf_find(&c->conf, s->kind->conf, s->conf->name))
		return false;
	for (struct conf_section *at = c->conf.sections; at; at = at->next)
		if (conf_is_same_port(at, s->conf) && !is_served(c->d, at))
			return true;
	return false;
}

static void free_ports(struct change *c)
{
	struct service *s, *next;

	for (unsigned int k = num_service_kinds; k-- > 0;)
		for (s = c->d->services; s; s = next) {
			next = s->next;
			if (s->kind != service_kinds[k] || !blocks_a_new_port(c, s))
				continue;
			c->steps[c->num_steps++] =
				(struct step){.stopped = {.kind = s->kind,
							  .conf = conf_get(s->conf),
							  .now = conf_get(s->now)}};
			stop_one(c->d, s);
		}
}

/* Checks that new services and the API can listen, before any of them formats a store or creates a pool. */
static int check_ports(struct change *c)
{
	struct conf_section *api = conf_find(&c->conf, &conf_api_kind, "");
	char text[512];
	int rc = 0;

	for (struct conf_section *s = c->conf.sections; s && rc == 0; s = s->next)
		if (!is_served(c->d, s))
			rc = port_check(s, c->why, c->size);
	if (rc != 0 || !api || c->d->api || !c->d->api_calls)
		return rc;
	rc = c->d->api_calls->check((struct conf_api *)api, text, sizeof(text));
	return rc == 0 ? 0
		       : service_fail(c->why, c->size, -rc, "%s:%u: [api]: %s", api->path,
				      api->line, text);
}

static int apply_sections(struct change *c)
{
	unsigned int n = 1;
	int rc;

	for (struct conf_section *s = c->conf.sections; s; s = s->next)
		n++;
	for (struct service *s = c->d->services; s; s = s->next)
		n++;
	c->steps = calloc(n, sizeof(*c->steps));
	if (!c->steps)
		return service_fail(c->why, c->size, ENOMEM, "out of memory");
	free_ports(c);
	rc = check_ports(c);
	for (unsigned int k = 0; k < num_service_kinds; k++)
		for (struct conf_section *s = NULL;
		     rc == 0 && (s = conf_next(&c->conf, service_kinds[k]->conf, s));) {
			struct service *there = daemon_find(c->d, service_kinds[k], s->name);

			rc = there ? change_one(c, there, s) : start_one(c, service_kinds[k], s);
		}
	return rc;
}

/* Makes the steps final: new services become visible to other threads. */
static void keep_steps(struct change *c)
{
	for (unsigned int i = 0; i < c->num_steps; i++) {
		struct step *step = &c->steps[i];

		if (!step->service) {
			put_stopped(step);
		} else if (step->before) {
			service_tell_rest(step->service, step->service->now);
			conf_put(step->before);
		} else {
			drop_pending(c->d, step->service);
			daemon_list(c->d, step->service);
		}
	}
	c->num_steps = 0;
}

static struct service *last_service_of(struct daemon *d, const struct service_kind *kind,
				       const struct conf *but)
{
	struct service *found = NULL;

	for (struct service *s = d->services; s; s = s->next)
		if (s->kind == kind && !(but && conf_find(but, kind->conf, s->conf->name)))
			found = s;
	return found;
}

/* Stops services that have no section in `but` (NULL: all) in reverse order of their start, dependents first. */
static void stop_all_but(struct daemon *d, const struct conf *but)
{
	struct service *s;

	for (unsigned int k = num_service_kinds; k-- > 0;)
		while ((s = last_service_of(d, service_kinds[k], but)))
			stop_one(d, s);
}

/* Refuses to stop services whose data would be lost for ever. */
static int check_losses(struct change *c)
{
	char what[256];

	for (struct service *s = c->d->services; s && !c->force; s = s->next)
		if (s->kind->loses && !conf_find(&c->conf, s->kind->conf, s->conf->name) &&
		    s->kind->loses(s, what, sizeof(what)))
			return service_fail(
				c->why, c->size, EBUSY,
				"%s %s is not removed: %s, which would be lost. Bring another node "
				"in sync first, or, to lose them, stop stagd before the section is "
				"removed",
				conf_kind_word(s->kind->conf), s->conf->name, what);
	return 0;
}

/* ---- a change as a whole -------------------------------------------------------------------------- */

/* Reads the main file and the drop-ins; all faults go to c->why, a line each. */
static int read_files(struct change *c, const char *path, const struct conf_instead *instead)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	int rc = f ? conf_read_as(&c->conf, path, f, 0, instead) : -ENOMEM;

	if (f)
		fclose(f);
	if (text && len && text[len - 1] == '\n')
		text[len - 1] = '\0';
	if (rc != 0 && c->why && c->size)
		snprintf(c->why, c->size, "%s", text ? text : "out of memory");
	free(text);
	return rc;
}

/* Applies the log settings, and warns about settings that need a restart. */
static void apply_daemon_settings(struct change *c)
{
	struct daemon *d = c->d;
	struct conf_section *now = &c->conf.daemon->at;
	const char *differs = conf_needs_restart(d->conf, now);
	struct conf_section *api = conf_find(&c->conf, &conf_api_kind, "");

	event_log_to((enum event_log)c->conf.daemon->log,
		     (enum event_level)c->conf.daemon->log_level);
	audit_log_to(c->conf.daemon->audit_file);
	if (differs)
		event_add(EVENT_WARN, "daemon", "%s:%u: %s takes effect when stagd is restarted",
			  now->path, conf_line_of(now, differs), differs);
	if (d->api_conf && (!api || conf_needs_restart(d->api_conf, api)))
		event_add(EVENT_WARN, "api", "%s: %s takes effect when stagd is restarted",
			  d->api_conf->path,
			  api ? conf_needs_restart(d->api_conf, api) : "the removal of [api]");
}

static void stop_api(struct daemon *d)
{
	struct api *api;

	lock_acquire(&d->lock);
	api = d->api;
	d->api = NULL;
	lock_release(&d->lock);
	if (api)
		d->api_calls->stop(api);
	conf_put(d->api_conf);
	d->api_conf = NULL;
}

static int start_api(struct daemon *d, const struct conf *conf, char *why, size_t size)
{
	struct conf_section *api = conf_find(conf, &conf_api_kind, "");
	struct access *access;
	char text[512] = "out of memory";
	struct api *started = NULL;

	if (!api || d->api || !d->api_calls)
		return 0;
	access = token_make_own(d, (struct conf_api *)api, text, sizeof(text)) == 0
			 ? access_of(conf)
			 : NULL;
	if (access)
		started = d->api_calls->start(d, (const struct conf_api *)api, access, text,
					      sizeof(text));
	if (!started) {
		access_put(access);
		return service_fail(why, size, EIO, "%s:%u: [api]: %s", api->path, api->line, text);
	}
	lock_acquire(&d->lock);
	d->api = started;
	lock_release(&d->lock);
	daemon_set_access(d, access);
	d->api_conf = conf_get(api);
	if (d->api_calls->open(started, text, sizeof(text)) == 0)
		return 0;
	stop_api(d);
	return service_fail(why, size, EIO, "%s:%u: [api]: %s", api->path, api->line, text);
}

/* Applies tokens and roots. If memory runs out, the API keeps those that it has, and says so. */
static void change_access(struct change *c)
{
	struct conf_section *api = conf_find(&c->conf, &conf_api_kind, "");
	struct daemon *d = c->d;
	struct access *access;
	char why[512] = "out of memory";

	if (!d->api || !api)
		return;
	access = token_make_own(d, (struct conf_api *)api, why, sizeof(why)) == 0
			 ? access_of(&c->conf)
			 : NULL;
	if (!access) {
		event_add(EVENT_ERR, "api", "its tokens are as before: %s", why);
		return;
	}
	d->api_calls->change(d->api, (const struct conf_api *)api, access);
	daemon_set_access(d, access);
}

static int remove_file(int dir, const char *name)
{
	return unlinkat(dir, name, 0) == 0 && fsync(dir) == 0 ? 0 : -errno;
}

static int write_dropin(const struct daemon *d, const struct conf_instead *file, char *why,
			size_t size)
{
	const char *state = ((const struct conf_daemon *)d->conf)->state;
	CLEANUP_FREE char *path = NULL;
	CLEANUP_CLOSE int dir = -1;
	int rc;

	if (asprintf(&path, "%s/" CONF_DROPINS, state) < 0)
		return service_fail(why, size, ENOMEM, "out of memory");
	if (file->text) {
		mkdir(state, 0700);
		mkdir(path, 0700);
	}
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return service_fail(why, size, errno,
				    "%s: %s; set state = DIRECTORY in [daemon] to use another one",
				    path, strerror(errno));
	rc = file->text ? file_replace(dir, file->file, file->text, strlen(file->text), 0600)
			: remove_file(dir, file->file);
	return rc == 0 ? 0
		       : service_fail(why, size, -rc, "%s/%s: %s", path, file->file, strerror(-rc));
}

static int apply_all(struct change *c, const struct conf_instead *instead)
{
	struct daemon *d = c->d;
	bool had_api = d->api;
	int rc;

	if (!d->conf) {
		d->conf = conf_get(&c->conf.daemon->at);
		live_query_all_users(c->conf.daemon->live == 1);
	}
	rc = apply_sections(c);
	if (rc == 0)
		rc = start_api(d, &c->conf, c->why, c->size);
	if (rc == 0 && instead)
		rc = write_dropin(d, instead, c->why, c->size);
	if (rc != 0 && !had_api)
		stop_api(d);
	return rc;
}

/* instead: the drop-in to write; NULL: none. */
static int reload_with(struct daemon *d, const char *path, const struct conf_instead *instead,
		       bool force, char *why, size_t size)
{
	struct change c = {.d = d, .force = force, .why = why, .size = size};
	int rc;

	assert(lock_held(&d->changing));
	rc = read_files(&c, path, instead);
	if (rc == 0)
		rc = check_losses(&c);
	if (rc == 0)
		rc = apply_all(&c, instead);
	if (rc != 0) {
		undo_steps(&c);
	} else {
		keep_steps(&c);
		stop_all_but(d, &c.conf);
		change_access(&c);
		apply_daemon_settings(&c);
	}
	free(c.steps);
	conf_free(&c.conf);
	return rc;
}

/* ---- calls of daemon.h --------------------------------------------------------------------------- */

static void log_lines(char *text)
{
	char *save, *line;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		event_add(EVENT_ERR, "daemon", "%s", line);
}

static void free_daemon(struct daemon *d)
{
	lock_destroy(&d->changing);
	lock_destroy(&d->lock);
	pthread_cond_destroy(&d->put);
	conf_put(d->conf);
	conf_put(d->api_conf);
	access_put(d->access);
	free(d->path);
	free(d);
}

static struct daemon *new_daemon(const char *config, const struct daemon_api *api)
{
	struct daemon *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	lock_init(&d->changing);
	lock_init(&d->lock);
	pthread_cond_init(&d->put, NULL);
	d->path = realpath(config, NULL);
	if (!d->path)
		d->path = strdup(config);
	d->api_calls = api;
	d->started_ns = clock_ns();
	clock_gettime(CLOCK_REALTIME, &d->started);
	return d;
}

struct daemon *daemon_start(const char *config, const struct daemon_api *api)
{
	struct daemon *d = new_daemon(config, api);
	char why[4096] = "";
	int rc;

	if (!d || !d->path) {
		event_add(EVENT_ERR, "daemon", "out of memory");
		return NULL;
	}
	lock_acquire(&d->changing);
	rc = reload_with(d, d->path, NULL, false, why, sizeof(why));
	lock_release(&d->changing);
	if (rc == 0) {
		controls_open(d);
		return d;
	}
	log_lines(why);
	event_add(EVENT_WARN, "daemon", "start failed; nothing is served");
	stop_all_but(d, NULL);
	free_daemon(d);
	return NULL;
}

void daemon_stop(struct daemon *d)
{
	events_end();
	stop_api(d);
	controls_close(d);
	lock_acquire(&d->changing);
	stop_all_but(d, NULL);
	lock_release(&d->changing);
	free_daemon(d);
}

int daemon_reload(struct daemon *d, char *why, size_t size)
{
	char own[4096] = "", *text = why && size ? why : own;
	int rc;

	HOLD_FOR_SCOPE(&d->changing);
	event_add(EVENT_INFO, "daemon", "reading %s again", d->path);
	rc = reload_with(d, d->path, NULL, false, text, text == why ? size : sizeof(own));
	if (rc != 0) {
		CLEANUP_FREE char *lines = strdup(text);

		if (lines)
			log_lines(lines);
		event_add(EVENT_ERR, "daemon", "%s was rejected; nothing has changed", d->path);
	}
	return rc;
}

int daemon_replace_dropin(struct daemon *d, const char *file, const char *text, char *why,
			  size_t size)
{
	const struct conf_instead instead = {.file = file, .text = text};

	return reload_with(d, d->path, &instead, false, why, size);
}

int daemon_remove_dropin(struct daemon *d, const char *file, char *why, size_t size)
{
	const struct conf_instead none = {.file = file};

	assert(lock_held(&d->changing));
	return write_dropin(d, &none, why, size);
}

static const struct service_kind *service_kind_of(const char *word)
{
	for (unsigned int i = 0; i < num_service_kinds; i++)
		if (strcmp(conf_kind_word(service_kinds[i]->conf), word) == 0)
			return service_kinds[i];
	return NULL;
}

static int check_name(const char *kind, const char *name, char *why, size_t size)
{
	if (!service_kind_of(kind))
		return service_fail(
			why, size, EINVAL,
			"unknown kind of service '%s'; expected pool, watch, store or target",
			kind);
	if (!name_is_valid(name))
		return service_fail(why, size, EINVAL,
				    "invalid name '%s': use letters, digits and . - _, 63 at most",
				    name);
	return 0;
}

/* Detects a section head among settings, which would begin another section. */
static bool has_section_head(const char *ini)
{
	while (ini && *ini) {
		ini += strspn(ini, " \t\r\n");
		if (*ini == '[')
			return true;
		ini += strcspn(ini, "\n");
	}
	return false;
}

static int apply_settings(struct daemon *d, const char *kind, const char *name, const char *ini,
			  char *why, size_t size)
{
	CLEANUP_FREE char *file = NULL, *text = NULL;
	struct conf_instead instead;
	int rc = check_name(kind, name, why, size);

	if (rc != 0)
		return rc;
	if (has_section_head(ini))
		return service_fail(why, size, EINVAL,
				    "settings must be lines NAME = VALUE without a section head");
	if (asprintf(&file, "%s-%s.ini", kind, name) < 0 ||
	    asprintf(&text, "[%s %s]\n%s%s", kind, name, ini,
		     *ini && ini[strlen(ini) - 1] != '\n' ? "\n" : "") < 0)
		return service_fail(why, size, ENOMEM, "out of memory");
	instead = (struct conf_instead){.file = file, .text = text};
	rc = reload_with(d, d->path, &instead, false, why, size);
	if (rc == 0)
		event_add(EVENT_INFO, "daemon", "%s %s was configured by %s", kind, name, file);
	return rc;
}

int daemon_apply(struct daemon *d, const char *kind, const char *name, const char *ini, char *why,
		 size_t size)
{
	HOLD_FOR_SCOPE(&d->changing);

	return apply_settings(d, kind, name, ini, why, size);
}

/* Returns whether this line sets the setting. */
static bool is_line_of(const char *line, const char *setting)
{
	size_t len = strlen(setting);

	return strncmp(line, setting, len) == 0 && strncmp(line + len, " = ", 3) == 0;
}

int daemon_set(struct daemon *d, const char *kind, const char *name, const char *setting,
	       const char *value, char *why, size_t size)
{
	CLEANUP_FREE char *settings = NULL, *text = NULL;
	char *save, *line;
	bool found = false;
	size_t len;
	FILE *f;

	HOLD_FOR_SCOPE(&d->changing);
	settings = daemon_settings(d, kind, name);
	if (!settings)
		return service_fail(why, size, ENOENT, "there is no %s '%s'", kind, name);
	if (strpbrk(setting, "=:\r\n\t [;#") || (value && strpbrk(value, "\r\n")))
		return service_fail(why, size, EINVAL,
				    "invalid setting: expected one name and one value");
	f = open_memstream(&text, &len);
	if (!f)
		return service_fail(why, size, ENOMEM, "out of memory");
	for (line = strtok_r(settings, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (is_line_of(line, setting))
			found = true;
		else
			fprintf(f, "%s\n", line);
	}
	if (value)
		fprintf(f, "%s = %s\n", setting, value);
	if (fclose(f) != 0)
		return service_fail(why, size, ENOMEM, "out of memory");
	if (!value && !found)
		return service_fail(why, size, ENOENT, "%s %s has no %s", kind, name, setting);
	return apply_settings(d, kind, name, text, why, size);
}

int daemon_withdraw(struct daemon *d, const char *kind, const char *name, bool force, char *why,
		    size_t size)
{
	CLEANUP_FREE char *file = NULL;
	struct conf_instead instead;
	struct service *s;
	int rc = check_name(kind, name, why, size);

	if (rc != 0)
		return rc;
	HOLD_FOR_SCOPE(&d->changing);
	s = daemon_find(d, service_kind_of(kind), name);
	if (!s)
		return service_fail(why, size, ENOENT, "there is no %s '%s'", kind, name);
	if (asprintf(&file, "%s-%s.ini", kind, name) < 0)
		return service_fail(why, size, ENOMEM, "out of memory");
	if (!s->now->dropin || strcmp(file, basename(s->now->path)) != 0)
		return service_fail(why, size, EPERM,
				    "%s %s is in %s, line %u: remove it there, then reload", kind,
				    name, s->now->path, s->now->line);
	instead = (struct conf_instead){.file = file};
	rc = reload_with(d, d->path, &instead, force, why, size);
	if (rc == 0)
		event_add(EVENT_INFO, "daemon", "%s %s was removed", kind, name);
	return rc;
}
