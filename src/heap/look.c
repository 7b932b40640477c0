// SPDX-License-Identifier: BSD-2-Clause
/*
 * look.c - a snapshot of a heap, for tools.
 *
 * Reads the heap's file into private memory at the heap's address: the tables when the snapshot is
 * taken, a block's header while that block is inspected. Nothing is mapped, because reading a
 * mapped page while its block is released would allocate it again. Since the snapshot does not
 * change while it is read, and nothing in it is trusted, the file may belong to anyone.
 */
#include "heap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/export.h"
#include "base/shm.h"

#define TRIES 100u

/* ---- reading ------------------------------------------------------------------ */

/* Reads from the file. Bytes after its end read as zero, like a hole. */
static void read_at(int fd, void *to, uint64_t offset, uint64_t length)
{
	uint64_t done = 0;

	while (done < length) {
		ssize_t n = pread(fd, (char *)to + done, length - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (uint64_t)n;
	}
	memset((char *)to + done, 0, length - done);
}

static void read_table(struct stag_heap *heap)
{
	uint64_t from = heap->plan.procs_offset;

	read_at(heap->files.fd, (char *)heap->header + from, from, heap->plan.control_size - from);
}

static void read_entry(struct stag_heap *heap, uint32_t index, struct heap_desc *desc)
{
	uint64_t at = (uint64_t)index * sizeof(*desc);

	read_at(heap->files.fd, desc, heap->plan.descs_offset + at, sizeof(*desc));
}

static void read_block(struct stag_heap *heap, uint32_t index)
{
	struct heap_block *block = heap_block_at(heap, index);
	uint64_t at = heap->files.area_offset + ((uint64_t)index << heap->geo.block_shift);
	bool run = desc_is_run(heap_load(&heap->descs[index].state));

	read_at(heap->files.area_fd, block, at, run ? HEAP_PAGE : heap->geo.header_size);
}

/* ---- one block at a time --------------------------------------------------------- */

/* Repeats until the entry did not change while the header was read. */
void look_fetch(struct stag_heap *heap, uint32_t index)
{
	struct heap_desc after;

	if (!heap->looking || desc_phase(heap_load(&heap->descs[index].state)) == BLOCK_OPEN ||
	    mprotect(heap_block_at(heap, index), heap->geo.header_size, PROT_READ | PROT_WRITE) !=
		    0)
		return;
	for (unsigned int i = 0; i < TRIES; i++) {
		read_entry(heap, index, &heap->descs[index]);
		read_block(heap, index);
		read_entry(heap, index, &after);
		if (heap_load(&after.state) == heap_load(&heap->descs[index].state))
			break;
	}
}

void look_drop(struct stag_heap *heap, uint32_t index)
{
	if (!heap->looking)
		return;
	madvise(heap_block_at(heap, index), heap->geo.header_size, MADV_DONTNEED);
	mprotect(heap_block_at(heap, index), heap->geo.header_size, PROT_NONE);
}

void look_again(struct stag_heap *heap)
{
	if (heap->looking)
		read_table(heap);
}

void look_end(struct stag_heap *heap)
{
	munmap(heap->header, heap->plan.size);
}

/* ---- taking a snapshot ----------------------------------------------------------------- */

static int open_regular(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		return fd;
	close(fd);
	return -EPROTO;
}

static int open_files(struct stag_heap *heap, struct heap_header *header)
{
	int rc = heap_open_object(heap, O_RDONLY);

	if (rc == 0)
		rc = heap_read_header(heap->files.fd, header);
	if (rc != 0)
		return rc;
	if (heap_load(&header->gate) == GATE_CLOSED)
		return -ENOENT;
	if (header->huge_shift != 0 && !heap_is_huge_path(heap->name, header->huge_path))
		return -EPROTO;
	heap->files.area_fd =
		header->huge_shift != 0 ? open_regular(header->huge_path) : heap->files.fd;
	return heap->files.area_fd < 0 ? heap->files.area_fd : 0;
}

static int reserve_addresses(const struct heap_header *header)
{
	void *want = (void *)header->address, *got;
	int rc = 0;

	if (HEAP_LOW_ONLY && header->address >= HEAP_LOW_END)
		return -EADDRINUSE;
	got = mmap(want, header->size, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (got == MAP_FAILED)
		return errno == EEXIST ? -EADDRINUSE : -errno;
	if (got != want)
		rc = -EADDRINUSE;
	else if (mprotect(got, header->control_size, PROT_READ | PROT_WRITE) != 0)
		rc = -errno;
	if (rc != 0)
		munmap(got, header->size);
	return rc;
}

static int take_snapshot(struct stag_heap *heap)
{
	struct heap_header header;
	int rc = open_files(heap, &header);

	if (rc != 0)
		return rc;
	rc = reserve_addresses(&header);
	if (rc != 0)
		return rc;
	memcpy((void *)header.address, &header, sizeof(header));
	layout_open(heap, &header);
	heap->files.area_offset = header.huge_shift != 0 ? 0 : header.area_offset;
	heap->slot = UINT_MAX;
	heap->looking = true;
	heap->area_size = 0;
	read_table(heap);
	return 0;
}

STAG_EXPORT struct stag_heap *stag_heap_look(const char *text)
{
	struct stag_heap *heap;
	const char *name;
	uid_t owner;
	int rc;

	heap_fail(0, "%s", "");
	rc = -heap_parse_name(text, &owner, &name);
	if (rc != 0)
		return heap_refuse(text, rc);
	heap = heap_new(name, owner, NULL);
	if (!heap)
		return heap_refuse(text, -ENOMEM);
	rc = take_snapshot(heap);
	if (rc == 0)
		return heap;
	heap_delete(heap);
	return heap_refuse(text, rc);
}

/* ---- lists ----------------------------------------------------------------------------- */

struct listing {
	stag_heap_list_fn fn;
	void *arg;
	int rc;
};

/* Lists the names in a directory; with their owner, unless he is this user. */
static void list_home(struct listing *list, int home, uid_t owner)
{
	int fd = openat(home, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	char full[STAG_HEAP_NAME_MAX + STAG_HEAP_OWNER_MAX];
	struct dirent *entry;

	if (fd >= 0 && !dir)
		close(fd);
	while (dir && list->rc == 0 && (entry = readdir(dir))) {
		const char *name = entry->d_name + strlen(HEAP_PREFIX);

		if (strncmp(entry->d_name, HEAP_PREFIX, strlen(HEAP_PREFIX)) != 0 ||
		    heap_check_name(name) != 0)
			continue;
		snprintf(full, sizeof(full), "%u/%s", owner, name);
		list->rc = list->fn(owner == geteuid() ? name : full, list->arg);
	}
	if (dir)
		closedir(dir);
}

static bool list_user(uid_t owner, void *arg)
{
	struct listing *list = arg;
	CLEANUP_CLOSE int home = shm_open_home(owner, false);

	if (home >= 0)
		list_home(list, home, owner);
	return list->rc == 0;
}

STAG_EXPORT int stag_heap_list(stag_heap_list_fn fn, void *arg)
{
	struct listing list = {.fn = fn, .arg = arg};

	if (geteuid() == 0)
		shm_each_user(list_user, &list);
	else
		list_user(geteuid(), &list);
	return list.rc;
}
