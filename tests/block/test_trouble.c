// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_trouble.c - faults, with real components: the adapter, files and stores, our target and our initiator, over each
 * transport. One of them is killed, there are too many of them, or a unit changes under load.
 *
 * The process that is killed executes this program, too (a process that has the adapter cannot fork): with "serve" it is
 * a target, with "use" or "withhold" an initiator.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "await.h"
#include "base/clock.h"
#include "block/unit/lun.h"
#include "block/target/target.h"
#include "dice.h"

#define TARGET	    "iqn.2026-01.x:t"
#define SIZE	    (8u << 20)
#define PATIENCE_MS 60000
#define NEWS	    3 /* a child's descriptor for its reports */
#define WORD	    160

static const struct way {
	enum stag_block_transport kind;
	const char *scheme;
} tcp = {STAG_BLOCK_TCP, "iscsi"}, iser = {STAG_BLOCK_ISER, "iser"},
  one_shot = {STAG_BLOCK_ONE_SHOT, "stag"};

static char path[64], second[64];
static uint16_t port;

static void make_file(char *name, size_t size)
{
	int fd;

	strcpy(name, "/dev/shm/stag-trouble-XXXXXX");
	fd = mkstemp(name);
	assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	close(fd);
}

static const char *url_of(const struct way *way, unsigned int lun)
{
	static char url[WORD];

	snprintf(url, sizeof(url), "%s://127.0.0.1:%u/" TARGET "/%u", way->scheme, port, lun);
	return url;
}

static struct stag_block *open_unit(const struct way *way, unsigned int lun)
{
	struct stag_block_attr attr = {.transport = way->kind};
	struct stag_block *b = stag_block_open(url_of(way, lun), &attr);

	if (!b)
		fail_msg("%s", stag_block_error());
	return b;
}

/* ---- children --------------------------------------------------------------------------- */

struct child {
	pid_t pid;
	int news;
};

static struct child spawn(const char *role, const char *a, const char *b, const char *c)
{
	char *argv[] = {"trouble", (char *)role, (char *)a, (char *)b, (char *)c, NULL};
	posix_spawn_file_actions_t actions;
	struct child child;
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], NEWS);
	assert_int_equal(posix_spawn(&child.pid, "/proc/self/exe", &actions, NULL, argv, environ),
			 0);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	child.news = ends[0];
	return child;
}

static void end_child_by(struct child *c, int signal)
{
	kill(c->pid, signal);
	waitpid(c->pid, NULL, 0);
	close(c->news);
}

static void end_child(struct child *c)
{
	end_child_by(c, SIGKILL);
}

static void report_number(uint16_t number)
{
	if (write(NEWS, &number, sizeof(number)) != sizeof(number))
		_exit(2);
}

static void may_have_many_files(void)
{
	struct rlimit r;

	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}

static void no_log(void *arg, const char *line)
{
}

/* serve PATH PORT: serves until SIGTERM or SIGKILL. */
static int serve_until_killed(char **argv)
{
	struct stag_block_target_attr attr = {.name = TARGET,
					      .address = "127.0.0.1",
					      .port = (uint16_t)atoi(argv[3]),
					      .log = no_log};
	struct stag_block_lun lun = {.lun = 1, .where = argv[2]};
	struct stag_block_target *t;
	sigset_t term;
	int signal;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	attr.flags = attr.port ? 0 : STAG_BLOCK_ANY_PORT;
	t = stag_block_target_start(&attr);
	if (!t || stag_block_target_add(t, &lun) != 0) {
		fprintf(stderr, "%s\n", stag_block_error());
		return 1;
	}
	report_number(stag_block_target_port(t));
	sigwait(&term, &signal);
	stag_block_target_stop(t);
	return 0;
}

#define BUSY_DEPTH 16
#define BUSY_MAX   (256u << 10)

static int be_busy(struct stag_block *b)
{
	static uint8_t memory[BUSY_DEPTH][BUSY_MAX];
	struct iovec iov;
	struct stag_block_io io = {.iov = &iov, .n_iov = 1};
	struct stag_block_done done;

	for (uintptr_t i = 0;; i++) {
		if (i >= BUSY_DEPTH) {
			while (stag_block_poll(b, &done, 1) == 0)
				if (stag_block_wait(b, PATIENCE_MS) != 0)
					return 1;
			io.user = done.user;
		} else {
			io.user = (void *)i;
		}
		io.op = one_in(2) ? STAG_BLOCK_READ : STAG_BLOCK_WRITE;
		io.length = 512 * dice_size(BUSY_MAX / 512);
		io.offset = 512 * dice((SIZE - io.length) / 512 + 1);
		iov = (struct iovec){memory[(uintptr_t)io.user], io.length};
		if (stag_block_submit(b, &io) != 0)
			return 1;
	}
}

/* use URL TRANSPORT COUNT: opens so many sessions that read; 0: one busy session. */
static int run_initiators(char **argv)
{
	struct stag_block_attr attr = {.transport = (uint32_t)atoi(argv[3]), .depth = 16};
	unsigned int count = (unsigned int)atoi(argv[4]);
	static uint8_t bytes[4096];
	struct stag_block *b = NULL;

	may_have_many_files();
	for (unsigned int i = 0; i < (count ? count : 1); i++) {
		b = stag_block_open(argv[2], &attr);
		if (!b || stag_block_read(b, bytes, 0, sizeof(bytes)) != 0) {
			fprintf(stderr, "session %u: %s\n", i, stag_block_error());
			return 1;
		}
	}
	report_number((uint16_t)count);
	if (count == 0)
		return be_busy(b);
	for (;;)
		pause();
}

#define WITHHELD  16
#define UNSTOPPED 9

/* withhold URL TRANSPORT COUNT: begins many writes, and stops before it sends their data. */
static int withhold_data(char **argv)
{
	struct stag_block_attr attr = {.transport = (uint32_t)atoi(argv[3])};
	static uint8_t memory[1 << 20];
	struct iovec iov = {memory, sizeof(memory)};
	struct stag_block_io io = {
		.op = STAG_BLOCK_WRITE, .length = sizeof(memory), .iov = &iov, .n_iov = 1};
	struct stag_block *b = stag_block_open(argv[2], &attr);

	if (!b) {
		fprintf(stderr, "%s\n", stag_block_error());
		return 1;
	}
	report_number(0);
	for (int i = 0; i < WITHHELD; i++)
		if (stag_block_submit(b, &io) != 0)
			return 1;
	for (int i = 0; i < 50; i++)
		stag_block_wait(b, 2); /* sends the commands; nothing is answered yet */
	raise(SIGSTOP);
	return UNSTOPPED;
}

/* ---- a target that is killed ------------------------------------------------------------------ */

static struct child server;

static void start_server(void)
{
	char word[8];

	snprintf(word, sizeof(word), "%u", port);
	server = spawn("serve", path, word, NULL);
	assert_int_equal(read(server.news, &port, sizeof(port)), sizeof(port));
}

#define SLOTS 16
#define SLOT  (SIZE / SLOTS)

/* A part of the unit with at most one request in flight, so that its contents are known. */
static struct slot {
	uint8_t model[SLOT], memory[SLOT];
	struct stag_block_io io;
	struct iovec iov;
	bool busy;
} slots[SLOTS];

static void submit(struct stag_block *b, struct slot *s)
{
	uint64_t at = 512 * dice(SLOT / 512);

	s->io = (struct stag_block_io){.op = one_in(3) ? STAG_BLOCK_READ : STAG_BLOCK_WRITE,
				       .offset = (uint64_t)(s - slots) * SLOT + at,
				       .length = 512 * dice_size((SLOT - at) / 512),
				       .iov = &s->iov,
				       .n_iov = 1,
				       .user = s};
	s->iov = (struct iovec){s->memory, s->io.length};
	if (s->io.op == STAG_BLOCK_WRITE)
		dice_fill(s->memory, s->io.length);
	s->busy = true;
	assert_int_equal(stag_block_submit(b, &s->io), 0);
}

static void check_done(const struct stag_block_done *d)
{
	struct slot *s = d->user;
	uint8_t *model = s->model + s->io.offset % SLOT;

	assert_true(s->busy);
	s->busy = false;
	assert_int_equal(d->error, 0);
	if (s->io.op == STAG_BLOCK_WRITE)
		memcpy(model, s->memory, s->io.length);
	else
		assert_memory_equal(s->memory, model, s->io.length);
}

static unsigned int reap(struct stag_block *b)
{
	struct stag_block_done done[4];
	int n;

	while ((n = stag_block_poll(b, done, 4)) == 0)
		assert_int_equal(stag_block_wait(b, PATIENCE_MS), 0);
	for (int i = 0; i < n; i++)
		check_done(&done[i]);
	return (unsigned int)n;
}

static unsigned int busy_slots(void)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < SLOTS; i++)
		n += slots[i].busy;
	return n;
}

static void file_is_as_the_model(void)
{
	static uint8_t bytes[SLOT];
	int fd = open(path, O_RDONLY);

	for (unsigned int i = 0; i < SLOTS; i++) {
		assert_int_equal(pread(fd, bytes, SLOT, (off_t)i * SLOT), SLOT);
		assert_memory_equal(bytes, slots[i].model, SLOT);
	}
	close(fd);
}

/* Acknowledged writes are in the file; the others are repeated at the next target. */
static void no_write_is_lost_with_its_target(void **state)
{
	const struct way *way = *state;
	struct stag_block_info info;
	struct stag_block *b;

	memset(slots, 0, sizeof(slots));
	start_server();
	b = open_unit(way, 1);
	for (unsigned long kills = 0; kills < scaled(6); kills++) {
		for (unsigned long n = 20 + dice(60); n; n -= n < reap(b) ? n : 1)
			for (unsigned int i = 0; i < SLOTS; i++)
				if (!slots[i].busy)
					submit(b, &slots[i]);
		end_child_by(&server, one_in(3) ? SIGTERM : SIGKILL);
		start_server();
	}
	while (busy_slots())
		reap(b);
	assert_int_equal(stag_block_flush(b), 0); /* the target is back */
	stag_block_query(b, &info, sizeof(info));
	assert_int_equal(info.transport, way->kind);
	assert_int_equal(info.counters.lost + 1, info.counters.logins);
	assert_int_equal(info.counters.violations, 0);
	assert_int_equal(info.counters.stags_open, 0);
	stag_block_close(b);
	end_child(&server);
	file_is_as_the_model();
}

/* ---- a target here, stepped -------------------------------------------------------------------- */

static struct stag_block_target *target;

static void start_target_with(uint64_t staging)
{
	const struct stag_block_target_attr attr = {.name = TARGET,
						    .address = "127.0.0.1",
						    .flags = STAG_BLOCK_ANY_PORT,
						    .staging_bytes = staging,
						    .log = no_log};
	struct stag_block_lun unit = {.lun = 1, .where = path};
	struct lun *l = NULL;

	if (target_create(&attr, &target) != 0 || lun_open(target->units, &unit, &l) != 0)
		fail_msg("%s", stag_block_error());
	assert_int_equal(scsi_target_add(target->scsi, 1, l), 0);
	port = target->portal.port;
}

static void start_target(void)
{
	start_target_with(0);
}

static unsigned int buffers_left(void)
{
	unsigned int n = 0;

	list_for_each (it, &target->units->free_buffers)
		n++;
	return n;
}

static void step_until_empty(void)
{
	uint64_t end = clock_ns() + PATIENCE_MS * NS_PER_MS;

	while ((target->conns.count || target->sessions.count) && clock_ns() < end)
		target_step(target, 10);
	target_step(target, 0);
}

/* Checks that no session is left, and no buffer in use. */
static void expect_nothing_left(unsigned int buffers)
{
	step_until_empty();
	assert_int_equal(target->conns.count, 0);
	assert_int_equal(target->sessions.count, 0);
	assert_int_equal(target->strangers.count, 0);
	assert_int_equal(target->counters.stags_open, 0);
	assert_true(list_empty(&target->buffers.waiters) && list_empty(&target->rdma.busy));
	assert_int_equal(buffers_left(), buffers);
	assert_int_equal(lun_facts(scsi_target_find(target->scsi, 1))->size, SIZE);
}

/* Waits for a child's first report, while the target is stepped. */
static uint16_t first_report_of(const struct child *c)
{
	uint64_t end = clock_ns() + PATIENCE_MS * NS_PER_MS;
	struct pollfd fd = {.fd = c->news, .events = POLLIN};
	uint16_t word;

	while (poll(&fd, 1, 0) == 0 && clock_ns() < end)
		target_step(target, 10);
	assert_int_equal(read(c->news, &word, sizeof(word)), sizeof(word));
	return word;
}

static struct child start_as(const char *role, const struct way *way, unsigned int count)
{
	char kind[16], number[16];

	snprintf(kind, sizeof(kind), "%d", way->kind);
	snprintf(number, sizeof(number), "%u", count);
	return spawn(role, url_of(way, 1), kind, number);
}

static struct child start_user(const struct way *way, unsigned int count)
{
	return start_as("use", way, count);
}

static void killed_initiators_leave_nothing(void **state)
{
	const struct way *way = *state;
	unsigned long times = scaled(12);
	unsigned int buffers;

	if (times > 12) /* with STAG_LONG a thousand, over all transports */
		times *= 3;
	start_target();
	buffers = buffers_left();
	for (unsigned long i = 0; i < times; i++) {
		struct child c = start_user(way, 0);
		uint64_t enough;

		first_report_of(&c);
		enough = target->counters.commands + 1 + dice(150);
		await((target_step(target, 10), target->counters.commands >= enough));
		end_child(&c);
	}
	expect_nothing_left(buffers);
	assert_int_equal(target->counters.violations, 0);
	target_destroy(target);
}

/* A stopped process sends neither data nor answers. */
static void a_stopped_initiator_is_dropped(void **state)
{
	unsigned int buffers;
	uint64_t enough;
	struct child c;

	start_target();
	buffers = buffers_left();
	c = start_user(*state, 0);
	first_report_of(&c);
	enough = target->counters.commands + 50;
	await((target_step(target, 10), target->counters.commands >= enough));
	kill(c.pid, SIGSTOP);
	target->config.limits.ping_ns = target->config.limits.answer_ns = 0;
	for (int i = 0; i < PATIENCE_MS && target->conns.count; i++) {
		target->loop.next_tick = 0;
		target_step(target, 1);
	}
	expect_nothing_left(buffers);
	end_child(&c);
	target_destroy(target);
}

/* Starts an initiator that stops soon after it has begun to send write commands. */
static struct child begin_withholder(const struct way *way)
{
	struct child c = start_as("withhold", way, 0);
	int status;

	first_report_of(&c);
	assert_int_equal(waitpid(c.pid, &status, WUNTRACED), c.pid);
	assert_true(WIFSTOPPED(status));
	return c;
}

static bool has_tasks(void)
{
	list_for_each (it, &target->sessions.list)
		if (list_entry(it, struct target_session, link)->n_tasks)
			return true;
	return false;
}

/*
 * Starts an initiator that has sent write commands, and does not send their data. On a busy machine
 * it may be stopped before it has sent any: then another one is started.
 */
static struct child start_withholder(const struct way *way)
{
	for (int tries = 0; tries < 10; tries++) {
		struct child c = begin_withholder(way);

		for (int i = 0; i < 1000 && !has_tasks(); i++)
			target_step(target, 1);
		if (has_tasks())
			return c;
		end_child(&c);
		step_until_empty();
	}
	fail_msg("no initiator has sent a command");
	return (struct child){0};
}

/*
 * The target waits for the data of a session's writes: RDMA Reads. Other sessions are served all the
 * same, and when the time limit has passed, the session's buffers are free again.
 */
static void withheld_data_does_not_stop_others(void **state)
{
	struct child held, user;
	unsigned int buffers;

	start_target_with(1u << 20);
	buffers = buffers_left();
	held = start_withholder(*state); /* one write is as long as all buffers together */
	for (int i = 0; i < 200; i++)
		target_step(target, 0);
	user = start_user(*state, 1);
	first_report_of(&user);
	end_child(&user);
	target->config.limits.ping_ns = 3600 * NS_PER_S; /* as if it answered pings */
	target->config.limits.data_ns = 0;
	for (int i = 0; i < PATIENCE_MS && target->conns.count; i++) {
		target->loop.next_tick = 0;
		target_step(target, 1);
	}
	expect_nothing_left(buffers);
	end_child(&held);
	target_destroy(target);
}

/* ---- many --------------------------------------------------------------------------------------- */

#define USERS 4

static long resident_kib(void)
{
	char line[128];
	long kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

static void many_sessions_are_served_at_once(void **state)
{
	const struct way *way = *state;
	unsigned int each, buffers;
	struct child users[USERS];
	uint64_t begun = clock_ns();
	long before;

	each = (unsigned int)(way->kind == STAG_BLOCK_TCP ? lessened(1000) : scaled(100)) / USERS;
	start_target();
	buffers = buffers_left();
	before = resident_kib();
	for (unsigned int i = 0; i < USERS; i++)
		users[i] = start_user(way, each);
	for (unsigned int i = 0; i < USERS; i++)
		assert_int_equal(first_report_of(&users[i]), each);
	assert_int_equal(target->sessions.count, USERS * each);
	print_message("%s: %u sessions in %llu ms, %ld KiB of memory each\n", way->scheme,
		      USERS * each, (unsigned long long)((clock_ns() - begun) / NS_PER_MS),
		      (resident_kib() - before) / (long)(USERS * each));
	for (unsigned int i = 0; i < USERS; i++)
		end_child(&users[i]);
	expect_nothing_left(buffers);
	target_destroy(target);
}

/* ---- units that change ----------------------------------------------------------------------------- */

static struct stag_block_target *served;

static void start_served(void)
{
	const struct stag_block_target_attr attr = {.name = TARGET,
						    .address = "127.0.0.1",
						    .flags = STAG_BLOCK_ANY_PORT,
						    .log = no_log};
	const struct stag_block_lun one = {.lun = 1, .where = path},
				    two = {.lun = 2, .where = second};

	served = stag_block_target_start(&attr);
	if (!served || stag_block_target_add(served, &one) != 0 ||
	    stag_block_target_add(served, &two) != 0)
		fail_msg("%s", stag_block_error());
	port = stag_block_target_port(served);
}

static uint8_t load[16][8192];

/* Submits reads and writes all over the first part of a unit. */
static void begin_load(struct stag_block *b, uint64_t size)
{
	for (unsigned int i = 0; i < 16; i++) {
		struct iovec iov = {load[i], sizeof(load[i])};
		struct stag_block_io io = {.op = i % 2 ? STAG_BLOCK_READ : STAG_BLOCK_WRITE,
					   .offset = 512 * dice((size - sizeof(load[i])) / 512),
					   .length = sizeof(load[i]),
					   .iov = &iov,
					   .n_iov = 1};

		assert_int_equal(stag_block_submit(b, &io), 0);
	}
}

/* Waits for the end of all requests, which succeed or have this error. Returns how many succeeded. */
static unsigned int end_load(struct stag_block *b, int error)
{
	struct stag_block_done done;
	unsigned int well = 0;

	for (unsigned int i = 0; i < 16; i++) {
		while (stag_block_poll(b, &done, 1) == 0)
			assert_int_equal(stag_block_wait(b, PATIENCE_MS), 0);
		if (done.error)
			assert_int_equal(done.error, error);
		well += done.error == 0;
	}
	return well;
}

static uint64_t size_of(struct stag_block *b)
{
	struct stag_block_info info;

	assert_int_equal(stag_block_query(b, &info, sizeof(info)), 0);
	return info.size;
}

/* The initiator is notified with its next command; other units are not affected. */
static void a_unit_grows_and_shrinks_under_load(void **state)
{
	const struct way *way = *state;
	struct stag_block *b, *other;
	static uint8_t block[512];

	start_served();
	b = open_unit(way, 1);
	other = open_unit(way, 2);
	begin_load(other, SIZE);
	begin_load(b, SIZE);
	assert_int_equal(truncate(path, 2 * SIZE), 0);
	assert_int_equal(stag_block_target_resized(served, 1), 0);
	assert_int_equal(end_load(b, 0), 16);
	assert_int_equal(stag_block_read(b, block, 0, 512), 0);
	assert_int_equal(size_of(b), 2 * SIZE);
	assert_int_equal(stag_block_write(b, block, 2 * SIZE - 512, 512, 0), 0);
	begin_load(b, SIZE / 2);
	assert_int_equal(truncate(path, SIZE / 2), 0);
	assert_int_equal(stag_block_target_resized(served, 1), 0);
	assert_int_equal(end_load(b, 0), 16);
	assert_int_equal(stag_block_read(b, block, 0, 512), 0);
	assert_int_equal(size_of(b), SIZE / 2);
	assert_int_equal(stag_block_read(b, block, SIZE / 2, 512), EINVAL);
	assert_int_equal(end_load(other, 0), 16);
	stag_block_close(b);
	stag_block_close(other);
	stag_block_target_stop(served);
}

/* Commands in flight end, later ones fail; then another unit gets the same LUN. */
static void a_unit_is_removed_under_load(void **state)
{
	const struct stag_block_lun one = {.lun = 1, .where = path};
	const struct way *way = *state;
	struct stag_block *b, *other;
	static uint8_t block[512];

	start_served();
	b = open_unit(way, 1);
	other = open_unit(way, 2);
	for (unsigned long i = 0; i < lessened(10); i++) {
		begin_load(other, SIZE);
		begin_load(b, SIZE);
		assert_int_equal(stag_block_target_remove(served, 1), 0);
		end_load(b, ENODEV);
		assert_int_equal(stag_block_read(b, block, 0, 512), ENODEV);
		assert_int_equal(end_load(other, 0), 16);
		assert_int_equal(stag_block_target_add(served, &one), 0);
		assert_int_equal(stag_block_read(b, block, 0, 512), 0);
	}
	stag_block_close(b);
	stag_block_close(other);
	stag_block_target_stop(served);
}

/* The file is truncated without a call to stag_block_target_resized(). */
static void a_truncated_file_is_a_medium_error(void **state)
{
	struct stag_block_io io = {.op = STAG_BLOCK_READ, .offset = SIZE - 4096, .length = 4096};
	static uint8_t bytes[4096];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct stag_block_done done;
	struct stag_block *b;

	start_served();
	b = open_unit(*state, 1);
	assert_int_equal(stag_block_write(b, bytes, SIZE - 4096, 4096, 0), 0);
	assert_int_equal(stag_block_read(b, bytes, SIZE - 4096, 4096), 0);
	assert_int_equal(truncate(path, SIZE / 2), 0);
	io.iov = &iov;
	io.n_iov = 1;
	assert_int_equal(stag_block_submit(b, &io), 0);
	assert_int_equal(stag_block_wait(b, PATIENCE_MS), 0);
	assert_int_equal(stag_block_poll(b, &done, 1), 1);
	assert_int_equal(done.error, EIO);
	assert_int_equal(done.sense, 0x031100); /* medium error, unrecovered read error */
	assert_int_equal(stag_block_read(b, bytes, 0, 4096), 0);
	assert_int_equal(stag_block_write(b, bytes, 0, 4096, 0), 0);
	assert_int_equal(stag_block_target_resized(served, 1), 0);
	assert_int_equal(stag_block_write(b, bytes, 0, 4096, 0), 0);
	assert_int_equal(stag_block_write(b, bytes, 0, 4096, 0), 0);
	stag_block_close(b);
	stag_block_target_stop(served);
}

/* ---- a store that changes ---------------------------------------------------------------------------- */

static struct stag_store *make_store(void)
{
	struct stag_store_attr attr = {.size = 4 * SIZE};
	struct stag_store_partition p = {.name = "part", .size = SIZE};
	struct stag_store *store;

	if (stag_store_format(path, &attr, STAG_STORE_FORCE) != 0)
		fail_msg("%s", stag_store_error());
	store = stag_store_open(path, 0);
	if (!store || stag_store_add(store, &p) != 0)
		fail_msg("%s", stag_store_error());
	return store;
}

static void allow(struct stag_store *store, uint8_t access)
{
	struct stag_store_partition p;

	assert_int_equal(stag_store_find(store, "part", &p), 0);
	p.num_rights = 1;
	p.rights[0] = (struct stag_store_right){.who = STAG_STORE_LOCAL, .access = access};
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_RIGHTS), 0);
}

/* Reads or writes one block. Returns error and sense. */
static struct stag_block_done try_block(struct stag_block *b, uint32_t op, uint64_t offset)
{
	static uint8_t bytes[4096];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct stag_block_io io = {
		.op = op, .offset = offset, .length = sizeof(bytes), .iov = &iov, .n_iov = 1};
	struct stag_block_done done = {.error = -1};

	assert_int_equal(stag_block_submit(b, &io), 0);
	while (stag_block_poll(b, &done, 1) == 0)
		assert_int_equal(stag_block_wait(b, PATIENCE_MS), 0);
	return done;
}

/* Repeats a request until it has this result: changes of a store take effect after a while. */
static void ends_with(struct stag_block *b, uint32_t op, uint64_t offset, int error, uint32_t sense)
{
	uint64_t end = clock_ns() + PATIENCE_MS * NS_PER_MS;
	struct stag_block_done done;

	do
		done = try_block(b, op, offset);
	while (done.error != error && clock_ns() < end);
	assert_int_equal(done.error, error);
	assert_int_equal(done.sense, sense);
}

static void a_store_changes_under_load(void **state)
{
	struct stag_store *store = make_store();
	struct stag_store_partition p;
	const struct way *way = *state;
	struct stag_block *b, *other;

	strcat(path, ":part");
	start_served();
	b = open_unit(way, 1);
	other = open_unit(way, 2);
	begin_load(other, SIZE);
	ends_with(b, STAG_BLOCK_WRITE, 0, 0, 0);
	allow(store, STAG_STORE_READ);
	ends_with(b, STAG_BLOCK_WRITE, 0, EROFS, 0x072700); /* write protected */
	ends_with(b, STAG_BLOCK_READ, 0, 0, 0);
	assert_int_equal(stag_store_find(store, "part", &p), 0);
	p.size = 2 * SIZE;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), 0);
	assert_int_equal(stag_block_target_resized(served, 1), 0);
	ends_with(b, STAG_BLOCK_READ, 0, 0, 0);
	assert_int_equal(size_of(b), 2 * SIZE);
	ends_with(b, STAG_BLOCK_READ, 2 * SIZE - 4096, 0, 0);
	assert_int_equal(stag_store_remove(store, "part", STAG_STORE_FORCE), 0);
	ends_with(b, STAG_BLOCK_READ, 0, EIO,
		  0x020403); /* not ready, manual intervention required */
	assert_int_equal(end_load(other, 0), 16);
	stag_block_close(b);
	stag_block_close(other);
	stag_block_target_stop(served);
	stag_store_close(store);
	*strrchr(path, ':') = 0;
}

/* Reads until the size is this: an initiator that stays connected learns it by a unit attention only. */
static void await_size(struct stag_block *b, uint64_t size)
{
	uint64_t end = clock_ns() + PATIENCE_MS * NS_PER_MS;
	static uint8_t block[512];

	do
		assert_int_equal(stag_block_read(b, block, 0, 512), 0);
	while (size_of(b) != size && clock_ns() < end);
	assert_int_equal(size_of(b), size);
	assert_int_equal(stag_block_write(b, block, size - 512, 512, 0), 0);
}

/* Nobody calls stag_block_target_resized(). */
static void units_follow_the_growth_of_their_backing(void **state)
{
	struct stag_store *store = make_store();
	struct stag_block_info info;
	struct stag_store_partition p;
	struct stag_block *b, *other;

	strcat(path, ":part");
	start_served();
	b = open_unit(*state, 1);
	other = open_unit(*state, 2);
	assert_int_equal(stag_store_find(store, "part", &p), 0);
	p.size = 2 * SIZE;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), 0);
	assert_int_equal(truncate(second, 3 * SIZE), 0);
	await_size(b, 2 * SIZE);
	await_size(other, 3 * SIZE);
	assert_int_equal(stag_block_query(b, &info, sizeof(info)), 0);
	assert_int_equal(info.counters.logins, 1);
	stag_block_close(b);
	stag_block_close(other);
	stag_block_target_stop(served);
	stag_store_close(store);
	*strrchr(path, ':') = 0;
}

/* Moves the unit to a disk: data of a unit in memory needs no buffers. */
static int set_up_on_disk(void **state)
{
	int fd;

	port = 0;
	make_file(second, SIZE);
	strcpy(path, "/var/tmp/stag-trouble-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0 && ftruncate(fd, SIZE) == 0);
	close(fd);
	return 0;
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

static int set_up(void **state)
{
	port = 0;
	make_file(path, SIZE);
	make_file(second, SIZE);
	return 0;
}

static bool has_adapter(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	bool has = list && list[0] && stagdv_is_supported(list[0]);

	if (list)
		ibv_free_device_list(list);
	return has;
}

static int tear_down(void **state)
{
	unlink(path);
	unlink(second);
	return 0;
}

#define OVER(name, way)                                                                            \
	{                                                                                          \
#name "_over_" #way, name, set_up, tear_down, (void *)&(way)                       \
	}
#define ON_DISK(name, way)                                                                         \
	{                                                                                          \
#name "_over_" #way, name, set_up_on_disk, tear_down, (void *)&(way)               \
	}
#define STORY(name) OVER(name, tcp), OVER(name, iser), OVER(name, one_shot)

int main(int argc, char **argv)
{
	const struct CMUnitTest stories[] = {
		STORY(no_write_is_lost_with_its_target),
		STORY(killed_initiators_leave_nothing),
		STORY(a_stopped_initiator_is_dropped),
		ON_DISK(withheld_data_does_not_stop_others, iser),
		ON_DISK(withheld_data_does_not_stop_others, one_shot),
		STORY(many_sessions_are_served_at_once),
		STORY(a_unit_grows_and_shrinks_under_load),
		STORY(a_unit_is_removed_under_load),
		STORY(a_truncated_file_is_a_medium_error),
		OVER(a_store_changes_under_load, one_shot),
		STORY(units_follow_the_growth_of_their_backing),
	};

	if (argc > 2) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dice_start_with((uint64_t)getpid());
		return strcmp(argv[1], "serve") == 0	  ? serve_until_killed(argv)
		       : strcmp(argv[1], "withhold") == 0 ? withhold_data(argv)
							  : run_initiators(argv);
	}
	if (!has_adapter())
		return 77;
	may_have_many_files();
	dice_start();
	return cmocka_run_group_tests(stories, NULL, NULL);
}
