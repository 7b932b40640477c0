/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * conf.h - the INI file of stagd, stag.ini(5): read, checked, and made into what libstag takes.
 *
 * Everything that is wrong with it is told, each with its line; not just the first.
 *
 *	conf.c          lines, sections, drop-ins, and whose setting it is
 *	conf_setting.c  settings of a section, one at a time, by a table
 *	conf_help.c     the same tables as text: for the manual and for the shipped example
 *	conf_words.c    numbers, sizes, times
 *	conf_file.c     what is in other files: secrets, tokens
 *	conf_place.c    where things are unless somebody says
 *	conf_daemon.c, conf_pool.c, conf_watch.c, conf_store.c, conf_target.c, conf_api.c
 *	                a kind of section each: its settings, and whether they fit together
 */
#ifndef STAG_APP_CONF_H
#define STAG_APP_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "secrets.h"
#include "stag/block.h"
#include "stag/pool.h"
#include "stag/store.h"

#define CONF_PATH	  "/etc/stag/stag.ini"
#define CONF_STATE	  "/var/lib/stag" /* the pool's name behind it */
#define CONF_SECRETS	  "secrets"	  /* in the state directory */
#define CONF_DROPINS	  "conf.d"	  /* in that of the daemon */
#define CONF_SETTINGS_MAX 32
#define CONF_SECRET_MAX	  256

struct conf;
struct conf_kind;

/* A setting that may repeat under different names: "lun.1", "partition.goods". */
struct conf_item {
	char *name, *value; /* name: what is behind the dot */
	unsigned int line;
};

/* What all kinds begin with. Whoever keeps one has a reference: it outlives its file. */
struct conf_section {
	const struct conf_kind *kind;
	char *name; /* "": of a kind of which there is one */
	char *path; /* of its file */
	unsigned int line;
	bool dropin;
	char *text; /* its settings, as they were written */
	unsigned int lines[CONF_SETTINGS_MAX];
	struct conf_item *items;
	unsigned int num_items;
	unsigned int refs;
	struct conf_section *next;
};

/* A node of a pool. What was not set is NULL or 0, until it was checked; so of all kinds. */
struct conf_pool {
	struct conf_section at;
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

/* A pool that others serve. */
struct conf_watch {
	struct conf_section at;
	char *nodes, *user, *secret_file;

	char secret[CONF_SECRET_MAX];
};

struct conf_store {
	struct conf_section at;
	char *store, *address, *label; /* store: its path, or mem:NAME */
	uint64_t port, max_connections, staging, cache, size, block;
	bool create;

	struct stag_store_server_attr attr;
	struct stag_store_attr made; /* as which it is made */
};

/* A line "partition.NAME = SIZE [order=…] [level=…] [cache=…] [RIGHT…]", taken apart; size is as it was written, for whoever knows the room. */
struct conf_partition {
	char size[32];
	struct stag_store_partition p;
};

struct conf_target {
	struct conf_section at;
	char *iqn, *alias, *address, *transports;
	char *user, *secret_file, *own_user, *own_secret_file;
	uint64_t port, max_sessions, staging, spin; /* spin: microseconds */

	char secret[CONF_SECRET_MAX], own_secret[CONF_SECRET_MAX];
	struct stag_block_target_attr attr;
};

/* A line "lun.N = WHERE [ro] [write-back] [block=4096]", taken apart. WHERE: store:STORE/PARTITION, PATH:PARTITION, or a path. */
struct conf_lun {
	char *store, *partition;   /* of store:…; else NULL */
	char *where;		   /* else */
	struct stag_block_lun lun; /* but its where */
};

/* [api]: where the management API is, and who may use it. */
struct conf_api {
	struct conf_section at;
	char *listen; /* "HOST:PORT", an IPv6 address in brackets; port 0: a free one. NULL: not on TCP */
	char *socket;	  /* path of a Unix socket; NULL: none */
	char *token_file; /* NULL: no token */
	char *hosts;  /* other names of this host in Host:, with commas between them; NULL: none */
	bool console; /* is the web page served? */
	uint64_t body_max, connections;

	char *token; /* what is in its file; NULL: none */
};

enum conf_log { CONF_LOG_STDERR, CONF_LOG_JOURNAL, CONF_LOG_JSON };

/* [daemon]: the process. There is always one. */
struct conf_daemon {
	struct conf_section at;
	char *name, *user, *group, *state, *control;
	uint64_t log, log_level; /* enum conf_log; 0 err, 1 warn, 2 info, 3 debug */
};

enum conf_flags {
	CONF_TEXT_ONLY = 1 << 0, /* no other file is opened, and no name looked up */
	CONF_NO_DROPINS = 1 << 1,
};

struct conf {
	char *path;	    /* of the main file */
	const char *file;   /* whose faults are told now */
	FILE *complaints;   /* where to tell what is wrong; NULL: nowhere */
	unsigned int flags; /* enum conf_flags */
	unsigned int faults;
	struct conf_section *sections; /* in the order of the files */
	struct conf_daemon *daemon;
};

/* A drop-in as if its file said this; text NULL: as if it was not there. */
struct conf_instead {
	const char *file, *text; /* file: its name in the directory */
};

/*
 * -EBADMSG: something is wrong with it, and was told. -errno: it cannot be read, and that was told, too. conf_free() in any
 * case. The secrets that it names are read. instead may be NULL.
 */
int conf_read(struct conf *conf, const char *path, FILE *complaints);
int conf_read_as(struct conf *conf, const char *path, FILE *complaints, unsigned int flags,
		 const struct conf_instead *instead);
/* The same of what is open already, and of nothing else. */
int conf_read_stream(struct conf *conf, const char *path, FILE *file, FILE *complaints,
		     unsigned int flags);
void conf_free(struct conf *conf);

/* One that belongs to the file at this line; 0: to the whole file. */
void conf_fault(struct conf *conf, unsigned int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

extern const struct conf_kind conf_daemon_kind, conf_pool_kind, conf_watch_kind, conf_store_kind,
	conf_target_kind, conf_api_kind;

const char *conf_kind_word(const struct conf_kind *kind); /* "pool" */
const struct conf_kind *conf_kind_of(const char *word);	  /* NULL: there is none */
/* The next of a kind (NULL: of any), behind `before` (NULL: the first). NULL: no more. */
void *conf_next(const struct conf *conf, const struct conf_kind *kind, const void *before);
void *conf_find(const struct conf *conf, const struct conf_kind *kind, const char *name);
bool conf_wants_low_port(const struct conf *conf); /* one that is root's */
/* Both listen there, and only one of them can. */
bool conf_is_same_port(const struct conf_section *a, const struct conf_section *b);
struct conf_section *conf_get(struct conf_section *s); /* a reference */
void conf_put(struct conf_section *s);		       /* NULL: nothing */

/* The first setting, or "the secret of the nodes", that two of a kind have different; NULL: none. Neither users nor items are looked at. */
const char *conf_differs(const void *a, const void *b);
/* The same, of those that a reload does not apply. */
const char *conf_needs_restart(const void *a, const void *b);
bool conf_is_same_items(const void *a, const void *b);
const struct conf_item *conf_item_of(const struct conf_section *s, const char *name);

/* conf_place.c: where nodes of this user have their directories, DIRECTORY/POOL/NODE; it may not be there. False: nobody knows. */
bool conf_state_dir(char *path, size_t size);

/* Of an item that was checked, or is to be: false, having told the fault. */
bool conf_store_partition(struct conf *conf, const struct conf_item *item,
			  struct conf_partition *p);
bool conf_target_lun(struct conf *conf, const struct conf_item *item, struct conf_lun *l);
void conf_lun_free(struct conf_lun *l);
/* A word behind a unit's place, ro, write-back or block=N; false: it is none. Whether N can be is for others to say. */
bool conf_lun_word(const char *word, struct stag_block_lun *l);

/* ---- for the kinds -------------------------------------------------------------------- */

/*
 * Everything that is said about a setting is said in its row: the INI parser, the comparison at a reload, the bodies that the
 * management API takes, openapi.yaml, stag.ini.example and stag.ini(5) are made of these tables.
 */
enum conf_type {
	CONF_TEXT,
	CONF_NAME,
	CONF_FILE, /* relative paths start at the directory of the main file */
	CONF_MADE, /* text that `make` checks and converts */
	CONF_COUNT,
	CONF_ADDRESS, /* of memory */
	CONF_SIZE,    /* bytes */
	CONF_TIME,    /* microseconds */
	CONF_SWITCH,
	CONF_CHOICE, /* the index of one of `words` */
};

/* The part of a setting in the body with which the management API creates a section. */
enum conf_json_use {
	CONF_JSON_OPTIONAL,
	CONF_JSON_REQUIRED,
	CONF_JSON_HANDLED, /* optional; the handler acts on it, and the drop-in does not get it */
};

/* A heading in the manual and the example, above the first setting of several that belong together. */
struct conf_group {
	const char *heading;
	const char *text; /* below the heading, in Markdown; may be NULL */
};

struct conf_setting {
	const char *name;
	enum conf_type type;
	size_t at; /* offset in the section's struct of a char *, a bool (a switch) or a uint64_t */
	uint64_t least, most; /* of a number */
	uint64_t unit;	      /* a number has to be a multiple of this; 0: any number */
	const char *wanted;   /* MADE, CHOICE: describes a valid value, for error messages */
	char *(*make)(const struct conf *conf, const char *value); /* NULL: the value is invalid */
	const char *const *words;				   /* CHOICE; ends with NULL */

	const char *preset; /* the default as the file would have it; set before the file is read */
	const char *usual;  /* a default that is no fixed value, in words. Neither: required */
	const char *sample; /* a value for the example if there is no preset */
	bool live;	    /* a reload applies it; else only a restart does */
	const char *json;   /* the field of the API's body; NULL: the API does not take it */
	enum conf_json_use json_use;

	const char *value; /* the manual's words behind the =, in Markdown; NULL: by type */
	const char *help;  /* one line of plain text; the manual begins with it */
	const char *more;  /* further sentences for the manual, in Markdown; may be NULL */
	const struct conf_group *group; /* this setting is the first of a group; else NULL */
};

struct conf_kind {
	const char *word;
	size_t size;
	const struct conf_setting *settings;
	unsigned int num_settings;
	bool is_single;			   /* at most one section, which has no name */
	bool live;			   /* a reload applies all of its settings */
	const struct conf_setting *family; /* of items, "lun."; may be NULL */
	const char *sample;		   /* the section in the example: its name; NULL: "" */
	const char *sample_lines; /* settings that the example has on; NULL: all is commented out */
	void (*check)(struct conf *conf, void *section);
	void (*end)(void *section);			      /* frees what check() has made */
	const char *(*differs)(const void *a, const void *b); /* beyond settings; may be NULL */
};

#define CONF_STRING(macro)	 CONF_STRING_OF(macro)
#define CONF_STRING_OF(expanded) #expanded

/* conf_setting.c */
void conf_set(struct conf *conf, struct conf_section *s, unsigned int line, const char *name,
	      const char *value);
void conf_preset(struct conf *conf, struct conf_section *s); /* every setting gets its default */
void conf_clear(struct conf_section *s);
unsigned int conf_line_of(const struct conf_section *s, const char *name); /* or of its section */
bool conf_is_set(const struct conf_section *s, const char *name);
char *conf_resolve_path(const struct conf *conf, const char *name);

/* conf_help.c: all settings of a kind. Reports an error by ferror(out). */
void conf_print_manual(FILE *out, const struct conf_kind *kind);  /* Markdown */
void conf_print_example(FILE *out, const struct conf_kind *kind); /* a section of an INI file */

/* conf_file.c */
bool conf_read_secret(struct conf *conf, const struct conf_section *s, const char *setting,
		      const char *path, char *to, size_t size); /* the first line */
/* All of a file that is its owner's only; free() it, after explicit_bzero(). NULL, having told. */
char *conf_read_private(struct conf *conf, unsigned int line, const char *setting, const char *path,
			const char *hint);
void conf_check_address(struct conf *conf, const struct conf_section *s, const char *address);

/* conf_words.c */
bool conf_parse_count(const char *text, uint64_t *n);	/* 12, 0x7f */
bool conf_parse_size(const char *text, uint64_t *size); /* 4096, 512K, 1G, 1GiB */
bool conf_parse_time(const char *text, uint64_t *us);	/* 500us, 20ms, 1.5s, 10m, 1h */
bool conf_parse_switch(const char *text, bool *on);	/* yes, no, on, off, true, false */

#endif
