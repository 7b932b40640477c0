/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * part.h - the parts of stag bench, which are processes that measure one thing, and the functions
 * that they share.
 *
 * A part is run by hand (`stag bench part NAME`) or by the runner (bench.h). xfer is a pair: this
 * process, which times and reports, and a target, which lends memory and otherwise only drives its
 * adapter. The target is a child on this machine, or a `stag bench part xfer --listen` on another.
 * heap has a mate for cases with two processes on one heap.
 *
 * Errors are printed to stderr and end the program.
 */
#ifndef STAG_APP_BENCH_PART_H
#define STAG_APP_BENCH_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <infiniband/verbs.h>
#include <jansson.h>
#include <rdma/rdma_cma.h>

#include "stag/xfer.h"
#include "times.h"

#define BENCH_PORT 7472 /* default of --listen and --connect */

enum bench_format { FORMAT_TABLE, FORMAT_TSV, FORMAT_JSON };

struct bench_options {
	const char *benchmark;
	const char *device; /* name; default stag0 */
	const char
		*address; /* of this machine, where the pair connects; NULL: the device's first */
	const char *library; /* the libstag-verbs.so that provides stag0 */
	const char *connect; /* address of a target elsewhere; NULL: start a child */
	const char *listen;  /* be a target on this address */
	const char *cases[8];
	unsigned int num_cases; /* 0: all */
	bool json, tsv;
	enum bench_format format; /* from json and tsv */
	enum stag_xfer_op op;
	uint64_t elements, size;  /* of the cases elements */
	uint64_t batches, pieces; /* of the cases batches: number, and pieces of the largest */
	uint64_t bytes;		  /* of the case large */
	uint64_t descriptors;	  /* of the transfer manager */
	double secs;		  /* minimal duration of a case */
	bool asleep;		  /* the target's program sleeps */
};

/* part.c */
__attribute__((noreturn, format(printf, 1, 2))) void bench_die(const char *fmt, ...);
bool bench_preloaded(void);	  /* is the software adapter in this process? */
void bench_pin(unsigned int nth); /* to the nth CPU that this process may use */
unsigned int bench_cpus(void);	  /* number of CPUs that this process may use */
void *bench_memory(size_t size);  /* touched, page-aligned; freed by munmap() */
void *bench_zeroed(size_t size);  /* freed by free() */

uint64_t bench_clock(clockid_t id);

/* part_options.c */

/* The options that xfer and heap share: rows of a table of cli_option. */
#define BENCH_DEVICE_OPTIONS                                                                       \
	{"device", .value = "NAME", CLI_TEXT_AT(struct bench_options, device),                     \
	 .help = "the RDMA device (stag0, which needs no hardware)"},                              \
		{"library", .value = "FILE", CLI_FILE_AT(struct bench_options, library),           \
		 .help = "the libstag-verbs.so that provides stag0 (STAG_LIB, or the installed "   \
			 "one)"},                                                                  \
		{"json", CLI_FLAG_AT(struct bench_options, json),                                  \
		 .help = "print every figure as JSON"},                                            \
		{"tsv", CLI_FLAG_AT(struct bench_options, tsv),                                    \
		 .help = "print every figure, divided by tabs"},

struct cli_noun;
struct cli_option;
/*
 * Parses the command line of a part into o, which holds the defaults. Returns false if the part is
 * over, with *rc.
 */
bool bench_parse(const struct cli_noun *n, int argc, char **argv, struct bench_options *o, int *rc);
bool bench_parse_case(void *to, const struct cli_option *option, char *text); /* of --case */
bool bench_wants(const struct bench_options *o, const char *name); /* is the case selected? */

/*
 * Executes the part again with the device's library, if that is needed and not loaded yet. Returns
 * an exit code.
 */
int bench_preload(const struct bench_options *o, char **argv);

/* xfer_address.c */

/* "HOST", "HOST:PORT", "[HOST]:PORT" */
void bench_resolve(const char *text, uint16_t port, struct sockaddr_storage *out);
void bench_print_address(const struct sockaddr *addr, char *text, size_t size);

/* Finds an address of this machine by which the connection manager reaches the device. */
void bench_address_of(const char *device, struct sockaddr_storage *out);

/* xfer_target.c */

/* Private data of a connection, in network byte order. */
#define BENCH_MAGIC 0x57a6be01
#define BENCH_POLL  1u /* flags: the target's program polls */

struct bench_hello {
	uint32_t magic, flags;
	uint64_t bytes; /* of memory that the client requests */
};

struct bench_welcome {
	uint32_t magic, rkey;
	uint64_t addr;
};

_Static_assert(sizeof(struct bench_hello) <= 56, "private data of a request on RoCE");

/* Initial contents of the target's memory: one word for each 8 bytes. */
static inline uint64_t bench_pattern(uint64_t offset)
{
	uint64_t x = (offset / 8 + 1) * 0x9e3779b97f4a7c15;

	return x ^ x >> 29;
}

int bench_serve(const struct bench_options *o); /* runs until it is killed */

/* xfer_link.c */

struct bench_rail {
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
};

/*
 * Two connections to one target: one for the transfer manager, with all segments that the device
 * has, and one for posting by hand, with the queue that suits that best.
 */
struct bench_link {
	struct rdma_event_channel *events;
	struct ibv_pd *pd;
	struct bench_rail managed, by_hand;
	struct ibv_mr *mr;
	char *memory; /* local memory, of the same size as the target's */
	size_t size;
	uint64_t remote;
	uint32_t rkey;
	uint32_t max_inline; /* of the connection by_hand */
	bool confirm;	     /* iWARP: completion of a write does not mean that it was placed */
	bool target_polls;
	char address[80];
	pid_t target;	    /* 0: the target is elsewhere */
	clockid_t cpu_time; /* CPU clock of the target */
};

void bench_link_open(struct bench_link *l, const struct bench_options *o, size_t bytes);
void bench_link_close(struct bench_link *l);

/* xfer_hand.c: the yardsticks of the transfer manager */

#define HAND_DEPTH 512 /* work requests in by_hand's queue */
#define HAND_CHUNK (1 << 20)

struct hand_style {
	unsigned int list; /* work requests per post; the last one is signalled */
	bool in_line;
};

/* All return when the last byte has been placed. */
void hand_post_each(struct bench_link *l, enum stag_xfer_op op, const struct stag_xfer_elem *elems,
		    size_t n, const struct hand_style *style);
void hand_post_chunks(struct bench_link *l, enum stag_xfer_op op, uint64_t remote_offset,
		      char *local, uint32_t lkey, uint64_t bytes);
size_t hand_fill(struct bench_link *l, enum stag_xfer_op op, const struct stag_xfer_elem *elems,
		 size_t n,
		 const struct hand_style *style); /* builds one list, without posting it */

/* part_report.c */

enum bench_unit { UNIT_ELEMENTS, UNIT_BATCH, UNIT_BANDWIDTH, UNIT_PLAN, UNIT_OPERATION, UNIT_TIME };

/* The measurements of one operation. */
struct bench_series {
	const char *name;
	const char *words; /* description of a yardstick */
	uint64_t *ns;	   /* of each round */
	size_t rounds, room;
	uint64_t elements, bytes; /* of all rounds together */
	uint64_t descriptors;	  /* of one round; 0: not done by the manager */
	uint64_t wall, cpu, target_cpu;
	int64_t mallocs; /* -1: not counted */
};

struct bench_result {
	char name[32];
	char what[64]; /* in words */
	enum bench_unit unit;
	struct bench_series series[3]; /* the manager, then the yardsticks */
	unsigned int num_series;
};

/* The heading above all cases. */
struct bench_head {
	enum bench_format format;
	const char *subject; /* what is measured, in a word */
	char title[160];
	json_t *json; /* an object; owned by the report from then on */
};

void report_begin(const struct bench_head *head);
struct bench_series *report_series(struct bench_result *r, const char *name, const char *words,
				   size_t room);
void report_result(struct bench_result *r); /* and frees its series */
void report_end(void);
void report_progress(const char *name, size_t done, size_t all); /* only if stderr is a terminal */

/* xfer_cases.c */
int bench_measure(const struct bench_options *o);

/*
 * part_xfer.c, part_heap.c, part_tcp.c, part_verbs.c, part_pool.c, part_object.c, part_file.c;
 * argv[0]: the part's name
 */
int part_xfer(int argc, char **argv);
int part_heap(int argc, char **argv);
int part_tcp(int argc, char **argv);
int part_verbs(int argc, char **argv);
int part_pool(int argc, char **argv);
int part_object(int argc, char **argv);
int part_file(int argc, char **argv);

/* part_load.c: results of a load */
struct part_figures {
	uint64_t operations, ns;
	uint64_t cpu; /* nanoseconds of this process */
	struct times times;
};

void part_load_begin(struct part_figures *f);
void part_load_end(struct part_figures *f, bool json); /* prints them */

/* heap_mate.c: a second process or thread that works beside this one */

/* n operations; both sides begin theirs at the same time */
typedef void (*bench_part)(uint64_t n);

enum mate_kind { MATE_PROCESS, MATE_THREAD };

struct bench_mate;

struct bench_mate *mate_start(enum mate_kind kind); /* on the first CPU; asleep */
void mate_begin(struct bench_mate *m, bench_part part, uint64_t n);
void mate_await(struct bench_mate *m, uint64_t *ns,
		uint64_t *cpu);			     /* time of its part of the round */
void mate_do(struct bench_mate *m, bench_part part); /* both */
void mate_end(struct bench_mate *m);
void mate_relax(const struct bench_mate
			*m); /* in a loop that waits for the mate: detects that it has died */

/* heap_cases.c */
int bench_heap_measure(const struct bench_options *o);

#endif
