// SPDX-License-Identifier: BSD-2-Clause
/*
 * login.c - a login (RFC 7143 §6.3) on the target's side: the initiator's identity, the session type, and the negotiated keys.
 *
 *   (first request) -> SECURITY -> OPERATIONAL -> FULL      the initiator may begin with either stage, and skip one
 *
 * Requests in, responses out. The caller decides whether there can be a session (target_login_finish()).
 */
#include "block/target/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_REQUESTS	 64   /* of one login */
#define RESPONSE_MAX	 8192 /* bytes that every initiator accepts during login */
#define PORTAL_GROUP_TAG "1"

struct target_login *target_login_new(const struct target_login_rules *rules)
{
	struct target_login *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->rules = rules;
	iscsi_keys_begin(&l->keys, &rules->wishes);
	return l;
}

void target_login_free(struct target_login *l)
{
	free(l);
}

static void refuse(struct target_login *l, enum login_status status)
{
	if (l->status == LOGIN_OK)
		l->status = status;
}

/* ---- keys --------------------------------------------------------------------------- */

static void set_name(struct target_login *l, char to[STAG_BLOCK_NAME_MAX], const char *value)
{
	if (*to || !iscsi_text_is_name(value)) {
		refuse(l, LOGIN_INITIATOR_ERROR);
		return;
	}
	snprintf(to, STAG_BLOCK_NAME_MAX, "%s", value);
}

static void on_initiator_name(struct target_login *l, const char *value)
{
	set_name(l, l->initiator, value);
}

static void on_target_name(struct target_login *l, const char *value)
{
	set_name(l, l->target, value);
}

static void on_session_type(struct target_login *l, const char *value)
{
	if (strcmp(value, "Discovery") == 0)
		l->discovery = l->keys.discovery = true;
	else if (strcmp(value, "Normal") != 0)
		refuse(l, LOGIN_NO_SESSION_TYPE);
}

static void on_ignored(struct target_login *l, const char *value)
{
}

static void on_auth_method(struct target_login *l, const char *value)
{
	l->chap.said.method = value;
}

static void on_chap_a(struct target_login *l, const char *value)
{
	l->chap.said.list = value;
}

static void on_chap_n(struct target_login *l, const char *value)
{
	l->chap.said.name = value;
	snprintf(l->claimed, sizeof(l->claimed), "%s", value);
}

static void on_chap_r(struct target_login *l, const char *value)
{
	l->chap.said.response = value;
}

static void on_chap_i(struct target_login *l, const char *value)
{
	l->chap.said.peer_id = value;
}

static void on_chap_c(struct target_login *l, const char *value)
{
	l->chap.said.peer_challenge = value;
}

static const struct {
	const char *name;
	void (*take)(struct target_login *l, const char *value);
} own_keys[] = {
	{"InitiatorName", on_initiator_name},
	{"InitiatorAlias", on_ignored},
	{"TargetName", on_target_name},
	{"SessionType", on_session_type},
	{"AuthMethod", on_auth_method},
	{"CHAP_A", on_chap_a},
	{"CHAP_N", on_chap_n},
	{"CHAP_R", on_chap_r},
	{"CHAP_I", on_chap_i},
	{"CHAP_C", on_chap_c},
};

static bool handle_login_key(struct target_login *l, const char *key, const char *value)
{
	for (size_t i = 0; i < sizeof(own_keys) / sizeof(*own_keys); i++)
		if (strcmp(own_keys[i].name, key) == 0) {
			own_keys[i].take(l, value);
			return true;
		}
	return false;
}

static void handle_pair(struct target_login *l, const char *key, const char *value)
{
	if (handle_login_key(l, key, value))
		return;
	switch (iscsi_keys_receive(&l->keys, key, value, &l->out)) {
	case KEY_ANSWERED:
		return;
	case KEY_UNKNOWN:
		iscsi_text_add(&l->out, key, "NotUnderstood");
		return;
	case KEY_REPEATED:
	case KEY_WRONG_TIME:
		refuse(l, LOGIN_INITIATOR_ERROR);
	}
}

static void handle_pairs(struct target_login *l)
{
	const char *key, *value;
	uint32_t at = 0;
	int rc;

	while ((rc = iscsi_text_next(&l->in, &at, &key, &value)) > 0 && l->status == LOGIN_OK)
		handle_pair(l, key, value);
	if (rc < 0)
		refuse(l, LOGIN_INITIATOR_ERROR);
}

/* ---- the first request ------------------------------------------------------------------ */

static void begin_login(struct target_login *l, const struct pdu *p)
{
	l->begun = true;
	l->stage = LOGIN_CSG(p->flags);
	memcpy(l->isid, p->isid, sizeof(l->isid));
	l->tsih = p->tsih;
	l->cid = p->cid;
	l->cmd_sn = p->cmd_sn;
	if (p->status > 0) /* Version-min: only version 0 exists */
		refuse(l, LOGIN_BAD_VERSION);
}

/* Checks the names, once the first list is complete. */
static void check_names(struct target_login *l)
{
	if (l->lacks_tls) {
		refuse(l, LOGIN_FORBIDDEN);
		return;
	}
	if (!*l->initiator || (!l->discovery && !*l->target)) {
		refuse(l, LOGIN_MISSING_PARAMETER);
		return;
	}
	if (*l->target && strcasecmp(l->target, l->rules->target) != 0) {
		refuse(l, LOGIN_NOT_FOUND);
		return;
	}
	if (!target_rights_have(l->rules, l->initiator, false) &&
	    !target_rights_have(l->rules, l->initiator, true)) {
		refuse(l, LOGIN_FORBIDDEN);
		return;
	}
	if (l->discovery)
		return;
	iscsi_text_add(&l->out, "TargetPortalGroupTag", PORTAL_GROUP_TAG);
	if (l->rules->alias)
		iscsi_text_add(&l->out, "TargetAlias", l->rules->alias);
}

/* ---- requests ----------------------------------------------------------------------------- */

static bool follows(const struct target_login *l, const struct pdu *p)
{
	return LOGIN_CSG(p->flags) == l->stage && p->tsih == l->tsih && p->cid == l->cid &&
	       memcmp(p->isid, l->isid, sizeof(l->isid)) == 0;
}

/* RFC 7143 §11.12.3 to §11.12.4 */
static bool stages_are_possible(uint8_t flags)
{
	enum login_stage csg = LOGIN_CSG(flags), nsg = LOGIN_NSG(flags);

	if (csg != STAGE_SECURITY && csg != STAGE_OPERATIONAL)
		return false;
	if (!(flags & LOGIN_TRANSIT))
		return true;
	return !(flags & PDU_CONTINUE) && nsg > csg && nsg != STAGE_NONE;
}

static void check_request(struct target_login *l, const struct pdu *p)
{
	if (p->opcode != LOGIN_REQUEST)
		refuse(l, LOGIN_INVALID_REQUEST);
	else if (++l->requests > MAX_REQUESTS || !stages_are_possible(p->flags))
		refuse(l, LOGIN_INITIATOR_ERROR);
	else if (!l->begun)
		begin_login(l, p);
	else if (!follows(l, p))
		refuse(l, LOGIN_INITIATOR_ERROR);
}

static bool may_leave_security(const struct target_login *l)
{
	return l->authenticated ||
	       (l->chap.state == CHAP_IDLE && target_rights_have(l->rules, l->initiator, false));
}

/* Moves to the next stage if the request asks for it. Returns the flags of the response. */
static uint8_t transit(struct target_login *l, const struct pdu *p)
{
	enum login_stage from = l->stage;

	if (!(p->flags & LOGIN_TRANSIT) || (from == STAGE_SECURITY && !may_leave_security(l)))
		return LOGIN_STAGES(from, 0);
	l->stage = LOGIN_NSG(p->flags);
	return LOGIN_TRANSIT | LOGIN_STAGES(from, l->stage);
}

static void respond(const struct target_login *l, struct pdu *r)
{
	*r = (struct pdu){.opcode = LOGIN_RESPONSE,
			  .tsih = l->tsih,
			  .itt = l->request.itt,
			  .exp_cmd_sn = l->cmd_sn,
			  .max_cmd_sn = l->cmd_sn,
			  .status_class = (uint8_t)(l->status >> 8),
			  .status_detail = (uint8_t)l->status};
	memcpy(r->isid, l->isid, sizeof(r->isid));
}

static enum target_login_result refused(struct target_login *l, struct pdu *r)
{
	l->out.len = 0;
	respond(l, r);
	return LOGIN_REFUSED;
}

/* The key of the connection and the proof inside must be of the same user. */
static void check_user(struct target_login *l)
{
	if (l->tls_user && l->user && strcmp(l->user, l->tls_user) != 0)
		refuse(l, LOGIN_AUTHENTICATION_FAILED);
}

/* Handles a complete list. */
static void handle_list(struct target_login *l)
{
	bool first = !*l->initiator;

	l->chap.said = (struct chap_words){0};
	handle_pairs(l);
	if (l->status == LOGIN_OK && first)
		check_names(l);
	if (l->status == LOGIN_OK && l->chap.said.method && l->stage != STAGE_SECURITY)
		refuse(l, LOGIN_INITIATOR_ERROR);
	if (l->status == LOGIN_OK && l->stage == STAGE_SECURITY)
		target_login_chap(l);
	check_user(l);
	if (l->stage != STAGE_SECURITY && !may_leave_security(l))
		refuse(l, LOGIN_AUTHENTICATION_FAILED);
	if (l->status == LOGIN_OK && l->stage == STAGE_OPERATIONAL)
		iscsi_keys_declare(&l->keys, &l->out);
	if (l->out.full || l->out.len > RESPONSE_MAX)
		refuse(l, LOGIN_INITIATOR_ERROR);
	l->in.len = 0;
}

/* RFC 7145 §6.3: a connection that begins as RDMA requires RDMAExtensions. */
static bool lacks_extensions(const struct target_login *l)
{
	return l->rules->wishes.rdma && !l->discovery && !l->keys.agreed.rdma_extensions;
}

enum target_login_result target_login_receive(struct target_login *l, const struct pdu *p,
					      const void *data, struct pdu *response)
{
	uint8_t flags;

	l->request = *p;
	l->out.len = 0;
	l->out.full = false;
	check_request(l, p);
	if (l->status == LOGIN_OK && iscsi_text_collect(&l->in, data, p->data_len) != 0)
		refuse(l, LOGIN_INITIATOR_ERROR);
	if (l->status == LOGIN_OK && (p->flags & PDU_CONTINUE)) {
		respond(l, response);
		response->flags = LOGIN_STAGES(l->stage, 0);
		return LOGIN_GOES_ON;
	}
	if (l->status == LOGIN_OK)
		handle_list(l);
	if (l->status != LOGIN_OK)
		return refused(l, response);
	flags = transit(l, p);
	if (l->stage == STAGE_FULL && lacks_extensions(l)) {
		refuse(l, LOGIN_MISSING_PARAMETER);
		return refused(l, response);
	}
	if (l->stage == STAGE_FULL) {
		iscsi_keys_conclude(&l->keys);
		return LOGIN_AGREED;
	}
	respond(l, response);
	response->flags = flags;
	return LOGIN_GOES_ON;
}

enum target_login_result target_login_finish(struct target_login *l, enum login_status status,
					     uint16_t tsih, struct pdu *response)
{
	refuse(l, status);
	if (l->status != LOGIN_OK)
		return refused(l, response);
	l->tsih = tsih;
	respond(l, response);
	response->flags = LOGIN_TRANSIT | LOGIN_STAGES(LOGIN_CSG(l->request.flags), STAGE_FULL);
	return LOGIN_AGREED;
}
