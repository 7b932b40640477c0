// SPDX-License-Identifier: BSD-2-Clause
/*
 * memory.c - memory that the adapter reads and writes: lent by the program, registered for one operation, or the
 * library's own.
 *
 * Lent memory is registered once. With one-shot sends a node can access it only through the STags that they
 * advertise; otherwise it gets the key of the region itself, and only nodes that have proven themselves do. The
 * library's own buffers have few sizes, and some are kept for reuse.
 */
#include "pool/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEPT 16u /* buffers kept, of each size */

/* ---- lent ---------------------------------------------------------------------------- */

static int loan_access(const struct stag_pool *p)
{
	return p->conf.dv
		       ? IBV_ACCESS_LOCAL_WRITE
		       : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
}

static int register_loan(struct stag_pool *p, struct loan *loan)
{
	loan->mr = ibv_reg_mr(p->device.pd, loan->at, loan->length, loan_access(p));
	return loan->mr ? 0
			: pool_fail(errno, "%zu bytes at %p cannot be registered: %s", loan->length,
				    (void *)loan->at, strerror(errno));
}

int memory_lend(struct stag_pool *p, void *at, size_t length)
{
	struct loan *loan = calloc(1, sizeof(*loan));
	int rc;

	if (!loan)
		return pool_fail(ENOMEM, "no memory");
	loan->at = at;
	loan->length = length;
	rc = p->device.pd ? register_loan(p, loan) : 0;
	if (rc != 0) {
		free(loan);
		return rc;
	}
	loan->next = p->memory.loans;
	p->memory.loans = loan;
	return 0;
}

int memory_unlend(struct stag_pool *p, void *at)
{
	struct loan **link = &p->memory.loans;
	struct loan *loan;

	while (*link && (*link)->at != at)
		link = &(*link)->next;
	loan = *link;
	if (!loan)
		return pool_fail(EINVAL, "%p was not lent", at);
	if (loan->users != 0)
		return pool_fail(EBUSY, "%p is in use by %u operations", at, loan->users);
	*link = loan->next;
	if (loan->mr)
		ibv_dereg_mr(loan->mr);
	free(loan);
	return 0;
}

static struct loan *find_loan(const struct stag_pool *p, const void *at, size_t length)
{
	const uint8_t *first = at;

	for (struct loan *loan = p->memory.loans; loan; loan = loan->next)
		if (loan->mr && first >= loan->at && (size_t)(first - loan->at) <= loan->length &&
		    length <= loan->length - (size_t)(first - loan->at))
			return loan;
	return NULL;
}

bool memory_is_lent(const struct stag_pool *p, const void *at, size_t length)
{
	return find_loan(p, at, length) != NULL;
}

/* ---- for one operation ---------------------------------------------------------------- */

static int register_own(struct stag_pool *p, struct op *op, const void *at, size_t length,
			int access)
{
	op->mr = ibv_reg_mr(p->device.pd, (void *)at, length, access);
	return op->mr ? 0 : -errno;
}

int memory_use(struct stag_pool *p, struct op *op, const void *at, size_t length, int access,
	       uint32_t *lkey, uint32_t *rkey)
{
	int remote = access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	struct loan *loan = find_loan(p, at, length);
	int rc;

	if (loan && (remote & ~loan_access(p)) == 0) {
		if (!op->loan) {
			op->loan = loan;
			loan->users++;
		}
		*lkey = loan->mr->lkey;
		*rkey = loan->mr->rkey;
		return 0;
	}
	rc = op->mr ? 0 : register_own(p, op, at, length, access);
	if (rc == 0) {
		*lkey = op->mr->lkey;
		*rkey = op->mr->rkey;
	}
	return rc;
}

/* ---- the library's own ------------------------------------------------------------------ */

static unsigned int size_class(size_t size)
{
	unsigned int class = 0;

	while (class < BUFFER_SIZES - 1 && (size_t)1 << (BUFFER_SHIFT + class) < size)
		class ++;
	return class;
}

static void free_buffer(struct buffer *b)
{
	ibv_dereg_mr(b->mr);
	free(b);
}

static struct buffer *make_buffer(struct stag_pool *p, unsigned int class)
{
	size_t size = (size_t)1 << (BUFFER_SHIFT + class);
	struct buffer *b = malloc(sizeof(*b) + size);

	if (!b)
		return NULL;
	*b = (struct buffer){.size = size};
	b->mr = ibv_reg_mr(p->device.pd, b->bytes, size, IBV_ACCESS_LOCAL_WRITE);
	if (b->mr)
		return b;
	free(b);
	return NULL;
}

static void put_buffer(struct stag_pool *p, struct buffer *b)
{
	unsigned int class = size_class(b->size);

	if (p->memory.kept[class] >= KEPT) {
		free_buffer(b);
		return;
	}
	b->next = p->memory.buffers[class];
	p->memory.buffers[class] = b;
	p->memory.kept[class]++;
}

int memory_buffer(struct stag_pool *p, struct op *op, size_t size)
{
	unsigned int class = size_class(size);

	if (op->buffer && op->buffer->size >= size)
		return 0;
	if (op->buffer)
		put_buffer(p, op->buffer);
	op->buffer = p->memory.buffers[class];
	if (op->buffer) {
		p->memory.buffers[class] = op->buffer->next;
		p->memory.kept[class]--;
	} else {
		op->buffer = make_buffer(p, class);
	}
	if (op->buffer && op->buffer->size >= size)
		return 0;
	return -ENOMEM;
}

void memory_release(struct stag_pool *p, struct op *op)
{
	if (op->advertised && p->link.id)
		p->conf.dv->withdraw(p->link.id->qp, op->stag, NULL);
	if (op->mr)
		ibv_dereg_mr(op->mr);
	if (op->loan)
		op->loan->users--;
	if (op->buffer)
		put_buffer(p, op->buffer);
	op->advertised = false;
	op->mr = NULL;
	op->loan = NULL;
	op->buffer = NULL;
}

/* ---- with the device ---------------------------------------------------------------------- */

int memory_register_slab(struct stag_pool *p, struct slab *slab)
{
	slab->mr = ibv_reg_mr(p->device.pd, slab->small,
			      sizeof(slab->ops) / sizeof(slab->ops[0]) * CLIENT_SMALL,
			      IBV_ACCESS_LOCAL_WRITE);
	return slab->mr ? 0 : -errno;
}

int memory_register_all(struct stag_pool *p)
{
	int rc = 0;

	for (struct slab *slab = p->queue.slabs; slab && rc == 0; slab = slab->next)
		rc = memory_register_slab(p, slab);
	for (struct loan *loan = p->memory.loans; loan && rc == 0; loan = loan->next)
		rc = register_loan(p, loan);
	return rc;
}

static void dereg(struct ibv_mr **mr)
{
	if (*mr)
		ibv_dereg_mr(*mr);
	*mr = NULL;
}

void memory_deregister_all(struct stag_pool *p)
{
	for (unsigned int i = 0; i < BUFFER_SIZES; i++) {
		for (struct buffer *b = p->memory.buffers[i], *next; b; b = next) {
			next = b->next;
			free_buffer(b);
		}
		p->memory.buffers[i] = NULL;
		p->memory.kept[i] = 0;
	}
	for (struct slab *slab = p->queue.slabs; slab; slab = slab->next)
		dereg(&slab->mr);
	for (struct loan *loan = p->memory.loans; loan; loan = loan->next)
		dereg(&loan->mr);
}

void memory_free_all(struct stag_pool *p)
{
	for (struct loan *loan = p->memory.loans, *next; loan; loan = next) {
		next = loan->next;
		free(loan);
	}
	for (struct slab *slab = p->queue.slabs, *next; slab; slab = next) {
		next = slab->next;
		for (size_t i = 0; i < sizeof(slab->ops) / sizeof(slab->ops[0]); i++)
			pool_hashing_free(slab->ops[i].hashing);
		free(slab->small);
		free(slab);
	}
}
