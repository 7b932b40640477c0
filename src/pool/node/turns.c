// SPDX-License-Identifier: BSD-2-Clause
/* turns.c - see turns.h. */
#include "pool/node/turns.h"

#include <assert.h>

void turns_init(struct turns *t)
{
	list_init(&t->due);
	for (unsigned int i = 0; i < TURN_LANES; i++) {
		list_init(&t->lanes[i].link);
		list_init(&t->lanes[i].waiting);
	}
}

void turn_place_init(struct turn_place *p, struct turns *t, uint64_t user)
{
	list_init(&p->link);
	p->lane = &t->lanes[user % TURN_LANES];
}

void turns_add(struct turns *t, struct turn_place *p)
{
	assert(list_empty(&p->link));
	if (list_empty(&p->lane->waiting))
		list_add_tail(&t->due, &p->lane->link);
	list_add_tail(&p->lane->waiting, &p->link);
}

void turns_remove(struct turn_place *p)
{
	if (list_empty(&p->link))
		return;
	list_del(&p->link);
	if (list_empty(&p->lane->waiting))
		list_del(&p->lane->link);
}

void turns_clear(struct turns *t)
{
	while (!turns_empty(t))
		turns_remove(turns_first(t));
}

bool turns_empty(const struct turns *t)
{
	return list_empty(&t->due);
}

struct turn_place *turns_first(const struct turns *t)
{
	const struct turn_lane *lane = list_entry(t->due.next, struct turn_lane, link);

	assert(!turns_empty(t));
	return list_entry(lane->waiting.next, struct turn_place, link);
}

void turns_next(struct turns *t)
{
	struct turn_place *p = turns_first(t);
	struct turn_lane *lane = p->lane;

	list_del(&p->link);
	list_add_tail(&lane->waiting, &p->link);
	list_del(&lane->link);
	list_add_tail(&t->due, &lane->link);
}
