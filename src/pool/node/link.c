// SPDX-License-Identifier: BSD-2-Clause
/*
 * link.c - a primary and its standbys: records to their rings, confirmations.
 *
 * All records of a round go in one RDMA Write (two where the ring wraps), followed by an RDMA Read: the standby's
 * adapter answers the read after it has placed what came before. So the completion of the read confirms the
 * records, without waiting for the standby's software.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/histogram.h"
#include "base/log.h"

static struct standby *to_link(struct node_conn *c)
{
	return container_of(c, struct standby, conn);
}

int link_send(struct standby *l, const union link_message *said)
{
	struct node_message *m = node_conn_message(&l->conn);
	int rc;

	if (!m) {
		node_conn_leave(&l->conn);
		return -ENOBUFS;
	}
	rc = link_message_write(said, l->conn.node->role.epoch, m->bytes, NODE_MESSAGE);
	if (rc < 0) {
		node_conn_leave(&l->conn);
		return rc;
	}
	m->length = (uint32_t)rc;
	return node_conn_send(&l->conn, m);
}

/* ---- connecting ---------------------------------------------------------------------------- */

static bool matches_our_memory(const struct link_hello *h, const struct stag_pool_node *n)
{
	return h->ring_size == n->memory.log.size &&
	       (h->staging != 0) == (n->memory.staging.at != NULL);
}

static void send_welcome(struct standby *l, bool resync)
{
	struct stag_pool_node *n = l->conn.node;
	union link_message said = {.welcome = {.what = LINK_WELCOME,
					       .resync = resync,
					       .echo = (uintptr_t)&l->own->echo,
					       .region = n->memory.region.address,
					       .echo_rkey = l->own_mr->rkey,
					       .region_rkey = l->region_mr->rkey,
					       .position = n->memory.settled,
					       .number = pool_superblock(&n->memory.region)->number,
					       .epoch = pool_superblock(&n->memory.region)->epoch,
					       .seat = (uint32_t)l->seat,
					       .features = LINK_KNOWS_SECRETS | LINK_TAKES_EVENTS}};

	memcpy(said.welcome.life, n->proof.own.token, sizeof(said.welcome.life));
	if (node_staging_mirror(l) != 0) {
		node_conn_leave(&l->conn);
		return;
	}
	l->sent = l->applied = n->memory.settled;
	l->number = said.welcome.number;
	link_send(l, &said);
	if (l->hello.features & LINK_KNOWS_SECRETS) {
		said = secrets_to_tell(n);
		link_send(l, &said);
	}
}

static void stop_waiting(struct standby *l)
{
	l->conn.node->standbys.num_waiting -= l->waiting;
	l->waiting = false;
}

static void link_up(struct standby *l, unsigned int seat)
{
	struct stag_pool_node *n = l->conn.node;
	int rc;

	if (n->standbys.links
		    [seat]) { /* its old link is still here: end both, and let the standby retry */
		node_conn_leave(&n->standbys.links[seat]->conn);
		node_conn_leave(&l->conn);
		return;
	}
	ROLE_EVENT(n, rc = role_link_up(&n->role, n->now, seat, l->hello.synced, l->hello.epoch,
					l->hello.number));
	if (rc != 0) {
		node_conn_leave(&l->conn);
		node_act(n);
		return;
	}
	l->seat = (int)seat;
	stop_waiting(l);
	n->standbys.links[seat] = l;
	pulse_set_standby(n, seat, l);
	send_welcome(l, !n->role.peers[seat].ready);
	node_log(n, LOG_LEVEL_INFO, "%s is linked, in seat %u%s", l->name, seat,
		 n->role.peers[seat].ready ? "" : ", to be resynchronised");
	node_act(n);
}

/* Finds the seat of a member whose name and address are as in the roll; otherwise the roll must be changed first. */
static void find_seat(struct standby *l)
{
	struct stag_pool_node *n = l->conn.node;
	struct roll_member m = {.order = l->hello.order};
	int seat = roll_seat(&n->role.roll, l->name), rc;

	memcpy(m.name, l->name, sizeof(m.name));
	memcpy(m.address, l->hello.address, strnlen(l->hello.address, sizeof(m.address) - 1));
	if (seat >= 0 && memcmp(&n->role.roll.members[seat], &m, sizeof(m)) == 0) {
		link_up(l, (unsigned int)seat);
		return;
	}
	n->standbys.num_waiting += !l->waiting;
	l->waiting = true;
	ROLE_EVENT(n, rc = role_join(&n->role, n->now, &m));
	if (rc == -ENOSPC) {
		node_log(n, LOG_LEVEL_WARN,
			 "all seats are taken, %s cannot join: forget a node that will not return",
			 l->name);
		node_conn_leave(&l->conn);
	}
	node_act(n);
}

/* Takes the name over, if it is of the mark with which the node was admitted. */
static bool takes_name(struct standby *l, const char *name)
{
	uint8_t mark[ADMIT_MARK_LEN];

	if (!admit_mark_name(name, mark) || memcmp(mark, l->mark, sizeof(mark)) != 0)
		return false;
	strcpy(l->name, name);
	return true;
}

static void handle_hello(struct standby *l, const struct link_hello *hello)
{
	if (l->seat >= 0 || l->waiting || !takes_name(l, hello->name) ||
	    !matches_our_memory(hello, l->conn.node)) {
		node_conn_leave(&l->conn);
		return;
	}
	l->hello = *hello;
	find_seat(l);
}

static void handle_event(struct standby *l, const struct link_event *heard)
{
	union link_message said = {.number = {.what = LINK_EVENT_TAKEN}};

	events_take(l->conn.node, &heard->event);
	link_send(l, &said);
}

static void standby_received(struct node_conn *c, struct node_message *m)
{
	struct standby *l = to_link(c);
	struct stag_pool_node *n = c->node;
	union link_message heard;
	uint64_t epoch;

	if (link_message_read(m->bytes, m->length, &heard, &epoch) != 0 || !n->serve.running) {
		node_conn_leave(c);
		return;
	}
	node_conn_receive(c, m);
	if (heard.what == LINK_HELLO) {
		handle_hello(l, &heard.hello);
	} else if (l->seat < 0 || epoch != n->role.epoch) {
		node_conn_leave(c);
	} else if (heard.what == LINK_EVENT) {
		handle_event(l, &heard.event);
	} else if (heard.what == LINK_SYNCED) {
		ROLE_EVENT(n, role_resynced(&n->role, n->now, (unsigned int)l->seat,
					    heard.number.number));
		/* role_resynced() has reset the number to the standby's: report the last confirmation again. */
		ROLE_EVENT(n,
			   role_confirmed(&n->role, n->now, (unsigned int)l->seat, l->confirmed));
		node_act(n);
	} else if (heard.what == LINK_SECRETS) {
		l->secrets = heard.secrets;
	} else {
		copy_answer(l, &heard);
	}
}

/* ---- disconnecting -------------------------------------------------------------------------- */

static void standby_event(struct node_conn *c, struct rdma_cm_event *e)
{
	if (e->event == RDMA_CM_EVENT_ESTABLISHED)
		c->up = true;
	else
		node_conn_leave(c);
}

static void standby_ended(struct node_conn *c)
{
	struct standby *l = to_link(c);
	struct stag_pool_node *n = c->node;

	stop_waiting(l);
	node_staging_unmirror(l);
	if (l->seat < 0 || n->standbys.links[l->seat] != l)
		return;
	n->standbys.links[l->seat] = NULL;
	pulse_set_standby(n, (unsigned int)l->seat, NULL);
	node_log(n, LOG_LEVEL_INFO, "%s is disconnected", l->name);
	if (n->serve.running)
		ROLE_EVENT(n, role_link_down(&n->role, node_read_clock(n), (unsigned int)l->seat));
	node_act(n);
}

static void free_memory(struct standby *l)
{
	if (l->staging_mr)
		ibv_dereg_mr(l->staging_mr);
	if (l->own_mr)
		ibv_dereg_mr(l->own_mr);
	if (l->region_mr)
		ibv_dereg_mr(l->region_mr);
	if (l->log_mr)
		ibv_dereg_mr(l->log_mr);
	if (l->pd)
		ibv_dealloc_pd(l->pd);
	free(l->own);
	free(l);
}

static void free_link(struct node_conn *c)
{
	free_memory(to_link(c));
}

static const struct node_conn_ops ops = {.event = standby_event,
					 .received = standby_received,
					 .ended = standby_ended,
					 .free = free_link};

void link_cut(struct stag_pool_node *n, unsigned int seat)
{
	struct standby *l = n->standbys.links[seat];

	if (!l)
		return;
	n->standbys.links[seat] = NULL;
	pulse_set_standby(n, seat, NULL);
	node_log(n, LOG_LEVEL_INFO, "disconnecting %s", l->name);
	node_conn_leave(&l->conn);
}

void links_end(struct stag_pool_node *n)
{
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		link_cut(n, s);
	list_for_each_safe (it, &n->conns)
		if (list_entry(it, struct node_conn, link)->ops == &ops)
			node_conn_leave(list_entry(it, struct node_conn, link));
}

/* ---- accepting -------------------------------------------------------------------------------- */

static int register_memory(struct standby *l)
{
	struct stag_pool_node *n = l->conn.node;

	l->own = calloc(1, sizeof(*l->own));
	l->pd = ibv_alloc_pd(n->adapter.context);
	if (!l->own || !l->pd)
		return -ENOMEM;
	l->log_mr = ibv_reg_mr(l->pd, n->memory.log.at, n->memory.log.size, 0);
	l->region_mr = ibv_reg_mr(l->pd, n->memory.region.at, n->memory.region.size,
				  IBV_ACCESS_REMOTE_READ);
	l->own_mr = ibv_reg_mr(l->pd, l->own, sizeof(*l->own),
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (n->memory.staging.at)
		l->staging_mr =
			ibv_reg_mr(l->pd, n->memory.staging.at, n->memory.staging_length, 0);
	return l->log_mr && l->region_mr && l->own_mr && (l->staging_mr || !n->memory.staging.at)
		       ? 0
		       : -ENOMEM;
}

_Static_assert(sizeof(struct link_facts) <= ADMIT_FACTS_MAX, "private data");

static int accept_standby(struct standby *l, const struct admit_session *s)
{
	struct stag_pool_node *n = l->conn.node;
	struct link_facts facts = {.log_size = n->memory.log.size,
				   .flags = n->conf.flags & STAG_POOL_OVERWRITE,
				   .staging = (uint32_t)(n->memory.staging_length / POOL_PAGE),
				   .lease_us = lease_in_us(n->role.times.lease.lease),
				   .promote_us = lease_in_us(n->role.times.lease.promote)};
	uint8_t greeting[ADMIT_MAX];
	struct rdma_conn_param param = {.private_data = greeting,
					.responder_resources = n->adapter.reads,
					.initiator_depth = n->adapter.reads};
	int len;

	memcpy(facts.superblock, n->memory.region.at, POOL_FIXED);
	len = admit_make_welcome(n->admit, s, &facts, sizeof(facts), greeting);
	if (len < 0)
		return len;
	param.private_data_len = (uint8_t)len;
	return rdma_accept(l->conn.id, &param) == 0 ? 0 : -errno;
}

/* From here on the link owns the id: a failure ends the link. */
int link_accept(struct stag_pool_node *n, struct rdma_cm_id *id, const struct admit_session *s)
{
	struct standby *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	node_conn_begin(&l->conn, n, &ops, id);
	l->seat = -1;
	l->window = LINK_BODIES / 2;
	memcpy(l->name, s->name, sizeof(l->name));
	memcpy(l->mark, s->mark, sizeof(l->mark));
	rc = register_memory(l);
	if (rc == 0)
		rc = node_conn_prepare(&l->conn, &n->adapter.links, l->pd, LINK_DEPTH,
				       3 * LINK_CONFIRMS + LINK_BODIES + STAGING_SENDS + 16);
	if (rc == 0)
		rc = accept_standby(l, s);
	if (rc != 0) {
		node_log(n, LOG_LEVEL_WARN, "%s cannot connect: %s", l->name, strerror(-rc));
		node_conn_leave(&l->conn);
	}
	return 0;
}

/* ---- heartbeats and echoes ------------------------------------------------------------------------- */

void link_handover(struct stag_pool_node *n, const struct role_action *a)
{
	union link_message said = {.number = {.what = LINK_HANDOVER,
					      .leaves = n->switchover.leaves,
					      .number = a->number,
					      .revision = a->revision}};

	if (n->standbys.links[a->seat])
		link_send(n->standbys.links[a->seat], &said);
}

/* Reads the echo first, the clock then (role.h). */
static void read_echo(struct stag_pool_node *n, struct standby *l)
{
	struct link_echo echo;

	memcpy(&echo, &l->own->echo, sizeof(echo));
	atomic_thread_fence(memory_order_acquire);
	if (echo.check != link_check(&echo, sizeof(echo) / 8))
		return;
	if (echo.applied > l->applied && echo.applied <= l->sent) {
		l->applied = echo.applied;
		l->number = echo.number;
		n->loop.busy = true;
	}
	if (echo.sent <= l->echoed)
		return;
	l->echoed = echo.sent;
	ROLE_EVENT(n, role_echoed(&n->role, node_read_clock(n), (unsigned int)l->seat, echo.epoch,
				  echo.sent));
	node_act(n);
}

void links_poll(struct stag_pool_node *n)
{
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (n->standbys.links[s] && !n->standbys.links[s]->conn.over)
			read_echo(n, n->standbys.links[s]);
	if (n->standbys.num_waiting == 0)
		return; /* a walk over a thousand clients' connections in each round costs too much */
	list_for_each_safe (it, &n->conns) {
		struct node_conn *c = list_entry(it, struct node_conn, link);

		if (c->ops == &ops && to_link(c)->waiting && n->serve.running)
			find_seat(to_link(c));
	}
}

/* ---- records ------------------------------------------------------------------------------------------ */

static void confirm_done(struct node_work *w, const struct ibv_wc *wc)
{
	struct link_confirm *k = (struct link_confirm *)w;
	struct standby *l = to_link(w->conn);
	struct stag_pool_node *n = w->conn->node;

	(void)wc;
	k->busy = false;
	l->confirmed = k->number;
	body_confirmed(l, k->bodies, n->now - k->at);
	if (!n->serve.running || n->standbys.links[l->seat] != l)
		return;
	ROLE_EVENT(n, role_confirmed(&n->role, n->now, (unsigned int)l->seat, k->number));
	node_act(n);
}

static struct link_confirm *free_confirm(struct standby *l)
{
	for (unsigned int i = 0; i < LINK_CONFIRMS; i++)
		if (!l->confirms[i].busy)
			return &l->confirms[i];
	return NULL;
}

static int write_segments(struct standby *l, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct pool_log *log = &l->conn.node->memory.log;
	struct pool_segment segments[2];
	int k = pool_log_segments(log->size, l->sent, log->put, segments);

	for (int i = 0; i < k; i++) {
		sge[i] = (struct ibv_sge){(uintptr_t)log->at + segments[i].offset,
					  (uint32_t)segments[i].length, l->log_mr->lkey};
		wr[i] = (struct ibv_send_wr){
			.wr_id = (uintptr_t)&l->conn.lost,
			.next = &wr[i + 1],
			.sg_list = &sge[i],
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {l->hello.ring + segments[i].offset, l->hello.ring_rkey}};
	}
	return k;
}

static void send_records(struct stag_pool_node *n, struct standby *l)
{
	struct link_confirm *confirm = free_confirm(l);
	struct ibv_send_wr wr[3];
	struct ibv_sge sge[3];
	uint64_t *sink;
	int k;

	if (l->sent == n->memory.log.put || !confirm || l->conn.over || !node_staging_catch_up(l))
		return;
	k = write_segments(l, wr, sge);
	sink = &l->own->sink[confirm - l->confirms];
	sge[k] = (struct ibv_sge){(uintptr_t)sink, sizeof(*sink), l->own_mr->lkey};
	wr[k] = (struct ibv_send_wr){.wr_id = (uintptr_t)&confirm->work,
				     .sg_list = &sge[k],
				     .num_sge = 1,
				     .opcode = IBV_WR_RDMA_READ,
				     .send_flags = IBV_SEND_SIGNALED,
				     .wr.rdma = {l->hello.beat, l->hello.beat_rkey}};
	confirm->work = (struct node_work){confirm_done, &l->conn};
	confirm->number = n->serve.core.number;
	confirm->bodies = l->bodies;
	confirm->at = n->now;
	if (node_conn_post(&l->conn, wr) != 0)
		return;
	confirm->busy = true;
	n->info.record_bytes += n->memory.log.put - l->sent;
	l->sent = n->memory.log.put;
}

/* Times one record at a time, and only while standbys are in sync. */
static void begin_timing(struct stag_pool_node *n, uint64_t number)
{
	if (n->standbys.timed.number || !(n->role.roll.in_sync & ~ROLL_BIT(n->role.seat)))
		return;
	n->standbys.timed.number = number;
	n->standbys.timed.since = n->now;
}

void links_acknowledged(struct stag_pool_node *n, uint64_t number)
{
	if (!n->standbys.timed.number || number < n->standbys.timed.number)
		return;
	n->standbys.timed.number = 0;
	histogram_count(&n->info.replication_times, n->now - n->standbys.timed.since);
}

void links_send(struct stag_pool_node *n)
{
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (n->standbys.links[s])
			send_records(n, n->standbys.links[s]);
	if (n->serve.core.number == n->memory.posted)
		return;
	n->info.records += n->serve.core.number - n->memory.posted;
	n->memory.posted = n->serve.core.number;
	node_read_clock(n);
	begin_timing(n, n->memory.posted);
	ROLE_EVENT(n, role_placed(&n->role, n->now, n->serve.core.number));
	node_act(n);
}

/* ---- room in the log ---------------------------------------------------------------------------------------- */

static struct standby *slowest(struct stag_pool_node *n)
{
	struct standby *l = NULL;

	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (n->standbys.links[s] && (!l || n->standbys.links[s]->applied < l->applied))
			l = n->standbys.links[s];
	return l;
}

/* Drops a standby for which the log has been full for too long. */
static void check_slowest(struct stag_pool_node *n, struct standby *l)
{
	bool full =
		n->memory.log.put - n->memory.log.tail > n->memory.log.size - 2 * POOL_RECORD_MAX;

	if (!full || l->applied > n->memory.log.tail) {
		n->memory.full_since = 0;
		return;
	}
	if (n->memory.full_since == 0)
		n->memory.full_since = n->now;
	if (n->now - n->memory.full_since < 4 * n->role.times.patience)
		return;
	n->memory.full_since = 0;
	if (n->role.roll.in_sync & ROLL_BIT(l->seat) || n->role.maybe & ROLL_BIT(l->seat)) {
		ROLE_EVENT(n, role_stuck(&n->role, n->now, (unsigned int)l->seat));
		node_act(n);
	} else {
		node_conn_leave(&l->conn);
	}
}

void links_release(struct stag_pool_node *n)
{
	struct standby *l = slowest(n);
	uint64_t tail = n->memory.settled;

	if (l && l->applied < tail)
		tail = l->applied;
	if (tail > n->memory.log.tail)
		n->memory.log.tail = tail;
	node_staging_release(n);
	if (l)
		check_slowest(n, l);
}
