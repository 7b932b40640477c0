// SPDX-License-Identifier: BSD-2-Clause
/* audit_kept.c - see audit_kept.h. */
#include "audit_kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/rate.h"
#include "base/siphash.h"
#include "base/source.h"

#define SHARE (AUDIT_KEPT / 8) /* of a source in a ring that is full */

/* The parts of stag; the last one stands for all others. */
static const char *const rooms[] = {"api", "pool", "store", "block", ""};

#define N_ROOMS (sizeof(rooms) / sizeof(rooms[0]))
#define N_RINGS (1 + 2 * N_ROOMS)

enum { RING_ADMINISTRATION, RING_OTHERS, RING_REFUSALS = RING_OTHERS + N_ROOMS };

/* Ids and sources are apart from the records: a search reads nothing else. */
struct ring {
	size_t n;
	struct {
		uint64_t id, source;
	} place[AUDIT_KEPT];
	struct audit_record list[AUDIT_KEPT];
};

struct audit_kept {
	uint64_t key[2]; /* of the hash of sources */
	struct rate refused[N_ROOMS];
	struct ring rings[N_RINGS];
};

struct audit_kept *audit_kept_create(void)
{
	struct audit_kept *k = calloc(1, sizeof(*k));

	for (int i = 0; k && i < 2; i++)
		k->key[i] = (uint64_t)random_u32() << 32 | random_u32();
	return k;
}

void audit_kept_destroy(struct audit_kept *kept)
{
	free(kept);
}

static size_t room_of(const char *word)
{
	size_t i = 0;

	while (i < N_ROOMS - 1 && strcmp(rooms[i], word) != 0)
		i++;
	return i;
}

bool audit_kept_allows(struct audit_kept *kept, const struct stag_audit_record *r, uint64_t now)
{
	static const struct rate_limit limit =
		RATE_LIMIT(AUDIT_ALL_REFUSED_RATE, AUDIT_ALL_REFUSED_BURST);
	uint32_t before;

	return r->outcome != STAG_AUDIT_REFUSED ||
	       rate_allows(&kept->refused[room_of(r->room ? r->room : "")], &limit, now, &before);
}

/* ---- adding ------------------------------------------------------------------------------ */

static struct ring *ring_of(struct audit_kept *k, const struct audit_record *r)
{
	if (r->outcome == STAG_AUDIT_REFUSED)
		return &k->rings[RING_REFUSALS + room_of(r->room)];
	if (r->flags & STAG_AUDIT_ADMINISTRATION)
		return &k->rings[RING_ADMINISTRATION];
	return &k->rings[RING_OTHERS + room_of(r->room)];
}

/* Returns the place that a record of this source takes. */
static size_t place_for(const struct ring *r, uint64_t source)
{
	size_t oldest = 0, own = AUDIT_KEPT, of_source = 0;

	if (r->n < AUDIT_KEPT)
		return r->n;
	for (size_t i = 0; i < AUDIT_KEPT; i++) {
		if (r->place[i].id < r->place[oldest].id)
			oldest = i;
		if (r->place[i].source != source)
			continue;
		of_source++;
		if (own == AUDIT_KEPT || r->place[i].id < r->place[own].id)
			own = i;
	}
	return of_source > SHARE ? own : oldest;
}

void audit_kept_add(struct audit_kept *kept, const struct audit_record *record)
{
	struct ring *r = ring_of(kept, record);
	uint8_t source[SOURCE_ROOM];
	uint64_t hash = siphash(kept->key, source, source_of_text(record->from, source));
	size_t at = place_for(r, hash);

	r->n += at == r->n;
	r->place[at].id = record->id;
	r->place[at].source = hash;
	r->list[at] = *record;
}

/* ---- reading ----------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
	const struct audit_record *const *x = a, *const *y = b;

	return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

/* Fills in those of one ring with an id above `since`, oldest first. Returns their number. */
static size_t list_ring(const struct ring *r, uint64_t since,
			const struct audit_record *list[AUDIT_KEPT])
{
	size_t n = 0;

	for (size_t i = 0; i < r->n; i++)
		if (r->place[i].id > since)
			list[n++] = &r->list[i];
	qsort(list, n, sizeof(*list), compare_ids);
	return n;
}

/* Shares `room` out among rings that have n records each: in turns, until it or they are used up. */
static void share_out(const size_t n[N_RINGS], size_t room, size_t take[N_RINGS])
{
	size_t before;

	memset(take, 0, N_RINGS * sizeof(*take));
	do {
		before = room;
		for (size_t i = 0; i < N_RINGS && room; i++)
			if (take[i] < n[i]) {
				take[i]++;
				room--;
			}
	} while (room < before);
}

size_t audit_kept_list(const struct audit_kept *kept, uint64_t since,
		       const struct audit_record **list, size_t room)
{
	const struct audit_record *of[N_RINGS][AUDIT_KEPT];
	size_t n[N_RINGS], take[N_RINGS], sum = 0;

	for (size_t i = 0; i < N_RINGS; i++)
		n[i] = list_ring(&kept->rings[i], since, of[i]);
	share_out(n, room, take);
	for (size_t i = 0; i < N_RINGS; i++) {
		if (take[i])
			memcpy(list + sum, of[i] + n[i] - take[i], take[i] * sizeof(*list));
		sum += take[i];
	}
	qsort(list, sum, sizeof(*list), compare_ids);
	return sum;
}
