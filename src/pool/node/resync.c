// SPDX-License-Identifier: BSD-2-Clause
/*
 * resync.c - resynchronises a standby: chunks whose hashes differ are read from the primary's memory.
 *
 * The primary continues meanwhile, and sends its records to the ring as to any other standby. They begin after
 * record k, which the primary had applied before anything was copied. A read returns each byte in some state from
 * then or later. Applying the records from k + 1 on brings every byte to the state of the last one applied, if
 * that one is at least as late as everything that was read. For that, a chunk must not be read in a state that is
 * older than what was applied to it here: so only records are applied that the primary is known to have applied,
 * and none while a read is in flight.
 *
 * The superblock's number and epoch are not copied: they say which records were applied here.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static uint64_t chunk_length(const struct stag_pool_node *n, uint64_t chunk)
{
	uint64_t left = n->memory.region.size - chunk * COPY_CHUNK;

	return left < COPY_CHUNK ? left : COPY_CHUNK;
}

static uint64_t chunk_hash(const struct stag_pool_node *n, uint64_t chunk)
{
	return pool_hash(n->memory.region.at + chunk * COPY_CHUNK, chunk_length(n, chunk));
}

static uint64_t num_chunks(const struct stag_pool_node *n)
{
	return (n->memory.region.size + COPY_CHUNK - 1) / COPY_CHUNK;
}

/* ---- the standby ---------------------------------------------------------------------------- */

static void request_hashes(struct follow *f)
{
	struct follow_copy *c = &f->copy;
	uint64_t left = c->chunks - c->next;
	union link_message said = {
		.ask = {.what = LINK_ASK,
			.count = left < COPY_WINDOW ? (uint32_t)left : COPY_WINDOW,
			.first = c->next,
			.done = c->next * COPY_CHUNK,
			.total = c->chunks * COPY_CHUNK}};

	c->first = c->next;
	c->count = 0;
	c->at = 0;
	c->asked = true;
	follow_send(f, &said);
}

void copy_begin(struct follow *f)
{
	struct stag_pool_node *n = f->conn.node;

	follow_become(f, FOLLOW_COPYING);
	f->copy = (struct follow_copy){.chunks = num_chunks(n)};
	f->copy.head = malloc(COPY_CHUNK);
	if (f->copy.head)
		f->copy.head_mr =
			ibv_reg_mr(f->pd, f->copy.head, COPY_CHUNK, IBV_ACCESS_LOCAL_WRITE);
	if (!f->copy.head_mr) {
		node_conn_leave(&f->conn);
		return;
	}
	node_log(n, LOG_LEVEL_INFO, "resynchronising: comparing %llu bytes with the primary",
		 (unsigned long long)n->memory.region.size);
	request_hashes(f);
}

void copy_end(struct follow *f)
{
	if (f->copy.head_mr)
		ibv_dereg_mr(f->copy.head_mr);
	free(f->copy.head);
	f->copy.head_mr = NULL;
	f->copy.head = NULL;
}

void copy_hashes(struct follow *f, const struct link_hashes *h)
{
	struct stag_pool_node *n = f->conn.node;
	struct follow_copy *c = &f->copy;

	if (f->state != FOLLOW_COPYING || !c->asked || h->first != c->next || h->count == 0 ||
	    h->count > c->chunks - c->next) {
		node_conn_leave(&f->conn);
		return;
	}
	c->asked = false;
	c->count = h->count;
	c->next += h->count;
	for (unsigned int i = 0; i < h->count; i++)
		c->differs[i] = chunk_hash(n, c->first + i) != h->hashes[i];
}

/* Copies the first chunk, except the fixed part, and the number and epoch of the last record applied here. */
static void place_head(struct stag_pool_node *n, const uint8_t *from)
{
	size_t before = offsetof(struct pool_superblock, number);
	size_t behind = sizeof(struct pool_superblock);

	memcpy(n->memory.region.at + POOL_FIXED, from + POOL_FIXED, before - POOL_FIXED);
	memcpy(n->memory.region.at + behind, from + behind, chunk_length(n, 0) - behind);
}

static void read_done(struct node_work *w, const struct ibv_wc *wc)
{
	struct copy_read *r = (struct copy_read *)w;
	struct follow *f = container_of(w->conn, struct follow, conn);

	(void)wc;
	r->busy = false;
	f->copy.reading--;
	if (r->chunk == 0)
		place_head(f->conn.node, f->copy.head);
}

static void read_chunk(struct follow *f, struct copy_read *r, uint64_t chunk)
{
	struct stag_pool_node *n = f->conn.node;
	uint64_t at = chunk * COPY_CHUNK;
	struct ibv_sge sge = {(uintptr_t)n->memory.region.at + at, (uint32_t)chunk_length(n, chunk),
			      f->region_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)&r->work,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {f->welcome.region + at, f->welcome.region_rkey}};

	if (chunk == 0) {
		sge.addr = (uintptr_t)f->copy.head;
		sge.lkey = f->copy.head_mr->lkey;
	}
	r->work = (struct node_work){read_done, &f->conn};
	r->chunk = chunk;
	if (node_conn_post(&f->conn, &wr) != 0)
		return;
	r->busy = true;
	f->copy.reading++;
	f->copy.at++;
}

static struct copy_read *free_read(struct follow_copy *c)
{
	for (unsigned int i = 0; i < COPY_READS; i++)
		if (!c->reads[i].busy)
			return &c->reads[i];
	return NULL;
}

static void read_more(struct follow *f)
{
	struct follow_copy *c = &f->copy;
	struct copy_read *r;

	while (!f->conn.over && c->at < c->count) {
		if (!c->differs[c->at]) {
			c->at++;
			continue;
		}
		r = free_read(c);
		if (!r)
			return;
		read_chunk(f, r, c->first + c->at);
		if (!r->busy)
			return;
	}
}

bool copy_lets_apply(const struct follow *f, unsigned int *most)
{
	uint64_t number = pool_superblock(&f->conn.node->memory.region)->number;

	if (f->state != FOLLOW_COPYING)
		return true;
	if (f->copy.reading || f->copy.at < f->copy.count || f->settled <= number)
		return false;
	if (f->settled - number < *most)
		*most = (unsigned int)(f->settled - number);
	return true;
}

/* Completes the copy: all records that may have changed the bytes while they were read are applied. */
static void caught_up(struct follow *f)
{
	struct stag_pool_node *n = f->conn.node;
	union link_message said = {
		.number = {.what = LINK_SYNCED,
			   .number = pool_superblock(&n->memory.region)->number}};

	follow_become(f, FOLLOW_STREAMING);
	copy_end(f);
	ROLE_EVENT(n, role_synced(&n->role, n->now, n->role.epoch));
	node_act(n);
	if (n->role.state == ROLE_STANDBY && n->primary.link == f)
		follow_send(f, &said);
	node_log(n, LOG_LEVEL_INFO, "resynchronised, at record %llu",
		 (unsigned long long)said.number.number);
}

void copy_catch_up(struct follow *f, uint64_t number)
{
	if (f->state != FOLLOW_COPYING || f->copy.next < f->copy.chunks) {
		node_conn_leave(&f->conn);
		return;
	}
	follow_become(f, FOLLOW_CATCHING_UP);
	f->copy.until = number;
}

void copy_step(struct follow *f)
{
	struct stag_pool_node *n = f->conn.node;
	struct follow_copy *c = &f->copy;
	union link_message said = {.number = {.what = LINK_COPIED}};

	if (f->state == FOLLOW_CATCHING_UP &&
	    pool_superblock(&n->memory.region)->number >= c->until)
		caught_up(f);
	if (f->state != FOLLOW_COPYING || c->asked)
		return;
	read_more(f);
	if (f->conn.over || c->reading || c->at < c->count)
		return;
	if (c->next < c->chunks) {
		request_hashes(f);
	} else {
		c->asked = true;
		follow_send(f, &said);
	}
}

/* ---- the primary --------------------------------------------------------------------------------- */

static void answer_hashes(struct standby *l, const struct link_ask *a)
{
	struct stag_pool_node *n = l->conn.node;
	struct node_message *m = node_conn_message(&l->conn);
	union link_message said = {
		.hashes = {.what = LINK_HASHES, .count = a->count, .first = a->first}};
	int rc;

	if (!m || a->first > num_chunks(n) || a->count > num_chunks(n) - a->first) {
		node_conn_leave(&l->conn);
		return;
	}
	l->copied = a->done;
	l->total = a->total;
	for (unsigned int i = 0; i < a->count; i++)
		said.hashes.hashes[i] = chunk_hash(n, a->first + i);
	rc = link_message_write(&said, n->role.epoch, m->bytes, NODE_MESSAGE);
	m->length = (uint32_t)rc;
	node_conn_send(&l->conn, m);
}

static void answer_copied(struct standby *l)
{
	struct stag_pool_node *n = l->conn.node;
	union link_message said = {
		.number = {.what = LINK_CATCH_UP, .number = n->serve.core.number}};
	struct node_message *m = node_conn_message(&l->conn);

	if (!m) {
		node_conn_leave(&l->conn);
		return;
	}
	l->copied = l->total;
	m->length = (uint32_t)link_message_write(&said, n->role.epoch, m->bytes, NODE_MESSAGE);
	node_conn_send(&l->conn, m);
}

void copy_answer(struct standby *l, const union link_message *asked)
{
	if (asked->what == LINK_ASK)
		answer_hashes(l, &asked->ask);
	else if (asked->what == LINK_COPIED)
		answer_copied(l);
	else
		node_conn_leave(&l->conn);
}
