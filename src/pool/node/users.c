// SPDX-License-Identifier: BSD-2-Clause
/*
 * users.c - who may come in to a node, as its program says: at the start, and later.
 *
 * The node's thread alone looks at what is in use; the program hands it a new list, and waits until it was taken.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/export.h"
#include "pool/admit/fail.h"

/* NULL, or what is wrong with it. */
static const char *add(struct secrets *s, const char *name, const char *text, uint32_t rights)
{
	struct secret *e = &s->list[s->count];

	if (secrets_find(s, name))
		return "it is there twice";
	if (!text || strlen(text) < SECRET_MIN || strlen(text) > SECRET_MAX)
		return "a secret has 16 to 128 characters";
	*e = (struct secret){.rights = rights};
	strncpy(e->name, name, sizeof(e->name) - 1);
	strncpy(e->text, text, sizeof(e->text) - 1);
	s->count++;
	return NULL;
}

static const char *add_user(struct secrets *s, const struct stag_pool_user *user)
{
	if (!user->name || !name_is_valid(user->name))
		return "a name has letters, digits and . - _, 63 at most";
	return add(s, user->name, user->secret,
		   user->rights & (RIGHT_READ | RIGHT_WRITE | RIGHT_ADMIN));
}

int users_make(struct secrets *s, const char *secret, const struct stag_pool_user *users,
	       uint32_t n)
{
	const char *name = NULL, *fault;

	*s = (struct secrets){.list = calloc((size_t)n + 1, sizeof(*s->list))};
	if (!s->list)
		return pool_fail(ENOMEM, "no memory");
	fault = add(s, "", secret, RIGHT_NODE); /* a name that no user has */
	if (fault)
		name = "the nodes";
	for (uint32_t i = 0; !fault && i < n; i++) {
		fault = add_user(s, &users[i]);
		name = users[i].name;
	}
	if (!fault)
		return 0;
	secrets_free(s);
	return pool_fail(EINVAL, "user '%s': %s", name ? name : "", fault);
}

void users_take(struct stag_pool_node *n)
{
	struct secrets before;

	LOCK_FOR_SCOPE(&n->lock);
	if (!n->users)
		return;
	before = n->secrets;
	n->secrets = *n->users;
	*n->users = before; /* whoever handed it over frees it */
	n->users = NULL;
	serve_users(n, &before);
	pthread_cond_broadcast(&n->told);
}

STAG_EXPORT int stag_pool_node_set_users(struct stag_pool_node *n,
					 const struct stag_pool_user *users, uint32_t num_users)
{
	char own[SECRET_MAX + 1];
	struct secrets list;
	int rc;

	pthread_mutex_lock(&n->lock);
	strcpy(own, secrets_of_nodes(&n->secrets)->text);
	pthread_mutex_unlock(&n->lock);
	rc = users_make(&list, own, users, num_users);
	explicit_bzero(own, sizeof(own));
	if (rc != 0)
		return -rc;
	pthread_mutex_lock(&n->lock);
	while (n->users) /* another thread's turn */
		pthread_cond_wait(&n->told, &n->lock);
	n->users = &list;
	node_wake(n);
	while (n->users == &list)
		pthread_cond_wait(&n->told, &n->lock);
	pthread_mutex_unlock(&n->lock);
	secrets_free(&list);
	return 0;
}
