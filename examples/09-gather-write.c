// SPDX-License-Identifier: BSD-2-Clause
/*
 * 09-gather-write - many scattered pieces into one remote buffer, by the transfer manager.
 *
 *     cc 09-gather-write.c pair.c -lstag -libverbs -lrdmacm -o 09-gather-write
 *     stag run -- ./09-gather-write server
 *     stag run -- ./09-gather-write client 127.0.0.1 PORT
 *
 * Words are scattered in memory, in alphabetical order; the server gets a sentence. With verbs
 * alone that is a work request for each word. The manager gets the source and destination of each
 * word, and finds the fewest work requests: neighbours on the remote side go together, as far as a
 * work request has segments.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stag/xfer.h>

#include "pair.h"

static char dictionary[] = "brown dog fox jumps lazy over quick the ";
static const char *const sentence[] = {"the ",	"quick ", "brown ", "fox ", "jumps ",
				       "over ", "the ",	  "lazy ",  "dog "};
static const char whole[] = "the quick brown fox jumps over the lazy dog ";

#define WORDS (sizeof(sentence) / sizeof(*sentence))

static int serve(struct pair *p)
{
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, memory, sizeof(memory),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct place place;
	char done;

	if (!mr)
		die("ibv_reg_mr");
	place = (struct place){(uintptr_t)memory, mr->rkey, sizeof(memory)};
	pair_tell(p, &place, sizeof(place));
	pair_hear(p, &done, sizeof(done));
	printf("my memory says '%s'\n", memory);
	ibv_dereg_mr(mr);
	return strcmp(memory, whole) != 0;
}

/* Makes an element for each word: one local buffer, and its remote place. */
static void describe_words(struct stag_xfer_elem *elems, struct stag_xfer_buf *bufs, uint32_t lkey,
			   const struct place *place)
{
	uint64_t to = place->addr;

	for (size_t i = 0; i < WORDS; i++) {
		bufs[i] = (struct stag_xfer_buf){.addr = (uintptr_t)strstr(dictionary, sentence[i]),
						 .length = strlen(sentence[i]),
						 .lkey = lkey};
		elems[i] = (struct stag_xfer_elem){
			.bufs = &bufs[i], .num_bufs = 1, .rkey = place->rkey, .remote_addr = to};
		to += bufs[i].length;
	}
}

static void check_manager(struct stag_xfer *x, int err)
{
	if (!err)
		return;
	fprintf(stderr, "the manager: %s\n", stag_xfer_error(x));
	exit(1);
}

/*
 * Submits a request and sleeps until it is complete. The request may be reused when a wait returns
 * it.
 */
static void carry_out(struct stag_xfer *x, struct stag_xfer_req *req)
{
	struct stag_xfer_req *done;

	check_manager(x, stag_xfer_submit(x, req));
	while (stag_xfer_wait(x, &done, 1, -1) == 0)
		;
	if (done->error) {
		fprintf(stderr, "failed after %" PRIu64 " bytes: %s\n", done->bytes_done,
			ibv_wc_status_str(done->status));
		exit(1);
	}
}

static int use_peer(struct pair *p)
{
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, dictionary, sizeof(dictionary), 0);
	struct stag_xfer *x = stag_xfer_create(NULL);
	struct stag_xfer_elem elems[WORDS];
	struct stag_xfer_buf bufs[WORDS];
	struct stag_xfer_req req = {.op = STAG_XFER_WRITE, .elems = elems, .num_elems = WORDS};
	struct stag_xfer_limits limits;
	struct stag_xfer_counters c;
	struct place place;

	if (!mr || !x)
		die("preparing");
	pair_hear(p, &place, sizeof(place));
	describe_words(elems, bufs, mr->lkey, &place);

	/* A manager works over existing connections; they are called its rails. */
	check_manager(x, stag_xfer_add_rail(x, p->id->qp, NULL));
	check_manager(x, stag_xfer_query_limits(x, req.op, &limits));
	stag_xfer_explain(stdout, &limits, &req);
	carry_out(x, &req);

	stag_xfer_query_counters(x, &c, sizeof(c));
	printf("%" PRIu64 " elements, %" PRIu64 " bytes: %" PRIu64 " descriptors, %" PRIu64
	       " elements joined the one before\n",
	       c.elements, c.bytes, c.descriptors, c.coalesced);
	check_manager(x, stag_xfer_destroy(x));
	pair_tell(p, "!", 1);
	ibv_dereg_mr(mr);
	return c.descriptors !=
	       2; /* four segments: 'fox' and 'jumps' are neighbours on this side, too */
}

int main(int argc, char **argv)
{
	struct pair p;
	int rc;

	pair_open(&p, argc, argv);
	rc = p.server ? serve(&p) : use_peer(&p);
	pair_close(&p);
	return rc;
}
