/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * life.h - proof that a process of this machine has ended: it had a file locked, and has it no more.
 *
 * A connection that breaks proves nothing: who was at its other end may go on, and be read from. The kernel lets go of a lock when
 * nothing of the process runs any more, and then its adapter, which is a part of the process, does not either. The file is another one in
 * each life, with a token in it that nobody guesses: whoever is told the token by the process itself knows which file to look at.
 *
 * Only on file systems of this machine: on those of a network a lock may be lost while its process lives.
 */
#ifndef STAG_POOL_LIFE_H
#define STAG_POOL_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#define LIFE_TOKEN_LEN 16

struct life {
	int fd; /* -1: nothing proves that it ends */
	uint8_t token[LIFE_TOKEN_LEN];
};

#define LIFE_NONE ((struct life){.fd = -1})

/* From now on until life_end(), or the end of the process. -errno: nothing proves it; *life is LIFE_NONE. */
int life_begin(struct life *life, const char *path);
void life_end(struct life *life);
/* Somebody else's: a descriptor for life_is_over(). -errno: it is not the file of that token, or is locked by nobody. */
int life_watch(const char *path, const uint8_t token[LIFE_TOKEN_LEN]);
bool life_is_over(int fd);

#endif
