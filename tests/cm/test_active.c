// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_active.c - our initiator, with bare sockets as listeners: every form of Reply, and
 * everything that is no Reply.
 */
#include "story.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "stag/stagdv.h"

struct peer {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	int listener;
	uint16_t port;
	struct raw_frame req; /* the Request received */
};

static int open_peer(void **state)
{
	struct peer *p = calloc(1, sizeof(*p));

	p->ch = channel_new();
	p->listener = raw_listen(IPV4, &p->port);
	p->id = id_resolved(p->ch, IPV4, p->port);
	*state = p;
	return 0;
}

static int close_peer(void **state)
{
	struct peer *p = *state;

	id_gone(p->id);
	rdma_destroy_event_channel(p->ch);
	close(p->listener);
	free(p);
	return 0;
}

static struct rdma_conn_param modest_param(void)
{
	return (struct rdma_conn_param){.initiator_depth = 5, .responder_resources = 3};
}

/* Starts a connect, accepts it at the bare socket, and receives the Request. */
static int accept_request(struct peer *p)
{
	struct rdma_conn_param param = modest_param();
	int fd;

	assert_int_equal(rdma_connect(p->id, &param), 0);
	fd = raw_accept(p->listener);
	raw_recv_frame(fd, false, &p->req);
	return fd;
}

static void send_reply(int fd, const struct mpa_frame *rep, struct peer *p)
{
	raw_send_frame(fd, rep);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
}

/* Receives the first FPDU of our initiator: a tagged one without payload. */
static struct ddp_hdr recv_rtr(int fd)
{
	uint8_t fpdu[64];
	struct ddp_hdr h;
	size_t len;

	raw_recv(fd, fpdu, MPA_LEN_FIELD);
	len = get_be16(fpdu);
	assert_in_range(len, DDP_TAGGED_LEN, 46);
	raw_recv(fd, fpdu + MPA_LEN_FIELD, fpdu_len(len) - MPA_LEN_FIELD);
	assert_false(ddp_decode(fpdu + MPA_LEN_FIELD, &h).set);
	return h;
}

/* ---- our Request ---- */

static void request_offers_our_capabilities(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);

	assert_int_equal(p->req.f.rev, 2);
	assert_int_equal(p->req.f.flags, MPA_ENHANCED | MPA_CRC | MPA_EXT_OFFER | MPA_SHOT_OFFER |
						 MPA_ESCAPE_OFFER | MPA_SUM_OFFER);
	assert_true(p->req.f.p2p);
	assert_int_equal(p->req.f.rtr, MPA_RTR_WRITE | MPA_RTR_READ);
	assert_int_equal(p->req.f.ord, 5);
	assert_int_equal(p->req.f.ird, 3);
	assert_int_equal(p->req.f.private_len, 0);
	close(fd);
}

static void request_carries_255_bytes(void **state)
{
	struct peer *p = *state;
	struct rdma_conn_param param = modest_param();
	uint8_t data[255];
	int fd;

	memset(data, 'p', sizeof(data));
	param.private_data = data;
	param.private_data_len = 255;
	assert_int_equal(rdma_connect(p->id, &param), 0);
	fd = raw_accept(p->listener);
	raw_recv_frame(fd, false, &p->req);
	assert_int_equal(p->req.f.private_len, 255);
	assert_memory_equal(p->req.f.private_data, data, 255);
	close(fd);
}

static void default_depths_are_the_device_limits(void **state)
{
	struct peer *p = *state;
	int fd;

	assert_int_equal(rdma_connect(p->id, NULL), 0);
	fd = raw_accept(p->listener);
	raw_recv_frame(fd, false, &p->req);
	assert_int_equal(p->req.f.ord, 128);
	assert_int_equal(p->req.f.ird, 128);
	close(fd);
}

static void ports_are_known_while_connecting(void **state)
{
	struct peer *p = *state;
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	int fd = accept_request(p);

	assert_int_equal(getpeername(fd, (struct sockaddr *)&from, &len), 0);
	assert_int_equal(rdma_get_src_port(p->id), from.sin_port);
	assert_int_equal(ntohs(rdma_get_dst_port(p->id)), p->port);
	close(fd);
}

/* ---- Replies ---- */

static void peer_to_peer_opens_with_a_write(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	struct ddp_hdr h;

	send_reply(fd, &rep, p);
	h = recv_rtr(fd);
	assert_true(h.tagged && h.last);
	assert_int_equal(h.opcode, RDMAP_WRITE);
	close(fd);
	expect_end(p->ch);
}

static void peer_to_peer_opens_with_a_read_if_it_must(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	struct ddp_hdr h;

	rep.rtr = MPA_RTR_READ;
	send_reply(fd, &rep, p);
	h = recv_rtr(fd);
	assert_int_equal(h.opcode, RDMAP_READ_REQ);
	assert_int_equal(h.qn, QN_READ);
	close(fd);
}

static void client_and_server_mode_opens_with_nothing(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	struct pollfd quiet = {.fd = fd, .events = POLLIN};

	rep.p2p = false;
	rep.rtr = 0;
	send_reply(fd, &rep, p);
	assert_int_equal(poll(&quiet, 1, 50), 0);
	close(fd);
	expect_end(p->ch);
}

static void no_common_rtr_is_terminated(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	struct wire_fault f;

	rep.rtr = MPA_RTR_SEND;
	raw_send_frame(fd, &rep);
	f = raw_recv_terminate(fd, true);
	assert_int_equal(f.layer, FAULT_LAYER_LLP);
	assert_int_equal(f.etype, 0);
	assert_int_equal(f.code, 0x07);
	expect_hangup(fd);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_CONNECT_ERROR), -EINVAL);
	expect_silence(p->ch, 20);
}

static void reply_with_ord_above_our_ird_is_terminated(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	struct wire_fault f;

	rep.ord = 129;
	raw_send_frame(fd, &rep);
	f = raw_recv_terminate(fd, true);
	assert_int_equal(f.layer, FAULT_LAYER_LLP);
	assert_int_equal(f.code, 0x06);
	expect_hangup(fd);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_CONNECT_ERROR), -EINVAL);
}

static struct ibv_qp_attr query(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	assert_int_equal(ibv_query_qp(id->qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init), 0);
	return attr;
}

static struct stagdv_qp_attr agreed(struct rdma_cm_id *id)
{
	struct stagdv_qp_attr attr = {0};

	assert_int_equal(stagdv_query_qp(id->qp, &attr, sizeof(attr)), 0);
	return attr;
}

static void depths_of_the_reply_are_applied(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);

	rep.ird = 2;  /* we requested an ORD of 5 */
	rep.ord = 17; /* and have an IRD of 3: there is room for more */
	send_reply(fd, &rep, p);
	assert_int_equal(query(p->id).max_rd_atomic, 2);
	assert_int_equal(query(p->id).max_dest_rd_atomic, 17);
	close(fd);
}

static void depths_without_negotiation_are_unchanged(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);

	rep.ird = rep.ord = MPA_DEPTH_NONE;
	send_reply(fd, &rep, p);
	assert_int_equal(query(p->id).max_rd_atomic, 5);
	assert_int_equal(query(p->id).max_dest_rd_atomic, 3);
	close(fd);
}

static void established_event_carries_private_data(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	struct rdma_cm_event *ev;

	rep.private_data = (const uint8_t *)"welcome";
	rep.private_len = 7;
	raw_send_frame(fd, &rep);
	ev = expect_event(p->ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_ptr_equal(ev->id, p->id);
	assert_int_equal(ev->param.conn.private_data_len, 7);
	assert_memory_equal(ev->param.conn.private_data, "welcome", 7);
	assert_int_equal(ev->param.conn.initiator_depth, 5);
	assert_int_equal(ev->param.conn.responder_resources, 3);
	rdma_ack_cm_event(ev);
	close(fd);
}

static void reply_of_revision_1_is_accepted(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = {.reply = true, .rev = 1};

	send_reply(fd, &rep, p);
	assert_int_equal(query(p->id).max_rd_atomic, 5);
	close(fd);
}

static void crc_and_markers_follow_both_sides(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);

	rep.flags = MPA_ENHANCED | MPA_MARKERS; /* no CRC from the peer: our request is enough */
	send_reply(fd, &rep, p);
	assert_int_equal(agreed(p->id).crc, 1);
	assert_int_equal(agreed(p->id).markers_tx, 1);
	assert_int_equal(agreed(p->id).markers_rx, 0);
	assert_int_equal(agreed(p->id).initiator, 1);
	assert_int_equal(agreed(p->id).mpa_rev, 2);
	close(fd);
}

static void extension_block_of_another_version_changes_nothing(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);

	rep.flags |= MPA_EXT_ACCEPT;
	rep.ext = (struct mpa_ext){.version = 2, .caps = MPA_EXT_IMM};
	send_reply(fd, &rep, p);
	assert_int_equal(agreed(p->id).stag_peer, 0);
	close(fd);
}

/* An echo of our offer is no acceptance (siw echoes), nor is the flag without the block. */
static void echo_of_the_offer_changes_nothing(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	struct rdma_cm_event *ev;
	uint8_t buf[MPA_FRAME_MAX];
	int len;

	rep.private_data = (const uint8_t *)"nothing like it";
	rep.private_len = 15;
	len = mpa_encode(&rep, buf, sizeof(buf));
	buf[16] |= MPA_EXT_OFFER | MPA_EXT_ACCEPT;
	raw_send(fd, buf, (size_t)len);
	ev = expect_event(p->ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(ev->param.conn.private_data_len, 15);
	rdma_ack_cm_event(ev);
	assert_int_equal(agreed(p->id).stag_peer, 0);
	assert_int_equal(agreed(p->id).abilities, 0);
	close(fd);
}

static void extension_block_is_not_passed_to_the_program(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	struct rdma_cm_event *ev;

	rep.flags = (uint8_t)((rep.flags & ~MPA_EXT_OFFER) | MPA_EXT_ACCEPT);
	rep.ext = (struct mpa_ext){.version = 1, .caps = MPA_EXT_IMM};
	rep.private_data = (const uint8_t *)"ours";
	rep.private_len = 4;
	raw_send_frame(fd, &rep);
	ev = expect_event(p->ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(ev->param.conn.private_data_len, 4);
	assert_memory_equal(ev->param.conn.private_data, "ours", 4);
	rdma_ack_cm_event(ev);
	assert_int_equal(agreed(p->id).stag_peer, 1);
	assert_int_equal(agreed(p->id).abilities, STAGDV_ABILITY_IMM); /* the abilities of both */
	close(fd);
}

static struct stagdv_qp_attr after_reply(void **state, uint16_t caps, uint8_t encoding)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	struct stagdv_qp_attr attr;

	rep.flags |= MPA_EXT_ACCEPT;
	rep.ext = (struct mpa_ext){.version = 1, .caps = caps, .encoding = encoding};
	send_reply(fd, &rep, p);
	attr = agreed(p->id);
	close(fd);
	return attr;
}

static void accepting_side_chooses_the_one_shot_encoding(void **state)
{
	assert_int_equal(after_reply(state, MPA_EXT_ONE_SHOT, SHOT_BITS).one_shot,
			 STAGDV_ONE_SHOT_BITS);
}

static void literal_opcodes_leave_no_immediate_data(void **state)
{
	struct stagdv_qp_attr attr =
		after_reply(state, MPA_EXT_ONE_SHOT | MPA_EXT_IMM | MPA_EXT_SEND_IMM, SHOT_LITERAL);

	assert_int_equal(attr.one_shot, STAGDV_ONE_SHOT_LITERAL);
	assert_int_equal(attr.abilities, STAGDV_ABILITY_ONE_SHOT | STAGDV_ABILITY_SEND_IMM);
}

static void unknown_encoding_disables_one_shot_sends(void **state)
{
	struct stagdv_qp_attr attr = after_reply(state, MPA_EXT_ONE_SHOT | MPA_EXT_IMM, 4);

	assert_int_equal(attr.one_shot, STAGDV_ONE_SHOT_NONE);
	assert_int_equal(attr.abilities, STAGDV_ABILITY_IMM);
}

static void reply_sent_byte_by_byte_is_accepted(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	uint8_t buf[MPA_FRAME_MAX];
	int len = mpa_encode(&rep, buf, sizeof(buf));

	for (int i = 0; i < len; i++)
		raw_send(fd, buf + i, 1);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	close(fd);
}

/* The peer's first message comes in one TCP segment with its Reply. */
static void message_behind_the_reply_is_not_lost(void **state)
{
	struct peer *p = *state;
	struct ddp_hdr h = {.last = true, .opcode = RDMAP_SEND, .qn = QN_SEND, .msn = 1};
	uint8_t buf[MPA_FRAME_MAX + 64] = {0}, *fpdu, room[16] = {0};
	struct mpa_frame rep;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	int fd = accept_request(p), len;

	mr = rdma_reg_msgs(p->id, room, sizeof(room));
	assert_non_null(mr);
	assert_int_equal(rdma_post_recv(p->id, NULL, room, sizeof(room), mr), 0);
	rep = accepting_reply(&p->req.f);
	len = mpa_encode(&rep, buf, sizeof(buf));
	fpdu = buf + len;
	put_be16(fpdu, DDP_UNTAGGED_LEN + 4);
	ddp_encode(&h, fpdu + MPA_LEN_FIELD);
	memcpy(fpdu + MPA_LEN_FIELD + DDP_UNTAGGED_LEN, "hey!", 4);
	crc32c_put(fpdu + 24, crc32c_update(CRC32C_INIT, fpdu, 24));
	raw_send(fd, buf, (size_t)len + 28);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(rdma_get_recv_comp(p->id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 4);
	assert_memory_equal(room, "hey!", 4);
	close(fd);
	expect_end(p->ch);
	rdma_dereg_mr(mr);
}

/* ---- rejections and invalid Replies ---- */

static void rejected_event_carries_private_data(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	struct rdma_cm_event *ev;

	rep.flags |= MPA_REJECT;
	rep.private_data = (const uint8_t *)"full";
	rep.private_len = 4;
	raw_send_frame(fd, &rep);
	ev = expect_event(p->ch, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(ev->status, -ECONNREFUSED);
	assert_int_equal(ev->param.conn.private_data_len, 4);
	assert_memory_equal(ev->param.conn.private_data, "full", 4);
	rdma_ack_cm_event(ev);
	expect_hangup(fd);
	expect_silence(p->ch, 20);
}

static void garbage_is_an_error(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);

	raw_send(fd, "SSH-2.0-OpenSSH_9.2\r\n", 21);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_CONNECT_ERROR), -EPROTO);
	expect_hangup(fd);
}

/* Two initiators on one connection: each waits for a Reply and gets a Request. */
static void request_instead_of_a_reply_is_an_error(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame req = enhanced_request();

	raw_send_frame(fd, &req);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_CONNECT_ERROR), -EPROTO);
	expect_hangup(fd);
}

static void absurd_length_is_an_error(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);
	uint8_t buf[MPA_FRAME_MAX];

	mpa_encode(&rep, buf, sizeof(buf));
	put_be16(buf + 18, 0xffff);
	raw_send(fd, buf, MPA_FRAME_LEN);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_CONNECT_ERROR), -EPROTO);
	expect_hangup(fd);
}

static void close_within_the_reply_is_rejected(void **state)
{
	struct peer *p = *state;

	for (int reset = 0; reset < 2; reset++) {
		int fd = accept_request(p);
		struct mpa_frame rep = accepting_reply(&p->req.f);
		uint8_t buf[MPA_FRAME_MAX];

		mpa_encode(&rep, buf, sizeof(buf));
		raw_send(fd, buf, 1);
		if (reset)
			raw_reset(fd);
		else
			close(fd);
		assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_REJECTED), -ECONNRESET);
		expect_silence(p->ch, 20);
		id_gone(p->id);
		p->id = id_resolved(p->ch, IPV4, p->port);
	}
}

/* ---- a peer that closes after a Request of revision 2 ---- */

static void second_attempt_uses_revision_1(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = {.reply = true, .rev = 1};
	struct sockaddr_in from;
	socklen_t len = sizeof(from);

	close(fd);
	fd = raw_accept(p->listener);
	raw_recv_frame(fd, false, &p->req);
	assert_int_equal(p->req.f.rev, 1);
	assert_int_equal(p->req.f.flags, MPA_CRC); /* no block, no offer */
	send_reply(fd, &rep, p);
	assert_int_equal(getpeername(fd, (struct sockaddr *)&from, &len), 0);
	assert_int_equal(rdma_get_src_port(p->id), from.sin_port);
	assert_int_equal(query(p->id).max_rd_atomic, 5);
	close(fd);
	expect_end(p->ch);
}

/*
 * A listener that was just closed resets the connection: a second attempt with the same Request
 * finds the next listener.
 */
static void first_reset_is_retried_with_the_same_request(void **state)
{
	struct peer *p = *state;
	struct mpa_frame rep;
	int fd = accept_request(p);

	raw_reset(fd);
	fd = raw_accept(p->listener);
	raw_recv_frame(fd, false, &p->req);
	assert_int_equal(p->req.f.rev, 2);
	rep = accepting_reply(&p->req.f);
	send_reply(fd, &rep, p);
	close(fd);
}

static void second_reset_falls_back_to_revision_1(void **state)
{
	struct peer *p = *state;
	struct mpa_frame rep = {.reply = true, .rev = 1};
	int fd = accept_request(p);

	raw_reset(fd);
	fd = raw_accept(p->listener);
	raw_recv_frame(fd, false, &p->req);
	raw_reset(fd);
	fd = raw_accept(p->listener);
	raw_recv_frame(fd, false, &p->req);
	assert_int_equal(p->req.f.rev, 1);
	send_reply(fd, &rep, p);
	close(fd);
}

static void revision_1_attempt_is_the_last(void **state)
{
	struct peer *p = *state;
	struct pollfd more = {.fd = p->listener, .events = POLLIN};

	close(accept_request(p));
	close(raw_accept(p->listener));
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_REJECTED), -ECONNRESET);
	assert_int_equal(poll(&more, 1, 50), 0);
	expect_silence(p->ch, 0);
}

/* Between two listeners of one program there is a moment in which TCP refuses. */
static void refused_connection_is_retried_for_a_moment(void **state)
{
	struct peer *p = *state;
	struct mpa_frame rep;
	int fd;

	id_gone(p->id);
	close(p->listener);
	p->listener = raw_bind(IPV4, &p->port);
	p->id = id_resolved(p->ch, IPV4, p->port);
	assert_int_equal(rdma_connect(p->id, NULL), 0);
	expect_silence(p->ch, 15); /* the first attempt has been refused by now */
	assert_int_equal(listen(p->listener, 1), 0);
	fd = raw_accept(p->listener);
	raw_recv_frame(fd, false, &p->req);
	rep = accepting_reply(&p->req.f);
	send_reply(fd, &rep, p);
	close(fd);
}

/* Creates an id whose source port is chosen before it connects. */
static struct rdma_cm_id *id_with_port(struct rdma_event_channel *ch, uint16_t port)
{
	struct sockaddr_storage from = address(IPV4, 0), to = address(IPV4, port);
	struct rdma_cm_id *id = id_new(ch);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&from), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	give_qp(id);
	return id;
}

static void connect_as(struct rdma_cm_id *id, uint8_t who)
{
	struct rdma_conn_param param = modest_param();

	param.private_data = &who;
	param.private_data_len = 1;
	assert_int_equal(rdma_connect(id, &param), 0);
}

/* Receives the next Request, and skips connections that were closed before they sent one. */
static int next_request(struct peer *p, uint8_t *who)
{
	int fd;

	while (fd = raw_accept(p->listener), TEMP_FAILURE_RETRY(recv(fd, who, 1, MSG_PEEK)) <= 0)
		close(fd);
	raw_recv_frame(fd, false, &p->req);
	assert_int_equal(p->req.f.private_len, 1);
	*who = *p->req.f.private_data;
	return fd;
}

/*
 * A program may count its connections on both sides. The first is refused, the others find a
 * listener.
 */
static void refused_connections_keep_their_order(void **state)
{
	enum { N = 6 };
	struct peer *p = *state;
	struct rdma_cm_id *id[N];
	uint8_t seen;

	for (int round = 0; round < 8; round++) {
		close(p->listener);
		p->listener = raw_bind(IPV4, &p->port);
		for (uint8_t i = 0; i < N; i++)
			id[i] = i == 2 ? id_with_port(p->ch, p->port)
				       : id_resolved(p->ch, IPV4, p->port);
		for (uint8_t i = 0; i < N; i++) {
			connect_as(id[i], i);
			if (i == 0) {
				expect_silence(p->ch, 1 + 3 * round);
				assert_int_equal(listen(p->listener, 64), 0);
			}
		}
		for (uint8_t i = 0; i < N; i++) {
			close(next_request(p, &seen));
			assert_int_equal(seen, i);
		}
		for (uint8_t i = 0; i < N; i++)
			id_gone(id[i]);
	}
}

static int child_connects(uint16_t port)
{
	struct rdma_event_channel *ch = channel_new();

	connect_as(id_resolved(ch, IPV4, port), 'c');
	return expect_status(ch, RDMA_CM_EVENT_ESTABLISHED);
}

/* The child has a copy of its parent's connecting ids. */
static void forked_child_does_not_connect_for_its_parent(void **state)
{
	struct peer *p = *state;
	struct mpa_frame rep;
	int fd[2], status;
	uint8_t seen[2];
	pid_t pid;

#ifdef __SANITIZE_THREAD__
	skip(); /* TSan forbids threads in a forked child */
#endif
	id_gone(p->id);
	close(p->listener);
	p->listener = raw_bind(IPV4, &p->port);
	p->id = id_resolved(p->ch, IPV4, p->port);
	connect_as(p->id, 'p');
	expect_silence(p->ch, 5);
	pid = fork();
	if (pid == 0)
		_exit(child_connects(p->port) ? 1 : 0);
	assert_true(pid > 0);
	assert_int_equal(listen(p->listener, 16), 0);
	for (int i = 0; i < 2; i++) {
		fd[i] = next_request(p, &seen[i]);
		rep = accepting_reply(&p->req.f);
		raw_send_frame(fd[i], &rep);
	}
	assert_int_equal(seen[0] + seen[1], 'p' + 'c');
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(fd[0]);
	close(fd[1]);
}

/* A source port that the program chose is kept for the second attempt. */
static void second_attempt_keeps_a_chosen_port(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct sockaddr_in seen;
	socklen_t len = sizeof(seen);
	struct mpa_frame rep = {.reply = true, .rev = 1};
	struct raw_frame req;
	uint16_t port;
	int fd, listener = raw_listen(IPV4, &port);
	struct rdma_cm_id *id = id_with_port(ch, port);

	port = rdma_get_src_port(id);
	assert_int_equal(rdma_connect(id, NULL), 0);
	fd = raw_accept(listener);
	raw_recv_frame(fd, false, &req);
	raw_reset(fd);
	fd = raw_accept(listener);
	assert_int_equal(getpeername(fd, (struct sockaddr *)&seen, &len), 0);
	assert_int_equal(seen.sin_port, port);
	raw_recv_frame(fd, false, &req);
	raw_send_frame(fd, &rep);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	close(fd);
	close(listener);
	id_gone(id);
	rdma_destroy_event_channel(ch);
}

/* ---- the end of an attempt ---- */

static void id_destroyed_while_connecting_resets_the_connection(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);

	id_gone(p->id);
	expect_hangup(fd);
	expect_silence(p->ch, 0);
	p->id = id_new(p->ch);
}

static void queue_pair_destroyed_while_connecting_is_an_error(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);
	struct mpa_frame rep = accepting_reply(&p->req.f);

	rdma_destroy_qp(p->id);
	raw_send_frame(fd, &rep);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_CONNECT_ERROR), -EINVAL);
	expect_hangup(fd);
}

static void disconnected_while_connecting_is_an_error(void **state)
{
	struct peer *p = *state;
	int fd = accept_request(p);

	assert_int_equal(rdma_disconnect(p->id), 0);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_CONNECT_ERROR), -ECONNABORTED);
	expect_hangup(fd);
}

#define STORY(f) cmocka_unit_test_setup_teardown(f, open_peer, close_peer)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(request_offers_our_capabilities),
		STORY(request_carries_255_bytes),
		STORY(default_depths_are_the_device_limits),
		STORY(ports_are_known_while_connecting),
		STORY(peer_to_peer_opens_with_a_write),
		STORY(peer_to_peer_opens_with_a_read_if_it_must),
		STORY(client_and_server_mode_opens_with_nothing),
		STORY(no_common_rtr_is_terminated),
		STORY(reply_with_ord_above_our_ird_is_terminated),
		STORY(depths_of_the_reply_are_applied),
		STORY(depths_without_negotiation_are_unchanged),
		STORY(established_event_carries_private_data),
		STORY(reply_of_revision_1_is_accepted),
		STORY(crc_and_markers_follow_both_sides),
		STORY(extension_block_of_another_version_changes_nothing),
		STORY(echo_of_the_offer_changes_nothing),
		STORY(extension_block_is_not_passed_to_the_program),
		STORY(accepting_side_chooses_the_one_shot_encoding),
		STORY(literal_opcodes_leave_no_immediate_data),
		STORY(unknown_encoding_disables_one_shot_sends),
		STORY(reply_sent_byte_by_byte_is_accepted),
		STORY(message_behind_the_reply_is_not_lost),
		STORY(rejected_event_carries_private_data),
		STORY(garbage_is_an_error),
		STORY(request_instead_of_a_reply_is_an_error),
		STORY(absurd_length_is_an_error),
		STORY(close_within_the_reply_is_rejected),
		STORY(second_attempt_uses_revision_1),
		STORY(first_reset_is_retried_with_the_same_request),
		STORY(second_reset_falls_back_to_revision_1),
		STORY(revision_1_attempt_is_the_last),
		STORY(refused_connection_is_retried_for_a_moment),
		STORY(refused_connections_keep_their_order),
		STORY(forked_child_does_not_connect_for_its_parent),
		STORY(second_attempt_keeps_a_chosen_port),
		STORY(id_destroyed_while_connecting_resets_the_connection),
		STORY(queue_pair_destroyed_while_connecting_is_an_error),
		STORY(disconnected_while_connecting_is_an_error),
	};

	/*
	 * A machine that stalls for a while must not look like a silent peer; test_late.c is about
	 * those.
	 */
	setenv("STAG_CONNECT_TIMEOUT", "600000", 1);
	setenv("STAG_REFUSED_RETRY", "60000", 1);
	return cmocka_run_group_tests_name("cm active", tests, NULL, NULL);
}
