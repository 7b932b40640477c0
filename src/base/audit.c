// SPDX-License-Identifier: BSD-2-Clause
/*
 * audit.c - see audit.h.
 *
 * What is refused costs the peer nothing, so its rate is low; what is allowed is the work of somebody who has proven who he is,
 * and its rate only protects the log against a program that changes things in a loop. The two have budgets apart, so that nobody
 * hides an act behind refusals in the name of the same source.
 *
 * A source is found by a seeded hash in a table that does not grow. Two sources may share an entry and then share its budget, by
 * chance only: a peer cannot choose its entry.
 */
#include "base/audit.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/rate.h"
#include "base/source.h"

#define SOURCES 1024 /* a power of two */

_Atomic(const struct audit_sink *) audit_sink;

static struct rate refused[SOURCES], allowed[SOURCES];
static _Atomic uint64_t seed; /* 0: not chosen yet */

void audit_set_sink(const struct audit_sink *sink)
{
	uint64_t none = 0;

	atomic_compare_exchange_strong(&seed, &none,
				       (uint64_t)random_u32() << 32 | random_u32() | 1);
	atomic_store(&audit_sink, sink);
}

/* Mixes bytes into a hash with a secret start (the finaliser of murmur3 after each word). */
static uint64_t mix(uint64_t hash, const void *from, size_t len)
{
	const uint8_t *bytes = from;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = 0;

		memcpy(&word, bytes + i, len - i < 8 ? len - i : 8);
		hash = (hash ^ word) * 0xff51afd7ed558ccdull;
		hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ull;
		hash ^= hash >> 33;
	}
	return hash + len;
}

static size_t source_index(const struct stag_audit_record *r)
{
	uint64_t hash = atomic_load_explicit(&seed, memory_order_relaxed);
	uint8_t source[SOURCE_ROOM];

	if (r->room)
		hash = mix(hash, r->room, strlen(r->room));
	if (r->from)
		hash = mix(hash, source, source_of_text(r->from, source));
	if (r->user && r->outcome != STAG_AUDIT_REFUSED) /* else it is whatever the peer says */
		hash = mix(hash, r->user, strlen(r->user));
	return hash % SOURCES;
}

void audit_write(const struct stag_audit_record *record)
{
	static const struct rate_limit low = RATE_LIMIT(AUDIT_REFUSED_RATE, AUDIT_REFUSED_BURST),
				       high = RATE_LIMIT(AUDIT_ALLOWED_RATE, AUDIT_ALLOWED_BURST);
	const struct audit_sink *sink = atomic_load(&audit_sink);
	struct stag_audit_record r = *record;
	size_t i = source_index(record);
	bool is_refused = r.outcome == STAG_AUDIT_REFUSED;
	int saved = errno;

	if (sink && rate_allows(is_refused ? &refused[i] : &allowed[i], is_refused ? &low : &high,
				clock_ns(), &r.suppressed))
		sink->call(&r, sink->arg);
	errno = saved;
}
