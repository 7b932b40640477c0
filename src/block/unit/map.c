// SPDX-License-Identifier: BSD-2-Clause
/*
 * map.c - a unit that is memory: a file on a tmpfs, mapped, so that transports move its bytes without a copy.
 *
 * Only existing pages are lent. Reading a hole through a mapping would fill it, and writing to one raises a signal, not
 * ENOSPC, when the file system is full. mincore(2) tells once which pages exist; this is remembered until they are punched.
 *
 * Truncating the file removes pages from the mapping, and touching these raises SIGBUS. The handler here replaces such a page
 * by zeroes, and marks the mapping as torn: writes through a torn mapping have failed, and no more of it is lent. Signals for
 * other addresses go to the handler that was installed before.
 */
#include "block/unit/lun.h"

#include <errno.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "base/lock.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* fails on kernels before 5.14, which does no harm */
#endif

#define PAGE	  4096u
#define MAX_AREAS 1024 /* mappings of the process */
#define ASK_PAGES 32   /* per call of mincore(2) */

/* ---- torn pages ------------------------------------------------------------------------ */

/* Mappings, for the handler. An entry is written before its pages can be touched, and zeroed after the last touch. */
static struct area {
	_Atomic uintptr_t at;
	_Atomic size_t size;
	atomic_bool torn;
} areas[MAX_AREAS];

static struct sigaction before;
static struct lock lock = LOCK_INITIALIZER; /* guards taking an area, and setting the handler */

static struct area *area_of(uintptr_t at)
{
	for (unsigned int i = 0; i < MAX_AREAS; i++) {
		uintptr_t from = atomic_load(&areas[i].at);

		if (from && at >= from && at - from < atomic_load(&areas[i].size))
			return &areas[i];
	}
	return NULL;
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(sig, info, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(sig);
	} else {
		signal(sig, SIG_DFL); /* the access is repeated, and ends the process */
	}
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	uintptr_t page = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1);
	struct area *a = info->si_code == BUS_ADRERR ? area_of(page) : NULL;
	int error = errno;

	if (!a || mmap((void *)page, PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
		pass_on(sig, info, context);
		return;
	}
	atomic_store(&a->torn, true);
	errno = error;
}

/* Installs the handler. If the program has set its own since the last call, that one is called next. */
static bool install_handler(void)
{
	struct sigaction act = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER},
			 now;
	bool good;

	sigemptyset(&act.sa_mask);
	lock_acquire(&lock);
	good = sigaction(SIGBUS, NULL, &now) == 0;
	if (good && (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_sigbus)) {
		before = now;
		good = sigaction(SIGBUS, &act, NULL) == 0;
	}
	lock_release(&lock);
	return good;
}

static struct area *alloc_area(uint8_t *at, size_t size)
{
	struct area *a = NULL;

	lock_acquire(&lock);
	for (unsigned int i = 0; i < MAX_AREAS && !a; i++)
		if (!atomic_load(&areas[i].at))
			a = &areas[i];
	if (a) {
		atomic_store(&a->torn, false);
		atomic_store(&a->size, size);
		atomic_store(&a->at, (uintptr_t)at);
	}
	lock_release(&lock);
	return a;
}

/* ---- mappings ------------------------------------------------------------------------------ */

/* A mapping. Those of former sizes of the file are kept: transports may still use them. */
struct lun_map {
	struct lun_map *older;
	uint8_t *at;
	uint64_t size;
	struct area *area;
	struct ibv_mr *mr;
	uint8_t *there; /* one bit for each page: it is known to exist */
};

static void unmap(struct lun_map *m)
{
	if (m->mr)
		ibv_dereg_mr(m->mr);
	if (m->at != MAP_FAILED)
		munmap(m->at, m->size);
	if (m->area)
		atomic_store(&m->area->at, 0);
	free(m->there);
	free(m);
}

/*
 * Registers anonymous memory at the address where the file will be mapped: the adapter touches both ends of memory that it
 * registers, and would fill holes of the file. It does not pin pages, so the file may replace them.
 */
static bool reserve_and_register(struct lun_map *m, struct ibv_pd *pd)
{
	m->at = mmap(NULL, m->size, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m->at == MAP_FAILED)
		return false;
	m->mr = ibv_reg_mr(pd, m->at, m->size, IBV_ACCESS_LOCAL_WRITE);
	return m->mr;
}

static struct lun_map *map_file(const struct lun *l, uint64_t size)
{
	struct lun_map *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->size = size;
	m->there = calloc(size / PAGE / 8 + 1, 1);
	if (reserve_and_register(m, l->u->pd) &&
	    mmap(m->at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, l->fd, 0) == m->at)
		m->area = alloc_area(m->at, size);
	if (m->there && m->area)
		return m;
	unmap(m);
	return NULL;
}

static bool is_memory(const struct lun *l)
{
	struct statfs fs;

	return l->fd >= 0 && !l->is_device && !l->facts.read_only && fstatfs(l->fd, &fs) == 0 &&
	       fs.f_type == TMPFS_MAGIC;
}

void lun_map(struct lun *l)
{
	struct lun_map *m;

	if (!is_memory(l))
		return;
	m = install_handler() ? map_file(l, l->facts.size) : NULL;
	if (!m)
		return; /* it is used as an ordinary file */
	m->older = l->map;
	l->map = m;
}

void lun_unmap(struct lun *l)
{
	while (l->map) {
		struct lun_map *m = l->map;

		l->map = m->older;
		unmap(m);
	}
}

/* ---- pages ------------------------------------------------------------------------------------ */

static bool is_there(const struct lun_map *m, uint64_t page)
{
	return m->there[page / 8] & 1u << page % 8;
}

/* Finds out which of a group of pages exist. If all do, maps them at once, not by one fault each. */
static void find_pages(struct lun_map *m, uint64_t page)
{
	uint64_t first = page - page % ASK_PAGES, pages = (m->size + PAGE - 1) / PAGE;
	uint64_t n = pages - first < ASK_PAGES ? pages - first : ASK_PAGES;
	unsigned char in_core[ASK_PAGES];
	uint64_t found = 0;

	if (mincore(m->at + first * PAGE, n * PAGE, in_core) != 0)
		return;
	for (uint64_t i = 0; i < n; i++)
		if (in_core[i] & 1) {
			m->there[(first + i) / 8] |= (uint8_t)(1u << (first + i) % 8);
			found++;
		}
	if (found == n)
		madvise(m->at + first * PAGE, n * PAGE, MADV_POPULATE_READ);
}

static bool has_pages(struct lun_map *m, uint64_t offset, uint64_t length)
{
	uint64_t end = (offset + length - 1) / PAGE + 1;

	for (uint64_t i = offset / PAGE; i < end; i++) {
		if (is_there(m, i))
			continue;
		find_pages(m, i);
		if (!is_there(m, i))
			return false;
	}
	return true;
}

/* A system call that meets a missing page fails with EFAULT and raises no signal, so the mapping is not marked torn by it. */
void lun_map_touch(struct lun *l, uint64_t offset, uint64_t length)
{
	const struct lun_map *m = l->map;

	for (uint64_t at = offset / PAGE * PAGE; m && at < offset + length && at < m->size;
	     at += PAGE)
		(void)*(const volatile uint8_t *)(m->at + at);
}

/* Touches the range first: a page that is missing later would be read as zeroes, without an error. */
uint8_t *lun_map_at(struct lun *l, uint64_t offset, uint64_t length, uint32_t *lkey)
{
	struct lun_map *m = l->map;

	if (!m || !length || offset > m->size || length > m->size - offset ||
	    atomic_load(&m->area->torn) || !has_pages(m, offset, length))
		return NULL;
	lun_map_touch(l, offset, length);
	if (atomic_load(&m->area->torn))
		return NULL;
	*lkey = m->mr->lkey;
	return m->at + offset;
}

bool lun_map_is_torn(const struct lun_map *m)
{
	return atomic_load(&m->area->torn);
}

void lun_map_punched(struct lun *l, uint64_t offset, uint64_t length)
{
	struct lun_map *m = l->map;

	for (uint64_t i = offset / PAGE; m && i < (offset + length) / PAGE && i < m->size / PAGE;
	     i++)
		m->there[i / 8] &= (uint8_t) ~(1u << i % 8);
}
