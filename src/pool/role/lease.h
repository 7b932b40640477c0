/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lease.h - arithmetic of heartbeats and what they promise. Time is an argument: nanoseconds of a clock that goes on
 * while the machine sleeps (CLOCK_BOOTTIME), never compared with another machine's.
 *
 * A primary sends a beat. A standby that answers it promises not to take over for `promote` after it received it. The
 * primary serves for `lease` after it sent it, less what two clocks may differ by. What was sent was received later,
 * so the primary has stopped before the standby begins: with no clock in common.
 */
#ifndef STAG_POOL_LEASE_H
#define STAG_POOL_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct lease_terms {
	uint64_t beat;	  /* ns between heartbeats */
	uint64_t lease;	  /* ns that an answered beat is good for */
	uint64_t promote; /* ns of silence before a standby takes over; not less than lease */
	uint64_t stagger; /* ns more for each standby that is before it in order */
	uint32_t drift;	  /* parts per million that a clock may be wrong by, either way */
};

#define LEASE_FOREVER UINT64_MAX

extern const struct lease_terms lease_defaults;

/* NULL, or what is wrong with them. */
const char *lease_terms_fault(const struct lease_terms *terms);
uint32_t lease_in_us(uint64_t ns); /* UINT32_MAX: or more */
/* Neither serves on while the other may take over: these terms, and those of another node. */
bool lease_goes_with(const struct lease_terms *terms, uint32_t lease_us, uint32_t promote_us);
/* Until when a beat that was sent then, and answered, lets a primary serve. */
uint64_t lease_until(const struct lease_terms *terms, uint64_t sent);
/* From when on a standby that heard its primary then, and has `before` others before it, may take over. */
uint64_t lease_silence(const struct lease_terms *terms, uint64_t heard, unsigned int before);

#endif
