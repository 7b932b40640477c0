// SPDX-License-Identifier: BSD-2-Clause
/*
 * check.c - calls for programs that run no node (yet): check its attributes, read its state directory, read the roll.
 *
 * Needs no adapter, starts no thread.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/export.h"
#include "pool/admit/fail.h"

/* ---- attributes ------------------------------------------------------------------------- */

struct role_times check_times(const struct stag_pool_node_attr *attr)
{
	struct role_times t = role_defaults;

	if (attr->beat_us)
		t.lease.beat = attr->beat_us * 1000ull;
	if (attr->lease_ms)
		t.lease.lease = t.patience = attr->lease_ms * NS_PER_MS;
	if (attr->promote_ms)
		t.lease.promote = attr->promote_ms * NS_PER_MS;
	if (t.link < 10 * t.lease.lease)
		t.link = 10 * t.lease.lease;
	t.lease.stagger = 2 * t.lease.beat;
	t.grace = 3 * t.lease.beat;
	return t;
}

static int fail_unless_name(const char *name, const char *of)
{
	if (!name || name_is_valid(name))
		return 0;
	return pool_fail(EINVAL, "'%s' is no name of a %s: letters, digits and . - _, 63 at most",
			 name, of);
}

static int fail_unless_lease(const struct lease_terms *t)
{
	const char *fault = lease_terms_fault(t);

	if (!fault)
		return 0;
	return pool_fail(EINVAL, "beat %gms, lease %gms, promote %gms: %s",
			 (double)t->beat / NS_PER_MS, (double)t->lease / NS_PER_MS,
			 (double)t->promote / NS_PER_MS, fault);
}

static int fail_unless_roll(const char *roll)
{
	const char *why = roll ? roll_place_fault(roll) : NULL;

	return why ? pool_fail(EINVAL, "the roll %s: %s", roll, why) : 0;
}

static int fail_unless_users(const struct stag_pool_node_attr *attr)
{
	struct users users;
	int rc = 0;

	if (attr->secret)
		rc = users_make(&users, attr->secret, attr->also, attr->users, attr->num_users);
	if (attr->secret && rc == 0)
		users_free(&users);
	return rc;
}

STAG_EXPORT int stag_pool_node_check(const struct stag_pool_node_attr *attr)
{
	struct role_times times = check_times(attr);
	int rc = fail_unless_name(attr->pool, "pool");

	if (rc == 0)
		rc = fail_unless_name(attr->node, "node");
	if (rc == 0)
		rc = fail_unless_lease(&times.lease);
	if (rc == 0)
		rc = fail_unless_roll(attr->roll);
	if (rc == 0)
		rc = fail_unless_users(attr);
	if (rc == 0)
		rc = -pool_tls_check(
			attr->tls,
			&(struct pool_tls_files){attr->tls_cert, attr->tls_key, attr->tls_ca});
	return -rc;
}

/* ---- the state directory ---------------------------------------------------------------- */

STAG_EXPORT int stag_pool_node_query_state(const char *directory, struct stag_pool_node_state *out,
					   size_t size)
{
	CLEANUP_CLOSE int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stag_pool_node_state all = {0};
	struct pool_state state;
	int rc = dir < 0 ? -errno : state_load(dir, &state);

	if (rc != 0)
		return -pool_fail(-rc, "the state directory %s: %s", directory, strerror(-rc));
	memcpy(all.uuid, state.uuid, sizeof(all.uuid));
	memcpy(all.node, state.node, sizeof(all.node));
	all.epoch = state.epoch;
	memcpy(out, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}

/* ---- the roll --------------------------------------------------------------------------- */

static void describe_roll(const struct roll *roll, struct stag_pool_roll *out)
{
	memcpy(out->uuid, roll->uuid, sizeof(out->uuid));
	out->epoch = roll->epoch;
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++) {
		struct stag_pool_member *m = &out->members[out->num_members];

		if (!roll->members[s].name[0])
			continue;
		memcpy(m->name, roll->members[s].name, sizeof(roll->members[s].name));
		memcpy(m->address, roll->members[s].address, sizeof(roll->members[s].address));
		m->role = s == roll->primary	  ? STAG_POOL_ROLE_PRIMARY
			  : roll_in_sync(roll, s) ? STAG_POOL_ROLE_STANDBY
						  : STAG_POOL_ROLE_UNKNOWN;
		out->num_members++;
	}
}

STAG_EXPORT int stag_pool_query_roll(const char *where, struct stag_pool_roll *out, size_t size)
{
	struct stag_pool_roll all = {0};
	struct roll roll;
	int rc = where ? fail_unless_roll(where)
		       : pool_fail(EINVAL, "no place of the roll is given");

	if (rc != 0)
		return -rc;
	rc = roll_read_once(where, &roll, &all.revision);
	if (rc == 0 && all.revision == 0)
		rc = -ENOENT;
	if (rc != 0)
		return -pool_fail(-rc, "the roll %s: %s", where, strerror(-rc));
	describe_roll(&roll, &all);
	memcpy(out, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}
