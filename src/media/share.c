// SPDX-License-Identifier: BSD-2-Clause
/*
 * share.c - tracks which parts are being written, for caches and for other processes.
 *
 * The medium is divided into places (4 KiB each, by their number modulo a constant). Each has
 *   - a stamp, which changes when a write there begins and when it ends;
 *   - for each process the number of its writes in flight there;
 *   - an owner: the process that reads a block there to write it back.
 * A write of whole blocks increments its process's number and then checks whether another process
 * owns the place; a process that needs to own a place makes itself owner and then checks the
 * numbers of others. So at least one of the two sees the other, and waits: the first backs out, the
 * second keeps its ownership. Within a process lock.c has ordered the steps before.
 *
 * For a MEDIA_SHARED medium this table is in a shared memory object, named after the file's device
 * and inode. Only an object of a user who may write the medium is used: if a stranger has taken the
 * name, a number is appended. All processes must use the same object, also while strangers take
 * names and leave them: so a process that has joined one looks for another that is in use, too, and
 * if there is one, leaves and looks for both again. Of two processes that join different objects, at
 * least one finds the other's. A process holds a lock on a byte of it, which the kernel releases when the process has
 * died, and not before its last I/O is complete (an exiting task waits for its rings). Otherwise
 * the table is private memory of this process, and there are no owners.
 *
 * The object is readable only by users who may write the medium: whoever can open a file can lock it. A process that waits for
 * another one's lock gives up after a while.
 *
 * The last process removes the object. If the last one was killed, the next process of that user
 * that opens a shared medium does: an object without locks is unused. Process ids are not
 * consulted, since they differ between namespaces.
 */
#include "media/medium.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

#define PLACE_SHIFT 12
#define PLACES	    32768u
#define PROCESSES   32
#define MAGIC	    0x3130656463616c70ull /* "placed01" */
#define RETRY_US    100
#define BURY_EVERY  32 /* number of retries between two checks for dead processes */
#define OBJECTS	    "/dev/shm"
#define PREFIX	    "stag-media."
#define NAME_SIZE   64
#define IN_ORDER    8 /* numbers to try before random ones */
#define NAME_TRIES  100
#define OPEN_TRIES  10000
#define PATIENCE_NS (5 * NS_PER_S) /* of waiting for the lock of an object */

struct table {
	_Atomic uint64_t magic;
	_Atomic uint32_t live[PROCESSES]; /* process ids, for people only */
	_Atomic uint64_t stamps[PLACES];
	_Atomic uint32_t owners[PLACES]; /* process + 1 */
	_Atomic uint32_t
		writers[PROCESSES][PLACES]; /* an unshared medium uses the first row only */
};

struct places {
	struct table *table;
	int fd; /* of the shared object; -1: none */
	unsigned int self;
	unsigned int retries;
	bool left;	      /* the process exits: nothing is written any more */
	uint16_t *owned;      /* number of steps of this process that need to own each place */
	char name[NAME_SIZE]; /* in OBJECTS */
};

static bool is_shared(const struct media *m)
{
	return m->places->fd >= 0;
}

/* ---- the places of a range ---- */

static uint64_t first_of(uint64_t start)
{
	return start >> PLACE_SHIFT;
}

static uint64_t count_of(uint64_t start, uint64_t end)
{
	return least(((end - 1) >> PLACE_SHIFT) - first_of(start) + 1, PLACES);
}

#define for_each_place(slot, start, end)                                                           \
	for (uint64_t i_ = 0, n_ = count_of(start, end), slot = first_of(start) % PLACES; i_ < n_; \
	     i_++, slot = (slot + 1) % PLACES)

uint64_t places_stamp(struct media *m, uint64_t start, uint64_t end)
{
	uint64_t sum = 0;

	assert(lock_held(&m->lock));
	for_each_place (slot, start, end)
		sum += atomic_load(&m->places->table->stamps[slot]);
	return sum;
}

unsigned int places_writers(struct media *m, uint64_t start, uint64_t end)
{
	struct table *t = m->places->table;
	unsigned int most = 0;

	assert(lock_held(&m->lock));
	for_each_place (slot, start, end) {
		unsigned int here = 0;

		for (unsigned int p = 0; p < (is_shared(m) ? PROCESSES : 1); p++)
			here += atomic_load(&t->writers[p][slot]);
		if (here > most)
			most = here;
	}
	return most;
}

/* ---- entering and leaving ---- */

static void raise(struct media *m, const struct media_op *op)
{
	struct places *p = m->places;

	for_each_place (slot, op->state.start, op->state.end) {
		atomic_fetch_add(&p->table->writers[p->self][slot], 1);
		atomic_fetch_add(&p->table->stamps[slot], 1);
	}
}

static void lower(struct media *m, const struct media_op *op)
{
	struct places *p = m->places;

	for_each_place (slot, op->state.start, op->state.end) {
		atomic_fetch_add(&p->table->stamps[slot], 1);
		atomic_fetch_sub(&p->table->writers[p->self][slot], 1);
	}
}

static bool others_own(struct media *m, const struct media_op *op)
{
	struct places *p = m->places;

	for_each_place (slot, op->state.start, op->state.end) {
		uint32_t owner = atomic_load(&p->table->owners[slot]);

		if (owner && owner != p->self + 1)
			return true;
	}
	return false;
}

static bool others_write(struct media *m, const struct media_op *op)
{
	struct places *p = m->places;

	for_each_place (slot, op->state.start, op->state.end)
		for (unsigned int q = 0; q < PROCESSES; q++)
			if (q != p->self && atomic_load(&p->table->writers[q][slot]))
				return true;
	return false;
}

static void disown_first(struct media *m, const struct media_op *op, uint64_t n)
{
	struct places *p = m->places;
	uint64_t left = n;

	for_each_place (slot, op->state.start, op->state.end)
		if (left > 0 && left-- && --p->owned[slot] == 0)
			atomic_store(&p->table->owners[slot], 0);
}

/* Owns all places of the range, or none. */
static bool own(struct media *m, const struct media_op *op)
{
	struct places *p = m->places;
	uint64_t n = 0;

	for_each_place (slot, op->state.start, op->state.end) {
		uint32_t nobody = 0;

		if (!p->owned[slot] && !atomic_compare_exchange_strong(&p->table->owners[slot],
								       &nobody, p->self + 1)) {
			disown_first(m, op, n);
			return false;
		}
		p->owned[slot]++;
		n++;
	}
	return true;
}

/*
 * An exclusive step is `placed` as soon as it owns its places, and starts when the others' writes
 * have ended.
 */
static bool enter_alone(struct media *m, struct media_op *op)
{
	if (!op->state.placed) {
		if (!own(m, op))
			return false;
		raise(m, op);
		op->state.placed = true;
	}
	return !others_write(m, op);
}

static bool enter_beside(struct media *m, struct media_op *op)
{
	raise(m, op);
	op->state.placed = true;
	if (!is_shared(m) || !others_own(m, op))
		return true;
	lower(m, op);
	op->state.placed = false;
	return false;
}

bool places_enter(struct media *m, struct media_op *op)
{
	assert(lock_held(&m->lock));
	op->state.tracked = m->places;
	if (!op->state.tracked) {
		m->untracked++;
		op->state.placed = true;
		return true;
	}
	if (m->places->left)
		return false;
	if (is_shared(m) && op->state.mode == LOCK_EXCLUSIVE)
		return enter_alone(m, op);
	return enter_beside(m, op);
}

void places_leave(struct media *m, struct media_op *op)
{
	assert(lock_held(&m->lock));
	if (!op->state.placed)
		return;
	op->state.placed = false;
	if (!op->state.tracked) {
		m->untracked--;
		return;
	}
	lower(m, op);
	if (is_shared(m) && op->state.mode == LOCK_EXCLUSIVE)
		disown_first(m, op, UINT64_MAX);
}

/* ---- waiting for other processes ---- */

static void ask_for_time(struct media *m)
{
	struct media_io io = {
		.kind = MEDIA_IO_TIMEOUT, .length = RETRY_US, .cookie = COOKIE_TIMEOUT};

	if (m->timing)
		return;
	m->timing = true;
	m->edge->queue(m->edge, &io);
}

void places_wait(struct media *m, struct media_op *op)
{
	assert(lock_held(&m->lock));
	media_op_set_phase(op, OP_PLACE);
	list_add_tail(&m->place_waiters, &op->state.link);
	ask_for_time(m);
}

static bool lock_byte(int fd, unsigned int process, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = process, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* Clears the entries of a dead process: the caller holds its lock. */
static void clear_process(struct table *t, unsigned int process)
{
	uint32_t owner = process + 1;

	for (unsigned int slot = 0; slot < PLACES; slot++) {
		uint32_t expected = owner;

		if (atomic_load(&t->writers[process][slot]) == 0 &&
		    atomic_load(&t->owners[slot]) != owner)
			continue;
		atomic_fetch_add(&t->stamps[slot], 1);
		atomic_store(&t->writers[process][slot], 0);
		atomic_compare_exchange_strong(&t->owners[slot], &expected, 0);
	}
	atomic_store(&t->live[process], 0);
}

static void bury_the_dead(struct media *m)
{
	struct places *p = m->places;

	for (unsigned int q = 0; q < PROCESSES; q++) {
		uint32_t pid = atomic_load(&p->table->live[q]);

		if (q == p->self || !pid || !lock_byte(p->fd, q, F_WRLCK))
			continue;
		if (atomic_load(&p->table->live[q]) == pid) {
			log_info("medium %d: process %u has died", m->fd, pid);
			clear_process(p->table, q);
		}
		lock_byte(p->fd, q, F_UNLCK);
	}
}

void places_retry(struct media *m)
{
	struct list waiting;

	assert(lock_held(&m->lock));
	m->timing = false;
	if (list_empty(&m->place_waiters))
		return;
	if (++m->places->retries % BURY_EVERY == 0)
		bury_the_dead(m);
	waiting = m->place_waiters;
	waiting.next->prev = waiting.prev->next = &waiting;
	list_init(&m->place_waiters);
	while (!list_empty(&waiting)) {
		struct media_op *op = list_entry(waiting.next, struct media_op, state.link);

		list_del(&op->state.link);
		step_with_range(m, op);
	}
}

/* ---- the table ---- */

/* Returns whether the object's owner may also write the file, and nobody else has a name of it. */
static bool is_trusted(const struct stat *object, const struct stat *file)
{
	if (!S_ISREG(object->st_mode) || object->st_nlink > 1)
		return false;
	return object->st_uid == geteuid() || object->st_uid == file->st_uid ||
	       object->st_uid == 0 || (file->st_mode & S_IWOTH) ||
	       ((file->st_mode & S_IWGRP) && object->st_gid == file->st_gid);
}

/*
 * Opens an object of that name. Returns -EPERM if it is a stranger's, or -EACCES if it is of a user
 * who may write the medium, but not open to us: we cannot do without it then.
 */
static int open_trusted(int dir, const char *name, const struct stat *file)
{
	struct stat object;
	int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int err = fd < 0 ? -errno : 0;

	if (err == -ENOENT || (err && fstatat(dir, name, &object, AT_SYMLINK_NOFOLLOW)))
		return -ENOENT;
	if (!err && fstat(fd, &object))
		err = -errno;
	if (!is_trusted(&object, file))
		err = -EPERM;
	if (err && fd >= 0)
		close(fd);
	return err ? err : fd;
}

/* Returns the mode of an object that those who may write the file may read and write, and nobody else. */
static mode_t mode_of_object(const struct stat *file)
{
	mode_t write = file->st_mode & (S_IWGRP | S_IWOTH);

	return S_IRUSR | S_IWUSR | write | write << 1;
}

/*
 * Makes an object for those who may write the file. It gets its name when it has its mode, so that
 * nobody is refused meanwhile.
 */
static int make_object(struct media *m, int dir, const char *name, const struct stat *file)
{
	int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), err;
	char path[32];

	if (fd < 0)
		return -errno;
	if (fchown(fd, (uid_t)-1, file->st_gid) || fchmod(fd, mode_of_object(file)))
		log_info("medium %d: %s: %m; other users cannot share it", m->fd, name);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static bool is_in_use(int fd)
{
	struct flock anybody = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = PROCESSES};

	return fcntl(fd, F_OFD_GETLK, &anybody) == 0 && anybody.l_type != F_UNLCK;
}

/*
 * Finds an object of the medium that processes use, except the one of inode `except`. Sets name.
 * Returns -ENOENT if there is none, or another error if there may be one that we cannot use.
 */
static int find_used(DIR *objects, const char *base, const struct stat *file, ino_t except,
		     char *name)
{
	size_t len = strlen(base);
	struct dirent *e;

	rewinddir(objects);
	while ((e = readdir(objects))) {
		int fd;

		if (strncmp(e->d_name, base, len) != 0 ||
		    (e->d_name[len] && e->d_name[len] != '.') || strlen(e->d_name) >= NAME_SIZE ||
		    e->d_ino == except)
			continue;
		fd = open_trusted(dirfd(objects), e->d_name, file);
		if (fd == -ENOENT || fd == -EPERM)
			continue;
		if (fd < 0 || is_in_use(fd)) {
			strcpy(name, e->d_name);
			return fd;
		}
		close(fd);
	}
	return -ENOENT;
}

/* Opens or makes an object of a name that no stranger has. Sets name. */
static int find_or_make(struct media *m, DIR *objects, const char *base, const struct stat *file,
			char *name)
{
	for (unsigned int i = 0; i < NAME_TRIES; i++) {
		int n = snprintf(name, NAME_SIZE, "%s", base), fd;

		if (i > 0)
			snprintf(name + n, NAME_SIZE - (size_t)n, ".%u",
				 i < IN_ORDER ? i : random_u32());
		fd = open_trusted(dirfd(objects), name, file);
		if (fd == -ENOENT)
			fd = make_object(m, dirfd(objects), name, file);
		if (fd >= 0 && i > 0)
			log_warn("medium %d: " OBJECTS "/%s is of a user who may not write the "
				 "medium: using %s",
				 m->fd, base, name);
		if (fd >= 0 || (fd != -EPERM && fd != -EEXIST))
			return fd;
	}
	return -EACCES;
}

static void base_name(const struct stat *file, char *base)
{
	bool block = S_ISBLK(file->st_mode);

	snprintf(base, NAME_SIZE, PREFIX "%llx.%llx",
		 (unsigned long long)(block ? file->st_rdev : file->st_dev),
		 (unsigned long long)(block ? 0 : file->st_ino));
}

static struct table *map(int fd)
{
	struct table *t =
		mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE,
		     fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED, fd, 0);

	return t == MAP_FAILED ? NULL : t;
}

/* Locks the object against processes that open and close it. Returns -EBUSY if another one keeps the lock. */
static int lock_object(int fd, uint64_t patience_ns)
{
	uint64_t end = clock_ns() + patience_ns;

	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (clock_ns() >= end)
			return -EBUSY;
		usleep(RETRY_US);
	}
	return 0;
}

/* Locks the object, and gives it its size. Returns -EAGAIN if it has been removed meanwhile. */
static int prepare_object(int fd)
{
	struct stat st;
	int err = lock_object(fd, PATIENCE_NS);

	if (err)
		return err;
	if (fstat(fd, &st))
		return -errno;
	if (st.st_nlink == 0)
		return -EAGAIN;
	if (st.st_size == 0 && ftruncate(fd, sizeof(struct table)))
		return -errno;
	if (st.st_size != 0 && st.st_size != sizeof(struct table))
		return -EPROTO;
	return 0;
}

static int join(struct places *p)
{
	uint64_t fresh = 0;

	if (!atomic_compare_exchange_strong(&p->table->magic, &fresh, MAGIC) && fresh != MAGIC)
		return -EPROTO;
	for (unsigned int q = 0; q < PROCESSES; q++) {
		if (!lock_byte(p->fd, q, F_WRLCK))
			continue;
		clear_process(p->table, q); /* left by an earlier process that died */
		atomic_store(&p->table->live[q], (uint32_t)getpid());
		p->self = q;
		return 0;
	}
	return -EUSERS;
}

/*
 * Returns whether the object belongs to this user and is unused. Our flock() on it keeps others
 * out: see prepare_object().
 */
static bool is_left(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 0 &&
	       st.st_uid == geteuid() && (st.st_size == 0 || st.st_size == sizeof(struct table)) &&
	       !is_in_use(fd);
}

/* Removes abandoned objects, also of media that no longer exist: no other process would do so. */
static void remove_abandoned_objects(DIR *objects)
{
	struct dirent *e;

	rewinddir(objects);
	while ((e = readdir(objects))) {
		CLEANUP_CLOSE int fd = -1;

		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
			continue;
		fd = openat(dirfd(objects), e->d_name,
			    O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0 || !is_left(fd) || flock(fd, LOCK_EX | LOCK_NB) || !is_left(fd))
			continue;
		if (unlinkat(dirfd(objects), e->d_name, 0) == 0)
			log_info("media: %s was left by a process that has died", e->d_name);
	}
}

static void leave_shared(struct places *p, uint64_t patience_ns);

/* Joins the object that was opened. Returns -EAGAIN if it has been removed meanwhile. */
static int join_object(struct places *p)
{
	int err = prepare_object(p->fd);

	if (err)
		return err;
	p->table = map(p->fd);
	err = p->table ? join(p) : -ENOMEM;
	flock(p->fd, LOCK_UN);
	if (err && p->table) {
		munmap(p->table, sizeof(*p->table));
		p->table = NULL;
	}
	return err;
}

/* Returns -EAGAIN if other processes use another object of this medium. */
static int check_alone(struct places *p, DIR *objects, const char *base, const struct stat *file)
{
	CLEANUP_CLOSE int other = -1;
	char name[NAME_SIZE];
	struct stat own;

	if (fstat(p->fd, &own))
		return -errno;
	other = find_used(objects, base, file, own.st_ino, name);
	if (other == -ENOENT)
		return 0;
	leave_shared(p, PATIENCE_NS);
	munmap(p->table, sizeof(*p->table));
	p->table = NULL;
	return other < 0 ? other : -EAGAIN;
}

static int try_to_share(struct media *m, struct places *p, DIR *objects, const char *base,
			const struct stat *file)
{
	int err;

	p->fd = find_used(objects, base, file, 0, p->name);
	if (p->fd == -ENOENT)
		p->fd = find_or_make(m, objects, base, file, p->name);
	if (p->fd < 0)
		return p->fd;
	err = join_object(p);
	if (err == 0)
		err = check_alone(p, objects, base, file);
	if (err) {
		close(p->fd);
		p->fd = -1;
	}
	return err;
}

static const char *explain(int err)
{
	switch (err) {
	case -EBUSY:
		return "another process keeps it locked";
	case -EUSERS:
		return "too many processes use it, or keep it locked";
	}
	return strerror(-err);
}

static int open_shared(struct media *m, struct places *p)
{
	char base[NAME_SIZE];
	struct stat file;
	DIR *objects;
	int err = -EAGAIN;

	if (fstat(m->fd, &file))
		return -errno;
	objects = opendir(OBJECTS);
	if (!objects)
		return -errno;
	base_name(&file, base);
	for (unsigned int i = 0; err == -EAGAIN && i < OPEN_TRIES; i++) {
		if (i > 0)
			usleep(random_u32() % RETRY_US);
		err = try_to_share(m, p, objects, base, &file);
	}
	if (err == 0)
		remove_abandoned_objects(objects);
	else
		log_err("medium %d: cannot be shared: " OBJECTS "/%s: %s", m->fd,
			*p->name ? p->name : base, explain(err));
	closedir(objects);
	return err;
}

int places_open(struct media *m)
{
	struct places *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->fd = -1;
	p->owned = calloc(PLACES, sizeof(*p->owned));
	if (m->flags & MEDIA_SHARED) {
		err = p->owned ? open_shared(m, p) : -ENOMEM;
	} else {
		p->table = map(-1);
		err = p->owned && p->table ? 0 : -ENOMEM;
	}
	if (err) {
		if (p->table)
			munmap(p->table, sizeof(*p->table));
		free(p->owned);
		free(p);
		return err;
	}
	m->places = p;
	return 0;
}

static void unlink_object(const char *name)
{
	char path[sizeof(OBJECTS) + NAME_SIZE];

	snprintf(path, sizeof(path), OBJECTS "/%s", name);
	unlink(path);
}

/*
 * The last process removes the name. Locks are released explicitly, not only by closing: a child
 * made without fork() has the descriptor, too.
 */
static void leave_shared(struct places *p, uint64_t patience_ns)
{
	int err = lock_object(p->fd, patience_ns);
	bool alone = !err;
	struct stat st;

	if (err && patience_ns)
		log_warn("media: " OBJECTS "/%s is left behind: another process keeps it locked",
			 p->name);
	atomic_store(&p->table->live[p->self], 0);
	for (unsigned int q = 0; q < PROCESSES && alone; q++)
		alone = q == p->self || lock_byte(p->fd, q, F_WRLCK);
	if (alone && fstat(p->fd, &st) == 0 && st.st_nlink > 0)
		unlink_object(p->name);
	for (unsigned int q = 0; q < PROCESSES; q++)
		lock_byte(p->fd, q, F_UNLCK);
	flock(p->fd, LOCK_UN);
}

static void release(struct places *p)
{
	munmap(p->table, sizeof(*p->table));
	free(p->owned);
	free(p);
}

void places_close(struct media *m)
{
	struct places *p = m->places;

	if (!p)
		return;
	if (p->fd >= 0) {
		if (!p->left)
			leave_shared(p, PATIENCE_NS);
		close(p->fd);
	}
	release(p);
	m->places = NULL;
}

/* Called when the process exits, if nothing is in flight. */
void places_leave_for_good(struct media *m)
{
	struct places *p = m->places;

	if (!p || p->fd < 0 || p->left)
		return;
	p->left = true;
	leave_shared(p, 0);
}

/*
 * Closes the descriptor in a forked child: the parent's lock lasts as long as any process has it.
 */
void places_abandon(struct media *m)
{
	struct places *p = m->places;

	if (!p)
		return;
	if (p->fd >= 0)
		close(p->fd);
	release(p);
	m->places = NULL;
}
