// SPDX-License-Identifier: BSD-2-Clause
/*
 * page.c - writes the page of a result: one HTML file that needs nothing else.
 *
 * The page itself (app/bench/page) is static; it reads the result, which is in it as JSON.
 */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "page.h"
#include "stag.h"

bool page_available(void)
{
	if (page_template.before_size)
		return true;
	complain("this build of stag has no page: it was built without node and npm, or with "
		 "-Dconsole=disabled; --output saves the result, and 'stag bench page' of another "
		 "build makes a page of it");
	return false;
}

/*
 * Within <script>, HTML ends at "</script" and changes its rules at "<!--"; in JSON a '<' is in
 * strings only.
 */
static void write_json(FILE *to, const char *text)
{
	for (; *text; text++) {
		if (*text == '<')
			fputs("\\u003c", to);
		else
			fputc(*text, to);
	}
}

int page_write(const json_t *result, const char *file)
{
	CLEANUP_FREE char *text = NULL;
	FILE *to;
	bool failed;

	if (!page_available())
		return -ENOTSUP;
	text = json_dumps(result, JSON_COMPACT);
	to = text ? fopen(file, "w") : NULL;
	if (!to) {
		complain("cannot write %s: %s", file, text ? strerror(errno) : "no memory");
		return -EIO;
	}
	fwrite(page_template.before, 1, page_template.before_size, to);
	write_json(to, text);
	fwrite(page_template.behind, 1, page_template.behind_size, to);
	failed = ferror(to);
	if (fclose(to) == 0 && !failed)
		return 0;
	complain("cannot write %s: %s", file, strerror(errno));
	return -EIO;
}
