// SPDX-License-Identifier: BSD-2-Clause
/*
 * service_pool.c - a node of a pool.
 *
 * A node creates a pool only if it has never been in one, as its state directory records. So losing the roll, or naming another
 * one by mistake, does not replace the pool by an empty one.
 */
#include "service.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "live.h"
#include "notify.h"
#include "pool_words.h"

struct node {
	struct service service;
	struct stag_pool_node *node;
	struct client client;
	uint32_t role;	/* as last reported to systemd; used by the main loop only */
	uint64_t epoch; /* likewise */
	char why[128];
};

static struct node *to_node(struct service *s)
{
	return (struct node *)s;
}

static const struct conf_pool *pool_conf(const struct service *s)
{
	return (const struct conf_pool *)s->conf;
}

/* ---- start ------------------------------------------------------------------------ */

static void pool_log_line(void *arg, const char *line)
{
	const struct service *s = arg;

	event_add(EVENT_INFO, s->object, "%s", line);
}

static bool has_been_in_a_pool(const struct conf_pool *p)
{
	struct stag_pool_node_state state;
	int rc = stag_pool_node_query_state(p->state, &state, sizeof(state));

	return rc == 0 ? state.epoch > 0 : rc != ENOENT;
}

/* Returns what the user can do about the error. */
static const char *pool_advice(const struct conf_pool *p, int error)
{
	switch (error) {
	case ENOENT:
		return p->create ? "; the pool that this node was in does not exist any more: see "
				   "LOST "
				   "in stagd(8)"
				 : "; set create = yes and size = ... on the node that creates the "
				   "pool";
	case ENOTRECOVERABLE:
		return "; the only copy was in this node's memory: see LOST in stagd(8)";
	case EADDRINUSE:
		return "; set another port or memory in its section";
	case EBUSY:
		return "; is another stagd using this state directory?";
	case EACCES:
	case EPERM:
		return "; the user of stagd must own the state directory";
	default:
		return "";
	}
}

/* Configures the client: a user with the right to administer if there is one, and loopback if the node listens there. */
static void name_client(struct node *n, const struct conf_pool *p)
{
	const struct stag_pool_user *u = p->attr.num_users ? &p->users[0] : NULL;
	const char *host = p->address;
	struct stag_pool_node_info info = {0};
	char where[256];

	for (uint32_t i = p->attr.num_users; i-- > 0;)
		if (p->users[i].rights & STAG_POOL_RIGHT_ADMIN)
			u = &p->users[i];
	stag_pool_node_query(n->node, &info, sizeof(info));
	if (!host || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
		host = "127.0.0.1";
	snprintf(where, sizeof(where), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, info.port);
	client_name(&n->client, where, u ? u->name : NULL, u ? u->secret : NULL);
}

static int pool_start(struct service *s, char *why, size_t size)
{
	const struct conf_pool *p = pool_conf(s);
	struct stag_pool_node_attr attr = p->attr;
	struct node *n = to_node(s);

	snprintf(s->object, sizeof(s->object), "pool %s/%s", p->at.name, p->node);
	attr.log = pool_log_line;
	attr.log_arg = s;
	if (p->create && !has_been_in_a_pool(p))
		attr.flags |= STAG_POOL_CREATE;
	n->node = stag_pool_node_start(&attr);
	if (!n->node && errno == EEXIST && attr.flags & STAG_POOL_CREATE) {
		attr.flags &= ~(uint32_t)STAG_POOL_CREATE;
		n->node = stag_pool_node_start(&attr);
	}
	if (!n->node)
		return service_fails(s->conf, p->at.line, why, size, errno, "%s%s",
				     stag_pool_error(), pool_advice(p, errno));
	client_init(&n->client, s);
	n->client.use.node = n->node;
	n->client.use.node_name = p->node;
	name_client(n, p);
	return 0;
}

/* ---- stop ------------------------------------------------------------------------- */

/* Stopping a primary hands over first, so that clients continue at once, without a failover. */
static void pool_stop(struct service *s)
{
	struct node *n = to_node(s);

	client_end(&n->client);
	stag_pool_node_stop(n->node);
}

/* ---- change ------------------------------------------------------------------------ */

static bool is_same_user(const struct stag_pool_user *a, const struct stag_pool_user *b)
{
	return strcmp(a->name, b->name) == 0 && strcmp(a->secret, b->secret) == 0 &&
	       a->rights == b->rights;
}

static bool has_same_users(const struct conf_pool *a, const struct conf_pool *b)
{
	if (a->attr.num_users != b->attr.num_users)
		return false;
	for (uint32_t i = 0; i < a->attr.num_users; i++)
		if (!is_same_user(&a->users[i], &b->users[i]))
			return false;
	return true;
}

static int pool_change(struct service *s, struct conf_section *to, char *why, size_t size)
{
	const struct conf_pool *now = (const struct conf_pool *)to;
	struct node *n = to_node(s);

	if (has_same_users((const struct conf_pool *)s->now, now))
		return 0;
	if (stag_pool_node_set_users(n->node, now->users, now->attr.num_users) != 0)
		return service_fails(to, to->line, why, size, EINVAL,
				     "%s; its users have not changed", stag_pool_error());
	event_add(EVENT_INFO, s->object, "%u users are admitted", now->attr.num_users);
	lock_acquire(&n->client.lock);
	name_client(n, now);
	lock_release(&n->client.lock);
	return 0;
}

/* ---- status ------------------------------------------------------------- */

static bool pool_answers(struct service *s)
{
	struct stag_pool_node_info now = {0};
	struct node *n = to_node(s);

	if (stag_pool_node_query(n->node, &now, sizeof(now)) != 0)
		return false;
	if (now.role != n->role || now.epoch != n->epoch)
		notify("STATUS=pool %s: %s of epoch %llu%s%s", s->conf->name,
		       pool_role_word(now.role), (unsigned long long)now.epoch,
		       now.why[0] ? ": " : "", now.why);
	n->role = now.role;
	n->epoch = now.epoch;
	memcpy(n->why, now.why, sizeof(n->why));
	return true;
}

bool pool_has_refused(struct service *s)
{
	struct node *n = to_node(s);

	return n->role == STAG_POOL_ROLE_REFUSED;
}

static json_t *pool_status(struct service *s, const struct conf_section *now)
{
	struct stag_pool_node_info i = {0};
	const struct conf_pool *p = pool_conf(s);
	json_t *o = json_pack("{s:s, s:s, s:s, s:s?}", "name", p->at.name, "node", p->node, "kind",
			      "served", "advertise", p->advertise);

	if (stag_pool_node_query(to_node(s)->node, &i, sizeof(i)) == 0)
		json_object_update_new(o, pool_node_json(&i));
	json_object_set_new(o, "latency",
			    json_pack("{s:o s:o}", "change", live_histogram(&i.change_times),
				      "replication", live_histogram(&i.replication_times)));
	return o;
}

static void pool_announce(struct service *s, json_t *list)
{
	struct stag_pool_node_info i = {0};
	const struct conf_pool *p = pool_conf(s);

	stag_pool_node_query(to_node(s)->node, &i, sizeof(i));
	if (list)
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:i, s:s}", "pool", p->at.name, "node", p->node,
					"port", (int)i.port, "role", pool_role_word(i.role)));
	else
		printf("serving pool %s as %s on port %u\n", p->at.name, p->node, i.port);
}

struct client *pool_client(struct service *s)
{
	return &to_node(s)->client;
}

const struct service_kind pool_service = {
	.conf = &conf_pool_kind,
	.list = "pools",
	.size = sizeof(struct node),
	.start = pool_start,
	.stop = pool_stop,
	.change = pool_change,
	.answers = pool_answers,
	.status = pool_status,
	.announce = pool_announce,
};
