// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_plan_random.c - plans of random requests, checked against the definition.
 *
 * For small requests every possible division is tried, byte by byte, and the plan must have as few
 * descriptors as the best of them. For large ones the plan itself proves that no division has fewer
 * (model.c). For both, the descriptors hold the chain in order, no limit is broken, each ends for
 * the reason that it gives, and a plan can be resumed at any byte.
 *
 * STAG_SEED is the first seed of the random numbers; a failure prints it, and the request,
 * explained.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "xfer/xfer.h"

#define SMALL_REQUESTS	200000
#define LARGE_REQUESTS	10000
#define MERGED_REQUESTS 50000

#define MAX_ELEMS    12
#define MAX_BUFS     6 /* per element */
#define MAX_SEGMENTS 16
#define MAX_BYTES    168 /* of a small request */

#define GIB ((uint64_t)1 << 30)

/* ---- random requests --------------------------------------------------- */

static uint64_t first_seed, dice_state;

/* splitmix64 */
static uint64_t dice(void)
{
	uint64_t z = dice_state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static uint64_t below(uint64_t n)
{
	return dice() % n;
}

static bool percent(unsigned int n)
{
	return below(100) < n;
}

struct request {
	struct stag_xfer_limits limits;
	struct stag_xfer_req req;
	struct stag_xfer_elem elems[MAX_ELEMS];
	struct stag_xfer_buf bufs[MAX_ELEMS][MAX_BUFS];
};

/* Parameters of one kind of random request. */
struct kind {
	uint64_t (*length)(void); /* of a buffer */
	void (*limits)(struct stag_xfer_limits *limits, uint64_t total);
	unsigned int max_elems, max_bufs;
};

/*
 * Returns a random address: often where the last range ends; sometimes the last or the first
 * address possible.
 */
static uint64_t place(uint64_t after, uint64_t length)
{
	uint64_t addr = percent(65) ? after : percent(50) ? after + below(40) - 20 : dice();

	if (percent(3))
		addr = 0;
	if (percent(3) || (length != 0 && length - 1 > UINT64_MAX - addr))
		addr = length ? UINT64_MAX - length + 1 : UINT64_MAX;
	return addr;
}

static uint64_t random_bufs(struct stag_xfer_elem *elem, struct stag_xfer_buf *bufs,
			    const struct kind *kind, struct stag_xfer_buf *last)
{
	uint64_t total = 0;

	*elem = (struct stag_xfer_elem){.bufs = bufs, .num_bufs = below(kind->max_bufs + 1)};
	for (uint32_t i = 0; i < elem->num_bufs; i++) {
		uint64_t length = kind->length();

		bufs[i] = (struct stag_xfer_buf){.addr = place(last->addr + last->length, length),
						 .length = length,
						 .lkey = percent(80) ? last->lkey : below(3)};
		total += length;
		if (length != 0)
			*last = bufs[i];
	}
	return total;
}

static void random_request(struct request *r, const struct kind *kind)
{
	struct stag_xfer_buf last = {.addr = 0x10000};
	uint64_t total = 0, after = 0x1000;
	uint32_t rkey = 1;

	r->req = (struct stag_xfer_req){.op = percent(50) ? STAG_XFER_READ : STAG_XFER_WRITE,
					.elems = r->elems,
					.num_elems = below(kind->max_elems + 1)};
	for (size_t i = 0; i < r->req.num_elems; i++) {
		uint64_t length = random_bufs(&r->elems[i], r->bufs[i], kind, &last);

		r->elems[i].remote_addr = place(after, length);
		r->elems[i].rkey = percent(85) ? rkey : below(3);
		if (length != 0) {
			after = r->elems[i].remote_addr + length;
			rkey = r->elems[i].rkey;
		}
		total += length;
	}
	kind->limits(&r->limits, total);
}

/* ---- every division of a small request -------------------------------- */

/*
 * Sets fewest[i] to the number of descriptors of the best division from byte i on. Tries each end
 * for each begin, without assumptions about the descriptors between.
 */
static void find_best_divisions(const struct model *m, unsigned int *fewest)
{
	struct breaks before[MAX_BYTES + 1] = {{0}}; /* up to and including each byte */

	for (uint64_t i = 1; i < m->total; i++) {
		const struct piece *p = model_piece(m, i);

		before[i] = before[i - 1];
		before[i].remote += p->at == i && p->remote_break;
		before[i].local += p->at == i && p->local_break;
	}
	fewest[m->total] = 0;
	for (uint64_t i = m->total; i-- > 0;) {
		fewest[i] = UINT32_MAX;
		for (uint64_t j = i + 1; j <= m->total; j++) {
			struct breaks within = {before[j - 1].remote - before[i].remote,
						before[j - 1].local - before[i].local};

			if (model_allows(m->limits, j - i, within) && fewest[j] + 1 < fewest[i])
				fewest[i] = fewest[j] + 1;
		}
	}
}

/* ---- claims ------------------------------------------------------------ */

static uint64_t request_seed;
static uint64_t ended[STAG_XFER_END_KEY + 1]; /* number of descriptors, by reason */

static void fail_with(const struct request *r, const char *claim)
{
	print_error("claim failed: %s\n", claim);
	print_error("request of STAG_SEED=%" PRIu64 " (run began with %" PRIu64 ")\n", request_seed,
		    first_seed);
	stag_xfer_explain(stderr, &r->limits, &r->req);
	fail();
}

#define CLAIM(r, claim)                                                                            \
	do {                                                                                       \
		if (!(claim))                                                                      \
			fail_with(r, #claim);                                                      \
	} while (0)

/* Checks all descriptors of a request, and returns their number. */
static uint64_t check_all_descriptors(const struct request *r, const struct model *m)
{
	struct ibv_sge sge[MAX_SEGMENTS];
	struct stag_xfer_desc desc = {.sge = sge};
	struct stag_xfer_cursor cursor = {0};
	uint64_t n = 0, at = 0;

	for (; stag_xfer_form(&r->limits, &r->req, &cursor, &desc); n++) {
		const char *broken = model_check(m, at, &desc, &cursor);

		if (broken)
			fail_with(r, broken);
		ended[desc.end]++;
		at += desc.length;
	}
	CLAIM(r, at == m->total);
	CLAIM(r, cursor.elem == r->req.num_elems);
	CLAIM(r, stag_xfer_count(&r->limits, &r->req, NULL) == n);
	return n;
}

static uint64_t count_from(const struct model *m, uint64_t at)
{
	struct stag_xfer_cursor cursor = model_cursor(m, at);

	return stag_xfer_count(m->limits, m->req, &cursor);
}

static void random_request_and_model(struct request *r, struct model *m, const struct kind *kind)
{
	uint64_t total;

	dice_state = request_seed;
	random_request(r, kind);
	CLAIM(r, stag_xfer_check(&r->req, &total, NULL) == 0);
	model_make(m, &r->limits, &r->req);
	CLAIM(r, total == m->total);
}

/* ---- the two kinds ----------------------------------------------------- */

static uint64_t small_length(void)
{
	return percent(20) ? 0 : below(8);
}

static void small_limits(struct stag_xfer_limits *limits, uint64_t total)
{
	limits->max_transfer = 1 + below(percent(80) ? 32 : MAX_BYTES);
	limits->max_segments = 1 + below(percent(80) ? 4 : MAX_SEGMENTS);
}

static const struct kind small = {small_length, small_limits, 8, 3};

static void plans_of_small_requests_are_the_best_of_all_divisions(void **state)
{
	static struct request r;
	static struct model m;
	unsigned int fewest[MAX_BYTES + 1];
	uint64_t descriptors = 0;

	for (size_t i = 0; i < SMALL_REQUESTS; i++) {
		uint64_t at;

		request_seed = first_seed + i;
		random_request_and_model(&r, &m, &small);
		CLAIM(&r, m.total <= MAX_BYTES);
		find_best_divisions(&m, fewest);
		CLAIM(&r, check_all_descriptors(&r, &m) == fewest[0]);
		at = below(m.total + 1);
		CLAIM(&r, count_from(&m, at) == fewest[at]);
		descriptors += fewest[0];
	}
	print_message("%d requests, %" PRIu64 " descriptors\n", SMALL_REQUESTS, descriptors);
}

/* Returns from a byte to some GiB, with each order of magnitude equally likely. */
static uint64_t large_length(void)
{
	return percent(10) ? 0 : (GIB * 8 - 1) >> below(33);
}

/* Chooses limits that give hardly more than a hundred descriptors. */
static void large_limits(struct stag_xfer_limits *limits, uint64_t total)
{
	uint64_t least = total / 100 + 1, size = UINT32_MAX >> below(32);

	size = size > least ? size : least;
	limits->max_transfer =
		size > UINT32_MAX ? UINT32_MAX : size - (size > least && percent(50));
	limits->max_segments = 1 + below(MAX_SEGMENTS);
}

static const struct kind large = {large_length, large_limits, MAX_ELEMS, MAX_BUFS};

static void plans_of_large_requests_have_the_fewest_descriptors(void **state)
{
	static struct request r;
	static struct model m;
	uint64_t descriptors = 0, bytes = 0;

	for (size_t i = 0; i < LARGE_REQUESTS; i++) {
		uint64_t n, at;

		request_seed = first_seed + SMALL_REQUESTS + i;
		random_request_and_model(&r, &m, &large);
		n = check_all_descriptors(&r, &m);
		at = m.total ? below(m.total) : 0;
		CLAIM(&r, count_from(&m, at) <= n);
		descriptors += n;
		bytes += m.total;
	}
	print_message("%d requests, %" PRIu64 " GiB, %" PRIu64 " descriptors\n", LARGE_REQUESTS,
		      bytes / GIB, descriptors);
}

/* ---- consecutive requests ---------------------------------------------- */

#define PARTS 4

/* Cuts the chain at random elements; some parts have none. */
static void cut(const struct stag_xfer_req *req, struct stag_xfer_req *parts)
{
	size_t from = 0;

	for (size_t i = 0; i < PARTS; i++) {
		size_t left = req->num_elems - from, n = i == PARTS - 1 ? left : below(left + 1);

		parts[i] = *req;
		parts[i].elems += from;
		parts[i].num_elems = n;
		parts[i].cursor = (struct stag_xfer_cursor){0};
		from += n;
	}
}

/* Forms a descriptor as the manager does: the next part joins when the one before is all in. */
static bool form_merged(const struct stag_xfer_limits *limits, struct stag_xfer_req *parts,
			size_t *part, struct stag_xfer_desc *desc)
{
	*desc = (struct stag_xfer_desc){.sge = desc->sge};
	while (*part < PARTS && plan_extend(limits, &parts[*part], &parts[*part].cursor, desc))
		++*part;
	return desc->length != 0;
}

static bool same_desc(const struct stag_xfer_desc *a, const struct stag_xfer_desc *b)
{
	return a->remote_addr == b->remote_addr && a->rkey == b->rkey && a->length == b->length &&
	       a->num_elems == b->num_elems && a->end == b->end && a->num_sge == b->num_sge &&
	       !memcmp(a->sge, b->sge, a->num_sge * sizeof(*a->sge));
}

static void requests_merged_are_planned_as_one_chain(void **state)
{
	static struct request r;
	static struct model m;

	for (size_t i = 0; i < MERGED_REQUESTS; i++) {
		struct stag_xfer_req parts[PARTS];
		struct ibv_sge sge[2][MAX_SEGMENTS];
		struct stag_xfer_desc one = {.sge = sge[0]}, merged = {.sge = sge[1]};
		struct stag_xfer_cursor cursor = {0};
		size_t part = 0;

		request_seed = first_seed + i;
		random_request_and_model(&r, &m, &small);
		cut(&r.req, parts);
		while (stag_xfer_form(&r.limits, &r.req, &cursor, &one)) {
			CLAIM(&r, form_merged(&r.limits, parts, &part, &merged));
			CLAIM(&r, same_desc(&one, &merged));
		}
		CLAIM(&r, !form_merged(&r.limits, parts, &part, &merged));
		CLAIM(&r, part == PARTS);
	}
}

/* Checks the random generator: the claims above were tested on every kind of descriptor. */
static void every_reason_to_end_occurred_often(void **state)
{
	for (size_t i = STAG_XFER_END_CHAIN; i <= STAG_XFER_END_KEY; i++) {
		print_message("end %zu: %" PRIu64 "\n", i, ended[i]);
		assert_true(ended[i] > 10000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_of_small_requests_are_the_best_of_all_divisions),
		cmocka_unit_test(plans_of_large_requests_have_the_fewest_descriptors),
		cmocka_unit_test(requests_merged_are_planned_as_one_chain),
		cmocka_unit_test(every_reason_to_end_occurred_often),
	};
	const char *seed = getenv("STAG_SEED");

	first_seed = seed ? strtoull(seed, NULL, 0) : 20020919;
	print_message("STAG_SEED=%" PRIu64 "\n", first_seed);
	return cmocka_run_group_tests_name("xfer plan, random", tests, NULL, NULL);
}
