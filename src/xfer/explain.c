// SPDX-License-Identifier: BSD-2-Clause
/*
 * explain.c - prints a plan: each descriptor, and why it ends where it does.
 *
 * Calls plan.c as the manager does, and prints the results. For people: the format of the text may
 * change.
 */
#include "xfer.h"

#include <errno.h>
#include <inttypes.h>

#include "base/export.h"

struct sums {
	uint64_t descriptors, coalesced, divided;
};

static bool has_bytes(const struct stag_xfer_elem *elem)
{
	for (uint32_t i = 0; i < elem->num_bufs; i++) {
		if (elem->bufs[i].length != 0)
			return true;
	}
	return false;
}

/* Prints the first, last and number of the elements with bytes between two positions. */
static void print_elems(FILE *out, const struct stag_xfer_req *req,
			const struct stag_xfer_cursor *from, const struct stag_xfer_cursor *to,
			uint32_t n)
{
	size_t first = from->elem, last = to->offset != 0 ? to->elem : to->elem - 1;
	char text[64];

	while (!has_bytes(&req->elems[first]))
		first++;
	while (!has_bytes(&req->elems[last]))
		last--;
	if (n == 1)
		snprintf(text, sizeof(text), "%zu", first);
	else if (last - first == n - 1)
		snprintf(text, sizeof(text), "%zu-%zu", first, last);
	else
		snprintf(text, sizeof(text), "%" PRIu32 " of %zu-%zu", n, first, last);
	fprintf(out, "  %-15s", text);
}

/* Prints why the descriptor ended; the cursor is at the first byte that did not fit. */
static void print_end(FILE *out, const struct stag_xfer_limits *limits,
		      const struct stag_xfer_req *req, const struct stag_xfer_cursor *next,
		      enum stag_xfer_end end)
{
	const struct stag_xfer_elem *elem = &req->elems[next->elem];

	switch (end) {
	case STAG_XFER_END_CHAIN:
		fprintf(out, "nothing follows");
		return;
	case STAG_XFER_END_KEY:
		fprintf(out, "element %zu has another key, 0x%" PRIx32, next->elem, elem->rkey);
		return;
	case STAG_XFER_END_GAP:
		fprintf(out, "element %zu is elsewhere, at 0x%" PRIx64, next->elem,
			elem->remote_addr);
		return;
	case STAG_XFER_END_SIZE:
		fprintf(out, "full, with %" PRIu32 " bytes", limits->max_transfer);
		break;
	case STAG_XFER_END_SEGMENTS:
		fprintf(out,
			"segments used up (%" PRIu32 "), and buffer %" PRIu32
			" of element %zu is elsewhere, at 0x%" PRIx64 " with key 0x%" PRIx32,
			limits->max_segments, next->buf, next->elem,
			elem->bufs[next->buf].addr + next->buf_offset, elem->bufs[next->buf].lkey);
		break;
	}
	if (next->offset != 0)
		fprintf(out, "; divides element %zu after %" PRIu64 " bytes", next->elem,
			next->offset);
}

static void print_descriptors(FILE *out, const struct stag_xfer_limits *limits,
			      const struct stag_xfer_req *req, struct sums *sums)
{
	struct stag_xfer_cursor from = {0}, to = {0};
	struct stag_xfer_desc desc = {.sge = NULL};

	for (; stag_xfer_form(limits, req, &to, &desc); from = to) {
		sums->descriptors++;
		sums->coalesced += desc.num_elems - 1;
		sums->divided += to.offset != 0;
		fprintf(out,
			"%6" PRIu64 "  %016" PRIx64 "-%016" PRIx64 "  %08" PRIx32 "  %10" PRIu32
			"  %8" PRIu32,
			sums->descriptors, desc.remote_addr, desc.remote_addr + (desc.length - 1),
			desc.rkey, desc.length, desc.num_sge);
		print_elems(out, req, &from, &to, desc.num_elems);
		fputs("  ", out);
		print_end(out, limits, req, &to, desc.end);
		fputc('\n', out);
	}
}

STAG_EXPORT int stag_xfer_explain(FILE *out, const struct stag_xfer_limits *limits,
				  const struct stag_xfer_req *req)
{
	struct sums sums = {0};
	uint64_t total;
	int rc = stag_xfer_check(req, &total, NULL);

	if (rc != 0)
		return rc;
	if (limits->max_transfer == 0 || limits->max_segments == 0)
		return EINVAL;
	fprintf(out, "%s; limits of a descriptor: bytes %" PRIu32 ", segments %" PRIu32 "\n",
		req->op == STAG_XFER_READ ? "read" : "write", limits->max_transfer,
		limits->max_segments);
	fprintf(out, "%6s  %-33s  %-8s  %10s  %8s  %-15s  %s\n", "number", "remote range", "key",
		"bytes", "segments", "elements", "ends because");
	print_descriptors(out, limits, req, &sums);
	fprintf(out,
		"sum: elements %zu, bytes %" PRIu64 ", descriptors %" PRIu64 ", coalesced %" PRIu64
		", divided %" PRIu64 "\n",
		req->num_elems, total, sums.descriptors, sums.coalesced, sums.divided);
	return ferror(out) ? EIO : 0;
}
