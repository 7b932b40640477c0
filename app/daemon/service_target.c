// SPDX-License-Identifier: BSD-2-Clause
/*
 * service_target.c - a block target and its logical units, which can be added and removed while it runs.
 */
#include "service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "block_words.h"
#include "live.h"

struct target {
	struct service service;
	struct daemon_target use;
};

static struct target *to_target(struct service *s)
{
	return (struct target *)s;
}

static const struct conf_target *target_conf(const struct service *s)
{
	return (const struct conf_target *)s->conf;
}

/* ---- units --------------------------------------------------------------------------------- */

static const char *lun_advice(int error)
{
	switch (error) {
	case ENOENT:
		return "; the file, device or partition must exist: see stag.ini(5)";
	case EACCES:
	case EPERM:
		return "; the user of stagd must have access to it";
	case EBUSY:
		return "; another process uses it, or commands are in flight";
	default:
		return "";
	}
}

static char *resolve_lun_where(struct service *s, const struct conf_lun *l)
{
	struct service *store;
	char *text = NULL;

	if (!l->store)
		return strdup(l->where);
	store = daemon_find(s->daemon, &store_service, l->store);
	if (!store || asprintf(&text, "%s:%s", store_service_path(store), l->partition) < 0)
		return NULL;
	return text;
}

static bool parse_lun(struct service *s, const struct conf_item *item, struct conf_lun *l)
{
	struct conf none = {.path = (char *)daemon_path(s->daemon)};

	return conf_target_lun(&none, item, l); /* it passed the check before */
}

static int add_lun(struct service *s, const struct conf_section *of, const struct conf_item *item,
		   char *why, size_t size)
{
	CLEANUP_FREE char *where = NULL;
	struct conf_lun l;
	int rc;

	if (!parse_lun(s, item, &l))
		return service_fails(of, item->line, why, size, EINVAL,
				     "lun.%s is not valid any more", item->name);
	where = resolve_lun_where(s, &l);
	l.lun.where = where;
	rc = where ? stag_block_target_add(to_target(s)->use.target, &l.lun) : ENOENT;
	conf_lun_free(&l);
	if (rc == 0)
		return 0;
	return service_fails(of, item->line, why, size, rc, "lun.%s: %s%s", item->name,
			     where ? stag_block_error() : "there is no such store", lun_advice(rc));
}

static int remove_lun(struct service *s, const struct conf_section *of,
		      const struct conf_item *item, char *why, size_t size)
{
	int rc = stag_block_target_remove(to_target(s)->use.target,
					  (uint16_t)strtoul(item->name, NULL, 0));

	return rc == 0 ? 0
		       : service_fails(of, item->line, why, size, rc, "lun.%s: %s%s", item->name,
				       stag_block_error(), lun_advice(rc));
}

/* Calls fn for each item of `of` that differs in `other`, until one fails. *done: the number of items visited before that. */
static int each_lun_that_differs(struct service *s, const struct conf_section *of,
				 const struct conf_section *other, unsigned int most,
				 unsigned int *done,
				 int (*fn)(struct service *s, const struct conf_section *of,
					   const struct conf_item *item, char *why, size_t size),
				 char *why, size_t size)
{
	int rc = 0;

	for (*done = 0; *done < of->num_items && *done < most; (*done)++) {
		const struct conf_item *item = &of->items[*done];
		const struct conf_item *there = other ? conf_item_of(other, item->name) : NULL;

		if (there && strcmp(there->value, item->value) == 0)
			continue;
		rc = fn(s, of, item, why, size);
		if (rc != 0)
			return rc;
	}
	return rc;
}

/* Removes and adds units to get from one section to another; on failure it restores the first. */
static int move_luns(struct service *s, const struct conf_section *from,
		     const struct conf_section *to, char *why, size_t size)
{
	unsigned int removed = 0, added = 0, n;
	int rc = each_lun_that_differs(s, from, to, UINT32_MAX, &removed, remove_lun, why, size);

	if (rc == 0)
		rc = each_lun_that_differs(s, to, from, UINT32_MAX, &added, add_lun, why, size);
	if (rc != 0) {
		each_lun_that_differs(s, to, from, added, &n, remove_lun, NULL, 0);
		each_lun_that_differs(s, from, to, removed, &n, add_lun, NULL, 0);
	}
	return rc;
}

/* ---- start, stop, change --------------------------------------------------------------------- */

static void target_log_line(void *arg, const char *line)
{
	const struct service *s = arg;

	event_add(EVENT_INFO, s->object, "%s", line);
}

/* Without a directory of its own choice, a target starts even if it cannot keep reservations. */
static void make_state(struct service *s, struct stag_block_target_attr *attr)
{
	CLEANUP_FREE char *parent = strdup(attr->state);
	char *slash = parent ? strrchr(parent, '/') : NULL;

	if (conf_is_set(s->conf, "state"))
		return;
	if (slash > parent) {
		*slash = '\0';
		mkdir(parent, 0700);
	}
	if ((mkdir(attr->state, 0700) == 0 || errno == EEXIST) &&
	    access(attr->state, R_OK | W_OK | X_OK) == 0)
		return;
	event_add(EVENT_WARN, s->object, "%s: %s: reservations do not survive a restart",
		  attr->state, strerror(errno));
	attr->state = NULL;
}

static int target_start(struct service *s, char *why, size_t size)
{
	struct stag_block_target_attr attr = target_conf(s)->attr;
	struct target *t = to_target(s);
	unsigned int n;
	int rc;

	snprintf(s->object, sizeof(s->object), "target %s", s->conf->name);
	make_state(s, &attr);
	attr.log = target_log_line;
	attr.log_arg = s;
	t->use.name = s->conf->name;
	t->use.iqn = target_conf(s)->iqn;
	t->use.target = stag_block_target_start(&attr);
	if (!t->use.target)
		return service_fails(s->conf, conf_line_of(s->conf, "port"), why, size, errno,
				     "%s%s", stag_block_error(),
				     errno == EADDRINUSE
					     ? "; set another port in its section: port = PORT"
				     : errno == EACCES ? "; ports below 1024 require root"
						       : "");
	rc = each_lun_that_differs(s, s->conf, NULL, UINT32_MAX, &n, add_lun, why, size);
	if (rc != 0) {
		stag_block_target_stop(t->use.target);
		return rc;
	}
	event_add(EVENT_INFO, s->object, "%s is served on port %u, %u units", t->use.iqn,
		  stag_block_target_port(t->use.target), s->conf->num_items);
	return 0;
}

static void target_stop(struct service *s)
{
	stag_block_target_stop(to_target(s)->use.target);
	event_add(EVENT_INFO, s->object, "stopped");
}

static int target_change(struct service *s, struct conf_section *to, char *why, size_t size)
{
	int rc = move_luns(s, s->now, to, why, size);

	if (rc == 0 && !conf_is_same_items(s->now, to))
		event_add(EVENT_INFO, s->object, "it has %u units now", to->num_items);
	return rc;
}

static void target_undo_change(struct service *s, struct conf_section *before)
{
	move_luns(s, s->now, before, NULL, 0);
}

/* ---- what is known of it ----------------------------------------------------------------------- */

static bool target_answers(struct service *s)
{
	struct stag_block_counters c = {0};

	return stag_block_target_query(to_target(s)->use.target, &c, sizeof(c)) == 0;
}

static json_t *luns_json(struct service *s, const struct conf_section *now)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < now->num_items; i++) {
		struct conf_lun l;

		if (!parse_lun(s, &now->items[i], &l))
			continue;
		json_array_append_new(
			list,
			json_pack("{s:i, s:s%, s:b, s:b, s:i}", "lun", (int)l.lun.lun, "where",
				  now->items[i].value, strcspn(now->items[i].value, " \t"),
				  "read_only", (l.lun.flags & STAG_BLOCK_READ_ONLY) != 0,
				  "write_back", (l.lun.flags & STAG_BLOCK_WRITE_BACK) != 0, "block",
				  l.lun.block ? (int)l.lun.block : 512));
		conf_lun_free(&l);
	}
	return list;
}

static json_t *initiators_json(const struct conf_target *conf)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < conf->at.num_others; i++) {
		const struct stag_block_right *r = &conf->rights[i];

		json_array_append_new(
			list, json_pack("{s:s, s:s, s:s?, s:s?, s:b}", "name",
					conf->at.others[i].name, "pattern", r->initiator, "user",
					r->user ? r->user : conf->user, "luns", r->luns,
					"read_only", (r->flags & STAG_BLOCK_READ_ONLY) != 0));
	}
	return list;
}

static json_t *target_status(struct service *s, const struct conf_section *now)
{
	const struct daemon_target *use = &to_target(s)->use;
	struct stag_block_counters c = {0};
	json_t *o =
		json_pack("{s:s, s:s, s:s?, s:s?, s:i, s:o, s:o, s:o}", "name", s->conf->name,
			  "iqn", use->iqn, "alias", target_conf(s)->alias, "address",
			  target_conf(s)->address, "port", (int)stag_block_target_port(use->target),
			  "luns", luns_json(s, now), "initiators", initiators_json(target_conf(s)),
			  "sessions", block_sessions_json(use->target));

	json_object_set_new(o, "tls", json_string(conf_tls_words[target_conf(s)->tls]));
	if (stag_block_target_query(use->target, &c, sizeof(c)) == 0) {
		json_object_set_new(o, "counters", block_counters_json(&c));
		json_object_set_new(o, "latency",
				    json_pack("{s:o s:o}", "read", live_histogram(&c.read_times),
					      "write", live_histogram(&c.write_times)));
	}
	return o;
}

/* Answers a query of the control socket, as `stag block serve` does. */
json_t *target_service_answer(struct service *s, const char *word)
{
	const struct daemon_target *use = &to_target(s)->use;
	struct stag_block_counters c = {0};
	json_t *o = json_pack("{s:s s:i s:i}", "name", use->iqn, "port",
			      (int)stag_block_target_port(use->target), "pid", (int)getpid());

	if (strcmp(word, "stags") == 0) {
		json_object_set_new(o, "stags", block_stags_json(use->target));
	} else if (stag_block_target_query(use->target, &c, sizeof(c)) == 0) {
		json_object_set_new(o, "counters", block_counters_json(&c));
		json_object_set_new(o, "sessions", block_sessions_json(use->target));
	}
	return o;
}

static void target_announce(struct service *s, json_t *list)
{
	const struct daemon_target *use = &to_target(s)->use;
	unsigned int port = stag_block_target_port(use->target);

	if (list)
		json_array_append_new(list, json_pack("{s:s, s:s, s:i}", "target", s->conf->name,
						      "iqn", use->iqn, "port", (int)port));
	else
		printf("serving target %s (%s) on port %u\n", s->conf->name, use->iqn, port);
}

struct daemon_target *target_service_get(struct service *s)
{
	return &to_target(s)->use;
}

void daemon_target_put(struct daemon_target *use)
{
	daemon_put((struct service *)((char *)use - offsetof(struct target, use)));
}

const struct service_kind target_service = {
	.conf = &conf_target_kind,
	.list = "targets",
	.size = sizeof(struct target),
	.frees_port = true,
	.start = target_start,
	.stop = target_stop,
	.change = target_change,
	.undo = target_undo_change,
	.answers = target_answers,
	.status = target_status,
	.announce = target_announce,
};
