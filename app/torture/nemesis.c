// SPDX-License-Identifier: BSD-2-Clause
/*
 * nemesis.c - faults, by phases: each step injects one, and heals it or leaves that to the end of
 * the phase.
 *
 * Faults that no pool survives are not injected: the last node in sync is not killed, because only
 * it has all the data. To be sure, the victim is stopped first, and the roll is read while the
 * victim cannot change it.
 */
#include "torture.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "stag.h"

#define HEALED_S 60.0 /* for nodes to reconnect */

static unsigned int any_node(struct torture *t)
{
	return (unsigned int)dice_below(&t->dice, t->o.nodes);
}

/* Draws a node: the primary every other time. */
static unsigned int some_node(struct torture *t)
{
	int primary = node_primary(t);

	return primary >= 0 && dice_one_in(&t->dice, 2) ? (unsigned int)primary : any_node(t);
}

static unsigned int some_ways(struct torture *t)
{
	return 1 + (unsigned int)dice_below(&t->dice, 3);
}

/* Returns the role that the roll gives to a node: primary, standby if it is in sync, or unknown. */
static uint32_t role_in(const struct stag_pool_roll *roll, unsigned int n)
{
	char name[16];

	snprintf(name, sizeof(name), "node%u", n);
	for (uint32_t i = 0; i < roll->num_members; i++)
		if (strcmp(roll->members[i].name, name) == 0)
			return roll->members[i].role;
	return STAG_POOL_ROLE_UNKNOWN;
}

/* ---- kill ---- */

/*
 * Asks the node itself: the roll may still list a node as in sync whose memory died with an earlier
 * process.
 */
static bool is_in_sync(const struct torture *t, unsigned int n)
{
	struct stag_pool_node_info info;

	return node_view(t, n, &info) &&
	       (info.role == STAG_POOL_ROLE_STANDBY || info.role == STAG_POOL_ROLE_PRIMARY);
}

/* Is another node alive and in sync? */
static bool has_successor(const struct torture *t, const struct stag_pool_roll *roll,
			  unsigned int victim)
{
	for (unsigned int n = 0; n < t->o.nodes; n++) {
		if (n != victim && role_in(roll, n) != STAG_POOL_ROLE_UNKNOWN && is_in_sync(t, n))
			return true;
	}
	return false;
}

/* Stops the victim. Returns false, and lets it run on, if it may be the last node in sync. */
static bool stop_unless_last(struct torture *t, unsigned int victim, struct stag_pool_roll *roll)
{
	if (t->nodes[victim].pid == 0)
		return false;
	node_signal(t, victim, SIGSTOP);
	if (roll_backend_read(t, roll) && has_successor(t, roll, victim))
		return true;
	node_signal(t, victim, SIGCONT);
	return false;
}

/* Returns false if the victim had to be left alive. */
static bool try_kill(struct torture *t, unsigned int victim)
{
	uint64_t began = clock_ns();
	struct stag_pool_roll roll;

	if (!stop_unless_last(t, victim, &roll))
		return false;
	note_fault(t, role_in(&roll, victim) == STAG_POOL_ROLE_PRIMARY, "kill node%u", victim);
	t->faults[t->num_faults - 1].at = began; /* stopped since then */
	node_signal(t, victim, SIGKILL);
	return true;
}

static bool restart_dead(struct torture *t)
{
	for (unsigned int n = 0; n < t->o.nodes; n++)
		if (t->nodes[n].pid == 0 && !node_start(t, n))
			return false;
	return true;
}

static bool kill_one(struct torture *t, bool primary)
{
	int at, victim;

	if (!nodes_await_all(t, HEALED_S) || !pass_time(t, dice_time(&t->dice, 0.001, 0.1)))
		return false;
	at = node_primary(t);
	if (at < 0)
		return true;
	victim = at;
	while (!primary && victim == at)
		victim = (int)any_node(t);
	if (!try_kill(t, (unsigned int)victim))
		return true;
	/* Restart it at once, or after the new primary has settled. */
	if (!nodes_await_primary(t, HEALED_S) ||
	    !pass_time(t, dice_time(&t->dice, 0.001, primary ? 0.05 : 0.3)))
		return false;
	return restart_dead(t);
}

static bool kill_primary(struct torture *t)
{
	return kill_one(t, true);
}

static bool kill_standby(struct torture *t)
{
	return kill_one(t, false);
}

/*
 * Kills the primary, then its successor as soon as another node is in sync, and now and then a
 * standby.
 */
static bool kill_in_turn(struct torture *t)
{
	int primary = node_primary(t);
	unsigned int victim =
		primary >= 0 && !dice_one_in(&t->dice, 4) ? (unsigned int)primary : any_node(t);

	if (try_kill(t, victim) && !pass_time(t, dice_time(&t->dice, 0.001, 0.1)))
		return false;
	return restart_dead(t) && pass_time(t, dice_time(&t->dice, 0.001, 0.2));
}

/* ---- stop and continue ---- */

static bool pause_node(struct torture *t, unsigned int n)
{
	double seconds = dice_time(&t->dice, 0.01, t->o.longest_pause);

	note_fault(t, false, "stop node%u for %.3f s", n, seconds);
	node_signal(t, n, SIGSTOP);
	if (!pass_time(t, seconds))
		return false;
	node_signal(t, n, SIGCONT);
	note_fault(t, false, "continue node%u", n);
	return true;
}

static bool pause_any(struct torture *t)
{
	unsigned int n = some_node(t), other = any_node(t);

	if (dice_one_in(&t->dice, 4) && other != n) { /* both; the second continues first */
		note_fault(t, false, "stop node%u", n);
		node_signal(t, n, SIGSTOP);
		if (!pass_time(t, dice_time(&t->dice, 0.001, 0.1)) || !pause_node(t, other))
			return false;
		node_signal(t, n, SIGCONT);
		note_fault(t, false, "continue node%u", n);
	} else if (!pause_node(t, n)) {
		return false;
	}
	return nodes_await_primary(t, HEALED_S) && pass_time(t, dice_time(&t->dice, 0.001, 0.3));
}

/* ---- the network ---- */

static void cut_pair(struct torture *t, unsigned int a, unsigned int b, unsigned int ways)
{
	note_fault(t, false, "cut host%u %s host%u", a,
		   ways == 3   ? "and"
		   : ways == 1 ? "to"
			       : "from",
		   b);
	if (ways & 1)
		net_cut(&t->net, a, b);
	if (ways & 2)
		net_cut(&t->net, b, a);
}

static void mend_pair(struct torture *t, unsigned int a, unsigned int b)
{
	net_mend(&t->net, a, b);
	net_mend(&t->net, b, a);
	note_fault(t, false, "mend host%u and host%u", a, b);
}

/* Cuts a node off from all other nodes and etcd, and every other time from the clients, too. */
static bool isolate_node(struct torture *t)
{
	unsigned int n = some_node(t), others = t->net.num_hosts;
	unsigned int ways = some_ways(t);

	if (dice_one_in(&t->dice, 2))
		others -= CLIENT_HOSTS;
	for (unsigned int h = 0; h < others; h++)
		if (h != n)
			cut_pair(t, n, h, ways);
	if (!pass_time(t, dice_time(&t->dice, 0.02, 2)))
		return false;
	for (unsigned int h = 0; h < others; h++)
		if (h != n)
			mend_pair(t, n, h);
	return true;
}

static bool cut_any(struct torture *t)
{
	unsigned int a = some_node(t), b = a;

	if (dice_one_in(&t->dice, 4)) {
		if (!isolate_node(t))
			return false;
	} else {
		while (b == a)
			b = (unsigned int)dice_below(&t->dice, t->net.num_hosts);
		cut_pair(t, a, b, some_ways(t));
		if (!pass_time(t, dice_time(&t->dice, 0.02, 2)))
			return false;
		mend_pair(t, a, b);
	}
	return nodes_await_primary(t, HEALED_S) && pass_time(t, dice_time(&t->dice, 0.001, 0.3));
}

static void limit_file_size(const struct torture *t, unsigned int n, rlim_t bytes)
{
	struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};

	if (t->nodes[n].pid)
		prlimit(t->nodes[n].pid, RLIMIT_FSIZE, &limit, NULL);
}

/* Keeps a node from etcd, or from changing the roll's file, as if its disk were full. */
static void cut_from_roll(struct torture *t, unsigned int n, unsigned int ways)
{
	if (t->o.etcd_members == 0) {
		note_fault(t, false, "node%u cannot change the roll", n);
		limit_file_size(t, n, 0);
	}
	for (unsigned int e = 0; e < t->o.etcd_members; e++)
		cut_pair(t, n, etcd_host(t, e), ways);
}

static void heal_net(struct torture *t)
{
	for (unsigned int n = 0; n < t->o.nodes; n++)
		limit_file_size(t, n, RLIM_INFINITY);
	if (!t->net.real)
		return;
	net_mend_all(&t->net);
	note_fault(t, false, "all links are mended");
}

/* Draws the hosts on the primary's side of a split: never all nodes, and always some clients. */
static uint32_t draw_side(struct torture *t, unsigned int primary)
{
	uint32_t nodes = (1u << t->o.nodes) - 1, side = 1u << primary;
	unsigned int clients = (unsigned int)dice_below(&t->dice, CLIENT_HOSTS);

	for (unsigned int n = 0; n < t->o.nodes; n++)
		if (dice_one_in(&t->dice, 3) && (side | 1u << n) != nodes)
			side |= 1u << n;
	return side | 1u << (t->net.num_hosts - 1 - clients);
}

/*
 * Splits the network in two, with nodes and clients on each side; the roll is reachable only from
 * the side without the primary.
 */
static bool split_network(struct torture *t)
{
	unsigned int ways = dice_one_in(&t->dice, 2) ? 3 : some_ways(t);
	uint32_t side;
	int primary;

	if (!nodes_await_all(t, HEALED_S))
		return false;
	primary = node_primary(t);
	if (primary < 0)
		return true;
	side = draw_side(t, (unsigned int)primary);
	if (t->o.etcd_members == 0)
		cut_from_roll(t, (unsigned int)primary, ways);
	for (unsigned int a = 0; a < t->net.num_hosts; a++)
		for (unsigned int b = 0; b < t->net.num_hosts; b++)
			if (side & 1u << a && !(side & 1u << b))
				cut_pair(t, a, b, ways);
	if (!pass_time(t, dice_time(&t->dice, 0.1, 2)))
		return false;
	heal_net(t);
	return nodes_await_primary(t, HEALED_S);
}

/* Lets some clients reach only node n. */
static void cut_clients_off_all_but(struct torture *t, unsigned int n)
{
	unsigned int host = client_host(t, 0) + (unsigned int)dice_below(&t->dice, CLIENT_HOSTS);

	for (unsigned int other = 0; other < t->o.nodes; other++)
		if (other != n)
			cut_pair(t, other, host, 3);
}

/*
 * Cuts the primary off from the roll. It serves on, since nothing has to be decided; after a long
 * stop it has a successor, and is the last to learn of it.
 */
static bool cut_primary_from_roll(struct torture *t)
{
	bool stops = !dice_one_in(&t->dice, 3);
	int primary;

	if (!nodes_await_all(t, HEALED_S))
		return false;
	primary = node_primary(t);
	if (primary < 0)
		return true;
	cut_from_roll(t, (unsigned int)primary, some_ways(t));
	if (dice_one_in(&t->dice, 2))
		cut_clients_off_all_but(t, (unsigned int)primary);
	if (stops && !pause_node(t, (unsigned int)primary))
		return false;
	if (!pass_time(t, dice_time(&t->dice, 0.05, 1)))
		return false;
	heal_net(t);
	return nodes_await_primary(t, HEALED_S);
}

static bool slow_any(struct torture *t)
{
	unsigned int host = (unsigned int)dice_below(&t->dice, t->net.num_hosts);

	note_fault(t, false, "host%u is slow", host);
	net_slow(&t->net, host, &t->dice);
	if (!pass_time(t, dice_time(&t->dice, 0.05, 2)))
		return false;
	net_quicken(&t->net, host);
	note_fault(t, false, "host%u is fast again", host);
	return pass_time(t, dice_time(&t->dice, 0.001, 0.3));
}

/* ---- the roll backend, the disk ---- */

static void disable_roll_backend(struct torture *t)
{
	unsigned int first;

	if (t->o.etcd_members == 0) {
		note_fault(t, false, "the roll is locked");
		roll_backend_lock(t);
		return;
	}
	first = (unsigned int)dice_below(&t->dice, t->o.etcd_members);
	note_fault(t, false, "kill etcd%u", first);
	etcd_kill_member(t, first);
	if (t->o.etcd_members > 1 && dice_one_in(&t->dice, 2)) { /* and etcd loses its quorum */
		note_fault(t, false, "kill etcd%u", (first + 1) % t->o.etcd_members);
		etcd_kill_member(t, (first + 1) % t->o.etcd_members);
	}
}

static bool enable_roll_backend(struct torture *t)
{
	roll_backend_unlock(t);
	for (unsigned int e = 0; e < t->o.etcd_members; e++)
		if (!etcd_start_member(t, e))
			return false;
	return true;
}

/*
 * Stops or kills the primary while the roll backend is down: no standby can promote itself until it
 * is back.
 */
static bool roll_outage(struct torture *t)
{
	int primary;
	struct stag_pool_roll roll;
	bool held;

	if (!nodes_await_all(t, HEALED_S))
		return false;
	primary = node_primary(t);
	held = primary >= 0 && dice_one_in(&t->dice, 2) &&
	       stop_unless_last(t, (unsigned int)primary, &roll);
	disable_roll_backend(t);
	if (held && dice_one_in(&t->dice, 2)) {
		note_fault(t, false, "kill node%d", primary);
		node_signal(t, (unsigned int)primary, SIGKILL);
	}
	if (!pass_time(t, dice_time(&t->dice, 0.01, 1)))
		return false;
	if (held && t->nodes[primary].pid) {
		node_signal(t, (unsigned int)primary, SIGCONT);
		note_fault(t, false, "continue node%d", primary);
	}
	if (!enable_roll_backend(t) || !nodes_await_primary(t, HEALED_S) || !restart_dead(t))
		return false;
	return pass_time(t, dice_time(&t->dice, 0.01, 0.3));
}

/*
 * Limits the size of the node's files, so that its state directory and the roll are on full disks.
 */
static bool fill_disk(struct torture *t)
{
	unsigned int n = any_node(t);
	int primary;

	if (!nodes_await_all(t, HEALED_S))
		return false;
	note_fault(t, false, "the disk of node%u is full", n);
	limit_file_size(t, n, 0);
	primary = node_primary(t);
	if (primary >= 0 && primary != (int)n) {
		node_signal(t, (unsigned int)primary, SIGSTOP);
		note_fault(t, false, "stop node%d", primary);
	}
	if (!pass_time(t, dice_time(&t->dice, 0.02, 0.5)))
		return false;
	if (primary >= 0)
		node_signal(t, (unsigned int)primary, SIGCONT);
	limit_file_size(t, n, RLIM_INFINITY);
	note_fault(t, false, "the disk of node%u has room", n);
	return nodes_await_primary(t, HEALED_S);
}

/* ---- clients, the clock ---- */

/* Kills one to three clients, and now and then the primary as well. */
static bool kill_clients(struct torture *t)
{
	unsigned int n = 1 + (unsigned int)dice_below(&t->dice, 3);

	while (n--)
		if (!client_restart(t, (unsigned int)dice_below(&t->dice, t->o.clients),
				    dice_time(&t->dice, 0.001, 0.1)))
			return false;
	if (dice_one_in(&t->dice, 4))
		return kill_primary(t);
	return pass_time(t, dice_time(&t->dice, 0.01, 0.3));
}

static bool clock_move(struct torture *t, int64_t by)
{
	struct timespec ts;
	int64_t ns;

	clock_gettime(CLOCK_REALTIME, &ts);
	ns = (int64_t)ts.tv_sec * (int64_t)NS_PER_S + ts.tv_nsec + by;
	ts = (struct timespec){.tv_sec = ns / (int64_t)NS_PER_S, .tv_nsec = ns % (int64_t)NS_PER_S};
	if (clock_settime(CLOCK_REALTIME, &ts) != 0)
		return fail_phase(t, "cannot set the clock: %s", strerror(errno));
	t->clock_ahead += by;
	return true;
}

void clock_restore(struct torture *t)
{
	if (t->clock_ahead)
		clock_move(t, -t->clock_ahead);
}

/*
 * Sets the clock ahead or back by a millisecond to an hour, and sometimes kills the primary as
 * well.
 */
static bool jump_clock(struct torture *t)
{
	double seconds = dice_time(&t->dice, 0.001, 3600);
	int64_t by = (int64_t)(seconds * 1e9);

	if (t->clock_ahead > 0 || (t->clock_ahead == 0 && dice_one_in(&t->dice, 2)))
		by = -by;
	note_fault(t, false, "the clock jumps by %.3f s", (double)by / 1e9);
	if (!clock_move(t, by))
		return false;
	return dice_one_in(&t->dice, 3) ? kill_primary(t)
					: pass_time(t, dice_time(&t->dice, 0.001, 0.3));
}

/* ---- switchover, nothing, everything ---- */

static bool switch_over(struct torture *t)
{
	return nodes_await_all(t, HEALED_S) && nodes_switch_over(t) &&
	       pass_time(t, dice_time(&t->dice, 0.001, 0.2));
}

static bool do_nothing(struct torture *t)
{
	return pass_time(t, 0.1);
}

static bool fill_memory(struct torture *t)
{
	return dice_one_in(&t->dice, 4) ? kill_primary(t) : pass_time(t, 0.2);
}

static bool do_anything(struct torture *t)
{
	static bool (*const near[])(struct torture *) = {kill_in_turn, kill_in_turn, pause_any,
							 switch_over,  roll_outage,  kill_clients};
	static bool (*const far[])(struct torture *) = {cut_any, split_network,
							cut_primary_from_roll, slow_any};

	if (t->net.real && dice_one_in(&t->dice, 3))
		return far[dice_below(&t->dice, 4)](t);
	return near[dice_below(&t->dice, 6)](t);
}

/* ---- phases ---- */

const struct phase phases[] = {
	{.name = "calm", .what = "no faults", .step = do_nothing},
	{.name = "kill-primary",
	 .what = "the primary is killed, when all are in sync",
	 .step = kill_primary,
	 .kills_primaries = true},
	{.name = "kill-standby", .what = "a standby is killed", .step = kill_standby},
	{.name = "kill-turns",
	 .what = "any node that can be spared is killed, even while another restarts",
	 .step = kill_in_turn,
	 .kills_primaries = true},
	{.name = "pause", .what = "nodes are stopped, and continue", .step = pause_any},
	{.name = "cut",
	 .what = "hosts are cut off from each other, one way or both",
	 .step = cut_any,
	 .needs_net = true},
	{.name = "split",
	 .what = "the network is split, with nodes and clients on both sides",
	 .step = split_network,
	 .needs_net = true},
	{.name = "slow", .what = "links are slow", .step = slow_any, .needs_net = true},
	{.name = "engine", .what = "the roll backend is down", .step = roll_outage},
	{.name = "cut-engine",
	 .what = "the primary is cut off from the roll backend, and stopped",
	 .step = cut_primary_from_roll,
	 .needs_net = true},
	{.name = "clock",
	 .what = "the system clock jumps",
	 .step = jump_clock,
	 .needs_clock = true},
	{.name = "clients", .what = "clients are killed and replaced", .step = kill_clients},
	{.name = "disk", .what = "the disk of a node is full", .step = fill_disk},
	{.name = "memory",
	 .what = "the pool is full of large values",
	 .step = fill_memory,
	 .work = WORK_LARGE},
	{.name = "switchover", .what = "switchovers are requested", .step = switch_over},
	{.name = "mixed", .what = "all of these, at random", .step = do_anything},
};
const unsigned int num_phases = sizeof(phases) / sizeof(*phases);

bool nemesis_heal(struct torture *t)
{
	for (unsigned int n = 0; n < t->o.nodes; n++)
		if (t->nodes[n].stopped)
			node_signal(t, n, SIGCONT);
	heal_net(t);
	clock_restore(t);
	for (unsigned int h = 0; t->net.real && h < t->net.num_hosts; h++)
		net_quicken(&t->net, h);
	return enable_roll_backend(t) && restart_dead(t);
}
