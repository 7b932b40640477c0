/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * other.h - a second process that has attached the heap and executes orders: it allocates and frees
 * memory, and accesses memory of the test's process over the adapter.
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

/* Call first in main(). Returns true if this process is the second process, and has finished. */
bool other_main(int argc, char **argv, int *status);

void other_start(struct other *o, const char *heap);
void other_end(struct other *o); /* it detaches and exits, with success */

void *other_alloc(struct other *o, size_t size); /* shared, so that any process may free it */
void other_free(struct other *o, void *ptr);
void other_trim(struct other *o);
void other_fill(struct other *o, void *ptr, size_t len, uint8_t byte);

/* Returns whether all bytes are `byte`, as the second process reads them. */
bool other_finds(struct other *o, const void *ptr, size_t len, uint8_t byte);

#define OTHER_INLINE 64 /* bytes: the kernel's siw allows at most 80 */

enum access { ACCESS_WRITE, ACCESS_READ };

/*
 * Makes the second process connect to port and access [addr, addr + len) with that key: it writes
 * byte, or reads and compares with it. After this call, accept the connection; when both ends are
 * connected, other_answer() starts the access and returns whether it was permitted.
 */
void other_access(struct other *o, uint16_t port, enum access access, uint32_t rkey, uint64_t addr,
		  size_t len, uint8_t byte);
bool other_answer(struct other *o);

#endif
