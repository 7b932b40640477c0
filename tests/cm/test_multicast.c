// SPDX-License-Identifier: BSD-2-Clause
/* test_multicast.c - multicast groups of datagram ids, on roce0. */
#include "ud_story.h"

#include <errno.h>
#include <infiniband/ib.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/random.h"

/* Of this process alone: tests of others may run beside it. */
static char group4[] = "239.xxx.xxx.xxx", group6[] = "ff15::xxxx:xxxx";

#define GROUP  group4
#define GROUP6 group6

static void choose_groups(void)
{
	uint32_t r = random_u32();

	snprintf(group4, sizeof(group4), "239.%u.%u.%u", r >> 16 & 0xff, r >> 8 & 0xff, r & 0xff);
	snprintf(group6, sizeof(group6), "ff15::%x:%x", r >> 16, r & 0xffff);
}

static struct rdma_event_channel *ch;

static int open_channel(void **state)
{
	ch = channel_new();
	return 0;
}

static int close_channel(void **state)
{
	rdma_destroy_event_channel(ch);
	return 0;
}

static struct rdma_cm_id *with_qp(void)
{
	struct rdma_cm_id *id = ud_bound(ch, IPV4);

	ud_give_qp(id);
	return id;
}

static struct rdma_ud_param expect_join(void *context)
{
	struct rdma_cm_event *ev = expect_event(ch, RDMA_CM_EVENT_MULTICAST_JOIN);
	struct rdma_ud_param got = ev->param.ud;

	assert_int_equal(ev->status, 0);
	assert_ptr_equal(got.private_data, context);
	assert_int_equal(got.private_data_len, 0);
	assert_int_equal(got.qp_num, 0xffffff);
	assert_int_equal(got.qkey, RDMA_UDP_QKEY);
	assert_int_equal(got.ah_attr.is_global, 1);
	assert_int_equal(got.ah_attr.port_num, 1);
	rdma_ack_cm_event(ev);
	return got;
}

static struct rdma_ud_param join(struct rdma_cm_id *id, const char *group)
{
	struct sockaddr_storage a = address(group, 0);
	int context;

	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&a, &context), 0);
	return expect_join(&context);
}

static struct rdma_ud_param join_to_send(struct rdma_cm_id *id, const char *group)
{
	struct sockaddr_storage a = address(group, 0);
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = (struct sockaddr *)&a};

	assert_int_equal(rdma_join_multicast_ex(id, &attr, id), 0);
	return expect_join(id);
}

static int leave(struct rdma_cm_id *id, const char *group)
{
	struct sockaddr_storage a = address(group, 0);

	return rdma_leave_multicast(id, (struct sockaddr *)&a);
}

static void assert_fails(int ret, int err)
{
	assert_int_equal(ret, -1);
	assert_int_equal(errno, err);
}

static void event_has_the_mgid_of_roce_v2(void **state)
{
	struct sockaddr_storage a = address(GROUP, 0);
	uint8_t mgid[16] = {[10] = 0xff, [11] = 0xff};
	struct rdma_cm_id *id = with_qp();
	struct rdma_ud_param to = join(id, GROUP);

	memcpy(mgid + 12, &((struct sockaddr_in *)&a)->sin_addr, 4);
	assert_memory_equal(to.ah_attr.grh.dgid.raw, mgid, sizeof(mgid));
	assert_int_equal(leave(id, GROUP), 0);
	id_gone(id);
}

static void address_of_ipv6_is_the_mgid_itself(void **state)
{
	struct sockaddr_storage a = address(GROUP6, 0);
	struct sockaddr_ib ib = {.sib_family = AF_IB};
	struct rdma_cm_id *id = with_qp();
	struct rdma_ud_param to = join(id, GROUP6);

	assert_memory_equal(to.ah_attr.grh.dgid.raw, &((struct sockaddr_in6 *)&a)->sin6_addr, 16);
	assert_int_equal(leave(id, GROUP6), 0);
	memcpy(&ib.sib_addr, &((struct sockaddr_in6 *)&a)->sin6_addr, 16);
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&ib, id), 0);
	to = expect_join(id);
	assert_memory_equal(to.ah_attr.grh.dgid.raw, &ib.sib_addr, 16);
	assert_int_equal(rdma_leave_multicast(id, (struct sockaddr *)&ib), 0);
	id_gone(id);
}

static void check_delivery(const char *group)
{
	struct mail a, b, from;
	struct rdma_ud_param to;

	mail_open(&a, with_qp());
	mail_open(&b, with_qp());
	mail_open(&from, with_qp());
	mail_expect(&a);
	mail_expect(&b);
	join(a.id, group);
	join(b.id, group);
	to = join_to_send(from.id, group);
	mail_send(&from, &to, "to all");
	mail_read(&a, "to all");
	mail_read(&b, "to all");
	mail_close(&a);
	mail_close(&b);
	mail_close(&from);
}

static void datagram_reaches_every_member(void **state)
{
	check_delivery(GROUP);
	check_delivery(GROUP6);
}

/* A member that only sends gets nothing, and one that has left neither; others do. */
static void only_members_get_it(void **state)
{
	struct mail member, sender, gone;
	struct rdma_ud_param to;
	struct ibv_wc wc;

	mail_open(&member, with_qp());
	mail_open(&sender, with_qp());
	mail_open(&gone, with_qp());
	mail_expect(&member);
	mail_expect(&sender);
	mail_expect(&gone);
	join(member.id, GROUP);
	join(gone.id, GROUP);
	assert_int_equal(leave(gone.id, GROUP), 0);
	join_to_send(sender.id, GROUP);
	to = join_to_send(gone.id, GROUP);
	mail_send(&gone, &to, "news");
	mail_read(&member, "news");
	assert_int_equal(ibv_poll_cq(sender.id->recv_cq, 1, &wc), 0);
	assert_int_equal(ibv_poll_cq(gone.id->recv_cq, 1, &wc), 0);
	mail_close(&member);
	mail_close(&sender);
	mail_close(&gone);
}

static void group_is_left_once(void **state)
{
	struct rdma_cm_id *id = with_qp();

	join(id, GROUP);
	join_to_send(id, GROUP6);
	assert_int_equal(leave(id, GROUP), 0);
	assert_fails(leave(id, GROUP), EADDRNOTAVAIL);
	assert_int_equal(leave(id, GROUP6), 0);
	assert_fails(leave(id, GROUP6), EADDRNOTAVAIL);
	id_gone(id);
}

/* ibv_destroy_qp() refuses one that is attached. */
static void queue_pair_leaves_its_groups_when_the_id_destroys_it(void **state)
{
	struct rdma_cm_id *id = with_qp();

	for (int i = 0; i < 3; i++) {
		join(id, GROUP);
		rdma_destroy_qp(id);
		assert_null(id->qp);
		assert_int_equal(leave(id, GROUP), 0);
		ud_give_qp(id);
	}
	id_gone(id);
}

static void id_leaves_its_groups_when_it_is_destroyed(void **state)
{
	struct rdma_cm_id *id = with_qp();
	struct ibv_qp *qp = id->qp;
	struct rdma_cm_id has = *id;

	join(id, GROUP);
	join(id, GROUP6);
	assert_int_equal(ibv_destroy_qp(qp), EBUSY);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(has.send_cq), 0);
	assert_int_equal(ibv_destroy_cq(has.recv_cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(has.send_cq_channel), 0);
	assert_int_equal(ibv_destroy_comp_channel(has.recv_cq_channel), 0);
}

/* The program attaches it, to what the event says. */
static void queue_pair_of_the_programs_own_is_not_attached(void **state)
{
	struct rdma_cm_id *id = ud_bound(ch, IPV4), *other = with_qp();
	struct rdma_ud_param to = join(id, GROUP);

	assert_int_equal(ibv_attach_mcast(other->qp, &to.ah_attr.grh.dgid, 0), 0);
	assert_int_equal(ibv_detach_mcast(other->qp, &to.ah_attr.grh.dgid, 0), 0);
	id_gone(other);
	id_gone(id);
}

static void what_is_no_group_is_refused(void **state)
{
	struct sockaddr_storage unicast = address("10.0.0.1", 0), zero = address("0.0.0.0", 0),
				group = address(GROUP, 0);
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_RESERVED,
		.addr = (struct sockaddr *)&group};
	struct rdma_cm_id *id = ud_id(ch);

	assert_fails(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), EINVAL);
	id_gone(id);
	id = with_qp();
	assert_fails(rdma_join_multicast(id, (struct sockaddr *)&unicast, NULL), EINVAL);
	assert_fails(rdma_join_multicast(id, (struct sockaddr *)&zero, NULL), EINVAL);
	assert_fails(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	assert_fails(rdma_join_multicast_ex(id, &attr, NULL), ENOTSUP);
	id_gone(id);
}

/* Sockets run out. */
static void group_that_cannot_be_joined_is_an_event(void **state)
{
	struct sockaddr_storage a = address(GROUP, 0);
	struct rdma_cm_id *id = with_qp();
	struct rlimit was, none;
	struct rdma_cm_event *ev;

	getrlimit(RLIMIT_NOFILE, &was);
	none = was;
	none.rlim_cur = 3;
	setrlimit(RLIMIT_NOFILE, &none);
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&a, &was), 0);
	setrlimit(RLIMIT_NOFILE, &was);
	ev = expect_event(ch, RDMA_CM_EVENT_MULTICAST_ERROR);
	assert_int_equal(ev->status, -EMFILE);
	assert_ptr_equal(ev->param.ud.private_data, &was);
	rdma_ack_cm_event(ev);
	assert_fails(leave(id, GROUP), EADDRNOTAVAIL);
	join(id, GROUP); /* now it can */
	id_gone(id);
}

static void synchronous_id_joins_before_the_call_returns(void **state)
{
	struct sockaddr_storage a = address(GROUP, 0);
	struct rdma_cm_id *id = ud_bound(NULL, IPV4);

	ud_give_qp(id);
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&a, id), 0);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
	assert_ptr_equal(id->event->param.ud.private_data, id);
	id_gone(id);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_channel, close_channel)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(event_has_the_mgid_of_roce_v2),
		TEST(address_of_ipv6_is_the_mgid_itself),
		TEST(datagram_reaches_every_member),
		TEST(only_members_get_it),
		TEST(group_is_left_once),
		TEST(queue_pair_leaves_its_groups_when_the_id_destroys_it),
		TEST(id_leaves_its_groups_when_it_is_destroyed),
		TEST(queue_pair_of_the_programs_own_is_not_attached),
		TEST(what_is_no_group_is_refused),
		TEST(group_that_cannot_be_joined_is_an_event),
		TEST(synchronous_id_joins_before_the_call_returns),
	};

	choose_groups();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
