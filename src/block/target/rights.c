// SPDX-License-Identifier: BSD-2-Clause
/*
 * rights.c - who may use a target: names of initiators, CHAP users, and the units that they see.
 *
 * An initiator needs a right whose pattern matches its name, and has to authenticate as the user of that right, if it has one. If
 * there are several, the first one with the user that it has authenticated as applies, else the first one without a user.
 */
#include "block/target/target.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RIGHTS 1024

/* ---- reading them ------------------------------------------------------------------- */

static bool parse_number(const char **at, unsigned long *out)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	*out = strtoul(*at, &end, 10);
	*at = end;
	return *out <= SCSI_VIEW_LUN_MAX;
}

/* Parses numbers and ranges, "0,2,8-15". */
static bool parse_luns(const char *text, struct scsi_view *v)
{
	unsigned long from, to;

	v->some = true;
	for (;; text++) {
		if (!parse_number(&text, &from))
			return false;
		to = from;
		if (*text == '-' && (text++, !parse_number(&text, &to)))
			return false;
		if (to < from)
			return false;
		for (; from <= to; from++)
			v->luns[from / 64] |= 1ull << from % 64;
		if (!*text)
			return true;
		if (*text != ',')
			return false;
	}
}

static bool copy(const char *text, char **to)
{
	*to = text ? strdup(text) : NULL;
	return !text || *to;
}

static int read_right(const struct stag_block_right *from, const struct target_login_rules *rules,
		      struct target_right *r)
{
	if (from->comp_mask || (from->flags & ~(uint32_t)STAG_BLOCK_READ_ONLY))
		return block_fail(EINVAL, "a right has invalid attributes");
	if (!from->user != !from->secret)
		return block_fail(EINVAL, "CHAP: user and secret must be set together");
	if (from->secret && strlen(from->secret) < CHAP_MIN_SECRET)
		return block_fail(EINVAL,
				  "CHAP: the secret of '%s' must have at least %d characters",
				  from->user, CHAP_MIN_SECRET);
	if (from->secret && rules->own_secret && strcmp(from->secret, rules->own_secret) == 0)
		return block_fail(EINVAL, "CHAP: the secret of '%s' and own_secret must differ",
				  from->user);
	if (from->luns && !parse_luns(from->luns, &r->view))
		return block_fail(EINVAL, "'%s' is not a list of LUNs such as 0,2,8-15",
				  from->luns);
	r->view.read_only = from->flags & STAG_BLOCK_READ_ONLY;
	if (!copy(from->initiator, &r->initiator) ||
	    !copy(from->user ? from->user : rules->user, &r->user) ||
	    !copy(from->secret ? from->secret : rules->secret, &r->secret))
		return block_fail(ENOMEM,
				  "out of memory"); /* without its pattern it would be anybody's */
	return 0;
}

static bool disagree(const char *user, const char *secret, const struct target_right *r)
{
	return user && r->user && strcmp(user, r->user) == 0 && strcmp(secret, r->secret) != 0;
}

/* With two secrets for a user, the right that applies would not depend on the one that was proved. */
static int check_secret_of(const struct target_login_rules *rules, uint32_t i)
{
	const struct target_right *r = &rules->rights[i];
	bool differs = disagree(rules->user, rules->secret, r);

	while (i-- > 0)
		differs |= disagree(rules->rights[i].user, rules->rights[i].secret, r);
	return differs ? block_fail(EINVAL, "CHAP: user '%s' has two different secrets", r->user)
		       : 0;
}

int target_rights_create(const struct stag_block_target_attr *a, struct target_login_rules *rules)
{
	int rc = 0;

	if (!(a->comp_mask & STAG_BLOCK_TARGET_RIGHTS) || a->num_rights == 0)
		return 0;
	if (a->num_rights > MAX_RIGHTS)
		return block_fail(EINVAL, "%u rights; the limit is %d", a->num_rights, MAX_RIGHTS);
	rules->rights = calloc(a->num_rights, sizeof(*rules->rights));
	if (!rules->rights)
		return block_fail(ENOMEM, "out of memory");
	rules->num_rights = a->num_rights;
	for (uint32_t i = 0; i < a->num_rights && rc == 0; i++) {
		rc = read_right(&a->rights[i], rules, &rules->rights[i]);
		if (rc == 0)
			rc = check_secret_of(rules, i);
	}
	return rc;
}

void target_rights_destroy(struct target_login_rules *rules)
{
	for (uint32_t i = 0; i < rules->num_rights; i++) {
		struct target_right *r = &rules->rights[i];

		if (r->secret)
			explicit_bzero(r->secret, strlen(r->secret));
		free(r->initiator);
		free(r->user);
		free(r->secret);
	}
	free(rules->rights);
	rules->rights = NULL;
	rules->num_rights = 0;
}

/* ---- using them ------------------------------------------------------------------------ */

bool target_right_matches(const struct target_right *r, const char *initiator)
{
	return !r->initiator || fnmatch(r->initiator, initiator, FNM_CASEFOLD) == 0;
}

/* Returns the next right of an initiator after `before` (NULL: the first), or NULL. */
const struct target_right *target_rights_next(const struct target_login_rules *rules,
					      const char *initiator,
					      const struct target_right *before)
{
	uint32_t i = before ? (uint32_t)(before - rules->rights) + 1 : 0;

	for (; i < rules->num_rights; i++)
		if (target_right_matches(&rules->rights[i], initiator))
			return &rules->rights[i];
	return NULL;
}

bool target_rights_have(const struct target_login_rules *rules, const char *initiator,
			bool with_user)
{
	const struct target_right *r = NULL;

	if (rules->num_rights == 0)
		return with_user == (rules->user != NULL);
	while ((r = target_rights_next(rules, initiator, r)))
		if (with_user == (r->user != NULL))
			return true;
	return false;
}

bool target_rights_allow(const struct target_login_rules *rules, const char *initiator,
			 const char *user)
{
	return rules->num_rights == 0 || target_rights_find(rules, initiator, user);
}

const struct target_right *target_rights_find(const struct target_login_rules *rules,
					      const char *initiator, const char *user)
{
	const struct target_right *r = NULL, *open = NULL;

	while ((r = target_rights_next(rules, initiator, r)))
		if (user && r->user && strcmp(r->user, user) == 0)
			return r;
		else if (!r->user && !open)
			open = r;
	return open;
}
