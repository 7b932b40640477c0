// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_store_peer.c - a peer's writes, reads, atomics and barriers on regions on storage: side a is
 * the peer, side b has the storage.
 *
 * An edge (struct gate) between the medium and the kernel holds writes back, or makes them fail, as
 * a test requires.
 */
#include "raw_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/store.h"
#include "dice.h"

#define KIB	   1024u
#define MIB	   (1024u * KIB)
#define SPACE	   (4u * MIB)
#define ALL_RIGHTS (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define MAX_HELD   1024

static enum { ON_DISK, ON_PAGES, IN_MEMORY } backing;

/* ---- the edge ---- */

struct gate {
	struct media_edge edge, *real;
	atomic_bool shut;      /* writes wait */
	atomic_int fail_kinds; /* bits of kinds that fail: reads (1), writes (2) */
	uint64_t fail_at;      /* offset of the held write that fails; 0: none */
	struct media_io held[MAX_HELD];
	atomic_uint n_held, n_failed, n_durable;
	struct media_event failed[MAX_HELD];
};

static struct gate *to_gate(struct media_edge *e)
{
	return (struct gate *)e;
}

static void gate_queue(struct media_edge *e, const struct media_io *io)
{
	struct gate *g = to_gate(e);
	int kind = io->kind == MEDIA_IO_READ ? 1 : io->kind == MEDIA_IO_WRITE ? 2 : 0;

	g->n_durable += io->durable;
	if (kind & atomic_load(&g->fail_kinds)) {
		assert_true(g->n_failed < MAX_HELD);
		g->failed[g->n_failed++] = (struct media_event){io->cookie, -EIO};
	} else if (kind == 2 && atomic_load(&g->shut)) {
		assert_true(g->n_held < MAX_HELD);
		g->held[g->n_held++] = *io;
	} else {
		g->real->queue(g->real, io);
	}
}

static unsigned int gate_reap(struct media_edge *e, struct media_event *events, unsigned int n)
{
	struct gate *g = to_gate(e);
	unsigned int got = 0;

	if (!atomic_load(&g->shut))
		while (g->n_held) {
			const struct media_io *io = &g->held[--g->n_held];

			if (g->fail_at && io->offset == g->fail_at)
				g->failed[g->n_failed++] = (struct media_event){io->cookie, -EIO};
			else
				g->real->queue(g->real, io);
		}
	while (g->n_failed && got < n)
		events[got++] = g->failed[--g->n_failed];
	return got + (got < n ? g->real->reap(g->real, events + got, n - got) : 0);
}

static bool gate_ready(struct media_edge *e)
{
	struct gate *g = to_gate(e);

	return g->n_failed || (g->n_held && !atomic_load(&g->shut)) || g->real->ready(g->real);
}

static bool gate_queued(struct media_edge *e)
{
	return to_gate(e)->real->queued(to_gate(e)->real);
}

static int gate_submit(struct media_edge *e, bool wait)
{
	return to_gate(e)->real->submit(to_gate(e)->real, wait);
}

/* ---- storage ---- */

struct shelf {
	struct side *owner;
	int fd;
	struct stagdv_medium *medium;
	struct ibv_mr *mr;
	struct gate gate;
	struct shelf *next;
};

/* Freed at exit only: a medium and its edge live as long as one of its operations is in flight. */
static struct shelf *old;

static int make_file(uint64_t size)
{
	char path[] = "stag-peer-XXXXXX";
	int fd;

	if (backing == IN_MEMORY) {
		fd = memfd_create("store", MFD_CLOEXEC);
	} else {
		fd = mkostemp(path, O_CLOEXEC);
		unlink(path);
	}
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	return fd;
}

static struct shelf *open_shelf(struct side *s, const struct stagdv_store_attr *attr,
				uint64_t staging, uint32_t depth)
{
	struct shelf *t = calloc(1, sizeof(*t));
	struct stagdv_store_attr plain = {.length = SPACE, .access = ALL_RIGHTS};
	struct stagdv_medium_attr m = {.flags = backing == ON_PAGES ? STAGDV_MEDIUM_BUFFERED : 0,
				       .staging_bytes = staging,
				       .depth = depth};
	struct media *media;

	t->owner = s;
	t->fd = m.fd = make_file(SPACE);
	t->medium = stagdv_open_medium(s->ctx, &m);
	assert_non_null(t->medium);
	media = ((struct stag_medium *)t->medium)->media;
	engine_lock(); /* the engine may poll the medium at any time */
	t->gate.edge =
		(struct media_edge){gate_queue, gate_reap, gate_ready, gate_queued, gate_submit};
	t->gate.real = media_edge(media);
	media_set_edge(media, &t->gate.edge);
	engine_unlock();
	t->mr = stagdv_reg_store_mr(s->pd, t->medium, attr ? attr : &plain);
	assert_non_null(t->mr);
	return t;
}

static void expect_stored(const struct shelf *t, const void *bytes, size_t n, uint64_t at)
{
	uint8_t *there = malloc(n);

	assert_int_equal(pread(t->fd, there, n, (off_t)at), n);
	assert_memory_equal(there, bytes, n);
	free(there);
}

/* ---- the peer's requests ---- */

static uint64_t post_op(struct side *s, enum ibv_wr_opcode op, const struct region *r, size_t off,
			size_t len, uint32_t rkey, uint64_t to)
{
	struct ibv_sge sge = r ? piece(r, off, len) : (struct ibv_sge){0};
	struct ibv_send_wr wr = {.opcode = op,
				 .sg_list = &sge,
				 .num_sge = r ? 1 : 0,
				 .imm_data = htobe32(77),
				 .wr.rdma = {.remote_addr = to, .rkey = rkey}};

	return post(s, &wr);
}

static uint64_t write_to(struct side *s, const struct region *r, size_t off, size_t len,
			 const struct shelf *t, uint64_t to)
{
	return post_op(s, IBV_WR_RDMA_WRITE, r, off, len, t->mr->rkey, to);
}

static uint64_t read_from(struct side *s, const struct region *r, size_t off, size_t len,
			  const struct shelf *t, uint64_t from)
{
	return post_op(s, IBV_WR_RDMA_READ, r, off, len, t->mr->rkey, from);
}

static uint64_t post_atomic(struct side *s, enum ibv_wr_opcode op, const struct region *r,
			    size_t off, const struct shelf *t, uint64_t to, uint64_t a, uint64_t b)
{
	struct ibv_sge sge = piece(r, off, 8);
	struct ibv_send_wr wr = {
		.opcode = op,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.atomic = {.remote_addr = to, .rkey = t->mr->rkey, .compare_add = a, .swap = b}};

	return post(s, &wr);
}

static uint64_t post_barrier(struct side *s, const struct shelf *t)
{
	struct stagdv_barrier b = {.wr_id = note_posted(s, false),
				   .rkey = t->mr->rkey,
				   .send_flags = IBV_SEND_SIGNALED};

	assert_int_equal(stagdv_wr_barrier(s->qp, &b), 0);
	return b.wr_id;
}

/* Polls long enough that everything not held back has finished. */
static void let_run(struct pair *p)
{
	struct ibv_wc wc;

	for (int i = 0; i < 300; i++) {
		assert_false(poll_wc(&p->b, p->b.scq, &wc));
		usleep(100);
	}
}

/* Polls the storage's side, too, so that operations which the edge completes are seen. */
static struct ibv_wc await_polling(struct side *s, struct ibv_cq *cq, struct pair *p)
{
	struct ibv_wc wc, other;

	await(poll_wc(s, cq, &wc) || (poll_wc(&p->b, p->b.scq, &other) && false));
	return wc;
}

static void expect_ok(struct side *s, struct ibv_cq *cq, uint64_t id, struct pair *p)
{
	struct ibv_wc wc = await_polling(s, cq, p);

	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

struct story {
	struct pair p;
	struct shelf *t;
	struct region *m; /* the peer's memory */
};

static void open_story_with(struct story *s, const struct stagdv_store_attr *attr, uint64_t staging)
{
	struct side_wish w = {.send_wr = 256, .recv_wr = 64, .cqe = 1024, .ird = 128, .ord = 128};

	memset(s, 0, sizeof(*s));
	pair_open(&s->p, &w, &w);
	s->t = open_shelf(&s->p.b, attr, staging, 0);
	s->m = own_region(&s->p.a, SPACE);
	dice_fill(s->m->at, SPACE);
}

/* Skips tests of messages that a standard peer does not have. */
static void need_extensions(void)
{
	const char *set = getenv("STAG_EXTENSIONS");

	if (set && !strcmp(set, "off"))
		skip();
}

static void open_story(struct story *s)
{
	open_story_with(s, NULL, 0);
}

static void close_story(struct story *s)
{
	struct shelf *t = s->t;

	side_close(&s->p.a);
	t->gate.shut = false;
	assert_int_equal(ibv_dereg_mr(t->mr), 0);
	assert_int_equal(stagdv_close_medium(t->medium), 0);
	close(t->fd);
	side_close(&s->p.b);
	t->next = old;
	old = t;
}

/* ---- data and order ---- */

static void any_offset_and_length_is_written_and_read(void **state)
{
	uint8_t *image = calloc(1, SPACE);
	struct story s;

	open_story(&s);
	for (unsigned long i = 0, n = lessened(150); i < n; i++) {
		size_t len = dice_size(300000), at = dice(SPACE / 2 - len);
		uint64_t to = dice(SPACE - len);

		expect_sent(&s.p.a, write_to(&s.p.a, s.m, at, len, s.t, to));
		memcpy(image + to, s.m->at + at, len);
		expect_ok(&s.p.a, s.p.a.scq, read_from(&s.p.a, s.m, SPACE / 2 + at, len, s.t, to),
			  &s.p);
		assert_memory_equal(s.m->at + SPACE / 2 + at, image + to, len);
	}
	expect_stored(s.t, image, SPACE, 0);
	free(image);
	close_story(&s);
}

/*
 * Many overlapping requests at once: each read finds the values of the writes before it, and of no
 * later one.
 */
static void reads_and_writes_keep_their_order(void **state)
{
	enum { ROUNDS = 12, OPS = 60, ROOM = 96 * KIB };
	uint8_t *image = calloc(1, ROOM), *wanted = malloc(OPS * (size_t)ROOM);
	struct story s;

	open_story(&s);
	for (unsigned long round = 0, n = lessened(ROUNDS); round < n; round++) {
		struct {
			uint64_t id;
			bool read;
			size_t at, len;
		} op[OPS];
		size_t sink = SPACE / 2;

		for (int i = 0; i < OPS; i++) {
			size_t len = dice_size(ROOM / 3);
			uint64_t to = dice(ROOM - len);

			op[i].read = one_in(2);
			op[i].len = len;
			op[i].at = op[i].read ? sink : dice(SPACE / 2 - len);
			if (op[i].read) {
				memcpy(wanted + (sink - SPACE / 2), image + to, len);
				op[i].id = read_from(&s.p.a, s.m, sink, len, s.t, to);
				sink += len;
			} else {
				memcpy(image + to, s.m->at + op[i].at, len);
				op[i].id = write_to(&s.p.a, s.m, op[i].at, len, s.t, to);
			}
		}
		for (int i = 0; i < OPS; i++)
			expect_ok(&s.p.a, s.p.a.scq, op[i].id, &s.p);
		assert_memory_equal(s.m->at + SPACE / 2, wanted, sink - SPACE / 2);
	}
	expect_ok(&s.p.a, s.p.a.scq, post_barrier(&s.p.a, s.t), &s.p);
	expect_stored(s.t, image, ROOM, 0);
	free(image);
	free(wanted);
	close_story(&s);
}

/* The read is longer than the read-ahead: a write behind it has to wait. */
static void long_read_does_not_see_the_write_behind_it(void **state)
{
	const size_t len = 2 * MIB;
	struct story s;
	uint64_t id[2];

	open_story(&s);
	expect_sent(&s.p.a, write_to(&s.p.a, s.m, 0, len, s.t, 0));
	for (int i = 0; i < 4; i++) {
		memset(s.m->at + len, 0, len);
		id[0] = read_from(&s.p.a, s.m, len, len, s.t, 0);
		id[1] = write_to(&s.p.a, s.m, 4096, len - 4096, s.t, 0);
		expect_ok(&s.p.a, s.p.a.scq, id[0], &s.p);
		assert_memory_equal(s.m->at + len, s.m->at, len);
		expect_ok(&s.p.a, s.p.a.scq, id[1], &s.p);
		expect_sent(&s.p.a, write_to(&s.p.a, s.m, 0, len, s.t, 0));
	}
	close_story(&s);
}

/* Many responses go out in one call, and each holds a buffer. */
static void many_short_reads_complete_in_order(void **state)
{
	enum { READS = 250 };
	uint64_t id[READS];
	struct story s;

	open_story(&s);
	expect_sent(&s.p.a, write_to(&s.p.a, s.m, 0, 100000, s.t, 0));
	for (size_t i = 0; i < READS; i++)
		id[i] = read_from(&s.p.a, s.m, MIB + i * 16, 16, s.t, i * 16);
	for (size_t i = 0; i < READS; i++)
		expect_ok(&s.p.a, s.p.a.scq, id[i], &s.p);
	assert_memory_equal(s.m->at, s.m->at + MIB, READS * 16);
	close_story(&s);
}

static void memory_and_storage_share_a_connection(void **state)
{
	struct story s;
	struct region *lent;

	open_story(&s);
	lent = lend_region(&s.p.b, MIB, ALL_RIGHTS | IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < 20; i++) {
		size_t len = dice_size(MIB), at = dice(MIB);
		uint64_t id[4];

		id[0] = write_to(&s.p.a, s.m, at, len, s.t, 0);
		id[1] = post_write(&s.p.a, s.m, at, len, lent, 0);
		id[2] = read_from(&s.p.a, s.m, 2 * MIB, len, s.t, 0);
		id[3] = post_read(&s.p.a, s.m, 3 * MIB, len, lent, 0);
		for (int k = 0; k < 4; k++)
			expect_ok(&s.p.a, s.p.a.scq, id[k], &s.p);
		assert_memory_equal(s.m->at + 2 * MIB, s.m->at + at, len);
		assert_memory_equal(s.m->at + 3 * MIB, s.m->at + at, len);
	}
	close_story(&s);
}

static void atomics_on_storage_are_atomic_and_in_order(void **state)
{
	struct story s;
	uint64_t id[3], *found;

	need_extensions();
	open_story(&s);
	found = (uint64_t *)s.m->at;
	memset(s.m->at, 0, 64);
	expect_sent(&s.p.a, write_to(&s.p.a, s.m, 0, 64, s.t, 64));
	for (uint64_t i = 0; i < 40; i++) {
		id[0] = post_atomic(&s.p.a, IBV_WR_ATOMIC_FETCH_AND_ADD, s.m, 0, s.t, 72, 3, 0);
		id[1] = post_atomic(&s.p.a, IBV_WR_ATOMIC_CMP_AND_SWP, s.m, 8, s.t, 80, i, i + 1);
		id[2] = read_from(&s.p.a, s.m, 16, 16, s.t, 72);
		for (int k = 0; k < 3; k++)
			expect_ok(&s.p.a, s.p.a.scq, id[k], &s.p);
		assert_int_equal(found[0], 3 * i);
		assert_int_equal(found[1], i);
		assert_int_equal(found[2], 3 * (i + 1));
		assert_int_equal(found[3], i + 1);
	}
	close_story(&s);
}

/* ---- messages behind writes ---- */

static void send_is_delivered_after_the_writes_before_it(void **state)
{
	struct story s;
	struct region *in;
	uint64_t received[2], sent[3];
	struct ibv_wc wc;

	need_extensions();
	open_story(&s);
	in = own_region(&s.p.b, 64);
	received[0] = post_receive(&s.p.b, in, 0, 64);
	received[1] = post_receive(&s.p.b, in, 0, 64);
	s.t->gate.shut = true;
	sent[0] = write_to(&s.p.a, s.m, 0, 200000, s.t, 4096);
	sent[1] = post_send(&s.p.a, s.m, 0, 64);
	sent[2] = post_op(&s.p.a, IBV_WR_RDMA_WRITE_WITH_IMM, s.m, 0, 4000, s.t->mr->rkey, 0);
	for (int i = 0; i < 3; i++)
		expect_sent(&s.p.a, sent[i]);
	await(s.t->gate.n_held || (poll_wc(&s.p.b, s.p.b.scq, &wc) && false));
	let_run(&s.p);
	assert_false(poll_wc(&s.p.b, s.p.b.rcq, &wc));
	s.t->gate.shut = false;
	expect_ok(&s.p.b, s.p.b.rcq, received[0], &s.p);
	expect_stored(s.t, s.m->at, 200000, 4096);
	expect_ok(&s.p.b, s.p.b.rcq, received[1], &s.p);
	expect_stored(s.t, s.m->at, 4000, 0);
	close_story(&s);
}

/* An empty read, a read of memory and a barrier are each answered only after the write is done. */
static void response_is_sent_after_the_writes_before_it(void **state)
{
	struct story s;
	struct region *lent;
	struct ibv_wc wc;

	open_story(&s);
	lent = lend_region(&s.p.b, 64, ALL_RIGHTS | IBV_ACCESS_LOCAL_WRITE);
	for (int how = 0; how < 4; how++) {
		uint64_t id[2];

		s.t->gate.shut = true;
		id[0] = write_to(&s.p.a, s.m, (size_t)how, 100000, s.t, 512);
		id[1] = how == 0   ? read_from(&s.p.a, NULL, 0, 0, s.t, 0)
			: how == 1 ? post_read(&s.p.a, s.m, 3 * MIB, 64, lent, 0)
			: how == 2 ? post_barrier(&s.p.a, s.t)
				   : read_from(&s.p.a, s.m, 3 * MIB, 64, s.t, SPACE - 64);
		expect_sent(&s.p.a, id[0]);
		await(s.t->gate.n_held || (poll_wc(&s.p.b, s.p.b.scq, &wc) && false));
		let_run(&s.p);
		assert_false(poll_wc(&s.p.a, s.p.a.scq, &wc));
		s.t->gate.shut = false;
		expect_ok(&s.p.a, s.p.a.scq, id[1], &s.p);
		expect_stored(s.t, s.m->at + how, 100000, 512);
	}
	close_story(&s);
}

/* Our own read, whose response the peer sent behind its write. */
static void our_read_completes_behind_the_peers_write(void **state)
{
	struct story s;
	struct region *lent, *in;
	struct ibv_wc wc;
	uint64_t id;

	open_story(&s);
	lent = lend_region(&s.p.a, 64, ALL_RIGHTS | IBV_ACCESS_LOCAL_WRITE);
	in = own_region(&s.p.b, 64);
	s.t->gate.shut = true;
	expect_sent(&s.p.a, write_to(&s.p.a, s.m, 0, 100, s.t, 0));
	await(s.t->gate.n_held || (poll_wc(&s.p.b, s.p.b.rcq, &wc) && false));
	id = post_read(&s.p.b, in, 0, 64, lent, 0);
	for (int i = 0; i < 300; i++) {
		assert_false(poll_wc(&s.p.b, s.p.b.scq, &wc));
		usleep(100);
	}
	s.t->gate.shut = false;
	expect_sent(&s.p.b, id);
	expect_stored(s.t, s.m->at, 100, 0);
	close_story(&s);
}

/* At this level a barrier waits for a write; nothing else does. */
static void accepted_write_delays_only_a_barrier(void **state)
{
	struct stagdv_store_attr attr = {
		.length = SPACE, .access = ALL_RIGHTS, .level = STAGDV_LEVEL_ACCEPTED};
	struct story s;
	struct region *in;
	struct ibv_wc wc;
	uint64_t received, id;

	need_extensions();
	open_story_with(&s, &attr, 0);
	in = own_region(&s.p.b, 64);
	received = post_receive(&s.p.b, in, 0, 64);
	s.t->gate.shut = true;
	expect_sent(&s.p.a, write_to(&s.p.a, s.m, 0, 100000, s.t, 0));
	expect_sent(&s.p.a, post_send(&s.p.a, s.m, 0, 64));
	expect_ok(&s.p.b, s.p.b.rcq, received, &s.p);
	id = post_barrier(&s.p.a, s.t);
	let_run(&s.p);
	assert_false(poll_wc(&s.p.a, s.p.a.scq, &wc));
	s.t->gate.shut = false;
	expect_ok(&s.p.a, s.p.a.scq, id, &s.p);
	expect_stored(s.t, s.m->at, 100000, 0);
	close_story(&s);
}

/* Requests posted behind a barrier start when it is answered. */
static void barrier_flushes_and_delays_requests_behind_it(void **state)
{
	struct stagdv_medium_counters before, after;
	struct story s;
	struct region *in;
	struct ibv_wc wc;
	uint64_t received, id[3];

	open_story(&s);
	in = own_region(&s.p.b, 64);
	received = post_receive(&s.p.b, in, 0, 64);
	stagdv_query_medium(s.t->medium, &before, sizeof(before));
	s.t->gate.shut = true;
	id[0] = write_to(&s.p.a, s.m, 0, 4096, s.t, 0);
	id[1] = post_barrier(&s.p.a, s.t);
	id[2] = post_send(&s.p.a, s.m, 0, 64);
	expect_sent(&s.p.a, id[0]);
	let_run(&s.p);
	assert_false(poll_wc(&s.p.a, s.p.a.scq, &wc));
	assert_false(poll_wc(&s.p.b, s.p.b.rcq, &wc));
	s.t->gate.shut = false;
	wc = await_polling(&s.p.a, s.p.a.scq, &s.p);
	assert_int_equal(wc.wr_id, id[1]);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	expect_ok(&s.p.a, s.p.a.scq, id[2], &s.p);
	expect_ok(&s.p.b, s.p.b.rcq, received, &s.p);
	stagdv_query_medium(s.t->medium, &after, sizeof(after));
	assert_true(after.flushes > before.flushes || getenv("STAG_EXTENSIONS"));
	close_story(&s);
}

/* The stream ends after the writes that it carried are done. */
static void writes_before_a_disconnect_are_carried_out(void **state)
{
	struct story s;
	struct region *in;
	uint64_t received;

	open_story(&s);
	in = own_region(&s.p.b, 64);
	received = post_receive(&s.p.b, in, 0, 64);
	s.t->gate.shut = true;
	write_to(&s.p.a, s.m, 0, MIB, s.t, 100);
	post_send(&s.p.a, s.m, 0, 64);
	assert_int_equal(rdma_disconnect(s.p.a.id), 0);
	let_run(&s.p);
	expect_cm_silence(&s.p.b);
	s.t->gate.shut = false;
	expect_ok(&s.p.b, s.p.b.rcq, received, &s.p);
	expect_stored(s.t, s.m->at, MIB, 100);
	expect_cm(&s.p.b, RDMA_CM_EVENT_DISCONNECTED);
	close_story(&s);
}

/* The write is carried out even after its queue pair was destroyed. */
static void a_write_outlives_its_queue_pair(void **state)
{
	struct story s;
	struct ibv_wc wc;
	uint8_t last;

	open_story(&s);
	s.t->gate.shut = true;
	expect_sent(&s.p.a, write_to(&s.p.a, s.m, 0, 100000, s.t, 7));
	await(s.t->gate.n_held >= 2 || (poll_wc(&s.p.b, s.p.b.scq, &wc) && false));
	rdma_destroy_qp(s.p.b.id);
	s.p.b.qp = NULL;
	s.t->gate.shut = false;
	await(medium_poll((struct stag_medium *)s.t->medium) == 0 &&
	      pread(s.t->fd, &last, 1, 100006) == 1 && last == s.m->at[99999]);
	close_story(&s);
}

/* ---- refusals ---- */

static void expect_refused_write(uint32_t access, uint64_t to, size_t len, bool other_pd)
{
	struct stagdv_store_attr attr = {.length = 8192, .access = access};
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	struct story s;
	uint8_t zeroes[8192] = {0};
	uint64_t id;

	open_story(&s);
	pd = other_pd ? ibv_alloc_pd(s.p.b.ctx) : s.p.b.pd;
	mr = stagdv_reg_store_mr(pd, s.t->medium, &attr);
	assert_non_null(mr);
	id = post_op(&s.p.a, IBV_WR_RDMA_WRITE, s.m, 0, len, mr->rkey, to);
	expect_sent(&s.p.a, id);
	expect_cm(&s.p.b, RDMA_CM_EVENT_DISCONNECTED);
	expect_state(&s.p.b, IBV_QPS_ERR);
	expect_stored(s.t, zeroes, 8192, 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	if (other_pd)
		ibv_dealloc_pd(pd);
	close_story(&s);
}

static void a_write_without_the_right_changes_nothing(void **state)
{
	expect_refused_write(IBV_ACCESS_REMOTE_READ, 0, 100, false);
	expect_refused_write(ALL_RIGHTS, 8000, 193, false);
	expect_refused_write(ALL_RIGHTS, UINT64_MAX - 10, 100, false);
	expect_refused_write(ALL_RIGHTS, 0, 100, true);
}

static void expect_refused_request(enum ibv_wr_opcode op, uint32_t access, uint64_t to, size_t len,
				   enum ibv_wc_status status)
{
	struct stagdv_store_attr attr = {.length = 8192, .access = access};
	struct story s;
	struct ibv_wc wc;

	open_story_with(&s, &attr, 0);
	if (op == IBV_WR_RDMA_READ)
		read_from(&s.p.a, s.m, 0, len, s.t, to);
	else
		post_atomic(&s.p.a, op, s.m, 0, s.t, to, 1, 0);
	wc = await_wc(&s.p.a, s.p.a.scq);
	assert_int_equal(wc.status, status);
	expect_state(&s.p.b, IBV_QPS_ERR);
	close_story(&s);
}

static void a_request_without_the_right_is_refused(void **state)
{
	const enum ibv_wc_status no = IBV_WC_REM_ACCESS_ERR;

	expect_refused_request(IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_WRITE, 0, 8, no);
	expect_refused_request(IBV_WR_RDMA_READ, ALL_RIGHTS, 8000, 193, no);
	need_extensions();
	expect_refused_request(IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_READ, 0, 8, no);
	expect_refused_request(IBV_WR_ATOMIC_FETCH_AND_ADD, ALL_RIGHTS, 8192, 8, no);
	expect_refused_request(IBV_WR_ATOMIC_FETCH_AND_ADD, ALL_RIGHTS, 4, 8, IBV_WC_REM_OP_ERR);
}

static void changed_rights_apply_to_open_connections(void **state)
{
	struct stagdv_store_attr none = {.access = IBV_ACCESS_REMOTE_READ};
	struct story s;

	open_story(&s);
	expect_sent(&s.p.a, write_to(&s.p.a, s.m, 0, 4096, s.t, 0));
	expect_ok(&s.p.a, s.p.a.scq, read_from(&s.p.a, s.m, MIB, 4096, s.t, 0), &s.p);
	assert_int_equal(stagdv_modify_store_mr(s.t->mr, &none, STAGDV_STORE_ACCESS), 0);
	expect_ok(&s.p.a, s.p.a.scq, read_from(&s.p.a, s.m, MIB, 4096, s.t, 0), &s.p);
	expect_sent(&s.p.a, write_to(&s.p.a, s.m, 1, 4096, s.t, 0));
	expect_cm(&s.p.b, RDMA_CM_EVENT_DISCONNECTED);
	expect_stored(s.t, s.m->at, 4096, 0);
	close_story(&s);
}

static void modify(const struct shelf *t, uint32_t relax, uint32_t level, int mask)
{
	struct stagdv_store_attr attr = {.relax = relax, .level = level};

	assert_int_equal(stagdv_modify_store_mr(t->mr, &attr, mask), 0);
}

/*
 * Holds back a write, and expects the response to a read of other bytes behind it before or after
 * the write.
 */
static void expect_read_beside_held_write(struct story *s, bool before_the_write)
{
	struct ibv_wc wc;
	uint64_t id;

	s->t->gate.shut = true;
	expect_sent(&s->p.a, write_to(&s->p.a, s->m, 0, 4096, s->t, 0));
	id = read_from(&s->p.a, s->m, MIB, 64, s->t, SPACE - 64);
	await(s->t->gate.n_held || (poll_wc(&s->p.b, s->p.b.scq, &wc) && false));
	if (before_the_write) {
		expect_ok(&s->p.a, s->p.a.scq, id, &s->p);
	} else {
		let_run(&s->p);
		assert_false(poll_wc(&s->p.a, s->p.a.scq, &wc));
	}
	s->t->gate.shut = false;
	if (!before_the_write)
		expect_ok(&s->p.a, s->p.a.scq, id, &s->p);
	expect_ok(&s->p.a, s->p.a.scq, read_from(&s->p.a, s->m, MIB, 64, s->t, 0), &s->p);
}

static void changed_order_applies_to_open_connections(void **state)
{
	struct story s;

	open_story(&s);
	expect_read_beside_held_write(&s, false);
	modify(s.t, STAGDV_RELAX_READS, STAGDV_LEVEL_ACCEPTED, STAGDV_STORE_RELAX);
	expect_read_beside_held_write(&s, true);
	modify(s.t, 0, 0, STAGDV_STORE_RELAX);
	expect_read_beside_held_write(&s, false);
	close_story(&s);
}

static void changed_level_applies_to_open_connections(void **state)
{
	struct story s;

	open_story(&s);
	modify(s.t, STAGDV_RELAX_READS, STAGDV_LEVEL_ACCEPTED, STAGDV_STORE_LEVEL);
	expect_read_beside_held_write(&s, true);
	assert_int_equal(s.t->gate.n_durable, 0);
	modify(s.t, 0, STAGDV_LEVEL_DURABLE, STAGDV_STORE_LEVEL);
	expect_read_beside_held_write(&s, false);
	if (backing != IN_MEMORY)
		assert_int_equal(s.t->gate.n_durable, 1);
	close_story(&s);
}

/* ---- many media ---- */

static void connection_uses_any_number_of_media(void **state)
{
	enum { MEDIA = 20 };
	struct shelf *more[MEDIA];
	struct story s;

	open_story(&s);
	for (int i = 0; i < MEDIA; i++) {
		/*
		 * an unprivileged user may lock 8 MiB in all processes, and more of these tests run
		 * now
		 */
		more[i] = open_shelf(&s.p.b, NULL, 64 * KIB, 8);
		expect_sent(&s.p.a, write_to(&s.p.a, s.m, (size_t)i, 4096, more[i], 0));
	}
	expect_ok(&s.p.a, s.p.a.scq, post_barrier(&s.p.a, s.t), &s.p);
	for (int i = 0; i < MEDIA; i++)
		expect_stored(more[i], s.m->at + i, 4096, 0);
	side_close(&s.p.a);
	for (int i = 0; i < MEDIA; i++) {
		assert_int_equal(ibv_dereg_mr(more[i]->mr), 0);
		assert_int_equal(stagdv_close_medium(more[i]->medium), 0);
		close(more[i]->fd);
		more[i]->next = old;
		old = more[i];
	}
	close_story(&s);
}

/* ---- errors of the medium ---- */

static void failed_read_is_a_remote_error(void **state)
{
	struct pair *others = *state;
	struct story s;
	struct ibv_wc wc;
	uint64_t id;

	open_story(&s);
	s.t->gate.fail_kinds = 1;
	id = read_from(&s.p.a, s.m, 0, 100000, s.t, 0);
	wc = await_polling(&s.p.a, s.p.a.scq, &s.p);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, IBV_WC_REM_OP_ERR);
	expect_state(&s.p.b, IBV_QPS_ERR);
	ping(others);
	close_story(&s);
}

static void no_message_is_delivered_behind_a_failed_write(void **state)
{
	struct pair *others = *state;
	struct story s;
	struct region *in;
	struct ibv_wc wc;
	uint64_t received, id;

	open_story(&s);
	in = own_region(&s.p.b, 64);
	received = post_receive(&s.p.b, in, 0, 64);
	s.t->gate.fail_kinds = 2;
	write_to(&s.p.a, s.m, 0, 4096, s.t, 0);
	post_send(&s.p.a, s.m, 0, 64);
	id = post_barrier(&s.p.a, s.t);
	wc = await_polling(&s.p.b, s.p.b.rcq, &s.p);
	assert_int_equal(wc.wr_id, received);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	do
		wc = await_polling(&s.p.a, s.p.a.scq, &s.p);
	while (wc.wr_id != id);
	assert_true(wc.status == IBV_WC_REM_OP_ERR || wc.status == IBV_WC_WR_FLUSH_ERR);
	ping(others);
	close_story(&s);
}

/* The write behind it succeeded at the same moment. */
static void failed_write_is_not_hidden_by_a_later_one(void **state)
{
	struct story s;
	struct region *in;
	struct ibv_wc wc;
	uint64_t received;

	open_story(&s);
	in = own_region(&s.p.b, 64);
	received = post_receive(&s.p.b, in, 0, 64);
	s.t->gate.shut = true;
	s.t->gate.fail_at = 128 * KIB;
	write_to(&s.p.a, s.m, 0, 64 * KIB, s.t, 128 * KIB);
	write_to(&s.p.a, s.m, 0, 64 * KIB, s.t, 512 * KIB);
	post_send(&s.p.a, s.m, 0, 64);
	await(s.t->gate.n_held >= 2 || (poll_wc(&s.p.b, s.p.b.scq, &wc) && false));
	s.t->gate.shut = false;
	wc = await_polling(&s.p.b, s.p.b.rcq, &s.p);
	assert_int_equal(wc.wr_id, received);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	close_story(&s);
}

/* ---- a peer that breaks the rules ---- */

static struct shelf *open_raw(struct scene *s, void **state)
{
	*s = (struct scene){.others = *state};
	scene_open(s, &(struct scene_wish){.peer.extensions = false});
	return open_shelf(&s->us, NULL, 0, 0);
}

static void close_raw(struct scene *s, struct shelf *t)
{
	assert_int_equal(ibv_dereg_mr(t->mr), 0);
	assert_int_equal(stagdv_close_medium(t->medium), 0);
	scene_close(s);
	close(t->fd);
	t->next = old;
	old = t;
}

static const uint8_t junk[60000] = {[0 ... 59999] = 0xee};
static const uint8_t zeroes[60000];

static void a_segment_with_a_bad_crc_changes_nothing(void **state)
{
	static uint8_t raw[2 * FPDU_MAX_LEN];
	const char *crc = getenv("STAG_CRC");
	struct ddp_hdr h;
	struct scene s;
	struct shelf *t;
	size_t len;

	if (crc && !strcmp(crc, "off"))
		skip();
	t = open_raw(&s, state);
	h = write_hdr(t->mr->rkey, 0);
	len = raw_build(&s.peer, &h, junk, sizeof(junk), raw);
	raw[len - 1] ^= 1;
	raw_bytes(&s.peer, raw, len);
	expect_terminate(&s.peer, FAULT_MPA_CRC);
	expect_stored(t, zeroes, sizeof(zeroes), 0);
	close_raw(&s, t);
}

/* A peer that stops in the middle of a segment does not block deregistration of the region. */
static void stalled_peer_does_not_block_deregistration(void **state)
{
	static uint8_t raw[2 * FPDU_MAX_LEN];
	struct ddp_hdr h;
	struct scene s;
	struct shelf *t = open_raw(&s, state);
	size_t len;

	h = write_hdr(t->mr->rkey, 0);
	len = raw_build(&s.peer, &h, junk, sizeof(junk), raw);
	raw_bytes(&s.peer, raw, len / 2);
	for (int i = 0; i < 200; i++) {
		struct ibv_wc wc;

		assert_false(poll_wc(&s.us, s.us.scq, &wc));
		usleep(100);
	}
	assert_int_equal(ibv_dereg_mr(t->mr), 0);
	raw_bytes(&s.peer, raw + len / 2, len - len / 2);
	expect_terminate(&s.peer, FAULT_DDP_INVALID_STAG);
	expect_stored(t, zeroes, sizeof(zeroes), 0);
	t->mr = stagdv_reg_store_mr(s.us.pd, t->medium, &(struct stagdv_store_attr){.length = 1});
	assert_non_null(t->mr);
	close_raw(&s, t);
}

/* ---- many peers ---- */

#define CROWD 64

struct crowd {
	struct pair p[CROWD];
	struct region *m[CROWD];
};

static void crowd_open(struct crowd *c, size_t room)
{
	struct side_wish w = {.send_wr = 64, .recv_wr = 4};

	for (int i = 0; i < CROWD; i++) {
		w.pd = NULL;
		pair_open(&c->p[i], &w, &w);
		c->m[i] = own_region(&c->p[i].a, 2 * room);
		dice_fill(c->m[i]->at, room);
	}
}

/* All write and read at once, through the smallest staging memory. */
static void many_peers_share_little_staging_memory(void **state)
{
	enum { ROOM = 192 * KIB };
	const size_t room = is_slow_build() ? ROOM / 4 : ROOM;
	struct crowd *c = calloc(1, sizeof(*c));
	struct shelf *t[CROWD];
	uint64_t id[CROWD][4];
	int fd = make_file((uint64_t)CROWD * ROOM);
	struct stagdv_medium_attr attr = {.fd = fd, .staging_bytes = 1};
	struct stagdv_medium *m;
	struct ibv_wc wc;

	crowd_open(c, room);
	m = stagdv_open_medium(c->p[0].b.ctx, &attr);
	assert_non_null(m);
	for (int i = 0; i < CROWD; i++) {
		struct stagdv_store_attr part = {
			.offset = (uint64_t)i * ROOM, .length = ROOM, .access = ALL_RIGHTS};

		t[i] = calloc(1, sizeof(*t[i]));
		t[i]->mr = stagdv_reg_store_mr(c->p[i].b.pd, m, &part);
		assert_non_null(t[i]->mr);
	}
	for (int k = 0; k < 4; k++)
		for (int i = 0; i < CROWD; i++) {
			struct side *a = &c->p[i].a;
			size_t half = room / 2 + 100;

			id[i][k] = k == 0   ? write_to(a, c->m[i], 0, half, t[i], 0)
				   : k == 1 ? write_to(a, c->m[i], half, room - half, t[i], half)
				   : k == 2 ? read_from(a, c->m[i], room, half, t[i], 0)
					    : read_from(a, c->m[i], room + half, room - half, t[i],
							half);
		}
	for (int i = 0; i < CROWD; i++)
		for (int k = 0; k < 4; k++) {
			wc = await_wc(&c->p[i].a, c->p[i].a.scq);
			assert_int_equal(wc.wr_id, id[i][k]);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
		}
	for (int i = 0; i < CROWD; i++) {
		assert_memory_equal(c->m[i]->at, c->m[i]->at + room, room);
		assert_int_equal(ibv_dereg_mr(t[i]->mr), 0);
		free(t[i]);
		pair_close(&c->p[i]);
	}
	assert_int_equal(stagdv_close_medium(m), 0);
	close(fd);
	free(c);
}

/* Ends connections in every way, with requests in flight; afterwards everything can be freed. */
static void any_end_under_load_leaves_nothing_allocated(void **state)
{
	for (unsigned long i = 0, n = lessened(30); i < n; i++) {
		struct story s;
		struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};

		open_story_with(&s, NULL, one_in(2) ? 1 : 0);
		for (unsigned k = 0, ops = (unsigned)dice(60); k < ops; k++) {
			size_t len = dice_size(200000);
			uint64_t to = dice(SPACE - len);

			if (one_in(2))
				write_to(&s.p.a, s.m, dice(SPACE / 2 - len), len, s.t, to);
			else
				read_from(&s.p.a, s.m, SPACE / 2, len, s.t, to);
		}
		if (one_in(3))
			usleep((useconds_t)dice(3000));
		switch (dice(5)) {
		case 0:
			rdma_destroy_qp(s.p.b.id);
			s.p.b.qp = NULL;
			break;
		case 1:
			rdma_destroy_qp(s.p.a.id);
			s.p.a.qp = NULL;
			break;
		case 2:
			assert_int_equal(ibv_modify_qp(s.p.b.qp, &err, IBV_QP_STATE), 0);
			break;
		case 3:
			rdma_disconnect(s.p.b.id);
			break;
		case 4:
			assert_int_equal(ibv_dereg_mr(s.t->mr), 0);
			s.t->mr = stagdv_reg_store_mr(s.p.b.pd, s.t->medium,
						      &(struct stagdv_store_attr){.length = 1});
			assert_non_null(s.t->mr);
			break;
		}
		close_story(&s);
	}
}

static int open_others(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	pair_open(p, NULL, NULL);
	*state = p;
	return 0;
}

static int close_others(void **state)
{
	pair_close(*state);
	free(*state);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest stories[] = {
		cmocka_unit_test(any_offset_and_length_is_written_and_read),
		cmocka_unit_test(reads_and_writes_keep_their_order),
		cmocka_unit_test(long_read_does_not_see_the_write_behind_it),
		cmocka_unit_test(many_short_reads_complete_in_order),
		cmocka_unit_test(memory_and_storage_share_a_connection),
		cmocka_unit_test(atomics_on_storage_are_atomic_and_in_order),
		cmocka_unit_test(send_is_delivered_after_the_writes_before_it),
		cmocka_unit_test(response_is_sent_after_the_writes_before_it),
		cmocka_unit_test(our_read_completes_behind_the_peers_write),
		cmocka_unit_test(accepted_write_delays_only_a_barrier),
		cmocka_unit_test(barrier_flushes_and_delays_requests_behind_it),
		cmocka_unit_test(writes_before_a_disconnect_are_carried_out),
		cmocka_unit_test(a_write_outlives_its_queue_pair),
		cmocka_unit_test(a_write_without_the_right_changes_nothing),
		cmocka_unit_test(a_request_without_the_right_is_refused),
		cmocka_unit_test(changed_rights_apply_to_open_connections),
		cmocka_unit_test(changed_order_applies_to_open_connections),
		cmocka_unit_test(changed_level_applies_to_open_connections),
		cmocka_unit_test(connection_uses_any_number_of_media),
		cmocka_unit_test(failed_read_is_a_remote_error),
		cmocka_unit_test(no_message_is_delivered_behind_a_failed_write),
		cmocka_unit_test(failed_write_is_not_hidden_by_a_later_one),
		cmocka_unit_test(a_segment_with_a_bad_crc_changes_nothing),
		cmocka_unit_test(stalled_peer_does_not_block_deregistration),
		cmocka_unit_test(many_peers_share_little_staging_memory),
		cmocka_unit_test(any_end_under_load_leaves_nothing_allocated),
	};
	const char *where = argc > 1 ? argv[1] : "memory";

	backing = !strcmp(where, "disk") ? ON_DISK : !strcmp(where, "pages") ? ON_PAGES : IN_MEMORY;
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	dice_start();
	return cmocka_run_group_tests(stories, open_others, close_others);
}
