// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_login.c - logins, request by request: how they succeed, and with which status they fail.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "block/target/target.h"
#include "dice.h"

#define INITIATOR    "InitiatorName=iqn.2026-01.x:i\0"
#define NORMAL	     INITIATOR "SessionType=Normal\0TargetName=iqn.2026-01.x:t\0"
#define STAY(csg)    LOGIN_STAGES(csg, 0)
#define GO(csg, nsg) (LOGIN_TRANSIT | LOGIN_STAGES(csg, nsg))
#define SEC	     STAGE_SECURITY
#define OP	     STAGE_OPERATIONAL
#define FULL	     STAGE_FULL

static struct target_login_rules rules = {.target = "iqn.2026-01.x:t",
					  .alias = "a target",
					  .wishes = {.own_recv_max = 262144,
						     .keys = {.immediate_data = 1,
							      .max_connections = 1,
							      .max_burst = 1 << 20,
							      .first_burst = 65536,
							      .max_r2t = 1}}};
static struct target_login *login;
static struct pdu request, response;

static int set_up(void **state)
{
	rules.user = rules.secret = rules.own_user = rules.own_secret = NULL;
	login = target_login_new(&rules);
	request = (struct pdu){.opcode = LOGIN_REQUEST,
			       .immediate = true,
			       .isid = {0x80, 1, 2, 3, 4, 5},
			       .itt = 77,
			       .cid = 3,
			       .cmd_sn = 1000};
	return login ? 0 : -1;
}

static int tear_down(void **state)
{
	target_login_free(login);
	return 0;
}

static void need_chap(void)
{
	rules.user = "alice";
	rules.secret = "the secret of alice";
	rules.own_user = "bob";
	rules.own_secret = "the secret of bob";
}

static enum target_login_result say_bytes(uint8_t flags, const void *list, size_t len)
{
	request.flags = flags;
	request.data_len = (uint32_t)len;
	return target_login_receive(login, &request, list, &response);
}

#define SAY(flags, list) say_bytes(flags, list, sizeof(list) - 1)

static unsigned int status(void)
{
	return response.status_class << 8 | response.status_detail;
}

/* Returns the value of a key in the response, or NULL. */
static const char *answer(const char *key)
{
	size_t n = strlen(key);

	for (uint32_t at = 0; at < login->out.len;
	     at += (uint32_t)strlen(login->out.bytes + at) + 1)
		if (strncmp(login->out.bytes + at, key, n) == 0 && login->out.bytes[at + n] == '=')
			return login->out.bytes + at + n + 1;
	return NULL;
}

/* ---- without a secret ------------------------------------------------------------------ */

static void a_login_in_one_step(void **state)
{
	assert_int_equal(SAY(GO(OP, FULL), NORMAL "InitialR2T=No\0Foo=1\0"), LOGIN_AGREED);
	assert_int_equal(target_login_finish(login, LOGIN_OK, 5, &response), LOGIN_AGREED);
	assert_int_equal(status(), LOGIN_OK);
	assert_int_equal(response.tsih, 5);
	assert_int_equal(response.itt, 77);
	assert_int_equal(response.exp_cmd_sn, 1000);
	assert_int_equal(response.flags, GO(OP, FULL));
	assert_memory_equal(response.isid, request.isid, ISID_LEN);
	assert_string_equal(answer("TargetPortalGroupTag"), "1");
	assert_string_equal(answer("TargetAlias"), "a target");
	assert_string_equal(answer("InitialR2T"), "No");
	assert_string_equal(answer("Foo"), "NotUnderstood");
	assert_string_equal(answer("MaxRecvDataSegmentLength"), "262144");
	assert_int_equal(login->keys.agreed.initial_r2t, 0);
	assert_string_equal(login->initiator, "iqn.2026-01.x:i");
	assert_false(login->discovery);
}

static void a_login_in_two_stages(void **state)
{
	assert_int_equal(SAY(GO(SEC, OP), NORMAL "AuthMethod=CHAP,None\0"), LOGIN_GOES_ON);
	assert_string_equal(answer("AuthMethod"), "None");
	assert_int_equal(response.flags, GO(SEC, OP));
	assert_int_equal(SAY(STAY(OP), "MaxBurstLength=8192\0"), LOGIN_GOES_ON);
	assert_int_equal(response.flags, STAY(OP));
	assert_string_equal(answer("MaxBurstLength"), "8192");
	assert_int_equal(SAY(GO(OP, FULL), ""), LOGIN_AGREED);
}

static void a_list_in_many_requests(void **state)
{
	static const char list[] = NORMAL "InitialR2T=No";

	for (size_t i = 0; i < sizeof(list) - 1; i += 7) {
		size_t n = sizeof(list) - 1 - i;
		bool last = n <= 7;

		assert_int_equal(say_bytes(last ? GO(OP, FULL) : STAY(OP) | PDU_CONTINUE, list + i,
					   last ? n : 7),
				 last ? LOGIN_AGREED : LOGIN_GOES_ON);
		if (!last)
			assert_int_equal(login->out.len, 0);
	}
	assert_string_equal(answer("InitialR2T"), "No");
}

static void discovery_needs_no_target(void **state)
{
	assert_int_equal(SAY(GO(OP, FULL), INITIATOR "SessionType=Discovery\0MaxBurstLength=512\0"),
			 LOGIN_AGREED);
	assert_true(login->discovery);
	assert_string_equal(answer("MaxBurstLength"), "Irrelevant");
	assert_null(answer("TargetPortalGroupTag"));
}

static void a_missing_session_has_its_status(void **state)
{
	assert_int_equal(SAY(GO(OP, FULL), NORMAL), LOGIN_AGREED);
	assert_int_equal(target_login_finish(login, LOGIN_NO_RESOURCES, 0, &response),
			 LOGIN_REFUSED);
	assert_int_equal(status(), LOGIN_NO_RESOURCES);
	assert_int_equal(login->out.len, 0);
}

/* ---- refusals --------------------------------------------------------------------------- */

#define REFUSED(flags, list, why)                                                                  \
	do {                                                                                       \
		tear_down(NULL);                                                                   \
		set_up(NULL);                                                                      \
		assert_int_equal(SAY(flags, list), LOGIN_REFUSED);                                 \
		assert_int_equal(status(), why);                                                   \
		assert_int_equal(login->out.len, 0);                                               \
	} while (0)

static void each_fault_has_its_status(void **state)
{
	REFUSED(GO(OP, FULL), "", LOGIN_MISSING_PARAMETER);
	REFUSED(GO(OP, FULL), INITIATOR, LOGIN_MISSING_PARAMETER);
	REFUSED(GO(OP, FULL), "TargetName=iqn.2026-01.x:t\0", LOGIN_MISSING_PARAMETER);
	REFUSED(GO(OP, FULL), INITIATOR "TargetName=iqn.2026-01.x:other\0", LOGIN_NOT_FOUND);
	REFUSED(GO(OP, FULL), INITIATOR INITIATOR, LOGIN_INITIATOR_ERROR);
	REFUSED(GO(OP, FULL), "InitiatorName=bad name\0", LOGIN_INITIATOR_ERROR);
	REFUSED(GO(OP, FULL), INITIATOR "SessionType=Odd\0", LOGIN_NO_SESSION_TYPE);
	REFUSED(GO(OP, FULL), NORMAL "InitialR2T=No\0InitialR2T=No\0", LOGIN_INITIATOR_ERROR);
	REFUSED(GO(OP, FULL), NORMAL "no pair\0", LOGIN_INITIATOR_ERROR);
	REFUSED(GO(SEC, OP), NORMAL "AuthMethod=KRB5\0", LOGIN_AUTHENTICATION_FAILED);
	REFUSED(GO(SEC, OP), NORMAL "CHAP_A=5\0", LOGIN_AUTHENTICATION_FAILED);
	REFUSED(GO(OP, OP), NORMAL, LOGIN_INITIATOR_ERROR);
	REFUSED(GO(OP, SEC), NORMAL, LOGIN_INITIATOR_ERROR);
	REFUSED(GO(OP, STAGE_NONE), NORMAL, LOGIN_INITIATOR_ERROR);
	REFUSED(STAY(STAGE_NONE), NORMAL, LOGIN_INITIATOR_ERROR);
	REFUSED(GO(OP, FULL) | PDU_CONTINUE, NORMAL, LOGIN_INITIATOR_ERROR);
}

static void a_higher_version_is_refused(void **state)
{
	request.code = request.status = 1;
	assert_int_equal(SAY(GO(OP, FULL), NORMAL), LOGIN_REFUSED);
	assert_int_equal(status(), LOGIN_BAD_VERSION);
}

static void other_requests_are_refused(void **state)
{
	request.opcode = SCSI_COMMAND;
	assert_int_equal(SAY(0x80, ""), LOGIN_REFUSED);
	assert_int_equal(status(), LOGIN_INVALID_REQUEST);
}

static void stages_do_not_go_back(void **state)
{
	assert_int_equal(SAY(GO(SEC, OP), NORMAL), LOGIN_GOES_ON);
	assert_int_equal(SAY(GO(SEC, OP), ""), LOGIN_REFUSED);
	assert_int_equal(status(), LOGIN_INITIATOR_ERROR);
}

static void the_session_stays_the_same(void **state)
{
	assert_int_equal(SAY(GO(SEC, OP), NORMAL), LOGIN_GOES_ON);
	request.isid[5]++;
	assert_int_equal(SAY(GO(OP, FULL), ""), LOGIN_REFUSED);
}

static void logins_have_a_limited_number_of_requests(void **state)
{
	unsigned int n = 1;

	assert_int_equal(SAY(STAY(OP), NORMAL), LOGIN_GOES_ON);
	while (SAY(STAY(OP), "") == LOGIN_GOES_ON && n < 1000)
		n++;
	assert_true(n < 1000);
}

static void huge_lists_are_refused(void **state)
{
	static char list[TEXT_MAX];

	for (size_t i = 0; i + 3 <= sizeof(list); i += 3)
		memcpy(list + i, "a=", 3);
	assert_int_equal(SAY(STAY(OP), NORMAL), LOGIN_GOES_ON);
	assert_int_equal(say_bytes(STAY(OP), list, sizeof(list)), LOGIN_REFUSED);
	tear_down(NULL);
	set_up(NULL);
	assert_int_equal(say_bytes(STAY(OP) | PDU_CONTINUE, list, sizeof(list)), LOGIN_GOES_ON);
	assert_int_equal(say_bytes(STAY(OP) | PDU_CONTINUE, list, sizeof(list)), LOGIN_REFUSED);
}

/* ---- CHAP ----------------------------------------------------------------------------------- */

/* Does the first two steps of CHAP, up to the target's id and challenge. Returns the length of the challenge. */
static size_t challenged(const char *algorithms, uint8_t *id, uint8_t challenge[64])
{
	char list[64];
	int n;

	assert_int_equal(SAY(GO(SEC, OP), NORMAL "AuthMethod=CHAP,None\0"), LOGIN_GOES_ON);
	assert_string_equal(answer("AuthMethod"), "CHAP");
	assert_int_equal(response.flags, STAY(SEC));
	n = snprintf(list, sizeof(list), "CHAP_A=%s", algorithms);
	assert_int_equal(say_bytes(STAY(SEC), list, (size_t)n + 1), LOGIN_GOES_ON);
	*id = (uint8_t)atoi(answer("CHAP_I"));
	n = iscsi_text_binary(answer("CHAP_C"), challenge, 64);
	assert_int_equal(n, CHAP_CHALLENGE_LEN);
	return (size_t)n;
}

/* Does the last step. more: additional keys, or NULL. */
static enum target_login_result respond(enum chap_algorithm a, const char *name, const char *secret,
					const char *more)
{
	uint8_t id, challenge[64], digest[CHAP_MAX_DIGEST];
	size_t len = challenged(a == CHAP_MD5 ? "5" : "5,7", &id, challenge);
	char hex[80], list[1024];
	int n;

	assert_int_equal(iscsi_chap_respond(a, id, secret, challenge, len, digest), 0);
	iscsi_text_hex(digest, iscsi_chap_digest_len(a), hex);
	n = snprintf(list, sizeof(list), "CHAP_N=%s%cCHAP_R=%s%c%s", name, 0, hex, 0,
		     more ? more : "");
	return say_bytes(GO(SEC, OP), list, (size_t)n + 1);
}

static void chap_accepts_the_right_secret(void **state)
{
	static const enum chap_algorithm both[] = {CHAP_MD5, CHAP_SHA256};

	for (int i = 0; i < 2; i++) {
		tear_down(NULL);
		set_up(NULL);
		need_chap();
		assert_int_equal(respond(both[i], "alice", rules.secret, NULL), LOGIN_GOES_ON);
		assert_int_equal(response.flags, GO(SEC, OP));
		assert_null(answer("CHAP_R"));
		assert_int_equal(SAY(GO(OP, FULL), ""), LOGIN_AGREED);
	}
}

/* ---- rights ---------------------------------------------------------------------------------- */

static struct target_right some_rights[] = {
	{.initiator = "iqn.2026-01.x:open*"},
	{.initiator = "iqn.2026-01.x:i", .user = "alice", .secret = "the secret of alice"},
	{.initiator = "iqn.2026-01.x:*", .user = "carol", .secret = "the secret of carol"},
	{.initiator = "iqn.2026-01.x:both", .user = "carol", .secret = "the secret of carol"},
	{.initiator = "iqn.2026-01.x:both"},
};

static void begin_with_rights(void)
{
	tear_down(NULL);
	set_up(NULL);
	rules.rights = some_rights;
	rules.num_rights = 5;
}

static int forget_rights(void **state)
{
	rules.rights = NULL;
	rules.num_rights = 0;
	return tear_down(state);
}

static void strangers_have_no_rights(void **state)
{
	begin_with_rights();
	assert_int_equal(SAY(GO(OP, FULL), "InitiatorName=iqn.2026-01.y:i\0"
					   "TargetName=iqn.2026-01.x:t\0"),
			 LOGIN_REFUSED);
	assert_int_equal(status(), LOGIN_FORBIDDEN);
	begin_with_rights();
	assert_int_equal(SAY(GO(OP, FULL), "InitiatorName=iqn.2026-01.y:i\0"
					   "SessionType=Discovery\0"),
			 LOGIN_REFUSED);
	assert_int_equal(status(), LOGIN_FORBIDDEN);
	begin_with_rights();
	assert_int_equal(SAY(GO(OP, FULL), "InitiatorName=iqn.2026-01.x:open7\0"
					   "TargetName=iqn.2026-01.x:t\0"),
			 LOGIN_AGREED);
	assert_ptr_equal(target_rights_find(&rules, login->initiator, login->user),
			 &some_rights[0]);
}

/* A user is bound to names of initiators, and an initiator has the rights of the user that it proves to be. */
static void users_are_bound_to_initiators(void **state)
{
	begin_with_rights();
	assert_int_equal(respond(CHAP_SHA256, "alice", "the secret of alice", NULL), LOGIN_GOES_ON);
	assert_ptr_equal(target_rights_find(&rules, login->initiator, login->user),
			 &some_rights[1]);
	begin_with_rights();
	assert_int_equal(respond(CHAP_SHA256, "carol", "the secret of carol", NULL), LOGIN_GOES_ON);
	assert_ptr_equal(target_rights_find(&rules, login->initiator, login->user),
			 &some_rights[2]);
	begin_with_rights();
	assert_int_equal(respond(CHAP_SHA256, "alice", "the secret of carol", NULL), LOGIN_REFUSED);
	some_rights[1].initiator = "iqn.2026-01.x:another";
	begin_with_rights();
	assert_int_equal(respond(CHAP_SHA256, "alice", "the secret of alice", NULL), LOGIN_REFUSED);
	some_rights[1].initiator = "iqn.2026-01.x:i";
	begin_with_rights();
	assert_int_equal(SAY(GO(OP, FULL), "InitiatorName=iqn.2026-01.x:i\0"
					   "TargetName=iqn.2026-01.x:t\0"),
			 LOGIN_REFUSED);
	assert_int_equal(status(), LOGIN_AUTHENTICATION_FAILED);
}

static void authentication_may_be_optional(void **state)
{
	begin_with_rights();
	assert_int_equal(SAY(GO(SEC, OP), "InitiatorName=iqn.2026-01.x:both\0"
					  "TargetName=iqn.2026-01.x:t\0AuthMethod=None\0"),
			 LOGIN_GOES_ON);
	assert_string_equal(answer("AuthMethod"), "None");
	assert_ptr_equal(target_rights_find(&rules, login->initiator, login->user),
			 &some_rights[4]);
	begin_with_rights();
	assert_int_equal(SAY(GO(SEC, OP), "AuthMethod=CHAP,None\0InitiatorName=iqn.2026-01.x:both\0"
					  "TargetName=iqn.2026-01.x:t\0"),
			 LOGIN_GOES_ON);
	assert_string_equal(answer("AuthMethod"), "CHAP");
}

static void chap_refuses_wrong_secrets(void **state)
{
	static const char *const wrong[][2] = {{"alice", "another secret"},
					       {"mallory", "the secret of alice"},
					       {"bob", "the secret of bob"}};

	for (size_t i = 0; i < 3; i++) {
		tear_down(NULL);
		set_up(NULL);
		need_chap();
		assert_int_equal(respond(CHAP_SHA256, wrong[i][0], wrong[i][1], NULL),
				 LOGIN_REFUSED);
		assert_int_equal(status(), LOGIN_AUTHENTICATION_FAILED);
	}
}

static void chap_cannot_be_skipped(void **state)
{
	need_chap();
	assert_int_equal(SAY(GO(OP, FULL), NORMAL), LOGIN_REFUSED);
	assert_int_equal(status(), LOGIN_AUTHENTICATION_FAILED);
	tear_down(NULL);
	set_up(NULL);
	need_chap();
	assert_int_equal(SAY(GO(SEC, FULL), NORMAL "AuthMethod=None\0"), LOGIN_REFUSED);
	tear_down(NULL);
	set_up(NULL);
	need_chap();
	assert_int_equal(SAY(GO(SEC, FULL), NORMAL), LOGIN_GOES_ON);
	assert_int_equal(response.flags, STAY(SEC));
	assert_int_equal(SAY(GO(SEC, OP), "AuthMethod=CHAP\0"), LOGIN_GOES_ON);
	assert_int_equal(response.flags, STAY(SEC));
	assert_int_equal(SAY(GO(SEC, OP), "CHAP_N=alice\0CHAP_R=0x00\0"), LOGIN_REFUSED);
}

/* Logs in as a user, with a challenge for the target. */
static void expect_mutual(const char *user, const char *secret)
{
	uint8_t digest[CHAP_MAX_DIGEST], theirs[CHAP_MAX_DIGEST];
	static const char asked[] = "CHAP_I=9\0CHAP_C=0x00112233445566778899aabbccddeeff";
	uint8_t id, challenge[64];
	char hex[80], list[512];
	int n;

	challenged("7", &id, challenge);
	assert_int_equal(
		iscsi_chap_respond(CHAP_SHA256, id, secret, challenge, CHAP_CHALLENGE_LEN, digest),
		0);
	iscsi_text_hex(digest, 32, hex);
	n = snprintf(list, sizeof(list), "CHAP_N=%s%cCHAP_R=%s%c", user, 0, hex, 0);
	memcpy(list + n, asked, sizeof(asked));
	assert_int_equal(say_bytes(GO(SEC, OP), list, (size_t)n + sizeof(asked)), LOGIN_GOES_ON);
	assert_string_equal(answer("CHAP_N"), "bob");
	assert_int_equal(iscsi_text_binary(answer("CHAP_R"), theirs, sizeof(theirs)), 32);
	n = iscsi_text_binary(asked + 9 + 7, challenge, sizeof(challenge));
	assert_int_equal(n, 16);
	assert_true(iscsi_chap_verify(CHAP_SHA256, 9, rules.own_secret, challenge, 16, theirs, 32));
}

static void the_target_authenticates_itself_on_request(void **state)
{
	need_chap();
	expect_mutual("alice", rules.secret);
	begin_with_rights(); /* which have the users; the target has none of its own */
	rules.own_user = "bob";
	rules.own_secret = "the secret of bob";
	expect_mutual("carol", "the secret of carol");
	forget_rights(NULL);
	set_up(NULL);
}

/* Sends the target's own challenge back to it. */
static void a_reflected_challenge_is_refused(void **state)
{
	uint8_t id, challenge[64], digest[CHAP_MAX_DIGEST];
	char hex[80], back[80], list[512];
	int n;

	need_chap();
	challenged("7", &id, challenge);
	assert_int_equal(iscsi_chap_respond(CHAP_SHA256, id, rules.secret, challenge,
					    CHAP_CHALLENGE_LEN, digest),
			 0);
	iscsi_text_hex(digest, 32, hex);
	iscsi_text_hex(challenge, CHAP_CHALLENGE_LEN, back);
	n = snprintf(list, sizeof(list), "CHAP_N=alice%cCHAP_R=%s%cCHAP_I=%u%cCHAP_C=%s", 0, hex, 0,
		     id, 0, back);
	assert_int_equal(say_bytes(GO(SEC, OP), list, (size_t)n + 1), LOGIN_REFUSED);
	assert_int_equal(status(), LOGIN_AUTHENTICATION_FAILED);
}

/* An initiator that has not authenticated gets no response to its challenge. */
static void the_target_does_not_answer_unauthenticated_challenges(void **state)
{
	need_chap();
	assert_int_equal(respond(CHAP_SHA256, "alice", "wrong", "CHAP_I=1"), LOGIN_REFUSED);
	assert_int_equal(login->out.len, 0);
}

/* No random list of keys leads to full feature phase if CHAP is required. */
static void random_lists_never_log_in(void **state)
{
	static const char words[][24] = {"CHAP_A=5",	    "CHAP_N=alice", "CHAP_R=0x00",
					 "AuthMethod=CHAP", "CHAP_C=0x11",  "CHAP_I=1",
					 "InitialR2T=No",   "CHAP_R=0b!",   "AuthMethod=None"};

	for (unsigned long i = 0; i < scaled(300); i++) {
		enum target_login_result rc = LOGIN_GOES_ON;

		tear_down(NULL);
		set_up(NULL);
		need_chap();
		rc = SAY((uint8_t)dice(256), NORMAL);
		while (rc == LOGIN_GOES_ON) {
			char list[256];
			size_t len = 0;

			for (uint64_t n = dice(4); n; n--) {
				const char *w = words[dice(9)];

				memcpy(list + len, w, strlen(w) + 1);
				len += strlen(w) + 1;
			}
			if (len && one_in(8))
				list[dice(len)] = (char)dice(256);
			rc = say_bytes(one_in(2) ? GO(SEC, OP) : (uint8_t)dice(256), list, len);
		}
		assert_int_equal(rc, LOGIN_REFUSED);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_login_in_one_step, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_login_in_two_stages, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_list_in_many_requests, set_up, tear_down),
		cmocka_unit_test_setup_teardown(discovery_needs_no_target, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_missing_session_has_its_status, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(each_fault_has_its_status, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_higher_version_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(other_requests_are_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(stages_do_not_go_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_session_stays_the_same, set_up, tear_down),
		cmocka_unit_test_setup_teardown(logins_have_a_limited_number_of_requests, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(huge_lists_are_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(chap_accepts_the_right_secret, set_up, tear_down),
		cmocka_unit_test_setup_teardown(chap_refuses_wrong_secrets, set_up, tear_down),
		cmocka_unit_test_setup_teardown(strangers_have_no_rights, set_up, forget_rights),
		cmocka_unit_test_setup_teardown(users_are_bound_to_initiators, set_up,
						forget_rights),
		cmocka_unit_test_setup_teardown(authentication_may_be_optional, set_up,
						forget_rights),
		cmocka_unit_test_setup_teardown(chap_cannot_be_skipped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_target_authenticates_itself_on_request, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_reflected_challenge_is_refused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			the_target_does_not_answer_unauthenticated_challenges, set_up, tear_down),
		cmocka_unit_test_setup_teardown(random_lists_never_log_in, set_up, tear_down),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
