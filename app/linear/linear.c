// SPDX-License-Identifier: BSD-2-Clause
/*
 * linear.c - see linear.h.
 *
 * Calls and returns of one object are gone through in order. A *mind* is one way that things may have been so far: the
 * object's state, and which of the operations under way have happened. When an operation returns, each mind in which it
 * has not happened yet lets it happen, after any of the others under way that could have happened before; a mind in
 * which it cannot is given up. None left: not linearizable.
 *
 * What keeps minds few: reads happen as soon as they can, for they change nothing. A change of unknown fate
 * that nothing sees is better not to have happened: then it still can. Versions only grow.
 */
#include "linear.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define WORDS	  8
#define MAX_SLOTS (64 * WORDS) /* operations under way at once, those of unknown fate included */
#define MAX_MINDS (1u << 20)

struct object {
	uint64_t value;	  /* 0 while it is absent */
	uint64_t version; /* 0: not known, but more than floor */
	uint64_t floor;
	bool present;
};

struct mind {
	struct object object;
	uint64_t happened[WORDS]; /* by slot */
	struct object
		before; /* if the last that happened is of unknown fate: the object without it */
	bool doubtful;	/* it is */
};

struct minds {
	struct mind *list;
	size_t count, room;
	uint32_t *table; /* 1 + index in list, by hash; a power of two of them */
	size_t table_size;
};

struct check {
	const struct linear_op *ops;
	size_t slots[MAX_SLOTS]; /* operation under way */
	bool is_used[MAX_SLOTS];
	unsigned int num_slots; /* up to which any is used */
	struct minds now, next, seen;
	struct linear_verdict *verdict;
};

/* ---- sets of minds ------------------------------------------------------------------------ */

static bool is_same_object(const struct object *a, const struct object *b)
{
	return a->value == b->value && a->version == b->version && a->floor == b->floor &&
	       a->present == b->present;
}

static bool is_same(const struct mind *a, const struct mind *b)
{
	return is_same_object(&a->object, &b->object) &&
	       memcmp(a->happened, b->happened, sizeof(a->happened)) == 0 &&
	       a->doubtful == b->doubtful &&
	       (!a->doubtful || is_same_object(&a->before, &b->before));
}

static uint64_t mix(uint64_t h, uint64_t x)
{
	h = (h ^ x) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 29;
}

static size_t hash_of(const struct mind *m)
{
	uint64_t h = mix(mix(mix(m->object.present, m->object.value), m->object.version),
			 m->object.floor);

	for (unsigned int i = 0; i < WORDS; i++)
		h = mix(h, m->happened[i]);
	return (size_t)mix(h, m->doubtful ? m->before.value + 1 : 0);
}

static void put_in_table(struct minds *s, size_t index)
{
	size_t at = hash_of(&s->list[index]) & (s->table_size - 1);

	while (s->table[at])
		at = (at + 1) & (s->table_size - 1);
	s->table[at] = (uint32_t)index + 1;
}

static bool grow(struct minds *s)
{
	size_t room = s->room ? 2 * s->room : 64;
	struct mind *list = realloc(s->list, room * sizeof(*list));
	uint32_t *table = list ? calloc(4 * room, sizeof(*table)) : NULL;

	if (list)
		s->list = list;
	if (!table)
		return false;
	free(s->table);
	s->room = room;
	s->table = table;
	s->table_size = 4 * room;
	for (size_t i = 0; i < s->count; i++)
		put_in_table(s, i);
	return true;
}

static bool has(const struct minds *s, const struct mind *m)
{
	size_t at = hash_of(m) & (s->table_size - 1);

	for (; s->table[at]; at = (at + 1) & (s->table_size - 1))
		if (is_same(&s->list[s->table[at] - 1], m))
			return true;
	return false;
}

/* false: there is no room for it. */
static bool add(struct minds *s, const struct mind *m)
{
	if (s->count == s->room && (s->count >= MAX_MINDS || !grow(s)))
		return false;
	if (has(s, m))
		return true;
	s->list[s->count++] = *m;
	put_in_table(s, s->count - 1);
	return true;
}

static void clear(struct minds *s)
{
	if (s->count > s->table_size / 64)
		memset(s->table, 0, s->table_size * sizeof(*s->table));
	else
		for (size_t i = 0; i < s->count; i++) {
			size_t at = hash_of(&s->list[i]) & (s->table_size - 1);

			for (; s->table[at]; at = (at + 1) & (s->table_size - 1))
				s->table[at] = 0;
		}
	s->count = 0;
}

/* ---- what an operation does ------------------------------------------------------------------- */

static bool is_version(struct object *o, uint64_t version)
{
	if (version == 0)
		return true;
	if (o->version)
		return o->version == version;
	if (version <= o->floor)
		return false;
	o->version = o->floor = version;
	return true;
}

static bool set(struct object *o, bool present, uint64_t value, uint64_t version)
{
	if (version && version <= o->floor)
		return false;
	o->present = present;
	o->value = present ? value : 0;
	o->version = present ? version : 0;
	if (version)
		o->floor = version;
	return true;
}

static bool change(struct object *o, const struct linear_op *op)
{
	bool needs_it = op->kind == LINEAR_UPDATE || op->kind == LINEAR_DELETE || op->expected;

	if ((needs_it && !o->present) || (op->kind == LINEAR_INSERT && o->present))
		return false;
	if (op->expected && !is_version(o, op->expected))
		return false;
	return set(o, op->kind != LINEAR_DELETE, op->value,
		   op->outcome == LINEAR_UNKNOWN ? 0 : op->version);
}

/* Whether it can happen to the object as it is, with the outcome that it had; and what that makes of it. */
static bool happen(struct object *o, const struct linear_op *op)
{
	switch (op->outcome) {
	case LINEAR_ABSENT:
		return !o->present;
	case LINEAR_PRESENT:
		return o->present;
	case LINEAR_MISMATCH:
		return o->present && op->version != op->expected && is_version(o, op->version) &&
		       (!o->version || o->version != op->expected);
	case LINEAR_OK:
		if (op->kind == LINEAR_READ)
			return o->present && o->value == op->value && is_version(o, op->version);
		return change(o, op);
	case LINEAR_UNKNOWN:
		return change(o, op);
	}
	return false;
}

static bool changes_nothing(const struct linear_op *op)
{
	return op->kind == LINEAR_READ ||
	       (op->outcome != LINEAR_OK && op->outcome != LINEAR_UNKNOWN);
}

/* ---- minds --------------------------------------------------------------------------------------- */

static bool has_happened(const struct mind *m, unsigned int slot)
{
	return m->happened[slot / 64] >> slot % 64 & 1;
}

/* What changes nothing, and not even what is known, happens as soon as it can: whether any did. */
static bool let_reads_happen(const struct check *c, struct mind *m)
{
	bool any = false;

	for (unsigned int s = 0; s < c->num_slots; s++) {
		const struct linear_op *op = &c->ops[c->slots[s]];
		struct object o = m->object;

		if (!c->is_used[s] || has_happened(m, s) || !changes_nothing(op))
			continue;
		if (happen(&o, op) && is_same_object(&o, &m->object)) {
			m->happened[s / 64] |= 1ull << s % 64;
			any = true;
		}
	}
	return any;
}

/* Another one under way is known to have a smaller version: it has to come first. */
static bool is_too_early(const struct check *c, const struct mind *m, const struct linear_op *op)
{
	if (op->outcome != LINEAR_OK || op->kind == LINEAR_READ || op->version == 0)
		return false;
	for (unsigned int s = 0; s < c->num_slots; s++) {
		const struct linear_op *other = &c->ops[c->slots[s]];

		if (c->is_used[s] && !has_happened(m, s) && other->outcome == LINEAR_OK &&
		    other->kind != LINEAR_READ && other->version && other->version < op->version)
			return true;
	}
	return false;
}

/* The last one of unknown fate was seen by nobody: better without it. */
static bool is_needless(const struct mind *m, const struct linear_op *op,
			const struct object *after)
{
	struct object o = m->before;

	return m->doubtful && happen(&o, op) && is_same_object(&o, after);
}

static bool step(const struct check *c, const struct mind *from, unsigned int slot, struct mind *to)
{
	const struct linear_op *op = &c->ops[c->slots[slot]];

	*to = *from;
	if (is_too_early(c, from, op) || !happen(&to->object, op) ||
	    is_needless(from, op, &to->object))
		return false;
	to->happened[slot / 64] |= 1ull << slot % 64;
	if (op->outcome == LINEAR_UNKNOWN && is_same_object(&from->object, &to->object))
		return false;
	/* Reads saw it, if there were any. */
	to->doubtful = !let_reads_happen(c, to) && op->outcome == LINEAR_UNKNOWN;
	to->before = to->doubtful ? from->object : (struct object){0};
	return true;
}

/* ---- returns --------------------------------------------------------------------------------------- */

static bool keep(struct check *c, struct mind m, unsigned int slot)
{
	m.happened[slot / 64] &= ~(1ull << slot % 64);
	m.doubtful = false;
	m.before = (struct object){0};
	return add(&c->next, &m);
}

/* All ways in which the operation in slot happens now, from the minds in c->seen, which grows meanwhile. */
static bool explore(struct check *c, unsigned int slot)
{
	for (size_t i = 0; i < c->seen.count; i++) {
		struct mind m = c->seen.list[i], to;

		if (has_happened(&m, slot)) {
			if (!keep(c, m, slot))
				return false;
			continue;
		}
		for (unsigned int s = 0; s < c->num_slots; s++)
			if (c->is_used[s] && !has_happened(&m, s) && step(c, &m, s, &to) &&
			    !add(&c->seen, &to))
				return false;
	}
	return true;
}

static bool is_subset(const uint64_t *a, const uint64_t *b)
{
	for (unsigned int i = 0; i < WORDS; i++)
		if (a[i] & ~b[i])
			return false;
	return true;
}

/* a can do all that b can: the same object, the same that has to happen yet, and more that may. */
static bool is_better(const struct mind *a, const struct mind *b, const uint64_t *doubtful)
{
	if (!is_same_object(&a->object, &b->object) || !is_subset(a->happened, b->happened))
		return false;
	for (unsigned int i = 0; i < WORDS; i++)
		if ((a->happened[i] ^ b->happened[i]) & ~doubtful[i])
			return false;
	return true;
}

static void drop_worse(struct check *c)
{
	uint64_t doubtful[WORDS] = {0};
	struct minds *s = &c->next;
	size_t kept = 0;

	for (unsigned int i = 0; i < c->num_slots; i++)
		if (c->is_used[i] && c->ops[c->slots[i]].outcome == LINEAR_UNKNOWN)
			doubtful[i / 64] |= 1ull << i % 64;
	if (s->count > 2000)
		return; /* takes longer than it saves */
	clear(&c->now);
	for (size_t i = 0; i < s->count; i++) {
		bool worse = false;

		for (size_t k = 0; k < s->count && !worse; k++)
			worse = k != i && is_better(&s->list[k], &s->list[i], doubtful);
		if (!worse)
			add(&c->now, &s->list[i]), kept++;
	}
	if (kept < s->count) {
		struct minds swap = c->now;

		c->now = c->next;
		c->next = swap;
	}
}

static void take_next(struct check *c)
{
	struct minds swap = c->now;

	c->now = c->next;
	c->next = swap;
	clear(&c->next);
	if (c->now.count > c->verdict->most)
		c->verdict->most = c->now.count;
}

static enum linear_result on_return(struct check *c, unsigned int slot)
{
	clear(&c->seen);
	for (size_t i = 0; i < c->now.count; i++) {
		struct mind m = c->now.list[i];

		let_reads_happen(c, &m);
		if (!add(&c->seen, &m))
			return LINEAR_UNDECIDED;
	}
	if (!explore(c, slot))
		return LINEAR_UNDECIDED;
	c->is_used[slot] = false;
	if (c->next.count == 0)
		return LINEAR_BAD;
	drop_worse(c);
	take_next(c);
	return LINEAR_GOOD;
}

static int on_call(struct check *c, size_t op)
{
	for (unsigned int s = 0; s < MAX_SLOTS; s++) {
		if (c->is_used[s])
			continue;
		c->is_used[s] = true;
		c->slots[s] = op;
		if (s >= c->num_slots)
			c->num_slots = s + 1;
		return (int)s;
	}
	return -1;
}

/* ---- an object -------------------------------------------------------------------------------------- */

struct moment {
	uint64_t object, at;
	size_t op;
	bool is_return;
};

static int in_order(const void *x, const void *y)
{
	const struct moment *a = x, *b = y;

	if (a->object != b->object)
		return a->object < b->object ? -1 : 1;
	if (a->at != b->at)
		return a->at < b->at ? -1 : 1;
	if (a->is_return != b->is_return) /* what touches overlaps */
		return a->is_return ? 1 : -1;
	return a->op < b->op ? -1 : a->op > b->op;
}

static bool matters(const struct linear_op *op)
{
	return op->outcome != LINEAR_UNKNOWN || op->kind != LINEAR_READ;
}

static bool returns(const struct linear_op *op)
{
	return op->outcome != LINEAR_UNKNOWN && op->ret != LINEAR_NEVER;
}

static enum linear_result check_object(struct check *c, const struct moment *moments, size_t count,
				       int *slot_of)
{
	struct mind empty = {0};

	memset(c->is_used, 0, sizeof(c->is_used));
	c->num_slots = 0;
	clear(&c->now);
	clear(&c->next);
	if (!add(&c->now, &empty))
		return LINEAR_UNDECIDED;
	for (size_t i = 0; i < count; i++) {
		enum linear_result result = LINEAR_GOOD;

		c->verdict->op = moments[i].op;
		if (moments[i].is_return)
			result = on_return(c, (unsigned int)slot_of[moments[i].op]);
		else if ((slot_of[moments[i].op] = on_call(c, moments[i].op)) < 0)
			result = LINEAR_UNDECIDED;
		if (result != LINEAR_GOOD)
			return result;
	}
	return LINEAR_GOOD;
}

static enum linear_result check_all(struct check *c, const struct moment *moments, size_t count,
				    int *slot_of)
{
	enum linear_result result = LINEAR_GOOD;

	for (size_t first = 0, end; first < count && result == LINEAR_GOOD; first = end) {
		for (end = first; end < count && moments[end].object == moments[first].object;)
			end++;
		c->verdict->object = moments[first].object;
		result = check_object(c, moments + first, end - first, slot_of);
	}
	return result;
}

static size_t list_moments(const struct linear_op *ops, size_t num_ops, struct moment *moments)
{
	size_t count = 0;

	for (size_t i = 0; i < num_ops; i++) {
		if (!matters(&ops[i]))
			continue;
		moments[count++] = (struct moment){ops[i].object, ops[i].call, i, false};
		if (returns(&ops[i]))
			moments[count++] = (struct moment){ops[i].object, ops[i].ret, i, true};
	}
	qsort(moments, count, sizeof(*moments), in_order);
	return count;
}

static void free_minds(struct minds *s)
{
	free(s->list);
	free(s->table);
}

enum linear_result linear_check(const struct linear_op *ops, size_t num_ops,
				struct linear_verdict *verdict)
{
	struct moment *moments = malloc((2 * num_ops + 1) * sizeof(*moments));
	int *slot_of = malloc((num_ops + 1) * sizeof(*slot_of));
	struct check *c = calloc(1, sizeof(*c));

	*verdict = (struct linear_verdict){.result = LINEAR_UNDECIDED};
	if (moments && slot_of && c && grow(&c->now) && grow(&c->next) && grow(&c->seen)) {
		c->ops = ops;
		c->verdict = verdict;
		verdict->result =
			check_all(c, moments, list_moments(ops, num_ops, moments), slot_of);
	}
	if (c) {
		free_minds(&c->now);
		free_minds(&c->next);
		free_minds(&c->seen);
	}
	free(c);
	free(slot_of);
	free(moments);
	return verdict->result;
}

/* ---- for people --------------------------------------------------------------------------------------- */

void linear_explain(const struct linear_op *ops, size_t num_ops, const struct linear_verdict *v,
		    FILE *to)
{
	static const char *const kinds[] = {"read", "put", "insert", "update", "delete"};
	static const char *const outcomes[] = {"ok", "absent", "present", "mismatch", "unknown"};
	const struct linear_op *bad = &ops[v->op];

	fprintf(to, "object %llu: ", (unsigned long long)v->object);
	fprintf(to,
		v->result == LINEAR_BAD
			? "what is marked could not have happened between its call and its return\n"
			: "too much at once to decide\n");
	for (size_t i = 0; i < num_ops; i++) {
		const struct linear_op *op = &ops[i];
		bool overlaps = op->call <= bad->ret &&
				(op->outcome == LINEAR_UNKNOWN || op->ret >= bad->call);

		if (op->object != v->object ||
		    !(overlaps || op->value == bad->value || op->version == bad->version))
			continue;
		fprintf(to,
			"%c client %u: %llu to %llu: %s of %llx, expected %llu: %s, version %llu\n",
			i == v->op ? '>' : ' ', op->client, (unsigned long long)op->call,
			(unsigned long long)op->ret, kinds[op->kind], (unsigned long long)op->value,
			(unsigned long long)op->expected, outcomes[op->outcome],
			(unsigned long long)op->version);
	}
}
