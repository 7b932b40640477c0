// SPDX-License-Identifier: BSD-2-Clause
/*
 * change.c - from what is served to what the files say: at the start, at SIGHUP, and when the management API wants something else.
 *
 * All of it, or nothing. What is new is started and what is there is changed, kind by kind, those first that others use; if one
 * fails, all that was done is undone. Then the drop-in is written, and at last what is gone is stopped: nobody else notices.
 * Only what is gone and has the port of something new is stopped before, and started again where all is undone.
 */
#include "daemon_own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/name.h"

/* ---- a change, and what was done of it ------------------------------------------------------- */

struct step {
	struct service *service;     /* NULL: it was stopped, to make way */
	struct conf_section *before; /* it was changed from this; NULL: it was started */
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
		return service_fail(c->why, c->size, ENOMEM, "no memory");
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

/* As it was started, and then what it was changed to. */
static void undo_stop(struct change *c, struct step *step)
{
	struct service *s = service_new(c->d, step->stopped.kind, step->stopped.conf);
	char why[512] = "no memory";

	if (s && s->kind->start(s, why, sizeof(why)) == 0) {
		if (s->kind->change(s, step->stopped.now, why, sizeof(why)) == 0)
			set_now(s, step->stopped.now);
		else
			event_add(EVENT_ERR, s->object, "it is as it was started: %s", why);
		daemon_list(c->d, s);
	} else {
		event_add(EVENT_ERR, "daemon", "what made way could not be started again: %s", why);
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

/* It is gone, and something new wants its port. */
static bool is_in_the_way(struct change *c, const struct service *s)
{
	if (!s->kind->makes_way || conf_find(&c->conf, s->kind->conf, s->conf->name))
		return false;
	for (struct conf_section *at = c->conf.sections; at; at = at->next)
		if (conf_is_same_port(at, s->conf) && !is_served(c->d, at))
			return true;
	return false;
}

static void make_way(struct change *c)
{
	struct service *s, *next;

	for (unsigned int k = num_service_kinds; k-- > 0;)
		for (s = c->d->services; s; s = next) {
			next = s->next;
			if (s->kind != service_kinds[k] || !is_in_the_way(c, s))
				continue;
			c->steps[c->num_steps++] =
				(struct step){.stopped = {.kind = s->kind,
							  .conf = conf_get(s->conf),
							  .now = conf_get(s->now)}};
			stop_one(c->d, s);
		}
}

static int apply_sections(struct change *c)
{
	unsigned int n = 1;
	int rc = 0;

	for (struct conf_section *s = c->conf.sections; s; s = s->next)
		n++;
	for (struct service *s = c->d->services; s; s = s->next)
		n++;
	c->steps = calloc(n, sizeof(*c->steps));
	if (!c->steps)
		return service_fail(c->why, c->size, ENOMEM, "no memory");
	make_way(c);
	for (unsigned int k = 0; k < num_service_kinds; k++)
		for (struct conf_section *s = NULL;
		     rc == 0 && (s = conf_next(&c->conf, service_kinds[k]->conf, s));) {
			struct service *there = daemon_find(c->d, service_kinds[k], s->name);

			rc = there ? change_one(c, there, s) : start_one(c, service_kinds[k], s);
		}
	return rc;
}

/* From now on they are everybody's. */
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

static struct service *last_of(struct daemon *d, const struct service_kind *kind,
			       const struct conf *but)
{
	struct service *found = NULL;

	for (struct service *s = d->services; s; s = s->next)
		if (s->kind == kind && !(but && conf_find(but, kind->conf, s->conf->name)))
			found = s;
	return found;
}

/* Who uses others goes before them, and who came last first. but: what stays; NULL: nothing. */
static void stop_all_but(struct daemon *d, const struct conf *but)
{
	struct service *s;

	for (unsigned int k = num_service_kinds; k-- > 0;)
		while ((s = last_of(d, service_kinds[k], but)))
			stop_one(d, s);
}

/* ---- the whole of it -------------------------------------------------------------------------- */

/* What is told: the first fault is enough of an event, and all of them are `why`. */
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
		snprintf(c->why, c->size, "%s", text ? text : "no memory");
	free(text);
	return rc;
}

/* Its log changes at once. */
static void apply_daemon_settings(struct change *c)
{
	struct daemon *d = c->d;
	struct conf_section *now = &c->conf.daemon->at;
	const char *differs = conf_needs_restart(d->conf, now);
	struct conf_section *api = conf_find(&c->conf, &conf_api_kind, "");

	event_log_to((enum event_log)c->conf.daemon->log,
		     (enum event_level)c->conf.daemon->log_level);
	if (differs)
		event_add(EVENT_WARN, "daemon", "%s:%u: %s counts when stagd is restarted",
			  now->path, conf_line_of(now, differs), differs);
	if (d->api_conf && (!api || conf_needs_restart(d->api_conf, api)))
		event_add(EVENT_WARN, "api", "%s: %s counts when stagd is restarted",
			  d->api_conf->path,
			  api ? conf_needs_restart(d->api_conf, api) : "that it goes");
}

static int start_api(struct daemon *d, struct conf_section *api, char *why, size_t size)
{
	char text[512] = "";
	struct api *started;

	if (!api || d->api || !d->api_calls)
		return 0;
	started = d->api_calls->start(d, (const struct conf_api *)api, text, sizeof(text));
	if (!started)
		return service_fail(why, size, EIO, "%s:%u: [api]: %s", api->path, api->line, text);
	lock_acquire(&d->lock);
	d->api = started;
	lock_release(&d->lock);
	d->api_conf = conf_get(api);
	return 0;
}

static int write_dropin(const struct daemon *d, const struct conf_instead *file, char *why,
			size_t size)
{
	const char *state = ((const struct conf_daemon *)d->conf)->state;
	CLEANUP_FREE char *path = NULL;
	CLEANUP_CLOSE int dir = -1;
	int rc;

	if (asprintf(&path, "%s/" CONF_DROPINS, state) < 0)
		return service_fail(why, size, ENOMEM, "no memory");
	if (file->text) {
		mkdir(state, 0700);
		mkdir(path, 0700);
	}
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return service_fail(why, size, errno,
				    "%s: %s; state = DIRECTORY in [daemon] names another", path,
				    strerror(errno));
	rc = file->text ? file_replace(dir, file->file, file->text, strlen(file->text), 0600)
	     : unlinkat(dir, file->file, 0) == 0 ? fsync(dir)
						 : -errno;
	return rc == 0 ? 0
		       : service_fail(why, size, -rc, "%s/%s: %s", path, file->file, strerror(-rc));
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

static int apply_all(struct change *c, const struct conf_instead *instead)
{
	struct daemon *d = c->d;
	bool had_api = d->api;
	int rc;

	if (!d->conf)
		d->conf = conf_get(&c->conf.daemon->at);
	rc = apply_sections(c);
	if (rc == 0)
		rc = start_api(d, conf_find(&c->conf, &conf_api_kind, ""), c->why, c->size);
	if (rc == 0 && instead)
		rc = write_dropin(d, instead, c->why, c->size);
	if (rc != 0 && !had_api)
		stop_api(d);
	return rc;
}

/* instead: a drop-in that is to be written; NULL: none. */
static int reload_with(struct daemon *d, const char *path, const struct conf_instead *instead,
		       char *why, size_t size)
{
	struct change c = {.d = d, .why = why, .size = size};
	int rc;

	assert(lock_held(&d->changing));
	rc = read_files(&c, path, instead);
	if (rc == 0)
		rc = apply_all(&c, instead);
	if (rc != 0) {
		undo_steps(&c);
	} else {
		keep_steps(&c);
		stop_all_but(d, &c.conf);
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
		event_add(EVENT_ERR, "daemon", "no memory");
		return NULL;
	}
	lock_acquire(&d->changing);
	rc = reload_with(d, d->path, NULL, why, sizeof(why));
	lock_release(&d->changing);
	if (rc == 0) {
		controls_open(d);
		return d;
	}
	log_lines(why);
	event_add(EVENT_ERR, "daemon", "nothing is served");
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
	event_add(EVENT_INFO, "daemon", "%s is read again", d->path);
	rc = reload_with(d, d->path, NULL, text, text == why ? size : sizeof(own));
	if (rc != 0) {
		CLEANUP_FREE char *lines = strdup(text);

		if (lines)
			log_lines(lines);
		event_add(EVENT_ERR, "daemon", "%s is not good, nothing has changed", d->path);
	}
	return rc;
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
			"'%s' is nothing that is served: pool, watch, store and target are", kind);
	if (!name_is_valid(name))
		return service_fail(why, size, EINVAL,
				    "'%s' is no name: letters, digits and . - _, 63 at most", name);
	return 0;
}

/* Whoever asks has a section, and not the head of another. */
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
		return service_fail(why, size, EINVAL, "settings are lines of NAME = VALUE");
	if (asprintf(&file, "%s-%s.ini", kind, name) < 0 ||
	    asprintf(&text, "[%s %s]\n%s%s", kind, name, ini,
		     *ini && ini[strlen(ini) - 1] != '\n' ? "\n" : "") < 0)
		return service_fail(why, size, ENOMEM, "no memory");
	instead = (struct conf_instead){.file = file, .text = text};
	rc = reload_with(d, d->path, &instead, why, size);
	if (rc == 0)
		event_add(EVENT_INFO, "daemon", "%s %s is as %s says", kind, name, file);
	return rc;
}

int daemon_apply(struct daemon *d, const char *kind, const char *name, const char *ini, char *why,
		 size_t size)
{
	HOLD_FOR_SCOPE(&d->changing);

	return apply_settings(d, kind, name, ini, why, size);
}

/* Does this line of settings set it? */
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
		return service_fail(why, size, ENOENT, "there is no %s '%s' here", kind, name);
	if (strpbrk(setting, "=:\r\n\t [;#") || (value && strpbrk(value, "\r\n")))
		return service_fail(why, size, EINVAL, "that is no setting, or more than one");
	f = open_memstream(&text, &len);
	if (!f)
		return service_fail(why, size, ENOMEM, "no memory");
	for (line = strtok_r(settings, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (is_line_of(line, setting))
			found = true;
		else
			fprintf(f, "%s\n", line);
	}
	if (value)
		fprintf(f, "%s = %s\n", setting, value);
	if (fclose(f) != 0)
		return service_fail(why, size, ENOMEM, "no memory");
	if (!value && !found)
		return service_fail(why, size, ENOENT, "%s %s has no %s", kind, name, setting);
	return apply_settings(d, kind, name, text, why, size);
}

int daemon_withdraw(struct daemon *d, const char *kind, const char *name, char *why, size_t size)
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
		return service_fail(why, size, ENOENT, "there is no %s '%s' here", kind, name);
	if (asprintf(&file, "%s-%s.ini", kind, name) < 0)
		return service_fail(why, size, ENOMEM, "no memory");
	if (!s->now->dropin || strcmp(file, basename(s->now->path)) != 0)
		return service_fail(why, size, EPERM,
				    "%s %s is in %s, line %u: remove it there, then reload", kind,
				    name, s->now->path, s->now->line);
	instead = (struct conf_instead){.file = file};
	rc = reload_with(d, d->path, &instead, why, size);
	if (rc == 0)
		event_add(EVENT_INFO, "daemon", "%s %s was withdrawn", kind, name);
	return rc;
}
