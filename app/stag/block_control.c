// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_control.c - stag block serve: how others look at a target that runs.
 *
 * A socket in a directory that is this user's alone: who connects says a word, and is told as JSON.
 */
#include "block_control.h"

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
#include "stag/stagdv.h"

#define PATIENCE_S 2 /* with who looks */
#define MORE_STAGS 256

/* ---- where ---------------------------------------------------------------------------- */

/* Ours, and nobody else's. */
static bool is_private(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       (st.st_mode & 077) == 0;
}

bool block_run_dir(char *path, size_t size)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	int n = dir && *dir == '/' ? snprintf(path, size, "%s/stag", dir)
				   : snprintf(path, size, "/tmp/stag-%u", geteuid());

	if (n < 0 || (size_t)n >= size)
		return false;
	return (mkdir(path, 0700) == 0 || errno == EEXIST) && is_private(path);
}

/* ---- what is told ----------------------------------------------------------------------- */

static json_t *counters_json(const struct stag_block_counters *c)
{
	json_t *o =
		json_pack("{s:I s:I s:I s:I s:I s:I s:I s:I}", "commands", (json_int_t)c->commands,
			  "reads", (json_int_t)c->reads, "writes", (json_int_t)c->writes, "errors",
			  (json_int_t)c->errors, "read_bytes", (json_int_t)c->read_bytes,
			  "written_bytes", (json_int_t)c->written_bytes, "posts",
			  (json_int_t)c->posts, "completions", (json_int_t)c->completions);

	json_object_update_new(
		o, json_pack("{s:I s:I s:I s:I s:I s:I s:I}", "registrations",
			     (json_int_t)c->registrations, "stags", (json_int_t)c->stags,
			     "stags_open", (json_int_t)c->stags_open, "logins",
			     (json_int_t)c->logins, "logouts", (json_int_t)c->logouts, "lost",
			     (json_int_t)c->lost, "violations", (json_int_t)c->violations));
	return o;
}

static const char *encoding_word(uint32_t encoding)
{
	static const char *const words[] = {[STAGDV_ONE_SHOT_NONE] = "none",
					    [STAGDV_ONE_SHOT_LITERAL] = "literal",
					    [STAGDV_ONE_SHOT_OPCODES] = "opcodes",
					    [STAGDV_ONE_SHOT_BITS] = "bits"};

	return encoding < sizeof(words) / sizeof(words[0]) ? words[encoding] : "unknown";
}

static json_t *sessions_json(struct stag_block_target *target)
{
	struct stag_block_session s = {0};
	json_t *list = json_array();

	while (stag_block_target_next(target, &s))
		json_array_append_new(
			list, json_pack("{s:I s:s s:s s:s s:s s:o}", "id", (json_int_t)s.id,
					"initiator", s.initiator, "address", s.address, "transport",
					block_transport_word(s.transport), "encoding",
					encoding_word(s.encoding), "counters",
					counters_json(&s.counters)));
	return list;
}

const char *block_end_word(uint32_t end)
{
	static const char *const words[] = {[STAGDV_STAG_OPEN] = "open",
					    [STAGDV_STAG_CLOSED] = "closed",
					    [STAGDV_STAG_WITHDRAWN] = "withdrawn",
					    [STAGDV_STAG_ORPHANED] = "orphaned"};

	return end < sizeof(words) / sizeof(words[0]) ? words[end] : "unknown";
}

static json_t *stag_json(const struct stag_block_stag *s)
{
	return json_pack("{s:I s:s s:I s:s s:s s:I s:i s:i s:I s:I s:I}", "stag",
			 (json_int_t)s->stag, "end", block_end_word(s->end), "session",
			 (json_int_t)s->session, "initiator", s->initiator, "address", s->address,
			 "itt", (json_int_t)s->itt, "lun", (int)s->lun, "opcode", (int)s->opcode,
			 "length", (json_int_t)s->length, "made", (json_int_t)s->made, "ended",
			 (json_int_t)s->ended);
}

/* More may have been lent since they were counted. */
static json_t *stags_json(struct stag_block_target *target)
{
	int n = stag_block_target_stags(target, NULL, 0, sizeof(struct stag_block_stag));
	size_t room = n > 0 ? (size_t)n + MORE_STAGS : MORE_STAGS;
	CLEANUP_FREE struct stag_block_stag *all = calloc(room, sizeof(*all));
	json_t *list = json_array();

	if (n > 0 && all)
		n = stag_block_target_stags(target, all, room, sizeof(*all));
	for (int i = 0; all && i < n && (size_t)i < room; i++)
		json_array_append_new(list, stag_json(&all[i]));
	return list;
}

static json_t *answer(const struct block_control *c, const char *word)
{
	struct stag_block_counters counters;
	json_t *o = json_pack("{s:s s:i s:i}", "name", c->name, "port",
			      (int)stag_block_target_port(c->target), "pid", (int)getpid());

	if (strcmp(word, "stags") == 0) {
		json_object_set_new(o, "stags", stags_json(c->target));
	} else if (stag_block_target_query(c->target, &counters, sizeof(counters)) == 0) {
		json_object_set_new(o, "counters", counters_json(&counters));
		json_object_set_new(o, "sessions", sessions_json(c->target));
	}
	return o;
}

/* ---- who looks ------------------------------------------------------------------------------ */

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

static void attend(const struct block_control *c)
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
	o = answer(c, word);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	send_all(fd, text);
}

/* ---- its life ---------------------------------------------------------------------------------- */

static bool listen_at(struct block_control *c)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char dir[sizeof(a.sun_path) - 32];

	if (!block_run_dir(dir, sizeof(dir)))
		return false;
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/" BLOCK_SOCKET "%d", dir, getpid());
	unlink(a.sun_path); /* of one that had this number, and was killed */
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || bind(c->fd, (struct sockaddr *)&a, sizeof(a)) != 0 ||
	    listen(c->fd, 16) != 0)
		return false;
	snprintf(c->path, sizeof(c->path), "%s", a.sun_path);
	return true;
}

void block_control_open(struct block_control *c, struct stag_block_target *target, const char *name)
{
	*c = (struct block_control){.fd = -1, .target = target, .name = name};
	if (!listen_at(c))
		complain("nobody can look at this target: its run directory is not to be had");
}

void block_control_close(struct block_control *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (*c->path)
		unlink(c->path);
}

void block_control_run(struct block_control *c, const sigset_t *ends)
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
