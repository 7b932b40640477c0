// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_control.c - stag block serve: answers queries about a running target.
 */
#include "block_control.h"

#include <string.h>
#include <unistd.h>

#include "stag.h"

static json_t *answer_query(void *arg, const char *word)
{
	const struct block_control *c = arg;
	struct stag_block_counters counters;
	json_t *o = json_pack("{s:s s:i s:i}", "name", c->name, "port",
			      (int)stag_block_target_port(c->target), "pid", (int)getpid());

	if (strcmp(word, "stags") == 0) {
		json_object_set_new(o, "stags", block_stags_json(c->target));
	} else if (stag_block_target_query(c->target, &counters, sizeof(counters)) == 0) {
		json_object_set_new(o, "counters", block_counters_json(&counters));
		json_object_set_new(o, "sessions", block_sessions_json(c->target));
	}
	return o;
}

void block_control_open(struct block_control *c, struct stag_block_target *target, const char *name)
{
	c->target = target;
	c->name = name;
	if (control_open(&c->control, BLOCK_KIND, answer_query, c) != 0)
		complain("'stag block sessions' will not find this target: the run directory "
			 "cannot be used");
}
