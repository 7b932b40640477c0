// SPDX-License-Identifier: BSD-2-Clause
/*
 * roll_file.c - the roll in a file, for nodes on one machine (roll.h).
 *
 * The file is replaced as a whole, so it is read without a lock. A swap first writes the new file, without a name,
 * and makes it durable. It takes the lock only to compare the old file and to rename the new one: so it is rare
 * that a process is stopped while it holds the lock and blocks all other swaps. The lock is on PATH.lock, because
 * the roll itself is a new file each time.
 */
#include "pool/role/roll.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/list.h"
#include "base/log.h"

#define LOCK_PATIENCE (1 * NS_PER_S)
#define FILE_MODE     0600

struct roll_file {
	struct roll_backend backend;
	char *path;
	char *name;	/* of the roll, in its directory */
	char *new_name; /* of the file that will replace it */
	char *lock_name;
	int dir, watch, wake;
	uint64_t seen; /* revision that the watch reported last */
	bool watches;
	bool unsynced; /* the directory entry of a new roll is not durable yet */
};

static struct roll_file *to_file(struct roll_backend *e)
{
	return container_of(e, struct roll_file, backend);
}

/* ---- reading ------------------------------------------------------------------------------ */

static int file_read_roll(struct roll_backend *e, struct roll *roll, uint64_t *revision)
{
	struct roll_file *f = to_file(e);
	char text[ROLL_MAX_TEXT + 1];
	const char *why;
	ssize_t len = file_read(f->dir, f->name, text, sizeof(text));
	int rc;

	if (len == -ENOENT) {
		*revision = 0;
		return 0;
	}
	if (len < 0) {
		log_err("roll %s: cannot be read: %s", f->path, strerror((int)-len));
		return (int)len;
	}
	rc = roll_from_text(text, (size_t)len, roll, revision, &why);
	if (rc == 0 && *revision == 0) {
		rc = -EBADMSG;
		why = "the revision";
	}
	if (rc != 0)
		log_err("roll %s: damaged: %s", f->path, why);
	return rc;
}

/* ---- swapping ----------------------------------------------------------------------------- */

/* Takes the lock, or returns -ETIMEDOUT. Its holder may have been stopped; no process can swap then. */
static int take_lock(struct roll_file *f)
{
	uint64_t until = clock_ns() + LOCK_PATIENCE;
	int fd = openat(f->dir, f->lock_name, O_RDWR | O_CREAT | O_CLOEXEC, FILE_MODE);

	if (fd < 0)
		return -errno;
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (clock_ns() > until) {
			close(fd);
			return -ETIMEDOUT;
		}
		poll(NULL, 0, 1);
	}
	return fd;
}

static int write_durably(int fd, const char *text, size_t len)
{
	if (write(fd, text, len) != (ssize_t)len)
		return errno ? -errno : -ENOSPC;
	return fsync(fd) == 0 ? 0 : -errno;
}

/* Writes a file without a name, which vanishes if this process dies. */
static int write_nameless(struct roll_file *f, const char *text, size_t len)
{
	int fd = openat(f->dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, FILE_MODE), rc;

	if (fd < 0)
		return -errno;
	errno = 0;
	rc = write_durably(fd, text, len);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static int put_in_place(struct roll_file *f, int nameless)
{
	char link[32];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", nameless);
	unlinkat(f->dir, f->new_name, 0); /* left by a process that died here */
	if (linkat(AT_FDCWD, link, f->dir, f->new_name, AT_SYMLINK_FOLLOW) != 0)
		return -errno;
	return renameat(f->dir, f->new_name, f->dir, f->name) == 0 ? 0 : -errno;
}

static enum roll_result swap_locked(struct roll_file *f, uint64_t from, int nameless,
				    const char *text, size_t len, int *error)
{
	CLEANUP_CLOSE int lock = take_lock(f);
	struct roll now;
	uint64_t revision;

	if (lock < 0) {
		*error = lock;
		return ROLL_UNKNOWN;
	}
	*error = file_read_roll(&f->backend, &now, &revision);
	if (*error)
		return ROLL_UNKNOWN;
	if (revision != from)
		return ROLL_LOST;
	*error = nameless >= 0 ? put_in_place(f, nameless)
			       : file_replace(f->dir, f->name, text, len, FILE_MODE);
	return *error ? ROLL_UNKNOWN : ROLL_WON;
}

static enum roll_result file_swap(struct roll_backend *e, uint64_t *revision,
				  const struct roll *roll, int *error)
{
	struct roll_file *f = to_file(e);
	char text[ROLL_MAX_TEXT + 1];
	int len = roll_to_text(roll, *revision + 1, text, sizeof(text));
	CLEANUP_CLOSE int nameless = len < 0 ? len : write_nameless(f, text, (size_t)len);
	enum roll_result result;

	/* Some file systems do not support O_TMPFILE. */
	if (nameless < 0 && nameless != -EOPNOTSUPP && nameless != -EISDIR && nameless != -EINVAL) {
		log_err("roll %s: cannot be written: %s", f->path, strerror(-nameless));
		*error = nameless;
		return ROLL_UNKNOWN;
	}
	result = swap_locked(f, *revision, nameless, text, (size_t)len, error);
	f->unsynced |= result == ROLL_WON;
	if (result == ROLL_UNKNOWN)
		log_err("roll %s: cannot be replaced: %s", f->path, strerror(-*error));
	*revision += result == ROLL_WON;
	return result;
}

/* ---- watching ------------------------------------------------------------------------------ */

static void notice_change(struct roll_file *f)
{
	struct roll roll;
	uint64_t revision;

	if (file_read_roll(&f->backend, &roll, &revision) != 0 || revision <= f->seen)
		return;
	f->seen = revision;
	rolls_noticed(f->backend.rolls, revision, &roll);
}

static void start_watch(struct roll_file *f)
{
	f->watches = true;
	if (f->watch < 0)
		f->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (f->watch >= 0 &&
	    inotify_add_watch(f->watch, dirname(strdupa(f->path)), IN_MOVED_TO) < 0) {
		close(f->watch);
		f->watch = -1;
	}
	if (f->watch < 0)
		log_warn("roll %s: cannot be watched: %s", f->path, strerror(errno));
	notice_change(f);
}

/*
 * A power cut before this restores the old roll, but it also erases all memory that the new roll describes: so a
 * promotion does not wait for it.
 */
static void sync_dir(struct roll_file *f)
{
	f->unsynced = false;
	if (fsync(f->dir) != 0)
		log_err("roll %s: its directory: %s", f->path, strerror(errno));
}

static void file_idle(struct roll_backend *e, bool watching)
{
	struct roll_file *f = to_file(e);
	struct pollfd fds[2] = {{.fd = f->wake, .events = POLLIN},
				{.fd = f->watch, .events = POLLIN}};
	char events[4096];
	uint64_t count;

	if (f->unsynced)
		sync_dir(f);
	if (watching && (!f->watches || f->watch < 0)) {
		start_watch(f);
		fds[1].fd = f->watch;
	}
	poll(fds, 2, watching && f->watch < 0 ? 100 : -1);
	if (fds[0].revents && read(f->wake, &count, sizeof(count)) < 0)
		log_debug("roll: woken without a reason");
	if (fds[1].revents && read(f->watch, events, sizeof(events)) > 0)
		notice_change(f);
}

static void file_wake(struct roll_backend *e)
{
	uint64_t one = 1;

	if (write(to_file(e)->wake, &one, sizeof(one)) != sizeof(one))
		log_err("roll: eventfd: cannot be written");
}

static void file_close(struct roll_backend *e)
{
	struct roll_file *f = to_file(e);

	if (f->unsynced)
		sync_dir(f);
	if (f->dir >= 0)
		close(f->dir);
	if (f->wake >= 0)
		close(f->wake);
	if (f->watch >= 0)
		close(f->watch);
	free(f->path);
	free(f->name);
	free(f->new_name);
	free(f->lock_name);
	free(f);
}

static const struct roll_backend_ops file_ops = {
	.read = file_read_roll,
	.swap = file_swap,
	.idle = file_idle,
	.wake = file_wake,
	.close = file_close,
};

static int set_names(struct roll_file *f, const char *path)
{
	const char *slash = strrchr(path, '/');

	f->path = strdup(path);
	f->name = strdup(slash ? slash + 1 : path);
	if (!f->path || !f->name || asprintf(&f->new_name, "%s.new", f->name) < 0)
		return -ENOMEM;
	return asprintf(&f->lock_name, "%s.lock", f->name) < 0 ? -ENOMEM : 0;
}

int roll_file_open(const char *path, struct roll_backend **backend)
{
	struct roll_file *f;
	int rc;

	if (path[0] != '/' || path[strlen(path) - 1] == '/' || strlen(path) >= PATH_MAX) {
		log_err("roll file:%s: it must be the absolute path of a file", path);
		return -EINVAL;
	}
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->backend.ops = &file_ops;
	f->dir = -1;
	/*
	 * Opened before other descriptors, so that it is closed last in a killed process: closing it takes long
	 * (life.c).
	 */
	f->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = f->wake < 0 ? -errno : set_names(f, path);
	if (rc == 0) {
		f->dir = open(dirname(strdupa(path)), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = f->dir < 0 ? -errno : 0;
	}
	if (rc != 0) {
		log_err("roll %s: %s", path, strerror(-rc));
		file_close(&f->backend);
		return rc;
	}
	*backend = &f->backend;
	return 0;
}
