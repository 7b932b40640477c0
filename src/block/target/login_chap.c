// SPDX-License-Identifier: BSD-2-Clause
/*
 * login_chap.c - the security stage of a login: AuthMethod, and CHAP's three steps (RFC 7143 §12.1.3).
 *
 *   initiator                        target
 *   AuthMethod=CHAP,None        ->   AuthMethod=CHAP
 *   CHAP_A=7,5                  ->   CHAP_A=7 CHAP_I CHAP_C
 *   CHAP_N CHAP_R               ->   (nothing: authenticated)
 *     with CHAP_I CHAP_C (mutual)    CHAP_N CHAP_R
 *
 * The target does not authenticate itself to an initiator that has not authenticated, and answers no challenge that is its own:
 * so a response cannot be obtained from one session for use in another. target.c checks that the two secrets differ.
 */
#include "block/target/target.h"

#include <string.h>

#include <openssl/crypto.h>

static void refuse(struct target_login *l, enum login_status status)
{
	if (l->status == LOGIN_OK)
		l->status = status;
}

/* An initiator that may log in either way authenticates if it offers that: it may have more rights then. */
static void choose_method(struct target_login *l, const char *list)
{
	bool can = iscsi_text_list_has(list, "CHAP");
	bool needed = !l->authenticated && target_rights_have(l->rules, l->initiator, true) &&
		      (can || !target_rights_have(l->rules, l->initiator, false));

	if (l->chap.state != CHAP_IDLE) {
		refuse(l, LOGIN_INITIATOR_ERROR);
		return;
	}
	if (needed && can) {
		l->chap.state = CHAP_OFFERED;
		iscsi_text_add(&l->out, "AuthMethod", "CHAP");
	} else if (!needed && iscsi_text_list_has(list, "None")) {
		iscsi_text_add(&l->out, "AuthMethod", "None");
	} else {
		refuse(l, LOGIN_AUTHENTICATION_FAILED);
	}
}

/* ---- CHAP_A: which hash; our challenge is the answer ------------------------------------ */

static void challenge(struct target_login *l)
{
	char hex[2 * CHAP_CHALLENGE_LEN + 3];

	l->chap.algorithm = iscsi_chap_choose(l->chap.said.list);
	if (l->chap.state != CHAP_OFFERED || l->chap.algorithm == CHAP_NONE) {
		refuse(l, LOGIN_AUTHENTICATION_FAILED);
		return;
	}
	if (iscsi_chap_challenge(&l->chap.id, l->chap.challenge) != 0) {
		refuse(l, LOGIN_TARGET_ERROR);
		return;
	}
	iscsi_text_hex(l->chap.challenge, sizeof(l->chap.challenge), hex);
	iscsi_text_addf(&l->out, "CHAP_A", "%d", (int)l->chap.algorithm);
	iscsi_text_addf(&l->out, "CHAP_I", "%u", l->chap.id);
	iscsi_text_add(&l->out, "CHAP_C", hex);
	l->chap.state = CHAP_CHALLENGED;
}

/* ---- CHAP_R: the initiator's --------------------------------------------------------------- */

/* Checks name and response both, so that the time does not tell which is wrong. */
static bool proves(struct target_login *l, const char *user, const char *secret)
{
	const struct chap_words *said = &l->chap.said;
	uint8_t response[CHAP_MAX_DIGEST];
	int len = iscsi_text_binary(said->response, response, sizeof(response));
	bool known = said->name && strcmp(said->name, user) == 0;
	bool right = len > 0 &&
		     iscsi_chap_verify(l->chap.algorithm, l->chap.id, secret, l->chap.challenge,
				       sizeof(l->chap.challenge), response, (size_t)len);

	if (known && right)
		l->user = user;
	return known && right;
}

/* Checks all users of the initiator's rights, for the same reason. */
static bool is_proven(struct target_login *l)
{
	const struct target_right *r = NULL;
	bool proven = false;

	if (l->rules->num_rights == 0)
		return proves(l, l->rules->user, l->rules->secret);
	while ((r = target_rights_next(l->rules, l->initiator, r)))
		if (r->user)
			proven |= proves(l, r->user, r->secret);
	return proven;
}

static bool is_ours(const struct target_login *l, const uint8_t *bytes, int len)
{
	return len == CHAP_CHALLENGE_LEN && memcmp(bytes, l->chap.challenge, (size_t)len) == 0;
}

/* ---- CHAP_C: mutual CHAP ---------------------------------------------------------------------- */

static void prove(struct target_login *l)
{
	const struct chap_words *said = &l->chap.said;
	uint8_t bytes[CHAP_MAX_CHALLENGE], digest[CHAP_MAX_DIGEST];
	int len = iscsi_text_binary(said->peer_challenge, bytes, sizeof(bytes));
	char hex[2 * CHAP_MAX_DIGEST + 3];
	uint64_t id;

	if (!said->peer_id || !iscsi_text_number(said->peer_id, &id) || id > UINT8_MAX ||
	    len <= 0 || is_ours(l, bytes, len) || !l->rules->own_user) {
		refuse(l, LOGIN_AUTHENTICATION_FAILED);
		return;
	}
	if (iscsi_chap_respond(l->chap.algorithm, (uint8_t)id, l->rules->own_secret, bytes,
			       (size_t)len, digest) != 0) {
		refuse(l, LOGIN_TARGET_ERROR);
		return;
	}
	iscsi_text_hex(digest, iscsi_chap_digest_len(l->chap.algorithm), hex);
	iscsi_text_add(&l->out, "CHAP_N", l->rules->own_user);
	iscsi_text_add(&l->out, "CHAP_R", hex);
}

static void check_response(struct target_login *l)
{
	if (l->chap.state != CHAP_CHALLENGED || !is_proven(l)) {
		refuse(l, LOGIN_AUTHENTICATION_FAILED);
		return;
	}
	if (l->chap.said.peer_challenge)
		prove(l);
	l->chap.state = CHAP_PROVEN;
	l->authenticated = l->status == LOGIN_OK;
	OPENSSL_cleanse(l->chap.challenge,
			sizeof(l->chap.challenge)); /* a challenge is used once */
}

void target_login_chap(struct target_login *l)
{
	if (l->chap.said.method)
		choose_method(l, l->chap.said.method);
	if (l->chap.said.list && l->status == LOGIN_OK)
		challenge(l);
	if (l->chap.said.response && l->status == LOGIN_OK)
		check_response(l);
}
