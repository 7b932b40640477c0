// SPDX-License-Identifier: BSD-2-Clause
/*
 * follow.c - a standby and its primary: the link, draining the ring, echoes, fencing.
 *
 * The standby connects, and retries until the role names another primary. Everything in the ring when a link ends
 * is applied, because it may have been acknowledged. Only then is a new ring made.
 */
#include "pool/node/node.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "pool/admit/tls.h"

#define AGAIN	  (5 * NS_PER_MS) /* doubled after each failure, */
#define MAX_TRIES 6		  /* up to 320 ms */
#define SILENCE	  (2 * NS_PER_S)  /* after which a connection counts as dead */
#define RESOLVE	  1000		  /* ms */
#define MANY	  1024		  /* records applied per round */
#define MANY_STAGED                                                                                \
	64 /* fewer if values are staged: such a record takes longer than its length suggests */
#define NUM_SENDS (COPY_READS + 16)

#define STAGING_MAX (4ull << 30) /* bytes that a primary may request, at most */

static struct follow *to_follow(struct node_conn *c)
{
	return container_of(c, struct follow, conn);
}

static const char *const state_names[] = {
	[FOLLOW_IDLE] = "idle",		  [FOLLOW_HELLO] = "hello",
	[FOLLOW_PROOF] = "proof",	  [FOLLOW_LINKED] = "linked",
	[FOLLOW_COPYING] = "copying",	  [FOLLOW_CATCHING_UP] = "catching up",
	[FOLLOW_STREAMING] = "streaming",
};

#define FROM(state) (1u << FOLLOW_##state)

static const unsigned int comes_from[] = {
	[FOLLOW_IDLE] = FROM(COPYING) | FROM(CATCHING_UP) | FROM(STREAMING),
	[FOLLOW_HELLO] = FROM(IDLE),
	[FOLLOW_PROOF] = FROM(IDLE),
	[FOLLOW_LINKED] = FROM(PROOF),
	[FOLLOW_COPYING] = FROM(LINKED),
	[FOLLOW_CATCHING_UP] = FROM(COPYING),
	[FOLLOW_STREAMING] = FROM(LINKED) | FROM(CATCHING_UP),
};

static bool applies_records(const struct follow *f)
{
	return f->state == FOLLOW_COPYING || f->state == FOLLOW_CATCHING_UP ||
	       f->state == FOLLOW_STREAMING;
}

void follow_become(struct follow *f, enum follow_state state)
{
	assert(comes_from[state] & 1u << f->state);
	log_debug("node %s: link to seat %u: %s -> %s", f->conn.node->conf.name, f->seat,
		  state_names[f->state], state_names[state]);
	f->state = state;
	if (applies_records(f))
		pulse_set_primary(f->conn.node, f);
	else
		pulse_forget_primary(f->conn.node, f);
}

static void schedule_retry(struct stag_pool_node *n)
{
	n->primary.retry_at = n->now + (AGAIN << n->primary.tries);
	if (n->primary.tries < MAX_TRIES)
		n->primary.tries++;
}

int follow_send(struct follow *f, const union link_message *said)
{
	struct node_message *m = node_conn_message(&f->conn);
	int rc = m ? link_message_write(said, f->conn.node->role.epoch, m->bytes, NODE_MESSAGE)
		   : -ENOBUFS;

	if (rc < 0) {
		node_conn_leave(&f->conn);
		return rc;
	}
	m->length = (uint32_t)rc;
	return node_conn_send(&f->conn, m);
}

/* ---- the ring ------------------------------------------------------------------------------ */

static void record_torn(struct follow *f, int rc)
{
	struct stag_pool_node *n = f->conn.node;

	node_log(n, LOG_LEVEL_ERR, "the next entry of the ring is no record that follows %llu: %s",
		 (unsigned long long)pool_superblock(&n->memory.region)->number, strerror(-rc));
	follow_become(f, FOLLOW_IDLE);
	node_conn_leave(&f->conn);
	ROLE_EVENT(n, role_torn(&n->role, n->now));
	node_act(n);
}

static void drain_ring(struct follow *f, unsigned int most)
{
	struct stag_pool_node *n = f->conn.node;
	int rc = pool_ring_drain(&f->ring, &n->memory.region, &f->staging, most);

	if (rc > 0)
		n->loop.busy = true;
	if (rc < 0)
		record_torn(f, rc);
}

/* Applies all whole records in the ring, once no more can arrive. An incomplete copy has no use for them. */
static void drain_all(struct follow *f)
{
	struct stag_pool_node *n = f->conn.node;
	int rc = 1;

	while (f->state == FOLLOW_STREAMING && rc > 0)
		rc = pool_ring_drain(&f->ring, &n->memory.region, &f->staging, MANY);
	if (rc < 0)
		ROLE_EVENT(n, role_torn(&n->role, n->now));
}

static void report_applied(struct follow *f)
{
	struct stag_pool_node *n = f->conn.node;

	if (pulse_report_applied(f, f->ring.get, pool_superblock(&n->memory.region)->number) == 0)
		f->told = f->ring.get;
}

/* ---- heartbeats ------------------------------------------------------------------------------- */

/* Reads the heartbeat first, the clock then (role.h). */
static void read_heartbeat(struct follow *f)
{
	struct stag_pool_node *n = f->conn.node;
	struct link_beat beat;

	memcpy(&beat, f->beat, sizeof(beat));
	atomic_thread_fence(memory_order_acquire);
	if (beat.sent == f->heard || beat.check != link_check(&beat, sizeof(beat) / 8))
		return;
	f->heard = beat.sent;
	f->since = n->now;
	f->settled = beat.settled;
	n->loop.busy = true;
	ROLE_EVENT(n, role_heard(&n->role, node_read_clock(n), f->seat, beat.epoch, beat.sent,
				 beat.revision));
	node_act(n);
}

/* ---- messages ------------------------------------------------------------------------------------ */

bool follow_knows_secrets(const struct follow *f)
{
	return applies_records(f) || f->state == FOLLOW_LINKED
		       ? f->welcome.features & LINK_KNOWS_SECRETS
		       : false;
}

static void handle_welcome(struct follow *f, const struct link_welcome *w)
{
	struct stag_pool_node *n = f->conn.node;
	struct pool_superblock *sb = pool_superblock(&n->memory.region);

	if (f->state != FOLLOW_LINKED) {
		node_conn_leave(&f->conn);
		return;
	}
	f->welcome = *w;
	n->primary.tries = 0;
	secret_was_accepted(n);
	if (follow_knows_secrets(f)) {
		union link_message said = secrets_to_tell(n);

		follow_send(f, &said);
	}
	watch_begin(n, f->seat, w->life);
	f->ring = (struct pool_ring){f->ring_at, n->conf.log_size, w->position};
	f->told = w->position;
	if (!w->resync && sb->number == w->number) {
		follow_become(f, FOLLOW_STREAMING);
		return;
	}
	ROLE_EVENT(n, role_copying(&n->role, n->now));
	node_act(n);
	sb->number = w->number;
	sb->epoch = w->epoch;
	copy_begin(f);
}

static void follow_received(struct node_conn *c, struct node_message *m)
{
	struct follow *f = to_follow(c);
	struct stag_pool_node *n = c->node;
	union link_message heard;
	uint64_t epoch;

	if (link_message_read(m->bytes, m->length, &heard, &epoch) != 0 || epoch != n->role.epoch) {
		node_conn_leave(c);
		return;
	}
	node_conn_receive(c, m);
	if (heard.what == LINK_WELCOME) {
		handle_welcome(f, &heard.welcome);
	} else if (heard.what == LINK_EVENT_TAKEN) {
		f->telling = false;
	} else if (heard.what == LINK_HASHES) {
		copy_hashes(f, &heard.hashes);
	} else if (heard.what == LINK_CATCH_UP) {
		copy_catch_up(f, heard.number.number);
	} else if (heard.what == LINK_SECRETS) {
		f->secrets = heard.secrets;
		if (n->primary.link == f)
			secret_heard(n, &heard.secrets);
	} else if (heard.what == LINK_HANDOVER && f->state == FOLLOW_STREAMING) {
		ROLE_EVENT(n, role_handover(&n->role, n->now, epoch, heard.number.number,
					    heard.number.revision, heard.number.leaves));
		node_act(n);
	} else {
		node_conn_leave(c);
	}
}

/* Maps and registers staging memory, filled with zeroes like the primary's before its first use. */
static int lend_staging(struct follow *f)
{
	size_t length = f->conn.node->memory.staging_length;
	void *at;

	if (length == 0)
		return 0;
	at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		  -1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	f->staging = (struct pool_staging){.at = at, .length = length};
	f->staging_mr =
		ibv_reg_mr(f->pd, at, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return f->staging_mr ? 0 : -ENOMEM;
}

static int lend_memory(struct follow *f)
{
	struct stag_pool_node *n = f->conn.node;
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	void *ring = mmap(NULL, n->conf.log_size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (ring == MAP_FAILED)
		return -ENOMEM;
	f->ring_at = ring;
	f->beat = calloc(1, sizeof(*f->beat));
	if (!f->beat)
		return -ENOMEM;
	f->ring_mr = ibv_reg_mr(f->pd, ring, n->conf.log_size, rights);
	f->beat_mr = ibv_reg_mr(f->pd, f->beat, sizeof(*f->beat), rights | IBV_ACCESS_REMOTE_READ);
	f->region_mr = ibv_reg_mr(f->pd, n->memory.region.at, n->memory.region.size, rights);
	return f->ring_mr && f->beat_mr && f->region_mr ? lend_staging(f) : -ENOMEM;
}

static void send_hello(struct follow *f)
{
	struct stag_pool_node *n = f->conn.node;
	union link_message said = {
		.hello = {.what = LINK_HELLO,
			  .synced = n->role.synced,
			  .epoch = n->role.epoch,
			  .number = pool_superblock(&n->memory.region)->number,
			  .ring = (uintptr_t)f->ring_at,
			  .beat = (uintptr_t)f->beat,
			  .ring_rkey = f->ring_mr->rkey,
			  .beat_rkey = f->beat_mr->rkey,
			  .ring_size = n->conf.log_size,
			  .staging = (uintptr_t)f->staging.at,
			  .staging_rkey = f->staging_mr ? f->staging_mr->rkey : 0,
			  .order = n->conf.us.order,
			  .features = LINK_KNOWS_SECRETS,
			  .region_rkey = f->region_mr->rkey}};

	memcpy(said.hello.address, n->conf.us.address, sizeof(n->conf.us.address));
	memcpy(said.hello.name, n->conf.name, sizeof(said.hello.name));
	follow_become(f, FOLLOW_LINKED);
	follow_send(f, &said);
}

/* ---- connecting -------------------------------------------------------------------------------------- */

static void free_memory(struct follow *f)
{
	copy_end(f);
	if (f->staging_mr)
		ibv_dereg_mr(f->staging_mr);
	if (f->staging.at)
		munmap((void *)(uintptr_t)f->staging.at, f->staging.length);
	resolve_end(f->resolve);
	if (f->region_mr)
		ibv_dereg_mr(f->region_mr);
	if (f->beat_mr)
		ibv_dereg_mr(f->beat_mr);
	if (f->ring_mr)
		ibv_dereg_mr(f->ring_mr);
	if (f->pd)
		ibv_dealloc_pd(f->pd);
	if (f->ring_at)
		munmap(f->ring_at, f->conn.node->conf.log_size);
	free(f->beat);
	free(f);
}

static void free_follow(struct node_conn *c)
{
	free_memory(to_follow(c));
}

/* Fences the primary: nothing that it sends is placed any more, and what it had placed is applied. */
static void fence_link(struct follow *f)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (f->cut)
		return;
	f->cut = true;
	pulse_forget_primary(f->conn.node, f);
	if (f->conn.id->qp)
		ibv_modify_qp(f->conn.id->qp, &attr, IBV_QP_STATE);
	drain_all(f);
	node_conn_leave(&f->conn);
}

static void follow_ended(struct node_conn *c)
{
	struct follow *f = to_follow(c);
	struct stag_pool_node *n = c->node;

	fence_link(f);
	if (n->primary.link != f)
		return;
	n->primary.link = NULL;
	schedule_retry(n);
}

static int connect_now(struct follow *f)
{
	struct rdma_conn_param param = {.private_data = f->greeting,
					.private_data_len = (uint8_t)f->greeting_len,
					.responder_resources = f->conn.node->adapter.reads,
					.initiator_depth = f->conn.node->adapter.reads,
					.retry_count = 7,
					.rnr_retry_count = 7};

	return rdma_connect(f->conn.id, &param);
}

static void connect_proof(struct follow *f, const struct rdma_conn_param *said);

static int open_queues(struct follow *f)
{
	int rc;

	if (!dv_shares(f->conn.node->adapter.context, f->conn.id->verbs))
		return -EXDEV; /* reached through another adapter than the node's own */
	f->pd = ibv_alloc_pd(f->conn.node->adapter.context);
	if (!f->pd)
		return -ENOMEM;
	rc = node_conn_prepare(&f->conn, &f->conn.node->adapter.links, f->pd, LINK_DEPTH,
			       NUM_SENDS);
	return rc == 0 ? rdma_resolve_route(f->conn.id, RESOLVE) : rc;
}

/* Checks the welcome of a primary that has proven itself, and prepares memory like the primary's. */
static int check_welcome(struct follow *f, const struct rdma_conn_param *said)
{
	struct stag_pool_node *n = f->conn.node;
	struct link_facts facts;
	const void *at;
	int rc = admit_hear_welcome(&f->session, secret_to_prove(n), said->private_data,
				    said->private_data_len, &at);

	if (rc < 0)
		return rc;
	if (rc != sizeof(facts))
		return -EPROTO;
	memcpy(&facts, at, sizeof(facts));
	if (facts.log_size < 4 * POOL_RECORD_MAX || (facts.log_size & (facts.log_size - 1)) != 0)
		return -EPROTO;
	if (!lease_goes_with(&n->role.times.lease, facts.lease_us, facts.promote_us))
		return -EDOM;
	rc = memory_join(n, &facts);
	if (rc != 0)
		return rc;
	if (n->memory.log.at && n->conf.log_size != facts.log_size)
		return -ESTALE;
	if (facts.staging > STAGING_MAX / POOL_PAGE)
		return -EPROTO;
	n->conf.log_size = facts.log_size;
	n->memory.staging_length = (uint64_t)facts.staging * POOL_PAGE;
	n->conf.flags |= facts.flags;
	return lend_memory(f);
}

static void refuse_to_follow(struct stag_pool_node *n, const char *why)
{
	n->primary.seat = -1;
	ROLE_EVENT(n, role_refuse(&n->role, why));
}

static void log_tls_error(const struct follow *f, int status)
{
	struct stag_pool_node *n = f->conn.node;
	const char *why = pool_tls_why(&n->tls.visitor, status);

	if (why)
		node_log(n, LOG_LEVEL_WARN, "cannot follow the primary at %s: %s",
			 n->role.roll.members[f->seat].address, why);
}

/* If the primary does not accept the secret that we have proven, there may be another one. */
static void note_refusal(struct follow *f, const struct rdma_conn_param *said)
{
	struct stag_pool_node *n = f->conn.node;
	const void *at;

	if (f->state == FOLLOW_PROOF && n->primary.link == f &&
	    admit_hear_welcome(&f->session, secret_to_prove(n), said->private_data,
			       said->private_data_len, &at) == -EACCES)
		secret_was_refused(n);
}

static void follow_event(struct node_conn *c, struct rdma_cm_event *e)
{
	struct follow *f = to_follow(c);
	int rc = 0;

	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		rc = open_queues(f);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		rc = connect_now(f);
		break;
	case RDMA_CM_EVENT_REJECTED:
		note_refusal(f, &e->param.conn);
		connect_proof(f, &e->param.conn);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		if (e->status != -EACCES || !c->node->tls.by_key || !secret_was_refused(c->node))
			log_tls_error(f, e->status);
		rc = -ECONNRESET;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		c->up = true;
		rc = f->state == FOLLOW_PROOF ? check_welcome(f, &e->param.conn) : -EPROTO;
		if (rc == 0)
			send_hello(f);
		else
			node_log(c->node, LOG_LEVEL_WARN, "cannot follow the primary: %s",
				 strerror(-rc));
		if (rc == -EADDRINUSE || rc == -EDOM) /* a retry cannot help */
			refuse_to_follow(c->node,
					 rc == -EDOM ? "its lease or promote is not safe with its "
						       "primary's: set the same on all nodes"
						     : "something else is mapped where the pool's "
						       "memory has to be");
		break;
	default:
		rc = -ECONNRESET;
		break;
	}
	if (rc != 0)
		node_conn_leave(c);
}

static const struct node_conn_ops ops = {.event = follow_event,
					 .received = follow_received,
					 .ended = follow_ended,
					 .free = free_follow};

/* Each of the two connects has its own id. Returns NULL if memory runs out. */
static struct follow *create_follow(struct stag_pool_node *n, enum follow_state state)
{
	struct follow *f = calloc(1, sizeof(*f));
	struct rdma_cm_id *id;

	if (!f || rdma_create_id(n->adapter.events, &id, NULL, RDMA_PS_TCP) != 0) {
		free(f);
		return NULL;
	}
	if (pool_tls_prepare(&n->tls.visitor, id, n->role.roll.members[n->primary.seat].address) !=
	    0) {
		node_log(n, LOG_LEVEL_WARN, "cannot follow the primary: %s", stag_pool_error());
		rdma_destroy_id(id);
		free(f);
		return NULL;
	}
	node_conn_begin(&f->conn, n, &ops, id);
	f->seat = (unsigned int)n->primary.seat;
	follow_become(f, state);
	f->since = n->now;
	return f;
}

static int resolve_address(struct follow *f)
{
	return rdma_resolve_addr(f->conn.id, NULL, (struct sockaddr *)&f->to, RESOLVE) == 0
		       ? 0
		       : -errno;
}

/* Starts with the primary's address: known from the first connect, numeric, or resolved in the background. */
static int start_resolving(struct follow *f)
{
	const char *address = f->conn.node->role.roll.members[f->seat].address;

	if (f->to.ss_family != AF_UNSPEC ||
	    listen_address(address, STAG_POOL_PORT, AI_NUMERICHOST, &f->to) == 0)
		return resolve_address(f);
	f->resolve = resolve_start(address);
	return f->resolve ? 0 : -ENOMEM;
}

static void poll_resolver(struct follow *f)
{
	int rc = resolve_poll(f->resolve, &f->to);

	if (rc == -EINPROGRESS)
		return;
	resolve_end(f->resolve);
	f->resolve = NULL;
	if (rc == 0)
		rc = resolve_address(f);
	if (rc != 0)
		node_conn_leave(&f->conn);
}

static void start_connect(struct stag_pool_node *n, struct follow *f)
{
	n->primary.link = f;
	if (f->greeting_len < 0 || start_resolving(f) != 0)
		node_conn_leave(&f->conn);
}

static void connect_hello(struct stag_pool_node *n)
{
	struct follow *f = create_follow(n, FOLLOW_HELLO);

	if (!f) {
		schedule_retry(n);
		return;
	}
	f->greeting_len = admit_say_hello(&f->session, ADMIT_NODE, n->conf.name, f->greeting);
	start_connect(n, f);
}

static void connect_proof(struct follow *f, const struct rdma_conn_param *said)
{
	struct stag_pool_node *n = f->conn.node;
	char primary[ROLL_ADDRESS_LEN];
	struct follow *next = NULL;
	uint64_t epoch;

	if (f->state == FOLLOW_HELLO && n->primary.link == f)
		next = create_follow(n, FOLLOW_PROOF);
	node_conn_leave(&f->conn);
	if (!next)
		return;
	next->session = f->session;
	next->to = f->to;
	next->greeting_len =
		admit_say_proof(&next->session, secret_to_prove(n), said->private_data,
				said->private_data_len, &epoch, primary, next->greeting);
	if (next->greeting_len == -EPROTONOSUPPORT)
		node_log(n, LOG_LEVEL_WARN,
			 "cannot follow the primary: it speaks another version of the pool's "
			 "protocol");
	start_connect(n, next);
}

/* ---- called by the loop --------------------------------------------------------------------------------- */

void follow_end(struct stag_pool_node *n)
{
	struct follow *f = n->primary.link;

	n->primary.link = NULL;
	n->primary.seat = -1;
	if (f)
		fence_link(f);
}

void follow_start(struct stag_pool_node *n, unsigned int seat)
{
	follow_end(n);
	n->primary.seat = (int)seat;
	n->primary.retry_at = n->now;
	n->primary.tries = 0;
}

void follow_fence(struct stag_pool_node *n)
{
	follow_end(n);
}

/* Sends the next line of our log to the primary, which keeps those of all nodes. */
static void tell_event(struct follow *f)
{
	union link_message said = {.event = {.what = LINK_EVENT}};

	if (f->telling || !(f->welcome.features & LINK_TAKES_EVENTS))
		return;
	f->telling = events_next_own(&f->conn.node->events, &f->told_event, &said.event.event);
	if (f->telling)
		follow_send(f, &said);
}

void follow_poll(struct stag_pool_node *n)
{
	struct follow *f = n->primary.link;
	unsigned int most = f && f->staging.at ? MANY_STAGED : MANY;

	if (!f && n->primary.seat >= 0 && n->now >= n->primary.retry_at)
		connect_hello(n);
	if (!f || f->conn.over)
		return;
	if (f->resolve)
		poll_resolver(f);
	if (n->now > f->since + SILENCE)
		node_conn_leave(&f->conn);
	if (f->conn.over || !applies_records(f))
		return;
	read_heartbeat(f);
	f = n->primary.link; /* the heartbeat may have ended the link */
	if (!f || f->conn.over || !applies_records(f))
		return;
	if (copy_lets_apply(f, &most))
		drain_ring(f, most);
	if (!f->conn.over)
		copy_step(f);
	if (!f->conn.over && f->ring.get != f->told)
		report_applied(f);
	if (!f->conn.over)
		tell_event(f);
}
