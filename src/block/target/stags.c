// SPDX-License-Identifier: BSD-2-Clause
/*
 * stags.c - the lives of STags that initiators lent, as the target saw them: those that are open, and the last that are not.
 *
 * What is open is in its task. What ended is in a ring; who lent it is told by a note that all of a session's share, and
 * that is there as long as one of them is.
 */
#include "block/target/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ENTRIES	 4096
#define LUN_BITS 0x3fff /* of SAM-5's flat addresses */

struct stag_owner {
	unsigned int refs; /* the session, and entries */
	char initiator[STAG_BLOCK_NAME_MAX];
	char address[64];
};

struct stag_entry {
	struct stag_block_stag stag; /* without who */
	struct stag_owner *who;	     /* NULL: nothing yet */
};

struct target_stags {
	struct stag_entry ring[ENTRIES];
	uint64_t put; /* free-running */
};

int target_stags_create(struct target_stags **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : block_fail(ENOMEM, "no memory for a ledger of STags");
}

static void put_who(struct stag_owner *w)
{
	if (w && --w->refs == 0)
		free(w);
}

void target_stags_destroy(struct target_stags *l)
{
	if (!l)
		return;
	for (unsigned int i = 0; i < ENTRIES; i++)
		put_who(l->ring[i].who);
	free(l);
}

/* ---- who ------------------------------------------------------------------------------- */

static struct stag_owner *who_of(struct target_session *s)
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
	put_who(s->who);
	s->who = NULL;
}

/* ---- lives ------------------------------------------------------------------------------- */

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
	struct stag_owner *w = who_of(s);
	struct stag_entry *e;

	k->lent = false;
	s->counters.stags_open--;
	s->target->counters.stags_open--;
	if (!w)
		return; /* no memory for a name: it is not told of */
	e = &l->ring[l->put++ % ENTRIES];
	put_who(e->who);
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

static void tell(struct stag_page *p, const struct stag_block_stag *stag,
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

static void tell_open(struct stag_page *p, struct target_session *s)
{
	struct stag_block_stag stag;

	for (unsigned int i = 0; i < TASK_BUCKETS; i++)
		list_for_each (it, &s->buckets[i]) {
			const struct target_task *k = list_entry(it, struct target_task, link);

			if (!k->lent)
				continue;
			describe(k, &stag);
			tell(p, &stag, who_of(s));
		}
}

size_t target_stags_query(struct stag_block_target *t, struct stag_block_stag *list, size_t n)
{
	struct stag_page p = {.list = list, .room = n};
	const struct target_stags *l = t->stags;

	for (uint64_t i = l->put > ENTRIES ? l->put - ENTRIES : 0; i < l->put; i++)
		tell(&p, &l->ring[i % ENTRIES].stag, l->ring[i % ENTRIES].who);
	list_for_each (it, &t->sessions.list)
		tell_open(&p, list_entry(it, struct target_session, link));
	return p.n;
}
