/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shm.h - the directory that each user has in /dev/shm for objects that have a name.
 *
 * Every user may create any name in /dev/shm itself, so a stranger could create one that we are
 * about to use. In a directory of its own a user is the only one who can create or replace a name:
 * /dev/shm/stag-UID. If a stranger has taken this name, the user's directory is stag-UID.N.
 */
#ifndef STAG_BASE_SHM_H
#define STAG_BASE_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#define SHM_DIR "/dev/shm"

/*
 * Splits "NAME", an object of this user, or "OWNER/NAME", another user's: OWNER is a user's name or
 * number. Returns 0, or -EINVAL if there is no such user.
 */
int shm_parse(const char *text, uid_t *owner, const char **name);

/*
 * Opens the directory of a user (O_PATH); make: creates it if it is missing, which only its user
 * can. Returns -ENOENT if there is none, or another -errno.
 */
int shm_open_home(uid_t owner, bool make);

/*
 * Prints the path of a file in the directory of a user, which is opened as by shm_open_home().
 * Returns 0 or -errno.
 */
int shm_path(uid_t owner, bool make, const char *file, char *path, size_t size);

/*
 * Calls fn with each user who has a directory, until it returns false. A directory counts only if
 * it belongs to the user whose number it has.
 */
void shm_each_user(bool (*fn)(uid_t user, void *arg), void *arg);

enum shm_fault {
	SHM_GOOD,
	SHM_NOT_A_FILE, /* no regular file */
	SHM_LINKED,	/* it has another name, where its owner's directory does not protect it */
	SHM_STRANGE,	/* belongs to another user */
	SHM_OPEN,	/* users may write it that `mode` does not admit */
};

/* Checks an object that was opened: whose it is, and who else may write it. */
enum shm_fault shm_check(const struct stat *st, uid_t owner, mode_t mode);

#endif
