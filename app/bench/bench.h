/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench.h - stag bench: the runner, which measures every part of stag beside its yardsticks.
 *
 * A noun (verbs, xfer, ...) has cases; a case has series: the first is stag's, the others are
 * yardsticks. A pass measures all series of a case, one after the other, so that compared figures
 * were measured within seconds; the next pass reverses the order. Measurements run in processes of
 * their own: parts of stag (part.h), servers, and programs of others. A yardstick that cannot be
 * measured says why, and what to install.
 *
 * All figures become one JSON document (result.c). The table, the TSV, the page and the comparison
 * of two runs are made from that document alone.
 */
#ifndef STAG_APP_BENCH_H
#define STAG_APP_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define SUITE_PASSES 50
#define SUITE_SERIES 5

enum suite_better { BETTER_MORE, BETTER_LESS };

/* One measurement of one series. */
struct suite_sample {
	bool taken;
	double value;
	double cpu_us, server_us; /* processor time per operation; negative: unknown */
	json_t *latency;	  /* {"p50": microseconds, ...}, or NULL */
};

struct suite_series {
	const char *name;
	char what[96];
	char missing[192]; /* why it is not measured */
	char install[64];  /* the command that installs what is missing */
	struct suite_sample samples[SUITE_PASSES];
};

struct suite_noun;

struct suite_case {
	const struct suite_noun *noun;
	char name[32];
	char what[96];
	const char *unit;
	enum suite_better better;
	uint64_t size;	 /* bytes of an operation; 0: not applicable */
	const void *own; /* data of the noun */
	char error[256]; /* why stag itself gave no figure */
	struct suite_series *series;
	unsigned int num_series;
};

struct suite_options {
	const char *nouns[8];
	unsigned int num_nouns;
	const char *patterns[16];
	unsigned int num_patterns;
	bool quick;
	double secs; /* seconds of one measurement */
	unsigned int passes;
	const char *congestion; /* of the private network; "inherit": the machine's own network */
	const char *directory;	/* for files that have to be on a disk */
	const char *html, *json_file;
	enum { SHOW_TABLE, SHOW_TSV, SHOW_JSON } show;
};

struct suite {
	struct suite_options o;
	struct suite_case *cases;
	unsigned int num_cases;
	char shm[128], disk[256]; /* temporary directories; disk: "" if there is none */
	char log[160];		  /* file with the stderr of all processes */
	json_t *programs;	  /* version of each yardstick */
	bool private_network;
	uint64_t began;
	const struct suite_noun *noun; /* being measured */
	unsigned int pass;	       /* number of the pass */
};

struct suite_noun {
	const char *name;
	const char *what;
	void (*list)(struct suite *s);	/* adds its cases */
	void (*begin)(struct suite *s); /* starts what all of its cases need; may be NULL */
	void (*measure)(struct suite *s, struct suite_case *c, unsigned int pass);
};

extern const struct suite_noun suite_verbs, suite_xfer, suite_heap, suite_store, suite_block,
	suite_pool;

/* suite.c */

bool suite_is_noun(const char *word); /* or "all" */
int suite_run(const struct suite_options *o);
int suite_list(const struct suite_options *o);

/* Adds a case if it is selected, and returns it, or NULL. quick: it belongs to the short run. */
struct suite_case *suite_add(struct suite *s, const struct suite_noun *noun, const char *name,
			     bool quick);
bool suite_wants(const struct suite *s, const struct suite_noun *noun, const char *pattern);
void suite_yardstick(struct suite_case *c, const char *name, const char *what);
struct suite_series *suite_find(struct suite_case *c, const char *name);
void suite_missing(struct suite *s, const struct suite_noun *noun, const char *yardstick,
		   const char *install, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void suite_failed(struct suite_case *c, const char *why);

/*
 * Measures each series of the case in turn, in reverse order in every other pass. Series that are
 * missing are skipped.
 */
void suite_turns(struct suite *s, struct suite_case *c, unsigned int pass,
		 bool (*take)(struct suite *s, struct suite_case *c, unsigned int series,
			      struct suite_sample *to));

/* child.c: processes */

enum child_cpu { CPU_ANY, CPU_SERVER, CPU_CLIENT };

extern volatile int child_interrupted; /* the signal that was received: start nothing more */

/*
 * Runs a program. Returns its stdout, which the caller frees; NULL: it failed or timed out, see
 * child_complaint().
 */
char *child_output(const struct suite *s, enum child_cpu cpu, const char *const *words);
const char *child_complaint(void);

/* Runs `stag WORDS...`. */
json_t *child_stag(const struct suite *s, enum child_cpu cpu, const char *const *words);
json_t *child_json(const struct suite *s, enum child_cpu cpu, const char *const *words);

/*
 * Starts a server, which ends with this process, and waits until it listens on the port. Returns
 * its pid, or -1 and a complaint.
 */
pid_t child_serve(const struct suite *s, enum child_cpu cpu, uint16_t port,
		  const char *const *words);
uint64_t child_cpu_ns(pid_t pid); /* that the process has used; 0: unknown */
void child_stop_all(void);
const char *child_self(void); /* the path of the command stag */

/* place.c: the network and directories of a run */

int place_make(struct suite *s);
void place_remove(struct suite *s);
uint16_t place_port(void); /* a free port */

/* yardstick.c: programs of others and their output */

bool yard_have(struct suite *s, const struct suite_noun *noun, const char *yardstick,
	       const char *program, const char *package); /* false: it was reported as missing */
bool yard_sample(json_t *figures, struct suite_sample *to,
		 double scale); /* of a load; consumes the reference */
bool yard_pair(json_t *figures, struct suite_sample *to);
bool yard_fio(const struct suite *s, const char *const *words, struct suite_sample *to);

/*
 * Measures a TCP stream of such messages in GB/s: the better of polling and sleeping. Once in a
 * pass for each size.
 */
bool yard_stream(struct suite *s, uint64_t size, struct suite_sample *to);

/* machine.c */

json_t *machine_facts(const struct suite *s);
void machine_watch(void); /* begins to measure what other programs use */
json_t *machine_noise(void);

/* result.c */

json_t *result_make(const struct suite *s);
double result_number(const json_t *o, const char *key);	     /* NAN: missing */
const char *result_string(const json_t *o, const char *key); /* "": missing */
json_t *result_load(const char *file);			     /* NULL after it has complained */

/* report.c */

void report_table(const json_t *result, FILE *to);
void report_tsv(const json_t *result, FILE *to);
const char *report_number(double v, char *text, size_t size); /* three digits; "-": missing */

/* page.c */

bool page_available(void); /* false, after it has complained: this build has no page */
int page_write(const json_t *result, const char *file);

/* compare.c */

struct compare_options {
	const char *before, *after;
	double noise; /* percent: smaller changes are noise */
	bool by_value, fail, json;
};

int compare_run(const struct compare_options *o);

#endif
