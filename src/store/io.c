// SPDX-License-Identifier: BSD-2-Clause
/*
 * io.c - all input and output of the store's management.
 *
 * Through the page cache, never O_DIRECT, so that all processes see a change of the table at once.
 */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <linux/falloc.h>

#include "base/clock.h"

#define ZERO_STEP  (16ull << 20) /* bytes per call, zeroed by the kernel */
#define ZERO_WRITE (1ull << 20)	 /* bytes per call, written */
#define TELL_NS	   (NS_PER_S / 5)

struct store_io store_io = {
	.pread = pread,
	.pwrite = pwrite,
	.fdatasync = fdatasync,
	.fallocate = fallocate,
	.ftruncate = ftruncate,
};

int io_read(int fd, void *buf, size_t len, uint64_t offset)
{
	uint8_t *p = buf;

	while (len > 0) {
		ssize_t n = store_io.pread(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENODATA;
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int io_write(int fd, const void *buf, size_t len, uint64_t offset)
{
	const uint8_t *p = buf;

	while (len > 0) {
		ssize_t n = store_io.pwrite(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int io_sync(int fd)
{
	return store_io.fdatasync(fd) == 0 ? 0 : -errno;
}

int io_extend(int fd, uint64_t size)
{
	return store_io.ftruncate(fd, (off_t)size) == 0 ? 0 : -errno;
}

/* ---- zeroes -------------------------------------------------------------- */

static int allocate(int fd, int mode, uint64_t offset, uint64_t len)
{
	int rc;

	do {
		rc = store_io.fallocate(fd, mode | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)len);
	} while (rc != 0 && errno == EINTR);
	return rc == 0 ? 0 : -errno;
}

static bool is_regular(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

struct zeroing {
	const struct io_progress *progress;
	uint64_t done, total, told_ns;
};

static void report_progress(struct zeroing *z)
{
	uint64_t now = clock_ns();

	if (!z->progress || !z->progress->fn || now - z->told_ns < TELL_NS)
		return;
	z->told_ns = now;
	z->progress->fn(z->progress->arg, z->done, z->total);
}

static int zero_by_kernel(int fd, uint64_t offset, struct zeroing *z)
{
	while (z->done < z->total) {
		uint64_t step = z->total - z->done < ZERO_STEP ? z->total - z->done : ZERO_STEP;
		int rc = allocate(fd, FALLOC_FL_ZERO_RANGE, offset + z->done, step);

		if (rc != 0)
			return rc;
		z->done += step;
		report_progress(z);
	}
	return 0;
}

static int zero_by_writing(int fd, uint64_t offset, struct zeroing *z)
{
	static uint8_t zeroes[ZERO_WRITE]; /* not const: .bss takes no space in the file */

	while (z->done < z->total) {
		uint64_t step = z->total - z->done < ZERO_WRITE ? z->total - z->done : ZERO_WRITE;
		int rc = io_write(fd, zeroes, step, offset + z->done);

		if (rc != 0)
			return rc;
		z->done += step;
		report_progress(z);
	}
	return 0;
}

int io_zero(int fd, uint64_t offset, uint64_t len, const struct io_progress *progress)
{
	struct zeroing z = {.progress = progress, .total = len, .told_ns = clock_ns()};
	int rc;

	if (is_regular(fd))
		rc = allocate(fd, FALLOC_FL_PUNCH_HOLE, offset, len);
	else
		rc = zero_by_kernel(fd, offset, &z);
	if (rc == -EOPNOTSUPP || rc == -ENOSYS || rc == -EINVAL)
		rc = zero_by_writing(fd, offset, &z);
	return rc != 0 ? rc : io_sync(fd);
}

void io_release(int fd, uint64_t offset, uint64_t len)
{
	if (is_regular(fd))
		allocate(fd, FALLOC_FL_PUNCH_HOLE, offset, len);
}
