// SPDX-License-Identifier: BSD-2-Clause
/*
 * lease.c - arithmetic of heartbeats and what they promise (lease.h). Pure.
 */
#include "pool/role/lease.h"

#include "base/clock.h"

#define MILLION	  1000000u
#define MAX_DRIFT (MILLION / 4)
#define MAX_TERM  (3600 * NS_PER_S)

const struct lease_terms lease_defaults = {
	.beat = 2 * NS_PER_MS,
	.lease = 20 * NS_PER_MS,
	.takeover = 24 * NS_PER_MS,
	.stagger = 4 * NS_PER_MS,
	.drift = 1000,
};

const char *lease_terms_fault(const struct lease_terms *t)
{
	if (t->beat == 0 || t->beat > t->lease / 2)
		return "the heartbeat has to be at most half of the lease";
	if (t->takeover < t->lease)
		return "a standby may not take over before the lease has run out";
	if (t->takeover > MAX_TERM || t->stagger > MAX_TERM)
		return "more than an hour of silence before a takeover";
	if (t->drift > MAX_DRIFT)
		return "clocks that differ by more than a quarter are of no use";
	return NULL;
}

uint32_t lease_in_us(uint64_t ns)
{
	return ns / 1000 < UINT32_MAX ? (uint32_t)(ns / 1000) : UINT32_MAX;
}

bool lease_goes_with(const struct lease_terms *t, uint32_t lease_us, uint32_t takeover_us)
{
	return lease_in_us(t->takeover) >= lease_us && lease_in_us(t->lease) <= takeover_us;
}

/*
 * A clock that is slow by d makes the primary's lease last lease / (1 - d), one that is fast makes the standby's
 * silence as short as takeover / (1 + d). With takeover >= lease it is enough to serve for lease * (1 - d) / (1 + d),
 * and 1 - 2d is less than that.
 */
uint64_t lease_until(const struct lease_terms *t, uint64_t sent)
{
	uint64_t margin = (t->lease * 2 * t->drift + MILLION - 1) / MILLION;

	return sent + t->lease - margin;
}

uint64_t lease_silence(const struct lease_terms *t, uint64_t heard, unsigned int before)
{
	return heard + t->takeover + before * t->stagger;
}
