// SPDX-License-Identifier: BSD-2-Clause
/*
 * lossy.c - the disk that can lose power at every event: see lossy.h.
 */
#include "lossy.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "media/medium.h"
#include "store/store.h"

#define MOST_PENDING 300 /* the depth of a medium, and some reserve */

enum event_kind { EVENT_NOTE, EVENT_ARRIVED, EVENT_REPORTED, EVENT_SYNC_BEGUN, EVENT_SYNCED };

struct event {
	uint8_t kind;
	uint32_t which; /* index of the write or sync */
};

struct written {
	uint32_t sector, n;
	bool durable;
	uint32_t *version;	/* index of the version of each sector */
	unsigned long reported; /* this field and those below are set during replay. 0: not yet */
	bool settled;
};

struct sector {
	struct version *versions;
	uint32_t n, room;
	uint32_t there, sure; /* versions in the cache; the version that is durable */
};

/* A growable array: its length and its capacity. */
struct row {
	void *at;
	uint32_t n, room;
};

struct pending {
	struct media_io io;
	bool arrived;
	uint32_t which;
};

struct edge {
	struct media_edge edge;
	struct media *m;
	struct edge *next;
	atomic_uint n;
	struct pending pending[MOST_PENDING];
};

static struct {
	pthread_mutex_t lock;
	int fd;
	enum lossy_way way;
	bool on;
	uint64_t seed;
	struct edge *edges;
	struct sector *sectors;
	uint32_t n_sectors;
	struct row events, writes, syncs, touched;
	uint32_t at; /* number of events replayed */
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/*
 * Returns a random number below `sides`. Called with a lock held, on any thread, so it has a random
 * state of its own.
 */
static uint64_t random_below(uint64_t sides)
{
	uint64_t x = disk.seed += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) % sides;
}

static void *add(struct row *r, size_t size)
{
	if (r->n == r->room) {
		r->room = r->room ? 2 * r->room : 64;
		r->at = realloc(r->at, r->room * size);
		if (!r->at)
			abort();
	}
	return (char *)r->at + r->n++ * size;
}

static void add_event(enum event_kind kind, uint32_t which)
{
	*(struct event *)add(&disk.events, sizeof(struct event)) = (struct event){kind, which};
}

static struct written *write_at(uint32_t i)
{
	return &((struct written *)disk.writes.at)[i];
}

/* ---- recording ---- */

static struct version *new_version(uint32_t sector)
{
	struct sector *s = &disk.sectors[sector];

	if (s->n == s->room) {
		s->room = s->room ? 2 * s->room : 4;
		s->versions = realloc(s->versions, s->room * sizeof(*s->versions));
		if (!s->versions)
			abort();
	}
	s->versions[s->n].checked = 0;
	return &s->versions[s->n++];
}

static void remember(uint32_t sector, uint8_t bytes[SECTOR])
{
	memset(bytes, 0, SECTOR);
	if (pread(disk.fd, bytes, SECTOR, (off_t)sector * SECTOR) < 0)
		abort();
}

static void touch_sector(uint32_t sector)
{
	if (disk.sectors[sector].n > 0)
		return;
	*(uint32_t *)add(&disk.touched, sizeof(uint32_t)) = sector;
	remember(sector, new_version(sector)->bytes);
}

/* Records a write that is about to start, and keeps the bytes that it replaces. */
static uint32_t begin_write(uint64_t offset, uint64_t len, bool durable)
{
	uint32_t first = (uint32_t)(offset / SECTOR);
	uint32_t end = (uint32_t)((offset + len + SECTOR - 1) / SECTOR);
	struct written w = {.sector = first, .n = end - first, .durable = durable};

	if (end > disk.n_sectors)
		abort();
	w.version = calloc(w.n, sizeof(*w.version));
	if (!w.version)
		abort();
	for (uint32_t i = 0; i < w.n; i++)
		touch_sector(first + i);
	*(struct written *)add(&disk.writes, sizeof(w)) = w;
	return disk.writes.n - 1;
}

/* Records that the bytes are in the file now. */
static void write_arrived(uint32_t which)
{
	struct written *w = write_at(which);

	for (uint32_t i = 0; i < w->n; i++) {
		struct version *v = new_version(w->sector + i);

		remember(w->sector + i, v->bytes);
		w->version[i] = disk.sectors[w->sector + i].n - 1;
	}
	add_event(EVENT_ARRIVED, which);
}

static uint32_t begin_sync(void)
{
	*(unsigned long *)add(&disk.syncs, sizeof(unsigned long)) = 0;
	add_event(EVENT_SYNC_BEGUN, disk.syncs.n - 1);
	return disk.syncs.n - 1;
}

/* ---- events of media ---- */

static void queue_io(struct media_edge *e, const struct media_io *io)
{
	struct edge *edge = container_of(e, struct edge, edge);
	struct pending *p;

	LOCK_FOR_SCOPE(&disk.lock);
	p = &edge->pending[atomic_load(&edge->n)];
	if (p == &edge->pending[MOST_PENDING])
		abort();
	*p = (struct pending){.io = *io};
	if (io->kind == MEDIA_IO_SYNC && disk.on)
		p->which = begin_sync();
	atomic_fetch_add(&edge->n, 1);
}

static ssize_t advance_one(const struct media_io *io)
{
	struct iovec one = {io->buffer, io->length};
	const struct iovec *iov = io->n_iov ? io->iov : &one;
	int n = io->n_iov ? (int)io->n_iov : 1;

	return io->kind == MEDIA_IO_READ ? preadv(disk.fd, iov, n, (off_t)io->offset)
					 : pwritev(disk.fd, iov, n, (off_t)io->offset);
}

static void arrive(struct pending *p)
{
	bool writes = p->io.kind == MEDIA_IO_WRITE && disk.on;

	p->arrived = true;
	if (p->io.kind > MEDIA_IO_WRITE)
		return;
	if (writes)
		p->which = begin_write(p->io.offset, p->io.length, p->io.durable);
	if (advance_one(&p->io) != p->io.length)
		abort();
	if (writes)
		write_arrived(p->which);
}

static int report(const struct pending *p)
{
	switch (p->io.kind) {
	case MEDIA_IO_SYNC:
		if (disk.on)
			add_event(EVENT_SYNCED, p->which);
		return 0;
	case MEDIA_IO_TIMEOUT:
		return -ETIME;
	case MEDIA_IO_WRITE:
		if (disk.on)
			add_event(EVENT_REPORTED, p->which);
		break;
	default:
		break;
	}
	return (int)p->io.length;
}

/* Advances a few random operations: each arrives, and later is reported. */
static unsigned int reap(struct media_edge *e, struct media_event *events, unsigned int most)
{
	struct edge *edge = container_of(e, struct edge, edge);
	unsigned int n = atomic_load(&edge->n), got = 0;

	LOCK_FOR_SCOPE(&disk.lock);
	for (uint64_t tries = random_below(6); tries > 0 && n > 0 && got < most; tries--) {
		struct pending *p = &edge->pending[random_below(n)];

		if (!p->arrived) {
			arrive(p);
			continue;
		}
		events[got++] = (struct media_event){.cookie = p->io.cookie, .result = report(p)};
		*p = edge->pending[--n];
	}
	atomic_store(&edge->n, n);
	return got;
}

/*
 * Returns true only sometimes: otherwise a polling thread would complete all operations before
 * anyone is notified of the first.
 */
static bool ready(struct media_edge *e)
{
	LOCK_FOR_SCOPE(&disk.lock);
	return atomic_load(&container_of(e, struct edge, edge)->n) > 0 && random_below(2);
}

static bool queued(struct media_edge *e)
{
	return false;
}

static int submit(struct media_edge *e, bool wait)
{
	return 0;
}

static bool is_on_disk(const struct media *m)
{
	struct stat ours, its;

	return disk.fd >= 0 && !fstat(disk.fd, &ours) && !fstat(m->fd, &its) &&
	       ours.st_dev == its.st_dev && ours.st_ino == its.st_ino;
}

static void wrap_medium(struct media *m)
{
	static const uint32_t blocks[] = {1, 512, 4096};
	struct edge *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	e->m = m;
	e->edge = (struct media_edge){.queue = queue_io,
				      .reap = reap,
				      .ready = ready,
				      .queued = queued,
				      .submit = submit};
	e->next = disk.edges;
	disk.edges = e;
	m->flags &= ~(unsigned int)MEDIA_VOLATILE;
	m->direct = disk.way != THROUGH_PAGES;
	m->block = m->memory_align = blocks[disk.way];
	media_set_edge(m, &e->edge);
}

int __real_media_open(struct media **out, const struct media_attr *attr);
int __wrap_media_open(struct media **out, const struct media_attr *attr);

int __wrap_media_open(struct media **out, const struct media_attr *attr)
{
	int err = __real_media_open(out, attr);

	if (!err && is_on_disk(*out)) {
		LOCK_FOR_SCOPE(&disk.lock);
		wrap_medium(*out);
	}
	return err;
}

/* ---- events of the management ---- */

static ssize_t record_write(int fd, const void *buf, size_t len, off_t offset)
{
	uint32_t which = 0;
	ssize_t n;

	LOCK_FOR_SCOPE(&disk.lock);
	if (disk.on)
		which = begin_write((uint64_t)offset, len, false);
	n = pwrite(fd, buf, len, offset);
	if (n != (ssize_t)len)
		abort();
	if (disk.on) {
		write_arrived(which);
		add_event(EVENT_REPORTED, which);
	}
	return n;
}

static int record_sync(int fd)
{
	LOCK_FOR_SCOPE(&disk.lock);
	if (disk.on)
		add_event(EVENT_SYNCED, begin_sync());
	return 0;
}

static int record_hole(int fd, int mode, off_t offset, off_t len)
{
	uint32_t which = 0;
	int rc;

	LOCK_FOR_SCOPE(&disk.lock);
	if (disk.on)
		which = begin_write((uint64_t)offset, (uint64_t)len, false);
	rc = fallocate(fd, mode, offset, len);
	if (rc)
		abort();
	if (disk.on) {
		write_arrived(which);
		add_event(EVENT_REPORTED, which);
	}
	return rc;
}

/* ---- opening and closing ---- */

void lossy_open(const char *path, enum lossy_way way)
{
	struct stat st;

	disk.fd = open(path, O_RDWR | O_CLOEXEC);
	if (disk.fd < 0 || fstat(disk.fd, &st))
		abort();
	disk.way = way;
	disk.n_sectors = (uint32_t)((uint64_t)st.st_size / SECTOR);
	disk.sectors = calloc(disk.n_sectors, sizeof(*disk.sectors));
	if (!disk.sectors)
		abort();
	store_io.pwrite = record_write;
	store_io.fdatasync = record_sync;
	store_io.fallocate = record_hole;
}

static void forget_all(void)
{
	const uint32_t *touched = disk.touched.at;

	for (uint32_t i = 0; i < disk.writes.n; i++)
		free(write_at(i)->version);
	for (uint32_t i = 0; i < disk.touched.n; i++)
		disk.sectors[touched[i]].n = 0;
	disk.events.n = disk.writes.n = disk.syncs.n = disk.touched.n = 0;
}

void lossy_begin(uint64_t seed)
{
	LOCK_FOR_SCOPE(&disk.lock);
	forget_all();
	disk.seed = seed;
	disk.on = true;
}

void lossy_close(void)
{
	struct row *rows[] = {&disk.events, &disk.writes, &disk.syncs, &disk.touched};

	store_io.pwrite = pwrite;
	store_io.fdatasync = fdatasync;
	store_io.fallocate = fallocate;
	forget_all();
	for (uint32_t i = 0; i < disk.n_sectors; i++)
		free(disk.sectors[i].versions);
	free(disk.sectors);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		free(rows[i]->at);
		*rows[i] = (struct row){0};
	}
	for (struct edge *e = disk.edges, *next; e; e = next) {
		next = e->next;
		free(e);
	}
	disk.edges = NULL;
	disk.on = false;
	close(disk.fd);
	disk.fd = -1;
}

void lossy_nudge(void)
{
	LOCK_FOR_SCOPE(&disk.lock);
	for (struct edge *e = disk.edges; e; e = e->next)
		if (atomic_load(&e->n) > 0)
			poll_wake(e->m);
}

unsigned long lossy_note(void)
{
	LOCK_FOR_SCOPE(&disk.lock);
	add_event(EVENT_NOTE, 0);
	return disk.events.n;
}

unsigned long lossy_events(void)
{
	return disk.events.n;
}

/* ---- replay ---- */

void lossy_rewind(void)
{
	const uint32_t *touched = disk.touched.at;

	disk.on = false;
	disk.at = 0;
	for (uint32_t i = 0; i < disk.touched.n; i++) {
		disk.sectors[touched[i]].there = 1;
		disk.sectors[touched[i]].sure = 0;
	}
	for (uint32_t i = 0; i < disk.writes.n; i++) {
		write_at(i)->reported = 0;
		write_at(i)->settled = false;
	}
}

/*
 * Marks the newest reported version as durable: a later version includes it, no matter which
 * operation wrote it.
 */
static void mark_durable(struct written *w)
{
	w->settled = true;
	for (uint32_t i = 0; i < w->n; i++) {
		struct sector *s = &disk.sectors[w->sector + i];

		if (s->sure < w->version[i])
			s->sure = w->version[i];
	}
}

static void replay(const struct event *e)
{
	unsigned long *begun = disk.syncs.at;
	struct written *w = write_at(e->which);

	switch ((enum event_kind)e->kind) {
	case EVENT_NOTE:
		break;
	case EVENT_ARRIVED:
		for (uint32_t i = 0; i < w->n; i++)
			disk.sectors[w->sector + i].there = w->version[i] + 1;
		break;
	case EVENT_REPORTED:
		w->reported = disk.at;
		if (w->durable)
			mark_durable(w);
		break;
	case EVENT_SYNC_BEGUN:
		begun[e->which] = disk.at;
		break;
	case EVENT_SYNCED:
		for (uint32_t i = 0; i < disk.writes.n; i++) {
			w = write_at(i);
			if (w->reported && w->reported < begun[e->which] && !w->settled)
				mark_durable(w);
		}
		break;
	}
}

bool lossy_next(void)
{
	if (disk.at == disk.events.n)
		return false;
	replay(&((const struct event *)disk.events.at)[disk.at++]);
	return true;
}

unsigned long lossy_time(void)
{
	return disk.at;
}

unsigned int lossy_touched(const uint32_t **sectors)
{
	*sectors = disk.touched.at;
	return disk.touched.n;
}

struct version *lossy_may_hold(uint32_t sector, unsigned int *n)
{
	struct sector *s = &disk.sectors[sector];

	*n = s->there - s->sure;
	return &s->versions[s->sure];
}

const uint8_t *lossy_initial(uint32_t sector)
{
	return disk.sectors[sector].versions[0].bytes;
}
