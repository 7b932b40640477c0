/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * list.h - a circular doubly linked list; the head is a node too.
 */
#ifndef STAG_BASE_LIST_H
#define STAG_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#ifndef container_of
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#endif

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_add_tail(struct list *head, struct list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}

/* Removes n and makes it an empty list, so that a second removal is harmless. */
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

#define list_entry(n, type, member) container_of(n, type, member)

#define list_for_each(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)

/* The body may delete `it`. */
#define list_for_each_safe(it, head)                                                               \
	for (struct list *it = (head)->next, *it##_next = it->next; it != (head);                  \
	     it = it##_next, it##_next = it->next)

#endif
