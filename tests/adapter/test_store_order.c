// SPDX-License-Identifier: BSD-2-Clause
/*
 * Random programs on storage, in every mode, on a disk that delays and reorders at will: no program
 * ever sees a value that the promised order forbids. The checker is tested, too, with queue pairs
 * that keep less order than they promise.
 *
 * `test_adapter_store_order caught` runs on a build with a fault, which has to be noticed;
 * `by_checker` requires that the checker notices it from the values read and written alone.
 */
#include "link.h"
#include "order.h"
#include "storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/store.h"
#include "base/clock.h"
#include "dice.h"

#define MOST_LASTING 4096
#define REMOTES	     4 /* and as many local: a poller reads all each time */

/* A fault: queue pairs keep less order than the checker is told, to test the tests. */
struct lie {
	uint32_t relax;
	bool forgetful_disk;
	bool checker_alone; /* completion order is not checked: the checker has to notice */
};

struct trial {
	struct storage s;
	struct sim_disk disk;
	struct ibv_cq *cq;
	struct links links; /* only with_peers */
	bool with_peers;
	struct link_end link[REMOTES]; /* stay connected from program to program */
	struct ibv_cq *far_cq;
	struct user user[MOST_QPS];
	unsigned int posted[MOST_QPS], n_done[MOST_QPS];
	struct program p;
	unsigned long now; /* logical clock */
	unsigned int done, steps;
	uint64_t tag;
	uint64_t lasting[MOST_LASTING];
	atomic_uint n_lasting;
	struct lie lie;
	uint32_t region_relax;
	char why[200];
};

/* ---- random programs ---- */

static uint64_t new_value(struct trial *t)
{
	return ++t->tag << 16; /* the low 16 bits count additions */
}

/* Returns a value that the word may hold: one that a step writes, or the initial one. */
static uint64_t guess_value(struct trial *t, unsigned int word)
{
	const struct program *p = &t->p;

	for (int tries = 0; tries < 4; tries++) {
		const struct queue *q = &p->queue[dice(p->n_queues)];
		const struct step *s = &q->step[dice(MOST_STEPS)];

		if (s < &q->step[q->n_steps] && s->kind == STEP_WRITE && word >= s->word &&
		    word < s->word + s->span)
			return s->value[word - s->word];
	}
	return p->initial[word];
}

static struct step make_step(struct trial *t, unsigned int words)
{
	static const uint8_t kinds[] = {STEP_READ,  STEP_READ,	 STEP_READ,  STEP_WRITE,
					STEP_WRITE, STEP_WRITE,	 STEP_WRITE, STEP_ADD,
					STEP_SWAP,  STEP_BARRIER};
	struct step s = {.kind = kinds[dice(sizeof(kinds))]};
	unsigned int row = (unsigned int)dice(2) * ROW;

	if (s.kind == STEP_BARRIER)
		return s;
	s.fence = one_in(6);
	s.span = s.kind == STEP_READ || s.kind == STEP_WRITE ? (uint8_t)(1 + dice(MOST_SPAN)) : 1;
	if (s.span > words)
		s.span = (uint8_t)words;
	s.word = (uint8_t)(row + dice(words - s.span + 1));
	s.compare = guess_value(t, s.word);
	for (int i = 0; i < s.span; i++)
		s.value[i] = new_value(t);
	return s;
}

static uint32_t some_order(void)
{
	return one_in(3) ? 0 : one_in(2) ? NO_ORDER : (uint32_t)dice(NO_ORDER + 1);
}

/*
 * A peer's write completion promises nothing, so a last barrier waits until all its writes are
 * done.
 */
static void make_remote(struct queue *queue)
{
	for (unsigned int i = 0; i < queue->n_steps; i++) {
		queue->step[i].own_level = false;
		queue->step[i].level = queue->step[i].kind == STEP_WRITE ? STAGDV_LEVEL_ACCEPTED
									 : STAGDV_LEVEL_VISIBLE;
	}
	queue->step[queue->n_steps - 1] = (struct step){.kind = STEP_BARRIER};
}

static void make_program(struct trial *t)
{
	struct program *p = &t->p;
	unsigned int words =
		1 + (unsigned int)dice(ROW); /* of a row; fewer words overlap more often */
	unsigned int most = 1 + (unsigned int)dice(MOST_STEPS), n_remote = 0;

	memset(p, 0, sizeof(*p));
	for (unsigned int w = 0; w < WORDS; w++)
		memcpy(&p->initial[w], t->disk.image + word_offset(w), sizeof(uint64_t));
	p->n_queues = 1 + (unsigned int)dice(one_in(2) ? 2 : MOST_QPS);
	if (t->with_peers) {
		n_remote = 1 + (unsigned int)dice(REMOTES);
		p->n_queues = n_remote + (unsigned int)dice(MOST_QPS - REMOTES + 1);
	}
	t->region_relax = t->with_peers && one_in(2) ? some_order() : 0;
	for (unsigned int q = 0; q < p->n_queues; q++) {
		struct queue *queue = &p->queue[q];
		uint8_t level = (uint8_t)dice(3);

		queue->remote =
			t->with_peers && q < REMOTES && (q >= MOST_QPS - REMOTES || one_in(2));
		queue->relax = t->region_relax | (queue->remote ? 0 : some_order());
		for (queue->n_steps = 0; queue->n_steps < most; queue->n_steps++) {
			struct step *s = &queue->step[queue->n_steps];

			*s = make_step(t, words);
			s->own_level = one_in(4);
			s->level = s->own_level ? (uint8_t)dice(3) : level;
		}
		queue->step[0].own_level = false; /* the first step uses the queue pair's level */
		queue->step[0].level = level;
		if (queue->remote)
			make_remote(queue);
	}
}

/* ---- running a program ---- */

static size_t memory_of(unsigned int q, unsigned int s)
{
	return (q * MOST_STEPS + s) * MOST_SPAN * sizeof(uint64_t);
}

static uint64_t *cells_of(struct trial *t, unsigned int q, unsigned int s)
{
	return (uint64_t *)(t->s.mem + memory_of(q, s));
}

static unsigned int flags_of(const struct step *s)
{
	static const unsigned int levels[] = {STAGDV_SEND_VISIBLE, STAGDV_SEND_ACCEPTED,
					      STAGDV_SEND_DURABLE};

	return IBV_SEND_SIGNALED | (s->fence ? IBV_SEND_FENCE : 0) |
	       (s->own_level ? levels[s->level] : 0);
}

static void fill_request(struct trial *t, unsigned int q, unsigned int i, struct ibv_send_wr *wr,
			 struct ibv_sge *sge)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
						     IBV_WR_ATOMIC_FETCH_AND_ADD,
						     IBV_WR_ATOMIC_CMP_AND_SWP};
	struct step *s = &t->p.queue[q].step[i];

	*sge = piece(&t->s, memory_of(q, i), s->span * (uint32_t)sizeof(uint64_t));
	*wr = request(&t->user[q], q << 8 | i, opcodes[s->kind], sge, word_offset(s->word));
	wr->send_flags = flags_of(s);
	if (s->kind == STEP_ADD || s->kind == STEP_SWAP) {
		wr->wr.atomic.remote_addr = word_offset(s->word);
		wr->wr.atomic.rkey = t->s.region->rkey;
		wr->wr.atomic.compare_add = s->kind == STEP_ADD ? 1 : s->compare;
		wr->wr.atomic.swap = s->value[0];
	}
	if (s->kind == STEP_WRITE)
		memcpy(cells_of(t, q, i), s->value, s->span * sizeof(uint64_t));
}

/* Posts up to three steps in one list; a barrier goes alone. */
static void post_some(struct trial *t, unsigned int q)
{
	struct queue *queue = &t->p.queue[q];
	struct ibv_send_wr wr[3];
	struct ibv_sge sge[3];
	unsigned int n = 0, want = 1 + (unsigned int)dice(3);

	while (n < want && t->posted[q] < queue->n_steps) {
		unsigned int i = t->posted[q];

		if (queue->step[i].kind == STEP_BARRIER) {
			if (n)
				break;
			queue->step[i].posted = ++t->now;
			t->posted[q]++;
			post_barrier(&t->user[q], q << 8 | i);
			return;
		}
		queue->step[i].posted = ++t->now;
		fill_request(t, q, i, &wr[n], &sge[n]);
		if (n)
			wr[n - 1].next = &wr[n];
		n++;
		t->posted[q]++;
	}
	if (n)
		post(&t->user[q], wr);
}

static bool fail_at_step(struct trial *t, const char *what, unsigned int q, unsigned int i)
{
	snprintf(t->why, sizeof(t->why), "%s: queue pair %u, step %u", what, q, i);
	return false;
}

static bool value_is_durable(struct trial *t, uint64_t value)
{
	unsigned int n = atomic_load(&t->n_lasting);

	for (unsigned int i = 0; i < n; i++)
		if (t->lasting[i] == value)
			return true;
	return false;
}

/*
 * Returns whether the data that a step wrote survives a power failure, as a barrier or a durable
 * step promises.
 */
static bool step_is_durable(struct trial *t, const struct step *s)
{
	for (int i = 0; i < s->span; i++) {
		if (s->kind == STEP_WRITE && !value_is_durable(t, s->value[i]))
			return false;
		if (s->kind == STEP_ADD && !value_is_durable(t, s->found[i] + 1))
			return false;
		if (s->kind == STEP_SWAP && s->found[i] == s->compare &&
		    !value_is_durable(t, s->value[i]))
			return false;
	}
	return true;
}

static bool note_done(struct trial *t, const struct ibv_wc *wc)
{
	unsigned int q = (unsigned int)wc->wr_id >> 8, i = wc->wr_id & 255;
	struct queue *queue = &t->p.queue[q];
	struct step *s = &queue->step[i];
	bool waits = (s->fence || s->kind == STEP_BARRIER) && !t->lie.checker_alone;

	if (wc->status != IBV_WC_SUCCESS || s->done)
		return fail_at_step(t, ibv_wc_status_str(wc->status), q, i);
	if (!(queue->relax & STAGDV_RELAX_COMPLETIONS) && i != t->n_done[q])
		return fail_at_step(t, "completed out of turn", q, i);
	s->done = ++t->now;
	t->n_done[q]++;
	t->done++;
	memcpy(s->found, cells_of(t, q, i), s->span * sizeof(uint64_t));
	if (s->level == STAGDV_LEVEL_DURABLE && !step_is_durable(t, s))
		return fail_at_step(t, "not durable", q, i);
	for (unsigned int before = 0; waits && before < i; before++) {
		if (!queue->step[before].done)
			return fail_at_step(t, "did not wait for all before", q, i);
		if (s->kind == STEP_BARRIER && !step_is_durable(t, &queue->step[before]))
			return fail_at_step(t, "a barrier without a flush", q, i);
	}
	return true;
}

static bool poll_some(struct trial *t)
{
	struct ibv_wc wc[4];
	int n;

	if (t->far_cq)
		ibv_poll_cq(t->far_cq, 1, wc);
	n = ibv_poll_cq(t->cq, 1 + (int)dice(4), wc);

	for (int i = 0; i < n; i++)
		if (!note_done(t, &wc[i]))
			return false;
	return true;
}

static bool note_durable_value(void *arg, uint64_t value)
{
	struct trial *t = arg;
	unsigned int n = atomic_load(&t->n_lasting);

	if (n < MOST_LASTING) {
		t->lasting[n] = value;
		atomic_store(&t->n_lasting, n + 1);
	}
	return true;
}

static void open_users(struct trial *t)
{
	for (unsigned int q = 0; q < t->p.n_queues; q++) {
		const struct queue *queue = &t->p.queue[q];

		t->steps += queue->n_steps;
		if (queue->remote) {
			t->user[q] = (struct user){
				.s = &t->s, .scq = t->cq, .rcq = t->cq, .qp = t->link[q].near->qp};
			continue;
		}

		struct user_wish wish = {
			.cq = t->cq,
			.send_wr = 16,
			.attr = {.relax = (queue->relax & ~t->region_relax) | t->lie.relax,
				 .level = queue->step[0].level,
				 .depth = one_in(4) ? 1 + (uint32_t)dice(4) : 0},
		};

		user_open(&t->user[q], &t->s, &wish);
	}
}

static void start_program(struct trial *t)
{
	struct stagdv_store_attr attr = {.cache_ms = one_in(4) ? 1000 : 0,
					 .level = (uint32_t)dice(3)};

	make_program(t);
	attr.relax = t->region_relax | (t->with_peers ? t->lie.relax : 0);
	t->done = t->steps = 0;
	memset(t->posted, 0, sizeof(t->posted));
	memset(t->n_done, 0, sizeof(t->n_done));
	atomic_store(&t->n_lasting, 0);
	t->disk.n_writes = 0;
	t->disk.seed = dice(1ull << 62);
	t->disk.lazy = 1 + (unsigned int)dice(4);
	t->disk.forgets = t->lie.forgetful_disk;
	t->why[0] = 0;
	assert_int_equal(stagdv_modify_store_mr(
				 t->s.region, &attr,
				 STAGDV_STORE_CACHE | STAGDV_STORE_RELAX | STAGDV_STORE_LEVEL),
			 0);
	open_users(t);
}

/* Runs one random program. Returns NULL, or a description of the violated promise. */
static const char *run_program(struct trial *t)
{
	uint64_t until = deadline();
	bool good = true;

	start_program(t);
	while (good && t->done < t->steps) {
		if (one_in(2))
			post_some(t, (unsigned int)dice(t->p.n_queues));
		else
			good = poll_some(t);
		if (clock_ns() > until)
			fail_msg("only %u of %u steps completed in time", t->done, t->steps);
	}
	for (unsigned int q = 0; q < t->p.n_queues; q++)
		if (!t->p.queue[q].remote)
			user_close(&t->user[q]);
	if (!good)
		return t->why;
	for (unsigned int w = 0; w < WORDS; w++)
		memcpy(&t->p.final[w], t->disk.image + word_offset(w), sizeof(uint64_t));
	return check_history(&t->p);
}

/* ---- the report of a failure ---- */

static void show_program(const struct program *p)
{
	static const char *const kinds[] = {"read", "write", "add", "swap", "barrier"};

	for (unsigned int q = 0; q < p->n_queues; q++) {
		printf("queue pair %u%s, relax 0x%x\n", q, p->queue[q].remote ? ", a peer's" : "",
		       p->queue[q].relax);
		for (unsigned int i = 0; i < p->queue[q].n_steps; i++) {
			const struct step *s = &p->queue[q].step[i];

			printf("  %lu-%lu %s%s level %u words %u+%u:", s->posted, s->done,
			       s->fence ? "fence " : "", kinds[s->kind], s->level, s->word,
			       s->span);
			for (int k = 0; k < s->span; k++)
				printf(" %#llx",
				       (unsigned long long)(s->kind == STEP_WRITE ? s->value[k]
										  : s->found[k]));
			if (s->kind == STEP_SWAP)
				printf(" if %#llx then %#llx", (unsigned long long)s->compare,
				       (unsigned long long)s->value[0]);
			printf("\n");
		}
	}
}

/* ---- the tests ---- */

static struct ibv_cq *make_cq(struct trial *t)
{
	struct ibv_cq *cq = ibv_create_cq(t->s.ctx, 1024, NULL, NULL, 0);

	assert_non_null(cq);
	return cq;
}

static struct trial *trial_open(enum backing b, bool with_peers)
{
	struct trial *t = calloc(1, sizeof(*t));

	t->with_peers = with_peers;
	if (with_peers) {
		links_open(&t->links);
		storage_open_in(&t->s, b, t->links.pd);
	} else {
		storage_open(&t->s, b);
	}
	sim_disk_init(&t->disk, ((struct stag_medium *)t->s.medium)->media, SPACE);
	t->disk.lasting = note_durable_value;
	t->disk.arg = t;
	t->cq = make_cq(t);
	if (with_peers)
		t->far_cq = make_cq(t);
	for (int i = 0; with_peers && i < REMOTES; i++)
		link_open(&t->links, &t->link[i], t->s.pd, t->cq, t->far_cq);
	return t;
}

static void trial_close(struct trial *t)
{
	for (int i = 0; t->with_peers && i < REMOTES; i++)
		link_close(&t->link[i]);
	if (t->with_peers)
		assert_int_equal(ibv_destroy_cq(t->far_cq), 0);
	assert_int_equal(ibv_destroy_cq(t->cq), 0);
	storage_close(&t->s);
	if (t->with_peers)
		links_close(&t->links);
	sim_disk_free(&t->disk);
	free(t);
}

static void expect_order(enum backing b, bool with_peers)
{
	struct trial *t = trial_open(b, with_peers);
	unsigned long n = scaled(with_peers ? 2000 : 4000);

	for (unsigned long i = 0; i < n; i++) {
		const char *why = run_program(t);

		if (!why)
			continue;
		show_program(&t->p);
		fail_msg("program %lu of %lu: %s", i, n, why);
	}
	printf("%lu programs\n", n);
	trial_close(t);
}

static void blocks_keep_the_promised_order(void **state)
{
	expect_order(ON_DISK, false);
}

static void pages_keep_the_promised_order(void **state)
{
	expect_order(ON_PAGES, false);
}

/* Peers over connections, beside local queue pairs. */
static void local_and_remote_queue_pairs_keep_the_promised_order(void **state)
{
	expect_order(ON_PAGES, true);
}

static void local_and_remote_queue_pairs_keep_the_promised_order_in_blocks(void **state)
{
	expect_order(ON_DISK, true);
}

/*
 * Runs programs until a fault is noticed. The tests above depend on noticing one within their
 * number of programs.
 */
static void expect_caught(const struct lie *lie, bool with_peers)
{
	struct trial *t = trial_open(ON_PAGES, with_peers);
	unsigned long n = 0;

	t->lie = *lie;
	while (!run_program(t))
		if (++n == 5000)
			fail_msg("the fault was not noticed");
	printf("noticed after %lu programs\n", n);
	trial_close(t);
}

static void missing_flush_is_noticed(void **state)
{
	expect_caught(&(struct lie){.forgetful_disk = true}, false);
	expect_caught(&(struct lie){.forgetful_disk = true}, true);
}

static void each_order_not_kept_is_noticed(void **state)
{
	for (uint32_t bit = 1; bit <= STAGDV_RELAX_COMPLETIONS; bit *= 2) {
		printf("without 0x%x: ", bit);
		expect_caught(&(struct lie){.relax = bit}, false);
		expect_caught(&(struct lie){.relax = bit}, true);
	}
}

/* ---- tests of a build with a fault ---- */

static void fault_of_this_build_is_noticed(void **state)
{
	expect_caught(&(struct lie){0}, false);
}

static void fault_of_this_build_is_noticed_by_the_checker(void **state)
{
	expect_caught(&(struct lie){.checker_alone = true}, false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest noticed[] = {cmocka_unit_test(fault_of_this_build_is_noticed)};
	const struct CMUnitTest by_checker[] = {
		cmocka_unit_test(fault_of_this_build_is_noticed_by_the_checker)};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_keep_the_promised_order),
		cmocka_unit_test(pages_keep_the_promised_order),
		cmocka_unit_test(local_and_remote_queue_pairs_keep_the_promised_order),
		cmocka_unit_test(local_and_remote_queue_pairs_keep_the_promised_order_in_blocks),
		cmocka_unit_test(missing_flush_is_noticed),
		cmocka_unit_test(each_order_not_kept_is_noticed),
	};

	dice_start();
	if (argc > 1 && strcmp(argv[1], "caught") == 0)
		return cmocka_run_group_tests(noticed, NULL, NULL);
	if (argc > 1 && strcmp(argv[1], "by_checker") == 0)
		return cmocka_run_group_tests(by_checker, NULL, NULL);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
