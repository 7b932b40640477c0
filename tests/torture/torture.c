// SPDX-License-Identifier: BSD-2-Clause
/*
 * torture.c - two processes, many connections and random operations. Checks the
 * guarantees of verbs: everything that completed arrived once, in order and
 * intact, and no process hangs.
 *
 *   torture [--seconds N] [--seed N] [--faults]
 *
 * The parent draws rounds. In each a server and a client run; with --faults it
 * stops, continues and kills one of them at random: then the other one must see
 * its connections end, and exit cleanly. A round without a completion for
 * PATIENCE_S is a hang. Exits with 0 only if no round violated a guarantee.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

#define CONNECTIONS 6
#define DEPTH	    16		 /* receives posted at each side */
#define SLOT	    (256u << 10) /* bytes of one receive */
#define AREA	    (2u << 20)	 /* bytes that the server lends to each connection, */
#define WORDS	    64		 /* followed by a counter for atomics */
#define PATIENCE_S  60

#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

enum style { STYLE_POLL, STYLE_EVENTS, STYLE_EPOLL, STYLE_MEMORY, STYLES };

/* TSan reports a race when a program polls memory that the engine writes; that is intended. */
#ifdef __SANITIZE_THREAD__
#define STYLES_HERE STYLE_MEMORY
#else
#define STYLES_HERE STYLES
#endif

/* Memory that the processes of a round share with their parent. */
static struct shared {
	_Atomic uint64_t moved;			       /* completions of all processes: progress */
	_Atomic uint64_t messages, bytes, rounds, cut; /* for the report */
	_Atomic uint16_t port;
	_Atomic bool cut_short; /* a process was killed: ended connections are not failures */
	_Atomic uint64_t sent[CONNECTIONS], received[CONNECTIONS]; /* messages that completed */
} * shared;

static uint64_t seed;

/* ---- dice, patterns, errors ---------------------------------------- */

static __thread uint64_t dice_state;

static uint64_t dice(void)
{
	uint64_t x = dice_state += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t dice_below(uint64_t n)
{
	return dice() % n;
}

/* Draws small, medium and large sizes, each often enough. */
static uint32_t draw_size(uint32_t max)
{
	static const uint32_t most[] = {1, 64, 1024, 9000, 70000, UINT32_MAX};
	uint32_t m = most[dice_below(6)];

	return (uint32_t)dice_below((uint64_t)(m < max ? m : max) + 1);
}

static uint8_t pattern_byte(uint64_t key, uint32_t i)
{
	return (uint8_t)((key + i * 0x9e3779b97f4a7c15u) >> 56);
}

static void fill_pattern(uint8_t *p, uint32_t len, uint64_t key)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = pattern_byte(key, i);
}

#define report_violation(...)                                                                      \
	do {                                                                                       \
		fprintf(stderr, "torture: seed %llu: line %d: ", (unsigned long long)seed,         \
			__LINE__);                                                                 \
		fprintf(stderr, __VA_ARGS__);                                                      \
		fputc('\n', stderr);                                                               \
		_exit(1);                                                                          \
	} while (0)

#define must(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			report_violation("%s (errno %d)", #x, errno);                              \
	} while (0)

static void expect_pattern(const uint8_t *p, uint32_t len, uint64_t key, const char *what)
{
	for (uint32_t i = 0; i < len; i++)
		if (p[i] != pattern_byte(key, i))
			report_violation("%s: byte %u of %u is 0x%02x, not 0x%02x", what, i, len,
					 p[i], pattern_byte(key, i));
}

/* ---- one side of a connection ------------------------------------------ */

struct area { /* memory that a side lends to its peer, sent when it connects */
	uint64_t addr;
	uint32_t rkey;
	uint32_t number;
	uint64_t key;
	uint32_t style;
};

struct side {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint8_t *memory; /* the area, the counter, DEPTH receive buffers, and scratch space */
	uint8_t *slots, *work;
	enum style style;
	struct area theirs;
	uint32_t number;
	uint64_t key;	  /* of the pattern of this connection's data */
	bool over;	  /* the connection has ended */
	uint64_t next_in; /* number of the next message to receive */
	uint64_t next_out;
	unsigned posted;      /* receives without a completion yet */
	uint64_t last_signal; /* wr_id of the last completion of the send queue */
	unsigned credits;     /* receives that the peer has left */
};

#define SLOTS_AT (AREA + WORDS * 8)
#define WORK_AT	 (SLOTS_AT + DEPTH * SLOT)
#define MEMORY	 (WORK_AT + 2 * AREA)

static void side_register(struct side *s)
{
	s->mr = ibv_reg_mr(s->pd, s->memory, MEMORY, ACCESS);
	must(s->mr);
}

static void post_slot(struct side *s, unsigned i)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->slots + i * SLOT, .length = SLOT, .lkey = s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
	int err =
		s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->id->qp, &wr, &bad);

	must(!err);
	s->posted++;
}

static void side_open(struct side *s, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.sq_sig_all = 0,
					.cap = {.max_send_wr = 64,
						.max_recv_wr = DEPTH,
						.max_send_sge = 8,
						.max_recv_sge = 1,
						.max_inline_data = 256}};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 1}};

	s->id = id;
	s->pd = ibv_alloc_pd(id->verbs);
	must(s->pd);
	s->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(s->memory != MAP_FAILED);
	s->slots = s->memory + SLOTS_AT;
	s->work = s->memory + WORK_AT;
	side_register(s);
	s->channel = ibv_create_comp_channel(id->verbs);
	must(s->channel);
	s->scq = ibv_create_cq(id->verbs, 128, NULL, s->channel, 0);
	s->rcq = s->key % 3 ? s->scq : ibv_create_cq(id->verbs, 128, NULL, s->channel, 0);
	must(s->scq && s->rcq);
	if (s->key % 5 == 0)
		must(s->srq = ibv_create_srq(s->pd, &srq));
	attr.send_cq = s->scq;
	attr.recv_cq = s->rcq;
	attr.srq = s->srq;
	must(!rdma_create_qp(id, s->pd, &attr));
	for (unsigned i = 0; i < DEPTH; i++)
		post_slot(s, i);
	s->credits = DEPTH - 1;
}

static void side_close(struct side *s)
{
	rdma_destroy_qp(s->id);
	must(!rdma_destroy_id(s->id));
	if (s->srq)
		must(!ibv_destroy_srq(s->srq));
	if (s->rcq != s->scq)
		must(!ibv_destroy_cq(s->rcq));
	must(!ibv_destroy_cq(s->scq));
	must(!ibv_destroy_comp_channel(s->channel));
	must(!ibv_dereg_mr(s->mr));
	must(!ibv_dealloc_pd(s->pd));
	munmap(s->memory, MEMORY);
}

static struct area side_area(const struct side *s)
{
	return (struct area){.addr = (uintptr_t)s->memory,
			     .rkey = s->mr->rkey,
			     .number = s->number,
			     .key = s->key,
			     .style = s->style};
}

/* ---- completions ------------------------------------------------------- */

static void arm(struct side *s)
{
	must(!ibv_req_notify_cq(s->scq, 0));
	if (s->rcq != s->scq)
		must(!ibv_req_notify_cq(s->rcq, 0));
}

static void acknowledge_events(struct side *s)
{
	struct ibv_cq *cq;
	void *context;

	if (!ibv_get_cq_event(s->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	else
		must(errno == EINTR || errno == EAGAIN);
}

static int poll_both(struct side *s, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(s->scq, 1, wc);

	if (!n && s->rcq != s->scq)
		n = ibv_poll_cq(s->rcq, 1, wc);
	must(n >= 0);
	return n;
}

static bool connection_ended(struct side *s);

/*
 * Waits for a completion. Receives of an SRQ are not flushed at the end, so it wakes up now and
 * then.
 */
static void wait_some(struct side *s, uint64_t *spins)
{
	struct pollfd p = {.fd = s->channel->fd, .events = POLLIN};

	if (s->style == STYLE_POLL || s->style == STYLE_MEMORY) {
		if (++*spins % 1024 == 0)
			sched_yield();
		return;
	}
	if (s->style == STYLE_EVENTS && !s->srq)
		p.revents = POLLIN;
	else
		poll(&p, 1, s->srq ? 20 : -1);
	if (p.revents)
		acknowledge_events(s);
}

/* Waits for the next completion, in the way of this side. Returns false if none will come. */
static bool wait_wc(struct side *s, struct ibv_wc *wc)
{
	uint64_t spins = 0;
	bool ended = false;

	while (!poll_both(s, wc)) {
		if (ended)
			return !(s->over = true);
		ended = s->srq && connection_ended(s);
		if (ended)
			continue;
		if (s->style != STYLE_POLL && s->style != STYLE_MEMORY) {
			arm(s);
			if (poll_both(s, wc))
				break;
		}
		wait_some(s, &spins);
	}
	atomic_fetch_add(&shared->moved, 1);
	return true;
}

#define SEND_FLAG (1ull << 63) /* in wr_ids of the send queue; receives have small numbers */

/* 'S' message, 'I' write with immediate, 'C' credit, 'B' bye */
struct header {
	char kind;
	uint32_t len, off;
	uint64_t number;
};

static void note_send_wc(struct side *s, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		s->over = true;
		return;
	}
	if ((wc->wr_id & ~SEND_FLAG) <= s->last_signal)
		report_violation("send completion %llu came after %llu",
				 (unsigned long long)(wc->wr_id & ~SEND_FLAG),
				 (unsigned long long)s->last_signal);
	s->last_signal = wc->wr_id & ~SEND_FLAG;
}

static void return_credit(struct side *s);

static void check_message(struct side *s, const struct ibv_wc *wc, const uint8_t *slot)
{
	struct header h;

	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		uint32_t len = wc->byte_len;

		if (ntohl(wc->imm_data) != (uint32_t)s->next_in)
			report_violation("received immediate %u, expected %llu",
					 ntohl(wc->imm_data), (unsigned long long)s->next_in);
		expect_pattern(s->memory, len, s->key + s->next_in, "a write with immediate");
	} else {
		must(wc->byte_len >= sizeof(h));
		memcpy(&h, slot, sizeof(h));
		if (h.kind == 'C') {
			s->credits++;
			return;
		}
		if (h.number != s->next_in || h.len != wc->byte_len - sizeof(h))
			report_violation("received message %llu of %u bytes, expected message %llu",
					 (unsigned long long)h.number, h.len,
					 (unsigned long long)s->next_in);
		expect_pattern(slot + sizeof(h), h.len, s->key + h.number, "a message");
		s->over |= h.kind == 'B';
	}
	s->next_in++;
	atomic_fetch_add(&shared->messages, 1);
	atomic_fetch_add(&shared->bytes, wc->byte_len);
}

/* Handles one completion. */
static void handle_completion(struct side *s, const struct ibv_wc *wc)
{
	bool credit;

	if (wc->wr_id & SEND_FLAG) {
		note_send_wc(s, wc);
		return;
	}
	s->posted--;
	if (wc->status != IBV_WC_SUCCESS) {
		s->over = true;
		return;
	}
	credit = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM || s->slots[wc->wr_id * SLOT] != 'C';
	check_message(s, wc, s->slots + wc->wr_id * SLOT);
	post_slot(s, (unsigned)wc->wr_id);
	if (credit && !s->over)
		return_credit(s);
}

static void serve_one(struct side *s)
{
	struct ibv_wc wc;

	if (wait_wc(s, &wc))
		handle_completion(s, &wc);
}

/* ---- posting ----------------------------------------------------------- */

/*
 * Posts a request, SIGNALED now and then or on request. Returns false if the connection has ended.
 */
static bool post_send(struct side *s, struct ibv_send_wr *wr, bool signal)
{
	static __thread uint64_t count;
	struct ibv_send_wr *bad;
	int err;

	if (signal || ++count % 8 == 0)
		wr->send_flags |= IBV_SEND_SIGNALED;
	wr->wr_id = SEND_FLAG | ++s->next_out;
	while ((err = ibv_post_send(s->id->qp, wr, &bad)) == ENOMEM && !s->over) {
		serve_one(s);
	}
	if (err && err != ENOMEM)
		errno = err;
	return !err && !s->over;
}

/* Waits until all previous requests have completed. Returns false if the connection has ended. */
static bool await_completions(struct side *s)
{
	while (!s->over && s->last_signal != s->next_out) {
		serve_one(s);
	}
	return !s->over;
}

static void return_credit(struct side *s)
{
	struct header h = {.kind = 'C'};
	struct ibv_sge sge = {.addr = (uintptr_t)&h, .length = sizeof(h)};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .send_flags = IBV_SEND_INLINE};

	post_send(s, &wr, false);
}

/* ---- the client's work ------------------------------------------------- */

static bool await_credit(struct side *s)
{
	while (!s->credits && !s->over) {
		serve_one(s);
	}
	s->credits -= !s->over;
	return !s->over;
}

/* Splits a range into up to n pieces. */
static int split_range(const struct side *s, uint8_t *p, uint32_t len, struct ibv_sge *sge, int n)
{
	int used = 0;

	while (len || !used) {
		uint32_t part = used == n - 1 ? len : (uint32_t)dice_below(len + 1ull);

		sge[used++] =
			(struct ibv_sge){.addr = (uintptr_t)p, .length = part, .lkey = s->mr->lkey};
		p += part;
		len -= part;
		if (used == n)
			break;
	}
	return used;
}

static bool send_message(struct side *s, uint64_t number, char kind)
{
	struct header h = {.kind = kind, .number = number};
	struct ibv_sge sge[8];
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = sge};

	if (!await_credit(s) || !await_completions(s))
		return false;
	h.len = draw_size(SLOT - sizeof(h));
	memcpy(s->work, &h, sizeof(h));
	fill_pattern(s->work + sizeof(h), h.len, s->key + number);
	wr.num_sge =
		split_range(s, s->work, h.len + (uint32_t)sizeof(h), sge, 1 + (int)dice_below(8));
	if (h.len + sizeof(h) <= 256 && dice_below(2))
		wr.send_flags |= IBV_SEND_INLINE;
	if (dice_below(4) == 0)
		wr.send_flags |= IBV_SEND_SOLICITED;
	return post_send(s, &wr, true);
}

static bool write_immediate(struct side *s, uint64_t number)
{
	uint32_t len = draw_size(AREA);
	struct ibv_sge sge = {.addr = (uintptr_t)s->work, .length = len, .lkey = s->mr->lkey};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl((uint32_t)number),
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = {.remote_addr = s->theirs.addr, .rkey = s->theirs.rkey}};

	/* The area belongs to the message until the peer has checked it and returned all credits. */
	while (s->credits < DEPTH - 1 && !s->over)
		serve_one(s);
	if (!await_credit(s) || !await_completions(s))
		return false;
	fill_pattern(s->work, len, s->key + number);
	if (!post_send(s, &wr, true))
		return false;
	while (s->credits < DEPTH - 1 && !s->over)
		serve_one(s);
	return !s->over;
}

/* Posts some writes and then one read of all, which must see them. */
static bool write_and_read(struct side *s)
{
	uint32_t len = draw_size(AREA), done = 0;
	uint64_t key = dice();
	struct ibv_sge sge[8];
	struct ibv_send_wr wr = {.sg_list = sge, .wr.rdma.rkey = s->theirs.rkey};

	if (!await_completions(s))
		return false;
	fill_pattern(s->work, len, key);
	memset(s->work + AREA, 0, len);
	for (unsigned i = 0; i < 4 && done < len; i++) {
		uint32_t part = i == 3 ? len - done : (uint32_t)dice_below(len - done + 1ull);

		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.send_flags = dice_below(8) ? 0 : IBV_SEND_FENCE;
		wr.wr.rdma.remote_addr = s->theirs.addr + done;
		wr.num_sge = split_range(s, s->work + done, part, sge, 1 + (int)dice_below(8));
		if (!post_send(s, &wr, false))
			return false;
		done += part;
	}
	wr.opcode = IBV_WR_RDMA_READ;
	wr.send_flags = 0;
	wr.wr.rdma.remote_addr = s->theirs.addr;
	sge[0] = (struct ibv_sge){
		.addr = (uintptr_t)s->work + AREA, .length = len, .lkey = s->mr->lkey};
	wr.num_sge = 1;
	if (!post_send(s, &wr, true) || !await_completions(s))
		return false;
	expect_pattern(s->work + AREA, len, key, "a read");
	atomic_fetch_add(&shared->bytes, 2ull * len);
	return true;
}

/* Adds one; the previous value is the number of additions so far. */
static bool count_up(struct side *s, uint64_t *expected)
{
	uint64_t *result = (uint64_t *)(s->work + 2 * AREA - 8);
	struct ibv_sge sge = {.addr = (uintptr_t)result, .length = 8, .lkey = s->mr->lkey};
	bool swap = dice_below(2);
	struct ibv_send_wr wr = {
		.opcode = swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.atomic = {.remote_addr = s->theirs.addr + AREA,
			      .rkey = s->theirs.rkey,
			      .compare_add = swap ? *expected : 1,
			      .swap = *expected + 1}};

	if (!post_send(s, &wr, true) || !await_completions(s))
		return false;
	if (*result != *expected)
		report_violation("atomic returned %llu, expected %llu", (unsigned long long)*result,
				 (unsigned long long)*expected);
	(*expected)++;
	return true;
}

/* ---- memory polling ------------------------------------------------------ */

/*
 * A block is a length, a pattern, and a number that is written last. The side
 * that polls for the number checks the block, clears it, and answers with its own.
 */
#define BLOCK_MAX 60000u

static bool put_block(struct side *s, uint32_t len, uint64_t number)
{
	uint8_t *p = s->work;
	struct ibv_sge sge = {.addr = (uintptr_t)p, .length = len, .lkey = s->mr->lkey};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.sg_list = &sge,
		.num_sge = 1,
		/* blocks end at the same place, where the number is polled */
		.wr.rdma = {.remote_addr = s->theirs.addr + AREA - len, .rkey = s->theirs.rkey}};

	if (!await_completions(s))
		return false;
	fill_pattern(p, len - 8, s->key + number);
	memcpy(p + len - 8, &number, 8);
	return post_send(s, &wr, true);
}

static bool get_block(struct side *s, uint32_t len, uint64_t number)
{
	const uint64_t *flag = (const uint64_t *)(s->memory + AREA - 8);
	uint8_t *p = s->memory + AREA - len;
	uint64_t spins = 0, found;

	while ((found = __atomic_load_n(flag, __ATOMIC_ACQUIRE)) != number) {
		if (found)
			report_violation("found block %llu, expected %llu",
					 (unsigned long long)found, (unsigned long long)number);
		if (++spins % 256 == 0)
			sched_yield();
		if (spins % 4096 == 0 && connection_ended(s))
			return false;
	}
	expect_pattern(p, len - 8, s->key + number, "a block");
	memset(p, 0, len);
	atomic_fetch_add(&shared->moved, 1);
	atomic_fetch_add(&shared->bytes, len);
	return true;
}

/* Both sides draw the same sizes, since their dice have the same seed. */
static void play_blocks(struct side *s, bool first, unsigned rounds)
{
	dice_state = s->key;
	for (uint64_t i = 1; i <= rounds && !s->over; i++) {
		uint32_t len = 16 + draw_size(BLOCK_MAX) / 8 * 8;

		if (first && !put_block(s, len, i))
			return;
		if (!get_block(s, len, i))
			return;
		if (!first && !put_block(s, len, i))
			return;
	}
	await_completions(s);
}

/* ---- connections ------------------------------------------------------- */

static _Atomic(struct side *) ended[2 * CONNECTIONS + 64];

/* The thread that reads the connection manager's events marks the sides whose connection ended. */
static bool connection_ended(struct side *s)
{
	for (unsigned i = 0; i < sizeof(ended) / sizeof(*ended); i++)
		if (ended[i] == s)
			return s->over = true;
	return false;
}

static void mark_ended(struct side *s)
{
	for (unsigned i = 0; i < sizeof(ended) / sizeof(*ended); i++) {
		struct side *nobody = NULL;

		if (ended[i] == s || atomic_compare_exchange_strong(&ended[i], &nobody, s))
			return;
	}
}

static void await_end(struct side *s)
{
	while (!connection_ended(s))
		usleep(500);
	for (unsigned i = 0; i < sizeof(ended) / sizeof(*ended); i++) {
		struct side *me = s;

		atomic_compare_exchange_strong(&ended[i], &me, NULL);
	}
}

/* After the end every receive completes once: with a message, or flushed. */
static void expect_flush(struct side *s)
{
	struct ibv_wc wc;

	while (!s->srq && s->posted) {
		wait_wc(s, &wc);
		if (wc.wr_id & SEND_FLAG)
			continue;
		s->posted--;
		if (wc.status == IBV_WC_SUCCESS)
			check_message(s, &wc, s->slots + wc.wr_id * SLOT);
		else if (wc.status != IBV_WC_WR_FLUSH_ERR && !shared->cut_short)
			report_violation("a receive completed with status: %s",
					 ibv_wc_status_str(wc.status));
	}
	while (poll_both(s, &wc)) {
		if (wc.wr_id & SEND_FLAG)
			continue;
		if (!s->srq)
			report_violation("a receive completed twice");
		if (wc.status == IBV_WC_SUCCESS)
			check_message(s, &wc, s->slots + wc.wr_id * SLOT);
	}
}

static void client_work(struct side *s, bool atomics, unsigned steps)
{
	uint64_t number = 0, counter = 0;

	for (unsigned i = 0; i < steps && !s->over; i++) {
		switch (dice_below(atomics ? 5 : 3)) {
		case 0:
		case 1:
			if (send_message(s, number, 'S'))
				shared->sent[s->number] = ++number;
			break;
		case 2:
			write_and_read(s);
			break;
		case 3:
			count_up(s, &counter);
			break;
		default:
			if (write_immediate(s, number))
				shared->sent[s->number] = ++number;
			break;
		}
	}
	if (!s->over && send_message(s, number, 'B') && await_completions(s))
		shared->sent[s->number] = number + 1;
}

static struct rdma_cm_event *next_event(struct rdma_event_channel *ch, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *ev;

	while (rdma_get_cm_event(ch, &ev))
		must(errno == EINTR);
	if (ev->event == want)
		return ev;
	if (!shared->cut_short)
		report_violation("got event %s (status %d), expected %s", rdma_event_str(ev->event),
				 ev->status, rdma_event_str(want));
	/* Exit at once, before a sanitizer checks the other threads, which are still running. */
	syscall(SYS_exit_group, 0);
	__builtin_unreachable();
}

static void *watch_events(void *arg)
{
	struct rdma_event_channel *ch = arg;
	struct rdma_cm_event *ev;

	while (!rdma_get_cm_event(ch, &ev)) {
		if (ev->event == RDMA_CM_EVENT_DISCONNECTED)
			mark_ended(ev->id->context);
		rdma_ack_cm_event(ev);
	}
	return NULL;
}

static struct rdma_conn_param params(struct area *a)
{
	return (struct rdma_conn_param){.private_data = a,
					.private_data_len = sizeof(*a),
					.initiator_depth = 8,
					.responder_resources = 8};
}

static void *client_connection(void *arg)
{
	struct side *s = arg;
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(shared->port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param p;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	struct area mine;
	pthread_t watcher;

	dice_state = s->key;
	must(ch && !rdma_create_id(ch, &id, s, RDMA_PS_TCP));
	must(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000));
	rdma_ack_cm_event(next_event(ch, RDMA_CM_EVENT_ADDR_RESOLVED));
	must(!rdma_resolve_route(id, 5000));
	rdma_ack_cm_event(next_event(ch, RDMA_CM_EVENT_ROUTE_RESOLVED));
	side_open(s, id);
	mine = side_area(s);
	p = params(&mine);
	must(!rdma_connect(id, &p));
	ev = next_event(ch, RDMA_CM_EVENT_ESTABLISHED);
	memcpy(&s->theirs, ev->param.conn.private_data, sizeof(s->theirs));
	rdma_ack_cm_event(ev);
	must(!pthread_create(&watcher, NULL, watch_events, ch));
	pthread_detach(watcher);
	if (s->style == STYLE_MEMORY)
		play_blocks(s, true, 40 + (unsigned)dice_below(200));
	else
		client_work(s, getenv("STAG_EXTENSIONS") == NULL && getenv("STAG_MPA_REV") == NULL,
			    10 + (unsigned)dice_below(150));
	if (s->key % 4)
		rdma_disconnect(id);
	else
		return NULL; /* some connections are left to the end of the process */
	await_end(s);
	expect_flush(s);
	side_close(s);
	return NULL;
}

static void run_client(uint64_t key)
{
	static struct side sides[CONNECTIONS];
	pthread_t thread[CONNECTIONS];

	for (unsigned i = 0; i < CONNECTIONS; i++) {
		sides[i] = (struct side){.number = i,
					 .key = key * 1000003 + i * 7919,
					 .style = (key + i) % STYLES_HERE};
		must(!pthread_create(&thread[i], NULL, client_connection, &sides[i]));
	}
	for (unsigned i = 0; i < CONNECTIONS; i++)
		must(!pthread_join(thread[i], NULL));
	exit(0);
}

static _Atomic unsigned live_servers;

static void *server_connection(void *arg)
{
	struct side *s = arg;

	if (s->style == STYLE_MEMORY)
		play_blocks(s, false, 1u << 30); /* until the client disconnects */
	while (!s->over)
		serve_one(s);
	await_end(s);
	expect_flush(s);
	shared->received[s->number] = s->next_in;
	side_close(s);
	free(s);
	live_servers--;
	return NULL;
}

/* Returns false if the client has already disconnected. */
static bool accept_request(struct rdma_cm_event *ev)
{
	struct side *s = calloc(1, sizeof(*s));
	struct rdma_conn_param p;
	struct area mine;

	must(s);
	memcpy(&s->theirs, ev->param.conn.private_data, sizeof(s->theirs));
	s->number = s->theirs.number;
	s->key = s->theirs.key;
	s->style = (enum style)s->theirs.style;
	side_open(s, ev->id);
	mine = side_area(s);
	p = params(&mine);
	ev->id->context = s;
	if (!rdma_accept(ev->id, &p))
		return true;
	must(shared->cut_short);
	return false;
}

static void run_server(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	unsigned accepted = 0, over = 0;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *listener;
	pthread_t t;

	must(ch && !rdma_create_id(ch, &listener, NULL, RDMA_PS_TCP));
	must(!rdma_bind_addr(listener, (struct sockaddr *)&at));
	must(!rdma_listen(listener, 64));
	shared->port = ntohs(rdma_get_src_port(listener));
	while (over < CONNECTIONS && !(shared->cut_short && over == accepted)) {
		struct pollfd pfd = {.fd = ch->fd, .events = POLLIN};
		struct side *s;

		if (poll(&pfd, 1, 50) != 1)
			continue;
		must(!rdma_get_cm_event(ch, &ev));
		s = ev->id->context;

		switch (ev->event) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			accepted += accept_request(ev);
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			live_servers++;
			must(!pthread_create(&t, NULL, server_connection, s));
			pthread_detach(t);
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			over++;
			mark_ended(s);
			break;
		case RDMA_CM_EVENT_CONNECT_ERROR:
			must(shared->cut_short);
			over++;
			break;
		default:
			break;
		}
		rdma_ack_cm_event(ev);
	}
	while (live_servers)
		usleep(1000);
	exit(0);
}

/* ---- the parent -------------------------------------------------------- */

static bool faults;

static pid_t fork_process(void (*body)(uint64_t key), uint64_t key)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	must(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	body(key);
	_exit(1);
}

static void server_main(uint64_t key)
{
	run_server();
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

struct round {
	pid_t pid[2]; /* of server and client; 0: has exited */
	int killed;   /* index of the killed process; -1: none */
	uint64_t moved, moved_at;
};

static void reap(struct round *r)
{
	for (int i = 0; i < 2; i++) {
		int status;

		if (!r->pid[i] || waitpid(r->pid[i], &status, WNOHANG) <= 0)
			continue;
		r->pid[i] = 0;
		if (i != r->killed && status)
			report_violation("the %s exited with wait status 0x%x",
					 i ? "client" : "server", status);
	}
}

static void inject_fault(struct round *r)
{
	int i = (int)dice_below(2);

	if (!r->pid[i])
		return;
	if (dice_below(4) == 0 && r->killed < 0) {
		shared->cut_short = true;
		r->killed = i;
		atomic_fetch_add(&shared->cut, 1);
		kill(r->pid[i], SIGKILL);
		return;
	}
	kill(r->pid[i], SIGSTOP);
	usleep((useconds_t)dice_below(300000));
	kill(r->pid[i], SIGCONT);
}

static void check_progress(struct round *r)
{
	uint64_t moved = shared->moved, now = now_ms();

	if (moved != r->moved) {
		r->moved = moved;
		r->moved_at = now;
	}
	if (now - r->moved_at < PATIENCE_S * 1000)
		return;
	for (int i = 0; i < 2; i++)
		if (r->pid[i])
			kill(r->pid[i], SIGABRT);
	report_violation("no completion for %d s: still running: %s%s%s", PATIENCE_S,
			 r->pid[0] ? "the server " : "", r->pid[1] ? "the client" : "",
			 r->killed < 0 ? "" : " after a kill");
}

/* Every message that completed at the client has arrived at the server. */
static void compare_counts(void)
{
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (shared->sent[i] != shared->received[i])
			report_violation("connection %u: %llu messages completed, %llu received", i,
					 (unsigned long long)shared->sent[i],
					 (unsigned long long)shared->received[i]);
}

static void play_round(uint64_t key)
{
	struct round r = {.killed = -1, .moved_at = now_ms()};

	shared->port = 0;
	shared->cut_short = false;
	for (unsigned i = 0; i < CONNECTIONS; i++)
		shared->sent[i] = shared->received[i] = 0;
	r.pid[0] = fork_process(server_main, key);
	while (!shared->port) {
		check_progress(&r);
		usleep(1000);
	}
	r.pid[1] = fork_process(run_client, key);
	while (r.pid[0] || r.pid[1]) {
		usleep(2000);
		reap(&r);
		check_progress(&r);
		if (faults && dice_below(100) == 0)
			inject_fault(&r);
	}
	if (r.killed < 0)
		compare_counts();
	atomic_fetch_add(&shared->rounds, 1);
}

int main(int argc, char **argv)
{
	uint64_t seconds = 10, until;

	seed = (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--faults"))
			faults = true;
		else if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
			seconds = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			seed = strtoull(argv[++i], NULL, 0);
		else
			return fprintf(stderr, "usage: torture [--seconds N] [--seed N] "
					       "[--faults]\n"),
			       2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	must(shared != MAP_FAILED);
	printf("seed %llu\n", (unsigned long long)seed);
	dice_state = seed;
	until = now_ms() + seconds * 1000;
	do {
		play_round(dice());
	} while (now_ms() < until);
	printf("%llu rounds, %llu with a killed process, %llu messages, %llu MiB\n",
	       (unsigned long long)shared->rounds, (unsigned long long)shared->cut,
	       (unsigned long long)shared->messages, (unsigned long long)shared->bytes >> 20);
	return 0;
}
