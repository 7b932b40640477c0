// SPDX-License-Identifier: BSD-2-Clause
/*
 * login.c - a login (RFC 7143 §6.3) on the initiator's side: names, CHAP, and negotiated keys.
 *
 *   SECURITY (names, method; with CHAP: hash, response) -> OPERATIONAL (keys) -> FULL
 *
 * Responses in, requests out: no sockets. If the target has to authenticate itself and does not, the login fails.
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
	else /* None is no option if the target has to authenticate itself */
		iscsi_text_add(&e->out, "AuthMethod", e->peer_secret ? "CHAP" : "CHAP,None");
}

/* ---- requests ------------------------------------------------------------------------- */

static bool wants_next_stage(const struct initiator_login *e)
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
				.flags = wants_next_stage(e)
						 ? LOGIN_TRANSIT | LOGIN_STAGES(e->stage, next)
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

static int fail_authentication(const char *why)
{
	return block_fail(EACCES, "login: %s", why);
}

static int receive_method(struct initiator_login *e, const struct login_words *w)
{
	if (!w->method)
		return block_fail(EPROTO, "login: no AuthMethod in the response");
	if (strcmp(w->method, "CHAP") == 0) {
		iscsi_text_add(&e->out, "CHAP_A", "5,7");
		e->chap = ENTRY_HASH;
		return 0;
	}
	if (strcmp(w->method, "None") != 0 || e->peer_secret)
		return fail_authentication("the target does not support CHAP");
	e->chap = ENTRY_PROVEN;
	return 0;
}

/* Challenges the target, for mutual authentication. */
static int challenge_back(struct initiator_login *e)
{
	char hex[2 * CHAP_CHALLENGE_LEN + 3];

	if (iscsi_chap_challenge(&e->id, e->challenge) != 0)
		return block_fail(EIO, "login: no random bytes for a challenge");
	iscsi_text_hex(e->challenge, sizeof(e->challenge), hex);
	iscsi_text_addf(&e->out, "CHAP_I", "%u", e->id);
	iscsi_text_add(&e->out, "CHAP_C", hex);
	return 0;
}

static int receive_challenge(struct initiator_login *e, const struct login_words *w)
{
	uint8_t bytes[CHAP_MAX_CHALLENGE], digest[CHAP_MAX_DIGEST];
	char hex[2 * CHAP_MAX_DIGEST + 3];
	uint64_t id;
	int len;

	e->algorithm = w->hash ? iscsi_chap_choose(w->hash) : CHAP_NONE;
	if (e->algorithm == CHAP_NONE)
		return fail_authentication("no CHAP algorithm in common with the target");
	len = w->challenge ? iscsi_text_binary(w->challenge, bytes, sizeof(bytes)) : -EINVAL;
	if (len <= 0 || !w->id || !iscsi_text_number(w->id, &id) || id > UINT8_MAX)
		return block_fail(EPROTO, "login: malformed CHAP challenge");
	if (iscsi_chap_respond(e->algorithm, (uint8_t)id, e->secret, bytes, (size_t)len, digest) !=
	    0)
		return block_fail(EIO, "login: libcrypto does not support the CHAP algorithm");
	iscsi_text_hex(digest, iscsi_chap_digest_len(e->algorithm), hex);
	iscsi_text_add(&e->out, "CHAP_N", e->user);
	iscsi_text_add(&e->out, "CHAP_R", hex);
	e->chap = ENTRY_PROOF;
	return e->peer_secret ? challenge_back(e) : 0;
}

static int receive_chap_response(struct initiator_login *e, const struct login_words *w)
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
		return fail_authentication("the target failed to authenticate itself");
	return 0;
}

static int receive_security(struct initiator_login *e, const struct login_words *w)
{
	if (!e->user)
		return w->method && strcmp(w->method, "None") != 0
			       ? fail_authentication(
					 "the target requires CHAP: set a user and a secret")
			       : 0;
	switch (e->chap) {
	case ENTRY_METHOD:
		return receive_method(e, w);
	case ENTRY_HASH:
		return receive_challenge(e, w);
	case ENTRY_PROOF:
		return receive_chap_response(e, w);
	case ENTRY_PROVEN:
		break;
	}
	return 0;
}

/* ---- responses ----------------------------------------------------------------------------- */

static bool store_word(struct login_words *w, const char *key, const char *value)
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

static int receive_pairs(struct initiator_login *e, struct login_words *w)
{
	const char *key, *value;
	uint32_t at = 0;
	int rc;

	while ((rc = iscsi_text_next(&e->in, &at, &key, &value)) > 0) {
		if (store_word(w, key, value))
			continue;
		if (iscsi_keys_answered(&e->keys, key, value, &e->out) != 0)
			return block_fail(EPROTO, "login: invalid answer %s=%s", key, value);
	}
	return rc < 0 ? block_fail(EPROTO, "login: malformed list of keys") : 0;
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

static int fail_with_status(const struct pdu *r)
{
	enum login_status s = (enum login_status)(r->status_class << 8 | r->status_detail);

	return block_fail(status_errno(s), "login rejected: %s (0x%04x)",
			  iscsi_login_status_name(s), (unsigned int)s);
}

static int receive_redirect(struct initiator_login *e, const struct login_words *w)
{
	if (!w->address || strlen(w->address) >= sizeof(e->redirect))
		return block_fail(EPROTO, "login: redirected without a valid address");
	snprintf(e->redirect, sizeof(e->redirect), "%s", w->address);
	return ENTRY_REDIRECTED;
}

/* Follows the response to the next stage. Returns enum initiator_login_result or -errno. */
static int change_stage(struct initiator_login *e, const struct pdu *r)
{
	if (!(r->flags & LOGIN_TRANSIT))
		return ENTRY_GOES_ON;
	if (!wants_next_stage(e) || LOGIN_NSG(r->flags) <= e->stage ||
	    LOGIN_NSG(r->flags) == STAGE_NONE)
		return block_fail(EPROTO, "login: the target changes the stage without a request");
	if (LOGIN_NSG(r->flags) == STAGE_FULL && e->stage != STAGE_OPERATIONAL)
		return block_fail(EPROTO, "login: the target skips a stage");
	e->stage = LOGIN_NSG(r->flags);
	if (e->stage != STAGE_FULL)
		return ENTRY_GOES_ON;
	iscsi_keys_conclude(&e->keys);
	return ENTRY_DONE;
}

/* The target's CHAP response is due in the response that ends the stage. */
static bool is_unproven(const struct initiator_login *e, const struct pdu *r)
{
	return e->user && e->peer_secret && (r->flags & LOGIN_TRANSIT) && e->chap != ENTRY_PROVEN;
}

static int receive_list(struct initiator_login *e, const struct pdu *r)
{
	bool was_sent = wants_next_stage(e); /* the request asked for the next stage */
	struct login_words w = {0};
	int rc;

	e->out.len = 0;
	e->out.full = false;
	rc = receive_pairs(e, &w);
	if (rc == 0 && r->status_class == 1)
		return receive_redirect(e, &w);
	if (rc == 0 && e->stage == STAGE_SECURITY)
		rc = receive_security(e, &w);
	if (rc != 0)
		return rc;
	if (e->out.full)
		return block_fail(EPROTO, "login: the answers do not fit in a request");
	e->in.len = 0;
	if ((r->flags & LOGIN_TRANSIT) && !was_sent)
		return block_fail(EPROTO, "login: the target changes the stage without a request");
	return is_unproven(e, r) ? fail_authentication("the target did not authenticate itself")
				 : change_stage(e, r);
}

int initiator_login_receive(struct initiator_login *e, const struct pdu *r, const void *data)
{
	if (r->opcode != LOGIN_RESPONSE || r->itt != e->itt || ++e->rounds > MAX_ROUNDS)
		return block_fail(EPROTO, "login: unexpected %s", iscsi_pdu_name(r->opcode));
	if (r->status_class > 1)
		return fail_with_status(r);
	if (LOGIN_CSG(r->flags) != e->stage && r->status_class == 0)
		return block_fail(EPROTO, "login: the response is of another stage");
	e->stat_sn = r->stat_sn;
	if (iscsi_text_collect(&e->in, data, r->data_len) != 0)
		return block_fail(EPROTO, "login: the response is too long");
	e->more = r->flags & PDU_CONTINUE;
	if (e->more) {
		e->out.len = 0;
		return ENTRY_GOES_ON;
	}
	e->tsih = r->tsih;
	return receive_list(e, r);
}
