// SPDX-License-Identifier: BSD-2-Clause
/*
 * disk.c - see disk.h.
 */
#include "disk.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

#define MAX_IO 1024

struct disk disk;

static struct media_io ios[MAX_IO];
static unsigned n_ios;

static void move(bool write, uint8_t *memory, uint64_t offset, size_t len)
{
	CHECK(offset <= DISK_SIZE && len <= DISK_SIZE - offset);
	if (write)
		memcpy(disk.bytes + offset, memory, len);
	else
		memcpy(memory, disk.bytes + offset, len);
}

static int carry_out(const struct media_io *io)
{
	uint64_t offset = io->offset;

	if (io->kind == MEDIA_IO_SYNC)
		return disk.failing ? -EIO : 0;
	if (io->kind == MEDIA_IO_TIMEOUT)
		return -ETIME;
	if (disk.failing)
		return -EIO;
	if (!io->n_iov)
		move(io->kind == MEDIA_IO_WRITE, io->buffer, offset, io->length);
	for (uint32_t i = 0; i < io->n_iov; i++) {
		move(io->kind == MEDIA_IO_WRITE, io->iov[i].iov_base, offset, io->iov[i].iov_len);
		offset += io->iov[i].iov_len;
	}
	return (int)io->length;
}

static void disk_queue(struct media_edge *e, const struct media_io *io)
{
	CHECK(n_ios < MAX_IO);
	ios[n_ios++] = *io;
}

static unsigned int disk_reap(struct media_edge *e, struct media_event *events, unsigned int n)
{
	if (disk.held)
		return 0;
	if (n > n_ios)
		n = n_ios;
	for (unsigned int i = 0; i < n; i++)
		events[i] = (struct media_event){ios[i].cookie, carry_out(&ios[i])};
	n_ios -= n;
	memmove(ios, ios + n, n_ios * sizeof(*ios));
	return n;
}

static bool disk_ready(struct media_edge *e)
{
	return n_ios && !disk.held;
}

static bool disk_queued(struct media_edge *e)
{
	return false;
}

static int disk_submit(struct media_edge *e, bool wait)
{
	return 0;
}

bool disk_open(void)
{
	static struct media_edge edge = {disk_queue, disk_reap, disk_ready, disk_queued,
					 disk_submit};
	struct media_attr attr = {.staging_bytes = 1, .cache_bytes = 65536};
	int err;

	attr.fd = memfd_create("disk", MFD_CLOEXEC);
	CHECK(attr.fd >= 0 && ftruncate(attr.fd, DISK_SIZE) == 0);
	err = media_open(&disk.medium.media, &attr);
	close(attr.fd);
	if (err)
		return false;
	media_set_edge(disk.medium.media, &edge);
	lock_init(&disk.medium.lock);
	atomic_store(&disk.medium.refs, 1); /* never freed */
	return true;
}

void disk_settle(void)
{
	disk.held = disk.failing = false;
	while (medium_poll(&disk.medium))
		;
	CHECK(n_ios == 0);
}
