// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_text.c - lists of keys: parsing, building, negotiation.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "block/iscsi/iscsi.h"
#include "dice.h"

static struct text_in in;
static struct text_out out;

#define COLLECT(words) assert_int_equal(iscsi_text_collect(&in, words, sizeof(words) - 1), 0)

static int reset(void **state)
{
	in.len = out.len = 0;
	out.full = false;
	return 0;
}

static void expect_pair(uint32_t *at, const char *key, const char *value)
{
	const char *k, *v;

	assert_int_equal(iscsi_text_next(&in, at, &k, &v), 1);
	assert_string_equal(k, key);
	assert_string_equal(v, value);
}

/* ---- lists --------------------------------------------------------------------------- */

static void a_list_is_parsed(void **state)
{
	const char *k, *v;
	uint32_t at = 0;

	COLLECT("A=1\0B=\0\0C=x=y\0D=no end");
	expect_pair(&at, "A", "1");
	expect_pair(&at, "B", "");
	expect_pair(&at, "C", "x=y");
	expect_pair(&at, "D", "no end");
	assert_int_equal(iscsi_text_next(&in, &at, &k, &v), 0);
}

/* RFC 7143 §6.2: a pair may be divided between two PDUs. */
static void a_list_continues_in_the_next_pdu(void **state)
{
	uint32_t at = 0;

	COLLECT("InitiatorName=iqn.20");
	assert_int_equal(iscsi_text_collect(&in, NULL, 0), 0);
	COLLECT("26-01.x:i\0Sess");
	COLLECT("ionType=Discovery");
	expect_pair(&at, "InitiatorName", "iqn.2026-01.x:i");
	expect_pair(&at, "SessionType", "Discovery");
}

static void malformed_pairs_are_refused(void **state)
{
	static const char too_long[] =
		"Key2345678901234567890123456789012345678901234567890123456789012345=1";
	static const char *const wrong[] = {"novalue", "=value", "a key=1", "k\x01y=1", too_long};
	const char *k, *v;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		uint32_t at = 0;

		in.len = 0;
		assert_int_equal(iscsi_text_collect(&in, wrong[i], (uint32_t)strlen(wrong[i])), 0);
		assert_int_equal(iscsi_text_next(&in, &at, &k, &v), -EPROTO);
	}
}

static void too_long_a_list_is_refused(void **state)
{
	char much[1024];
	unsigned int n = 0;

	memset(much, 'a', sizeof(much));
	while (iscsi_text_collect(&in, much, sizeof(much)) == 0)
		n++;
	assert_int_equal(n, TEXT_MAX / sizeof(much));
	assert_int_equal(iscsi_text_collect(&in, much, UINT32_MAX), -EMSGSIZE);
	for (n = 0; !out.full && n < 100000; n++)
		iscsi_text_add(&out, "Key", "a value");
	assert_true(out.full);
	assert_true(out.len <= sizeof(out.bytes));
}

static void values_are_parsed(void **state)
{
	uint8_t bytes[4];
	uint64_t n;
	bool yes;

	assert_true(iscsi_text_number("262144", &n) && n == 262144);
	assert_true(iscsi_text_number("0x1F", &n) && n == 31);
	assert_false(iscsi_text_number("", &n) || iscsi_text_number("0x", &n) ||
		     iscsi_text_number("-1", &n) || iscsi_text_number("12k", &n) ||
		     iscsi_text_number("1f", &n));
	assert_false(iscsi_text_number("99999999999999999999999", &n));
	assert_true(iscsi_text_bool("Yes", &yes) && yes);
	assert_true(iscsi_text_bool("No", &yes) && !yes);
	assert_false(iscsi_text_bool("yes", &yes));
	assert_true(iscsi_text_list_has("None,CHAP", "CHAP") &&
		    !iscsi_text_list_has("None,CHAPX", "CHAP"));
	assert_int_equal(iscsi_text_binary("0x0a1B", bytes, 4), 2);
	assert_memory_equal(bytes, "\x0a\x1b", 2);
	assert_int_equal(iscsi_text_binary("0xa1B", bytes, 4), 2);
	assert_memory_equal(bytes, "\x0a\x1b", 2);
	assert_int_equal(iscsi_text_binary("0bAQID", bytes, 4), 3);
	assert_memory_equal(bytes, "\1\2\3", 3);
	assert_int_equal(iscsi_text_binary("0bAQI=", bytes, 4), 2);
	assert_int_equal(iscsi_text_binary("0x0102030405", bytes, 4), -EMSGSIZE);
	assert_int_equal(iscsi_text_binary("0bAQIDBAUG", bytes, 4), -EMSGSIZE);
	assert_int_equal(iscsi_text_binary("0xzz", bytes, 4), -EINVAL);
	assert_int_equal(iscsi_text_binary("12", bytes, 4), -EINVAL);
	assert_int_equal(iscsi_text_binary("0b====", bytes, 4), -EINVAL);
}

static void iscsi_names_are_recognized(void **state)
{
	assert_true(iscsi_text_is_name("iqn.2026-01.com.example:a.b-c"));
	assert_true(iscsi_text_is_name("eui.02004567A425678D"));
	assert_true(iscsi_text_is_name("naa.52004567BA64678D"));
	assert_false(iscsi_text_is_name("iqn."));
	assert_false(iscsi_text_is_name("eui.0200"));
	assert_false(iscsi_text_is_name("nothing"));
	assert_false(iscsi_text_is_name("iqn.2026-01.a b"));
	assert_false(iscsi_text_is_name("iqn.2026-01.x\n"));
}

/* ---- negotiation ------------------------------------------------------------------------ */

static const struct key_wishes wishes = {
	.keys = {.header_digest = DIGEST_CRC32C,
		 .data_digest = DIGEST_CRC32C,
		 .max_connections = 1,
		 .immediate_data = 1,
		 .max_burst = 1 << 20,
		 .first_burst = 262144,
		 .time2wait = 2,
		 .max_r2t = 4,
		 .pdu_in_order = 1,
		 .sequence_in_order = 1,
		 .protocol_level = 1,
		 .rdma_extensions = 1,
		 .target_recv = 65536,
		 .initiator_recv = 65536,
		 .max_unexpected = 7},
	.own_recv_max = 262144,
};

/* Offers one key in a new negotiation. answer: the expected one, or NULL for none. */
static void expect_answer(const char *key, const char *offer, const char *answer)
{
	struct negotiation n;
	char pair[128];

	reset(NULL);
	iscsi_keys_begin(&n, &wishes);
	assert_int_equal(iscsi_keys_receive(&n, key, offer, &out), KEY_ANSWERED);
	if (!answer) {
		assert_int_equal(out.len, 0);
		return;
	}
	snprintf(pair, sizeof(pair), "%s=%s", key, answer);
	assert_string_equal(out.bytes, pair);
	assert_int_equal(out.len, strlen(pair) + 1);
}

static void each_key_has_its_rule(void **state)
{
	static const struct {
		const char *key, *offer, *answer;
	} cases[] = {
		{"HeaderDigest", "CRC32C,None", "CRC32C"},
		{"HeaderDigest", "None,CRC32C", "None"},
		{"DataDigest", "X-new,CRC32C", "CRC32C"},
		{"DataDigest", "X-new", "Reject"},
		{"MaxConnections", "8", "1"},
		{"MaxConnections", "0", "Reject"},
		{"InitialR2T", "Yes", "Yes"},
		{"InitialR2T", "No", "No"},
		{"InitialR2T", "Maybe", "Reject"},
		{"ImmediateData", "Yes", "Yes"},
		{"ImmediateData", "No", "No"},
		{"MaxRecvDataSegmentLength", "4096", NULL},
		{"MaxRecvDataSegmentLength", "511", "Reject"},
		{"MaxBurstLength", "0xffffff", "1048576"},
		{"MaxBurstLength", "16777216", "Reject"},
		{"FirstBurstLength", "65536", "65536"},
		{"DefaultTime2Wait", "0", "2"},
		{"DefaultTime2Wait", "10", "10"},
		{"DefaultTime2Retain", "20", "0"},
		{"MaxOutstandingR2T", "16", "4"},
		{"DataPDUInOrder", "No", "Yes"},
		{"DataSequenceInOrder", "No", "Yes"},
		{"ErrorRecoveryLevel", "2", "0"},
		{"ErrorRecoveryLevel", "3", "Reject"},
		{"TaskReporting", "FastAbort,RFC3720", "RFC3720"},
		{"TaskReporting", "FastAbort", "Reject"},
		{"iSCSIProtocolLevel", "2", "1"},
		{"IFMarker", "Yes", "No"},
		{"OFMarker", "Yes", "No"},
		{"IFMarkInt", "2048~8192", "Reject"},
		{"OFMarkInt", "2048", "Reject"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		expect_answer(cases[i].key, cases[i].offer, cases[i].answer);
}

static void agreed_values_are_kept(void **state)
{
	struct negotiation n;

	iscsi_keys_begin(&n, &wishes);
	assert_int_equal(n.agreed.initial_r2t, 1);
	assert_int_equal(n.agreed.max_burst, 262144);
	iscsi_keys_receive(&n, "InitialR2T", "No", &out);
	iscsi_keys_receive(&n, "MaxBurstLength", "8192", &out);
	iscsi_keys_receive(&n, "FirstBurstLength", "65536", &out);
	iscsi_keys_receive(&n, "MaxRecvDataSegmentLength", "1024", &out);
	iscsi_keys_receive(&n, "MaxOutstandingR2T", "junk", &out);
	iscsi_keys_conclude(&n);
	assert_int_equal(n.agreed.initial_r2t, 0);
	assert_int_equal(n.agreed.max_burst, 8192);
	assert_int_equal(n.agreed.first_burst, 8192);
	assert_int_equal(n.agreed.peer_recv_max, 1024);
	assert_int_equal(n.agreed.max_r2t, 1);
}

static void a_repeated_key_is_an_error(void **state)
{
	struct negotiation n;

	iscsi_keys_begin(&n, &wishes);
	assert_int_equal(iscsi_keys_receive(&n, "InitialR2T", "No", &out), KEY_ANSWERED);
	assert_int_equal(iscsi_keys_receive(&n, "InitialR2T", "Yes", &out), KEY_REPEATED);
	assert_int_equal(iscsi_keys_receive(&n, "X-org.example", "1", &out), KEY_UNKNOWN);
}

static void discovery_needs_few_keys(void **state)
{
	struct negotiation n;

	iscsi_keys_begin(&n, &wishes);
	n.discovery = true;
	assert_int_equal(iscsi_keys_receive(&n, "MaxBurstLength", "512", &out), KEY_ANSWERED);
	assert_string_equal(out.bytes, "MaxBurstLength=Irrelevant");
}

static void few_keys_change_after_login(void **state)
{
	struct negotiation n;

	iscsi_keys_begin(&n, &wishes);
	n.full = true;
	assert_int_equal(iscsi_keys_receive(&n, "HeaderDigest", "CRC32C", &out), KEY_WRONG_TIME);
	assert_int_equal(iscsi_keys_receive(&n, "MaxRecvDataSegmentLength", "512", &out),
			 KEY_ANSWERED);
	assert_int_equal(n.agreed.peer_recv_max, 512);
}

/* RFC 7145: its keys are understood over RDMA only, where there are no digests. */
static void rdma_has_keys_of_its_own(void **state)
{
	struct key_wishes rdma = wishes;
	struct negotiation n;

	iscsi_keys_begin(&n, &wishes);
	assert_int_equal(iscsi_keys_receive(&n, "RDMAExtensions", "Yes", &out), KEY_UNKNOWN);
	rdma.rdma = true;
	iscsi_keys_begin(&n, &rdma);
	iscsi_keys_receive(&n, "RDMAExtensions", "Yes", &out);
	iscsi_keys_receive(&n, "TargetRecvDataSegmentLength", "8192", &out);
	iscsi_keys_receive(&n, "InitiatorRecvDataSegmentLength", "262144", &out);
	iscsi_keys_receive(&n, "MaxOutstandingUnexpectedPDUs", "0", &out);
	iscsi_keys_receive(&n, "HeaderDigest", "CRC32C,None", &out);
	assert_int_equal(n.agreed.rdma_extensions, 1);
	assert_int_equal(n.agreed.target_recv, 8192);
	assert_int_equal(n.agreed.initiator_recv, 65536);
	assert_int_equal(n.agreed.header_digest, DIGEST_NONE);
	reset(NULL);
	iscsi_keys_declare(&n, &out);
	assert_string_equal(out.bytes, "MaxOutstandingUnexpectedPDUs=7");
}

/* Offers the keys of open-iscsi: the answers have no key that it does not know. */
static void keys_that_the_peer_did_not_use_are_not_declared(void **state)
{
	struct key_wishes rdma = wishes;
	struct negotiation n;

	rdma.rdma = true;
	iscsi_keys_begin(&n, &rdma);
	iscsi_keys_receive(&n, "RDMAExtensions", "Yes", &out);
	reset(NULL);
	iscsi_keys_declare(&n, &out);
	assert_int_equal(out.len, 0);
}

static void declarations_are_sent_once(void **state)
{
	struct negotiation n;

	iscsi_keys_begin(&n, &wishes);
	iscsi_keys_declare(&n, &out);
	assert_string_equal(out.bytes, "MaxRecvDataSegmentLength=262144");
	reset(NULL);
	iscsi_keys_declare(&n, &out);
	assert_int_equal(out.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_list_is_parsed, reset),
		cmocka_unit_test_setup(a_list_continues_in_the_next_pdu, reset),
		cmocka_unit_test_setup(malformed_pairs_are_refused, reset),
		cmocka_unit_test_setup(too_long_a_list_is_refused, reset),
		cmocka_unit_test_setup(values_are_parsed, reset),
		cmocka_unit_test_setup(iscsi_names_are_recognized, reset),
		cmocka_unit_test_setup(each_key_has_its_rule, reset),
		cmocka_unit_test_setup(agreed_values_are_kept, reset),
		cmocka_unit_test_setup(a_repeated_key_is_an_error, reset),
		cmocka_unit_test_setup(discovery_needs_few_keys, reset),
		cmocka_unit_test_setup(few_keys_change_after_login, reset),
		cmocka_unit_test_setup(rdma_has_keys_of_its_own, reset),
		cmocka_unit_test_setup(keys_that_the_peer_did_not_use_are_not_declared, reset),
		cmocka_unit_test_setup(declarations_are_sent_once, reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
