// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_one_shot_many.c - a great number of commands, and peers that are killed in the middle of
 * theirs: no STag is left open, and none is valid after it was closed.
 */
#include "shot.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dice.h"

#define LEN   4096
#define DEPTH 16

static unsigned long how_many(unsigned long count, unsigned long in_the_long_run)
{
	return getenv("STAG_LONG") ? in_the_long_run : lessened(count);
}

/* ---- commands ---- */

struct watcher {
	struct ibv_context *ctx;
	atomic_bool over;
	bool sound;
	unsigned long looks;
};

struct slot { /* commands of side a */
	uint32_t stag, reference;
	struct region *body, *in;
};

static void start(struct pair *p, struct slot *c, const struct ibv_sge *memory, uint32_t reference)
{
	struct ibv_sge sge = *memory;
	struct lend l = {.memory = &sge, .n = 1, .reference = reference};

	c->reference = reference;
	advertise(&p->a, c->body, &l, &c->stag);
}

/* Serves as side b: writes into the memory that the command advertises, and closes it. */
static void serve_commands(struct pair *p, struct region *got, struct region *data, uint64_t wr_id)
{
	uint32_t stag = expect_command(&p->b, wr_id, got);

	expect_sent(&p->b, post_remote(&p->b, IBV_WR_RDMA_WRITE, data, 64, stag, 0));
	close_stag(&p->b, data, stag, 0);
}

/*
 * Queries the ledger all the while, at least once; each entry is consistent, whatever happens to
 * its STag meanwhile.
 */
static void *watch_ledger(void *arg)
{
	struct watcher *w = arg;
	static struct stagdv_stag list[4096 + 64];

	do {
		int n = stagdv_query_stags(w->ctx, list, 4096 + 64, sizeof(*list));

		for (int i = 0; i < n && i < 4096 + 64; i++)
			w->sound &= list[i].stag && list[i].length && list[i].made &&
				    (list[i].end == STAGDV_STAG_OPEN) == !list[i].ended;
		w->looks++;
		usleep(1000);
	} while (!atomic_load(&w->over) && w->sound);
	return NULL;
}

static void million_commands_leave_no_stag_open(void **state)
{
	unsigned long count = how_many(2000, 1000000);
	struct watcher w = {.sound = true};
	pthread_t watcher;
	struct side_wish quiet = {.quiet = true};
	struct pair p;
	struct region *memory, *data, *got;
	struct slot c[DEPTH];
	struct stagdv_counters n;

	pair_open(&p, &quiet, &quiet);
	memory = own_region(&p.a, DEPTH * LEN);
	data = own_region(&p.b, LEN);
	got = own_region(&p.b, BODY);
	for (int i = 0; i < DEPTH; i++)
		c[i] = (struct slot){.body = own_region(&p.a, BODY), .in = own_region(&p.a, BODY)};
	w.ctx = p.a.ctx;
	assert_int_equal(pthread_create(&watcher, NULL, watch_ledger, &w), 0);
	for (unsigned long done = 0; done < count;) {
		uint64_t end[DEPTH];
		uint32_t depth = (uint32_t)(1 + dice(DEPTH));

		for (uint32_t i = 0; i < depth; i++) {
			struct ibv_sge sge = piece(memory, i * LEN, LEN);
			uint64_t in = post_receive(&p.b, got, 0, BODY);

			end[i] = post_receive(&p.a, c[i].in, 0, BODY);
			start(&p, &c[i], &sge, (uint32_t)done + i);
			serve_commands(&p, got, data, in);
		}
		for (uint32_t i = 0; i < depth; i++)
			expect_end(&p.a, end[i], c[i].stag, c[i].reference);
		done += depth;
		p.a.n_posted = p.b.n_posted = 0; /* the ledger of a million entries is not used */
	}
	atomic_store(&w.over, true);
	pthread_join(watcher, NULL);
	assert_true(w.sound && w.looks);
	n = counted(&p.a);
	assert_int_equal(open_stags(p.a.ctx), 0);
	assert_int_equal(n.closed, n.advertised);
	assert_in_range(n.advertised, count, count + DEPTH);
	assert_int_equal(stagdv_withdraw(p.a.qp, c[0].stag, NULL), ENOENT);
	pair_close(&p);
}

/* ---- withdraw and close at once ---- */

struct withdrawal {
	struct ibv_qp *qp;
	uint32_t stag;
	int err;
};

static void *withdraw(void *arg)
{
	struct withdrawal *w = arg;

	w->err = stagdv_withdraw(w->qp, w->stag, NULL);
	return NULL;
}

/*
 * The program withdraws an STag while the peer closes it: one of the two succeeds, and the other is
 * told that it came too late.
 */
static void end_both_ways(void)
{
	struct pair p;
	struct region *memory, *got;
	struct withdrawal w;
	struct ibv_sge sge;
	struct lend l = {.memory = &sge, .n = 1};
	uint64_t in;
	pthread_t thread;
	struct ibv_wc wc;

	pair_open(&p, NULL, NULL);
	memory = own_region(&p.a, LEN);
	got = own_region(&p.b, BODY);
	sge = piece(memory, 0, LEN);
	in = post_receive(&p.b, got, 0, BODY);
	expect_sent(&p.a, advertise(&p.a, own_region(&p.a, BODY), &l, &w.stag));
	expect_command(&p.b, in, got);
	post_receive(&p.a, NULL, 0, 0);
	w.qp = p.a.qp;
	assert_int_equal(pthread_create(&thread, NULL, withdraw, &w), 0);
	close_stag(&p.b, NULL, w.stag, 0);
	wc = await_wc(&p.a, p.a.rcq);
	pthread_join(thread, NULL);
	assert_int_equal(w.err, wc.status == IBV_WC_SUCCESS ? ENOENT : 0);
	assert_int_equal(counted(&p.a).closed, wc.status == IBV_WC_SUCCESS);
	assert_int_equal(counted(&p.a).withdrawn, w.err == 0);
	pair_close(&p);
}

static void withdraw_and_close_end_an_stag_exactly_once(void **state)
{
	unsigned long count = how_many(50, 2000);

	for (unsigned long i = 0; i < count; i++)
		end_both_ways();
}

/* ---- peers that are killed ---- */

#define TOGETHER 10 /* connections to one process */

/* Runs a process that receives commands and never closes one. */
static int run_peer(void)
{
	struct side s[TOGETHER];
	struct region *got;

	for (int i = 0; i < TOGETHER; i++) {
		side_listen(&s[i], NULL);
		printf("%u\n", side_port(&s[i]));
		fflush(stdout);
		side_take_request(&s[i]);
		got = own_region(&s[i], BODY);
		post_receive(&s[i], got, 0, BODY);
		assert_int_equal(side_accept(&s[i]), 0);
	}
	pause();
	return 1;
}

static FILE *start_peer(pid_t *pid)
{
	int fd[2];

	assert_int_equal(pipe(fd), 0);
	*pid = fork();
	assert_true(*pid >= 0);
	if (*pid == 0) {
		dup2(fd[1], STDOUT_FILENO);
		execl("/proc/self/exe", "peer", "peer", NULL);
		_exit(1);
	}
	close(fd[1]);
	return fdopen(fd[0], "r");
}

static uint32_t command_to(struct side *a, FILE *ports)
{
	struct ibv_sge sge;
	struct lend l = {.memory = &sge, .n = 1, .reference = 1};
	unsigned port;
	uint32_t stag;

	assert_int_equal(fscanf(ports, "%u", &port), 1);
	side_resolve(a, NULL, (uint16_t)port);
	side_connect(a);
	expect_cm(a, RDMA_CM_EVENT_ESTABLISHED);
	sge = piece(own_region(a, LEN), 0, LEN);
	expect_sent(a, advertise(a, own_region(a, BODY), &l, &stag));
	return stag;
}

static void kill_one(void)
{
	struct side a[TOGETHER];
	uint32_t stags[TOGETHER];
	pid_t pid;
	FILE *ports = start_peer(&pid);
	struct ibv_context *ctx;

	for (int i = 0; i < TOGETHER; i++)
		stags[i] = command_to(&a[i], ports);
	ctx = a[0].ctx;
	assert_int_equal(open_stags(ctx), TOGETHER);
	assert_int_equal(kill(pid, SIGKILL), 0);
	for (int i = 0; i < TOGETHER; i++)
		expect_disconnected(&a[i]);
	assert_int_equal(open_stags(ctx), 0);
	for (int i = 0; i < TOGETHER; i++) {
		assert_int_equal(life_of(ctx, stags[i]).end, STAGDV_STAG_ORPHANED);
		side_close(&a[i]);
	}
	waitpid(pid, NULL, 0);
	fclose(ports);
}

static void killed_peers_leave_no_stag_open(void **state)
{
	unsigned long count = how_many(1, 100);

	for (unsigned long i = 0; i < count; i++)
		kill_one();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(million_commands_leave_no_stag_open),
		cmocka_unit_test(withdraw_and_close_end_an_stag_exactly_once),
		cmocka_unit_test(killed_peers_leave_no_stag_open),
	};

	if (argc > 1)
		return run_peer();
	dice_start();
	return cmocka_run_group_tests_name("one_shot_many", tests, NULL, NULL);
}
