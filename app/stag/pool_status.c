// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_status.c - stag pool status, watch, switchover and forget.
 */
#include "pool_use.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "colour.h"
#include "pool_primary.h"
#include "pool_words.h"
#include "stag.h"
#include "store.h"
#include "tls_words.h"

#define RETRY_MS 10000
#define EVENTS	 8

/* ---- words ------------------------------------------------------------------------------- */

static unsigned int count_of(const struct stag_pool_info *i, enum stag_pool_role role)
{
	unsigned int found = 0;

	for (uint32_t n = 0; n < i->num_members; n++)
		found += i->members[n].role == role;
	return found;
}

static json_t *rights_json(uint32_t rights)
{
	json_t *list = json_array();

	if (rights & STAG_POOL_RIGHT_READ)
		json_array_append_new(list, json_string("read"));
	if (rights & STAG_POOL_RIGHT_WRITE)
		json_array_append_new(list, json_string("write"));
	if (rights & STAG_POOL_RIGHT_ADMIN)
		json_array_append_new(list, json_string("admin"));
	return list;
}

/* Returns how many records a node is behind its primary. */
static uint64_t lag_of(const struct stag_pool_info *i, const struct stag_pool_member *m)
{
	return i->number > m->number ? i->number - m->number : 0;
}

/* Returns how the connection to the primary is encrypted, in the words of live queries, or null. */
static json_t *tls_json(const struct stag_pool_info *i)
{
	return i->tls_version[0]
		       ? json_pack("{s:s, s:s, s:s}", "version", i->tls_version, "cipher",
				   i->tls_cipher, "kernel", tls_kernel_word(i->tls_kernel))
		       : json_null();
}

static json_t *info_json(const struct stag_pool_info *i)
{
	json_t *o = json_pack("{s:s, s:o, s:b}", "name", i->name, "rights", rights_json(i->rights),
			      "limited", (int)i->limited);

	json_object_set_new(o, "lease_us",
			    i->lease_us == STAG_POOL_NO_LEASE
				    ? json_null()
				    : json_integer((json_int_t)i->lease_us));
	json_object_set_new(o, "tls", tls_json(i));
	json_object_update_new(o, pool_info_json(i));
	return o;
}

static enum colour colour_of(uint32_t role)
{
	switch ((enum stag_pool_role)role) {
	case STAG_POOL_ROLE_PRIMARY:
		return COLOUR_GREEN;
	case STAG_POOL_ROLE_UNKNOWN:
	case STAG_POOL_ROLE_REFUSED:
		return COLOUR_RED;
	case STAG_POOL_ROLE_JOINING:
	case STAG_POOL_ROLE_WAITING:
		return COLOUR_YELLOW;
	case STAG_POOL_ROLE_STANDBY:
		break;
	}
	return COLOUR_NONE;
}

static void print_members(const struct stag_pool_info *i)
{
	char a[32], b[32];

	printf("%-20s %-24s %-12s %14s %8s\n", "NODE", "ADDRESS", "ROLE", "RECORD", "LAG");
	for (uint32_t n = 0; n < i->num_members; n++) {
		const struct stag_pool_member *m = &i->members[n];

		printf("%-20s %-24s %s%-12s%s", m->name, m->address, colour(colour_of(m->role)),
		       pool_role_word(m->role), colour(COLOUR_NONE));
		if (m->role != STAG_POOL_ROLE_UNKNOWN)
			printf(" %14" PRIu64 " %8" PRIu64, m->number, lag_of(i, m));
		if (m->role == STAG_POOL_ROLE_JOINING && m->total)
			printf("  copied %s of %s, %.0f %%", store_size_word(m->done, a, sizeof(a)),
			       store_size_word(m->total, b, sizeof(b)),
			       100.0 * (double)m->done / (double)m->total);
		puts("");
	}
}

static void print_lease(const struct stag_pool_info *i)
{
	if (i->lease_us == STAG_POOL_NO_LEASE)
		puts("lease      none is needed: no other node could become primary");
	else
		printf("lease      %.1f ms, unless its standbys extend it\n",
		       (double)i->lease_us / 1000);
}

static void print_clients(const struct stag_pool_info *i)
{
	printf("clients    %" PRIu64 ", %" PRIu64 " paused, %" PRIu64 " evicted so far; "
	       "%" PRIu64 " of %" PRIu64 " slots in use, %" PRIu64 " reclaimed so far\n\n",
	       i->clients, i->paused, i->evicted, i->slots, i->max_slots, i->reclaimed);
}

static void print_tls(const struct stag_pool_info *i)
{
	if (i->tls_version[0])
		printf("encrypted  %s, %s%s\n", i->tls_version, i->tls_cipher,
		       tls_kernel_text(tls_kernel_word(i->tls_kernel)));
	else
		puts("encrypted  no");
}

static void print_info(const struct stag_pool_info *i)
{
	char uuid[37], a[32], b[32];

	store_uuid_word(i->uuid, uuid);
	printf("pool       %s  %s\n", i->name, uuid);
	printf("epoch      %" PRIu64 "\n", i->epoch);
	print_lease(i);
	printf("memory     %s at 0x%" PRIx64 ", %s used (%.1f %%)\n",
	       store_size_word(i->size, a, sizeof(a)), i->address,
	       store_size_word(i->used, b, sizeof(b)),
	       i->size ? 100.0 * (double)i->used / (double)i->size : 0);
	printf("values     %" PRIu64 ", %s; %" PRIu64 " have names\n", i->objects,
	       store_size_word(i->bytes, a, sizeof(a)), i->names);
	print_tls(i);
	print_clients(i);
	print_members(i);
	if (count_of(i, STAG_POOL_ROLE_STANDBY) == 0 && pool_primary(i))
		puts("\nNO STANDBY IS IN SYNC: the data of the pool is lost with its primary. "
		     "'stag "
		     "pool join' adds a node");
}

/* ---- status ------------------------------------------------------------------------------ */

int pool_use_status(const struct pool_use *u)
{
	struct stag_pool *pool = pool_use_open(u, RETRY_MS);
	struct stag_pool_info info = {0};
	int rc;

	if (!pool)
		return EXIT_FAILED;
	rc = stag_pool_query(pool, &info, sizeof(info));
	if (rc != 0)
		complain_for(rc, u->pool, "%s", stag_pool_error());
	else if (u->json)
		store_dump(info_json(&info));
	else
		print_info(&info);
	pool_use_close(u, pool);
	return rc == 0 ? EXIT_OK : EXIT_FAILED;
}

/* ---- switchover and forget ----------------------------------------------------------------- */

static void print_switchover(const struct pool_use *u, const struct stag_pool_info *i, uint64_t ns)
{
	const struct stag_pool_member *p = pool_primary(i);

	if (u->json)
		store_dump(json_pack("{s:s, s:I, s:f}", "primary", p ? p->name : "", "epoch",
				     (json_int_t)i->epoch, "seconds", (double)ns / NS_PER_S));
	else
		printf("%s is primary, epoch %" PRIu64 "; it took %.1f ms\n",
		       p ? p->name : "nobody", i->epoch, (double)ns / NS_PER_MS);
}

static const char *switch_advice(int error)
{
	switch (error) {
	case EBUSY:
		return "; 'stag pool status' shows which nodes are in sync";
	case EACCES:
		return "; this needs a user with the right 'admin'";
	default:
		return "";
	}
}

/* Hands over as soon as the node, or any (NULL), is in sync; it may be about to join. *since: when that began */
static int switch_when_in_sync(const struct pool_use *u, struct stag_pool *pool, const char *to,
			       struct stag_pool_info *info, uint64_t *since)
{
	struct pool_wait wait;
	int rc;

	pool_wait_begin(&wait, u);
	pool_wait_for(&wait, "%s%s to be in sync", to ? "node " : "a standby", to ? to : "");
	do {
		*since = clock_ns();
		rc = pool_switch_when_in_sync(pool, to, *since, info);
	} while ((rc == EBUSY || rc == ENOENT) && pool_wait_more(&wait));
	pool_wait_end(&wait);
	return rc;
}

static int switch_primary(const struct pool_use *u, struct stag_pool *pool)
{
	struct stag_pool_info info = {0};
	uint64_t since;
	int rc = switch_when_in_sync(u, pool, u->num_args > 0 ? u->args[0] : NULL, &info, &since);

	if (rc != 0) {
		complain_for(rc, u->pool, "%s%s", stag_pool_error(), switch_advice(rc));
		return rc;
	}
	rc = pool_await_epoch(pool, info.epoch, clock_ns() + RETRY_MS * NS_PER_MS, &info);
	if (rc == ETIMEDOUT)
		complain_for(
			ESTALE, u->pool,
			"no node became primary; 'stag pool status' shows which nodes are in sync");
	else if (rc != 0)
		complain_for(rc, u->pool, "%s", stag_pool_error());
	else
		print_switchover(u, &info, clock_ns() - since);
	return rc;
}

int pool_use_switchover(const struct pool_use *u)
{
	struct stag_pool *pool = pool_use_open(u, RETRY_MS);
	int rc;

	if (!pool)
		return EXIT_FAILED;
	rc = switch_primary(u, pool);
	pool_use_close(u, pool);
	return rc == 0 ? EXIT_OK : EXIT_FAILED;
}

int pool_use_forget(const struct pool_use *u)
{
	struct stag_pool *pool = pool_use_open(u, RETRY_MS);
	int rc;

	if (!pool)
		return EXIT_FAILED;
	rc = stag_pool_forget(pool, u->args[0]);
	if (rc != 0)
		complain_for(rc, u->args[0], "%s%s", stag_pool_error(),
			     rc == EBUSY ? "; stop that node first" : switch_advice(rc));
	else if (u->json)
		store_dump(json_pack("{s:s}", "forgotten", u->args[0]));
	pool_use_close(u, pool);
	return rc == 0 ? EXIT_OK : EXIT_FAILED;
}

/* ---- watch ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = 1;
}

struct watch {
	const struct pool_use *u;
	struct stag_pool *pool; /* NULL: not connected */
	struct stag_pool_info now, before;
	bool known; /* `before` is set */
	uint64_t at, at_before;
	bool in_place;
	char events[EVENTS][160];
	unsigned int num_events;
};

static void clock_word(char text[16])
{
	time_t now = time(NULL);
	struct tm tm;

	strftime(text, 16, "%H:%M:%S", localtime_r(&now, &tm));
}

static void note_event(struct watch *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void note_event(struct watch *w, const char *fmt, ...)
{
	char *event = w->events[w->num_events++ % EVENTS], time[16];
	va_list ap;
	int len;

	clock_word(time);
	len = snprintf(event, sizeof(w->events[0]), "%s  ", time);
	va_start(ap, fmt);
	vsnprintf(event + len, sizeof(w->events[0]) - (size_t)len, fmt, ap);
	va_end(ap);
	if (!w->in_place && !w->u->json)
		puts(event);
}

static void note_primary(struct watch *w)
{
	const struct stag_pool_member *is = pool_primary(&w->now), *was = pool_primary(&w->before);

	if (w->now.epoch != w->before.epoch)
		note_event(w, "epoch %" PRIu64 ": %s is primary, after %s", w->now.epoch,
			   is ? is->name : "nobody", was ? was->name : "nobody");
}

static void note_members(struct watch *w)
{
	for (uint32_t n = 0; n < w->now.num_members; n++) {
		const struct stag_pool_member *m = &w->now.members[n];
		const struct stag_pool_member *was = pool_member(&w->before, m->name);

		if (!was || was->role != m->role)
			note_event(w, "%s: %s, before: %s", m->name, pool_role_word(m->role),
				   was ? pool_role_word(was->role) : "not there");
	}
	for (uint32_t n = 0; n < w->before.num_members; n++)
		if (!pool_member(&w->now, w->before.members[n].name))
			note_event(w, "%s: gone", w->before.members[n].name);
}

/* Returns changes per second, by the number of the primary's last record. */
static double changes_per_second(const struct watch *w)
{
	const struct stag_pool_member *is = pool_primary(&w->now), *was = pool_primary(&w->before);

	if (!w->known || !is || !was || w->at == w->at_before || is->number < was->number)
		return 0;
	return (double)(is->number - was->number) * 1e9 / (double)(w->at - w->at_before);
}

static void print_in_place(const struct watch *w)
{
	unsigned int shown = w->num_events < EVENTS ? w->num_events : EVENTS;

	fputs("\033[H\033[J", stdout);
	if (w->pool)
		print_info(&w->now);
	else
		puts("no primary answers");
	printf("\n%.0f changes/s\n\n", changes_per_second(w));
	for (unsigned int i = w->num_events - shown; i < w->num_events; i++)
		puts(w->events[i % EVENTS]);
}

static void print_line(const struct watch *w)
{
	const struct stag_pool_member *p = pool_primary(&w->now);
	char time[16], used[32];

	clock_word(time);
	if (!w->pool)
		printf("%s  no primary answers\n", time);
	else
		printf("%s  epoch %" PRIu64 ", primary %s, %u copies in sync, %" PRIu64
		       " values, %s used, %.0f changes/s\n",
		       time, w->now.epoch, p ? p->name : "none",
		       count_of(&w->now, STAG_POOL_ROLE_STANDBY) + (p ? 1 : 0), w->now.objects,
		       store_size_word(w->now.used, used, sizeof(used)), changes_per_second(w));
}

static void print_json_line(const struct watch *w)
{
	json_t *o = w->pool ? info_json(&w->now) : json_pack("{s:n}", "primary");

	json_object_set_new(o, "changes_per_second", json_real(changes_per_second(w)));
	json_dumpf(o, stdout, JSON_COMPACT);
	puts("");
	json_decref(o);
}

/* Queries the pool; opens it again after its primary was lost for long. */
static void query_pool(struct watch *w)
{
	w->before = w->now;
	w->at_before = w->at;
	if (!w->pool)
		w->pool = pool_use_open(w->u, RETRY_MS);
	w->at = clock_ns();
	if (w->pool && stag_pool_query(w->pool, &w->now, sizeof(w->now)) != 0) {
		note_event(w, "%s", stag_pool_error());
		stag_pool_close(w->pool);
		w->pool = NULL;
	}
	if (!w->pool)
		return;
	if (w->known) {
		note_primary(w);
		note_members(w);
	}
	w->known = true;
}

static void show_pool(const struct watch *w)
{
	if (w->u->json)
		print_json_line(w);
	else if (w->in_place)
		print_in_place(w);
	else
		print_line(w);
	fflush(stdout);
}

static void sleep_for(double seconds)
{
	struct timespec time = {.tv_sec = (time_t)seconds};

	time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
	nanosleep(&time, NULL); /* a signal ends it */
}

int pool_use_watch(const struct pool_use *u)
{
	struct pool_use again = *u; /* it tells that no primary answers, rather than wait for one */
	struct watch w = {.u = &again, .in_place = isatty(STDOUT_FILENO) && !u->json};
	struct sigaction action = {.sa_handler = on_signal};

	w.pool = pool_use_open(u, RETRY_MS);
	if (!w.pool)
		return EXIT_FAILED;
	again.wait = 0;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	for (uint64_t n = 0; !interrupted && (u->count == 0 || n < u->count); n++) {
		if (n > 0)
			sleep_for(u->interval);
		if (interrupted)
			break;
		query_pool(&w);
		show_pool(&w);
	}
	if (w.pool)
		stag_pool_close(w.pool);
	return EXIT_OK;
}
