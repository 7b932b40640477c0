/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store.h - the store: shared by its files.
 *
 *	format.c check.c open.c change.c        the calls of <stag/store.h>
 *	        |        |        |
 *	     found.c     |    commit.c          existing content; the two copies
 *	                 |        |
 *	   table.c    disk.c   lock.c  backing.c
 *	                          |        |
 *	                        io.c ------+    all input and output
 *
 * table.c and disk.c are pure: the table in memory, and its bytes (docs/STORE-FORMAT.md). Words:
 *
 *   backing   the file, block device or shared memory object that a store is in
 *   copy      the table exists twice: copy A at 0, copy B at 1 MiB, each after a header
 *   commit    writes both copies, one after the other, so that one is good at any moment
 *   user      a process that has a partition open, locally or as a server; it locks its bytes
 *   visitor   a local user or a peer that requests access to a partition
 *
 * Functions return 0 or -errno, with an error text (store_fail()).
 */
#ifndef STAG_STORE_STORE_H
#define STAG_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/error_text.h"
#include "base/list.h"
#include "stag/store.h"

/* ---- error.c --------------------------------------------------------------- */

extern __thread char store_error_text[512];

/* Sets the text that stag_store_error() returns in this thread. Returns -error. */
#define store_fail(error, ...)                                                                     \
	error_text_set(store_error_text, sizeof(store_error_text), -(error), __VA_ARGS__)

/* ---- io.c --------------------------------------------------------------------- */

/* System calls, which tests replace. */
struct store_io {
	ssize_t (*pread)(int fd, void *buf, size_t len, off_t offset);
	ssize_t (*pwrite)(int fd, const void *buf, size_t len, off_t offset);
	int (*fdatasync)(int fd);
	int (*fallocate)(int fd, int mode, off_t offset, off_t len);
	int (*ftruncate)(int fd, off_t len);
};

extern struct store_io store_io;

/* These set no error text: the caller knows the context. */
int io_read(int fd, void *buf, size_t len, uint64_t offset); /* -ENODATA: it ends before */
int io_write(int fd, const void *buf, size_t len, uint64_t offset);
int io_sync(int fd);
int io_extend(int fd, uint64_t size);

struct io_progress {
	stag_store_progress fn;
	void *arg;
};

/* Makes the range read as zeroes, durably. progress may be NULL. */
int io_zero(int fd, uint64_t offset, uint64_t len, const struct io_progress *progress);
/*
 * Searches [*at, end) for a byte that is not zero, and sets *at to it. Returns 1, 0 if there is
 * none, or -errno: *at cannot be read. Holes of a file are skipped. progress may be NULL.
 */
int io_find_data(int fd, uint64_t *at, uint64_t end, const struct io_progress *progress);
/* returns space to the file system if that is quick */
void io_release(int fd, uint64_t offset, uint64_t len);

/* ---- backing.c ------------------------------------------------------------------ */

struct backing {
	int fd;
	bool writable;
	bool created;	/* by this open */
	bool in_memory; /* mem:, of this owner */
	uid_t owner;
	char *path;	/* absolute path in the file system */
	char *name;	/* as the user gave it, for messages */
	struct stat st; /* when it was opened */
};

enum backing_mode { BACKING_LOOK, BACKING_USE, BACKING_CREATE };

int backing_open(struct backing *b, const char *name, enum backing_mode mode);
void backing_close(struct backing *b);
int backing_size(const struct backing *b, uint64_t *size);
int backing_sector(const struct backing *b, uint32_t *bytes); /* the smallest possible write */
bool backing_is_same_file(const struct stat *a, const struct stat *b);
int backing_is_same(const struct backing *b); /* -ESTALE: the path leads to another file now */
int backing_again(const struct backing *b);   /* a descriptor with locks of its own */

/* ---- table.c ---------------------------------------------------------------------- */

#define STORE_VERSION	1
#define STORE_BLOCK_MIN 512u
#define STORE_BLOCK_MAX 65536u
#define STORE_BLOCK	4096u
#define STORE_SIZE_MAX	(1ull << 62)
#define STORE_ID_MAX	(1ull << 62)
#define STORE_ALL_RELAX (STAG_STORE_ANY_PROCESSING | STAG_STORE_ANY_COMPLETION)

struct table {
	uint8_t uuid[16];
	uint64_t generation, size, next_id;
	uint32_t block, owner;
	char label[STAG_STORE_NAME_MAX];
	uint32_t n;
	struct stag_store_partition entries[STAG_STORE_MAX_PARTITIONS]; /* sorted by offset */
};

/* Return -EINVAL if the values are invalid. */
int table_check_name(const char *what, const char *name);
int table_check_geometry(uint64_t size, uint32_t block);
int table_check_settings(const struct stag_store_partition *p);
int table_check(const struct table *t); /* a whole table, as read or to be written */

/* Copy and compare only the entries in use. */
void table_copy(struct table *to, const struct table *from);
bool table_is_same(const struct table *a, const struct table *b);

/* Zeroes unused bytes, so that equal partitions have equal bytes. */
void table_clean(struct stag_store_partition *p);
bool table_is_clean(const struct stag_store_right *r);

struct stag_store_partition *table_find(struct table *t, const char *name);
struct stag_store_partition *table_find_id(struct table *t, uint64_t id);
int table_mark(const char *name, uint8_t mark[STAG_STORE_MARK]); /* -ENOMEM */
/* Finds a partition by its mark, in a time that does not depend on which one it is. NULL: there is none. */
struct stag_store_partition *table_find_mark(struct table *t, const uint8_t mark[STAG_STORE_MARK]);
uint64_t table_used(const struct table *t);
uint64_t table_largest_gap(const struct table *t);
uint64_t table_gap_behind(const struct table *t, const struct stag_store_partition *p);

/*
 * Finds the smallest gap of size bytes with that alignment that free() accepts; or checks the place
 * that p->offset names. Sets p->offset. Returns -ENOSPC, or -EBUSY if free() accepted none.
 */
typedef bool (*table_free_fn)(void *arg, uint64_t offset, uint64_t size);
int table_place(const struct table *t, struct stag_store_partition *p, table_free_fn free,
		void *arg);
struct stag_store_partition *table_insert(struct table *t, const struct stag_store_partition *p);
void table_delete(struct table *t, struct stag_store_partition *p);

/* ---- disk.c ------------------------------------------------------------------------- */

#define DISK_HEADER	4096u
#define DISK_ENTRY	1408u
#define DISK_COPY	(1u << 20) /* distance of the copies */
#define DISK_COPIES	2u
#define DISK_TABLE_MAX	(DISK_ENTRY * STAG_STORE_MAX_PARTITIONS)
#define DISK_IMAGE_MAX	(DISK_HEADER + DISK_TABLE_MAX)
#define DISK_GENERATION 32u		    /* offset in a header */
#define DISK_SERVER	(DISK_COPY - 4096u) /* the server's record, in the first MiB */

/* Encodes a header and the table after it; returns the length in use. */
size_t disk_encode(const struct table *t, unsigned int copy, uint8_t *image);

/*
 * Decodes the table of a copy, with every byte checked. Returns -ENODATA: no store; -EPROTO: a
 * valid header of a newer version; -EBADMSG: damaged. disk_table_length() is the number of bytes to
 * read after a header.
 */
int disk_table_length(const uint8_t header[DISK_HEADER], unsigned int copy, uint32_t *length);
int disk_decode(const uint8_t *image, size_t len, unsigned int copy, struct table *t);
char disk_copy_name(unsigned int copy);

uint64_t disk_generation(const uint8_t word[8]);
void disk_put_server(uint8_t record[16], uint32_t pid);
uint32_t disk_get_server(const uint8_t record[16]); /* 0: no server */

/* ---- lock.c --------------------------------------------------------------------------- */

/*
 * Ranges of the backing that are locked (OFD locks, fcntl(2)). A partition's own bytes are locked
 * by its users.
 */
enum { LOCK_TABLE = 0, LOCK_SERVE = 1 };

int lock_table(const struct backing *b, bool to_change); /* waits */
void unlock_table(const struct backing *b);
bool lock_range(int fd, uint64_t offset, uint64_t len);	      /* exclusive; does not wait */
int lock_range_shared(int fd, uint64_t offset, uint64_t len); /* waits */
void unlock_range(int fd, uint64_t offset, uint64_t len);
/* by another open file description, in any mode */
bool lock_is_held(int fd, uint64_t offset, uint64_t len);

/* ---- commit.c --------------------------------------------------------------------------- */

struct copy_state {
	int error;	     /* 0: good */
	uint64_t generation; /* as read, good or not */
	uint32_t length;     /* length of its image; the maximum if it is not good */
};

/* A table as it was read, and the states of both copies. */
struct loaded {
	struct table table;
	struct copy_state copies[DISK_COPIES];
	unsigned int from;
};

int commit_read_copy(const struct backing *b, unsigned int copy, struct table *t,
		     struct copy_state *state);
int commit_load(const struct backing *b, struct loaded *l);
void commit_copy(struct loaded *to, const struct loaded *from);
uint32_t commit_good_copies(const struct loaded *l);

/*
 * Makes next the table, with the table lock held; l is the result. At any moment one copy is good:
 * the one that l was read from is written last.
 */
int commit_table(const struct backing *b, struct loaded *l, const struct table *next);
int commit_write_copy(const struct backing *b, unsigned int copy, const struct table *t,
		      uint32_t old_length); /* old_length: how many bytes to overwrite */

/* ---- open.c -------------------------------------------------------------------------------- */

struct stag_store {
	struct backing backing;
	bool look;
	uint8_t uuid[16];
	struct loaded now;
	struct table draft;   /* of a change in progress */
	int trouble;	      /* last error that store_look() logged */
	struct list reserved; /* region.c: partitions in use through this handle */
	struct io_progress progress;
};

/*
 * For users of partitions. store_changed() is two short reads and can be called ten times a second;
 * true: the table may have changed, call store_refresh(). That returns -ESTALE if this is no longer
 * the store that was opened, or another error if it cannot be read now.
 */
int store_load(const struct backing *b, struct loaded *l); /* even if it is being changed */
bool store_changed(const struct stag_store *store);
int store_refresh(struct stag_store *store);
int store_look(struct stag_store *store); /* refreshes from time to time: errors are logged once */

typedef int (*store_load_fn)(const struct backing *b, struct loaded *l);
int store_reload(struct stag_store *store, store_load_fn load);

/*
 * Returns a descriptor that reserves the partition's bytes until it is closed; or -errno. The
 * partition is read again after the reservation.
 */
int store_use(struct stag_store *store, uint64_t id, struct stag_store_partition *partition);

/* Returns a descriptor that makes this process the store's only server; -EBUSY. */
int store_serve_lock(struct stag_store *store);
uint32_t store_served_by(const struct backing *b);

/* ---- rights.c ------------------------------------------------------------------------------- */

struct visitor {
	const struct sockaddr *peer; /* NULL: a user of this machine */
	uid_t uid;
	const gid_t *gids; /* all groups of the process */
	size_t num_gids;
	const uint8_t *shown; /* token of a peer: 32 bytes, or NULL */
};

#define TOKEN_BYTES 32

enum stag_store_access rights_of(const struct stag_store_partition *p, uint32_t owner,
				 const struct visitor *v);
enum stag_store_access rights_of_self(const struct stag_store_partition *p, uint32_t owner);

/* Derives the value that a peer presents from its secret; rights store a digest of that value. */
int token_shown(const void *secret, size_t len, uint8_t shown[TOKEN_BYTES]);
int token_kept(const uint8_t shown[TOKEN_BYTES], uint8_t kept[TOKEN_BYTES]);

/*
 * ---- found.c -----------------------------------------------------------------------------------
 */

/* Checks whether a backing is empty. Returns -EEXIST, with an error text, if it has content. */
int found_anything(const struct backing *b);
int found_wipe(const struct backing *b); /* every signature, at any offset */

#endif
