// SPDX-License-Identifier: BSD-2-Clause
/*
 * alloc.c - blocks of the region.
 *
 * Sizes up to 288 KiB have classes: steps of 16 bytes to 256, eight to each power of two above. The blocks of a
 * class are in slabs of one span, or of as many as leave little waste at the end. Bits say which blocks are in
 * use: in the entry of the first span if 64 are enough, else at the beginning of the slab. Bodies of long values
 * are runs of whole spans: so a pointer to an object can be told from a pointer into bytes that a client has
 * written.
 *
 * All of this is in the region, and changes through records. Beside it, from a scan, the core keeps which spans
 * are free and which slabs have room, ahead of the region like the rest of the core.
 */
#include "pool/memory/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STEP	      16u
#define MIN_BLOCK     32u
#define LINEAR_SHIFT  8u
#define LINEAR_MAX    (1u << LINEAR_SHIFT)
#define LINEAR	      ((LINEAR_MAX - MIN_BLOCK) / STEP + 1)
#define CLASSES	      (LINEAR + 81u)
#define SLAB_MAX      16u /* spans */
#define NO_SPAN	      UINT32_MAX
#define BITS_PER_WORD 64u

/* ---- classes --------------------------------------------------------------------- */

struct shape {
	uint32_t size;	/* bytes of a block */
	uint32_t spans; /* in a slab */
	uint32_t count; /* blocks in a slab */
	uint32_t first; /* offset of the first block in the slab: after the bits */
};

static uint32_t class_size(unsigned int class)
{
	unsigned int geometric = class - LINEAR + 1;

	if (class < LINEAR)
		return MIN_BLOCK + class * STEP;
	return (LINEAR_MAX << geometric / 8) + (LINEAR_MAX / 8 << geometric / 8) * (geometric % 8);
}

/* size is at most POOL_BLOCK_MAX. */
static unsigned int class_of(uint32_t size)
{
	unsigned int shift;

	if (size <= MIN_BLOCK)
		return 0;
	if (size <= LINEAR_MAX)
		return (size - MIN_BLOCK + STEP - 1) / STEP;
	shift = 31 - (unsigned int)__builtin_clz(size - 1) -
		LINEAR_SHIFT; /* powers of two above LINEAR_MAX */
	return LINEAR - 1 + shift * 8 +
	       ((size - 1 - (LINEAR_MAX << shift)) / (LINEAR_MAX / 8 << shift) + 1);
}

static uint32_t words_of(uint32_t count)
{
	return (count + BITS_PER_WORD - 1) / BITS_PER_WORD;
}

/* Puts the bits at the beginning of the slab if one word is not enough. */
static struct shape shape_with(uint32_t size, uint32_t spans)
{
	struct shape s = {.size = size, .spans = spans, .count = spans * POOL_SPAN / size};

	if (s.count <= BITS_PER_WORD)
		return s;
	s.first = (words_of(s.count) * 8 + POOL_ALIGN - 1) & ~(POOL_ALIGN - 1);
	s.count = (spans * POOL_SPAN - s.first) / size;
	return s;
}

/* Takes as few spans as leave at most a sixteenth of them unused. */
static struct shape shape_of(unsigned int class)
{
	uint32_t size = class_size(class);
	struct shape s;

	for (uint32_t spans = 1;; spans++) {
		s = shape_with(size, spans);
		if (spans == SLAB_MAX ||
		    (spans * POOL_SPAN - s.count * size) <= spans * POOL_SPAN / 16)
			return s;
	}
}

/* ---- entries of the span table --------------------------------------------------- */

static uint64_t entry_at(const struct pool_region *r, uint32_t span)
{
	return r->spans_at + (uint64_t)span * sizeof(struct pool_span);
}

static uint64_t span_at(const struct pool_region *r, uint32_t span)
{
	return r->memory_at + ((uint64_t)span << POOL_SPAN_SHIFT);
}

static struct pool_span see_span(const struct pool_core *core, uint32_t span)
{
	struct pool_span entry;

	pool_see_bytes(core, entry_at(&core->region, span), &entry, sizeof(entry));
	return entry;
}

/* Writes the first word; the bits are written separately. */
static void put_span(struct pool_core *core, uint32_t span, const struct pool_span *entry)
{
	uint64_t word;

	memcpy(&word, entry, sizeof(word));
	pool_put(core, entry_at(&core->region, span), word);
}

static bool is_slab(const struct pool_span *entry)
{
	return entry->kind >= POOL_SLAB && entry->kind < POOL_SLAB + CLASSES;
}

/* Returns the offset of word w of a slab's bits. */
static uint64_t bits_at(const struct pool_region *r, const struct shape *s, uint32_t span,
			uint32_t w)
{
	if (s->first == 0)
		return entry_at(r, span) + offsetof(struct pool_span, bits);
	return span_at(r, span) + (uint64_t)w * 8;
}

/* ---- slabs with room ------------------------------------------------------------- */

static uint32_t head_of(const struct pool_core *core, unsigned int class)
{
	return (uint32_t)core->region.num_spans + class;
}

static bool is_listed(const struct pool_core *core, uint32_t span)
{
	return core->room.next[span] != NO_SPAN;
}

static void list_slab(struct pool_core *core, uint32_t span, unsigned int class)
{
	struct pool_room *room = &core->room;
	uint32_t head = head_of(core, class);

	room->next[span] = room->next[head];
	room->prev[span] = head;
	room->prev[room->next[head]] = span;
	room->next[head] = span;
}

static void unlist_slab(struct pool_core *core, uint32_t span)
{
	struct pool_room *room = &core->room;

	room->next[room->prev[span]] = room->next[span];
	room->prev[room->next[span]] = room->prev[span];
	room->next[span] = NO_SPAN;
}

/* Returns NO_SPAN if no slab of this class has room. */
static uint32_t slab_with_room(const struct pool_core *core, unsigned int class)
{
	uint32_t head = head_of(core, class);
	uint32_t span = core->room.next[head];

	return span == head ? NO_SPAN : span;
}

/* ---- free spans ------------------------------------------------------------------ */

static void free_spans(struct pool_core *core, uint32_t span, uint32_t n)
{
	for (uint32_t i = span; i < span + n; i++) {
		core->room.free[i / BITS_PER_WORD] |= 1ull << i % BITS_PER_WORD;
		core->room.freed[i] = core->number;
	}
	core->room.free_spans += n;
	if (span < core->room.lowest)
		core->room.lowest = span;
}

static void take_spans(struct pool_core *core, uint32_t span, uint32_t n)
{
	for (uint32_t i = span; i < span + n; i++)
		core->room.free[i / BITS_PER_WORD] &= ~(1ull << i % BITS_PER_WORD);
	core->room.free_spans -= n;
	if (span == core->room.lowest)
		core->room.lowest = span + n;
}

/* Returns the next span from `from` on that is free (flip 0) or taken (flip ~0), or num_spans. */
static uint64_t next_span(const struct pool_core *core, uint64_t from, uint64_t flip)
{
	uint64_t all = core->region.num_spans;
	uint64_t word;

	while (from < all) {
		word = (core->room.free[from / BITS_PER_WORD] ^ flip) >> from % BITS_PER_WORD;
		if (word != 0) {
			from += (uint64_t)__builtin_ctzll(word);
			return from < all ? from : all;
		}
		from = (from / BITS_PER_WORD + 1) * BITS_PER_WORD;
	}
	return all;
}

/* Returns the first of n consecutive free spans (first fit), or NO_SPAN. */
static uint32_t find_spans(const struct pool_core *core, uint64_t n)
{
	uint64_t all = core->region.num_spans;
	uint64_t start = core->room.lowest, end;

	if (n > core->room.free_spans)
		return NO_SPAN;
	for (;; start = end) {
		start = next_span(core, start, 0);
		if (start == all)
			return NO_SPAN;
		end = next_span(core, start, ~0ull);
		if (end - start >= n)
			return (uint32_t)start;
	}
}

/* The same for spans whose last use was freed by a record that is applied on every node. */
static uint32_t find_quiet_spans(const struct pool_core *core, uint64_t n)
{
	uint64_t all = core->region.num_spans, found = 0;

	for (uint64_t span = core->room.lowest; span < all; span++) {
		if (found == 0)
			span = next_span(core, span, 0);
		if (span == all)
			break;
		if (next_span(core, span, 0) == span && core->room.freed[span] <= core->quiet)
			found++;
		else
			found = 0;
		if (found == n)
			return (uint32_t)(span + 1 - n);
	}
	return NO_SPAN;
}

/* ---- allocating ------------------------------------------------------------------ */

static uint32_t make_slab(struct pool_core *core, unsigned int class)
{
	struct shape s = shape_of(class);
	struct pool_span entry = {.kind = (uint16_t)(POOL_SLAB + class)};
	struct pool_span tail = {.kind = POOL_SPAN_TAIL};
	uint32_t span = find_spans(core, s.spans);

	if (span == NO_SPAN)
		return NO_SPAN;
	take_spans(core, span, s.spans);
	put_span(core, span, &entry);
	for (uint32_t w = 0; w < words_of(s.count); w++)
		pool_put(core, bits_at(&core->region, &s, span, w), 0);
	for (tail.spans = 1; tail.spans < s.spans; tail.spans++)
		put_span(core, span + tail.spans, &tail);
	core->room.hint[span] = 0;
	list_slab(core, span, class);
	return span;
}

static void drop_slab(struct pool_core *core, uint32_t span, const struct shape *s)
{
	struct pool_span none = {0};

	if (is_listed(core, span))
		unlist_slab(core, span);
	for (uint32_t i = 0; i < s->spans; i++)
		put_span(core, span + i, &none);
	free_spans(core, span, s->spans);
}

/* Sets the bit of a free block, and returns its number, or -1 if there is none after all. */
static int64_t take_bit(struct pool_core *core, uint32_t span, const struct shape *s)
{
	uint32_t words = words_of(s->count);

	for (uint32_t w = core->room.hint[span]; w < words; w++) {
		uint64_t at = bits_at(&core->region, s, span, w);
		uint64_t bits = pool_see(core, at);
		uint32_t block;

		core->room.hint[span] = (uint8_t)w;
		if (~bits == 0)
			continue;
		block = w * BITS_PER_WORD + (uint32_t)__builtin_ctzll(~bits);
		if (block >= s->count)
			break;
		pool_put(core, at, bits | 1ull << block % BITS_PER_WORD);
		return block;
	}
	return -1;
}

static uint64_t take_block(struct pool_core *core, uint32_t span)
{
	struct pool_span entry = see_span(core, span);
	struct shape s = shape_of(entry.kind - POOL_SLAB);
	int64_t block = take_bit(core, span, &s);

	if (block < 0) { /* the slab's `used` is wrong: it is full */
		unlist_slab(core, span);
		return POOL_NOWHERE;
	}
	entry.used++;
	put_span(core, span, &entry);
	if (entry.used >= s.count)
		unlist_slab(core, span);
	return span_at(&core->region, span) + s.first + (uint64_t)block * s.size;
}

/* Allocates from an existing slab. */
static uint64_t take_from_class(struct pool_core *core, unsigned int class)
{
	uint64_t block = POOL_NOWHERE;
	uint32_t span;

	while (block == POOL_NOWHERE && (span = slab_with_room(core, class)) != NO_SPAN)
		block = take_block(core, span);
	return block;
}

uint64_t pool_alloc_run(struct pool_core *core, uint64_t size)
{
	uint64_t n = (size + POOL_SPAN - 1) >> POOL_SPAN_SHIFT;
	struct pool_span entry = {.kind = POOL_SPAN_RUN, .spans = (uint32_t)n};
	uint32_t span = find_quiet_spans(core, n);

	if (span == NO_SPAN)
		span = find_spans(core, n);
	if (span == NO_SPAN)
		return POOL_NOWHERE;
	take_spans(core, span, (uint32_t)n);
	put_span(core, span, &entry);
	return span_at(&core->region, span);
}

uint64_t pool_run_since(const struct pool_core *core, uint64_t offset, uint64_t size)
{
	uint64_t first = (offset - core->region.memory_at) >> POOL_SPAN_SHIFT;
	uint64_t n = (size + POOL_SPAN - 1) >> POOL_SPAN_SHIFT, since = 0;

	for (uint64_t span = first; span < first + n && span < core->region.num_spans; span++)
		if (core->room.freed[span] > since)
			since = core->room.freed[span];
	return since;
}

uint64_t pool_alloc(struct pool_core *core, uint64_t size)
{
	unsigned int class;
	uint64_t block;
	uint32_t span;

	assert(size <= POOL_BLOCK_MAX);
	class = class_of((uint32_t)size);
	block = take_from_class(core, class);
	if (block != POOL_NOWHERE)
		return block;
	span = make_slab(core, class);
	if (span != NO_SPAN)
		return take_block(core, span);
	/* A block that is too large is better than none. */
	while (block == POOL_NOWHERE && ++class < CLASSES)
		block = take_from_class(core, class);
	return block;
}

/* ---- finding --------------------------------------------------------------------- */

struct found {
	uint32_t span; /* the first one of its slab or run */
	uint32_t block;
	struct pool_span entry;
	struct shape shape; /* if it is a slab */
	uint64_t size;	    /* bytes; 0: no block in use begins here */
};

/* The view of a lookup: the region with what is ahead, or, without a core, the region as it is. */
struct eye {
	const struct pool_core *core;
	const struct pool_region *region;
};

static uint64_t peek_word(const struct eye *eye, uint64_t offset)
{
	return eye->core ? pool_see(eye->core, offset) : pool_word(eye->region, offset);
}

static struct pool_span peek_span(const struct eye *eye, uint32_t span)
{
	uint64_t at = entry_at(eye->region, span);
	uint64_t words[2] = {peek_word(eye, at), peek_word(eye, at + 8)};
	struct pool_span entry;

	memcpy(&entry, words, sizeof(entry));
	return entry;
}

/* Finds the slab's first span, from any of its spans. */
static bool find_slab(const struct eye *eye, struct found *f)
{
	f->entry = peek_span(eye, f->span);
	if (f->entry.kind == POOL_SPAN_TAIL) {
		if (f->entry.spans == 0 || f->entry.spans > f->span)
			return false;
		f->span -= f->entry.spans;
		f->entry = peek_span(eye, f->span);
	}
	if (!is_slab(&f->entry))
		return false;
	f->shape = shape_of(f->entry.kind - POOL_SLAB);
	return f->shape.spans <= eye->region->num_spans - f->span;
}

static bool is_block(const struct eye *eye, struct found *f, uint64_t offset)
{
	uint64_t within = offset - span_at(eye->region, f->span);
	uint64_t bits;

	if (within < f->shape.first || (within - f->shape.first) % f->shape.size != 0)
		return false;
	f->block = (uint32_t)((within - f->shape.first) / f->shape.size);
	if (f->block >= f->shape.count)
		return false;
	bits = peek_word(eye, bits_at(eye->region, &f->shape, f->span, f->block / BITS_PER_WORD));
	return bits >> f->block % BITS_PER_WORD & 1;
}

static struct found find_block(const struct eye *eye, uint64_t offset)
{
	const struct pool_region *r = eye->region;
	struct found f = {0};

	if (offset < r->memory_at || offset % POOL_ALIGN != 0 ||
	    (offset - r->memory_at) >> POOL_SPAN_SHIFT >= r->num_spans)
		return f;
	f.span = (uint32_t)((offset - r->memory_at) >> POOL_SPAN_SHIFT);
	f.entry = peek_span(eye, f.span);
	if (f.entry.kind == POOL_SPAN_RUN) {
		if (offset == span_at(r, f.span) && f.entry.spans <= r->num_spans - f.span)
			f.size = (uint64_t)f.entry.spans << POOL_SPAN_SHIFT;
	} else if (find_slab(eye, &f) && is_block(eye, &f, offset)) {
		f.size = f.shape.size;
	}
	return f;
}

/* Returns the size if a run (`run`) or a block (not `run`) was found, or 0. */
static uint64_t size_if(const struct found *f, bool run)
{
	return (f->entry.kind == POOL_SPAN_RUN) == run ? f->size : 0;
}

uint64_t pool_block_size(const struct pool_core *core, uint64_t offset)
{
	struct eye eye = {core, &core->region};
	struct found f = find_block(&eye, offset);

	return size_if(&f, false);
}

uint64_t pool_run_size(const struct pool_core *core, uint64_t offset)
{
	struct eye eye = {core, &core->region};
	struct found f = find_block(&eye, offset);

	return size_if(&f, true);
}

uint64_t pool_region_block_size(const struct pool_region *r, uint64_t offset)
{
	struct eye eye = {NULL, r};
	struct found f = find_block(&eye, offset);

	return size_if(&f, false);
}

uint64_t pool_region_run_size(const struct pool_region *r, uint64_t offset)
{
	struct eye eye = {NULL, r};
	struct found f = find_block(&eye, offset);

	return size_if(&f, true);
}

/* ---- freeing --------------------------------------------------------------------- */

static void free_run(struct pool_core *core, const struct found *f)
{
	struct pool_span none = {0};

	put_span(core, f->span, &none);
	free_spans(core, f->span, f->entry.spans);
}

void pool_free(struct pool_core *core, uint64_t offset)
{
	struct eye eye = {core, &core->region};
	struct found f = find_block(&eye, offset);
	uint32_t w = f.block / BITS_PER_WORD;
	uint64_t at;

	if (f.size == 0)
		return;
	if (f.entry.kind == POOL_SPAN_RUN) {
		free_run(core, &f);
		return;
	}
	at = bits_at(&core->region, &f.shape, f.span, w);
	pool_put(core, at, pool_see(core, at) & ~(1ull << f.block % BITS_PER_WORD));
	if (f.entry.used <= 1) {
		drop_slab(core, f.span, &f.shape);
		return;
	}
	f.entry.used--;
	put_span(core, f.span, &f.entry);
	if (w < core->room.hint[f.span])
		core->room.hint[f.span] = (uint8_t)w;
	if (!is_listed(core, f.span))
		list_slab(core, f.span, f.entry.kind - POOL_SLAB);
}

/* ---- overwriting ----------------------------------------------------------------- */

void pool_free_run(struct pool_core *core, uint64_t offset)
{
	struct eye eye = {core, &core->region};
	struct found f = find_block(&eye, offset);

	if (f.size == 0 || f.entry.kind != POOL_SPAN_RUN || f.entry.used != 0)
		return;
	if (!core->overwrite) {
		free_run(core, &f);
		return;
	}
	f.entry.used = 1;
	put_span(core, f.span, &f.entry);
	pool_put(core, entry_at(&core->region, f.span) + offsetof(struct pool_span, bits), 0);
	core->room.scrubs++;
}

static bool is_scrub(const struct pool_span *entry)
{
	return entry->kind == POOL_SPAN_RUN && entry->used != 0;
}

uint64_t pool_scrub_find(const struct pool_core *core, uint64_t *size, uint64_t *done)
{
	struct pool_span entry;

	if (core->room.scrubs == 0)
		return POOL_NOWHERE;
	for (uint32_t span = 0; span < core->region.num_spans; span++) {
		entry = see_span(core, span);
		if (!is_scrub(&entry))
			continue;
		*size = (uint64_t)entry.spans << POOL_SPAN_SHIFT;
		*done = entry.bits < *size ? entry.bits : *size;
		return span_at(&core->region, span);
	}
	return POOL_NOWHERE;
}

void pool_scrub_done(struct pool_core *core, uint64_t offset, uint64_t done)
{
	struct eye eye = {core, &core->region};
	struct found f = find_block(&eye, offset);
	uint64_t at = entry_at(&core->region, f.span) + offsetof(struct pool_span, bits);

	if (f.size == 0 || !is_scrub(&f.entry))
		return;
	pool_put(core, at, done < f.size ? done : 0);
	if (done < f.size)
		return;
	free_run(core, &f);
	core->room.scrubs--;
}

bool pool_region_is_scrub(const struct pool_region *r, uint64_t offset)
{
	struct eye eye = {NULL, r};
	struct found f = find_block(&eye, offset);

	return f.size != 0 && is_scrub(&f.entry);
}

/* ---- scanning the region --------------------------------------------------------- */

static bool are_tails(const struct pool_core *core, uint32_t span, const struct shape *s)
{
	struct pool_span tail;

	for (uint32_t i = 1; i < s->spans; i++) {
		tail = see_span(core, span + i);
		if (tail.kind != POOL_SPAN_TAIL || tail.spans != i)
			return false;
	}
	return true;
}

static bool are_free(const struct pool_core *core, uint32_t span, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (see_span(core, span + i).kind != POOL_SPAN_FREE)
			return false;
	return true;
}

/* Accounts for what begins at span. Returns how many spans it has, or 0 if its entry is invalid. */
static uint32_t scan_span(struct pool_core *core, uint32_t span)
{
	uint64_t left = core->region.num_spans - span;
	struct pool_span entry = see_span(core, span);
	struct shape s;

	if (entry.kind == POOL_SPAN_FREE) {
		free_spans(core, span, 1);
		return 1;
	}
	if (entry.kind == POOL_SPAN_RUN) {
		if (entry.spans == 0 || entry.spans > left || entry.used > 1)
			return 0;
		core->room.scrubs += entry.used;
		return are_free(core, span + 1, entry.spans - 1) ? entry.spans : 0;
	}
	if (!is_slab(&entry))
		return 0;
	s = shape_of(entry.kind - POOL_SLAB);
	if (s.spans > left || entry.used == 0 || entry.used > s.count || !are_tails(core, span, &s))
		return 0;
	if (entry.used < s.count)
		list_slab(core, span, entry.kind - POOL_SLAB);
	return s.spans;
}

static int scan(struct pool_core *core)
{
	uint32_t all = (uint32_t)core->region.num_spans;

	for (uint32_t span = 0, n; span < all; span += n) {
		n = scan_span(core, span);
		if (n == 0)
			return -EBADMSG;
	}
	return 0;
}

/* Returns how many spans an entry stands for, at least 1. */
static uint64_t length_of(const struct pool_span *entry)
{
	if (entry->kind == POOL_SPAN_RUN && entry->spans != 0)
		return entry->spans;
	return is_slab(entry) ? shape_of(entry->kind - POOL_SLAB).spans : 1;
}

void pool_count_free(const struct pool_region *r, uint64_t *span, uint32_t most, uint64_t *free)
{
	for (uint32_t i = 0; i < most && *span < r->num_spans; i++) {
		uint64_t word = pool_word(r, entry_at(r, (uint32_t)*span));
		struct pool_span entry = {0};

		memcpy(&entry, &word, sizeof(word));
		*free += entry.kind == POOL_SPAN_FREE;
		*span += length_of(&entry);
	}
}

static void empty_lists(struct pool_core *core)
{
	struct pool_room *room = &core->room;

	for (uint32_t span = 0; span < core->region.num_spans; span++)
		room->next[span] = NO_SPAN;
	for (unsigned int class = 0; class < CLASSES; class += 1) {
		uint32_t head = head_of(core, class);

		room->next[head] = room->prev[head] = head;
	}
}

int pool_room_create(struct pool_core *core)
{
	struct pool_room *room = &core->room;
	uint64_t spans = core->region.num_spans;
	int rc = -ENOMEM;

	*room = (struct pool_room){.lowest = spans};
	room->free = calloc(spans / BITS_PER_WORD + 1, sizeof(*room->free));
	room->next = malloc((spans + CLASSES) * sizeof(*room->next));
	room->prev = malloc((spans + CLASSES) * sizeof(*room->prev));
	room->hint = calloc(spans, sizeof(*room->hint));
	room->freed = calloc(spans, sizeof(*room->freed));
	if (room->free && room->next && room->prev && room->hint && room->freed) {
		empty_lists(core);
		rc = scan(core);
	}
	if (rc != 0)
		pool_room_destroy(core);
	return rc;
}

void pool_room_destroy(struct pool_core *core)
{
	free(core->room.free);
	free(core->room.next);
	free(core->room.prev);
	free(core->room.hint);
	free(core->room.freed);
	core->room = (struct pool_room){0};
}
