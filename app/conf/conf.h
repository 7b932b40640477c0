/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * conf.h - the INI file of stagd, stag.ini(5): read, checked, and made into what libstag takes.
 *
 * Everything that is wrong with it is told, each with its line; not just the first.
 *
 *	conf.c         lines, sections, and whose setting it is
 *	conf_words.c   numbers, sizes, times
 *	conf_pool.c    [pool NAME]: its settings, and whether they fit together
 */
#ifndef STAG_APP_CONF_H
#define STAG_APP_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "pool/secrets.h"
#include "stag/pool.h"

#define CONF_PATH	  "/etc/stag/stag.ini"
#define CONF_STATE	  "/var/lib/stag" /* the pool's name behind it */
#define CONF_SECRETS	  "secrets"	  /* in the state directory */
#define CONF_SETTINGS_MAX 32

struct conf;

/* A node of a pool. What was not set is NULL or 0, until conf_pool_check(). */
struct conf_pool {
	char *name;
	unsigned int line; /* of its section */
	unsigned int lines[CONF_SETTINGS_MAX];

	char *node, *state, *secrets_file, *address, *advertise;
	char *roll, *roll_ca, *roll_cert, *roll_key, *roll_user, *roll_password_file;
	uint64_t port, size, memory, clients, log_size;
	uint64_t beat, lease, promote, expire, roll_timeout; /* microseconds */
	bool create, overwrite, mirror;

	/* made of these: */
	struct secrets secrets;
	struct stag_pool_user *users;
	struct stag_pool_node_attr attr; /* its strings are ours */
};

struct conf {
	char *path;
	FILE *complaints; /* where to tell what is wrong; NULL: nowhere */
	unsigned int faults;
	struct conf_pool *pools;
	unsigned int num_pools;
};

/*
 * -EBADMSG: something is wrong with it, and was told. -errno: it cannot be read, and that was told, too. conf_free() in any
 * case. The secrets that it names are read.
 */
int conf_read(struct conf *conf, const char *path, FILE *complaints);
void conf_free(struct conf *conf);

/* One that belongs to the file at this line; 0: to the whole file. */
void conf_fault(struct conf *conf, unsigned int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- conf_pool.c -------------------------------------------------------------- */

void conf_pool_init(struct conf_pool *p, const char *name, unsigned int line);
void conf_pool_set(struct conf *conf, struct conf_pool *p, unsigned int line, const char *name,
		   const char *value);
void conf_pool_check(struct conf *conf, struct conf_pool *p);
void conf_pool_free(struct conf_pool *p);
/* The first setting, or "the secret of the nodes", that two have different; NULL: none. Users are not looked at. */
const char *conf_pool_differs(const struct conf_pool *a, const struct conf_pool *b);

/* ---- conf_words.c --------------------------------------------------------------- */

bool conf_parse_count(const char *text, uint64_t *n);	/* 12, 0x7f */
bool conf_parse_size(const char *text, uint64_t *size); /* 4096, 512K, 1G, 1GiB */
bool conf_parse_time(const char *text, uint64_t *us);	/* 500us, 20ms, 1.5s, 10m, 1h */
bool conf_parse_switch(const char *text, bool *on);	/* yes, no, on, off, true, false */

#endif
