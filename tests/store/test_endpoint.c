// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_endpoint.c - operations on partitions: near, and far with the argument "far".
 */
#include "stage.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dice.h"

static bool far;

static void written_bytes_are_read_back(void **state)
{
	char text[] = "one program, near and far";
	struct stage s;
	struct user u, other;
	uint64_t sum;

	stage_open(&s, far);
	add(s.store, "goods", MIB);
	allow(&s, "goods", STAG_STORE_WRITE);
	enter(&u, &s, "goods");
	assert_int_equal(u.e->size, MIB);
	assert_int_equal(u.e->access, STAG_STORE_WRITE);
	assert_int_equal(u.e->block, 4096);
	assert_true(far ? u.e->id != NULL : u.e->id == NULL);
	assert_int_equal(do_write(&u, 1234, text, sizeof(text)), IBV_WC_SUCCESS);
	assert_true(reads_as(&u, 1234, text, sizeof(text)));
	assert_int_equal(do_add(&u, 8192, 5), IBV_WC_SUCCESS);
	assert_int_equal(do_add(&u, 8192, 7), IBV_WC_SUCCESS);
	memcpy(&sum, u.mem, sizeof(sum));
	assert_int_equal(sum, 5);

	enter(&other, &s, "goods");
	assert_true(reads_as(&other, 1234, text, sizeof(text)));
	leave(&other);
	leave(&u);
	stage_close(&s);
}

/* Bytes behind the last one are out of bounds, even if another partition has them. */
static void access_behind_the_end_is_refused(void **state)
{
	struct stage s;
	struct user u;

	stage_open(&s, far);
	add(s.store, "first", 64 * KIB);
	add(s.store, "second", 64 * KIB);
	allow(&s, "first", STAG_STORE_WRITE);
	enter(&u, &s, "first");
	assert_int_equal(do_write(&u, 64 * KIB - 4, "abcd", 4), IBV_WC_SUCCESS);
	assert_int_not_equal(do_write(&u, 64 * KIB - 4, "abcde", 5), IBV_WC_SUCCESS);
	leave(&u);
	assert_true(is_zero_at(s.path, find(s.store, "second").offset, 64 * KIB));
	stage_close(&s);
}

static void a_refused_connection_gets_the_reason(void **state)
{
	struct stage s;
	struct user u;

	stage_open(&s, far);
	add(s.store, "goods", 64 * KIB);
	allow(&s, "goods", STAG_STORE_NONE);
	assert_int_equal(try_enter(&u, &s, "goods", NULL), EACCES);
	assert_int_equal(try_enter(&u, &s, "nothing", NULL), far ? EACCES : ENOENT);
	stage_close(&s);
}

static void a_reader_cannot_write(void **state)
{
	struct stage s;
	struct user u;

	stage_open(&s, far);
	add(s.store, "goods", 64 * KIB);
	allow(&s, "goods", STAG_STORE_READ);
	enter(&u, &s, "goods");
	assert_int_equal(u.e->access, STAG_STORE_READ);
	assert_int_equal(do_read(&u, 0, 4096), IBV_WC_SUCCESS);
	assert_int_not_equal(do_write(&u, 0, "x", 1), IBV_WC_SUCCESS);
	leave(&u);
	enter(&u, &s, "goods");
	assert_int_not_equal(do_add(&u, 0, 1), IBV_WC_SUCCESS);
	leave(&u);
	assert_true(is_zero_at(s.path, find(s.store, "goods").offset, 64 * KIB));
	stage_close(&s);
}

static void write_until_refused(struct user *u)
{
	while (do_write(u, 0, "x", 1) == IBV_WC_SUCCESS)
		usleep(1000);
}

static void a_revoked_right_is_refused(void **state)
{
	struct stage s;
	struct user u;

	stage_open(&s, far);
	add(s.store, "goods", 64 * KIB);
	allow(&s, "goods", STAG_STORE_WRITE);
	enter(&u, &s, "goods");
	assert_int_equal(do_write(&u, 0, "x", 1), IBV_WC_SUCCESS);
	allow(&s, "goods", STAG_STORE_READ);
	write_until_refused(&u);
	leave(&u);
	stage_close(&s);
}

static void removing_a_partition_by_force_fails_its_users_writes(void **state)
{
	struct stage s;
	struct user u;

	stage_open(&s, far);
	add(s.store, "goods", 64 * KIB);
	add(s.store, "others", 64 * KIB);
	allow(&s, "goods", STAG_STORE_WRITE);
	enter(&u, &s, "goods");
	assert_int_equal(stag_store_remove(s.store, "goods", 0), EBUSY);
	assert_int_equal(stag_store_remove(s.store, "goods", STAG_STORE_FORCE), 0);
	while (do_write(&u, 0, "x", 1) == IBV_WC_SUCCESS)
		usleep(1000);
	leave(&u);
	assert_int_equal(count(s.store), 1);
	stage_close(&s);
}

/*
 * No new connection is needed. Users are notified in order: once the second one sees a later
 * change, the first one has been notified.
 */
static void added_space_is_usable_without_reconnecting(void **state)
{
	struct stag_store_partition p;
	struct user first, second;
	struct stage s;

	stage_open(&s, far);
	add(s.store, "goods", 64 * KIB);
	allow(&s, "goods", STAG_STORE_WRITE);
	enter(&first, &s, "goods");
	enter(&second, &s, "goods");
	p = find(s.store, "goods");
	p.size = 128 * KIB;
	assert_int_equal(stag_store_change(s.store, &p, STAG_STORE_CHANGE_SIZE), 0);
	allow(&s, "goods", STAG_STORE_READ);
	write_until_refused(&second);
	assert_int_equal(do_read(&first, 64 * KIB, 64 * KIB), IBV_WC_SUCCESS);
	leave(&first);
	leave(&second);
	stage_close(&s);
}

/* ---- refusals ---------------------------------------------------------------------- */

/* Over a wire a write completes before it is refused: the read behind it fails, or is flushed. */
static enum ibv_wc_status write_bad(struct user *u)
{
	enum ibv_wc_status status = do_write(u, 0, "bad", 3);

	return far && status == IBV_WC_WR_FLUSH_ERR ? IBV_WC_REM_ACCESS_ERR : status;
}

static enum ibv_wc_status add_bad(struct user *u)
{
	return do_add(u, 0, 1);
}

static enum ibv_wc_status read_bad(struct user *u)
{
	return do_read(u, 0, 8);
}

static enum ibv_wc_status with_a_wrong_key(const struct stage *s,
					   enum ibv_wc_status (*bad)(struct user *u))
{
	enum ibv_wc_status status;
	struct user u;

	enter(&u, s, "open");
	u.e->rkey ^= 0x100;
	status = bad(&u);
	leave(&u);
	return status;
}

static enum ibv_wc_status without_the_right(const struct stage *s,
					    enum ibv_wc_status (*bad)(struct user *u))
{
	enum ibv_wc_status status;
	struct user u;

	enter(&u, s, "goods");
	status = bad(&u);
	leave(&u);
	return status;
}

static void a_missing_right_is_refused_like_a_wrong_key(void **state)
{
	enum ibv_wc_status status;
	struct stage s;
	struct user u;

	stage_open(&s, far);
	add(s.store, "open", 64 * KIB);
	add(s.store, "goods", 64 * KIB);
	allow(&s, "open", STAG_STORE_WRITE);
	allow(&s, "goods", STAG_STORE_READ);
	assert_int_equal(with_a_wrong_key(&s, write_bad), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(without_the_right(&s, write_bad), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(with_a_wrong_key(&s, add_bad), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(without_the_right(&s, add_bad), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(with_a_wrong_key(&s, read_bad), IBV_WC_REM_ACCESS_ERR);
	enter(&u, &s, "goods");
	allow(&s, "goods", STAG_STORE_NONE);
	while ((status = do_read(&u, 0, 8)) == IBV_WC_SUCCESS)
		usleep(1000);
	assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
	leave(&u);
	stage_close(&s);
}

static void refusals_are_logged(void **state)
{
	off_t since = 0;
	struct stage s;
	struct user u;

	stage_open(&s, far);
	add(s.store, "goods", 64 * KIB);
	allow(&s, "goods", STAG_STORE_NONE);
	is_logged(&since, "", "");
	assert_int_equal(try_enter(&u, &s, "goods", NULL), EACCES);
	while (!is_logged(&since, "refused: ", "partition goods: no right to it"))
		usleep(1000); /* a server logs after it has responded */
	allow(&s, "goods", STAG_STORE_READ);
	enter(&u, &s, "goods");
	assert_int_equal(do_read(&u, 0, 8), IBV_WC_SUCCESS);
	assert_false(is_logged(&since, "the region has no", " right"));
	assert_int_not_equal(do_add(&u, 0, 1), IBV_WC_SUCCESS);
	assert_true(is_logged(&since, "8 bytes at 0x0 ", "the region has no remote atomic right"));
	leave(&u);
	stage_close(&s);
}

/* ---- many rights --------------------------------------------------------------------- */

#define PARTITIONS 24

#define WAYS 8 /* ways to write the rights */

static uint8_t access_of(int i)
{
	return (uint8_t)(i % 3);
}

static struct stag_store_right of_net(const char *address, uint8_t prefix)
{
	struct stag_store_right r = {.who = STAG_STORE_NET, .family = AF_INET, .prefix = prefix};

	assert_int_equal(inet_pton(AF_INET, address, r.address), 1);
	return r;
}

static struct stag_store_right of_secret(void)
{
	struct stag_store_right r = {.who = STAG_STORE_TOKEN};

	assert_int_equal(stag_store_token("open sesame", 11, r.token), 0);
	return r;
}

/* Chooses the right that applies to us, and one before or behind it that does not. */
static void choose_rights(struct stag_store_right r[2], int way)
{
	const struct stag_store_right any = {.who = far ? STAG_STORE_REMOTE : STAG_STORE_LOCAL},
				      elsewhere = {.who = far ? STAG_STORE_LOCAL
							      : STAG_STORE_REMOTE},
				      me = {.who = STAG_STORE_USER, .id = geteuid()},
				      other = {.who = STAG_STORE_USER, .id = geteuid() + 1},
				      my_group = {.who = STAG_STORE_GROUP, .id = getegid()},
				      other_group = {.who = STAG_STORE_GROUP, .id = 4000000};
	const struct stag_store_right near_ways[WAYS][2] = {
		{any, any},	    {elsewhere, any},		{me, any},
		{other, me},	    {my_group, other},		{other_group, any},
		{of_secret(), any}, {of_net("0.0.0.0", 0), me},
	};
	const struct stag_store_right far_ways[WAYS][2] = {
		{any, any},
		{elsewhere, any},
		{of_net("127.0.0.0", 8), any},
		{of_net("127.0.0.1", 32), any},
		{of_net("10.0.0.0", 8), any},
		{of_secret(), any},
		{me, any},
		{my_group, of_net("0.0.0.0", 0)},
	};

	memcpy(r, far ? far_ways[way] : near_ways[way], 2 * sizeof(*r));
}

/*
 * Returns whether the first of the two applies to us: then the other grants all, and must not
 * count.
 */
static bool first_decides(int way)
{
	return far ? way == 0 || way == 2 || way == 3 : way == 0 || way == 2 || way == 4;
}

static void open_many(struct stage *s)
{
	struct stag_store_right r[2];
	char name[16];

	stage_open(s, far);
	for (int i = 0; i < PARTITIONS; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		add(s->store, name, 64 * KIB);
		choose_rights(r, i / 3);
		r[0].access = first_decides(i / 3) ? access_of(i) : STAG_STORE_WRITE;
		r[1].access = first_decides(i / 3) ? STAG_STORE_WRITE : access_of(i);
		set_rights(s, name, r, 2);
	}
}

/* Forbidden operations, each on a connection of its own: all of them end it. */
static void forbidden_write(struct user *u)
{
	assert_int_not_equal(do_write(u, dice(16) * 4096, "bad", 3), IBV_WC_SUCCESS);
}

static void forbidden_atomic(struct user *u)
{
	assert_int_not_equal(do_add(u, dice(16) * 4096, 1), IBV_WC_SUCCESS);
}

static void beyond_the_end(struct user *u)
{
	assert_int_not_equal(do_read(u, 64 * KIB - dice(8), 8 + (uint32_t)dice(64)),
			     IBV_WC_SUCCESS);
}

static void wrong_key(struct user *u)
{
	u->e->rkey ^= 1 + (uint32_t)dice(0xfffffffe);
	assert_int_not_equal(do_read(u, 0, 8), IBV_WC_SUCCESS);
}

static void (*const forbidden[])(struct user *u) = {forbidden_write, forbidden_atomic,
						    beyond_the_end, wrong_key};

static void forbidden_operations_are_always_refused(void **state)
{
	unsigned long tries = scaled(100); /* of each kind; 1,000 in the long form */
	struct stage s;
	struct user u, neighbour;
	char name[16];

	open_many(&s);
	enter(&neighbour, &s, "p2"); /* a connected user makes further connections quicker */
	for (unsigned long n = 0; n < tries; n++) {
		snprintf(name, sizeof(name), "p%d", 3 * (int)dice(PARTITIONS / 3));
		assert_int_equal(try_enter(&u, &s, name, NULL), EACCES);
		for (size_t kind = 0; kind < sizeof(forbidden) / sizeof(forbidden[0]); kind++) {
			snprintf(name, sizeof(name), "p%d", 3 * (int)dice(PARTITIONS / 3) + 1);
			enter(&u, &s, name);
			forbidden[kind](&u);
			leave(&u);
		}
	}
	leave(&neighbour);
	for (int i = 0; i < PARTITIONS; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		assert_true(is_zero_at(s.path, find(s.store, name).offset, 64 * KIB));
	}
	stage_close(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_bytes_are_read_back),
		cmocka_unit_test(access_behind_the_end_is_refused),
		cmocka_unit_test(a_refused_connection_gets_the_reason),
		cmocka_unit_test(a_reader_cannot_write),
		cmocka_unit_test(a_revoked_right_is_refused),
		cmocka_unit_test(removing_a_partition_by_force_fails_its_users_writes),
		cmocka_unit_test(added_space_is_usable_without_reconnecting),
		cmocka_unit_test(a_missing_right_is_refused_like_a_wrong_key),
		cmocka_unit_test(refusals_are_logged),
		cmocka_unit_test(forbidden_operations_are_always_refused),
	};

	log_to_memory(argv);
	far = argc > 1 && strcmp(argv[1], "far") == 0;
	dice_start();
	return cmocka_run_group_tests_name(far ? "far" : "near", tests, NULL, NULL);
}
