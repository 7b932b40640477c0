// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_wire.c - messages: requests and answers are read as written, and operands that an operation does not
 * take are refused.
 */
#include "pool/memory/memory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint8_t message[4096];
static size_t used;

static void start_message(uint8_t kind)
{
	used = 0;
	assert_int_equal(pool_message_start(message, sizeof(message), &used, kind, 7), 0);
}

/* Writes a request to a message and reads it as the peer does. */
static int write_and_read(const struct pool_request *in, struct pool_request *out)
{
	struct pool_message header;
	size_t where = 0;

	start_message(POOL_MESSAGE_REQUESTS);
	assert_int_equal(pool_message_request(message, sizeof(message), &used, in), 0);
	assert_int_equal(pool_message_read(message, used, &where, &header), 0);
	assert_int_equal(header.count, 1);
	assert_int_equal(header.epoch, 7);
	return pool_request_read(message, used, &where, out);
}

static const struct pool_request put = {
	.op = STAG_POOL_PUT,
	.flags = POOL_HAS_VALUE | POOL_COMPARE,
	.name = "a name",
	.name_length = 6,
	.value = "a value",
	.length = 7,
	.sequence = 5,
	.acknowledged = 3,
	.version = 99,
};

static void a_request_is_read_as_it_was_written(void **state)
{
	struct pool_request rq;

	assert_int_equal(write_and_read(&put, &rq), 0);
	assert_int_equal(rq.op, STAG_POOL_PUT);
	assert_int_equal(rq.flags, put.flags);
	assert_int_equal(rq.sequence, 5);
	assert_int_equal(rq.acknowledged, 3);
	assert_int_equal(rq.version, 99);
	assert_int_equal(rq.name_length, 6);
	assert_memory_equal(rq.name, "a name", 6);
	assert_int_equal(rq.length, 7);
	assert_memory_equal(rq.value, "a value", 7);
}

/* "The slave node may identify the operation is an insert since there is a data element and no pointer." */
static void operation_is_implied_by_its_operands(void **state)
{
	static const struct {
		uint8_t flags, op;
	} implicit[] = {{POOL_HAS_VALUE, STAG_POOL_INSERT},
			{POOL_HAS_VALUE | POOL_HAS_PTR, STAG_POOL_UPDATE},
			{POOL_HAS_PTR, STAG_POOL_DELETE}};
	struct pool_request in = {.op = STAG_POOL_IMPLICIT}, out;

	for (size_t i = 0; i < 3; i++) {
		in.flags = implicit[i].flags;
		assert_int_equal(write_and_read(&in, &out), 0);
		assert_int_equal(out.op, implicit[i].op);
	}
	in.flags = 0;
	assert_int_equal(write_and_read(&in, &out), -EBADMSG);
}

static void superfluous_operands_are_refused(void **state)
{
	struct pool_request rq = put, out;

	rq.flags |= POOL_UPLOADED; /* a flag for the node's own use */
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq = put;
	rq.flags |= POOL_HAS_PTR;
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq = put;
	rq.flags &= (uint8_t)~POOL_HAS_VALUE;
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq = put;
	rq.name_length = 0;
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq = put;
	rq.name = "a\0name";
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq = put;
	rq.op = STAG_POOL_DELETE;
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq = put;
	rq.op = POOL_OP_MAX;
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq.op = 20;
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq = put;
	rq.source = POOL_SOURCE_PULL + 1;
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq.source = POOL_SOURCE_PULL;
	rq.length = POOL_MAX_VALUE + 1;
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq.length = POOL_MAX_VALUE;
	assert_int_equal(write_and_read(&rq, &out), 0);
	assert_null(out.value);
	rq.source = POOL_SOURCE_STAGED;
	rq.length = POOL_STAGED_MAX + 1;
	assert_int_equal(write_and_read(&rq, &out), -EBADMSG);
	rq.length = POOL_STAGED_MAX;
	assert_int_equal(write_and_read(&rq, &out), 0);
	assert_null(out.value);
}

static void truncated_message_is_refused(void **state)
{
	struct pool_message header;
	struct pool_request rq;
	size_t where, whole;

	start_message(POOL_MESSAGE_REQUESTS);
	assert_int_equal(pool_message_request(message, sizeof(message), &used, &put), 0);
	whole = used;
	for (size_t length = 0; length < whole; length++) {
		uint8_t *copy = malloc(length + 1);

		assert_non_null(copy);
		memcpy(copy, message, length);
		where = 0;
		assert_int_equal(pool_message_read(copy, length, &where, &header), -EBADMSG);
		where = POOL_MESSAGE_HEADER; /* skip the check of the header */
		assert_int_equal(pool_request_read(copy, length, &where, &rq), -EBADMSG);
		free(copy);
	}
}

static void answers_follow_each_other(void **state)
{
	struct pool_answer one = {
		.sequence = 1, .status = ENOENT, .op = STAG_POOL_READ, .ptr = {1, 2, 3, 4}};
	struct pool_answer two = {.sequence = 2, .version = 9, .bytes = "value", .length = 5};
	struct pool_message header;
	struct pool_answer answer;
	size_t where = 0;

	start_message(POOL_MESSAGE_ANSWERS);
	assert_int_equal(pool_message_answer(message, sizeof(message), &used, &one), 0);
	assert_int_equal(pool_message_answer(message, sizeof(message), &used, &two), 0);
	assert_int_equal(pool_message_answer(message, used + 8, &used, &two), -ENOBUFS);
	assert_int_equal(pool_message_read(message, used, &where, &header), 0);
	assert_int_equal(header.count, 2);
	assert_int_equal(pool_answer_read(message, used, &where, &answer), 0);
	assert_int_equal(answer.status, ENOENT);
	assert_memory_equal(&answer.ptr, &one.ptr, sizeof(one.ptr));
	assert_int_equal(pool_answer_read(message, used, &where, &answer), 0);
	assert_int_equal(answer.version, 9);
	assert_int_equal(answer.length, 5);
	assert_memory_equal(answer.bytes, "value", 5);
	assert_int_equal(pool_answer_read(message, used, &where, &answer), -EBADMSG);
}

static void operations_need_rights(void **state)
{
	assert_int_equal(pool_op_needs(STAG_POOL_READ), STAG_POOL_RIGHT_READ);
	assert_int_equal(pool_op_needs(STAG_POOL_PUT), STAG_POOL_RIGHT_WRITE);
	assert_int_equal(pool_op_needs(POOL_OP_SWITCH), STAG_POOL_RIGHT_ADMIN);
	assert_int_equal(pool_op_needs(255), UINT32_MAX); /* more rights than any user has */
	assert_true(pool_op_changes(STAG_POOL_REMOVE));
	assert_false(pool_op_changes(STAG_POOL_GET));
	assert_false(pool_op_changes(255));
	assert_string_equal(pool_op_name(STAG_POOL_UPDATE), "update");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_is_read_as_it_was_written),
		cmocka_unit_test(operation_is_implied_by_its_operands),
		cmocka_unit_test(superfluous_operands_are_refused),
		cmocka_unit_test(truncated_message_is_refused),
		cmocka_unit_test(answers_follow_each_other),
		cmocka_unit_test(operations_need_rights),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
