// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_conf.c - reads and checks arbitrary INI files, without opening any other file.
 *
 * A valid file must stay valid and equal after its settings were written as the management API writes them.
 */
#include "fuzz.h"

#include "conf.h"

#define MOST 4096

static int read_it(struct conf *conf, const void *text, size_t len)
{
	FILE *file = fmemopen((void *)text, len, "r");
	int rc;

	CHECK(file);
	rc = conf_read_stream(conf, "/fuzz/stag.ini", file, NULL, CONF_TEXT_ONLY);
	fclose(file);
	return rc;
}

/* Writes all sections one after the other. */
static char *write_it(const struct conf *conf, size_t *len)
{
	const struct conf_section *s = NULL;
	char *text = NULL;
	FILE *file = open_memstream(&text, len);

	CHECK(file);
	while ((s = conf_next(conf, NULL, s)))
		fprintf(file, "[%s%s%s]\n%s", conf_kind_word(s->kind), *s->name ? " " : "", s->name,
			s->text);
	fclose(file);
	return text;
}

static void compare(const struct conf *a, const struct conf *b)
{
	const struct conf_section *s = NULL, *other;

	while ((s = conf_next(a, NULL, s))) {
		other = conf_find(b, s->kind, s->name);
		CHECK(other);
		CHECK(!conf_differs(s, other));
		CHECK(conf_is_same_items(s, other));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct conf conf, again;
	uint8_t *text;
	char *written;
	size_t len;

	if (size == 0 || size > MOST)
		return 0;
	text = copy_of(data, size);
	if (read_it(&conf, text, size) == 0) {
		CHECK(conf.faults == 0);
		written = write_it(&conf, &len);
		CHECK(read_it(&again, written, len) == 0);
		compare(&conf, &again);
		conf_free(&again);
		free(written);
	} else {
		CHECK(conf.faults > 0);
	}
	conf_free(&conf);
	free(text);
	return 0;
}
