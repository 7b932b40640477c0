// SPDX-License-Identifier: BSD-2-Clause
/*
 * client.c - clients: random operations, several in flight at once, each recorded when it is called
 * and when it returns.
 *
 * All clients use the same names. A client that inserts a value stores the pointer in one of its
 * own slots, where the others find it. The pointer stays there after the value was deleted, so
 * stale pointers are used as well. An update that moves the value to a larger place is recorded as
 * the deletion of one value and the insertion of another.
 *
 * Every fourth client only reads, so that it makes progress even while changes block.
 *
 * A client may be killed and replaced by another; the outcome of its operations in flight is then
 * unknown. Its journal and slots stay consistent, because it is not killed while it writes there
 * (journal.busy).
 *
 * One further client, the prober, puts a small value every half millisecond without waiting for the
 * previous put. The first put called after a primary's death that succeeds gives the length of the
 * outage.
 */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "linear.h"

#define FIRST_PROBE (NAMES + 1) /* object of the prober's first name */

/* ---- values ---- */

static uint64_t value_word(uint64_t id, size_t i)
{
	uint64_t x = id + (i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	return x ^ x >> 27;
}

void value_make(uint8_t *to, size_t length, uint64_t id)
{
	memcpy(to, &id, length < 8 ? length : 8);
	for (size_t i = 8; i < length; i += 8) {
		uint64_t word = value_word(id, i);

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
		uint64_t word = value_word(id, i);

		if (memcmp(from + i, &word, length - i < 8 ? length - i : 8) != 0)
			return VALUE_MIXED;
	}
	return id;
}

static uint64_t new_id(struct client *c)
{
	return (uint64_t)(c->t->phase + 1) << 48 | (uint64_t)(c->id + 1) << 40 |
	       (uint64_t)c->t->restarts[c->id] << 28 | ++c->next_value;
}

/* Draws a length: mostly small, sometimes more than one record of the log holds. */
uint32_t client_draw_length(struct client *c)
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

/* ---- slots ---- */

bool slot_read(const struct slot *s, uint64_t *object, struct stag_pool_ptr *ptr)
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

void slot_write(struct slot *s, uint64_t object, const struct stag_pool_ptr *ptr)
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

/* Returns a free slot of this client, or SLOTS. */
static unsigned int find_free_slot(const struct client *c)
{
	for (unsigned int s = c->id; s < SLOTS; s += c->t->o.clients)
		if (c->states[s] == SLOT_FREE)
			return s;
	return SLOTS;
}

/* ---- the journal ---- */

struct entry *entry_begin(struct journal *d, uint32_t *index)
{
	*index = atomic_load(&d->count);
	if (*index == MAX_OPS)
		return NULL;
	d->entries[*index] = (struct entry){.ret = LINEAR_NEVER, .outcome = LINEAR_UNKNOWN};
	return &d->entries[*index];
}

uint8_t entry_outcome(struct client *c, struct entry *d, int error)
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

/* ---- returns ---- */

/* Stores a pointer where other clients find it; without a free slot, the value is deleted next. */
static void publish_pointer(struct client *c, uint64_t object, const struct stag_pool_ptr *ptr)
{
	unsigned int slot = find_free_slot(c);

	if (slot < SLOTS) {
		slot_write(&c->t->shared->slots[slot], object, ptr);
		c->states[slot] = SLOT_USED;
		return;
	}
	c->orphans[c->num_orphans].object = object;
	c->orphans[c->num_orphans++].ptr = *ptr;
	atomic_store(&c->journal->orphans, c->num_orphans);
}

/*
 * Records that an update moved the value: it has another pointer now, so the history treats it as
 * another value.
 */
static void record_move(struct client *c, struct entry *d, const struct stag_pool_done *done)
{
	uint32_t index;
	struct entry *made = entry_begin(c->journal, &index);

	d->act = ACT_DELETE;
	if (!made) {
		d->act = ACT_UPDATE; /* the journal is full: the value is not checked any more */
		d->outcome = LINEAR_UNKNOWN;
		return;
	}
	*made = *d;
	made->object = INSERTED | d->value;
	made->act = ACT_INSERT;
	made->expected = 0;
	d->version = 0;
	atomic_store(&c->journal->count, index + 1);
	publish_pointer(c, made->object, &done->ptr);
}

static void remember_version(struct client *c, const struct flight *f, const struct entry *d)
{
	if (d->object <= NAMES)
		c->name_versions[d->object - 1] = d->version;
	else if (f->slot < SLOTS) {
		c->slot_versions[f->slot].object = d->object;
		c->slot_versions[f->slot].version = d->version;
	}
}

void client_finish_read(struct client *c, const struct flight *f, struct entry *d, uint64_t length)
{
	d->length = (uint32_t)length;
	d->value = length <= MAX_VALUE ? value_check(f->memory, (size_t)length) : VALUE_MIXED;
	if (d->value == VALUE_MIXED)
		atomic_fetch_add(&c->t->shared->mixed, 1);
}

static void free_slot_if_gone(struct client *c, const struct flight *f, const struct entry *d)
{
	bool gone =
		d->outcome == LINEAR_ABSENT || (d->act == ACT_DELETE && d->outcome == LINEAR_OK);

	if (gone && f->slot < SLOTS && is_own(c, f->slot) && c->states[f->slot] == SLOT_USED &&
	    c->t->shared->slots[f->slot].object == d->object)
		c->states[f->slot] = SLOT_FREE;
}

/* Updates the slots after an operation has returned. */
static void update_slots(struct client *c, const struct flight *f, struct entry *d,
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
		record_move(c, d, done);
	free_slot_if_gone(c, f, d);
}

static void finish_operation(struct client *c, const struct stag_pool_done *done, uint64_t now)
{
	struct flight *f = &c->flights[(uintptr_t)done->user];
	struct entry *d = &c->journal->entries[f->entry];

	d->outcome = entry_outcome(c, d, done->error);
	d->error = done->error;
	if (done->error == EILSEQ || (done->error == 0 && !is_removing(d->act)))
		d->version = done->version;
	if (done->error == 0 && is_reading(d->act))
		client_finish_read(c, f, d, done->length);
	if (d->outcome != LINEAR_UNKNOWN)
		d->ret = now;
	if (d->version)
		remember_version(c, f, d);
	update_slots(c, f, d, done);
	f->used = false;
	c->in_flight--;
	atomic_fetch_add(&c->journal->done, 1);
}

void client_collect(struct client *c)
{
	struct stag_pool_done done[16];
	int n;

	while ((n = stag_pool_poll(c->pool, done, 16)) > 0) {
		uint64_t now = clock_ns();

		atomic_store(&c->journal->busy, true);
		for (int i = 0; i < n; i++)
			finish_operation(c, &done[i], now);
		atomic_store(&c->journal->busy, false);
	}
}

/* ---- calls ---- */

static unsigned int free_flight(const struct client *c)
{
	unsigned int f = 0;

	while (c->flights[f].used)
		f++;
	return f;
}

static void prepare_buffers(struct client *c, struct flight *f, struct entry *d,
			    struct stag_pool_io *io)
{
	if (is_reading(d->act)) {
		io->to = f->memory;
		io->length = MAX_VALUE;
		return;
	}
	if (is_removing(d->act))
		return;
	d->length = client_draw_length(c);
	d->value = d->length ? new_id(c) : 0;
	value_make(f->memory, d->length, d->value);
	io->from = f->memory;
	io->length = d->length;
}

static bool choose_expected_version(struct client *c, struct entry *d, uint64_t version)
{
	if (version == 0 || !dice_one_in(&c->dice, 3))
		return false;
	d->expected = version;
	return true;
}

static void choose_name(struct client *c, struct entry *d, struct stag_pool_io *io, char *name,
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
	else if (d->act != ACT_GET && choose_expected_version(c, d, c->name_versions[n]))
		io->flags |= STAG_POOL_COMPARE;
}

static void delete_orphan(struct client *c, struct entry *d, struct stag_pool_io *io)
{
	atomic_store(&c->journal->orphans, --c->num_orphans);
	d->act = ACT_DELETE;
	d->object = c->orphans[c->num_orphans].object;
	io->op = STAG_POOL_DELETE;
	io->ptr = c->orphans[c->num_orphans].ptr;
}

/* Returns false if the drawn slot is empty. */
static bool choose_pointer(struct client *c, struct flight *f, struct entry *d,
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
	    choose_expected_version(c, d, c->slot_versions[f->slot].version))
		io->flags |= STAG_POOL_COMPARE;
	return true;
}

static bool choose_operation(struct client *c, struct flight *f, struct entry *d,
			     struct stag_pool_io *io, char *name, size_t size)
{
	unsigned int slot;

	f->slot = SLOTS;
	if (c->num_orphans) {
		delete_orphan(c, d, io);
		return true;
	}
	if (!c->only_reads && dice_one_in(&c->dice, 8) && (slot = find_free_slot(c)) < SLOTS) {
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

/* Submits the operation. Returns false if the pool cannot be used any more. */
static bool call(struct client *c, struct flight *f, struct entry *d, struct stag_pool_io *io,
		 uint32_t index)
{
	int rc;

	prepare_buffers(c, f, d, io);
	if (d->act == ACT_INSERT)
		d->object = INSERTED | (d->value ? d->value : new_id(c));
	io->version = d->expected;
	io->user = (void *)(uintptr_t)(f - c->flights);
	d->client = (uint16_t)c->id;
	d->generation = io->ptr.generation;
	d->may_move = d->act == ACT_UPDATE && d->length > io->ptr.length;
	f->entry = index;
	f->act = d->act;
	f->used = true;
	c->in_flight++;
	d->call = clock_ns();
	atomic_store(&c->journal->count, index + 1);
	atomic_store(&c->journal->busy, false);
	rc = stag_pool_submit(c->pool, io, 1);
	if (rc == 0)
		return true;
	d->act = ACT_NONE;
	d->error = rc;
	f->used = false;
	c->in_flight--;
	entry_outcome(c, d, rc);
	return false;
}

bool client_start_one(struct client *c)
{
	struct flight *f = &c->flights[free_flight(c)];
	struct stag_pool_io io = {0};
	char name[32];
	uint32_t index;
	struct entry *d = entry_begin(c->journal, &index);

	if (!d)
		return false;
	atomic_store(&c->journal->busy, true);
	if (choose_operation(c, f, d, &io, name, sizeof(name)))
		return call(c, f, d, &io, index);
	atomic_store(&c->journal->busy, false);
	return true;
}

bool client_start_probe(struct client *c)
{
	struct flight *f = &c->flights[free_flight(c)];
	uint32_t index;
	struct entry *d = entry_begin(c->journal, &index);
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
