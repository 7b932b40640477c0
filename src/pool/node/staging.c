// SPDX-License-Identifier: BSD-2-Clause
/*
 * staging.c - values that clients write to our memory, and that the adapter forwards to every standby before we see the request.
 *
 *	client               primary                                    standby
 *	RDMA Write    -->    slot, placed     --> adapter forwards -->  the same slot
 *	request       -->    the window ends; a record that names the slot --> ring
 *	answer        <--    confirmed: both are there                  applies it from its own slot
 *	              <--    window, opened again       <--             has applied it
 *
 * A slot is open to one queue pair, through a memory window that the request itself invalidates (a send with
 * invalidate). So the bytes that we hash are those that were forwarded, and that every node applies later: no
 * peer can change them. The slot is opened again when every connected standby has applied the record: until
 * then an acknowledgement may depend on its bytes.
 *
 * A slot must have the same bytes here and on a standby as a whole, because its client may name more bytes than it wrote.
 * Forwarding keeps equal slots equal. So at the first use of a slot for a standby, unless it was untouched when the standby
 * connected, all of it is sent.
 *
 * If the adapter cannot forward on the connection to a standby (roce0's cannot), the value is sent before each record.
 */
#include "pool/node/node.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"

#define LENGTH ((size_t)STAGING_SLICES * NODE_SLICE)

static uint64_t slot_offset(const struct stage_slot *s)
{
	return (uint64_t)(s->index / NODE_SLOTS) * NODE_SLICE + node_slot_at(s->index % NODE_SLOTS);
}

static uint32_t slot_size(const struct stage_slot *s)
{
	return node_slot_size(s->index % NODE_SLOTS);
}

/* ---- memory ------------------------------------------------------------------------------ */

static void init_slices(struct node_staging *st)
{
	for (unsigned int i = 0; i < STAGING_SLICES; i++)
		for (unsigned int k = 0; k < NODE_SLOTS; k++) {
			struct stage_slot *s = &st->slices[i].slots[k];

			s->slice = &st->slices[i];
			s->index = i * NODE_SLOTS + k;
			list_init(&s->link);
		}
}

/* Registers the staging memory for clients, which can access it only through memory windows. */
static int register_memory(struct stag_pool_node *n)
{
	struct node_staging *st = &n->memory.staging;

	for (unsigned int d = 0; d < NODE_DOMAINS; d++) {
		st->mr[d] = ibv_reg_mr(n->adapter.pd[d], st->at, LENGTH,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
		if (!st->mr[d])
			return -ENOMEM;
	}
	return 0;
}

static int make_memory(struct stag_pool_node *n)
{
	struct node_staging *st = &n->memory.staging;
	void *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return -errno;
	st->at = at;
	st->slices = calloc(STAGING_SLICES, sizeof(*st->slices));
	if (register_memory(n) != 0 || !st->slices)
		return -ENOMEM;
	init_slices(st);
	return 0;
}

void node_staging_open(struct stag_pool_node *n)
{
	bool wanted = n->adapter.dv && !(n->conf.flags & STAG_POOL_NO_MIRROR);
	int rc = wanted && !n->memory.staging.at ? make_memory(n) : 0;

	if (n->adapter.dv && !wanted)
		node_log(
			n, LOG_LEVEL_INFO,
			"values are forwarded by software: mirroring by the adapter is turned off");
	if (rc != 0) {
		node_log(n, LOG_LEVEL_WARN, "values are forwarded by software: %s", strerror(-rc));
		node_staging_destroy(n);
	}
	list_init(&n->memory.staging.taken);
	n->memory.staging_length = n->memory.staging.at ? LENGTH : 0;
}

void node_staging_start(struct stag_pool_node *n)
{
	while (!list_empty(&n->memory.staging.taken))
		list_del(n->memory.staging.taken.next);
}

void node_staging_destroy(struct stag_pool_node *n)
{
	struct node_staging *st = &n->memory.staging;

	for (unsigned int d = 0; d < NODE_DOMAINS; d++)
		if (st->mr[d])
			ibv_dereg_mr(st->mr[d]);
	if (st->at)
		munmap(st->at, LENGTH);
	free(st->slices);
	*st = (struct node_staging){0};
}

struct pool_staging node_staging_own(const struct stag_pool_node *n)
{
	return (struct pool_staging){.at = n->memory.staging.at,
				     .length = n->memory.staging.at ? LENGTH : 0,
				     .trusted = true};
}

/* ---- slices -------------------------------------------------------------------------------- */

static bool is_free(const struct stage_slice *slice)
{
	for (unsigned int i = 0; i < NODE_SLOTS; i++)
		if (!list_empty(&slice->slots[i].link))
			return false;
	return !slice->client;
}

static struct stage_slice *find_free(struct node_staging *st)
{
	for (unsigned int i = 0; i < STAGING_SLICES; i++) {
		struct stage_slice *slice = &st->slices[st->next++ % STAGING_SLICES];

		if (is_free(slice))
			return slice;
	}
	return NULL;
}

/* Erases what the previous client of the slice wrote, which its next client must not see. */
static void clear_slice(struct stag_pool_node *n, struct stage_slice *slice)
{
	for (unsigned int i = 0; i < NODE_SLOTS; i++) {
		struct stage_slot *s = &slice->slots[i];

		if (!s->touched)
			continue;
		if (madvise(n->memory.staging.at + slot_offset(s), slot_size(s), MADV_DONTNEED) !=
		    0)
			memset(n->memory.staging.at + slot_offset(s), 0, slot_size(s));
		s->touched = false;
		for (unsigned int seat = 0; seat < ROLL_MAX_NODES; seat++)
			if (n->standbys.links[seat])
				n->standbys.links[seat]->same[s->index] = false;
	}
}

static void free_windows(struct stage_slice *slice)
{
	for (unsigned int i = 0; i < NODE_SLOTS; i++) {
		if (slice->slots[i].mw)
			ibv_dealloc_mw(slice->slots[i].mw);
		slice->slots[i].mw = NULL;
	}
}

#define FROM(state) (1u << SLOT_##state)

/*
 * A slot passes to its next client in any state, and is shut then. A request that has to be tried again takes its
 * slot again.
 */
static const unsigned int comes_from[] = {
	[SLOT_SHUT] = FROM(SHUT) | FROM(OPEN) | FROM(TAKEN),
	[SLOT_OPEN] = FROM(SHUT),
	[SLOT_TAKEN] = FROM(OPEN) | FROM(TAKEN),
};

/* Changes the state: nothing else writes it. */
static void slot_become(struct stage_slot *s, enum slot_state state)
{
	assert(comes_from[state] & 1u << s->state);
	s->state = state;
}

static int make_windows(struct ibv_pd *pd, struct stage_slice *slice)
{
	for (unsigned int i = 0; i < NODE_SLOTS; i++) {
		struct stage_slot *s = &slice->slots[i];

		s->mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		if (!s->mw)
			return -ENOMEM;
		s->rkey = s->mw->rkey;
		slot_become(s, SLOT_SHUT);
		s->asking = NULL;
	}
	return 0;
}

void node_staging_assign(struct client *k)
{
	struct stag_pool_node *n = k->conn.node;
	struct stage_slice *slice = NULL;

	if (n->memory.staging.at && !k->slice && (k->rights & STAG_POOL_RIGHT_WRITE))
		slice = find_free(&n->memory.staging);
	if (!slice)
		return;
	clear_slice(n, slice);
	if (make_windows(n->adapter.pd[k->domain], slice) != 0) {
		free_windows(slice);
		return;
	}
	slice->client = k;
	k->slice = slice;
}

/* Slots that records refer to stay as they are until those records are applied. */
void node_staging_leave(struct client *k)
{
	if (!k->slice)
		return;
	free_windows(k->slice);
	k->slice->client = NULL;
	k->slice = NULL;
}

/* ---- open slots ------------------------------------------------------------------------------ */

static int open_slot(struct client *k, struct stage_slot *s)
{
	struct stag_pool_node *n = k->conn.node;
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)&k->conn.lost,
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {.mw = s->mw,
			    .rkey = ibv_inc_rkey(s->rkey),
			    .bind_info = {.mr = n->memory.staging.mr[k->domain],
					  .addr = (uintptr_t)n->memory.staging.at + slot_offset(s),
					  .length = slot_size(s),
					  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}},
	};
	int rc = node_conn_post(&k->conn, &wr);

	if (rc != 0)
		return rc;
	s->rkey = wr.bind_mw.rkey;
	slot_become(s, SLOT_OPEN);
	s->touched = true;
	return 0;
}

/* A slot that is bound is announced in the same message; otherwise its client would not know about it. */
void node_staging_announce(struct client *k)
{
	struct node_slot opened[NODE_SLOTS];
	struct pool_answer answer = {.op = POOL_OP_STAGING, .bytes = opened};
	size_t room = NODE_MESSAGE - k->used;
	unsigned int count = 0;

	if (!k->slice || k->conn.over || room < POOL_ANSWER_HEADER + sizeof(opened))
		return;
	for (unsigned int i = 0; i < NODE_SLOTS; i++) {
		struct stage_slot *s = &k->slice->slots[i];

		if (s->state == SLOT_SHUT && open_slot(k, s) == 0)
			opened[count++] = (struct node_slot){i, s->rkey};
	}
	answer.length = count * (uint32_t)sizeof(*opened);
	if (count != 0)
		pool_message_answer(k->writing->bytes, NODE_MESSAGE, &k->used, &answer);
}

/* Shuts the slots whose records every node has applied: they can be opened, and overwritten, again. */
void node_staging_release(struct stag_pool_node *n)
{
	struct list *taken = &n->memory.staging.taken;

	while (!list_empty(taken)) {
		struct stage_slot *s = list_entry(taken->next, struct stage_slot, link);

		if (s->end > n->memory.log.tail)
			return;
		list_del(&s->link);
		if (!s->asking)
			slot_become(s, SLOT_SHUT);
	}
}

/* ---- incoming values ----------------------------------------------------------------------------- */

/*
 * Returns the slot that a request refers to: the one whose window its message, or an earlier attempt, has
 * invalidated.
 */
static struct stage_slot *find_slot(struct client *k, const struct node_message *m,
				    const struct pool_request *rq)
{
	uint64_t at = rq->source_address - (uintptr_t)k->conn.node->memory.staging.at;

	for (unsigned int i = 0; k->slice && i < NODE_SLOTS; i++) {
		struct stage_slot *s = &k->slice->slots[i];

		if (slot_offset(s) != at || rq->length > slot_size(s))
			continue;
		if (s->state == SLOT_TAKEN && s->asking == m)
			return s;
		return s->state == SLOT_OPEN && s->rkey == m->invalidated ? s : NULL;
	}
	return NULL;
}

void node_staging_refuse(struct client *k, const struct node_message *m,
			 const struct pool_request *rq)
{
	struct stage_slot *s = find_slot(k, m, rq);

	if (!s)
		return;
	s->asking = NULL;	  /* an earlier attempt had to wait, and is not tried again */
	if (list_empty(&s->link)) /* otherwise it is shut when its records are applied */
		slot_become(s, SLOT_SHUT);
}

/* Makes a record without a value in it. */
static int make_record(struct client *k, const struct pool_request *rq, bool begin,
		       const struct pool_staged *staged, struct pool_answer *answer)
{
	struct stag_pool_node *n = k->conn.node;
	size_t room, used;
	void *at = serve_record_room(n, POOL_RECORD_META, &room);
	int rc;

	if (!at)
		return -EAGAIN;
	if (begin)
		rc = pool_upload_begin(&n->serve.core, &k->who, rq, at, room, &used, answer);
	else
		rc = pool_upload_staged(&n->serve.core, &k->who, rq->sequence, rq->length, staged,
					at, room, &used);
	if (rc == 0)
		pool_log_add(&n->memory.log, used);
	return rc;
}

/* Uploads a value that is too long for one record. If it has to wait in between, it starts again, at the same place. */
static int upload_staged(struct client *k, struct pool_request *rq, uint64_t came)
{
	struct pool_staged staged = {rq->source_address, pool_hash(rq->value, rq->length)};
	struct stag_pool_node *n = k->conn.node;
	struct pool_answer answer;
	int rc;

	if (!role_may_change(&n->role, n->now))
		return -EAGAIN;
	rc = make_record(k, rq, true, NULL, &answer);
	if (rc == 0 && answer.status != EINPROGRESS)
		return serve_reply(k, &answer);
	if (rc == 0)
		rc = make_record(k, rq, false, &staged, NULL);
	if (rc != 0)
		return rc;
	rq->flags |= POOL_UPLOADED;
	rq->hash = staged.hash;
	return serve_change(k, rq, came, &answer);
}

/* Standbys to which the adapter does not forward have old bytes in the slot. */
static void note_unforwarded(struct stag_pool_node *n, struct stage_slot *s, uint32_t length)
{
	s->length = length;
	for (unsigned int seat = 0; seat < ROLL_MAX_NODES; seat++)
		if (n->standbys.links[seat] && !n->standbys.links[seat]->mirrors)
			n->standbys.links[seat]->same[s->index] = false;
}

/* Notes the end of the records that refer to the slot, or shuts the slot if there is none. */
static void note_end(struct stag_pool_node *n, struct stage_slot *s, uint32_t length,
		     uint64_t before)
{
	if (n->memory.log.put != before) {
		s->end = n->memory.log.put;
		note_unforwarded(n, s, length);
		list_del(&s->link);
		list_add_tail(&n->memory.staging.taken, &s->link);
	} else if (!s->asking && list_empty(&s->link)) {
		slot_become(s, SLOT_SHUT);
	}
}

int node_staging_change(struct client *k, struct node_message *m, const struct pool_request *asked)
{
	struct stag_pool_node *n = k->conn.node;
	struct stage_slot *s = find_slot(k, m, asked);
	struct pool_request rq = *asked;
	struct pool_answer answer;
	uint64_t before = n->memory.log.put;
	int rc;

	if (!s)
		return -EPROTO;
	rq.source_address = slot_offset(s);
	rq.value = n->memory.staging.at + slot_offset(s);
	slot_become(s, SLOT_TAKEN);
	rc = rq.length > POOL_DIRECT_MAX ? upload_staged(k, &rq, m->came)
					 : serve_change(k, &rq, m->came, &answer);
	s->asking = rc == -EAGAIN ? m : NULL;
	if (rc == 0)
		n->info.mirrored_bytes += rq.length;
	note_end(n, s, rq.length, before);
	return rc;
}

/* ---- standbys ------------------------------------------------------------------------------------ */

static void slot_sent(struct node_work *w, const struct ibv_wc *wc)
{
	(void)wc;
	container_of(w, struct standby, caught)->catching--;
}

/* Forwards the writes of the clients in each domain. */
static int start_forwarding(struct stag_pool_node *n, const struct stagdv_mirror *mirror)
{
	int rc = 0;

	for (unsigned int d = 0; d < NODE_DOMAINS && rc == 0; d++)
		rc = n->adapter.dv->mirror(n->memory.staging.mr[d], mirror);
	return rc;
}

static void stop_forwarding(struct stag_pool_node *n, struct ibv_qp *qp)
{
	for (unsigned int d = 0; d < NODE_DOMAINS; d++)
		n->adapter.dv->unmirror(n->memory.staging.mr[d], qp);
}

int node_staging_mirror(struct standby *l)
{
	struct stag_pool_node *n = l->conn.node;
	struct stagdv_mirror mirror = {.qp = l->conn.id->qp,
				       .remote_addr = l->hello.staging,
				       .rkey = l->hello.staging_rkey};
	int rc;

	if (!n->memory.staging.at)
		return 0;
	l->caught = (struct node_work){slot_sent, &l->conn};
	for (unsigned int i = 0; i < STAGING_SLOTS; i++)
		l->same[i] =
			!n->memory.staging.slices[i / NODE_SLOTS].slots[i % NODE_SLOTS].touched;
	rc = start_forwarding(n, &mirror);
	l->mirrors = rc == 0;
	if (rc == 0)
		return 0;
	stop_forwarding(n, mirror.qp);
	if (rc == EOPNOTSUPP) {
		node_log(n, LOG_LEVEL_INFO, "values are forwarded to %s by software", l->name);
		return 0;
	}
	node_log(n, LOG_LEVEL_WARN, "values cannot be forwarded to %s: %s", l->name, strerror(rc));
	return -rc;
}

void node_staging_unmirror(struct standby *l)
{
	if (l->mirrors)
		stop_forwarding(l->conn.node, l->conn.id->qp);
	l->mirrors = false;
}

static int send_slot(struct standby *l, const struct stage_slot *s)
{
	struct stag_pool_node *n = l->conn.node;
	struct ibv_sge sge = {(uintptr_t)n->memory.staging.at + slot_offset(s),
			      l->mirrors ? slot_size(s) : s->length, l->staging_mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)&l->caught,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {l->hello.staging + slot_offset(s), l->hello.staging_rkey}};

	int rc = l->catching < STAGING_SENDS ? node_conn_post(&l->conn, &wr) : -ENOMEM;

	l->catching += rc == 0;
	return rc;
}

bool node_staging_catch_up(struct standby *l)
{
	struct list *taken = &l->conn.node->memory.staging.taken;

	for (struct list *it = taken->prev; it != taken; it = it->prev) {
		const struct stage_slot *s = list_entry(it, struct stage_slot, link);

		if (s->end <= l->sent)
			break;
		if (!l->same[s->index] && send_slot(l, s) != 0)
			return false;
		l->same[s->index] = true;
	}
	return true;
}
