// SPDX-License-Identifier: BSD-2-Clause
/*
 * linear.c - see linear.h.
 *
 * The calls and returns of one object are processed in order of time. A *configuration* is one
 * possible present: the object's state, and which of the operations in flight have taken effect
 * (are *linearized*). When an operation returns, each configuration in which it is not linearized
 * yet linearizes it, after any others in flight that may precede it; a configuration in which this
 * is impossible is dropped. If none is left, the history is not linearizable.
 *
 * Three rules keep the configurations few. Reads are linearized as soon as possible, because they
 * change nothing. A change of unknown outcome that no operation observed is left pending, because
 * it can still take effect later. Versions only grow.
 */
#include "linear.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 8
#define MAX_SLOTS                                                                                  \
	(64 * WORDS) /* operations in flight at once, including those of unknown outcome */
#define MAX_CONFIGS (1u << 20)

struct object {
	uint64_t value;	  /* 0 if absent */
	uint64_t version; /* 0: unknown, but greater than floor */
	uint64_t floor;
	bool present;
};

struct config {
	struct object object;
	uint64_t linearized[WORDS]; /* bit map of the slots */
	struct object before; /* if doubtful: the object without the last linearized operation */
	bool doubtful;	      /* the last linearized operation has an unknown outcome */
};

struct configs {
	struct config *list;
	size_t count, room;
	uint32_t *table; /* hash table of 1 + index in list; its size is a power of two */
	size_t table_size;
};

struct check {
	const struct linear_op *ops;
	size_t slots[MAX_SLOTS]; /* operations in flight: index in ops */
	bool is_used[MAX_SLOTS];
	unsigned int num_slots; /* above the last used one */
	struct configs now, next, seen;
	struct linear_verdict *verdict;
};

/* ---- sets of configurations ---- */

static bool is_same_object(const struct object *a, const struct object *b)
{
	return a->value == b->value && a->version == b->version && a->floor == b->floor &&
	       a->present == b->present;
}

static bool is_same_config(const struct config *a, const struct config *b)
{
	return is_same_object(&a->object, &b->object) &&
	       memcmp(a->linearized, b->linearized, sizeof(a->linearized)) == 0 &&
	       a->doubtful == b->doubtful &&
	       (!a->doubtful || is_same_object(&a->before, &b->before));
}

static uint64_t mix_hash(uint64_t h, uint64_t x)
{
	h = (h ^ x) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 29;
}

static size_t hash_of(const struct config *m)
{
	uint64_t h =
		mix_hash(mix_hash(mix_hash(m->object.present, m->object.value), m->object.version),
			 m->object.floor);

	for (unsigned int i = 0; i < WORDS; i++)
		h = mix_hash(h, m->linearized[i]);
	return (size_t)mix_hash(h, m->doubtful ? m->before.value + 1 : 0);
}

static void add_to_table(struct configs *s, size_t index)
{
	size_t at = hash_of(&s->list[index]) & (s->table_size - 1);

	while (s->table[at])
		at = (at + 1) & (s->table_size - 1);
	s->table[at] = (uint32_t)index + 1;
}

static bool grow_configs(struct configs *s)
{
	size_t room = s->room ? 2 * s->room : 64;
	struct config *list = realloc(s->list, room * sizeof(*list));
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
		add_to_table(s, i);
	return true;
}

static bool has_config(const struct configs *s, const struct config *m)
{
	size_t at = hash_of(m) & (s->table_size - 1);

	for (; s->table[at]; at = (at + 1) & (s->table_size - 1))
		if (is_same_config(&s->list[s->table[at] - 1], m))
			return true;
	return false;
}

/* Returns false if there is no room. */
static bool add_config(struct configs *s, const struct config *m)
{
	if (s->count == s->room && (s->count >= MAX_CONFIGS || !grow_configs(s)))
		return false;
	if (has_config(s, m))
		return true;
	s->list[s->count++] = *m;
	add_to_table(s, s->count - 1);
	return true;
}

static void clear_configs(struct configs *s)
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

/* ---- effects of an operation ---- */

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

static bool set_object(struct object *o, bool present, uint64_t value, uint64_t version)
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

static bool apply_change(struct object *o, const struct linear_op *op)
{
	bool needs_it = op->kind == LINEAR_UPDATE || op->kind == LINEAR_DELETE || op->expected;

	if ((needs_it && !o->present) || (op->kind == LINEAR_INSERT && o->present))
		return false;
	if (op->expected && !is_version(o, op->expected))
		return false;
	return set_object(o, op->kind != LINEAR_DELETE, op->value,
			  op->outcome == LINEAR_UNKNOWN ? 0 : op->version);
}

/*
 * Applies the operation to the object. Returns false if it cannot have had its outcome in that
 * state.
 */
static bool apply_op(struct object *o, const struct linear_op *op)
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
		return apply_change(o, op);
	case LINEAR_UNKNOWN:
		return apply_change(o, op);
	}
	return false;
}

static bool changes_nothing(const struct linear_op *op)
{
	return op->kind == LINEAR_READ ||
	       (op->outcome != LINEAR_OK && op->outcome != LINEAR_UNKNOWN);
}

/* ---- configurations ---- */

static bool is_linearized(const struct config *m, unsigned int slot)
{
	return m->linearized[slot / 64] >> slot % 64 & 1;
}

/*
 * Linearizes operations that change neither the object nor what is known of it. Returns whether
 * there were any.
 */
static bool linearize_reads(const struct check *c, struct config *m)
{
	bool any = false;

	for (unsigned int s = 0; s < c->num_slots; s++) {
		const struct linear_op *op = &c->ops[c->slots[s]];
		struct object o = m->object;

		if (!c->is_used[s] || is_linearized(m, s) || !changes_nothing(op))
			continue;
		if (apply_op(&o, op) && is_same_object(&o, &m->object)) {
			m->linearized[s / 64] |= 1ull << s % 64;
			any = true;
		}
	}
	return any;
}

/* Is another operation in flight known to have a smaller version? Then it comes first. */
static bool is_too_early(const struct check *c, const struct config *m, const struct linear_op *op)
{
	if (op->outcome != LINEAR_OK || op->kind == LINEAR_READ || op->version == 0)
		return false;
	for (unsigned int s = 0; s < c->num_slots; s++) {
		const struct linear_op *other = &c->ops[c->slots[s]];

		if (c->is_used[s] && !is_linearized(m, s) && other->outcome == LINEAR_OK &&
		    other->kind != LINEAR_READ && other->version && other->version < op->version)
			return true;
	}
	return false;
}

/*
 * Is the result the same without the last operation of unknown outcome? Then no operation observed
 * it.
 */
static bool is_redundant(const struct config *m, const struct linear_op *op,
			 const struct object *after)
{
	struct object o = m->before;

	return m->doubtful && apply_op(&o, op) && is_same_object(&o, after);
}

static bool linearize_op(const struct check *c, const struct config *from, unsigned int slot,
			 struct config *to)
{
	const struct linear_op *op = &c->ops[c->slots[slot]];

	*to = *from;
	if (is_too_early(c, from, op) || !apply_op(&to->object, op) ||
	    is_redundant(from, op, &to->object))
		return false;
	to->linearized[slot / 64] |= 1ull << slot % 64;
	if (op->outcome == LINEAR_UNKNOWN && is_same_object(&from->object, &to->object))
		return false;
	/* a read that was linearized has observed it */
	to->doubtful = !linearize_reads(c, to) && op->outcome == LINEAR_UNKNOWN;
	to->before = to->doubtful ? from->object : (struct object){0};
	return true;
}

/* ---- returns ---- */

static bool keep_config(struct check *c, struct config m, unsigned int slot)
{
	m.linearized[slot / 64] &= ~(1ull << slot % 64);
	m.doubtful = false;
	m.before = (struct object){0};
	return add_config(&c->next, &m);
}

/*
 * Finds all ways to linearize the operation in slot, from the configurations in c->seen, which
 * grows meanwhile.
 */
static bool linearize_on_return(struct check *c, unsigned int slot)
{
	for (size_t i = 0; i < c->seen.count; i++) {
		struct config m = c->seen.list[i], to;

		if (is_linearized(&m, slot)) {
			if (!keep_config(c, m, slot))
				return false;
			continue;
		}
		for (unsigned int s = 0; s < c->num_slots; s++)
			if (c->is_used[s] && !is_linearized(&m, s) && linearize_op(c, &m, s, &to) &&
			    !add_config(&c->seen, &to))
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

/*
 * Can a do all that b can? The object and the operations that must follow are the same, and a has
 * more that may follow.
 */
static bool dominates(const struct config *a, const struct config *b, const uint64_t *doubtful)
{
	if (!is_same_object(&a->object, &b->object) || !is_subset(a->linearized, b->linearized))
		return false;
	for (unsigned int i = 0; i < WORDS; i++)
		if ((a->linearized[i] ^ b->linearized[i]) & ~doubtful[i])
			return false;
	return true;
}

static void drop_dominated(struct check *c)
{
	uint64_t doubtful[WORDS] = {0};
	struct configs *s = &c->next;
	size_t kept = 0;

	for (unsigned int i = 0; i < c->num_slots; i++)
		if (c->is_used[i] && c->ops[c->slots[i]].outcome == LINEAR_UNKNOWN)
			doubtful[i / 64] |= 1ull << i % 64;
	if (s->count > 2000)
		return; /* takes longer than it saves */
	clear_configs(&c->now);
	for (size_t i = 0; i < s->count; i++) {
		bool worse = false;

		for (size_t k = 0; k < s->count && !worse; k++)
			worse = k != i && dominates(&s->list[k], &s->list[i], doubtful);
		if (!worse)
			add_config(&c->now, &s->list[i]), kept++;
	}
	if (kept < s->count) {
		struct configs swap = c->now;

		c->now = c->next;
		c->next = swap;
	}
}

static void swap_to_next(struct check *c)
{
	struct configs swap = c->now;

	c->now = c->next;
	c->next = swap;
	clear_configs(&c->next);
	if (c->now.count > c->verdict->most)
		c->verdict->most = c->now.count;
}

static enum linear_result on_return(struct check *c, unsigned int slot)
{
	clear_configs(&c->seen);
	for (size_t i = 0; i < c->now.count; i++) {
		struct config m = c->now.list[i];

		linearize_reads(c, &m);
		if (!add_config(&c->seen, &m))
			return LINEAR_UNDECIDED;
	}
	if (!linearize_on_return(c, slot))
		return LINEAR_UNDECIDED;
	c->is_used[slot] = false;
	if (c->next.count == 0)
		return LINEAR_BAD;
	drop_dominated(c);
	swap_to_next(c);
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

/* ---- an object ---- */

struct event {
	uint64_t object, at;
	size_t op;
	bool is_return;
};

static int by_object_and_time(const void *x, const void *y)
{
	const struct event *a = x, *b = y;

	if (a->object != b->object)
		return a->object < b->object ? -1 : 1;
	if (a->at != b->at)
		return a->at < b->at ? -1 : 1;
	if (a->is_return != b->is_return) /* operations that touch overlap: calls come first */
		return a->is_return ? 1 : -1;
	return a->op < b->op ? -1 : a->op > b->op;
}

static bool is_checked(const struct linear_op *op)
{
	return op->outcome != LINEAR_UNKNOWN || op->kind != LINEAR_READ;
}

static bool returns(const struct linear_op *op)
{
	return op->outcome != LINEAR_UNKNOWN && op->ret != LINEAR_NEVER;
}

static enum linear_result check_object(struct check *c, const struct event *events, size_t count,
				       int *slot_of)
{
	struct config empty = {0};

	memset(c->is_used, 0, sizeof(c->is_used));
	c->num_slots = 0;
	clear_configs(&c->now);
	clear_configs(&c->next);
	if (!add_config(&c->now, &empty))
		return LINEAR_UNDECIDED;
	for (size_t i = 0; i < count; i++) {
		enum linear_result result = LINEAR_GOOD;

		c->verdict->op = events[i].op;
		if (events[i].is_return)
			result = on_return(c, (unsigned int)slot_of[events[i].op]);
		else if ((slot_of[events[i].op] = on_call(c, events[i].op)) < 0)
			result = LINEAR_UNDECIDED;
		if (result != LINEAR_GOOD)
			return result;
	}
	return LINEAR_GOOD;
}

static enum linear_result check_all(struct check *c, const struct event *events, size_t count,
				    int *slot_of)
{
	enum linear_result result = LINEAR_GOOD;

	for (size_t first = 0, end; first < count && result == LINEAR_GOOD; first = end) {
		for (end = first; end < count && events[end].object == events[first].object;)
			end++;
		c->verdict->object = events[first].object;
		result = check_object(c, events + first, end - first, slot_of);
	}
	return result;
}

static size_t list_events(const struct linear_op *ops, size_t num_ops, struct event *events)
{
	size_t count = 0;

	for (size_t i = 0; i < num_ops; i++) {
		if (!is_checked(&ops[i]))
			continue;
		events[count++] = (struct event){ops[i].object, ops[i].call, i, false};
		if (returns(&ops[i]))
			events[count++] = (struct event){ops[i].object, ops[i].ret, i, true};
	}
	qsort(events, count, sizeof(*events), by_object_and_time);
	return count;
}

static void free_configs(struct configs *s)
{
	free(s->list);
	free(s->table);
}

enum linear_result linear_check(const struct linear_op *ops, size_t num_ops,
				struct linear_verdict *verdict)
{
	struct event *events = malloc((2 * num_ops + 1) * sizeof(*events));
	int *slot_of = malloc((num_ops + 1) * sizeof(*slot_of));
	struct check *c = calloc(1, sizeof(*c));

	*verdict = (struct linear_verdict){.result = LINEAR_UNDECIDED};
	if (events && slot_of && c && grow_configs(&c->now) && grow_configs(&c->next) &&
	    grow_configs(&c->seen)) {
		c->ops = ops;
		c->verdict = verdict;
		verdict->result = check_all(c, events, list_events(ops, num_ops, events), slot_of);
	}
	if (c) {
		free_configs(&c->now);
		free_configs(&c->next);
		free_configs(&c->seen);
	}
	free(c);
	free(slot_of);
	free(events);
	return verdict->result;
}

/* ---- explanation ---- */

void linear_explain(const struct linear_op *ops, size_t num_ops, const struct linear_verdict *v,
		    FILE *to)
{
	static const char *const kinds[] = {"read", "put", "insert", "update", "delete"};
	static const char *const outcomes[] = {"ok", "absent", "present", "mismatch", "unknown"};
	const struct linear_op *bad = &ops[v->op];

	fprintf(to, "object %llu: ", (unsigned long long)v->object);
	fprintf(to, v->result == LINEAR_BAD
			    ? "the marked operation cannot have taken effect between "
			      "its call and its return\n"
			    : "too many concurrent operations to decide\n");
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
