// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_real.c - finding the functions of rdma-core's own library. There is no device here that it
 * could drive, but each of its functions has to be found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <dlfcn.h>

#include "cm/cm.h"

static void every_function_is_found(void **state)
{
	struct real_cm table;

	assert_int_equal(real_cm_resolve(&table), 0);
}

/* The functions found are rdma-core's, not ours of the same names. */
static void functions_found_are_not_ours(void **state)
{
	struct real_cm table;
	Dl_info info;

	real_cm_resolve(&table);
	assert_ptr_not_equal(table.connect, &rdma_connect);
	assert_int_not_equal(dladdr((void *)table.connect, &info), 0);
	assert_non_null(strstr(info.dli_fname, "librdmacm"));
	assert_string_equal(table.event_str(RDMA_CM_EVENT_ESTABLISHED),
			    rdma_event_str(RDMA_CM_EVENT_ESTABLISHED));
}

/* STAG_CM=real requests rdma-core's library, which has no device on this machine. */
static void without_a_real_device_calls_are_ours(void **state)
{
	assert_null(real_cm());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_function_is_found),
		cmocka_unit_test(functions_found_are_not_ours),
		cmocka_unit_test(without_a_real_device_calls_are_ours),
	};

	setenv("STAG_CM", "real", 1);
	return cmocka_run_group_tests_name("cm real", tests, NULL, NULL);
}
