// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool.c - stag torture pool: a run and its phases.
 */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "stag.h"

#define START_S	    60.0
#define HEALED_S    90.0
#define MOST_FILLED (64u << 20) /* bytes: the largest pool that clients can fill */

/* ---- dice ---- */

/* splitmix64 */
uint64_t dice_next(struct dice *d)
{
	uint64_t x = d->state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

uint64_t dice_below(struct dice *d, uint64_t n)
{
	return dice_next(d) % n;
}

bool dice_one_in(struct dice *d, uint64_t n)
{
	return dice_below(d, n) == 0;
}

double dice_time(struct dice *d, double least, double most)
{
	double u = (double)(dice_next(d) >> 11) / 0x1p53;

	return most > least ? least * pow(most / least, u) : least;
}

/* ---- failures, faults, time ---- */

static volatile bool interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = true;
}

bool fail_phase(struct torture *t, const char *fmt, ...)
{
	va_list ap;

	if (t->now->failed)
		return false;
	t->now->failed = true;
	va_start(ap, fmt);
	vsnprintf(t->now->why, sizeof(t->now->why), fmt, ap);
	va_end(ap);
	return false;
}

void note_fault(struct torture *t, bool is_failover, const char *fmt, ...)
{
	struct fault *f = &t->faults[t->num_faults < MAX_FAULTS ? t->num_faults++ : MAX_FAULTS - 1];
	va_list ap;

	*f = (struct fault){.at = clock_ns(), .is_failover = is_failover};
	va_start(ap, fmt);
	vsnprintf(f->what, sizeof(f->what), fmt, ap);
	va_end(ap);
}

void log_to_file(const struct torture *t, const char *who, unsigned int number)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s%u.log", t->directory, who, number);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0)
		return;
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	close(fd);
}

bool pass_time(struct torture *t, double seconds)
{
	uint64_t until = clock_ns() + (uint64_t)(seconds * 1e9);

	for (;;) {
		uint64_t now = clock_ns();

		if (interrupted)
			return fail_phase(t, "interrupted");
		if (!nodes_check_alive(t))
			return false;
		show_progress(t);
		if (now >= until)
			return true;
		usleep(until - now > 20 * NS_PER_MS ? 20000 : (useconds_t)((until - now) / 1000));
	}
}

static uint64_t failovers_so_far(const struct torture *t)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < t->num_faults; i++)
		n += t->faults[i].is_failover;
	return n;
}

/* ---- a phase ---- */

static bool may_end(const struct torture *t, const struct phase *p)
{
	if (clock_ns() < t->phase_ends)
		return false;
	return !p->kills_primaries || failovers_so_far(t) >= t->o.failovers;
}

static bool inject_faults(struct torture *t, const struct phase *p)
{
	while (!may_end(t, p))
		if (!p->step(t))
			return false;
	return nemesis_heal(t);
}

/*
 * Compares the number of values: each has a pointer or a name, except one that was inserted twice.
 */
static bool count_values(struct torture *t)
{
	struct stag_pool_node_info info;
	uint64_t seen = t->now->check_result.seen;

	if (!nodes_query_primary(t, &info))
		return false;
	if (info.objects < seen)
		return fail_phase(t, "the pool has %llu values, but %llu were read",
				  (unsigned long long)info.objects, (unsigned long long)seen);
	if (info.objects > seen + t->unknown_inserts) {
		t->now->check_result.twice += info.objects - seen - t->unknown_inserts;
		return fail_phase(t, "the pool has %llu values, but only %llu were ever inserted",
				  (unsigned long long)info.objects, (unsigned long long)seen);
	}
	return true;
}

static bool check_phase(struct torture *t)
{
	if (!history_check(t, &t->now->check_result))
		return false;
	if (atomic_load(&t->shared->mixed))
		return fail_phase(t, "%u values were read that no client wrote",
				  atomic_load(&t->shared->mixed));
	if (atomic_load(&t->shared->errors))
		return fail_phase(t, "%u operations failed, the last with: %s",
				  atomic_load(&t->shared->errors),
				  strerror(atomic_load(&t->shared->last_error)));
	return count_values(t);
}

static bool run_phase(struct torture *t, const struct phase *p)
{
	history_begin(t);
	t->work = p->work;
	t->phase_began = clock_ns();
	t->phase_ends = t->phase_began + (uint64_t)(t->o.seconds * 1e9);
	t->first_epoch = nodes_epoch(t);
	atomic_store(&t->shared->no_room, 0);
	if (!clients_start(t) || !inject_faults(t, p))
		return false;
	return nodes_await_all(t, HEALED_S) && clients_finish(t) && clients_sweep(t) &&
	       check_phase(t) && nodes_compare(t);
}

/* Writes the history of the phase, as far as it got. */
static void keep_history(struct torture *t, struct phase_result *r)
{
	snprintf(r->history, sizeof(r->history), "%s/history-%u-%s", t->directory, t->phase,
		 r->name);
	if (history_write(t, r->history) != 0)
		*r->history = '\0';
}

static bool can_run_phase(const struct torture *t, const struct phase *p, struct phase_result *r)
{
	if (p->needs_net && !t->net.real)
		snprintf(r->why, sizeof(r->why), "no network namespaces");
	else if (p->needs_clock && !t->o.clock)
		snprintf(r->why, sizeof(r->why), "it would set this machine's clock; see --clock");
	else if (p->work == WORK_LARGE && t->o.size > MOST_FILLED)
		snprintf(r->why, sizeof(r->why), "clients cannot fill a pool of more than %u MiB",
			 MOST_FILLED >> 20);
	else
		return true;
	r->skipped = true;
	return false;
}

static void run_one_phase(struct torture *t, const struct phase *p, struct phase_result *r)
{
	*r = (struct phase_result){.name = p->name};
	t->now = r;
	if (!can_run_phase(t, p, r))
		return;
	run_phase(t, p);
	clients_end(t);
	r->seconds = (double)(clock_ns() - t->phase_began) / 1e9;
	r->failovers = nodes_epoch(t) - t->first_epoch;
	r->no_room = atomic_load(&t->shared->no_room);
	if (r->failed || t->o.keep)
		keep_history(t, r);
}

/* ---- a run ---- */

static void *map_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static bool make_shared(struct torture *t)
{
	t->shared = map_shared(sizeof(*t->shared));
	for (unsigned int i = 0; t->shared && i < t->o.clients + 2; i++) {
		t->shared->journals[i].entries = map_shared(MAX_OPS * sizeof(struct entry));
		if (!t->shared->journals[i].entries)
			return false;
	}
	return t->shared;
}

static bool make_directory(struct torture *t)
{
	const char *base = getenv("TMPDIR");

	if (t->o.directory) {
		snprintf(t->directory, sizeof(t->directory), "%s", t->o.directory);
		if (mkdir(t->directory, 0700) == 0 || errno == EEXIST)
			return true;
	} else {
		snprintf(t->directory, sizeof(t->directory), "%s/stag-torture-XXXXXX",
			 base ? base : "/tmp");
		if (mkdtemp(t->directory))
			return true;
	}
	complain("%s: %s", t->directory, strerror(errno));
	return false;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void list_nodes(struct torture *t)
{
	size_t used = 0;

	for (unsigned int n = 0; n < t->o.nodes; n++) {
		char address[40];

		net_address(&t->net, n, STAG_POOL_PORT, address, sizeof(address));
		used += (size_t)snprintf(t->where + used, sizeof(t->where) - used, "%s%s",
					 n ? "," : "", address);
	}
}

static bool start_nodes(struct torture *t)
{
	if (!node_start(t, 0) || !nodes_await_primary(t, START_S))
		return false;
	for (unsigned int n = 1; n < t->o.nodes; n++)
		if (!node_start(t, n))
			return false;
	return nodes_await_all(t, START_S);
}

static bool is_selected(const struct options *o, const char *name)
{
	for (unsigned int i = 0; i < o->num_phases; i++)
		if (strcmp(o->phases[i], name) == 0)
			return true;
	return o->num_phases == 0;
}

static unsigned int run_phases(struct torture *t, struct phase_result *results)
{
	unsigned int done = 0;

	for (unsigned int round = 0; round < t->o.rounds; round++)
		for (unsigned int i = 0; i < num_phases; i++) {
			if (!is_selected(&t->o, phases[i].name))
				continue;
			run_one_phase(t, &phases[i], &results[done++]);
			t->phase++;
			show_phase(t, t->now);
			if (t->now->failed)
				return done;
		}
	return done;
}

static void stop_everything(struct torture *t, bool failed)
{
	clock_restore(t);
	clients_end(t);
	nodes_end(t);
	roll_backend_stop(t);
	net_close(&t->net);
	if (failed || t->o.keep)
		fprintf(stderr, "logs and histories are in %s\n", t->directory);
	else if (!t->o.directory)
		nftw(t->directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int run_torture(struct torture *t)
{
	struct phase_result *results =
		calloc((size_t)t->o.rounds * num_phases + 1, sizeof(*results));
	struct phase_result start = {.name = "start"};
	unsigned int done = 0;
	bool failed = false;

	if (!results || !make_directory(t) || !make_shared(t)) {
		free(results);
		return EXIT_FAILED;
	}
	t->now = &start;
	t->phase_began = clock_ns();
	net_open(&t->net, t->o.nodes + t->o.etcd_members + CLIENT_HOSTS, !t->o.no_net, &t->dice);
	list_nodes(t);
	if (roll_backend_start(t) && start_nodes(t) && clients_insert_permanent(t))
		done = run_phases(t, results);
	if (start.failed)
		complain("%s", start.why);
	for (unsigned int i = 0; i < done; i++)
		failed |= results[i].failed;
	if (!start.failed)
		show_end(t, results, done);
	stop_everything(t, failed || start.failed);
	for (unsigned int i = 0; i < done; i++)
		free(results[i].check_result.times);
	free(results);
	return failed || start.failed ? EXIT_FAILED : EXIT_OK;
}

static void prepare_run(struct torture *t, const struct options *o)
{
	t->o = *o;
	if (t->o.seed == 0 && getrandom(&t->o.seed, sizeof(t->o.seed), 0) < 0)
		t->o.seed = clock_ns();
	t->o.seed &= INT64_MAX; /* JSON integers are signed */
	t->dice.state = t->o.seed;
	t->roll_lock = -1;
	snprintf(t->secret, sizeof(t->secret), "nodes %llx", (unsigned long long)t->o.seed);
	signal(SIGINT, on_interrupt);
	signal(SIGTERM, on_interrupt);
}

int torture_pool(const struct command *self, int argc, char **argv)
{
	static struct torture t;
	struct options o;
	int rc;

	if (!options_parse(&o, argc, argv, &rc))
		return rc;
	if (o.check)
		return history_check_file(o.check);
	if (preload_self(argc, argv) != 0)
		return EXIT_FAILED;
	prepare_run(&t, &o);
	return run_torture(&t);
}
