// SPDX-License-Identifier: BSD-2-Clause
/*
 * pull.c - values that are in a client's memory: read from there, or written to it.
 *
 * A value goes through memory of ours: what is in the client's may change, and what is in the region does. One that is longer than
 * POOL_DIRECT_MAX comes in as many records as it takes (upload.c).
 */
#include "pool/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/log.h"

enum pull_state {
	PULL_IDLE,
	PULL_BEGINS, /* an upload, that has no memory yet; a read */
	PULL_WANTS,  /* the next bytes */
	PULL_MOVES,  /* the adapter is at it */
	PULL_HAS,    /* bytes, that wait for a record */
};

struct pull {
	struct work work;
	struct list link; /* of the node's pulls, or idle ones */
	enum pull_state state;
	struct client *client;
	struct message *message; /* the request's name is in it */
	struct pool_request rq;
	uint8_t *slot;
	struct ibv_mr *mr;
	uint64_t offset;	   /* of the value: what is before is in the region */
	uint32_t length;	   /* of what is in the slot */
	struct pool_answer answer; /* of a read */
	XXH3_state_t *hash;
};

/* ---- memory ------------------------------------------------------------------------------- */

int pulls_create(struct stag_pool_node *n)
{
	n->all_pulls = calloc(PULL_SLOTS, sizeof(*n->all_pulls));
	if (!n->all_pulls)
		return -ENOMEM;
	for (unsigned int i = 0; i < PULL_SLOTS; i++) {
		struct pull *p = &n->all_pulls[i];
		void *at = mmap(NULL, POOL_DIRECT_MAX, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			return -ENOMEM;
		p->slot = at;
		p->mr = ibv_reg_mr(n->pd, at, POOL_DIRECT_MAX, IBV_ACCESS_LOCAL_WRITE);
		p->hash = XXH3_createState();
		if (!p->mr || !p->hash)
			return -ENOMEM;
		list_add_tail(&n->idle_pulls, &p->link);
	}
	return 0;
}

void pulls_destroy(struct stag_pool_node *n)
{
	for (unsigned int i = 0; n->all_pulls && i < PULL_SLOTS; i++) {
		struct pull *p = &n->all_pulls[i];

		if (p->mr)
			ibv_dereg_mr(p->mr);
		if (p->slot)
			munmap(p->slot, POOL_DIRECT_MAX);
		XXH3_freeState(p->hash);
	}
	free(n->all_pulls);
}

static void end_pull(struct pull *p)
{
	struct stag_pool_node *n = p->client->conn.node;

	p->state = PULL_IDLE;
	list_del(&p->link);
	list_add_tail(&n->idle_pulls, &p->link);
	p->message->pulls--;
	if (!p->client->conn.over)
		serve_message_done(p->message);
}

void pulls_forget(struct client *k)
{
	struct stag_pool_node *n = k->conn.node;

	for (unsigned int i = 0; i < PULL_SLOTS; i++)
		if (n->all_pulls[i].state != PULL_IDLE && n->all_pulls[i].client == k)
			end_pull(&n->all_pulls[i]);
}

static void fail(struct pull *p, int rc)
{
	log_warn("client %s: a value of %u bytes: %s", p->client->name, p->rq.length,
		 strerror(-rc));
	conn_leave(&p->client->conn);
}

/* ---- a value comes ---------------------------------------------------------------------------- */

static bool is_long(const struct pull *p)
{
	return p->rq.length > POOL_DIRECT_MAX;
}

static void moved(struct work *w, const struct ibv_wc *wc)
{
	struct pull *p = (struct pull *)w;

	(void)wc;
	p->state = PULL_HAS;
}

static int move(struct pull *p, enum ibv_wr_opcode opcode, uint64_t offset, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)p->slot, length, p->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)&p->work,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {p->rq.source_address + offset, p->rq.key}};
	int rc;

	p->work = (struct work){moved, &p->client->conn};
	p->length = length;
	rc = conn_post(&p->client->conn, &wr);
	if (rc == 0)
		p->state = PULL_MOVES;
	return rc == -ENOMEM ? -EAGAIN : rc;
}

static int read_more(struct pull *p)
{
	uint64_t left = p->rq.length - p->offset;

	return move(p, IBV_WR_RDMA_READ, p->offset,
		    left < POOL_DIRECT_MAX ? (uint32_t)left : POOL_DIRECT_MAX);
}

static int begin_upload(struct pull *p)
{
	struct stag_pool_node *n = p->client->conn.node;
	struct pool_answer answer;
	size_t room, used;
	void *at;
	int rc;

	if (!role_may_change(&n->role, n->now))
		return -EAGAIN;
	at = serve_record_room(n, POOL_RECORD_META, &room);
	if (!at)
		return -EAGAIN;
	rc = pool_upload_begin(&n->core, &p->client->who, &p->rq, at, room, &used, &answer);
	if (rc != 0)
		return rc;
	pool_log_add(&n->log, used);
	if (answer.status != EINPROGRESS) {
		rc = serve_reply(p->client, &answer);
		end_pull(p);
		return rc;
	}
	XXH3_64bits_reset(p->hash);
	p->state = PULL_WANTS;
	return 0;
}

static int keep_bytes(struct pull *p)
{
	struct stag_pool_node *n = p->client->conn.node;
	size_t room, used;
	void *at;
	int rc;

	if (!role_may_change(&n->role, n->now))
		return -EAGAIN;
	at = serve_record_room(n, POOL_RECORD_META + ((p->length + 7u) & ~7u), &room);
	if (!at)
		return -EAGAIN;
	rc = pool_upload_bytes(&n->core, &p->client->who, p->rq.sequence, p->offset, p->slot,
			       p->length, at, room, &used);
	if (rc != 0)
		return rc;
	pool_log_add(&n->log, used);
	XXH3_64bits_update(p->hash, p->slot, p->length);
	p->offset += p->length;
	p->state = PULL_WANTS;
	return 0;
}

static int change(struct pull *p)
{
	struct pool_answer answer;
	int rc;

	if (is_long(p)) {
		p->rq.flags |= POOL_UPLOADED;
		p->rq.hash = XXH3_64bits_digest(p->hash);
	} else {
		p->rq.value = p->slot;
		p->rq.source = POOL_SOURCE_INLINE;
	}
	rc = serve_change(p->client, &p->rq, &answer);
	if (rc == 0)
		end_pull(p);
	return rc;
}

static int step_change(struct pull *p)
{
	if (p->state == PULL_BEGINS)
		return begin_upload(p);
	if (p->state == PULL_WANTS)
		return p->offset < p->rq.length ? read_more(p) : change(p);
	return is_long(p) ? keep_bytes(p) : change(p);
}

/* ---- a value goes -------------------------------------------------------------------------------- */

static int look(struct pull *p)
{
	struct stag_pool_node *n = p->client->conn.node;
	struct pool_answer *a = &p->answer;

	if (!role_may_read(&n->role, n->now))
		return -EAGAIN;
	pool_look(&n->region, &p->rq, a);
	n->info.reads++;
	if (a->status == 0 && a->length > p->rq.length)
		a->status = EMSGSIZE;
	else if (a->status == 0 && a->length > POOL_DIRECT_MAX)
		a->status = EAGAIN; /* its body does not change: it is for the client to read */
	if (a->status != 0 || a->length == 0) {
		a->bytes = NULL;
		p->state = PULL_HAS;
		return 0;
	}
	memcpy(p->slot, a->bytes, a->length);
	a->bytes = NULL;
	return move(p, IBV_WR_RDMA_WRITE, 0, a->length);
}

static int step_read(struct pull *p)
{
	int rc;

	if (p->state == PULL_BEGINS)
		return look(p);
	p->answer.after = 0;
	rc = serve_reply(p->client, &p->answer);
	end_pull(p);
	return rc;
}

/* ---- all of them ------------------------------------------------------------------------------------ */

static void step(struct pull *p)
{
	bool changes = pool_op_changes(p->rq.op);
	int rc = 0;

	while (rc == 0 && p->state != PULL_IDLE && p->state != PULL_MOVES && !p->client->conn.over)
		rc = changes ? step_change(p) : step_read(p);
	if (rc != 0 && rc != -EAGAIN)
		fail(p, rc);
}

int pull_start(struct client *k, struct message *m, const struct pool_request *rq)
{
	struct stag_pool_node *n = k->conn.node;
	struct pull *p;

	if (list_empty(&n->idle_pulls))
		return -EAGAIN;
	p = list_entry(n->idle_pulls.next, struct pull, link);
	list_del(&p->link);
	list_add_tail(&n->pulls, &p->link);
	p->client = k;
	p->message = m;
	p->rq = *rq;
	if (rq->key == 0)
		p->rq.key = m->advertised;
	p->offset = 0;
	p->state = pool_op_changes(rq->op) && !is_long(p) ? PULL_WANTS : PULL_BEGINS;
	m->pulls++;
	step(p);
	return 0;
}

void pulls_go_on(struct stag_pool_node *n)
{
	list_for_each_safe (it, &n->pulls)
		step(list_entry(it, struct pull, link));
}
