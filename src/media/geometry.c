// SPDX-License-Identifier: BSD-2-Clause
/*
 * geometry.c - the type and size of a descriptor, and the alignment that O_DIRECT requires of
 * offsets and memory.
 *
 * The kernel reports it since 6.1 (STATX_DIOALIGN). Before, block devices report their sector size,
 * and for a file it is found by trying.
 */
#include "media/medium.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"

#define LARGEST_BLOCK 65536

static int query_statx(int fd, unsigned int mask, struct statx *st)
{
	return syscall(SYS_statx, fd, "", AT_EMPTY_PATH, mask, st) ? -errno : 0;
}

int geometry_size(int fd, uint64_t *size)
{
	struct statx st;
	int err = query_statx(fd, STATX_TYPE | STATX_SIZE, &st);

	if (err)
		return err;
	if ((st.stx_mode & S_IFMT) == S_IFREG)
		*size = st.stx_size;
	else if ((st.stx_mode & S_IFMT) != S_IFBLK)
		return -EINVAL;
	else if (ioctl(fd, BLKGETSIZE64, size))
		return -errno;
	return 0;
}

static bool is_memory(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

/* Returns the smallest block that a direct read accepts; 0: none. */
static uint32_t try_blocks(int fd)
{
	CLEANUP_FREE void *memory = NULL;

	if (posix_memalign(&memory, LARGEST_BLOCK, LARGEST_BLOCK))
		return 0;
	for (uint32_t block = 512; block <= LARGEST_BLOCK; block *= 2)
		if (pread(fd, memory, block, block) >= 0)
			return block;
	return 0;
}

static void find_alignment(int fd, bool is_device, struct geometry *g)
{
	struct statx st;
	int sector;

	if (!query_statx(fd, STATX_DIOALIGN, &st) && (st.stx_mask & STATX_DIOALIGN)) {
		g->block = st.stx_dio_offset_align;
		g->memory_align = st.stx_dio_mem_align;
	} else if (is_device && !ioctl(fd, BLKSSZGET, &sector)) {
		g->block = g->memory_align = (uint32_t)sector;
	} else {
		g->block = g->memory_align = try_blocks(fd);
	}
}

/* Determines the geometry of a descriptor that has O_DIRECT set. */
int geometry_of(int fd, struct geometry *g)
{
	struct statx st;
	int err = query_statx(fd, STATX_TYPE, &st);

	memset(g, 0, sizeof(*g));
	if (!err)
		err = geometry_size(fd, &g->size);
	if (err)
		return err;
	g->is_memory = (st.stx_mode & S_IFMT) == S_IFREG && is_memory(fd);
	if (!g->is_memory && (fcntl(fd, F_GETFL) & O_DIRECT))
		find_alignment(fd, (st.stx_mode & S_IFMT) == S_IFBLK, g);
	g->direct = g->block && g->memory_align && g->block <= LARGEST_BLOCK &&
		    g->memory_align <= LARGEST_BLOCK;
	if (!g->direct)
		g->block = g->memory_align = 1;
	return 0;
}
