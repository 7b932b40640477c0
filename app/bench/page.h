/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * page.h - the page of a result, as app/bench/page builds it: HTML before and behind the place of
 * the JSON.
 */
#ifndef STAG_APP_BENCH_PAGE_H
#define STAG_APP_BENCH_PAGE_H

#include <stddef.h>

struct page_template {
	const unsigned char *before;
	size_t before_size; /* 0: built without node, so there is no page */
	const unsigned char *behind;
	size_t behind_size;
};

extern const struct page_template page_template;

#endif
