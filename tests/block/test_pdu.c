// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_pdu.c - headers of iSCSI PDUs: encoding and decoding match each other, and the offsets of RFC 7143.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "block/iscsi/iscsi.h"
#include "dice.h"

static const uint8_t opcodes[] = {NOP_OUT,	 SCSI_COMMAND,	TASK_REQUEST,	 LOGIN_REQUEST,
				  TEXT_REQUEST,	 DATA_OUT,	LOGOUT_REQUEST,	 SNACK_REQUEST,
				  NOP_IN,	 SCSI_RESPONSE, TASK_RESPONSE,	 LOGIN_RESPONSE,
				  TEXT_RESPONSE, DATA_IN,	LOGOUT_RESPONSE, R2T,
				  ASYNC_MESSAGE, REJECT};

#define N_OPCODES (sizeof(opcodes) / sizeof(*opcodes))

/* Random bytes of a known opcode, decoded, encoded and decoded again, are the same. */
static void decoded_headers_encode_to_the_same(void **state)
{
	for (unsigned int i = 0; i < 200 * N_OPCODES; i++) {
		uint8_t bhs[BHS_LEN], out[BHS_LEN], again[BHS_LEN];
		struct pdu p, q;

		dice_fill(bhs, sizeof(bhs));
		bhs[0] = opcodes[i % N_OPCODES] | (bhs[0] & 0x40);
		assert_int_equal(iscsi_pdu_decode(bhs, &p), 0);
		iscsi_pdu_encode(&p, out);
		assert_int_equal(iscsi_pdu_decode(out, &q), 0);
		assert_memory_equal(&p, &q, sizeof(p));
		iscsi_pdu_encode(&q, again);
		assert_memory_equal(out, again, sizeof(out));
		assert_memory_equal(out, bhs, 2);
		assert_memory_equal(out + 4, bhs + 4, 4); /* lengths */
	}
}

static void unknown_opcodes_are_refused(void **state)
{
	unsigned int known = 0;

	for (unsigned int op = 0; op < 0x40; op++) {
		uint8_t bhs[BHS_LEN] = {(uint8_t)op};
		struct pdu p;
		int rc = iscsi_pdu_decode(bhs, &p);

		known += rc == 0;
		assert_true(rc == 0 || rc == -EPROTO);
		assert_int_equal(p.opcode, op);
	}
	assert_int_equal(known, N_OPCODES);
	assert_false(iscsi_pdu_from_initiator(NOP_IN));
	assert_false(iscsi_pdu_from_initiator(0x1c));
	assert_true(iscsi_pdu_from_initiator(SNACK_REQUEST));
}

/* RFC 7143 §11.3: the offsets of a command. */
static void command_fields_have_the_offsets_of_the_rfc(void **state)
{
	const uint8_t bhs[BHS_LEN] = {0x41, 0xa1, 0, 0, 0, 0, 2, 1, 0, 3, 0, 0, 0, 0, 0, 0,
				      1,    2,	  3, 4, 0, 0, 2, 0, 9, 8, 7, 6, 5, 4, 3, 2,
				      0x2a, 0,	  0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x77};
	struct pdu p;

	assert_int_equal(iscsi_pdu_decode(bhs, &p), 0);
	assert_int_equal(p.opcode, SCSI_COMMAND);
	assert_true(p.immediate);
	assert_true(p.flags & PDU_FINAL);
	assert_true(p.flags & CMD_WRITE);
	assert_false(p.flags & CMD_READ);
	assert_int_equal(p.data_len, 0x201);
	assert_int_equal(p.lun, 0x0003000000000000);
	assert_int_equal(p.itt, 0x01020304);
	assert_int_equal(p.expected, 0x200);
	assert_int_equal(p.cmd_sn, 0x09080706);
	assert_int_equal(p.exp_stat_sn, 0x05040302);
	assert_int_equal(p.cdb[0], 0x2a);
	assert_int_equal(p.cdb[15], 0x77);
}

static void login_response_fields_have_the_offsets_of_the_rfc(void **state)
{
	struct pdu p = {.opcode = LOGIN_RESPONSE,
			.flags = LOGIN_TRANSIT | LOGIN_STAGES(STAGE_OPERATIONAL, STAGE_FULL),
			.isid = {0x80, 1, 2, 3, 4, 5},
			.tsih = 0x1234,
			.itt = 7,
			.status_class = 2,
			.status_detail = 3};
	uint8_t bhs[BHS_LEN];

	iscsi_pdu_encode(&p, bhs);
	assert_int_equal(bhs[0], 0x23);
	assert_int_equal(bhs[1], 0x87);
	assert_memory_equal(bhs + 8, "\x80\1\2\3\4\5\x12\x34", 8);
	assert_int_equal(bhs[19], 7);
	assert_int_equal(bhs[36], 2);
	assert_int_equal(bhs[37], 3);
}

static void additional_headers_are_found(void **state)
{
	/* An extended CDB of 5 bytes beyond the 16, padded; a bidirectional read length. */
	uint8_t all[] = {0, 6, AHS_CDB,		0, 'a', 'b', 'c', 'd', 'e', 0, 0, 0,
			 0, 5, AHS_READ_LENGTH, 0, 0,	0,   16,  0};
	struct ahs a;
	uint32_t at = 0;

	assert_int_equal(iscsi_ahs_next(all, sizeof(all), &at, &a), 1);
	assert_int_equal(a.type, AHS_CDB);
	assert_int_equal(a.len, 5);
	assert_memory_equal(a.bytes, "abcde", 5);
	assert_int_equal(iscsi_ahs_next(all, sizeof(all), &at, &a), 1);
	assert_int_equal(a.type, AHS_READ_LENGTH);
	assert_int_equal(a.len, 4);
	assert_int_equal(iscsi_ahs_next(all, sizeof(all), &at, &a), 0);
}

static void additional_headers_that_run_over_are_refused(void **state)
{
	for (unsigned int len = 0; len < 64; len += 4)
		for (unsigned int i = 0; i < 200; i++) {
			uint8_t all[64];
			uint32_t at = 0;
			struct ahs a;

			dice_fill(all, sizeof(all));
			all[0] = 0;
			while (iscsi_ahs_next(all, len, &at, &a) > 0) {
				assert_true(a.bytes >= all);
				assert_true(a.bytes + a.len <= all + len);
			}
		}
}

/* RFC 7143, appendix A.4 */
static void digests_match_the_rfc(void **state)
{
	uint8_t zeroes[32] = {0}, ones[32], digest[4];

	memset(ones, 0xff, sizeof(ones));
	crc32c_put(digest, crc32c_update(CRC32C_INIT, zeroes, 32));
	assert_memory_equal(digest, "\xaa\x36\x91\x8a", 4);
	crc32c_put(digest, crc32c_update(CRC32C_INIT, ones, 32));
	assert_memory_equal(digest, "\x43\xab\xa8\x62", 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decoded_headers_encode_to_the_same),
		cmocka_unit_test(unknown_opcodes_are_refused),
		cmocka_unit_test(command_fields_have_the_offsets_of_the_rfc),
		cmocka_unit_test(login_response_fields_have_the_offsets_of_the_rfc),
		cmocka_unit_test(additional_headers_are_found),
		cmocka_unit_test(additional_headers_that_run_over_are_refused),
		cmocka_unit_test(digests_match_the_rfc),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
