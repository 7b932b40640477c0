// SPDX-License-Identifier: BSD-2-Clause
/*
 * torture_pool_client.c - clients: random operations, several under way at once, each written down when it is called
 * and when it returns.
 *
 * Names belong to all. A pointer is put by the client that inserted the value into one of its own slots, where all others find it;
 * there it stays when the value is gone, so that pointers to nothing are used as well. An update whose
 * value outgrows its place is, for the history, a deletion of one value and an insertion of another.
 *
 * Every fourth client only reads: whatever becomes of changes, it goes on.
 *
 * A client may be killed, and another takes its place: what was under way then, nobody knows the fate of. Only the diary and the slots it
 * leaves as they should be: it is not killed while it writes there (diary.busy).
 *
 * One client more, the prober, does nothing but put a small value, every half millisecond, without waiting for the last: the first of its
 * puts that is called after a primary's death and succeeds tells how long the pool was away.
 */
#include "torture_pool.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "linear.h"
#include "stag.h"

#define DEPTH	    8u
#define PROBE_DEPTH 64u
#define PROBE_NAMES 64u
#define PROBE_RATE  4u /* times a client's: every half millisecond, if nothing else is said */
#define PATIENCE_NS (120 * NS_PER_S) /* for what is under way, when all is healed */
#define FIRST_PROBE (NAMES + 1)	     /* object of the prober's first name */
#define INSERTED    (1ull << 62)     /* objects that are no names */

struct flight { /* an operation under way */
	bool used;
	uint8_t act; /* as it was called */
	uint32_t deed;
	unsigned int slot; /* SLOTS: none */
	uint8_t *memory;
};

struct client {
	struct torture *t;
	struct diary *diary;
	unsigned int id;
	struct dice dice;
	struct stag_pool *pool;
	uint64_t next_value;
	unsigned int depth, under_way;
	bool only_reads;
	struct flight flights[PROBE_DEPTH];
	uint64_t name_versions[NAMES];
	struct {
		uint64_t object, version;
	} slot_versions[SLOTS];
	uint8_t states[SLOTS]; /* enum slot_state, of our own */
	unsigned int num_orphans;
	struct { /* values without a slot: to be deleted next */
		uint64_t object;
		struct stag_pool_ptr ptr;
	} orphans[DEPTH];
};

enum slot_state {
	SLOT_USED,
	SLOT_FREE,  /* its value is gone, or was never there */
	SLOT_TAKEN, /* for a value that is being inserted */
};

/* ---- values ------------------------------------------------------------------------------ */

static uint64_t noise(uint64_t id, size_t i)
{
	uint64_t x = id + (i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	return x ^ x >> 27;
}

void value_make(uint8_t *to, size_t length, uint64_t id)
{
	memcpy(to, &id, length < 8 ? length : 8);
	for (size_t i = 8; i < length; i += 8) {
		uint64_t word = noise(id, i);

		memcpy(to + i, &word, length - i < 8 ? length - i : 8);
	}
}

uint64_t value_check(const uint8_t *from, size_t length)
{
	uint64_t id = 0;

	if (length < 8)
		return length == 0 ? 0 : VALUE_MIXED;
	memcpy(&id, from, 8);
	for (size_t i = 8; i < length; i += 8) {
		uint64_t word = noise(id, i);

		if (memcmp(from + i, &word, length - i < 8 ? length - i : 8) != 0)
			return VALUE_MIXED;
	}
	return id;
}

static uint64_t new_id(struct client *c)
{
	return (uint64_t)(c->t->phase + 1) << 48 | (uint64_t)(c->id + 1) << 40 |
	       (uint64_t)c->t->lives[c->id] << 28 | ++c->next_value;
}

/* Mostly small; some need more than a record of the log. */
static uint32_t draw_length(struct client *c)
{
	static const uint32_t most[] = {64, 64, 64, 256, 256, 4096, 4096, 65536, MAX_VALUE};
	size_t n = dice_one_in(&c->dice, 32) ? 9 : 7;
	uint32_t limit = most[dice_below(&c->dice, n)];

	if (c->t->work == WORK_LARGE && !dice_one_in(&c->dice, 4))
		limit = MAX_VALUE;

	if (dice_one_in(&c->dice, 64))
		return 0;
	return 8 + (uint32_t)dice_below(&c->dice, limit - 7);
}

/* ---- slots ------------------------------------------------------------------------------- */

static bool slot_read(const struct slot *s, uint64_t *object, struct stag_pool_ptr *ptr)
{
	for (;;) {
		uint32_t turn = atomic_load(&s->turn);

		*object = s->object;
		*ptr = s->ptr;
		atomic_thread_fence(memory_order_acquire);
		if (turn % 2 == 0 && atomic_load(&s->turn) == turn)
			return *object != 0;
	}
}

static void slot_write(struct slot *s, uint64_t object, const struct stag_pool_ptr *ptr)
{
	atomic_fetch_add(&s->turn, 1);
	s->object = object;
	s->ptr = *ptr;
	atomic_fetch_add(&s->turn, 1);
}

static bool is_own(const struct client *c, unsigned int slot)
{
	return slot % c->t->o.clients == c->id;
}

/* A slot of our own with nothing in it; SLOTS: none. */
static unsigned int find_free(const struct client *c)
{
	for (unsigned int s = c->id; s < SLOTS; s += c->t->o.clients)
		if (c->states[s] == SLOT_FREE)
			return s;
	return SLOTS;
}

/* ---- the diary ----------------------------------------------------------------------------- */

static struct deed *begin_deed(struct diary *d, uint32_t *index)
{
	*index = atomic_load(&d->count);
	if (*index == MAX_OPS)
		return NULL;
	d->deeds[*index] = (struct deed){.ret = LINEAR_NEVER, .outcome = LINEAR_UNKNOWN};
	return &d->deeds[*index];
}

static uint8_t outcome_of(struct client *c, struct deed *d, int error)
{
	switch (error) {
	case 0:
		return LINEAR_OK;
	case ENOENT:
		return LINEAR_ABSENT;
	case EEXIST:
		return LINEAR_PRESENT;
	case EILSEQ:
		return LINEAR_MISMATCH;
	case ENOSPC:
		d->act = ACT_NONE;
		atomic_fetch_add(&c->t->shared->no_room, 1);
		return LINEAR_UNKNOWN;
	default:
		atomic_fetch_add(&c->t->shared->errors, 1);
		atomic_store(&c->t->shared->last_error, error);
		return LINEAR_UNKNOWN;
	}
}

static bool is_reading(uint8_t act)
{
	return act == ACT_READ || act == ACT_GET;
}

static bool is_removing(uint8_t act)
{
	return act == ACT_DELETE || act == ACT_REMOVE;
}

/* ---- returns --------------------------------------------------------------------------------- */

/* Where others find it; else it is deleted next. */
static void keep(struct client *c, uint64_t object, const struct stag_pool_ptr *ptr)
{
	unsigned int slot = find_free(c);

	if (slot < SLOTS) {
		slot_write(&c->t->shared->slots[slot], object, ptr);
		c->states[slot] = SLOT_USED;
		return;
	}
	c->orphans[c->num_orphans].object = object;
	c->orphans[c->num_orphans++].ptr = *ptr;
	atomic_store(&c->diary->orphans, c->num_orphans);
}

/* The value has another place, and another pointer, now: to the history it is another value. */
static void move(struct client *c, struct deed *d, const struct stag_pool_done *done)
{
	uint32_t index;
	struct deed *made = begin_deed(c->diary, &index);

	d->act = ACT_DELETE;
	if (!made) {
		d->act =
			ACT_UPDATE; /* the history is at its end: the value is not looked at any more */
		d->outcome = LINEAR_UNKNOWN;
		return;
	}
	*made = *d;
	made->object = INSERTED | d->value;
	made->act = ACT_INSERT;
	made->expected = 0;
	d->version = 0;
	atomic_store(&c->diary->count, index + 1);
	keep(c, made->object, &done->ptr);
}

static void remember_version(struct client *c, const struct flight *f, const struct deed *d)
{
	if (d->object <= NAMES)
		c->name_versions[d->object - 1] = d->version;
	else if (f->slot < SLOTS) {
		c->slot_versions[f->slot].object = d->object;
		c->slot_versions[f->slot].version = d->version;
	}
}

static void finish_read(struct client *c, const struct flight *f, struct deed *d, uint64_t length)
{
	d->length = (uint32_t)length;
	d->value = length <= MAX_VALUE ? value_check(f->memory, (size_t)length) : VALUE_MIXED;
	if (d->value == VALUE_MIXED)
		atomic_fetch_add(&c->t->shared->mixed, 1);
}

static void note_gone(struct client *c, const struct flight *f, const struct deed *d)
{
	bool gone =
		d->outcome == LINEAR_ABSENT || (d->act == ACT_DELETE && d->outcome == LINEAR_OK);

	if (gone && f->slot < SLOTS && is_own(c, f->slot) && c->states[f->slot] == SLOT_USED &&
	    c->t->shared->slots[f->slot].object == d->object)
		c->states[f->slot] = SLOT_FREE;
}

/* What it did to slots. */
static void settle(struct client *c, const struct flight *f, struct deed *d,
		   const struct stag_pool_done *done)
{
	if (f->act == ACT_INSERT) {
		if (d->outcome == LINEAR_OK)
			slot_write(&c->t->shared->slots[f->slot], d->object, &done->ptr);
		c->states[f->slot] = d->outcome == LINEAR_OK ? SLOT_USED : SLOT_FREE;
		return;
	}
	if (f->act == ACT_UPDATE && d->outcome == LINEAR_OK &&
	    done->ptr.generation != d->generation)
		move(c, d, done);
	note_gone(c, f, d);
}

static void finish(struct client *c, const struct stag_pool_done *done, uint64_t now)
{
	struct flight *f = &c->flights[(uintptr_t)done->user];
	struct deed *d = &c->diary->deeds[f->deed];

	d->outcome = outcome_of(c, d, done->error);
	d->error = done->error;
	if (done->error == EILSEQ || (done->error == 0 && !is_removing(d->act)))
		d->version = done->version;
	if (done->error == 0 && is_reading(d->act))
		finish_read(c, f, d, done->length);
	if (d->outcome != LINEAR_UNKNOWN)
		d->ret = now;
	if (d->version)
		remember_version(c, f, d);
	settle(c, f, d, done);
	f->used = false;
	c->under_way--;
	atomic_fetch_add(&c->diary->done, 1);
}

static void collect(struct client *c)
{
	struct stag_pool_done done[16];
	int n;

	while ((n = stag_pool_poll(c->pool, done, 16)) > 0) {
		uint64_t now = clock_ns();

		atomic_store(&c->diary->busy, true);
		for (int i = 0; i < n; i++)
			finish(c, &done[i], now);
		atomic_store(&c->diary->busy, false);
	}
}

/* ---- calls ----------------------------------------------------------------------------------- */

static unsigned int free_flight(const struct client *c)
{
	unsigned int f = 0;

	while (c->flights[f].used)
		f++;
	return f;
}

static void fill(struct client *c, struct flight *f, struct deed *d, struct stag_pool_io *io)
{
	if (is_reading(d->act)) {
		io->to = f->memory;
		io->length = MAX_VALUE;
		return;
	}
	if (is_removing(d->act))
		return;
	d->length = draw_length(c);
	d->value = d->length ? new_id(c) : 0;
	value_make(f->memory, d->length, d->value);
	io->from = f->memory;
	io->length = d->length;
}

static bool expects(struct client *c, struct deed *d, uint64_t version)
{
	if (version == 0 || !dice_one_in(&c->dice, 3))
		return false;
	d->expected = version;
	return true;
}

static void choose_name(struct client *c, struct deed *d, struct stag_pool_io *io, char *name,
			size_t size)
{
	static const uint8_t acts[] = {ACT_GET, ACT_GET, ACT_GET,     ACT_PUT,
				       ACT_PUT, ACT_PUT, ACT_PUT_NEW, ACT_REMOVE};
	static const uint32_t ops[ACTS] = {[ACT_GET] = STAG_POOL_GET,
					   [ACT_PUT] = STAG_POOL_PUT,
					   [ACT_PUT_NEW] = STAG_POOL_PUT,
					   [ACT_REMOVE] = STAG_POOL_REMOVE};
	unsigned int n = (unsigned int)dice_below(&c->dice, NAMES);

	d->act = c->only_reads ? ACT_GET : acts[dice_below(&c->dice, sizeof(acts))];
	d->object = n + 1;
	snprintf(name, size, "torture %u", n);
	io->name = name;
	io->op = ops[d->act];
	if (d->act == ACT_PUT_NEW)
		io->flags |= STAG_POOL_EXCLUSIVE;
	else if (d->act != ACT_GET && expects(c, d, c->name_versions[n]))
		io->flags |= STAG_POOL_COMPARE;
}

static void delete_orphan(struct client *c, struct deed *d, struct stag_pool_io *io)
{
	atomic_store(&c->diary->orphans, --c->num_orphans);
	d->act = ACT_DELETE;
	d->object = c->orphans[c->num_orphans].object;
	io->op = STAG_POOL_DELETE;
	io->ptr = c->orphans[c->num_orphans].ptr;
}

/* false: there is nothing in that slot yet. */
static bool choose_pointer(struct client *c, struct flight *f, struct deed *d,
			   struct stag_pool_io *io)
{
	static const uint8_t acts[] = {ACT_READ,   ACT_READ,   ACT_READ,   ACT_READ,
				       ACT_UPDATE, ACT_UPDATE, ACT_UPDATE, ACT_DELETE};
	static const uint32_t ops[ACTS] = {[ACT_READ] = STAG_POOL_READ,
					   [ACT_UPDATE] = STAG_POOL_UPDATE,
					   [ACT_DELETE] = STAG_POOL_DELETE};

	f->slot = (unsigned int)dice_below(&c->dice, SLOTS);
	if (!slot_read(&c->t->shared->slots[f->slot], &d->object, &io->ptr))
		return false;
	d->act = c->only_reads ? ACT_READ : acts[dice_below(&c->dice, sizeof(acts))];
	io->op = ops[d->act];
	if (d->act != ACT_READ && c->slot_versions[f->slot].object == d->object &&
	    expects(c, d, c->slot_versions[f->slot].version))
		io->flags |= STAG_POOL_COMPARE;
	return true;
}

static bool choose(struct client *c, struct flight *f, struct deed *d, struct stag_pool_io *io,
		   char *name, size_t size)
{
	unsigned int slot;

	f->slot = SLOTS;
	if (c->num_orphans) {
		delete_orphan(c, d, io);
		return true;
	}
	if (!c->only_reads && dice_one_in(&c->dice, 8) && (slot = find_free(c)) < SLOTS) {
		d->act = ACT_INSERT;
		io->op = STAG_POOL_INSERT;
		f->slot = slot;
		c->states[slot] = SLOT_TAKEN;
		return true;
	}
	if (dice_one_in(&c->dice, 2)) {
		choose_name(c, d, io, name, size);
		return true;
	}
	return choose_pointer(c, f, d, io);
}

/* false: nothing can be done any more. */
static bool call(struct client *c, struct flight *f, struct deed *d, struct stag_pool_io *io,
		 uint32_t index)
{
	int rc;

	fill(c, f, d, io);
	if (d->act == ACT_INSERT)
		d->object = INSERTED | (d->value ? d->value : new_id(c));
	io->version = d->expected;
	io->user = (void *)(uintptr_t)(f - c->flights);
	d->client = (uint16_t)c->id;
	d->generation = io->ptr.generation;
	d->may_move = d->act == ACT_UPDATE && d->length > io->ptr.length;
	f->deed = index;
	f->act = d->act;
	f->used = true;
	c->under_way++;
	d->call = clock_ns();
	atomic_store(&c->diary->count, index + 1);
	atomic_store(&c->diary->busy, false);
	rc = stag_pool_submit(c->pool, io, 1);
	if (rc == 0)
		return true;
	d->act = ACT_NONE;
	d->error = rc;
	f->used = false;
	c->under_way--;
	outcome_of(c, d, rc);
	return false;
}

static bool start_one(struct client *c)
{
	struct flight *f = &c->flights[free_flight(c)];
	struct stag_pool_io io = {0};
	char name[32];
	uint32_t index;
	struct deed *d = begin_deed(c->diary, &index);

	if (!d)
		return false;
	atomic_store(&c->diary->busy, true);
	if (choose(c, f, d, &io, name, sizeof(name)))
		return call(c, f, d, &io, index);
	atomic_store(&c->diary->busy, false);
	return true;
}

static bool start_probe(struct client *c)
{
	struct flight *f = &c->flights[free_flight(c)];
	uint32_t index;
	struct deed *d = begin_deed(c->diary, &index);
	struct stag_pool_io io = {.op = STAG_POOL_PUT};
	char name[32];

	if (!d)
		return false;
	snprintf(name, sizeof(name), "probe %u", index % PROBE_NAMES);
	d->act = ACT_PUT;
	d->object = FIRST_PROBE + index % PROBE_NAMES;
	io.name = name;
	f->slot = SLOTS;
	return call(c, f, d, &io, index);
}

/* ---- a client's life ---------------------------------------------------------------------------- */

static bool make_memory(struct client *c, unsigned int depth)
{
	for (unsigned int i = 0; i < depth; i++) {
		c->flights[i].memory = malloc(MAX_VALUE);
		if (!c->flights[i].memory)
			return false;
	}
	return true;
}

static struct stag_pool *open_pool(const struct torture *t)
{
	struct stag_pool_attr attr = {
		.user = USER, .secret = SECRET, .timeout_ms = 30000, .retry_ms = -1};

	return stag_pool_open(t->where, &attr);
}

static void nap(uint64_t until)
{
	struct timespec ts = {.tv_sec = (time_t)(until / NS_PER_S),
			      .tv_nsec = (long)(until % NS_PER_S)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

/* Until something has come back, or it is time for the next. */
static void rest(struct client *c, uint64_t until)
{
	uint64_t now = clock_ns();

	if (c->under_way == c->depth)
		stag_pool_wait(c->pool, 50);
	else if (c->under_way && until > now + NS_PER_MS)
		stag_pool_wait(c->pool, 1);
	else if (until > now)
		nap(until);
}

static void work(struct client *c, bool (*one)(struct client *c), uint64_t pace)
{
	uint64_t next = clock_ns();

	while (!atomic_load(&c->t->shared->stop)) {
		collect(c);
		if (c->under_way < c->depth && clock_ns() >= next) {
			if (!one(c))
				break;
			next += pace;
			if (next + 50 * pace < clock_ns()) /* what was missed is not made up for */
				next = clock_ns();
		} else {
			rest(c, next);
		}
	}
}

/* What is under way comes to an end, and nothing is left without a pointer. */
static void wind_up(struct client *c)
{
	uint64_t until = clock_ns() + PATIENCE_NS;

	for (;;) {
		collect(c);
		if (c->under_way == 0) {
			if (!c->num_orphans || !start_one(c))
				return;
		} else if (clock_ns() > until) {
			atomic_store(&c->diary->lost_patience, true);
			return;
		}
		stag_pool_wait(c->pool, 20);
	}
}

static void become_client(struct torture *t, unsigned int id)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN);
	if (net_enter(&t->net, client_host(t, id)) != 0)
		_exit(EXIT_FAILED);
}

static void live(struct torture *t, unsigned int id)
{
	bool is_prober = id == t->o.clients;
	struct client *c = calloc(1, sizeof(*c));

	become_client(t, id);
	if (!c)
		_exit(EXIT_FAILED);
	*c = (struct client){.t = t, .id = id, .diary = &t->shared->diaries[id]};
	c->dice.state = t->o.seed ^ (uint64_t)(t->phase + 1) << 32 ^
			(id + 1 + MAX_CLIENTS * t->lives[id]) * 0x9e3779b97f4a7c15u;
	c->only_reads = !is_prober && id % 4 == 1;
	c->depth = is_prober ? PROBE_DEPTH : 1 + id % DEPTH;
	for (unsigned int s = 0; s < SLOTS; s++)
		c->states[s] = t->shared->slots[s].object ? SLOT_USED : SLOT_FREE;
	c->pool = make_memory(c, c->depth) ? open_pool(t) : NULL;
	if (!c->pool) {
		complain("client %u: %s", id, stag_pool_error());
		_exit(EXIT_FAILED);
	}
	if (is_prober)
		work(c, start_probe, NS_PER_S / (PROBE_RATE * t->o.rate));
	else
		work(c, start_one, NS_PER_S / t->o.rate);
	while (!atomic_load(&t->shared->stop))
		rest(c, clock_ns() + NS_PER_MS), collect(c);
	wind_up(c);
	if (!atomic_load(&c->diary->lost_patience))
		stag_pool_close(c->pool);
	_exit(EXIT_OK);
}

/* ---- the sweep ------------------------------------------------------------------------------------ */

static bool sweep_one(struct client *c, const char *name, uint64_t object,
		      const struct stag_pool_ptr *ptr)
{
	uint32_t index;
	struct deed *d = begin_deed(c->diary, &index);
	size_t length = MAX_VALUE;
	uint64_t version = 0;
	int rc;

	if (!d)
		return false;
	d->act = name ? ACT_GET : ACT_READ;
	d->object = object;
	d->client = (uint16_t)c->id;
	d->call = clock_ns();
	rc = name ? stag_pool_get(c->pool, name, c->flights[0].memory, &length, &version)
		  : stag_pool_read(c->pool, ptr, c->flights[0].memory, &length, &version);
	d->outcome = outcome_of(c, d, rc);
	d->error = rc;
	if (rc == 0) {
		d->version = version;
		finish_read(c, &c->flights[0], d, length);
	}
	d->ret = clock_ns();
	atomic_store(&c->diary->count, index + 1);
	return d->outcome != LINEAR_UNKNOWN;
}

static bool sweep_names(struct client *c)
{
	char name[32];

	for (unsigned int n = 0; n < NAMES + PROBE_NAMES; n++) {
		snprintf(name, sizeof(name), n < NAMES ? "torture %u" : "probe %u",
			 n < NAMES ? n : n - NAMES);
		if (!sweep_one(c, name, n + 1, NULL))
			return false;
	}
	return true;
}

static bool sweep_slots(struct client *c, const struct slot *slots, unsigned int n)
{
	struct stag_pool_ptr ptr;
	uint64_t object;

	for (unsigned int s = 0; s < n; s++)
		if (slot_read(&slots[s], &object, &ptr) && !sweep_one(c, NULL, object, &ptr))
			return false;
	return true;
}

/* One that is alone: it calls, and waits for the return. */
static void be_alone(struct torture *t, bool (*errand)(struct client *c))
{
	unsigned int id = t->o.clients + 1;
	struct client *c = calloc(1, sizeof(*c));
	bool good;

	become_client(t, id);
	if (!c)
		_exit(EXIT_FAILED);
	*c = (struct client){.t = t, .id = id, .diary = &t->shared->diaries[id]};
	c->dice.state = t->o.seed;
	c->pool = make_memory(c, 1) ? open_pool(t) : NULL;
	good = c->pool && errand(c);
	if (!good)
		complain("who looks at all values: %s", stag_pool_error());
	if (c->pool)
		stag_pool_close(c->pool);
	_exit(good ? EXIT_OK : EXIT_FAILED);
}

static bool sweep(struct client *c)
{
	const struct shared *shared = c->t->shared;

	return sweep_names(c) && sweep_slots(c, shared->slots, SLOTS) &&
	       sweep_slots(c, shared->founded, FOUNDED);
}

/* Nobody changes them any more: every sweep has to find them by these pointers. */
static bool found(struct client *c)
{
	uint8_t *memory = c->flights[0].memory;

	for (unsigned int i = 0; i < FOUNDED; i++) {
		struct stag_pool_ptr ptr;
		uint32_t length = 8 + draw_length(c) % 16384;
		uint64_t id = (uint64_t)(i + 1) << 32;

		value_make(memory, length, id);
		if (stag_pool_insert(c->pool, memory, length, &ptr) != 0)
			return false;
		slot_write(&c->t->shared->founded[i], INSERTED | id, &ptr);
	}
	return sweep_slots(c, c->t->shared->founded, FOUNDED);
}

/* ---- in the parent's process ------------------------------------------------------------------------ */

static bool start_client(struct torture *t, unsigned int id)
{
	fflush(NULL);
	t->clients[id] = fork();
	if (t->clients[id] == 0)
		live(t, id);
	if (t->clients[id] > 0)
		return true;
	t->clients[id] = 0;
	return fail(t, "cannot fork: %s", strerror(errno));
}

bool clients_start(struct torture *t)
{
	bool good = true;

	atomic_store(&t->shared->stop, false);
	memset(t->lives, 0, sizeof(t->lives));
	for (unsigned int i = 0; good && i <= t->o.clients; i++)
		good = start_client(t, i);
	return good;
}

/* Stops it where its diary is as it should be; false: it has ended by itself. */
static bool hold(const struct torture *t, unsigned int id)
{
	int status;

	for (;;) {
		kill(t->clients[id], SIGSTOP);
		if (waitpid(t->clients[id], &status, WUNTRACED) < 0 || !WIFSTOPPED(status))
			return false;
		if (!atomic_load(&t->shared->diaries[id].busy))
			return true;
		kill(t->clients[id], SIGCONT);
		usleep(100);
	}
}

bool client_restart(struct torture *t, unsigned int id, double after)
{
	struct diary *d = &t->shared->diaries[id];

	if (!hold(t, id)) {
		t->clients[id] = 0;
		return fail(t, "client %u has ended by itself", id);
	}
	note(t, false, "kill client%u", id);
	kill(t->clients[id], SIGKILL);
	waitpid(t->clients[id], NULL, 0);
	t->clients[id] = 0;
	t->unknown_inserts += atomic_exchange(&d->orphans, 0);
	t->lives[id]++;
	return pass_time(t, after) && start_client(t, id);
}

static bool await_end(struct torture *t, pid_t *pid, const char *who, uint64_t until)
{
	int status;

	while (waitpid(*pid, &status, WNOHANG) == 0) {
		if (clock_ns() > until)
			return fail(t, "%s has not come to an end", who);
		if (!pass_time(t, 0.005))
			return false;
	}
	*pid = 0;
	if (WIFSIGNALED(status))
		return fail(t, "%s died of signal %d", who, WTERMSIG(status));
	return WEXITSTATUS(status) == EXIT_OK ||
	       fail(t, "%s ended with %d", who, WEXITSTATUS(status));
}

bool clients_finish(struct torture *t)
{
	uint64_t until = clock_ns() + PATIENCE_NS + 30 * NS_PER_S;
	bool good = true;
	char who[32];

	atomic_store(&t->shared->stop, true);
	for (unsigned int i = 0; good && i <= t->o.clients; i++) {
		snprintf(who, sizeof(who), "client %u", i);
		good = t->clients[i] == 0 || await_end(t, &t->clients[i], who, until);
	}
	for (unsigned int i = 0; good && i <= t->o.clients; i++)
		if (atomic_load(&t->shared->diaries[i].lost_patience))
			good = fail(t, "client %u: operations never came back", i);
	return good;
}

static bool send_one(struct torture *t, bool (*errand)(struct client *c), const char *who)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		be_alone(t, errand);
	if (pid < 0)
		return fail(t, "cannot fork: %s", strerror(errno));
	t->clients[0] = pid;
	return await_end(t, &t->clients[0], who, clock_ns() + 60 * NS_PER_S);
}

bool clients_sweep(struct torture *t)
{
	return send_one(t, sweep, "the sweep");
}

bool clients_found(struct torture *t)
{
	return send_one(t, found, "the founder");
}

void clients_end(struct torture *t)
{
	for (unsigned int i = 0; i <= t->o.clients; i++)
		if (t->clients[i] > 0) {
			kill(t->clients[i], SIGKILL);
			waitpid(t->clients[i], NULL, 0);
			t->clients[i] = 0;
		}
}

uint64_t clients_done(const struct torture *t)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i <= t->o.clients; i++)
		sum += atomic_load(&t->shared->diaries[i].done);
	return sum;
}
