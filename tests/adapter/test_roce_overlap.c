// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_roce_overlap.c - queue pairs of roce0 that use the same bytes at once, and programs that change what they send.
 *
 * Which bytes are there then is not defined; but hardware goes on, and so do these queue pairs, with CRC and without.
 */
#include "roce_pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define PAIRS  4
#define SIZE   (1 << 20)
#define ROUNDS 8
#define DEPTH  8 /* requests of each queue pair in a round */

struct crowd {
	struct roce_pair pair[PAIRS];
	uint8_t *shared; /* registered with each protection domain below */
	struct ibv_mr *at_a[PAIRS], *at_b[PAIRS];
	struct ibv_mr *own_a[PAIRS], *own_b[PAIRS]; /* what the ends had before */
	uint8_t *buf_a[PAIRS], *buf_b[PAIRS];
	pthread_t poller;
	atomic_bool stop;
	struct ibv_cq *polled[PAIRS];
};

/* Makes the shared bytes the memory of an end. */
static void share(struct end *e, struct crowd *c, struct ibv_mr **mr, struct ibv_mr **own,
		  uint8_t **buf)
{
	*own = e->mr;
	*buf = e->buf;
	*mr = ibv_reg_mr(e->pd, c->shared, SIZE, ROCE_ACCESS);
	assert_non_null(*mr);
	e->mr = *mr;
	e->buf = c->shared;
}

static void give_back(struct end *e, struct ibv_mr *mr, struct ibv_mr *own, uint8_t *buf)
{
	if (!mr)
		return;
	assert_int_equal(ibv_dereg_mr(mr), 0);
	e->mr = own;
	e->buf = buf;
}

/* The responders' program polls, so that two threads of this process read streams at once. */
static void *poll_responders(void *arg)
{
	struct crowd *c = arg;
	struct ibv_wc wc;

	while (!atomic_load(&c->stop))
		for (int i = 0; i < PAIRS; i++)
			if (ibv_poll_cq(c->polled[i], 1, &wc) == 1 && wc.status != IBV_WC_SUCCESS)
				fprintf(stderr, "responder %d: %s\n", i,
					ibv_wc_status_str(wc.status));
	return NULL;
}

static int open_crowd(void **state)
{
	static const struct ways ways = {.size = SIZE};
	struct crowd *c = calloc(1, sizeof(*c));

	c->shared = calloc(1, SIZE);
	assert_non_null(c->shared);
	for (int i = 0; i < PAIRS; i++) {
		roce_open(&c->pair[i], &ways);
		memset(c->pair[i].a.buf, i + 1, SIZE);
		c->polled[i] = c->pair[i].b.rcq;
	}
	*state = c;
	return 0;
}

static int close_crowd(void **state)
{
	struct crowd *c = *state;

	for (int i = 0; i < PAIRS; i++) {
		give_back(&c->pair[i].a, c->at_a[i], c->own_a[i], c->buf_a[i]);
		give_back(&c->pair[i].b, c->at_b[i], c->own_b[i], c->buf_b[i]);
		roce_close(&c->pair[i]);
	}
	free(c->shared);
	free(c);
	return 0;
}

static void begin_polling(struct crowd *c)
{
	assert_int_equal(pthread_create(&c->poller, NULL, poll_responders, c), 0);
}

static void end_polling(struct crowd *c)
{
	atomic_store(&c->stop, true);
	pthread_join(c->poller, NULL);
}

static void run_rounds(struct crowd *c, enum ibv_wr_opcode op)
{
	begin_polling(c);
	for (int round = 0; round < ROUNDS; round++) {
		for (int k = 0; k < DEPTH; k++)
			for (int i = 0; i < PAIRS; i++) {
				struct roce_pair *p = &c->pair[i];

				if (op == IBV_WR_SEND)
					post_recv_(&p->b, 1, 0, SIZE);
				post_op(&p->a, op, 1, 0, SIZE, op == IBV_WR_SEND ? NULL : &p->b);
			}
		for (int k = 0; k < DEPTH; k++)
			for (int i = 0; i < PAIRS; i++)
				expect_wc(c->pair[i].a.scq, 1, IBV_WC_SUCCESS);
	}
	end_polling(c);
}

/* Afterwards the bytes are those of one writer, if it is the only one. */
static void one_more_write_is_whole(struct crowd *c)
{
	struct roce_pair *p = &c->pair[1];

	post_op(&p->a, IBV_WR_RDMA_WRITE, 2, 0, SIZE, &p->b);
	expect_wc(p->a.scq, 2, IBV_WC_SUCCESS);
	assert_memory_equal(p->b.buf, p->a.buf, SIZE);
}

static void queue_pairs_may_write_to_the_same_bytes(void **state)
{
	struct crowd *c = *state;

	for (int i = 0; i < PAIRS; i++)
		share(&c->pair[i].b, c, &c->at_b[i], &c->own_b[i], &c->buf_b[i]);
	run_rounds(c, IBV_WR_RDMA_WRITE);
	one_more_write_is_whole(c);
}

/* perftest gives all receives one address. */
static void queue_pairs_may_receive_into_the_same_bytes(void **state)
{
	struct crowd *c = *state;

	for (int i = 0; i < PAIRS; i++)
		share(&c->pair[i].b, c, &c->at_b[i], &c->own_b[i], &c->buf_b[i]);
	run_rounds(c, IBV_WR_SEND);
	one_more_write_is_whole(c);
}

static void queue_pairs_may_read_into_the_same_bytes(void **state)
{
	struct crowd *c = *state;

	for (int i = 0; i < PAIRS; i++)
		share(&c->pair[i].a, c, &c->at_a[i], &c->own_a[i], &c->buf_a[i]);
	run_rounds(c, IBV_WR_RDMA_READ);
	one_more_write_is_whole(c);
}

static void *scribble(void *arg)
{
	struct crowd *c = arg;
	uint8_t *at = c->pair[0].a.buf;

	for (unsigned n = 0; !atomic_load(&c->stop); n++)
		__atomic_store_n((uint64_t *)(at + n * 4096 % SIZE), n, __ATOMIC_RELAXED);
	return NULL;
}

static void a_program_may_change_what_it_is_sending(void **state)
{
	struct crowd *c = *state;
	struct roce_pair *p = &c->pair[0];

	assert_int_equal(pthread_create(&c->poller, NULL, scribble, c), 0);
	for (int round = 0; round < 4 * ROUNDS; round++) {
		for (int k = 0; k < DEPTH; k++)
			post_op(&p->a, IBV_WR_RDMA_WRITE, 1, 0, SIZE, &p->b);
		for (int k = 0; k < DEPTH; k++)
			expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	}
	end_polling(c);
	one_more_write_is_whole(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(queue_pairs_may_write_to_the_same_bytes, open_crowd,
						close_crowd),
		cmocka_unit_test_setup_teardown(queue_pairs_may_receive_into_the_same_bytes,
						open_crowd, close_crowd),
		cmocka_unit_test_setup_teardown(queue_pairs_may_read_into_the_same_bytes,
						open_crowd, close_crowd),
		cmocka_unit_test_setup_teardown(a_program_may_change_what_it_is_sending, open_crowd,
						close_crowd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
