// SPDX-License-Identifier: BSD-2-Clause
/*
 * login.c - a login (RFC 7143 §6.3) from the initiator's side: names, CHAP, and what is agreed.
 *
 *   SECURITY (names, method; with CHAP: hash, proof) -> OPERATIONAL (keys) -> FULL
 *
 * Responses in, requests out: no sockets. A target that was to prove who it is, and does not, is not logged in to.
 */
#include "block/initiator/initiator.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_ROUNDS 32

void initiator_login_begin(struct initiator_login *e)
{
	iscsi_keys_begin(&e->keys, &e->wishes);
	e->keys.discovery = !e->target;
	e->stage = STAGE_SECURITY;
	iscsi_text_add(&e->out, "InitiatorName", e->initiator);
	iscsi_text_add(&e->out, "SessionType", e->target ? "Normal" : "Discovery");
	if (e->target)
		iscsi_text_add(&e->out, "TargetName", e->target);
	if (!e->user)
		iscsi_text_add(&e->out, "AuthMethod", "None");
	else /* who wants a proof from the target takes no None for an answer */
		iscsi_text_add(&e->out, "AuthMethod", e->peer_secret ? "CHAP" : "CHAP,None");
}

/* ---- requests ------------------------------------------------------------------------- */

static bool wants_on(const struct initiator_login *e)
{
	if (e->more)
		return false;
	return e->stage == STAGE_OPERATIONAL || !e->user || e->chap == ENTRY_PROOF ||
	       e->chap == ENTRY_PROVEN;
}

void initiator_login_request(struct initiator_login *e, struct pdu *request)
{
	enum login_stage next = e->stage == STAGE_SECURITY ? STAGE_OPERATIONAL : STAGE_FULL;

	if (e->stage == STAGE_OPERATIONAL && !e->offered && !e->more) {
		e->offered = true;
		iscsi_keys_offer(&e->keys, &e->out);
	}
	*request = (struct pdu){.opcode = LOGIN_REQUEST,
				.immediate = true,
				.flags = wants_on(e) ? LOGIN_TRANSIT | LOGIN_STAGES(e->stage, next)
						     : LOGIN_STAGES(e->stage, 0),
				.itt = e->itt,
				.cmd_sn = e->cmd_sn,
				.exp_stat_sn = e->rounds ? e->stat_sn + 1 : 0};
	memcpy(request->isid, e->isid, sizeof(request->isid));
}

/* ---- CHAP -------------------------------------------------------------------------------- */

struct login_words {
	const char *method, *hash, *id, *challenge, *name, *response, *address;
};

static int distrust(const char *why)
{
	return block_fail(EACCES, "login: %s", why);
}

static int take_method(struct initiator_login *e, const struct login_words *w)
{
	if (!w->method)
		return block_fail(EPROTO, "login: the target names no method");
	if (strcmp(w->method, "CHAP") == 0) {
		iscsi_text_add(&e->out, "CHAP_A", "5,7");
		e->chap = ENTRY_HASH;
		return 0;
	}
	if (strcmp(w->method, "None") != 0 || e->peer_secret)
		return distrust("the target does not use CHAP");
	e->chap = ENTRY_PROVEN;
	return 0;
}

/* What the target has to prove; not with our own answer. */
static int challenge_back(struct initiator_login *e)
{
	char hex[2 * CHAP_CHALLENGE_LEN + 3];

	if (iscsi_chap_challenge(&e->id, e->challenge) != 0)
		return block_fail(EIO, "login: no random bytes");
	iscsi_text_hex(e->challenge, sizeof(e->challenge), hex);
	iscsi_text_addf(&e->out, "CHAP_I", "%u", e->id);
	iscsi_text_add(&e->out, "CHAP_C", hex);
	return 0;
}

static int take_challenge(struct initiator_login *e, const struct login_words *w)
{
	uint8_t bytes[CHAP_MAX_CHALLENGE], digest[CHAP_MAX_DIGEST];
	char hex[2 * CHAP_MAX_DIGEST + 3];
	uint64_t id;
	int len;

	e->algorithm = w->hash ? iscsi_chap_choose(w->hash) : CHAP_NONE;
	if (e->algorithm == CHAP_NONE)
		return distrust("the target knows no hash that we know");
	len = w->challenge ? iscsi_text_binary(w->challenge, bytes, sizeof(bytes)) : -EINVAL;
	if (len <= 0 || !w->id || !iscsi_text_number(w->id, &id) || id > UINT8_MAX)
		return block_fail(EPROTO, "login: that is no challenge");
	if (iscsi_chap_respond(e->algorithm, (uint8_t)id, e->secret, bytes, (size_t)len, digest) !=
	    0)
		return block_fail(EIO, "login: no such hash here");
	iscsi_text_hex(digest, iscsi_chap_digest_len(e->algorithm), hex);
	iscsi_text_add(&e->out, "CHAP_N", e->user);
	iscsi_text_add(&e->out, "CHAP_R", hex);
	e->chap = ENTRY_PROOF;
	return e->peer_secret ? challenge_back(e) : 0;
}

static int take_proof(struct initiator_login *e, const struct login_words *w)
{
	uint8_t response[CHAP_MAX_DIGEST];
	int len =
		w->response ? iscsi_text_binary(w->response, response, sizeof(response)) : -EINVAL;

	e->chap = ENTRY_PROVEN;
	if (!e->peer_secret)
		return 0;
	if (len <= 0 || !w->name || (e->peer_user && strcmp(w->name, e->peer_user) != 0) ||
	    !iscsi_chap_verify(e->algorithm, e->id, e->peer_secret, e->challenge,
			       sizeof(e->challenge), response, (size_t)len))
		return distrust("the target is not who it should be");
	return 0;
}

static int take_security(struct initiator_login *e, const struct login_words *w)
{
	if (!e->user)
		return w->method && strcmp(w->method, "None") != 0
			       ? distrust("the target wants CHAP, and there is no user")
			       : 0;
	switch (e->chap) {
	case ENTRY_METHOD:
		return take_method(e, w);
	case ENTRY_HASH:
		return take_challenge(e, w);
	case ENTRY_PROOF:
		return take_proof(e, w);
	case ENTRY_PROVEN:
		break;
	}
	return 0;
}

/* ---- responses ----------------------------------------------------------------------------- */

static bool take_word(struct login_words *w, const char *key, const char *value)
{
	const struct {
		const char *name;
		const char **to;
	} known[] = {{"AuthMethod", &w->method},    {"CHAP_A", &w->hash}, {"CHAP_I", &w->id},
		     {"CHAP_C", &w->challenge},	    {"CHAP_N", &w->name}, {"CHAP_R", &w->response},
		     {"TargetAddress", &w->address}};
	const char *unused;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strcmp(known[i].name, key) == 0) {
			*known[i].to = value;
			return true;
		}
	unused = "TargetAlias,TargetPortalGroupTag,TargetName";
	return iscsi_text_list_has(unused, key);
}

static int take_pairs(struct initiator_login *e, struct login_words *w)
{
	const char *key, *value;
	uint32_t at = 0;
	int rc;

	while ((rc = iscsi_text_next(&e->in, &at, &key, &value)) > 0) {
		if (take_word(w, key, value))
			continue;
		if (iscsi_keys_answered(&e->keys, key, value, &e->out) != 0)
			return block_fail(EPROTO, "login: the target answers %s=%s", key, value);
	}
	return rc < 0 ? block_fail(EPROTO, "login: that is no list of keys") : 0;
}

static int status_errno(enum login_status s)
{
	switch (s) {
	case LOGIN_AUTHENTICATION_FAILED:
	case LOGIN_FORBIDDEN:
		return EACCES;
	case LOGIN_NOT_FOUND:
	case LOGIN_REMOVED:
		return ENOENT;
	case LOGIN_UNAVAILABLE:
	case LOGIN_NO_RESOURCES:
		return EBUSY;
	default:
		return EPROTO;
	}
}

static int refused(const struct pdu *r)
{
	enum login_status s = (enum login_status)(r->status_class << 8 | r->status_detail);

	return block_fail(status_errno(s), "login refused: %s (0x%04x)", iscsi_login_status_name(s),
			  (unsigned int)s);
}

static int redirected(struct initiator_login *e, const struct login_words *w)
{
	if (!w->address || strlen(w->address) >= sizeof(e->redirect))
		return block_fail(EPROTO, "login: redirected to nowhere");
	snprintf(e->redirect, sizeof(e->redirect), "%s", w->address);
	return ENTRY_REDIRECTED;
}

/* Where the response leads. */
static int transit(struct initiator_login *e, const struct pdu *r)
{
	if (!(r->flags & LOGIN_TRANSIT))
		return ENTRY_GOES_ON;
	if (!wants_on(e) || LOGIN_NSG(r->flags) <= e->stage || LOGIN_NSG(r->flags) == STAGE_NONE)
		return block_fail(EPROTO, "login: the target goes on alone");
	if (LOGIN_NSG(r->flags) == STAGE_FULL && e->stage != STAGE_OPERATIONAL)
		return block_fail(EPROTO, "login: the target leaves a stage out");
	e->stage = LOGIN_NSG(r->flags);
	if (e->stage != STAGE_FULL)
		return ENTRY_GOES_ON;
	iscsi_keys_conclude(&e->keys);
	return ENTRY_DONE;
}

/* The proof is due in the very response that leads on. */
static bool is_unproven(const struct initiator_login *e, const struct pdu *r)
{
	return e->user && e->peer_secret && (r->flags & LOGIN_TRANSIT) && e->chap != ENTRY_PROVEN;
}

static int take_list(struct initiator_login *e, const struct pdu *r)
{
	bool was_sent = wants_on(e); /* what the request asked for */
	struct login_words w = {0};
	int rc;

	e->out.len = 0;
	e->out.full = false;
	rc = take_pairs(e, &w);
	if (rc == 0 && r->status_class == 1)
		return redirected(e, &w);
	if (rc == 0 && e->stage == STAGE_SECURITY)
		rc = take_security(e, &w);
	if (rc != 0)
		return rc;
	if (e->out.full)
		return block_fail(EPROTO, "login: the target asks too much");
	e->in.len = 0;
	if ((r->flags & LOGIN_TRANSIT) && !was_sent)
		return block_fail(EPROTO, "login: the target goes on alone");
	return is_unproven(e, r) ? distrust("the target proves nothing") : transit(e, r);
}

int initiator_login_receive(struct initiator_login *e, const struct pdu *r, const void *data)
{
	if (r->opcode != LOGIN_RESPONSE || r->itt != e->itt || ++e->rounds > MAX_ROUNDS)
		return block_fail(EPROTO, "login: a %s is no answer", iscsi_pdu_name(r->opcode));
	if (r->status_class > 1)
		return refused(r);
	if (LOGIN_CSG(r->flags) != e->stage && r->status_class == 0)
		return block_fail(EPROTO, "login: the target is in another stage");
	e->stat_sn = r->stat_sn;
	if (iscsi_text_collect(&e->in, data, r->data_len) != 0)
		return block_fail(EPROTO, "login: the target says too much");
	e->more = r->flags & PDU_CONTINUE;
	if (e->more) {
		e->out.len = 0;
		return ENTRY_GOES_ON;
	}
	e->tsih = r->tsih;
	return take_list(e, r);
}
