// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_misuse.c - invalid requests get the error that uverbs and an iWARP adapter return, and a log
 * line with the reason.
 */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct parts {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

static int create_objects(void **state)
{
	struct parts *p = calloc(1, sizeof(*p));

	p->ctx = open_stag();
	p->pd = ibv_alloc_pd(p->ctx);
	p->cq = ibv_create_cq(p->ctx, 16, NULL, NULL, 0);
	*state = p;
	return p->pd && p->cq ? 0 : -1;
}

static int destroy_objects(void **state)
{
	struct parts *p = *state;

	assert_int_equal(ibv_destroy_cq(p->cq), 0);
	assert_int_equal(ibv_dealloc_pd(p->pd), 0);
	assert_int_equal(ibv_close_device(p->ctx), 0);
	free(p);
	return 0;
}

/* Evaluates a constructor that must return NULL and set this errno. */
#define expect_null(err, call)                                                                     \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_null(call);                                                                 \
		assert_int_equal(errno, err);                                                      \
	} while (0)

static struct ibv_qp_init_attr good_qp(struct parts *p)
{
	return (struct ibv_qp_init_attr){
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
}

static void valid_queue_pair_is_created(void **state)
{
	struct parts *p = *state;
	struct ibv_qp_init_attr attr = good_qp(p);
	struct ibv_qp *qp = ibv_create_qp(p->pd, &attr);
	struct ibv_qp_attr now;

	assert_non_null(qp);
	assert_true(attr.cap.max_send_wr >= 4);
	assert_int_equal(qp->state, IBV_QPS_RESET);
	assert_int_equal(ibv_query_qp(qp, &now, IBV_QP_STATE, &attr), 0);
	assert_int_equal(now.qp_state, IBV_QPS_INIT);
	assert_ptr_equal(qp->pd, p->pd);
	assert_ptr_equal(qp->context, p->ctx);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void only_rc_queue_pairs_exist(void **state)
{
	static const enum ibv_qp_type others[] = {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET,
						  IBV_QPT_XRC_SEND, IBV_QPT_DRIVER};
	struct parts *p = *state;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct ibv_qp_init_attr attr = good_qp(p);

		attr.qp_type = others[i];
		expect_null(EOPNOTSUPP, ibv_create_qp(p->pd, &attr));
	}
}

static void queue_pairs_beyond_the_limits_are_refused(void **state)
{
	struct parts *p = *state;
	struct ibv_qp_init_attr attr;

#define expect_bad_cap(field, value)                                                               \
	attr = good_qp(p);                                                                         \
	attr.cap.field = (value);                                                                  \
	expect_null(EINVAL, ibv_create_qp(p->pd, &attr))

	expect_bad_cap(max_send_wr, STAG_MAX_QP_WR + 1);
	expect_bad_cap(max_recv_wr, STAG_MAX_QP_WR + 1);
	expect_bad_cap(max_send_sge, STAG_MAX_SGE + 1);
	expect_bad_cap(max_recv_sge, STAG_MAX_SGE + 1);
	expect_bad_cap(max_inline_data, STAG_MAX_INLINE + 1);
	expect_bad_cap(max_send_wr, UINT32_MAX);
}

static void a_queue_pair_needs_completion_queues(void **state)
{
	struct parts *p = *state;
	struct ibv_qp_init_attr attr = good_qp(p);

	attr.send_cq = NULL;
	expect_null(EINVAL, ibv_create_qp(p->pd, &attr));
	attr = good_qp(p);
	attr.recv_cq = NULL;
	expect_null(EINVAL, ibv_create_qp(p->pd, &attr));
}

static void extended_attributes_of_other_transports_are_refused(void **state)
{
	struct parts *p = *state;
	struct ibv_qp_init_attr_ex attr = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = p->pd};
	struct ibv_qp_init_attr base = good_qp(p);

	memcpy(&attr, &base, sizeof(base));
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	expect_null(EOPNOTSUPP, ibv_create_qp_ex(p->ctx, &attr));
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	attr.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	expect_null(EOPNOTSUPP, ibv_create_qp_ex(p->ctx, &attr));
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	expect_null(EOPNOTSUPP, ibv_create_qp_ex(p->ctx, &attr));
}

/* Programs call ibv_qp_to_qp_ex() to learn whether they may use ibv_wr_*. */
static void plain_queue_pair_has_no_extended_interface(void **state)
{
	struct parts *p = *state;
	struct ibv_qp_init_attr attr = good_qp(p);
	struct ibv_qp *qp = ibv_create_qp(p->pd, &attr);

	assert_null(ibv_qp_to_qp_ex(qp));
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void cq_size_and_vector_are_checked(void **state)
{
	struct parts *p = *state;

	expect_null(EINVAL, ibv_create_cq(p->ctx, 0, NULL, NULL, 0));
	expect_null(EINVAL, ibv_create_cq(p->ctx, -1, NULL, NULL, 0));
	expect_null(EINVAL, ibv_create_cq(p->ctx, STAG_MAX_CQE + 1, NULL, NULL, 0));
	expect_null(EINVAL, ibv_create_cq(p->ctx, 1, NULL, NULL, p->ctx->num_comp_vectors));
	expect_null(EINVAL, ibv_create_cq(p->ctx, 1, NULL, NULL, -1));
	assert_int_equal(ibv_resize_cq(p->cq, 0), EINVAL);
	assert_int_equal(ibv_resize_cq(p->cq, 64), 0);
	assert_true(p->cq->cqe >= 64);
}

static void cq_in_use_cannot_be_destroyed(void **state)
{
	struct parts *p = *state;
	struct ibv_qp_init_attr attr = good_qp(p);
	struct ibv_qp *qp = ibv_create_qp(p->pd, &attr);

	assert_int_equal(ibv_destroy_cq(p->cq), EBUSY);
	assert_int_equal(ibv_dealloc_pd(p->pd), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void modify_cq_accepts_moderation_only(void **state)
{
	struct parts *p = *state;
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE};

	assert_int_equal(ibv_modify_cq(p->cq, &attr), 0);
	attr.attr_mask = IBV_CQ_ATTR_RESERVED;
	assert_int_equal(ibv_modify_cq(p->cq, &attr), EINVAL);
}

static void srqs_beyond_the_limits_are_refused(void **state)
{
	static const struct ibv_srq_attr bad[] = {
		{.max_wr = 0, .max_sge = 1},
		{.max_wr = STAG_MAX_SRQ_WR + 1, .max_sge = 1},
		{.max_wr = 8, .max_sge = STAG_MAX_SGE + 1},
	};
	struct parts *p = *state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ibv_srq_init_attr attr = {.attr = bad[i]};

		expect_null(EINVAL, ibv_create_srq(p->pd, &attr));
	}
}

static void only_basic_shared_receive_queues_exist(void **state)
{
	struct parts *p = *state;
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = 8, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = p->pd};
	struct ibv_srq *srq = ibv_create_srq_ex(p->ctx, &attr);
	uint32_t num;

	assert_non_null(srq);
	assert_int_equal(ibv_get_srq_num(srq, &num), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	attr.srq_type = IBV_SRQT_XRC;
	expect_null(EOPNOTSUPP, ibv_create_srq_ex(p->ctx, &attr));
	attr.srq_type = IBV_SRQT_TM;
	expect_null(EOPNOTSUPP, ibv_create_srq_ex(p->ctx, &attr));
}

static void datagram_calls_are_not_supported(void **state)
{
	struct parts *p = *state;
	struct ibv_qp_init_attr attr = good_qp(p);
	struct ibv_qp *qp = ibv_create_qp(p->pd, &attr);
	struct ibv_ah_attr ah = {.port_num = 1};
	union ibv_gid gid = {.raw = {0xff}};
	struct ibv_wc wc = {0};

	expect_null(EOPNOTSUPP, ibv_create_ah(p->pd, &ah));
	expect_null(EOPNOTSUPP, ibv_create_ah_from_wc(p->pd, &wc, NULL, 1));
	assert_int_equal(ibv_attach_mcast(qp, &gid, 0), EOPNOTSUPP);
	assert_int_equal(ibv_detach_mcast(qp, &gid, 0), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void calls_for_a_kernel_or_infiniband_are_not_supported(void **state)
{
	struct parts *p = *state;
	struct ibv_qp_init_attr attr = good_qp(p);
	struct ibv_qp *qp = ibv_create_qp(p->pd, &attr);
	struct ibv_xrcd_init_attr xrcd = {0};
	struct ibv_alloc_dm_attr dm = {.length = 4096};
	struct ibv_wq_init_attr wq = {0};
	struct ibv_ece ece = {.vendor_id = 1};

	expect_null(EOPNOTSUPP, ibv_import_pd(p->ctx, 0));
	expect_null(EOPNOTSUPP, ibv_import_mr(p->pd, 0));
	expect_null(EOPNOTSUPP, ibv_import_dm(p->ctx, 0));
	expect_null(EOPNOTSUPP, ibv_reg_dmabuf_mr(p->pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE));
	expect_null(EOPNOTSUPP, ibv_open_xrcd(p->ctx, &xrcd));
	expect_null(EOPNOTSUPP, ibv_alloc_dm(p->ctx, &dm));
	expect_null(EOPNOTSUPP, ibv_create_wq(p->ctx, &wq));
	assert_int_equal(ibv_set_ece(qp, &ece), EOPNOTSUPP);
	assert_int_equal(ibv_query_ece(qp, &ece), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void parent_domain_needs_a_plain_domain(void **state)
{
	struct parts *p = *state;
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_td *td = ibv_alloc_td(p->ctx, &td_attr);
	struct ibv_parent_domain_init_attr attr = {.td = td};

	expect_null(EINVAL, ibv_alloc_parent_domain(p->ctx, &attr));
	attr.pd = p->pd;

	struct ibv_pd *domain = ibv_alloc_parent_domain(p->ctx, &attr);

	assert_non_null(domain);
	assert_int_equal(ibv_dealloc_pd(p->pd), EBUSY);
	attr.pd = domain;
	expect_null(EINVAL, ibv_alloc_parent_domain(p->ctx, &attr));
	assert_int_equal(ibv_dealloc_pd(domain), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
}

/* With STAG_LOG=info one line names the mistake and the object. */
static void refusal_is_logged_with_its_reason(void **state)
{
	struct parts *p = *state;
	char path[] = "/tmp/stag-misuse-XXXXXX", line[256] = "";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	setenv("STAG_LOG", "info", 1);
	setenv("STAG_LOG_FILE", path, 1);
	log_init();
	expect_null(EINVAL, ibv_create_cq(p->ctx, 0, NULL, NULL, 0));
	assert_true(read(fd, line, sizeof(line) - 1) > 0);
	assert_non_null(strstr(line, "cq: 0 entries"));
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(valid_queue_pair_is_created),
		cmocka_unit_test(only_rc_queue_pairs_exist),
		cmocka_unit_test(queue_pairs_beyond_the_limits_are_refused),
		cmocka_unit_test(a_queue_pair_needs_completion_queues),
		cmocka_unit_test(extended_attributes_of_other_transports_are_refused),
		cmocka_unit_test(plain_queue_pair_has_no_extended_interface),
		cmocka_unit_test(cq_size_and_vector_are_checked),
		cmocka_unit_test(cq_in_use_cannot_be_destroyed),
		cmocka_unit_test(modify_cq_accepts_moderation_only),
		cmocka_unit_test(srqs_beyond_the_limits_are_refused),
		cmocka_unit_test(only_basic_shared_receive_queues_exist),
		cmocka_unit_test(datagram_calls_are_not_supported),
		cmocka_unit_test(calls_for_a_kernel_or_infiniband_are_not_supported),
		cmocka_unit_test(parent_domain_needs_a_plain_domain),
		cmocka_unit_test(refusal_is_logged_with_its_reason),
	};

	return cmocka_run_group_tests(tests, create_objects, destroy_objects);
}
