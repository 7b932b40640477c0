// SPDX-License-Identifier: BSD-2-Clause
/*
 * live.c - serves queries of other processes about this one: stag top(1), stagd(8).
 *
 * This thread listens on an abstract socket, @stag-live/UID/PID, which ends with the process and leaves
 * no file behind. A client that connects, as this user or as root, sends a word and a newline,
 * and receives JSON (live_tell.c).
 *
 * The thread is its own. On the engine's thread it would be in the way: writing ten
 * thousand queue pairs takes milliseconds, in which every sleeper of the program would wait;
 * and where a poller runs the engine's callbacks (engine_help()), the program's own thread
 * would write them. This thread sleeps until a client connects, and takes the locks that
 * stagdv_query_counters() takes, for a few queue pairs at a time.
 *
 * A program may close every descriptor that it does not know, and get the same number for a
 * file of its own. So before anything else the thread checks that its socket is still the one
 * that it opened; if not, it ends, and touches no descriptor any more.
 */
#include "adapter/live.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "adapter/config.h"
#include "base/clock.h"
#include "base/log.h"

#define LOOKERS	    8
#define WORD_MOST   16
#define PATIENCE_MS 1000 /* for a client that sends nothing, or reads nothing */
#define RETRY_MS    100	 /* after accept() ran out of descriptors or memory */
#define STACK	    (512u << 10)

struct looker {
	int fd; /* -1: none */
	ino_t inode;
	uint64_t deadline;
	char word[WORD_MOST];
	size_t have; /* bytes of the word so far */
	struct live_text text;
	size_t sent;
	bool is_told; /* text holds the response */
};

static struct {
	int fd; /* the listener; -1: none */
	ino_t inode;
	uint64_t accepts_at; /* accepts nobody before this time */
	struct looker looker[LOOKERS];
} live = {.fd = -1};

/* ---- descriptors ---- */

static ino_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) ? st.st_ino : 0;
}

static bool is_ours(int fd, ino_t inode)
{
	return fd >= 0 && inode && inode_of(fd) == inode;
}

/* ---- one who looks ---- */

/* Shuts the connection down as well: a forked child may hold the descriptor, too. */
static void drop_looker(struct looker *l)
{
	shutdown(l->fd, SHUT_RDWR);
	close(l->fd);
	text_free(&l->text);
	l->fd = -1;
}

static bool may_look(int fd)
{
	struct ucred who;
	socklen_t size = sizeof(who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size))
		return false;
	if (who.uid == 0 || who.uid == geteuid())
		return true;
	log_info("live: process %d of user %u refused: not this user or root", who.pid, who.uid);
	return false;
}

static void wait_for(struct looker *l)
{
	l->deadline = clock_ns() + PATIENCE_MS * NS_PER_MS;
}

static struct looker *free_looker(void)
{
	for (unsigned i = 0; i < LOOKERS; i++)
		if (live.looker[i].fd < 0)
			return &live.looker[i];
	return NULL;
}

static void accept_one(void)
{
	struct looker *l = free_looker();
	int fd;

	if (!l)
		return;
	fd = accept4(live.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	/* A client that cannot be accepted keeps the listener readable: without a pause the thread would spin. */
	if (fd < 0 && errno != EAGAIN)
		live.accepts_at = clock_ns() + RETRY_MS * NS_PER_MS;
	if (fd < 0)
		return;
	*l = (struct looker){.fd = fd, .inode = inode_of(fd)};
	wait_for(l);
	if (!may_look(fd))
		drop_looker(l);
}

/* Returns 0 if more has to come, or -errno if it is not a word. */
static int read_word(struct looker *l)
{
	ssize_t n = recv(l->fd, l->word + l->have, sizeof(l->word) - l->have, MSG_DONTWAIT);
	char *end;

	if (n <= 0)
		return n < 0 && errno == EAGAIN ? 0 : -EPIPE;
	l->have += (size_t)n;
	end = memchr(l->word, '\n', l->have);
	if (!end)
		return l->have < sizeof(l->word) ? 0 : -EMSGSIZE;
	*end = '\0';
	l->text = (struct live_text){.most = LIVE_MOST};
	l->is_told = live_tell(l->word, &l->text);
	return l->is_told ? 0 : -EINVAL;
}

/* Returns 1 when all of it is sent. */
static int send_text(struct looker *l)
{
	ssize_t n = send(l->fd, l->text.at + l->sent, l->text.length - l->sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	l->sent += (size_t)n;
	wait_for(l);
	return l->sent == l->text.length;
}

static void attend(struct looker *l)
{
	int rc = l->is_told ? 0 : read_word(l);

	if (rc == 0 && l->is_told)
		rc = send_text(l);
	if (rc)
		drop_looker(l);
}

/* ---- the thread ---- */

/*
 * Fills in the descriptors to wait for. Returns the time-out in ms, or -1. The listener is left out while there is no
 * room for a client, or no descriptor.
 */
static int prepare_poll(struct pollfd *fds)
{
	uint64_t now = clock_ns(), first = now < live.accepts_at ? live.accepts_at : UINT64_MAX;
	bool accepts = now >= live.accepts_at && free_looker();

	fds[LOOKERS] = (struct pollfd){.fd = accepts ? live.fd : -1, .events = POLLIN};
	for (unsigned i = 0; i < LOOKERS; i++) {
		const struct looker *l = &live.looker[i];

		fds[i] = (struct pollfd){.fd = l->fd, .events = l->is_told ? POLLOUT : POLLIN};
		if (l->fd >= 0 && l->deadline < first)
			first = l->deadline;
	}
	if (first == UINT64_MAX)
		return -1;
	return first <= now ? 0 : (int)((first - now) / NS_PER_MS + 1);
}

static void attend_all(const struct pollfd *fds)
{
	uint64_t now = clock_ns();

	for (unsigned i = 0; i < LOOKERS; i++) {
		struct looker *l = &live.looker[i];

		if (l->fd < 0)
			continue;
		if (fds[i].revents)
			attend(l);
		else if (l->deadline <= now)
			drop_looker(l);
	}
}

static void *live_main(void *arg)
{
	struct pollfd fds[LOOKERS + 1];

	for (;;) {
		int ms = prepare_poll(fds);

		if (poll(fds, LOOKERS + 1, ms) < 0)
			continue;
		if (!is_ours(live.fd, live.inode)) {
			log_info("live: the program has closed its socket: queries are no longer "
				 "served");
			return NULL;
		}
		attend_all(fds);
		if (fds[LOOKERS].revents)
			accept_one();
	}
}

static int start_thread(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;
	int err = pthread_attr_init(&attr);

	if (err)
		return -err;
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all); /* the program's signals are for its own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, live_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

static int open_socket(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "stag-live/%u/%d", geteuid(),
			 getpid());
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&a, size) || listen(fd, LOOKERS)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

void live_start(void)
{
	int fd, err;

	if (!config()->live)
		return;
	for (unsigned i = 0; i < LOOKERS; i++)
		live.looker[i] = (struct looker){.fd = -1};
	fd = open_socket();
	live.fd = fd;
	live.inode = fd < 0 ? 0 : inode_of(fd);
	err = fd < 0 ? fd : start_thread();
	if (!err)
		return;
	log_info("live: cannot serve queries about this process: %s", strerror(-err));
	if (fd >= 0)
		close(fd);
	live.fd = -1;
}

/* The parent's thread does not exist here, and may have been in any state. */
void live_after_fork(void)
{
	for (unsigned i = 0; live.fd >= 0 && i < LOOKERS; i++)
		if (is_ours(live.looker[i].fd, live.looker[i].inode))
			close(live.looker[i].fd);
	if (is_ours(live.fd, live.inode))
		close(live.fd);
	live.fd = -1;
}
