// SPDX-License-Identifier: BSD-2-Clause
/*
 * tls.c - a node's encrypted connections: the keys of those who may come, or its certificate, and its own to others.
 *
 * The adapter's thread looks keys up while the node's thread may adopt other users: a lock protects the table.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/admit/fail.h"
#include "pool/admit/tls.h"

/* Copies the secret of an identity. Returns false if there is none. */
static bool secret_of(struct node_tls *t, const char *identity,
		      char secret[STAG_POOL_SECRET_MAX + 1])
{
	const char *found = NULL;
	const struct user *u = NULL;
	char name[NAME_LEN] = "";

	HOLD_FOR_SCOPE(&t->lock);
	if (strncmp(identity, "node:", 5) == 0)
		u = users_find_node(&t->users);
	else if (sscanf(identity, "client:%63[^:]", name) == 1)
		u = users_find(&t->users, name);
	if (u)
		found = pool_tls_secret(u, identity);
	if (!found)
		return false;
	strcpy(secret, found);
	return true;
}

static int find_key(void *arg, const char *identity, uint8_t *key)
{
	char secret[STAG_POOL_SECRET_MAX + 1];
	bool good = secret_of(arg, identity, secret) && pool_tls_key(identity, secret, key);

	explicit_bzero(secret, sizeof(secret));
	return good ? POOL_TLS_KEY_LEN : -ENOKEY;
}

static int copy_users(const struct users *from, struct users *to)
{
	*to = (struct users){.list = calloc(from->count ? from->count : 1, sizeof(*to->list)),
			     .count = from->count};
	if (!to->list)
		return -ENOMEM;
	memcpy(to->list, from->list, from->count * sizeof(*to->list));
	return 0;
}

void tls_prove(struct stag_pool_node *n, const char *secret, bool hinted)
{
	if (pool_tls_rekey(&n->tls.visitor, ADMIT_NODE, n->conf.name, secret, hinted) != 0)
		node_log(n, LOG_LEVEL_ERR, "cannot use the secret of the nodes for TLS: %s",
			 stag_pool_error());
}

void tls_adopt_users(struct stag_pool_node *n)
{
	struct users now, before;

	if (!n->tls.by_key || copy_users(&n->users, &now) != 0)
		return;
	lock_acquire(&n->tls.lock);
	before = n->tls.users;
	n->tls.users = now;
	lock_release(&n->tls.lock);
	users_free(&before);
}

/* Returns -errno, with the text of pool_fail(). */
int tls_open_node(struct stag_pool_node *n, const struct pool_tls_files *files)
{
	struct stagdv_tls_attr by_key = {.find_psk = find_key, .arg = &n->tls};
	struct stagdv_tls_attr by_cert = {.cert = files->cert, .key = files->key, .ca = files->ca};
	const struct stagdv_tls_attr *attr = files->cert ? &by_cert : &by_key;
	char why[256] = "";
	int rc;

	lock_init(&n->tls.lock);
	rc = pool_tls_open(&n->tls.visitor, n->conf.tls, files, ADMIT_NODE, n->conf.name,
			   users_find_node(&n->users)->secret);
	if (rc != 0 || !pool_tls_is_on(&n->tls.visitor))
		return -rc;
	n->tls.by_key = !files->cert;
	tls_adopt_users(n);
	rc = dv_find()->create_tls(&n->tls.listener, attr, sizeof(*attr), why, sizeof(why));
	return rc == 0 ? 0 : -pool_fail(rc, "TLS: %s", why);
}

void tls_close_node(struct stag_pool_node *n)
{
	pool_tls_close(&n->tls.visitor);
	pool_tls_free(n->tls.listener);
	users_free(&n->tls.users);
	lock_destroy(&n->tls.lock);
}
