// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_linear.c - the checker of histories, with histories that are linearizable and histories that are not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dice.h"
#include "linear.h"

#define READ(from, to, ...)                                                                        \
	{                                                                                          \
		.call = from, .ret = to, .kind = LINEAR_READ, __VA_ARGS__                          \
	}
#define PUT(from, to, ...)                                                                         \
	{                                                                                          \
		.call = from, .ret = to, .kind = LINEAR_PUT, __VA_ARGS__                           \
	}
#define INSERT(from, to, ...)                                                                      \
	{                                                                                          \
		.call = from, .ret = to, .kind = LINEAR_INSERT, __VA_ARGS__                        \
	}
#define UPDATE(from, to, ...)                                                                      \
	{                                                                                          \
		.call = from, .ret = to, .kind = LINEAR_UPDATE, __VA_ARGS__                        \
	}
#define DELETE(from, to, ...)                                                                      \
	{                                                                                          \
		.call = from, .ret = to, .kind = LINEAR_DELETE, __VA_ARGS__                        \
	}
#define LOST .outcome = LINEAR_UNKNOWN
#define GONE .outcome = LINEAR_ABSENT

#define EXPECT(verdict, ...)                                                                       \
	do {                                                                                       \
		const struct linear_op ops_[] = {__VA_ARGS__};                                     \
		struct linear_verdict v_;                                                          \
                                                                                                   \
		assert_int_equal(linear_check(ops_, sizeof(ops_) / sizeof(ops_[0]), &v_),          \
				 verdict);                                                         \
	} while (0)

static void sequential_operations_see_each_other(void **state)
{
	EXPECT(LINEAR_GOOD, READ(1, 2, GONE), PUT(3, 4, .value = 1), READ(5, 6, .value = 1),
	       DELETE(7, 8), READ(9, 10, GONE), DELETE(11, 12, GONE),
	       UPDATE(13, 14, .value = 2, GONE), INSERT(15, 16, .value = 3),
	       INSERT(17, 18, .value = 4, .outcome = LINEAR_PRESENT), UPDATE(19, 20, .value = 5),
	       READ(21, 22, .value = 5));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1), PUT(3, 4, .value = 2), READ(5, 6, .value = 1));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1), READ(3, 4, GONE));
	EXPECT(LINEAR_BAD, READ(1, 2, .value = 1), PUT(3, 4, .value = 1));
	EXPECT(LINEAR_BAD, INSERT(1, 2, .value = 1), INSERT(3, 4, .value = 2));
	EXPECT(LINEAR_BAD, UPDATE(1, 2, .value = 1));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1), DELETE(3, 4), DELETE(5, 6));
}

static void concurrent_operations_may_take_effect_in_any_order(void **state)
{
	EXPECT(LINEAR_GOOD, PUT(1, 9, .value = 1), PUT(2, 8, .value = 2), READ(10, 11, .value = 1));
	EXPECT(LINEAR_GOOD, PUT(1, 9, .value = 1), PUT(2, 8, .value = 2), READ(10, 11, .value = 2));
	EXPECT(LINEAR_GOOD, PUT(1, 9, .value = 1), READ(2, 3, GONE), READ(4, 5, .value = 1));
	/* But all clients see the same order. */
	EXPECT(LINEAR_BAD, PUT(1, 9, .value = 1), READ(2, 3, .value = 1), READ(4, 5, GONE));
	EXPECT(LINEAR_BAD, PUT(1, 9, .value = 1), PUT(1, 9, .value = 2), READ(10, 11, .value = 1),
	       READ(12, 13, .value = 2));
	EXPECT(LINEAR_BAD, PUT(1, 20, .value = 1), PUT(1, 20, .value = 2), READ(2, 3, .value = 1),
	       READ(4, 5, .value = 2), READ(6, 7, .value = 1));
}

static void an_operation_of_unknown_outcome_takes_effect_once_or_never(void **state)
{
	EXPECT(LINEAR_GOOD, PUT(1, 2, .value = 1), PUT(3, 4, .value = 2, LOST),
	       READ(5, 6, .value = 1));
	EXPECT(LINEAR_GOOD, PUT(1, 2, .value = 1), PUT(3, 4, .value = 2, LOST),
	       READ(5, 6, .value = 2));
	/* Possibly much later, but only once, and not before its call. */
	EXPECT(LINEAR_GOOD, PUT(1, 2, .value = 1), PUT(3, 4, .value = 2, LOST),
	       READ(5, 6, .value = 1), READ(70, 80, .value = 2));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1), PUT(3, 4, .value = 2, LOST),
	       READ(5, 6, .value = 2), READ(7, 8, .value = 1));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1), READ(3, 4, .value = 2),
	       PUT(5, 6, .value = 2, LOST));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1, LOST), READ(3, 4, .value = 1),
	       PUT(5, 6, .value = 2), READ(7, 8, .value = 2), READ(9, 10, .value = 1));
	EXPECT(LINEAR_GOOD, PUT(1, 2, .value = 1), DELETE(3, LINEAR_NEVER, LOST),
	       READ(5, 6, .value = 1), READ(7, 8, GONE));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1), DELETE(3, 4, LOST), READ(5, 6, GONE),
	       READ(7, 8, .value = 1));
	/* The first one makes the second one possible. */
	EXPECT(LINEAR_GOOD, INSERT(1, 2, .value = 1, LOST), UPDATE(3, 4, .value = 2, LOST),
	       READ(5, 6, .value = 2));
	EXPECT(LINEAR_BAD, UPDATE(3, 4, .value = 2, LOST), READ(5, 6, .value = 2));
}

static void versions_only_grow(void **state)
{
	EXPECT(LINEAR_GOOD, PUT(1, 2, .value = 1, .version = 5),
	       READ(3, 4, .value = 1, .version = 5), PUT(5, 6, .value = 2, .version = 9));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1, .version = 5),
	       READ(3, 4, .value = 1, .version = 6));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1, .version = 5),
	       PUT(3, 4, .value = 2, .version = 5));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1, .version = 5), DELETE(3, 4),
	       PUT(5, 6, .value = 2, .version = 4));
	/* Versions give the order of concurrent changes. */
	EXPECT(LINEAR_GOOD, PUT(1, 9, .value = 1, .version = 7),
	       PUT(1, 9, .value = 2, .version = 6), READ(10, 11, .value = 1));
	EXPECT(LINEAR_BAD, PUT(1, 9, .value = 1, .version = 7), PUT(1, 9, .value = 2, .version = 6),
	       READ(10, 11, .value = 2));
	/* A change of unknown outcome has a version, too. */
	EXPECT(LINEAR_GOOD, PUT(1, 2, .value = 1, .version = 5), PUT(3, 4, .value = 2, LOST),
	       READ(5, 6, .value = 2, .version = 7), READ(7, 8, .value = 2, .version = 7));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1, .version = 5), PUT(3, 4, .value = 2, LOST),
	       READ(5, 6, .value = 2, .version = 7), READ(7, 8, .value = 2, .version = 8));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1, .version = 5), PUT(3, 4, .value = 2, LOST),
	       READ(5, 6, .value = 2, .version = 4));
}

static void a_change_may_expect_a_version(void **state)
{
	EXPECT(LINEAR_GOOD, PUT(1, 2, .value = 1, .version = 5),
	       UPDATE(3, 4, .value = 2, .expected = 5, .version = 6),
	       UPDATE(5, 6, .value = 3, .expected = 5, .version = 6, .outcome = LINEAR_MISMATCH),
	       READ(7, 8, .value = 2));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1, .version = 5),
	       UPDATE(3, 4, .value = 2, .expected = 4, .version = 6));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1, .version = 5),
	       UPDATE(3, 4, .value = 2, .expected = 5, .outcome = LINEAR_MISMATCH));
	/* Only one of two changes that expect the same version can succeed. */
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1, .version = 5),
	       UPDATE(3, 9, .value = 2, .expected = 5), UPDATE(3, 9, .value = 3, .expected = 5));
	EXPECT(LINEAR_BAD, PUT(1, 2, .value = 1, .version = 5), DELETE(3, 4, .expected = 5),
	       UPDATE(5, 6, .value = 3, .expected = 5, .outcome = LINEAR_MISMATCH));
	EXPECT(LINEAR_GOOD, PUT(1, 2, .value = 1, .version = 5), DELETE(3, 4, .expected = 5),
	       UPDATE(5, 6, .value = 3, .expected = 5, GONE));
}

static void objects_are_independent(void **state)
{
	const struct linear_op ops[] = {
		PUT(1, 2, .value = 1, .object = 1), READ(3, 4, GONE, .object = 2),
		READ(3, 4, .value = 1, .object = 1), READ(5, 6, GONE, .object = 1)};
	struct linear_verdict v;

	assert_int_equal(linear_check(ops, 3, &v), LINEAR_GOOD);
	assert_int_equal(linear_check(ops, 4, &v), LINEAR_BAD);
	assert_int_equal(v.object, 1);
	assert_int_equal(v.op, 3);
	assert_int_equal(linear_check(ops, 0, &v), LINEAR_GOOD);
}

/* ---- small histories, by trying all orders ------------------------------------------------------ */

struct trial {
	const struct linear_op *ops;
	unsigned int count;
	uint8_t used;
};

struct thing {
	uint64_t value;
	bool present;
};

/* The simplest model of an object, without versions. */
static bool could_return(struct thing *t, const struct linear_op *op)
{
	bool was = t->present;

	switch (op->kind) {
	case LINEAR_READ:
		return op->outcome == LINEAR_ABSENT ? !was : was && t->value == op->value;
	case LINEAR_DELETE:
		t->present = false;
		return op->outcome == LINEAR_ABSENT ? !was : was || op->outcome == LINEAR_UNKNOWN;
	case LINEAR_INSERT:
		if (op->outcome == LINEAR_PRESENT || (was && op->outcome == LINEAR_UNKNOWN))
			return was;
		*t = (struct thing){op->value, true};
		return !was;
	case LINEAR_UPDATE:
		if (op->outcome == LINEAR_ABSENT || (!was && op->outcome == LINEAR_UNKNOWN))
			return !was;
		*t = (struct thing){op->value, true};
		return was;
	default:
		*t = (struct thing){op->value, true};
		return true;
	}
}

/* An operation that returned before another was called precedes it. */
static bool may_be_next(const struct trial *t, unsigned int i)
{
	for (unsigned int k = 0; k < t->count; k++)
		if (k != i && !(t->used >> k & 1) && t->ops[k].outcome != LINEAR_UNKNOWN &&
		    t->ops[k].ret < t->ops[i].call)
			return false;
	return true;
}

static bool try_all(struct trial *t, struct thing now)
{
	bool done = true;

	for (unsigned int i = 0; i < t->count; i++)
		done &= t->used >> i & 1 || t->ops[i].outcome == LINEAR_UNKNOWN;
	if (done)
		return true;
	for (unsigned int i = 0; i < t->count; i++) {
		struct thing then = now;
		bool found;

		if (t->used >> i & 1 || !may_be_next(t, i) || !could_return(&then, &t->ops[i]))
			continue;
		t->used |= (uint8_t)(1 << i);
		found = try_all(t, then);
		t->used &= (uint8_t) ~(1 << i);
		if (found)
			return true;
	}
	return false;
}

static struct linear_op any_op(void)
{
	static const uint8_t other[] = {LINEAR_ABSENT, LINEAR_OK, LINEAR_PRESENT, LINEAR_ABSENT,
					LINEAR_ABSENT};
	struct linear_op op = {.kind = (uint8_t)dice(5), .value = 1 + dice(3), .call = dice(12)};

	op.ret = op.call + 1 + dice(6);
	op.outcome = one_in(5) ? LINEAR_UNKNOWN : one_in(3) ? other[op.kind] : LINEAR_OK;
	return op;
}

static void small_histories_give_the_result_of_trying_all_orders(void **state)
{
	unsigned int good = 0, bad = 0;

	for (unsigned long i = 0; i < scaled(30000); i++) {
		struct linear_op ops[6];
		struct trial trial = {.ops = ops, .count = 2 + (unsigned int)dice(5)};
		struct linear_verdict v;
		bool expected;

		for (unsigned int k = 0; k < trial.count; k++)
			ops[k] = any_op();
		expected = try_all(&trial, (struct thing){0});
		linear_check(ops, trial.count, &v);
		if (v.result != (expected ? LINEAR_GOOD : LINEAR_BAD)) {
			v.object = 0;
			linear_explain(ops, trial.count, &v, stderr);
			fail_msg("result %d, but expected %d", v.result, expected);
		}
		good += expected;
		bad += !expected;
	}
	assert_true(good > 10 && bad > 10);
}

/* ---- large histories ------------------------------------------------------------------------------ */

#define CLIENTS 16

struct maker {
	struct linear_op *ops;
	size_t count;
	uint64_t now, next_value, version;
	struct {
		uint64_t value, version;
	} objects[64];
};

/* Makes an operation that takes effect between its call and its return, so that the history is linearizable. */
static void make_op(struct maker *m, unsigned int client, uint64_t free_at[CLIENTS], bool versions)
{
	struct linear_op *op = &m->ops[m->count++];
	unsigned int object = (unsigned int)dice(64);

	*op = (struct linear_op){
		.object = object, .client = client, .kind = one_in(2) ? LINEAR_READ : LINEAR_PUT};
	op->call = m->now -
		   dice(free_at[client] < m->now
				? (m->now - free_at[client] < 50 ? m->now - free_at[client] : 50)
				: 1);
	op->ret = m->now + 1 + dice(50);
	free_at[client] = op->ret;
	if (op->kind == LINEAR_READ) {
		op->outcome = m->objects[object].value ? LINEAR_OK : LINEAR_ABSENT;
	} else {
		bool lost = one_in(200);

		op->value = ++m->next_value;
		op->outcome = lost ? LINEAR_UNKNOWN : LINEAR_OK;
		if (lost && one_in(2))
			return;
		m->objects[object].value = op->value;
		m->objects[object].version = ++m->version;
	}
	op->value = op->outcome == LINEAR_UNKNOWN ? op->value : m->objects[object].value;
	op->version = versions && op->outcome == LINEAR_OK ? m->objects[object].version : 0;
}

static struct linear_op *make_history(size_t count, bool versions)
{
	struct maker m = {.ops = calloc(count, sizeof(struct linear_op)), .now = 1000};
	uint64_t free_at[CLIENTS] = {0};

	while (m.count < count) {
		unsigned int client = (unsigned int)dice(CLIENTS);

		m.now += 1 + dice(3);
		if (free_at[client] < m.now)
			make_op(&m, client, free_at, versions);
	}
	return m.ops;
}

/* Was there a put of known outcome after k and before i? One of unknown outcome may have taken effect later. */
static bool is_put_between(const struct linear_op *ops, size_t k, size_t i)
{
	for (size_t j = k + 1; j < i; j++)
		if (ops[j].object == ops[i].object && ops[j].kind == LINEAR_PUT &&
		    ops[j].outcome == LINEAR_OK && ops[j].call > ops[k].ret &&
		    ops[j].ret < ops[i].call)
			return true;
	return false;
}

/* Makes the read at i return a value that had been overwritten long before, if there is one. */
static bool make_stale(struct linear_op *ops, size_t i)
{
	if (ops[i].kind != LINEAR_READ || ops[i].outcome != LINEAR_OK)
		return false;
	for (size_t k = i; k-- > 0;) {
		if (ops[k].kind == LINEAR_READ && ops[k].outcome == LINEAR_OK &&
		    ops[k].object == ops[i].object && is_put_between(ops, k, i)) {
			ops[i].value = ops[k].value;
			ops[i].version = ops[k].version;
			return true;
		}
	}
	return false;
}

static void large_history(bool versions)
{
	size_t count = scaled(100000), i;
	struct linear_op *ops = make_history(count, versions);
	struct linear_verdict v;

	linear_check(ops, count, &v);
	if (v.result != LINEAR_GOOD)
		linear_explain(ops, count, &v, stderr);
	assert_int_equal(v.result, LINEAR_GOOD);
	printf("%zu operations, %zu possibilities at once\n", count, v.most);

	for (i = count - 1; i > 0 && !make_stale(ops, i); i--)
		; /* the last possible one */
	assert_int_not_equal(i, 0);
	assert_int_equal(linear_check(ops, count, &v), LINEAR_BAD);
	free(ops);
}

static void a_large_history_is_checked(void **state)
{
	large_history(true);
	large_history(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sequential_operations_see_each_other),
		cmocka_unit_test(concurrent_operations_may_take_effect_in_any_order),
		cmocka_unit_test(an_operation_of_unknown_outcome_takes_effect_once_or_never),
		cmocka_unit_test(versions_only_grow),
		cmocka_unit_test(a_change_may_expect_a_version),
		cmocka_unit_test(objects_are_independent),
		cmocka_unit_test(small_histories_give_the_result_of_trying_all_orders),
		cmocka_unit_test(a_large_history_is_checked),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
