// SPDX-License-Identifier: BSD-2-Clause
/*
 * reload.c - SIGHUP: the INI file and the secrets are read again, and who may come in is changed without anybody else noticing.
 *
 * All of it, or nothing: a file with a fault changes nothing. What cannot change while a node runs is told.
 */
#include "stagd.h"

#include <string.h>

#include "base/clock.h"
#include "preload.h"

static const struct conf_pool *find(const struct conf *conf, const char *name)
{
	for (unsigned int i = 0; i < conf->num_pools; i++)
		if (strcmp(conf->pools[i].name, name) == 0)
			return &conf->pools[i];
	return NULL;
}

static void take(struct served *s, const struct conf *conf)
{
	const struct conf_pool *now = find(conf, s->conf->name);
	const char *differs = now ? conf_pool_differs(s->conf, now) : NULL;

	if (!now) {
		complain("pool %s is not in %s any more; it is served until stagd is restarted",
			 s->conf->name, conf->path);
		return;
	}
	if (differs)
		complain("%s:%u: %s counts when stagd is restarted; a standby serves meanwhile",
			 conf->path, now->line, differs);
	if (stag_pool_node_set_users(s->node, now->users, now->attr.num_users) != 0)
		complain("pool %s: %s; its users are what they were", s->conf->name,
			 stag_pool_error());
	else
		complain("pool %s: %u users may come in", s->conf->name, now->attr.num_users);
}

static bool is_served(const struct served *list, unsigned int n, const char *name)
{
	for (unsigned int i = 0; i < n; i++)
		if (strcmp(list[i].conf->name, name) == 0)
			return true;
	return false;
}

void reload(struct served *list, unsigned int n)
{
	struct conf conf;

	notify("RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)clock_ns() / 1000);
	if (conf_read(&conf, list[0].path, stderr) != 0) {
		complain("%s is not good, nothing has changed", list[0].path);
	} else {
		for (unsigned int i = 0; i < n; i++)
			take(&list[i], &conf);
		for (unsigned int i = 0; i < conf.num_pools; i++)
			if (!is_served(list, n, conf.pools[i].name))
				complain("pool %s is new in %s; it is served when stagd is "
					 "restarted",
					 conf.pools[i].name, conf.path);
	}
	conf_free(&conf);
	notify("READY=1");
}
