// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_cuts.c - power fails while partitions are used, near and far, and the table is changed at
 * the same time.
 *
 * Random work runs on a disk that records everything (lossy.h). Then power fails after every event
 * of it, and each sector is checked in every version that it may hold: it has only bytes that were
 * written there, or were there before; no write that a completed barrier or a durable completion
 * covers is lost; and no write is there in part. Sectors are independent, so this checks all
 * states. Some of the states are also made as files, and opened: the table is the old one or the
 * new, and a partition that was never written reads as zeroes.
 *
 * The checks use only what the headers promise about order and levels, and not how that is
 * implemented.
 *
 * With STAG_EXTENSIONS=off, peers behave like those of any other implementation: they know no
 * barrier, and learn the outcome of their writes by a read.
 *
 * `test_store_cuts caught` runs on a build with a fault, and fails unless the fault is found.
 */
#include "stage.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "dice.h"
#include "lossy.h"
#include "stag/stagdv.h"

#define USERS	   5
#define DEEDS	   16 /* operations of one user per round */
#define SLOT	   (USER_MEMORY / DEEDS)
#define MOST	   9000 /* most bytes of an operation */
#define PARTITIONS 4
#define ROOM	   (24 * KIB) /* bytes of each partition */
#define SCRATCH	   (64 * KIB) /* bytes behind them, for partitions that are added and removed */
#define SIZE	   (START + PARTITIONS * ROOM + SCRATCH)
#define MOST_IDS   4096
#define NEVER	   (~0ul)

enum kind { READ, WRITE, ADD, SWAP, BARRIER };

struct deed {
	uint8_t kind, user;
	bool fence, durable, accepted;
	uint32_t len;
	uint64_t at; /* offset in the file */
	uint64_t operand, compare;
	uint8_t *bytes;			/* the bytes written; NULL: none */
	unsigned long posted, done;	/* times */
	unsigned long visible, covered; /* since when others see it; since when it is durable */
};

struct guest {
	struct user u;
	unsigned int partition;
	bool far;
	uint32_t relax, level;
};

/* A version of the table, and the time since when it may be found. */
struct stand {
	struct table table;
	unsigned long begun, done;
};

static struct world {
	struct stage s;
	struct stag_store_partition partition[PARTITIONS];
	struct guest guest[USERS];
	struct deed deed[USERS * DEEDS];
	unsigned int n_deeds, posted[USERS], n_done;
	/* [a][b]: a is ordered before b, for two that write. */
	bool before[USERS * DEEDS][USERS * DEEDS];
	struct stand *stands;
	unsigned int n_stands, room_for;
	/* By id of a scratch partition: when its space was written to. */
	unsigned long dirty[MOST_IDS];
	int cut_fd;
	char why[200];
} w;

static unsigned long states, looks, cuts;
static bool plain; /* peers know no barrier: a read behind the writes replaces it */

/* ---- random operations ----------------------------------------------------------- */

static struct deed *deed_of(unsigned int user, unsigned int i)
{
	return &w.deed[user * DEEDS + i];
}

static uint8_t *memory_of(const struct deed *d)
{
	return w.guest[d->user].u.mem + (unsigned int)(d - deed_of(d->user, 0)) * SLOT;
}

static bool is_atomic(const struct deed *d)
{
	return d->kind == ADD || d->kind == SWAP;
}

static void choose_place(struct deed *d, uint64_t start)
{
	/* Half of them are close together, so that they overlap. */
	uint64_t room = one_in(2) ? 2048 : ROOM;

	uint64_t most = room < MOST ? room : MOST;

	d->len = (uint32_t)(is_atomic(d) ? 8 : one_in(4) ? 1 + dice(most) : dice_size(most));
	d->at = dice(room - d->len + 1);
	if (is_atomic(d))
		d->at &= ~7ull;
	else if (one_in(3))
		d->at &= ~511ull;
	if (!is_atomic(d) && d->at % 512 == 0 && d->len > 512 && one_in(2))
		d->len &= ~511u;
	d->at += start;
}

static void make_deed(struct deed *d, unsigned int user)
{
	static const uint8_t kinds[] = {READ,  WRITE, WRITE, WRITE, WRITE, WRITE,  WRITE,
					WRITE, ADD,   ADD,   SWAP,  SWAP,  BARRIER};
	const struct guest *g = &w.guest[user];
	uint32_t level = g->level;

	*d = (struct deed){.kind = kinds[dice(sizeof(kinds))], .user = (uint8_t)user};
	d->posted = d->done = d->visible = d->covered = NEVER;
	if (d->kind == BARRIER)
		return;
	if (plain && g->far && is_atomic(d))
		d->kind = WRITE;
	choose_place(d, w.partition[g->partition].offset);
	d->fence = one_in(8);
	if (!g->far && one_in(4))
		level = (uint32_t)dice(3);
	d->durable = level == STAG_STORE_DURABLE;
	d->accepted = level == STAG_STORE_ACCEPTED;
	d->operand = one_in(2) ? 0 : dice(1ull << 62);
}

static void make_deeds(void)
{
	for (unsigned int u = 0; u < USERS; u++) {
		for (unsigned int i = 0; i < DEEDS; i++)
			make_deed(deed_of(u, i), u);
		/* After it, a peer's writes are carried out, too. */
		deed_of(u, DEEDS - 1)->kind = BARRIER;
	}
	memset(w.posted, 0, sizeof(w.posted));
	w.n_done = 0;
}

/* Reads the word that is there now, so that some compare-and-swaps succeed. */
static uint64_t read_current_word(const struct deed *d)
{
	uint64_t word;

	get_bytes(w.s.path, d->at, &word, sizeof(word));
	return word;
}

static unsigned int flags_of(const struct deed *d)
{
	unsigned int flags = IBV_SEND_SIGNALED | (d->fence ? IBV_SEND_FENCE : 0);

	if (w.guest[d->user].far)
		return flags;
	return flags | (d->durable    ? STAGDV_SEND_DURABLE
			: d->accepted ? STAGDV_SEND_ACCEPTED
				      : STAGDV_SEND_VISIBLE);
}

/* Splits the operation's memory into one or two scatter/gather elements. */
static int pieces(const struct deed *d, struct ibv_sge sge[2])
{
	const struct ibv_mr *mr = w.guest[d->user].u.mr;
	uint32_t first = d->kind == WRITE && d->len > 1 && one_in(3)
				 ? 1 + (uint32_t)dice(d->len - 1)
				 : d->len;

	sge[0] = (struct ibv_sge){(uintptr_t)memory_of(d), first, mr->lkey};
	sge[1] = (struct ibv_sge){(uintptr_t)memory_of(d) + first, d->len - first, mr->lkey};
	return first < d->len ? 2 : 1;
}

static void post_barrier(struct deed *d)
{
	struct stag_store_endpoint *e = w.guest[d->user].u.e;
	struct stagdv_barrier b = {
		.wr_id = (uintptr_t)d, .rkey = e->rkey, .send_flags = IBV_SEND_SIGNALED};

	d->posted = lossy_note();
	assert_int_equal(stagdv_wr_barrier(e->qp, &b), 0);
}

static void post_deed(struct deed *d)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
						     IBV_WR_ATOMIC_FETCH_AND_ADD,
						     IBV_WR_ATOMIC_CMP_AND_SWP};
	const struct guest *g = &w.guest[d->user];
	uint64_t at = g->u.e->base + d->at - w.partition[g->partition].offset;
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)d}, *bad;
	struct ibv_sge sge[2];

	wr.opcode = opcodes[d->kind];
	wr.send_flags = flags_of(d);
	wr.sg_list = sge;
	wr.num_sge = pieces(d, sge);
	wr.wr.rdma.remote_addr = at;
	wr.wr.rdma.rkey = g->u.e->rkey;
	if (d->kind == WRITE) {
		d->bytes = malloc(d->len);
		dice_fill(d->bytes, d->len);
		memcpy(memory_of(d), d->bytes, d->len);
	} else if (is_atomic(d)) {
		d->compare = read_current_word(d);
		if (d->kind == SWAP && d->operand == 0)
			d->operand = d->compare; /* and an add of 0 may change nothing, too */
		wr.wr.atomic.remote_addr = at;
		wr.wr.atomic.rkey = g->u.e->rkey;
		wr.wr.atomic.compare_add = d->kind == ADD ? d->operand : d->compare;
		wr.wr.atomic.swap = d->operand;
	}
	d->posted = lossy_note();
	assert_int_equal(ibv_post_send(g->u.e->qp, &wr, &bad), 0);
}

static void post_next(unsigned int user)
{
	struct deed *d;

	d = deed_of(user, w.posted[user]++);
	if (d->kind == BARRIER)
		post_barrier(d);
	else
		post_deed(d);
}

/* Records a completion, and derives the bytes that an atomic wrote from the value it returned. */
static void note_done(struct deed *d)
{
	uint64_t found;

	d->done = lossy_note();
	w.n_done++;
	if (!is_atomic(d))
		return;
	memcpy(&found, memory_of(d), sizeof(found));
	if (d->kind == SWAP && found != d->compare)
		return;
	found = d->kind == ADD ? found + d->operand : d->operand;
	d->bytes = malloc(sizeof(found));
	memcpy(d->bytes, &found, sizeof(found));
}

static void poll_some(unsigned int user)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(w.guest[user].u.e->qp->send_cq, 4, wc);

	assert_true(n >= 0);
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			fail_msg("an operation completed with %s", ibv_wc_status_str(wc[i].status));
		note_done((struct deed *)(uintptr_t)wc[i].wr_id);
	}
}

/* ---- changes of the table -------------------------------------------------------- */

static void begin_stand(void)
{
	if (w.n_stands == w.room_for) {
		w.room_for = w.room_for ? 2 * w.room_for : 16;
		w.stands = realloc(w.stands, w.room_for * sizeof(*w.stands));
		assert_non_null(w.stands);
	}
	w.stands[w.n_stands++].begun = lossy_note();
}

static void end_stand(void)
{
	struct stand *s = &w.stands[w.n_stands - 1];

	s->done = lossy_note();
	table_copy(&s->table, &w.s.store->now.table);
}

/* Picks a random scratch partition; false: there is none. */
static bool some_scratch(struct stag_store_partition *p)
{
	uint32_t index = PARTITIONS, n = count(w.s.store) - PARTITIONS;

	if (n == 0)
		return false;
	index += (uint32_t)dice(n);
	return stag_store_next(w.s.store, &index, p);
}

static void add_scratch(uint64_t size)
{
	struct stag_store_partition p = {.size = size};

	snprintf(p.name, sizeof(p.name), "s%u", (unsigned int)dice(1000000));
	if (stag_store_add(w.s.store, &p) == 0)
		w.dirty[p.id % MOST_IDS] = NEVER;
}

static void change_scratch(struct stag_store_partition *p)
{
	if (one_in(3)) {
		assert_int_equal(stag_store_remove(w.s.store, p->name, 0), 0);
		return;
	}
	p->num_rights = (uint32_t)dice(9);
	p->size += one_in(2) ? 512 : 0;
	stag_store_change(w.s.store, p, STAG_STORE_CHANGE_SIZE | STAG_STORE_CHANGE_RIGHTS);
}

static void change_used(void)
{
	struct stag_store_partition p = w.partition[dice(PARTITIONS)];

	p.cache_ms = one_in(2) ? 0 : 1000;
	assert_int_equal(stag_store_change(w.s.store, &p, STAG_STORE_CHANGE_CACHE), 0);
}

static void change_table(void)
{
	struct stag_store_partition p;

	begin_stand();
	if (one_in(4))
		change_used();
	else if (one_in(2) || !some_scratch(&p))
		add_scratch((1 + dice(12)) * 512);
	else
		change_scratch(&p);
	end_stand();
}

static void write_garbage(const struct stag_store_partition *p)
{
	static const uint8_t dirt[512] = {[0 ... 511] = 0xdd};
	int fd = w.s.store->backing.fd;

	if (w.dirty[p->id % MOST_IDS] == NEVER)
		w.dirty[p->id % MOST_IDS] = lossy_note();
	for (uint64_t at = 0; at < p->size; at += sizeof(dirt))
		store_io.pwrite(fd, dirt, sizeof(dirt), (off_t)(p->offset + at));
	store_io.fdatasync(fd);
}

/* Writes into a scratch partition, removes it, and adds another in its place. */
static void reuse_written_space(void)
{
	struct stag_store_partition p;

	if (!some_scratch(&p))
		return;
	write_garbage(&p);
	begin_stand();
	assert_int_equal(stag_store_remove(w.s.store, p.name, STAG_STORE_FORCE), 0);
	end_stand();
	begin_stand();
	add_scratch(p.size);
	end_stand();
}

/* Posts the user's next operation; from time to time changes the table. */
static void post_and_change(unsigned int user)
{
	if (w.posted[user] == DEEDS)
		return;
	post_next(user);
	if (one_in(10))
		change_table();
	if (one_in(20))
		reuse_written_space();
}

static void run_operations(void)
{
	uint64_t until = clock_ns() + 60 * NS_PER_S;

	make_deeds();
	w.n_stands = 0;
	for (unsigned int i = 0; i < MOST_IDS; i++)
		if (w.dirty[i] != NEVER)
			w.dirty[i] = 0;
	lossy_begin(dice(1ull << 62));
	begin_stand();
	end_stand();
	while (w.n_done < USERS * DEEDS) {
		unsigned int user = (unsigned int)dice(USERS);

		if (one_in(3))
			post_and_change(user);
		else
			poll_some(user);
		lossy_nudge();
		sched_yield();
		if (clock_ns() > until)
			fail_msg("only %u of %u operations completed", w.n_done, USERS * DEEDS);
	}
}

/* ---- promises ---------------------------------------------------------------------- */

static bool overlap_is_ordered(const struct deed *a, const struct deed *b, uint32_t relax)
{
	if (is_atomic(a) || is_atomic(b))
		return !(relax & STAG_STORE_RELAX_ATOMICS);
	return !(relax & STAG_STORE_RELAX_WRITES);
}

/* For a peer, a fence is that of verbs: it waits only for operations that return data. */
static bool is_between(const struct deed *first, const struct deed *d)
{
	const struct guest *g = &w.guest[d->user];

	if (d->kind == BARRIER)
		return !plain || !g->far;
	return d->fence && (!g->far || first->kind != WRITE);
}

static bool is_ordered(const struct deed *a, const struct deed *b)
{
	for (const struct deed *d = a + 1; d <= b; d++)
		if (is_between(a, d))
			return true;
	return overlap_is_ordered(a, b, w.guest[a->user].relax);
}

static bool overlaps(const struct deed *a, const struct deed *b)
{
	return a->at < b->at + b->len && b->at < a->at + a->len;
}

static bool comes_before(const struct deed *a, const struct deed *b)
{
	if (!a->bytes || !b->bytes || !overlaps(a, b))
		return false;
	if (a->visible < b->posted)
		return true;
	return a->user == b->user && a < b && is_ordered(a, b);
}

static unsigned long earlier_of(unsigned long a, unsigned long b)
{
	return a < b ? a : b;
}

/*
 * Derives a promise about d from the completion of a later operation: for a peer, from one that has
 * a response.
 */
static void note_witness(struct deed *d, const struct deed *later)
{
	const struct guest *g = &w.guest[d->user];
	bool barrier = later->kind == BARRIER && !(plain && g->far);
	bool answer = g->far && !g->relax && (later->kind == READ || later->kind == BARRIER);

	if (barrier || (answer && d->durable))
		d->covered = earlier_of(d->covered, later->done);
	if (barrier || (answer && !d->accepted))
		d->visible = earlier_of(d->visible, later->done);
}

/* A peer's write completes when it is sent; an operation with a response has been carried out. */
static void note_promises(struct deed *d)
{
	const struct deed *end = deed_of(d->user, DEEDS);
	bool tells = !w.guest[d->user].far || is_atomic(d);

	if (tells && d->durable)
		d->covered = d->done;
	if (tells && !d->accepted)
		d->visible = d->done;
	for (const struct deed *later = d + 1; later < end; later++)
		note_witness(d, later);
}

static void gather_promises(void)
{
	for (unsigned int i = 0; i < USERS * DEEDS; i++)
		if (w.deed[i].bytes)
			note_promises(&w.deed[i]);
	for (unsigned int i = 0; i < USERS * DEEDS; i++)
		for (unsigned int k = 0; k < USERS * DEEDS; k++)
			w.before[i][k] = i != k && comes_before(&w.deed[i], &w.deed[k]);
}

/* ---- checks of sectors --------------------------------------------------------------- */

/* The operations that have written to a sector until now, or are writing. */
struct writers {
	uint64_t start;
	unsigned int n, covered;
	uint16_t at[USERS * DEEDS];
};

static void find_writers(uint32_t sector, unsigned long now, struct writers *all)
{
	*all = (struct writers){.start = (uint64_t)sector * SECTOR};
	for (uint16_t i = 0; i < USERS * DEEDS; i++) {
		const struct deed *d = &w.deed[i];

		if (!d->bytes || d->posted > now || d->at >= all->start + SECTOR ||
		    d->at + d->len <= all->start)
			continue;
		all->at[all->n++] = i;
		all->covered += d->covered <= now;
	}
}

static bool touches(const struct deed *d, uint64_t at)
{
	return at >= d->at && at < d->at + d->len;
}

/* Returns whether a durable write replaced it. */
static bool is_overwritten(const struct writers *all, uint16_t i, uint64_t at, unsigned long now)
{
	for (unsigned int k = 0; k < all->n; k++) {
		const struct deed *d = &w.deed[all->at[k]];

		if (d->covered <= now && touches(d, at) &&
		    (i == UINT16_MAX || w.before[i][all->at[k]]))
			return true;
	}
	return false;
}

static bool may_be_there(const struct writers *all, uint64_t at, uint8_t byte, uint8_t initial,
			 unsigned long now)
{
	for (unsigned int k = 0; k < all->n; k++) {
		const struct deed *d = &w.deed[all->at[k]];

		if (touches(d, at) && d->bytes[at - d->at] == byte &&
		    !is_overwritten(all, all->at[k], at, now))
			return true;
	}
	return byte == initial && !is_overwritten(all, UINT16_MAX, at, now);
}

static unsigned int count_writers(const struct writers *all, uint64_t at)
{
	unsigned int n = 0;

	for (unsigned int k = 0; k < all->n; k++)
		n += touches(&w.deed[all->at[k]], at);
	return n;
}

/* Checks the bytes of a sector that only this operation wrote: all are there, or none. */
static bool is_whole(const struct writers *all, const struct deed *d, const uint8_t *bytes,
		     const uint8_t *initial)
{
	bool old = false, new = false;

	for (unsigned int i = 0; i < SECTOR; i++) {
		uint64_t at = all->start + i;

		if (!touches(d, at) || d->bytes[at - d->at] == initial[i] ||
		    count_writers(all, at) > 1)
			continue;
		if (bytes[i] == initial[i])
			old = true;
		else
			new = true;
	}
	return !(old && new);
}

static bool report_violation(const char *what, uint64_t at)
{
	snprintf(w.why, sizeof(w.why), "%s at %llu, %llu of partition %llu; power failed at %lu",
		 what, (unsigned long long)at, (unsigned long long)((at - START) % ROOM),
		 (unsigned long long)((at - START) / ROOM), lossy_time());
	return false;
}

static bool check_version(const struct writers *all, const uint8_t *bytes, const uint8_t *initial,
			  bool by_sector)
{
	unsigned long now = lossy_time();

	looks++;
	for (unsigned int i = 0; i < SECTOR; i++)
		if (!may_be_there(all, all->start + i, bytes[i], initial[i], now))
			return report_violation("a covered write is lost, or bytes are there that "
						"were never written",
						all->start + i);
	for (unsigned int k = 0; by_sector && k < all->n; k++)
		if (!is_whole(all, &w.deed[all->at[k]], bytes, initial))
			return report_violation("a write is torn", all->start);
	return true;
}

static bool is_used(uint32_t sector)
{
	return sector >= START / SECTOR && sector < (START + PARTITIONS * ROOM) / SECTOR;
}

/*
 * Checks all versions that a sector may hold. The result stays valid until another operation writes
 * there, or more is promised.
 */
static bool check_sector(uint32_t sector, bool by_sector)
{
	unsigned int n;
	struct version *v = lossy_may_hold(sector, &n);
	struct writers all;

	find_writers(sector, lossy_time(), &all);
	for (unsigned int i = 0; i < n; i++) {
		if (v[i].checked == 1 + all.n + all.covered)
			continue;
		if (!check_version(&all, v[i].bytes, lossy_initial(sector), by_sector))
			return false;
		v[i].checked = 1 + all.n + all.covered;
	}
	return true;
}

static bool check_all_sectors(bool by_sector)
{
	const uint32_t *sectors;
	unsigned int n = lossy_touched(&sectors);

	for (unsigned int i = 0; i < n; i++)
		if (is_used(sectors[i]) && !check_sector(sectors[i], by_sector))
			return false;
	return true;
}

/* ---- a state as a file ------------------------------------------------------------------ */

enum loss {
	LOST_ALL,
	LOST_NONE,
	LOST_SOME,
	LOST_ONE,
	LOST_ALL_BUT_ONE,
	LOST_ALL_BUT_THE_TABLE,
	LOST_THE_TABLE,
	LOSSES
};

static bool is_table(uint32_t sector)
{
	return sector < START / SECTOR;
}

/* Chooses one of the n versions that a sector may hold. */
static unsigned int choose(enum loss loss, uint32_t sector, bool is_the_one, unsigned int n)
{
	switch (loss) {
	case LOST_NONE:
		return n - 1;
	case LOST_SOME:
		return (unsigned int)dice(n);
	case LOST_ONE:
		return is_the_one ? 0 : n - 1;
	case LOST_ALL_BUT_ONE:
		return is_the_one ? n - 1 : 0;
	case LOST_ALL_BUT_THE_TABLE:
		return is_table(sector) ? n - 1 : 0;
	case LOST_THE_TABLE:
		return is_table(sector) ? 0 : n - 1;
	case LOST_ALL:
	case LOSSES:
		break;
	}
	return 0;
}

static void make_state(enum loss loss)
{
	const uint32_t *sectors;
	unsigned int n = lossy_touched(&sectors), m, the_one = n ? (unsigned int)dice(n) : 0;

	for (unsigned int i = 0; i < n; i++) {
		const struct version *v = lossy_may_hold(sectors[i], &m);

		v += choose(loss, sectors[i], i == the_one, m);
		assert_int_equal(pwrite(w.cut_fd, v->bytes, SECTOR, (off_t)sectors[i] * SECTOR),
				 SECTOR);
	}
}

static bool is_a_legal_table(const struct table *t)
{
	unsigned long now = lossy_time();
	unsigned int at = w.n_stands;

	while (at > 0 && w.stands[at - 1].begun > now)
		at--;
	if (at == 0) /* the first one was there before */
		return is_same_table(t, &w.stands[0].table);
	if (is_same_table(t, &w.stands[at - 1].table))
		return true;
	return at > 1 && w.stands[at - 1].done > now && is_same_table(t, &w.stands[at - 2].table);
}

static bool is_zero(const struct stag_store_partition *p)
{
	uint8_t bytes[SECTOR];

	for (uint64_t at = p->offset; at < p->offset + p->size; at += SECTOR) {
		assert_int_equal(pread(w.cut_fd, bytes, SECTOR, (off_t)at), SECTOR);
		for (unsigned int i = 0; i < SECTOR; i++)
			if (bytes[i])
				return report_violation("bytes of another partition", at + i);
	}
	return true;
}

static bool check_table(const struct table *t)
{
	if (!is_a_legal_table(t))
		return report_violation("a table that was not current at that time", 0);
	for (uint32_t i = PARTITIONS; i < t->n; i++)
		if (w.dirty[t->entries[i].id % MOST_IDS] > lossy_time() && !is_zero(&t->entries[i]))
			return false;
	return true;
}

static bool check_state(enum loss loss)
{
	struct stag_store *store;
	bool good;

	make_state(loss);
	states++;
	store = stag_store_open(room_path("cut"), 0);
	if (!store) {
		snprintf(w.why, sizeof(w.why), "%s", stag_store_error());
		return false;
	}
	good = check_table(&store->now.table);
	stag_store_close(store);
	return good;
}

/* Returns whether the table or a scratch partition is being changed. */
static bool is_changing(void)
{
	const uint32_t *sectors;
	unsigned int n = lossy_touched(&sectors), m;

	for (unsigned int i = 0; i < n; i++) {
		if (is_used(sectors[i]))
			continue;
		lossy_may_hold(sectors[i], &m);
		if (m > 1)
			return true;
	}
	return false;
}

/* Opens states as files; not all of them, because opening takes time. */
static bool check_some_states(void)
{
	if (is_slow_build() && !one_in(10))
		return true;
	if (!is_changing())
		return !one_in(4) || check_state((enum loss)dice(LOSSES));
	for (int i = 0; i < LOSSES; i++)
		if (!check_state((enum loss)i))
			return false;
	return true;
}

/* Returns true if no promise is broken, at whatever event power fails. */
static bool check_all_cuts(bool by_sector)
{
	gather_promises();
	lossy_rewind();
	do {
		cuts++;
		if (!check_all_sectors(by_sector) || !check_some_states())
			return false;
	} while (lossy_next());
	return true;
}

/* ---- store, server and users ----------------------------------------------------------------- */

static void make_partitions(void)
{
	static const struct {
		uint32_t relax, level;
	} kinds[PARTITIONS] = {
		{0, STAG_STORE_VISIBLE},
		{0, STAG_STORE_DURABLE},
		{STAG_STORE_ANY_PROCESSING | STAG_STORE_ANY_COMPLETION, STAG_STORE_ACCEPTED},
		{STAG_STORE_RELAX_WRITES, STAG_STORE_DURABLE},
	};

	for (unsigned int i = 0; i < PARTITIONS; i++) {
		struct stag_store_partition p = {.size = ROOM,
						 .relax = kinds[i].relax,
						 .level = kinds[i].level,
						 .num_rights = 1};

		p.rights[0] = (struct stag_store_right){.who = STAG_STORE_REMOTE,
							.access = STAG_STORE_WRITE};
		snprintf(p.name, sizeof(p.name), "p%u", i);
		assert_int_equal(stag_store_add(w.s.store, &p), 0);
		assert_int_equal(p.offset, START + i * ROOM);
		w.partition[i] = p;
	}
}

static void open_guest(struct guest *g, bool far)
{
	struct stag_store_connect_attr attr = {.flags = STAG_STORE_HAS_LEVEL};
	struct stag_store_server *server = w.s.server;

	g->far = far;
	g->partition = far && one_in(2) ? 1 : (unsigned int)dice(PARTITIONS);
	if (far && plain) /* an atomic's response proves the writes before it */
		g->partition = (unsigned int)dice(2);
	attr.qp.cap.max_send_wr = 2 * DEEDS;
	attr.qp.cap.max_send_sge = 2;
	attr.level = (uint32_t)dice(3);
	attr.relax = one_in(2) ? 0 : (uint32_t)dice(32);
	if (far)
		attr.flags = attr.level = attr.relax = 0;
	else
		w.s.server = NULL; /* where_is() names it as near or far */
	if (try_enter(&g->u, &w.s, w.partition[g->partition].name, &attr) != 0)
		fail_msg("%s", stag_store_error());
	w.s.server = server;
	g->relax = g->u.e->relax;
	g->level = g->u.e->level;
}

static void open_world(enum lossy_way way)
{
	uint8_t *noise = malloc(PARTITIONS * ROOM);

	memset(&w, 0, sizeof(w));
	snprintf(w.s.path, sizeof(w.s.path), "%s", room_path("store"));
	make_store(w.s.path, SIZE, 512);
	w.s.store = open_store(w.s.path);
	make_partitions();
	dice_fill(noise, PARTITIONS * ROOM);
	put_bytes(w.s.path, START, noise, PARTITIONS * ROOM);
	free(noise);
	lossy_open(w.s.path, way);
	start_server(&w.s);
	for (unsigned int u = 0; u < USERS; u++)
		open_guest(&w.guest[u], u % 2);
}

static void close_world(void)
{
	for (unsigned int u = 0; u < USERS; u++)
		leave(&w.guest[u].u);
	stage_close(&w.s);
	lossy_close();
	free(w.stands);
}

/* Copies the store before the work begins: states are made from the copy. */
static void copy_store(void)
{
	uint8_t *bytes = malloc(SIZE);

	get_bytes(w.s.path, 0, bytes, SIZE);
	make_file(room_path("cut"), SIZE);
	put_bytes(room_path("cut"), 0, bytes, SIZE);
	free(bytes);
	w.cut_fd = open(room_path("cut"), O_RDWR | O_CLOEXEC);
	assert_true(w.cut_fd >= 0);
}

/* Runs one round. Returns false if a promise was broken. */
static bool run_round(enum lossy_way way)
{
	bool good;

	copy_store();
	run_operations();
	good = check_all_cuts(way != THROUGH_PAGES);
	for (unsigned int i = 0; i < USERS * DEEDS; i++) {
		free(w.deed[i].bytes);
		w.deed[i].bytes = NULL;
	}
	close(w.cut_fd);
	return good;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void expect_promises_kept(enum lossy_way way)
{
	unsigned long goal = cuts + scaled(500);

	open_world(way);
	while (cuts < goal)
		if (!run_round(way))
			fail_msg("%s", w.why);
	close_world();
	print_message("%lu cuts, %lu states opened, %lu sectors checked\n", cuts, states, looks);
}

static void through_the_page_cache_no_covered_write_is_lost(void **state)
{
	expect_promises_kept(THROUGH_PAGES);
}

static void in_sectors_no_covered_write_is_lost(void **state)
{
	expect_promises_kept(DIRECT_512);
}

static void in_blocks_of_several_sectors_no_covered_write_is_lost(void **state)
{
	expect_promises_kept(DIRECT_4096);
}

static void the_injected_fault_is_found(void **state)
{
	bool found = false;

	for (unsigned int world = 0; world < 1000 && !found; world++) {
		open_world((enum lossy_way)(world % NUM_WAYS));
		for (unsigned int i = 0; i < 2 && !found; i++)
			found = !run_round((enum lossy_way)(world % NUM_WAYS));
		close_world();
	}
	if (!found)
		fail_msg("the fault was not found in %lu cuts", cuts);
	print_message("after %lu cuts: %s\n", cuts, w.why);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(through_the_page_cache_no_covered_write_is_lost),
		cmocka_unit_test(in_sectors_no_covered_write_is_lost),
		cmocka_unit_test(in_blocks_of_several_sectors_no_covered_write_is_lost),
	};
	static const struct CMUnitTest of_mutants[] = {
		cmocka_unit_test(the_injected_fault_is_found)};

	dice_start();
	plain = getenv("STAG_EXTENSIONS") && strcmp(getenv("STAG_EXTENSIONS"), "off") == 0;
	if (argc > 1 && strcmp(argv[1], "caught") == 0)
		return cmocka_run_group_tests(of_mutants, NULL, NULL);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
