// SPDX-License-Identifier: BSD-2-Clause
/*
 * life.c - the processes of clients: starts them, runs operations at their rate, kills, replaces
 * and ends them; and a single client that reads every value while no other client runs (the sweep).
 */
#include "client.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "linear.h"
#include "stag.h"

#define PATIENCE_NS (120 * NS_PER_S) /* for operations in flight, once all faults are healed */
#define PROBE_RATE  4u /* times the rate of a client: by default every half millisecond */

/* ---- a client's life ---- */

static bool make_memory(struct client *c, unsigned int depth)
{
	for (unsigned int i = 0; i < depth; i++) {
		c->flights[i].memory = malloc(MAX_VALUE);
		if (!c->flights[i].memory)
			return false;
	}
	return true;
}

static struct stag_pool *open_pool(const struct torture *t)
{
	struct stag_pool_attr attr = {
		.user = USER, .secret = SECRET, .timeout_ms = 30000, .retry_ms = -1};

	return stag_pool_open(t->where, &attr);
}

static void sleep_until(uint64_t until)
{
	struct timespec ts = {.tv_sec = (time_t)(until / NS_PER_S),
			      .tv_nsec = (long)(until % NS_PER_S)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

/* Waits until an operation has returned or the next one is due. */
static void wait_for_return(struct client *c, uint64_t until)
{
	uint64_t now = clock_ns();

	if (c->in_flight == c->depth)
		stag_pool_wait(c->pool, 50);
	else if (c->in_flight && until > now + NS_PER_MS)
		stag_pool_wait(c->pool, 1);
	else if (until > now)
		sleep_until(until);
}

static void run_operations(struct client *c, bool (*one)(struct client *c), uint64_t pace)
{
	uint64_t next = clock_ns();

	while (!atomic_load(&c->t->shared->stop)) {
		client_collect(c);
		if (c->in_flight < c->depth && clock_ns() >= next) {
			if (!one(c))
				break;
			next += pace;
			if (next + 50 * pace < clock_ns()) /* do not catch up after a long stall */
				next = clock_ns();
		} else {
			wait_for_return(c, next);
		}
	}
}

/* Waits for the operations in flight, and deletes the values that found no slot. */
static void drain_client(struct client *c)
{
	uint64_t until = clock_ns() + PATIENCE_NS;

	for (;;) {
		client_collect(c);
		if (c->in_flight == 0) {
			if (!c->num_orphans || !client_start_one(c))
				return;
		} else if (clock_ns() > until) {
			atomic_store(&c->journal->timed_out, true);
			return;
		}
		stag_pool_wait(c->pool, 20);
	}
}

static void become_client(struct torture *t, unsigned int id)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN);
	if (net_enter(&t->net, client_host(t, id)) != 0)
		_exit(EXIT_FAILED);
}

static void run_client(struct torture *t, unsigned int id)
{
	bool is_prober = id == t->o.clients;
	struct client *c = calloc(1, sizeof(*c));

	become_client(t, id);
	if (!c)
		_exit(EXIT_FAILED);
	*c = (struct client){.t = t, .id = id, .journal = &t->shared->journals[id]};
	c->dice.state = t->o.seed ^ (uint64_t)(t->phase + 1) << 32 ^
			(id + 1 + MAX_CLIENTS * t->restarts[id]) * 0x9e3779b97f4a7c15u;
	c->only_reads = !is_prober && id % 4 == 1;
	c->depth = is_prober ? PROBE_DEPTH : 1 + id % DEPTH;
	for (unsigned int s = 0; s < SLOTS; s++)
		c->states[s] = t->shared->slots[s].object ? SLOT_USED : SLOT_FREE;
	c->pool = make_memory(c, c->depth) ? open_pool(t) : NULL;
	if (!c->pool) {
		complain("client %u: %s", id, stag_pool_error());
		_exit(EXIT_FAILED);
	}
	if (is_prober)
		run_operations(c, client_start_probe, NS_PER_S / (PROBE_RATE * t->o.rate));
	else
		run_operations(c, client_start_one, NS_PER_S / t->o.rate);
	while (!atomic_load(&t->shared->stop))
		wait_for_return(c, clock_ns() + NS_PER_MS), client_collect(c);
	drain_client(c);
	if (!atomic_load(&c->journal->timed_out))
		stag_pool_close(c->pool);
	_exit(EXIT_OK);
}

/* ---- the sweep ---- */

static bool sweep_one(struct client *c, const char *name, uint64_t object,
		      const struct stag_pool_ptr *ptr)
{
	uint32_t index;
	struct entry *d = entry_begin(c->journal, &index);
	size_t length = MAX_VALUE;
	uint64_t version = 0;
	int rc;

	if (!d)
		return false;
	d->act = name ? ACT_GET : ACT_READ;
	d->object = object;
	d->client = (uint16_t)c->id;
	d->call = clock_ns();
	rc = name ? stag_pool_get(c->pool, name, c->flights[0].memory, &length, &version)
		  : stag_pool_read(c->pool, ptr, c->flights[0].memory, &length, &version);
	d->outcome = entry_outcome(c, d, rc);
	d->error = rc;
	if (rc == 0) {
		d->version = version;
		client_finish_read(c, &c->flights[0], d, length);
	}
	d->ret = clock_ns();
	atomic_store(&c->journal->count, index + 1);
	return d->outcome != LINEAR_UNKNOWN;
}

static bool sweep_names(struct client *c)
{
	char name[32];

	for (unsigned int n = 0; n < NAMES + PROBE_NAMES; n++) {
		snprintf(name, sizeof(name), n < NAMES ? "torture %u" : "probe %u",
			 n < NAMES ? n : n - NAMES);
		if (!sweep_one(c, name, n + 1, NULL))
			return false;
	}
	return true;
}

static bool sweep_slots(struct client *c, const struct slot *slots, unsigned int n)
{
	struct stag_pool_ptr ptr;
	uint64_t object;

	for (unsigned int s = 0; s < n; s++)
		if (slot_read(&slots[s], &object, &ptr) && !sweep_one(c, NULL, object, &ptr))
			return false;
	return true;
}

/* Runs a client that uses the pool alone, with one synchronous call after the other. */
static void run_single_client(struct torture *t, bool (*task)(struct client *c))
{
	unsigned int id = t->o.clients + 1;
	struct client *c = calloc(1, sizeof(*c));
	bool good;

	become_client(t, id);
	if (!c)
		_exit(EXIT_FAILED);
	*c = (struct client){.t = t, .id = id, .journal = &t->shared->journals[id]};
	c->dice.state = t->o.seed;
	c->pool = make_memory(c, 1) ? open_pool(t) : NULL;
	good = c->pool && task(c);
	if (!good)
		complain("the client that sweeps all values: %s", stag_pool_error());
	if (c->pool)
		stag_pool_close(c->pool);
	_exit(good ? EXIT_OK : EXIT_FAILED);
}

static bool sweep_all(struct client *c)
{
	const struct shared *shared = c->t->shared;

	return sweep_names(c) && sweep_slots(c, shared->slots, SLOTS) &&
	       sweep_slots(c, shared->permanent, PERMANENT);
}

/* Inserts values that no client changes: every sweep has to find them by these pointers. */
static bool insert_permanent(struct client *c)
{
	uint8_t *memory = c->flights[0].memory;

	for (unsigned int i = 0; i < PERMANENT; i++) {
		struct stag_pool_ptr ptr;
		uint32_t length = 8 + client_draw_length(c) % 16384;
		uint64_t id = (uint64_t)(i + 1) << 32;

		value_make(memory, length, id);
		if (stag_pool_insert(c->pool, memory, length, &ptr) != 0)
			return false;
		slot_write(&c->t->shared->permanent[i], INSERTED | id, &ptr);
	}
	return sweep_slots(c, c->t->shared->permanent, PERMANENT);
}

/* ---- in the parent's process ---- */

static bool start_client(struct torture *t, unsigned int id)
{
	fflush(NULL);
	t->clients[id] = fork();
	if (t->clients[id] == 0)
		run_client(t, id);
	if (t->clients[id] > 0)
		return true;
	t->clients[id] = 0;
	return fail_phase(t, "cannot fork: %s", strerror(errno));
}

bool clients_start(struct torture *t)
{
	bool good = true;

	atomic_store(&t->shared->stop, false);
	memset(t->restarts, 0, sizeof(t->restarts));
	for (unsigned int i = 0; good && i <= t->o.clients; i++)
		good = start_client(t, i);
	return good;
}

/* Stops the client while its journal is consistent. Returns false if it has ended by itself. */
static bool stop_client(const struct torture *t, unsigned int id)
{
	int status;

	for (;;) {
		kill(t->clients[id], SIGSTOP);
		if (waitpid(t->clients[id], &status, WUNTRACED) < 0 || !WIFSTOPPED(status))
			return false;
		if (!atomic_load(&t->shared->journals[id].busy))
			return true;
		kill(t->clients[id], SIGCONT);
		usleep(100);
	}
}

bool client_restart(struct torture *t, unsigned int id, double after)
{
	struct journal *d = &t->shared->journals[id];

	if (!stop_client(t, id)) {
		t->clients[id] = 0;
		return fail_phase(t, "client %u has ended by itself", id);
	}
	note_fault(t, false, "kill client%u", id);
	kill(t->clients[id], SIGKILL);
	waitpid(t->clients[id], NULL, 0);
	t->clients[id] = 0;
	t->unknown_inserts += atomic_exchange(&d->orphans, 0);
	t->restarts[id]++;
	return pass_time(t, after) && start_client(t, id);
}

static bool await_end(struct torture *t, pid_t *pid, const char *who, uint64_t until)
{
	int status;

	while (waitpid(*pid, &status, WNOHANG) == 0) {
		if (clock_ns() > until)
			return fail_phase(t, "%s has not ended in time", who);
		if (!pass_time(t, 0.005))
			return false;
	}
	*pid = 0;
	if (WIFSIGNALED(status))
		return fail_phase(t, "%s died of signal %d", who, WTERMSIG(status));
	return WEXITSTATUS(status) == EXIT_OK ||
	       fail_phase(t, "%s ended with %d", who, WEXITSTATUS(status));
}

bool clients_finish(struct torture *t)
{
	uint64_t until = clock_ns() + PATIENCE_NS + 30 * NS_PER_S;
	bool good = true;
	char who[32];

	atomic_store(&t->shared->stop, true);
	for (unsigned int i = 0; good && i <= t->o.clients; i++) {
		snprintf(who, sizeof(who), "client %u", i);
		good = t->clients[i] == 0 || await_end(t, &t->clients[i], who, until);
	}
	for (unsigned int i = 0; good && i <= t->o.clients; i++)
		if (atomic_load(&t->shared->journals[i].timed_out))
			good = fail_phase(t, "client %u: operations did not return", i);
	return good;
}

static bool fork_single_client(struct torture *t, bool (*task)(struct client *c), const char *who)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		run_single_client(t, task);
	if (pid < 0)
		return fail_phase(t, "cannot fork: %s", strerror(errno));
	t->clients[0] = pid;
	return await_end(t, &t->clients[0], who, clock_ns() + 60 * NS_PER_S);
}

bool clients_sweep(struct torture *t)
{
	return fork_single_client(t, sweep_all, "the client that sweeps all values");
}

bool clients_insert_permanent(struct torture *t)
{
	return fork_single_client(t, insert_permanent,
				  "the client that inserts the permanent values");
}

void clients_end(struct torture *t)
{
	for (unsigned int i = 0; i <= t->o.clients; i++)
		if (t->clients[i] > 0) {
			kill(t->clients[i], SIGKILL);
			waitpid(t->clients[i], NULL, 0);
			t->clients[i] = 0;
		}
}

uint64_t clients_done(const struct torture *t)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i <= t->o.clients; i++)
		sum += atomic_load(&t->shared->journals[i].done);
	return sum;
}
