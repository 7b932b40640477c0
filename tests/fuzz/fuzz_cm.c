// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_cm.c - the set-up of connections, against a peer that sends arbitrary bytes.
 *
 * The input is a script: first the side that we are, then steps of the peer, of
 * the program and of time. A real listening socket plays TCP (for the side that
 * connects), peer.c sends the bytes. The peer of a listener chooses by its first byte whether it speaks MPA, to stag0, or the
 * messages of roce0.
 *
 * For any input: a request is reported once, an attempt to connect ends once, a
 * connection that was not reported is not withdrawn; what we send begins with
 * the right frame; and nothing is left when everything has been destroyed. Also,
 * without any bytes: two sides of stag always come to the same agreement.
 */
#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cm/cm.h"
#include "peer.h"
#include "steps.h"

enum { AGREE, PASSIVE, ACTIVE, SIDES, ROCE_ACTIVE };
#define ROCE_FROM 0xf0 /* first bytes of inputs for ROCE_ACTIVE */

__attribute__((constructor)) static void choose_both_devices(void)
{
	setenv("STAG_DEVICE", "both", 1);
}

/* All connections use the peer as their stream. */
int stream_open_tcp(struct stream **out, int fd, bool initiator)
{
	peer_open(fd);
	*out = &peer.stream;
	return 0;
}

void stream_keep_alive(struct stream *s, unsigned seconds)
{
}

/* ---- two sides of stag ------------------------------------------------------- */

static struct conn_wish any_wish(struct input *in)
{
	struct conn_wish w = {.ird = (uint16_t)(take(in, 1) % (STAG_MAX_RD_ATOM + 1)),
			      .ord = (uint16_t)(take(in, 1) % (STAG_MAX_RD_ATOM + 1))};

	w.private_len = (uint8_t)take(in, 1);
	for (unsigned i = 0; i < w.private_len; i++)
		w.private_data[i] = (uint8_t)take(in, 1);
	return w;
}

/* Encodes the frame and decodes it again. */
static struct mpa_frame received(const struct mpa_frame *f, uint8_t buf[MPA_FRAME_MAX])
{
	struct mpa_frame seen;
	int len = mpa_encode(f, buf, MPA_FRAME_MAX);

	CHECK(len > 0);
	CHECK(mpa_decode(buf, (size_t)len, f->reply, &seen) == len);
	return seen;
}

static void check_agreement(const struct qp_link *a, const struct qp_link *b,
			    const struct mpa_frame *rep)
{
	CHECK(a->initiator && !b->initiator);
	CHECK(a->crc == b->crc);
	CHECK(a->markers_tx == b->markers_rx && a->markers_rx == b->markers_tx);
	CHECK(a->caps == b->caps && a->stag_peer == b->stag_peer);
	CHECK(a->p2p == b->p2p && a->mpa_rev == b->mpa_rev);
	CHECK(!a->p2p || (a->rtr && (a->rtr & rep->rtr) == a->rtr));
	if (a->mpa_rev >= 2)
		CHECK(a->ord <= b->ird && b->ord <= a->ird);
}

static void agree(struct input in)
{
	enum request_form form = take(&in, 1) & 1 ? REQUEST_PLAIN : REQUEST_ENHANCED;
	struct conn_wish ours = any_wish(&in), theirs = any_wish(&in);
	uint8_t req_bytes[MPA_FRAME_MAX], rep_bytes[MPA_FRAME_MAX];
	struct mpa_frame req, req_seen, rep, rep_seen;
	struct qp_link a, b;

	negotiate_request(&ours, form, &req);
	req_seen = received(&req, req_bytes);
	negotiate_reply(&req_seen, &theirs, &rep, &b);
	rep_seen = received(&rep, rep_bytes);
	CHECK(!negotiate_link(&req, &rep_seen, &ours, &a).set);
	CHECK(rep_seen.private_len == theirs.private_len);
	CHECK(req_seen.private_len == ours.private_len);
	check_agreement(&a, &b, &rep_seen);
}

/* ---- the program -------------------------------------------------------------- */

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener, *id; /* id: of the one connection */
static struct ibv_pd *pds[FACES];
static struct ibv_cq *cqs[FACES];
static unsigned requests, outcomes, ends; /* number of events so far */
static bool accepted;

static enum face face_of_id(void)
{
	return face_of(id->verbs);
}

static void make_qp(enum face face)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cqs[face],
		.recv_cq = cqs[face],
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	CHECK(rdma_create_qp(id, pds[face], &init) == 0);
}

/* Reads all fields of an event, as a program would; a sanitizer checks the accesses. */
static void look_at_private_data(const struct rdma_conn_param *p)
{
	free(copy_of(p->private_data, p->private_data_len));
	CHECK(p->initiator_depth <= STAG_MAX_RD_ATOM);
	CHECK(p->responder_resources <= STAG_MAX_RD_ATOM);
}

static void on_event(const struct rdma_cm_event *ev)
{
	switch (ev->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		CHECK(listener && ev->listen_id == listener && !id);
		CHECK(++requests == 1);
		look_at_private_data(&ev->param.conn);
		id = ev->id;
		make_qp(face_of_id());
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		look_at_private_data(&ev->param.conn);
		CHECK(!listener || accepted);
		CHECK(ev->id == id && ++outcomes == 1);
		break;
	case RDMA_CM_EVENT_REJECTED:
		look_at_private_data(&ev->param.conn);
		CHECK(!listener || (face_of_id() == FACE_ROCE && accepted));
		CHECK(ev->id == id && ++outcomes == 1);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		CHECK(ev->id == id && ++outcomes == 1);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		CHECK(ev->id == id && ++ends == 1);
		break;
	default:
		break;
	}
}

static void fetch_events(void)
{
	struct rdma_cm_event *ev;

	while (rdma_get_cm_event(channel, &ev) == 0) {
		struct rdma_cm_event copy = *ev;

		on_event(&copy);
		CHECK(rdma_ack_cm_event(ev) == 0);
	}
	CHECK(errno == EAGAIN);
}

static void step_answer(struct input *in)
{
	uint8_t data[255] = {0}, how = (uint8_t)take(in, 1);
	struct rdma_conn_param param = {.private_data = data,
					.private_data_len = (uint8_t)take(in, 1),
					.responder_resources = (uint8_t)take(in, 1),
					.initiator_depth = (uint8_t)take(in, 1)};

	if (!listener || !id)
		return;
	if (how & 1)
		rdma_reject(id, data, param.private_data_len);
	else if (rdma_accept(id, &param) == 0)
		accepted = true;
}

static void destroy_id(void)
{
	if (!id)
		return;
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
	id = NULL;
}

/* ---- the two sides -------------------------------------------------------------- */

static struct sockaddr_in somewhere(void)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void start_listening(void)
{
	struct sockaddr_in addr = somewhere();

	CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&addr) == 0);
	CHECK(rdma_listen(listener, 4) == 0);
	engine_lock();
	CHECK(conn_accepted(to_cm_id(listener)->listener, eventfd(0, EFD_CLOEXEC)) == 0);
	engine_unlock();
}

/* Opens a listening socket of the kernel, for the side that connects. */
static int dialled_socket(struct sockaddr_in *addr)
{
	static struct sockaddr_in here;
	static int fd = -1;
	socklen_t len = sizeof(here);

	if (fd < 0) {
		here = somewhere();
		fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&here, sizeof(here)) == 0);
		CHECK(listen(fd, 64) == 0);
		CHECK(getsockname(fd, (struct sockaddr *)&here, &len) == 0);
	}
	*addr = here;
	return fd;
}

static void start_dialling(struct input *in, enum face face)
{
	uint8_t data[255] = {0};
	struct rdma_conn_param param = {.private_data = data,
					.private_data_len = (uint8_t)take(in, 1),
					.responder_resources = (uint8_t)take(in, 1) & 127,
					.initiator_depth = (uint8_t)take(in, 1) & 127};
	struct sockaddr_in addr;

	dialled_socket(&addr);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 1000) == 0);
	CHECK(rdma_resolve_route(id, 1000) == 0);
	fetch_events();
	make_qp(face);
	if (face == FACE_ROCE && param.private_data_len > CM_REQ_PRIVATE)
		param.private_data_len = CM_REQ_PRIVATE;
	CHECK(rdma_connect(id, &param) == 0);
	steps_ready();
}

/* Closes with a reset, so that no run leaves a port in TIME_WAIT. */
static void hang_up_dialled(void)
{
	struct linger now = {.l_onoff = 1};
	struct sockaddr_in addr;
	int fd = dialled_socket(&addr), conn;

	while ((conn = accept(fd, NULL, NULL)) >= 0) {
		setsockopt(conn, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(conn);
	}
}

/* ---- the peer -------------------------------------------------------------------- */

static void step_bytes(struct input *in)
{
	size_t len = take(in, 1);

	if (len > in->len)
		len = in->len;
	peer_sends(in->p, len);
	in->p += len;
	in->len -= len;
}

/*
 * Sends a frame with the right key and arbitrary fields, so that the fuzzer need not guess the key.
 */
static void step_frame(struct input *in)
{
	uint8_t buf[MPA_FRAME_MAX] = {0};
	size_t len;

	memcpy(buf, listener ? "MPA ID Req Frame" : "MPA ID Rep Frame", 16);
	buf[16] = (uint8_t)take(in, 1);
	buf[17] = (uint8_t)take(in, 1);
	len = take(in, 2) % (MPA_MAX_PRIVATE + 1);
	put_be16(buf + 18, (uint16_t)len);
	for (size_t i = 0; i < len && in->len; i++)
		buf[MPA_FRAME_LEN + i] = (uint8_t)take(in, 1);
	peer_sends(buf, MPA_FRAME_LEN + len);
}

/* Sends a valid message of roce0 with some bytes changed. */
static void step_message(struct input *in)
{
	struct cm_message m = {.kind = (uint8_t)take(in, 1),
			       .space = CM_SPACE_TCP,
			       .qpn = 0x1234,
			       .mtu = 3,
			       .initiator_depth = 1,
			       .responder_resources = 1,
			       .gid = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
	uint8_t buf[CM_MESSAGE_LEN], changes = (uint8_t)take(in, 1) % 8;

	cm_message_encode(&m, buf);
	for (unsigned i = 0; i < changes; i++) {
		uint8_t at = (uint8_t)take(in, 1);

		buf[at] = (uint8_t)take(in, 1);
	}
	peer_sends(buf, sizeof(buf));
}

static void check_sent_messages(void)
{
	struct cm_message m;

	for (size_t at = 0; at < peer.out_len; at += CM_MESSAGE_LEN) {
		int ret = cm_message_decode(peer.out + at, peer.out_len - at, &m);

		CHECK(ret == CM_MESSAGE_LEN || ret == -EAGAIN);
	}
}

static void check_sent(void)
{
	struct mpa_frame f;
	int ret;

	if (peer.out_len == 0)
		return;
	if (peer.out[0] == CM_MESSAGE_FIRST) {
		check_sent_messages();
		return;
	}
	ret = mpa_decode(peer.out, peer.out_len, listener, &f);
	CHECK(ret > 0 || ret == -EAGAIN);
}

/* ---- the script ------------------------------------------------------------------- */

static void step(struct input *in)
{
	uint8_t what = (uint8_t)take(in, 1);

	switch (what & 15) {
	case 0:
	case 1:
		step_bytes(in);
		break;
	case 2:
	case 3:
		step_frame(in);
		break;
	case 4:
	case 5:
		step_answer(in);
		break;
	case 6:
		if (id)
			rdma_disconnect(id);
		break;
	case 7:
		destroy_id();
		break;
	case 8:
		peer.full = !peer.full;
		break;
	case 9:
		peer.piece = 1 + take(in, 1);
		break;
	case 10:
		peer.end = what & 16 ? 0 : -ECONNRESET;
		break;
	case 11:
		steps_pass_time();
		break;
	case 14:
		step_message(in);
		break;
	case 15:
		if (id)
			rdma_notify(id, IBV_EVENT_COMM_EST);
		break;
	default:
		break; /* only polls again */
	}
	steps_ready();
	steps_run();
	check_sent();
	if (!(what & 0x80)) /* otherwise the program does not poll */
		fetch_events();
}

/* A port of roce0 stays open as long as it has a queue pair: it is not opened in each run. */
static void keep_port(void)
{
	struct ibv_qp_init_attr init = {.send_cq = cqs[FACE_ROCE],
					.recv_cq = cqs[FACE_ROCE],
					.cap = {.max_send_wr = 1, .max_recv_wr = 1},
					.qp_type = IBV_QPT_RC};

	CHECK(ibv_create_qp(pds[FACE_ROCE], &init));
}

static void start(void)
{
	struct ibv_context **devices;
	int n;

	if (channel)
		return;
	channel = rdma_create_event_channel();
	CHECK(channel);
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	devices = rdma_get_devices(&n);
	CHECK(devices && n == FACES);
	for (int i = 0; i < n; i++) {
		enum face face = face_of(devices[i]);

		pds[face] = ibv_alloc_pd(devices[i]);
		cqs[face] = ibv_create_cq(devices[i], 64, NULL, NULL, 0);
		CHECK(pds[face] && cqs[face]);
	}
	rdma_free_devices(devices);
	keep_port();
	steps_keep_watches();
}

static void end(void)
{
	destroy_id();
	if (listener)
		CHECK(rdma_destroy_id(listener) == 0);
	listener = NULL;
	hang_up_dialled();
	steps_pass_time(); /* which drops an answer that was not collected */
	steps_run();
	CHECK(peer.closed);
	steps_check_idle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	unsigned first = (unsigned)take(&in, 1);
	unsigned side = first >= ROCE_FROM ? ROCE_ACTIVE : first % SIDES;

	if (side == AGREE) {
		agree(in);
		return 0;
	}
	start();
	steps_begin();
	requests = outcomes = ends = 0;
	accepted = false;
	if (side == PASSIVE)
		start_listening();
	else
		start_dialling(&in, side == ACTIVE ? FACE_IWARP : FACE_ROCE);
	while (in.len)
		step(&in);
	end();
	return 0;
}
