// SPDX-License-Identifier: BSD-2-Clause
/*
 * create.c - creates, attaches, detaches and removes heaps.
 *
 * The shared object is a sparse file in /dev/shm, mapped as a whole. It gets its name when it is
 * complete (O_TMPFILE, then linkat): a creator that dies earlier leaves nothing behind.
 *
 * The last process that detaches removes the name. It moves the gate from OPEN to CLOSING to
 * CLOSED, and a process that attaches meanwhile moves it from CLOSING back to OPEN. So no process
 * waits for another, and none stays attached to a heap that others cannot find. A name is removed
 * under a lock on its object, so that the name of a newer heap is not removed by mistake.
 */
#include "heap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/clock.h"
#include "base/export.h"
#include "base/random.h"
#include "base/shm.h"

#define REMOVE_LOCK	4096 /* byte of the object to lock; 0 to 63 are the process slots */
#define DEFAULT_BLOCK	(4ull << 20)
#define DEFAULT_BLOCKS	16384u
#define DEFAULT_RETAIN	1000
#define TRIES		1000u
#define ADDRESSES	64u
#define HUGETLBFS_MAGIC 0x958458f6

/* ---- the heaps of this process -------------------------------------------- */

static struct lock registry_lock = LOCK_INITIALIZER;
static struct list registry = {&registry, &registry};
static uint64_t last_serial;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

bool heap_with(uint64_t serial, void (*fn)(struct stag_heap *heap, void *arg), void *arg)
{
	HOLD_FOR_SCOPE(&registry_lock);
	list_for_each (it, &registry) {
		struct stag_heap *heap = list_entry(it, struct stag_heap, registry);

		if (heap->serial != serial)
			continue;
		if (fn)
			fn(heap, arg);
		return true;
	}
	return false;
}

static void before_fork(void)
{
	lock_acquire(&registry_lock);
}

static void in_parent(void)
{
	lock_release(&registry_lock);
}

/*
 * Makes the heaps unusable in a forked child. The mapping is not inherited; the file descriptors
 * are, and are closed here: they hold the lock that marks the parent as alive.
 */
static void in_child(void)
{
	list_for_each_safe (it, &registry) {
		struct stag_heap *heap = list_entry(it, struct stag_heap, registry);

		list_del(it);
		if (heap->files.area_fd != heap->files.fd)
			close(heap->files.area_fd);
		close(heap->files.fd);
		close(heap->files.home);
		heap->files.home = heap->files.fd = heap->files.area_fd = -1;
		heap->serial = 0;
		heap->area_size = 0;
		heap->maintain.running = false;
		keys_forked(heap);
	}
	lock_release(&registry_lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

static void enlist(struct stag_heap *heap)
{
	pthread_once(&fork_once, watch_forks);
	HOLD_FOR_SCOPE(&registry_lock);
	heap->serial = ++last_serial;
	list_add_tail(&registry, &heap->registry);
}

static void delist(struct stag_heap *heap)
{
	HOLD_FOR_SCOPE(&registry_lock);
	list_del(&heap->registry);
}

/* ---- removal of a name -------------------------------------------------------- */

static bool lock_removal(int fd, short type)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = REMOVE_LOCK, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/*
 * Removes the file of huge pages, which belongs to this object even if its name is gone. Its path is
 * what processes that may attach have written: it may lead to a heap of the same name of yet another
 * user's, which root could remove.
 */
static void remove_huge(const struct stag_heap *heap, const char *path)
{
	const char *file = strrchr(path, '/') + 1;
	CLEANUP_CLOSE int dir = -1;
	char dir_path[sizeof(((struct heap_header *)0)->huge_path)];
	struct stat st;

	snprintf(dir_path, sizeof(dir_path), "%.*s", (int)(file - path), path);
	dir = open(dir_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0 && fstatat(dir, file, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	    st.st_uid == heap->owner)
		unlinkat(dir, file, 0);
}

/*
 * Removes the name if it still belongs to this object. If another process is doing so, leaves it to
 * that process.
 */
static int remove_name(const struct stag_heap *heap, const struct heap_header *plan)
{
	int fd = heap->files.fd, home = heap->files.home, rc = 0;
	struct stat by_name, by_fd;
	char file[HEAP_FILE_SIZE];

	heap_file(heap->name, file);
	if (!lock_removal(fd, F_WRLCK))
		return 0;
	if (heap_is_huge_path(heap->name, plan->huge_path))
		remove_huge(heap, plan->huge_path);
	if (fstat(fd, &by_fd) == 0 && fstatat(home, file, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
	    by_fd.st_ino == by_name.st_ino && by_fd.st_dev == by_name.st_dev)
		rc = unlinkat(home, file, 0) == 0 ? 0 : -errno;
	lock_removal(fd, F_UNLCK);
	return rc;
}

/* ---- mapping ------------------------------------------------------------------ */

static int map_part(uint64_t address, uint64_t length, int fd, uint64_t offset)
{
	void *want = (void *)address;
	void *got = mmap(want, length, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd, (off_t)offset);

	if (got == MAP_FAILED)
		return errno == EEXIST ? -EADDRINUSE : -errno;
	if (got != want) {
		munmap(got, length);
		return -EADDRINUSE;
	}
	return 0;
}

static int map_heap(const struct heap_header *header, uint64_t address, int fd, int area_fd)
{
	uint64_t split = header->huge_shift != 0 ? header->area_offset : header->size;
	int rc = map_part(address, split, fd, 0);

	if (rc != 0)
		return rc;
	if (split < header->size)
		rc = map_part(address + split, header->size - split, area_fd, 0);
	if (rc != 0) {
		munmap((void *)address, split);
		return rc;
	}
	madvise((void *)address, header->size, MADV_DONTFORK);
	return 0;
}

static void unmap_heap(const struct stag_heap *heap)
{
	munmap(heap->header, heap->plan.size);
}

/*
 * Returns the nth address to try, or 0. It is in a range that is rarely used: first in the middle
 * of the address space, then in a low range, the only one with 39-bit addresses. A hash of the name
 * keeps several heaps from trying the same place.
 */
static uint64_t candidate(const char *name, unsigned int n, const struct heap_header *header)
{
	static const struct {
		uint64_t from, to;
	} ranges[] = {{0x200000000000, 0x500000000000}, {0x1000000000, 0x8000000000}};
	uint64_t hash = 14695981039346656037ull + n, stride = 1ull << header->block_shift;
	unsigned int range = n + 1 > (HEAP_LOW_ONLY ? 0 : ADDRESSES / 2) ? 1 : 0;
	uint64_t room = ranges[range].to - ranges[range].from;

	if (room <= header->size)
		return 0;
	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 1099511628211ull;
	hash ^= hash >> 29;
	return ranges[range].from + (hash % ((room - header->size) / stride + 1)) * stride;
}

static int map_somewhere(struct heap_header *header, const char *name, int fd, int area_fd)
{
	int rc = -EADDRINUSE;

	if (header->address != 0)
		return map_heap(header, header->address, fd, area_fd);
	for (unsigned int i = 0; i < ADDRESSES && rc == -EADDRINUSE; i++) {
		header->address = candidate(name, i, header);
		if (header->address != 0)
			rc = map_heap(header, header->address, fd, area_fd);
	}
	return rc;
}

/* ---- this process's part --------------------------------------------------------- */

/*
 * The lock is held for some hundred nanoseconds only, so a waiting thread spins before it sleeps.
 */
static void init_lock(struct lock *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	lock_init_attr(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

struct stag_heap *heap_new(const char *name, uid_t owner, const struct stag_heap_attr *attr)
{
	struct stag_heap *heap = aligned_alloc(64, (sizeof(*heap) + 63) / 64 * 64);
	int retain = attr && attr->retain_ms != 0 ? attr->retain_ms : DEFAULT_RETAIN;

	if (!heap)
		return NULL;
	memset(heap, 0, sizeof(*heap));
	snprintf(heap->name, sizeof(heap->name), "%s", name);
	heap->owner = owner;
	heap->files.home = heap->files.fd = heap->files.area_fd = -1;
	heap->maintain.retain_ns = retain < 0 ? -1 : retain * (int64_t)NS_PER_MS;
	heap->local.tidied = true; /* no thread keeps anything yet */
	init_lock(&heap->local.lock);
	lock_init(&heap->reap_lock);
	list_init(&heap->registry);
	for (unsigned int i = 0; i < HEAP_FIT_LISTS; i++)
		list_init(&heap->local.fits[i]);
	return heap;
}

void heap_delete(struct stag_heap *heap)
{
	if (heap->files.area_fd != heap->files.fd && heap->files.area_fd >= 0)
		close(heap->files.area_fd);
	if (heap->files.fd >= 0)
		close(heap->files.fd);
	if (heap->files.home >= 0)
		close(heap->files.home);
	thread_forget_all(heap);
	lock_destroy(&heap->local.lock);
	lock_destroy(&heap->reap_lock);
	free(heap);
}

/* Reopens a heap that is closing. Returns -ESTALE if it is closed. */
static int pass_gate(struct stag_heap *heap)
{
	uint64_t gate = atomic_load(&heap->header->gate);

	while (gate == GATE_CLOSING)
		atomic_compare_exchange_strong(&heap->header->gate, &gate, GATE_OPEN);
	return gate == GATE_CLOSED ? -ESTALE : 0;
}

/* Registers this process in a heap that is mapped. */
static int enter(struct stag_heap *heap, const struct heap_header *plan)
{
	int rc;

	layout_open(heap, plan);
	heap->files.area_offset = plan->huge_shift != 0 ? 0 : plan->area_offset;
	rc = keys_open(heap);
	if (rc != 0)
		return rc;
	rc = proc_join(heap);
	if (rc != 0)
		goto err_close_keys;
	rc = pass_gate(heap);
	if (rc != 0)
		goto err_leave;
	thread_init();
	rc = maintain_start(heap);
	if (rc != 0)
		goto err_leave;
	proc_reap(heap, 0);
	enlist(heap);
	return 0;

err_leave:
	proc_leave(heap);
err_close_keys:
	keys_close(heap);
	return rc;
}

/* ---- attach ------------------------------------------------------------------------ */

int heap_read_header(int fd, struct heap_header *header)
{
	struct heap_header again;
	struct stat st;

	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return -EPROTO;
	if (pread(fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header))
		return -EPROTO;
	if (header->magic != HEAP_MAGIC || header->version != HEAP_VERSION ||
	    header->max_procs != STAG_HEAP_MAX_PROCS)
		return -EPROTO;
	header->huge_path[sizeof(header->huge_path) - 1] = '\0';
	again = *header;
	if (layout_plan(&again, HEAP_PAGE) != 0 || again.size != header->size ||
	    again.area_offset != header->area_offset || again.maps_offset != header->maps_offset ||
	    again.block_shift != header->block_shift || again.slice_shift != header->slice_shift ||
	    header->huge_shift > 34 || header->address == 0 ||
	    header->address % (1ull << header->block_shift) != 0)
		return -EPROTO;
	*header = again;
	/* The tables were allocated when the heap was made: reading a file of holes costs more. */
	return (uint64_t)st.st_size >= header->control_size &&
			       (uint64_t)st.st_blocks * 512 >= header->control_size
		       ? 0
		       : -EPROTO;
}

/* A mapping beyond the end of its file would kill the process that uses it. */
static int check_size(int fd, uint64_t size)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size >= size ? 0 : -EPROTO;
}

static int open_area(struct stag_heap *heap, const struct heap_header *header, unsigned int mode)
{
	struct statfs fs;
	int rc;

	if (header->huge_shift == 0) {
		heap->files.area_fd = heap->files.fd;
		return check_size(heap->files.fd, header->size);
	}
	if (!heap_is_huge_path(heap->name, header->huge_path))
		return -EPROTO;
	heap->files.area_fd = open(header->huge_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (heap->files.area_fd < 0)
		return -errno;
	if (fstatfs(heap->files.area_fd, &fs) != 0 || fs.f_type != HUGETLBFS_MAGIC)
		return -EPROTO;
	rc = heap_check_object(heap, heap->files.area_fd, mode);
	if (rc == 0)
		rc = check_size(heap->files.fd, header->area_offset);
	return rc == 0 ? check_size(heap->files.area_fd, header->size - header->area_offset) : rc;
}

/* mode: the permissions of other users that this process accepts */
static int attach_opened(struct stag_heap *heap, unsigned int mode)
{
	struct heap_header header;
	int rc = heap_check_object(heap, heap->files.fd, mode);

	if (rc == 0)
		rc = heap_read_header(heap->files.fd, &header);
	if (rc != 0)
		return rc;
	rc = open_area(heap, &header, mode);
	if (rc == -ENOENT) { /* a process died after it had removed this file, before the name */
		remove_name(heap, &header);
		return -ESTALE;
	}
	if (rc != 0)
		return rc;
	rc = map_heap(&header, header.address, heap->files.fd, heap->files.area_fd);
	if (rc != 0)
		return rc;
	rc = enter(heap, &header);
	if (rc == -ESTALE)
		remove_name(heap, &header);
	if (rc != 0)
		munmap((void *)header.address, header.size);
	return rc;
}

static int attach(const char *name, uid_t owner, const struct stag_heap_attr *attr,
		  struct stag_heap **heap)
{
	int rc;

	*heap = heap_new(name, owner, attr);
	if (!*heap)
		return -ENOMEM;
	rc = heap_open_object(*heap, O_RDWR);
	if (rc == 0)
		rc = attach_opened(*heap, attr ? attr->mode : 0);
	if (rc != 0)
		heap_delete(*heap);
	return rc;
}

/* ---- create ------------------------------------------------------------------------- */

/*
 * Finds a mounted hugetlbfs that this process may write to. Returns 0; -ENOENT if there is none; or
 * -EINVAL if the block size is no multiple of its page size, which is in *page.
 */
static int find_hugetlbfs(uint64_t block_size, char *path, size_t size, uint64_t *page)
{
	FILE *mounts = setmntent("/proc/mounts", "re");
	struct mntent *entry;
	struct statfs fs;
	int rc = -ENOENT;

	if (!mounts)
		return -ENOENT;
	while (rc != 0 && (entry = getmntent(mounts))) {
		if (strcmp(entry->mnt_type, "hugetlbfs") != 0 || access(entry->mnt_dir, W_OK) != 0)
			continue;
		if (statfs(entry->mnt_dir, &fs) != 0 || fs.f_type != HUGETLBFS_MAGIC ||
		    (size_t)snprintf(path, size, "%s", entry->mnt_dir) >= size)
			continue;
		*page = (uint64_t)fs.f_bsize;
		rc = block_size % *page == 0 ? 0 : -EINVAL;
	}
	endmntent(mounts);
	return rc;
}

/* Allocates and frees one page to find out whether there are any. */
static bool has_huge_pages(int fd, uint64_t page)
{
	if (fallocate(fd, 0, 0, (off_t)page) != 0)
		return false;
	fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)page);
	return true;
}

static int find_huge_dir(const char *name, uint64_t block_size, char *dir, size_t size,
			 uint64_t *page)
{
	switch (find_hugetlbfs(block_size, dir, size, page)) {
	case 0:
		return 0;
	case -EINVAL:
		return -heap_fail(EINVAL,
				  "heap %s: the block size must be a multiple of the huge page "
				  "size, %llu bytes",
				  name, (unsigned long long)*page);
	default:
		return -heap_fail(ENOMEM,
				  "heap %s: no huge pages: no writable hugetlbfs is mounted "
				  "(mount -t hugetlbfs none DIRECTORY)",
				  name);
	}
}

static int make_huge(struct stag_heap *heap, const struct stag_heap_attr *attr,
		     struct heap_header *header)
{
	char dir[128];
	uint64_t page = 0;
	mode_t mode = attr->mode != 0 ? attr->mode : 0600;
	int rc = find_huge_dir(heap->name, header->block_size, dir, sizeof(dir), &page);

	if (rc != 0)
		return rc;
	snprintf(header->huge_path, sizeof(header->huge_path), "%s/" HEAP_HUGE "%s.%08x", dir,
		 heap->name, random_u32());
	heap->files.area_fd = open(header->huge_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (heap->files.area_fd < 0) {
		rc = -heap_fail(errno, "heap %s: %s: %s", heap->name, header->huge_path,
				strerror(errno));
		header->huge_path[0] = '\0';
		return rc;
	}
	header->huge_shift = (uint32_t)__builtin_ctzll(page);
	if (fchmod(heap->files.area_fd, mode) == 0 &&
	    ftruncate(heap->files.area_fd, (off_t)(header->size - header->area_offset)) == 0 &&
	    has_huge_pages(heap->files.area_fd, page))
		return 0;
	unlink(header->huge_path);
	close(heap->files.area_fd);
	heap->files.area_fd = -1;
	header->huge_shift = 0;
	header->huge_path[0] = '\0';
	return -heap_fail(ENOMEM,
			  "heap %s: no huge pages are free: write a higher number to "
			  "/proc/sys/vm/nr_hugepages",
			  heap->name);
}

static int make_area(struct stag_heap *heap, const struct stag_heap_attr *attr,
		     struct heap_header *header)
{
	if (attr->flags & (STAG_HEAP_HUGE | STAG_HEAP_TRY_HUGE)) {
		int rc = make_huge(heap, attr, header);

		if (rc == 0 || (attr->flags & STAG_HEAP_HUGE))
			return rc;
		log_info("%s; using ordinary pages", stag_heap_error());
	}
	heap->files.area_fd = heap->files.fd;
	return 0;
}

static int make_file(struct stag_heap *heap, const struct stag_heap_attr *attr,
		     struct heap_header *header)
{
	int rc;

	heap->files.home = shm_open_home(heap->owner, true);
	if (heap->files.home < 0)
		return -heap_fail(-heap->files.home,
				  "heap %s: this user has no directory in " SHM_DIR ": %s",
				  heap->name, strerror(-heap->files.home));
	heap->files.fd = openat(heap->files.home, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (heap->files.fd < 0 || fchmod(heap->files.fd, attr->mode != 0 ? attr->mode : 0600) != 0)
		return -errno;
	rc = make_area(heap, attr, header);
	if (rc != 0)
		return rc;
	if (ftruncate(heap->files.fd,
		      (off_t)(header->huge_shift != 0 ? header->area_offset : header->size)) != 0)
		return -errno;
	do
		rc = fallocate(heap->files.fd, 0, 0, (off_t)header->control_size);
	while (rc != 0 && errno == EINTR);
	return rc == 0 ? 0 : -ENOMEM;
}

static int plan(const struct stag_heap_attr *attr, struct heap_header *header)
{
	*header = (struct heap_header){
		.magic = HEAP_MAGIC,
		.version = HEAP_VERSION,
		.max_procs = STAG_HEAP_MAX_PROCS,
		.address = attr->address,
		.block_size = attr->block_size != 0 ? attr->block_size : DEFAULT_BLOCK,
		.max_blocks = attr->max_blocks != 0 ? attr->max_blocks : DEFAULT_BLOCKS,
	};
	if (layout_plan(header, HEAP_PAGE) != 0 ||
	    attr->address % (1ull << header->block_shift) != 0)
		return -heap_fail(
			EINVAL,
			"invalid number of blocks (%u), block size (%llu) or address (%#llx)",
			header->max_blocks, (unsigned long long)header->block_size,
			(unsigned long long)header->address);
	return 0;
}

static int give_name(struct stag_heap *heap)
{
	char file[HEAP_FILE_SIZE], object[64];

	heap_file(heap->name, file);
	snprintf(object, sizeof(object), "/proc/self/fd/%d", heap->files.fd);
	return linkat(AT_FDCWD, object, heap->files.home, file, AT_SYMLINK_FOLLOW) == 0 ? 0
											: -errno;
}

static int make_opened(struct stag_heap *heap, const struct stag_heap_attr *attr,
		       struct heap_header *header)
{
	int rc = make_file(heap, attr, header);

	if (rc != 0)
		return rc;
	rc = map_somewhere(header, heap->name, heap->files.fd, heap->files.area_fd);
	if (rc != 0)
		return rc;
	memcpy((void *)header->address, header, sizeof(*header));
	if (attr->flags & STAG_HEAP_TRY_HUGE)
		madvise((char *)header->address + header->area_offset,
			header->size - header->area_offset, MADV_HUGEPAGE);
	layout_open(heap, header);
	hint_fill(&heap->hints.open);
	rc = enter(heap, header);
	if (rc != 0)
		munmap((void *)header->address, header->size);
	return rc;
}

static void drop_heap(struct stag_heap *heap)
{
	delist(heap);
	maintain_stop(heap);
	keys_close(heap);
	proc_leave(heap);
	unmap_heap(heap);
}

static int create_new(const char *name, uid_t owner, const struct stag_heap_attr *attr,
		      struct stag_heap **heap)
{
	struct heap_header header;
	int rc = plan(attr, &header);

	if (rc != 0)
		return rc;
	if (owner != geteuid())
		return -heap_fail(EACCES, "heap %s: only user %u can create it there", name, owner);
	*heap = heap_new(name, owner, attr);
	if (!*heap)
		return -ENOMEM;
	rc = make_opened(*heap, attr, &header);
	if (rc == 0) {
		rc = give_name(*heap);
		if (rc == 0)
			return 0;
		drop_heap(*heap);
	}
	if (header.huge_path[0] != '\0')
		unlink(header.huge_path);
	heap_delete(*heap);
	return rc;
}

/* ---- the public calls ------------------------------------------------------------------ */

struct stag_heap *heap_refuse(const char *name, int rc)
{
	int error = -rc;

	switch (error) {
	case EADDRINUSE:
		heap_fail(error, "heap %s: its address range is in use in this process", name);
		break;
	case EPROTO:
		heap_fail(error, "heap %s: not a heap, or one of another version", name);
		break;
	case EUSERS:
		heap_fail(error, "heap %s: %d processes have it attached, the maximum", name,
			  STAG_HEAP_MAX_PROCS);
		break;
	case EACCES:
	case EINVAL:
	case ENOMEM:
		if (stag_heap_error()[0] != '\0')
			break;
		/* fall through */
	default:
		heap_fail(error, "heap %s: %s", name, strerror(error));
	}
	errno = error;
	return NULL;
}

/* Parses the arguments of the two calls that follow. Returns 0, or -EINVAL with an error text. */
static int parse_call(const char *text, const struct stag_heap_attr *attr, uid_t *owner,
		      const char **name)
{
	int rc;

	heap_fail(0, "%s", "");
	rc = -heap_parse_name(text, owner, name);
	return rc == 0 && attr && attr->comp_mask != 0 ? -EINVAL : rc;
}

STAG_EXPORT struct stag_heap *stag_heap_attach(const char *text, const struct stag_heap_attr *attr)
{
	struct stag_heap *heap;
	const char *name;
	uid_t owner;
	int rc = parse_call(text, attr, &owner, &name);

	for (unsigned int i = 0; rc == 0 && i < TRIES; i++) {
		rc = attach(name, owner, attr, &heap);
		if (rc == 0)
			return heap;
		if (rc != -ESTALE)
			break;
		rc = 0;
		sched_yield();
	}
	return heap_refuse(text, rc != 0 ? rc : -EAGAIN);
}

STAG_EXPORT struct stag_heap *stag_heap_create(const char *text, const struct stag_heap_attr *attr)
{
	static const struct stag_heap_attr defaults;
	struct stag_heap *heap;

	if (!attr)
		attr = &defaults;
	for (unsigned int i = 0; i < TRIES; i++) {
		const char *name;
		uid_t owner;
		int rc;

		if (!(attr->flags & STAG_HEAP_EXCLUSIVE)) {
			heap = stag_heap_attach(text, attr);
			if (heap || errno != ENOENT)
				return heap;
		}
		rc = parse_call(text, attr, &owner, &name);
		if (rc == 0)
			rc = create_new(name, owner, attr, &heap);
		if (rc == 0)
			return heap;
		if (rc != -EEXIST || (attr->flags & STAG_HEAP_EXCLUSIVE))
			return heap_refuse(text, rc);
	}
	return heap_refuse(text, -EAGAIN);
}

static bool has_orphans(struct stag_heap *heap)
{
	for (uint32_t i = 0; i < heap->geo.max_blocks; i++)
		if (desc_phase(atomic_load(&heap->descs[i].state)) == BLOCK_ORPHAN)
			return true;
	return false;
}

/*
 * Closes the heap if no other process is attached. Our slot is free by now, and still locked by us.
 */
static void close_if_last(struct stag_heap *heap, bool keep)
{
	uint64_t open = GATE_OPEN, closing = GATE_CLOSING;

	if (keep || !proc_alone(heap) || has_orphans(heap) ||
	    !atomic_compare_exchange_strong(&heap->header->gate, &open, GATE_CLOSING))
		return;
	if (!proc_alone(heap))
		atomic_compare_exchange_strong(&heap->header->gate, &closing, GATE_OPEN);
	else if (atomic_compare_exchange_strong(&heap->header->gate, &closing, GATE_CLOSED))
		remove_name(heap, &heap->plan);
}

STAG_EXPORT int stag_heap_detach(struct stag_heap *heap, bool keep)
{
	if (!heap)
		return 0;
	if (heap->looking) {
		look_end(heap);
	} else if (heap->serial != 0) {
		delist(heap);
		maintain_stop(heap);
		keys_close(heap);
		proc_reap(heap, 0);
		/* Before proc_leave(): if this process dies, a reaper can finish the release. */
		if (proc_alone(heap))
			block_release_idle(heap, UINT64_MAX);
		proc_leave(heap);
		close_if_last(heap, keep);
		unmap_heap(heap);
	}
	heap_delete(heap);
	return 0;
}

static int unlink_opened(const struct stag_heap *heap)
{
	struct heap_header header;
	int rc = heap_read_header(heap->files.fd, &header);

	return rc == 0 ? remove_name(heap, &header) : rc;
}

STAG_EXPORT int stag_heap_unlink(const char *text)
{
	struct stag_heap *heap;
	const char *name;
	uid_t owner;
	int rc = parse_call(text, NULL, &owner, &name);

	if (rc != 0)
		return -rc;
	heap = heap_new(name, owner, NULL);
	rc = heap ? heap_open_object(heap, O_RDWR) : -ENOMEM;
	if (rc == 0)
		rc = unlink_opened(heap);
	if (heap)
		heap_delete(heap);
	if (rc != 0)
		heap_refuse(text, rc);
	return -rc;
}
