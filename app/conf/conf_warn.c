// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_warn.c - warns of what an INI file leaves open to strangers (conf.h). None of it is a fault: it may be wanted.
 */
#include "conf.h"

#include <stdarg.h>
#include <string.h>

#include "access.h"

struct warner {
	const struct conf *conf;
	FILE *out;
	unsigned int count;
};

__attribute__((format(printf, 4, 5))) static void warn_of(struct warner *w,
							  const struct conf_section *s,
							  const char *setting, const char *fmt, ...)
{
	va_list ap;

	w->count++;
	fprintf(w->out, "%s:%u: warning: ", s->path, setting ? conf_line_of(s, setting) : s->line);
	va_start(ap, fmt);
	vfprintf(w->out, fmt, ap);
	va_end(ap);
	fputc('\n', w->out);
}

/* Returns whether other machines can reach a service that listens at this address; NULL: at all of them. */
static bool is_reachable(const char *address)
{
	return !address || (strncmp(address, "127.", 4) != 0 && strcmp(address, "::1") != 0 &&
			    strcmp(address, "localhost") != 0);
}

static void warn_of_api(struct warner *w, const struct conf_api *a)
{
	if (a->listen && !conf_is_loopback(a->listen) && a->tls != CONF_TLS_REQUIRED)
		warn_of(w, &a->at, "listen",
			"other machines can reach the API at %s, and tokens cross the network in "
			"the clear; set tls = required, or listen on 127.0.0.1",
			a->listen);
	if (a->socket_group && a->socket_role + ROLE_LOOK == ROLE_ADMINISTER)
		warn_of(w, &a->at, "socket-role",
			"every member of the group %s may administer this daemon", a->socket_group);
}

static void warn_of_roots(struct warner *w, const struct conf_api *a)
{
	struct access *access = access_of(w->conf);

	for (unsigned int i = 0; access && i < access->num_roots; i++)
		if (root_weakness(access->roots[i]))
			warn_of(w, &a->at, "roots",
				"%s: %s; requests cannot name files directly in there",
				access->roots[i], root_weakness(access->roots[i]));
	access_put(access);
}

static bool lets_anybody_in(const struct conf_target *t)
{
	bool open = t->at.num_others == 0;

	for (unsigned int i = 0; t->rights && i < t->at.num_others; i++)
		open |= !t->rights[i].user;
	return !t->user && open;
}

static void warn_of_target(struct warner *w, const struct conf_target *t)
{
	if (lets_anybody_in(t) && is_reachable(t->address))
		warn_of(w, &t->at, NULL,
			"target %s has no user: everybody who reaches port %u of %s may read and "
			"write its units; set user and secret-file, "
			"initiator.NAME, or address = 127.0.0.1",
			t->at.name, t->attr.port, t->address ? t->address : "any address");
}

unsigned int conf_warn(const struct conf *conf, FILE *out)
{
	struct warner w = {.conf = conf, .out = out};
	const struct conf_section *s = NULL;

	while ((s = conf_next(conf, NULL, s)))
		if (s->kind == &conf_api_kind) {
			warn_of_api(&w, (const struct conf_api *)s);
			warn_of_roots(&w, (const struct conf_api *)s);
		} else if (s->kind == &conf_target_kind) {
			warn_of_target(&w, (const struct conf_target *)s);
		}
	return w.count;
}
