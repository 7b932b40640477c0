// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_passive.c - our listener, with bare sockets as peers: every form of Request, and everything
 * that is no Request.
 */
#include "story.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"

static void destroy_and_close(struct place *p, int fd, struct rdma_cm_id *id)
{
	close(fd);
	id_gone(id);
	expect_service(p);
}

/* ---- forms of a Request ---- */

static void revision_1_is_answered_with_revision_1(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = plain_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd = accepted(p, &req, NULL, &id, &rep);

	assert_int_equal(rep.f.rev, 1);
	assert_false(rep.f.flags & MPA_ENHANCED);
	assert_int_equal(rep.len, MPA_FRAME_LEN);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	destroy_and_close(p, fd, id);
}

static void revision_0_counts_as_1(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = {.rev = 0};
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd = accepted(p, &req, NULL, &id, &rep);

	assert_int_equal(rep.f.rev, 1);
	destroy_and_close(p, fd, id);
}

static void revision_2_without_block_is_answered_without(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = {.rev = 2};
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd = accepted(p, &req, NULL, &id, &rep);

	assert_int_equal(rep.f.rev, 2);
	assert_false(rep.f.flags & MPA_ENHANCED);
	destroy_and_close(p, fd, id);
}

/* Initiator ORD <= responder IRD, and the other way round (RFC 6581 §5). */
static void depths_are_negotiated(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_conn_param param = {.initiator_depth = 9, .responder_resources = 1};
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.ird = 3;
	req.ord = 7;
	fd = accepted(p, &req, &param, &id, &rep);
	assert_true(rep.f.flags & MPA_ENHANCED);
	assert_int_equal(rep.f.ord, 3); /* our ORD: 9 requested, the peer's IRD is 3 */
	assert_int_equal(rep.f.ird, 7); /* our IRD: 1 requested, the peer's ORD is 7 */
	destroy_and_close(p, fd, id);
}

static void depths_are_clamped_to_the_device(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.ird = req.ord = 1000;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_int_equal(rep.f.ord, 128);
	assert_int_equal(rep.f.ird, 128);
	destroy_and_close(p, fd, id);
}

static void depths_that_are_not_negotiated_are_mirrored(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.ird = req.ord = MPA_DEPTH_NONE;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_int_equal(rep.f.ord, MPA_DEPTH_NONE);
	assert_int_equal(rep.f.ird, MPA_DEPTH_NONE);
	destroy_and_close(p, fd, id);
}

static void program_sees_depths_from_its_side(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	int fd = raw_connect(IPV4, p->port);

	req.ird = 3;
	req.ord = 7;
	raw_send_frame(fd, &req);
	ev = expect_event(p->ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(ev->param.conn.initiator_depth, 3);
	assert_int_equal(ev->param.conn.responder_resources, 7);
	assert_ptr_equal(ev->listen_id, p->listener);
	id = ev->id;
	rdma_ack_cm_event(ev);
	destroy_and_close(p, fd, id);
}

static void crc_follows_either_side(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.flags |= MPA_CRC;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_true(rep.f.flags & MPA_CRC);
	destroy_and_close(p, fd, id);
}

static void request_for_markers_is_not_echoed(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.flags |= MPA_MARKERS;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_false(rep.f.flags & MPA_MARKERS);
	destroy_and_close(p, fd, id);
}

static void reserved_bits_are_ignored(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.flags |= 0x0c | MPA_REJECT;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_int_equal(rep.f.flags & 0x2f, 0);
	destroy_and_close(p, fd, id);
}

static void rtr_options_are_those_in_common(void **state)
{
	static const struct {
		uint8_t asked, answered;
	} cases[] = {
		{MPA_RTR_WRITE | MPA_RTR_READ, MPA_RTR_WRITE | MPA_RTR_READ},
		{MPA_RTR_WRITE | MPA_RTR_SEND, MPA_RTR_WRITE},
		{MPA_RTR_READ, MPA_RTR_READ},
		{MPA_RTR_SEND, MPA_RTR_WRITE | MPA_RTR_READ}, /* ours, though none is common */
		{0, MPA_RTR_WRITE | MPA_RTR_READ},
	};
	struct place *p = *state;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct mpa_frame req = enhanced_request();
		struct rdma_cm_id *id;
		struct raw_frame rep;
		int fd;

		req.p2p = true;
		req.rtr = cases[i].asked;
		fd = accepted(p, &req, NULL, &id, &rep);
		assert_true(rep.f.p2p);
		assert_int_equal(rep.f.rtr, cases[i].answered);
		destroy_and_close(p, fd, id);
	}
}

/* A zero-length read as RTR needs an IRD of one, though the peer requested none. */
static void read_rtr_raises_the_ird_to_one(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_conn_param param = {0};
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.p2p = true;
	req.rtr = MPA_RTR_READ;
	req.ord = 0;
	fd = accepted(p, &req, &param, &id, &rep);
	assert_int_equal(rep.f.ird, 1);
	destroy_and_close(p, fd, id);
}

/* In peer-to-peer mode ESTABLISHED waits for the RTR message. */
static void established_waits_for_the_rtr(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct ddp_hdr rtr = {.tagged = true, .last = true, .opcode = RDMAP_WRITE, .stag = 1};
	uint8_t fpdu[20] = {0};
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.p2p = true;
	req.rtr = MPA_RTR_WRITE;
	fd = accepted(p, &req, NULL, &id, &rep);
	expect_silence(p->ch, 50);
	put_be16(fpdu, DDP_TAGGED_LEN);
	ddp_encode(&rtr, fpdu + MPA_LEN_FIELD);
	crc32c_put(fpdu + 16, crc32c_update(CRC32C_INIT, fpdu, 16));
	raw_send(fd, fpdu, sizeof(fpdu));
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	close(fd);
	expect_end(p->ch);
	id_gone(id);
}

static void peer_that_closes_before_its_rtr_is_an_error(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.p2p = true;
	req.rtr = MPA_RTR_WRITE;
	fd = accepted(p, &req, NULL, &id, &rep);
	raw_reset(fd);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_CONNECT_ERROR), -ECONNRESET);
	expect_silence(p->ch, 20);
	id_gone(id);
}

/* ---- the extensions ---- */

static void offer_is_accepted_with_a_block(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5};
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.flags |= MPA_EXT_OFFER;
	fd = accepted(p, &req, &param, &id, &rep);
	assert_true(rep.f.flags & MPA_EXT_ACCEPT);
	assert_false(rep.f.flags & MPA_EXT_OFFER);
	assert_int_equal(rep.f.ext.version, 1);
	assert_int_equal(rep.f.ext.encoding, 0);
	assert_int_equal(rep.f.ext.caps, MPA_EXT_IMM | MPA_EXT_ATOMIC | MPA_EXT_BIG_FPDU |
						 MPA_EXT_SEND_IMM | MPA_EXT_FLUSH);
	assert_int_equal(rep.f.private_len, 5);
	assert_memory_equal(rep.f.private_data, "hello", 5);
	destroy_and_close(p, fd, id);
}

/* An older peer does not know the flag, and the Reply does not have the capability. */
static void subtypes_are_used_only_if_offered(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.flags |= MPA_EXT_OFFER | MPA_ESCAPE_OFFER;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_false(rep.f.flags & MPA_ESCAPE_OFFER);
	assert_true(rep.f.ext.caps & MPA_EXT_ESCAPE);
	destroy_and_close(p, fd, id);
	req.flags &= (uint8_t)~MPA_EXT_OFFER;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_int_equal(rep.f.flags & (MPA_EXT_ACCEPT | MPA_ESCAPE_OFFER), 0);
	destroy_and_close(p, fd, id);
}

static void sums_are_used_only_if_offered(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.flags |= MPA_EXT_OFFER | MPA_SUM_OFFER;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_true(rep.f.ext.caps & MPA_EXT_SUM);
	destroy_and_close(p, fd, id);
	req.flags &= (uint8_t)~MPA_SUM_OFFER;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_false(rep.f.ext.caps & MPA_EXT_SUM);
	destroy_and_close(p, fd, id);
	req.flags = (uint8_t)((req.flags | MPA_SUM_OFFER) & ~MPA_EXT_OFFER);
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_int_equal(rep.f.flags & MPA_EXT_ACCEPT, 0);
	destroy_and_close(p, fd, id);
}

/* A peer without one-shot sends, or with another version of them, gets none. */
static void one_shot_sends_are_used_only_if_offered(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.flags |= MPA_EXT_OFFER | MPA_SHOT_OFFER;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_int_equal(rep.f.flags & (MPA_EXT_OFFER | MPA_SHOT_OFFER), 0);
	assert_int_equal(rep.f.ext.encoding, SHOT_OPCODES);
	assert_true(rep.f.ext.caps & MPA_EXT_ONE_SHOT);
	destroy_and_close(p, fd, id);
	req.flags &= (uint8_t)~MPA_EXT_OFFER;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_int_equal(rep.f.flags & (MPA_EXT_ACCEPT | MPA_EXT_OFFER | MPA_SHOT_OFFER), 0);
	destroy_and_close(p, fd, id);
}

static void standard_peer_sees_nothing_of_the_extensions(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd = accepted(p, &req, NULL, &id, &rep);

	assert_int_equal(rep.f.flags & (MPA_EXT_ACCEPT | MPA_EXT_OFFER), 0);
	assert_int_equal(rep.len, MPA_FRAME_LEN + MPA_ENHANCED_LEN);
	destroy_and_close(p, fd, id);
}

static void offer_in_a_revision_1_request_is_ignored(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = plain_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.flags |= MPA_EXT_OFFER;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_int_equal(rep.f.flags & (MPA_EXT_ACCEPT | MPA_EXT_OFFER), 0);
	destroy_and_close(p, fd, id);
}

/* ---- private data ---- */

static void private_data_arrives(void **state)
{
	static const size_t sizes[] = {1, 2, 3, 4, 251, 252, 253, 254, 255};
	struct place *p = *state;
	uint8_t data[255];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + 1);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct mpa_frame req = enhanced_request();
		struct rdma_cm_event *ev;
		int fd = raw_connect(IPV4, p->port);

		req.private_data = data;
		req.private_len = sizes[i];
		raw_send_frame(fd, &req);
		ev = expect_event(p->ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		assert_int_equal(ev->param.conn.private_data_len, sizes[i]);
		assert_memory_equal(ev->param.conn.private_data, data, sizes[i]);
		rdma_destroy_id(ev->id);
		rdma_ack_cm_event(ev);
		close(fd);
	}
}

/* Private data longer than a conn_param can describe is truncated. */
static void long_private_data_is_truncated_to_255(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	uint8_t data[MPA_MAX_PRIVATE - MPA_ENHANCED_LEN];
	struct rdma_cm_event *ev;
	int fd = raw_connect(IPV4, p->port);

	memset(data, 'x', sizeof(data));
	req.private_data = data;
	req.private_len = sizeof(data);
	raw_send_frame(fd, &req);
	ev = expect_event(p->ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(ev->param.conn.private_data_len, 255);
	rdma_destroy_id(ev->id);
	rdma_ack_cm_event(ev);
	close(fd);
}

static void reply_carries_255_bytes(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	uint8_t data[255];
	struct rdma_conn_param param = {.private_data = data, .private_data_len = 255};
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	memset(data, 'y', sizeof(data));
	req.flags |= MPA_EXT_OFFER; /* the longest possible: both blocks */
	fd = accepted(p, &req, &param, &id, &rep);
	assert_int_equal(rep.f.private_len, 255);
	assert_memory_equal(rep.f.private_data, data, 255);
	destroy_and_close(p, fd, id);
}

/* ---- rejections ---- */

static void reject_carries_data_and_closes(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct raw_frame rep;
	struct rdma_cm_id *id;
	int fd = raw_connect(IPV4, p->port);

	raw_send_frame(fd, &req);
	id = expect_request(p->ch);
	assert_int_equal(rdma_reject(id, "busy", 4), 0);
	raw_recv_frame(fd, true, &rep);
	assert_true(rep.f.flags & MPA_REJECT);
	assert_int_equal(rep.f.private_len, 4);
	assert_memory_equal(rep.f.private_data, "busy", 4);
	expect_hangup(fd);
	assert_int_equal(rdma_reject(id, NULL, 0), -1);
	assert_int_equal(errno, EINVAL);
	rdma_destroy_id(id);
	expect_silence(p->ch, 20);
}

static void request_whose_id_is_destroyed_is_rejected(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct raw_frame rep;
	int fd = raw_connect(IPV4, p->port);

	raw_send_frame(fd, &req);
	rdma_destroy_id(expect_request(p->ch));
	raw_recv_frame(fd, true, &rep);
	assert_true(rep.f.flags & MPA_REJECT);
	expect_hangup(fd);
}

static void unfetched_request_is_closed_with_its_listener(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *listener = id_listening(ch, IPV4, 0);
	struct pollfd there = {.fd = ch->fd, .events = POLLIN};
	struct mpa_frame req = enhanced_request();
	int fd = raw_connect(IPV4, id_port(listener));

	raw_send_frame(fd, &req);
	assert_int_equal(poll(&there, 1, PATIENCE_MS), 1);
	rdma_destroy_id(listener);
	expect_silence(ch, 0);
	expect_end_of_data(fd);
	rdma_destroy_event_channel(ch);
}

static void closed_connection_cannot_be_accepted(void **state)
{
	struct place *p = *state;

	for (int reset = 0; reset < 2; reset++) {
		struct mpa_frame req = enhanced_request();
		int fd = raw_connect(IPV4, p->port);
		struct rdma_cm_id *id;

		raw_send_frame(fd, &req);
		id = expect_request(p->ch);
		give_qp(id);
		if (reset)
			raw_reset(fd);
		else
			close(fd);
		engine_catches_up(p); /* until then accept() may still succeed */
		assert_int_equal(rdma_accept(id, NULL), -1);
		assert_int_equal(errno, ECONNRESET);
		id_gone(id);
	}
	expect_service(p);
}

static void peer_that_does_not_wait_for_the_reply_is_dropped(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	int fd = raw_connect(IPV4, p->port);

	raw_send_frame(fd, &req);
	id = expect_request(p->ch);
	raw_send(fd, "impatient", 9);
	expect_hangup(fd);
	rdma_destroy_id(id);
	expect_service(p);
}

/* ---- invalid Requests ---- */

static void garbage_is_disconnected(void **state)
{
	static const uint8_t zeroes[MPA_FRAME_LEN];
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	uint8_t frame[MPA_FRAME_MAX];
	int len = mpa_encode(&req, frame, sizeof(frame)), fd;

	fd = raw_connect(IPV4, p->port);
	raw_send(fd, "GET / HTTP/1.1\r\n\r\n", 18);
	expect_hangup(fd);

	fd = raw_connect(IPV4, p->port);
	raw_send(fd, zeroes, sizeof(zeroes));
	expect_hangup(fd);

	fd = raw_connect(IPV4, p->port); /* a Reply is no Request */
	frame[13] = 'p';
	raw_send(fd, frame, (size_t)len);
	expect_hangup(fd);
	frame[13] = 'q';

	fd = raw_connect(IPV4, p->port); /* revision 3 */
	frame[17] = 3;
	raw_send(fd, frame, (size_t)len);
	expect_hangup(fd);
	frame[17] = 2;

	fd = raw_connect(IPV4, p->port); /* 513 bytes of private data */
	put_be16(frame + 18, 513);
	raw_send(fd, frame, MPA_FRAME_LEN);
	expect_hangup(fd);

	fd = raw_connect(IPV4, p->port); /* too short for the block that it announces */
	put_be16(frame + 18, 3);
	raw_send(fd, frame, MPA_FRAME_LEN + 3);
	expect_hangup(fd);

	expect_silence(p->ch, 0);
	expect_service(p);
}

static void request_sent_byte_by_byte_is_accepted(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	uint8_t frame[MPA_FRAME_MAX];
	int len, one = 1, fd = raw_connect(IPV4, p->port);

	req.private_data = (const uint8_t *)"drop by drop";
	req.private_len = 12;
	len = mpa_encode(&req, frame, sizeof(frame));
	setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
	for (int i = 0; i < len; i++)
		raw_send(fd, frame + i, 1);
	rdma_destroy_id(expect_request(p->ch));
	close(fd);
}

static void listener_survives_a_reset_in_every_state(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	uint8_t frame[MPA_FRAME_MAX];
	int len = mpa_encode(&req, frame, sizeof(frame));
	struct rdma_cm_id *id;
	struct raw_frame rep;

	for (int sent = 0; sent < len; sent++) { /* after every prefix of a Request */
		int fd = raw_connect(IPV4, p->port);

		if (sent)
			raw_send(fd, frame, (size_t)sent);
		raw_reset(fd);
	}
	id = NULL;
	raw_reset(accepted(p, &req, NULL, &id, &rep)); /* after the Reply */
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	expect_end(p->ch);
	id_gone(id);
	expect_silence(p->ch, 20);
	expect_service(p);
}

/* ---- resource limits ---- */

/* With no file descriptor left the listener waits, without spinning, and then continues. */
static void listener_survives_running_out_of_descriptors(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rlimit was, none;
	uint64_t used;
	int fd[4], top;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	for (int i = 0; i < 4; i++)
		fd[i] = socket(AF_INET, SOCK_STREAM, 0);
	top = dup(0);
	close(top);
	none = was;
	none.rlim_cur = (rlim_t)top; /* the next descriptor exceeds the limit */
	for (int i = 0; i < 4; i++) {
		struct sockaddr_storage a = address(IPV4, p->port);

		if (i == 1)
			assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
		assert_int_equal(connect(fd[i], (struct sockaddr *)&a, sizeof(struct sockaddr_in)),
				 0);
	}
	used = clock_read(CLOCK_PROCESS_CPUTIME_ID);
	expect_silence(p->ch, 300); /* longer than two of its pauses */
	used = clock_read(CLOCK_PROCESS_CPUTIME_ID) - used;
	assert_in_range(used, 0, 150 * NS_PER_MS); /* a spinning listener takes 300 */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	raw_send_frame(fd[3], &req);
	rdma_destroy_id(expect_request(p->ch));
	for (int i = 0; i < 4; i++)
		close(fd[i]);
	expect_service(p);
}

/* More silent peers than are kept: the oldest are closed, and a new one is served. */
static void silent_peers_do_not_block_new_ones(void **state)
{
	struct place *p = *state;
	struct rlimit files;
	enum { CROWD = 1200 };
	static int fd[CROWD];

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur < 4 * CROWD)
		skip();
	for (int i = 0; i < CROWD; i++)
		fd[i] = raw_connect(IPV4, p->port);
	expect_service(p);
	for (int i = 0; i < CROWD; i++)
		close(fd[i]);
	expect_service(p);
}

/* ---- strangers of other addresses ---- */

enum { CROWD_FROM_ELSEWHERE = 1200 };

static int connect_from(const char *source, uint16_t port)
{
	struct sockaddr_in from = {.sin_family = AF_INET};
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(inet_pton(AF_INET, source, &from.sin_addr), 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* Returns whether the listener has accepted every connection to its port, and read all that they sent. */
static bool is_all_read(uint16_t port)
{
	FILE *f = fopen("/proc/net/tcp", "r");
	unsigned int local, unread;
	char line[256];
	bool all = f != NULL;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*d: %*x:%x %*s %*x %*x:%x", &local, &unread) == 2 &&
		    local == port && unread)
			all = false;
	if (f)
		fclose(f);
	return all;
}

static void await_all_read(uint16_t port)
{
	uint64_t until = clock_ns() + 60 * NS_PER_S;

	while (!is_all_read(port)) {
		assert_true(clock_ns() < until);
		poll(NULL, 0, 2);
	}
}

static void raise_files(void)
{
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur < 4 * CROWD_FROM_ELSEWHERE)
		skip();
}

/* Skips the test on a machine whose kernel keeps fewer connections than this for a listener. */
static void need_backlog(int n)
{
	FILE *f = fopen("/proc/sys/net/core/somaxconn", "r");
	int most = 0;

	if (f) {
		if (fscanf(f, "%d", &most) != 1)
			most = 0;
		fclose(f);
	}
	if (most < n)
		skip();
}

/* Peers of an address that has too many have to leave, and not an older one of another address. */
static void slow_peer_outlasts_a_crowd_from_elsewhere(void **state)
{
	static int crowd[CROWD_FROM_ELSEWHERE];
	struct place *p = *state;
	uint8_t frame[MPA_FRAME_MAX];
	struct mpa_frame req = enhanced_request();
	int len = mpa_encode(&req, frame, sizeof(frame)), fd;

	raise_files();
	fd = connect_from("127.0.0.1", p->port);
	assert_int_equal(send(fd, frame, 10, MSG_NOSIGNAL), 10);
	for (int i = 0; i < CROWD_FROM_ELSEWHERE; i++)
		crowd[i] = connect_from("127.0.0.2", p->port);
	await_all_read(p->port);
	assert_int_equal(send(fd, frame + 10, (size_t)len - 10, MSG_NOSIGNAL), len - 10);
	rdma_destroy_id(expect_request(p->ch));
	expect_end_of_data(fd);
	for (int i = 0; i < CROWD_FROM_ELSEWHERE; i++)
		close(crowd[i]);
	expect_service(p);
}

/* Requests are presented by turns of the addresses, however many wait from one of them. */
static void request_does_not_wait_for_a_crowd_from_elsewhere(void **state)
{
	enum { CROWD = 400 };
	static int fd[CROWD + 1];
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener;
	struct mpa_frame req = enhanced_request();
	int before = 0;

	raise_files();
	need_backlog(1024);
	ch = channel_new();
	listener = id_listening(ch, IPV4, 1024);
	for (int i = 0; i <= CROWD; i++) {
		fd[i] = connect_from(i < CROWD ? "127.0.0.2" : "127.0.0.1", id_port(listener));
		raw_send_frame(fd[i], &req);
	}
	await_all_read(id_port(listener));
	for (int i = 0; i <= CROWD; i++) {
		struct rdma_cm_id *id = expect_request(ch);
		struct sockaddr_in *peer = (struct sockaddr_in *)rdma_get_peer_addr(id);

		if (peer->sin_addr.s_addr == htonl(INADDR_LOOPBACK))
			before = i;
		rdma_destroy_id(id);
	}
	assert_in_range(before, 0, CROWD / 2);
	for (int i = 0; i <= CROWD; i++)
		close(fd[i]);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ch);
}

/* A program that does not fetch its requests gets no more of them than its backlog. */
static void backlog_limits_unfetched_requests(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *listener = id_listening(ch, IPV4, 2);
	struct mpa_frame req = enhanced_request();
	int fd[6];

	for (int i = 0; i < 6; i++) {
		fd[i] = raw_connect(IPV4, id_port(listener));
		raw_send_frame(fd[i], &req);
	}
	for (int i = 0; i < 6; i++) /* and yet each is served */
		rdma_destroy_id(expect_request(ch));
	for (int i = 0; i < 6; i++)
		expect_end_of_data(fd[i]);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ch);
}

#define HELD_BACK_NS (200 * NS_PER_MS) /* listener.c: after this a request is shown in any case */

/* The second of two concurrent requests is not shown until the first is answered. */
static void requests_come_one_at_a_time(void **state)
{
	struct place *p = *state;
	struct pollfd there = {.fd = p->ch->fd, .events = POLLIN};
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *first, *second;
	uint64_t began = clock_ns();
	int fd[2];

	for (int i = 0; i < 2; i++) {
		fd[i] = raw_connect(IPV4, p->port);
		raw_send_frame(fd[i], &req);
	}
	first = expect_request(p->ch);
	if (poll(&there, 1, 50)) /* unless this thread was stalled for long */
		assert_true(clock_ns() - began >= HELD_BACK_NS);
	assert_int_equal(rdma_reject(first, NULL, 0), 0);
	second = expect_request(p->ch);
	rdma_destroy_id(first);
	rdma_destroy_id(second);
	for (int i = 0; i < 2; i++)
		expect_end_of_data(fd[i]);
}

/* A program that collects requests before it answers any gets them all, after a short delay. */
static void requests_are_not_held_back_for_long(void **state)
{
	enum { MANY = 20 };
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id[MANY];
	int fd[MANY];

	for (int i = 0; i < MANY; i++) {
		fd[i] = raw_connect(IPV4, p->port);
		raw_send_frame(fd[i], &req);
	}
	for (int i = 0; i < MANY; i++)
		id[i] = expect_request(p->ch);
	for (int i = 0; i < MANY; i++) {
		rdma_destroy_id(id[i]);
		expect_end_of_data(fd[i]);
	}
}

/* A request that is not yet shown, and whose peer closes, is never shown. */
static void request_withdrawn_in_time_is_not_shown(void **state)
{
	struct place *p = *state;
	struct pollfd there = {.fd = p->ch->fd, .events = POLLIN};
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *first;
	uint64_t began = clock_ns();
	int fd[2];

	for (int i = 0; i < 2; i++) {
		fd[i] = raw_connect(IPV4, p->port);
		raw_send_frame(fd[i], &req);
	}
	first = expect_request(p->ch);
	raw_reset(fd[1]);
	engine_catches_up(p);
	if (clock_ns() - began >= HELD_BACK_NS && poll(&there, 1, 0)) /* too late */
		rdma_destroy_id(expect_request(p->ch));
	rdma_destroy_id(first);
	expect_silence(p->ch, 250);
	expect_end_of_data(fd[0]);
	expect_service(p);
}

static void listener_may_be_destroyed_while_requests_wait(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *listener = id_listening(ch, IPV4, 0), *first;
	struct mpa_frame req = enhanced_request();
	int fd[3];

	for (int i = 0; i < 3; i++) {
		fd[i] = raw_connect(IPV4, id_port(listener));
		raw_send_frame(fd[i], &req);
	}
	first = expect_request(ch);
	rdma_destroy_id(listener);
	rdma_destroy_id(first);
	for (int i = 0; i < 3; i++)
		expect_end_of_data(fd[i]);
	expect_silence(ch, 0);
	rdma_destroy_event_channel(ch);
}

#define STORY(f) cmocka_unit_test_setup_teardown(f, place_open, place_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(revision_1_is_answered_with_revision_1),
		STORY(revision_0_counts_as_1),
		STORY(revision_2_without_block_is_answered_without),
		STORY(depths_are_negotiated),
		STORY(depths_are_clamped_to_the_device),
		STORY(depths_that_are_not_negotiated_are_mirrored),
		STORY(program_sees_depths_from_its_side),
		STORY(crc_follows_either_side),
		STORY(request_for_markers_is_not_echoed),
		STORY(reserved_bits_are_ignored),
		STORY(rtr_options_are_those_in_common),
		STORY(read_rtr_raises_the_ird_to_one),
		STORY(established_waits_for_the_rtr),
		STORY(peer_that_closes_before_its_rtr_is_an_error),
		STORY(offer_is_accepted_with_a_block),
		STORY(subtypes_are_used_only_if_offered),
		STORY(sums_are_used_only_if_offered),
		STORY(one_shot_sends_are_used_only_if_offered),
		STORY(standard_peer_sees_nothing_of_the_extensions),
		STORY(offer_in_a_revision_1_request_is_ignored),
		STORY(private_data_arrives),
		STORY(long_private_data_is_truncated_to_255),
		STORY(reply_carries_255_bytes),
		STORY(reject_carries_data_and_closes),
		STORY(request_whose_id_is_destroyed_is_rejected),
		STORY(unfetched_request_is_closed_with_its_listener),
		STORY(closed_connection_cannot_be_accepted),
		STORY(peer_that_does_not_wait_for_the_reply_is_dropped),
		STORY(garbage_is_disconnected),
		STORY(request_sent_byte_by_byte_is_accepted),
		STORY(listener_survives_a_reset_in_every_state),
		STORY(listener_survives_running_out_of_descriptors),
		STORY(silent_peers_do_not_block_new_ones),
		STORY(slow_peer_outlasts_a_crowd_from_elsewhere),
		STORY(request_does_not_wait_for_a_crowd_from_elsewhere),
		STORY(backlog_limits_unfetched_requests),
		STORY(requests_come_one_at_a_time),
		STORY(requests_are_not_held_back_for_long),
		STORY(request_withdrawn_in_time_is_not_shown),
		STORY(listener_may_be_destroyed_while_requests_wait),
	};

	/*
	 * A machine that stalls for a while must not look like a silent peer; test_late.c is about
	 * those.
	 */
	setenv("STAG_CONNECT_TIMEOUT", "600000", 1);
	return cmocka_run_group_tests_name("cm passive", tests, NULL, NULL);
}
