// SPDX-License-Identifier: BSD-2-Clause
/*
 * watch.c - watches whether the process of a standby's primary has ended (life.h).
 *
 * If the roll is a file, all nodes are on one machine, and each has a file of its own beside the roll. A primary
 * sends the token of its file to each standby that connects; every welcome is about another epoch, or another
 * process.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LATE 2 /* heartbeats that may be missing before the primary is doubted */

static int path_of(const struct stag_pool_node *n, const char *name, char path[PATH_MAX])
{
	if (strncmp(n->conf.where, "file:", 5) != 0)
		return -EOPNOTSUPP;
	return snprintf(path, PATH_MAX, "%s.%s.life", n->conf.where + 5, name) < PATH_MAX
		       ? 0
		       : -ENAMETOOLONG;
}

/* Without proof, standbys promote themselves as they do across machines: after a time of silence. */
void watch_own_life(struct stag_pool_node *n)
{
	char path[PATH_MAX];
	int rc = n->adapter.dv ? path_of(n, n->conf.name, path) : -EOPNOTSUPP;

	/* A hardware adapter is not part of the process, and may continue for a moment. */
	if (rc == 0)
		rc = life_begin(&n->proof.own, path);
	if (rc != 0 && rc != -EOPNOTSUPP)
		node_log(n, LOG_LEVEL_WARN,
			 "standbys cannot be sure when this process has ended, and wait for "
			 "silence: %s",
			 strerror(-rc));
}

void watch_end(struct stag_pool_node *n)
{
	if (n->proof.primary.fd >= 0)
		close(n->proof.primary.fd);
	n->proof.primary.fd = -1;
}

void watch_begin(struct stag_pool_node *n, unsigned int seat, const uint8_t token[LIFE_TOKEN_LEN])
{
	static const uint8_t none[LIFE_TOKEN_LEN];
	char path[PATH_MAX];

	watch_end(n);
	if (memcmp(token, none, sizeof(none)) == 0 ||
	    path_of(n, n->role.roll.members[seat].name, path) != 0)
		return;
	n->proof.primary.fd = life_watch(path, token);
	n->proof.primary.seat = seat;
	n->proof.primary.epoch = n->role.epoch;
}

/* A primary that was heard a moment ago lives: the kernel need not be queried. */
static bool is_doubtful(const struct stag_pool_node *n)
{
	const struct follow *f = n->primary.link;

	return !f || f->conn.over || f->state < FOLLOW_LINKED ||
	       n->now > f->since + LATE * n->role.times.lease.beat;
}

void watch_poll(struct stag_pool_node *n)
{
	if (n->proof.primary.fd < 0 || !is_doubtful(n) || !life_is_over(n->proof.primary.fd))
		return;
	node_log(n, LOG_LEVEL_INFO, "the process of the primary of epoch %llu has ended",
		 (unsigned long long)n->proof.primary.epoch);
	watch_end(n);
	ROLE_EVENT(n, role_gone(&n->role, node_read_clock(n), n->proof.primary.seat,
				n->proof.primary.epoch));
	node_act(n);
}
