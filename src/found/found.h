/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * found.h - libstag-found.so: programs that look for RDMA devices find the adapter's.
 *
 * Programs find a device in three ways: by the libraries that they are linked with (libstag-verbs.so stands in for these), by
 * dlopen(), and by files in /sys/class/infiniband and /dev/infiniband. This library is preloaded beside libstag-verbs.so
 * and answers the last two. It takes the place of a few functions of the C library: a call that does not concern an RDMA
 * library or device costs one comparison, and goes on to the C library.
 *
 *   next.c    finds the C library's functions
 *   dlopen.c  dlopen() of libibverbs and librdmacm gives libstag-verbs.so
 *   shown.c   which devices this process shows: STAG_DEVICE
 *   tree.c    the files of a device: their names and their content
 *   walk.c    follows a path through these files and the real ones
 *   serve.c   stat, open and so on of a file or a link of ours
 *   list.c    directories: ours, and real ones in which ours are merged
 *   calls.c   the C library's names for all that, which do nothing themselves but pass calls on
 *
 * The library is loaded into every process of 'stag run', also into ones that never use RDMA (ls, sh), and stays loaded over
 * exec. So it has no state but the functions that it found; it takes no locks; it calls nothing that is unsafe in a signal
 * handler or in a forked child where the C library's function is safe. It has no version script: a symbol under
 * a version of its own would not be bound to references under the C library's versions.
 *
 * It does not show /sys/class/infiniband_verbs, since rdma-core would take the device there for one of the kernel's.
 */
#ifndef STAG_FOUND_FOUND_H
#define STAG_FOUND_FOUND_H

#include <dirent.h>
#include <net/if.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	FOUND_PATH = 512, /* a longer path is none of ours */
	FOUND_DEVICES = 2,
	FOUND_GIDS = 256, /* the most in a table */
};

/* ---- next.c ---- */

/* The C library's dlopen(). Exported, for libstag-verbs.so. */
void *stag_found_next_dlopen(const char *file, int mode);

/* ---- shown.c ---- */

struct shown_gid {
	uint8_t raw[16];
	uint32_t ifindex; /* its interface; 0: the entry is empty */
};

struct shown_device {
	const char *name;
	bool roce;
	const char *dev_name; /* its file in /dev/infiniband; or NULL */
	unsigned num_gids;
	struct shown_gid gids[FOUND_GIDS];
};

/* What this process shows. It is computed for each call that needs it: the machine's addresses may change. */
struct shown {
	struct shown_device devices[FOUND_DEVICES];
	unsigned num_devices;
	uint64_t guid;
	unsigned num_cpus;
	char netdev[IFNAMSIZ]; /* the interface of the first GID */
	char parent
		[FOUND_PATH]; /* the directory of the card that the interface is on; or of one that is made up */
	bool parent_is_real;
	bool (*kernel_has)(
		const char
			*path); /* is there a file of that name without us? Does not follow links */
};

/* Does this process show any device? */
bool shown_any(void);
/* Returns what this process shows; NULL without memory. Does not call malloc(). */
struct shown *shown_get(void);
void shown_put(struct shown *s);
/* Writes the path of the PCI device that a network interface belongs to, from where its link in /sys/class/net leads. */
bool shown_card(const char *net_link, char card[FOUND_PATH]);
bool shown_netdev(uint32_t ifindex, char name[IFNAMSIZ]);

/* ---- tree.c ---- */

enum node_kind {
	NODE_NONE,	/* not ours, and nothing of ours is below it */
	NODE_DIRECTORY, /* ours */
	NODE_SHARED,	/* a real directory; something of ours is in it or below */
	NODE_FILE,
	NODE_LINK,
	NODE_ELSEWHERE, /* stands for a real file of another name */
};

struct node {
	enum node_kind kind;
	const struct shown_device *device;
	const struct tree_row *row;
	unsigned index;
};

/* Finds the node of a path that has no links, dots or double slashes in it. */
void tree_find(const struct shown *s, const char *path, struct node *node);
/*
 * Writes the content of a file, the target of a link or the real name that stands behind a node. Returns its length, or -EINVAL
 * if reading the file fails so.
 */
int tree_text(const struct shown *s, const struct node *node, char text[FOUND_PATH]);
/*
 * Calls fn for each name of ours in a directory, until it returns false. A name may come more than once.
 */
void tree_each(const struct shown *s, const char *dir,
	       bool (*fn)(void *arg, const char *name, enum node_kind kind), void *arg);

/* ---- walk.c ---- */

/* A place that a path leads to. */
struct spot {
	struct node node;	   /* NODE_NONE: a real file, or none */
	char path[2 * FOUND_PATH]; /* where it is, without links on the way */
};

/* Follows a path; at its end, follows a link of ours only if told to. Returns -ELOOP, -ENOTDIR, -ENAMETOOLONG. */
int walk(const struct shown *s, const char *path, bool follow, struct spot *at);

/* ---- serve.c ---- */

/* These return -errno. */
int serve_stat(const struct shown *s, const struct spot *at, struct stat *st);
int serve_statx(const struct shown *s, const struct spot *at, struct statx *st);
int serve_access(const struct spot *at, int mode);
int serve_open(const struct shown *s, const struct spot *at, int flags); /* also of a directory */
ssize_t serve_readlink(const struct shown *s, const struct spot *at, char *to, size_t room);

/* Has this process opened a directory by serve_open()? Only then a file descriptor has to be looked at. */
extern atomic_bool serve_has_directories;
/* Finds the path of a directory that serve_open() has opened. */
bool serve_directory(int fd, char path[FOUND_PATH]);
ino_t serve_ino(const char *path);

/* ---- list.c ---- */

/* Opens a directory, ours or one that is shared; closing it closes fd. Returns NULL and errno. */
DIR *list_open(const struct shown *s, const struct spot *at, int fd);
bool list_is_ours(const DIR *dir);
struct dirent *list_next(DIR *dir);
int list_close(DIR *dir);
int list_fd(const DIR *dir);
void list_seek(DIR *dir, long where);
long list_tell(const DIR *dir);

#endif
