// SPDX-License-Identifier: BSD-2-Clause
/*
 * top_look.c - queries all processes with the adapter (app/live), and the daemons of this user (app/control).
 */
#include "top.h"

#include <pthread.h>

#include "base/clock.h"
#include "control.h"
#include "live.h"

static bool is_wanted(const json_t *process, const struct top_options *o)
{
	json_int_t uid = json_integer_value(json_object_get(process, "uid"));

	return !o->of_user || (uid_t)uid == o->user;
}

static json_t *query_processes(const struct top_options *o)
{
	json_t *all = live_ask_each(o->pid, "qps");
	size_t i = 0;

	while (i < json_array_size(all))
		if (is_wanted(json_array_get(all, i), o))
			i++;
		else
			json_array_remove(all, i);
	return all;
}

struct daemons {
	const struct top_options *o;
	json_t *said;
};

/* Queries the daemons; --pid applies to them, too. */
static void *query_daemons(void *arg)
{
	struct daemons *d = arg;

	d->said = control_query_each("stagd", d->o->pid, "status");
	return NULL;
}

/* Queries both at once: a daemon that hangs has the adapter, too, so there is one timeout instead of two. */
void top_look(struct top_look *l, const struct top_options *o)
{
	struct daemons d = {.o = o};
	pthread_t thread;
	bool both;

	l->ns = clock_ns();
	both = pthread_create(&thread, NULL, query_daemons, &d) == 0;
	l->processes = query_processes(o);
	if (both)
		pthread_join(thread, NULL);
	else
		query_daemons(&d);
	l->daemons = d.said;
}

void top_forget(struct top_look *l)
{
	json_decref(l->processes);
	json_decref(l->daemons);
	*l = (struct top_look){.ns = 0};
}
