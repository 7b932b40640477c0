// SPDX-License-Identifier: BSD-2-Clause
/* test_roce_tls.c - roce0 has no TLS. The test runs with STAG_TLS=required, and with what counts as that. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "verbs/verbs.h"

static void roce0_cannot_be_opened_where_tls_is_required(void **state)
{
	errno = 0;
	assert_null(ibv_open_device(&stag_device(FACE_ROCE)->ibv));
	assert_int_equal(errno, EOPNOTSUPP);
}

static void stag0_can(void **state)
{
	struct ibv_context *ctx = ibv_open_device(&stag_device(FACE_IWARP)->ibv);

	assert_non_null(ctx);
	assert_int_equal(ibv_close_device(ctx), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roce0_cannot_be_opened_where_tls_is_required),
		cmocka_unit_test(stag0_can),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
