// SPDX-License-Identifier: BSD-2-Clause
/*
 * page_none.c - the page of a build without node: there is none.
 */
#include "page.h"

const struct page_template page_template = {0};
