// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_roce_shared.c - queue pairs of roce0 with protection domain and completion queues of stag0: the memory of the two devices is
 * one, so a server registers it once.
 */
#include "roce_pair.h"

#include <fcntl.h>
#include <stdlib.h>

#include "adapter/device.h"
#include "stag/stagdv.h"

#define DEPTH 16

static struct ibv_qp *create_qp(struct end *e, struct ibv_context *on)
{
	struct ibv_qp_init_attr_ex init = {
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 2,
			.max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.pd = e->pd,
		.send_cq = e->scq,
		.recv_cq = e->rcq};

	return ibv_create_qp_ex(on, &init);
}

/* As end_open(), but all except the queue pair is stag0's. */
static void end_open_shared(struct end *e)
{
	struct ibv_context *iwarp = ibv_open_device(&stag_device(FACE_IWARP)->ibv);

	*e = (struct end){.size = ROCE_BUF};
	e->ctx = ibv_open_device(&stag_device(FACE_ROCE)->ibv);
	assert_true(iwarp && e->ctx);
	fcntl(e->ctx->async_fd, F_SETFL, O_NONBLOCK);
	e->pd = ibv_alloc_pd(iwarp);
	e->scq = ibv_create_cq(iwarp, 4 * DEPTH, NULL, NULL, 0);
	e->rcq = ibv_create_cq(iwarp, 4 * DEPTH, NULL, NULL, 0);
	e->buf = calloc(1, e->size);
	e->mr = ibv_reg_mr(e->pd, e->buf, e->size, ROCE_ACCESS);
	e->qp = create_qp(e, e->ctx);
	assert_true(e->buf && e->mr && e->qp);
	assert_ptr_equal(e->qp->context, e->ctx);
	assert_int_equal(ibv_close_device(iwarp), 0); /* its objects keep it */
}

struct shared {
	struct roce_pair pair; /* a: as usual, b: shared */
};

static int set_up(void **state)
{
	struct shared *s = calloc(1, sizeof(*s));

	end_open(&s->pair.a, NULL);
	end_open_shared(&s->pair.b);
	end_connect(&s->pair.a, s->pair.b.qp->qp_num, NULL);
	end_connect(&s->pair.b, s->pair.a.qp->qp_num, NULL);
	*state = s;
	return 0;
}

static int tear_down(void **state)
{
	struct shared *s = *state;

	roce_close(&s->pair);
	free(s);
	return 0;
}

static void messages_arrive_in_completion_queues_of_the_other_device(void **state)
{
	struct shared *s = *state;

	exchange(&s->pair);
}

static void a_key_of_the_other_device_is_read_and_written(void **state)
{
	struct shared *s = *state;
	struct end *a = &s->pair.a, *b = &s->pair.b;

	memset(a->buf, 'x', 4096);
	post_op(a, IBV_WR_RDMA_WRITE, 1, 0, 4096, b);
	expect_wc(a->scq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(b->buf, a->buf, 4096);
	memset(b->buf + 4096, 'y', 100);
	post_op(a, IBV_WR_RDMA_READ, 2, 4096, 100, b);
	expect_wc(a->scq, 2, IBV_WC_SUCCESS);
	assert_memory_equal(a->buf + 4096, b->buf + 4096, 100);
	memset(b->buf + 8192, 'z', 100);
	post_op(b, IBV_WR_RDMA_WRITE, 3, 8192, 100, a);
	expect_wc(b->scq, 3, IBV_WC_SUCCESS);
	assert_memory_equal(a->buf + 8192, b->buf + 8192, 100);
}

static void a_key_of_another_domain_is_refused(void **state)
{
	struct shared *s = *state;
	struct end *a = &s->pair.a, *b = &s->pair.b;
	struct ibv_pd *other = ibv_alloc_pd(b->pd->context);
	struct ibv_mr *mr = ibv_reg_mr(other, b->buf, b->size, ROCE_ACCESS);
	struct end elsewhere = *b;

	assert_non_null(mr);
	elsewhere.mr = mr;
	memset(a->buf, 'x', 16);
	post_op(a, IBV_WR_RDMA_WRITE, 1, 0, 16, &elsewhere);
	expect_wc(a->scq, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(b->buf[0], 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

/* The program closes the device while a queue pair of it lives, whose domain is the other device's. */
static void a_queue_pair_outlives_the_closing_of_its_device(void **state)
{
	struct ibv_context *roce = ibv_open_device(&stag_device(FACE_ROCE)->ibv);
	struct shared *s = *state;
	struct ibv_qp *qp = create_qp(&s->pair.b, roce);
	struct end e = {.qp = qp};

	assert_non_null(qp);
	assert_int_equal(ibv_close_device(roce), 0);
	to_init(&e, NULL);
	end_move(&e, IBV_QPS_ERR);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

int main(void)
{
#define SHARED_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		SHARED_TEST(messages_arrive_in_completion_queues_of_the_other_device),
		SHARED_TEST(a_key_of_the_other_device_is_read_and_written),
		SHARED_TEST(a_key_of_another_domain_is_refused),
		SHARED_TEST(a_queue_pair_outlives_the_closing_of_its_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
