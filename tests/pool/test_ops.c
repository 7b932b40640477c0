// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_ops.c - operations that test_model.c leaves out: clients that attach, expire and exceed limits, uploads
 * that are interrupted, and made-up pointers.
 */
#include "scene.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "dice.h"

#define LONG (POOL_DIRECT_MAX + 12345)

static struct scene scene;
static struct pool_who who;
static struct pool_answer answer;
static uint8_t value[2 * LONG];
static uint64_t free_spans; /* at the beginning */

static int set_up(void **state)
{
	scene_open(&scene, 4u << 20, 0);
	who = scene_client(&scene, 1);
	free_spans = scene.core.room.free_spans;
	dice_start_with(1);
	dice_fill(value, sizeof(value));
	return 0;
}

static int tear_down(void **state)
{
	scene_expect_valid(&scene);
	scene_expect_same(&scene);
	scene_close(&scene);
	return 0;
}

static int change_and_apply(struct pool_request rq)
{
	return scene_do(&scene, &who, &rq, &answer);
}

static int update(uint64_t sequence, const struct stag_pool_ptr *ptr, uint32_t length)
{
	struct pool_request rq = scene_insert(sequence, value, length);

	rq.op = STAG_POOL_UPDATE;
	rq.ptr = *ptr;
	return change_and_apply(rq);
}

static int erase(uint64_t sequence, const struct stag_pool_ptr *ptr)
{
	struct pool_request rq = {.op = STAG_POOL_DELETE,
				  .sequence = sequence,
				  .acknowledged = sequence - 1,
				  .ptr = *ptr};

	return change_and_apply(rq);
}

static void expect_read(const struct stag_pool_ptr *ptr, uint32_t length)
{
	struct pool_read read;
	void *got;

	assert_int_equal(scene_read(&scene.a, ptr, &got, &read), POOL_DONE);
	assert_int_equal(read.value_length, length);
	assert_true(memcmp(got, value, length) == 0);
	free(got);
}

static void expect_not_read(const struct stag_pool_ptr *ptr)
{
	struct pool_request rq = {.op = STAG_POOL_READ, .ptr = *ptr};

	pool_look(&scene.a, &rq, &answer);
	assert_int_equal(answer.status, ENOENT);
}

/* ---- pointers -------------------------------------------------------------------- */

static void a_value_that_fits_stays_where_it_is(void **state)
{
	static const uint32_t lengths[] = {64, 0, 1, 60, 64, LONG, 2 * LONG, 64, LONG, 10};
	struct stag_pool_ptr first;

	assert_int_equal(change_and_apply(scene_insert(1, value, 64)), 0);
	first = answer.ptr;
	for (uint64_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		assert_int_equal(update(2 + i, &first, lengths[i]), 0);
		assert_int_equal(answer.ptr.address, first.address);
		assert_int_equal(answer.ptr.generation, first.generation);
		expect_read(&first, lengths[i]);
	}
	assert_int_equal(erase(100, &first), 0);
	assert_int_equal(scene.core.room.free_spans, free_spans);
}

static void a_value_that_does_not_fit_gets_a_new_pointer(void **state)
{
	struct stag_pool_ptr old;

	assert_int_equal(change_and_apply(scene_insert(1, value, 64)), 0);
	old = answer.ptr;
	assert_int_equal(update(2, &old, 1000), 0);
	assert_int_not_equal(answer.ptr.generation, old.generation);
	expect_read(&answer.ptr, 1000);
	expect_not_read(&old);
	assert_int_equal(update(3, &old, 10), ENOENT);
	assert_int_equal(erase(4, &old), ENOENT);
}

/* Pointers to bytes that are no object: clients, buckets, bodies, the middle of a value. */
static void made_up_pointer_is_not_found(void **state)
{
	struct pool_object fake = {.generation = 77, .version = 77, .length = 8};
	struct stag_pool_ptr ptr = {.key = scene.a.key, .generation = 77};
	uint64_t sequence = 1;
	struct pool_stub stub;

	/* a body whose first bytes look like an object */
	assert_int_equal(change_and_apply(scene_insert(sequence++, value, LONG)), 0);
	memcpy(&stub, scene.a.at + pool_offset(&scene.a, answer.ptr.address) + sizeof(fake),
	       sizeof(stub));
	fake.hash = pool_object_hash(&fake, stub.address, pool_hash(value, 8));
	ptr.address = stub.address;
	memcpy(scene.a.at + pool_offset(&scene.a, stub.address), &fake, sizeof(fake));
	assert_int_equal(erase(sequence++, &ptr), ENOENT);
	memcpy(scene.a.at + pool_offset(&scene.a, stub.address), value, sizeof(fake));

	for (uint64_t at = 0; at < scene.a.size; at += 48) { /* everywhere else */
		ptr.address = scene.a.address + at;
		memcpy(&ptr.generation, scene.a.at + at, sizeof(ptr.generation));
		if (ptr.address == answer.ptr.address)
			continue;
		if (at % 4800 == 0)
			assert_int_equal(erase(sequence++, &ptr), ENOENT);
		expect_not_read(&ptr);
	}
	ptr.address = 0;
	assert_int_equal(erase(sequence++, &ptr), ENOENT);
	ptr.address = UINT64_MAX;
	assert_int_equal(erase(sequence++, &ptr), ENOENT);
}

static void deleted_value_is_overwritten_if_configured(void **state)
{
	struct stag_pool_ptr ptr;
	uint64_t at;

	scene.core.overwrite = true;
	assert_int_equal(change_and_apply(scene_insert(1, value, 500)), 0);
	ptr = answer.ptr;
	at = pool_offset(&scene.a, ptr.address);
	assert_memory_equal(scene.a.at + at + 32, value, 500);
	assert_int_equal(erase(2, &ptr), 0);
	for (uint64_t i = 0; i < 532; i++)
		assert_int_equal(scene.a.at[at + i], 0);
}

static void settle_scrub(void)
{
	uint8_t record[POOL_RECORD_META];
	size_t used;

	assert_int_equal(pool_scrub(&scene.core, record, sizeof(record), &used), 0);
	if (used == 0)
		return;
	assert_int_equal(pool_settle(&scene.core, record, used, NULL), 0);
	assert_int_equal(pool_record_apply(&scene.b, record, used, NULL), 0);
}

/* Overwriting a long value takes many records, which the next primary continues. */
static void long_value_is_overwritten_in_steps(void **state)
{
	static uint8_t longest[2500000];
	struct pool_stub stub;

	memset(longest, 7, sizeof(longest));
	scene.core.overwrite = true;
	assert_int_equal(change_and_apply(scene_insert(1, longest, sizeof(longest))), 0);
	memcpy(&stub, scene.a.at + pool_offset(&scene.a, answer.ptr.address) + 32, sizeof(stub));
	assert_int_equal(erase(2, &answer.ptr), 0);
	assert_true(scene.core.room.free_spans < free_spans);
	settle_scrub();
	scene_expect_valid(&scene);
	scene_promote(&scene, 0);
	assert_int_equal(scene.core.room.scrubs, 1);
	for (int i = 0; i < 5; i++)
		settle_scrub();
	assert_int_equal(scene.core.room.scrubs, 0);
	assert_int_equal(scene.core.room.free_spans, free_spans);
	for (uint64_t i = 0; i < sizeof(longest); i++)
		assert_true(scene.a.at[pool_offset(&scene.a, stub.address) + i] == 0);
}

static void versions_are_compared(void **state)
{
	struct pool_request rq = scene_put(1, "name", value, 10);
	uint64_t version;

	assert_int_equal(change_and_apply(rq), 0);
	version = answer.version;
	rq.sequence = 2;
	rq.flags |= POOL_COMPARE;
	rq.version = version + 1;
	assert_int_equal(change_and_apply(rq), EILSEQ);
	assert_int_equal(answer.version, version);
	rq.sequence = 3;
	rq.version = version;
	assert_int_equal(change_and_apply(rq), 0);
	assert_int_equal(answer.version, version + 2); /* the failure took a record, too */
	rq = scene_put(4, "name", value, 10);
	rq.flags |= POOL_EXCLUSIVE;
	assert_int_equal(change_and_apply(rq), EEXIST);
	rq = scene_put(5, "other", value, 10);
	rq.flags |= POOL_COMPARE;
	assert_int_equal(change_and_apply(rq), ENOENT);
}

/* An empty value's staging address is ignored: nodes without staging memory apply the record. */
static void a_value_of_no_bytes_is_not_staged(void **state)
{
	struct pool_request rq = scene_insert(1, NULL, 0);
	uint8_t record[POOL_RECORD_META];
	size_t used;

	rq.source = POOL_SOURCE_STAGED;
	rq.source_address = UINT64_MAX;
	assert_int_equal(
		pool_change(&scene.core, &who, &rq, record, sizeof(record), &used, &answer), 0);
	assert_int_equal(pool_record_apply(&scene.b, record, used, NULL), 0);
	assert_int_equal(pool_settle(&scene.core, record, used, NULL), 0);
	expect_read(&answer.ptr, 0);
}

/* ---- clients --------------------------------------------------------------------- */

static int attach(struct pool_who *as, uint64_t version)
{
	struct pool_request rq = {.op = POOL_OP_ATTACH, .version = version};

	return scene_do(&scene, as, &rq, &answer);
}

static void a_client_comes_back_as_itself_only(void **state)
{
	struct pool_who again = {.id = {who.id[0], who.id[1]}, .who = who.who, .slot = 99};

	assert_int_equal(attach(&again, 1), 0);
	assert_int_equal(again.slot, who.slot);
	again.slot = 99;
	again.who++;
	assert_int_equal(attach(&again, 1), EACCES);
	assert_int_equal(again.slot, 99);
	again.id[1]++;
	assert_int_equal(attach(&again, 1), ESTALE); /* no such client was attached before */
}

static void clients_are_limited_by_their_slots(void **state)
{
	struct pool_who other = {.who = 5};

	for (uint64_t i = 1; i < scene.a.max_clients; i++) {
		other.id[0] = 1000 + i;
		assert_int_equal(attach(&other, 0), 0);
	}
	other.id[0] = 1;
	assert_int_equal(attach(&other, 0), EUSERS);
	assert_int_equal(pool_superblock(&scene.a)->clients, scene.a.max_clients);
}

static void a_client_leaves_slots_to_others(void **state)
{
	struct pool_who other = {.who = 5, .leave = 2}, admin = {.id = {1}, .who = 6};

	for (uint64_t i = 1; i < scene.a.max_clients - 2; i++) {
		other.id[0] = 1000 + i;
		assert_int_equal(attach(&other, 0), 0);
	}
	assert_int_equal(pool_client_room(&scene.core), 2);
	other.id[0] = 1;
	assert_int_equal(attach(&other, 0), EUSERS);
	assert_int_equal(attach(&admin, 0), 0);
	assert_int_equal(pool_client_room(&scene.core), 1);
}

/* A client whose slot was taken away while it was connected. */
static void a_new_slot_repeats_nothing(void **state)
{
	struct pool_request enrol = {.op = POOL_OP_ENROL}, rq = scene_insert(1, value, 10);
	uint8_t record[POOL_RECORD_META];
	uint64_t objects;
	size_t used;

	rq.sequence = 9;
	assert_int_equal(change_and_apply(rq), 0);
	objects = pool_superblock(&scene.a)->objects;
	who.acknowledged = pool_client_last(&scene.core, who.slot);
	assert_int_equal(who.acknowledged, 9);
	assert_int_equal(pool_expire(&scene.core, who.slot, record, sizeof(record), &used), 0);
	assert_int_equal(pool_record_apply(&scene.b, record, used, NULL), 0);
	assert_int_equal(pool_settle(&scene.core, record, used, NULL), 0);
	assert_int_equal(scene_do(&scene, &who, &enrol, &answer), 0);

	rq.acknowledged = 0;
	assert_int_equal(change_and_apply(rq), ESTALE);
	rq.sequence = 3;
	assert_int_equal(change_and_apply(rq), ESTALE);
	assert_int_equal(pool_superblock(&scene.a)->objects, objects);
	rq.sequence = 10;
	assert_int_equal(change_and_apply(rq), 0);
	assert_int_equal(change_and_apply(rq), 0);
	assert_int_equal(pool_superblock(&scene.a)->objects, objects + 1);
}

static void unacknowledged_requests_are_limited(void **state)
{
	struct pool_request rq = scene_insert(1, value, 10);
	uint64_t objects;

	rq.acknowledged = 0;
	for (rq.sequence = 1; rq.sequence <= POOL_WINDOW; rq.sequence++)
		assert_int_equal(change_and_apply(rq), 0);
	objects = pool_superblock(&scene.a)->objects;
	assert_int_equal(change_and_apply(rq), EBUSY);
	rq.sequence = UINT64_MAX;
	assert_int_equal(change_and_apply(rq), EBUSY);
	assert_int_equal(pool_superblock(&scene.a)->objects, objects);
	rq.sequence = POOL_WINDOW + 1;
	rq.acknowledged = 1;
	assert_int_equal(change_and_apply(rq), 0);
	rq.sequence = 1; /* it was acknowledged, so its outcome is forgotten */
	rq.acknowledged = 0;
	assert_int_equal(change_and_apply(rq), ESTALE);
	rq.sequence = 0;
	assert_int_equal(change_and_apply(rq), ESTALE);
}

static void requests_of_an_expired_client_are_stale(void **state)
{
	struct pool_request rq = scene_insert(1, value, 10);
	uint8_t record[POOL_RECORD_META];
	size_t used;

	assert_int_equal(change_and_apply(rq), 0);
	assert_int_equal(pool_expire(&scene.core, who.slot, record, sizeof(record), &used), 0);
	assert_int_equal(pool_settle(&scene.core, record, used, NULL), 0);
	assert_int_equal(pool_record_apply(&scene.b, record, used, NULL), 0);
	assert_int_equal(change_and_apply(rq), ESTALE);
	assert_int_equal(attach(&who, 1), ESTALE);
	assert_int_equal(pool_superblock(&scene.a)->objects, 1);
	assert_int_equal(pool_superblock(&scene.a)->clients, 0);

	/* A new client in the same slot does not make the old one known. */
	struct pool_who other = scene_client(&scene, 55);

	assert_int_equal(other.slot, who.slot);
	assert_int_equal(change_and_apply(rq), ESTALE);
}

/* A failed request stays failed, even if it would succeed now. */
static void failure_is_remembered_like_success(void **state)
{
	struct pool_request rq = scene_insert(1, value, 10);
	struct stag_pool_ptr nothing = {.address = scene.a.address + scene.a.memory_at,
					.key = scene.a.key,
					.generation = scene.core.number + 2};

	assert_int_equal(erase(1, &nothing), ENOENT);
	rq.sequence = 2;
	assert_int_equal(change_and_apply(rq), 0);
	nothing = answer.ptr;
	rq = (struct pool_request){.op = STAG_POOL_DELETE, .sequence = 1, .ptr = nothing};
	assert_int_equal(change_and_apply(rq), ENOENT); /* as the first time */
	rq = (struct pool_request){.op = STAG_POOL_DELETE,
				   .sequence = 3,
				   .acknowledged = 1,
				   .flags = POOL_COMPARE,
				   .version = 1,
				   .ptr = nothing};
	assert_int_equal(change_and_apply(rq), EILSEQ);
	rq.flags = 0;
	assert_int_equal(change_and_apply(rq), EILSEQ);
	scene_promote(&scene, 0);
	assert_int_equal(change_and_apply(rq), EILSEQ);
	expect_read(&nothing, 10);
}

/* ---- uploads --------------------------------------------------------------------- */

/* Applies the first records of an upload. */
static void begin_upload(uint64_t sequence)
{
	struct pool_request rq = scene_insert(sequence, value, LONG);
	static uint8_t record[POOL_RECORD_MAX];
	size_t used;

	rq.acknowledged = 0;
	assert_int_equal(
		pool_upload_begin(&scene.core, &who, &rq, record, sizeof(record), &used, &answer),
		0);
	assert_int_equal(pool_settle(&scene.core, record, used, NULL), 0);
	assert_int_equal(pool_record_apply(&scene.b, record, used, NULL), 0);
	if (answer.status != EINPROGRESS)
		return;
	assert_int_equal(pool_upload_bytes(&scene.core, &who, sequence, 100000, value, 5000, record,
					   sizeof(record), &used),
			 0);
	assert_int_equal(pool_settle(&scene.core, record, used, NULL), 0);
	assert_int_equal(pool_record_apply(&scene.b, record, used, NULL), 0);
}

static void upload_continues_at_the_next_primary(void **state)
{
	struct pool_request rq = scene_insert(1, value, LONG);

	begin_upload(1);
	scene_promote(&scene, 0);
	assert_true(scene.core.room.free_spans < free_spans);
	rq.acknowledged = 0;
	assert_int_equal(change_and_apply(rq), 0);
	expect_read(&answer.ptr, LONG);
	scene_promote(&scene, 0);
	expect_read(&answer.ptr, LONG);
	assert_int_equal(change_and_apply(rq),
			 0); /* its outcome is remembered; it is not carried out again */
	assert_int_equal(pool_superblock(&scene.a)->objects, 1);
}

static void upload_is_freed_with_its_client(void **state)
{
	struct pool_request rq = {.op = POOL_OP_DETACH};

	begin_upload(1);
	begin_upload(2);
	assert_int_equal(change_and_apply(rq), 0);
	assert_int_equal(scene.core.room.free_spans, scene.a.num_spans);
}

static void upload_that_its_client_acknowledged_is_freed(void **state)
{
	struct pool_request rq = scene_insert(POOL_WINDOW + 1, value, 10);

	begin_upload(1);
	assert_int_equal(change_and_apply(rq), 0); /* acknowledges all requests before it */
	assert_int_equal(scene.core.room.free_spans, free_spans - 1);
}

static void uploads_are_limited(void **state)
{
	static uint8_t record[POOL_RECORD_MAX];
	size_t used;

	for (uint64_t i = 1; i <= POOL_MAX_UPLOADS; i++) {
		begin_upload(i);
		assert_int_equal(answer.status, EINPROGRESS);
	}
	begin_upload(POOL_MAX_UPLOADS + 1);
	assert_int_equal(answer.status, EBUSY);
#define BYTES(sequence, offset, n)                                                                 \
	pool_upload_bytes(&scene.core, &who, sequence, offset, value, n, record, sizeof(record),   \
			  &used)
	assert_int_equal(BYTES(1, LONG - 9, 10), -EINVAL);
	assert_int_equal(BYTES(1, UINT64_MAX, 10), -EINVAL);
	assert_int_equal(BYTES(1, 0, POOL_DIRECT_MAX + 1), -EINVAL);
	assert_int_equal(BYTES(99, 0, 10), -ESTALE);
	who.slot = 12345;
	assert_int_equal(BYTES(1, 0, 10), -ESTALE);
}

static void upload_for_a_missing_object_is_freed(void **state)
{
	struct stag_pool_ptr nothing = {.address = scene.a.address + scene.a.memory_at,
					.key = scene.a.key,
					.generation = 999};

	assert_int_equal(update(1, &nothing, LONG), ENOENT);
	assert_int_equal(scene.core.room.free_spans, free_spans);
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		STORY(a_value_that_fits_stays_where_it_is),
		STORY(a_value_that_does_not_fit_gets_a_new_pointer),
		STORY(made_up_pointer_is_not_found),
		STORY(deleted_value_is_overwritten_if_configured),
		STORY(long_value_is_overwritten_in_steps),
		STORY(a_value_of_no_bytes_is_not_staged),
		STORY(versions_are_compared),
		STORY(a_client_comes_back_as_itself_only),
		STORY(clients_are_limited_by_their_slots),
		STORY(a_client_leaves_slots_to_others),
		STORY(a_new_slot_repeats_nothing),
		STORY(unacknowledged_requests_are_limited),
		STORY(requests_of_an_expired_client_are_stale),
		STORY(failure_is_remembered_like_success),
		STORY(upload_continues_at_the_next_primary),
		STORY(upload_is_freed_with_its_client),
		STORY(upload_that_its_client_acknowledged_is_freed),
		STORY(uploads_are_limited),
		STORY(upload_for_a_missing_object_is_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
