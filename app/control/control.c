// SPDX-License-Identifier: BSD-2-Clause
/*
 * control.c - control sockets, both sides (control.h).
 */
#include "control.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "query.h"
#include "base/cleanup.h"
#include "base/clock.h"

#define CLIENT_S      2	  /* timeout of a client */
#define RETRY_MS      100 /* after accept() ran out of descriptors or memory */
#define QUERY_ONE_NS  (5 * NS_PER_S)
#define ORDER_NS      (300 * NS_PER_S) /* it may wait for a reload that starts services */
#define QUERY_ALL_NS  (2 * NS_PER_S)
#define QUERY_EACH_NS NS_PER_S

/* ---- directories ---------------------------------------------------------------------------- */

/* Returns whether it is a directory that only this user can access. */
static bool is_private_directory(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       (st.st_mode & 077) == 0;
}

/* Creates this user's directory: $XDG_RUNTIME_DIR/stag, or /tmp/stag-UID. */
static bool run_dir(char *path, size_t size)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	int n = dir && *dir == '/' ? snprintf(path, size, "%s/stag", dir)
				   : snprintf(path, size, "/tmp/stag-%u", geteuid());

	if (n < 0 || (size_t)n >= size)
		return false;
	return (mkdir(path, 0700) == 0 || errno == EEXIST) && is_private_directory(path);
}

static bool address_in(struct sockaddr_un *a, const char *dir, const char *kind, int pid)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	return snprintf(a->sun_path, sizeof(a->sun_path), "%s/%s-%d", dir, kind, pid) <
	       (int)sizeof(a->sun_path);
}

/* ---- servers ------------------------------------------------------------------------ */

static void send_all(int fd, const char *text)
{
	size_t left = text ? strlen(text) : 0;

	while (left) {
		ssize_t n = send(fd, text, left, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		text += n;
		left -= (size_t)n;
	}
}

static __thread struct ucred client;

void control_client(uid_t *uid, int *pid)
{
	*uid = client.uid;
	*pid = client.pid;
}

/* A client that cannot be accepted keeps the socket readable: without a pause the caller's loop would spin. */
static void pause_in_shortage(int error)
{
	if (error != EAGAIN && error != EINTR && error != ECONNABORTED)
		poll(NULL, 0, RETRY_MS);
}

void control_attend(const struct control *c)
{
	socklen_t size = sizeof(client);
	const struct timeval timeout = {.tv_sec = CLIENT_S};
	CLEANUP_CLOSE int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
	CLEANUP_FREE char *text = NULL;
	char word[CONTROL_WORD_MAX] = "";
	json_t *o;

	if (fd < 0) {
		pause_in_shortage(errno);
		return;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	if (recv(fd, word, sizeof(word) - 1, 0) <= 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &client, &size) != 0)
		return;
	o = c->answer(c->arg, word);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	send_all(fd, text);
	if (text) /* it may hold a token */
		explicit_bzero(text, strlen(text));
}

static int listen_in(struct control *c, const char *dir, const char *kind)
{
	struct sockaddr_un a;

	if (!address_in(&a, dir, kind, getpid()))
		return -ENAMETOOLONG;
	unlink(a.sun_path); /* left by a killed process that had this pid */
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || bind(c->fd, (struct sockaddr *)&a, sizeof(a)) != 0 ||
	    listen(c->fd, 16) != 0)
		return -errno;
	snprintf(c->path, sizeof(c->path), "%s", a.sun_path);
	return 0;
}

bool control_directory(const char *wanted, char *path, size_t size)
{
	if (!wanted) /* systemd sets it for RuntimeDirectory= */
		wanted = getenv("RUNTIME_DIRECTORY");
	if (!wanted)
		return run_dir(path, size);
	return snprintf(path, size, "%s", wanted) < (int)size &&
	       (mkdir(path, 0700) == 0 || errno == EEXIST) && is_private_directory(path);
}

int control_open_in(struct control *c, const char *dir, const char *kind,
		    json_t *(*answer)(void *arg, const char *word), void *arg)
{
	char usual[sizeof(c->path)];
	int rc;

	*c = (struct control){.fd = -1, .answer = answer, .arg = arg};
	if (dir ? mkdir(dir, 0700) != 0 && errno != EEXIST : !run_dir(usual, sizeof(usual)))
		return -ENOTDIR;
	if (dir && !is_private_directory(dir))
		return -EPERM;
	rc = listen_in(c, dir ? dir : usual, kind);
	if (rc != 0)
		control_close(c);
	return rc;
}

int control_open(struct control *c, const char *kind,
		 json_t *(*answer)(void *arg, const char *word), void *arg)
{
	return control_open_in(c, NULL, kind, answer, arg);
}

void control_close(struct control *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (*c->path)
		unlink(c->path);
	c->fd = -1;
	*c->path = '\0';
}

int control_run(struct control *c, const sigset_t *ends)
{
	CLEANUP_CLOSE int told = signalfd(-1, ends, SFD_CLOEXEC);
	struct pollfd fds[] = {{.fd = told, .events = POLLIN}, {.fd = c->fd, .events = POLLIN}};
	struct signalfd_siginfo info;
	int sig;

	if (told < 0) {
		sigwait(ends, &sig);
		return sig;
	}
	for (;;) {
		poll(fds, 2, -1);
		if (fds[0].revents && read(told, &info, sizeof(info)) == sizeof(info))
			return (int)info.ssi_signo;
		if (fds[1].revents)
			control_attend(c);
	}
}

/* ---- clients ------------------------------------------------------------------------------ */

static bool is_pid(const char *text)
{
	return *text && strspn(text, "0123456789") == strlen(text) && atoi(text) > 0;
}

static void add_socket(struct queries *all, const char *dir, const char *kind, int pid)
{
	struct sockaddr_un a;

	if (address_in(&a, dir, kind, pid))
		queries_add(all, &a, sizeof(a), pid, QUERY_ANY_UID);
}

/* Adds all sockets of a kind, except that of the process `but`. */
static void find_in(struct queries *all, const char *dir, const char *kind, int but)
{
	size_t n = strlen(kind);
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d)))
		if (strncmp(e->d_name, kind, n) == 0 && e->d_name[n] == '-' &&
		    is_pid(e->d_name + n + 1) && atoi(e->d_name + n + 1) != but)
			add_socket(all, dir, kind, atoi(e->d_name + n + 1));
	if (d)
		closedir(d);
}

/* Adds the socket of one process, which needs no permission to list the directory, or all. */
static void find_sockets(struct queries *all, const char *dir, const char *kind, int pid, int but)
{
	if (pid)
		add_socket(all, dir, kind, pid);
	else
		find_in(all, dir, kind, but);
}

/* Queries the process pid, or with 0 all except `but`. Removes sockets of processes that were killed. */
static void query_sockets(struct queries *all, const char *kind, int pid, int but, const char *word,
			  uint64_t timeout_ns)
{
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];

	if (run_dir(dir, sizeof(dir)))
		find_sockets(all, dir, kind, pid, but);
	find_sockets(all, CONTROL_SYSTEM_DIR, kind, pid, but);
	queries_run(all, word, timeout_ns);
	for (size_t i = 0; i < all->n; i++)
		if (all->list[i].error == ECONNREFUSED) /* its process was killed */
			unlink(all->list[i].to.sun_path);
}

static json_t *query_one(const char *kind, int pid, const char *word, uint64_t timeout_ns)
{
	struct queries all = {.n = 0};
	json_t *o = NULL;

	query_sockets(&all, kind, pid, 0, word, timeout_ns);
	for (size_t i = 0; i < all.n && !o; i++)
		o = query_json(&all.list[i]);
	queries_free(&all);
	return o;
}

json_t *control_query(const char *kind, int pid, const char *word)
{
	return query_one(kind, pid, word, QUERY_ONE_NS);
}

json_t *control_order(const char *kind, int pid, const char *word)
{
	return query_one(kind, pid, word, ORDER_NS);
}

/* Appends a response; a process that serves several returns an array. */
static void append_response(json_t *list, json_t *o)
{
	if (json_is_array(o))
		json_array_extend(list, o);
	else if (o)
		json_array_append(list, o);
	json_decref(o);
}

/* Returns whether there is a server, which did not answer: it was too slow, or too many clients wait. */
static bool is_silent(int error)
{
	return error && error != ECONNREFUSED && error != ENOENT && error != EACCES;
}

static json_t *query_all(const char *kind, int pid, int but, const char *word, uint64_t timeout_ns,
			 bool and_silent)
{
	struct queries all = {.n = 0};
	json_t *list = json_array();

	query_sockets(&all, kind, pid, but, word, timeout_ns);
	for (size_t i = 0; i < all.n; i++)
		if (and_silent && is_silent(all.list[i].error))
			append_response(list, json_pack("{s:i s:b}", "pid", all.list[i].pid,
							"answers", false));
		else
			append_response(list, query_json(&all.list[i]));
	queries_free(&all);
	return list;
}

json_t *control_query_all(const char *kind, const char *word)
{
	return query_all(kind, 0, 0, word, QUERY_ALL_NS, false);
}

json_t *control_query_others(const char *kind, const char *word)
{
	return query_all(kind, 0, (int)getpid(), word, QUERY_ALL_NS, false);
}

json_t *control_query_each(const char *kind, int pid, const char *word)
{
	return query_all(kind, pid, 0, word, QUERY_EACH_NS, true);
}
