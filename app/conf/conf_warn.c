// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_warn.c - warns of what an INI file leaves open to strangers (conf.h). None of it is a fault: it may be wanted.
 */
#include "conf.h"

#include <inttypes.h>
#include <netinet/in.h>
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

static void warn_of_pool(struct warner *w, const struct conf_pool *p)
{
	if (p->tls != STAG_POOL_TLS_REQUIRED && is_reachable(p->address))
		warn_of(w, &p->at, "tls",
			"other machines can reach pool %s at port %" PRIu64
			" of %s, and its values "
			"cross the network in the clear; set tls = required, or address = "
			"127.0.0.1",
			p->at.name, p->port, p->address ? p->address : "any address");
}

/* ---- stores ------------------------------------------------------------------------------- */

/* A line "partition.NAME" of a store. */
struct share {
	const struct conf_store *store;
	const struct conf_item *item;
	const struct stag_store_partition *p;
};

static bool store_requires_tls(const struct conf_store *s)
{
	return conf_is_set(&s->at, "tls") && s->tls == CONF_TLS_REQUIRED;
}

static bool is_of_this_machine(const struct stag_store_right *r)
{
	return r->who == STAG_STORE_NET &&
	       (r->family == AF_INET ? r->address[0] == 127 && r->prefix >= 8
				     : memcmp(r->address, &in6addr_loopback, 16) == 0);
}

/* Returns the first right of a kind that gives other machines something, or NULL. */
static const struct stag_store_right *right_for(const struct stag_store_partition *p,
						enum stag_store_who who)
{
	for (unsigned int i = 0; i < p->num_rights; i++)
		if (p->rights[i].who == who && p->rights[i].access != STAG_STORE_NONE &&
		    !is_of_this_machine(&p->rights[i]))
			return &p->rights[i];
	return NULL;
}

__attribute__((format(printf, 3, 4))) static void warn_of_share(struct warner *w,
								const struct share *h,
								const char *fmt, ...)
{
	va_list ap;

	w->count++;
	fprintf(w->out, "%s:%u: warning: partition %s ", h->store->at.path, h->item->line,
		h->item->name);
	va_start(ap, fmt);
	vfprintf(w->out, fmt, ap);
	va_end(ap);
	fputc('\n', w->out);
}

/* Warns of a right by address: for everybody there without TLS, for nobody if TLS is required, because its keys are made of tokens. */
static void warn_of_address(struct warner *w, const struct share *h, enum stag_store_who who)
{
	const struct stag_store_right *r = right_for(h->p, who);
	const char *word = who == STAG_STORE_REMOTE ? "remote:" : "net:";
	bool writes = r && r->access == STAG_STORE_WRITE;

	if (!r)
		return;
	if (store_requires_tls(h->store) && !right_for(h->p, STAG_STORE_TOKEN))
		warn_of_share(w, h,
			      "has a right for %s and none for a token: with tls = required a "
			      "client cannot connect without a token",
			      word);
	else if (!store_requires_tls(h->store) && is_reachable(h->store->address))
		warn_of_share(w, h,
			      "may be read%s by everybody who reaches port %" PRIu64 " of %s%s; "
			      "use token:FILE, or address = 127.0.0.1",
			      writes ? " and written" : "", h->store->port,
			      h->store->address ? h->store->address : "any address",
			      who == STAG_STORE_NET ? " from a network that it names" : "");
}

static void warn_of_token(struct warner *w, const struct share *h)
{
	if (right_for(h->p, STAG_STORE_TOKEN) && !store_requires_tls(h->store) &&
	    is_reachable(h->store->address))
		warn_of_share(w, h,
			      "has a right for a token, which crosses the network in the clear; "
			      "set tls = required, or address = 127.0.0.1");
}

/* Parses the lines again: their syntax has been checked. */
static void warn_of_store(struct warner *w, const struct conf_store *s)
{
	struct conf quiet = *w->conf;
	struct conf_partition p;

	quiet.complaints = NULL;
	for (unsigned int i = 0; i < s->at.num_items; i++) {
		const struct share h = {.store = s, .item = &s->at.items[i], .p = &p.p};

		if (!conf_store_partition(&quiet, h.item, &p))
			continue;
		warn_of_address(w, &h, STAG_STORE_REMOTE);
		warn_of_address(w, &h, STAG_STORE_NET);
		warn_of_token(w, &h);
	}
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
		} else if (s->kind == &conf_store_kind) {
			warn_of_store(&w, (const struct conf_store *)s);
		} else if (s->kind == &conf_pool_kind) {
			warn_of_pool(&w, (const struct conf_pool *)s);
		}
	return w.count;
}
