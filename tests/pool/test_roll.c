// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_roll.c - the roll (the pool's membership record): its text form, and its file, which processes race to
 * change and are killed while they do.
 *
 * `test_pool_roll caught` is for a build with a deliberate fault: it succeeds if a test fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "dice.h"
#include "pool/role/roll.h"
#include "pool/role/roll_where.h"

static struct roll a_roll(void)
{
	struct roll r = {.epoch = 7, .base = 41, .primary = 2, .in_sync = 1 << 2 | 1 << 0};

	memset(r.uuid, 0xa5, sizeof(r.uuid));
	r.members[0] = (struct roll_member){.name = "ant", .address = "[::1]:4791", .order = 3};
	r.members[2] = (struct roll_member){.name = "bee", .address = "bee.example:1"};
	return r;
}

/* ---- as text ------------------------------------------------------------------------- */

static void written_roll_is_read_back(void **state)
{
	struct roll r = a_roll(), again;
	char text[ROLL_MAX_TEXT];
	const char *why;
	uint64_t revision;
	int len = roll_to_text(&r, 12, text, sizeof(text));

	assert_true(len > 0);
	assert_int_equal(roll_from_text(text, (size_t)len, &again, &revision, &why), 0);
	assert_memory_equal(&again, &r, sizeof(r));
	assert_int_equal(revision, 12);
	/* A person finds the primary's name and the pool's UUID in the text. */
	assert_non_null(strstr(text, "\"primary\": \"bee\""));
	assert_non_null(strstr(text, "a5a5a5a5-a5a5"));
}

static void the_longest_roll_fits_its_buffer(void **state)
{
	struct roll r = {.epoch = INT64_MAX, .base = INT64_MAX, .in_sync = 0xff};
	char text[ROLL_MAX_TEXT];

	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++) {
		memset(r.members[s].name, 'a' + (int)s, ROLL_NAME_LEN - 1);
		memset(r.members[s].address, 'x', ROLL_ADDRESS_LEN - 1);
		r.members[s].order = UINT32_MAX;
	}
	assert_true(roll_is_valid(&r));
	assert_true(roll_to_text(&r, INT64_MAX, text, sizeof(text)) > 0);
	assert_int_equal(roll_to_text(&r, 1, text, 100), -ENOSPC);
}

/* A truncated text is rejected; a text with random bytes changed is rejected or gives a valid roll. */
static void damaged_text_is_rejected_or_a_valid_roll(void **state)
{
	static const char marks[] = " \"0:,{}[]x9-n";
	struct roll r = a_roll(), again;
	char text[ROLL_MAX_TEXT];
	const char *why;
	int len = roll_to_text(&r, 12, text, sizeof(text));

	for (int cut = 0; cut < len - 2; cut++)
		assert_int_equal(roll_from_text(text, (size_t)cut, &again, NULL, &why), -EBADMSG);
	for (unsigned long i = 0; i < scaled(3000); i++) {
		char damaged[ROLL_MAX_TEXT];

		memcpy(damaged, text, (size_t)len);
		for (uint64_t n = 1 + dice(3); n; n--)
			damaged[dice((uint64_t)len)] =
				one_in(2) ? (char)dice(256) : marks[dice(sizeof(marks) - 1)];
		if (roll_from_text(damaged, (size_t)len, &again, NULL, &why) == 0)
			assert_true(roll_is_valid(&again));
	}
}

static void a_contradictory_roll_is_not_valid(void **state)
{
	struct roll r;

	r = a_roll(), r.epoch = 0;
	assert_false(roll_is_valid(&r));
	r = a_roll(), r.primary = 1;
	assert_false(roll_is_valid(&r));
	r = a_roll(), r.primary = ROLL_MAX_NODES;
	assert_false(roll_is_valid(&r));
	r = a_roll(), r.in_sync = 1;
	assert_false(roll_is_valid(&r));
	r = a_roll(), r.in_sync |= 1 << 1;
	assert_false(roll_is_valid(&r));
	r = a_roll(), r.in_sync |= 1 << ROLL_MAX_NODES;
	assert_false(roll_is_valid(&r));
	r = a_roll(), strcpy(r.members[2].name, "ant");
	assert_false(roll_is_valid(&r));
	r = a_roll(), strcpy(r.members[2].name, "an ant");
	assert_false(roll_is_valid(&r));
	r = a_roll(), r.members[2].address[0] = '\0';
	assert_false(roll_is_valid(&r));
	r = a_roll(), memset(r.members[2].name, 'a', ROLL_NAME_LEN);
	assert_false(roll_is_valid(&r));
}

/* Smallest order, then lowest seat, and only nodes that are in sync. */
static void next_primary_is_chosen_by_order_then_seat(void **state)
{
	struct roll r = {.primary = 0, .in_sync = 0x1f};
	const uint32_t orders[5] = {0, 3, 1, 2, 1};

	for (int s = 0; s < 5; s++)
		r.members[s].order = orders[s];
	assert_int_equal(roll_next(&r, 0), 2);
	assert_int_equal(roll_before(&r, 2, 0), 0);
	assert_int_equal(roll_before(&r, 4, 0), 1);
	assert_int_equal(roll_before(&r, 3, 0), 2);
	assert_int_equal(roll_before(&r, 1, 0), 3);
	r.in_sync &= ~ROLL_BIT(2);
	assert_int_equal(roll_next(&r, 0), 4);
	assert_int_equal(roll_next(&r, 4), 0);
	r.in_sync = ROLL_BIT(0);
	assert_int_equal(roll_next(&r, 0), -ENOENT);
}

static void etcd_addresses_are_parsed(void **state)
{
	struct roll_where w;
	const char *why;
	static const char *const wrong[] = {
		"etcd:/h:1/k",		"etcd://h/k",
		"etcd://h:x/k",		"etcd://:1/k",
		"etcd://h:1",		"etcd://h:1/",
		"etcd://h:1,/k",	"etcd://h:1/k?x=1",
		"etcd://h:1/k?user=u",	"etcd://h:1/k?timeout=0",
		"etcd://h:1/k?ca=f",	"etcds://h:1/k?cert=c",
		"etcd://h:1/k?timeout", "etcd:///k",
		"etcd://h:1/k?user=",
	};

	assert_int_equal(roll_where_parse("etcds://a:1,[::1]:23/pools/p?ca=/c&cert=/d&key=/"
					  "e&user=u&password-file=/f&timeout=250",
					  &w, &why),
			 0);
	assert_true(w.tls);
	assert_int_equal(w.num_hosts, 2);
	assert_string_equal(w.hosts[1], "[::1]:23");
	assert_string_equal(w.key, "pools/p");
	assert_string_equal(w.cert_key, "/e");
	assert_int_equal(w.timeout_ms, 250);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (roll_where_parse(wrong[i], &w, &why) == 0)
			fail_msg("%s", wrong[i]);
}

/* A password crosses the network in the clear only if that is asked for. */
static void a_password_is_for_tls_or_this_machine(void **state)
{
#define ANN "/k?user=ann&password-file=/f"
	static const char *const wrong[] = {
		"etcd://h:1" ANN,
		"etcd://127.0.0.1:1,h:1" ANN,
		"etcd://127.0.0.1.example:1" ANN,
		"etcd://localhost.example:1" ANN,
		"etcd://1270.0.0.1:1" ANN,
		"etcd://[::2]:1" ANN,
		"etcd://h:1" ANN "&plain-password=no",
		"etcd://h:1" ANN "&plain-password=",
		"etcds://h:1" ANN "&plain-password=yes",
		"etcd://h:1/k?plain-password=yes",
	};
	static const char *const right[] = {
		"etcds://h:1" ANN,
		"etcd://127.0.0.1:1,[::1]:2,localhost:3,127.9.8.7:4" ANN,
		"etcd://h:1" ANN "&plain-password=yes",
		"etcd://h:1/k",
	};
#undef ANN
	struct roll_where w;
	const char *why;

	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (roll_where_parse(wrong[i], &w, &why) == 0)
			fail_msg("%s", wrong[i]);
	for (unsigned int i = 0; i < sizeof(right) / sizeof(right[0]); i++)
		if (roll_where_parse(right[i], &w, &why) != 0)
			fail_msg("%s: %s", right[i], why);
}

/* ---- in a file ------------------------------------------------------------------------- */

static char dir[] = "/dev/shm/stag-roll-XXXXXX";
static char path[64], where[80];

static int make_dir(void **state)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/roll", dir);
	snprintf(where, sizeof(where), "file:%s", path);
	return 0;
}

static int remove_dir(void **state)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* A file of a password that others may read, or that another user owns, is not used. */
static void a_password_file_is_private(void **state)
{
	char file[80], url[256];
	struct rolls *rolls;
	int fd;

	snprintf(file, sizeof(file), "%s/password", dir);
	snprintf(url, sizeof(url), "etcds://127.0.0.1:1/k?user=ann&password-file=%s", file);
	fd = open(file, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(fd, "right\n", 6), 6);
	for (mode_t shared = 1; shared <= 040; shared <<= 1) {
		fchmod(fd, 0600 | shared);
		assert_int_equal(rolls_open(url, &rolls), -EPERM);
	}
	fchmod(fd, 0600);
	assert_int_equal(rolls_open(url, &rolls), 0);
	rolls_close(rolls);
	if (fchown(fd, 12345, (gid_t)-1) == 0)
		assert_int_equal(rolls_open(url, &rolls), -EPERM);
	close(fd);
}

/* Waits for the next answer or notification. */
static struct roll_answer next_roll_answer(struct rolls *rolls)
{
	struct pollfd fd = {.fd = rolls_fd(rolls), .events = POLLIN};
	struct roll_answer a;

	while (!rolls_next(rolls, &a))
		poll(&fd, 1, -1);
	return a;
}

static struct roll_answer read_now(struct rolls *rolls)
{
	assert_int_equal(rolls_read(rolls, 5), 0);
	return next_roll_answer(rolls);
}

static struct roll_answer swap_now(struct rolls *rolls, uint64_t revision, const struct roll *roll)
{
	assert_int_equal(rolls_swap(rolls, 6, revision, roll), 0);
	return next_roll_answer(rolls);
}

static void a_file_is_swapped_by_revision(void **state)
{
	struct roll r = a_roll();
	struct roll_answer a;
	struct rolls *rolls;

	assert_int_equal(rolls_open(where, &rolls), 0);
	a = read_now(rolls);
	assert_int_equal(a.result, ROLL_READ);
	assert_int_equal(a.id, 5);
	assert_int_equal(a.revision, 0);

	a = swap_now(rolls, 0, &r);
	assert_int_equal(a.result, ROLL_WON);
	assert_int_equal(a.revision, 1);
	r.epoch++;
	assert_int_equal(swap_now(rolls, 0, &r).result, ROLL_LOST);
	assert_int_equal(swap_now(rolls, 2, &r).result, ROLL_LOST);
	assert_int_equal(swap_now(rolls, 1, &r).result, ROLL_WON);

	a = read_now(rolls);
	assert_int_equal(a.revision, 2);
	assert_memory_equal(&a.roll, &r, sizeof(r));
	rolls_close(rolls);
}

static void watch_reports_changes_of_others(void **state)
{
	struct roll r = a_roll();
	struct rolls *one, *other;
	struct roll_answer a;

	assert_int_equal(rolls_open(where, &one), 0);
	assert_int_equal(rolls_open(where, &other), 0);
	assert_int_equal(rolls_watch(one), 0);
	for (uint64_t i = 0; i < 5; i++) {
		r.epoch++;
		assert_int_equal(swap_now(other, i, &r).result, ROLL_WON);
		a = next_roll_answer(one);
		assert_int_equal(a.result, ROLL_CHANGED);
		assert_int_equal(a.revision, i + 1);
		assert_int_equal(a.roll.epoch, r.epoch);
	}
	rolls_close(one);
	rolls_close(other);
}

static void damaged_file_is_reported_and_not_replaced(void **state)
{
	struct roll r = a_roll();
	struct rolls *rolls;
	FILE *f;

	assert_int_equal(rolls_open(where, &rolls), 0);
	assert_int_equal(swap_now(rolls, 0, &r).result, ROLL_WON);
	f = fopen(path, "r+");
	fputs("{\"stag-pool\"", f);
	fputc('!', f);
	fclose(f);
	assert_int_equal(read_now(rolls).result, ROLL_UNKNOWN);
	assert_int_equal(read_now(rolls).error, -EBADMSG);
	assert_int_equal(swap_now(rolls, 1, &r).result, ROLL_UNKNOWN);
	rolls_close(rolls);
}

/* Adds one to the roll's base until it is killed; writes the revision of each swap that it won to the pipe. */
static void race(int wins)
{
	struct rolls *rolls;
	struct roll r = a_roll();
	uint64_t revision = 0;

	if (rolls_open(where, &rolls) != 0)
		_exit(2);
	for (;;) {
		struct roll_answer a = swap_now(rolls, revision, &r);

		if (a.result == ROLL_WON) {
			if (write(wins, &a.revision, sizeof(a.revision)) != sizeof(a.revision))
				_exit(0);
			revision = a.revision;
		} else {
			a = read_now(rolls);
			r = a.revision ? a.roll : r;
			revision = a.revision;
		}
		r.base++;
	}
}

static pid_t start_racer(int wins[2])
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(wins[0]);
		race(wins[1]);
	}
	return pid;
}

/* Racers are killed at random moments: each revision is won once, and the file is intact at all times. */
static void racers_that_are_killed_win_each_revision_once(void **state)
{
	unsigned long kills = scaled(60), seen = 0;
	static uint8_t won[1 << 20];
	struct rolls *rolls;
	struct roll_answer a;
	uint64_t revision;
	pid_t pids[2];
	int wins[2];

	memset(won, 0, sizeof(won));
	assert_int_equal(pipe(wins), 0);
	for (int i = 0; i < 2; i++)
		pids[i] = start_racer(wins);
	for (unsigned long k = 0; k < kills; k++) {
		unsigned int i = (unsigned int)dice(2);

		/* Let some swaps be won first. */
		for (uint64_t n = 1 + dice(20); n; n--) {
			assert_int_equal(read(wins[0], &revision, sizeof(revision)),
					 sizeof(revision));
			assert_true(revision < sizeof(won));
			assert_int_equal(won[revision]++, 0);
			seen++;
		}
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		pids[i] = start_racer(wins);
	}
	for (int i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	close(wins[1]);
	while (read(wins[0], &revision, sizeof(revision)) == sizeof(revision))
		assert_int_equal(won[revision]++, 0), seen++;
	close(wins[0]);
	/* `seen` misses only the winners that were killed before they reported. */
	assert_int_equal(rolls_open(where, &rolls), 0);
	a = read_now(rolls);
	assert_int_equal(a.result, ROLL_READ);
	assert_in_range(a.revision, seen, seen + kills + 2);
	assert_int_equal(a.revision, a.roll.base - a_roll().base + 1);
	rolls_close(rolls);
}

/* While a stopped process holds the lock, no process can swap, but all can read. */
static void a_held_lock_blocks_swaps_only(void **state)
{
	struct roll r = a_roll();
	struct rolls *rolls;
	char lock[80];
	int fd;

	assert_int_equal(rolls_open(where, &rolls), 0);
	assert_int_equal(swap_now(rolls, 0, &r).result, ROLL_WON);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	fd = open(lock, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(swap_now(rolls, 1, &r).result, ROLL_UNKNOWN);
	assert_int_equal(read_now(rolls).revision, 1);
	close(fd);
	assert_int_equal(swap_now(rolls, 1, &r).result, ROLL_WON);
	rolls_close(rolls);
}

/* A file size limit of 0 stands in for a full disk: the swap fails, and the roll stays as it was. */
static void a_full_disk_leaves_the_roll_as_it_was(void **state)
{
	struct rlimit none = {0, RLIM_INFINITY}, before;
	struct roll r = a_roll();
	struct rolls *rolls;

	assert_int_equal(rolls_open(where, &rolls), 0);
	assert_int_equal(swap_now(rolls, 0, &r).result, ROLL_WON);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	assert_int_equal(swap_now(rolls, 1, &r).result, ROLL_UNKNOWN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(read_now(rolls).revision, 1);
	assert_int_equal(swap_now(rolls, 1, &r).result, ROLL_WON);
	rolls_close(rolls);
}

static void on_abort(int signal)
{
	_exit(remove_dir(NULL));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_roll_is_read_back),
		cmocka_unit_test(the_longest_roll_fits_its_buffer),
		cmocka_unit_test(damaged_text_is_rejected_or_a_valid_roll),
		cmocka_unit_test(a_contradictory_roll_is_not_valid),
		cmocka_unit_test(next_primary_is_chosen_by_order_then_seat),
		cmocka_unit_test(etcd_addresses_are_parsed),
		cmocka_unit_test(a_password_is_for_tls_or_this_machine),
		cmocka_unit_test_setup_teardown(a_password_file_is_private, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(a_file_is_swapped_by_revision, make_dir,
						remove_dir),
		cmocka_unit_test_setup_teardown(watch_reports_changes_of_others, make_dir,
						remove_dir),
		cmocka_unit_test_setup_teardown(damaged_file_is_reported_and_not_replaced, make_dir,
						remove_dir),
		cmocka_unit_test_setup_teardown(a_held_lock_blocks_swaps_only, make_dir,
						remove_dir),
		cmocka_unit_test_setup_teardown(a_full_disk_leaves_the_roll_as_it_was, make_dir,
						remove_dir),
		cmocka_unit_test_setup_teardown(racers_that_are_killed_win_each_revision_once,
						make_dir, remove_dir),
	};

	dice_start();
	if (argc > 1 && strcmp(argv[1], "caught") == 0)
		signal(SIGABRT, on_abort);
	return cmocka_run_group_tests(tests, NULL, NULL) != (argc > 1);
}
