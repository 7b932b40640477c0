// SPDX-License-Identifier: BSD-2-Clause
/*
 * spare.c - memory of tasks and pieces: what has ended is kept for those that come, up to a number.
 */
#include "block/target/target.h"

#include <stdlib.h>

#define MAX_SPARE 256

static struct target_piece *alloc_piece(struct stag_block_target *t)
{
	struct target_piece *p;

	if (list_empty(&t->free_pieces))
		return calloc(1, sizeof(*p));
	p = list_entry(t->free_pieces.next, struct target_piece, link);
	list_del(&p->link);
	t->n_free_pieces--;
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
		units_put_buffer(t->units, p->buffer);
	if (p->borrowed)
		lun_return(&p->io);
	if (t->n_free_pieces == MAX_SPARE) {
		free(p);
		return;
	}
	list_add_tail(&t->free_pieces, &p->link);
	t->n_free_pieces++;
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

	if (list_empty(&t->free_tasks))
		return malloc(sizeof(*k));
	k = list_entry(t->free_tasks.next, struct target_task, link);
	list_del(&k->link);
	t->n_free_tasks--;
	return k;
}

void target_task_put(struct stag_block_target *t, struct target_task *k)
{
	if (t->n_free_tasks == MAX_SPARE) {
		free(k);
		return;
	}
	list_add_tail(&t->free_tasks, &k->link);
	t->n_free_tasks++;
}

void target_spare_free(struct stag_block_target *t)
{
	list_for_each_safe (it, &t->free_tasks)
		free(list_entry(it, struct target_task, link));
	list_for_each_safe (it, &t->free_pieces)
		free(list_entry(it, struct target_piece, link));
	list_init(&t->free_tasks);
	list_init(&t->free_pieces);
	t->n_free_tasks = t->n_free_pieces = 0;
}
