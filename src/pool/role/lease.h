/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lease.h - the arithmetic of heartbeats and leases. Time is an argument: nanoseconds of a clock that also counts
 * while the machine sleeps (CLOCK_BOOTTIME). Times of two machines are never compared.
 *
 * A primary sends a heartbeat. A standby that echoes it promises not to promote itself for `promote` after it
 * received it. The primary serves for `lease` after it sent it, less what two clocks may differ by. A heartbeat is
 * sent before it is received, so the primary stops serving before the standby may promote itself, without a common
 * clock.
 */
#ifndef STAG_POOL_LEASE_H
#define STAG_POOL_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct lease_terms {
	uint64_t beat; /* ns between heartbeats */
	uint64_t
		lease; /* ns for which a primary may serve after it sent a heartbeat that was echoed */
	uint64_t promote; /* ns of silence before a standby promotes itself; not less than lease */
	uint64_t
		stagger; /* ns that it waits longer for each standby before it in order (roll_before()) */
	uint32_t drift; /* parts per million that a clock may be off by, in either direction */
};

#define LEASE_FOREVER UINT64_MAX

extern const struct lease_terms lease_defaults;

/* Returns NULL, or what is wrong with the terms. */
const char *lease_terms_fault(const struct lease_terms *terms);
uint32_t lease_in_us(uint64_t ns); /* clamped to UINT32_MAX */
/*
 * Returns whether these terms are safe with those of another node: neither may be promoted while the other still
 * serves.
 */
bool lease_goes_with(const struct lease_terms *terms, uint32_t lease_us, uint32_t promote_us);
/* Returns until when a heartbeat that was sent at `sent`, and echoed, lets a primary serve. */
uint64_t lease_until(const struct lease_terms *terms, uint64_t sent);
/*
 * Returns from when on a standby may promote itself that last heard its primary at `heard`, and has `before`
 * standbys before it.
 */
uint64_t lease_silence(const struct lease_terms *terms, uint64_t heard, unsigned int before);

#endif
