// SPDX-License-Identifier: BSD-2-Clause
/*
 * io.c - all input and output of the store's management.
 *
 * Through the page cache, never O_DIRECT, so that all processes see a change of the table at once.
 */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/falloc.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/zero.h"

#define ZERO_STEP  (16ull << 20) /* bytes per call, zeroed by the kernel */
#define ZERO_WRITE (1ull << 20)	 /* bytes per call, written */
#define SCAN_STEP  (64u << 10)	 /* bytes per call, read in search of data */
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

/* ---- progress ------------------------------------------------------------ */

struct work {
	const struct io_progress *progress;
	uint64_t done, total, told_ns;
};

static void report_progress(struct work *w)
{
	uint64_t now = clock_ns();

	if (!w->progress || !w->progress->fn || now - w->told_ns < TELL_NS)
		return;
	w->told_ns = now;
	w->progress->fn(w->progress->arg, w->done, w->total);
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

static int zero_by_kernel(int fd, uint64_t offset, struct work *w)
{
	while (w->done < w->total) {
		uint64_t step = w->total - w->done < ZERO_STEP ? w->total - w->done : ZERO_STEP;
		int rc = allocate(fd, FALLOC_FL_ZERO_RANGE, offset + w->done, step);

		if (rc != 0)
			return rc;
		w->done += step;
		report_progress(w);
	}
	return 0;
}

static int zero_by_writing(int fd, uint64_t offset, struct work *w)
{
	static uint8_t zeroes[ZERO_WRITE]; /* not const: .bss takes no space in the file */

	while (w->done < w->total) {
		uint64_t step = w->total - w->done < ZERO_WRITE ? w->total - w->done : ZERO_WRITE;
		int rc = io_write(fd, zeroes, step, offset + w->done);

		if (rc != 0)
			return rc;
		w->done += step;
		report_progress(w);
	}
	return 0;
}

int io_zero(int fd, uint64_t offset, uint64_t len, const struct io_progress *progress)
{
	struct work w = {.progress = progress, .total = len, .told_ns = clock_ns()};
	int rc;

	if (is_regular(fd))
		rc = allocate(fd, FALLOC_FL_PUNCH_HOLE, offset, len);
	else
		rc = zero_by_kernel(fd, offset, &w);
	if (rc == -EOPNOTSUPP || rc == -ENOSYS || rc == -EINVAL)
		rc = zero_by_writing(fd, offset, &w);
	return rc != 0 ? rc : io_sync(fd);
}

void io_release(int fd, uint64_t offset, uint64_t len)
{
	if (is_regular(fd))
		allocate(fd, FALLOC_FL_PUNCH_HOLE, offset, len);
}

/* ---- data ---------------------------------------------------------------- */

/* Returns where a file has data again. A device, or a file system without holes, has it anywhere. */
static uint64_t skip_hole(int fd, uint64_t at, uint64_t end)
{
	off_t data = lseek(fd, (off_t)at, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? end : at;
	return (uint64_t)data < end ? (uint64_t)data : end;
}

int io_find_data(int fd, uint64_t *at, uint64_t end, const struct io_progress *progress)
{
	struct work w = {.progress = progress, .total = end - *at, .told_ns = clock_ns()};
	CLEANUP_FREE uint8_t *step = malloc(SCAN_STEP);
	uint64_t begin = *at, n;

	if (!step)
		return -ENOMEM;
	for (*at = skip_hole(fd, *at, end); *at < end; *at = skip_hole(fd, *at + n, end)) {
		int rc;

		n = end - *at < SCAN_STEP ? end - *at : SCAN_STEP;
		rc = io_read(fd, step, n, *at);
		if (rc != 0)
			return rc;
		if (!is_zero(step, n)) {
			for (const uint8_t *p = step; *p == 0; p++)
				++*at;
			return 1;
		}
		w.done = *at - begin;
		report_progress(&w);
	}
	return 0;
}
