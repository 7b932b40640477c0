// SPDX-License-Identifier: BSD-2-Clause
/*
 * door.c - the door of a node: judges connection requests (admit.h), in a thread of its own.
 *
 * Who is not admitted costs the node's thread nothing: hellos are challenged and others refused here, and only connections
 * that are admitted are handed over, to be accepted (door_accept()). The lock protects what both threads use: the
 * users, what a challenge says about the pool, and the connections that are handed over. The rest is the door's own.
 *
 * Judging is limited. An address that makes more than a few requests a second needs a token for each further one, and all such
 * addresses share the tokens. An address of which somebody was admitted lately may make a hundred times as many. What is
 * refused for want of a token may come again, is counted, and is logged once a second.
 */
#include "pool/node/node.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <openssl/rand.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/nonblock.h"
#include "base/siphash.h"
#include "base/source.h"
#include "pool/admit/tls.h"

#define TOKENS_PER_S 4000u
#define MOST_TOKENS  2000u
#define FREELY	     50u   /* requests of an address in a second that need no token */
#define KNOWN_FREELY 5000u /* of an address of which somebody was admitted in the last KNOWN_FOR */
#define KNOWN_FOR    (3600 * NS_PER_S)
#define REFUSED_FOR  (2 * NS_PER_S) /* a node that is refused comes back more often */
#define MOST_WAITING 1024u	    /* admitted, to be accepted by the node's thread */
#define AT_ONCE	     4u /* accepted in a round of the node's thread: each takes a while */

/* A connection that is admitted. */
struct door_visit {
	struct list link;
	struct rdma_cm_id *id;
	struct admit_session session;
	unsigned int lists; /* of users, that were adopted before */
};

/* ---- limits -------------------------------------------------------------------------------- */

/* Addresses share an entry by chance: a stranger cannot know which. */
static struct door_source *source_of(struct node_door *d, const void *address, size_t len)
{
	return &d->sources[siphash(d->key, address, len) % DOOR_SOURCES];
}

static void add_tokens(struct node_door *d, uint64_t now)
{
	uint64_t past = now - d->filled_at;
	uint64_t more = past < NS_PER_S ? past * TOKENS_PER_S / NS_PER_S : MOST_TOKENS;

	if (more == 0)
		return;
	d->filled_at = now;
	d->tokens = d->tokens + more < MOST_TOKENS ? d->tokens + more : MOST_TOKENS;
}

static bool may_be_judged(struct node_door *d, struct door_source *s, uint64_t now)
{
	bool known;

	if (now - s->since >= NS_PER_S) {
		s->since = now;
		s->requests = 0;
	}
	known = s->known_at && now - s->known_at < KNOWN_FOR;
	if (s->requests++ < (known ? KNOWN_FREELY : FREELY))
		return true;
	add_tokens(d, now);
	if (d->tokens == 0)
		return false;
	d->tokens--;
	return true;
}

static void note_limited(struct node_door *d, struct rdma_cm_id *id)
{
	atomic_fetch_add_explicit(&d->limited, 1, memory_order_relaxed);
	HOLD_FOR_SCOPE(&d->lock);
	listen_describe_peer(id, d->greedy, sizeof(d->greedy));
}

/* Returns the node of the roll that has this mark, or NULL. */
static struct door_member *find_member(struct node_door *d, const uint8_t mark[ADMIT_MARK_LEN])
{
	assert(lock_held(&d->lock));
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (d->members[s].name[0] && memcmp(d->members[s].mark, mark, ADMIT_MARK_LEN) == 0)
			return &d->members[s];
	return NULL;
}

/* Names a visiting node for the logs, if it is in the roll, and notes whether it was refused. */
static void recognize_node(struct node_door *d, struct admit_session *session, bool refused)
{
	struct door_member *m;

	HOLD_FOR_SCOPE(&d->lock);
	m = find_member(d, session->mark);
	if (!m)
		return;
	memcpy(session->name, m->name, sizeof(session->name));
	if (refused)
		m->refused_at = clock_boot_ns();
}

/* ---- judging --------------------------------------------------------------------------------- */

static void reject_for_now(struct rdma_cm_id *id)
{
	struct admit_head head = {{'S', 't', 'g', 'P'}, ADMIT_VERSION, ADMIT_REFUSAL, 0, 1};

	rdma_reject(id, &head, sizeof(head));
}

/* Hands an admitted connection to the node's thread. */
static void hand_over(struct stag_pool_node *n, struct rdma_cm_id *id,
		      const struct admit_session *session, unsigned int lists)
{
	struct door_visit *v = malloc(sizeof(*v));

	if (!v || rdma_migrate_id(id, n->adapter.events) != 0) {
		free(v);
		reject_for_now(id);
		rdma_destroy_id(id);
		return;
	}
	*v = (struct door_visit){.id = id, .session = *session, .lists = lists};
	lock_acquire(&n->door.lock);
	list_add_tail(&n->door.waiting, &v->link);
	n->door.num_waiting++;
	lock_release(&n->door.lock);
	node_wake(n);
}

/* Returns true if the visitor is admitted; otherwise it is rejected. */
static bool judge(struct stag_pool_node *n, struct rdma_cm_id *id,
		  const struct rdma_conn_param *asked, struct admit_session *session,
		  unsigned int *lists)
{
	struct node_door *d = &n->door;
	struct admit_place where = {0};
	uint8_t reply[ADMIT_MAX];
	const void *address;
	size_t address_len = source_of_address(rdma_get_peer_addr(id), &address), len;
	enum admit_verdict verdict;
	bool admitted;

	if (!dv_shares(n->adapter.context, id->verbs)) { /* it does not have the region */
		reject_for_now(id);
		return false;
	}
	lock_acquire(&d->lock);
	if (!n->admit) {
		lock_release(&d->lock);
		reject_for_now(id);
		return false;
	}
	*lists = d->lists;
	where.epoch = d->epoch;
	where.primary = d->primary[0] ? d->primary : NULL;
	verdict = admit_judge(n->admit, clock_boot_ns(), address, address_len, &where,
			      asked->private_data, asked->private_data_len, reply, &len, session);
	lock_release(&d->lock);
	admitted = verdict == ADMIT_YES && pool_tls_is_of(id, session);
	if (session->as == ADMIT_NODE)
		recognize_node(d, session, !admitted);
	if (admitted)
		return true; /* else the reply is a refusal already */
	atomic_fetch_add_explicit(&d->refused, 1, memory_order_relaxed);
	if (session->name[0])
		report_admission(n, id, session->name,
				 verdict == ADMIT_YES ? "the connection is another user's"
				 : ((const struct admit_head *)reply)->extra
					 ? "too many attempts, or a late one"
					 : "wrong secret, or no such user");
	rdma_reject(id, reply, (uint8_t)len);
	return false;
}

static void handle_request(struct stag_pool_node *n, struct rdma_cm_event *event)
{
	struct node_door *d = &n->door;
	struct rdma_cm_id *id = event->id;
	uint64_t now = clock_boot_ns();
	struct admit_session session;
	struct door_source *source;
	const void *address;
	size_t len = source_of_address(rdma_get_peer_addr(id), &address);
	unsigned int lists = 0;
	bool admitted = false;

	source = source_of(d, address, len);
	id->context = NULL;
	if (!may_be_judged(d, source, now) || d->num_waiting >= MOST_WAITING) {
		note_limited(d, id);
		reject_for_now(id);
	} else {
		admitted = judge(n, id, &event->param.conn, &session, &lists);
	}
	rdma_ack_cm_event(event);
	if (admitted) {
		source->known_at = now;
		hand_over(n, id, &session, lists);
	} else {
		rdma_destroy_id(id);
	}
}

/* ---- the thread -------------------------------------------------------------------------------- */

static void *run_door(void *arg)
{
	struct stag_pool_node *n = arg;
	struct pollfd fds[] = {{.fd = n->door.events->fd, .events = POLLIN},
			       {.fd = n->door.stop, .events = POLLIN}};
	struct rdma_cm_event *event;

	while (poll(fds, 2, -1) < 0 || !fds[1].revents) {
		if (rdma_get_cm_event(n->door.events, &event) != 0)
			continue;
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			handle_request(n, event);
		else /* of an id that was refused */
			rdma_ack_cm_event(event);
	}
	return NULL;
}

int door_open(struct stag_pool_node *n)
{
	struct node_door *d = &n->door;

	if (RAND_bytes((unsigned char *)d->key, sizeof(d->key)) != 1)
		return -EIO;
	d->tokens = MOST_TOKENS;
	d->filled_at = clock_boot_ns();
	d->stop = eventfd(0, EFD_CLOEXEC);
	if (d->stop < 0)
		return -errno;
	d->events = rdma_create_event_channel();
	return d->events && set_nonblocking(d->events->fd) == 0 ? 0 : -errno;
}

int door_start(struct stag_pool_node *n)
{
	int rc = -pthread_create(&n->door.thread, NULL, run_door, n);

	n->door.running = rc == 0;
	if (rc == 0)
		pthread_setname_np(n->door.thread, "stag-door");
	return rc;
}

void door_stop(struct stag_pool_node *n)
{
	if (!n->door.running)
		return;
	if (eventfd_write(n->door.stop, 1) != 0)
		log_err("node %s: its door cannot be stopped", n->conf.name);
	pthread_join(n->door.thread, NULL);
	n->door.running = false;
	while (!list_empty(&n->door.waiting)) {
		struct door_visit *v = list_entry(n->door.waiting.next, struct door_visit, link);

		list_del(&v->link);
		rdma_destroy_id(v->id);
		free(v);
	}
}

void door_close(struct stag_pool_node *n)
{
	if (n->door.events)
		rdma_destroy_event_channel(n->door.events);
	if (n->door.stop >= 0)
		close(n->door.stop);
}

/* ---- called by the node's thread ----------------------------------------------------------------- */

static bool is_primary(const struct role *r)
{
	return r->state == ROLE_PRIMARY || r->state == ROLE_HANDING;
}

/* Logs what was refused for want of tokens: once a second, and the last address only. */
static void log_limited(struct stag_pool_node *n)
{
	struct node_door *d = &n->door;
	uint64_t limited = atomic_load_explicit(&d->limited, memory_order_relaxed);
	char peer[ROLL_ADDRESS_LEN];

	if (limited == d->logged || n->now - d->logged_at < NS_PER_S)
		return;
	lock_acquire(&d->lock);
	memcpy(peer, d->greedy, sizeof(peer));
	lock_release(&d->lock);
	node_log(n, LOG_LEVEL_WARN,
		 "%llu connection requests refused, too many in a second; the last one is from %s",
		 (unsigned long long)(limited - d->logged), peer);
	d->logged = limited;
	d->logged_at = n->now;
}

static void update_members(struct node_door *d, const struct roll *roll)
{
	assert(lock_held(&d->lock));
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++) {
		struct door_member *m = &d->members[s];

		if (strcmp(m->name, roll->members[s].name) == 0)
			continue;
		*m = (struct door_member){.refused_at = 0};
		memcpy(m->name, roll->members[s].name, sizeof(m->name));
		if (m->name[0] && !admit_mark_name(m->name, m->mark))
			m->name[0] =
				'\0'; /* without memory: the next change of the roll tries again */
	}
}

/* Tells the door what challenges say about the primary, and which nodes are in the roll. */
void door_update(struct stag_pool_node *n)
{
	const struct role *r = &n->role;
	struct node_door *d = &n->door;
	const char *primary = "";

	log_limited(n);
	if (d->revision == r->revision && d->state == r->state)
		return;
	if (r->revision && !is_primary(r) && (int)r->roll.primary != r->seat)
		primary = r->roll.members[r->roll.primary].address;
	HOLD_FOR_SCOPE(&d->lock);
	d->revision = r->revision;
	d->state = r->state;
	d->epoch = r->epoch;
	strncpy(d->primary, primary, sizeof(d->primary) - 1);
	update_members(d, &r->roll);
}

bool door_refuses(struct stag_pool_node *n, unsigned int seat)
{
	struct node_door *d = &n->door;

	HOLD_FOR_SCOPE(&d->lock);
	return d->members[seat].refused_at &&
	       clock_boot_ns() - d->members[seat].refused_at < REFUSED_FOR;
}

static struct door_visit *next_visit(struct stag_pool_node *n)
{
	struct door_visit *v;

	HOLD_FOR_SCOPE(&n->door.lock);
	if (list_empty(&n->door.waiting))
		return NULL;
	v = list_entry(n->door.waiting.next, struct door_visit, link);
	list_del(&v->link);
	n->door.num_waiting--;
	return v;
}

/* Accepts or rejects an admitted connection: we may be primary no more, or the users may have changed. */
static void accept_visit(struct stag_pool_node *n, struct door_visit *v)
{
	int rc = -EAGAIN;

	if (n->serve.running && v->lists == n->door.lists)
		rc = v->session.as == ADMIT_NODE ? link_accept(n, v->id, &v->session)
						 : serve_accept(n, v->id, &v->session);
	if (rc == 0) {
		report_admission(n, v->id, v->session.name, NULL);
		return;
	}
	if (rc == -EUSERS) {
		atomic_fetch_add_explicit(&n->door.refused, 1, memory_order_relaxed);
		report_admission(n, v->id, v->session.name,
				 "the user has as many connections as user-clients allows");
	}
	reject_for_now(v->id);
	rdma_destroy_id(v->id);
}

void door_accept(struct stag_pool_node *n)
{
	if (atomic_load_explicit(&n->door.num_waiting, memory_order_relaxed) == 0)
		return;
	for (unsigned int i = 0; i < AT_ONCE; i++) {
		struct door_visit *v = next_visit(n);

		if (!v)
			return;
		n->loop.busy = true;
		accept_visit(n, v);
		free(v);
	}
}
