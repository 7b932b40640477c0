// SPDX-License-Identifier: BSD-2-Clause
/*
 * control.c - see control.h.
 */
#include "control.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "stag.h"

#define PATIENCE_S     2 /* with who looks */
#define ASK_PATIENCE_S 5

/* ---- where ---------------------------------------------------------------------------- */

/* Ours, and nobody else's. */
static bool is_private(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       (st.st_mode & 077) == 0;
}

/* Of this user: $XDG_RUNTIME_DIR/stag, or /tmp/stag-UID; it is made. */
static bool run_dir(char *path, size_t size)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	int n = dir && *dir == '/' ? snprintf(path, size, "%s/stag", dir)
				   : snprintf(path, size, "/tmp/stag-%u", geteuid());

	if (n < 0 || (size_t)n >= size)
		return false;
	return (mkdir(path, 0700) == 0 || errno == EEXIST) && is_private(path);
}

static bool address_of(struct sockaddr_un *a, const char *kind, int pid)
{
	char dir[sizeof(a->sun_path) - 32];

	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	return run_dir(dir, sizeof(dir)) && snprintf(a->sun_path, sizeof(a->sun_path), "%s/%s-%d",
						     dir, kind, pid) < (int)sizeof(a->sun_path);
}

/* ---- who is looked at ------------------------------------------------------------------------ */

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

static void attend(const struct control *c)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	CLEANUP_CLOSE int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
	CLEANUP_FREE char *text = NULL;
	char word[16] = "";
	json_t *o;

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (recv(fd, word, sizeof(word) - 1, 0) <= 0)
		return;
	o = c->answer(c->arg, word);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	send_all(fd, text);
}

static bool listen_at(struct control *c, const char *kind)
{
	struct sockaddr_un a;

	if (!address_of(&a, kind, getpid()))
		return false;
	unlink(a.sun_path); /* of one that had this number, and was killed */
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || bind(c->fd, (struct sockaddr *)&a, sizeof(a)) != 0 ||
	    listen(c->fd, 16) != 0)
		return false;
	snprintf(c->path, sizeof(c->path), "%s", a.sun_path);
	return true;
}

void control_open(struct control *c, const char *kind,
		  json_t *(*answer)(void *arg, const char *word), void *arg)
{
	*c = (struct control){.fd = -1, .answer = answer, .arg = arg};
	if (!listen_at(c, kind))
		complain("nobody can look at what is served: the run directory is not to be had");
}

void control_close(struct control *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (*c->path)
		unlink(c->path);
}

void control_run(struct control *c, const sigset_t *ends)
{
	CLEANUP_CLOSE int told = signalfd(-1, ends, SFD_CLOEXEC);
	struct pollfd fds[] = {{.fd = told, .events = POLLIN}, {.fd = c->fd, .events = POLLIN}};
	int sig;

	if (told < 0) {
		sigwait(ends, &sig);
		return;
	}
	for (;;) {
		poll(fds, 2, -1);
		if (fds[0].revents)
			return;
		if (fds[1].revents)
			attend(c);
	}
}

/* ---- who looks ------------------------------------------------------------------------------ */

/* One that was killed leaves its socket behind. */
static int reach(const struct sockaddr_un *a)
{
	const struct timeval patience = {.tv_sec = ASK_PATIENCE_S};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0)
		return fd;
	if (errno == ECONNREFUSED)
		unlink(a->sun_path);
	close(fd);
	return -1;
}

json_t *control_ask(const char *kind, int pid, const char *word)
{
	struct sockaddr_un a;
	CLEANUP_CLOSE int fd = address_of(&a, kind, pid) ? reach(&a) : -1;

	if (fd < 0 || send(fd, word, strlen(word), MSG_NOSIGNAL) < 0)
		return NULL;
	return json_loadfd(fd, 0, NULL);
}

json_t *control_ask_all(const char *kind, const char *word)
{
	json_t *list = json_array(), *o;
	size_t n = strlen(kind);
	struct dirent *e;
	char dir[80];
	DIR *d = run_dir(dir, sizeof(dir)) ? opendir(dir) : NULL;

	while (d && (e = readdir(d)))
		if (strncmp(e->d_name, kind, n) == 0 && e->d_name[n] == '-') {
			o = control_ask(kind, atoi(e->d_name + n + 1), word);
			if (o)
				json_array_append_new(list, o);
		}
	if (d)
		closedir(d);
	return list;
}
