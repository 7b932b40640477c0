// SPDX-License-Identifier: BSD-2-Clause
/* test_roce_device.c - roce0: how it is listed, its attributes, its GIDs, its queue pairs' attributes. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "verbs/verbs.h"

struct room {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

static int open_room(void **state)
{
	struct room *r = calloc(1, sizeof(*r));

	r->ctx = ibv_open_device(&stag_device(FACE_ROCE)->ibv);
	assert_non_null(r->ctx);
	r->pd = ibv_alloc_pd(r->ctx);
	r->cq = ibv_create_cq(r->ctx, 16, NULL, NULL, 0);
	assert_non_null(r->pd);
	assert_non_null(r->cq);
	*state = r;
	return 0;
}

static int close_room(void **state)
{
	struct room *r = *state;

	assert_int_equal(ibv_destroy_cq(r->cq), 0);
	assert_int_equal(ibv_dealloc_pd(r->pd), 0);
	assert_int_equal(ibv_close_device(r->ctx), 0);
	free(r);
	return 0;
}

static struct ibv_qp *create(struct room *r, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = type,
	};

	return ibv_create_qp(r->pd, &init);
}

/* The test runs with STAG_DEVICE=both. */
static void roce0_is_listed_before_stag0(void **state)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	assert_true(n >= 2);
	assert_string_equal(ibv_get_device_name(list[n - 2]), "roce0");
	assert_string_equal(ibv_get_device_name(list[n - 1]), "stag0");
	assert_null(list[n]);
	ibv_free_device_list(list);
}

static void it_is_a_channel_adapter_of_infiniband(void **state)
{
	const struct ibv_device *d = &stag_device(FACE_ROCE)->ibv;
	struct ibv_device_attr attr;
	struct room *r = *state;

	assert_int_equal(d->node_type, IBV_NODE_CA);
	assert_int_equal(d->transport_type, IBV_TRANSPORT_IB);
	assert_int_equal(ibv_query_device(r->ctx, &attr), 0);
	assert_int_equal(attr.atomic_cap, IBV_ATOMIC_HCA);
	assert_true(attr.max_ah > 0 && attr.max_mcast_grp > 0);
	assert_int_not_equal(attr.node_guid, 0);
}

static void its_port_is_ethernet_and_has_the_mtu_of_the_interface(void **state)
{
	struct room *r = *state;
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port(r->ctx, 1, &attr), 0);
	assert_int_equal(attr.state, IBV_PORT_ACTIVE);
	assert_int_equal(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(attr.lid, 0);
	assert_in_range(attr.active_mtu, IBV_MTU_256, IBV_MTU_4096);
	assert_true(attr.max_msg_sz >= 1u << 30);
	assert_true(attr.gid_tbl_len >= 16);
}

static void gid_0_is_there_and_of_roce_v2(void **state)
{
	struct ibv_gid_entry entry;
	struct room *r = *state;
	union ibv_gid gid, zero = {.raw = {0}};
	int type;

	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &gid), 0);
	assert_memory_not_equal(&gid, &zero, sizeof(gid));
	assert_int_equal(ibv_query_gid_ex(r->ctx, 1, 0, &entry, 0), 0);
	assert_memory_equal(&entry.gid, &gid, sizeof(gid));
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_not_equal(entry.ndev_ifindex, 0);
	assert_int_equal(ibv_query_gid_type(r->ctx, 1, 0, &type), 0);
	assert_int_equal(type, 1);
}

static void an_empty_gid_is_zero_and_has_no_entry(void **state)
{
	struct ibv_gid_entry entry;
	struct ibv_port_attr attr;
	struct room *r = *state;
	union ibv_gid gid, zero = {.raw = {0}};

	ibv_query_port(r->ctx, 1, &attr);
	assert_int_equal(ibv_query_gid(r->ctx, 1, attr.gid_tbl_len - 1, &gid), 0);
	assert_memory_equal(&gid, &zero, sizeof(gid));
	assert_int_equal(ibv_query_gid_ex(r->ctx, 1, (uint32_t)attr.gid_tbl_len - 1, &entry, 0),
			 ENODATA);
	assert_int_equal(ibv_query_gid(r->ctx, 1, attr.gid_tbl_len, &gid), -1);
}

static void the_gid_table_has_the_filled_entries_only(void **state)
{
	struct ibv_gid_entry table[256];
	struct ibv_port_attr attr;
	struct room *r = *state;
	ssize_t n = ibv_query_gid_table(r->ctx, table, 256, 0);

	ibv_query_port(r->ctx, 1, &attr);
	assert_in_range(n, 1, attr.gid_tbl_len - 1);
	assert_int_equal(ibv_query_gid_table(r->ctx, table, 0, 0), -EINVAL);
}

static void there_are_rc_uc_and_ud_queue_pairs_and_no_others(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	struct ibv_qp_init_attr init;
	struct room *r = *state;
	struct ibv_qp_attr attr;

	for (int i = 0; i < 3; i++) {
		struct ibv_qp *qp = create(r, types[i]);

		assert_non_null(qp);
		assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
		assert_int_equal(attr.qp_state, IBV_QPS_RESET);
		assert_int_equal(init.qp_type, types[i]);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
	errno = 0;
	assert_null(create(r, IBV_QPT_RAW_PACKET));
	assert_int_equal(errno, EOPNOTSUPP);
}

/* As on hardware without them. */
static void xrc_objects_are_refused(void **state)
{
	struct room *r = *state;
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1};
	struct ibv_srq_init_attr_ex srq = {
		.attr = {.max_wr = 1, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = r->pd,
		.cq = r->cq};
	static const enum ibv_qp_type types[] = {IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};
	struct ibv_device_attr attr;

	assert_int_equal(ibv_query_device(r->ctx, &attr), 0);
	assert_int_equal(attr.device_cap_flags & IBV_DEVICE_XRC, 0);
	errno = 0;
	assert_null(ibv_open_xrcd(r->ctx, &xrcd));
	assert_int_equal(errno, EOPNOTSUPP);
	errno = 0;
	assert_null(ibv_create_srq_ex(r->ctx, &srq));
	assert_int_equal(errno, EOPNOTSUPP);
	for (int i = 0; i < 2; i++) {
		errno = 0;
		assert_null(create(r, types[i]));
		assert_int_equal(errno, EOPNOTSUPP);
	}
}

static int connects_to(int type, uint16_t port)
{
	struct sockaddr_in lo = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, type, 0), err;

	assert_true(fd >= 0);
	err = type == SOCK_STREAM ? connect(fd, (struct sockaddr *)&lo, sizeof(lo))
				  : bind(fd, (struct sockaddr *)&lo, sizeof(lo));
	close(fd);
	return err;
}

static void a_queue_pair_s_number_says_at_which_port_it_is_reached(void **state)
{
	struct room *r = *state;
	struct ibv_qp *qp = create(r, IBV_QPT_RC);
	uint16_t port = (uint16_t)(qp->qp_num >> 8);

	assert_true(qp->qp_num < 1u << 24);
	assert_int_equal(connects_to(SOCK_STREAM, port), 0);
	assert_int_equal(connects_to(SOCK_DGRAM, port), -1); /* it is in use */
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void numbers_are_not_reused_soon(void **state)
{
	struct room *r = *state;
	struct ibv_qp *first = create(r, IBV_QPT_RC), *qp;
	uint32_t num = first->qp_num;

	ibv_destroy_qp(first);
	for (int i = 0; i < 200; i++) {
		qp = create(r, IBV_QPT_RC);
		assert_int_not_equal(qp->qp_num, num);
		ibv_destroy_qp(qp);
	}
}

static void more_queue_pairs_than_a_port_has_get_another_port(void **state)
{
	enum { MANY = 300 };
	static struct ibv_qp *qp[MANY];
	struct room *r = *state;
	uint32_t low = UINT32_MAX, high = 0;

	for (int i = 0; i < MANY; i++) {
		qp[i] = create(r, IBV_QPT_RC);
		assert_non_null(qp[i]);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(qp[i]->qp_num, qp[j]->qp_num);
		low = qp[i]->qp_num >> 8 < low ? qp[i]->qp_num >> 8 : low;
		high = qp[i]->qp_num >> 8 > high ? qp[i]->qp_num >> 8 : high;
	}
	assert_int_not_equal(low, high);
	for (int i = 0; i < MANY; i++)
		ibv_destroy_qp(qp[i]);
}

static struct ibv_qp_attr path_to(struct room *r, uint32_t qpn)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.rq_psn = 0x123456,
		.max_dest_rd_atomic = 3,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 7}},
	};

	ibv_query_gid(r->ctx, 1, 0, &a.ah_attr.grh.dgid);
	return a;
}

#define TO_RTR                                                                                     \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = 1,
				.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	assert_int_equal(
		ibv_modify_qp(qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

/* The peer does not exist, and nobody asks for it. */
static void a_queue_pair_goes_to_rts_without_a_peer_and_tells_what_was_set(void **state)
{
	struct room *r = *state;
	struct ibv_qp *qp = create(r, IBV_QPT_RC);
	struct ibv_qp_attr a = path_to(r, 0x200701), got;
	struct ibv_qp_init_attr init;

	to_init(qp);
	assert_int_equal(ibv_modify_qp(qp, &a, TO_RTR), 0);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 6;
	a.rnr_retry = 5;
	a.sq_psn = 0xff654321;
	a.max_rd_atomic = 2;
	assert_int_equal(
		ibv_modify_qp(qp, &a,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		0);
	assert_int_equal(ibv_query_qp(qp, &got, -1, &init), 0);
	assert_int_equal(got.qp_state, IBV_QPS_RTS);
	assert_int_equal(got.dest_qp_num, 0x200701);
	assert_int_equal(got.rq_psn, 0x123456);
	assert_int_equal(got.sq_psn, 0x654321);
	assert_int_equal(got.timeout, 14);
	assert_int_equal(got.retry_cnt, 6);
	assert_int_equal(got.rnr_retry, 5);
	assert_int_equal(got.max_rd_atomic, 2);
	assert_int_equal(got.max_dest_rd_atomic, 3);
	assert_int_equal(got.min_rnr_timer, 12);
	assert_int_equal(got.path_mtu, IBV_MTU_1024);
	assert_int_equal(got.qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(got.port_num, 1);
	assert_int_equal(got.ah_attr.grh.hop_limit, 7);
	assert_memory_equal(&got.ah_attr.grh.dgid, &a.ah_attr.grh.dgid, 16);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* As the kernel does: it is not taken for the only one. */
static void an_address_on_no_port_is_refused_and_changes_nothing(void **state)
{
	struct room *r = *state;
	struct ibv_qp *qp = create(r, IBV_QPT_RC);
	struct ibv_qp_attr a = path_to(r, 0x200701);

	to_init(qp);
	for (uint8_t port = 0; port < 3; port += 2) {
		a.ah_attr.port_num = port;
		assert_int_equal(ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
		assert_int_equal(qp->state, IBV_QPS_INIT);
	}
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void an_address_without_a_gid_is_refused_and_changes_nothing(void **state)
{
	struct room *r = *state;
	struct ibv_qp *qp = create(r, IBV_QPT_RC);
	struct ibv_qp_attr a = path_to(r, 0x200701);

	to_init(qp);
	a.ah_attr.is_global = 0;
	assert_int_equal(ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
	a.ah_attr.is_global = 1;
	a.ah_attr.grh.sgid_index = 15; /* empty, on any machine that has these tests */
	assert_int_equal(ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
	assert_int_equal(qp->state, IBV_QPS_INIT);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void a_forked_child_has_ports_of_its_own(void **state)
{
	struct room *r = *state;
	struct ibv_qp *mine = create(r, IBV_QPT_RC);
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct room theirs;
		void *at;

		open_room(&at);
		theirs = *(struct room *)at;
		struct ibv_qp *qp = create(&theirs, IBV_QPT_RC);

		_exit(qp && qp->qp_num >> 8 != mine->qp_num >> 8 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(connects_to(SOCK_STREAM, (uint16_t)(mine->qp_num >> 8)), 0);
	assert_int_equal(ibv_destroy_qp(mine), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_room, close_room)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roce0_is_listed_before_stag0),
		TEST(it_is_a_channel_adapter_of_infiniband),
		TEST(its_port_is_ethernet_and_has_the_mtu_of_the_interface),
		TEST(gid_0_is_there_and_of_roce_v2),
		TEST(an_empty_gid_is_zero_and_has_no_entry),
		TEST(the_gid_table_has_the_filled_entries_only),
		TEST(there_are_rc_uc_and_ud_queue_pairs_and_no_others),
		TEST(xrc_objects_are_refused),
		TEST(a_queue_pair_s_number_says_at_which_port_it_is_reached),
		TEST(numbers_are_not_reused_soon),
		TEST(more_queue_pairs_than_a_port_has_get_another_port),
		TEST(a_queue_pair_goes_to_rts_without_a_peer_and_tells_what_was_set),
		TEST(an_address_on_no_port_is_refused_and_changes_nothing),
		TEST(an_address_without_a_gid_is_refused_and_changes_nothing),
		TEST(a_forked_child_has_ports_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
