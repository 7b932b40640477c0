// SPDX-License-Identifier: BSD-2-Clause
/*
 * spare.c - memory of tasks and pieces: what has ended is kept for those that come, up to a number.
 */
#include "block/target/target.h"

#include <stdlib.h>

#define MAX_SPARE 256

static struct piece *alloc_piece(struct stag_block_target *t)
{
	struct piece *p;

	if (list_empty(&t->free_pieces))
		return calloc(1, sizeof(*p));
	p = list_entry(t->free_pieces.next, struct piece, link);
	list_del(&p->link);
	t->n_free_pieces--;
	return p;
}

struct piece *piece_new(struct task *t, struct buffer *b, uint8_t *bytes, uint32_t offset,
			uint32_t len)
{
	struct piece *p = alloc_piece(t->session->target);

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
	p->state = PIECE_MOVING;
	p->asked = false;
	list_init(&p->wait);
	list_add_tail(&t->pieces, &p->link);
	t->n_pieces++;
	return p;
}

void piece_put(struct stag_block_target *t, struct piece *p)
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

void piece_free(struct piece *p)
{
	struct task *t = p->task;

	list_del(&p->link);
	t->n_pieces--;
	if (t->first == p)
		t->first = NULL;
	piece_put(t->session->target, p);
}

struct task *task_alloc(struct stag_block_target *t)
{
	struct task *k;

	if (list_empty(&t->free_tasks))
		return malloc(sizeof(*k));
	k = list_entry(t->free_tasks.next, struct task, link);
	list_del(&k->link);
	t->n_free_tasks--;
	return k;
}

void task_put(struct stag_block_target *t, struct task *k)
{
	if (t->n_free_tasks == MAX_SPARE) {
		free(k);
		return;
	}
	list_add_tail(&t->free_tasks, &k->link);
	t->n_free_tasks++;
}

void spare_free(struct stag_block_target *t)
{
	list_for_each_safe (it, &t->free_tasks)
		free(list_entry(it, struct task, link));
	list_for_each_safe (it, &t->free_pieces)
		free(list_entry(it, struct piece, link));
	list_init(&t->free_tasks);
	list_init(&t->free_pieces);
	t->n_free_tasks = t->n_free_pieces = 0;
}
