// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_roce_uc.c - unreliable connections of roce0: a message that cannot be carried out is dropped without a word, and
 * everything else goes on.
 */
#include "roce_pair.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/port.h"
#include "adapter/qp.h"
#include "adapter/qp_tx.h"
#include "adapter/rc.h"
#include "adapter/stream.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "wire/wire.h"

#define LONG	(1 << 20) /* several segments */
#define HUGE	(64 << 20)
#define MARK_AT 8192 /* where a mark is written in the peer's buffer */

static const struct ways plain = {.uc = true};
static const struct ways with_srq = {.uc = true, .with_srq = true};
static const struct ways long_buffers = {.uc = true, .size = LONG + MARK_AT};
static const struct ways huge_buffers = {.uc = true, .size = HUGE};
static const struct ways unwritable = {.uc = true, .access = IBV_ACCESS_LOCAL_WRITE};

static int open_pair(void **state)
{
	struct roce_pair *p = calloc(1, sizeof(*p));

	roce_open(p, &plain);
	*state = p;
	return 0;
}

static int close_pair(void **state)
{
	roce_close(*state);
	free(*state);
	return 0;
}

static struct roce_pair *reopen(void **state, const struct ways *w)
{
	struct roce_pair *p = *state;

	roce_close(p);
	roce_open(p, w);
	return p;
}

/* Waits until b has handled all that a sent before: requests are carried out in order. */
static void catch_up(struct roce_pair *p)
{
	static uint8_t mark;

	p->a.buf[MARK_AT] = ++mark;
	post_op(&p->a, IBV_WR_RDMA_WRITE, 900, MARK_AT, 1, &p->b);
	expect_wc(p->a.scq, 900, IBV_WC_SUCCESS);
	await(__atomic_load_n(&p->b.buf[MARK_AT], __ATOMIC_ACQUIRE) == mark);
}

static void expect_calm(struct roce_pair *p)
{
	expect_nothing(p->a.scq);
	expect_nothing(p->b.rcq);
	expect_qp_state(&p->a, IBV_QPS_RTS);
	expect_qp_state(&p->b, IBV_QPS_RTS);
	expect_no_event(&p->a);
	expect_no_event(&p->b);
}

static void write_to(struct roce_pair *p, enum ibv_wr_opcode op, uint64_t id, uint64_t addr,
		     uint32_t rkey, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)p->a.buf, len, p->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .opcode = op,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .wr.rdma = {.remote_addr = addr, .rkey = rkey}};

	assert_int_equal(try_post(&p->a, &wr), 0);
	expect_wc(p->a.scq, id, IBV_WC_SUCCESS);
}

static void messages_arrive_in_order(void **state)
{
	struct roce_pair *p = *state;

	for (uint64_t i = 0; i < 8; i++)
		post_recv_(&p->b, 100 + i, 0, 64);
	for (uint64_t i = 0; i < 8; i++)
		post_op(&p->a, i % 2 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND, i, 0, 32, &p->b);
	for (uint64_t i = 0; i < 8; i++) {
		expect_wc(p->a.scq, i, IBV_WC_SUCCESS);
		expect_wc(p->b.rcq, 100 + i, IBV_WC_SUCCESS);
	}
	catch_up(p);
	expect_calm(p);
}

static void send_without_a_receive_is_dropped(void **state)
{
	struct roce_pair *p = *state;

	for (int srq = 0; srq < 2; srq++) {
		p = reopen(state, srq ? &with_srq : &plain);
		post_send_(&p->a, 1, 0, 64);
		expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
		catch_up(p);
		post_recv_(&p->b, 2, 0, 64);
		post_send_(&p->a, 3, 0, 32);
		expect_wc(p->a.scq, 3, IBV_WC_SUCCESS);
		assert_int_equal(expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS).byte_len, 32);
		expect_calm(p);
	}
}

static void receive_that_is_too_short_is_not_consumed(void **state)
{
	struct roce_pair *p = *state;

	for (int srq = 0; srq < 2; srq++) {
		p = reopen(state, srq ? &with_srq : &plain);
		post_recv_(&p->b, 1, 0, 64);
		post_recv_(&p->b, 2, 0, 64);
		post_send_(&p->a, 3, 0, 65);
		expect_wc(p->a.scq, 3, IBV_WC_SUCCESS);
		catch_up(p);
		expect_calm(p);
		post_send_(&p->a, 4, 0, 64);
		post_send_(&p->a, 5, 0, 63);
		assert_int_equal(expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS).byte_len, 64);
		assert_int_equal(expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS).byte_len, 63);
	}
}

/* Its length is known only when a later segment comes. */
static void long_send_into_a_short_receive_is_dropped(void **state)
{
	struct roce_pair *p = reopen(state, &long_buffers);

	post_recv_(&p->b, 1, 0, LONG - 1);
	post_send_(&p->a, 2, 0, LONG);
	expect_wc(p->a.scq, 2, IBV_WC_SUCCESS);
	catch_up(p);
	expect_calm(p);
	post_send_(&p->a, 3, 0, LONG - 1);
	assert_int_equal(expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS).byte_len, LONG - 1);
}

static void write_with_a_wrong_key_is_dropped(void **state)
{
	static const uint32_t lens[] = {8, 4096, LONG};
	struct roce_pair *p = reopen(state, &long_buffers);

	memset(p->a.buf, 1, LONG);
	for (unsigned i = 0; i < 3; i++) {
		write_to(p, IBV_WR_RDMA_WRITE, 1, (uintptr_t)p->b.buf, p->b.mr->rkey ^ 0x5500,
			 lens[i]);
		catch_up(p);
		assert_int_equal(p->b.buf[0], 0);
		expect_calm(p);
	}
}

static void write_out_of_bounds_is_dropped(void **state)
{
	struct roce_pair *p = *state;

	memset(p->a.buf, 1, 64);
	write_to(p, IBV_WR_RDMA_WRITE, 1, (uintptr_t)p->b.buf + ROCE_BUF - 8, p->b.mr->rkey, 16);
	catch_up(p);
	assert_int_equal(p->b.buf[ROCE_BUF - 1], 0);
	expect_calm(p);
}

static void write_without_the_right_is_dropped(void **state)
{
	struct roce_pair *p = reopen(state, &unwritable);

	memset(p->a.buf, 1, 64);
	post_recv_(&p->b, 1, 0, 64);
	write_to(p, IBV_WR_RDMA_WRITE, 2, (uintptr_t)p->b.buf, p->b.mr->rkey, 8);
	write_to(p, IBV_WR_RDMA_WRITE_WITH_IMM, 3, (uintptr_t)p->b.buf, p->b.mr->rkey, 8);
	post_send_(&p->a, 4, 32, 8);
	expect_wc(p->a.scq, 4, IBV_WC_SUCCESS);
	assert_int_equal(expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_RECV);
	expect_calm(p);
}

static void immediate_of_a_dropped_write_takes_no_receive(void **state)
{
	static const uint32_t lens[] = {8, LONG};
	struct roce_pair *p = reopen(state, &long_buffers);

	for (unsigned i = 0; i < 2; i++) {
		post_recv_(&p->b, 1, 0, 64);
		write_to(p, IBV_WR_RDMA_WRITE_WITH_IMM, 2, (uintptr_t)p->b.buf, 0xdeadbeef,
			 lens[i]);
		post_send_(&p->a, 3, 0, 8);
		expect_wc(p->a.scq, 3, IBV_WC_SUCCESS);
		assert_int_equal(expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_RECV);
		expect_calm(p);
	}
}

static void immediate_without_a_receive_leaves_its_bytes(void **state)
{
	struct roce_pair *p = *state;

	memset(p->a.buf, 1, 8);
	write_to(p, IBV_WR_RDMA_WRITE_WITH_IMM, 1, (uintptr_t)p->b.buf, p->b.mr->rkey, 8);
	catch_up(p);
	assert_int_equal(p->b.buf[7], 1);
	expect_calm(p);
}

static void requests_with_an_answer_are_refused(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
						 IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_SEND_WITH_INV};
	struct roce_pair *p = *state;

	for (unsigned i = 0; i < 4; i++) {
		struct ibv_sge sge = {(uintptr_t)p->a.buf, 8, p->a.mr->lkey};
		struct ibv_send_wr wr = {.opcode = ops[i], .sg_list = &sge, .num_sge = 1};

		assert_int_equal(try_post(&p->a, &wr), EINVAL);
	}
	catch_up(p);
}

static void receive_with_invalid_memory_is_the_receivers_error_alone(void **state)
{
	struct roce_pair *p = *state;
	struct ibv_sge sge = {(uintptr_t)p->b.buf, 64, 0xdead00};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(p->b.qp, &wr, &bad), 0);
	post_send_(&p->a, 2, 0, 64);
	expect_wc(p->a.scq, 2, IBV_WC_SUCCESS);
	expect_wc(p->b.rcq, 1, IBV_WC_LOC_PROT_ERR);
	await_qp_state(&p->b, IBV_QPS_ERR);
	for (uint64_t i = 3; i < 10; i++)
		post_send_(&p->a, i, 0, 64);
	for (uint64_t i = 3; i < 10; i++)
		expect_wc(p->a.scq, i, IBV_WC_SUCCESS);
	expect_qp_state(&p->a, IBV_QPS_RTS);
}

static void invalid_memory_of_our_own_is_our_error_alone(void **state)
{
	struct roce_pair *p = *state;
	struct ibv_sge sge = {(uintptr_t)p->a.buf, 64, 0xdead00};
	struct ibv_send_wr wr = {.wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};

	post_recv_(&p->b, 2, 0, 64);
	assert_int_equal(try_post(&p->a, &wr), 0);
	expect_wc(p->a.scq, 1, IBV_WC_LOC_PROT_ERR);
	await_qp_state(&p->a, IBV_QPS_ERR);
	expect_qp_state(&p->b, IBV_QPS_RTS);
	expect_no_event(&p->b);
	expect_nothing(p->b.rcq);
}

static void messages_to_nobody_complete(void **state)
{
	struct roce_pair *p = *state;

	assert_int_equal(ibv_destroy_qp(p->b.qp), 0);
	p->b.qp = NULL;
	for (uint64_t i = 0; i < 8; i++)
		post_send_(&p->a, i, 0, 64);
	for (uint64_t i = 0; i < 8; i++)
		expect_wc(p->a.scq, i, IBV_WC_SUCCESS);
	expect_qp_state(&p->a, IBV_QPS_RTS);
	expect_no_event(&p->a);
}

static void cut(struct end *e)
{
	struct stag_qp *qp = to_stag_qp(e->qp);

	qp_lock_both(qp);
	if (qp->stream)
		shutdown(qp->stream->fd, SHUT_RDWR);
	qp_unlock_both(qp);
}

static bool gets_through(struct roce_pair *p)
{
	post_op(&p->a, IBV_WR_RDMA_WRITE, 900, MARK_AT, 1, &p->b);
	expect_wc(p->a.scq, 900, IBV_WC_SUCCESS);
	return __atomic_load_n(&p->b.buf[MARK_AT], __ATOMIC_ACQUIRE) == p->a.buf[MARK_AT];
}

/* Messages that were under way are lost or not; every request completes, and messages that are sent later arrive. */
static void stream_that_is_cut_takes_messages_along_and_nothing_else(void **state)
{
	struct roce_pair *p = reopen(state, &long_buffers);

	for (int round = 0; round < 10; round++) {
		p->a.buf[MARK_AT]++;
		await(gets_through(p)); /* the first ones may be lost with the stream */
		for (uint64_t i = 0; i < 8; i++)
			post_op(&p->a, IBV_WR_RDMA_WRITE, i, 0, LONG, &p->b);
		cut(round % 2 ? &p->a : &p->b);
		for (uint64_t i = 0; i < 8; i++)
			expect_wc(p->a.scq, i, IBV_WC_SUCCESS);
	}
	p->a.buf[MARK_AT]++;
	await(gets_through(p));
	expect_calm(p);
}

/* Connects to a's port as queue pair number qpn, by hand. */
static int bare_peer(struct end *a, uint32_t qpn)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(qpn_port(a->qp->qp_num)),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct hello h = {.kind = HELLO_ASK,
			  .type = HELLO_UC,
			  .caps = 0x1ff,
			  .from_qpn = qpn,
			  .to_qpn = a->qp->qp_num,
			  .process = 1,
			  .epoch = 1};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	uint8_t buf[HELLO_LEN];
	union ibv_gid gid;

	assert_int_equal(ibv_query_gid(a->ctx, 1, 0, &gid), 0);
	memcpy(h.from_gid, gid.raw, 16);
	memcpy(h.to_gid, gid.raw, 16);
	hello_encode(&h, buf);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(send(fd, buf, sizeof(buf), MSG_NOSIGNAL), sizeof(buf));
	assert_int_equal(recv(fd, buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
	assert_int_equal(hello_decode(buf, sizeof(buf), &h), HELLO_LEN);
	assert_int_equal(h.kind, HELLO_READY);
	return fd;
}

/* What UC has not, from a peer that has it: answers, requests with an answer, and a Terminate. */
static const struct ddp_hdr foreign[] = {
	{.opcode = RDMAP_ESCAPE, .qn = QN_TERMINATE, .ulp = RDMAP_SUB_ACK << 24},
	{.opcode = RDMAP_ESCAPE, .qn = QN_TERMINATE, .ulp = RDMAP_SUB_GO << 24, .msn = 1},
	{.opcode = RDMAP_ESCAPE, .qn = QN_TERMINATE, .ulp = RDMAP_SUB_RESUME << 24, .msn = 1},
	{.opcode = RDMAP_ESCAPE,
	 .qn = QN_TERMINATE,
	 .ulp = RDMAP_SUB_NAK << 24 | NAK_ACCESS << 8,
	 .msn = 1},
	{.opcode = RDMAP_SEND_INV, .qn = QN_SEND, .msn = 1},
	{.opcode = RDMAP_TERMINATE, .qn = QN_TERMINATE, .msn = 1},
};

static void say(int fd, struct ddp_hdr h)
{
	uint8_t buf[64] = {0};
	size_t len;

	h.last = true;
	len = ddp_encode(&h, buf + MPA_LEN_FIELD);
	put_be16(buf, (uint16_t)len);
	len = fpdu_len(len);
	crc32c_put(buf + len - MPA_CRC_LEN, crc32c_update(CRC32C_INIT, buf, len - MPA_CRC_LEN));
	assert_int_equal(send(fd, buf, len, MSG_NOSIGNAL), len);
}

static void open_with_bare_peer(struct roce_pair *p, const struct ways *w, int *fd)
{
	end_open(&p->a, w);
	end_open(&p->b, &plain);
	end_connect(&p->a, p->b.qp->qp_num, &plain);
	*fd = bare_peer(&p->a, p->b.qp->qp_num);
}

static void message_that_uc_has_not_ends_the_stream_alone(void **state)
{
	for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++) {
		struct roce_pair p;
		char byte;
		int fd;

		open_with_bare_peer(&p, &long_buffers, &fd);
		say(fd, foreign[i]);
		await(recv(fd, &byte, 1, MSG_DONTWAIT) == 0 || errno != EAGAIN);
		expect_qp_state(&p.a, IBV_QPS_RTS);
		expect_no_event(&p.a);
		close(fd);
		roce_close(&p);
	}
}

/* Returns the number of the request that is framed in part, while the stream is full; or 0. */
static uint32_t half_framed(struct end *e)
{
	struct stag_qp *qp = to_stag_qp(e->qp);
	uint32_t number = 0;

	lock_acquire(&qp->tx_lock);
	if (qp->tx && qp->tx->open == OPEN_SQ && atomic_load(&qp->progress.tx_blocked))
		number = qp->rc->framed + 1;
	lock_release(&qp->tx_lock);
	return number;
}

/* The message is longer than all that the stream takes from a sender whose peer does not read. */
static void nak_fails_no_request(void **state)
{
	struct ddp_hdr nak = foreign[3];
	struct roce_pair p;
	int fd;

	open_with_bare_peer(&p, &huge_buffers, &fd);
	post_send_(&p.a, 1, 0, HUGE);
	await((nak.msn = half_framed(&p.a)) != 0);
	say(fd, nak);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	expect_qp_state(&p.a, IBV_QPS_RTS);
	expect_no_event(&p.a);
	close(fd);
	roce_close(&p);
}

/* A sender does not wait for ever for a peer that reads nothing; and then there is none. */
static void peer_that_reads_nothing_loses_messages(void **state)
{
	struct roce_pair p;
	int fd;

	open_with_bare_peer(&p, &long_buffers, &fd);
	for (uint64_t i = 0; i < 60; i++)
		post_send_(&p.a, i, 0, LONG);
	for (uint64_t i = 0; i < 60; i++)
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	expect_qp_state(&p.a, IBV_QPS_RTS);
	expect_no_event(&p.a);
	close(fd);
	roce_close(&p);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_pair, close_pair)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(messages_arrive_in_order),
		TEST(send_without_a_receive_is_dropped),
		TEST(receive_that_is_too_short_is_not_consumed),
		TEST(long_send_into_a_short_receive_is_dropped),
		TEST(write_with_a_wrong_key_is_dropped),
		TEST(write_out_of_bounds_is_dropped),
		TEST(write_without_the_right_is_dropped),
		TEST(immediate_of_a_dropped_write_takes_no_receive),
		TEST(immediate_without_a_receive_leaves_its_bytes),
		TEST(requests_with_an_answer_are_refused),
		TEST(receive_with_invalid_memory_is_the_receivers_error_alone),
		TEST(invalid_memory_of_our_own_is_our_error_alone),
		TEST(messages_to_nobody_complete),
		TEST(stream_that_is_cut_takes_messages_along_and_nothing_else),
		cmocka_unit_test(message_that_uc_has_not_ends_the_stream_alone),
		cmocka_unit_test(nak_fails_no_request),
		cmocka_unit_test(peer_that_reads_nothing_loses_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
