// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_load.c - stag pool load: clients change values for a while, then check that all acknowledged changes are there.
 *
 * Each client has names of its own and puts to one after the other, waiting for each answer. So the value that a name
 * must have at the end is known: the one acknowledged last or, if the outcome of a later put is unknown, that of either.
 */
#include "pool_use.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "progress.h"
#include "stag.h"
#include "store.h"
#include "times.h"

#define RETRY_MS 60000
#define NAMES	 500 /* per client */
#define NAP_NS	 (20 * NS_PER_MS)

struct expectation {
	uint64_t acknowledged; /* number of the last put that was acknowledged; 0: none */
	uint64_t started_put;  /* number of the last put that was started */
};

struct client {
	struct load_run *run;
	struct stag_pool *pool;
	unsigned int number;
	pthread_t thread;
	struct expectation wishes[NAMES];
	struct times times;
	uint64_t unknown, lost, wrong, failovers;
	_Atomic uint64_t puts;
	int error; /* why it gave up; 0: it did not */
	char why[256];
	uint64_t *value; /* run->size bytes */
};

struct load_run {
	unsigned int num_clients;
	size_t size;
	double seconds; /* 0: until SIGINT or SIGTERM */
	uint64_t token; /* makes the names of this run differ from those of other runs */
	_Atomic bool stop;
	struct client *clients[POOL_LOAD_CLIENTS_MAX];
};

static volatile sig_atomic_t told_to_stop;

static void on_signal(int sig)
{
	(void)sig;
	told_to_stop = 1;
}

/* ---- one value --------------------------------------------------------------------------- */

static void name_of(const struct client *c, unsigned int i, char name[64])
{
	snprintf(name, 64, "load/%016" PRIx64 "/%u/%u", c->run->token, c->number, i);
}

/* Returns a word of a value. Each word depends on the name and the put, so a value mixed of two puts is detected. */
static uint64_t word_of(const struct client *c, unsigned int i, uint64_t number, size_t at)
{
	return number ^ ((uint64_t)c->number << 48) ^ ((uint64_t)i << 32) ^
	       (at * 0x9e3779b97f4a7c15ull);
}

static void fill_value(struct client *c, unsigned int i, uint64_t number)
{
	for (size_t at = 0; at < c->run->size / sizeof(uint64_t); at++)
		c->value[at] = word_of(c, i, number, at);
}

/* Finds the number of the put that wrote the value. Returns false if it is of no put. */
static bool number_in(const struct client *c, unsigned int i, size_t length, uint64_t *number)
{
	if (length != c->run->size)
		return false;
	*number = c->value[0] ^ word_of(c, i, 0, 0);
	for (size_t at = 0; at < length / sizeof(uint64_t); at++)
		if (c->value[at] != word_of(c, i, *number, at))
			return false;
	return true;
}

/* ---- a client ---------------------------------------------------------------------------- */

static bool may_have_happened(int error)
{
	return error == ETIMEDOUT || error == ESTALE;
}

static void give_up(struct client *c, const char *what, int error)
{
	c->error = error;
	snprintf(c->why, sizeof(c->why), "%s: %s", what, stag_pool_error());
	atomic_store(&c->run->stop, true);
}

static void put_next(struct client *c, uint64_t number)
{
	unsigned int i = (unsigned int)(number % NAMES);
	uint64_t since;
	char name[64];
	int error;

	name_of(c, i, name);
	fill_value(c, i, number);
	c->wishes[i].started_put = number;
	since = clock_ns();
	error = stag_pool_put(c->pool, name, c->value, c->run->size, 0, NULL);
	if (error == 0) {
		times_note(&c->times, clock_ns() - since);
		c->wishes[i].acknowledged = number;
		atomic_fetch_add(&c->puts, 1);
	} else if (may_have_happened(error)) {
		c->unknown++;
	} else {
		give_up(c, "put", error);
	}
}

static void *put_until_stopped(void *arg)
{
	struct client *c = arg;

	for (uint64_t number = 1; !atomic_load(&c->run->stop); number++)
		put_next(c, number);
	return NULL;
}

/* ---- the check -------------------------------------------------------------------------- */

static void check_name(struct client *c, unsigned int i)
{
	const struct expectation *w = &c->wishes[i];
	size_t length = c->run->size;
	uint64_t number = 0;
	char name[64];
	int error;

	name_of(c, i, name);
	error = stag_pool_get(c->pool, name, c->value, &length, NULL);
	if (error == ENOENT)
		c->lost += w->acknowledged != 0;
	else if (error == EMSGSIZE || (error == 0 && !number_in(c, i, length, &number)))
		c->wrong++;
	else if (error != 0)
		give_up(c, "get", error);
	else if (number < w->acknowledged)
		c->lost++;
	else if (number > w->started_put)
		c->wrong++;
	if (error == 0)
		stag_pool_remove(c->pool, name);
}

static void *check_names(void *arg)
{
	struct stag_pool_info info = {0};
	struct client *c = arg;

	for (unsigned int i = 0; i < NAMES && c->error == 0; i++)
		if (c->wishes[i].started_put)
			check_name(c, i);
	if (stag_pool_query(c->pool, &info, sizeof(info)) == 0)
		c->failovers = info.failovers;
	return NULL;
}

/* ---- all clients ------------------------------------------------------------------------- */

static int start_threads(struct load_run *r, void *(*what)(void *))
{
	unsigned int started = 0;
	int rc = 0;

	while (started < r->num_clients && rc == 0) {
		rc = pthread_create(&r->clients[started]->thread, NULL, what, r->clients[started]);
		started += rc == 0;
	}
	if (rc != 0) {
		complain("cannot start a thread: %s", strerror(rc));
		atomic_store(&r->stop, true);
	}
	r->num_clients = started; /* a client without a thread has done nothing */
	return rc;
}

static void join_all(struct load_run *r)
{
	for (unsigned int i = 0; i < r->num_clients; i++)
		pthread_join(r->clients[i]->thread, NULL);
}

static bool all_began(const struct load_run *r)
{
	for (unsigned int i = 0; i < r->num_clients; i++)
		if (atomic_load(&r->clients[i]->puts) == 0)
			return false;
	return true;
}

static uint64_t puts_of(const struct load_run *r)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < r->num_clients; i++)
		sum += atomic_load(&r->clients[i]->puts);
	return sum;
}

/* Waits while the clients run: prints that they have all begun, and the progress on a terminal. */
static void watch_clients(struct load_run *r, uint64_t since)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};
	struct progress progress;
	bool told = false;
	char note[48];

	progress_begin(&progress, r->seconds > 0 ? "load" : "load, until SIGINT", PROGRESS_TIME,
		       (uint64_t)(r->seconds * NS_PER_S));
	while (!atomic_load(&r->stop) && !told_to_stop &&
	       (r->seconds == 0 || (double)(clock_ns() - since) < r->seconds * NS_PER_S)) {
		if (!told && all_began(r)) {
			fprintf(stderr, "%u clients are running\n", r->num_clients);
			told = true;
		}
		snprintf(note, sizeof(note), "%" PRIu64 " puts acknowledged", puts_of(r));
		progress_spent(&progress, note);
		nanosleep(&nap, NULL);
	}
	progress_end(&progress);
	atomic_store(&r->stop, true);
}

static bool add_client(const struct pool_use *u, struct load_run *r)
{
	struct client *c = calloc(1, sizeof(*c));

	if (c) {
		r->clients[r->num_clients] = c;
		*c = (struct client){.run = r, .number = r->num_clients++};
		c->value = malloc(r->size);
	}
	if (!c || !c->value) {
		complain("out of memory");
		return false;
	}
	c->pool = pool_use_open(u, RETRY_MS);
	return c->pool != NULL;
}

static void free_clients(struct load_run *r, unsigned int n)
{
	for (unsigned int i = 0; i < n && r->clients[i]; i++) {
		if (r->clients[i]->pool)
			stag_pool_close(r->clients[i]->pool);
		free(r->clients[i]->value);
		free(r->clients[i]);
	}
}

/* ---- the result --------------------------------------------------------------------- */

struct sum {
	struct times times;
	uint64_t puts, unknown, lost, wrong, failovers;
	const struct client *gave_up;
};

static void add_times(struct times *to, const struct times *t)
{
	for (unsigned int i = 0; i < TIMES_PLACES; i++)
		to->count[i] += t->count[i];
	to->n += t->n;
	to->sum += t->sum;
	if (t->max > to->max)
		to->max = t->max;
}

static void add_up(const struct load_run *r, struct sum *s)
{
	for (unsigned int i = 0; i < r->num_clients; i++) {
		const struct client *c = r->clients[i];

		add_times(&s->times, &c->times);
		s->puts += atomic_load(&c->puts);
		s->unknown += c->unknown;
		s->lost += c->lost;
		s->wrong += c->wrong;
		if (c->failovers > s->failovers)
			s->failovers = c->failovers;
		if (c->error && !s->gave_up)
			s->gave_up = c;
	}
}

static void print_sum(const struct load_run *r, const struct sum *s, double seconds)
{
	printf("puts       %" PRIu64 " acknowledged, %.0f a second, by %u clients\n", s->puts,
	       (double)s->puts / seconds, r->num_clients);
	printf("times      ");
	times_print(&s->times);
	printf("longest    %.1f ms\n", (double)s->times.max / NS_PER_MS);
	printf("failovers  %" PRIu64 "\n", s->failovers);
	printf("lost       %" PRIu64 "; wrong %" PRIu64 "; of %" PRIu64
	       " puts with unknown outcome\n",
	       s->lost, s->wrong, s->unknown);
}

static void print_result(const struct pool_use *u, const struct load_run *r, const struct sum *s,
			 double seconds)
{
	if (u->json)
		store_dump(json_pack("{s:i s:f s:I s:f s:o s:f s:I s:I s:I s:I}", "clients",
				     (int)r->num_clients, "seconds", seconds, "puts",
				     (json_int_t)s->puts, "puts_per_s", (double)s->puts / seconds,
				     "us", times_json(&s->times), "longest_ms",
				     (double)s->times.max / NS_PER_MS, "failovers",
				     (json_int_t)s->failovers, "lost", (json_int_t)s->lost, "wrong",
				     (json_int_t)s->wrong, "unknown", (json_int_t)s->unknown));
	else
		print_sum(r, s, seconds);
}

static bool is_correct(const struct sum *s)
{
	if (s->gave_up)
		complain("client %u gave up: %s", s->gave_up->number, s->gave_up->why);
	else if (s->puts == 0)
		complain("no put was acknowledged");
	else if (s->lost || s->wrong)
		complain("%" PRIu64 " values differ from what was acknowledged",
			 s->lost + s->wrong);
	else
		return true;
	return false;
}

/* ---- the verb ---------------------------------------------------------------------------- */

static int run_load(const struct pool_use *u, struct load_run *r)
{
	uint64_t since = clock_ns();
	struct sum s = {0};
	double seconds;
	int rc = start_threads(r, put_until_stopped);

	if (rc == 0)
		watch_clients(r, since);
	join_all(r);
	seconds = (double)(clock_ns() - since) / NS_PER_S;
	if (rc == 0)
		rc = start_threads(r, check_names);
	if (rc != 0)
		return EXIT_FAILED;
	join_all(r);
	add_up(r, &s);
	print_result(u, r, &s, seconds);
	return is_correct(&s) ? EXIT_OK : EXIT_FAILED;
}

int pool_use_load(const struct pool_use *u)
{
	const struct sigaction stop = {.sa_handler = on_signal};
	const size_t word = sizeof(uint64_t); /* a value consists of these */
	struct load_run r = {.seconds = u->seconds,
			     .size = (u->load_size + word - 1) / word * word,
			     .token = clock_ns() ^ ((uint64_t)getpid() << 40)};
	unsigned int made;
	int rc = EXIT_FAILED;

	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	while (r.num_clients < u->load_clients && add_client(u, &r))
		;
	made = r.num_clients;
	if (made == u->load_clients && r.clients[made - 1]->pool)
		rc = run_load(u, &r);
	free_clients(&r, made);
	return rc;
}
