// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_tx.c - what the sending side keeps between two looks at its stream.
 *
 * Looks inside: qp_tx.c is a part of this file. The stream is a bottomless pit,
 * and the engine is held back, so that nothing happens but what a test does.
 */
#include "adapter/qp_tx.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs/verbs.h"

#define SIZE   (32u << 20) /* more than goes out in one look */
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND)

/* ---- a stream that takes everything, and gives what a test puts in ---- */

struct pit {
	struct stream stream;
	uint8_t in[4096];
	size_t in_len;
	uint64_t taken;	     /* bytes */
	uint8_t first[4096]; /* of them */
	bool shut;
};

static ssize_t pit_send(struct stream *s, const struct iovec *iov, int n)
{
	struct pit *p = (struct pit *)s;
	size_t len = 0;

	if (p->shut)
		return -EPIPE;
	for (int i = 0; i < n; i++) {
		uint64_t at = p->taken + len;

		if (at + iov[i].iov_len <= sizeof(p->first))
			memcpy(p->first + at, iov[i].iov_base, iov[i].iov_len);
		len += iov[i].iov_len;
	}
	p->taken += len;
	return (ssize_t)len;
}

static ssize_t pit_recv(struct stream *s, const struct iovec *iov, int n)
{
	struct pit *p = (struct pit *)s;
	size_t len = p->in_len;

	if (!len)
		return -EAGAIN;
	assert_true(len <= iov[0].iov_len);
	memcpy(iov[0].iov_base, p->in, len);
	p->in_len = 0;
	return (ssize_t)len;
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

/* ---- a queue pair on it ---- */

struct bench {
	struct pit pit;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct stag_qp *qp;
	uint8_t *memory;
	struct ibv_mr *mr;
	uint32_t msn; /* of the next request of the peer */
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
					.cap = {.max_send_wr = 16, .max_send_sge = 1}};
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

/* The peer's read request arrives; CRCs are off. */
static void peer_reads(struct bench *b, uint32_t stag, uint64_t to, uint32_t size)
{
	struct ddp_hdr h = {.last = true, .opcode = RDMAP_READ_REQ, .qn = QN_READ, .msn = b->msn++};
	struct rdmap_read_req r = {
		.sink_stag = 0x100, .size = size, .src_stag = stag, .src_to = to};
	uint8_t *p = b->pit.in + b->pit.in_len;

	put_be16(p, DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN);
	ddp_encode(&h, p + MPA_LEN_FIELD);
	rdmap_put_read_req(p + MPA_LEN_FIELD + DDP_UNTAGGED_LEN, &r);
	b->pit.in_len += fpdu_len(DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN);
	memset(p + MPA_LEN_FIELD + DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN, 0, MPA_CRC_LEN);
}

static bool is_held(const struct ibv_mr *mr)
{
	return atomic_load(&to_stag_mr((struct ibv_mr *)mr)->slot->users) != 0;
}

/* ---- the stories ---- */

/* A long answer is given in several goes; in between the region may be taken away. */
static void no_key_is_held_between_goes(void **state)
{
	struct bench b;

	bench_open(&b, &plain);
	peer_reads(&b, b.mr->rkey, (uintptr_t)b.memory, SIZE);
	qp_progress(b.qp);
	assert_true(b.pit.taken < SIZE);
	assert_true(atomic_load(&b.qp->tx_blocked));
	assert_false(is_held(b.mr));
	while (b.pit.taken < SIZE)
		qp_progress(b.qp);
	assert_false(is_held(b.mr));
	bench_close(&b);
}

/* A window that is being read does not keep its queue pair from ending. */
static void a_window_being_read_ends_with_its_queue_pair(void **state)
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
	alarm(20); /* where it does, for ever */
	assert_int_equal(ibv_modify_qp(&b.qp->ibv, &err, IBV_QP_STATE), 0);
	alarm(0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	bench_close(&b);
}

/* After 2^32 reads the numbers of the peer's requests begin anew. */
static void the_count_of_reads_wraps_around(void **state)
{
	struct bench b;
	uint32_t i;

	bench_open(&b, &plain);
	peer_reads(&b, 0, 0, 0); /* the first message releases what is held */
	qp_progress(b.qp);
	b.qp->tx->irq_put = b.qp->tx->irq_get = UINT32_MAX - 4;
	b.qp->tx->held = true; /* so that they pile up */
	for (i = 0; i < 9; i++)
		peer_reads(&b, b.mr->rkey, (uintptr_t)b.memory, i + 1);
	qp_progress(b.qp);
	for (i = 0; i < 9; i++)
		assert_int_equal(
			b.qp->tx->irq[(b.qp->tx->irq_get + i) & b.qp->tx->irq_mask].read.size,
			i + 1);
	bench_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_key_is_held_between_goes),
		cmocka_unit_test(a_window_being_read_ends_with_its_queue_pair),
		cmocka_unit_test(the_count_of_reads_wraps_around),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
