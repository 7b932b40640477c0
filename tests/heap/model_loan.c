// SPDX-License-Identifier: BSD-2-Clause
/*
 * model_loan.c - lends objects over the adapter: a message with the address and the key goes to the
 * borrower, which reads the object, writes new contents, and replies.
 */
#include "model.h"

#include <string.h>

#define LENDABLE MIB

void loan_offer(struct worker *w)
{
	struct loan *loan = (struct loan *)w->offer->at;
	struct object *o;

	if (w->lending || w->n == 0)
		return;
	o = &w->object[dice(w->n)];
	if (o->size > LENDABLE)
		return;
	w->lent = *o;
	delist(w, (uint64_t)(o - w->object));
	w->lent.whole = true;
	object_fill(&w->lent, w->lent.at);
	*loan = (struct loan){w->lent, keys_of(w, 0, &w->lent).rkey};
	w->backed = post_receive(&w->lender, w->back, 0, sizeof(*loan));
	w->offered = post_send(&w->lender, w->offer, 0, sizeof(*loan));
	w->lending = true;
	w->tally->lent++;
}

void loan_take_back(struct worker *w)
{
	struct loan *loan = (struct loan *)w->back->at;
	struct ibv_wc wc;

	if (!w->lending || !poll_wc(&w->lender, w->lender.rcq, &wc))
		return;
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != w->backed)
		fail_object(w, &w->lent, "did not come back: %s", ibv_wc_status_str(wc.status));
	expect_sent(&w->lender, w->offered);
	w->lent.serial = loan->object.serial;
	expect_contents(w, &w->lent);
	enlist(w, &w->lent);
	w->lending = false;
}

static void access_loan(struct worker *w, enum ibv_wr_opcode opcode, const struct loan *loan,
			const struct object *copy)
{
	struct ibv_sge sge = {.addr = (uintptr_t)copy->at,
			      .length = (uint32_t)copy->size,
			      .lkey = keys_of(w, 0, copy).lkey};
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = {.remote_addr = (uintptr_t)loan->object.at, .rkey = loan->rkey}};

	expect_sent(&w->borrower, post(&w->borrower, &wr));
}

/*
 * Reads the lent object and writes new contents. If there is no memory for the copy, returns the
 * loan unchanged.
 */
static void use_loan(struct worker *w, struct loan *loan)
{
	struct object copy = {.size = loan->object.size};
	uint64_t at;

	copy.at = stag_heap_alloc(w->heap, copy.size);
	if (!copy.at)
		return;
	access_loan(w, IBV_WR_RDMA_READ, loan, &copy);
	if (!object_holds(&loan->object, copy.at, copy.size, &at))
		fail_object(w, &loan->object, "byte %llu is read wrong", (unsigned long long)at);
	loan->object.serial = next_serial(w);
	object_fill(&loan->object, copy.at);
	access_loan(w, IBV_WR_RDMA_WRITE, loan, &copy);
	stag_heap_free(w->heap, copy.at);
	w->tally->borrowed++;
}

static void expect_request(struct worker *w)
{
	w->requested = post_receive(&w->borrower, w->request, 0, sizeof(struct loan));
}

void loan_borrow(struct worker *w)
{
	struct loan *loan = (struct loan *)w->answer->at;
	struct ibv_wc wc;

	if (!poll_wc(&w->borrower, w->borrower.rcq, &wc))
		return;
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != w->requested)
		fail_msg("process %u: %s", w->number, ibv_wc_status_str(wc.status));
	memcpy(loan, w->request->at, sizeof(*loan));
	expect_request(w);
	use_loan(w, loan);
	expect_sent(&w->borrower, post_send(&w->borrower, w->answer, 0, sizeof(*loan)));
}

void loan_open(struct worker *w)
{
	/* The kernel's siw allows at most 80. */
	struct side_wish wish = {.pd = w->pd[0], .inline_data = 64};
	unsigned int next = (w->number + 1) % WORKERS;

	side_listen(&w->lender, &wish);
	atomic_store(&w->town->port[w->number], side_port(&w->lender));
	await(atomic_load(&w->town->port[next]));
	side_resolve(&w->borrower, &wish, (uint16_t)atomic_load(&w->town->port[next]));
	side_connect(&w->borrower);
	side_take_request(&w->lender);
	assert_int_equal(side_accept(&w->lender), 0);
	expect_cm(&w->borrower, RDMA_CM_EVENT_ESTABLISHED);
	expect_cm(&w->lender, RDMA_CM_EVENT_ESTABLISHED);
	w->offer = own_region(&w->lender, sizeof(struct loan));
	w->back = own_region(&w->lender, sizeof(struct loan));
	w->request = own_region(&w->borrower, sizeof(struct loan));
	w->answer = own_region(&w->borrower, sizeof(struct loan));
	expect_request(w);
}

void loan_close(struct worker *w)
{
	side_close(&w->lender);
	side_close(&w->borrower);
}
