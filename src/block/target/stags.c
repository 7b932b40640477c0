// SPDX-License-Identifier: BSD-2-Clause
/*
 * stags.c - a ledger of the STags that initiators lent: the open ones, and the last ones that were closed.
 *
 * Open STags are in their tasks; closed ones are in a ring. The name of the initiator is in an object that all entries of a
 * session share by reference counts.
 */
#include "block/target/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ENTRIES	 4096
#define LUN_BITS 0x3fff /* of flat space addresses (SAM-5) */

struct stag_owner {
	unsigned int refs; /* held by the session, and by entries */
	char initiator[STAG_BLOCK_NAME_MAX];
	char address[64];
};

struct stag_entry {
	struct stag_block_stag stag; /* without the names */
	struct stag_owner *who;	     /* NULL: the entry is unused */
};

struct target_stags {
	struct stag_entry ring[ENTRIES];
	uint64_t put; /* free-running */
};

int target_stags_create(struct target_stags **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : block_fail(ENOMEM, "out of memory for the ledger of STags");
}

static void put_owner(struct stag_owner *w)
{
	if (w && --w->refs == 0)
		free(w);
}

void target_stags_destroy(struct target_stags *l)
{
	if (!l)
		return;
	for (unsigned int i = 0; i < ENTRIES; i++)
		put_owner(l->ring[i].who);
	free(l);
}

/* ---- owners ---------------------------------------------------------------------------- */

static struct stag_owner *owner_of(struct target_session *s)
{
	struct stag_owner *w = s->who;

	if (w || !s->conn)
		return w;
	w = s->who = malloc(sizeof(*w));
	if (!w)
		return NULL;
	w->refs = 1;
	snprintf(w->initiator, sizeof(w->initiator), "%s", s->initiator);
	snprintf(w->address, sizeof(w->address), "%s", s->conn->peer);
	return w;
}

void target_stags_session_gone(struct target_session *s)
{
	put_owner(s->who);
	s->who = NULL;
}

/* ---- records ------------------------------------------------------------------------------- */

static void describe(const struct target_task *k, struct stag_block_stag *out)
{
	*out = (struct stag_block_stag){.stag = k->stag,
					.end = STAGDV_STAG_OPEN,
					.session = k->session->id,
					.itt = k->itt,
					.lun = (uint16_t)(k->cmd.lun >> 48 & LUN_BITS),
					.opcode = k->cmd.cdb[0],
					.length = k->cmd.expected,
					.made = k->lent_at};
}

void target_stags_opened(struct target_task *k)
{
	struct target_session *s = k->session;

	k->lent = true;
	k->lent_at = clock_ns();
	s->counters.stags++;
	s->counters.stags_open++;
	s->target->counters.stags++;
	s->target->counters.stags_open++;
}

void target_stags_ended(struct target_task *k, enum stagdv_stag_end how)
{
	struct target_session *s = k->session;
	struct target_stags *l = s->target->stags;
	struct stag_owner *w = owner_of(s);
	struct stag_entry *e;

	k->lent = false;
	s->counters.stags_open--;
	s->target->counters.stags_open--;
	if (!w)
		return; /* no memory for the name: not recorded */
	e = &l->ring[l->put++ % ENTRIES];
	put_owner(e->who);
	w->refs++;
	e->who = w;
	describe(k, &e->stag);
	e->stag.end = how;
	e->stag.ended = clock_ns();
}

/* ---- all of it ------------------------------------------------------------------------------- */

struct stag_page {
	struct stag_block_stag *list;
	size_t n, room;
};

static struct stag_block_stag *next_line(struct stag_page *p)
{
	return p->n++ < p->room ? &p->list[p->n - 1] : NULL;
}

static void list_stag(struct stag_page *p, const struct stag_block_stag *stag,
		      const struct stag_owner *w)
{
	struct stag_block_stag *line = next_line(p);

	if (!line)
		return;
	*line = *stag;
	if (!w)
		return;
	memcpy(line->initiator, w->initiator, sizeof(line->initiator));
	memcpy(line->address, w->address, sizeof(line->address));
}

static void list_open_stags(struct stag_page *p, struct target_session *s)
{
	struct stag_block_stag stag;

	for (unsigned int i = 0; i < TASK_BUCKETS; i++)
		list_for_each (it, &s->buckets[i]) {
			const struct target_task *k = list_entry(it, struct target_task, link);

			if (!k->lent)
				continue;
			describe(k, &stag);
			list_stag(p, &stag, owner_of(s));
		}
}

size_t target_stags_query(struct stag_block_target *t, struct stag_block_stag *list, size_t n)
{
	struct stag_page p = {.list = list, .room = n};
	const struct target_stags *l = t->stags;

	for (uint64_t i = l->put > ENTRIES ? l->put - ENTRIES : 0; i < l->put; i++)
		list_stag(&p, &l->ring[i % ENTRIES].stag, l->ring[i % ENTRIES].who);
	list_for_each (it, &t->sessions.list)
		list_open_stags(&p, list_entry(it, struct target_session, link));
	return p.n;
}
