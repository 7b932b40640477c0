// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_hello.c - arbitrary first messages of a TLS connection to a block target, which says by them what it carries.
 */
#include "fuzz.h"

#include "block/iscsi/iscsi.h"

/* While bytes are missing, the answer is SHORT, and what is wanted is more than there is. */
static void check_prefixes(const uint8_t *p, size_t whole)
{
	for (size_t n = 0; n < whole; n++) {
		uint8_t *part = copy_of(p, n);
		size_t wanted;

		CHECK(iscsi_tls_hello(part, n, &wanted) == TLS_HELLO_SHORT);
		CHECK(wanted > n && wanted <= whole);
		free(part);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes = copy_of(data, size);
	size_t wanted;
	enum iscsi_tls_hello said = iscsi_tls_hello(bytes, size, &wanted);

	if (said == TLS_HELLO_SHORT)
		CHECK(wanted > size && wanted <= ISCSI_TLS_HELLO_MAX);
	if (said == TLS_HELLO_ISCSI) {
		CHECK(wanted <= size && wanted <= ISCSI_TLS_HELLO_MAX);
		check_prefixes(bytes, wanted);
	}
	free(bytes);
	return 0;
}
