// SPDX-License-Identifier: BSD-2-Clause
/*
 * conn.c - a connection of any transport: login, sequence numbers, time limits, end.
 */
#include "block/target/target.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define VIOLATION_WORDS 256

/* ---- states -------------------------------------------------------------------------- */

const char *target_conn_state_name(enum target_conn_state state)
{
	static const char *const names[] = {
		[CONN_LOGIN] = "login",	    [CONN_PARKED] = "parked", [CONN_FULL] = "full feature",
		[CONN_CLOSING] = "closing", [CONN_DEAD] = "dead",
	};

	return names[state];
}

/* The only writer of c->state after target_conn_open(). */
static void set_state(struct target_conn *c, enum target_conn_state to)
{
	static const uint8_t legal_from[] = {
		[CONN_PARKED] = 1u << CONN_LOGIN | 1u << CONN_PARKED,
		[CONN_FULL] = 1u << CONN_LOGIN | 1u << CONN_PARKED,
		[CONN_CLOSING] = 1u << CONN_LOGIN | 1u << CONN_PARKED | 1u << CONN_FULL,
		[CONN_DEAD] =
			1u << CONN_LOGIN | 1u << CONN_PARKED | 1u << CONN_FULL | 1u << CONN_CLOSING,
	};

	assert(legal_from[to] & 1u << c->state);
	(void)legal_from;
	log_debug("block: %s: %s -> %s", c->peer, target_conn_state_name(c->state),
		  target_conn_state_name(to));
	c->state = to;
	if (to == CONN_FULL || to == CONN_DEAD)
		target_stranger_remove(c);
	else if (list_empty(&c->stranger))
		target_stranger_add(c);
}

void target_conn_open(struct stag_block_target *t, struct target_conn *c,
		      const struct target_transport *ops)
{
	c->target = t;
	c->ops = ops;
	c->state = CONN_LOGIN;
	c->stat_sn = 1;
	c->ping = TAG_NONE;
	c->begun = c->heard = c->moved = t->loop.now;
	list_init(&c->dirty);
	list_init(&c->stranger);
	list_add_tail(&t->conns.list, &c->link);
	t->conns.count++;
	target_stranger_add(c);
	target_strangers_limit(c);
}

/* ---- who did what ------------------------------------------------------------------- */

static const char *initiator_of(const struct target_conn *c)
{
	const char *name = c->session ? c->session->initiator : c->login ? c->login->initiator : "";

	return *name ? name : NULL;
}

void target_audit(const struct target_conn *c, const char *action, enum stag_audit_outcome outcome,
		  const char *reason)
{
	char object[STAG_BLOCK_NAME_MAX + 8];

	if (!audit_is_on())
		return;
	snprintf(object, sizeof(object), "target %s", c->target->config.rules.target);
	audit_report(&(struct stag_audit_record){.room = "block",
						 .object = object,
						 .user = initiator_of(c),
						 .from = c->peer,
						 .action = action,
						 .reason = reason,
						 .outcome = outcome});
}

/* ---- its end ------------------------------------------------------------------------ */

static void free_login(struct target_conn *c)
{
	if (!c->login)
		return;
	target_login_free(c->login);
	c->login = NULL;
}

static void end_session(struct target_conn *c)
{
	struct target_session *s = c->session;

	c->session = NULL;
	if (s)
		target_session_end(s);
}

void target_conn_end(struct target_conn *c)
{
	struct stag_block_target *t = c->target;

	if (c->state == CONN_DEAD)
		return;
	if (c->session)
		t->counters.lost++;
	set_state(c, CONN_DEAD);
	end_session(c);
	c->ops->close(c);
	free_login(c);
	list_del(&c->dirty);
	list_del(&c->link);
	list_add_tail(&t->conns.dead, &c->link);
	t->conns.count--;
}

void target_conn_finish(struct target_conn *c)
{
	if (c->state == CONN_DEAD || c->state == CONN_CLOSING)
		return;
	set_state(c, CONN_CLOSING);
	c->begun = c->target->loop.now;
	end_session(c);
	free_login(c);
	target_conn_dirty(c);
}

void target_conn_violation(struct target_conn *c, const char *fmt, ...)
{
	char words[VIOLATION_WORDS];
	va_list args;

	if (c->state == CONN_DEAD)
		return;
	va_start(args, fmt);
	vsnprintf(words, sizeof(words), fmt, args);
	va_end(args);
	target_conn_count(c, violations);
	if (c->state == CONN_FULL)
		target_log(c->target, "%s: broke the protocol: %s", c->peer, words);
	else if (c->state != CONN_CLOSING)
		target_refused(c, "broke the protocol: %s", words);
	target_conn_end(c);
}

/* ---- out ------------------------------------------------------------------------------ */

void target_conn_dirty(struct target_conn *c)
{
	if (list_empty(&c->dirty))
		list_add_tail(&c->target->conns.dirty, &c->dirty);
}

void target_conn_number(struct target_conn *c, struct pdu *p, bool status)
{
	p->stat_sn = c->stat_sn;
	if (status)
		c->stat_sn++;
	if (c->session) {
		p->exp_cmd_sn = c->session->exp_cmd_sn;
		p->max_cmd_sn = c->session->max_cmd_sn;
	}
}

void target_conn_send(struct target_conn *c, struct pdu *p, const void *data, uint32_t len)
{
	/* An R2T and a NOP-In that the target sends of its own accord take no StatSN. */
	bool status = p->opcode != R2T && !(p->opcode == NOP_IN && p->itt == TAG_NONE);

	target_conn_number(c, p, status);
	c->ops->send(c, p, data, len);
}

void target_conn_reject(struct target_conn *c, enum reject_reason why, const uint8_t bhs[BHS_LEN])
{
	struct pdu p = {
		.opcode = REJECT, .flags = PDU_FINAL, .code = (uint8_t)why, .itt = TAG_NONE};

	target_conn_send(c, &p, bhs, BHS_LEN);
}

void target_conn_reject_violation(struct target_conn *c, enum reject_reason why,
				  const uint8_t bhs[BHS_LEN])
{
	target_conn_count(c, violations);
	target_conn_reject(c, why, bhs);
}

/* ---- login ------------------------------------------------------------------------------ */

static void send_login(struct target_conn *c, struct pdu *p)
{
	p->stat_sn = c->stat_sn++;
	c->ops->send(c, p, c->login->out.bytes, c->login->out.len);
}

static void refuse_login(struct target_conn *c, struct pdu *p)
{
	const struct target_login *l = c->login;

	target_refused(c, "%s%s%s%s%s%s", l->lacks_tls ? "TLS is required: " : "",
		       iscsi_login_status_name(l->status), *l->initiator ? ": " : "", l->initiator,
		       *l->claimed ? ", CHAP user " : "", l->claimed);
	send_login(c, p);
	target_conn_finish(c);
}

/* Enters full feature phase after the response, which is the last PDU without digests. */
static void enter_full_feature(struct target_conn *c, struct target_session *s, struct pdu *p)
{
	struct stag_block_target *t = c->target;

	p->max_cmd_sn = s->max_cmd_sn;
	p->exp_cmd_sn = s->exp_cmd_sn;
	send_login(c, p);
	c->session = s;
	set_state(c, CONN_FULL);
	c->cid = c->login->cid;
	t->counters.logins++;
	s->counters.logins++;
	free_login(c);
	target_portal_resume(t);
	target_audit(c, "login", STAG_AUDIT_ALLOWED, s->discovery ? "for discovery" : NULL);
	target_log(t, "%s: %s logged in%s%s%s", c->peer, s->initiator, s->user ? " as " : "",
		   s->user ? s->user : "", s->discovery ? " for discovery" : "");
}

void target_conn_unpark(struct target_conn *c)
{
	struct target_session *s = NULL;
	bool wait = false;
	enum login_status status = target_session_open(c, &s, &wait);
	struct pdu p;

	if (wait) {
		set_state(c, CONN_PARKED);
		return;
	}
	if (target_login_finish(c->login, status, s ? s->tsih : 0, &p) == LOGIN_AGREED)
		enter_full_feature(c, s, &p);
	else
		refuse_login(c, &p);
	if (c->state == CONN_FULL)
		c->ops->resume(c);
}

static void receive_login(struct target_conn *c, const struct pdu *request, const void *data)
{
	struct pdu p;

	if (!c->login)
		c->login = target_login_new(c->ops->rdma ? &c->target->config.rdma_rules
							 : &c->target->config.rules);
	if (!c->login) {
		target_conn_end(c);
		return;
	}
	target_tls_inform(c, c->login);
	switch (target_login_receive(c->login, request, data, &p)) {
	case LOGIN_GOES_ON:
		send_login(c, &p);
		return;
	case LOGIN_REFUSED:
		refuse_login(c, &p);
		return;
	case LOGIN_AGREED:
		target_conn_unpark(c);
	}
}

/* ---- in ----------------------------------------------------------------------------------- */

void target_conn_received(struct target_conn *c, const struct pdu *p, const uint8_t bhs[BHS_LEN],
			  const void *data)
{
	switch (c->state) {
	case CONN_LOGIN:
		receive_login(c, p, data);
		return;
	case CONN_FULL:
		target_session_request(c->session, p, bhs, data);
		return;
	case CONN_PARKED:
	case CONN_CLOSING:
	case CONN_DEAD:
		return;
	}
}

/* ---- time ----------------------------------------------------------------------------------- */

static void ping(struct target_conn *c, uint64_t now)
{
	struct pdu p = {.opcode = NOP_IN, .flags = PDU_FINAL, .itt = TAG_NONE};

	c->ping = p.ttt = target_session_ttt(c->session);
	c->pinged = now;
	target_conn_send(c, &p, NULL, 0);
}

static void forgive(uint64_t *since, uint64_t lost_ns, uint64_t now)
{
	*since = now - *since > lost_ns ? *since + lost_ns : now;
}

void target_conn_forgive(struct target_conn *c, uint64_t lost_ns)
{
	uint64_t now = c->target->loop.now;

	forgive(&c->begun, lost_ns, now);
	forgive(&c->heard, lost_ns, now);
	forgive(&c->moved, lost_ns, now);
	forgive(&c->pinged, lost_ns, now);
}

/* A peer that answers pings but neither sends nor receives its data holds buffers that others wait for. */
static bool is_stuck(struct target_conn *c, uint64_t now)
{
	const struct target_limits *l = &c->target->config.limits;

	if (!c->ops->owes(c))
		c->moved = now;
	return now - c->moved >
	       (c->target->buffers.scarce && c->session->buffers ? l->scarce_ns : l->data_ns);
}

static void evict(struct target_conn *c, const char *why)
{
	target_log(c->target, "%s: %s evicted: it %s", c->peer, c->session->initiator, why);
	target_audit(c, "session", STAG_AUDIT_FAILED, why);
	target_conn_count(c, evicted);
	target_conn_end(c);
}

static void tick_full(struct target_conn *c, uint64_t now)
{
	const struct target_limits *l = &c->target->config.limits;

	if (is_stuck(c, now)) {
		evict(c, "neither sends nor receives its data");
		return;
	}
	if (c->ping == TAG_NONE) {
		if (now - c->heard >= l->ping_ns)
			ping(c, now);
	} else if (now - c->pinged >= l->answer_ns) {
		evict(c, "does not answer pings");
	}
}

void target_conn_tick(struct target_conn *c, uint64_t now)
{
	const struct target_limits *l = &c->target->config.limits;

	switch (c->state) {
	case CONN_LOGIN:
		if (now - c->begun < l->login_ns)
			return;
		target_refused(c, "timed out");
		target_conn_end(c);
		return;
	case CONN_FULL:
		tick_full(c, now);
		return;
	case CONN_CLOSING:
		if (now - c->begun >= l->close_ns)
			target_conn_end(c);
		return;
	case CONN_PARKED:
	case CONN_DEAD:
		return;
	}
}
