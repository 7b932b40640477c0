// SPDX-License-Identifier: BSD-2-Clause
/*
 * live.c - queries the adapters of this machine's processes (live.h).
 *
 * All processes are queried at once (query.h), with a timeout of a second. Any process may listen at any abstract name:
 * so the answer must come from the process and the user in the name.
 */
#include "live.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "query.h"
#include "base/clock.h"

#define PATIENCE_NS   NS_PER_S
#define COUNTERS_MOST (256u << 10) /* bytes of a response: of the counters, */
#define DETAILS_MOST  (8u << 20)   /* and of the lists of queue pairs and regions */
#define ALL_MOST      (32u << 20)  /* of all processes together */
#define IS_LISTENING  0x10000	   /* a flag of /proc/net/unix */

static bool all_users = true;

void live_query_all_users(bool all)
{
	all_users = all;
}

/* ---- processes ---- */

static bool is_known(const struct queries *all, int pid, unsigned int uid)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->list[i].pid == pid && all->list[i].uid == uid)
			return true;
	return false;
}

static void add_query(struct queries *all, int pid, unsigned int uid)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int n = snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1, "stag-live/%u/%d", uid, pid);

	if (!is_known(all, pid, uid))
		queries_add(all, &to,
			    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n),
			    pid, uid);
}

/* A process answers its own user and root. What another user's process says is a stranger's text, which costs time to parse. */
static bool may_query(unsigned int uid)
{
	return uid == geteuid() || (geteuid() == 0 && all_users);
}

/* Finds the processes that this user may query. pid: only that one; 0: all. */
static void find_processes(struct queries *all, int pid)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		unsigned int flags, uid;
		int number, end = 0;

		if (sscanf(line, "%*s %*s %*s %x %*s %*s %*s @stag-live/%u/%d%n", &flags, &uid,
			   &number, &end) != 3 ||
		    line[end] != '\n' || number <= 0)
			continue;
		if ((flags & IS_LISTENING) && (!pid || pid == number) && may_query(uid))
			add_query(all, number, uid);
	}
	if (f)
		fclose(f);
}

/* ---- answers ---- */

/* Parses an answer. The user is set from the socket's credentials. Returns NULL if the answer is malformed. */
static json_t *read_answer(const struct query *a)
{
	json_t *o = query_json(a);

	if (json_is_object(o) && json_is_string(json_object_get(o, "program")) &&
	    json_integer_value(json_object_get(o, "pid")) == a->pid) {
		json_object_set_new(o, "uid", json_integer(a->uid));
		return o;
	}
	json_decref(o);
	return NULL;
}

static int by_pid(const void *a, const void *b)
{
	const struct query *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

static void run_queries(struct queries *all, const char *word)
{
	char line[32];

	snprintf(line, sizeof(line), "%s\n", word);
	all->most = strcmp(word, "counters") == 0 ? COUNTERS_MOST : DETAILS_MOST;
	all->budget = ALL_MOST;
	if (all->n)
		qsort(all->list, all->n, sizeof(*all->list), by_pid);
	queries_run(all, line, PATIENCE_NS);
}

/*
 * Describes a process that does not answer. Returns NULL if it has ended, or another user listens at its name. The files of
 * a process in /proc belong to root after it has changed its user.
 */
static json_t *describe_silent(const struct query *a)
{
	char path[32], name[32] = "";
	struct stat st;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", a->pid);
	f = a->error == ETIMEDOUT ? fopen(path, "re") : NULL;
	if (!f)
		return NULL;
	if (fstat(fileno(f), &st) != 0 || (st.st_uid != a->uid && st.st_uid != 0) ||
	    !fgets(name, sizeof(name), f))
		*name = '\0';
	fclose(f);
	name[strcspn(name, "\n")] = '\0';
	for (char *p = name; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?'; /* JSON needs UTF-8; the name may have any bytes */
	return *name ? json_pack("{s:i s:I s:s s:b}", "pid", a->pid, "uid", (json_int_t)a->uid,
				 "program", name, "answers", false)
		     : NULL;
}

static json_t *query_all(int pid, const char *word, bool and_silent)
{
	json_t *list = json_array(), *o;
	struct queries all = {.n = 0};

	find_processes(&all, pid);
	run_queries(&all, word);
	for (size_t i = 0; i < all.n; i++) {
		o = read_answer(&all.list[i]);
		if (!o && and_silent)
			o = describe_silent(&all.list[i]);
		if (o)
			json_array_append_new(list, o);
	}
	queries_free(&all);
	return list;
}

json_t *live_ask_all(const char *word)
{
	return query_all(0, word, false);
}

json_t *live_ask_each(int pid, const char *word)
{
	return query_all(pid, word, true);
}

static int errno_of(int error)
{
	return error == ETIMEDOUT || error == EPROTO || error == ENOMEM ? error : ESRCH;
}

/* Another process may listen at its name, or it may have changed its user: takes the first valid answer. */
json_t *live_ask(int pid, const char *word)
{
	struct queries all = {.n = 0};
	int error = ESRCH;
	json_t *o = NULL;

	find_processes(&all, pid);
	run_queries(&all, word);
	for (size_t i = 0; i < all.n && !o; i++) {
		o = read_answer(&all.list[i]);
		error = all.list[i].error ? errno_of(all.list[i].error) : EPROTO;
	}
	queries_free(&all);
	if (!o)
		errno = error;
	return o;
}
