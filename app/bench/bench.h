/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench.h - stag bench: the runner, which measures every part of stag beside its yardsticks.
 *
 * A noun (verbs, xfer, ...) has cases; a case has series, of which the first is stag's and the others
 * are yardsticks. A pass measures all series of a case, one after the other, so that what is compared ran
 * within seconds; the next pass takes them in the other order. What is measured runs in processes of its
 * own: parts of stag (part.h), servers, and other people's programs. A yardstick that cannot be measured
 * says why, and what to install.
 *
 * All that was measured becomes one JSON document (result.c). The table, the TSV, the page and the
 * comparison of two runs are made of that and nothing else.
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

/* One run of one series. */
struct suite_sample {
	bool taken;
	double value;
	double cpu_us, server_us; /* processor time of an operation; negative: unknown */
	json_t *latency;	  /* {"p50": microseconds, ...}, or NULL */
};

struct suite_series {
	const char *name;
	char what[96];
	char missing[192]; /* why it is not measured */
	char install[64];  /* and what would help */
	struct suite_sample samples[SUITE_PASSES];
};

struct suite_noun;

struct suite_case {
	const struct suite_noun *noun;
	char name[32];
	char what[96];
	const char *unit;
	enum suite_better better;
	uint64_t size;	 /* bytes of an operation; 0: it has none */
	const void *own; /* the noun's */
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
	double secs; /* of one run */
	unsigned int passes;
	const char *congestion; /* of the private network; "inherit": the machine's own network */
	const char *directory;	/* of the files that are on a disk */
	const char *html, *json_file;
	enum { SHOW_TABLE, SHOW_TSV, SHOW_JSON } show;
};

struct suite {
	struct suite_options o;
	struct suite_case *cases;
	unsigned int num_cases;
	char shm[128], disk[256]; /* directories of our own; disk: "" where there is none */
	char log[160];		  /* what all that was started said */
	json_t *programs;	  /* versions of yardsticks */
	bool private_network;
	uint64_t began;
	const struct suite_noun *noun; /* that is measured now, */
	unsigned int pass;	       /* and in which pass */
};

struct suite_noun {
	const char *name;
	const char *what;
	void (*list)(struct suite *s);	/* adds its cases */
	void (*begin)(struct suite *s); /* what all of its cases need; may be NULL */
	void (*measure)(struct suite *s, struct suite_case *c, unsigned int pass);
};

extern const struct suite_noun suite_verbs, suite_xfer, suite_heap, suite_store, suite_block,
	suite_pool;

/* suite.c */

bool suite_is_noun(const char *word); /* or "all" */
int suite_run(const struct suite_options *o);
int suite_list(const struct suite_options *o);

/* A case that was asked for, or NULL: quick says whether it is one of the short run. */
struct suite_case *suite_add(struct suite *s, const struct suite_noun *noun, const char *name,
			     bool quick);
bool suite_wants(const struct suite *s, const struct suite_noun *noun, const char *pattern);
void suite_yardstick(struct suite_case *c, const char *name, const char *what);
struct suite_series *suite_find(struct suite_case *c, const char *name);
void suite_missing(struct suite *s, const struct suite_noun *noun, const char *yardstick,
		   const char *install, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void suite_failed(struct suite_case *c, const char *why);

/* Each series of the case in turn, the other way around in every other pass; those that are missing are left out. */
void suite_turns(struct suite *s, struct suite_case *c, unsigned int pass,
		 bool (*take)(struct suite *s, struct suite_case *c, unsigned int series,
			      struct suite_sample *to));

/* child.c: processes */

enum child_cpu { CPU_ANY, CPU_SERVER, CPU_CLIENT };

extern volatile int child_interrupted; /* by a signal: nothing more is to be started */

/* Its stdout, to be freed; NULL: it failed, or took too long, and child_complaint() has a line. */
char *child_output(const struct suite *s, enum child_cpu cpu, const char *const *words);
const char *child_complaint(void);

/* Of this program: stag WORDS... */
json_t *child_stag(const struct suite *s, enum child_cpu cpu, const char *const *words);
json_t *child_json(const struct suite *s, enum child_cpu cpu, const char *const *words);

/* A server that is ended with us, once it listens at the port; 0, or -1 and a complaint. */
pid_t child_serve(const struct suite *s, enum child_cpu cpu, uint16_t port,
		  const char *const *words);
uint64_t child_cpu_ns(pid_t pid); /* that it has used; 0: nobody knows */
void child_stop_all(void);
const char *child_self(void); /* the path of the command stag */

/* place.c: where it runs */

int place_make(struct suite *s);
void place_remove(struct suite *s);
uint16_t place_port(void); /* that nobody listens at */

/* yardstick.c: what other people's programs need and say */

bool yard_have(struct suite *s, const struct suite_noun *noun, const char *yardstick,
	       const char *program, const char *package); /* else it is told as missing */
bool yard_sample(json_t *figures, struct suite_sample *to,
		 double scale); /* of a load; takes the reference */
bool yard_pair(json_t *figures, struct suite_sample *to);
bool yard_fio(const struct suite *s, const char *const *words, struct suite_sample *to);

/* The better of two who send a stream of such messages: who polls, and who sleeps, in GB/s; once in a pass for each size. */
bool yard_stream(struct suite *s, uint64_t size, struct suite_sample *to);

/* machine.c */

json_t *machine_facts(const struct suite *s);
void machine_watch(void); /* begins to look at what others take */
json_t *machine_noise(void);

/* result.c */

json_t *result_make(const struct suite *s);
double result_number(const json_t *o, const char *key);	     /* NAN: there is none */
const char *result_string(const json_t *o, const char *key); /* "": there is none */
json_t *result_load(const char *file);			     /* NULL, having complained */

/* report.c */

void report_table(const json_t *result, FILE *to);
void report_tsv(const json_t *result, FILE *to);
const char *report_number(double v, char *text, size_t size); /* three digits; "-": there is none */

/* page.c */

bool page_available(void); /* false, having complained, if this build has no page */
int page_write(const json_t *result, const char *file);

/* compare.c */

struct compare_options {
	const char *before, *after;
	double noise; /* percent that is none, at the least */
	bool by_value, fail, json;
};

int compare_run(const struct compare_options *o);

#endif
