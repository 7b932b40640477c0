/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * other.h - another process that has attached the heap and does what it is told: takes and frees
 * memory, and reaches for memory of the story's process over the adapter.
 */
#ifndef STAG_TEST_OTHER_H
#define STAG_TEST_OTHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct other {
	pid_t pid;
	int fd;
};

/* In main(), first: true if this process is such a one, and has done its work. */
bool other_main(int argc, char **argv, int *status);

void other_start(struct other *o, const char *heap);
void other_end(struct other *o); /* it detaches and exits, with success */

void *other_alloc(struct other *o, size_t size); /* shared, so that anybody may free it */
void other_free(struct other *o, void *ptr);
void other_trim(struct other *o);
void other_fill(struct other *o, void *ptr, size_t len, uint8_t byte);

/* Does it find only this? */
bool other_finds(struct other *o, const void *ptr, size_t len, uint8_t byte);

#define OTHER_INLINE 64 /* bytes: the kernel's siw has no more than 80 */

enum access { ACCESS_WRITE, ACCESS_READ };

/*
 * It connects to port, and accesses [addr, addr + len) with that key: writes byte, or reads and finds it.
 * To be called, then whoever listens there accepts; when both are connected, other_answer() lets it go on, and
 * says whether it was let.
 */
void other_access(struct other *o, uint16_t port, enum access access, uint32_t rkey, uint64_t addr,
		  size_t len, uint8_t byte);
bool other_answer(struct other *o);

#endif
