// SPDX-License-Identifier: BSD-2-Clause
/*
 * node.c - nodes of the pool: their processes, their roles, their memory.
 *
 * A node publishes its state in memory that it shares with the parent, so the parent needs no
 * connection to it. The pool's memory is read in place, through /proc/PID/mem.
 */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "stag.h"

#define VIEW_INTERVAL_NS (2 * NS_PER_MS) /* between two updates of the view */
#define STALE_NS	 (500 * NS_PER_MS)
#define QUIET_NS	 (60 * NS_PER_S) /* for nodes to agree on a primary and apply the same */
#define COMPARISONS	 10
#define SETTLED_S	 1.0 /* after which any change in the pool is visible in the views */
#define CHUNK		 (1u << 20)

/* ---- in the node's process ---- */

static volatile sig_atomic_t stop_requested;

static void on_term(int sig)
{
	(void)sig;
	stop_requested = 1;
}

static void publish_view(struct view *v, struct stag_pool_node *node)
{
	struct stag_pool_node_info info = {0};
	uint32_t turn = atomic_load(&v->turn) | 1;

	if (stag_pool_node_query(node, &info, sizeof(info)) != 0)
		return;
	atomic_store(&v->turn, turn);
	v->info = info;
	atomic_store(&v->at, clock_ns());
	atomic_store(&v->turn, turn + 1);
}

static void do_requested_switchover(struct view *v, struct stag_pool_node *node)
{
	uint32_t wanted = atomic_load(&v->wanted);

	if (wanted == atomic_load(&v->done))
		return;
	atomic_store(&v->result, stag_pool_node_switchover(node, NULL));
	atomic_store(&v->done, wanted);
}

static struct stag_pool_node *start_node(const struct torture *t, unsigned int n)
{
	const struct stag_pool_user users[] = {
		{.name = USER,
		 .secret = SECRET,
		 .rights = STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE | STAG_POOL_RIGHT_ADMIN}};
	char name[16], state[260], address[32], advertise[40];
	struct stag_pool_node_attr attr = {
		.pool = "torture",
		.node = name,
		.roll = t->roll,
		.state = state,
		.secret = t->secret,
		.address = address,
		.advertise = advertise,
		.port = net_port(&t->net, n, STAG_POOL_PORT),
		.flags = n == 0 && !t->nodes[0].was_there ? STAG_POOL_CREATE : 0,
		.size = t->o.size,
		.users = users,
		.num_users = 1,
		.beat_us = t->o.beat_us,
		.lease_ms = t->o.lease_ms,
		.promote_ms = t->o.promote_ms,
	};

	snprintf(name, sizeof(name), "node%u", n);
	snprintf(state, sizeof(state), "%s/%s", t->directory, name);
	net_address(&t->net, n, 0, address, sizeof(address));
	net_address(&t->net, n, STAG_POOL_PORT, advertise, sizeof(advertise));
	if (mkdir(state, 0700) != 0 && errno != EEXIST)
		return NULL;
	return stag_pool_node_start(&attr);
}

static void serve_node(const struct torture *t, unsigned int n)
{
	struct view *v = &t->shared->views[n];
	struct stag_pool_node *node;

	log_to_file(t, "node", n);
	signal(SIGTERM, on_term);
	signal(SIGINT, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a full disk is one of the faults */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (net_enter(&t->net, n) != 0)
		_exit(EXIT_FAILED);
	node = start_node(t, n);
	if (!node) {
		fprintf(stderr, "node%u: %s\n", n, stag_pool_error());
		_exit(EXIT_FAILED);
	}
	while (!stop_requested) {
		publish_view(v, node);
		do_requested_switchover(v, node);
		usleep(VIEW_INTERVAL_NS / 1000);
	}
	stag_pool_node_stop(node);
	_exit(EXIT_OK);
}

/* ---- in the parent ---- */

bool node_start(struct torture *t, unsigned int n)
{
	struct node *node = &t->nodes[n];
	pid_t pid;

	atomic_store(&t->shared->views[n].at, 0);
	atomic_store(&t->shared->views[n].done, atomic_load(&t->shared->views[n].wanted));
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		serve_node(t, n);
	if (pid < 0)
		return fail_phase(t, "cannot fork: %s", strerror(errno));
	*node = (struct node){.pid = pid, .was_there = true};
	note_fault(t, false, "start node%u", n);
	return true;
}

void node_signal(struct torture *t, unsigned int n, int sig)
{
	struct node *node = &t->nodes[n];

	if (node->pid == 0)
		return;
	kill(node->pid, sig);
	if (sig == SIGSTOP || sig == SIGCONT)
		node->stopped = sig == SIGSTOP;
	if (sig != SIGKILL)
		return;
	waitpid(node->pid, NULL, 0);
	node->pid = 0;
	node->stopped = false;
}

bool node_view(const struct torture *t, unsigned int n, struct stag_pool_node_info *info)
{
	struct view *v = &t->shared->views[n];
	uint32_t turn;

	if (t->nodes[n].pid == 0)
		return false;
	for (unsigned int tries = 0; tries < 1000; tries++) {
		turn = atomic_load(&v->turn);
		*info = v->info;
		atomic_thread_fence(memory_order_acquire);
		if (turn % 2 == 0 && atomic_load(&v->turn) == turn)
			return clock_ns() - atomic_load(&v->at) < STALE_NS;
	}
	return false; /* the node was killed while it wrote */
}

int node_primary(const struct torture *t)
{
	struct stag_pool_node_info info;
	uint64_t epoch = 0;
	int found = -1;

	for (unsigned int n = 0; n < t->o.nodes; n++)
		if (!t->nodes[n].stopped && node_view(t, n, &info) &&
		    info.role == STAG_POOL_ROLE_PRIMARY && info.epoch > epoch) {
			epoch = info.epoch;
			found = (int)n;
		}
	return found;
}

uint64_t nodes_epoch(const struct torture *t)
{
	uint64_t most = 0;

	for (unsigned int n = 0; n < t->o.nodes; n++)
		if (t->shared->views[n].info.epoch > most)
			most = t->shared->views[n].info.epoch;
	return most;
}

bool nodes_check_alive(struct torture *t)
{
	for (unsigned int n = 0; n < t->o.nodes; n++) {
		int status;

		if (t->nodes[n].pid == 0 || waitpid(t->nodes[n].pid, &status, WNOHANG) <= 0)
			continue;
		t->nodes[n] = (struct node){.was_there = true};
		if (WIFSIGNALED(status))
			return fail_phase(t, "node%u died of signal %d (%s/node%u.log)", n,
					  WTERMSIG(status), t->directory, n);
		return fail_phase(t, "node%u ended with %d (%s/node%u.log)", n, WEXITSTATUS(status),
				  t->directory, n);
	}
	return true;
}

bool nodes_await_primary(struct torture *t, double seconds)
{
	uint64_t until = clock_ns() + (uint64_t)(seconds * 1e9);

	while (node_primary(t) < 0) {
		if (clock_ns() > until)
			return fail_phase(t,
					  "no node is primary %.0f s after all faults were healed",
					  seconds);
		if (!pass_time(t, 0.002))
			return false;
	}
	return true;
}

/* Do the primary and all others report it? */
static bool all_in_sync(const struct torture *t)
{
	struct stag_pool_node_info info;
	unsigned int standbys = 0;
	int primary = node_primary(t);

	if (primary < 0 || !node_view(t, (unsigned int)primary, &info))
		return false;
	for (unsigned int m = 0; m < info.num_members && m < STAG_POOL_NODES_MAX; m++)
		standbys += info.members[m].role == STAG_POOL_ROLE_STANDBY;
	for (unsigned int n = 0; n < t->o.nodes; n++) {
		struct stag_pool_node_info other;

		if ((int)n == primary)
			continue;
		if (t->nodes[n].stopped || !node_view(t, n, &other) ||
		    other.role != STAG_POOL_ROLE_STANDBY || other.epoch != info.epoch)
			return false;
	}
	return standbys == t->o.nodes - 1;
}

static const char *role_name(uint32_t role)
{
	static const char *const names[] = {"unknown", "primary", "standby", "joining", "waiting"};

	return role < sizeof(names) / sizeof(*names) ? names[role] : "?";
}

static void describe_nodes(const struct torture *t, char *text, size_t size)
{
	size_t used = 0;

	for (unsigned int n = 0; n < t->o.nodes && used < size; n++) {
		struct stag_pool_node_info info = {0};
		bool fresh = node_view(t, n, &info);

		used += (size_t)snprintf(text + used, size - used, "%snode%u %s", n ? ", " : "", n,
					 t->nodes[n].pid == 0 ? "is dead"
					 : !fresh	      ? "is silent"
							      : role_name(info.role));
	}
}

bool nodes_await_all(struct torture *t, double seconds)
{
	uint64_t until = clock_ns() + (uint64_t)(seconds * 1e9);
	char text[100];

	while (!all_in_sync(t)) {
		if (clock_ns() > until) {
			describe_nodes(t, text, sizeof(text));
			return fail_phase(t, "not all nodes are in sync after %.0f s: %s", seconds,
					  text);
		}
		if (!pass_time(t, 0.002))
			return false;
	}
	return true;
}

bool nodes_switch_over(struct torture *t)
{
	int primary = node_primary(t);
	struct view *v;
	uint64_t until = clock_ns() + 20 * NS_PER_S;
	uint32_t wanted;

	if (primary < 0)
		return true;
	v = &t->shared->views[primary];
	wanted = atomic_load(&v->wanted) + 1;
	note_fault(t, false, "switchover from node%d", primary);
	atomic_store(&v->wanted, wanted);
	while (atomic_load(&v->done) != wanted) {
		if (clock_ns() > until)
			return fail_phase(t, "a switchover from node%d has not ended in time",
					  primary);
		if (!pass_time(t, 0.001))
			return false;
	}
	/*
	 * EBUSY: no standby is in sync just now; ENOTCONN and others: the node is no longer
	 * primary.
	 */
	return true;
}

void nodes_end(struct torture *t)
{
	for (unsigned int n = 0; n < t->o.nodes; n++)
		node_signal(t, n, SIGKILL);
}

/* ---- memory ---- */

static int open_memory(const struct torture *t, unsigned int n)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)t->nodes[n].pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Returns the offset of the first difference, or length. */
static size_t first_difference(const uint8_t *a, const uint8_t *b, size_t length)
{
	size_t i = 0;

	if (memcmp(a, b, length) == 0)
		return length;
	while (a[i] == b[i])
		i++;
	return i;
}

/* Returns false, with a reason in why, if the memory differs or cannot be read. */
static bool compare_with(struct torture *t, unsigned int primary, unsigned int n,
			 const struct stag_pool_node_info *info, char *why, size_t size)
{
	CLEANUP_FREE uint8_t *mine = malloc(CHUNK), *theirs = malloc(CHUNK);
	CLEANUP_CLOSE int a = open_memory(t, primary);
	CLEANUP_CLOSE int b = open_memory(t, n);

	if (!mine || !theirs || a < 0 || b < 0) {
		snprintf(why, size, "cannot read the memory of nodes: %s", strerror(errno));
		return false;
	}
	for (uint64_t done = 0; done < info->size;) {
		size_t length = info->size - done < CHUNK ? (size_t)(info->size - done) : CHUNK;
		off_t at = (off_t)(info->address + done);
		size_t same;

		if (pread(a, mine, length, at) != (ssize_t)length ||
		    pread(b, theirs, length, at) != (ssize_t)length) {
			snprintf(why, size, "cannot read the memory of nodes at %#llx: %s",
				 (unsigned long long)at, strerror(errno));
			return false;
		}
		same = first_difference(mine, theirs, length);
		if (same < length) {
			snprintf(why, size,
				 "memory of node%u and node%u differs at offset %#llx: %#x, %#x",
				 primary, n, (unsigned long long)(done + same), mine[same],
				 theirs[same]);
			return false;
		}
		done += length;
	}
	t->now->compared_bytes += info->size;
	return true;
}

static bool compare_all(struct torture *t, unsigned int primary,
			const struct stag_pool_node_info *info, char *why, size_t size)
{
	for (unsigned int n = 0; n < t->o.nodes; n++)
		if (n != primary && !compare_with(t, primary, n, info, why, size))
			return false;
	return true;
}

/* Reads the node's view. Returns false if it was not updated after `since`. */
static bool has_view_since(const struct torture *t, unsigned int n, uint64_t since,
			   struct stag_pool_node_info *info)
{
	return node_view(t, n, info) && atomic_load(&t->shared->views[n].at) > since;
}

bool nodes_query_primary(struct torture *t, struct stag_pool_node_info *info)
{
	uint64_t since = clock_ns();

	for (;;) {
		int primary = node_primary(t);

		if (primary >= 0 && has_view_since(t, (unsigned int)primary, since, info))
			return true;
		if (clock_ns() > since + QUIET_NS)
			return fail_phase(t, "no node is primary");
		if (!pass_time(t, 0.005))
			return false;
	}
}

/* Have all nodes applied the same records? */
static bool is_quiet(const struct torture *t, uint64_t since, int *primary,
		     struct stag_pool_node_info *info)
{
	*primary = node_primary(t);
	if (*primary < 0 || !has_view_since(t, (unsigned int)*primary, since, info))
		return false;
	for (unsigned int n = 0; n < t->o.nodes; n++) {
		struct stag_pool_node_info other;

		if (!has_view_since(t, n, since, &other) || other.number != info->number ||
		    other.epoch != info->epoch || other.role == STAG_POOL_ROLE_JOINING)
			return false;
	}
	return true;
}

/* Waits until all nodes have applied the same records. */
static bool await_quiet(struct torture *t, int *primary, struct stag_pool_node_info *info)
{
	uint64_t since = clock_ns();

	while (!is_quiet(t, since, primary, info)) {
		if (clock_ns() > since + QUIET_NS)
			return fail_phase(t,
					  "standbys have not applied all records of the primary");
		if (!pass_time(t, 0.005))
			return false;
	}
	return true;
}

/* Was there a failover, or a standby that has to copy the memory again? */
static bool has_changed(const struct stag_pool_node_info *before,
			const struct stag_pool_node_info *now)
{
	return now->epoch != before->epoch || now->resyncs != before->resyncs;
}

/*
 * On an overloaded machine a failover may happen during the comparison. A difference is then no
 * fault, and the memory is compared again; a difference without a failover or resync is a fault.
 */
bool nodes_compare(struct torture *t)
{
	struct stag_pool_node_info before, now;
	char why[160] = "";
	int primary;

	for (unsigned int i = 0; i < COMPARISONS; i++) {
		if (!await_quiet(t, &primary, &before))
			return false;
		t->now->compared = compare_all(t, (unsigned int)primary, &before, why, sizeof(why));
		if (t->now->compared)
			return true;
		if (!pass_time(t, SETTLED_S) || !nodes_query_primary(t, &now))
			return false;
		if (!has_changed(&before, &now))
			break;
	}
	return fail_phase(t, "%s", why);
}
