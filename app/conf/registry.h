/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * registry.h - the nodes of pools that this user has on this machine, running or not.
 *
 * A node whose INI file is in conf_state_dir(), as POOL/NODE/stag.ini, is found there. For one elsewhere there is a link to its
 * INI file in the subdirectory .nodes, made by `stag pool` and by stagd. A link whose file is gone, or has no pool any more,
 * is removed when the registry is read.
 */
#ifndef STAG_APP_REGISTRY_H
#define STAG_APP_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A section [pool NAME] of an INI file. */
struct registry_node {
	char *pool, *node, *ini, *state, *roll;
	uint16_t port; /* 0: any */
};

/* Sorted by pool, then by roll, then by node. */
struct registry {
	struct registry_node *list;
	size_t count;
};

/* Reads all nodes. Returns 0, or -ENOMEM. registry_free() is required in any case. */
int registry_read(struct registry *r);
void registry_free(struct registry *r);
/* Adds an INI file, unless it is found without. Returns 0 or -errno. */
int registry_add(const char *ini);

/* Nodes with the same name of their pool are of one pool only if they have the same roll. */
bool registry_is_same_pool(const struct registry_node *a, const struct registry_node *b);
/* Returns the first node of a pool of this name, or NULL. */
const struct registry_node *registry_find(const struct registry *r, const char *pool);
/* Returns the first node of the pool after this one (NULL: of the first pool), or NULL. */
const struct registry_node *registry_next_pool(const struct registry *r,
					       const struct registry_node *before);
/* Writes the directories of the nodes of this name, of whichever pool, for a message: "/a, /b". */
void registry_places(const struct registry *r, const char *pool, char *text, size_t size);
/* Writes the names of the pools, for a message: "shop, depot"; "" if there are none. */
void registry_names(const struct registry *r, char *text, size_t size);

#endif
