// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_mirror.c - a client's writes to a mirrored region are forwarded to its copy before the
 * program is notified of them.
 *
 * The client is side a of a pair, the region is at side b. The mirror's queue pair is side a of
 * another pair, whose side b has the copy; or it is connected to a bare socket, where the copy's
 * side is slow, silent or dead.
 */
#include "raw_peer.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <stag/stagdv.h>

#include "adapter/qp_rx.h"
#include "dice.h"

#define LEN	(2u << 20)
#define SPOT	64
#define WRITERS 3
#define SHARED	(512u << 10)
#define SHORT	4000
#ifdef __SANITIZE_THREAD__ /* a write may land on bytes being forwarded */
#define LONGEST SHORT
#else
#define LONGEST 300000
#endif
#define ALL_REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
#define ALL_ACCESS (ALL_REMOTE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)

/* ---- watching deliveries ---- */

/* the writer whose deliveries are watched; the mirror, and its bytes sent at the last delivery */
static struct stag_qp *_Atomic writer, *_Atomic mirror;
static _Atomic uint64_t sent_at_delivery;

void __real_cq_push(struct stag_cq *cq, const struct ibv_wc *wc, bool solicited);
void __wrap_cq_push(struct stag_cq *cq, const struct ibv_wc *wc, bool solicited);

void __wrap_cq_push(struct stag_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	struct stag_qp *w = atomic_load(&writer), *m = atomic_load(&mirror);

	if (w && m && wc->qp_num == w->ibv.qp_num && wc->opcode == IBV_WC_RECV) {
		lock_acquire(&m->tx_lock);
		atomic_store(&sent_at_delivery, m->stats.counters.forwarded_bytes);
		lock_release(&m->tx_lock);
	}
	__real_cq_push(cq, wc, solicited);
}

/* ---- a region, its client and its copy ---- */

struct stage {
	struct pair client;
	struct region *from, *region, *in;
	struct pair link; /* to the copy */
	struct region *copy, *probe;
};

static void client_open(struct pair *p, struct ibv_pd *pd)
{
	const struct side_wish there = {.pd = pd};

	pair_open(p, NULL, &there);
}

static void stage_open(struct stage *s)
{
	client_open(&s->client, NULL);
	s->from = own_region(&s->client.a, LEN);
	s->region = lend_region(&s->client.b, LEN, ALL_ACCESS);
	s->in = own_region(&s->client.b, SPOT);
	pair_open(&s->link, NULL, NULL);
	s->copy = lend_region(&s->link.b, LEN, ALL_ACCESS);
	s->probe = own_region(&s->link.a, SPOT);
}

static void stage_close(struct stage *s)
{
	atomic_store(&writer, NULL);
	atomic_store(&mirror, NULL);
	stagdv_unmirror_mr(s->region->mr, s->link.a.qp);
	pair_close(&s->client);
	pair_close(&s->link);
}

static int mirror_to(struct region *r, struct side *m, const struct region *copy, unsigned flags)
{
	struct stagdv_mirror to = {.qp = m->qp,
				   .remote_addr = copy ? (uintptr_t)copy->at : 0x10000,
				   .rkey = copy ? copy->mr->rkey : 0x1234500,
				   .flags = flags};

	return stagdv_mirror_mr(r->mr, &to);
}

static struct stagdv_counters counters(struct side *s)
{
	struct stagdv_counters c;

	assert_int_equal(stagdv_query_qp_counters(s->qp, &c, sizeof(c)), 0);
	return c;
}

static bool is_stalled(struct side *s)
{
	struct stag_qp *qp = to_stag_qp(s->qp);
	bool stalled;

	lock_acquire(&qp->rx_lock);
	stalled = qp->rx && qp->rx->mirroring.stalled;
	lock_release(&qp->rx_lock);
	return stalled;
}

/* Expects that the writer waits for a mirror, and that the program has received nothing. */
static void expect_stalled(struct side *s)
{
	struct ibv_wc wc;
	bool heard = false;

	await(is_stalled(s) || (heard = poll_wc(s, s->rcq, &wc)));
	assert_false(heard);
}

/* The client writes and sends a message in one list; the message is received. */
static void write_and_send(struct stage *s, size_t off, size_t len)
{
	uint64_t heard = post_receive(&s->client.b, s->in, 0, SPOT);
	struct ibv_sge data = piece(s->from, off, len), word = piece(s->from, 0, 1);
	struct ibv_send_wr send = {.wr_id = note_posted(&s->client.a, false),
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &word,
				   .num_sge = 1};
	struct ibv_send_wr write = {
		.opcode = IBV_WR_RDMA_WRITE,
		.next = &send,
		.sg_list = &data,
		.num_sge = 1,
		.wr.rdma = {(uintptr_t)s->region->at + off, s->region->mr->rkey}};

	expect_sent(&s->client.a, post(&s->client.a, &write));
	expect_sent(&s->client.a, send.wr_id);
	expect_received(&s->client.b, heard);
}

/* Reads from the copy, behind everything that was forwarded. */
static void confirm(struct stage *s)
{
	expect_sent(&s->link.a, post_read(&s->link.a, s->probe, 0, 8, s->copy, 0));
}

/* ---- forwarding ---- */

static void write_is_forwarded_before_its_send_is_delivered(void **state)
{
	static const size_t sizes[] = {1, 64, 1000, 5000, 60000, (1u << 20) + 3, LEN};
	struct stage s;
	uint64_t sum = 0;

	stage_open(&s);
	assert_int_equal(mirror_to(s.region, &s.link.a, s.copy, 0), 0);
	atomic_store(&mirror, to_stag_qp(s.link.a.qp));
	atomic_store(&writer, to_stag_qp(s.client.b.qp));
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		fill(s.from->at, LEN, i + 1);
		write_and_send(&s, LEN - sizes[i], sizes[i]);
		sum += sizes[i];
		if (sizes[i] <= 60000) /* a socket takes that much at once */
			assert_int_equal(atomic_load(&sent_at_delivery), sum);
		confirm(&s);
		assert_memory_equal(s.copy->at, s.region->at, LEN);
		assert_memory_equal(s.copy->at + LEN - sizes[i], s.from->at + LEN - sizes[i],
				    sizes[i]);
		assert_int_equal(counters(&s.link.a).forwarded_bytes, sum);
	}
	assert_true(counters(&s.link.a).forwards >= sizeof(sizes) / sizeof(sizes[0]));
	stage_close(&s);
}

static void write_through_a_window_is_forwarded(void **state)
{
	struct stage s;
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
	struct region through;

	stage_open(&s);
	assert_int_equal(mirror_to(s.region, &s.link.a, s.copy, 0), 0);
	mw = ibv_alloc_mw(s.client.b.pd, IBV_MW_TYPE_1);
	assert_non_null(mw);
	bind.wr_id = note_posted(&s.client.b, false);
	bind.bind_info = (struct ibv_mw_bind_info){
		.mr = s.region->mr,
		.addr = (uintptr_t)s.region->at + 1000,
		.length = 1000,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED};
	assert_int_equal(ibv_bind_mw(s.client.b.qp, mw, &bind), 0);
	expect_sent(&s.client.b, bind.wr_id);
	fill(s.from->at, LEN, 7);
	through = (struct region){.at = NULL, .mr = &(struct ibv_mr){.rkey = mw->rkey}};
	expect_sent(&s.client.a, post_write(&s.client.a, s.from, 0, 500, &through, 200));
	write_and_send(&s, 0, 1);
	confirm(&s);
	assert_memory_equal(s.copy->at + 1200, s.from->at, 500);
	assert_memory_equal(s.copy->at, s.region->at, LEN);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	stage_close(&s);
}

static void no_write_is_forwarded_after_unmirror(void **state)
{
	struct stage s;

	stage_open(&s);
	assert_int_equal(mirror_to(s.region, &s.link.a, s.copy, 0), 0);
	assert_int_equal(stagdv_unmirror_mr(s.region->mr, s.link.a.qp), 0);
	assert_int_equal(stagdv_unmirror_mr(s.region->mr, s.link.a.qp), ENOENT);
	fill(s.from->at, LEN, 8);
	write_and_send(&s, 0, LEN);
	confirm(&s);
	expect_zeroes(s.copy->at, LEN);
	assert_int_equal(counters(&s.link.a).forwards, 0);
	stage_close(&s);
}

/* ---- many writers, two copies ---- */

struct poller {
	struct ibv_cq *cq;
	pthread_t thread;
	atomic_bool over;
	atomic_uint came;
};

static void *poll_on(void *arg)
{
	struct poller *p = arg;
	struct ibv_wc wc[16];

	while (!atomic_load(&p->over)) {
		int n = ibv_poll_cq(p->cq, 16, wc);

		for (int i = 0; i < n; i++)
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		atomic_fetch_add(&p->came, (unsigned)n);
		if (!n)
			sched_yield();
	}
	return NULL;
}

static void poller_start(struct poller *p, struct ibv_cq *cq)
{
	*p = (struct poller){.cq = cq};
	assert_int_equal(pthread_create(&p->thread, NULL, poll_on, p), 0);
}

static void poller_stop(struct poller *p)
{
	atomic_store(&p->over, true);
	pthread_join(p->thread, NULL);
}

/*
 * Writes short ones over each other in one part of the region, and long ones each in a part of its
 * own: long ones are received in place, and their CRC is computed there.
 */
static void write_at_random(struct pair *p, struct region *from, struct region *to, unsigned who)
{
	for (int i = 0; i < 8; i++) {
		size_t len = dice_size(LONGEST), part = 0, room = SHARED;

		if (len > SHORT) {
			room = (LEN - SHARED) / WRITERS;
			part = SHARED + who * room;
		}
		dice_fill(from->at, len < 4096 ? len : 4096);
		expect_sent(&p->a,
			    post_write(&p->a, from, 0, len, to, part + dice(room - len + 1)));
	}
	expect_sent(&p->a, post_send(&p->a, NULL, 0, 0));
}

static void expect_equal_copies(unsigned flags)
{
	unsigned long rounds = lessened(25);
	struct stage s;
	struct pair second, more[WRITERS - 1];
	struct region *copy, *probe, *from[WRITERS];
	struct poller poller[WRITERS];

	stage_open(&s);
	pair_open(&second, NULL, NULL);
	copy = lend_region(&second.b, LEN, ALL_ACCESS);
	probe = own_region(&second.a, SPOT);
	assert_int_equal(mirror_to(s.region, &s.link.a, s.copy, flags), 0);
	assert_int_equal(mirror_to(s.region, &second.a, copy, flags), 0);
	for (int i = 0; i < WRITERS; i++) {
		struct pair *p = i ? &more[i - 1] : &s.client;

		if (i)
			client_open(p, s.client.b.pd);
		from[i] = own_region(&p->a, LONGEST);
		if (i) /* the engine serves the first writer */
			poller_start(&poller[i], p->b.rcq);
	}
	for (unsigned long r = 0; r < rounds; r++) {
		for (int i = 0; i < WRITERS; i++)
			post_receive(i ? &more[i - 1].b : &s.client.b, NULL, 0, 0);
		for (int i = 0; i < WRITERS; i++)
			write_at_random(i ? &more[i - 1] : &s.client, from[i], s.region,
					(unsigned)i);
		await_wc(&s.client.b, s.client.b.rcq);
		for (int i = 1; i < WRITERS; i++)
			await(atomic_load(&poller[i].came) == r + 1);
		confirm(&s);
		expect_sent(&second.a, post_read(&second.a, probe, 0, 8, copy, 0));
		assert_memory_equal(s.copy->at, s.region->at, LEN);
		assert_memory_equal(copy->at, s.region->at, LEN);
	}
	for (int i = 1; i < WRITERS; i++)
		poller_stop(&poller[i]);
	assert_int_equal(stagdv_unmirror_mr(s.region->mr, second.a.qp), 0);
	for (int i = 1; i < WRITERS; i++)
		pair_close(&more[i - 1]);
	pair_close(&second);
	stage_close(&s);
}

static void two_copies_match_after_many_writers(void **state)
{
	expect_equal_copies(0);
}

static void two_confirming_copies_match_after_many_writers(void **state)
{
	expect_equal_copies(STAGDV_MIRROR_CONFIRM | STAGDV_MIRROR_STRICT);
}

/* ---- a copy's side that is slow or silent ---- */

struct slow {
	struct pair client;
	struct region *from, *region, *in;
	struct scene far; /* far.us is the mirror's queue pair */
	struct raw_fpdu *f;
	bool sleeps; /* the region's side has completion events */
};

static void slow_open(struct slow *s, void **state, size_t len, unsigned flags)
{
	struct scene_wish w = {.peer.extensions = true};
	struct side_wish there = {.channel = s->sleeps};

	pair_open(&s->client, NULL, &there);
	s->from = own_region(&s->client.a, len);
	s->region = lend_region(&s->client.b, len, ALL_ACCESS);
	s->in = own_region(&s->client.b, SPOT);
	s->far = (struct scene){.others = *state};
	scene_open(&s->far, &w);
	post_receive(&s->far.us, NULL, 0, 0);
	raw_send(&s->far.peer, NULL, 0); /* the mirror's peer sends the first message */
	expect_received(&s->far.us, 1);
	s->f = malloc(sizeof(*s->f));
	assert_int_equal(mirror_to(s->region, &s->far.us, NULL, flags), 0);
}

static void slow_close(struct slow *s)
{
	stagdv_unmirror_mr(s->region->mr, s->far.us.qp);
	pair_close(&s->client);
	scene_close(&s->far);
	free(s->f);
}

/* Posts n writes, no two of them adjacent. */
static void write_scattered(struct slow *s, unsigned n, size_t len)
{
	for (unsigned i = 0; i < n; i++)
		expect_sent(&s->client.a,
			    post_write(&s->client.a, s->from, 0, len, s->region, i % 2 * len));
}

/* Receives forwarded writes until this many bytes have come. */
static void take_forwards(struct slow *s, size_t bytes)
{
	while (bytes) {
		raw_take(&s->far.peer, s->f);
		assert_int_equal(s->f->h.opcode, RDMAP_WRITE);
		assert_in_range(s->f->len, 1, bytes);
		bytes -= s->f->len;
	}
}

/*
 * A request posted after the program was notified of the write is sent behind all forwards, however
 * full the stream is.
 */
static void later_requests_are_sent_behind_forwards(void **state)
{
	const size_t len = 16u << 20; /* more than two sockets and a batch take */
	struct slow s = {.f = NULL};
	uint64_t heard, sent;

	slow_open(&s, state, len, 0);
	heard = post_receive(&s.client.b, s.in, 0, SPOT);
	expect_sent(&s.client.a, post_write(&s.client.a, s.from, 0, len, s.region, 0));
	expect_sent(&s.client.a, post_send(&s.client.a, s.from, 0, 1));
	expect_received(&s.client.b, heard);
	sent = post_send(&s.far.us, NULL, 0, 0);
	take_forwards(&s, len);
	raw_take(&s.far.peer, s.f);
	assert_int_equal(s.f->h.opcode, RDMAP_SEND);
	expect_sent(&s.far.us, sent);
	slow_close(&s);
}

static void only_the_writer_waits_for_room_in_the_mirror(void **state)
{
	const size_t len = 32768;
	const unsigned n = 2048;
	struct slow s = {.f = NULL};
	uint64_t heard, sent;

	slow_open(&s, state, 2 * len, 0);
	heard = post_receive(&s.client.b, s.in, 0, SPOT);
	for (unsigned i = 0; i < n; i++) { /* not waited for here: the stream is full soon */
		struct ibv_sge sge = piece(s.from, 0, len);
		struct ibv_send_wr wr = {
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
		struct ibv_wc wc;

		wr.wr.rdma.remote_addr = (uintptr_t)s.region->at + i % 2 * len;
		wr.wr.rdma.rkey = s.region->mr->rkey;
		if (i >= 32 && !is_stalled(&s.client.b))
			await(poll_wc(&s.client.a, s.client.a.scq, &wc) || is_stalled(&s.client.b));
		if (is_stalled(&s.client.b))
			break;
		post(&s.client.a, &wr);
	}
	await(is_stalled(&s.client.b));
	ping(s.far.others);
	assert_true(counters(&s.client.b).mirror_stalls > 0);
	sent = counters(&s.client.a).posts;
	take_forwards(&s, sent * len);
	await((poll_wc(&s.client.a, s.client.a.scq, &(struct ibv_wc){0}),
	       s.client.a.ledger[sent - 1].done));
	while (poll_wc(&s.client.a, s.client.a.scq, &(struct ibv_wc){0}))
		;
	post_send(&s.client.a, s.from, 0, 1);
	expect_received(&s.client.b, heard);
	slow_close(&s);
}

/* A stalled writer continues when no mirror is left to wait for. */
static void stalled_writer_outlives_the_mirror(void **state)
{
	struct slow s = {.f = NULL};
	uint64_t heard;

	slow_open(&s, state, 4096, STAGDV_MIRROR_CONFIRM);
	heard = post_receive(&s.client.b, s.in, 0, SPOT);
	write_scattered(&s, 1, 64);
	expect_sent(&s.client.a, post_send(&s.client.a, s.from, 0, 1));
	expect_stalled(&s.client.b);
	raw_reset(&s.far.peer);
	expect_received(&s.client.b, heard);
	expect_async(&s.far.us, IBV_EVENT_QP_FATAL);
	assert_int_equal(stagdv_unmirror_mr(s.region->mr, s.far.us.qp), ENOTCONN);
	assert_int_equal(stagdv_unmirror_mr(s.region->mr, s.far.us.qp), ENOENT);
	slow_close(&s);
}

/* A stalled writer may be destroyed; the mirror does not access it afterwards. */
static void stalled_writer_can_be_destroyed(void **state)
{
	struct slow s = {.f = NULL};

	slow_open(&s, state, 4096, STAGDV_MIRROR_CONFIRM);
	write_scattered(&s, 1, 64);
	expect_sent(&s.client.a, post_send(&s.client.a, NULL, 0, 0));
	expect_stalled(&s.client.b);
	rdma_destroy_qp(s.client.b.id);
	s.client.b.qp = NULL;
	raw_reset(&s.far.peer); /* a stalled writer is notified */
	expect_async(&s.far.us, IBV_EVENT_QP_FATAL);
	ping(s.far.others);
	assert_int_equal(stagdv_unmirror_mr(s.region->mr, s.far.us.qp), ENOTCONN);
	pair_close(&s.client);
	scene_close(&s.far);
	free(s.f);
}

static void answer_read(struct slow *s, struct raw_fpdu *f)
{
	struct rdmap_read_req r;
	struct ddp_hdr h;

	assert_int_equal(f->h.opcode, RDMAP_READ_REQ);
	rdmap_get_read_req(f->payload, &r);
	assert_int_equal(r.size, 0);
	h = response_hdr(r.sink_stag, r.sink_to);
	raw_segment(&s->far.peer, &h, NULL, 0);
}

static void send_waits_for_the_confirmation(void **state)
{
	struct slow s = {.f = NULL};
	uint64_t heard;

	slow_open(&s, state, 4096, STAGDV_MIRROR_CONFIRM);
	for (int i = 0; i < 3; i++) {
		heard = post_receive(&s.client.b, s.in, 0, SPOT);
		write_scattered(&s, 1, 64);
		expect_sent(&s.client.a, post_send(&s.client.a, s.from, 0, 1));
		take_forwards(&s, 64);
		raw_take(&s.far.peer, s.f);
		expect_stalled(&s.client.b);
		for (int k = 0; k < 100; k++)
			expect_nothing(&s.client.b);
		answer_read(&s, s.f);
		expect_received(&s.client.b, heard);
	}
	slow_close(&s);
}

/*
 * The client's own read behind its write waits, too: its response implies that the copy has the
 * write.
 */
static void read_behind_a_write_waits_for_the_confirmation(void **state)
{
	struct slow s = {.f = NULL};
	struct region *back;
	uint64_t id;

	slow_open(&s, state, 4096, STAGDV_MIRROR_CONFIRM);
	back = own_region(&s.client.a, 64);
	write_scattered(&s, 1, 64);
	id = post_read(&s.client.a, back, 0, 64, s.region, 0);
	take_forwards(&s, 64);
	raw_take(&s.far.peer, s.f);
	await(is_stalled(&s.client.b));
	expect_nothing(&s.client.a);
	answer_read(&s, s.f);
	expect_sent(&s.client.a, id);
	slow_close(&s);
}

/* The read that confirms is not the program's: a fenced request does not wait for it. */
static void fence_does_not_wait_for_the_confirmation(void **state)
{
	struct ibv_send_wr fenced = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_FENCE};
	struct raw_fpdu *ask = malloc(sizeof(*ask));
	struct slow s = {.f = NULL};
	uint64_t sent;

	slow_open(&s, state, 4096, STAGDV_MIRROR_CONFIRM);
	write_scattered(&s, 1, 64);
	take_forwards(&s, 64);
	raw_take(&s.far.peer, ask);
	sent = post(&s.far.us, &fenced);
	raw_take(&s.far.peer, s.f);
	assert_int_equal(s.f->h.opcode, RDMAP_SEND);
	expect_sent(&s.far.us, sent);
	answer_read(&s, ask);
	free(ask);
	slow_close(&s);
}

/* Requests behind a barrier of the program wait for it, even after a later confirmation request. */
static void barrier_holds_during_forwards(void **state)
{
	struct raw_fpdu *flush = malloc(sizeof(*flush));
	struct stagdv_barrier b = {.rkey = 0x1234500, .send_flags = IBV_SEND_SIGNALED};
	struct ddp_hdr h = response_hdr(RTR_STAG, 0);
	struct slow s = {.f = NULL};
	uint64_t sent;

	slow_open(&s, state, 4096, STAGDV_MIRROR_CONFIRM);
	b.wr_id = note_posted(&s.far.us, false);
	assert_int_equal(stagdv_wr_barrier(s.far.us.qp, &b), 0);
	raw_take(&s.far.peer, flush);
	write_scattered(&s, 1, 64);
	take_forwards(&s, 64);
	raw_take(&s.far.peer, s.f);
	assert_int_equal(s.f->h.opcode, RDMAP_READ_REQ);
	sent = post_send(&s.far.us, NULL, 0, 0);
	expect_nothing(&s.far.us);
	raw_segment(&s.far.peer, &h, NULL, 0);
	expect_sent(&s.far.us, b.wr_id);
	expect_sent(&s.far.us, sent);
	raw_take(&s.far.peer, flush);
	assert_int_equal(flush->h.opcode, RDMAP_SEND);
	answer_read(&s, s.f);
	free(flush);
	slow_close(&s);
}

/* Answers the confirmation once the writer is stalled, which has to wake the sleeping program. */
static void *answer_when_stalled(void *arg)
{
	struct slow *s = arg;

	take_forwards(s, 64);
	raw_take(&s->far.peer, s->f);
	await(is_stalled(&s->client.b));
	answer_read(s, s->f);
	return NULL;
}

static void sleeper_is_woken_by_a_delayed_message(void **state)
{
	struct slow s = {.sleeps = true};
	struct ibv_cq *cq;
	void *context;
	pthread_t thread;

	slow_open(&s, state, 4096, STAGDV_MIRROR_CONFIRM);
	post_receive(&s.client.b, s.in, 0, SPOT);
	assert_int_equal(ibv_req_notify_cq(s.client.b.rcq, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, answer_when_stalled, &s), 0);
	write_scattered(&s, 1, 64);
	expect_sent(&s.client.a, post_send(&s.client.a, s.from, 0, 1));
	assert_int_equal(ibv_get_cq_event(s.client.b.channel, &cq, &context), 0);
	assert_ptr_equal(cq, s.client.b.rcq);
	ibv_ack_cq_events(cq, 1);
	pthread_join(thread, NULL);
	assert_int_equal(await_wc(&s.client.b, cq).status, IBV_WC_SUCCESS);
	slow_close(&s);
}

/* ---- the end of a mirror ---- */

static void writers_continue_after_their_mirror_ended(void **state)
{
	struct slow s = {.f = NULL};
	uint64_t heard;

	slow_open(&s, state, 4096, 0);
	raw_finish(&s.far.peer); /* an orderly close is an error here, too */
	expect_async(&s.far.us, IBV_EVENT_QP_FATAL);
	heard = post_receive(&s.client.b, s.in, 0, SPOT);
	write_scattered(&s, 4, 64);
	expect_sent(&s.client.a, post_send(&s.client.a, s.from, 0, 1));
	expect_received(&s.client.b, heard);
	assert_int_equal(counters(&s.far.us).forwards, 0);
	slow_close(&s);
}

static void writers_of_a_strict_mirror_end_with_it(void **state)
{
	struct slow s = {.f = NULL};

	slow_open(&s, state, 4096, STAGDV_MIRROR_STRICT);
	raw_reset(&s.far.peer);
	expect_async(&s.far.us, IBV_EVENT_QP_FATAL);
	post_receive(&s.client.b, s.in, 0, SPOT);
	post_write(&s.client.a, s.from, 0, 64, s.region, 0);
	post_send(&s.client.a, s.from, 0, 1);
	expect_async(&s.client.b, IBV_EVENT_QP_REQ_ERR);
	expect_state(&s.client.b, IBV_QPS_ERR);
	expect_flushed(&s.client.b);
	slow_close(&s);
}

static void mirror_ends_with_its_queue_pair(void **state)
{
	struct stage s;

	stage_open(&s);
	assert_int_equal(mirror_to(s.region, &s.link.a, s.copy, 0), 0);
	assert_int_equal(ibv_dereg_mr(s.region->mr), EBUSY);
	rdma_destroy_qp(s.link.a.id);
	s.link.a.qp = NULL;
	write_and_send(&s, 0, 64);
	pair_close(&s.link);
	pair_open(&s.link, NULL, NULL);
	s.copy = lend_region(&s.link.b, LEN, ALL_ACCESS);
	s.probe = own_region(&s.link.a, SPOT);
	assert_int_equal(mirror_to(s.region, &s.link.a, s.copy, 0), 0);
	fill(s.from->at, LEN, 9);
	write_and_send(&s, 0, LEN);
	confirm(&s);
	assert_memory_equal(s.copy->at, s.from->at, LEN);
	stage_close(&s);
}

/* ---- mirrors that start and end during writes ---- */

struct fire {
	struct stage *s;
	pthread_t thread;
	atomic_bool over;
	atomic_ulong writes;
};

static void *write_until_over(void *arg)
{
	struct fire *f = arg;
	struct stage *s = f->s;

	for (unsigned n = 0; !atomic_load(&f->over); n++) {
		size_t len = n % 8 ? 64 : 200000;

		expect_sent(&s->client.a, post_write(&s->client.a, s->from, 0, len, s->region,
						     n * 4096 % SHARED));
		atomic_fetch_add(&f->writes, 1);
	}
	return NULL;
}

static void link_again(struct stage *s)
{
	pair_close(&s->link);
	pair_open(&s->link, NULL, NULL);
	s->copy = lend_region(&s->link.b, LEN, ALL_ACCESS);
	s->probe = own_region(&s->link.a, SPOT);
}

/* Removes the mirror, or fails or destroys its queue pair. */
static void end_mirror(struct stage *s, unsigned long how)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};

	if (how % 3 == 0) {
		assert_int_equal(stagdv_unmirror_mr(s->region->mr, s->link.a.qp), 0);
		return;
	}
	if (how % 3 == 1)
		assert_int_equal(ibv_modify_qp(s->link.a.qp, &err, IBV_QP_STATE), 0);
	link_again(s);
}

static void mirrors_start_and_end_during_writes(void **state)
{
	unsigned long rounds = lessened(30);
	struct stage s;
	struct poller poller;
	struct fire f = {.s = &s};

	stage_open(&s);
	poller_start(&poller, s.client.b.rcq);
	assert_int_equal(pthread_create(&f.thread, NULL, write_until_over, &f), 0);
	for (unsigned long r = 0; r < rounds; r++) {
		unsigned long before;
		int err = mirror_to(s.region, &s.link.a, s.copy, r % 2 ? STAGDV_MIRROR_CONFIRM : 0);

		assert_int_equal(err, 0);
		before = atomic_load(&f.writes);
		await(atomic_load(&f.writes) > before + dice(20));
		end_mirror(&s, r);
	}
	atomic_store(&f.over, true);
	pthread_join(f.thread, NULL);
	poller_stop(&poller);
	assert_int_equal(mirror_to(s.region, &s.link.a, s.copy, 0), 0);
	fill(s.from->at, LEN, 11);
	write_and_send(&s, 0, LEN);
	confirm(&s);
	assert_memory_equal(s.copy->at, s.from->at, LEN);
	stage_close(&s);
}

/* ---- misuse ---- */

static void mirroring_an_unsuitable_region_is_refused(void **state)
{
	struct stage s;
	struct ibv_mr *fast;
	struct stagdv_mirror to = {.flags = 0};
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};

	stage_open(&s);
	to.qp = s.link.a.qp;
	fast = stagdv_alloc_fast_mr(s.client.b.pd, 1);
	assert_int_equal(stagdv_mirror_mr(fast, &to), EINVAL);
	assert_int_equal(stagdv_unmirror_mr(fast, to.qp), ENOENT);
	assert_int_equal(ibv_dereg_mr(fast), 0);
	to.flags = 1u << 30;
	assert_int_equal(stagdv_mirror_mr(s.region->mr, &to), EINVAL);
	to.flags = 0;
	to.remote_addr = UINT64_MAX - 10;
	assert_int_equal(stagdv_mirror_mr(s.region->mr, &to), EINVAL);
	to.remote_addr = 0;
	to.qp = NULL;
	assert_int_equal(stagdv_mirror_mr(s.region->mr, &to), EINVAL);
	assert_int_equal(mirror_to(s.region, &s.link.a, s.copy, 0), 0);
	assert_int_equal(mirror_to(s.region, &s.link.a, s.copy, 0), EEXIST);
	assert_int_not_equal(
		ibv_rereg_mr(s.region->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
	assert_int_equal(ibv_modify_qp(s.link.a.qp, &err, IBV_QP_STATE), 0);
	assert_int_equal(mirror_to(s.region, &s.link.a, s.copy, 0), ENOTCONN);
	stage_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_is_forwarded_before_its_send_is_delivered),
		cmocka_unit_test(write_through_a_window_is_forwarded),
		cmocka_unit_test(no_write_is_forwarded_after_unmirror),
		cmocka_unit_test(later_requests_are_sent_behind_forwards),
		cmocka_unit_test(only_the_writer_waits_for_room_in_the_mirror),
		cmocka_unit_test(stalled_writer_outlives_the_mirror),
		cmocka_unit_test(stalled_writer_can_be_destroyed),
		cmocka_unit_test(send_waits_for_the_confirmation),
		cmocka_unit_test(read_behind_a_write_waits_for_the_confirmation),
		cmocka_unit_test(fence_does_not_wait_for_the_confirmation),
		cmocka_unit_test(barrier_holds_during_forwards),
		cmocka_unit_test(sleeper_is_woken_by_a_delayed_message),
		cmocka_unit_test(writers_continue_after_their_mirror_ended),
		cmocka_unit_test(writers_of_a_strict_mirror_end_with_it),
		cmocka_unit_test(mirror_ends_with_its_queue_pair),
		cmocka_unit_test(mirroring_an_unsuitable_region_is_refused),
		cmocka_unit_test(mirrors_start_and_end_during_writes),
		cmocka_unit_test(two_copies_match_after_many_writers),
		cmocka_unit_test(two_confirming_copies_match_after_many_writers),
	};

	dice_start();
	return cmocka_run_group_tests_name("mirrors", tests, others_open, others_close);
}
