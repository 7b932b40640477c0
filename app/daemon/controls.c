// SPDX-License-Identifier: BSD-2-Clause
/*
 * controls.c - the control sockets that `stag` queries: of a store server, of a target, and of stagd (control.h).
 */
#include "daemon_own.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit_log.h"
#include "base/audit.h"
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

/* Reports an act of `stag` to the audit log. */
static void audit_control(const char *word, int rc, const char *why)
{
	char from[48];
	uid_t uid;
	int pid;

	control_client(&uid, &pid);
	snprintf(from, sizeof(from), "uid %u pid %d", uid, pid);
	audit_report(&(struct stag_audit_record){
		.room = "daemon",
		.object = "control socket",
		.action = word,
		.from = from,
		.flags = STAG_AUDIT_ADMINISTRATION,
		.outcome = rc == 0 ? STAG_AUDIT_ALLOWED : STAG_AUDIT_FAILED,
		.reason = rc == 0 ? NULL : why});
}

/* Answers "token create NAME ROLE" and "token revoke NAME". */
static json_t *answer_token(struct daemon *d, const char *word)
{
	char name[NAME_LEN] = "", role_text[16] = "", text[TOKEN_ROOM] = "", why[512] = "";
	enum role role;
	json_t *o;
	int rc;

	if (sscanf(word, "token create %63s %15s", name, role_text) == 2 &&
	    role_parse(role_text, &role))
		rc = daemon_token_create(d, name, role, text, why, sizeof(why));
	else if (sscanf(word, "token revoke %63s", name) == 1)
		rc = daemon_token_revoke(d, name, why, sizeof(why));
	else
		return json_pack("{s:s}", "error", "unknown request");
	audit_control(word, rc, why);
	if (rc != 0)
		return json_pack("{s:s}", "error", why);
	o = *text ? json_pack("{s:s s:s s:s}", "name", name, "role", role_text, "token", text)
		  : json_pack("{s:s}", "revoked", name);
	explicit_bzero(text, sizeof(text));
	return o;
}

/* Answers "reload", as SIGHUP, with its result. */
static json_t *answer_reload(struct daemon *d)
{
	char why[4096] = "";
	int rc = daemon_reload(d, why, sizeof(why));

	audit_control("reload", rc, why);
	return rc == 0 ? json_pack("{s:b}", "reloaded", true) : json_pack("{s:s}", "error", why);
}

static json_t *answer_stagd(void *arg, const char *word)
{
	unsigned long long limit;

	if (strcmp(word, "events") == 0)
		return events_since(0, 0);
	if (strcmp(word, "tokens") == 0)
		return json_pack("{s:o}", "tokens", daemon_tokens(arg));
	if (sscanf(word, "audit %llu", &limit) == 1)
		return json_pack("{s:o s:o}", "log", audit_log_status(), "records",
				 audit_log_since(0, limit));
	if (strcmp(word, "reload") == 0)
		return answer_reload(arg);
	if (strncmp(word, "token ", 6) == 0)
		return answer_token(arg, word);
	return daemon_status(arg);
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
