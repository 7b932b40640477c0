// SPDX-License-Identifier: BSD-2-Clause
/* stats.c - counters and error messages. */
#include "media/medium.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"

void media_query(struct media *m, struct media_counters *c)
{
	if (!media_is_ours(m)) {
		memset(c, 0, sizeof(*c));
		return;
	}
	HOLD_FOR_SCOPE(&m->lock);
	*c = m->counters;
	c->read_times = m->times[MEDIA_READ].histogram;
	c->write_times = m->times[MEDIA_WRITE].histogram;
	c->flush_times = m->times[MEDIA_FLUSH].histogram;
	c->submits = ring_submits(m->ring) + calls_submits(m->calls);
}

static const char *complaint_text(enum complaint c)
{
	switch (c) {
	case COMPLAINT_READ:
		return "cannot read";
	case COMPLAINT_WRITE:
		return "cannot write";
	case COMPLAINT_SYNC:
		return "cannot flush";
	case COMPLAINT_SIZE:
		return "has shrunk";
	case NUM_COMPLAINTS:
		break;
	}
	return "?";
}

/* Logs the first of a series of equal errors; the others are only counted. */
void media_complain(struct media *m, enum complaint c, uint64_t offset, int err)
{
	char link[32], path[256];
	ssize_t n;

	assert(lock_held(&m->lock));
	if (m->complained[c] == err)
		return;
	m->complained[c] = err;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", m->fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n < 0 ? 0 : n] = '\0';
	log_err("medium %d (%s): %s at %llu: %s", m->fd, path, complaint_text(c),
		(unsigned long long)offset,
		err == -ENXIO ? "the medium ends before that" : strerror(-err));
}
