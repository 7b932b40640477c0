// SPDX-License-Identifier: BSD-2-Clause
/*
 * client.c - a client of a pool that is served here or watched: opened on demand, reopened after the connection was lost.
 */
#include "service.h"

#include <stdio.h>
#include <string.h>

#define PATIENCE_MS 3000

void client_init(struct client *c, struct service *s)
{
	lock_init(&c->lock);
	c->service = s;
	c->use.name = s->conf->name;
	c->use.user = c->user;
}

void client_name(struct client *c, const char *where, const char *user, const char *secret)
{
	snprintf(c->where, sizeof(c->where), "%s", where);
	snprintf(c->user, sizeof(c->user), "%s", user ? user : "");
	snprintf(c->secret, sizeof(c->secret), "%s", secret ? secret : "");
}

void client_secure(struct client *c, uint64_t tls, const char *cert, const char *key,
		   const char *ca)
{
	c->tls = (uint32_t)tls;
	snprintf(c->cert, sizeof(c->cert), "%s", cert ? cert : "");
	snprintf(c->key, sizeof(c->key), "%s", key ? key : "");
	snprintf(c->ca, sizeof(c->ca), "%s", ca ? ca : "");
}

void client_end(struct client *c)
{
	stag_pool_close(c->use.client);
	c->use.client = NULL;
	explicit_bzero(c->secret, sizeof(c->secret));
	lock_destroy(&c->lock);
}

static void client_open(struct client *c)
{
	const struct stag_pool_attr attr = {.user = c->user,
					    .secret = c->secret,
					    .tls = c->tls,
					    .tls_cert = *c->cert ? c->cert : NULL,
					    .tls_key = *c->key ? c->key : NULL,
					    .tls_ca = *c->ca ? c->ca : NULL,
					    .timeout_ms = PATIENCE_MS,
					    .retry_ms = PATIENCE_MS};

	assert(lock_held(&c->lock));
	c->use.client = stag_pool_open(c->where, &attr);
	if (c->use.client)
		c->use.why[0] = '\0';
	else
		snprintf(c->use.why, sizeof(c->use.why), "pool %s: %s", c->use.name,
			 stag_pool_error());
}

void client_lock(struct client *c)
{
	lock_acquire(&c->lock);
	if (!c->use.client && *c->user)
		client_open(c);
	else if (!c->use.client)
		snprintf(c->use.why, sizeof(c->use.why),
			 "pool %s has no users; add one with 'stag pool user add'", c->use.name);
}

void client_unlock(struct client *c)
{
	lock_release(&c->lock);
}

void daemon_pool_lost(struct daemon_pool *p)
{
	assert(lock_held(&((struct client *)((char *)p - offsetof(struct client, use)))->lock));
	stag_pool_close(p->client);
	p->client = NULL;
}
