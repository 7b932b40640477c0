// SPDX-License-Identifier: BSD-2-Clause
/*
 * model.c - see model.h.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "dice.h"
#include "model.h"

#define PATIENCE_MS 60000

static struct stag_block *unit;

#define ZONES	 12
#define ZONE	 (256u << 10)
#define MOST_IOV 9

/* A part of the unit with at most one request in flight. */
static struct zone {
	uint8_t model[ZONE], memory[2 * ZONE];
	struct stag_block_io io;
	struct iovec iov[MOST_IOV];
	bool busy;
	bool wrong;   /* a COMPARE AND WRITE with other data than the unit has */
	bool unknown; /* the contents are not known: the next request writes all of it */
} zones[ZONES];

_Static_assert(ZONES *ZONE == MODEL_BYTES, "all of it");

/* Divides the memory into pieces of random lengths. */
static void scatter(struct zone *z, size_t len)
{
	size_t at = 0;
	int n = 0;

	while (at < len) {
		size_t some = n == MOST_IOV - 1 ? len - at : dice_size(len - at);

		z->iov[n++] = (struct iovec){z->memory + at, some};
		at += some;
	}
	z->io.iov = z->iov;
	z->io.n_iov = n;
}

static void fill_compare(struct zone *z, uint64_t at)
{
	z->io.length = 512 * (1 + dice(8));
	if (at + z->io.length > ZONE)
		z->io.length = ZONE - at;
	z->wrong = one_in(4);
	memcpy(z->memory, z->model + at, z->io.length);
	z->memory[dice(z->io.length)] ^= z->wrong;
	dice_fill(z->memory + z->io.length, z->io.length);
	scatter(z, 2 * z->io.length);
}

static void fill_request(struct zone *z, uint64_t base)
{
	static const uint32_t ops[] = {
		STAG_BLOCK_READ,  STAG_BLOCK_READ,  STAG_BLOCK_READ,
		STAG_BLOCK_WRITE, STAG_BLOCK_WRITE, STAG_BLOCK_WRITE,
		STAG_BLOCK_FLUSH, STAG_BLOCK_ZERO,  STAG_BLOCK_COMPARE_WRITE};
	uint64_t at = 512 * dice(ZONE / 512);

	z->io = (struct stag_block_io){.op = ops[dice(sizeof(ops) / sizeof(*ops))],
				       .offset = base + at,
				       .length = 512 * dice_size((ZONE - at) / 512),
				       .user = z};
	if (z->unknown)
		z->io = (struct stag_block_io){
			.op = STAG_BLOCK_WRITE, .offset = base, .length = ZONE, .user = z};
	switch (z->io.op) {
	case STAG_BLOCK_WRITE:
		z->io.flags = one_in(3) ? STAG_BLOCK_FUA : 0;
		dice_fill(z->memory, z->io.length);
		scatter(z, z->io.length);
		return;
	case STAG_BLOCK_READ:
		memset(z->memory, 0xee, z->io.length);
		scatter(z, z->io.length);
		return;
	case STAG_BLOCK_COMPARE_WRITE:
		fill_compare(z, at);
		return;
	}
}

static void check_compare(struct zone *z, uint8_t *at, int error, bool killed)
{
	if (killed && error == EIO) {
		z->unknown = true;
		return;
	}
	assert_int_equal(error, z->wrong ? EILSEQ : 0);
	if (!z->wrong)
		memcpy(at, z->memory + z->io.length, z->io.length);
}

static void check_done(const struct stag_block_done *d, bool killed)
{
	struct zone *z = d->user;
	uint8_t *at = z->model + z->io.offset % ZONE;

	assert_true(z->busy);
	z->busy = false;
	if (z->io.op == STAG_BLOCK_COMPARE_WRITE) {
		check_compare(z, at, d->error, killed);
		return;
	}
	assert_int_equal(d->error, 0);
	switch (z->io.op) {
	case STAG_BLOCK_READ:
		assert_memory_equal(z->memory, at, z->io.length);
		return;
	case STAG_BLOCK_WRITE:
		memcpy(at, z->memory, z->io.length);
		z->unknown = false;
		return;
	case STAG_BLOCK_ZERO:
		memset(at, 0, z->io.length);
		return;
	}
}

static void submit_all(unsigned long *left)
{
	for (unsigned int i = 0; i < ZONES && *left; i++) {
		struct zone *z = &zones[i];

		if (z->busy || one_in(3))
			continue;
		fill_request(z, (uint64_t)i * ZONE);
		z->busy = true;
		--*left;
		assert_int_equal(stag_block_submit(unit, &z->io), 0);
	}
}

static bool any_busy(void)
{
	for (unsigned int i = 0; i < ZONES; i++)
		if (zones[i].busy)
			return true;
	return false;
}

static void reap(bool killed)
{
	struct stag_block_done done[4];
	struct pollfd fd = {.fd = stag_block_fd(unit), .events = POLLIN};
	int n = stag_block_poll(unit, done, 4);

	for (int i = 0; i < n; i++)
		check_done(&done[i], killed);
	if (n > 0 || !any_busy())
		return;
	if (one_in(2))
		assert_int_equal(stag_block_wait(unit, PATIENCE_MS), 0);
	else
		assert_true(poll(&fd, 1, PATIENCE_MS) >= 0);
}

static void start_afresh(void)
{
	for (unsigned int i = 0; i < ZONES; i++) {
		memset(zones[i].model, 0, sizeof(zones[i].model));
		zones[i].busy = zones[i].unknown = false;
	}
}

void run_model(struct stag_block *b, const uint8_t *all, unsigned long requests, unsigned int kills,
	       void (*replace)(void))
{
	unit = b;
	start_afresh();
	while (requests || any_busy()) {
		submit_all(&requests);
		if (kills && one_in(kills))
			replace();
		reap(kills);
	}
	for (unsigned int i = 0; i < ZONES; i++)
		if (!zones[i].unknown)
			assert_memory_equal(all + (size_t)i * ZONE, zones[i].model, ZONE);
}

void lend_model(struct stag_block *b)
{
	for (unsigned int i = 0; i < ZONES; i += 2)
		assert_int_equal(stag_block_lend(b, zones[i].memory, sizeof(zones[i].memory)), 0);
}
