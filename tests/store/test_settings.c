// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_settings.c - settings of a partition change while its users are connected: near, and far
 * with the argument "far".
 *
 * The test intercepts the calls from the store to the adapter. That the adapter obeys them is
 * tested in tests/adapter.
 */
#include "stage.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/export.h"
#include "dice.h"
#include "stag/stagdv.h"

#define HOUR_MS 3600000u

/* If another thread of the parent was in malloc() at the fork, a sanitizer's child deadlocks. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FORKS_BADLY true
#else
#define FORKS_BADLY false
#endif

static bool far;

/* ---- between the store and the adapter ------------------------------------------------ */

static _Atomic uint32_t told_relax, told_level; /* last values set for a region */

STAG_EXPORT int stagdv_modify_store_mr(struct ibv_mr *mr, const struct stagdv_store_attr *attr,
				       int mask)
{
	int (*next)(struct ibv_mr *, const struct stagdv_store_attr *, int) = (int (*)(
		struct ibv_mr *, const struct stagdv_store_attr *, int))dlsym(RTLD_NEXT, __func__);
	int rc = next(mr, attr, mask);

	if (rc == 0 && (mask & STAGDV_STORE_LEVEL))
		atomic_store(&told_level, attr->level);
	if (rc == 0 && (mask & STAGDV_STORE_RELAX))
		atomic_store(&told_relax, attr->relax);
	return rc;
}

/* Returns the attributes in force for this user; far, for the server's side of the connection. */
static struct stagdv_store_qp_attr current_attr(const struct user *u)
{
	struct stagdv_store_qp_attr attr = {.relax = atomic_load(&told_relax),
					    .level = atomic_load(&told_level)};

	if (!far)
		assert_int_equal(stagdv_query_store_qp(u->e->qp, &attr, sizeof(attr)), 0);
	return attr;
}

/* ---- a store with partitions ----------------------------------------------------------------- */

static void open_shop(struct stage *s)
{
	atomic_store(&told_relax, 0);
	atomic_store(&told_level, 0);
	stage_open(s, far);
	add(s->store, "goods", 64 * KIB);
	add(s->store, "bell", 64 * KIB);
	allow(s, "goods", STAG_STORE_WRITE);
	allow(s, "bell", STAG_STORE_READ);
}

static void change_partition(struct stage *s, unsigned int what, uint32_t value)
{
	struct stag_store_partition p = find(s->store, "goods");

	if (what == STAG_STORE_CHANGE_RELAX)
		p.relax = value;
	if (what == STAG_STORE_CHANGE_LEVEL)
		p.level = value;
	if (what == STAG_STORE_CHANGE_CACHE)
		p.cache_ms = value;
	if (stag_store_change(s->store, &p, what) != 0)
		fail_msg("%s", stag_store_error());
}

/*
 * Waits until all users are notified: that happens in the order in which they connected, and this
 * last one is disconnected.
 */
static void wait_until_all_are_notified(struct stage *s, struct user *last)
{
	allow(s, "bell", STAG_STORE_NONE);
	while (do_read(last, 0, 8) == IBV_WC_SUCCESS)
		usleep(1000);
	leave(last);
}

/* ---- rights ---------------------------------------------------------------------------------- */

static void a_granted_right_takes_effect(void **state)
{
	struct user u, last;
	struct stage s;

	open_shop(&s);
	allow(&s, "goods", STAG_STORE_READ);
	enter(&u, &s, "goods");
	enter(&last, &s, "bell");
	assert_int_equal(u.e->access, STAG_STORE_READ);
	allow(&s, "goods", STAG_STORE_WRITE);
	wait_until_all_are_notified(&s, &last);
	assert_int_equal(do_write(&u, 100, "mine", 4), IBV_WC_SUCCESS);
	assert_int_equal(do_add(&u, 8, 1), IBV_WC_SUCCESS);
	assert_true(reads_as(&u, 100, "mine", 4));
	leave(&u);
	stage_close(&s);
}

static void a_user_without_rights_cannot_read(void **state)
{
	struct stage s;
	struct user u;

	open_shop(&s);
	enter(&u, &s, "goods");
	assert_int_equal(do_read(&u, 0, 8), IBV_WC_SUCCESS);
	allow(&s, "goods", STAG_STORE_NONE);
	while (do_read(&u, 0, 8) == IBV_WC_SUCCESS)
		usleep(1000);
	leave(&u);
	assert_int_equal(try_enter(&u, &s, "goods", NULL), EACCES);
	stage_close(&s);
}

/* ---- order, level, cache --------------------------------------------------------------------- */

static void users_follow_the_new_order(void **state)
{
	struct stage s;
	struct user u;

	open_shop(&s);
	enter(&u, &s, "goods");
	assert_int_equal(current_attr(&u).relax, 0);
	change_partition(&s, STAG_STORE_CHANGE_RELAX, STAG_STORE_ANY_PROCESSING);
	while (current_attr(&u).relax != STAG_STORE_ANY_PROCESSING)
		usleep(1000);
	assert_int_equal(current_attr(&u).level, STAG_STORE_VISIBLE);
	change_partition(&s, STAG_STORE_CHANGE_RELAX, 0);
	while (current_attr(&u).relax != 0)
		usleep(1000);
	assert_int_equal(do_write(&u, 0, "still here", 10), IBV_WC_SUCCESS);
	leave(&u);
	stage_close(&s);
}

static void users_follow_the_new_level(void **state)
{
	struct stage s;
	struct user u;

	open_shop(&s);
	enter(&u, &s, "goods");
	assert_int_equal(current_attr(&u).level, STAG_STORE_VISIBLE);
	change_partition(&s, STAG_STORE_CHANGE_LEVEL, STAG_STORE_DURABLE);
	while (current_attr(&u).level != STAG_STORE_DURABLE)
		usleep(1000);
	assert_int_equal(current_attr(&u).relax, 0);
	change_partition(&s, STAG_STORE_CHANGE_LEVEL, STAG_STORE_VISIBLE);
	while (current_attr(&u).level != STAG_STORE_VISIBLE)
		usleep(1000);
	assert_int_equal(do_write(&u, 0, "still here", 10), IBV_WC_SUCCESS);
	leave(&u);
	stage_close(&s);
}

/* Changes the file itself, bypassing every cache. Returns whether the old bytes are still read. */
static bool is_cached(const struct stage *s, struct user *u)
{
	uint64_t offset = find(s->store, "goods").offset;
	int fd = open(s->path, O_RDWR | O_CLOEXEC);
	static uint64_t word;
	uint64_t before;
	bool cached;

	assert_int_equal(do_read(u, 0, 8), IBV_WC_SUCCESS);
	memcpy(&before, u->mem, 8);
	word++;
	assert_int_equal(pwrite(fd, &word, 8, (off_t)offset), 8);
	close(fd);
	assert_int_equal(do_read(u, 0, 8), IBV_WC_SUCCESS);
	cached = memcmp(u->mem, &before, 8) == 0;
	assert_true(cached || memcmp(u->mem, &word, 8) == 0);
	return cached;
}

static void users_follow_the_new_cache_time(void **state)
{
	struct stage s;
	struct user u;

	open_shop(&s);
	enter(&u, &s, "goods");
	assert_false(is_cached(&s, &u));
	change_partition(&s, STAG_STORE_CHANGE_CACHE, HOUR_MS);
	while (!is_cached(&s, &u))
		usleep(1000);
	change_partition(&s, STAG_STORE_CHANGE_CACHE, 0);
	while (is_cached(&s, &u))
		usleep(1000);
	leave(&u);
	stage_close(&s);
}

static struct stag_store_counters counted(const struct stage *s, const struct user *u)
{
	struct stag_store_counters c;

	memset(&c, 0xff, sizeof(c));
	assert_int_equal(s->server ? stag_store_query_server(s->server, &c, sizeof(c))
				   : stag_store_query_endpoint(u->e, &c, sizeof(c)),
			 0);
	return c;
}

/* Cache hits do not read the medium. Far, the server's counters are queried. */
static void cache_hits_are_counted(void **state)
{
	struct stag_store_counters before, after, part = {.comp_mask = 7, .writes = 7};
	struct stage s;
	struct user u;

	open_shop(&s);
	change_partition(&s, STAG_STORE_CHANGE_CACHE, HOUR_MS);
	enter(&u, &s, "goods");
	assert_int_equal(do_read(&u, 0, 8), IBV_WC_SUCCESS);
	before = counted(&s, &u);
	assert_true(before.cache_misses > 0 && before.cache_bytes > 0);
	assert_int_equal(do_read(&u, 0, 8), IBV_WC_SUCCESS);
	after = counted(&s, &u);
	assert_true(after.cache_hits > before.cache_hits);
	assert_int_equal(after.cache_misses, before.cache_misses);
	assert_int_equal(after.reads, before.reads + 1);
	assert_int_equal(after.read_times.count, before.read_times.count + 1);
	assert_true(after.read_times.sum_ns > before.read_times.sum_ns);
	assert_int_equal(after.comp_mask, 0);
	if (s.server) {
		assert_int_equal(stag_store_query_endpoint(u.e, &part, sizeof(part)), EOPNOTSUPP);
		assert_int_equal(part.comp_mask, 7);
	} else {
		assert_int_equal(stag_store_query_endpoint(u.e, &part, 16), 0);
		assert_int_equal(part.reads, after.reads);
		assert_int_equal(part.writes, 7);
	}
	leave(&u);
	stage_close(&s);
}

/*
 * Near, a user may have requested other settings: those persist, whatever the partition's become.
 */
static void settings_requested_by_a_user_persist(void **state)
{
	struct stag_store_connect_attr attr = {.relax = STAG_STORE_RELAX_COMPLETIONS,
					       .level = STAG_STORE_DURABLE,
					       .flags = STAG_STORE_HAS_LEVEL};
	struct stage s;
	struct user u;

	if (far)
		return;
	open_shop(&s);
	assert_int_equal(try_enter(&u, &s, "goods", &attr), 0);
	change_partition(&s, STAG_STORE_CHANGE_LEVEL, STAG_STORE_ACCEPTED);
	change_partition(&s, STAG_STORE_CHANGE_RELAX, STAG_STORE_RELAX_READS);
	while (current_attr(&u).relax != (STAG_STORE_RELAX_READS | STAG_STORE_RELAX_COMPLETIONS))
		usleep(1000);
	assert_int_equal(current_attr(&u).level, STAG_STORE_DURABLE);
	leave(&u);
	stage_close(&s);
}

/* ---- processes ------------------------------------------------------------------------------- */

/*
 * Destroys the endpoint inherited from the parent, and creates one of its own, which follows the
 * table, too.
 */
static int run_as_child(struct stage *s, struct user *inherited)
{
	struct user u;

	alarm(60);
	leave(inherited);
	enter(&u, s, "goods");
	if (do_write(&u, 0, "child", 5) != IBV_WC_SUCCESS)
		return 1;
	while (current_attr(&u).level != STAG_STORE_DURABLE)
		usleep(1000);
	leave(&u);
	return 0;
}

static void a_child_has_endpoints_of_its_own(void **state)
{
	struct stage s;
	struct user u;
	pid_t child;
	int status;

	if (far || FORKS_BADLY)
		return;
	open_shop(&s);
	enter(&u, &s, "goods");
	child = fork();
	if (child == 0)
		_exit(run_as_child(&s, &u));
	while (!reads_as(&u, 0, "child", 5))
		usleep(1000);
	change_partition(&s, STAG_STORE_CHANGE_LEVEL, STAG_STORE_DURABLE);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	while (current_attr(&u).level != STAG_STORE_DURABLE)
		usleep(1000);
	assert_int_equal(do_write(&u, 0, "parent", 6), IBV_WC_SUCCESS);
	leave(&u);
	stage_close(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_granted_right_takes_effect),
		cmocka_unit_test(a_user_without_rights_cannot_read),
		cmocka_unit_test(users_follow_the_new_order),
		cmocka_unit_test(users_follow_the_new_level),
		cmocka_unit_test(users_follow_the_new_cache_time),
		cmocka_unit_test(cache_hits_are_counted),
		cmocka_unit_test(settings_requested_by_a_user_persist),
		cmocka_unit_test(a_child_has_endpoints_of_its_own),
	};

	far = argc > 1 && strcmp(argv[1], "far") == 0;
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	dice_start();
	return cmocka_run_group_tests_name(far ? "far" : "near", tests, NULL, NULL);
}
