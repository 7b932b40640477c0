/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * life.h - proof that a process on this machine has ended: it held the lock of a file, and does not hold it any
 * more.
 *
 * A broken connection proves nothing: the process at its other end may continue, and be read from. The kernel
 * releases a lock when nothing of its process runs any more; then its adapter, which is part of the process, does
 * not run either.
 *
 * Each process creates a new file, with an unguessable token in it. A process that got the token from the owner
 * itself can tell which file is the owner's. This works on local file systems only: on a network file system a
 * lock may be lost while its owner lives.
 */
#ifndef STAG_POOL_LIFE_H
#define STAG_POOL_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#define LIFE_TOKEN_LEN 16

struct life {
	int fd; /* -1: nothing proves that this process ends */
	uint8_t token[LIFE_TOKEN_LEN];
};

#define LIFE_NONE ((struct life){.fd = -1})

/*
 * Creates and locks the file, until life_end() or the end of the process. Returns -errno if there is no proof;
 * *life is LIFE_NONE then.
 */
int life_begin(struct life *life, const char *path);
void life_end(struct life *life);
/*
 * Opens the file of another process, for life_is_over(). Returns -errno if it does not have that token, or is not
 * locked.
 */
int life_watch(const char *path, const uint8_t token[LIFE_TOKEN_LEN]);
bool life_is_over(int fd);

#endif
