// SPDX-License-Identifier: BSD-2-Clause
/*
 * calls.c - the public calls of an initiator (stag/block.h).
 */
#include "block/initiator/initiator.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/export.h"

STAG_EXPORT struct stag_block *stag_block_open(const char *url, const struct stag_block_attr *attr)
{
	struct stag_block *b;
	int rc = initiator_create(url, true, attr, &b);

	if (rc == 0) {
		rc = initiator_bring_up(b);
		if (rc != 0)
			initiator_destroy(b);
	}
	if (rc == 0)
		return b;
	errno = -rc;
	return NULL;
}

STAG_EXPORT void stag_block_close(struct stag_block *b)
{
	if (!b)
		return;
	initiator_log_out(b);
	initiator_destroy(b);
}

STAG_EXPORT int stag_block_query(struct stag_block *b, struct stag_block_info *info, size_t size)
{
	struct stag_block_info now = b->info;

	snprintf(now.target, sizeof(now.target), "%s", b->config.url.target);
	memset(info, 0, size);
	memcpy(info, &now, size < sizeof(now) ? size : sizeof(now));
	return 0;
}

static struct initiator_region *find_lent(struct stag_block *b, const void *addr)
{
	list_for_each (it, &b->regions) {
		struct initiator_region *l = list_entry(it, struct initiator_region, link);

		if (l->addr == addr)
			return l;
	}
	return NULL;
}

STAG_EXPORT int stag_block_lend(struct stag_block *b, void *addr, size_t length)
{
	struct initiator_region *l;
	int rc;

	if (!addr || !length)
		return EINVAL;
	if (find_lent(b, addr))
		return EEXIST;
	l = malloc(sizeof(*l));
	if (!l)
		return ENOMEM;
	*l = (struct initiator_region){.addr = addr, .length = length};
	rc = b->line && b->line->ops->lend ? b->line->ops->lend(b->line, l) : 0;
	if (rc != 0) {
		free(l);
		return -rc;
	}
	list_add_tail(&b->regions, &l->link);
	return 0;
}

static bool request_uses(const struct initiator_request *r, const struct initiator_region *l)
{
	for (int i = 0; r && i < r->n_iov; i++) {
		const uint8_t *at = r->iov[i].iov_base;

		if (at < l->addr + l->length && at + r->iov[i].iov_len > l->addr)
			return true;
	}
	return false;
}

STAG_EXPORT int stag_block_unlend(struct stag_block *b, void *addr)
{
	struct initiator_region *l = find_lent(b, addr);

	if (!l)
		return ENOENT;
	for (uint32_t i = 0; i < b->config.depth; i++)
		if (request_uses(b->io.cmds[i].request, l))
			return EBUSY;
	list_for_each (it, &b->io.queue)
		if (request_uses(list_entry(it, struct initiator_request, link), l))
			return EBUSY;
	if (b->line && b->line->ops->unlend)
		b->line->ops->unlend(b->line, l);
	list_del(&l->link);
	free(l);
	return 0;
}

/* Sends at once if nothing is in flight; else the next poll sends the request, together with others. */
STAG_EXPORT int stag_block_submit(struct stag_block *b, const struct stag_block_io *io)
{
	int rc;

	if (b->state == INIT_GONE)
		return -block_fail(ENODEV, "%s", b->attempt.words);
	rc = initiator_io_check(b, io);
	if (rc == 0)
		rc = initiator_io_queue(b, io);
	if (rc == 0 && b->io.num_in_flight == 0)
		initiator_start(b);
	return -rc;
}

static int deliver(struct stag_block *b, struct stag_block_done *done, int n)
{
	int given = 0;

	while (given < n && !list_empty(&b->io.done)) {
		struct initiator_request *r =
			list_entry(b->io.done.next, struct initiator_request, link);

		done[given++] = (struct stag_block_done){r->user, r->error, r->sense};
		list_del(&r->link);
		free(r);
	}
	return given;
}

STAG_EXPORT int stag_block_poll(struct stag_block *b, struct stag_block_done *done, int n)
{
	int given = deliver(b, done, n);

	if (given == n)
		return given;
	do {
		initiator_step(b);
		given += deliver(b, done + given, n - given);
	} while (given == 0 && b->events.wakes_fd && b->line && b->line->ops->arm &&
		 b->line->ops->arm(b->line) != 0);
	return given;
}

STAG_EXPORT int stag_block_wait(struct stag_block *b, int timeout_ms)
{
	uint64_t end = timeout_ms < 0 ? 0 : clock_ns() + (uint64_t)timeout_ms * NS_PER_MS;

	for (;;) {
		initiator_step(b);
		if (!list_empty(&b->io.done))
			return 0;
		if (b->state == INIT_GONE)
			return ENODEV;
		if (end && clock_ns() >= end)
			return ETIMEDOUT;
		initiator_sleep(b, end ? initiator_left_ms(end) : -1);
	}
}

STAG_EXPORT int stag_block_fd(struct stag_block *b)
{
	b->events.wakes_fd = true;
	return b->events.epoll;
}

/* ---- one at a time ---------------------------------------------------------------------------------------- */

/* Removes the request with this mark from the done list. Requests of the caller stay there. */
static int reap_marked(struct stag_block *b, const void *mark, int *error)
{
	list_for_each (it, &b->io.done) {
		struct initiator_request *r = list_entry(it, struct initiator_request, link);

		if (r->user != mark)
			continue;
		*error = r->error;
		list_del(it);
		free(r);
		return 1;
	}
	return 0;
}

static int submit_and_wait(struct stag_block *b, struct stag_block_io *io)
{
	int error, rc;

	io->user = &error; /* unique */
	rc = stag_block_submit(b, io);
	if (rc != 0)
		return rc;
	while (!reap_marked(b, &error, &error)) {
		initiator_step(b);
		if (reap_marked(b, &error, &error))
			break;
		initiator_sleep(b, -1);
	}
	if (error)
		block_fail(error, "%s: %s", b->config.url.target, strerror(error));
	return error;
}

STAG_EXPORT int stag_block_read(struct stag_block *b, void *to, uint64_t offset, size_t length)
{
	struct iovec iov = {to, length};
	struct stag_block_io io = {
		.op = STAG_BLOCK_READ, .offset = offset, .length = length, .iov = &iov, .n_iov = 1};

	return submit_and_wait(b, &io);
}

STAG_EXPORT int stag_block_write(struct stag_block *b, const void *from, uint64_t offset,
				 size_t length, unsigned int flags)
{
	struct iovec iov = {(void *)(uintptr_t)from, length};
	struct stag_block_io io = {.op = STAG_BLOCK_WRITE,
				   .flags = flags,
				   .offset = offset,
				   .length = length,
				   .iov = &iov,
				   .n_iov = 1};

	return submit_and_wait(b, &io);
}

STAG_EXPORT int stag_block_flush(struct stag_block *b)
{
	struct stag_block_io io = {.op = STAG_BLOCK_FLUSH};

	return submit_and_wait(b, &io);
}
