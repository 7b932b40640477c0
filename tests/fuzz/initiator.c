// SPDX-License-Identifier: BSD-2-Clause
/*
 * initiator.c - see initiator.h.
 *
 * Checks that each request ends once, and that nothing is in flight or lent in the end.
 */
#include "initiator.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "block/initiator/verbs.h"

#define DEPTH	 4
#define REQUESTS 4
#define LEN	 4096

static uint8_t data[REQUESTS][LEN];
static unsigned int submitted;

static struct stag_block *make(uint16_t port)
{
	const struct stag_block_attr attr = {.depth = DEPTH, .retry_ms = -1};
	struct stag_block *b;
	char url[64];

	snprintf(url, sizeof(url), "iscsi://127.0.0.1:%u/iqn.2026-01.x:t/1", port);
	CHECK(initiator_create(url, true, &attr, &b) == 0);
	submitted = 0;
	return b;
}

/* Submits a request of each kind, with memory in two pieces. */
static void submit_all(struct stag_block *b)
{
	static const uint32_t ops[REQUESTS] = {STAG_BLOCK_READ, STAG_BLOCK_WRITE,
					       STAG_BLOCK_COMPARE_WRITE, STAG_BLOCK_READ};

	for (unsigned int i = 0; i < REQUESTS; i++) {
		struct iovec iov[2] = {{data[i], 1000}, {data[i] + 1000, LEN - 1000}};
		struct stag_block_io io = {.op = ops[i],
					   .length = i == 2 ? LEN / 2 : LEN,
					   .iov = iov,
					   .n_iov = 2,
					   .user = data[i]};

		submitted += stag_block_submit(b, &io) == 0;
	}
	initiator_step(b);
}

/* Checks that each request has ended, or ends with the initiator. */
static void finish(struct stag_block *b)
{
	struct stag_block_done done[REQUESTS + 1];
	unsigned int n = 0;

	list_for_each (it, &b->io.done)
		n++;
	CHECK(n <= submitted);
	if (b->state == INIT_GONE) {
		CHECK(n == submitted && b->io.num_in_flight == 0);
		CHECK(stag_block_poll(b, done, REQUESTS + 1) == (int)n);
	}
	CHECK(b->io.num_in_flight <= DEPTH + 1);
	initiator_destroy(b);
}

/* ---- over a socket ------------------------------------------------------------------------- */

static int listen_once(uint16_t *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(bind(fd, (struct sockaddr *)&a, len) == 0 && listen(fd, 4) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&a, &len) == 0);
	*port = ntohs(a.sin_port);
	return fd;
}

/* Accepts with SO_LINGER 0: many connections would leave sockets in TIME_WAIT. */
static int accept_initiator(int listener)
{
	struct linger at_once = {.l_onoff = 1};
	int fd = accept(listener, NULL, NULL);

	CHECK(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	return fd;
}

static void send_pdu(int fd, struct pdu *p, const void *bytes, uint32_t len)
{
	uint8_t out[BHS_LEN + 256] = {0};

	p->data_len = len;
	p->exp_cmd_sn = 1;
	p->max_cmd_sn = 100;
	iscsi_pdu_encode(p, out);
	if (len)
		memcpy(out + BHS_LEN, bytes, len);
	CHECK(send(fd, out, BHS_LEN + len + iscsi_pdu_pad(len), MSG_NOSIGNAL) > 0);
}

static void answer(int fd, const struct pdu *p)
{
	struct pdu r = {
		.opcode = p->opcode | 0x20, .flags = p->flags, .itt = p->itt, .ttt = TAG_NONE};
	uint8_t d[64] = {0};

	if (p->opcode == LOGIN_REQUEST) {
		r.tsih = 1;
		send_pdu(fd, &r, NULL, 0);
		return;
	}
	if (p->cdb[0] == 0x9e) {
		put_be64(d, 127);
		put_be32(d + 8, 512);
	} else if (p->cdb[0] == 0x12) {
		d[1] = p->cdb[2];
		d[5] = p->cdb[2] ? 8 : 0;
	}
	r.opcode = DATA_IN;
	r.flags = PDU_FINAL | DATA_STATUS;
	send_pdu(fd, &r, d, p->expected < 64 ? p->expected : 64);
}

/* Plays a correct target until the unit is probed. */
static void play_target(struct stag_block *b, int fd)
{
	uint8_t bhs[BHS_LEN], rest[8192];
	struct pdu p;

	for (int i = 0; i < 64 && b->state != INIT_LIVE; i++) {
		initiator_step(b);
		if (recv(fd, bhs, BHS_LEN, MSG_DONTWAIT | MSG_PEEK) < BHS_LEN)
			continue;
		CHECK(recv(fd, bhs, BHS_LEN, 0) == BHS_LEN && iscsi_pdu_decode(bhs, &p) == 0);
		if (p.data_len)
			CHECK(recv(fd, rest, p.data_len + iscsi_pdu_pad(p.data_len), 0) > 0);
		answer(fd, &p);
	}
	CHECK(b->state == INIT_LIVE);
	submit_all(b);
}

static void send_chunk(struct stag_block *b, int fd, const uint8_t *bytes, size_t len)
{
	static uint8_t heard[65536];

	if (send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
	for (int i = 0; i < 2; i++)
		initiator_step(b);
	while (recv(fd, heard, sizeof(heard), MSG_DONTWAIT) > 0)
		;
}

void fuzz_initiator(struct input *in, int entered)
{
	static uint16_t port;
	static int listener;
	struct stag_block *b;
	int fd;

	if (!port)
		listener = listen_once(&port);
	b = make(port);
	initiator_step(b);
	fd = accept_initiator(listener);
	if (entered)
		play_target(b, fd);
	while (in->len) {
		size_t len = take(in, 2) % 8192;

		len = len < in->len ? len : in->len;
		send_chunk(b, fd, in->p, len);
		in->p += len;
		in->len -= len;
	}
	close(fd);
	for (int i = 0; i < 4; i++)
		initiator_step(b);
	finish(b);
}

/*
 * ---- over verbs --------------------------------------------------------------------------------
 */

static uint32_t next_stag;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return 0;
}

static int advertise(struct ibv_qp *qp, struct stagdv_advertise *wr, uint32_t *stag)
{
	*stag = next_stag += 0x101;
	return 0;
}

static int withdraw(struct ibv_qp *qp, uint32_t stag, uint32_t *reference)
{
	return 0;
}

static struct ibv_context context = {.ops = {.post_send = post_send, .post_recv = post_recv}};
static struct ibv_mr region = {.lkey = 1, .rkey = 1};
static const struct dv dv = {.advertise = advertise, .withdraw = withdraw};

static int lend(struct initiator_line *l, struct initiator_region *r)
{
	r->mr = &region;
	return 0;
}

static int poll_nothing(struct initiator_line *l)
{
	return 0;
}

static void end_line(struct initiator_line *l)
{
	struct initiator_verbs_line *v = to_verbs_line(l);

	for (uint32_t i = 0; i < v->n_cmds; i++)
		initiator_lend_end(v, &v->loans[i]);
	free(v->id);
	free(v->loans);
	free(v->memory);
	free(v);
}

static struct initiator_verbs_line *make_line(struct stag_block *b,
					      const struct initiator_line_ops *ops, bool one_shot)
{
	static struct ibv_qp qp = {.context = &context};
	struct initiator_verbs_line *v = calloc(1, sizeof(*v));

	CHECK(v);
	v->line = (struct initiator_line){.ops = ops, .b = b};
	v->stage = VERBS_UP;
	v->dv = &dv;
	v->one_shot = one_shot;
	v->n_cmds = DEPTH + 1;
	v->n_receives = 2;
	v->id = calloc(1, sizeof(*v->id));
	v->loans = calloc(v->n_cmds, sizeof(*v->loans));
	v->memory = calloc(v->n_cmds + VERBS_CONTROLS + v->n_receives, VERBS_BODY);
	CHECK(v->id && v->loans && v->memory);
	v->id->qp = &qp;
	v->mr = &region;
	for (uint32_t i = 0; i < VERBS_CONTROLS; i++)
		v->free_controls[v->n_free_controls++] = i;
	return v;
}

static struct initiator_verbs_line *enter(struct stag_block *b,
					  const struct initiator_line_ops *ops, bool one_shot)
{
	struct initiator_verbs_line *v = make_line(b, ops, one_shot);

	b->line = &v->line;
	b->state = INIT_LIVE;
	b->attempt.ever_live = true;
	b->now = b->session.heard = clock_ns();
	b->info.block = 512;
	b->info.size = 1 << 16;
	b->info.max_transfer = 1 << 16;
	b->limits.compare = 8;
	b->session.cmd_sn = 1;
	b->session.max_cmd_sn = 100;
	b->session.keys.peer_recv_max = 512;
	CHECK(stag_block_lend(b, data, sizeof(data)) == 0);
	CHECK(stag_block_lend(b, b->probe.data, sizeof(b->probe.data)) == 0);
	return v;
}

static void make_up(const struct initiator_verbs_line *v, unsigned int how, uint32_t len,
		    struct ibv_wc *wc)
{
	const struct initiator_loan *l = &v->loans[how >> 2 & 3];

	*wc = (struct ibv_wc){.byte_len = len};
	if (how & 1)
		wc->wc_flags = IBV_WC_WITH_INV | (how & 2 ? STAGDV_WC_CLOSED : 0);
	wc->invalidated_rkey = how & 0x10 ? 0x77777777 : l->stag;
	wc->vendor_err = how & 0x20 ? 0x77777777 : l->reference;
}

void fuzz_initiator_verbs(struct input *in, int one_shot)
{
	struct stag_block *b = make(9);
	struct initiator_line_ops ops = one_shot ? initiator_one_shot_line : initiator_iser_line;
	struct initiator_verbs_line *v;
	int rc = 0;

	ops.poll = poll_nothing;
	ops.arm = NULL;
	ops.lend = lend;
	ops.unlend = NULL;
	ops.close = end_line;
	v = enter(b, &ops, one_shot);
	submit_all(b);
	while (in->len && rc == 0) {
		unsigned int how = (unsigned int)take(in, 1);
		uint32_t len = (uint32_t)take(in, 2) % (VERBS_BODY + 1);
		struct ibv_wc wc;

		len = len < in->len ? len : (uint32_t)in->len;
		memcpy(initiator_verbs_body(v, VERBS_RECEIVE, 0), in->p, len);
		in->p += len;
		in->len -= len;
		make_up(v, how, len, &wc);
		rc = initiator_verbs_received(v, 0, &wc);
		v->n_again = 0;
		v->n_free_controls = VERBS_CONTROLS; /* all sends have completed */
		if (rc == 0)
			initiator_step(b);
		if (b->state == INIT_GONE)
			break;
	}
	CHECK(b->info.counters.stags_open <= DEPTH + 1);
	finish(b);
}
