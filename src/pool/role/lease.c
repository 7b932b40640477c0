// SPDX-License-Identifier: BSD-2-Clause
/* lease.c - the arithmetic of heartbeats and leases (lease.h). Pure. */
#include "pool/role/lease.h"

#include "base/clock.h"

#define MILLION	  1000000u
#define MAX_DRIFT (MILLION / 4)
#define MAX_TERM  (3600 * NS_PER_S)

const struct lease_terms lease_defaults = {
	.beat = 2 * NS_PER_MS,
	.lease = 20 * NS_PER_MS,
	.promote = 24 * NS_PER_MS,
	.stagger = 4 * NS_PER_MS,
	.drift = 1000,
};

const char *lease_terms_fault(const struct lease_terms *t)
{
	if (t->beat == 0 || t->beat > t->lease / 2)
		return "beat has to be at most half of the lease";
	if (t->promote < t->lease)
		return "promote has to be at least as long as the lease, so that it ends first";
	if (t->promote > MAX_TERM || t->stagger > MAX_TERM)
		return "more than an hour of silence before a promotion";
	if (t->drift > MAX_DRIFT)
		return "clocks may differ by a quarter at most";
	return NULL;
}

uint32_t lease_in_us(uint64_t ns)
{
	return ns / 1000 < UINT32_MAX ? (uint32_t)(ns / 1000) : UINT32_MAX;
}

bool lease_goes_with(const struct lease_terms *t, uint32_t lease_us, uint32_t promote_us)
{
	return lease_in_us(t->promote) >= lease_us && lease_in_us(t->lease) <= promote_us;
}

/*
 * A clock that is slow by d makes the primary's lease last lease / (1 - d), one that is fast makes the standby's
 * silence as short as promote / (1 + d). With promote >= lease it is enough to serve for lease * (1 - d) / (1 + d),
 * and 1 - 2d is less than that.
 */
uint64_t lease_until(const struct lease_terms *t, uint64_t sent)
{
	uint64_t margin = (t->lease * 2 * t->drift + MILLION - 1) / MILLION;

	return sent + t->lease - margin;
}

uint64_t lease_silence(const struct lease_terms *t, uint64_t heard, unsigned int before)
{
	return heard + t->promote + before * t->stagger;
}
