// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_live.c - processes of this machine that have the adapter, as they tell of themselves: this user's, or for root all.
 */
#include "handle.h"

#include <stdlib.h>
#include <string.h>

#include "live.h"

/* Without what the lists of their own are for. */
void handle_processes(struct request *r)
{
	answer_json(r, 200, json_pack("{s:o}", "processes", live_ask_all("counters")));
}

void handle_process(struct request *r)
{
	char *end;
	long pid = strtol(param(r, 0), &end, 10);
	json_t *o = NULL;

	if (*param(r, 0) >= '1' && *param(r, 0) <= '9' && !*end && pid <= INT32_MAX)
		o = live_ask((int)pid, "all");
	if (o)
		answer_json(r, 200, o);
	else
		answer_none(r, "process", param(r, 0));
}

/* The lists of all processes as one, each entry with whose it is. */
static void answer_joined(struct request *r, const char *word, const char *from, const char *name)
{
	json_t *all = live_ask_all(word), *list = json_array(), *process, *o;
	size_t i, j;

	json_array_foreach(all, i, process) json_array_foreach(json_object_get(process, from), j, o)
	{
		if (!json_is_object(o))
			continue;
		json_object_set(o, "pid", json_object_get(process, "pid"));
		json_object_set(o, "program", json_object_get(process, "program"));
		json_array_append(list, o);
	}
	json_decref(all);
	answer_json(r, 200, json_pack("{s:o}", name, list));
}

void handle_connections(struct request *r)
{
	answer_joined(r, "qps", "qps", "connections");
}

void handle_regions(struct request *r)
{
	answer_joined(r, "regions", "regions", "regions");
}
