// SPDX-License-Identifier: BSD-2-Clause
/*
 * side.c - one side of a connection: see side.h. Uses only the public interface, as a program does.
 */
#include "side.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define CANARY	    4096
#define CANARY_BYTE 0xc5 /* the byte that canaries are filled with */

/* ---- memory ---- */

static uint8_t noise(unsigned seed, size_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xff51afd7ed558ccdu;

	return (uint8_t)(x >> 56 | 1); /* never a zero */
}

void fill(void *at, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)at)[i] = noise(seed, i);
}

void expect_filled(const void *at, size_t len, unsigned seed)
{
	const uint8_t *p = at;

	for (size_t i = 0; i < len; i++)
		if (p[i] != noise(seed, i))
			fail_msg("byte %zu of %zu is 0x%02x, not 0x%02x", i, len, p[i],
				 noise(seed, i));
}

void expect_zeroes(const void *at, size_t len)
{
	const uint8_t *p = at;

	for (size_t i = 0; i < len; i++)
		if (p[i])
			fail_msg("byte %zu of %zu is 0x%02x: something was written", i, len, p[i]);
}

static uint8_t *room_of(const struct region *r)
{
	return r->at - CANARY;
}

static struct region *add_region(struct side *s, size_t len, int access)
{
	struct region *r = calloc(1, sizeof(*r));
	uint8_t *room = aligned_alloc(CANARY, (len + 3 * CANARY - 1) / CANARY * CANARY);

	assert_non_null(r);
	assert_non_null(room);
	memset(room, CANARY_BYTE, CANARY);
	memset(room + CANARY, 0, len);
	memset(room + CANARY + len, CANARY_BYTE, CANARY);
	r->at = room + CANARY;
	r->len = len;
	r->mr = ibv_reg_mr(s->pd, r->at, len, access);
	assert_non_null(r->mr);
	r->next = s->regions;
	s->regions = r;
	return r;
}

struct region *lend_region(struct side *s, size_t len, int access)
{
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))
		access |= IBV_ACCESS_LOCAL_WRITE;
	return add_region(s, len, access);
}

struct region *own_region(struct side *s, size_t len)
{
	return add_region(s, len, IBV_ACCESS_LOCAL_WRITE);
}

static void expect_canary_intact(const struct region *r, const uint8_t *at)
{
	for (size_t i = 0; i < CANARY; i++)
		if (at[i] != CANARY_BYTE)
			fail_msg("a canary of the region of %zu bytes was overwritten, %td bytes "
				 "from it",
				 r->len, at + i - r->at);
}

static void check_canary(const struct region *r)
{
	expect_canary_intact(r, room_of(r));
	expect_canary_intact(r, r->at + r->len);
}

void check_canaries(const struct side *s)
{
	for (const struct region *r = s->regions; r; r = r->next)
		check_canary(r);
}

void drop_region(struct side *s, struct region *r)
{
	struct region **at = &s->regions;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	check_canary(r);
	if (r->mr)
		assert_int_equal(ibv_dereg_mr(r->mr), 0);
	free(room_of(r));
	free(r);
}

struct ibv_sge piece(const struct region *r, size_t off, size_t len)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)r->at + off, .length = (uint32_t)len, .lkey = r->mr->lkey};
}

/* ---- connecting ---- */

static struct sockaddr_in address(uint16_t port)
{
	const char *name = getenv("STAG_TEST_ADDRESS");
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};

	assert_int_equal(inet_pton(AF_INET, name ? name : "127.0.0.1", &at.sin_addr), 1);
	return at;
}

static uint32_t value_or_default(uint32_t wanted, uint32_t otherwise)
{
	return wanted ? wanted : otherwise;
}

static void side_begin(struct side *s, const struct side_wish *w)
{
	*s = (struct side){.wish = w ? *w : (struct side_wish){0}};
	s->events = rdma_create_event_channel();
	assert_non_null(s->events);
}

static struct ibv_cq *new_cq(struct side *s)
{
	struct ibv_cq *cq =
		ibv_create_cq(s->ctx, (int)value_or_default(s->wish.cqe, 256), s, s->channel, 0);

	assert_non_null(cq);
	return cq;
}

static void create_objects(struct side *s)
{
	s->ctx = s->id->verbs;
	s->pd = s->wish.pd ? s->wish.pd : ibv_alloc_pd(s->ctx);
	assert_non_null(s->pd);
	if (s->wish.channel)
		s->channel = ibv_create_comp_channel(s->ctx);
	s->scq = s->wish.cq ? s->wish.cq : new_cq(s);
	s->rcq = s->wish.cq ? s->wish.cq : new_cq(s);
	s->srq = s->wish.srq;
	if (s->wish.srq_wr) {
		struct ibv_srq_init_attr attr = {
			.srq_context = s,
			.attr = {.max_wr = s->wish.srq_wr,
				 .max_sge = value_or_default(s->wish.sge, 4)}};

		s->srq = ibv_create_srq(s->pd, &attr);
		assert_non_null(s->srq);
	}
}

static void create_qp(struct side *s)
{
	struct ibv_qp_init_attr attr = {
		.qp_context = s,
		.send_cq = s->scq,
		.recv_cq = s->rcq,
		.srq = s->srq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 0,
		.cap = {.max_send_wr = value_or_default(s->wish.send_wr, 64),
			.max_recv_wr = value_or_default(s->wish.recv_wr, 64),
			.max_send_sge = value_or_default(s->wish.sge, 4),
			.max_recv_sge = value_or_default(s->wish.sge, 4),
			.max_inline_data = value_or_default(s->wish.inline_data, 256)}};

	assert_int_equal(rdma_create_qp(s->id, s->pd, &attr), 0);
	s->qp = s->id->qp;
}

void side_listen(struct side *s, const struct side_wish *w)
{
	struct sockaddr_in at = address(0);

	side_begin(s, w);
	assert_int_equal(rdma_create_id(s->events, &s->listener, s, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(s->listener, (struct sockaddr *)&at), 0);
	assert_int_equal(rdma_listen(s->listener, 4), 0);
}

uint16_t side_port(const struct side *s)
{
	return ntohs(rdma_get_src_port(s->listener));
}

static struct rdma_cm_event *await_cm(struct side *s, enum rdma_cm_event_type type)
{
	struct pollfd p = {.fd = s->events->fd, .events = POLLIN};
	struct rdma_cm_event *ev;

	if (poll(&p, 1, PATIENCE_MS) != 1)
		fail_msg("no event: %s", rdma_event_str(type));
	assert_int_equal(rdma_get_cm_event(s->events, &ev), 0);
	if (ev->event != type)
		fail_msg("got %s (status %d) instead of %s", rdma_event_str(ev->event), ev->status,
			 rdma_event_str(type));
	return ev;
}

void side_take_request(struct side *s)
{
	struct rdma_cm_event *ev = await_cm(s, RDMA_CM_EVENT_CONNECT_REQUEST);

	s->id = ev->id;
	rdma_ack_cm_event(ev);
	create_objects(s);
	create_qp(s);
}

static uint8_t depth(int wanted)
{
	return (uint8_t)(wanted == NO_DEPTH ? 0 : wanted ? wanted : 8);
}

static struct rdma_conn_param params(const struct side *s)
{
	return (struct rdma_conn_param){.initiator_depth = depth(s->wish.ord),
					.responder_resources = depth(s->wish.ird)};
}

int side_accept(struct side *s)
{
	struct rdma_conn_param p = params(s);

	return rdma_accept(s->id, &p);
}

void side_resolve(struct side *s, const struct side_wish *w, uint16_t port)
{
	struct sockaddr_in to = address(port);

	side_begin(s, w);
	assert_int_equal(rdma_create_id(s->events, &s->id, s, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(s->id, NULL, (struct sockaddr *)&to, PATIENCE_MS), 0);
	expect_cm(s, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(s->id, PATIENCE_MS), 0);
	expect_cm(s, RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_objects(s);
	create_qp(s);
}

void side_connect(struct side *s)
{
	struct rdma_conn_param p = params(s);

	assert_int_equal(rdma_connect(s->id, &p), 0);
}

/*
 * Both sides of a pair share one context, and so one stream of events, in no guaranteed order:
 * events of another side wait here until that side asks for them.
 */
static struct waiting {
	const void *element;
	enum ibv_event_type type;
} waiting[16];
static size_t n_waiting;

static bool is_of(const struct side *s, const void *element)
{
	return element == s->qp || element == s->scq || element == s->rcq || element == s->srq;
}

static struct waiting *waiting_for(const struct side *s)
{
	for (size_t i = 0; i < n_waiting; i++)
		if (is_of(s, waiting[i].element))
			return &waiting[i];
	return NULL;
}

static void drop_waiting(struct waiting *w)
{
	memmove(w, w + 1, (size_t)(&waiting[--n_waiting] - w) * sizeof(*w));
}

static void forget_waiting(const struct side *s)
{
	struct waiting *w;

	while ((w = waiting_for(s)))
		drop_waiting(w);
}

static void destroy_objects(struct side *s)
{
	if (!s->wish.cq) {
		assert_int_equal(ibv_destroy_cq(s->scq), 0);
		assert_int_equal(ibv_destroy_cq(s->rcq), 0);
	}
	if (s->channel)
		assert_int_equal(ibv_destroy_comp_channel(s->channel), 0);
	if (s->srq && !s->wish.srq)
		assert_int_equal(ibv_destroy_srq(s->srq), 0);
	while (s->regions)
		drop_region(s, s->regions);
	if (!s->wish.pd)
		assert_int_equal(ibv_dealloc_pd(s->pd), 0);
}

void side_close(struct side *s)
{
	forget_waiting(s);
	if (s->qp && s->id->qp)
		rdma_destroy_qp(s->id);
	if (s->id)
		assert_int_equal(rdma_destroy_id(s->id), 0);
	if (s->listener)
		assert_int_equal(rdma_destroy_id(s->listener), 0);
	rdma_destroy_event_channel(s->events);
	if (s->pd)
		destroy_objects(s);
	free(s->ledger);
	memset(s, 0, sizeof(*s));
}

void pair_open(struct pair *p, const struct side_wish *a, const struct side_wish *b)
{
	side_listen(&p->b, b);
	side_resolve(&p->a, a, side_port(&p->b));
	side_connect(&p->a);
	side_take_request(&p->b);
	assert_int_equal(side_accept(&p->b), 0);
	expect_cm(&p->a, RDMA_CM_EVENT_ESTABLISHED);
	expect_cm(&p->b, RDMA_CM_EVENT_ESTABLISHED);
}

void pair_close(struct pair *p)
{
	side_close(&p->a);
	side_close(&p->b);
}

static void ping_one_way(struct side *from, struct side *to)
{
	static unsigned seed = 1000;
	struct region *src = own_region(from, 64), *in = own_region(to, 64),
		      *lent = lend_region(to, 64, IBV_ACCESS_REMOTE_WRITE);
	uint64_t received, written, sent;

	fill(src->at, 64, ++seed);
	received = post_receive(to, in, 0, 64);
	written = post_write(from, src, 0, 64, lent, 0);
	sent = post_send(from, src, 0, 64);
	expect_received(to, received);
	expect_sent(from, written);
	expect_sent(from, sent);
	expect_filled(in->at, 64, seed);
	expect_filled(lent->at, 64, seed);
	drop_region(from, src);
	drop_region(to, in);
	drop_region(to, lent);
}

void ping(struct pair *p)
{
	ping_one_way(&p->a, &p->b);
	ping_one_way(&p->b, &p->a);
}

/* ---- posting ---- */

uint64_t note_posted(struct side *s, bool quiet)
{
	if (s->n_posted % 64 == 0) {
		s->ledger = realloc(s->ledger, (s->n_posted + 64) * sizeof(*s->ledger));
		assert_non_null(s->ledger);
	}
	s->ledger[s->n_posted] = (struct posted){.quiet = quiet};
	return ++s->n_posted;
}

uint64_t post(struct side *s, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	if (!s->wish.quiet)
		wr->send_flags |= IBV_SEND_SIGNALED;
	if (!wr->wr_id)
		wr->wr_id = note_posted(s, !(wr->send_flags & IBV_SEND_SIGNALED));
	assert_int_equal(ibv_post_send(s->qp, wr, &bad), 0);
	return wr->wr_id;
}

uint64_t post_receive(struct side *s, const struct region *r, size_t off, size_t len)
{
	struct ibv_sge sge = r ? piece(r, off, len) : (struct ibv_sge){0};
	struct ibv_recv_wr wr = {
		.wr_id = note_posted(s, false), .sg_list = &sge, .num_sge = r ? 1 : 0};
	struct ibv_recv_wr *bad;

	if (s->srq)
		assert_int_equal(ibv_post_srq_recv(s->srq, &wr, &bad), 0);
	else
		assert_int_equal(ibv_post_recv(s->qp, &wr, &bad), 0);
	return wr.wr_id;
}

uint64_t post_send(struct side *s, const struct region *r, size_t off, size_t len)
{
	struct ibv_sge sge = r ? piece(r, off, len) : (struct ibv_sge){0};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = r ? 1 : 0};

	return post(s, &wr);
}

static uint64_t post_rdma(struct side *s, enum ibv_wr_opcode op, struct ibv_sge sge,
			  const struct region *there, size_t off)
{
	struct ibv_send_wr wr = {
		.opcode = op,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = {.remote_addr = (uintptr_t)there->at + off, .rkey = there->mr->rkey}};

	return post(s, &wr);
}

uint64_t post_write(struct side *s, const struct region *from, size_t off, size_t len,
		    const struct region *to, size_t to_off)
{
	return post_rdma(s, IBV_WR_RDMA_WRITE, piece(from, off, len), to, to_off);
}

uint64_t post_read(struct side *s, const struct region *sink, size_t off, size_t len,
		   const struct region *from, size_t from_off)
{
	return post_rdma(s, IBV_WR_RDMA_READ, piece(sink, off, len), from, from_off);
}

/* ---- expecting ---- */

static void record_completion(struct side *s, const struct ibv_wc *wc)
{
	struct posted *p;

	assert_int_equal(wc->qp_num, s->qp->qp_num);
	if (wc->wr_id == 0 || wc->wr_id > s->n_posted)
		fail_msg("a completion of wr_id %llu, which was not posted",
			 (unsigned long long)wc->wr_id);
	p = &s->ledger[wc->wr_id - 1];
	if (p->done)
		fail_msg("a second completion of wr_id %llu: %s", (unsigned long long)wc->wr_id,
			 ibv_wc_status_str(wc->status));
	if (p->quiet && wc->status == IBV_WC_SUCCESS)
		fail_msg("wr_id %llu completed and was not signalled",
			 (unsigned long long)wc->wr_id);
	p->done = true;
	p->wc = *wc;
}

bool poll_wc(struct side *s, struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(cq, 1, wc);

	assert_in_range(n, 0, 1);
	if (n)
		record_completion(s, wc);
	return n;
}

struct ibv_wc await_wc(struct side *s, struct ibv_cq *cq)
{
	struct ibv_wc wc;

	await(poll_wc(s, cq, &wc));
	return wc;
}

static struct ibv_wc expect_wc(struct side *s, struct ibv_cq *cq, uint64_t wr_id,
			       enum ibv_wc_status status)
{
	struct ibv_wc wc = await_wc(s, cq);

	if (wc.wr_id != wr_id || wc.status != status)
		fail_msg("wr_id %llu, %s; expected wr_id %llu, %s", (unsigned long long)wc.wr_id,
			 ibv_wc_status_str(wc.status), (unsigned long long)wr_id,
			 ibv_wc_status_str(status));
	s->ledger[wr_id - 1].settled = true;
	return wc;
}

struct ibv_wc expect_sent(struct side *s, uint64_t wr_id)
{
	return expect_wc(s, s->scq, wr_id, IBV_WC_SUCCESS);
}

struct ibv_wc expect_received(struct side *s, uint64_t wr_id)
{
	return expect_wc(s, s->rcq, wr_id, IBV_WC_SUCCESS);
}

static void drain_cq(struct side *s)
{
	struct ibv_wc wc;

	while (poll_wc(s, s->scq, &wc) || poll_wc(s, s->rcq, &wc))
		;
}

struct ibv_wc expect_failed(struct side *s, uint64_t wr_id, enum ibv_wc_status status)
{
	struct posted *p = &s->ledger[wr_id - 1];

	await((drain_cq(s), p->done));
	if (p->wc.status != status)
		fail_msg("wr_id %llu: %s; expected: %s", (unsigned long long)wr_id,
			 ibv_wc_status_str(p->wc.status), ibv_wc_status_str(status));
	p->settled = true;
	return p->wc;
}

void expect_nothing(struct side *s)
{
	struct ibv_wc wc;

	assert_false(poll_wc(s, s->scq, &wc));
	assert_false(poll_wc(s, s->rcq, &wc));
}

void expect_flushed(struct side *s)
{
	drain_cq(s);
	for (uint64_t i = 0; i < s->n_posted; i++) {
		const struct posted *p = &s->ledger[i];

		if (!p->done && !p->quiet)
			fail_msg("wr_id %llu has no completion", (unsigned long long)i + 1);
		if (p->done && !p->settled && p->wc.status != IBV_WC_WR_FLUSH_ERR)
			fail_msg("wr_id %llu completed: %s, not flushed", (unsigned long long)i + 1,
				 ibv_wc_status_str(p->wc.status));
	}
}

void expect_state(const struct side *s, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	assert_int_equal(ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, state);
}

void expect_cm(struct side *s, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev = await_cm(s, type);

	assert_int_equal(ev->status, 0);
	assert_int_equal(rdma_ack_cm_event(ev), 0);
}

void expect_disconnected(struct side *s)
{
	expect_cm(s, RDMA_CM_EVENT_DISCONNECTED);
	expect_cm(s, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

static bool is_readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

void expect_cm_silence(struct side *s)
{
	assert_false(is_readable(s->events->fd, 0));
}

static void take_async(struct side *s)
{
	struct ibv_async_event ev;

	assert_int_equal(ibv_get_async_event(s->ctx, &ev), 0);
	ibv_ack_async_event(&ev);
	assert_true(n_waiting < sizeof(waiting) / sizeof(waiting[0]));
	waiting[n_waiting++] = (struct waiting){ev.element.qp, ev.event_type};
}

enum ibv_event_type await_async(struct side *s)
{
	struct waiting *w;
	enum ibv_event_type type;

	while (!(w = waiting_for(s))) {
		if (!is_readable(s->ctx->async_fd, PATIENCE_MS))
			fail_msg("no asynchronous event");
		take_async(s);
	}
	type = w->type;
	drop_waiting(w);
	return type;
}

void expect_async(struct side *s, enum ibv_event_type type)
{
	enum ibv_event_type came = await_async(s);

	if (came != type)
		fail_msg("got '%s', not '%s'", ibv_event_type_str(came), ibv_event_type_str(type));
}

bool has_async(struct side *s)
{
	while (is_readable(s->ctx->async_fd, 0))
		take_async(s);
	return waiting_for(s);
}

void expect_no_async(struct side *s)
{
	assert_false(has_async(s));
}
