// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_roce.c - what is RoCE's in the connections of roce0: the contents of events, the attributes of queue pairs, the
 * end; and peers that are bare sockets.
 */
#include "story.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stag/stagdv.h"

/* ---- two ids of this process ---- */

static struct ibv_qp_attr attributes(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr;
}

static void expect_state(struct rdma_cm_id *id, enum ibv_qp_state state)
{
	assert_int_equal(attributes(id).qp_state, state);
}

/* An id that has asked, and the request. */
struct asking {
	struct rdma_event_channel *active_ch, *passive_ch;
	struct rdma_cm_id *listener, *active, *passive;
};

static void ask(struct asking *a, struct rdma_conn_param *param)
{
	a->active_ch = channel_new();
	a->passive_ch = channel_new();
	a->listener = id_listening(a->passive_ch, IPV4, 0);
	a->active = id_resolved(a->active_ch, IPV4, id_port(a->listener));
	assert_int_equal(rdma_connect(a->active, param), 0);
	a->passive = NULL;
}

static void asking_close(struct asking *a)
{
	id_gone(a->active);
	if (a->passive)
		id_gone(a->passive);
	id_gone(a->listener);
	rdma_destroy_event_channel(a->active_ch);
	rdma_destroy_event_channel(a->passive_ch);
}

static void a_request_tells_the_parameters(void **state)
{
	struct rdma_conn_param p = {.responder_resources = 3,
				    .initiator_depth = 5,
				    .flow_control = 1,
				    .retry_count = 6,
				    .rnr_retry_count = 4},
			       *q;
	struct rdma_cm_event *ev;
	struct asking a;

	ask(&a, &p);
	ev = expect_event(a.passive_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	q = &ev->param.conn;
	assert_int_equal(q->initiator_depth, 3);
	assert_int_equal(q->responder_resources, 5);
	assert_int_equal(q->flow_control, 1);
	assert_int_equal(q->retry_count, 6);
	assert_int_equal(q->rnr_retry_count, 4);
	assert_int_equal(q->srq, 0);
	assert_int_equal(q->qp_num, a.active->qp->qp_num);
	a.passive = ev->id;
	rdma_ack_cm_event(ev);
	give_qp(a.passive);
	p = (struct rdma_conn_param){
		.responder_resources = 2, .initiator_depth = 1, .rnr_retry_count = 3};
	assert_int_equal(rdma_accept(a.passive, &p), 0);
	ev = expect_event(a.active_ch, RDMA_CM_EVENT_ESTABLISHED);
	q = &ev->param.conn;
	assert_int_equal(q->initiator_depth, 2);
	assert_int_equal(q->responder_resources, 1);
	assert_int_equal(q->rnr_retry_count, 3);
	assert_int_equal(q->qp_num, a.passive->qp->qp_num);
	rdma_ack_cm_event(ev);
	asking_close(&a);
}

static void expect_attributes(struct rdma_cm_id *id, struct rdma_cm_id *peer, uint8_t depth,
			      uint8_t resources, uint8_t rnr)
{
	struct ibv_qp_attr a = attributes(id);

	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	assert_int_equal(a.dest_qp_num, peer->qp->qp_num);
	assert_int_equal(a.timeout, 18);
	assert_int_equal(a.retry_cnt, 6);
	assert_int_equal(a.rnr_retry, rnr);
	assert_int_equal(a.max_rd_atomic, depth);
	assert_int_equal(a.max_dest_rd_atomic, resources);
	assert_int_equal(a.ah_attr.is_global, 1);
	assert_int_equal(a.qp_access_flags, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						    IBV_ACCESS_REMOTE_ATOMIC);
}

static void queue_pairs_get_what_was_agreed(void **state)
{
	struct rdma_conn_param p = {.responder_resources = 3,
				    .initiator_depth = 5,
				    .retry_count = 6,
				    .rnr_retry_count = 4};
	struct asking a;

	ask(&a, &p);
	a.passive = expect_request(a.passive_ch);
	give_qp(a.passive);
	p = (struct rdma_conn_param){
		.responder_resources = 5, .initiator_depth = 3, .rnr_retry_count = 2};
	assert_int_equal(rdma_accept(a.passive, &p), 0);
	assert_int_equal(expect_status(a.active_ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	/* rnr_retry is the peer's word: how often it lets us try */
	expect_attributes(a.active, a.passive, 5, 3, 2);
	expect_attributes(a.passive, a.active, 3, 5, 4);
	assert_int_equal(attributes(a.active).sq_psn, attributes(a.passive).rq_psn);
	assert_int_equal(attributes(a.active).rq_psn, attributes(a.passive).sq_psn);
	asking_close(&a);
}

static void without_parameters_retries_are_the_most(void **state)
{
	struct asking a;

	ask(&a, NULL);
	a.passive = expect_request(a.passive_ch);
	give_qp(a.passive);
	assert_int_equal(rdma_accept(a.passive, NULL), 0);
	assert_int_equal(expect_status(a.active_ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(attributes(a.active).rnr_retry, 7);
	assert_int_equal(attributes(a.passive).rnr_retry, 7);
	assert_int_equal(attributes(a.active).retry_cnt, 7);
	assert_int_equal(attributes(a.passive).retry_cnt, 7);
	asking_close(&a);
}

static void ack_timeout_is_that_of_the_queue_pair(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 0), *child;
	struct rdma_cm_id *id = id_resolved(ach, IPV4, id_port(listener));
	uint8_t timeout = 21;

	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
					 sizeof(timeout)),
			 0);
	assert_int_equal(rdma_connect(id, NULL), 0);
	child = expect_request(pch);
	give_qp(child);
	assert_int_equal(rdma_accept(child, NULL), 0);
	assert_int_equal(expect_status(ach, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(attributes(id).timeout, 21);
	assert_int_equal(attributes(child).timeout, 21); /* as the request says */
	id_gone(id);
	id_gone(child);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define RTR_MASK                                                                                   \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                                   \
	(IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |                      \
	 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT)

/* Returns the mask; 0 for an error. */
static int attributes_for(struct rdma_cm_id *id, enum ibv_qp_state to, struct ibv_qp_attr *attr)
{
	int mask = 0;

	memset(attr, 0, sizeof(*attr));
	attr->qp_state = to;
	return rdma_init_qp_attr(id, attr, &mask) ? 0 : mask;
}

static void attributes_are_given_when_they_are_known(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 0), *child;
	struct rdma_cm_id *id = id_resolved(ach, IPV4, id_port(listener));
	struct ibv_qp_attr attr;

	assert_int_equal(attributes_for(id, IBV_QPS_INIT, &attr), INIT_MASK);
	assert_int_equal(attr.qp_access_flags, 0);
	assert_int_equal(attributes_for(id, IBV_QPS_RTR, &attr), 0);
	assert_int_equal(rdma_connect(id, NULL), 0);
	child = expect_request(pch);
	assert_int_equal(attributes_for(child, IBV_QPS_INIT, &attr), INIT_MASK);
	assert_true(attr.qp_access_flags & IBV_ACCESS_REMOTE_READ);
	assert_int_equal(attributes_for(child, IBV_QPS_RTR, &attr), RTR_MASK);
	assert_int_equal(attr.dest_qp_num, id->qp->qp_num);
	assert_int_equal(attributes_for(child, IBV_QPS_RTS, &attr), RTS_MASK);
	assert_int_equal(attributes_for(child, IBV_QPS_SQD, &attr), 0);
	id_gone(id);
	id_gone(child);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

static void a_resolved_id_has_a_path(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *listener = id_listening(ch, IPV4, 0);
	struct rdma_cm_id *id = id_resolved(ch, IPV4, id_port(listener));
	const struct ibv_sa_path_rec *path = id->route.path_rec;

	assert_int_equal(id->route.num_paths, 1);
	assert_in_range(path->mtu, IBV_MTU_256, IBV_MTU_4096);
	assert_memory_equal(&path->dgid, &id->route.addr.addr.ibaddr.dgid, sizeof(path->dgid));
	assert_int_equal(path->dgid.raw[12], 127);
	id_gone(id);
	id_gone(listener);
	rdma_destroy_event_channel(ch);
}

/* ---- queue pairs of the program's own ---- */

static struct ibv_qp *own_qp(struct rdma_cm_id *id, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(id->pd, &attr);

	assert_non_null(qp);
	return qp;
}

static void move_own(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	static const enum ibv_qp_state way[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
	struct ibv_qp_attr attr;

	for (int i = 0; i < 3; i++) {
		int mask = attributes_for(id, way[i], &attr);

		assert_int_not_equal(mask, 0);
		assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
	}
}

static void expect_message(struct ibv_qp *from, struct ibv_qp *to, struct ibv_cq *cq)
{
	char said[8] = "hello", heard[8] = "";
	struct ibv_mr *a = ibv_reg_mr(from->pd, said, sizeof(said), 0);
	struct ibv_mr *b = ibv_reg_mr(to->pd, heard, sizeof(heard), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge s = {(uintptr_t)said, sizeof(said), a->lkey};
	struct ibv_sge r = {(uintptr_t)heard, sizeof(heard), b->lkey};
	struct ibv_send_wr swr = {.sg_list = &s,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED},
			   *sbad;
	struct ibv_recv_wr rwr = {.sg_list = &r, .num_sge = 1}, *rbad;
	struct ibv_wc wc;
	int got = 0;

	assert_int_equal(ibv_post_recv(to, &rwr, &rbad), 0);
	assert_int_equal(ibv_post_send(from, &swr, &sbad), 0);
	while (got < 2) {
		if (ibv_poll_cq(cq, 1, &wc) != 1)
			continue;
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		got++;
	}
	assert_string_equal(heard, said);
	ibv_dereg_mr(a);
	ibv_dereg_mr(b);
}

static struct rdma_cm_id *resolved_without_qp(struct rdma_event_channel *ch, uint16_t port)
{
	struct rdma_cm_id *id = id_resolved(ch, IPV4, port);

	rdma_destroy_qp(id);
	return id;
}

static void own_queue_pairs_are_connected_by_the_program(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 0), *child;
	struct rdma_cm_id *id = resolved_without_qp(ach, id_port(listener));
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	struct ibv_qp *active = own_qp(id, cq), *passive = own_qp(id, cq);
	struct rdma_conn_param p = {.qp_num = active->qp_num, .retry_count = 7};
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_connect(id, &p), 0);
	child = expect_request(pch);
	move_own(child, passive);
	p.qp_num = passive->qp_num;
	assert_int_equal(rdma_accept(child, &p), 0);
	ev = expect_event(ach, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(ev->param.conn.qp_num, passive->qp_num);
	rdma_ack_cm_event(ev);
	expect_silence(pch, 20);
	move_own(id, active);
	assert_int_equal(rdma_establish(id), 0);
	assert_int_equal(expect_status(pch, RDMA_CM_EVENT_ESTABLISHED), 0);
	expect_silence(ach, 0);
	assert_int_equal(rdma_establish(id), -1);
	expect_message(active, passive, cq);
	assert_int_equal(rdma_disconnect(id), 0);
	expect_end(ach);
	expect_end(pch);
	ibv_destroy_qp(active);
	ibv_destroy_qp(passive);
	ibv_destroy_cq(cq);
	id_gone(id);
	id_gone(child);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

/* A reply that is not confirmed is as good as refused. */
static void destroyed_before_establish_is_a_reject(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 0), *child;
	struct rdma_cm_id *id = resolved_without_qp(ach, id_port(listener));
	struct rdma_conn_param p = {.qp_num = 17};

	assert_int_equal(rdma_connect(id, &p), 0);
	child = expect_request(pch);
	give_qp(child);
	assert_int_equal(rdma_accept(child, NULL), 0);
	assert_int_equal(expect_status(ach, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	id_gone(id);
	assert_int_equal(expect_status(pch, RDMA_CM_EVENT_REJECTED), CM_REJ_APPLICATION);
	expect_state(child, IBV_QPS_ERR);
	id_gone(child);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

/* ---- limits ---- */

static void private_data_beyond_the_message_is_einval(void **state)
{
	uint8_t data[255] = {0};
	struct rdma_conn_param p = {.private_data = data, .private_data_len = CM_REQ_PRIVATE + 1};
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *listener = id_listening(ch, IPV4, 0);
	struct rdma_cm_id *id = id_resolved(ch, IPV4, id_port(listener)), *child;

	assert_int_equal(rdma_connect(id, &p), -1);
	assert_int_equal(errno, EINVAL);
	p.private_data_len = CM_REQ_PRIVATE;
	assert_int_equal(rdma_connect(id, &p), 0);
	child = expect_request(ch);
	give_qp(child);
	p.private_data_len = CM_REP_PRIVATE + 1;
	assert_int_equal(rdma_accept(child, &p), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_reject(child, data, CM_REJ_PRIVATE + 1), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_reject(child, data, CM_REJ_PRIVATE), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_REJECTED), CM_REJ_APPLICATION);
	expect_state(id, IBV_QPS_ERR);
	id_gone(id);
	id_gone(child);
	id_gone(listener);
	rdma_destroy_event_channel(ch);
}

static void another_port_space_has_no_listener(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *listener = id_listening(ch, IPV4, 0), *id;
	struct sockaddr_storage a = address(IPV4, id_port(listener));

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_IB), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	give_qp(id);
	assert_int_equal(rdma_connect(id, NULL), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_REJECTED), CM_REJ_NO_SERVICE);
	id_gone(id);
	id_gone(listener);
	rdma_destroy_event_channel(ch);
}

/* ---- the end ---- */

static void the_peer_keeps_its_queue_pair_until_it_disconnects(void **state)
{
	struct couple c;

	couple_open(&c, IPV4);
	assert_int_equal(rdma_disconnect(c.active), 0);
	expect_state(c.active, IBV_QPS_ERR);
	assert_int_equal(expect_status(c.active_ch, RDMA_CM_EVENT_DISCONNECTED), 0);
	assert_int_equal(expect_status(c.active_ch, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
	assert_int_equal(expect_status(c.passive_ch, RDMA_CM_EVENT_DISCONNECTED), 0);
	expect_silence(c.passive_ch, 20);
	expect_state(c.passive, IBV_QPS_RTS);
	assert_int_equal(rdma_disconnect(c.passive), 0);
	expect_state(c.passive, IBV_QPS_ERR);
	assert_int_equal(expect_status(c.passive_ch, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
	couple_close(&c);
}

static void a_destroyed_queue_pair_ends_nothing(void **state)
{
	struct couple c;

	couple_open(&c, IPV4);
	rdma_destroy_qp(c.active);
	expect_silence(c.passive_ch, 20);
	expect_silence(c.active_ch, 0);
	assert_int_equal(rdma_disconnect(c.active), 0);
	expect_end(c.active_ch);
	expect_end(c.passive_ch);
	couple_close(&c);
}

/* ---- peers that are bare sockets ---- */

/* Asks a listener of ours, and is accepted. */
static int raw_accepted(struct place *p, struct rdma_cm_id **id)
{
	struct cm_message req = some_message(CM_REQ);
	int fd = raw_connect(IPV4, p->port);

	raw_say(fd, &req);
	*id = expect_request(p->ch);
	give_qp(*id);
	assert_int_equal(rdma_accept(*id, NULL), 0);
	raw_hear(fd, CM_REP);
	return fd;
}

static void expect_roce_service(struct place *p)
{
	struct rdma_cm_id *id;
	int fd = raw_accepted(p, &id);

	raw_say_kind(fd, CM_RTU);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	close(fd);
	expect_end(p->ch);
	id_gone(id);
}

static void requests_that_make_no_sense_are_dropped(void **state)
{
	struct place *p = *state;
	struct cm_message bad[] = {some_message(CM_REP),  some_message(CM_REQ),
				   some_message(CM_REQ),  some_message(CM_REQ),
				   some_message(CM_DREQ), some_message(99)};

	bad[1].qpn = 1 << 24;
	bad[2].mtu = 6;
	memset(bad[3].gid, 0, sizeof(bad[3].gid));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		int fd = raw_connect(IPV4, p->port);

		raw_say(fd, &bad[i]);
		expect_hangup(fd);
	}
	expect_silence(p->ch, 0);
	expect_roce_service(p);
}

static void another_version_is_dropped(void **state)
{
	struct place *p = *state;
	struct cm_message req = some_message(CM_REQ);
	uint8_t buf[CM_MESSAGE_LEN];
	int fd = raw_connect(IPV4, p->port);

	cm_message_encode(&req, buf);
	buf[9]++;
	raw_send(fd, buf, sizeof(buf));
	expect_hangup(fd);
	expect_roce_service(p);
}

/* A program that listens on its own, and passes on what begins as a message of roce0 does. */
static void a_socket_can_be_adopted(void **state)
{
	struct cm_message req = some_message(CM_REQ);
	struct place *p = *state;
	struct rdma_cm_id *id;
	uint16_t port;
	int own = raw_listen(IPV4, &port), fd = raw_connect(IPV4, port);

	assert_int_equal(stagdv_adopt(p->listener, raw_accept(own)), 0);
	raw_say(fd, &req);
	id = expect_request(p->ch);
	id_gone(id);
	assert_int_equal(raw_hear(fd, CM_REJ).reason, CM_REJ_APPLICATION);
	close(fd);
	close(own);
}

static void a_request_in_pieces_is_whole(void **state)
{
	struct place *p = *state;
	struct cm_message req = some_message(CM_REQ);
	uint8_t buf[CM_MESSAGE_LEN];
	int fd = raw_connect(IPV4, p->port);
	struct rdma_cm_id *id;

	cm_message_encode(&req, buf);
	for (size_t i = 0; i < sizeof(buf); i++)
		raw_send(fd, buf + i, 1);
	id = expect_request(p->ch);
	id_gone(id);
	assert_int_equal(raw_hear(fd, CM_REJ).reason, CM_REJ_APPLICATION);
	close(fd);
}

/* A peer on stag0 is told at once that it is wrong here, and others are served. */
static void a_peer_of_mpa_is_refused(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	uint8_t first;
	int fd = raw_connect(IPV4, p->port);

	raw_send_frame(fd, &req);
	raw_recv(fd, &first, 1);
	assert_int_equal(first, CM_MESSAGE_FIRST);
	expect_end_of_data(fd);
	expect_silence(p->ch, 0);
	expect_roce_service(p);
}

static void a_peer_that_leaves_before_it_confirms_has_rejected(void **state)
{
	struct place *p = *state;
	struct rdma_cm_id *id;
	int fd = raw_accepted(p, &id);

	close(fd);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_REJECTED), CM_REJ_APPLICATION);
	expect_state(id, IBV_QPS_ERR);
	id_gone(id);
}

static void a_reject_instead_of_a_confirmation_is_one(void **state)
{
	struct cm_message rej = {.kind = CM_REJ, .reason = 17, .private_data = "because"};
	struct place *p = *state;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	int fd = raw_accepted(p, &id);

	raw_say(fd, &rej);
	ev = expect_event(p->ch, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(ev->status, 17);
	assert_int_equal(ev->param.conn.private_data_len, CM_REJ_PRIVATE);
	assert_string_equal(ev->param.conn.private_data, "because");
	rdma_ack_cm_event(ev);
	close(fd);
	id_gone(id);
}

/* A message may come before the RTU. */
static void the_program_can_confirm_by_notify(void **state)
{
	struct place *p = *state;
	struct rdma_cm_id *id;
	int fd = raw_accepted(p, &id);

	assert_int_equal(rdma_notify(id, IBV_EVENT_COMM_EST), 0);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	raw_say_kind(fd, CM_RTU);
	raw_say_kind(fd, CM_DREQ);
	raw_hear(fd, CM_DREP);
	expect_end(p->ch);
	close(fd);
	id_gone(id);
}

static void a_peer_that_makes_no_sense_has_left(void **state)
{
	static const uint8_t kinds[] = {CM_REQ, CM_REP, CM_REJ, CM_DREP};
	struct place *p = *state;

	for (size_t i = 0; i < sizeof(kinds); i++) {
		struct cm_message m = some_message(kinds[i]);
		struct rdma_cm_id *id;
		int fd = raw_accepted(p, &id);

		raw_say_kind(fd, CM_RTU);
		assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
		raw_say(fd, &m);
		expect_end(p->ch);
		expect_hangup(fd);
		id_gone(id);
	}
}

static void a_reset_is_as_good_as_a_dreq(void **state)
{
	struct place *p = *state;
	struct rdma_cm_id *id;
	int fd = raw_accepted(p, &id);

	raw_say_kind(fd, CM_RTU);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	raw_reset(fd);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_DISCONNECTED), 0);
	expect_state(id, IBV_QPS_RTS);
	id_gone(id);
}

static void both_disconnect_and_each_sees_one_end(void **state)
{
	struct place *p = *state;
	struct rdma_cm_id *id;
	int fd = raw_accepted(p, &id);

	raw_say_kind(fd, CM_RTU);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(rdma_disconnect(id), 0);
	raw_hear(fd, CM_DREQ);
	raw_say_kind(fd, CM_DREQ);
	raw_hear(fd, CM_DREP);
	expect_end(p->ch);
	expect_silence(p->ch, 20);
	expect_hangup(fd);
	id_gone(id);
}

/* ---- listeners that are bare sockets ---- */

struct caller {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct cm_message req;
	int listener, fd;
};

static void call(struct caller *c)
{
	uint16_t port;

	c->ch = channel_new();
	c->listener = raw_listen(IPV4, &port);
	c->id = id_resolved(c->ch, IPV4, port);
	assert_int_equal(rdma_connect(c->id, NULL), 0);
	c->fd = raw_accept(c->listener);
	c->req = raw_hear(c->fd, CM_REQ);
	assert_int_equal(c->req.qpn, c->id->qp->qp_num);
}

static void call_ends(struct caller *c)
{
	close(c->fd);
	close(c->listener);
	id_gone(c->id);
	rdma_destroy_event_channel(c->ch);
}

static void answers_that_make_no_sense_are_errors(void **state)
{
	struct cm_message bad[] = {some_message(CM_REQ), some_message(CM_REP), some_message(CM_REP),
				   some_message(CM_RTU)};

	bad[1].psn = 1 << 24;
	memset(bad[2].gid, 0, sizeof(bad[2].gid));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct caller c;

		call(&c);
		raw_say(c.fd, &bad[i]);
		assert_int_equal(expect_status(c.ch, RDMA_CM_EVENT_CONNECT_ERROR), -EPROTO);
		call_ends(&c);
	}
}

static void a_reject_for_another_face_is_a_reject(void **state)
{
	struct cm_message rej = {.kind = CM_REJ, .reason = CM_REJ_TRANSPORT};
	struct caller c;

	call(&c);
	raw_say(c.fd, &rej);
	assert_int_equal(expect_status(c.ch, RDMA_CM_EVENT_REJECTED), CM_REJ_TRANSPORT);
	call_ends(&c);
}

/* Depths beyond the device's are cut, and the queue pair is connected. */
static void depths_of_a_peer_are_cut(void **state)
{
	struct cm_message rep = some_message(CM_REP);
	struct caller c;

	rep.initiator_depth = rep.responder_resources = 255;
	call(&c);
	raw_say(c.fd, &rep);
	raw_hear(c.fd, CM_RTU);
	assert_int_equal(expect_status(c.ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(attributes(c.id).max_rd_atomic, 128);
	raw_say_kind(c.fd, CM_DREQ);
	raw_hear(c.fd, CM_DREP);
	expect_end(c.ch);
	call_ends(&c);
}

/* The queue pair was destroyed meanwhile: the peer learns that nothing comes of it. */
static void a_queue_pair_that_is_gone_fails_the_connection(void **state)
{
	struct cm_message rep = some_message(CM_REP);
	struct caller c;

	call(&c);
	assert_int_equal(ibv_destroy_qp(c.id->qp), 0);
	raw_say(c.fd, &rep);
	raw_hear(c.fd, CM_REJ);
	assert_int_equal(expect_status(c.ch, RDMA_CM_EVENT_CONNECT_ERROR), -EINVAL);
	c.id->qp = NULL;
	ibv_destroy_cq(c.id->send_cq);
	ibv_destroy_cq(c.id->recv_cq);
	ibv_destroy_comp_channel(c.id->send_cq_channel);
	ibv_destroy_comp_channel(c.id->recv_cq_channel);
	call_ends(&c);
}

/* ---- a peer that dies ---- */

static void connect_and_wait(uint16_t port)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *id = id_resolved(ch, IPV4, port);

	assert_int_equal(rdma_connect(id, NULL), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	for (;;)
		pause();
}

static void a_killed_peer_is_noticed(void **state)
{
	struct place *p = *state;
	struct rdma_cm_id *id;
	pid_t child;

#ifdef __SANITIZE_THREAD__
	skip(); /* it allows a forked child no threads */
#endif
	child = fork();
	assert_true(child >= 0);
	if (!child)
		connect_and_wait(p->port);
	id = expect_request(p->ch);
	give_qp(id);
	assert_int_equal(rdma_accept(id, NULL), 0);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	kill(child, SIGKILL);
	expect_end(p->ch);
	assert_int_equal(waitpid(child, NULL, 0), child);
	id_gone(id);
}

/* ---- peers that are silent ---- */

static void a_confirmation_that_does_not_come_times_out(void **state)
{
	struct place *p = *state;
	struct rdma_cm_id *id;
	int fd = raw_accepted(p, &id);

	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
	expect_hangup(fd);
	id_gone(id);
}

static void a_dreq_without_an_answer_ends_in_time(void **state)
{
	struct place *p = *state;
	struct rdma_cm_id *id;
	int fd = raw_accepted(p, &id);

	raw_say_kind(fd, CM_RTU);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(rdma_disconnect(id), 0);
	raw_hear(fd, CM_DREQ);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_DISCONNECTED), -ETIMEDOUT);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
	expect_hangup(fd);
	id_gone(id);
}

static void a_listener_that_does_not_answer_is_unreachable(void **state)
{
	struct caller c;

	call(&c);
	raw_send(c.fd, "stagCO", 6);
	assert_int_equal(expect_status(c.ch, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
	call_ends(&c);
}

#define PLACE(f) cmocka_unit_test_setup_teardown(f, place_open, place_close)

static int run_timed(void)
{
	const struct CMUnitTest tests[] = {
		PLACE(a_confirmation_that_does_not_come_times_out),
		PLACE(a_dreq_without_an_answer_ends_in_time),
		cmocka_unit_test(a_listener_that_does_not_answer_is_unreachable),
	};

	setenv("STAG_CONNECT_TIMEOUT", "1000", 1);
	return cmocka_run_group_tests_name("cm roce late", tests, NULL, NULL);
}

/* With an argument: peers that are silent, for which the time is short. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		PLACE(a_killed_peer_is_noticed), /* before the engine has threads that fork() loses */
		cmocka_unit_test(a_request_tells_the_parameters),
		cmocka_unit_test(queue_pairs_get_what_was_agreed),
		cmocka_unit_test(without_parameters_retries_are_the_most),
		cmocka_unit_test(ack_timeout_is_that_of_the_queue_pair),
		cmocka_unit_test(attributes_are_given_when_they_are_known),
		cmocka_unit_test(a_resolved_id_has_a_path),
		cmocka_unit_test(own_queue_pairs_are_connected_by_the_program),
		cmocka_unit_test(destroyed_before_establish_is_a_reject),
		cmocka_unit_test(private_data_beyond_the_message_is_einval),
		cmocka_unit_test(another_port_space_has_no_listener),
		cmocka_unit_test(the_peer_keeps_its_queue_pair_until_it_disconnects),
		cmocka_unit_test(a_destroyed_queue_pair_ends_nothing),
		PLACE(requests_that_make_no_sense_are_dropped),
		PLACE(another_version_is_dropped),
		PLACE(a_socket_can_be_adopted),
		PLACE(a_request_in_pieces_is_whole),
		PLACE(a_peer_of_mpa_is_refused),
		PLACE(a_peer_that_leaves_before_it_confirms_has_rejected),
		PLACE(a_reject_instead_of_a_confirmation_is_one),
		PLACE(the_program_can_confirm_by_notify),
		PLACE(a_peer_that_makes_no_sense_has_left),
		PLACE(a_reset_is_as_good_as_a_dreq),
		PLACE(both_disconnect_and_each_sees_one_end),
		cmocka_unit_test(answers_that_make_no_sense_are_errors),
		cmocka_unit_test(a_reject_for_another_face_is_a_reject),
		cmocka_unit_test(depths_of_a_peer_are_cut),
		cmocka_unit_test(a_queue_pair_that_is_gone_fails_the_connection),
	};

	if (argc > 1)
		return run_timed();
	return cmocka_run_group_tests_name("cm roce", tests, NULL, NULL);
}
