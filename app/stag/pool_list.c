// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_list.c - stag pool list: the pools that this user has on this machine, and their state.
 */
#include "pool_use.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "colour.h"
#include "pool_primary.h"
#include "pool_words.h"
#include "stag.h"
#include "store.h"

struct listed {
	const struct registry *registry;
	const struct registry_node *first;
	bool up;
	struct stag_pool_info info; /* if it is up */
	char why[512];		    /* if it is not */
};

/* Queries a pool. One whose nodes are all down refuses at once. */
static void query_listed(const struct pool_use *u, struct listed *l)
{
	struct stag_pool *pool = NULL;
	struct pool_where w;

	complain_catch(l->why, sizeof(l->why));
	if (pool_use_find_registered(u, l->registry, l->first, &w) && w.nodes[0])
		pool = pool_use_connect(u, &w, 0, 0);
	complain_catch(NULL, 0);
	if (pool)
		l->up = stag_pool_query(pool, &l->info, sizeof(l->info)) == 0;
	if (!l->up && !*l->why)
		snprintf(l->why, sizeof(l->why), "%s",
			 errno == ECONNREFUSED ? "no node is running" : stag_pool_error());
	if (pool)
		stag_pool_close(pool);
}

static bool is_in_pool(const struct listed *l, const struct registry_node *n)
{
	return n < l->registry->list + l->registry->count && registry_is_same_pool(n, l->first);
}

static const char *role_of(const struct listed *l, const char *node)
{
	const struct stag_pool_member *m = l->up ? pool_member(&l->info, node) : NULL;

	return m ? pool_role_word(m->role) : "not running";
}

static json_t *listed_json(const struct listed *l)
{
	const struct stag_pool_member *p = l->up ? pool_primary(&l->info) : NULL;
	json_t *nodes = json_array();

	for (const struct registry_node *n = l->first; is_in_pool(l, n); n++)
		json_array_append_new(nodes, json_pack("{s:s, s:s, s:s}", "name", n->node, "role",
						       role_of(l, n->node), "config", n->ini));
	return json_pack("{s:s, s:b, s:s?, s:s?, s:s, s:o}", "name", l->first->pool, "up",
			 (int)l->up, "why", l->up ? NULL : l->why, "primary", p ? p->name : NULL,
			 "roll", l->first->roll, "nodes", nodes);
}

static void print_listed(const struct listed *l)
{
	const char *separator = l->up ? "" : ": ";

	printf("%-20s %s%s%s%s%s\n", l->first->pool, colour(l->up ? COLOUR_GREEN : COLOUR_RED),
	       l->up ? "up" : "down", colour(COLOUR_NONE), separator, l->up ? "" : l->why);
	for (const struct registry_node *n = l->first; is_in_pool(l, n); n++)
		printf("  %-18s %-12s %s\n", n->node, role_of(l, n->node), n->ini);
}

int pool_use_list(const struct pool_use *u)
{
	json_t *list = u->json ? json_array() : NULL;
	struct listed l = {0};
	struct registry r;

	registry_read(&r);
	if (!list && r.count == 0)
		fputs("no pools on this machine; 'stag pool create' makes one\n", stderr);
	while ((l.first = registry_next_pool(&r, l.first))) {
		l = (struct listed){.registry = &r, .first = l.first};
		query_listed(u, &l);
		if (list)
			json_array_append_new(list, listed_json(&l));
		else
			print_listed(&l);
	}
	if (list)
		store_dump(list);
	registry_free(&r);
	return EXIT_OK;
}
