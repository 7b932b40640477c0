// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_misuse.c - calls in the wrong state, and features that iWARP does not have: the errno of the
 * kernel and librdmacm, and one line in the log.
 */
#include "story.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stag/stagdv.h"

#define assert_fails(call, err)                                                                    \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_int_equal(call, -1);                                                        \
		assert_int_equal(errno, err);                                                      \
	} while (0)

static struct rdma_cm_id *fresh;
static struct rdma_event_channel *ch;

static int open_fresh(void **state)
{
	ch = channel_new();
	fresh = id_new(ch);
	return 0;
}

static int close_fresh(void **state)
{
	rdma_destroy_id(fresh);
	rdma_destroy_event_channel(ch);
	return 0;
}

static void calls_made_too_early_are_einval(void **state)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};

	assert_fails(rdma_resolve_route(fresh, 1), EINVAL);
	assert_fails(rdma_connect(fresh, NULL), EINVAL);
	assert_fails(rdma_accept(fresh, NULL), EINVAL);
	assert_fails(rdma_reject(fresh, NULL, 0), EINVAL);
	assert_fails(rdma_reject_ece(fresh, NULL, 0), EINVAL);
	assert_fails(rdma_disconnect(fresh), EINVAL);
	assert_fails(rdma_establish(fresh), EINVAL);
	assert_fails(rdma_create_qp(fresh, NULL, &attr), EINVAL);
	assert_int_equal(rdma_notify(fresh, IBV_EVENT_COMM_EST), 0);
	assert_int_equal(stagdv_adopt(fresh, dup(0)), EINVAL);
}

static void calls_made_too_late_are_einval(void **state)
{
	struct sockaddr_storage a = address(IPV4, 0);
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};

	assert_int_equal(rdma_bind_addr(fresh, (struct sockaddr *)&a), 0);
	assert_fails(rdma_bind_addr(fresh, (struct sockaddr *)&a), EINVAL);
	give_qp(fresh);
	assert_fails(rdma_create_qp(fresh, NULL, &attr), EINVAL);
	rdma_destroy_qp(fresh);
	assert_int_equal(rdma_listen(fresh, 1), 0);
	assert_fails(rdma_listen(fresh, 1), EINVAL);
	assert_fails(rdma_resolve_addr(fresh, NULL, (struct sockaddr *)&a, 1), EINVAL);
	assert_fails(rdma_disconnect(fresh), EINVAL);
}

static void second_resolution_is_einval(void **state)
{
	struct sockaddr_storage a = address(IPV4, 9);

	assert_int_equal(rdma_resolve_addr(fresh, NULL, (struct sockaddr *)&a, 1), 0);
	assert_fails(rdma_resolve_addr(fresh, NULL, (struct sockaddr *)&a, 1), EINVAL);
	assert_int_equal(rdma_resolve_route(fresh, 1), 0);
	assert_fails(rdma_resolve_route(fresh, 1), EINVAL);
	assert_fails(rdma_connect(fresh, NULL), EINVAL); /* no queue pair */
}

static void listening_binds_an_unbound_id(void **state)
{
	assert_int_equal(rdma_listen(fresh, 1), 0);
	assert_int_not_equal(rdma_get_src_port(fresh), 0);
}

static void invalid_addresses_are_refused(void **state)
{
	struct sockaddr_storage four = address(IPV4, 9), six = address(IPV6, 0);
	struct sockaddr_storage elsewhere = address("192.0.2.1", 0);
	struct sockaddr un = {.sa_family = AF_UNIX}, ib = {.sa_family = AF_IB};

	assert_fails(rdma_bind_addr(fresh, &un), EINVAL);
	assert_fails(rdma_bind_addr(fresh, &ib), ENODEV);
	assert_fails(rdma_bind_addr(fresh, (struct sockaddr *)&elsewhere), EADDRNOTAVAIL);
	assert_fails(rdma_resolve_addr(fresh, NULL, &un, 1), EINVAL);
	assert_fails(rdma_resolve_addr(fresh, (struct sockaddr *)&six, (struct sockaddr *)&four, 1),
		     EINVAL);
	assert_fails(rdma_resolve_addr(fresh, (struct sockaddr *)&elsewhere,
				       (struct sockaddr *)&four, 1),
		     EADDRNOTAVAIL);
	/* and after all that the id still works */
	assert_int_equal(rdma_resolve_addr(fresh, NULL, (struct sockaddr *)&four, 1), 0);
}

static void depths_beyond_the_device_are_einval(void **state)
{
	struct rdma_conn_param param = {.initiator_depth = 129};
	struct sockaddr_storage a = address(IPV4, 9);

	assert_int_equal(rdma_resolve_addr(fresh, NULL, (struct sockaddr *)&a, 1), 0);
	assert_int_equal(rdma_resolve_route(fresh, 1), 0);
	give_qp(fresh);
	assert_fails(rdma_connect(fresh, &param), EINVAL);
	param = (struct rdma_conn_param){.responder_resources = 200};
	assert_fails(rdma_connect(fresh, &param), EINVAL);
	rdma_destroy_qp(fresh);
}

/* Two ids share one queue pair: only the first can connect it. */
static void connecting_a_connected_queue_pair_is_einval(void **state)
{
	struct rdma_conn_param param = {0};
	struct sockaddr_storage a;
	struct couple c;

	couple_open(&c, IPV4);
	a = address(IPV4, id_port(c.listener));
	assert_int_equal(rdma_resolve_addr(fresh, NULL, (struct sockaddr *)&a, 1), 0);
	assert_int_equal(rdma_resolve_route(fresh, 1), 0);
	param.qp_num = c.active->qp->qp_num;
	assert_fails(rdma_connect(fresh, &param), EINVAL);
	couple_close(&c);
}

static void unknown_port_space_is_einval(void **state)
{
	struct rdma_cm_id *id;

	assert_fails(rdma_create_id(ch, &id, NULL, 0x42), EINVAL);
}

static void null_channel_or_event_is_einval(void **state)
{
	struct rdma_cm_event *ev;

	assert_fails(rdma_get_cm_event(NULL, &ev), EINVAL);
	assert_fails(rdma_get_cm_event(ch, NULL), EINVAL);
	assert_fails(rdma_ack_cm_event(NULL), EINVAL);
}

/* ---- options ---- */

static void options_are_accepted_or_refused_as_by_the_kernel(void **state)
{
	uint8_t byte = 8;
	int one = 1;

	assert_int_equal(rdma_set_option(fresh, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
	assert_fails(rdma_set_option(fresh, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &one, 4), EINVAL);
	assert_int_equal(rdma_set_option(fresh, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, 4),
			 0);
	assert_fails(rdma_set_option(fresh, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, 1),
		     EINVAL);
	assert_int_equal(
		rdma_set_option(fresh, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), 0);
	assert_fails(rdma_set_option(fresh, RDMA_OPTION_ID, 77, &one, 4), ENOSYS);
	assert_fails(rdma_set_option(fresh, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &one, 4), EINVAL);
	assert_fails(rdma_set_option(fresh, 9, 0, &one, 4), ENOSYS);
	assert_int_equal(rdma_listen(fresh, 1), 0);
	assert_fails(rdma_set_option(fresh, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, 4),
		     EINVAL);
	assert_fails(rdma_set_option(fresh, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, 4),
		     EINVAL);
}

static void reuseaddr_lets_two_ids_bind_one_port(void **state)
{
	struct rdma_cm_id *other = id_new(ch);
	struct sockaddr_storage a = address(IPV4, 0);
	int one = 1;

	assert_int_equal(rdma_set_option(fresh, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, 4),
			 0);
	assert_int_equal(rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, 4),
			 0);
	assert_int_equal(rdma_bind_addr(fresh, (struct sockaddr *)&a), 0);
	a = address(IPV4, id_port(fresh));
	assert_int_equal(rdma_bind_addr(other, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(fresh, 0), 0);
	assert_fails(rdma_listen(other, 0), EADDRINUSE);
	rdma_destroy_id(other);
}

static void ece_options_are_accepted_and_not_transmitted(void **state)
{
	struct ibv_ece ece = {.vendor_id = 1, .options = 2};

	assert_int_equal(rdma_set_local_ece(fresh, &ece), 0);
	assert_int_equal(rdma_get_remote_ece(fresh, &ece), 0);
	assert_int_equal(ece.vendor_id, 0);
	assert_fails(rdma_set_local_ece(fresh, &ece), EINVAL); /* no vendor */
	assert_fails(rdma_set_local_ece(fresh, NULL), EINVAL);
	assert_fails(rdma_get_remote_ece(fresh, NULL), EINVAL);
}

/* ---- features that iWARP does not have ---- */

static void datagrams_fail_cleanly(void **state)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct sockaddr_storage a = address(IPV4, 9);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(id->qp_type, IBV_QPT_UD);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1), 0);
	assert_fails(rdma_create_qp(id, NULL, &attr), EOPNOTSUPP);
	assert_null(id->qp);
	assert_null(id->send_cq); /* partial objects are freed */
	assert_null(id->recv_cq_channel);
	rdma_destroy_id(id);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_UDP), 0);
	assert_fails(rdma_listen(id, 1), EOPNOTSUPP);
	rdma_destroy_id(id);
}

static void multicast_is_enosys(void **state)
{
	struct sockaddr_storage group = address("224.0.0.7", 0), a = address(IPV4, 0);
	struct rdma_cm_join_mc_attr_ex ex = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS,
					     .addr = (struct sockaddr *)&group};

	assert_fails(rdma_join_multicast(fresh, (struct sockaddr *)&group, NULL), EINVAL);
	assert_int_equal(rdma_bind_addr(fresh, (struct sockaddr *)&a), 0);
	assert_fails(rdma_join_multicast(fresh, (struct sockaddr *)&group, NULL), ENOSYS);
	assert_fails(rdma_join_multicast_ex(fresh, &ex, NULL), ENOSYS);
	ex.comp_mask = 0;
	assert_fails(rdma_join_multicast_ex(fresh, &ex, NULL), ENOTSUP);
	assert_fails(rdma_leave_multicast(fresh, (struct sockaddr *)&group), EADDRNOTAVAIL);
}

static void qp_attributes_of_an_unconnected_id_are_einval(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int mask;

	assert_fails(rdma_init_qp_attr(fresh, &attr, &mask), EINVAL);
}

#define STORY(f) cmocka_unit_test_setup_teardown(f, open_fresh, close_fresh)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(calls_made_too_early_are_einval),
		STORY(calls_made_too_late_are_einval),
		STORY(second_resolution_is_einval),
		STORY(listening_binds_an_unbound_id),
		STORY(invalid_addresses_are_refused),
		STORY(depths_beyond_the_device_are_einval),
		STORY(unknown_port_space_is_einval),
		STORY(null_channel_or_event_is_einval),
		STORY(options_are_accepted_or_refused_as_by_the_kernel),
		STORY(reuseaddr_lets_two_ids_bind_one_port),
		STORY(ece_options_are_accepted_and_not_transmitted),
		STORY(qp_attributes_of_an_unconnected_id_are_einval),
	};

	const struct CMUnitTest of_stag0[] = {
		STORY(connecting_a_connected_queue_pair_is_einval),
		STORY(datagrams_fail_cleanly),
		STORY(multicast_is_enosys),
	};

	if (cmocka_run_group_tests_name("cm misuse", tests, NULL, NULL))
		return 1;
	return on_roce() ? 0 : cmocka_run_group_tests_name("on stag0", of_stag0, NULL, NULL);
}
