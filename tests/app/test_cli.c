// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_cli.c - command lines described by a table (app/cli/cli.h): values, errors, rows of one name, arguments, mistakes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <getopt.h>
#include <cmocka.h>

#include "cli.h"
#include "complain.h"

struct shop {
	bool fast;
	const char *label, *colour;
	uint16_t port;
	uint32_t count;
	uint64_t size;
	double wait;
	unsigned int num_tags;
};

static bool count_tag(void *to, const struct cli_option *o, char *text)
{
	((struct shop *)to)->num_tags++;
	return *text != '-';
}

static const struct cli_option options[] = {
	{"fast", CLI_FLAG_AT(struct shop, fast), .help = "quickly"},
	{"slow", CLI_CLEAR_AT(struct shop, fast), .help = "slowly"},
	{"label", .alias = "name", .letter = 'l', .value = "TEXT", CLI_TEXT_AT(struct shop, label),
	 .help = "a label"},
	{"colour", .value = "WORD", CLI_WORD_AT(struct shop, colour, "red green blue"),
	 .help = "of the shop"},
	{"port", .value = "PORT", CLI_NUMBER_AT(struct shop, port, 0, 65535), .help = "a port"},
	{"count", .value = "N", .verbs = "open", CLI_NUMBER_AT(struct shop, count, 1, 10),
	 .help = "how many"},
	{"size", .value = "SIZE", .verbs = "open", CLI_SIZE_AT(struct shop, size, 1, UINT64_MAX),
	 .help = "in bytes"},
	{"size", .value = "N", .verbs = "close", CLI_NUMBER_AT(struct shop, count, 1, 3),
	 .help = "in shelves"},
	{"wait", .value = "S", CLI_SECONDS_AT(struct shop, wait, 0.5, 60), .help = "in seconds"},
	{"tag", .value = "TAG", .type = CLI_TEXT, .parse = count_tag, .repeats = true,
	 .help = "may repeat"},
	{0},
};

static const struct verb {
	struct cli_verb cli;
} verbs[] = {
	{{"open", .args = "PLACE [DOOR] --size SIZE", .summary = "Opens it."}},
	{{"close", .args = "PLACE {NAME... | --label TEXT}\n--fast", .summary = "Closes it."}},
};

static const struct cli_noun noun = {.call = "stag shop",
				     .name = "shop",
				     .about = "A shop.",
				     CLI_VERBS(verbs),
				     .options = options};

static struct shop shop;
static struct cli_call call;
static char why[1024];

/* Parses a line. Returns the exit code, or -1 if the command goes on; `why` is the error. */
static int parse(const char *line)
{
	static char text[256], *argv[32]; /* call.args is in argv */
	char *rest = text;
	int argc = 0, rc = -1;

	optind = 0; /* getopt_long() begins anew */
	shop = (struct shop){0};
	snprintf(text, sizeof(text), "%s", line);
	while ((argv[argc] = strsep(&rest, " ")))
		argc++;
	complain_catch(why, sizeof(why));
	if (cli_parse(&noun, argc, argv, &shop, &call, &rc))
		rc = -1;
	complain_catch(NULL, 0);
	return rc;
}

static void assert_refused(const char *line, const char *words)
{
	assert_int_equal(parse(line), EXIT_USAGE);
	if (!strstr(why, words))
		fail_msg("%s: '%s', not '%s'", line, why, words);
}

static void values_are_stored_by_their_types(void **state)
{
	assert_int_equal(
		parse("shop open --fast here --label x --colour green --port 80 --count 10 "
		      "--size 4K --wait 1.5 --tag a --tag b"),
		-1);
	assert_true(shop.fast);
	assert_string_equal(shop.label, "x");
	assert_string_equal(shop.colour, "green");
	assert_int_equal(shop.port, 80);
	assert_int_equal(shop.count, 10);
	assert_int_equal(shop.size, 4096);
	assert_true(shop.wait == 1.5);
	assert_int_equal(shop.num_tags, 2);
	assert_int_equal(call.num_args, 1);
	assert_string_equal(call.args[0], "here");
	assert_string_equal(call.verb->name, "open");
}

static void the_last_of_two_flags_counts(void **state)
{
	assert_int_equal(parse("shop open here --fast --slow"), -1);
	assert_false(shop.fast);
}

static void an_option_has_an_alias_a_letter_and_abbreviations(void **state)
{
	assert_int_equal(parse("shop open here --name a"), -1);
	assert_string_equal(shop.label, "a");
	assert_int_equal(parse("shop open here -l b"), -1);
	assert_string_equal(shop.label, "b");
	assert_int_equal(parse("shop open here --lab=c"), -1);
	assert_string_equal(shop.label, "c");
	/* close has no --count */
	assert_int_equal(parse("shop close --co red here there"), -1);
	assert_string_equal(shop.colour, "red");
	assert_refused("shop open --co red here", "has no option '--co'");
}

static void verbs_may_have_different_rows_of_one_name(void **state)
{
	assert_int_equal(parse("shop open here --size 2M"), -1);
	assert_int_equal(shop.size, 2 << 20);
	assert_int_equal(parse("shop close here --siz 3"), -1);
	assert_int_equal(shop.count, 3);
	assert_int_equal(shop.size, 0);
	assert_refused("shop close here --size 2M",
		       "--size must be a number from 1 to 3, not '2M'");
}

static void errors_name_the_option_and_the_rule(void **state)
{
	assert_refused("shop open x --colour pink",
		       "--colour must be red, green or blue, not 'pink'");
	assert_refused("shop open x --count 11", "--count must be a number from 1 to 10, not '11'");
	assert_refused("shop open x --port -1",
		       "--port must be a number from 0 to 65535, not '-1'");
	assert_refused("shop open x --wait 0.1", "--wait must be 0.5 to 60 seconds, not '0.1'");
	assert_refused("shop open x --size 4Q", "--size must be a size");
	assert_refused("shop open x --label", "--label of 'stag shop open' needs a value");
	assert_refused("shop open x --fast=1", "--fast of 'stag shop open' takes no value");
	assert_refused("shop open x --cuont 1",
		       "'stag shop open' has no option '--cuont'; did you mean '--count'?");
	assert_refused("shop close x --count 1", "'stag shop close' has no option '--count'");
	assert_refused("shop opne x",
		       "no command 'stag shop opne'; did you mean 'stag shop open'?");
	assert_refused("shop", "'stag shop' needs a verb");
}

static void arguments_are_counted_by_the_usage(void **state)
{
	assert_refused("shop open", "'stag shop open' needs PLACE");
	assert_refused("shop open a b c", "'stag shop open' takes no argument 'c'");
	assert_int_equal(parse("shop open a b"), -1);
	assert_int_equal(call.num_args, 2);
	assert_int_equal(parse("shop close"), -1); /* by its second usage */
	assert_int_equal(parse("shop close a b c d e"), -1);
	assert_int_equal(call.num_args, 5);
}

static void a_line_is_divided_by_quotes(void **state)
{
	static const struct {
		const char *line;
		const char *words[4];
	} cases[] = {
		{"", {0}},
		{" \t\n", {0}},
		{"a b\n", {"a", "b"}},
		{"  a\\ b  'c \"d\\' # rest", {"a b", "c \"d\\"}},
		{"\"a\\n\\t\\\"\\\\\"b'c' ''", {"a\n\t\"\\bc", ""}},
		{"a#b \\#c", {"a#b", "#c"}},
		{"a\\", {"a\\"}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char line[64], *words[4];
		int n = 0;

		strcpy(line, cases[i].line);
		while (cases[i].words[n])
			n++;
		assert_int_equal(cli_split(line, words, 4), n);
		for (int j = 0; j < n; j++)
			assert_string_equal(words[j], cases[i].words[j]);
		assert_null(words[n]);
	}
}

static void a_line_with_an_open_quote_or_too_many_words_is_refused(void **state)
{
	char open[] = "a 'b", twice[] = "a \"b\\\"", many[] = "a b c d", *words[4];

	complain_catch(why, sizeof(why));
	assert_int_equal(cli_split(open, words, 4), -1);
	assert_string_equal(why, "a quote is not closed");
	assert_int_equal(cli_split(twice, words, 4), -1);
	assert_int_equal(cli_split(many, words, 4), -1);
	assert_string_equal(why, "the line has more than 3 words");
	complain_catch(NULL, 0);
}

static bool is_valid(struct cli_option changed)
{
	const struct cli_option table[] = {changed, {0}};
	struct cli_noun other = noun;
	const struct verb plain[] = {{{"open", .summary = "Opens it."}}};

	other.verbs = &plain[0].cli;
	other.num_verbs = 1;
	other.options = table;
	return cli_is_valid(&other);
}

static void mistakes_in_a_table_are_found(void **state)
{
	const struct cli_option good = {"count", .value = "N", .verbs = "open",
					CLI_NUMBER_AT(struct shop, count, 1, 10),
					.help = "how many"};
	struct cli_option bad = good;

	assert_true(cli_is_valid(&noun));
	assert_true(is_valid(good));
	bad.verbs = "open opne";
	assert_false(is_valid(bad));
	bad = good;
	bad.value = NULL;
	assert_false(is_valid(bad));
	bad = good;
	bad.type = CLI_WORD;
	assert_false(is_valid(bad));
	bad = good;
	bad.repeats = true;
	assert_false(is_valid(bad));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_stored_by_their_types),
		cmocka_unit_test(the_last_of_two_flags_counts),
		cmocka_unit_test(an_option_has_an_alias_a_letter_and_abbreviations),
		cmocka_unit_test(verbs_may_have_different_rows_of_one_name),
		cmocka_unit_test(errors_name_the_option_and_the_rule),
		cmocka_unit_test(arguments_are_counted_by_the_usage),
		cmocka_unit_test(a_line_is_divided_by_quotes),
		cmocka_unit_test(a_line_with_an_open_quote_or_too_many_words_is_refused),
		cmocka_unit_test(mistakes_in_a_table_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
