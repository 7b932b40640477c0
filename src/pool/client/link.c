// SPDX-License-Identifier: BSD-2-Clause
/*
 * link.c - the connection to the primary: device resources, queue pair, completions.
 *
 * When a link is lost, its queue pair is destroyed before any operation in flight is touched again, so that no
 * transfer writes to the program's memory later.
 */
#include "pool/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/nonblock.h"

#define ARMED_POLLS 4 /* polls of an armed queue, before it is armed again */

/* ---- the device -------------------------------------------------------------------------- */

static int make_queues(struct stag_pool *p)
{
	int size = (int)(p->conf.depth + 3 * NODE_DEPTH + CLIENT_PIECES + 16);

	p->device.pd = ibv_alloc_pd(p->device.verbs);
	p->device.channel = p->device.pd ? ibv_create_comp_channel(p->device.verbs) : NULL;
	if (!p->device.channel)
		return -errno;
	p->device.cq = ibv_create_cq(p->device.verbs, size, NULL, p->device.channel, 0);
	if (!p->device.cq || set_nonblocking(p->device.channel->fd) != 0)
		return -errno;
	return client_watch(p, p->device.channel->fd);
}

static int make_messages(struct stag_pool *p)
{
	size_t size = (size_t)NODE_DEPTH * NODE_MESSAGE;

	p->device.receives_mr =
		ibv_reg_mr(p->device.pd, p->device.receives, size, IBV_ACCESS_LOCAL_WRITE);
	p->device.messages_mr =
		ibv_reg_mr(p->device.pd, p->device.messages_at, size, IBV_ACCESS_LOCAL_WRITE);
	return p->device.receives_mr && p->device.messages_mr ? 0 : -errno;
}

static void free_mr(struct ibv_mr **mr)
{
	if (*mr)
		ibv_dereg_mr(*mr);
	*mr = NULL;
}

void link_free_device(struct stag_pool *p)
{
	memory_deregister_all(p);
	free_mr(&p->device.receives_mr);
	free_mr(&p->device.messages_mr);
	if (p->device.cq)
		ibv_destroy_cq(p->device.cq);
	if (p->device.channel)
		ibv_destroy_comp_channel(p->device.channel);
	if (p->device.pd)
		ibv_dealloc_pd(p->device.pd);
	p->device.cq = NULL;
	p->device.channel = NULL;
	p->device.pd = NULL;
	p->device.verbs = NULL;
	p->device.armed = p->device.rang = false;
}

static uint8_t reads_of(struct ibv_context *context)
{
	struct ibv_device_attr attr;

	if (ibv_query_device(context, &attr) != 0)
		return 1;
	return (uint8_t)(attr.max_qp_init_rd_atom < (int)NODE_READS ? attr.max_qp_init_rd_atom
								    : (int)NODE_READS);
}

int link_use_device(struct stag_pool *p, struct ibv_context *verbs)
{
	int rc;

	if (p->device.verbs == verbs)
		return 0;
	if (p->link.id)
		return -EBUSY; /* the link uses another device */
	link_free_device(p);
	p->device.verbs = verbs;
	p->device.reads = reads_of(verbs);
	rc = make_queues(p);
	if (rc == 0)
		rc = make_messages(p);
	if (rc == 0)
		rc = memory_register_all(p);
	if (rc != 0) {
		pool_fail(-rc, "the device cannot be used: %s", strerror(-rc));
		link_free_device(p);
	}
	return rc;
}

/* ---- the queue pair ----------------------------------------------------------------------- */

static int post_receive(struct stag_pool *p, struct ibv_qp *qp, uint32_t index)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(p->device.receives + (size_t)index * NODE_MESSAGE),
		.length = NODE_MESSAGE,
		.lkey = p->device.receives_mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECEIVE, index), .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return -ibv_post_recv(qp, &wr, &bad);
}

int link_make_qp(struct stag_pool *p, struct rdma_cm_id *id, bool for_hello)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = p->device.cq,
		.recv_cq = p->device.cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = for_hello ? 1
						 : p->conf.depth + NODE_DEPTH + CLIENT_PIECES +
							   NODE_SLOTS + 8,
			.max_recv_wr = for_hello ? 1 : NODE_DEPTH,
			.max_send_sge = 2,
			.max_recv_sge = 1},
	};
	int rc = 0;

	if (rdma_create_qp(id, p->device.pd, &attr) != 0)
		return -errno;
	for (uint32_t i = 0; !for_hello && i < NODE_DEPTH && rc == 0; i++)
		rc = post_receive(p, id->qp, i);
	return rc;
}

/* ---- the link ------------------------------------------------------------------------------ */

/*
 * Returns whether one-shot sends work on this connection. If a region's key stands in for an STag, the node is
 * told that key instead.
 */
static bool speaks_one_shot(const struct stag_pool *p, struct ibv_qp *qp)
{
	struct stagdv_qp_attr attr = {0};

	return p->conf.dv && dv_query_peer(p->conf.dv, qp, &attr) == 0 &&
	       attr.one_shot != STAGDV_ONE_SHOT_NONE && attr.one_shot < STAGDV_ONE_SHOT_REGION;
}

/* Discards the completions of a queue pair that was destroyed. */
static void discard_completions(struct stag_pool *p)
{
	struct ibv_wc wc[CLIENT_BATCH];

	while (p->device.cq && ibv_poll_cq(p->device.cq, CLIENT_BATCH, wc) > 0)
		p->device.rang = true;
}

void link_close(struct stag_pool *p)
{
	struct client_link *l = &p->link;

	if (!l->id)
		return;
	rdma_disconnect(l->id);
	rdma_destroy_qp(l->id);
	discard_completions(p);
	rdma_destroy_id(l->id);
	*l = (struct client_link){.stage = LINK_SEEKING};
}

void link_lost(struct stag_pool *p, uint64_t now)
{
	if (p->link.stage == LINK_UP) {
		log_info("pool: the primary at %s is lost", p->link.peer->address);
		p->counts.failovers++;
	}
	if (p->link.id)
		seek_note_end(p->link.peer, now - p->link.since);
	link_close(p);
	read_lost(p);
	ask_lost(p);
	client_op_requeue(p, now);
	seek_start(p, now);
}

void link_adopt(struct stag_pool *p, struct client_peer *peer, uint64_t now)
{
	if (p->link.id)
		link_lost(p, now);
	log_info("pool: admitted by %s", peer->address);
	p->link = (struct client_link){
		.stage = LINK_ATTACHING,
		.id = peer->id,
		.peer = peer,
		.one_shot = speaks_one_shot(p, peer->id->qp),
		.since = now,
		.epoch = peer->claimed,
		.heard = now,
		.quiet = QUIET_NS,
	};
	peer->id = NULL;
	peer->stage = CALL_NONE;
	p->nodes.calls--;
	if (ask_attach(p) != 0)
		link_lost(p, now);
}

/*
 * A node that has proven itself may still be wrong: check that everything that we will access is inside the region
 * that it describes.
 */
static bool are_facts_valid(const struct node_facts *f)
{
	return f->size >= POOL_MIN_SIZE && f->size <= POOL_MAX_SIZE &&
	       f->address <= UINT64_MAX - f->size && f->index_at <= f->size &&
	       (f->staging_length == 0 || (f->staging_length == NODE_SLICE &&
					   f->staging_address <= UINT64_MAX - NODE_SLICE)) &&
	       f->num_buckets != 0 &&
	       f->num_buckets <= (f->size - f->index_at) / sizeof(struct pool_bucket);
}

static int read_facts(struct stag_pool *p, const struct pool_message *message,
		      const struct pool_answer *answer)
{
	struct node_facts facts;

	if (answer->length < sizeof(facts))
		return -EPROTO;
	memcpy(&facts, answer->bytes, sizeof(facts));
	if (!are_facts_valid(&facts) || message->epoch < p->nodes.epoch)
		return -EPROTO;
	p->link.facts = facts;
	p->link.epoch = p->nodes.epoch = message->epoch;
	p->counts.rights = facts.rights;
	p->counts.limited = (facts.flags & NODE_LIMITED) != 0;
	return 0;
}

void link_attached(struct stag_pool *p, const struct pool_message *message,
		   const struct pool_answer *answer)
{
	uint64_t now = clock_ns();
	int rc;

	if (answer->status == ESTALE && p->self.enrolled) {
		ask_forgotten(p);
		if (ask_attach(p) != 0)
			link_lost(p, now);
		return;
	}
	rc = answer->status == 0 ? read_facts(p, message, answer) : -(int)answer->status;
	if (rc != 0) {
		p->nodes.refused =
			pool_fail(-rc, "%s: attach: %s", p->link.peer->address, strerror(-rc));
		link_lost(p, now);
		return;
	}
	p->self.enrolled = !(p->link.facts.flags & NODE_ENROLS);
	p->nodes.lost = false;
	p->nodes.refused = 0;
	p->nodes.sought = 0;
	p->link.stage = LINK_UP;
	seek_stop(p);
	log_info("pool: the primary is at %s, epoch %llu", p->link.peer->address,
		 (unsigned long long)p->nodes.epoch);
}

void link_enrolled(struct stag_pool *p, const struct pool_message *message,
		   const struct pool_answer *answer)
{
	p->link.enrolling = false;
	if (answer->status != 0)
		ask_not_enrolled(p, (int)answer->status);
	else if (read_facts(p, message, answer) == 0)
		p->self.enrolled = true;
	else
		link_lost(p, clock_ns());
}

/* ---- completions ----------------------------------------------------------------------------- */

static bool handle_receive(struct stag_pool *p, const struct ibv_wc *wc, uint32_t index)
{
	struct ibv_qp *qp = p->link.id->qp;

	if (p->conf.dv && (wc->wc_flags & STAGDV_WC_CLOSED))
		ask_closed(p, wc->invalidated_rkey);
	if (!ask_handle_message(p, p->device.receives + (size_t)index * NODE_MESSAGE, wc->byte_len))
		return false;
	/* An answer may have ended the link. */
	return !p->link.id || p->link.id->qp != qp || post_receive(p, qp, index) == 0;
}

/* Returns false if the link has ended. */
static bool handle_completion(struct stag_pool *p, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)(wc->wr_id >> 8);

	if (wc->status != IBV_WC_SUCCESS)
		return false;
	switch ((enum wr_kind)(wc->wr_id & 0xff)) {
	case WR_RECEIVE:
		return handle_receive(p, wc, index);
	case WR_MESSAGE:
		ask_sent(p, index);
		return true;
	case WR_READ:
	case WR_BODY:
		read_arrived(p, index, (wc->wr_id & 0xff) == WR_BODY);
		return true;
	}
	return false;
}

/*
 * Returns whether a completion shows that the node is alive. A completed send says nothing about the node. A
 * completed read says nothing about the node's software, which must be alive if its adapter does not enforce
 * the lease.
 */
static bool is_sign_of_life(const struct stag_pool *p, const struct ibv_wc *wc)
{
	unsigned int kind = wc->wr_id & 0xff;

	return kind == WR_RECEIVE || (kind == WR_READ && !(p->link.facts.flags & NODE_UNLEASED));
}

bool link_poll(struct stag_pool *p, uint64_t now)
{
	struct ibv_wc wc[CLIENT_BATCH];
	const struct rdma_cm_id *id = p->link.id;
	int n = id ? ibv_poll_cq(p->device.cq, CLIENT_BATCH, wc) : 0;

	p->device.polls++;
	p->device.rang |= n > 0;
	for (int i = 0; i < n; i++) {
		if (wc[i].qp_num != id->qp->qp_num)
			continue;
		if (!handle_completion(p, &wc[i])) {
			link_lost(p, now);
			return true;
		}
		if (p->link.id != id)
			return true;
		if (is_sign_of_life(p, &wc[i])) {
			p->link.heard = now;
			p->link.quiet = QUIET_NS;
		}
	}
	return n == CLIENT_BATCH; /* there may be more */
}

/*
 * Arms the completion queue, unless it is armed and has not signalled since. After ARMED_POLLS polls it is
 * armed again all the same: a software adapter may take a caller that keeps polling for one that never sleeps,
 * and not wake it.
 */
bool link_arm(struct stag_pool *p)
{
	struct ibv_cq *cq;
	void *context;

	if (!p->device.cq || (p->device.armed && !p->device.rang && p->device.polls < ARMED_POLLS))
		return true;
	if (ibv_get_cq_event(p->device.channel, &cq, &context) == 0)
		ibv_ack_cq_events(cq, 1);
	p->device.rang = false;
	p->device.polls = 0;
	p->device.armed = ibv_req_notify_cq(p->device.cq, 0) == 0;
	return false; /* a completion that came before the queue was armed does not signal */
}
