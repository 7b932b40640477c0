// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_token.c - [token NAME] of the INI file: a token of the management API, and what its bearer may do.
 */
#include "conf.h"

#include <stdlib.h>
#include <string.h>

#include "access.h"

static const char *const roles[] = {"look", "operate", "administer", NULL};

static char *make_hash(const struct conf *conf, const char *value)
{
	unsigned char hash[TOKEN_HASH_LEN];

	return token_from_hex(value, hash) ? strdup(value) : NULL;
}

static const struct conf_setting settings[] = {
#define FIELD(field) .at = offsetof(struct conf_token, field)
	{"role", CONF_CHOICE, FIELD(role), .wanted = "look, operate or administer", .words = roles,
	 .preset = "look", .live = true, .help = "What the bearer may do.",
	 .more = "**look**: see status, metrics and events, and nothing that users have stored. "
		 "**operate**: also switch over, check, reload, and read and write values of "
		 "pools. **administer**: everything. **stag-api**(7) lists the requests."},
	{"hash", CONF_MADE, FIELD(hash), .wanted = "the SHA-256 of the token, 64 digits of 0-9a-f",
	 .make = make_hash, .usual = "none",
	 .sample = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", .live = true,
	 .value = "*digits*", .help = "The token's SHA-256, in hexadecimal.",
	 .more = "**stag token create** makes a token, shows it once, and writes its hash. By "
		 "hand: **printf %s \"$token\" | sha256sum**."},
	{"file", CONF_FILE, FIELD(file), .usual = "none", .sample = "/etc/stag/monitor.token",
	 .live = true, .help = "File whose first line is the token; instead of hash.",
	 .more = "Only its owner may read the file."},
#undef FIELD
};

static void read_token(struct conf *conf, struct conf_token *t)
{
	char text[TOKEN_MAX + 2];

	if (!conf_read_secret(conf, &t->at, "file", t->file, text, sizeof(text)))
		return;
	if (!token_is_valid(text))
		conf_fault(conf, conf_line_of(&t->at, "file"), "file: " CONF_TOKEN_WANTED,
			   TOKEN_MIN, t->file);
	else if (!token_hash(text, t->token_hash))
		conf_fault(conf, t->at.line, "out of memory");
	explicit_bzero(text, sizeof(text));
}

static void check_token_section(struct conf *conf, void *section)
{
	struct conf_token *t = section;

	if (!t->hash == !t->file)
		conf_fault(
			conf, t->at.line,
			"token %s requires either hash or file; 'stag token create %s' makes one",
			t->at.name, t->at.name);
	else if (t->hash)
		token_from_hex(t->hash, t->token_hash);
	else
		read_token(conf, t);
	if (strcmp(t->at.name, CONF_API_TOKEN) == 0)
		conf_fault(conf, t->at.line,
			   "the token named '" CONF_API_TOKEN
			   "' is the one of token-file in [api]; use another name");
}

const struct conf_kind conf_token_kind = {
	.word = "token",
	.size = sizeof(struct conf_token),
	.settings = settings,
	.num_settings = sizeof(settings) / sizeof(settings[0]),
	.live = true,
	.sample = "monitor",
	.check = check_token_section,
};
