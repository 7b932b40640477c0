// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_pool.c - arbitrary input from the peers of a pool: messages of clients, records of a
 * primary, operations, requests for admission.
 *
 * The first byte chooses the property below that the rest is for. A fuzzer cannot guess the hash of
 * a record; where it says "sealed", the hash is corrected.
 */
#include "fuzz.h"

#include <errno.h>

#include "admission.h"
#include "pool/memory/memory.h"

enum {
	REQUESTS,
	ANSWERS,
	RAW_RECORD,
	SEALED_RECORD,
	RING,
	OPERATIONS,
	READ_BYTES,
	GREETINGS,
	WELCOMES,
	TEXTS,
	KINDS
};

#define SIZE	 POOL_MIN_SIZE
#define ADDRESS	 0x4000000000ull
#define POINTERS 16

static uint8_t *pristine; /* a region with some values and a client, which each input starts from */
static struct pool_region region, twin;
static uint8_t record[POOL_RECORD_MAX];

/* ---- a region -------------------------------------------------------------------- */

static void change(struct pool_core *core, struct pool_who *who, const struct pool_request *rq,
		   struct pool_answer *answer)
{
	size_t used;

	CHECK(pool_change(core, who, rq, record, sizeof(record), &used, answer) == 0);
	if (used == 0)
		return;
	CHECK(pool_settle(core, record, used, NULL) == 0);
	if (twin.at)
		CHECK(pool_record_apply(&twin, record, used, NULL) == 0);
}

static void fill_pool(void)
{
	struct pool_who who = {.id = {1, 2}};
	struct pool_request rq = {.op = POOL_OP_ATTACH};
	struct pool_answer answer;
	struct pool_core core;

	CHECK(pool_core_open(&core, &region, 1) == 0);
	change(&core, &who, &rq, &answer);
	for (uint64_t i = 1; i < 20; i++) {
		rq = (struct pool_request){.op = i % 2 ? STAG_POOL_PUT : STAG_POOL_INSERT,
					   .sequence = i,
					   .acknowledged = i - 1,
					   .value = "some value",
					   .length = 10};
		if (i % 2) {
			rq.name = &"abcdefghijklmnopqrstuvwxyz"[i];
			rq.name_length = 3;
		}
		change(&core, &who, &rq, &answer);
	}
	pool_core_close(&core);
}

static void reset_region(void)
{
	struct pool_format format = {
		.size = SIZE, .address = ADDRESS, .max_clients = 8, .num_buckets = 2};

	if (!pristine) {
		pristine = aligned_alloc(POOL_PAGE, SIZE);
		CHECK(pristine);
		memset(pristine, 0, SIZE);
		CHECK(pool_region_format(&region, pristine, &format) == 0);
		fill_pool();
		region.at = aligned_alloc(POOL_PAGE, SIZE);
		CHECK(region.at);
	}
	memcpy(region.at, pristine, SIZE);
}

/* ---- operations ------------------------------------------------------------------ */

static void take_name(struct input *in, struct pool_request *rq)
{
	static const char names[] = "abcdefghijklmnopqrstuvwxyz";

	rq->name = &names[take(in, 1) % 20];
	rq->name_length = (uint16_t)(1 + take(in, 1) % 5);
}

/* Returns a pointer that is valid for some inputs and not for others. */
static struct stag_pool_ptr take_ptr(struct input *in, const struct stag_pool_ptr *known)
{
	uint8_t n = (uint8_t)take(in, 1);
	struct stag_pool_ptr ptr = known[n % POINTERS];

	ptr.key = region.key;
	if (n & 0x80)
		ptr.address = ADDRESS + (take(in, 3) & ~15ull) % SIZE;
	if (n & 0x40)
		ptr.generation = take(in, 1);
	return ptr;
}

static void one_operation(struct input *in, struct pool_core *core, struct pool_who *who,
			  uint64_t *sequence, struct stag_pool_ptr *known)
{
	static const uint8_t value[POOL_DIRECT_MAX];
	static const uint8_t ops[] = {STAG_POOL_INSERT, STAG_POOL_UPDATE, STAG_POOL_DELETE,
				      STAG_POOL_PUT,	STAG_POOL_REMOVE, POOL_OP_ATTACH,
				      POOL_OP_DETACH};
	struct pool_request rq = {.op = ops[take(in, 1) % sizeof(ops)]};
	struct pool_answer answer;

	rq.sequence = *sequence + take(in, 1) % 2;
	rq.acknowledged = take(in, 1) % 4 ? *sequence : *sequence / 2;
	if (rq.op == STAG_POOL_INSERT || rq.op == STAG_POOL_UPDATE || rq.op == STAG_POOL_PUT) {
		rq.value = value;
		rq.length = (uint32_t)take(in, 2) * 5 % POOL_DIRECT_MAX;
	}
	if (rq.op == STAG_POOL_PUT || rq.op == STAG_POOL_REMOVE)
		take_name(in, &rq);
	else
		rq.ptr = take_ptr(in, known);
	change(core, who, &rq, &answer);
	*sequence = rq.sequence;
	if (answer.status == 0 && answer.ptr.generation != 0)
		known[take(in, 1) % POINTERS] = answer.ptr;
}

/* Operates on a region: `is_ours` if no input has changed it; any other one may be refused, but must not crash. */
static void operate(struct input *in, bool is_ours)
{
	struct stag_pool_ptr known[POINTERS] = {0};
	struct pool_who who = {.id = {1, 2}, .slot = 0};
	uint64_t sequence = is_ours ? 20 : take(in, 1);
	struct pool_core core;
	char why[200] = "";
	size_t used;

	if (pool_core_open(&core, &region, UINT64_MAX) != 0) {
		CHECK(!is_ours);
		return;
	}
	core.overwrite = take(in, 1) % 2;
	while (in->len > 0)
		one_operation(in, &core, &who, &sequence, known);
	CHECK(pool_scrub(&core, record, sizeof(record), &used) == 0);
	CHECK(used == 0 || pool_settle(&core, record, used, NULL) == 0);
	CHECK(core.ahead.used == 0);
	pool_core_close(&core);
	if (pool_region_check(&region, why, sizeof(why)) != 0 && is_ours)
		CHECK(!*why);
}

static void read_and_list(void)
{
	struct pool_request rq = {.op = STAG_POOL_GET, .name = "bcd", .name_length = 3};
	static uint8_t page[2000];
	struct pool_answer answer;

	pool_look(&region, &rq, &answer);
	rq = (struct pool_request){.op = POOL_OP_LIST};
	pool_list(&region, &rq, page, sizeof(page), &answer);
}

/* ---- records --------------------------------------------------------------------- */

static void raw_record(struct input *in)
{
	uint8_t *copy = copy_of(in->p, in->len);
	struct pool_record header;
	int rc = pool_record_check(&region, copy, in->len, &header);

	CHECK(rc == 0 || rc == -EAGAIN || rc == -EBADMSG);
	rc = pool_record_apply(&region, copy, in->len,
			       NULL); /* even though its hash may be wrong */
	CHECK(rc == 0 || rc == -EBADMSG || rc == -EALREADY || rc == -EPROTO || rc == -EILSEQ);
	CHECK(memcmp(region.at, pristine, POOL_FIXED) == 0);
	free(copy);
}

static size_t seal(uint8_t *at, struct input *in, uint64_t number)
{
	struct pool_build build;
	size_t ranges = take(in, 1) % 8, n = take(in, 2) & ~7ull;

	n = n < in->len ? n : in->len & ~7ull;
	pool_build_start(&build, at, 64 + n);
	memcpy(at + sizeof(struct pool_record), in->p, n);
	in->p += n;
	in->len -= n;
	build.used += n;
	build.ranges = (uint16_t)ranges;
	return (size_t)pool_build_finish(&build, number, take(in, 1), take(in, 1) % 8 == 0);
}

static void sealed_record(struct input *in)
{
	static uint8_t sealed[64 + 65536];
	struct pool_record header;
	size_t length = seal(sealed, in, pool_superblock(&region)->number + 1);
	uint8_t *copy = copy_of(sealed, length);
	int rc = pool_record_check(&region, copy, length, &header);

	CHECK(rc == 0 || rc == -EBADMSG);
	pool_record_apply(&region, copy, length, NULL);
	free(copy);
	CHECK(memcmp(region.at, pristine, POOL_FIXED) == 0);
	read_and_list();
	operate(in, false);
}

static void ring(struct input *in)
{
	static uint8_t bytes[8192];
	struct pool_ring r = {.at = bytes, .size = sizeof(bytes), .get = take(in, 1) * 32};
	struct pool_staging staging = {.at = bytes, .length = sizeof(bytes)};
	uint64_t number = pool_superblock(&region)->number;
	int rc;

	memset(bytes, 0, sizeof(bytes));
	for (size_t at = 0; in->len > 0 && at < 4096; number++)
		at += seal(bytes + at, in, number + take(in, 1) % 3);
	rc = pool_ring_drain(&r, &region, &staging, 1000);
	CHECK(rc >= 0 || rc == -EBADMSG || rc == -EPROTO || rc == -EILSEQ || rc == -EALREADY);
	CHECK(memcmp(region.at, pristine, POOL_FIXED) == 0);
}

/* ---- messages -------------------------------------------------------------------- */

static void requests(struct input *in)
{
	uint8_t *copy = copy_of(in->p, in->len), *written = malloc(in->len + 100);
	size_t where = 0, again = 0, used = 0;
	struct pool_message message;
	struct pool_request rq, same;

	CHECK(written);
	if (pool_message_read(copy, in->len, &where, &message) == 0) {
		while (pool_request_read(copy, in->len, &where, &rq) == 0) {
			CHECK(rq.op != STAG_POOL_IMPLICIT && rq.name_length <= POOL_MAX_NAME);
			CHECK(rq.length <= POOL_MAX_VALUE || !pool_op_changes(rq.op));
			used = again = 0;
			CHECK(pool_message_start(written, in->len + 100, &used,
						 POOL_MESSAGE_REQUESTS, 1) == 0);
			CHECK(pool_message_request(written, in->len + 100, &used, &rq) == 0);
			CHECK(pool_message_read(written, used, &again, &message) == 0);
			CHECK(pool_request_read(written, used, &again, &same) == 0);
			CHECK(again == used && message.count == 1);
			CHECK(same.op == rq.op && same.length == rq.length);
			CHECK(same.sequence == rq.sequence && same.version == rq.version);
			CHECK(memcmp(same.name, rq.name, rq.name_length) == 0);
			CHECK(!same.value == !rq.value);
			CHECK(!rq.value || memcmp(same.value, rq.value, rq.length) == 0);
		}
	}
	free(copy);
	free(written);
}

static void answers(struct input *in)
{
	uint8_t *copy = copy_of(in->p, in->len), sum = 0;
	struct pool_message message;
	struct pool_answer answer;
	size_t where = 0;

	if (pool_message_read(copy, in->len, &where, &message) == 0)
		while (pool_answer_read(copy, in->len, &where, &answer) == 0)
			for (uint32_t i = 0; i < answer.length; i++)
				sum ^= ((const uint8_t *)answer.bytes)[i];
	CHECK(sum == 0 || in->len > 0);
	free(copy);
}

/* A client reads memory that a node, or an impostor, controls. */
static void read_bytes(struct input *in)
{
	struct pool_place place = {.base = ADDRESS,
				   .size = SIZE,
				   .index_at = region.index_at,
				   .num_buckets = region.num_buckets};
	enum pool_step step = POOL_MORE;
	struct pool_lookup l;

	memcpy(region.at + region.index_at, in->p, in->len < 4096 ? in->len : 4096);
	if (in->len > 128)
		memcpy(region.at + region.memory_at, in->p, in->len < 65536 ? in->len : 65536);
	pool_lookup_start(&l, &place, "bcd", 3, (uint32_t)in->len);
	while (step == POOL_MORE) {
		uint64_t at = pool_offset(&region, l.address);
		uint8_t *fed;

		CHECK(l.length == 0 || pool_holds(&region, at, l.length));
		fed = copy_of(region.at + (l.length ? at : 0), l.length);
		if (!l.reading || !l.read.body)
			step = pool_lookup_feed(&l, fed, fed + sizeof(struct pool_object));
		else
			step = pool_lookup_feed(&l, NULL, fed);
		if (step == POOL_DONE && !l.read.body)
			CHECK(l.read.at + l.read.value_length <= l.length - 32);
		free(fed);
	}
	read_and_list();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	uint64_t kind = take(&in, 1) % KINDS;

	if (kind == GREETINGS || kind == WELCOMES || kind == TEXTS) {
		(kind == GREETINGS ? greetings : kind == WELCOMES ? welcomes : texts)(&in);
		return 0;
	}
	reset_region();
	if (kind == REQUESTS)
		requests(&in);
	else if (kind == ANSWERS)
		answers(&in);
	else if (kind == RAW_RECORD)
		raw_record(&in);
	else if (kind == SEALED_RECORD)
		sealed_record(&in);
	else if (kind == RING)
		ring(&in);
	else if (kind == OPERATIONS)
		operate(&in, true);
	else
		read_bytes(&in);
	return 0;
}
