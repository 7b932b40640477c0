// SPDX-License-Identifier: BSD-2-Clause
/*
 * scene.c - see scene.h.
 */
#include "scene.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- regions --------------------------------------------------------------------- */

static void *zeroes(size_t size)
{
	void *at = aligned_alloc(POOL_PAGE, size);

	assert_non_null(at);
	return memset(at, 0, size);
}

void scene_open(struct scene *s, uint64_t size, uint64_t num_buckets)
{
	struct pool_format format = {
		.size = size,
		.address = SCENE_ADDRESS,
		.key = 0x1234567,
		.name_key = {0x0123456789abcdef, 0xfedcba9876543210},
		.max_clients = 64,
		.num_buckets = num_buckets,
	};

	memset(s, 0, sizeof(*s));
	assert_int_equal(pool_region_format(&s->a, zeroes(size), &format), 0);
	s->b = s->a;
	s->b.at = zeroes(size);
	memcpy(s->b.at, s->a.at, size);
	s->log = (struct pool_log){.at = zeroes(SCENE_LOG), .size = SCENE_LOG};
	s->ring = (struct pool_ring){.at = zeroes(SCENE_LOG), .size = SCENE_LOG};
	s->staging = zeroes(SCENE_STAGING);
	s->epoch = 1;
	assert_int_equal(pool_core_open(&s->core, &s->a, s->epoch), 0);
}

void scene_close(struct scene *s)
{
	pool_core_close(&s->core);
	for (unsigned int i = 0; i < s->num_pending; i++)
		free(s->pending[i].staged);
	free(s->a.at);
	free(s->b.at);
	free(s->log.at);
	free((void *)s->ring.at);
	free(s->staging);
}

struct pool_who scene_client(struct scene *s, uint64_t id)
{
	struct pool_who who = {.id = {id, ~id}, .who = id + 1};
	struct pool_request request = {.op = POOL_OP_ATTACH};
	struct pool_answer answer;

	assert_int_equal(scene_do(s, &who, &request, &answer), 0);
	return who;
}

/* ---- records --------------------------------------------------------------------- */

/* Places a value in the staging memory as the adapter does when a client writes it there. */
static void stage(struct scene *s, const struct pool_request *request, unsigned int i)
{
	if (request->source != POOL_SOURCE_STAGED || request->length == 0)
		return;
	memcpy(s->staging + request->source_address, request->value, request->length);
	s->pending[i].staged = malloc(request->length);
	assert_non_null(s->pending[i].staged);
	memcpy(s->pending[i].staged, request->value, request->length);
	s->pending[i].staged_at = request->source_address;
	s->pending[i].staged_length = request->length;
}

static void *log_room(struct scene *s, size_t need)
{
	void *at = pool_log_room(&s->log, need, s->core.number + 1, s->epoch);

	assert_non_null(at);
	return at;
}

static void add_pending(struct scene *s, size_t used)
{
	unsigned int i = s->num_pending++;

	memset(&s->pending[i], 0, sizeof(s->pending[i]));
	s->pending[i].number = s->core.number;
	s->pending[i].from = s->log.put;
	s->pending[i].length = used;
	pool_log_add(&s->log, used);
}

int scene_change(struct scene *s, struct pool_who *who, const struct pool_request *request,
		 struct pool_answer *answer)
{
	size_t need = POOL_RECORD_META + (request->length <= POOL_DIRECT_MAX ? request->length : 0);
	void *at = log_room(s, need);
	size_t used;
	int rc;

	assert_in_range(s->num_pending, 0, SCENE_PENDING - 1);
	rc = pool_change(&s->core, who, request, at, need, &used, answer);
	if (rc == 0 && used != 0) {
		add_pending(s, used);
		stage(s, request, s->num_pending - 1);
	}
	return rc;
}

/* Copies the log up to position `to` to the ring. */
static void send_log(struct scene *s, uint64_t to)
{
	struct pool_segment segments[2];
	int n = pool_log_segments(SCENE_LOG, s->sent, to, segments);

	for (int i = 0; i < n; i++)
		memcpy((uint8_t *)s->ring.at + segments[i].offset, s->log.at + segments[i].offset,
		       segments[i].length);
	s->sent = to;
}

static void apply_at_standby(struct scene *s, uint64_t to)
{
	struct pool_staging staging = {.at = s->staging, .length = SCENE_STAGING};

	send_log(s, to);
	assert_int_equal(pool_ring_drain(&s->ring, &s->b, &staging, UINT32_MAX), 1);
	assert_int_equal(s->ring.get, to);
}

void scene_settle(struct scene *s)
{
	uint64_t to = s->pending[0].from + s->pending[0].length;
	struct pool_staging own = {s->pending[0].staged, s->pending[0].staged_at,
				   s->pending[0].staged_length, true};

	apply_at_standby(s, to);
	assert_int_equal(pool_settle(&s->core, s->log.at + s->pending[0].from % SCENE_LOG,
				     s->pending[0].length, &own),
			 0);
	free(s->pending[0].staged);
	s->log.tail = to;
	s->num_pending--;
	memmove(s->pending, s->pending + 1, s->num_pending * sizeof(s->pending[0]));
}

void scene_settle_all(struct scene *s)
{
	while (s->num_pending > 0)
		scene_settle(s);
}

void scene_expect_same(const struct scene *s)
{
	/* assert_memory_equal() would be slow: it compares byte by byte. */
	assert_true(memcmp(s->a.at, s->b.at, s->a.size) == 0);
}

void scene_expect_valid(const struct scene *s)
{
	char why[200] = "";

	if (pool_region_check(&s->a, why, sizeof(why)) != 0)
		fail_msg("%s", why);
}

void scene_promote(struct scene *s, unsigned int kept)
{
	struct pool_region old = s->a;

	for (unsigned int i = 0; i < s->num_pending; i++) {
		if (i < kept)
			apply_at_standby(s, s->pending[i].from + s->pending[i].length);
		free(s->pending[i].staged);
	}
	s->num_pending = 0;
	pool_core_close(&s->core);
	s->a = s->b;
	s->b = old;
	memcpy(s->b.at, s->a.at, s->a.size); /* the old primary returns and is resynchronised */
	memset((void *)s->ring.at, 0, SCENE_LOG);
	s->log.put = s->log.tail = s->sent = s->ring.get = 0;
	assert_int_equal(pool_region_adopt(&s->a, s->a.at, s->a.size), 0);
	assert_int_equal(pool_core_open(&s->core, &s->a, ++s->epoch), 0);
}

int scene_do(struct scene *s, struct pool_who *who, struct pool_request *request,
	     struct pool_answer *answer)
{
	if (request->length > POOL_DIRECT_MAX)
		return scene_upload(s, who, request, answer);
	assert_int_equal(scene_change(s, who, request, answer), 0);
	scene_settle_all(s);
	return (int)answer->status;
}

int scene_upload(struct scene *s, struct pool_who *who, struct pool_request *request,
		 struct pool_answer *answer)
{
	size_t room = POOL_RECORD_META + POOL_DIRECT_MAX, used;

	assert_int_equal(
		pool_upload_begin(&s->core, who, request, log_room(s, room), room, &used, answer),
		0);
	if (used != 0)
		add_pending(s, used);
	scene_settle_all(s);
	if (answer->status != EINPROGRESS)
		return (int)answer->status;
	for (uint32_t at = 0, n; at < request->length; at += n) {
		n = request->length - at < 100000 ? request->length - at : 100000;
		assert_int_equal(pool_upload_bytes(&s->core, who, request->sequence, at,
						   (const uint8_t *)request->value + at, n,
						   log_room(s, room), room, &used),
				 0);
		add_pending(s, used);
		scene_settle_all(s);
	}
	request->flags |= POOL_UPLOADED;
	request->hash = pool_hash(request->value, request->length);
	assert_int_equal(scene_change(s, who, request, answer), 0);
	request->flags &= (uint8_t)~POOL_UPLOADED;
	scene_settle_all(s);
	return (int)answer->status;
}

struct pool_request scene_insert(uint64_t sequence, const void *value, uint32_t length)
{
	return (struct pool_request){
		.op = STAG_POOL_INSERT,
		.flags = POOL_HAS_VALUE,
		.sequence = sequence,
		.acknowledged = sequence - 1,
		.value = value,
		.length = length,
	};
}

struct pool_request scene_put(uint64_t sequence, const char *name, const void *value,
			      uint32_t length)
{
	struct pool_request request = scene_insert(sequence, value, length);

	request.op = STAG_POOL_PUT;
	request.name = name;
	request.name_length = (uint16_t)strlen(name);
	return request;
}

/* ---- one-sided ------------------------------------------------------------------- */

/* Returns an allocated copy of the bytes at an address of the region, as if read over a network. */
static void *fetch(const struct pool_region *r, uint64_t address, uint64_t length)
{
	uint64_t offset = pool_offset(r, address);
	void *copy = malloc(length ? length : 1);

	assert_non_null(copy);
	assert_true(offset != POOL_NOWHERE && pool_holds(r, offset, length));
	memcpy(copy, r->at + offset, length);
	return copy;
}

static void *value_of(const struct pool_read *read, const uint8_t *fed)
{
	const uint8_t *from = read->body ? fed : fed + sizeof(struct pool_object) + read->at;
	void *value = malloc(read->value_length ? read->value_length : 1);

	assert_non_null(value);
	return memcpy(value, from, read->value_length);
}

enum pool_step scene_read(const struct pool_region *r, const struct stag_pool_ptr *ptr,
			  void **value, struct pool_read *read)
{
	enum pool_step step = POOL_MORE;
	uint8_t *fed;

	*value = NULL;
	pool_read_start(read, r->address, r->size, ptr, NULL, 0);
	while (step == POOL_MORE) {
		fed = fetch(r, read->address ? read->address : r->address, read->length);
		if (read->body)
			step = pool_read_feed(read, NULL, fed);
		else
			step = pool_read_feed(read, fed, fed + sizeof(struct pool_object));
		if (step == POOL_DONE)
			*value = value_of(read, fed);
		free(fed);
	}
	return step;
}

enum pool_step scene_get(const struct pool_region *r, const char *name, uint32_t hint, void **value,
			 struct pool_read *read)
{
	struct pool_place place = {.base = r->address,
				   .size = r->size,
				   .index_at = r->index_at,
				   .num_buckets = r->num_buckets,
				   .name_key = {r->name_key[0], r->name_key[1]},
				   .key = r->key};
	enum pool_step step = POOL_MORE;
	struct pool_lookup l;
	uint8_t *fed;

	*value = NULL;
	pool_lookup_start(&l, &place, name, (uint16_t)strlen(name), hint);
	while (step == POOL_MORE) {
		fed = fetch(r, l.address, l.length);
		if (!l.reading)
			step = pool_lookup_feed(&l, fed, NULL);
		else if (l.read.body)
			step = pool_lookup_feed(&l, NULL, fed);
		else
			step = pool_lookup_feed(&l, fed, fed + sizeof(struct pool_object));
		if (step == POOL_DONE)
			*value = value_of(&l.read, fed);
		free(fed);
	}
	*read = l.read;
	return step;
}
