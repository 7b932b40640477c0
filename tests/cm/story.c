// SPDX-License-Identifier: BSD-2-Clause
/*
 * story.c - helpers for tests of the connection manager: see story.h.
 */
#include "story.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc32c.h"

/* ---- ids ---- */

struct rdma_event_channel *channel_new(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	assert_non_null(ch);
	return ch;
}

struct rdma_cm_id *id_new(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

struct sockaddr_storage address(const char *host, uint16_t port)
{
	struct sockaddr_storage a = {0};
	struct sockaddr_in *four = (struct sockaddr_in *)&a;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a;

	if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons(port);
	} else {
		assert_int_equal(inet_pton(AF_INET6, host, &six->sin6_addr), 1);
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(port);
	}
	return a;
}

struct rdma_cm_id *id_listening(struct rdma_event_channel *ch, const char *host, int backlog)
{
	struct rdma_cm_id *id = id_new(ch);
	struct sockaddr_storage a = address(host, 0);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(id, backlog), 0);
	return id;
}

uint16_t id_port(struct rdma_cm_id *id)
{
	return ntohs(rdma_get_src_port(id));
}

void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
}

struct rdma_cm_id *id_resolved(struct rdma_event_channel *ch, const char *host, uint16_t port)
{
	struct rdma_cm_id *id = id_new(ch);
	struct sockaddr_storage a = address(host, port);

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	give_qp(id);
	return id;
}

void id_gone(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

struct rdma_cm_event *expect_event(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *ev;

	if (poll(&p, 1, PATIENCE_MS) != 1)
		fail_msg("no event: %s", rdma_event_str(type));
	assert_int_equal(rdma_get_cm_event(ch, &ev), 0);
	if (ev->event != type)
		fail_msg("got %s (status %d) instead of %s", rdma_event_str(ev->event), ev->status,
			 rdma_event_str(type));
	return ev;
}

int expect_status(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev = expect_event(ch, type);
	int status = ev->status;

	rdma_ack_cm_event(ev);
	return status;
}

struct rdma_cm_id *expect_request(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *ev = expect_event(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = ev->id;

	rdma_ack_cm_event(ev);
	return id;
}

void expect_silence(struct rdma_event_channel *ch, int ms)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};

	assert_int_equal(poll(&p, 1, ms), 0);
}

bool on_roce(void)
{
	const char *device = getenv("STAG_DEVICE");

	return device && strcmp(device, "roce") == 0;
}

int rejected_by_program(void)
{
	return on_roce() ? CM_REJ_APPLICATION : -ECONNREFUSED;
}

int rejected_without_listener(void)
{
	return on_roce() ? CM_REJ_NO_SERVICE : -ECONNREFUSED;
}

void expect_end(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *ev = expect_event(ch, RDMA_CM_EVENT_DISCONNECTED);
	struct rdma_cm_id *id = ev->id;

	assert_int_equal(ev->status, 0);
	rdma_ack_cm_event(ev);
	if (on_roce()) /* it stays open until this side disconnects, too */
		assert_int_equal(rdma_disconnect(id), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
}

void couple_open(struct couple *c, const char *host)
{
	struct rdma_conn_param param = {.initiator_depth = 4, .responder_resources = 4};

	c->active_ch = channel_new();
	c->passive_ch = channel_new();
	c->listener = id_listening(c->passive_ch, host, 0);
	c->active = id_resolved(c->active_ch, host, id_port(c->listener));
	assert_int_equal(rdma_connect(c->active, &param), 0);
	c->passive = expect_request(c->passive_ch);
	give_qp(c->passive);
	assert_int_equal(rdma_accept(c->passive, &param), 0);
	assert_int_equal(expect_status(c->active_ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(expect_status(c->passive_ch, RDMA_CM_EVENT_ESTABLISHED), 0);
}

void couple_close(struct couple *c)
{
	id_gone(c->active);
	id_gone(c->passive);
	id_gone(c->listener);
	rdma_destroy_event_channel(c->active_ch);
	rdma_destroy_event_channel(c->passive_ch);
}

/* ---- bare sockets ---- */

static void set_timeouts(int fd)
{
	struct timeval t = {.tv_sec = PATIENCE_MS / 1000};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
}

static socklen_t address_length(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

int raw_connect(const char *host, uint16_t port)
{
	struct sockaddr_storage a = address(host, port);
	int fd = socket(a.ss_family, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, address_length(&a)), 0);
	set_timeouts(fd);
	return fd;
}

int raw_bind(const char *host, uint16_t *port)
{
	struct sockaddr_storage a = address(host, 0);
	socklen_t len = sizeof(a);
	int fd = socket(a.ss_family, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, address_length(&a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*port = ntohs(((struct sockaddr_in *)&a)->sin_port);
	set_timeouts(fd);
	return fd;
}

int raw_listen(const char *host, uint16_t *port)
{
	int fd = raw_bind(host, port);

	assert_int_equal(listen(fd, 16), 0);
	return fd;
}

int raw_accept(int fd)
{
	int got = TEMP_FAILURE_RETRY(accept(fd, NULL, NULL));

	assert_true(got >= 0);
	set_timeouts(got);
	return got;
}

void raw_send(int fd, const void *data, size_t len)
{
	assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

void raw_recv(int fd, void *data, size_t len)
{
	ssize_t n = 1;

	for (size_t got = 0; got < len; got += (size_t)n) {
		/* a process that was stopped gets EINTR when it continues */
		n = TEMP_FAILURE_RETRY(recv(fd, (uint8_t *)data + got, len - got, MSG_WAITALL));
		if (n <= 0)
			fail_msg("received %zu of %zu bytes, errno %d", got, len,
				 n < 0 ? errno : 0);
	}
}

void raw_reset(int fd)
{
	struct linger now = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

void expect_hangup(int fd)
{
	char c;
	ssize_t n = TEMP_FAILURE_RETRY(recv(fd, &c, 1, 0));

	if (n > 0 || (n < 0 && errno != ECONNRESET))
		fail_msg("expected the peer to close, got %zd bytes, errno %d", n, errno);
	close(fd);
}

void expect_end_of_data(int fd)
{
	char buf[256];
	ssize_t n;

	do {
		n = TEMP_FAILURE_RETRY(recv(fd, buf, sizeof(buf), 0));
	} while (n > 0);
	if (n < 0 && errno != ECONNRESET)
		fail_msg("the peer did not close, errno %d", errno);
	close(fd);
}

void raw_send_frame(int fd, const struct mpa_frame *f)
{
	uint8_t buf[MPA_FRAME_MAX];
	int n = mpa_encode(f, buf, sizeof(buf));

	assert_true(n > 0);
	raw_send(fd, buf, (size_t)n);
}

void raw_recv_frame(int fd, bool reply, struct raw_frame *out)
{
	raw_recv(fd, out->room, MPA_FRAME_LEN);
	out->len = MPA_FRAME_LEN + get_be16(out->room + 18);
	assert_in_range(out->len, MPA_FRAME_LEN, MPA_FRAME_MAX);
	raw_recv(fd, out->room + MPA_FRAME_LEN, out->len - MPA_FRAME_LEN);
	assert_int_equal(mpa_decode(out->room, out->len, reply, &out->f), out->len);
}

struct mpa_frame plain_request(void)
{
	return (struct mpa_frame){.rev = 1};
}

struct mpa_frame enhanced_request(void)
{
	return (struct mpa_frame){.rev = 2, .flags = MPA_ENHANCED, .ird = 4, .ord = 4};
}

struct mpa_frame accepting_reply(const struct mpa_frame *request)
{
	struct mpa_frame rep = *request;

	rep.reply = true;
	rep.ird = request->ord;
	rep.ord = request->ird;
	rep.private_len = 0;
	return rep;
}

struct wire_fault raw_recv_terminate(int fd, bool crc)
{
	uint8_t fpdu[128];
	struct terminate t;
	struct ddp_hdr h;
	bool swapped;
	size_t len;

	raw_recv(fd, fpdu, MPA_LEN_FIELD);
	len = get_be16(fpdu);
	assert_in_range(len, DDP_UNTAGGED_LEN + 4, 100);
	raw_recv(fd, fpdu + MPA_LEN_FIELD, fpdu_len(len) - MPA_LEN_FIELD);
	if (crc)
		assert_true(crc32c_matches(
			fpdu + fpdu_len(len) - MPA_CRC_LEN,
			crc32c_update(CRC32C_INIT, fpdu, fpdu_len(len) - MPA_CRC_LEN)));
	assert_false(ddp_decode(fpdu + MPA_LEN_FIELD, &h).set);
	assert_int_equal(h.opcode, RDMAP_TERMINATE);
	assert_int_equal(h.qn, QN_TERMINATE);
	assert_int_equal(h.msn, 1);
	assert_true(h.last);
	assert_int_equal(terminate_decode(fpdu + MPA_LEN_FIELD + DDP_UNTAGGED_LEN,
					  len - DDP_UNTAGGED_LEN, &t, &swapped),
			 0);
	assert_false(swapped);
	return t.fault;
}

/* ---- messages of roce0 ---- */

void raw_say(int fd, const struct cm_message *m)
{
	uint8_t buf[CM_MESSAGE_LEN];

	cm_message_encode(m, buf);
	raw_send(fd, buf, sizeof(buf));
}

void raw_say_kind(int fd, uint8_t kind)
{
	raw_say(fd, &(struct cm_message){.kind = kind});
}

struct cm_message raw_hear(int fd, uint8_t kind)
{
	uint8_t buf[CM_MESSAGE_LEN];
	struct cm_message m;

	raw_recv(fd, buf, sizeof(buf));
	assert_int_equal(cm_message_decode(buf, sizeof(buf), &m), CM_MESSAGE_LEN);
	assert_int_equal(m.kind, kind);
	return m;
}

struct cm_message some_message(uint8_t kind)
{
	return (struct cm_message){
		.kind = kind,
		.space = CM_SPACE_TCP,
		.qpn = 0x123456,
		.psn = 1,
		.initiator_depth = 1,
		.responder_resources = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.mtu = IBV_MTU_1024,
		.timeout = 14,
		.gid = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1},
	};
}

/* ---- a listener of ours ---- */

int place_open(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	p->ch = channel_new();
	p->listener = id_listening(p->ch, IPV4, 0);
	p->port = id_port(p->listener);
	*state = p;
	return 0;
}

int place_close(void **state)
{
	struct place *p = *state;

	rdma_destroy_id(p->listener);
	rdma_destroy_event_channel(p->ch);
	free(p);
	return 0;
}

void expect_service(struct place *p)
{
	struct mpa_frame req = enhanced_request();
	struct raw_frame rep;
	struct rdma_cm_id *id;
	int fd = raw_connect(IPV4, p->port);

	raw_send_frame(fd, &req);
	id = expect_request(p->ch);
	give_qp(id);
	assert_int_equal(rdma_accept(id, NULL), 0);
	raw_recv_frame(fd, true, &rep);
	assert_false(rep.f.flags & MPA_REJECT);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	close(fd);
	expect_end(p->ch);
	id_gone(id);
}

int accepted(struct place *p, const struct mpa_frame *req, struct rdma_conn_param *param,
	     struct rdma_cm_id **id, struct raw_frame *rep)
{
	int fd = raw_connect(IPV4, p->port);

	raw_send_frame(fd, req);
	*id = expect_request(p->ch);
	give_qp(*id);
	assert_int_equal(rdma_accept(*id, param), 0);
	raw_recv_frame(fd, true, rep);
	return fd;
}

void engine_catches_up(const struct place *p)
{
	int fd = raw_connect(IPV4, p->port);

	raw_send(fd, "this is no Request: hang up", 27);
	expect_hangup(fd);
}
