// SPDX-License-Identifier: BSD-2-Clause
/*
 * top_look.c - one look at all processes with the adapter (app/live), and at the daemons of this user (app/control).
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

static json_t *processes(const struct top_options *o)
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

/* A daemon is asked for by its process, too. */
static void *ask_daemons(void *arg)
{
	struct daemons *d = arg;

	d->said = control_query_each("stagd", d->o->pid, "status");
	return NULL;
}

/* Both at once: who hangs is often both, and is waited for once. */
void top_look(struct top_look *l, const struct top_options *o)
{
	struct daemons d = {.o = o};
	pthread_t thread;
	bool both;

	l->ns = clock_ns();
	both = pthread_create(&thread, NULL, ask_daemons, &d) == 0;
	l->processes = processes(o);
	if (both)
		pthread_join(thread, NULL);
	else
		ask_daemons(&d);
	l->daemons = d.said;
}

void top_forget(struct top_look *l)
{
	json_decref(l->processes);
	json_decref(l->daemons);
	*l = (struct top_look){.ns = 0};
}
