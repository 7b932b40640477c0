// SPDX-License-Identifier: BSD-2-Clause
/*
 * session.c - a session: its identity, the order of its requests (RFC 7143 §4.2.2), and requests other than commands.
 *
 * The window: MaxCmdSN is ahead of the requests that have ended by as many as may be in flight. A request outside the window is
 * ignored; one that arrives too early is held until those before it have arrived.
 */
#include "block/target/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HELD_DATA_MAX 8192 /* bytes of data of a held request */
#define ASYNC_SECONDS 3	   /* time to log out after an asynchronous message */

/* A request that arrived too early: a copy of it, or a task. */
struct held_request {
	struct list link;
	uint32_t cmd_sn;
	struct target_task *task; /* NULL: the PDU below is used */
	struct pdu pdu;
	uint8_t bhs[BHS_LEN];
	uint8_t data[];
};

/* ---- beginning and end -------------------------------------------------------------- */

static bool is_same_port(const struct target_session *s, const struct target_login *l)
{
	return memcmp(s->isid, l->isid, ISID_LEN) == 0 && s->discovery == l->discovery &&
	       strcasecmp(s->initiator, l->initiator) == 0;
}

/*
 * The name and ISID of a port are no secret: they entitle nobody to end the session of another user. A session without a user may
 * be anybody's, and does not lock out a user who has authenticated.
 */
static bool may_replace(const struct target_session *s, const struct target_login *l)
{
	return !s->user || (l->user && strcmp(s->user, l->user) == 0);
}

static bool is_anothers(const struct target_conn *c)
{
	list_for_each (it, &c->target->sessions.list) {
		const struct target_session *s = list_entry(it, struct target_session, link);

		if (s->conn && is_same_port(s, c->login) && !may_replace(s, c->login))
			return true;
	}
	return false;
}

/* RFC 7143 §6.3.5: a login of the same port replaces its session. Returns true while the old session still exists. */
static bool replace_old(struct target_conn *c)
{
	bool there = false;

	list_for_each_safe (it, &c->target->sessions.list) {
		struct target_session *s = list_entry(it, struct target_session, link);

		if (!is_same_port(s, c->login))
			continue;
		if (s->conn) {
			target_log(c->target, "%s: replaces the session of %s from %s", c->peer,
				   s->initiator, s->conn->peer);
			target_conn_end(s->conn);
		}
	}
	list_for_each (it, &c->target->sessions.list)
		there |= is_same_port(list_entry(it, struct target_session, link), c->login);
	return there;
}

static struct target_session *find_tsih(struct stag_block_target *t, uint16_t tsih)
{
	list_for_each (it, &t->sessions.list)
		if (list_entry(it, struct target_session, link)->tsih == tsih)
			return list_entry(it, struct target_session, link);
	return NULL;
}

static uint16_t new_tsih(struct stag_block_target *t)
{
	do
		t->sessions.last_tsih++;
	while (t->sessions.last_tsih == 0 || find_tsih(t, t->sessions.last_tsih));
	return t->sessions.last_tsih;
}

/* A login to an existing session may only replace its one connection. */
static enum login_status check_tsih(struct target_conn *c)
{
	const struct target_login *l = c->login;
	const struct target_session *s = find_tsih(c->target, l->tsih);

	if (c->state == CONN_PARKED) /* checked before it was parked */
		return LOGIN_OK;
	if (!s || !s->conn || !is_same_port(s, l))
		return LOGIN_NO_SESSION;
	return s->conn->cid == l->cid ? LOGIN_OK : LOGIN_TOO_MANY_CONNECTIONS;
}

static int make_nexus(struct target_session *s, const struct scsi_view *view)
{
	char name[STAG_BLOCK_NAME_MAX + 24];
	const uint8_t *i = s->isid;

	if (s->discovery)
		return 0;
	snprintf(name, sizeof(name), "%s,i,0x%02x%02x%02x%02x%02x%02x", s->initiator, i[0], i[1],
		 i[2], i[3], i[4], i[5]);
	return scsi_nexus_create(s->target->scsi, name, view, &s->nexus);
}

static struct target_session *make_session(struct target_conn *c)
{
	const struct target_login *l = c->login;
	struct stag_block_target *t = c->target;
	struct target_session *s = calloc(1, sizeof(*s));
	const struct target_right *right;

	if (!s)
		return NULL;
	s->target = t;
	s->conn = c;
	s->discovery = l->discovery;
	s->keys = l->keys.agreed;
	memcpy(s->isid, l->isid, ISID_LEN);
	snprintf(s->initiator, sizeof(s->initiator), "%s", l->initiator);
	s->user = l->user;
	right = target_rights_find(l->rules, l->initiator, l->user);
	if (make_nexus(s, right ? &right->view : NULL) != 0) {
		free(s);
		return NULL;
	}
	s->tsih = l->tsih ? l->tsih : new_tsih(t);
	s->id = ++t->sessions.last_id;
	s->exp_cmd_sn = l->cmd_sn;
	s->max_cmd_sn = l->cmd_sn + SESSION_WINDOW - 1;
	for (unsigned int i = 0; i < TASK_BUCKETS; i++)
		list_init(&s->buckets[i]);
	list_init(&s->held);
	list_init(&s->waiters);
	list_init(&s->waits);
	list_add_tail(&t->sessions.list, &s->link);
	t->sessions.count++;
	return s;
}

enum login_status target_session_open(struct target_conn *c, struct target_session **out,
				      bool *wait)
{
	const struct target_login *l = c->login;
	enum login_status status = l->tsih ? check_tsih(c) : LOGIN_OK;

	if (status != LOGIN_OK)
		return status;
	if (!target_rights_allow(l->rules, l->initiator, l->user) || is_anothers(c))
		return LOGIN_FORBIDDEN;
	if (c->target->stop.requested)
		return LOGIN_UNAVAILABLE;
	*wait = replace_old(c);
	if (*wait)
		return LOGIN_OK;
	if (c->target->sessions.count >= c->target->config.max_sessions)
		return LOGIN_NO_RESOURCES;
	*out = make_session(c);
	return *out ? LOGIN_OK : LOGIN_NO_RESOURCES;
}

void target_session_maybe_free(struct target_session *s)
{
	struct stag_block_target *t = s->target;

	if (s->conn || s->n_tasks)
		return;
	if (s->nexus)
		scsi_nexus_destroy(s->nexus);
	list_del(&s->link);
	t->sessions.count--;
	t->conns.unpark_due = true;
	target_stags_session_gone(s);
	free(s->text);
	free(s);
}

static void free_held(struct target_session *s)
{
	list_for_each_safe (it, &s->held) {
		struct held_request *h = list_entry(it, struct held_request, link);

		list_del(&h->link);
		if (h->task)
			target_task_start(h->task); /* cancelled: ends */
		free(h);
	}
	s->n_held = 0;
}

void target_session_end(struct target_session *s)
{
	s->n_tasks++; /* keeps the session until the end of this function */
	s->conn->session = NULL;
	target_tmf_session_gone(s);
	for (unsigned int i = 0; i < TASK_BUCKETS; i++)
		list_for_each_safe (it, &s->buckets[i])
			target_task_abort(list_entry(it, struct target_task, link));
	free_held(s);
	s->conn = NULL;
	s->n_tasks--;
	target_session_maybe_free(s);
}

/* ---- numbers ---------------------------------------------------------------------------- */

uint32_t target_session_ttt(struct target_session *s)
{
	if (++s->next_ttt == TAG_NONE)
		s->next_ttt = 1;
	return s->next_ttt;
}

/* Skips tasks that have responded, and whose data is still leaving: the initiator may use their tag again. */
struct target_task *target_session_find(struct target_session *s, uint32_t itt)
{
	list_for_each (it, &s->buckets[itt % TASK_BUCKETS]) {
		struct target_task *t = list_entry(it, struct target_task, link);

		if (t->itt == itt && t->state != TASK_RESPONDED)
			return t;
	}
	return NULL;
}

void target_session_retire(struct target_session *s, bool immediate)
{
	if (!immediate)
		s->max_cmd_sn++;
}

/* ---- requests other than commands ------------------------------------------------------------ */

static void receive_nop(struct target_session *s, const struct pdu *p, const void *data)
{
	struct target_conn *c = s->conn;
	struct pdu r = {.opcode = NOP_IN, .flags = PDU_FINAL, .itt = p->itt, .ttt = TAG_NONE};
	uint32_t len = p->data_len < s->keys.peer_recv_max ? p->data_len : s->keys.peer_recv_max;

	if (p->ttt != TAG_NONE && p->ttt == c->ping)
		c->ping = TAG_NONE;
	if (p->itt == TAG_NONE) /* the answer to a ping */
		return;
	target_conn_send(c, &r, data, len);
}

static void receive_logout(struct target_session *s, const struct pdu *p)
{
	enum logout_reason why = (enum logout_reason)(p->flags & 0x7f);
	struct target_conn *c = s->conn;
	struct pdu r = {.opcode = LOGOUT_RESPONSE,
			.flags = PDU_FINAL,
			.itt = p->itt,
			.param = {(uint16_t)s->keys.time2wait, (uint16_t)s->keys.time2retain}};

	if (why == LOGOUT_RECOVERY)
		r.code = LOGOUT_NO_RECOVERY;
	else if (why == LOGOUT_CONNECTION && p->cid != c->cid)
		r.code = LOGOUT_NO_CID;
	else if (why > LOGOUT_RECOVERY)
		r.code = LOGOUT_FAILED;
	target_conn_send(c, &r, NULL, 0);
	if (r.code != LOGOUT_DONE)
		return;
	s->target->counters.logouts++;
	target_log(s->target, "%s: %s logged out", c->peer, s->initiator);
	target_conn_finish(c);
}

void target_session_request_logout(struct target_session *s)
{
	struct pdu p = {.opcode = ASYNC_MESSAGE,
			.flags = PDU_FINAL,
			.itt = TAG_NONE,
			.event = ASYNC_LOGOUT,
			.param = {0, 0, ASYNC_SECONDS}};

	target_conn_send(s->conn, &p, NULL, 0);
}

/* A task management request counts as a request in flight until it is answered: in the window, or as immediate. */
static void receive_tmf(struct target_session *s, const struct pdu *p, const uint8_t bhs[BHS_LEN])
{
	if (p->immediate && s->n_immediate >= SESSION_IMMEDIATE)
		target_conn_reject_violation(s->conn, REJECT_TOO_MANY_IMMEDIATE, bhs);
	else
		target_tmf_receive(s, p);
}

static void execute(struct target_session *s, const struct pdu *p, const uint8_t bhs[BHS_LEN],
		    const void *data)
{
	if (p->opcode == TASK_REQUEST && !s->discovery) {
		receive_tmf(s, p, bhs);
		return;
	}
	target_session_retire(s, p->immediate);
	switch (p->opcode) {
	case NOP_OUT:
		receive_nop(s, p, data);
		return;
	case TEXT_REQUEST:
		target_session_text(s, p, data);
		return;
	case LOGOUT_REQUEST:
		receive_logout(s, p);
		return;
	}
	target_conn_reject(s->conn, p->opcode == SNACK_REQUEST ? REJECT_SNACK : REJECT_PROTOCOL,
			   bhs);
}

/* ---- order ------------------------------------------------------------------------------------ */

static bool is_in_window(const struct target_session *s, uint32_t cmd_sn)
{
	return (int32_t)(cmd_sn - s->exp_cmd_sn) >= 0 && (int32_t)(s->max_cmd_sn - cmd_sn) >= 0;
}

static void run_held(struct target_session *s)
{
	while (s->conn && !list_empty(&s->held)) {
		struct held_request *h = list_entry(s->held.next, struct held_request, link);

		if (h->cmd_sn != s->exp_cmd_sn)
			return;
		s->exp_cmd_sn++;
		s->n_held--;
		list_del(&h->link);
		if (h->task)
			target_task_start(h->task);
		else
			execute(s, &h->pdu, h->bhs, h->data);
		free(h);
	}
}

/* Inserts a held request by CmdSN. Returns -EEXIST if there is one with this number. */
static int insert_held(struct target_session *s, struct held_request *h)
{
	struct list *at = s->held.prev;

	while (at != &s->held &&
	       (int32_t)(list_entry(at, struct held_request, link)->cmd_sn - h->cmd_sn) > 0)
		at = at->prev;
	if (at != &s->held && list_entry(at, struct held_request, link)->cmd_sn == h->cmd_sn)
		return -EEXIST;
	list_add_tail(at->next, &h->link);
	s->n_held++;
	return 0;
}

static int hold_request(struct target_session *s, const struct pdu *p, const uint8_t bhs[BHS_LEN],
			const void *data, struct target_task *t, uint32_t cmd_sn)
{
	uint32_t len = p ? p->data_len : 0;
	struct held_request *h;
	int rc;

	if (len > HELD_DATA_MAX)
		return -EMSGSIZE;
	h = calloc(1, sizeof(*h) + len);
	if (!h)
		return -ENOMEM;
	h->cmd_sn = cmd_sn;
	h->task = t;
	if (p) {
		h->pdu = *p;
		memcpy(h->bhs, bhs, BHS_LEN);
		if (len)
			memcpy(h->data, data, len);
	}
	rc = insert_held(s, h);
	if (rc != 0)
		free(h);
	return rc;
}

void target_session_request(struct target_session *s, const struct pdu *p,
			    const uint8_t bhs[BHS_LEN], const void *data)
{
	struct stag_block_target *t = s->target;
	struct target_conn *c = s->conn;
	int rc;

	if (p->immediate) {
		execute(s, p, bhs, data);
	} else if (!is_in_window(s, p->cmd_sn)) {
		t->counters.violations++;
	} else if (p->cmd_sn != s->exp_cmd_sn) {
		rc = hold_request(s, p, bhs, data, NULL, p->cmd_sn);
		if (rc != 0 && rc != -EEXIST)
			target_conn_violation(c, "too much data in a request out of order");
	} else {
		s->exp_cmd_sn++;
		execute(s, p, bhs, data);
		if (c->session == s)
			run_held(s);
	}
}

/* Returns a text if the command has, or announces, data that is not allowed, or NULL. */
static const char *first_burst_fault(const struct target_session *s, const struct pdu *p)
{
	uint32_t most = p->expected < s->keys.first_burst ? p->expected : s->keys.first_burst;

	if (p->data_len && (!(p->flags & CMD_WRITE) || !s->keys.immediate_data))
		return "immediate data in a command that may have none";
	if (p->data_len > most)
		return "immediate data is longer than the first burst";
	if (!(p->flags & PDU_FINAL) && (p->flags & CMD_WRITE) && s->keys.initial_r2t)
		return "an unsolicited first burst, but InitialR2T=Yes";
	return NULL;
}

struct target_task *target_session_admit(struct target_session *s, const struct pdu *p,
					 const uint8_t bhs[BHS_LEN], const uint8_t *ahs,
					 const char *fault)
{
	struct target_conn *c = s->conn;
	const char *burst = first_burst_fault(s, p);
	struct target_task *t = NULL;

	if (s->discovery) {
		target_conn_reject_violation(c, REJECT_PROTOCOL, bhs);
	} else if (!p->immediate && !is_in_window(s, p->cmd_sn)) {
		target_conn_count(c, violations);
	} else if (burst || fault) {
		target_conn_violation(c, "%s", burst ? burst : fault);
	} else if (target_session_find(s, p->itt)) {
		target_conn_reject_violation(c, REJECT_TASK_IN_PROGRESS, bhs);
	} else if (p->immediate && s->n_immediate >= SESSION_IMMEDIATE) {
		target_conn_reject_violation(c, REJECT_TOO_MANY_IMMEDIATE, bhs);
	} else {
		t = target_task_new(s, p, ahs);
		if (!t)
			target_conn_end(c);
	}
	return t;
}

void target_session_command(struct target_task *t)
{
	struct target_session *s = t->session;
	struct target_conn *c = s->conn;

	if (t->immediate) {
		target_task_start(t);
		return;
	}
	if (t->cmd_sn != s->exp_cmd_sn) {
		if (!is_in_window(s, t->cmd_sn) ||
		    hold_request(s, NULL, NULL, NULL, t, t->cmd_sn) != 0) {
			s->target->counters.violations++;
			target_task_abort(t);
			target_task_start(t); /* ends it */
		}
		return;
	}
	s->exp_cmd_sn++;
	target_task_start(t);
	if (c->session == s)
		run_held(s);
}
