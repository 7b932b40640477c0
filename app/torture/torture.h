/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * torture.h - stag-torture, the program behind `stag torture`: declarations that its files share.
 *
 * One process, the parent, does all harm and judges what came of it. It forks nodes, which serve a pool, clients, which
 * use it and write down every call and return, and starts the members of etcd. Each of them is on a *host*: a network
 * namespace of its own where there can be one, so that any host may be cut off from any other.
 *
 * A run is a sequence of *phases*, each with faults of one kind. At a phase's end everything is healed, the clients finish what is under
 * way, every value is read once more (the *sweep*), and the history is judged; memory is compared byte for byte.
 *
 *	main.c      the program, its help
 *	pool.c      the run, a phase
 *	options.c   the command line
 *	net.c       hosts: namespaces, cuts, slow links
 *	node.c      nodes: processes, what they are, their memory
 *	etcd.c      who is primary: a file, or members of etcd
 *	client.c    clients: what they do
 *	life.c      clients: their processes, and the sweep
 *	history.c   what they did: written, read, judged
 *	nemesis.c   faults
 *	report.c    for people, for programs
 */
#ifndef STAG_APP_TORTURE_H
#define STAG_APP_TORTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "stag/pool.h"

#define MAX_NODES    4u
#define MAX_ETCD     3u
#define MAX_CLIENTS  64u
#define CLIENT_HOSTS 2u /* some here, some there */
#define MAX_HOSTS    (MAX_NODES + MAX_ETCD + CLIENT_HOSTS)
#define MAX_FAULTS   4096u /* of a phase, that are noted */
#define NAMES	     48u
#define SLOTS	     192u	/* pointers that all clients know */
#define PERMANENT    64u	/* pointers that are taken at the start, and kept */
#define MAX_VALUE    (1u << 20) /* bytes of a value */
#define MAX_OPS	     (1u << 18) /* of a client in a phase */
#define USER	     "torture"
#define SECRET	     "what everybody here knows"

struct cli_noun;
struct command;

/* pool.c: the command; argv[0] is "torture", argv[1] "pool". Returns an exit code. */
int torture_pool(const struct command *self, int argc, char **argv);

/* ---- dice (pool.c) --------------------------------------------------- */

/* Of one who throws them: a seed, and what came since. */
struct dice {
	uint64_t state;
};

uint64_t dice_next(struct dice *d);
uint64_t dice_below(struct dice *d, uint64_t n);
bool dice_one_in(struct dice *d, uint64_t n);
double dice_time(struct dice *d, double least, double most); /* each power of ten as often */

/* ---- hosts (net.c) ------------------------------------------------ */

struct net {
	unsigned int num_hosts;
	bool real;	/* each host is a namespace; else all are 127.0.0.1 */
	bool can_delay; /* links can be slow by time, not only by rate */
	uint16_t port;	/* of host 0, where all are one; the next ones follow */
	int home;	/* our own namespace */
	int hosts[MAX_HOSTS];
};

/* Namespaces where they can be had: else it is said why, and all hosts are one. */
int net_open(struct net *net, unsigned int num_hosts, bool wanted, struct dice *dice);
void net_close(struct net *net);
int net_enter(const struct net *net, unsigned int host); /* this process, for good */
void net_address(const struct net *net, unsigned int host, uint16_t port, char *text, size_t size);
uint16_t net_port(const struct net *net, unsigned int host, uint16_t port);
/* What goes from one to the other is lost, silently; and no longer. */
void net_cut(const struct net *net, unsigned int from, unsigned int to);
void net_mend(const struct net *net, unsigned int from, unsigned int to);
void net_mend_all(const struct net *net);
void net_slow(const struct net *net, unsigned int host, struct dice *dice);
void net_quicken(const struct net *net, unsigned int host);

/* ---- nodes (node.c) ------------------------------------------------- */

/* What a node says of itself, all the time; in shared memory. */
struct view {
	_Atomic uint32_t turn;	       /* odd: it is being written */
	_Atomic uint64_t at;	       /* when */
	_Atomic uint32_t wanted, done; /* switch-overs */
	_Atomic int result;	       /* of the last */
	struct stag_pool_node_info info;
};

struct node {
	pid_t pid; /* 0: there is none */
	bool stopped;
	bool was_there; /* its pool is made */
};

/* ---- clients ------------------------------------------------------------------- */

/* Where a pointer is that others may use. One client writes it. */
struct slot {
	_Atomic uint32_t turn;
	uint64_t object; /* in the history; 0: nothing yet */
	struct stag_pool_ptr ptr;
};

enum act {
	ACT_NONE, /* it did not happen: no room */
	ACT_INSERT,
	ACT_UPDATE,
	ACT_READ,
	ACT_DELETE,
	ACT_PUT,
	ACT_PUT_NEW,
	ACT_GET,
	ACT_REMOVE,
	ACTS,
};

/* A call, and its return. */
struct entry {
	uint64_t object;
	uint64_t call, ret; /* CLOCK_MONOTONIC, ns; LINEAR_NEVER */
	uint64_t value;	    /* written or read; VALUE_MIXED: nobody's */
	uint64_t expected, version;
	uint64_t generation; /* of the pointer */
	uint32_t length;
	uint16_t client;
	uint8_t act;	 /* enum act */
	uint8_t outcome; /* enum linear_outcome */
	int32_t error;
	bool may_move; /* the value may have outgrown its place */
};

#define VALUE_MIXED UINT64_MAX

struct journal { /* of a client */
	_Atomic uint32_t count;
	_Atomic uint32_t done;
	_Atomic bool timed_out;	  /* operations never came back */
	_Atomic bool busy;	  /* it is being written: its client must not die now */
	_Atomic uint32_t orphans; /* values to which only this client has a pointer */
	struct entry *entries;	  /* MAX_OPS, shared */
};

enum work { WORK_FAULTS, WORK_LARGE };

struct shared {
	_Atomic bool stop;
	_Atomic uint32_t mixed, errors, no_room;
	_Atomic int last_error;
	struct view views[MAX_NODES];
	struct slot slots[SLOTS];
	struct slot permanent[PERMANENT];
	struct journal journals[MAX_CLIENTS + 2]; /* the clients', the prober's, the sweep's */
};

/* ---- a run ---------------------------------------------------------------------- */

struct options {
	const char *phases[24];
	unsigned int num_phases; /* 0: all that can be */
	const char *directory;	 /* where files are; NULL: one that is made, and removed */
	const char *check;	 /* a history */
	unsigned int nodes, clients, etcd_members; /* etcd_members: members of etcd; 0: a file */
	unsigned int rate;			   /* of a client, operations a second */
	unsigned int rounds;
	unsigned int failovers; /* at least, in each phase that kills primaries */
	double seconds;		/* of a phase */
	double longest_pause;
	uint64_t seed, size;
	uint32_t beat_us, lease_ms, promote_ms;
	bool json, keep, list, no_net, clock;
};

/* What was done to whom, and when. */
struct fault {
	uint64_t at;
	char what[56];
	bool is_failover; /* a primary was killed */
};

enum verdict_kind { VERDICT_GOOD, VERDICT_BAD, VERDICT_UNDECIDED };

/* Of a history (history.c). */
struct check_result {
	enum verdict_kind linear;
	size_t operations, unknown;
	size_t lost;  /* acknowledged changes that are not there */
	size_t twice; /* changes that happened once more than they were acknowledged */
	size_t seen;  /* values that the sweep found */
	size_t num_times;
	double *times; /* of failovers, ms, sorted */
};

struct phase_result {
	const char *name;
	bool skipped, failed;
	char why[200];
	double seconds;
	uint64_t failovers; /* epochs */
	uint32_t no_room;   /* changes for which there was none */
	struct check_result check_result;
	bool compared; /* memory, and it was equal */
	uint64_t compared_bytes;
	char history[300]; /* that was kept */
};

struct torture {
	struct options o;
	struct net net;
	struct dice dice;
	char directory[200];
	char where[400]; /* of clients: all nodes */
	char roll[400];
	char secret[40];
	struct shared *shared;
	struct node nodes[MAX_NODES];
	pid_t etcd_members[MAX_ETCD];
	int roll_lock; /* of the file, held: nobody can swap; -1 */
	pid_t clients[MAX_CLIENTS + 1];
	unsigned int restarts[MAX_CLIENTS + 1]; /* how often it was started in this phase */
	int64_t clock_ahead;			/* of this machine, by our doing; ns */
	struct fault faults[MAX_FAULTS];
	unsigned int num_faults;
	unsigned int phase; /* its number */
	enum work work;
	uint64_t first_epoch, phase_began, phase_ends;
	struct phase_result *now;
	size_t unknown_inserts; /* of all phases: values that nobody may have a pointer to */
};

static inline unsigned int etcd_host(const struct torture *t, unsigned int engine)
{
	return t->o.nodes + engine;
}

/* Four here, four there, and so on: of each kind there are some at either place. */
static inline unsigned int client_host(const struct torture *t, unsigned int client)
{
	return t->o.nodes + t->o.etcd_members + client / 4 % CLIENT_HOSTS;
}

/* pool.c: the first failure of a phase is the one that counts; false */
bool fail_phase(struct torture *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void note_fault(struct torture *t, bool is_failover, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Of a process that was forked: what it prints goes to a log, as etcd0.log. */
void log_to_file(const struct torture *t, const char *who, unsigned int number);
/* Sleeps, showing progress, looking after processes. false: the run is over, or has failed. */
bool pass_time(struct torture *t, double seconds);

/* options.c */
extern const struct cli_noun torture_noun;
/* Parses argv, whose first word is "torture". Returns false if the command is over: *rc is then its exit code. */
bool options_parse(struct options *o, int argc, char **argv, int *rc);

/* node.c */
bool node_start(struct torture *t, unsigned int n);
void node_signal(struct torture *t, unsigned int n, int sig); /* SIGKILL: waits for its end */
bool node_view(const struct torture *t, unsigned int n,
	       struct stag_pool_node_info *info);	     /* false: an old one */
int node_primary(const struct torture *t);		     /* -1 */
bool nodes_await_primary(struct torture *t, double seconds); /* fails */
bool nodes_await_all(struct torture *t, double seconds);     /* all in sync; fails */
bool nodes_switch_over(struct torture *t);
bool nodes_query_primary(struct torture *t, struct stag_pool_node_info *info); /* fails */
bool nodes_compare(struct torture *t);	   /* their memory; fails */
bool nodes_check_alive(struct torture *t); /* has one died by itself? fails */
uint64_t nodes_epoch(const struct torture *t);
void nodes_end(struct torture *t);

/* etcd.c */
bool roll_backend_start(struct torture *t);
bool etcd_start_member(struct torture *t, unsigned int e);
void etcd_kill_member(struct torture *t, unsigned int e);
bool roll_backend_read(struct torture *t,
		       struct stag_pool_roll *roll); /* false: it does not answer */
void roll_backend_lock(struct torture *t);	     /* the file: nobody swaps */
void roll_backend_unlock(struct torture *t);
void roll_backend_stop(struct torture *t);

/* life.c: fork. Their entries are in the journals. */
bool clients_insert_permanent(
	struct torture *t); /* values that stay, at the start of a run; fails */
bool clients_start(struct torture *t);
bool client_restart(struct torture *t, unsigned int id, double after); /* killed, and another */
bool clients_finish(struct torture *t); /* those under way come to an end; fails */
bool clients_sweep(struct torture *t);	/* every value is read; fails */
void clients_end(struct torture *t);
uint64_t clients_done(const struct torture *t);
void value_make(uint8_t *to, size_t length, uint64_t id);
uint64_t value_check(const uint8_t *from, size_t length); /* id, or VALUE_MIXED */

/* history.c */
void history_begin(struct torture *t); /* journals are empty but for what the last sweep found */
bool history_check(struct torture *t, struct check_result *j); /* fails */
int history_write(const struct torture *t, const char *path);
int history_check_file(const char *path); /* an exit code */

/* nemesis.c */
struct phase {
	const char *name, *what;
	bool (*step)(struct torture *t); /* one fault, healed or to be healed; false: fails */
	bool needs_net, kills_primaries, needs_clock;
	enum work work;
};

extern const struct phase phases[];
extern const unsigned int num_phases;
bool nemesis_heal(struct torture *t);
void clock_restore(struct torture *t);

/* report.c */
void show_progress(const struct torture *t);
void show_nothing(void);
void show_phase(const struct torture *t, const struct phase_result *r);
void show_end(const struct torture *t, const struct phase_result *results, unsigned int n);
double percentile(const double *sorted, size_t n, double p);

#endif
