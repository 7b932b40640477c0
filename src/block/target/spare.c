// SPDX-License-Identifier: BSD-2-Clause
/*
 * spare.c - memory of tasks and pieces: freed ones are kept for later use, up to a limit.
 */
#include "block/target/target.h"

#include <stdlib.h>

#define MAX_SPARE 256

static struct target_piece *alloc_piece(struct stag_block_target *t)
{
	struct target_piece *p;

	if (list_empty(&t->tasks.spare_pieces))
		return calloc(1, sizeof(*p));
	p = list_entry(t->tasks.spare_pieces.next, struct target_piece, link);
	list_del(&p->link);
	t->tasks.n_spare_pieces--;
	return p;
}

struct target_piece *target_piece_new(struct target_task *t, struct units_buffer *b, uint8_t *bytes,
				      uint32_t offset, uint32_t len)
{
	struct target_piece *p = alloc_piece(t->session->target);

	if (!p)
		return NULL;
	p->task = t;
	p->buffer = b;
	p->borrowed = false;
	p->lkey = b ? b->lkey : 0;
	p->bytes = bytes;
	p->offset = offset;
	p->len = len;
	p->got = 0;
	p->state = PIECE_NEW;
	p->asked = false;
	list_init(&p->wait);
	list_add_tail(&t->pieces, &p->link);
	t->n_pieces++;
	return p;
}

void target_piece_put(struct stag_block_target *t, struct target_piece *p)
{
	if (p->buffer)
		target_buffer_put(p->task->session, p->buffer);
	if (p->borrowed)
		lun_return(&p->io);
	if (t->tasks.n_spare_pieces == MAX_SPARE) {
		free(p);
		return;
	}
	list_add_tail(&t->tasks.spare_pieces, &p->link);
	t->tasks.n_spare_pieces++;
}

void target_piece_free(struct target_piece *p)
{
	struct target_task *t = p->task;

	list_del(&p->link);
	t->n_pieces--;
	if (t->first == p)
		t->first = NULL;
	target_piece_put(t->session->target, p);
}

struct target_task *target_task_alloc(struct stag_block_target *t)
{
	struct target_task *k;

	if (list_empty(&t->tasks.spare))
		return malloc(sizeof(*k));
	k = list_entry(t->tasks.spare.next, struct target_task, link);
	list_del(&k->link);
	t->tasks.n_spare--;
	return k;
}

void target_task_put(struct stag_block_target *t, struct target_task *k)
{
	if (t->tasks.n_spare == MAX_SPARE) {
		free(k);
		return;
	}
	list_add_tail(&t->tasks.spare, &k->link);
	t->tasks.n_spare++;
}

void target_spare_free(struct stag_block_target *t)
{
	list_for_each_safe (it, &t->tasks.spare)
		free(list_entry(it, struct target_task, link));
	list_for_each_safe (it, &t->tasks.spare_pieces)
		free(list_entry(it, struct target_piece, link));
	list_init(&t->tasks.spare);
	list_init(&t->tasks.spare_pieces);
	t->tasks.n_spare = t->tasks.n_spare_pieces = 0;
}
