// SPDX-License-Identifier: BSD-2-Clause
/*
 * access.c - stag token and stag audit: who may use the management API of a running stagd, and what was done.
 *
 * Both query the daemon by its control socket, which only the daemon's user and root can open.
 */
#include "stag.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/name.h"
#include "complain.h"
#include "control.h"

struct access_options {
	const char *name, *role, *daemon;
	uint64_t limit;
	bool json;
};

/* ---- the daemon ------------------------------------------------------------------------------- */

static const char *text_of(const json_t *o, const char *field)
{
	const char *text = json_string_value(json_object_get(o, field));

	return text ? text : "";
}

/* Returns the pid of the daemon of that name, or of the only one with an API; 0 after it has complained. */
static int find_daemon(const char *name)
{
	json_t *all = control_query_all(STAGD_KIND, "status"), *o;
	unsigned int found = 0;
	int pid = 0;
	size_t i;

	json_array_foreach (all, i, o)
		if (json_is_object(json_object_get(o, "api")) &&
		    (!name || strcmp(text_of(o, "name"), name) == 0)) {
			pid = (int)json_integer_value(json_object_get(o, "pid"));
			found++;
		}
	json_decref(all);
	if (found == 1)
		return pid;
	if (found == 0 && name)
		complain_for(ECONNREFUSED, name, "this user runs no stagd named '%s' with an API",
			     name);
	else if (found == 0)
		complain_for(ECONNREFUSED, NULL,
			     "this user runs no stagd with an API; only its own user and root can "
			     "query a daemon, and 'stag top' lists those that run");
	else
		complain("%u daemons have an API; name one with --daemon", found);
	return 0;
}

/* Returns the answer, or NULL after it has complained. */
static json_t *query_daemon(const struct access_options *o, const char *word)
{
	bool is_order = strncmp(word, "token ", 6) == 0;
	int pid = find_daemon(o->daemon);
	json_t *answer = NULL;

	if (pid)
		answer = is_order ? control_order(STAGD_KIND, pid, word)
				  : control_query(STAGD_KIND, pid, word);
	if (pid && !answer)
		complain_for(is_order ? ESTALE : ETIMEDOUT, NULL,
			     "stagd (process %d) does not answer%s", pid,
			     is_order ? "; 'stag token list' shows later whether it did so" : "");
	if (*text_of(answer, "error")) {
		complain("%s", text_of(answer, "error"));
		json_decref(answer);
		return NULL;
	}
	return answer;
}

static int print_json(json_t *o)
{
	json_dumpf(o, stdout, JSON_INDENT(2));
	puts("");
	json_decref(o);
	return EXIT_OK;
}

/* ---- stag token --------------------------------------------------------------------------------- */

static int create_token(const struct access_options *o)
{
	char word[CONTROL_WORD_MAX];
	json_t *answer;

	if (!name_is_valid(o->name)) {
		complain("invalid name '%s': use letters, digits and . - _, 63 at most", o->name);
		return EXIT_FAILED;
	}
	snprintf(word, sizeof(word), "token create %s %s", o->name, o->role);
	answer = query_daemon(o, word);
	if (!answer)
		return EXIT_FAILED;
	if (o->json)
		return print_json(answer);
	puts(text_of(answer, "token"));
	json_decref(answer);
	return EXIT_OK;
}

static int list_tokens(const struct access_options *o)
{
	json_t *answer = query_daemon(o, "tokens"), *t;
	size_t i;

	if (!answer)
		return EXIT_FAILED;
	if (o->json)
		return print_json(answer);
	json_array_foreach (json_object_get(answer, "tokens"), i, t)
		printf("%-20s %-11s %s\n", text_of(t, "name"), text_of(t, "role"),
		       text_of(t, "file"));
	json_decref(answer);
	return EXIT_OK;
}

static int revoke_token(const struct access_options *o)
{
	char word[CONTROL_WORD_MAX];
	json_t *answer;

	snprintf(word, sizeof(word), "token revoke %.63s", o->name);
	answer = query_daemon(o, word);
	if (!answer)
		return EXIT_FAILED;
	if (o->json)
		return print_json(answer);
	json_decref(answer);
	return EXIT_OK;
}

static const struct cli_option token_options[] = {
	{"role", .value = "ROLE", .verbs = "create",
	 CLI_WORD_AT(struct access_options, role, "look operate administer"),
	 .help = "look: see status and events; operate: also switch over, check, reload, and use "
		 "values; administer: everything (look)"},
	{"daemon", .value = "NAME", CLI_TEXT_AT(struct access_options, daemon),
	 .help = "of the stagd, if several of this user have an API"},
	{"json", CLI_FLAG_AT(struct access_options, json), .help = "for programs"},
	{0},
};

static const struct token_verb {
	struct cli_verb cli;
	int (*run)(const struct access_options *o);
} token_verbs[] = {
	{{"create", .args = "NAME", .summary = "Makes a token, and prints it, this once.",
	  .example = "stag token create monitor --role look"},
	 create_token},
	{{"list", .args = "", .summary = "Shows the names, roles and files of the tokens.",
	  .example = "stag token list"},
	 list_tokens},
	{{"revoke", .args = "NAME",
	  .summary = "Makes a token invalid at once, also for open event streams.",
	  .example = "stag token revoke monitor"},
	 revoke_token},
};

static const struct cli_argument token_arguments[] = {
	{"NAME", "of the token", .type = CLI_TEXT},
	{0},
};

static const struct cli_noun token_noun = {
	.call = "stag token",
	.name = "token",
	.summary = "manage the tokens of stagd's management API",
	.about = "Manages the tokens of the management API of a running stagd (stag-api(7)). The "
		 "daemon's user and root may do this. A token is kept as its hash only.",
	.examples = "stag token create monitor --role look\nstag token revoke monitor",
	CLI_VERBS(token_verbs),
	.options = token_options,
	.arguments = token_arguments,
};

static int run_token(const struct command *self, int argc, char **argv)
{
	struct access_options o = {.role = "look"};
	struct cli_call call;
	int rc;

	if (!cli_parse(&token_noun, argc, argv, &o, &call, &rc))
		return rc;
	o.name = call.num_args > 0 ? call.args[0] : NULL;
	return ((const struct token_verb *)call.verb)->run(&o);
}

const struct command token_command = {.noun = &token_noun, .run = run_token};

/* ---- stag audit ----------------------------------------------------------------------------------- */

static void print_record(const json_t *r)
{
	json_int_t suppressed = json_integer_value(json_object_get(r, "suppressed"));

	printf("%s %-7s %-5s %s: %s", text_of(r, "time"), text_of(r, "outcome"), text_of(r, "room"),
	       text_of(r, "object"), text_of(r, "action"));
	if (*text_of(r, "user"))
		printf(" by %s", text_of(r, "user"));
	if (*text_of(r, "from"))
		printf(" from %s", text_of(r, "from"));
	if (*text_of(r, "reason"))
		printf(": %s", text_of(r, "reason"));
	if (suppressed)
		printf(" (and %lld more before it)", (long long)suppressed);
	puts("");
}

static void print_left_out(const json_t *log)
{
	json_int_t n = json_integer_value(json_object_get(log, "left_out"));

	if (n)
		printf("%lld refusals were left out because too many came at once\n", (long long)n);
}

static const struct cli_option audit_options[] = {
	{"limit", .value = "N", CLI_NUMBER_AT(struct access_options, limit, 1, 1024),
	 .help = "N at most: of more, the newest of each kind (1024)"},
	{"daemon", .value = "NAME", CLI_TEXT_AT(struct access_options, daemon),
	 .help = "of the stagd, if several of this user have an API"},
	{"json", CLI_FLAG_AT(struct access_options, json), .help = "for programs"},
	{0},
};

static const struct cli_verb audit_verb = {.name = ""};

static const struct cli_noun audit_noun = {
	.call = "stag audit",
	.name = "audit",
	.summary = "show who did what on a stagd, from where, also what was refused",
	.about = "Shows the last records of the audit log of a running stagd: requests of the "
		 "management API that change something, logins, and everything that was refused. "
		 "audit-file in stag.ini(5) writes all of them to a file.",
	.examples = "stag audit --limit 20",
	.verbs = &audit_verb,
	.num_verbs = 1,
	.options = audit_options,
};

static int run_audit(const struct command *self, int argc, char **argv)
{
	struct access_options o = {.limit = 1024};
	struct cli_call call;
	char word[CONTROL_WORD_MAX];
	json_t *answer, *r;
	size_t i;
	int rc;

	if (!cli_parse(&audit_noun, argc, argv, &o, &call, &rc))
		return rc;
	snprintf(word, sizeof(word), "audit %llu", (unsigned long long)o.limit);
	answer = query_daemon(&o, word);
	if (!answer)
		return EXIT_FAILED;
	if (o.json)
		return print_json(answer);
	json_array_foreach (json_object_get(answer, "records"), i, r)
		print_record(r);
	print_left_out(json_object_get(answer, "log"));
	json_decref(answer);
	return EXIT_OK;
}

const struct command audit_command = {.noun = &audit_noun, .run = run_audit};
