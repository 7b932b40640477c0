// SPDX-License-Identifier: BSD-2-Clause
/*
 * users.c - the users that a node admits, as set by the program: at the start, and later.
 *
 * Only the node's thread reads the list in use; the program hands it a new list, and waits until the thread has
 * adopted it.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/export.h"
#include "pool/admit/fail.h"

/* Returns NULL, or what is wrong with the entry. */
static const char *add_entry(struct users *s, const char *name, const char *secret, uint32_t rights)
{
	struct user *e = &s->list[s->count];

	if (users_find(s, name))
		return "it is listed twice";
	if (!secret || strlen(secret) < STAG_POOL_SECRET_MIN ||
	    strlen(secret) > STAG_POOL_SECRET_MAX)
		return "a secret has 16 to 128 characters";
	*e = (struct user){.rights = rights};
	strncpy(e->name, name, sizeof(e->name) - 1);
	strncpy(e->secret, secret, sizeof(e->secret) - 1);
	s->count++;
	return NULL;
}

static const char *add_user(struct users *s, const struct stag_pool_user *user)
{
	if (!user->name || !name_is_valid(user->name))
		return "a name has letters, digits and . - _, 63 at most";
	return add_entry(s, user->name, user->secret,
			 user->rights & (STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE |
					 STAG_POOL_RIGHT_ADMIN));
}

int users_make(struct users *s, const char *secret, const struct stag_pool_user *users, uint32_t n)
{
	const char *name = NULL, *fault;

	*s = (struct users){.list = calloc((size_t)n + 1, sizeof(*s->list))};
	if (!s->list)
		return pool_fail(ENOMEM, "no memory");
	fault = add_entry(s, "", secret,
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

void users_adopt(struct stag_pool_node *n)
{
	struct users before;

	HOLD_FOR_SCOPE(&n->program.lock);
	if (!n->program.new_users)
		return;
	before = n->users;
	n->users = *n->program.new_users;
	*n->program.new_users = before; /* its caller frees it */
	n->program.new_users = NULL;
	serve_users(n, &before);
	pthread_cond_broadcast(&n->program.told);
}

STAG_EXPORT int stag_pool_node_set_users(struct stag_pool_node *n,
					 const struct stag_pool_user *users, uint32_t num_users)
{
	char own[STAG_POOL_SECRET_MAX + 1];
	struct users list;
	int rc;

	lock_acquire(&n->program.lock);
	strcpy(own, users_find_node(&n->users)->secret);
	lock_release(&n->program.lock);
	rc = users_make(&list, own, users, num_users);
	explicit_bzero(own, sizeof(own));
	if (rc != 0)
		return -rc;
	lock_acquire(&n->program.lock);
	while (n->program.new_users) /* another thread's list is pending */
		lock_wait(&n->program.lock, &n->program.told);
	n->program.new_users = &list;
	node_wake(n);
	while (n->program.new_users == &list)
		lock_wait(&n->program.lock, &n->program.told);
	lock_release(&n->program.lock);
	users_free(&list);
	return 0;
}
