/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * top.h - stag top: what its files share.
 *
 * A look (top_look.c) is a sample: the answers of all processes and daemons at one time. A look and the one before become
 * rows with rates (top_rows.c), which are printed (top_show.c), on a terminal in place (top_screen.c).
 */
#ifndef STAG_APP_TOP_H
#define STAG_APP_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum top_order { BY_TRAFFIC, BY_REQUESTS, BY_LATENCY, BY_PID, TOP_ORDERS };

struct top_options {
	double interval;
	uint64_t count; /* 0: no end */
	uint32_t pid;	/* 0: all processes */
	bool of_user;
	uid_t user;
	bool json;
	bool connections; /* list connections, instead of processes with connections */
	enum top_order order;
};

/* ---- top_look.c ---- */

struct top_look {
	json_t *processes, *daemons; /* arrays of their answers */
	uint64_t ns;
};

void top_look(struct top_look *l, const struct top_options *o);
void top_forget(struct top_look *l);

/* ---- top_rows.c ---- */

struct top_rates {
	double tx, rx; /* bytes per second; of a daemon's service: read from it, written to it */
	double requests, done; /* posts, operations; completions */
	double p50, p99;       /* ns */
	bool timed;	       /* there were times to compute the quantiles from */
};

enum top_kind { TOP_PROCESS, TOP_CONNECTION, TOP_DAEMON, TOP_SERVICE };

struct top_row {
	enum top_kind kind;
	int pid;
	uid_t uid;
	char program[64];
	uint32_t qpn;
	char state[8], peer_kind[8], local[64], peer[64];
	char tls[32];		 /* " TLSv1.3"; empty: not encrypted */
	unsigned int used, size; /* entries of the send queue */
	unsigned int connections;
	bool silent;	/* a process or a daemon that does not answer */
	char text[192]; /* of a daemon or a service */
	struct top_rates rates;
	const char *what; /* of a service: pool, watch, store, target */
	size_t group,
		came; /* index of the row of its process or daemon, and of its own, before sorting */
	const json_t *said; /* the answer that the row is made of */
};

struct top_rows {
	struct top_row *row;
	size_t n, room;
	size_t processes, connections, daemons;
	struct top_rates sum; /* of all processes */
	bool has_rates;	      /* there was an earlier look */
};

/* before: the earlier look; its processes are NULL if there is none. Returns false if memory runs out. */
bool top_rows_make(struct top_rows *rows, const struct top_look *now, const struct top_look *before,
		   const struct top_options *o);
void top_rows_drop(struct top_rows *rows);

/* ---- top_show.c ---- */

const char *top_order_word(enum top_order order);
/* These write lines of at most width columns; 0: no limit. */
void top_head(const struct top_rows *rows, const struct top_options *o, int width, char *text,
	      size_t size);
void top_titles(int width, char *text, size_t size);
void top_line(const struct top_rows *rows, const struct top_row *row, const struct top_options *o,
	      int width, char *text, size_t size);
bool top_is_shown(const struct top_row *row, const struct top_options *o);
void top_print(const struct top_rows *rows, const struct top_options *o);
void top_print_json(const struct top_rows *rows, const struct top_options *o,
		    const struct top_look *l);

/* ---- top_screen.c ---- */

bool top_screen_open(void); /* returns false if stdout is not a terminal */
void top_screen_close(void);
void top_screen_draw(const struct top_rows *rows, const struct top_options *o);
/* Waits until then, or until a key or a signal. Returns what to do next. */
enum top_wish { TOP_GO_ON, TOP_DRAW, TOP_LOOK, TOP_END };
enum top_wish top_screen_wait(uint64_t until, struct top_options *o);

#endif
