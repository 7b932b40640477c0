// SPDX-License-Identifier: BSD-2-Clause
/*
 * controls.c - the control sockets that `stag` queries: of a store server, of a target, and of stagd (control.h).
 */
#include "daemon_own.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "block_words.h"
#include "store_words.h"

/* ---- answers ------------------------------------------------------------------------------ */

/* Answers "counters UUID". */
static json_t *answer_store(void *arg, const char *word)
{
	const char *uuid = strchr(word, ' ');
	json_t *found = NULL;
	unsigned int n;
	struct service **all = daemon_get_all(arg, &n);

	for (unsigned int i = 0; i < n; i++) {
		if (!found && all[i]->kind == &store_service &&
		    (!uuid || store_service_has_uuid(all[i], uuid + 1)))
			found = store_service_counters(all[i]);
		daemon_put(all[i]);
	}
	free(all);
	return found ? found : json_object();
}

static json_t *answer_block(void *arg, const char *word)
{
	json_t *list = json_array();
	unsigned int n;
	struct service **all = daemon_get_all(arg, &n);

	for (unsigned int i = 0; i < n; i++) {
		if (all[i]->kind == &target_service)
			json_array_append_new(list, target_service_answer(all[i], word));
		daemon_put(all[i]);
	}
	free(all);
	return list;
}

static json_t *answer_stagd(void *arg, const char *word)
{
	return strcmp(word, "events") == 0 ? events_since(0, 0) : daemon_status(arg);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void *controls_thread(void *arg)
{
	struct controls *c = arg;
	const struct control *all[] = {&c->store, &c->block, &c->stagd};
	struct pollfd fds[4] = {{.fd = c->ends[0], .events = POLLIN}};

	for (unsigned int i = 0; i < 3; i++)
		fds[i + 1] = (struct pollfd){.fd = all[i]->fd, .events = POLLIN};
	for (;;) {
		poll(fds, 4, -1);
		if (fds[0].revents)
			return NULL;
		for (unsigned int i = 0; i < 3; i++)
			if (fds[i + 1].revents)
				control_attend(all[i]);
	}
}

void controls_open(struct daemon *d)
{
	struct controls *c = &d->controls;
	const char *dir = ((const struct conf_daemon *)d->conf)->control;

	if (!dir) /* systemd sets it for RuntimeDirectory= */
		dir = getenv("RUNTIME_DIRECTORY");

	if (control_open_in(&c->store, dir, STORE_KIND, answer_store, d) != 0 ||
	    control_open_in(&c->block, dir, BLOCK_KIND, answer_block, d) != 0 ||
	    control_open_in(&c->stagd, dir, STAGD_KIND, answer_stagd, d) != 0 ||
	    pipe2(c->ends, O_CLOEXEC) != 0)
		event_add(EVENT_WARN, "daemon",
			  "cannot create the control sockets, so 'stag' cannot query this daemon; "
			  "set control = DIRECTORY in [daemon]");
	else
		c->runs = pthread_create(&c->thread, NULL, controls_thread, c) == 0;
}

void controls_close(struct daemon *d)
{
	struct controls *c = &d->controls;

	if (c->runs) {
		close(c->ends[1]);
		pthread_join(c->thread, NULL);
		close(c->ends[0]);
	}
	control_close(&c->store);
	control_close(&c->block);
	control_close(&c->stagd);
}
