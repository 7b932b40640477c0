// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_model.c - random operations, compared with a simple model of a pool: a list of objects ("things").
 *
 * Several clients make operations ahead of those that are applied. Each record is applied to two regions, which
 * are then compared. Clients retry requests. Primaries die with records in flight, some of which have reached
 * the standby. The model gets each operation's outcome and checks that it was possible.
 *
 * `test_pool_model caught` is for a build with a deliberate fault: it succeeds if the test fails.
 */
#include "scene.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "dice.h"

#define THINGS	300
#define NAMES	60
#define KNOWN	200
#define ACTORS	4
#define SIZE	(2u << 20)
#define NO_NAME (-1)

struct thing {
	bool is;
	int name;
	struct stag_pool_ptr ptr;
	uint64_t version;
	uint32_t length;
	uint8_t *value;
};

/* A request of a client that the client has not acknowledged yet. */
struct asked {
	bool open;
	struct pool_request request;
	uint8_t *value;
	char name[16];
	struct pool_answer answer;
	uint64_t number; /* of its record */
};

struct actor {
	struct pool_who who;
	uint64_t next, acknowledged;
	struct asked window[POOL_WINDOW];
};

/* A change of the model by a pending record, with which it is undone if the record is lost. */
struct undo {
	uint64_t number;
	int thing; /* the thing that changed; -1: none */
	struct thing before;
	struct asked *asked;
};

static struct scene scene;
static struct thing things[THINGS];
static struct stag_pool_ptr known[KNOWN]; /* pointers that clients have received, valid or stale */
static unsigned int num_known;
static struct actor actors[ACTORS];
static struct undo undos[SCENE_PENDING];
static unsigned int num_undos;
static unsigned long num_done[8], num_full, num_gone, num_retried, num_promoted, num_lost,
	num_moved, num_long;

/* ---- the model ------------------------------------------------------------------- */

static struct thing copy_of(const struct thing *t)
{
	struct thing copy = *t;

	copy.value = malloc(t->length + 1);
	assert_non_null(copy.value);
	if (t->is)
		memcpy(copy.value, t->value, t->length);
	return copy;
}

static int thing_by_ptr(const struct stag_pool_ptr *ptr)
{
	for (int i = 0; i < THINGS; i++)
		if (things[i].is && things[i].ptr.address == ptr->address &&
		    things[i].ptr.generation == ptr->generation)
			return i;
	return -1;
}

static int thing_by_name(int name)
{
	for (int i = 0; i < THINGS; i++)
		if (things[i].is && things[i].name == name)
			return i;
	return -1;
}

static int free_thing(void)
{
	for (int i = 0; i < THINGS; i++)
		if (!things[i].is)
			return i;
	return -1;
}

static int name_of(const struct pool_request *rq)
{
	return rq->name ? atoi(rq->name + 5) : NO_NAME;
}

static int find(const struct pool_request *rq)
{
	if (rq->op == STAG_POOL_INSERT)
		return -1;
	return rq->name_length ? thing_by_name(name_of(rq)) : thing_by_ptr(&rq->ptr);
}

static bool is_put_request(const struct pool_request *rq)
{
	return rq->op == STAG_POOL_PUT;
}

static bool has_value(const struct pool_request *rq)
{
	return rq->flags & POOL_HAS_VALUE;
}

/* Returns the status that the request must have if memory does not run out. */
static uint32_t expected_status(const struct pool_request *rq, int thing)
{
	if (thing < 0)
		return rq->op == STAG_POOL_INSERT ||
				       (is_put_request(rq) && !(rq->flags & POOL_COMPARE))
			       ? 0
			       : ENOENT;
	if (rq->flags & POOL_EXCLUSIVE)
		return EEXIST;
	if ((rq->flags & POOL_COMPARE) && rq->version != things[thing].version)
		return EILSEQ;
	return 0;
}

static void expect_ptr(const struct pool_request *rq, const struct pool_answer *answer, int thing)
{
	assert_int_equal(answer->ptr.key, scene.a.key);
	assert_int_equal(answer->ptr.length, rq->length);
	assert_int_equal(answer->version, scene.core.number);
	if (thing >= 0 && answer->ptr.address == things[thing].ptr.address)
		assert_int_equal(answer->ptr.generation, things[thing].ptr.generation);
	else
		assert_int_equal(answer->ptr.generation, scene.core.number);
	num_moved += thing >= 0 && answer->ptr.address != things[thing].ptr.address;
}

static void change_model(const struct pool_request *rq, const struct pool_answer *answer, int thing)
{
	struct thing *t;

	if (!has_value(rq)) {
		things[thing].is = false;
		free(things[thing].value);
		return;
	}
	t = &things[thing < 0 ? free_thing() : thing];
	if (thing < 0) {
		t->name = rq->name_length ? name_of(rq) : NO_NAME;
	} else {
		free(t->value);
	}
	t->is = true;
	t->ptr = answer->ptr;
	t->version = answer->version;
	t->length = rq->length;
	t->value = malloc(rq->length + 1);
	assert_non_null(t->value);
	memcpy(t->value, rq->value, rq->length);
}

/* Checks that the outcome of an operation carried out just now was possible, and changes the model. */
static void check_and_update_model(struct asked *asked)
{
	const struct pool_request *rq = &asked->request;
	const struct pool_answer *answer = &asked->answer;
	struct undo *u = &undos[num_undos++];
	int thing = find(rq);
	uint32_t want = expected_status(rq, thing);

	*u = (struct undo){.number = scene.core.number, .thing = -1, .asked = asked};
	/* A long value gets its memory before its request is checked, so ENOSPC may come first. */
	if (has_value(rq) && (want == 0 || rq->length > POOL_DIRECT_MAX) &&
	    answer->status == ENOSPC) {
		num_full++;
		return;
	}
	assert_int_equal(answer->status, want);
	num_gone += want == ENOENT;
	if (want == EILSEQ)
		assert_int_equal(answer->version, things[thing].version);
	if (want != 0)
		return;
	num_done[rq->op]++;
	if (has_value(rq))
		expect_ptr(rq, answer, thing);
	u->thing = thing < 0 ? free_thing() : thing;
	u->before = copy_of(&things[u->thing]);
	change_model(rq, answer, thing);
}

static void remember_ptr(const struct stag_pool_ptr *ptr)
{
	if (num_known < KNOWN)
		known[num_known++] = *ptr;
	else
		known[dice(KNOWN)] = *ptr;
}

/* Applies the oldest pending record: its client gets the answer. */
static void settle(void)
{
	struct undo u = undos[0];

	scene_settle(&scene);
	if (!is_slow_build() || one_in(4))
		scene_expect_same(&scene);
	if (u.asked->answer.status == 0 && has_value(&u.asked->request))
		remember_ptr(&u.asked->answer.ptr);
	if (u.thing >= 0)
		free(u.before.value);
	num_undos--;
	memmove(undos, undos + 1, num_undos * sizeof(undos[0]));
}

static void settle_all(void)
{
	while (num_undos > 0)
		settle();
	assert_int_equal(scene.num_pending, 0);
}

/* ---- clients --------------------------------------------------------------------- */

static uint64_t a_length(void)
{
	if (one_in(200))
		return POOL_DIRECT_MAX + dice_size(100000);
	if (one_in(20))
		return dice_size(100000);
	return one_in(10) ? 0 : dice_size(300);
}

/* Returns a place in the staging memory that no pending record uses. */
static uint64_t staging_for(uint32_t length)
{
	static uint64_t next;

	if (next + length > SCENE_STAGING)
		next = 0;
	next += length;
	return next - length;
}

static void choose_value(struct asked *asked)
{
	struct pool_request *rq = &asked->request;

	rq->flags |= POOL_HAS_VALUE;
	rq->length = (uint32_t)a_length();
	if (rq->length <= POOL_DIRECT_MAX && rq->length > 0 && one_in(4)) {
		rq->source = POOL_SOURCE_STAGED;
		rq->source_address = staging_for(rq->length);
	}
	asked->value = malloc(rq->length + 1);
	assert_non_null(asked->value);
	dice_fill(asked->value, rq->length);
	rq->value = asked->value;
}

static void choose_name(struct asked *asked)
{
	snprintf(asked->name, sizeof(asked->name), "name %u", (unsigned int)dice(NAMES));
	asked->request.name = asked->name;
	asked->request.name_length = (uint16_t)strlen(asked->name);
}

static void choose_version(struct asked *asked)
{
	int thing = find(&asked->request);

	if (!one_in(4))
		return;
	asked->request.flags |= POOL_COMPARE;
	asked->request.version = thing >= 0 && !one_in(3) ? things[thing].version : dice(1000);
}

/* Returns a pointer that a client has received, mostly a valid one. */
static struct stag_pool_ptr choose_known(void)
{
	uint64_t applied = pool_superblock(&scene.a)->number;
	struct stag_pool_ptr ptr = {0};

	for (int i = 0; i < 10 && !one_in(20); i++) {
		const struct thing *t = &things[dice(THINGS)];

		if (t->is && t->version <= applied)
			return t->ptr;
	}
	return num_known > 0 ? known[dice(num_known)] : ptr;
}

static void choose_request(struct asked *asked)
{
	static const uint8_t ops[] = {STAG_POOL_INSERT, STAG_POOL_INSERT, STAG_POOL_UPDATE,
				      STAG_POOL_UPDATE, STAG_POOL_UPDATE, STAG_POOL_DELETE,
				      STAG_POOL_PUT,	STAG_POOL_PUT,	  STAG_POOL_REMOVE};
	struct pool_request *rq = &asked->request;

	rq->op = ops[dice(sizeof(ops))];
	if (free_thing() < 0)
		rq->op = STAG_POOL_DELETE;
	if (rq->op == STAG_POOL_PUT || rq->op == STAG_POOL_REMOVE)
		choose_name(asked);
	else if (rq->op != STAG_POOL_INSERT)
		rq->flags |= POOL_HAS_PTR;
	if (rq->op == STAG_POOL_UPDATE || rq->op == STAG_POOL_DELETE)
		rq->ptr = choose_known();
	if (rq->op != STAG_POOL_INSERT)
		choose_version(asked);
	if (rq->op == STAG_POOL_PUT && !(rq->flags & POOL_COMPARE) && one_in(8))
		rq->flags |= POOL_EXCLUSIVE;
	if (rq->op != STAG_POOL_DELETE && rq->op != STAG_POOL_REMOVE)
		choose_value(asked);
}

/* Carries out a request for the first time, or again after its record was lost. */
static void carry_out(struct actor *actor, struct asked *asked)
{
	struct pool_request *rq = &asked->request;

	rq->acknowledged = actor->acknowledged;
	if (rq->length > POOL_DIRECT_MAX) {
		settle_all();
		num_long++;
		scene_do(&scene, &actor->who, rq, &asked->answer);
		check_and_update_model(asked);
		num_undos--; /* its record is applied already */
		if (undos[num_undos].thing >= 0)
			free(undos[num_undos].before.value);
		if (asked->answer.status == 0)
			remember_ptr(&asked->answer.ptr);
		scene_expect_same(&scene);
	} else {
		assert_int_equal(scene_change(&scene, &actor->who, rq, &asked->answer), 0);
		assert_int_equal(asked->answer.after, scene.core.number);
		check_and_update_model(asked);
	}
	asked->number = scene.core.number;
	asked->open = true;
}

static void forget(struct asked *asked)
{
	free(asked->value);
	memset(asked, 0, sizeof(*asked));
}

/* Acknowledges the answers up to the first request whose record is not applied. */
static void acknowledge(struct actor *actor)
{
	uint64_t applied = pool_superblock(&scene.a)->number;

	while (actor->acknowledged + 1 < actor->next) {
		struct asked *asked = &actor->window[(actor->acknowledged + 1) % POOL_WINDOW];

		if (asked->number > applied)
			break;
		forget(asked);
		actor->acknowledged++;
	}
}

static void send_request(struct actor *actor)
{
	struct asked *asked = &actor->window[actor->next % POOL_WINDOW];

	if (actor->next - actor->acknowledged > POOL_WINDOW || one_in(50))
		settle_all();
	if (actor->next - actor->acknowledged > POOL_WINDOW || one_in(20))
		acknowledge(actor);
	assert_false(asked->open);
	choose_request(asked);
	asked->request.sequence = actor->next++;
	carry_out(actor, asked);
}

static void expect_same_answer(const struct pool_answer *one, const struct pool_answer *two)
{
	assert_int_equal(one->status, two->status);
	assert_int_equal(one->version, two->version);
	assert_memory_equal(&one->ptr, &two->ptr, sizeof(one->ptr));
}

/*
 * Retries two requests: one that was acknowledged (ESTALE), and one in flight or done, which gets the same
 * answer.
 */
static void retry_requests(struct actor *actor)
{
	uint64_t sequence, number = scene.core.number;
	struct pool_answer answer;
	struct asked *asked;
	struct pool_request old = {.op = STAG_POOL_DELETE, .sequence = actor->acknowledged};

	num_retried++;
	assert_int_equal(scene_change(&scene, &actor->who, &old, &answer), 0);
	assert_int_equal(answer.status, ESTALE);
	if (actor->acknowledged + 1 < actor->next) {
		sequence = actor->acknowledged + 1 + dice(actor->next - actor->acknowledged - 1);
		asked = &actor->window[sequence % POOL_WINDOW];
		old = asked->request;
		if (old.length > POOL_DIRECT_MAX)
			old.flags |= POOL_UPLOADED;
		assert_int_equal(scene_change(&scene, &actor->who, &old, &answer), 0);
		expect_same_answer(&answer, &asked->answer);
		assert_in_range(answer.after, asked->number, number);
	}
	assert_int_equal(scene.core.number, number);
}

/* Overwrites the values of deleted objects. */
static void scrub(void)
{
	uint8_t record[POOL_RECORD_META];
	size_t used;

	settle_all();
	do {
		assert_int_equal(pool_scrub(&scene.core, record, sizeof(record), &used), 0);
		if (used == 0)
			break;
		assert_int_equal(pool_settle(&scene.core, record, used, NULL), 0);
		assert_int_equal(pool_record_apply(&scene.b, record, used, NULL), 0);
	} while (!one_in(3));
	scene.core.overwrite = one_in(2);
}

/* ---- failures -------------------------------------------------------------------- */

static void undo_last(void)
{
	struct undo *u = &undos[--num_undos];

	if (u->thing >= 0) {
		if (things[u->thing].is)
			free(things[u->thing].value);
		things[u->thing] = u->before;
		if (!u->before.is)
			free(u->before.value);
	}
	u->asked->open = false;
	num_lost++;
}

/* Retries the requests whose records were lost, oldest first (lost[] has the newest first). */
static void retry_lost(struct asked *lost[], struct actor *whose[], unsigned int n)
{
	for (unsigned int i = n; i-- > 0;)
		if (free_thing() >= 0 || lost[i]->request.op == STAG_POOL_DELETE)
			carry_out(whose[i], lost[i]);
}

static void fail_over(void)
{
	unsigned int kept = (unsigned int)dice(num_undos + 1), n = 0;
	struct asked *lost[SCENE_PENDING];
	struct actor *whose[SCENE_PENDING];

	num_promoted++;
	scene_promote(&scene, kept);
	while (num_undos > kept) {
		struct asked *asked = undos[num_undos - 1].asked;

		lost[n] = asked;
		for (unsigned int i = 0; i < ACTORS; i++)
			if (asked >= actors[i].window && asked < actors[i].window + POOL_WINDOW)
				whose[n] = &actors[i];
		n++;
		undo_last();
	}
	for (unsigned int i = 0; i < num_undos; i++) {
		if (undos[i].asked->answer.status == 0 && has_value(&undos[i].asked->request))
			remember_ptr(&undos[i].asked->answer.ptr);
		if (undos[i].thing >= 0)
			free(undos[i].before.value);
	}
	num_undos = 0;
	retry_lost(lost, whose, n);
}

/* ---- contents of the pool -------------------------------------------------------- */

static void expect_bytes(const struct thing *t, const void *value, uint64_t length)
{
	assert_int_equal(length, t->length);
	assert_true(memcmp(value, t->value, length) == 0);
}

static void expect_thing(const struct thing *t)
{
	struct pool_request rq = {.op = STAG_POOL_READ, .ptr = t->ptr};
	struct pool_answer answer;
	struct pool_read read;
	void *value;

	pool_look(&scene.a, &rq, &answer);
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.version, t->version);
	expect_bytes(t, answer.bytes, answer.length);

	rq.ptr.length = one_in(2) ? t->ptr.length : (uint32_t)dice(500); /* only a hint */
	assert_int_equal(scene_read(&scene.b, &rq.ptr, &value, &read), POOL_DONE);
	assert_int_equal(read.version, t->version);
	expect_bytes(t, value, read.value_length);
	free(value);
}

static void expect_gone(const struct stag_pool_ptr *ptr)
{
	struct pool_request rq = {.op = STAG_POOL_READ, .ptr = *ptr};
	struct pool_answer answer;
	enum pool_step step;
	struct pool_read read;
	void *value;

	pool_look(&scene.a, &rq, &answer);
	assert_int_equal(answer.status, ENOENT);
	step = scene_read(&scene.b, ptr, &value, &read);
	assert_true(step == POOL_GONE || step == POOL_ASK);
	free(value);
}

static void expect_name(int name)
{
	struct pool_request rq = {.op = STAG_POOL_GET};
	int thing = thing_by_name(name);
	struct pool_answer answer;
	enum pool_step step;
	struct pool_read read;
	char text[16];
	void *value;

	snprintf(text, sizeof(text), "name %d", name);
	rq.name = text;
	rq.name_length = (uint16_t)strlen(text);
	pool_look(&scene.a, &rq, &answer);
	step = scene_get(&scene.b, text, (uint32_t)dice(300), &value, &read);
	if (thing < 0) {
		assert_int_equal(answer.status, ENOENT);
		assert_true(step == POOL_GONE || step == POOL_ASK);
		return;
	}
	assert_int_equal(answer.status, 0);
	expect_bytes(&things[thing], answer.bytes, answer.length);
	assert_int_equal(step, POOL_DONE);
	expect_bytes(&things[thing], value, read.value_length);
	assert_int_equal(read.ptr.generation, things[thing].ptr.generation);
	free(value);
}

static void expect_all(void)
{
	uint64_t n = 0, bytes = 0;

	settle_all();
	scene_expect_valid(&scene);
	for (int i = 0; i < THINGS; i++) {
		if (!things[i].is)
			continue;
		n++;
		bytes += things[i].length;
		expect_thing(&things[i]);
	}
	assert_int_equal(pool_superblock(&scene.a)->objects, n);
	assert_int_equal(pool_superblock(&scene.a)->bytes, bytes);
	for (unsigned int i = 0; i < num_known; i++)
		if (thing_by_ptr(&known[i]) < 0)
			expect_gone(&known[i]);
	for (int name = 0; name < NAMES; name++)
		expect_name(name);
}

/* Deletes all objects and detaches all clients: the memory is then as it was at the start. */
static void expect_memory_as_at_start(const uint8_t *start)
{
	uint64_t from = scene.a.clients_at, to = scene.a.memory_at;
	struct pool_request rq = {.op = POOL_OP_DETACH};
	struct pool_answer answer;

	for (int i = 0; i < THINGS; i++) {
		struct actor *actor = &actors[i % ACTORS];
		struct pool_request delete = {.op = STAG_POOL_DELETE,
					      .ptr = things[i].ptr,
					      .sequence = actor->next,
					      .acknowledged = actor->next - 1};

		if (!things[i].is)
			continue;
		assert_int_equal(scene_do(&scene, &actor->who, &delete, &answer), 0);
		actor->next++;
		free(things[i].value);
		things[i].is = false;
	}
	for (unsigned int i = 0; i < ACTORS; i++)
		assert_int_equal(scene_do(&scene, &actors[i].who, &rq, &answer), 0);
	while (scene.core.room.scrubs > 0)
		scrub();
	scene_expect_valid(&scene);
	scene_expect_same(&scene);
	assert_int_equal(pool_superblock(&scene.a)->objects, 0);
	assert_int_equal(pool_superblock(&scene.a)->bytes, 0);
	assert_int_equal(pool_superblock(&scene.a)->names, 0);
	assert_int_equal(pool_superblock(&scene.a)->clients, 0);
	assert_int_equal(scene.core.room.free_spans, scene.a.num_spans);
	assert_int_equal(scene.core.ahead.used, 0);
	assert_true(memcmp(scene.a.at + from, start + from, to - from) == 0);
}

static void pool_agrees_with_the_model(void **state)
{
	unsigned long steps = scaled(3000);
	uint8_t *start;

	dice_start();
	scene_open(&scene, SIZE, 32); /* few buckets, so that chains form */
	start = malloc(SIZE);
	assert_non_null(start);
	memcpy(start, scene.a.at, SIZE);
	for (unsigned int i = 0; i < ACTORS; i++) {
		actors[i].who = scene_client(&scene, i + 100);
		actors[i].next = 1;
	}
	for (unsigned long i = 0; i < steps; i++) {
		struct actor *actor = &actors[dice(ACTORS)];

		if (num_undos >= SCENE_PENDING / 2 || one_in(3))
			for (uint64_t n = dice(num_undos + 1); n > 0; n--)
				settle();
		if (one_in(10))
			retry_requests(actor);
		else if (one_in(100))
			fail_over();
		else if (one_in(30))
			scrub();
		else
			send_request(actor);
		if (one_in(200) || i + 1 == steps)
			expect_all();
	}
	printf("inserts %lu updates %lu deletes %lu puts %lu removes %lu long %lu moved %lu, full "
	       "%lu gone %lu\n"
	       "retried %lu, failovers %lu, in which %lu requests were lost and retried\n",
	       num_done[STAG_POOL_INSERT], num_done[STAG_POOL_UPDATE], num_done[STAG_POOL_DELETE],
	       num_done[STAG_POOL_PUT], num_done[STAG_POOL_REMOVE], num_long, num_moved, num_full,
	       num_gone, num_retried, num_promoted, num_lost);
	expect_memory_as_at_start(start);
	for (unsigned int i = 0; i < ACTORS; i++)
		for (unsigned int j = 0; j < POOL_WINDOW; j++)
			forget(&actors[i].window[j]);
	free(start);
	scene_close(&scene);
}

static int run_model(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pool_agrees_with_the_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	int status;
	pid_t child;

	if (argc < 2 || strcmp(argv[1], "caught") != 0)
		return run_model();
	child = fork();
	if (child == 0)
		_exit(run_model());
	return child < 0 || waitpid(child, &status, 0) != child || status == 0;
}
