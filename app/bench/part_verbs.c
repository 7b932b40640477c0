// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_verbs.c - bandwidth, latency and rates of RDMA, as a program of verbs sees them.
 *
 * A plain consumer of verbs and librdmacm. Under "stag run" it measures the
 * software adapter; with -a ADDRESS, whatever adapter has that address; with -d DEVICE, that
 * device, without rdma_cm.
 *
 * Work requests are prepared once and posted again and again, so that what is
 * timed is the adapter. Each signalled request carries in its wr_id how many
 * requests its completion retires.
 */
#include "pair.h"
#include "part.h"
#include "verbs_link.h"

#include <string.h>

#define MAX_LIST     64
#define POLL_BATCH   16
#define SIGNAL_EVERY 32	 /* of the ping-pong cases */
#define CREDIT_EVERY 128 /* receives between two updates of the sender's credit */

static struct ibv_send_wr send_wr[MAX_LIST];
static struct ibv_sge send_sge[MAX_LIST];
static struct ibv_recv_wr recv_wr[RECV_DEPTH];
static struct ibv_sge recv_sge[RECV_DEPTH];

/* ---- the queues ---- */

static int reap_completions(void)
{
	struct ibv_wc wc[POLL_BATCH];
	int n = ibv_poll_cq(lane.cq, POLL_BATCH, wc);

	if (n < 0)
		pair_die("ibv_poll_cq");
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			pair_die("completion: %s", ibv_wc_status_str(wc[i].status));
		if (wc[i].opcode & IBV_WC_RECV)
			lane.received++;
		else
			lane.done += wc[i].wr_id;
	}
	return n;
}

/* Sleeps until a completion event, arms the queue again, and reaps all completions. */
static void sleep_and_reap(void)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(lane.channel, &cq, &context))
		pair_die("ibv_get_cq_event");
	if (++lane.unacked == 64) {
		ibv_ack_cq_events(cq, lane.unacked);
		lane.unacked = 0;
	}
	if (ibv_req_notify_cq(cq, 0))
		pair_die("ibv_req_notify_cq");
	while (reap_completions() == POLL_BATCH)
		;
}

static void wait_some(void)
{
	if (options.sleep)
		sleep_and_reap();
	else
		reap_completions();
}

static void post_sends(struct ibv_send_wr *wr, size_t count)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(lane.qp, wr, &bad);

	if (err)
		pair_die("ibv_post_send: %s", strerror(err));
	lane.posted += count;
}

static void post_receives(struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	int err = ibv_post_recv(lane.qp, wr, &bad);

	if (err)
		pair_die("ibv_post_recv: %s", strerror(err));
}

/* ---- prepared work requests ---- */

static void prepare_list(enum ibv_wr_opcode opcode, size_t remote_offset)
{
	size_t list = options.list;
	bool in_line =
		opcode != IBV_WR_RDMA_READ && options.size <= INLINE_MAX && !options.no_inline;

	if (list > MAX_LIST)
		pair_die("lists have at most %d work requests", MAX_LIST);
	for (size_t i = 0; i < list; i++) {
		size_t at = i * options.size;

		send_sge[i] = (struct ibv_sge){.addr = (uintptr_t)lane.data + at,
					       .length = (uint32_t)options.size,
					       .lkey = lane.data_mr->lkey};
		send_wr[i] = (struct ibv_send_wr){.opcode = opcode,
						  .sg_list = &send_sge[i],
						  .num_sge = 1,
						  .send_flags = in_line ? IBV_SEND_INLINE : 0,
						  .next = &send_wr[i + 1]};
		send_wr[i].wr.rdma.remote_addr = lane.remote.data + remote_offset + at;
		send_wr[i].wr.rdma.rkey = lane.remote.data_key;
	}
	send_wr[list - 1].next = NULL;
	send_wr[list - 1].wr_id = list;
	send_wr[list - 1].send_flags |= IBV_SEND_SIGNALED;
}

static void prepare_writes(void)
{
	prepare_list(IBV_WR_RDMA_WRITE, 0);
}

static void prepare_reads(void)
{
	prepare_list(IBV_WR_RDMA_READ, 0);
}

static void prepare_mailbox(void)
{
	prepare_list(IBV_WR_RDMA_WRITE, lane.in);
}

/* Posts all receives; they form groups of a list's length, which are reposted together. */
static void prepare_sends(void)
{
	if (options.size > INLINE_MAX || RECV_DEPTH % options.list)
		pair_die("sends of at most %d bytes, in lists that divide %d", INLINE_MAX,
			 RECV_DEPTH);
	prepare_list(IBV_WR_SEND, 0);
	for (size_t i = 0; i < RECV_DEPTH; i++) {
		size_t at = lane.receives + i * options.size;

		recv_sge[i] = (struct ibv_sge){.addr = (uintptr_t)lane.data + at,
					       .length = (uint32_t)options.size,
					       .lkey = lane.data_mr->lkey};
		recv_wr[i] = (struct ibv_recv_wr){.sg_list = &recv_sge[i], .num_sge = 1};
		if ((i + 1) % options.list)
			recv_wr[i].next = &recv_wr[i + 1];
	}
	for (size_t i = 0; i < RECV_DEPTH; i += options.list)
		post_receives(&recv_wr[i]);
}

/* ---- words in memory ---- */

static void post_word(enum ibv_wr_opcode opcode, volatile uint64_t *local, size_t remote_offset)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)local, .length = sizeof(*local), .lkey = lane.words_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .opcode = opcode,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .send_flags = IBV_SEND_SIGNALED};

	if (opcode == IBV_WR_RDMA_WRITE)
		wr.send_flags |= IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = lane.remote.words + remote_offset;
	wr.wr.rdma.rkey = lane.remote.words_key;
	post_sends(&wr, 1);
}

static void write_word(uint64_t value, size_t remote_offset)
{
	lane.words->source = value;
	post_word(IBV_WR_RDMA_WRITE, &lane.words->source, remote_offset);
}

static void wait_all_done(void)
{
	while (lane.done < lane.posted)
		wait_some();
}

/*
 * Tells the server that the phase has ended, and reads the word back: the answer
 * shows that all previous writes have been placed.
 */
static void stop_server(const struct pair_phase *ph)
{
	size_t offset = offsetof(struct lane_words, stop);

	write_word(ph->number, offset);
	post_word(IBV_WR_RDMA_READ, &lane.words->sink, offset);
	wait_all_done();
	if (lane.words->sink != ph->number)
		pair_die("read back %lu, wrote %lu", lane.words->sink, ph->number);
}

/* The passive side of one-sided operations, if its program polls. */
static void serve_until_stopped(struct pair_phase *ph)
{
	while (lane.words->stop != ph->number)
		reap_completions();
}

/* ---- one-sided operations ---- */

/* Keeps the window full until the time is over. Returns the number of operations posted. */
static uint64_t post_for(uint64_t end)
{
	uint64_t before = lane.posted;
	size_t window = pair_window(), list = options.list;

	while (clock_ns() < end) {
		while (lane.posted - lane.done + list <= window)
			post_sends(send_wr, list);
		wait_some();
	}
	return lane.posted - before;
}

static void drive_window(struct pair_phase *ph)
{
	uint64_t start = clock_ns();

	ph->ops = post_for(start + ph->length);
	stop_server(ph);
	ph->ns = clock_ns() - start;
}

static void drive_read_lat(struct pair_phase *ph)
{
	uint64_t last = clock_ns();

	for (size_t i = 0; i < ph->iters; i++) {
		post_sends(send_wr, 1);
		wait_all_done();
		pair_sample(ph, i, &last);
	}
	stop_server(ph);
}

/* Signals now and then, and reaps only when the queue is nearly full. */
static void post_pong(void)
{
	bool signal = lane.posted % SIGNAL_EVERY == SIGNAL_EVERY - 1;

	send_wr[0].wr_id = SIGNAL_EVERY;
	if (signal)
		send_wr[0].send_flags |= IBV_SEND_SIGNALED;
	else
		send_wr[0].send_flags &= ~(unsigned int)IBV_SEND_SIGNALED;
	while (lane.posted - lane.done >= SEND_DEPTH - SIGNAL_EVERY)
		reap_completions();
	post_sends(send_wr, 1);
}

/* The last word of the message is its serial number; the receiver polls that. */
static void write_serial(uint64_t serial)
{
	memcpy(lane.data + options.size - sizeof(serial), &serial, sizeof(serial));
	post_pong();
}

static void await_serial(uint64_t serial)
{
	volatile uint64_t *word = (void *)(lane.data + lane.in + options.size - sizeof(serial));

	while (*word != serial)
		reap_completions();
}

static void drive_write_lat(struct pair_phase *ph)
{
	uint64_t serial = ph->number << 32, last = clock_ns();

	for (size_t i = 0; i < ph->iters; i++) {
		write_serial(++serial);
		await_serial(serial);
		pair_sample(ph, i, &last);
	}
}

static void serve_write_lat(struct pair_phase *ph)
{
	uint64_t serial = ph->number << 32;

	for (size_t i = 0; i < ph->iters; i++) {
		await_serial(++serial);
		write_serial(serial);
	}
}

/* ---- sends ---- */

static uint64_t handled; /* messages that the program has consumed */
static uint64_t sent;	 /* messages of the rate case */

static void await_message(void)
{
	while (lane.received == handled)
		wait_some();
	handled++;
}

/* Called after each message; reposts the group of receives when all of it is free. */
static void repost_receives(void)
{
	if (handled % options.list == 0)
		post_receives(&recv_wr[(handled - options.list) % RECV_DEPTH]);
}

static void drive_send_lat(struct pair_phase *ph)
{
	uint64_t last = clock_ns();

	for (size_t i = 0; i < ph->iters; i++) {
		post_pong();
		await_message();
		repost_receives();
		pair_sample(ph, i, &last);
	}
}

static void serve_send_lat(struct pair_phase *ph)
{
	for (size_t i = 0; i < ph->iters; i++) {
		await_message();
		post_pong();
		repost_receives();
	}
}

/*
 * iWARP has no receiver-not-ready: a message without a buffer ends the
 * connection. So the server writes the number of received messages into the
 * client's memory, and the client never runs ahead by more than RECV_DEPTH.
 */
static bool may_send(void)
{
	return lane.posted - lane.done + options.list <= pair_window() &&
	       sent + options.list - lane.words->credits <= RECV_DEPTH - options.list;
}

static void send_last(void)
{
	struct ibv_send_wr wr = send_wr[0];

	lane.data[0] = 1;
	wr.next = NULL;
	wr.wr_id = 1;
	wr.send_flags |= IBV_SEND_SIGNALED;
	post_sends(&wr, 1);
	sent++;
	while (lane.words->credits != sent)
		reap_completions();
	wait_all_done();
	lane.data[0] = 0;
}

static void drive_send_rate(struct pair_phase *ph)
{
	uint64_t start = clock_ns(), before = sent;

	while (clock_ns() < start + ph->length) {
		while (may_send()) {
			post_sends(send_wr, options.list);
			sent += options.list;
		}
		reap_completions();
	}
	send_last();
	ph->ops = sent - before;
	ph->ns = clock_ns() - start;
}

/* Consumes one message. Returns true if it is the last of its phase. */
static bool take_message(void)
{
	bool last = lane.data[lane.receives + handled % RECV_DEPTH * options.size];

	handled++;
	repost_receives();
	if (last || handled % CREDIT_EVERY == 0)
		write_word(handled, offsetof(struct lane_words, credits));
	return last;
}

static void serve_send_rate(struct pair_phase *ph)
{
	bool last = false;

	while (!last) {
		reap_completions();
		while (handled < lane.received)
			last = take_message();
	}
}

/* ---- connections ---- */

static void drive_connect(struct pair_phase *ph)
{
	uint64_t start = clock_ns();
	char last;

	do {
		last = clock_ns() >= start + ph->length;
		lane_disconnect(lane_connect(last));
		ph->ops++;
	} while (!last);
	ph->ns = clock_ns() - start;
}

static void serve_connect(struct pair_phase *ph)
{
	char last;

	do {
		lane_disconnect(lane_accept(&last));
	} while (!last);
}

/* ---- many queue pairs ---- */

/* Both sides begin at once. Each queue pair carries a word, so that all connections are made. */
static void use_each(struct ibv_qp **qps, size_t n)
{
	uint64_t all = lane.done + n;

	for (size_t i = 0; i < n; i++) {
		lane.qp = qps[i];
		write_word(1, offsetof(struct lane_words, source));
	}
	while (lane.done < all)
		wait_some();
	pair_meet(NULL);
}

static void drive_many(struct pair_phase *ph)
{
	size_t n = ph->iters;
	struct ibv_qp **qps = calloc(n, sizeof(*qps)), *first = lane.qp;
	uint64_t before = pair_resident(), start = clock_ns();

	if (!options.device || !qps)
		pair_die("many queue pairs are connected by number: -d");
	number_connect(qps, n, n);
	pair_meet(NULL); /* the peer's are ready */
	use_each(qps, n);
	ph->ops = n;
	ph->ns = clock_ns() - start;
	ph->memory = pair_resident() - before;
	pair_meet(NULL);
	for (size_t i = 0; i < n; i++)
		if (ibv_destroy_qp(qps[i]))
			pair_die("ibv_destroy_qp");
	lane.qp = first;
	free(qps);
}

static const struct pair_case cases[] = {
	{"write_bw", PAIR_BANDWIDTH, prepare_writes, drive_window, serve_until_stopped,
	 PAIR_ONE_SIDED},
	{"read_bw", PAIR_BANDWIDTH, prepare_reads, drive_window, serve_until_stopped,
	 PAIR_ONE_SIDED},
	{"write_lat", PAIR_HALF_TRIP, prepare_mailbox, drive_write_lat, serve_write_lat,
	 PAIR_TWO_SIDED},
	{"read_lat", PAIR_ROUND_TRIP, prepare_reads, drive_read_lat, serve_until_stopped,
	 PAIR_ONE_SIDED},
	{"send_lat", PAIR_HALF_TRIP, prepare_sends, drive_send_lat, serve_send_lat, PAIR_TWO_SIDED},
	{"write_rate", PAIR_RATE, prepare_writes, drive_window, serve_until_stopped,
	 PAIR_ONE_SIDED},
	{"send_rate", PAIR_RATE, prepare_sends, drive_send_rate, serve_send_rate, PAIR_TWO_SIDED},
	{"connect", PAIR_PER_SECOND, NULL, drive_connect, serve_connect, PAIR_TWO_SIDED},
	{"many", PAIR_PER_SECOND, NULL, drive_many, drive_many, PAIR_TWO_SIDED},
	{.name = NULL},
};

int part_verbs(int argc, char **argv)
{
	const struct pair_case *c = pair_start(argc, argv, cases);

	lane_open();
	pair_run(c, NULL);
	return 0;
}
