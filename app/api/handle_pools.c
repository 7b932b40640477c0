// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_pools.c - pools: list, creation, removal, switchover.
 */
#include "handle.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "secrets.h"
#include "pool_primary.h"

#define SWITCHOVER_MS 10000 /* most time for a switchover */

/* ---- list ----------------------------------------------------------------- */

static bool has_name(const json_t *list, const char *name)
{
	size_t i;
	json_t *o;

	json_array_foreach (list, i, o)
		if (strcmp(json_string_value(json_object_get(o, "name")) ?: "", name) == 0)
			return true;
	return false;
}

/* Lists the pools that are served here, and those that are only watched. */
void handle_pools(struct request *r)
{
	json_t *status = daemon_status(r->daemon), *list = json_array(), *o;
	size_t i;

	json_array_foreach (json_object_get(status, "pools"), i, o)
		json_array_append(list, o);
	json_array_foreach (json_object_get(status, "watches"), i, o)
		if (!has_name(list, json_string_value(json_object_get(o, "name")) ?: ""))
			json_array_append(list, o);
	json_decref(status);
	answer_json(r, 200, json_pack("{s:o}", "pools", list));
}

static json_t *pool_json(struct request *r, const char *name)
{
	json_t *o = daemon_service_status(r->daemon, "pool", name);

	return o ? o : daemon_service_status(r->daemon, "watch", name);
}

void handle_pool(struct request *r)
{
	json_t *o = pool_json(r, param(r, 0));

	if (o)
		answer_json(r, 200, o);
	else
		answer_none(r, "pool", param(r, 0));
}

/* ---- creation ---------------------------------------------------------------------------- */

/* Builds the path of the pool's state directory, which is in that of the daemon. */
static int state_of(struct request *r, const char *name, char *path, size_t size)
{
	json_t *status = daemon_status(r->daemon);
	const char *state = json_string_value(json_object_get(status, "state"));
	int n = state ? snprintf(path, size, "%s/%s", state, name) : -1;

	json_decref(status);
	return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

/* Creates the state directory, and that of the daemon if it does not exist yet. */
static int make_state_directory(const char *state)
{
	CLEANUP_FREE char *above = strdup(state);

	if (!above)
		return -ENOMEM;
	*strrchr(above, '/') = '\0';
	mkdir(above, 0700);
	return mkdir(state, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

/* Creates secrets for nodes, an administrator and clients, as 'stag pool create' does; an existing file is kept. */
static int make_secrets(const char *state)
{
	static const struct secret first[] = {
		{.name = "nodes", .rights = RIGHT_NODE},
		{.name = "admin", .rights = RIGHT_READ | RIGHT_WRITE | RIGHT_ADMIN},
		{.name = "client", .rights = RIGHT_READ | RIGHT_WRITE},
	};
	struct secret list[sizeof(first) / sizeof(first[0])];
	struct secrets secrets = {list, sizeof(first) / sizeof(first[0])};
	int rc = make_state_directory(state);
	CLEANUP_CLOSE int dir = rc == 0 ? open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (rc == 0 && dir < 0)
		rc = -errno;
	if (rc != 0 || faccessat(dir, CONF_SECRETS, F_OK, 0) == 0)
		return rc;
	memcpy(list, first, sizeof(first));
	for (unsigned int i = 0; i < secrets.count && rc == 0; i++)
		rc = secret_make(list[i].text);
	if (rc == 0)
		rc = secrets_save(dir, CONF_SECRETS, &secrets);
	explicit_bzero(list, sizeof(list));
	return rc;
}

/* Checks the fields that only creating, or only joining, requires. */
static bool is_pool_body_complete(struct request *r)
{
	bool create = body_flag(r, "create");

	if (create && !json_object_get(r->body, "size"))
		answer_fault(r, 400, "missing_field", NULL,
			     "creating a pool requires the field 'size'");
	else if (!create && !(body_text(r, "roll", NULL) && body_text(r, "secrets", NULL)))
		answer_fault(r, 400, "missing_field", NULL,
			     "joining a pool requires 'roll' and 'secrets'; creating one requires "
			     "'create' and 'size'");
	return r->fault.status == 0;
}

static void put_pool(struct settings *s, struct request *r, const char *state)
{
	settings_put(s, r, &conf_pool_kind);
	if (s->file)
		fprintf(s->file, "state = %s\n", state);
	if (s->file && !body_text(r, "roll", NULL))
		fprintf(s->file, "roll = file:%s/roll\n", state);
	if (s->file && !body_text(r, "address", NULL) && !body_text(r, "roll", NULL))
		fputs("address = 127.0.0.1\n", s->file); /* a roll in a file is for one machine */
}

void handle_pool_create(struct request *r)
{
	const char *name = body_text(r, "name", "");
	char state[PATH_MAX];
	struct settings s;
	json_t *o = pool_json(r, name);
	int rc;

	json_decref(o);
	if (o) {
		answer_fault(r, 409, "exists", NULL, "pool '%s' already exists", name);
		return;
	}
	if (!is_pool_body_complete(r) || !path_check(r, r->body, "secrets", PATH_OTHER) ||
	    !path_check(r, r->body, "roll", PATH_OTHER))
		return;
	rc = state_of(r, name, state, sizeof(state));
	if (rc == 0)
		rc = body_text(r, "secrets", NULL) ? 0 : make_secrets(state);
	if (rc != 0) {
		answer_error(r, rc, NULL, NULL);
		return;
	}
	settings_open(&s);
	put_pool(&s, r, state);
	if (settings_apply(&s, r, "pool", name) != 0)
		return;
	answer_made(r, "pool", name);
}

void handle_pool_delete(struct request *r)
{
	char why[WHY_MAX] = "";
	int rc = daemon_withdraw(r->daemon, "pool", param(r, 0), query_flag(r, "force"), why,
				 sizeof(why));

	if (rc == -ENOENT)
		rc = daemon_withdraw(r->daemon, "watch", param(r, 0), false, why, sizeof(why));
	if (rc == -ENOENT)
		answer_none(r, "pool", param(r, 0));
	else if (rc == -EBUSY)
		answer_error(r, rc, "?force=true removes it, and its values are lost", why);
	else if (rc != 0)
		answer_daemon(r, rc, why);
	else
		answer_nothing(r);
}

/* ---- switchover ---------------------------------------------------------------------- */

struct daemon_pool *pool_get(struct request *r)
{
	struct daemon_pool *p = daemon_pool_get(r->daemon, param(r, 0));

	if (p && p->client)
		return p;
	if (!p) {
		answer_none(r, "pool", param(r, 0));
		return NULL;
	}
	answer_fault(r, 502, "not_reachable", "GET /api/v1/pools shows the state of its nodes",
		     "%s", p->why);
	daemon_pool_put(p);
	return NULL;
}

static void answer_pool_error(struct request *r, struct daemon_pool *p, int error, const char *next)
{
	answer_error(r, error, next, stag_pool_error());
	if (error == ENOTCONN || error == ETIMEDOUT)
		daemon_pool_lost(p);
}

static const char *primary_of(const struct stag_pool_info *i)
{
	const struct stag_pool_member *p = pool_primary(i);

	return p ? p->name : NULL;
}

static void switch_over(struct request *r, struct daemon_pool *p, const char *to)
{
	static const char next[] = "GET /api/v1/pools/{pool} shows which nodes are in sync";
	uint64_t since = clock_ns(), until = since + SWITCHOVER_MS * NS_PER_MS;
	struct stag_pool_info info = {0};
	char was[64] = "";
	int rc = stag_pool_query(p->client, &info, sizeof(info));

	if (rc == 0 && to && !pool_member(&info, to)) {
		answer_fault(r, 404, "no_such_node", next, "pool %s has no node '%s'", p->name, to);
		return;
	}
	snprintf(was, sizeof(was), "%s", primary_of(&info) ?: "");
	if (rc == 0 && to && strcmp(to, was) == 0) {
		answer_fault(r, 409, "is_primary", NULL,
			     "node %s of pool %s is already the primary", to, p->name);
		return;
	}
	if (rc == 0)
		rc = pool_switch_when_in_sync(p->client, to, until, &info);
	if (rc == 0)
		rc = pool_await_epoch(p->client, info.epoch, until, &info);
	if (rc != 0) {
		answer_pool_error(r, p, rc, next);
		return;
	}
	event_add(EVENT_INFO, "api", "pool %s: switched over from %s to %s", p->name, was,
		  primary_of(&info) ?: "no node");
	answer_json(r, 200,
		    json_pack("{s:s s:s? s:I s:f}", "from", was, "primary", primary_of(&info),
			      "epoch", (json_int_t)info.epoch, "seconds",
			      (double)(clock_ns() - since) / NS_PER_S));
}

void handle_pool_switchover(struct request *r)
{
	struct daemon_pool *p = pool_get(r);

	if (!p)
		return;
	switch_over(r, p, body_text(r, "to", NULL));
	daemon_pool_put(p);
}

void handle_pool_forget(struct request *r)
{
	struct daemon_pool *p = pool_get(r);
	int rc;

	if (!p)
		return;
	rc = stag_pool_forget(p->client, param(r, 1));
	if (rc == ENOENT)
		answer_fault(r, 404, "no_such_node", "GET /api/v1/pools/{pool} lists its nodes",
			     "pool %s has no node '%s'", p->name, param(r, 1));
	else if (rc != 0)
		answer_pool_error(r, p, rc, rc == EBUSY ? "stop that node first" : NULL);
	else
		answer_nothing(r);
	daemon_pool_put(p);
}
