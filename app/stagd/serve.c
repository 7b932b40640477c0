// SPDX-License-Identifier: BSD-2-Clause
/*
 * serve.c - runs the daemon: privileges, signals, watchdog, reloads (serve.h).
 */
#include "serve.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "audit_log.h"
#include "base/clock.h"
#include "complain.h"
#include "daemon_own.h"
#include "last_run.h"
#include "library.h"
#include "notify.h"
#include "privileges.h"

#define POLL_MS	   1000 /* interval at which services are checked */
#define LIMIT_ROOT 65536
#define ENDING_MS  50 /* the same after a SIGTERM that was refused, or waits for a copy */

/* ---- announcement ------------------------------------------------------------------------- */

/* Announces the port that the API listens on, which differs from the setting if that is 0. */
static void announce_api(struct daemon *d, json_t *list)
{
	json_t *status = daemon_api_status(d);
	const char *listen = json_string_value(json_object_get(status, "listen"));
	const char *socket = json_string_value(json_object_get(status, "socket"));
	int port = (int)json_integer_value(json_object_get(status, "port"));
	const char *token = json_string_value(json_object_get(status, "token_file"));
	const char *colon = listen ? strrchr(listen, ':') : NULL;
	const char *tls = json_string_value(json_object_get(status, "tls"));
	bool is_tls = tls && strcmp(tls, "off") != 0;
	char where[128] = "";

	if (colon)
		snprintf(where, sizeof(where), "%.*s:%d", (int)(colon - listen), listen, port);
	if (list && json_is_object(status))
		json_array_append_new(
			list, json_pack("{s:s?, s:s?, s:s?}", "api", colon ? where : NULL, "socket",
					socket, "token_file", token));
	if (!list && colon)
		printf("console and API on %s://%s/\n", is_tls ? "https" : "http", where);
	if (!list && colon && token)
		printf("its token is in %s\n", token);
	if (!list && socket)
		printf("API on %s\n", socket);
	json_decref(status);
}

static void announce_services(struct daemon *d, bool json)
{
	json_t *list = json ? json_array() : NULL;
	unsigned int n;
	struct service **all = daemon_get_all(d, &n);

	for (unsigned int i = 0; i < n; i++) {
		all[i]->kind->announce(all[i], list);
		daemon_put(all[i]);
	}
	free(all);
	announce_api(d, list);
	if (json) {
		json_dumpf(list, stdout, JSON_COMPACT);
		puts("");
		json_decref(list);
	}
	fflush(stdout);
}

/* ---- main loop ----------------------------------------------------------------- */

/* Returns whether all services respond. */
static bool poll_services(struct daemon *d)
{
	bool good = true;
	unsigned int n;
	struct service **all = daemon_get_all(d, &n);

	for (unsigned int i = 0; i < n; i++) {
		good &= all[i]->kind->answers(all[i]);
		daemon_put(all[i]);
	}
	free(all);
	return all && good;
}

/*
 * Returns whether all services are nodes that have refused for good. Then stagd exits, so that nobody believes that something is
 * served here.
 */
static bool have_all_refused(struct daemon *d)
{
	unsigned int n, refused = 0;
	struct service **all = daemon_get_all(d, &n);

	for (unsigned int i = 0; i < n; i++)
		refused += all[i]->kind == &pool_service && pool_has_refused(all[i]);
	for (unsigned int i = 0; i < n; i++) {
		if (refused == n)
			event_add(EVENT_ERR, all[i]->object, "%s:%u: see REFUSED in stagd(8)",
				  all[i]->conf->path, all[i]->conf->line);
		daemon_put(all[i]);
	}
	free(all);
	return n > 0 && refused == n;
}

/*
 * Returns whether the daemon, which was told to stop, may not: a node has the only copy. A service manager kills a daemon that it
 * does not wait for any longer; before that, the daemon stops by itself. *cause: why it stops.
 */
static bool keeps_only_copy(struct daemon *d, const char **cause)
{
	bool keeps = false, extend = false;
	unsigned int n;
	struct service **all = daemon_get_all(d, &n);

	for (unsigned int i = 0; i < n; i++) {
		if (all[i]->kind == &pool_service)
			keeps |= pool_delays_end(all[i], &extend);
		daemon_put(all[i]);
	}
	free(all);
	if (keeps && !extend && notify_is_on()) {
		*cause = "because the service manager does not wait any longer";
		return false;
	}
	if (keeps)
		notify("EXTEND_TIMEOUT_USEC=5000000");
	return keeps;
}

static void tell_losses(struct daemon *d, const char *cause)
{
	unsigned int n;
	struct service **all = daemon_get_all(d, &n);

	for (unsigned int i = 0; i < n; i++) {
		if (all[i]->kind == &pool_service)
			pool_tell_loss(all[i], cause);
		daemon_put(all[i]);
	}
	free(all);
}

/* Reloads in a thread of its own: a reload may take long, and the watchdog must be fed meanwhile. */
struct reloader {
	struct daemon *daemon;
	pthread_t thread;
	sem_t told;
	bool ends, runs;
};

static void *reload_when_told(void *arg)
{
	struct reloader *r = arg;

	for (;;) {
		while (sem_wait(&r->told) != 0)
			;
		if (__atomic_load_n(&r->ends, __ATOMIC_ACQUIRE))
			return NULL;
		notify("RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)clock_ns() / 1000);
		daemon_reload(r->daemon, NULL, 0);
		notify("READY=1");
	}
}

static bool reloader_start(struct reloader *r, struct daemon *d)
{
	*r = (struct reloader){.daemon = d};
	sem_init(&r->told, 0, 0);
	r->runs = pthread_create(&r->thread, NULL, reload_when_told, r) == 0;
	if (!r->runs)
		event_add(EVENT_ERR, "daemon", "cannot start a thread; nothing is served");
	return r->runs;
}

static void reloader_stop(struct reloader *r)
{
	if (!r->runs)
		return;
	__atomic_store_n(&r->ends, true, __ATOMIC_RELEASE);
	sem_post(&r->told);
	pthread_join(r->thread, NULL);
	sem_destroy(&r->told);
}

/* Returns whether the daemon is to end. *asked: a SIGTERM came before. */
static bool ends(struct daemon *d, int sig, bool *asked)
{
	bool again = sig == SIGTERM && *asked;
	const char *cause = sig == SIGINT ? "by SIGINT"
			    : again	  ? "by a second SIGTERM"
					  : "by SIGTERM";

	*asked |= sig == SIGTERM;
	if (sig != SIGINT && !again && (!*asked || keeps_only_copy(d, &cause)))
		return false;
	tell_losses(d, cause);
	return true;
}

/* Returns the exit code. */
static int wait_for_signals(struct daemon *d, struct reloader *r, const sigset_t *set)
{
	uint64_t watchdog = notify_watchdog_ms();
	uint64_t ms = watchdog && watchdog < POLL_MS ? watchdog : POLL_MS;
	struct timespec period = {.tv_sec = (time_t)(ms / 1000),
				  .tv_nsec = (long)(ms % 1000 * NS_PER_MS)};
	const struct timespec soon = {.tv_nsec = ENDING_MS * NS_PER_MS};
	bool asked = false; /* to end, which a node with the only copy does not */

	for (;;) {
		int sig = sigtimedwait(set, NULL, asked ? &soon : &period);

		if (ends(d, sig, &asked))
			return EXIT_SUCCESS;
		if (sig == SIGHUP)
			sem_post(&r->told);
		events_tell_left_out();
		if (poll_services(d) && watchdog)
			notify("WATCHDOG=1");
		if (have_all_refused(d))
			return EXIT_FAILURE;
	}
}

/* ---- start ------------------------------------------------------------------------------- */

static void block_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	sigprocmask(SIG_BLOCK, set,
		    NULL); /* before the first thread, so that all threads inherit it */
	signal(SIGPIPE, SIG_IGN);
}

/* Raises the limit of open files: each client needs a socket. */
static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	if (geteuid() == 0 && limit.rlim_max < LIMIT_ROOT)
		limit.rlim_max = LIMIT_ROOT;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void complain_as_event(const char *text)
{
	event_add(EVENT_WARN, "daemon", "%s", text);
}

/* Reads the user and the log from [daemon], and switches to that user, before any other file is opened. */
static bool prepare_process(struct conf *conf, const char *config)
{
	char why[512];

	if (conf_read_as(conf, config, NULL, CONF_TEXT_ONLY | CONF_NO_DROPINS, NULL) != 0 &&
	    !conf->daemon)
		return true; /* daemon_start() reads the file again, and reports the fault */
	event_log_to((enum event_log)conf->daemon->log, (enum event_level)conf->daemon->log_level);
	complain_to = complain_as_event;
	raise_limit();
	if (privileges_drop(conf, why, sizeof(why)) != 0) {
		event_add(EVENT_ERR, "daemon", "%s", why);
		return false;
	}
	return true;
}

static bool has_dropped_root(const struct conf *conf)
{
	if (!conf->daemon || privileges_are_dropped(conf))
		return true;
	event_add(EVENT_ERR, "daemon", "a thread still has root's privileges; nothing is served");
	return false;
}

/* Says why it ends, for 'stag doctor'. */
static void record_end(int rc)
{
	char *error = rc == EXIT_SUCCESS ? NULL : events_last_error();

	last_run_end(rc == EXIT_SUCCESS ? NULL : error ? error : "see its log");
	free(error);
}

int serve(const char *config, const struct daemon_api *api, bool json)
{
	struct reloader r = {.runs = false};
	struct daemon *d = NULL;
	int rc = EXIT_FAILURE;
	struct conf conf;
	sigset_t set;

	block_signals(&set);
	if (prepare_process(&conf, config)) {
		last_run_begin(config);
		library_begin();
		audit_log_start();
		d = daemon_start(config, api);
	}
	if (d && has_dropped_root(&conf) && reloader_start(&r, d)) {
		poll_services(d);
		announce_services(d, json);
		notify("READY=1");
		rc = wait_for_signals(d, &r, &set);
		notify("STOPPING=1");
	}
	reloader_stop(&r);
	if (d)
		daemon_stop(d);
	audit_log_stop();
	library_end();
	record_end(rc);
	conf_free(&conf);
	return rc;
}
