// SPDX-License-Identifier: BSD-2-Clause
/*
 * secrets.c - the secrets of the nodes while they are rotated: which ones the others accept, and which one to try.
 *
 * A node accepts one secret, or two while they are rotated. As a standby it tries them in turn, so two nodes meet if they
 * have one secret in common. Nodes that are linked tell each other which secrets they accept, by marks that do not tell the
 * secrets. So a node refuses to give up a secret that is the only one by which another node could come back.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/export.h"
#include "pool/admit/mac.h"

/* ---- marks ------------------------------------------------------------------------------- */

static uint64_t make_mark(const uint8_t uuid[ROLL_UUID_LEN], const char *secret)
{
	const struct mac_part parts[] = {{"stag pool mark 1", 16}, {uuid, ROLL_UUID_LEN}};
	uint8_t mac[ADMIT_MAC_LEN];
	uint64_t mark = 0;

	if (!secret || !admit_mac(secret, strlen(secret), parts, 2, mac))
		return 0;
	for (unsigned int i = 0; i < sizeof(mark); i++)
		mark = mark << 8 | mac[i];
	return mark ? mark : 1;
}

STAG_EXPORT uint32_t stag_pool_secret_mark(const uint8_t uuid[16], const char *secret)
{
	return (uint32_t)(make_mark(uuid, secret) >> 32) & (uint32_t)STAG_POOL_SECRET_MARK;
}

uint64_t secret_mark(const struct stag_pool_node *n, const char *secret)
{
	return make_mark(n->role.roll.uuid, secret);
}

bool secret_has_mark(const struct stag_pool_node *n, const struct user *user, uint64_t mark)
{
	for (unsigned int i = 0; i < USER_SECRETS; i++)
		if (mark && secret_mark(n, user_secret(user, i)) == mark)
			return true;
	return false;
}

static bool is_told(const struct link_secrets *s)
{
	return s->marks[0] != 0;
}

static bool has_mark(const struct link_secrets *s, uint64_t mark)
{
	for (unsigned int i = 0; mark && i < USER_SECRETS; i++)
		if (s->marks[i] == mark)
			return true;
	return false;
}

/* ---- telling the others -------------------------------------------------------------------- */

static struct link_secrets marks_of(const struct stag_pool_node *n, const struct users *users)
{
	const struct user *nodes = users_find_node(users);
	struct link_secrets s = {.what = LINK_SECRETS};

	for (unsigned int i = 0; i < USER_SECRETS; i++)
		s.marks[i] = secret_mark(n, user_secret(nodes, i));
	return s;
}

void secrets_note(struct stag_pool_node *n)
{
	n->secrets = marks_of(n, &n->users);
}

union link_message secrets_to_tell(const struct stag_pool_node *n)
{
	return (union link_message){.secrets = n->secrets};
}

void secrets_tell(struct stag_pool_node *n)
{
	union link_message said = secrets_to_tell(n);

	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (n->standbys.links[s] &&
		    n->standbys.links[s]->hello.features & LINK_KNOWS_SECRETS)
			link_send(n->standbys.links[s], &said);
	if (n->primary.link && follow_knows_secrets(n->primary.link))
		follow_send(n->primary.link, &said);
}

uint32_t secret_status(const struct stag_pool_node *n, unsigned int seat)
{
	const struct link_secrets *ours = &n->secrets;
	const struct standby *l = n->standbys.links[seat];
	const struct link_secrets *s = (int)seat == n->role.seat ? ours : l ? &l->secrets : NULL;

	if (!s || !is_told(s))
		return 0;
	return STAG_POOL_SECRET_KNOWN |
	       (has_mark(s, ours->marks[0]) ? (uint32_t)STAG_POOL_SECRET_FIRST : 0u) |
	       (has_mark(s, ours->marks[1]) ? (uint32_t)STAG_POOL_SECRET_SECOND : 0u) |
	       (s->marks[1] ? (uint32_t)STAG_POOL_SECRET_TWO : 0u) |
	       ((uint32_t)(s->marks[0] >> 32) & (uint32_t)STAG_POOL_SECRET_MARK);
}

/* ---- may a secret go? -------------------------------------------------------------------------- */

static bool share_one(const struct link_secrets *a, const struct link_secrets *b)
{
	return has_mark(a, b->marks[0]) || has_mark(a, b->marks[1]);
}

static int refuse(char *why, size_t size, const char *node, const char *reason)
{
	snprintf(why, size, "the secret of the nodes is not changed: node %s %s", node, reason);
	return -EBUSY;
}

/* Checks another node, of which this is known; NULL: it is not linked. */
static int check_node(const struct link_secrets *new, const struct link_secrets *theirs,
		      const char *node, char *why, size_t size)
{
	if (!theirs)
		return refuse(why, size, node,
			      "is not connected, and may know only the secret that would go: start "
			      "it, or remove it with 'stag pool forget'");
	if (!is_told(theirs))
		return refuse(why, size, node,
			      "does not say which secrets it accepts: it runs an earlier version");
	if (!share_one(new, theirs))
		return refuse(
			why, size, node,
			"accepts none of the new secrets, and could not come back: 'stag pool "
			"secret rotate' changes them in the right order");
	return 0;
}

static int check_as_primary(const struct stag_pool_node *n, const struct link_secrets *new,
			    char *why, size_t size)
{
	int rc = 0;

	for (unsigned int s = 0; s < ROLL_MAX_NODES && rc == 0; s++) {
		const struct standby *l = n->standbys.links[s];

		if ((int)s != n->role.seat && n->role.roll.members[s].name[0])
			rc = check_node(new, l ? &l->secrets : NULL, n->role.roll.members[s].name,
					why, size);
	}
	return rc;
}

int secrets_check(const struct stag_pool_node *n, const struct users *to, char *why, size_t size)
{
	const struct link_secrets old = n->secrets, new = marks_of(n, to);
	const struct role *r = &n->role;

	if (has_mark(&new, old.marks[0]) && (!old.marks[1] || has_mark(&new, old.marks[1])))
		return 0; /* none goes */
	if (n->serve.running)
		return check_as_primary(n, &new, why, size);
	if (r->state != ROLE_STANDBY)
		return 0; /* it is outside: there is nothing to lose, and the secret may be the reason */
	return check_node(&new, n->primary.link ? &n->primary.link->secrets : NULL,
			  r->roll.members[r->roll.primary].name, why, size);
}

/* ---- proving ourselves ---------------------------------------------------------------------------- */

static unsigned int num_secrets(const struct stag_pool_node *n)
{
	return user_secret(users_find_node(&n->users), 1) ? 2 : 1;
}

const char *secret_to_prove(const struct stag_pool_node *n)
{
	return user_secret(users_find_node(&n->users),
			   (n->primary.first + n->primary.proof) % num_secrets(n));
}

/* With TLS by keys, each secret is tried with the hint, then without it. */
static void use_proof(struct stag_pool_node *n, unsigned int proof)
{
	unsigned int secrets = num_secrets(n), ways = n->tls.by_key ? 2 * secrets : secrets;

	n->primary.proof = proof % ways;
	if (n->tls.by_key)
		tls_prove(n, secret_to_prove(n), n->primary.proof < secrets);
}

bool secret_was_refused(struct stag_pool_node *n)
{
	use_proof(n, n->primary.proof + 1);
	if (n->primary.proof != 0)
		return true;
	if (n->primary.refused)
		return false;
	n->primary.refused = true;
	node_log(
		n, LOG_LEVEL_WARN,
		"the primary at %s refuses this node: its secret of the nodes is another one; copy "
		"the line with the right 'node' from the primary's file of secrets, and reload",
		n->role.roll.members[n->role.roll.primary].address);
	return false;
}

void secret_was_accepted(struct stag_pool_node *n)
{
	n->primary.refused = false;
	n->primary.accepts = (struct link_secrets){.marks = {secret_mark(n, secret_to_prove(n))}};
}

/*
 * While the secret is rotated, the primary may not accept our first one yet: a connection that tried it would be refused,
 * logged as such there, and counted as a failure.
 */
static unsigned int first_accepted(const struct stag_pool_node *n)
{
	const struct user *nodes = users_find_node(&n->users);

	for (unsigned int i = 0; i < USER_SECRETS; i++)
		if (has_mark(&n->primary.accepts, secret_mark(n, user_secret(nodes, i))))
			return i;
	return 0;
}

void secret_start_over(struct stag_pool_node *n)
{
	n->primary.refused = false;
	n->primary.first = first_accepted(n);
	use_proof(n, 0);
}

void secret_heard(struct stag_pool_node *n, const struct link_secrets *accepts)
{
	n->primary.accepts = *accepts;
	secret_start_over(n);
}
