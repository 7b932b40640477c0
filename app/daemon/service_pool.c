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

#include "base/clock.h"
#include "ending.h"
#include "live.h"
#include "notify.h"
#include "pool_words.h"
#include "registry.h"

struct node {
	struct service service;
	struct stag_pool_node *node;
	struct client client;
	uint32_t role;	      /* as last reported to systemd; used by the main loop only */
	uint64_t epoch;	      /* likewise */
	struct ending ending; /* likewise */
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

static void pool_log_line(void *arg, int level, const char *line)
{
	const struct service *s = arg;

	event_add(event_level_of(level), s->object, "%s", line);
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
/* Returns the host of advertise, address, or this machine's name. */
static const char *name_others_use(const struct conf_pool *p, char *own, size_t size)
{
	const char *name = p->advertise ? p->advertise : p->address;

	if (!name) {
		gethostname(own, size - 1);
		return own;
	}
	if (*name == '[')
		snprintf(own, size, "%.*s", (int)strcspn(name + 1, "]"), name + 1);
	else if (strchr(name, ':') == strrchr(name, ':'))
		snprintf(own, size, "%.*s", (int)strcspn(name, ":"), name);
	else
		snprintf(own, size, "%s", name);
	return own;
}

static void name_client(struct node *n, const struct conf_pool *p)
{
	const struct stag_pool_user *u = p->attr.num_users ? &p->users[0] : NULL;
	const char *host = p->address;
	struct stag_pool_node_info info = {0};
	char where[512], own[256] = "";

	for (uint32_t i = p->attr.num_users; i-- > 0;)
		if (p->users[i].rights & STAG_POOL_RIGHT_ADMIN)
			u = &p->users[i];
	stag_pool_node_query(n->node, &info, sizeof(info));
	if (!host || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
		host = "127.0.0.1";
	if (p->tls_cert) /* is for the address that others use */
		host = name_others_use(p, own, sizeof(own));
	snprintf(where, sizeof(where), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, info.port);
	client_name(&n->client, where, u ? u->name : NULL, u ? u->secret : NULL);
	client_secure(&n->client, p->tls, p->tls_cert, p->tls_key, p->tls_ca);
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
	registry_add(daemon_path(s->daemon)); /* so that `stag pool` finds it by its name */
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

/*
 * Counts the values as they are now: what the node shows of itself is a moment older. Returns false if the pool does not say.
 * Without users it is not asked: nobody can have put a value meanwhile.
 */
static bool count_values(struct service *s, uint64_t *values)
{
	struct client *c = &to_node(s)->client;
	struct stag_pool_info info = {0};
	bool known = true;

	client_lock(c);
	if (c->use.client && stag_pool_query(c->use.client, &info, sizeof(info)) != 0) {
		daemon_pool_lost(&c->use);
		known = false;
	} else if (!c->use.client && *c->user) {
		known = false;
	}
	client_unlock(c);
	*values = info.objects;
	return known;
}

static bool pool_loses(struct service *s, char *what, size_t size)
{
	struct stag_pool_node_info i = {0};

	if (stag_pool_node_query(to_node(s)->node, &i, sizeof(i)) != 0 || !ending_is_only_copy(&i))
		return false;
	if (i.objects == 0 && !count_values(s, &i.objects)) {
		snprintf(
			what, size,
			"node %s may have the only copy in sync of values, which the pool does not "
			"count now",
			pool_conf(s)->node);
		return true;
	}
	if (i.objects == 0)
		return false;
	snprintf(what, size, "node %s has the only copy in sync of the pool's values (%llu)",
		 pool_conf(s)->node, (unsigned long long)i.objects);
	return true;
}

/* Corrects the number of values, of a node with the only copy: what was put a moment ago counts, too. */
static void correct_values(struct service *s, struct stag_pool_node_info *i)
{
	uint64_t values;

	if (count_values(s, &values))
		i->objects = values;
}

/* Lists the names of the other nodes; returns their number. */
static unsigned int list_others(const struct stag_pool_node_info *i, char *text, size_t size)
{
	unsigned int n = 0;
	size_t len = 0;

	*text = '\0';
	for (uint32_t m = 0; m < i->num_members; m++) {
		if (i->members[m].role == STAG_POOL_ROLE_PRIMARY)
			continue;
		if (len < size)
			len += (size_t)snprintf(text + len, size - len, "%s%s", n ? ", " : "",
						i->members[m].name);
		n++;
	}
	return n;
}

/* Texts for each ending: the other node's state, and what to do. NULL: no text, the node is about to have a copy. */
static const struct delay {
	const char *is, *todo;
} delays[] = {
	[POOL_COPIES] = {"is being resynchronised", NULL},
	[POOL_RETURNS] = {"was connected, or tried to, and may return within 5 seconds", NULL},
	[POOL_REFUSES] = {"runs, and is refused: its log says why", "put it right"},
	[POOL_STUCK] = {"makes no progress with its copy", "restart it"},
	[POOL_ALONE] = {"is down or cannot be reached", "start it"},
};

/* Logs each reason once. */
static void tell_delay(struct service *s, enum pool_end end, struct stag_pool_node_info *i,
		       const struct stag_pool_member *other)
{
	struct ending *e = &to_node(s)->ending;
	const struct delay *d = &delays[end];
	char names[512], todo[256] = "";
	unsigned long long values;
	const char *plural;
	unsigned int n;

	if (e->told & 1u << end)
		return;
	e->told |= 1u << end;
	correct_values(s, i);
	values = i->objects;
	plural = values == 1 ? "" : "s";
	n = list_others(i, names, sizeof(names));
	notify("STATUS=pool %s: not stopped: this is the only copy of its values", s->conf->name);
	if (!d->todo) {
		event_add(EVENT_WARN, s->object,
			  "this is the only copy of %llu value%s (node %s %s): not stopped yet; "
			  "SIGTERM again, or SIGINT, stops this node, and the values are lost",
			  values, plural, other ? other->name : names, d->is);
		return;
	}
	if (notify_is_on())
		snprintf(todo, sizeof(todo), "; the service manager waits for %llu minutes",
			 ENDING_EXTEND / NS_PER_S / 60);
	event_add(EVENT_ERR, s->object,
		  "this is the only copy of %llu value%s (node %s %s): not stopped; %s, and this "
		  "node stops when the other one has a copy; or lose the values: send SIGTERM "
		  "again, or SIGINT, or run `stag pool forget %s %s`%s%s",
		  values, plural, other ? other->name : names, d->is, d->todo, s->conf->name,
		  n == 1 ? names : "NODE", n == 1 ? "" : " for each other node", todo);
}

bool pool_delays_end(struct service *s, bool *extend)
{
	struct ending *e = &to_node(s)->ending;
	const struct stag_pool_member *other;
	struct stag_pool_node_info i = {0};
	uint64_t now = clock_ns();
	enum pool_end end;

	if (stag_pool_node_query(to_node(s)->node, &i, sizeof(i)) != 0)
		return false;
	if (i.objects == 0 && ending_is_only_copy(&i))
		correct_values(s, &i);
	end = ending_judge(e, &i, now, &other);
	if (end == POOL_ENDS)
		return false;
	tell_delay(s, end, &i, other);
	*extend |= ending_extends(e, now);
	return true;
}

void pool_tell_loss(struct service *s, const char *cause)
{
	struct stag_pool_node_info i = {0};

	if (stag_pool_node_query(to_node(s)->node, &i, sizeof(i)) != 0 || !ending_is_only_copy(&i))
		return;
	correct_values(s, &i);
	if (i.objects == 0)
		return;
	event_add(i.num_members > 1 ? EVENT_ERR : EVENT_WARN, s->object,
		  "stopped %s: this was the only copy of %llu value%s: lost", cause,
		  (unsigned long long)i.objects, i.objects == 1 ? "" : "s");
}

/* ---- change ------------------------------------------------------------------------ */

static bool is_same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_same_user(const struct stag_pool_user *a, const struct stag_pool_user *b)
{
	if (strcmp(a->name, b->name) != 0 || strcmp(a->secret, b->secret) != 0 ||
	    !is_same_text(a->also, b->also) || a->rights != b->rights ||
	    a->num_prefixes != b->num_prefixes)
		return false;
	for (uint32_t i = 0; i < a->num_prefixes; i++)
		if (strcmp(a->prefixes[i], b->prefixes[i]) != 0)
			return false;
	return true;
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

/* The links of the node stay: it tells the other nodes which secrets it accepts from now on. */
static int change_secret(struct service *s, const struct conf_pool *now, char *why, size_t size)
{
	const struct conf_pool *before = (const struct conf_pool *)s->now;
	int rc;

	if (is_same_text(before->attr.secret, now->attr.secret) &&
	    is_same_text(before->attr.also, now->attr.also))
		return 0;
	rc = stag_pool_node_set_secret(to_node(s)->node, now->attr.secret, now->attr.also);
	if (rc != 0)
		return service_fails(&now->at, now->at.line, why, size, rc, "%s",
				     stag_pool_error());
	event_add(EVENT_INFO, s->object, "the secret of the nodes has changed%s",
		  now->attr.also ? "; two are accepted while it is rotated" : "");
	return 0;
}

static int pool_change(struct service *s, struct conf_section *to, char *why, size_t size)
{
	const struct conf_pool *now = (const struct conf_pool *)to;
	struct node *n = to_node(s);
	int rc = change_secret(s, now, why, size);

	if (rc != 0)
		return rc;
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
	ending_see(&n->ending, &now, clock_ns());
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

	json_object_set_new(o, "tls", json_string(conf_tls_words[p->tls]));
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
	else if (i.role == STAG_POOL_ROLE_REFUSED || i.role == STAG_POOL_ROLE_WAITING)
		printf("%s pool %s as %s: %s\n",
		       i.role == STAG_POOL_ROLE_REFUSED ? "refused to serve" : "waiting to serve",
		       p->at.name, p->node, i.why[0] ? i.why : "the roll does not answer");
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
	.loses = pool_loses,
	.answers = pool_answers,
	.status = pool_status,
	.announce = pool_announce,
};
