// SPDX-License-Identifier: BSD-2-Clause
/*
 * live.c - see live.h.
 *
 * All are asked at once (query.h), and given a second. Anybody may listen at anybody's name: so who answers has to be the process, and the
 * user, that the name says.
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

#define PATIENCE_NS  NS_PER_S
#define IS_LISTENING 0x10000 /* among the flags of /proc/net/unix */

/* ---- who there is ---- */

static bool is_known(const struct queries *all, int pid, unsigned int uid)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->list[i].pid == pid && all->list[i].uid == uid)
			return true;
	return false;
}

static void add_ask(struct queries *all, int pid, unsigned int uid)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int n = snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1, "stag-live/%u/%d", uid, pid);

	if (!is_known(all, pid, uid))
		queries_add(all, &to,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n), pid,
			 uid);
}

/* Those that this user may look at; pid: that one alone, or 0. */
static void find(struct queries *all, int pid)
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
		if ((flags & IS_LISTENING) && (!pid || pid == number) &&
		    (geteuid() == 0 || uid == geteuid()))
			add_ask(all, number, uid);
	}
	if (f)
		fclose(f);
}

/* ---- what they say ---- */

/* The user is who the kernel says that it is. NULL: it makes no sense. */
static json_t *read_answer(const struct query *a)
{
	json_t *o = a->error ? NULL : json_loadb(a->text, a->length, 0, NULL);

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

static void run(struct queries *all, const char *word)
{
	char line[32];

	snprintf(line, sizeof(line), "%s\n", word);
	if (all->n)
		qsort(all->list, all->n, sizeof(*all->list), by_pid);
	queries_run(all, line, PATIENCE_NS);
}

/*
 * What the system knows of who says nothing. NULL: it is gone, or somebody else has taken its name. What a process that has changed
 * its user has in /proc is root's.
 */
static json_t *tell_silent(const struct query *a)
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
			*p = '?'; /* JSON is UTF-8; this is anything */
	return *name ? json_pack("{s:i s:I s:s s:b}", "pid", a->pid, "uid", (json_int_t)a->uid,
				 "program", name, "answers", false)
		     : NULL;
}

static json_t *ask_all(int pid, const char *word, bool and_silent)
{
	json_t *list = json_array(), *o;
	struct queries all = {.n = 0};

	find(&all, pid);
	run(&all, word);
	for (size_t i = 0; i < all.n; i++) {
		o = read_answer(&all.list[i]);
		if (!o && and_silent)
			o = tell_silent(&all.list[i]);
		if (o)
			json_array_append_new(list, o);
	}
	queries_free(&all);
	return list;
}

json_t *live_ask_all(const char *word)
{
	return ask_all(0, word, false);
}

json_t *live_ask_each(int pid, const char *word)
{
	return ask_all(pid, word, true);
}

static int meaning_of(int error)
{
	return error == ETIMEDOUT || error == EPROTO || error == ENOMEM ? error : ESRCH;
}

/* Somebody else may have taken its name, or it may have changed its user: the first that makes sense. */
json_t *live_ask(int pid, const char *word)
{
	struct queries all = {.n = 0};
	int error = ESRCH;
	json_t *o = NULL;

	find(&all, pid);
	run(&all, word);
	for (size_t i = 0; i < all.n && !o; i++) {
		o = read_answer(&all.list[i]);
		error = all.list[i].error ? meaning_of(all.list[i].error) : EPROTO;
	}
	queries_free(&all);
	if (!o)
		errno = error;
	return o;
}
