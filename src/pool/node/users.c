// SPDX-License-Identifier: BSD-2-Clause
/*
 * users.c - the users that a node admits, as set by the program: at the start, and later.
 *
 * Only the node's thread and its door read the list in use; the program hands the thread a new list, and waits until
 * it has adopted it.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/export.h"
#include "pool/admit/fail.h"

static bool has_length_of_secret(const char *text)
{
	size_t length = text ? strlen(text) : 0;

	return length >= STAG_POOL_SECRET_MIN && length <= STAG_POOL_SECRET_MAX;
}

/* Returns NULL, or what is wrong with the entry. also: NULL or a second secret. */
static const char *add_entry(struct users *s, const char *name, const char *secret,
			     const char *also, uint32_t rights)
{
	struct user *e = &s->list[s->count];
	uint8_t mark[ADMIT_MARK_LEN];

	if (users_find(s, name))
		return "it is listed twice";
	if (!admit_mark_name(name, mark))
		return "no memory";
	if (users_find_mark(s, mark))
		return "another user's name has the same mark: choose another name";
	if (!has_length_of_secret(secret) || (also && !has_length_of_secret(also)))
		return "a secret has 16 to 128 characters";
	if (also && strcmp(secret, also) == 0)
		return "its two secrets are the same";
	*e = (struct user){.rights = rights};
	strncpy(e->name, name, sizeof(e->name) - 1);
	memcpy(e->mark, mark, sizeof(e->mark));
	strncpy(e->secret, secret, sizeof(e->secret) - 1);
	if (also)
		strncpy(e->also, also, sizeof(e->also) - 1);
	s->count++;
	return NULL;
}

static const char *add_prefix(struct user *e, const char *prefix)
{
	size_t length = prefix ? strlen(prefix) : 0;

	if (length == 0 || length > STAG_POOL_NAME_MAX)
		return "a prefix has 1 to 255 bytes";
	memcpy(e->prefixes[e->num_prefixes++], prefix, length);
	return NULL;
}

static const char *add_user(struct users *s, const struct stag_pool_user *user)
{
	const char *fault;

	if (!user->name || !name_is_valid(user->name))
		return "a name has letters, digits and . - _, 63 at most";
	if (user->num_prefixes > STAG_POOL_PREFIXES_MAX)
		return "more than 16 prefixes";
	fault = add_entry(s, user->name, user->secret, user->also,
			  user->rights & (STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE |
					  STAG_POOL_RIGHT_ADMIN));
	for (uint32_t i = 0; !fault && i < user->num_prefixes; i++)
		fault = add_prefix(&s->list[s->count - 1], user->prefixes[i]);
	return fault;
}

int users_make(struct users *s, const char *secret, const char *also,
	       const struct stag_pool_user *users, uint32_t n)
{
	const char *name = NULL, *fault;

	*s = (struct users){.list = calloc((size_t)n + 1, sizeof(*s->list))};
	if (!s->list)
		return pool_fail(ENOMEM, "no memory");
	fault = add_entry(s, "", secret, also,
			  USER_RIGHT_NODE); /* an empty name, which no user can have */
	if (fault)
		name = "the nodes";
	for (uint32_t i = 0; !fault && i < n; i++) {
		fault = add_user(s, &users[i]);
		name = users[i].name;
	}
	if (!fault)
		return 0;
	users_free(s);
	return pool_fail(EINVAL, "user '%s': %s", name ? name : "", fault);
}

/* Makes the new list the node's, and the old one the caller's. */
static void exchange(struct stag_pool_node *n, struct users *list)
{
	struct users before;

	lock_acquire(&n->door.lock);
	before = n->users;
	n->users = *list;
	n->door.lists++; /* who was admitted by the old one, and not accepted yet, must come again */
	lock_release(&n->door.lock);
	tls_adopt_users(n);
	serve_users(n);
	*list = before;
}

/* Copies what this change leaves as it is, in the node's thread, which counts clients in the list. Returns -ENOMEM. */
static int keep_rest(struct stag_pool_node *n, struct users_change *c)
{
	const struct user *nodes = users_find_node(&n->users);
	struct user *list, new;

	if (!c->secret) {
		c->list.list[0] = *nodes; /* users_make() begins with it */
		return 0;
	}
	list = calloc(n->users.count, sizeof(*list));
	if (!list)
		return -ENOMEM;
	new = c->list.list[0];
	for (unsigned int i = 0; i < n->users.count; i++) {
		list[i] = &n->users.list[i] == nodes ? new : n->users.list[i];
		list[i].clients = 0;
	}
	explicit_bzero(&new, sizeof(new));
	users_free(&c->list);
	c->list = (struct users){.list = list, .count = n->users.count};
	return 0;
}

void users_adopt(struct stag_pool_node *n)
{
	struct users_change *c;

	HOLD_FOR_SCOPE(&n->program.lock);
	c = n->program.new_users;
	if (!c)
		return;
	strcpy(c->why, "no memory");
	c->result = keep_rest(n, c);
	if (c->result == 0 && c->secret)
		c->result = secrets_check(n, &c->list, c->why, sizeof(c->why));
	if (c->result == 0)
		exchange(n, &c->list); /* its caller frees the old one */
	if (c->result == 0 && c->secret) {
		secrets_note(n);
		secret_start_over(n);
		secrets_tell(n);
	}
	n->program.new_users = NULL;
	pthread_cond_broadcast(&n->program.told);
}

/* Waits until the node's thread has adopted the list, or refused it. Frees the list. Returns an errno value. */
static int change_users(struct stag_pool_node *n, struct users_change *c)
{
	lock_acquire(&n->program.lock);
	while (n->program.new_users) /* another thread's list is pending */
		lock_wait(&n->program.lock, &n->program.told);
	n->program.new_users = c;
	node_wake(n);
	while (n->program.new_users == c)
		lock_wait(&n->program.lock, &n->program.told);
	lock_release(&n->program.lock);
	users_free(&c->list);
	return c->result == 0 ? 0 : -pool_fail(-c->result, "%s", c->why);
}

STAG_EXPORT int stag_pool_node_set_users(struct stag_pool_node *n,
					 const struct stag_pool_user *users, uint32_t num_users)
{
	static const char replaced[STAG_POOL_SECRET_MIN + 1] = "0123456789abcdef";
	struct users_change c = {.secret = false};
	int rc = users_make(&c.list, replaced, NULL, users, num_users);

	return rc == 0 ? change_users(n, &c) : -rc;
}

STAG_EXPORT int stag_pool_node_set_secret(struct stag_pool_node *n, const char *secret,
					  const char *also)
{
	struct users_change c = {.secret = true};
	int rc = users_make(&c.list, secret, also, NULL, 0);

	return rc == 0 ? change_users(n, &c) : -rc;
}
