// SPDX-License-Identifier: BSD-2-Clause
/*
 * target.c - units, the nexuses that use them, and their unit attentions.
 */
#include "block/scsi/ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/siphash.h"

static const uint16_t attention_codes[ATTENTIONS] = {
	[ATTENTION_POWER_ON] = 0x2900,	   [ATTENTION_RESET] = 0x2903,
	[ATTENTION_CLEARED] = 0x2f00,	   [ATTENTION_LUNS] = 0x3f0e,
	[ATTENTION_CAPACITY] = 0x2a09,	   [ATTENTION_MODE] = 0x2a01,
	[ATTENTION_PREEMPTED] = 0x2a03,	   [ATTENTION_RELEASED] = 0x2a04,
	[ATTENTION_UNREGISTERED] = 0x2a05,
};

int scsi_target_create(struct scsi_target **out)
{
	struct scsi_target *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	list_init(&t->nexuses);
	t->dir = -1;
	*out = t;
	return 0;
}

void scsi_target_keep(struct scsi_target *t, int dir, const char *name)
{
	static const uint64_t same_for_all[2]; /* the name of a file must not change */

	t->dir = dir;
	t->name_hash = siphash(same_for_all, name, strlen(name));
}

static void free_unit(struct scsi_unit *u)
{
	if (u)
		free(u->persist.list);
	free(u);
}

void scsi_target_destroy(struct scsi_target *t)
{
	for (int i = 0; t && i < STAG_BLOCK_MAX_LUNS; i++)
		free_unit(t->units[i]);
	free(t);
}

/* ---- attentions ------------------------------------------------------------------- */

static struct scsi_nexus *to_nexus(struct list *l)
{
	return list_entry(l, struct scsi_nexus, link);
}

void scsi_raise_attention(struct scsi_unit *u, enum scsi_attention what,
			  const struct scsi_nexus *but)
{
	list_for_each (l, &u->target->nexuses)
		if (to_nexus(l) != but)
			to_nexus(l)->at[u->slot].attentions |= (uint16_t)(1 << what);
}

uint16_t scsi_pop_attention(struct scsi_nexus *n, const struct scsi_unit *u)
{
	uint16_t *pending = &n->at[u->slot].attentions;
	int first;

	if (!*pending)
		return 0;
	first = __builtin_ctz(*pending);
	*pending &= (uint16_t)(*pending - 1);
	return attention_codes[first];
}

static void raise_attention_all(struct scsi_target *t, enum scsi_attention what)
{
	for (int i = 0; i < STAG_BLOCK_MAX_LUNS; i++)
		if (t->units[i])
			scsi_raise_attention(t->units[i], what, NULL);
}

/* ---- units ------------------------------------------------------------------------- */

static struct scsi_unit *find(struct scsi_target *t, uint16_t number)
{
	for (int i = 0; i < STAG_BLOCK_MAX_LUNS; i++)
		if (t->units[i] && !t->units[i]->removed && t->units[i]->number == number)
			return t->units[i];
	return NULL;
}

/* SAM-5, "Logical unit number": one level, peripheral device or flat space addressing. */
static struct scsi_unit *unit_at(struct scsi_target *t, uint64_t lun)
{
	uint16_t first = (uint16_t)(lun >> 48);

	if (lun & 0xffffffffffff)
		return NULL;
	switch (first >> 14) {
	case 0:
		return first <= 0xff ? find(t, first) : NULL;
	case 1:
		return find(t, first & SCSI_LUN_MAX);
	default:
		return NULL;
	}
}

struct scsi_unit *scsi_unit_at(struct scsi_target *t, const struct scsi_nexus *n, uint64_t lun)
{
	struct scsi_unit *u = unit_at(t, lun);

	return u && scsi_sees(n, u->number) ? u : NULL;
}

bool scsi_hides(const struct scsi_nexus *n, uint64_t lun)
{
	const struct scsi_unit *u = unit_at(n->target, lun);

	return u && !scsi_sees(n, u->number);
}

struct lun *scsi_target_find(struct scsi_target *t, uint16_t lun)
{
	struct scsi_unit *u = find(t, lun);

	return u ? u->lun : NULL;
}

static struct scsi_unit *make_unit(struct scsi_target *t, uint16_t number, struct lun *l,
				   uint16_t slot)
{
	struct scsi_unit *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->target = t;
	u->lun = l;
	u->number = number;
	u->slot = slot;
	u->mode = scsi_mode_default(l);
	return u;
}

/* To every nexus a new unit has just been powered on. */
static void raise_power_on(struct scsi_unit *u)
{
	list_for_each (l, &u->target->nexuses)
		to_nexus(l)->at[u->slot] = (struct scsi_place){0};
	scsi_raise_attention(u, ATTENTION_POWER_ON, NULL);
}

int scsi_target_add(struct scsi_target *t, uint16_t lun, struct lun *l)
{
	struct scsi_unit *u;
	uint16_t slot = 0;
	int rc;

	if (lun > SCSI_LUN_MAX)
		return block_fail(EINVAL, "LUN %u: too high; the highest is %u", lun, SCSI_LUN_MAX);
	if (find(t, lun))
		return block_fail(EEXIST, "LUN %u: already exists", lun);
	while (slot < STAG_BLOCK_MAX_LUNS && t->units[slot])
		slot++;
	if (slot == STAG_BLOCK_MAX_LUNS)
		return block_fail(ENOSPC, "LUN %u: too many units; the limit is %u", lun,
				  STAG_BLOCK_MAX_LUNS);
	u = make_unit(t, lun, l, slot);
	if (!u)
		return block_fail(ENOMEM, "out of memory");
	rc = scsi_persist_load(u);
	if (rc != 0) {
		free_unit(u);
		return rc;
	}
	raise_attention_all(t, ATTENTION_LUNS);
	t->units[slot] = u;
	raise_power_on(u);
	return 0;
}

static void end_unit(struct scsi_unit *u)
{
	u->target->units[u->slot] = NULL;
	u->gone(u->gone_arg, u->lun);
	free_unit(u);
}

int scsi_target_remove(struct scsi_target *t, uint16_t lun, void (*gone)(void *arg, struct lun *l),
		       void *arg)
{
	struct scsi_unit *u = find(t, lun);

	if (!u)
		return block_fail(ENOENT, "LUN %u: does not exist", lun);
	u->removed = true;
	u->gone = gone;
	u->gone_arg = arg;
	raise_attention_all(t, ATTENTION_LUNS);
	if (u->commands == 0)
		end_unit(u);
	return 0;
}

void scsi_target_resized(struct scsi_target *t, uint16_t lun)
{
	struct scsi_unit *u = find(t, lun);

	if (u)
		scsi_raise_attention(u, ATTENTION_CAPACITY, NULL);
}

void scsi_target_follow_growth(struct scsi_target *t,
			       void (*grown)(void *arg, uint16_t lun, uint64_t size), void *arg)
{
	for (int i = 0; i < STAG_BLOCK_MAX_LUNS; i++) {
		struct scsi_unit *u = t->units[i];

		if (!u || u->removed || !lun_follow_growth(u->lun))
			continue;
		scsi_raise_attention(u, ATTENTION_CAPACITY, NULL);
		grown(arg, u->number, lun_facts(u->lun)->size);
	}
}

void scsi_unit_get(struct scsi_unit *u, struct scsi_nexus *n)
{
	u->commands++;
	n->at[u->slot].commands++;
}

void scsi_unit_put(struct scsi_unit *u, struct scsi_nexus *n)
{
	n->at[u->slot].commands--;
	if (--u->commands == 0 && u->removed)
		end_unit(u);
}

/* ---- nexuses -------------------------------------------------------------------------- */

int scsi_nexus_create(struct scsi_target *t, const char *name, const struct scsi_view *view,
		      struct scsi_nexus **out)
{
	struct scsi_nexus *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->target = t;
	n->view = view;
	snprintf(n->name, sizeof(n->name), "%s", name);
	for (int i = 0; i < STAG_BLOCK_MAX_LUNS; i++)
		n->at[i].attentions = 1 << ATTENTION_POWER_ON;
	list_add_tail(&t->nexuses, &n->link);
	*out = n;
	return 0;
}

void scsi_nexus_destroy(struct scsi_nexus *n)
{
	if (!n)
		return;
	for (int i = 0; i < STAG_BLOCK_MAX_LUNS; i++)
		if (n->target->units[i] && n->target->units[i]->holder == n)
			n->target->units[i]->holder = NULL;
	list_del(&n->link);
	free(n);
}

/* ---- task management ---------------------------------------------------------------------- */

static void reset(struct scsi_unit *u, enum scsi_attention what)
{
	u->holder = NULL;
	u->mode = scsi_mode_default(u->lun);
	scsi_raise_attention(u, what, NULL);
}

static void reset_all(struct scsi_target *t, enum scsi_attention what)
{
	for (int i = 0; i < STAG_BLOCK_MAX_LUNS; i++)
		if (t->units[i])
			reset(t->units[i], what);
}

/* Notifies nexuses whose commands were aborted on behalf of another nexus. */
static void raise_cleared(struct scsi_unit *u, const struct scsi_nexus *by)
{
	list_for_each (l, &u->target->nexuses) {
		struct scsi_nexus *n = to_nexus(l);

		if (n != by && n->at[u->slot].commands)
			n->at[u->slot].attentions |= 1 << ATTENTION_CLEARED;
	}
}

static int tmf_of_unit(struct scsi_unit *u, struct scsi_nexus *n, enum scsi_tmf what)
{
	if (!u)
		return -ENOENT;
	if (scsi_only_reads(n) && (what == TMF_LUN_RESET || what == TMF_CLEAR_TASK_SET))
		return -EACCES; /* they abort commands of others */
	if (what == TMF_LUN_RESET)
		reset(u, ATTENTION_RESET);
	else if (what == TMF_CLEAR_TASK_SET)
		raise_cleared(u, n);
	return 0;
}

int scsi_tmf(struct scsi_target *t, struct scsi_nexus *n, enum scsi_tmf what, uint64_t lun)
{
	switch (what) {
	case TMF_ABORT_TASK:
	case TMF_ABORT_TASK_SET:
	case TMF_CLEAR_TASK_SET:
	case TMF_LUN_RESET:
		return tmf_of_unit(scsi_unit_at(t, n, lun), n, what);
	case TMF_TARGET_WARM_RESET:
	case TMF_TARGET_COLD_RESET:
		if (n->view && (n->view->some || n->view->read_only))
			return -EACCES;
		reset_all(t, what == TMF_TARGET_WARM_RESET ? ATTENTION_RESET : ATTENTION_POWER_ON);
		return 0;
	case TMF_CLEAR_ACA:
		break;
	}
	return -EOPNOTSUPP;
}
