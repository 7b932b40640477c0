// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_words.c - parses and prints sizes, orders, levels and rights of stores.
 */
#include "store_words.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "complain.h"

#define ACCOUNT_ROOM                                                                               \
	16384 /* bytes for the members of a group; a group with more is printed as a number */
#define SECRET_MIN 16u
#define SECRET_MAX 4096u

/* ---- sizes ----------------------------------------------------------------------- */

static const char suffixes[] = "KMGTP";

/* Returns how far to shift for "", "K", "KiB" or "B", or -1. */
static int shift_of(const char *suffix)
{
	const char *at = *suffix ? strchr(suffixes, *suffix) : NULL;
	const char *rest = at ? suffix + 1 : suffix;

	if (*rest && strcmp(rest, "B") != 0 && (!at || strcmp(rest, "iB") != 0))
		return -1;
	return at ? 10 * (int)(at - suffixes + 1) : 0;
}

static bool parse_share(const char *text, const struct store_room *room, uint64_t *size)
{
	char *end;
	double share = strtod(text, &end);

	if (!room || strcmp(end, "%") != 0 || end == text || !(share > 0 && share <= 100))
		return false;
	*size = (uint64_t)((double)(room->whole / room->block) * share / 100) * room->block;
	return true;
}

static bool parse_bytes(const char *text, uint64_t *size)
{
	char *end;
	uint64_t n;
	int shift;

	errno = 0;
	n = strtoull(text, &end, 10);
	shift = shift_of(end);
	if (*text < '0' || *text > '9' || errno != 0 || shift < 0 || n == 0 ||
	    n > UINT64_MAX >> shift)
		return false;
	*size = n << shift;
	return true;
}

bool store_parse_size(const char *option, const char *text, const struct store_room *room,
		      uint64_t *size)
{
	if (room && strcmp(text, "max") == 0) {
		*size = room->largest;
		return true;
	}
	if (room && room->now != 0 && *text == '+' && parse_bytes(text + 1, size)) {
		*size += room->now;
		return true;
	}
	if (parse_share(text, room, size) || parse_bytes(text, size))
		return true;
	complain("%s must be a size such as %s, not '%s'", option,
		 room ? "512M, 10G, 50% or max" : "512M or 10G", text);
	return false;
}

bool store_parse_offset(const char *text, uint64_t *offset)
{
	*offset = 0;
	return strcmp(text, "0") == 0 || store_parse_size("--offset", text, NULL, offset);
}

const char *store_size_word(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double n = (double)bytes;
	size_t unit = 0;

	while (n >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		n /= 1024;
		unit++;
	}
	snprintf(text, size, n == (double)(uint64_t)n ? "%.0f %s" : "%.1f %s", n, units[unit]);
	return text;
}

/* ---- order and level ---------------------------------------------------------------- */

static const struct {
	const char *word;
	uint32_t bits;
} orders[] = {{"writes", STAG_STORE_RELAX_WRITES},
	      {"reads", STAG_STORE_RELAX_READS},
	      {"later", STAG_STORE_RELAX_LATER},
	      {"atomics", STAG_STORE_RELAX_ATOMICS},
	      {"completions", STAG_STORE_RELAX_COMPLETIONS},
	      {"processing", STAG_STORE_ANY_PROCESSING},
	      {"any", STAG_STORE_ANY_PROCESSING | STAG_STORE_ANY_COMPLETION},
	      {"strict", 0}};

#define SINGLE_ORDERS 5

static bool add_order(const char *word, size_t len, uint32_t *relax)
{
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		if (strlen(orders[i].word) == len && strncmp(orders[i].word, word, len) == 0) {
			*relax |= orders[i].bits;
			return true;
		}
	return false;
}

bool store_parse_order(const char *text, uint32_t *relax)
{
	*relax = 0;
	for (const char *word = text;; word++) {
		size_t len = strcspn(word, ",");

		if (!add_order(word, len, relax)) {
			complain("--order must be strict, any, or some of writes, reads, later, "
				 "atomics, completions and processing with commas, not '%s'",
				 text);
			return false;
		}
		word += len;
		if (!*word)
			return true;
	}
}

void store_order_words(uint32_t relax, char *text, size_t size)
{
	size_t n = 0;

	if (relax == 0 || relax == (STAG_STORE_ANY_PROCESSING | STAG_STORE_ANY_COMPLETION)) {
		snprintf(text, size, "%s", relax == 0 ? "strict" : "any");
		return;
	}
	text[0] = '\0';
	for (size_t i = 0; i < SINGLE_ORDERS && n < size; i++)
		if (relax & orders[i].bits)
			n += (size_t)snprintf(text + n, size - n, "%s%s", n ? "," : "",
					      orders[i].word);
}

static const char *const levels[] = {
	[STAG_STORE_VISIBLE] = "visible",
	[STAG_STORE_ACCEPTED] = "accepted",
	[STAG_STORE_DURABLE] = "durable",
};

bool store_parse_level(const char *text, uint32_t *level)
{
	for (uint32_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (strcmp(levels[i], text) == 0) {
			*level = i;
			return true;
		}
	complain("--level must be visible, accepted or durable, not '%s'", text);
	return false;
}

const char *store_level_word(uint32_t level)
{
	return level < sizeof(levels) / sizeof(levels[0]) ? levels[level] : "?";
}

bool store_parse_cache(const char *text, uint32_t *ms)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || n > UINT32_MAX ||
	    (*end && strcmp(end, "ms") != 0 && strcmp(end, "s") != 0) ||
	    (strcmp(end, "s") == 0 && n > UINT32_MAX / 1000)) {
		complain("--cache must be milliseconds, or seconds as in 5s, not '%s'", text);
		return false;
	}
	*ms = (uint32_t)(strcmp(end, "s") == 0 ? n * 1000 : n);
	return true;
}

/* ---- rights: the users ------------------------------------------------------------------------ */

static bool parse_id(const char *text, uint32_t *id)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n > UINT32_MAX)
		return false;
	*id = (uint32_t)n;
	return true;
}

static bool set_user(const char *name, struct stag_store_right *r)
{
	struct passwd room, *pw = NULL;
	char text[ACCOUNT_ROOM];

	getpwnam_r(name, &room, text, sizeof(text), &pw);
	r->who = STAG_STORE_USER;
	if (pw)
		r->id = pw->pw_uid;
	if (pw || parse_id(name, &r->id))
		return true;
	complain("--allow: there is no user '%s' on this machine", name);
	return false;
}

static bool set_group(const char *name, struct stag_store_right *r)
{
	struct group room, *gr = NULL;
	char text[ACCOUNT_ROOM];

	getgrnam_r(name, &room, text, sizeof(text), &gr);
	r->who = STAG_STORE_GROUP;
	if (gr)
		r->id = gr->gr_gid;
	if (gr || parse_id(name, &r->id))
		return true;
	complain("--allow: there is no group '%s' on this machine", name);
	return false;
}

/* Clears the bits after the prefix. Returns true if some were set. */
static bool clear_host_bits(uint8_t *address, unsigned int prefix, unsigned int bits)
{
	bool cut = false;

	for (unsigned int i = prefix; i < bits; i++)
		if (address[i / 8] & 0x80 >> i % 8) {
			address[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
			cut = true;
		}
	return cut;
}

static bool set_net(const char *text, struct stag_store_right *r)
{
	char address[INET6_ADDRSTRLEN + 1], net[INET6_ADDRSTRLEN];
	size_t len = strcspn(text, "/");
	uint32_t bits, most;

	r->who = STAG_STORE_NET;
	snprintf(address, sizeof(address), "%.*s", (int)(len < sizeof(address) ? len : 0), text);
	r->family = strchr(address, ':') ? AF_INET6 : AF_INET;
	bits = most = r->family == AF_INET ? 32 : 128;
	if (inet_pton(r->family, address, r->address) != 1 ||
	    (text[len] == '/' && (!parse_id(text + len + 1, &bits) || bits > most))) {
		complain("--allow net: '%s' is not a network such as 10.0.0.0/8 or 2001:db8::/32",
			 text);
		return false;
	}
	r->prefix = (uint8_t)bits;
	if (!clear_host_bits(r->address, bits, most))
		return true;
	complain("--allow net: '%s' has bits after its prefix; did you mean %s/%u?", text,
		 inet_ntop(r->family, r->address, net, sizeof(net)), bits);
	return false;
}

static bool set_token(const char *file, struct stag_store_right *r)
{
	CLEANUP_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
	char secret[SECRET_MAX + 1];
	ssize_t n = fd < 0 ? -1 : read(fd, secret, sizeof(secret));

	r->who = STAG_STORE_TOKEN;
	if (n < 0) {
		complain("--allow token: %s: %s", file, strerror(errno));
		return false;
	}
	if (n > 0 && secret[n - 1] == '\n')
		n--;
	if (n < (ssize_t)SECRET_MIN || n > (ssize_t)SECRET_MAX) {
		complain("--allow token: %s has %zd bytes; a secret must have %u to %u. Make one "
			 "with "
			 "head -c 24 /dev/urandom | base64 >%s",
			 file, n, SECRET_MIN, SECRET_MAX, file);
		return false;
	}
	n = stag_store_token(secret, (size_t)n, r->token);
	explicit_bzero(secret, sizeof(secret));
	return n == 0;
}

/* ---- rights --------------------------------------------------------------------------------- */

static const char *const accesses[] = {"none", "read", "write"};

static bool parse_access(const char *text, uint8_t *access)
{
	for (uint8_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++)
		if (strcmp(accesses[i], text) == 0) {
			*access = i;
			return true;
		}
	return false;
}

static const struct {
	const char *word;
	uint8_t who;
	bool (*set)(const char *text,
		    struct stag_store_right *r); /* NULL: nothing follows the word */
} kinds[] = {{"user:", STAG_STORE_USER, set_user}, {"group:", STAG_STORE_GROUP, set_group},
	     {"net:", STAG_STORE_NET, set_net},	   {"token:", STAG_STORE_TOKEN, set_token},
	     {"local", STAG_STORE_LOCAL, NULL},	   {"remote", STAG_STORE_REMOTE, NULL}};

static bool parse_who(const char *who, struct stag_store_right *r, bool *known)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t len = strlen(kinds[i].word);

		if (kinds[i].set ? strncmp(who, kinds[i].word, len) != 0 || !who[len]
				 : strcmp(who, kinds[i].word) != 0)
			continue;
		*known = true;
		r->who = kinds[i].who;
		return !kinds[i].set || kinds[i].set(who + len, r);
	}
	return false;
}

/* The access follows the last colon: an address may have colons, too. */
bool store_parse_right(const char *text, struct stag_store_partition *p)
{
	CLEANUP_FREE char *who = strdup(text);
	char *colon = who ? strrchr(who, ':') : NULL;
	struct stag_store_right r = {0};
	bool known = false;

	if (strcmp(text, "owner") == 0)
		return true;
	if (colon && parse_access(colon + 1, &r.access)) {
		*colon = '\0';
		if (!parse_who(who, &r, &known) && known)
			return false;
	}
	if (!known) {
		complain("--allow must be WHO:none, WHO:read or WHO:write, and WHO is user:NAME, "
			 "group:NAME, local, net:ADDRESS/BITS, remote or token:FILE; not '%s'",
			 text);
		return false;
	}
	if (p->num_rights == STAG_STORE_MAX_RIGHTS) {
		complain("--allow: a partition has at most %d rights", STAG_STORE_MAX_RIGHTS);
		return false;
	}
	p->rights[p->num_rights++] = r;
	return true;
}

const char *store_access_word(uint8_t access)
{
	return access < sizeof(accesses) / sizeof(accesses[0]) ? accesses[access] : "?";
}

void store_user_word(uint32_t uid, char *text, size_t size)
{
	struct passwd room, *pw = NULL;
	char account[ACCOUNT_ROOM];

	getpwuid_r(uid, &room, account, sizeof(account), &pw);
	if (pw)
		snprintf(text, size, "%s", pw->pw_name);
	else
		snprintf(text, size, "%" PRIu32, uid);
}

static void group_word(uint32_t gid, char *text, size_t size)
{
	struct group room, *gr = NULL;
	char account[ACCOUNT_ROOM];

	getgrgid_r(gid, &room, account, sizeof(account), &gr);
	if (gr)
		snprintf(text, size, "%s", gr->gr_name);
	else
		snprintf(text, size, "%" PRIu32, gid);
}

void store_right_words(const struct stag_store_right *r, char *text, size_t size)
{
	const char *access = store_access_word(r->access);
	char word[64] = "?";

	switch ((enum stag_store_who)r->who) {
	case STAG_STORE_LOCAL:
		snprintf(text, size, "local:%s", access);
		return;
	case STAG_STORE_USER:
		store_user_word(r->id, word, sizeof(word));
		snprintf(text, size, "user:%s:%s", word, access);
		return;
	case STAG_STORE_GROUP:
		group_word(r->id, word, sizeof(word));
		snprintf(text, size, "group:%s:%s", word, access);
		return;
	case STAG_STORE_REMOTE:
		snprintf(text, size, "remote:%s", access);
		return;
	case STAG_STORE_NET:
		inet_ntop(r->family, r->address, word, sizeof(word));
		snprintf(text, size, "net:%s/%u:%s", word, r->prefix, access);
		return;
	case STAG_STORE_TOKEN:
		snprintf(text, size, "token:%02x%02x%02x%02x...:%s", r->token[0], r->token[1],
			 r->token[2], r->token[3], access);
		return;
	}
	snprintf(text, size, "?");
}

void store_uuid_word(const uint8_t uuid[16], char text[37])
{
	char *p = text;

	for (int i = 0; i < 16; i++)
		p += sprintf(p, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			     uuid[i]);
}
