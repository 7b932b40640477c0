// SPDX-License-Identifier: BSD-2-Clause
/*
 * lock.c - the locks of the table, of the server, and of partitions in use.
 *
 * All are locks of open file descriptions: the kernel releases them when the last descriptor is
 * closed, however its process ended. The first bytes of a store never belong to a partition, so
 * they represent the table and the server; users of a partition lock the partition's own bytes.
 */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static int set(int fd, int command, short type, uint64_t offset, uint64_t len)
{
	struct flock lock = {.l_type = type,
			     .l_whence = SEEK_SET,
			     .l_start = (off_t)offset,
			     .l_len = (off_t)len};
	int rc;

	do {
		rc = fcntl(fd, command, &lock);
	} while (rc != 0 && errno == EINTR);
	return rc == 0 ? 0 : -errno;
}

int lock_table(const struct backing *b, bool to_change)
{
	int rc = set(b->fd, F_OFD_SETLKW, to_change ? F_WRLCK : F_RDLCK, LOCK_TABLE, 1);

	return rc == 0 ? 0
		       : store_fail(-rc, "%s: cannot lock its table: %s", b->name, strerror(-rc));
}

void unlock_table(const struct backing *b)
{
	set(b->fd, F_OFD_SETLK, F_UNLCK, LOCK_TABLE, 1);
}

int lock_range_shared(int fd, uint64_t offset, uint64_t len)
{
	return set(fd, F_OFD_SETLKW, F_RDLCK, offset, len);
}

bool lock_range(int fd, uint64_t offset, uint64_t len)
{
	return set(fd, F_OFD_SETLK, F_WRLCK, offset, len) == 0;
}

void unlock_range(int fd, uint64_t offset, uint64_t len)
{
	set(fd, F_OFD_SETLK, F_UNLCK, offset, len);
}

bool lock_is_held(int fd, uint64_t offset, uint64_t len)
{
	struct flock lock = {.l_type = F_WRLCK,
			     .l_whence = SEEK_SET,
			     .l_start = (off_t)offset,
			     .l_len = (off_t)len};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
