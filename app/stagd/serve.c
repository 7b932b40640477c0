// SPDX-License-Identifier: BSD-2-Clause
/*
 * serve.c - the nodes of stagd: started all or none, watched, stopped in order.
 *
 * A node makes a pool only if it has never been of one: its state directory knows. So whoever loses the roll, or names another
 * by mistake, does not find an empty pool in the place of the old one.
 */
#include "stagd.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "pool/state.h"
#include "preload.h"

#define LOOK_MS 1000 /* how often the nodes are asked how they are */
#define HAND_MS 2000 /* how long a primary has to hand over */

static const char *const role_words[] = {"unknown", "primary", "standby",
					 "joining", "waiting", "refused"};

static const char *role_word(uint32_t role)
{
	return role < sizeof(role_words) / sizeof(role_words[0]) ? role_words[role] : "unknown";
}

/* ---- start ------------------------------------------------------------------------ */

static void log_line(void *arg, const char *line)
{
	const struct conf_pool *p = arg;

	fprintf(stderr, "stagd: pool %s, node %s: %s\n", p->name, p->node, line);
}

static bool has_been_of_a_pool(const struct conf_pool *p)
{
	CLEANUP_CLOSE int dir = open(p->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct pool_state state;
	int rc;

	if (dir < 0)
		return errno != ENOENT;
	rc = state_load(dir, &state);
	return rc == 0 ? state.epoch > 0 : rc != -ENOENT;
}

/* What the user can do about it. */
static const char *advice(const struct conf_pool *p, int error)
{
	switch (error) {
	case ENOENT:
		return p->create ? "; this node was in a pool that is not there any more: see LOST "
				   "in stagd(8)"
				 : "; one node makes the pool: create = yes, size = ...";
	case ENOTRECOVERABLE:
		return "; the only copy was in this node's memory: see LOST in stagd(8)";
	case EADDRINUSE:
		return "; another port, or another memory, is set in its section";
	case EBUSY:
		return "; does another stagd run with this state directory?";
	default:
		return "";
	}
}

static bool start(struct served *s)
{
	struct conf_pool *p = s->conf;
	struct stag_pool_node_attr attr = p->attr;
	int error;

	attr.log = log_line;
	attr.log_arg = p;
	if (p->create && !has_been_of_a_pool(p))
		attr.flags |= STAG_POOL_CREATE;
	s->node = stag_pool_node_start(&attr);
	if (!s->node && errno == EEXIST && attr.flags & STAG_POOL_CREATE) {
		attr.flags &= ~(uint32_t)STAG_POOL_CREATE;
		s->node = stag_pool_node_start(&attr);
	}
	if (s->node)
		return true;
	error = errno;
	complain("%s:%u: %s%s", s->path, p->line, stag_pool_error(), advice(p, error));
	return false;
}

static bool is_primary(struct stag_pool_node *node)
{
	struct stag_pool_node_info info = {0};

	return stag_pool_node_query(node, &info, sizeof(info)) == 0 &&
	       info.role == STAG_POOL_ROLE_PRIMARY;
}

/* So that clients go on elsewhere at once, and nobody has to find out that we are gone. */
static void hand_over(struct stag_pool_node *node)
{
	const struct timespec nap = {.tv_nsec = 2 * NS_PER_MS};
	uint64_t until = clock_ns() + HAND_MS * NS_PER_MS;

	if (!is_primary(node) || stag_pool_node_switchover(node, NULL) != 0)
		return;
	while (is_primary(node) && clock_ns() < until)
		nanosleep(&nap, NULL);
}

static void stop_all(struct served *list, unsigned int n)
{
	while (n-- > 0) {
		hand_over(list[n].node);
		stag_pool_node_stop(list[n].node);
	}
}

static bool start_all(struct served *list, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (!start(&list[i])) {
			stop_all(list, i);
			return false;
		}
	return true;
}

/* ---- say so ------------------------------------------------------------------------- */

static void announce_json(const struct served *list, unsigned int n)
{
	json_t *all = json_array();

	for (unsigned int i = 0; i < n; i++)
		json_array_append_new(
			all, json_pack("{s:s, s:s, s:i, s:s}", "pool", list[i].conf->name, "node",
				       list[i].conf->node, "port", (int)list[i].info.port, "role",
				       role_word(list[i].info.role)));
	json_dumpf(all, stdout, JSON_COMPACT);
	puts("");
	json_decref(all);
}

static void announce(struct served *list, unsigned int n, bool json)
{
	if (json)
		announce_json(list, n);
	for (unsigned int i = 0; i < n && !json; i++)
		printf("serving pool %s as %s on port %u\n", list[i].conf->name, list[i].conf->node,
		       list[i].info.port);
	fflush(stdout);
}

/* True if each of them answered. */
static bool look(struct served *list, unsigned int n, bool first)
{
	bool good = true;

	for (unsigned int i = 0; i < n; i++) {
		struct stag_pool_node_info now = {0};

		if (stag_pool_node_query(list[i].node, &now, sizeof(now)) != 0) {
			good = false;
			continue;
		}
		if (first || now.role != list[i].info.role || now.epoch != list[i].info.epoch)
			notify("STATUS=pool %s: %s of epoch %llu%s%s", list[i].conf->name,
			       role_word(now.role), (unsigned long long)now.epoch,
			       now.why[0] ? ": " : "", now.why);
		list[i].info = now;
	}
	return good;
}

/* ---- until told to stop ----------------------------------------------------------------- */

static void signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
}

/* None of them will serve, whatever happens: nobody is to think that something is served here. */
static bool have_all_refused(const struct served *list, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (list[i].info.role != STAG_POOL_ROLE_REFUSED)
			return false;
	for (unsigned int i = 0; i < n; i++)
		complain("%s:%u: pool %s: %s; see REFUSED in stagd(8)", list[i].path,
			 list[i].conf->line, list[i].conf->name, list[i].info.why);
	return true;
}

/* An exit code. */
static int wait_for_the_end(struct served *list, unsigned int n, const sigset_t *set)
{
	uint64_t watchdog = notify_watchdog_ms();
	uint64_t ms = watchdog && watchdog < LOOK_MS ? watchdog : LOOK_MS;
	struct timespec period = {.tv_sec = (time_t)(ms / 1000),
				  .tv_nsec = (long)(ms % 1000 * NS_PER_MS)};

	for (;;) {
		int sig = sigtimedwait(set, NULL, &period);

		if (sig == SIGINT || sig == SIGTERM)
			return EXIT_SUCCESS;
		if (sig == SIGHUP)
			reload(list, n);
		if (look(list, n, false) && watchdog)
			notify("WATCHDOG=1");
		if (have_all_refused(list, n))
			return EXIT_FAILURE;
	}
}

/* A client is a socket: as many as the system lets us have. */
static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static int serve_all(struct served *list, unsigned int n, bool json)
{
	sigset_t set;
	int rc;

	signals(&set); /* before there are threads: theirs, too */
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise_limit();
	if (!start_all(list, n))
		return EXIT_FAILURE;
	look(list, n, true);
	announce(list, n, json);
	notify("READY=1");
	rc = wait_for_the_end(list, n, &set);
	notify("STOPPING=1");
	stop_all(list, n);
	return rc;
}

int serve(struct conf *conf, bool json)
{
	struct served *list = calloc(conf->num_pools, sizeof(*list));
	int rc;

	if (!list) {
		complain("no memory");
		return EXIT_FAILURE;
	}
	for (unsigned int i = 0; i < conf->num_pools; i++)
		list[i] = (struct served){.path = conf->path, .conf = &conf->pools[i]};
	rc = serve_all(list, conf->num_pools, json);
	free(list);
	return rc;
}
