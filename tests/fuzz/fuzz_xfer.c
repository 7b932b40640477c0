// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_xfer.c - arbitrary requests, planned by the planner of the transfer manager.
 *
 * stag_xfer_check() refuses exactly what a check with wide arithmetic refuses. Accepted requests
 * are planned, from the beginning and from some byte on, and each descriptor is checked against the
 * definition.
 */
#include "fuzz.h"

#include <errno.h>

#include "model.h"

#define MAX_ELEMS 16
#define MAX_BUFS  8 /* of an element */
#define MAX_DESCS 64

_Static_assert(MAX_ELEMS *MAX_BUFS <= MODEL_MAX_PIECES, "every buffer may be a piece");

struct request {
	struct stag_xfer_limits limits;
	struct stag_xfer_req req;
	struct stag_xfer_elem elems[MAX_ELEMS];
	struct stag_xfer_buf bufs[MAX_ELEMS][MAX_BUFS];
};

/* Draws a number: a small one, the expected one, any of 2, 4 or 8 bytes, or one of the largest. */
static uint64_t number(struct input *in, uint64_t expected)
{
	uint8_t first = take(in, 1);

	switch (first) {
	case 0xff:
		return UINT64_MAX - take(in, 1);
	case 0xfe:
		return take(in, 8);
	case 0xfd:
		return take(in, 4);
	case 0xfc:
		return take(in, 2);
	}
	return first & 0x80 ? expected : first;
}

/* local: the end of the previous buffer. */
static void read_elem(struct input *in, struct stag_xfer_elem *elem, struct stag_xfer_buf *bufs,
		      uint64_t *local)
{
	uint8_t shape = take(in, 1);

	*elem = (struct stag_xfer_elem){.bufs = shape & 0x80 ? NULL : bufs,
					.num_bufs = shape % MAX_BUFS,
					.rkey = shape >> 4 & 3};
	for (uint32_t i = 0; elem->bufs && i < elem->num_bufs; i++) {
		bufs[i].addr = number(in, *local);
		bufs[i].length = number(in, 64);
		bufs[i].lkey = take(in, 1) & 3;
		*local = bufs[i].addr + bufs[i].length;
	}
}

static uint64_t length_of(const struct stag_xfer_elem *elem)
{
	uint64_t length = 0;

	for (uint32_t i = 0; elem->bufs && i < elem->num_bufs; i++)
		length += elem->bufs[i].length;
	return length;
}

static void read_request(struct input *in, struct request *r)
{
	uint64_t remote = 0, local = 0;
	uint8_t way;

	r->limits.max_transfer = (uint32_t)number(in, 1 << 20);
	r->limits.max_segments = (uint32_t)number(in, 16);
	way = take(in, 1);
	r->req = (struct stag_xfer_req){.op = way & 3, .flags = way >> 2 & 1, .elems = r->elems};
	while (in->len != 0 && r->req.num_elems < MAX_ELEMS) {
		struct stag_xfer_elem *elem = &r->elems[r->req.num_elems];

		read_elem(in, elem, r->bufs[r->req.num_elems++], &local);
		elem->remote_addr = number(in, remote);
		remote = elem->remote_addr + length_of(elem);
	}
}

/* ---- refused requests --------------------------------------------- */

typedef unsigned __int128 wide;

#define SPACE ((wide)1 << 64)

static bool elem_is_bad(const struct stag_xfer_elem *elem, wide *total)
{
	wide length = 0;

	if (!elem->bufs)
		return elem->num_bufs != 0;
	for (uint32_t i = 0; i < elem->num_bufs; i++) {
		if ((wide)elem->bufs[i].addr + elem->bufs[i].length > SPACE)
			return true;
		length += elem->bufs[i].length;
	}
	*total += length;
	return length >= SPACE || elem->remote_addr + length > SPACE || *total >= SPACE;
}

/* Returns the invalid element; num_elems: the request is invalid; num_elems + 1: nothing is. */
static size_t find_bad(const struct stag_xfer_req *req, wide *total)
{
	if ((req->op != STAG_XFER_READ && req->op != STAG_XFER_WRITE) || req->flags != 0)
		return req->num_elems;
	for (size_t i = 0; i < req->num_elems; i++) {
		if (elem_is_bad(&req->elems[i], total))
			return i;
	}
	return req->num_elems + 1;
}

static bool passes(const struct stag_xfer_req *req)
{
	wide wanted = 0;
	size_t bad = find_bad(req, &wanted), said = SIZE_MAX;
	uint64_t total = 0;
	int rc = stag_xfer_check(req, &total, &said);

	CHECK(rc == (bad > req->num_elems ? 0 : EINVAL));
	CHECK(rc == 0 ? total == wanted : said == bad);
	return rc == 0;
}

/* ---- accepted requests --------------------------------------------------- */

/* Forms descriptors from this byte of the chain on, up to a limit. */
static void judge_from(const struct model *m, struct ibv_sge *sge, uint64_t at)
{
	const struct stag_xfer_cursor start =
		at ? model_cursor(m, at) : (struct stag_xfer_cursor){0};
	struct stag_xfer_cursor cursor = start;
	struct stag_xfer_desc desc = {.sge = sge};
	unsigned int n = 0;

	for (; n < MAX_DESCS && stag_xfer_form(m->limits, m->req, &cursor, &desc); n++) {
		const char *broken = model_check(m, at, &desc, &cursor);

		if (broken)
			fprintf(stderr, "byte %llu: not so: %s\n", (unsigned long long)at, broken);
		CHECK(!broken);
		at += desc.length;
	}
	if (n == MAX_DESCS)
		return;
	CHECK(at == m->total);
	CHECK(cursor.elem == m->req->num_elems);
	CHECK(stag_xfer_count(m->limits, m->req, &start) == n);
}

/* Expects as many lines as descriptors, two lines of heading and one at the end. */
static void explain(const struct model *m, uint64_t count)
{
	char *text = NULL;
	size_t size = 0;
	uint64_t lines = 0;
	FILE *out = open_memstream(&text, &size);

	CHECK(out);
	CHECK(stag_xfer_explain(out, m->limits, m->req) == 0);
	fclose(out);
	for (size_t i = 0; i < size; i++)
		lines += text[i] == '\n';
	CHECK(lines == count + 3);
	free(text);
}

static void plan(const struct request *r, uint64_t somewhere)
{
	static struct model m;
	struct ibv_sge *sge;
	size_t segments;

	model_make(&m, &r->limits, &r->req);
	if (r->limits.max_transfer == 0 || r->limits.max_segments == 0) {
		CHECK(stag_xfer_count(&r->limits, &r->req, NULL) == 0);
		return;
	}
	/* Exactly the allowed size, so that a sanitizer detects accesses past its end. */
	segments = r->limits.max_segments < m.n ? r->limits.max_segments : m.n;
	sge = malloc(segments ? segments * sizeof(*sge) : 1);
	CHECK(sge);
	judge_from(&m, sge, 0);
	somewhere = m.total ? somewhere % m.total : 0;
	judge_from(&m, sge, somewhere);
	if (m.total / r->limits.max_transfer < MAX_DESCS)
		explain(&m, stag_xfer_count(&r->limits, &r->req, NULL));
	free(sge);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct request r;
	struct input in = {data, size};
	uint64_t somewhere = number(&in, 0);

	read_request(&in, &r);
	if (passes(&r.req))
		plan(&r, somewhere);
	else
		CHECK(stag_xfer_explain(stderr, &r.limits, &r.req) == EINVAL);
	return 0;
}
