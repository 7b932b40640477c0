// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_tx.c - state that the sending side keeps between two progress calls, and events that come in
 * between.
 *
 * White-box test: qp_tx.c is a part of this file. The stream accepts everything, and the engine is
 * locked out, so that only the test makes progress.
 */
#include "adapter/qp_tx.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "asleep.h"
#include "base/crc32c.h"
#include "verbs/verbs.h"

#define SIZE (32u << 20) /* more than one progress call sends */
#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |               \
	 IBV_ACCESS_MW_BIND)

/* ---- a stream that accepts everything, and delivers what a test puts in ---- */

struct pit {
	struct stream stream;
	uint8_t in[10 * 65536];
	size_t in_len, in_off;
	uint64_t taken;	     /* bytes accepted */
	uint64_t bottom;     /* bytes that it accepts at most; 0: any number */
	uint8_t first[4096]; /* the first bytes accepted */
	bool shut;
	void (*meanwhile)(void *); /* called after the bytes are accepted, before send returns */
	void *meanwhile_arg;
};

static ssize_t pit_send(struct stream *s, const struct iovec *iov, int n)
{
	struct pit *p = (struct pit *)s;
	size_t len = 0;

	if (p->shut)
		return -EPIPE;
	if (p->bottom && p->taken >= p->bottom)
		return -EAGAIN;
	for (int i = 0; i < n; i++) {
		uint64_t at = p->taken + len;

		if (at + iov[i].iov_len <= sizeof(p->first))
			memcpy(p->first + at, iov[i].iov_base, iov[i].iov_len);
		len += iov[i].iov_len;
	}
	if (p->bottom && len > p->bottom - p->taken)
		len = p->bottom - p->taken;
	p->taken += len;
	if (p->meanwhile)
		p->meanwhile(p->meanwhile_arg);
	return (ssize_t)len;
}

static ssize_t pit_recv(struct stream *s, const struct iovec *iov, int n)
{
	struct pit *p = (struct pit *)s;
	size_t len = 0;

	for (int i = 0; i < n && p->in_off < p->in_len; i++) {
		size_t left = p->in_len - p->in_off;
		size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

		memcpy(iov[i].iov_base, p->in + p->in_off, part);
		p->in_off += part;
		len += part;
	}
	return len ? (ssize_t)len : -EAGAIN;
}

static void pit_shutdown(struct stream *s)
{
	((struct pit *)s)->shut = true;
}

static void pit_nothing(struct stream *s)
{
}

static void pit_close(struct stream *s)
{
	close(s->fd);
}

static int pit_ready(struct stream *s)
{
	return POLLIN | POLLOUT;
}

static unsigned pit_emss(struct stream *s)
{
	return 1460;
}

static unsigned pit_unsent(struct stream *s)
{
	return 0;
}

static const struct stream_ops pit_ops = {.send = pit_send,
					  .recv = pit_recv,
					  .shutdown = pit_shutdown,
					  .abort = pit_nothing,
					  .close = pit_close,
					  .ready = pit_ready,
					  .emss = pit_emss,
					  .unsent = pit_unsent};

/* ---- a queue pair on that stream ---- */

struct bench {
	struct pit pit;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct stag_qp *qp;
	uint8_t *memory;
	struct ibv_mr *mr;
	uint32_t msn; /* MSN of the peer's next read request */
};

static const struct qp_link plain = {
	.mpa_rev = 2, .stag_peer = true, .caps = MPA_EXT_BIG_FPDU, .ird = 9, .ord = 9};

static void bench_attach(struct bench *b, const struct qp_link *link)
{
	b->pit = (struct pit){.stream = {.ops = &pit_ops, .fd = eventfd(0, EFD_CLOEXEC)}};
	b->msn = 1;
	assert_int_equal(qp_attach(b->qp, &b->pit.stream, link), 0);
}

static void bench_open(struct bench *b, const struct qp_link *link)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 16,
						.max_recv_wr = 16,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	assert_non_null(list);
	b->ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	b->pd = ibv_alloc_pd(b->ctx);
	attr.send_cq = attr.recv_cq = b->cq = ibv_create_cq(b->ctx, 64, NULL, NULL, 0);
	b->qp = to_stag_qp(ibv_create_qp(b->pd, &attr));
	assert_int_equal(
		ibv_modify_qp(&b->qp->ibv, &init,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	b->memory = malloc(SIZE);
	b->mr = ibv_reg_mr(b->pd, b->memory, SIZE, ACCESS);
	assert_non_null(b->mr);
	assert_int_equal(engine_start(), 0);
	engine_lock();
	bench_attach(b, link);
}

static void bench_close(struct bench *b)
{
	engine_unlock();
	assert_int_equal(ibv_destroy_qp(&b->qp->ibv), 0);
	assert_int_equal(ibv_dereg_mr(b->mr), 0);
	assert_int_equal(ibv_destroy_cq(b->cq), 0);
	assert_int_equal(ibv_dealloc_pd(b->pd), 0);
	assert_int_equal(ibv_close_device(b->ctx), 0);
	free(b->memory);
}

/* Appends the peer's next FPDU to the input, and fills in its CRC if the link has one. */
static void peer_sent(struct bench *b, size_t total)
{
	uint8_t *p = b->pit.in + b->pit.in_len;

	if (b->qp->link.crc)
		crc32c_put(p + total - MPA_CRC_LEN,
			   crc32c_update(CRC32C_INIT, p, total - MPA_CRC_LEN));
	b->pit.in_len += total;
}

/* Appends a read request of the peer to the input. */
static void peer_reads(struct bench *b, uint32_t stag, uint64_t to, uint32_t size)
{
	struct ddp_hdr h = {.last = true, .opcode = RDMAP_READ_REQ, .qn = QN_READ, .msn = b->msn++};
	struct rdmap_read_req r = {
		.sink_stag = 0x100, .size = size, .src_stag = stag, .src_to = to};
	uint8_t *p = b->pit.in + b->pit.in_len;

	put_be16(p, DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN);
	ddp_encode(&h, p + MPA_LEN_FIELD);
	rdmap_put_read_req(p + MPA_LEN_FIELD + DDP_UNTAGGED_LEN, &r);
	memset(p + MPA_LEN_FIELD + DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN, 0, MPA_CRC_LEN);
	peer_sent(b, fpdu_len(DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN));
}

static bool is_held(const struct ibv_mr *mr)
{
	return atomic_load(&to_stag_mr((struct ibv_mr *)mr)->slot->users) != 0;
}

/* ---- the tests ---- */

/* A long response is sent by several progress calls; the region may be deregistered in between. */
static void region_is_not_held_between_progress_calls(void **state)
{
	struct bench b;

	bench_open(&b, &plain);
	peer_reads(&b, b.mr->rkey, (uintptr_t)b.memory, SIZE);
	qp_progress(b.qp);
	assert_true(b.pit.taken < SIZE);
	assert_true(atomic_load(&b.qp->progress.tx_blocked));
	assert_false(is_held(b.mr));
	while (b.pit.taken < SIZE)
		qp_progress(b.qp);
	assert_false(is_held(b.mr));
	bench_close(&b);
}

/* A window that is being read does not keep its queue pair from ending. */
static void queue_pair_ends_while_its_window_is_read(void **state)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct ibv_send_wr *bad, bind = {.opcode = IBV_WR_BIND_MW};
	struct ibv_mw *mw;
	struct bench b;

	bench_open(&b, &plain);
	mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){.mr = b.mr,
					  .addr = (uintptr_t)b.memory,
					  .length = SIZE,
					  .mw_access_flags = IBV_ACCESS_REMOTE_READ};
	assert_int_equal(ibv_post_send(&b.qp->ibv, &bind, &bad), 0);
	peer_reads(&b, bind.bind_mw.rkey, (uintptr_t)b.memory, SIZE);
	qp_progress(b.qp);
	assert_true(b.pit.taken > 0 && b.pit.taken < SIZE);
	alarm(20); /* fails the test if the call blocks forever */
	assert_int_equal(ibv_modify_qp(&b.qp->ibv, &err, IBV_QP_STATE), 0);
	alarm(0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	bench_close(&b);
}

/* After 2^32 reads the indexes of the ring of the peer's read requests wrap around. */
static void read_request_ring_survives_index_wrap(void **state)
{
	struct bench b;
	uint32_t i;

	bench_open(&b, &plain);
	peer_reads(&b, 0, 0, 0); /* the first message releases held requests */
	qp_progress(b.qp);
	b.qp->tx->irq.put = b.qp->tx->irq.get = UINT32_MAX - 4;
	b.qp->tx->held = true; /* so that they pile up */
	for (i = 0; i < 9; i++)
		peer_reads(&b, b.mr->rkey, (uintptr_t)b.memory, i + 1);
	qp_progress(b.qp);
	for (i = 0; i < 9; i++)
		assert_int_equal(
			b.qp->tx->irq.at[(b.qp->tx->irq.get + i) & b.qp->tx->irq.mask].read.size,
			i + 1);
	bench_close(&b);
}

/*
 * Appends the peer's FPDU: a header and payload bytes, with a CRC and a sum of the header if the
 * link has them.
 */
static void peer_fpdu(struct bench *b, const struct ddp_hdr *h, uint8_t fill, size_t payload)
{
	uint8_t *p = b->pit.in + b->pit.in_len;
	struct ddp_hdr summed = *h;
	size_t hdr, total;

	tx_sum_header(b->qp, &summed, payload);
	hdr = ddp_encode(&summed, p + MPA_LEN_FIELD) + (summed.summed ? DDP_SUM_LEN : 0);
	total = fpdu_len(hdr + payload);
	put_be16(p, (uint16_t)(hdr + payload));
	if (summed.summed)
		crc32c_put(p + MPA_LEN_FIELD + hdr - DDP_SUM_LEN,
			   crc32c_update(CRC32C_INIT, p, MPA_LEN_FIELD + hdr - DDP_SUM_LEN));
	memset(p + MPA_LEN_FIELD + hdr, fill, payload);
	memset(p + MPA_LEN_FIELD + hdr + payload, 0, total - MPA_LEN_FIELD - hdr - payload);
	peer_sent(b, total);
}

struct errand {
	struct work work;
	sem_t *done;
};

static void post_done(struct work *w)
{
	sem_post(container_of(w, struct errand, work)->done);
}

/* Runs the engine until it has done all its pending work, and any that it should not do. */
static void let_engine_run(void)
{
	sem_t done;
	struct errand e = {.done = &done};

	sem_init(&done, 0, 0);
	for (int turn = 0; turn < 3; turn++) { /* work found in one turn is done in the next */
		work_queue(&e.work, post_done);
		assert_int_equal(sem_wait(&done), 0);
	}
	sem_destroy(&done);
}

/*
 * The stream accepts nothing more; a message that the peer sent before is delivered all the same.
 */
static void received_messages_are_delivered_though_sending_fails(void **state)
{
	struct ddp_hdr h = {.last = true, .opcode = RDMAP_SEND, .qn = QN_SEND, .msn = 1};
	struct ibv_send_wr *bad_send, send = {.opcode = IBV_WR_SEND};
	struct ibv_recv_wr *bad, recv = {.wr_id = 7};
	struct ibv_wc wc;
	struct bench b;

	bench_open(&b, &plain);
	assert_int_equal(ibv_post_recv(&b.qp->ibv, &recv, &bad), 0);
	b.pit.shut = true;
	assert_int_equal(ibv_post_send(&b.qp->ibv, &send, &bad_send), 0);
	engine_unlock();
	let_engine_run();
	peer_fpdu(&b, &h, 0, 0);
	assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 7);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	engine_lock();
	bench_close(&b);
}

struct listener {
	struct bench *bench;
	pthread_t thread;
	_Atomic pid_t tid; /* 0: the thread has not started */
	sem_t over;
};

static void *listen_to_peer(void *arg)
{
	struct listener *l = arg;

	l->tid = gettid();
	qp_progress(l->bench->qp);
	sem_wait(&l->over);
	return NULL;
}

/* Sends the peer's reply at once; another thread receives it before the sender goes on. */
static void reply_at_once(void *arg)
{
	struct ddp_hdr h = {.last = true, .opcode = RDMAP_SEND, .qn = QN_SEND, .msn = 1};
	struct listener *l = arg;

	peer_fpdu(l->bench, &h, 0, 0);
	assert_int_equal(pthread_create(&l->thread, NULL, listen_to_peer, l), 0);
	while (!l->tid)
		sched_yield();
	await_asleep(l->tid);
}

/* The CQ has the completion of a send before that of the reply to it. */
static void send_completes_before_the_receive_of_its_reply(void **state)
{
	struct ibv_send_wr send = {
		.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad, recv = {.wr_id = 2};
	struct listener l = {.tid = 0};
	struct ibv_wc wc[2];
	struct bench b;

	bench_open(&b, &plain);
	l.bench = &b;
	sem_init(&l.over, 0, 0);
	peer_reads(&b, 0, 0, 0); /* the first message is handled apart */
	qp_progress(b.qp);
	assert_int_equal(ibv_post_recv(&b.qp->ibv, &recv, &bad), 0);
	b.pit.meanwhile = reply_at_once;
	b.pit.meanwhile_arg = &l;
	assert_int_equal(ibv_post_send(&b.qp->ibv, &send, &bad_send), 0);
	sem_post(&l.over);
	assert_int_equal(pthread_join(l.thread, NULL), 0);
	assert_int_equal(ibv_poll_cq(b.cq, 2, wc), 2);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(wc[1].wr_id, 2);
	b.pit.meanwhile = NULL;
	bench_close(&b);
}

/*
 * Two responses are in one batch, and the stream accepts the first, whose region is then
 * deregistered. The rest of the batch is sent all the same.
 */
static void sent_data_no_longer_needs_its_memory(void **state)
{
	enum { LEN = 8192 };
	struct ibv_mr *first;
	uint64_t all;
	struct bench b;

	bench_open(&b, &plain);
	first = ibv_reg_mr(b.pd, b.memory, SIZE, ACCESS);
	assert_non_null(first);
	all = b.pit.taken + 2 * fpdu_len(DDP_TAGGED_LEN + LEN);
	b.pit.bottom = all - LEN / 2;
	peer_reads(&b, first->rkey, (uintptr_t)b.memory, LEN);
	peer_reads(&b, b.mr->rkey, (uintptr_t)b.memory, LEN);
	qp_progress(b.qp);
	assert_int_equal(b.pit.taken, b.pit.bottom);
	assert_int_equal(ibv_dereg_mr(first), 0);
	b.pit.bottom = 0;
	qp_progress(b.qp);
	assert_int_equal(b.pit.taken, all);
	assert_int_equal(atomic_load(&b.qp->state), QP_RTS);
	bench_close(&b);
}

/* ---- memory taken back after half of a response was sent ---- */

#define ANSWER 2000u /* more than is copied in any case */
#define OLD    0x42
#define MINE   0x5a

struct loan {
	struct bench *bench;
	struct ibv_mr *mr; /* registered for this loan; NULL: the bench's */
	struct ibv_mw *mw;
	uint32_t stag;
};

/*
 * Lends the bench's memory to the peer; takes it back, and lends its second half under the same key
 * if possible.
 */
struct way {
	void (*lend)(struct loan *l);
	void (*take_back)(struct loan *l);
};

static void lend_region(struct loan *l)
{
	l->mr = ibv_reg_mr(l->bench->pd, l->bench->memory, SIZE, ACCESS);
	assert_non_null(l->mr);
	l->stag = l->mr->rkey;
}

static void deregister(struct loan *l)
{
	assert_int_equal(ibv_dereg_mr(l->mr), 0);
	l->mr = NULL;
}

static void reregister(struct loan *l)
{
	do {
		assert_int_equal(ibv_rereg_mr(l->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
					      l->bench->memory + SIZE / 2, SIZE / 2, 0),
				 0);
	} while (l->mr->rkey != l->stag);
}

static void let_lapse(struct loan *l)
{
	assert_int_equal(stagdv_set_mr_lease(l->mr, 1), 0);
}

/*
 * Both fast_register() and bind_window() act as another queue pair of the domain would: the blocked
 * one does no such work.
 */
static void fast_register(struct loan *l, size_t off)
{
	struct bench *b = l->bench;
	struct ibv_sge sge = {(uintptr_t)b->memory + off, SIZE / 2, b->mr->lkey};

	assert_int_equal(mr_fast_reg(to_stag_mr(l->mr), b->qp->pd, &sge, 1, (uintptr_t)b->memory,
				     l->mr->rkey, ACCESS),
			 0);
}

static void lend_fast(struct loan *l)
{
	l->mr = stagdv_alloc_fast_mr(l->bench->pd, 1);
	assert_non_null(l->mr);
	l->stag = l->mr->rkey;
	fast_register(l, 0);
}

static void invalidate_fast(struct loan *l)
{
	assert_int_equal(key_invalidate(l->stag, l->bench->qp->pd, l->bench->qp), 0);
	fast_register(l, SIZE / 2);
}

static void bind_window(struct loan *l, size_t off)
{
	struct bench *b = l->bench;

	assert_int_equal(mw_bind(to_stag_mw(l->mw), b->qp, to_stag_mr(b->mr), l->stag,
				 (uintptr_t)b->memory + off, SIZE / 2, IBV_ACCESS_REMOTE_READ),
			 0);
}

static void lend_window(struct loan *l)
{
	l->mw = ibv_alloc_mw(l->bench->pd, IBV_MW_TYPE_2);
	assert_non_null(l->mw);
	l->stag = l->mw->rkey;
	bind_window(l, 0);
}

static void invalidate_window(struct loan *l)
{
	assert_int_equal(key_invalidate(l->stag, l->bench->qp->pd, l->bench->qp), 0);
	bind_window(l, SIZE / 2);
}

static const struct way ways[] = {
	{lend_region, deregister},    {lend_region, reregister},	{lend_region, let_lapse},
	{lend_fast, invalidate_fast}, {lend_window, invalidate_window},
};

/*
 * Makes the stream accept half of a response, takes the memory back and overwrites it, and lets the
 * stream accept more.
 */
static void send_response_by_halves(struct bench *b, const struct way *w)
{
	struct loan l = {.bench = b};

	memset(b->memory, OLD, ANSWER);
	w->lend(&l);
	b->pit.bottom = b->pit.taken + ANSWER / 2;
	peer_reads(b, l.stag, (uintptr_t)b->memory, ANSWER);
	qp_progress(b->qp);
	assert_int_equal(b->pit.taken, b->pit.bottom);
	w->take_back(&l);
	memset(b->memory, MINE, ANSWER);
	b->pit.bottom = 0;
	qp_progress(b->qp);
	engine_unlock();
	let_engine_run();
	engine_lock();
	if (l.mw)
		assert_int_equal(ibv_dealloc_mw(l.mw), 0);
	if (l.mr)
		assert_int_equal(ibv_dereg_mr(l.mr), 0);
}

/*
 * No further byte of that memory is sent, and the connection ends, even if the key is valid again
 * for other memory.
 */
static void half_sent_response_is_not_continued_from_memory_taken_back(void **state)
{
	struct bench b;

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		bench_open(&b, &plain);
		send_response_by_halves(&b, &ways[i]);
		assert_int_equal(b.pit.taken, ANSWER / 2);
		assert_int_equal(atomic_load(&b.qp->state), QP_ERROR);
		bench_close(&b);
	}
}

/*
 * With CRC the payload was copied when it was summed, so the response is completed with the old
 * bytes.
 */
static void half_sent_response_under_crc_continues_with_old_bytes(void **state)
{
	const uint8_t *payload;
	struct qp_link link = plain;
	struct bench b;

	link.crc = true;
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		bench_open(&b, &link);
		send_response_by_halves(&b, &ways[i]);
		assert_int_equal(b.pit.taken, fpdu_len(DDP_TAGGED_LEN + ANSWER));
		payload = b.pit.first + MPA_LEN_FIELD + DDP_TAGGED_LEN;
		for (size_t at = 0; at < ANSWER; at++)
			assert_int_equal(payload[at], OLD);
		assert_int_equal(atomic_load(&b.qp->state), QP_RTS);
		bench_close(&b);
	}
}

/*
 * A program that polls a write's last bytes sees them after the CRC has been checked, though the
 * others are placed as they come.
 */
static void last_bytes_of_a_write_are_placed_after_its_crc(void **state)
{
	enum { LEN = 40000 };
	struct qp_link link = plain;
	struct ddp_hdr h = {.tagged = true, .last = true, .opcode = RDMAP_WRITE};
	struct bench b;
	size_t all;

	link.crc = true;
	link.caps |= MPA_EXT_SUM;
	bench_open(&b, &link);
	h.stag = b.mr->rkey;
	h.to = (uintptr_t)b.memory;
	memset(b.memory, 0, LEN);
	peer_fpdu(&b, &h, 0xaa, LEN);
	all = b.pit.in_len;
	for (size_t part = 1; part < all; part += 1 + part / 2) {
		b.pit.in_len = part;
		qp_progress(b.qp);
		assert_int_equal(b.memory[LEN - 1], 0);
	}
	b.pit.in_len = all - 1;
	qp_progress(b.qp);
	assert_int_equal(b.memory[0], 0xaa);
	assert_int_equal(b.memory[LEN - 1], 0);
	memset(b.memory, 1, LEN / 2); /* a program that reads early does no harm either */
	b.pit.in_len = all;
	qp_progress(b.qp);
	assert_int_equal(b.memory[LEN - 1], 0xaa);
	assert_int_equal(atomic_load(&b.qp->state), QP_RTS);
	bench_close(&b);
}

/* Without a sum of its own a header may be wrong until the CRC has been checked. */
static void write_without_a_sum_is_placed_after_its_crc(void **state)
{
	enum { LEN = 40000 };
	struct qp_link link = plain;
	struct ddp_hdr h = {.tagged = true, .last = true, .opcode = RDMAP_WRITE};
	struct bench b;
	size_t all;

	link.crc = true;
	bench_open(&b, &link);
	h.stag = b.mr->rkey;
	h.to = (uintptr_t)b.memory;
	memset(b.memory, 0, LEN);
	peer_fpdu(&b, &h, 0xaa, LEN);
	all = b.pit.in_len;
	for (size_t part = 1; part < all; part += 1 + part / 2) {
		b.pit.in_len = part;
		qp_progress(b.qp);
		assert_int_equal(b.memory[0], 0);
	}
	b.pit.in_len = all;
	qp_progress(b.qp);
	for (size_t at = 0; at < LEN; at++)
		assert_int_equal(b.memory[at], 0xaa);
	bench_close(&b);
}

/* ---- runs of full segments ---- */

#define FULL	(MPA_MAX_ULPDU - DDP_TAGGED_LEN) /* without a sum */
#define AROUND	40 /* bytes before and behind the end of a segment that hold all its fields */
#define RUN_END 100

/*
 * Appends a write whose first segment announces a run of full segments; each segment is filled with
 * its number.
 */
static void peer_writes_run(struct bench *b, uint32_t broken, const struct ddp_hdr *how)
{
	struct ddp_hdr h = {.tagged = true, .opcode = RDMAP_WRITE, .stag = b->mr->rkey};
	uint32_t full = qp_full(b->qp);

	for (uint32_t i = 0; i <= RDMAP_FULL_RUN; i++) {
		h.rsv = i ? 0 : RDMAP_RSV_FULL_RUN;
		h.to = (uintptr_t)b->memory + i * full + (i == broken ? how->to : 0);
		h.last = i == broken && how->last;
		peer_fpdu(b, &h, (uint8_t)(i + 1), full);
	}
	h.to = (uintptr_t)b->memory + (RDMAP_FULL_RUN + 1) * full;
	h.last = true;
	peer_fpdu(b, &h, RDMAP_FULL_RUN + 2, RUN_END);
}

static void assert_run_placed(const struct bench *b)
{
	uint32_t full = qp_full(b->qp);

	for (uint32_t i = 0; i <= RDMAP_FULL_RUN; i++)
		for (uint32_t at = 0; at < full; at++)
			if (b->memory[i * full + at] != i + 1)
				fail_msg("segment %u: wrong byte at %u", i, at);
	assert_int_equal(b->memory[(RDMAP_FULL_RUN + 1) * full], RDMAP_FULL_RUN + 2);
	assert_int_equal(b->memory[(RDMAP_FULL_RUN + 1) * full + RUN_END], 0);
	assert_int_equal(atomic_load(&b->qp->state), QP_RTS);
}

/* Delivers the first bytes of the stream, and then the rest. */
static void run_in_two_parts(struct bench *b, size_t first)
{
	size_t all;

	memset(b->memory, 0, (RDMAP_FULL_RUN + 2) * FULL);
	b->pit.in_off = b->pit.in_len = 0;
	peer_writes_run(b, UINT32_MAX, NULL);
	all = b->pit.in_len;
	b->pit.in_len = first;
	qp_progress(b->qp);
	b->pit.in_len = all;
	qp_progress(b->qp);
	assert_run_placed(b);
}

static void run_lands_wherever_it_is_cut(void **state)
{
	struct qp_link link = plain;
	size_t fpdu = fpdu_len(MPA_MAX_ULPDU);
	struct bench *b = malloc(sizeof(*b));

	assert_non_null(b);
	for (int i = 0; i < 3; i++) {
		link.crc = i > 0;
		link.caps |= i > 1 ? MPA_EXT_SUM : 0;
		bench_open(b, &link);
		for (uint32_t k = 1; k <= RDMAP_FULL_RUN + 1; k += 1 + k / 2)
			for (size_t at = k * fpdu - AROUND; at < k * fpdu + AROUND; at += 3)
				run_in_two_parts(b, at);
		bench_close(b);
	}
	free(b);
}

/* A segment other than the announced one ends the stream, and nothing behind it is placed. */
static void broken_run_ends_the_stream(void **state)
{
	static const struct ddp_hdr how[] = {{.to = 8}, {.last = true}};
	struct bench *b = malloc(sizeof(*b));

	assert_non_null(b);
	for (size_t i = 0; i < sizeof(how) / sizeof(*how); i++) {
		for (uint32_t broken = 1; broken < RDMAP_FULL_RUN; broken += 2) {
			bench_open(b, &plain);
			memset(b->memory, 0, (RDMAP_FULL_RUN + 2) * FULL);
			peer_writes_run(b, broken, &how[i]);
			qp_progress(b->qp);
			assert_int_equal(atomic_load(&b->qp->state), QP_ERROR);
			assert_int_equal(b->memory[(RDMAP_FULL_RUN + 1) * FULL], 0);
			bench_close(b);
		}
	}
	free(b);
}

/* A Terminate in the middle of a run is recognized. */
static void terminate_in_a_run_is_recognized(void **state)
{
	struct ddp_hdr h = {.tagged = true, .opcode = RDMAP_WRITE, .rsv = RDMAP_RSV_FULL_RUN};
	struct ddp_hdr end = {
		.last = true, .opcode = RDMAP_TERMINATE, .qn = QN_TERMINATE, .msn = 1};
	struct qp_link link = plain;
	struct bench *b = malloc(sizeof(*b));

	assert_non_null(b);
	link.caps |= MPA_EXT_SUM;
	for (uint32_t before = 1; before < RDMAP_FULL_RUN; before++, link.crc = !link.crc) {
		bench_open(b, &link);
		h.stag = b->mr->rkey;
		for (uint32_t i = 0; i < before; i++) {
			h.to = (uintptr_t)b->memory + i * qp_full(b->qp);
			peer_fpdu(b, &h, 1, qp_full(b->qp));
		}
		peer_fpdu(b, &end, 0, 20);
		qp_progress(b->qp);
		assert_int_equal(b->qp->stats.counters.terminates_received, 1);
		assert_int_equal(b->qp->stats.counters.crc_errors, 0);
		assert_int_equal(atomic_load(&b->qp->state), QP_ERROR);
		bench_close(b);
	}
	free(b);
}

/* The announced segments are those that follow, and never include the last one. */
static void run_is_announced_only_if_it_fits(void **state)
{
	static const struct {
		uint32_t left; /* bytes left behind this segment */
		uint8_t rsv;
	} cases[] = {
		{0, 0},
		{1, 0},
		{FULL, 0},
		{FULL + 1, RDMAP_RSV_FULL_NEXT},
		{RDMAP_FULL_RUN * FULL, RDMAP_RSV_FULL_NEXT},
		{RDMAP_FULL_RUN * FULL + 1, RDMAP_RSV_FULL_RUN},
	};
	struct qp_link standard = plain;
	struct bench b;

	bench_open(&b, &plain);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ddp_hdr h = {.tagged = true};

		tx_promise_full(b.qp, &h, cases[i].left);
		assert_int_equal(h.rsv, cases[i].rsv);
	}
	bench_close(&b);
	standard.caps = 0;
	bench_open(&b, &standard);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ddp_hdr h = {.tagged = true};

		tx_promise_full(b.qp, &h, cases[i].left);
		assert_int_equal(h.rsv, 0);
	}
	bench_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(region_is_not_held_between_progress_calls),
		cmocka_unit_test(queue_pair_ends_while_its_window_is_read),
		cmocka_unit_test(read_request_ring_survives_index_wrap),
		cmocka_unit_test(received_messages_are_delivered_though_sending_fails),
		cmocka_unit_test(send_completes_before_the_receive_of_its_reply),
		cmocka_unit_test(sent_data_no_longer_needs_its_memory),
		cmocka_unit_test(half_sent_response_is_not_continued_from_memory_taken_back),
		cmocka_unit_test(half_sent_response_under_crc_continues_with_old_bytes),
		cmocka_unit_test(last_bytes_of_a_write_are_placed_after_its_crc),
		cmocka_unit_test(write_without_a_sum_is_placed_after_its_crc),
		cmocka_unit_test(run_lands_wherever_it_is_cut),
		cmocka_unit_test(broken_run_ends_the_stream),
		cmocka_unit_test(terminate_in_a_run_is_recognized),
		cmocka_unit_test(run_is_announced_only_if_it_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
