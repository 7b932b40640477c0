/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * torture.h - stag-torture, the program behind `stag torture`: declarations that its files share.
 *
 * One process, the parent, injects all faults and checks the outcome. It forks nodes, which serve a
 * pool, and clients, which use the pool and record every call and return, and it starts the members
 * of etcd. Each of these processes is on a *host*: a network namespace of its own where the kernel
 * allows it, so that any host can be cut off from any other.
 *
 * A run is a sequence of *phases*, each with faults of one kind. At the end of a phase all faults
 * are healed, the clients finish their operations in flight, a further client reads every value
 * (the *sweep*), the history is checked, and the nodes' memory is compared byte for byte.
 *
 *	main.c      the program
 *	pool.c      a run and its phases
 *	options.c   the command line
 *	net.c       hosts: namespaces, cuts, slow links
 *	node.c      nodes: their processes, roles and memory
 *	etcd.c      the roll backend: a file, or members of etcd
 *	client.c    clients: random operations
 *	life.c      clients: their processes, and the sweep
 *	history.c   histories: written, read, checked
 *	nemesis.c   faults (the name is Jepsen's)
 *	report.c    results as text and as JSON
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
#define CLIENT_HOSTS 2u /* the clients are spread over these */
#define MAX_HOSTS    (MAX_NODES + MAX_ETCD + CLIENT_HOSTS)
#define MAX_FAULTS   4096u /* recorded in a phase */
#define NAMES	     48u
#define SLOTS	     192u	/* pointers that all clients can use */
#define PERMANENT    64u	/* values inserted at the start that stay unchanged */
#define MAX_VALUE    (1u << 20) /* bytes */
#define MAX_OPS	     (1u << 18) /* operations of a client in a phase */
#define USER	     "torture"
#define SECRET	     "what everybody here knows"

struct cli_noun;
struct command;

/* pool.c: the command; argv[0] is "torture", argv[1] "pool". Returns an exit code. */
int torture_pool(const struct command *self, int argc, char **argv);

/* ---- dice (pool.c) ---- */

/* A random number generator. */
struct dice {
	uint64_t state;
};

uint64_t dice_next(struct dice *d);
uint64_t dice_below(struct dice *d, uint64_t n);
bool dice_one_in(struct dice *d, uint64_t n);
double dice_time(struct dice *d, double least,
		 double most); /* logarithmic: each power of ten is equally likely */

/* ---- hosts (net.c) ---- */

struct net {
	unsigned int num_hosts;
	bool real;	/* each host is a namespace; otherwise all hosts are 127.0.0.1 */
	bool can_delay; /* links can be delayed (netem), not only limited in rate */
	uint16_t port;	/* port of host 0 if all are on 127.0.0.1; the others follow */
	int home;	/* the parent's own namespace */
	int hosts[MAX_HOSTS];
};

/* Makes namespaces if possible; otherwise complains, and all hosts are 127.0.0.1. */
int net_open(struct net *net, unsigned int num_hosts, bool wanted, struct dice *dice);
void net_close(struct net *net);
int net_enter(const struct net *net, unsigned int host); /* moves this process there for good */
void net_address(const struct net *net, unsigned int host, uint16_t port, char *text, size_t size);
uint16_t net_port(const struct net *net, unsigned int host, uint16_t port);
/* Drops what `from` sends to `to`, silently; net_mend() ends that. */
void net_cut(const struct net *net, unsigned int from, unsigned int to);
void net_mend(const struct net *net, unsigned int from, unsigned int to);
void net_mend_all(const struct net *net);
void net_slow(const struct net *net, unsigned int host, struct dice *dice);
void net_quicken(const struct net *net, unsigned int host);

/* ---- nodes (node.c) ---- */

/* The state that a node publishes continuously, in shared memory. */
struct view {
	_Atomic uint32_t turn;	       /* sequence lock: odd while the view is being written */
	_Atomic uint64_t at;	       /* when it was written, ns; 0: not yet */
	_Atomic uint32_t wanted, done; /* switchovers: requested, done */
	_Atomic int result;	       /* of the last switchover */
	struct stag_pool_node_info info;
};

struct node {
	pid_t pid; /* 0: not running */
	bool stopped;
	bool was_there; /* has been started before, so its pool exists */
};

/* ---- clients ---- */

/* A pointer that all clients may use. Only one client writes it. */
struct slot {
	_Atomic uint32_t turn;
	uint64_t object; /* its object in the history; 0: empty */
	struct stag_pool_ptr ptr;
};

enum act {
	ACT_NONE, /* did not happen: the pool was full */
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

/* A call and its return: one operation of the history. */
struct entry {
	uint64_t object;
	uint64_t call, ret; /* CLOCK_MONOTONIC, ns; ret may be LINEAR_NEVER */
	uint64_t value;	    /* id, written or read; VALUE_MIXED: no client wrote such bytes */
	uint64_t expected, version;
	uint64_t generation; /* of the pointer that was used */
	uint32_t length;
	uint16_t client;
	uint8_t act;	 /* enum act */
	uint8_t outcome; /* enum linear_outcome */
	int32_t error;
	bool may_move; /* the new value is longer, so it may get another place */
};

#define VALUE_MIXED UINT64_MAX

/* The operations of one client. */
struct journal {
	_Atomic uint32_t count;
	_Atomic uint32_t done;
	_Atomic bool timed_out;	  /* operations did not return */
	_Atomic bool busy;	  /* being written: the client must not be killed now */
	_Atomic uint32_t orphans; /* values that only this client has a pointer to */
	struct entry *entries;	  /* MAX_OPS of them, in shared memory */
};

enum work { WORK_FAULTS, WORK_LARGE };

struct shared {
	_Atomic bool stop;
	_Atomic uint32_t mixed, errors, no_room;
	_Atomic int last_error;
	struct view views[MAX_NODES];
	struct slot slots[SLOTS];
	struct slot permanent[PERMANENT];
	struct journal journals[MAX_CLIENTS + 2]; /* of the clients, of the prober, of the sweep */
};

/* ---- a run ---- */

struct options {
	const char *phases[24];
	unsigned int num_phases;		   /* 0: all that can run here */
	const char *directory;			   /* of all files; NULL: a temporary one */
	const char *check;			   /* a history to check; NULL: run */
	unsigned int nodes, clients, etcd_members; /* etcd_members: members of etcd; 0: a file */
	unsigned int rate;			   /* operations per second of a client */
	unsigned int rounds;
	unsigned int failovers; /* at least, in each phase that kills primaries */
	double seconds;		/* of a phase */
	double longest_pause;
	uint64_t seed, size;
	uint32_t beat_us, lease_ms, promote_ms;
	bool json, keep, list, no_net, clock;
};

/* One injected fault. */
struct fault {
	uint64_t at;
	char what[56];
	bool is_failover; /* it killed a primary */
};

enum verdict_kind { VERDICT_GOOD, VERDICT_BAD, VERDICT_UNDECIDED };

/* The outcome of checking a history (history.c). */
struct check_result {
	enum verdict_kind linear;
	size_t operations, unknown;
	size_t lost;  /* acknowledged changes that the sweep did not find */
	size_t twice; /* changes that happened twice */
	size_t seen;  /* values that the sweep found */
	size_t num_times;
	double *times; /* of failovers, in ms, sorted */
};

struct phase_result {
	const char *name;
	bool skipped, failed;
	char why[200];
	double seconds;
	uint64_t failovers; /* epochs */
	uint32_t no_room;   /* changes refused because the pool was full */
	struct check_result check_result;
	bool compared; /* the nodes' memory was compared and equal */
	uint64_t compared_bytes;
	char history[300]; /* path of the history, if it was kept */
};

struct torture {
	struct options o;
	struct net net;
	struct dice dice;
	char directory[200];
	char where[400]; /* addresses of all nodes, for clients */
	char roll[400];
	char secret[40];
	struct shared *shared;
	struct node nodes[MAX_NODES];
	pid_t etcd_members[MAX_ETCD];
	int roll_lock; /* lock of the roll's file while no node may change it; -1: not held */
	pid_t clients[MAX_CLIENTS + 1];
	unsigned int restarts[MAX_CLIENTS + 1]; /* in this phase */
	int64_t clock_ahead; /* how far this run has set the machine's clock ahead, ns */
	struct fault faults[MAX_FAULTS];
	unsigned int num_faults;
	unsigned int phase; /* number of the phase */
	enum work work;
	uint64_t first_epoch, phase_began, phase_ends;
	struct phase_result *now;
	size_t unknown_inserts; /* inserts of unknown outcome in all phases */
};

static inline unsigned int etcd_host(const struct torture *t, unsigned int engine)
{
	return t->o.nodes + engine;
}

/* Places clients in groups of four, so that each host has clients of every kind. */
static inline unsigned int client_host(const struct torture *t, unsigned int client)
{
	return t->o.nodes + t->o.etcd_members + client / 4 % CLIENT_HOSTS;
}

/* pool.c: marks the phase as failed, unless it has failed before. Returns false. */
bool fail_phase(struct torture *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void note_fault(struct torture *t, bool is_failover, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Redirects the output of a forked process to a log file, such as etcd0.log. */
void log_to_file(const struct torture *t, const char *who, unsigned int number);
/*
 * Sleeps, shows progress and checks the processes. Returns false if the run was interrupted or has
 * failed.
 */
bool pass_time(struct torture *t, double seconds);

/* options.c */
extern const struct cli_noun torture_noun;
/*
 * Parses argv, whose first word is "torture". Returns false if the command is over: *rc is then its
 * exit code.
 */
bool options_parse(struct options *o, int argc, char **argv, int *rc);

/* node.c */
bool node_start(struct torture *t, unsigned int n);
void node_signal(struct torture *t, unsigned int n,
		 int sig); /* after SIGKILL, waits for the process to end */
bool node_view(const struct torture *t, unsigned int n,
	       struct stag_pool_node_info *info);	     /* false: the view is stale */
int node_primary(const struct torture *t);		     /* -1: none */
bool nodes_await_primary(struct torture *t, double seconds); /* false: the phase has failed */
bool nodes_await_all(struct torture *t,
		     double seconds); /* until all are in sync; false: the phase has failed */
bool nodes_switch_over(struct torture *t);
bool nodes_query_primary(struct torture *t,
			 struct stag_pool_node_info *info); /* false: the phase has failed */
bool nodes_compare(struct torture *t); /* compares their memory; false: the phase has failed */
bool nodes_check_alive(
	struct torture *t); /* false: one ended by itself, and the phase has failed */
uint64_t nodes_epoch(const struct torture *t);
void nodes_end(struct torture *t);

/* etcd.c */
bool roll_backend_start(struct torture *t);
bool etcd_start_member(struct torture *t, unsigned int e);
void etcd_kill_member(struct torture *t, unsigned int e);
bool roll_backend_read(struct torture *t, struct stag_pool_roll *roll); /* false: no answer */
void roll_backend_lock(
	struct torture *t); /* of a file: no node can change the roll until it is unlocked */
void roll_backend_unlock(struct torture *t);
void roll_backend_stop(struct torture *t);

/* life.c: processes of clients; what they do is in the journals */
bool clients_insert_permanent(struct torture *t); /* at the start of a run; false: failed */
bool clients_start(struct torture *t);
bool client_restart(struct torture *t, unsigned int id,
		    double after);	/* kills it, and starts another */
bool clients_finish(struct torture *t); /* waits for their operations in flight; false: failed */
bool clients_sweep(struct torture *t);	/* reads every value; false: failed */
void clients_end(struct torture *t);
uint64_t clients_done(const struct torture *t);
void value_make(uint8_t *to, size_t length, uint64_t id);
uint64_t value_check(const uint8_t *from, size_t length); /* the id, or VALUE_MIXED */

/* history.c */
void history_begin(
	struct torture *t); /* empties the journals, except for what the last sweep found */
bool history_check(struct torture *t, struct check_result *j); /* false: the phase has failed */
int history_write(const struct torture *t, const char *path);
int history_check_file(const char *path); /* returns an exit code */

/* nemesis.c */
struct phase {
	const char *name, *what;
	bool (*step)(
		struct torture
			*t); /* injects a fault; nemesis_heal() heals what is left; false: failed */
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
