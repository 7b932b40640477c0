// SPDX-License-Identifier: BSD-2-Clause
/*
 * pull.c - transfers of values from and to a client's memory.
 *
 * An incoming value goes through a slot in our memory, because the client's memory may change. A value longer than
 * POOL_DIRECT_MAX comes in pieces, several of them in flight, and is hashed as they arrive, which is in the order
 * in which they were requested. Each piece goes to the region, here and on the standbys (body.c), or becomes a
 * record.
 *
 * A short outgoing value goes through a slot, too, because the region may change. A long value does not change
 * while it exists: it is written directly from the region, and its existence is checked again at the end.
 *
 * Only a request that needs a slot waits for one: requests behind it are carried out meanwhile. Long values leave
 * some slots for others. A client has at most CLIENT_SLOTS of the shared slots; if all are in use, it gets one of
 * its own, so that no client waits for the memory of another. A client that does not deliver a value, or does not
 * take one, for conf.client_timeout is evicted.
 */
#include "pool/node/node.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"

#define PIECE	     (128u << 10) /* bytes of a piece of a long value */
#define WINDOW	     8u		  /* pieces of a value in flight */
#define LEFT	     4u		  /* slots that long values leave for others */
#define CLIENT_SLOTS WINDOW	  /* shared slots that a client may use at a time */
#define ROUND_BYTES  (1u << 20)	  /* bytes placed per round, so that other work is not delayed */
#define LOOKS	     16u	  /* attempts at a value that keeps changing */

/*
 *	IDLE --> STARTING --> MOVING --> FINISHING --> IDLE
 *
 * A short incoming value goes from IDLE to MOVING. A read of a long value that changed meanwhile goes from MOVING back to
 * STARTING. A read that finds nothing goes from STARTING to FINISHING. A lost connection leads to IDLE from any state.
 */
enum pull_state {
	PULL_IDLE,
	PULL_STARTING, /* an upload that has no memory yet, or a read that has not found its value yet */
	PULL_MOVING,	/* RDMA Reads or Writes of its pieces are in flight */
	PULL_FINISHING, /* all bytes are in place: the change, or the answer, is next */
};

/* Memory for a piece, and its transfer. */
struct pull_slot {
	struct node_work work;
	struct list link; /* in its pull's list, in order, or in the node's list of free slots */
	uint8_t *bytes;
	struct ibv_mr *mr[NODE_DOMAINS];
	uint32_t length;
	bool moved;
	struct pull *pull; /* that uses it */
};

struct pull {
	struct list link; /* in the node's list of pulls, or of idle ones */
	enum pull_state state;
	struct client *client;
	struct node_message *message; /* contains the request's name */
	struct pool_request rq;
	struct list slots;    /* that it uses */
	uint64_t asked, done; /* bytes: requested of the adapter; in place */
	unsigned int moving;  /* pieces in the adapter */
	uint64_t moved_at; /* when one of them arrived last, or the first of them was requested */
	uint64_t since;	   /* number of the record after which the place belongs to the body */
	struct pool_answer answer; /* for a read */
	const void *body;	   /* in the region, of a long value */
	unsigned int looks;
	struct pool_hashing *hash; /* of a long value that comes in */
};

/* ---- states ------------------------------------------------------------------------------- */

static const char *const state_names[] = {
	[PULL_IDLE] = "idle",
	[PULL_STARTING] = "starting",
	[PULL_MOVING] = "moving",
	[PULL_FINISHING] = "finishing",
};

#define FROM(state) (1u << PULL_##state)

static const unsigned int comes_from[] = {
	[PULL_IDLE] = FROM(STARTING) | FROM(MOVING) | FROM(FINISHING),
	[PULL_STARTING] = FROM(IDLE) | FROM(MOVING),
	[PULL_MOVING] = FROM(IDLE) | FROM(STARTING),
	[PULL_FINISHING] = FROM(STARTING) | FROM(MOVING),
};

/* Changes the state: nothing else writes it. */
static void pull_become(struct pull *p, enum pull_state state)
{
	assert(comes_from[state] & 1u << p->state);
	log_debug("client %s: value of request %llu: %s -> %s", p->client->name,
		  (unsigned long long)p->rq.sequence, state_names[p->state], state_names[state]);
	p->state = state;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* Makes the memory of a slot. What was made in part is freed by free_slot(). */
static int make_slot(struct stag_pool_node *n, struct pull_slot *s)
{
	void *at = mmap(NULL, POOL_DIRECT_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);

	if (at == MAP_FAILED)
		return -ENOMEM;
	s->bytes = at;
	list_init(&s->link);
	for (unsigned int d = 0; d < NODE_DOMAINS; d++) {
		s->mr[d] =
			ibv_reg_mr(n->adapter.pd[d], at, POOL_DIRECT_MAX, IBV_ACCESS_LOCAL_WRITE);
		if (!s->mr[d])
			return -ENOMEM;
	}
	return 0;
}

static void free_slot(struct pull_slot *s)
{
	for (unsigned int d = 0; d < NODE_DOMAINS; d++)
		if (s->mr[d])
			ibv_dereg_mr(s->mr[d]);
	if (s->bytes)
		munmap(s->bytes, POOL_DIRECT_MAX);
}

int pulls_create(struct stag_pool_node *n)
{
	int rc = 0;

	n->pulling.slots = calloc(PULL_SLOTS, sizeof(*n->pulling.slots));
	if (!n->pulling.slots)
		return -ENOMEM;
	for (unsigned int i = 0; i < PULL_SLOTS && rc == 0; i++) {
		rc = make_slot(n, &n->pulling.slots[i]);
		if (rc == 0) {
			list_add_tail(&n->pulling.free_slots, &n->pulling.slots[i].link);
			n->pulling.num_free_slots++;
		}
	}
	return rc;
}

static void free_pulls(struct list *pulls)
{
	while (!list_empty(pulls)) {
		struct pull *p = list_entry(pulls->next, struct pull, link);

		list_del(&p->link);
		pool_hashing_free(p->hash);
		free(p);
	}
}

void pulls_destroy(struct stag_pool_node *n)
{
	free_pulls(&n->pulling.pulls);
	free_pulls(&n->pulling.idle_pulls);
	for (unsigned int i = 0; n->pulling.slots && i < PULL_SLOTS; i++)
		free_slot(&n->pulling.slots[i]);
	free(n->pulling.slots);
}

static struct pull *get_pull(struct stag_pool_node *n)
{
	struct pull *p;

	if (list_empty(&n->pulling.idle_pulls)) {
		p = calloc(1, sizeof(*p));
		if (p)
			list_init(&p->link);
	} else {
		p = list_entry(n->pulling.idle_pulls.next, struct pull, link);
		list_del(&p->link);
	}
	return p;
}

static struct pull_slot *take_shared_slot(struct stag_pool_node *n)
{
	struct pull_slot *s = list_entry(n->pulling.free_slots.next, struct pull_slot, link);

	list_del(&s->link);
	n->pulling.num_free_slots--;
	return s;
}

/* Returns the slot that a client has beside the shared ones, made at its first use; NULL: in use, or no memory. */
static struct pull_slot *take_own_slot(struct client *k)
{
	if (!k->own_slot) {
		k->own_slot = calloc(1, sizeof(*k->own_slot));
		if (!k->own_slot || make_slot(k->conn.node, k->own_slot) != 0) {
			pulls_free_slot(k);
			return NULL;
		}
	}
	return k->own_slot->pull ? NULL : k->own_slot;
}

void pulls_free_slot(struct client *k)
{
	if (k->own_slot)
		free_slot(k->own_slot);
	free(k->own_slot);
	k->own_slot = NULL;
}

static struct pull_slot *get_slot(struct pull *p, bool is_piece)
{
	struct client *k = p->client;
	struct stag_pool_node *n = k->conn.node;
	struct pull_slot *s = NULL;

	if (k->pull_slots >= CLIENT_SLOTS)
		return NULL;
	if (n->pulling.num_free_slots > (is_piece ? LEFT : 0))
		s = take_shared_slot(n);
	else if (k->pull_slots == 0)
		s = take_own_slot(k);
	if (!s)
		return NULL;
	list_add_tail(&p->slots, &s->link);
	k->pull_slots++;
	s->moved = false;
	s->pull = p;
	return s;
}

static void put_slot(struct pull *p, struct pull_slot *s)
{
	struct stag_pool_node *n = p->client->conn.node;

	list_del(&s->link);
	s->pull = NULL;
	p->client->pull_slots--;
	if (s == p->client->own_slot)
		return;
	/* Reuse the slot that was used last: it is in the processor's cache. */
	list_add_tail(n->pulling.free_slots.next, &s->link);
	n->pulling.num_free_slots++;
}

static struct pull_slot *first_slot(struct pull *p)
{
	return list_empty(&p->slots) ? NULL : list_entry(p->slots.next, struct pull_slot, link);
}

static void end_pull(struct pull *p)
{
	struct stag_pool_node *n = p->client->conn.node;

	while (!list_empty(&p->slots))
		put_slot(p, first_slot(p));
	pull_become(p, PULL_IDLE);
	list_del(&p->link);
	list_add_tail(&n->pulling.idle_pulls, &p->link);
	p->message->pulls--;
	p->client->pulls--;
	if (p->client->conn.over)
		return;
	serve_message_done(p->message);
	serve_resume(p->client);
}

void pulls_forget(struct client *k)
{
	list_for_each_safe (it, &k->conn.node->pulling.pulls)
		if (list_entry(it, struct pull, link)->client == k)
			end_pull(list_entry(it, struct pull, link));
}

static void fail_pull(struct pull *p, int rc)
{
	serve_evict(p->client, "a value of %u bytes: %s", p->rq.length, strerror(-rc));
}

/* ---- pieces -------------------------------------------------------------------------------- */

static void piece_moved(struct node_work *w, const struct ibv_wc *wc)
{
	struct pull_slot *s = (struct pull_slot *)w;

	(void)wc;
	s->moved = true;
	s->pull->moving--;
	s->pull->moved_at = w->conn->sent_at = w->conn->node->now;
}

/* Posts the transfer of the next bytes between the client's memory and sge. */
static int post_piece(struct pull *p, struct pull_slot *s, enum ibv_wr_opcode opcode,
		      struct ibv_sge *sge)
{
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)&s->work,
				 .sg_list = sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {p->rq.source_address + p->asked, p->rq.key}};
	int rc;

	s->work = (struct node_work){piece_moved, &p->client->conn};
	s->length = sge->length;
	rc = node_conn_post(&p->client->conn, &wr);
	if (rc != 0) {
		put_slot(p, s);
		return rc == -ENOMEM ? -EAGAIN : rc;
	}
	p->asked += s->length;
	if (p->moving++ == 0)
		p->moved_at = p->client->conn.node->now;
	return 0;
}

static uint32_t next_piece(const struct pull *p, uint64_t length)
{
	return length - p->asked < PIECE ? (uint32_t)(length - p->asked) : PIECE;
}

/* ---- incoming values -------------------------------------------------------------------------- */

static bool is_long(const struct pull *p)
{
	return p->rq.length > POOL_DIRECT_MAX;
}

static int read_next(struct pull *p)
{
	struct pull_slot *s = get_slot(p, is_long(p));
	struct ibv_sge sge = {0};

	if (!s)
		return -EAGAIN;
	sge = (struct ibv_sge){(uintptr_t)s->bytes,
			       is_long(p) ? next_piece(p, p->rq.length) : p->rq.length,
			       s->mr[p->client->domain]->lkey};
	return post_piece(p, s, IBV_WR_RDMA_READ, &sge);
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
	if (!p->hash)
		p->hash = pool_hashing_new();
	if (!p->hash)
		return -ENOMEM;
	at = serve_record_room(n, POOL_RECORD_META, &room);
	if (!at)
		return -EAGAIN;
	n->serve.core.quiet = body_quiet(n);
	rc = pool_upload_begin(&n->serve.core, &p->client->who, &p->rq, at, room, &used, &answer);
	if (rc != 0)
		return rc;
	pool_log_add(&n->memory.log, used);
	if (answer.status != EINPROGRESS) {
		rc = serve_reply(p->client, &answer);
		end_pull(p);
		return rc;
	}
	pool_hashing_start(p->hash);
	/* An upload that was begun before (no new record) may have bytes in records up to now. */
	p->since = n->serve.core.number;
	if (used != 0)
		p->since =
			pool_run_since(&n->serve.core,
				       answer.ptr.address - n->memory.region.address, p->rq.length);
	pull_become(p, PULL_MOVING);
	return 0;
}

/* Makes a record of the piece, unless the log is more than half full. */
static int keep_as_record(struct pull *p, const struct pull_slot *s)
{
	struct stag_pool_node *n = p->client->conn.node;
	size_t room, used;
	void *at;
	int rc;

	if (n->memory.log.put - n->memory.log.tail > n->memory.log.size / 2)
		return -EAGAIN;
	at = serve_record_room(n, POOL_RECORD_META + ((s->length + 7u) & ~7u), &room);
	if (!at)
		return -EAGAIN;
	rc = pool_upload_bytes(&n->serve.core, &p->client->who, p->rq.sequence, p->done, s->bytes,
			       s->length, at, room, &used);
	if (rc != 0)
		return rc;
	pool_log_add(&n->memory.log, used);
	p->since = n->serve.core.number;
	return 0;
}

static int keep_piece(struct pull *p, const struct pull_slot *s)
{
	struct stag_pool_node *n = p->client->conn.node;
	uint64_t to;
	int rc;

	if (!role_may_change(&n->role, n->now))
		return -EAGAIN;
	rc = pool_upload_find(&n->serve.core, &p->client->who, p->rq.sequence, p->done, s->length,
			      &to);
	if (rc == 0)
		rc = body_place(n, p->since, to, s->bytes, s->length);
	return rc == -EOPNOTSUPP ? keep_as_record(p, s) : rc;
}

/* Places the piece that has arrived, and requests the next one. */
static int move_body(struct pull *p, uint32_t *most)
{
	struct pull_slot *s = first_slot(p);
	int rc;

	if (p->done == p->rq.length) {
		pull_become(p, PULL_FINISHING);
		return 0;
	}
	if (s && s->moved && s->length <= *most) {
		rc = keep_piece(p, s);
		if (rc != 0 && rc != -EAGAIN)
			return rc;
		if (rc == 0) {
			pool_hashing_add(p->hash, s->bytes, s->length);
			*most -= s->length;
			p->done += s->length;
			put_slot(p, s);
			return 0;
		}
	}
	return p->asked < p->rq.length ? read_next(p) : -EAGAIN;
}

static int move_value(struct pull *p)
{
	struct pull_slot *s = first_slot(p);

	if (!s)
		return read_next(p);
	if (!s->moved)
		return -EAGAIN;
	pull_become(p, PULL_FINISHING);
	return 0;
}

static int finish_change(struct pull *p)
{
	struct pool_answer answer;
	int rc;

	if (is_long(p)) {
		p->rq.flags |= POOL_UPLOADED;
		p->rq.hash = pool_hashing_end(p->hash);
	} else {
		p->rq.value = first_slot(p)->bytes;
		p->rq.source = POOL_SOURCE_INLINE;
	}
	rc = serve_change(p->client, &p->rq, p->message->came, &answer);
	if (rc == 0)
		end_pull(p);
	return rc;
}

static int step_change(struct pull *p, uint32_t *most)
{
	if (p->state == PULL_STARTING)
		return begin_upload(p);
	if (p->state == PULL_MOVING)
		return is_long(p) ? move_body(p, most) : move_value(p);
	return finish_change(p);
}

/* ---- outgoing values ----------------------------------------------------------------------------- */

static int find_value(struct pull *p)
{
	struct stag_pool_node *n = p->client->conn.node;
	struct pool_answer *a = &p->answer;

	if (!role_may_read(&n->role, n->now))
		return -EAGAIN;
	pool_look(&n->memory.region, &p->rq, a);
	n->info.reads++;
	if (a->status == 0 && a->length > p->rq.length)
		a->status = EMSGSIZE;
	p->body = a->bytes;
	a->bytes = NULL;
	p->asked = p->done = 0;
	pull_become(p, a->status != 0 || a->length == 0 ? PULL_FINISHING : PULL_MOVING);
	return 0;
}

/* Copies a short value as it is now, and writes it to the client. */
static int write_value(struct pull *p)
{
	struct pull_slot *s = get_slot(p, false);
	struct ibv_sge sge;
	int rc;

	if (!s)
		return -EAGAIN;
	rc = find_value(p);
	if (rc != 0 || p->state == PULL_FINISHING || p->answer.length > POOL_DIRECT_MAX) {
		put_slot(p, s);
		return rc;
	}
	memcpy(s->bytes, p->body, p->answer.length);
	sge = (struct ibv_sge){(uintptr_t)s->bytes, p->answer.length,
			       s->mr[p->client->domain]->lkey};
	return post_piece(p, s, IBV_WR_RDMA_WRITE, &sge);
}

static int write_piece(struct pull *p)
{
	struct stag_pool_node *n = p->client->conn.node;
	struct pull_slot *s = get_slot(p, true);
	struct ibv_sge sge;

	if (!s)
		return -EAGAIN;
	sge = (struct ibv_sge){(uintptr_t)p->body + p->asked, next_piece(p, p->answer.length),
			       n->memory.region_mr[p->client->domain]->lkey};
	return post_piece(p, s, IBV_WR_RDMA_WRITE, &sge);
}

/*
 * Checks that the value still exists: its place is reused only after it was deleted, so it was intact all the
 * time.
 */
static int recheck_value(struct pull *p)
{
	struct stag_pool_node *n = p->client->conn.node;
	struct pool_answer now;

	pool_look(&n->memory.region, &p->rq, &now);
	if (now.status == 0 && now.bytes == p->body && now.version == p->answer.version &&
	    now.ptr.generation == p->answer.ptr.generation) {
		pull_become(p, PULL_FINISHING);
	} else if (++p->looks < LOOKS) {
		pull_become(p, PULL_STARTING);
	} else {
		p->answer.status = EAGAIN;
		pull_become(p, PULL_FINISHING);
	}
	return 0;
}

static int move_out(struct pull *p)
{
	struct pull_slot *s = first_slot(p);

	if (s && s->moved) {
		p->done += s->length;
		put_slot(p, s);
		return 0;
	}
	if (p->done < p->answer.length)
		return p->asked < p->answer.length ? write_piece(p) : -EAGAIN;
	if (p->answer.length > POOL_DIRECT_MAX)
		return recheck_value(p);
	pull_become(p, PULL_FINISHING);
	return 0;
}

static int step_read(struct pull *p)
{
	int rc;

	if (p->state == PULL_STARTING)
		return write_value(p);
	if (p->state == PULL_MOVING)
		return move_out(p);
	p->answer.after = 0;
	rc = serve_reply(p->client, &p->answer);
	end_pull(p);
	return rc;
}

/* ---- all of them ------------------------------------------------------------------------------------ */

static void step_pull(struct pull *p, uint32_t *most)
{
	bool changes = pool_op_changes(p->rq.op);
	int rc = 0;

	while (rc == 0 && p->state != PULL_IDLE && !p->client->conn.over)
		rc = changes ? step_change(p, most) : step_read(p);
	if (rc != 0 && rc != -EAGAIN)
		fail_pull(p, rc);
}

int pull_start(struct client *k, struct node_message *m, const struct pool_request *rq)
{
	struct stag_pool_node *n = k->conn.node;
	struct pull *p = get_pull(n);
	uint32_t most = 0;

	if (!p)
		return -EAGAIN;
	list_add_tail(&n->pulling.pulls, &p->link);
	list_init(&p->slots);
	p->moving = 0;
	k->pulls++;
	p->client = k;
	p->message = m;
	p->rq = *rq;
	if (rq->key == 0)
		p->rq.key = m->advertised;
	p->asked = p->done = 0;
	p->looks = 0;
	pull_become(p, pool_op_changes(rq->op) && !is_long(p) ? PULL_MOVING : PULL_STARTING);
	m->pulls++;
	step_pull(p, &most);
	return 0;
}

/* Steps all pulls. One that is still first is moved to the end, so that others get a share of ROUND_BYTES. */
void pulls_step(struct stag_pool_node *n)
{
	struct list *first = n->pulling.pulls.next;
	uint32_t most = ROUND_BYTES;

	if (list_empty(&n->pulling.pulls))
		return;
	list_for_each_safe (it, &n->pulling.pulls)
		step_pull(list_entry(it, struct pull, link), &most);
	if (first == n->pulling.pulls.next) {
		list_del(first);
		list_add_tail(&n->pulling.pulls, first);
	}
	if (most == 0)
		n->loop.busy = true;
}

void pulls_watch(struct stag_pool_node *n, uint64_t timeout)
{
	list_for_each_safe (it, &n->pulling.pulls) {
		struct pull *p = list_entry(it, struct pull, link);
		uint64_t sent_at = p->client->conn.sent_at;

		/* It may have to wait for others of its connection, which is slow, and makes progress. */
		if (timeout == 0)
			p->moved_at = n->now;
		else if (p->moving != 0 && n->now - p->moved_at > timeout &&
			 n->now - sent_at > timeout)
			serve_evict(p->client, "a value of %u bytes is not %s, for %llu s",
				    p->rq.length, pool_op_changes(p->rq.op) ? "delivered" : "taken",
				    (unsigned long long)((n->now - p->moved_at) / NS_PER_S));
	}
}
