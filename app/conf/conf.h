/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * conf.h - reads and checks the INI file of stagd, stag.ini(5), and converts it to the attributes that libstag takes.
 *
 * Every fault of the file is reported with its line, not just the first one.
 *
 *	conf.c          lines, sections, drop-ins, and checks across sections
 *	conf_setting.c  parses and compares settings, by the table of their section
 *	conf_help.c     prints the tables, for the manual and the shipped example
 *	conf_words.c    parses numbers, sizes, times, switches
 *	conf_file.c     reads files that settings name: secrets, tokens
 *	conf_place.c    default directories
 *	conf_warn.c     warns of what is open to strangers
 *	conf_daemon.c, conf_pool.c, conf_watch.c, conf_store.c, conf_target.c, conf_api.c, conf_token.c
 *	                one kind of section each: its table, and checks across its settings
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
#define CONF_STATE	  "/var/lib/stag" /* default state directory; pools have subdirectories */
#define CONF_SECRETS	  "secrets"	  /* file in a pool's state directory */
#define CONF_DROPINS	  "conf.d"	  /* directory in the daemon's state directory */
#define CONF_SETTINGS_MAX 32
#define CONF_SECRET_MAX	  256

struct conf;
struct conf_kind;

/* A setting that may repeat under different names: "lun.1", "partition.goods". */
struct conf_item {
	char *name, *value; /* name: the part behind the dot */
	unsigned int line;
};

/* The first member of every kind's struct. Reference counted: a service keeps its section after the file was read again. */
struct conf_section {
	const struct conf_kind *kind;
	char *name; /* "" for [daemon] and [api], which have no name */
	char *path; /* of the file that it is in */
	unsigned int line;
	bool dropin;
	char *text;			       /* its lines NAME = VALUE, as written */
	unsigned int lines[CONF_SETTINGS_MAX]; /* of each setting; 0: not set */
	struct conf_item *items;
	unsigned int num_items;
	struct conf_item *others; /* of the kind's second family */
	unsigned int num_others;
	unsigned int refs;
	struct conf_section *next;
};

/* [pool NAME]: a node of a pool. Here and below, a setting without a value is NULL or 0 until check() fills in its default. */
struct conf_pool {
	struct conf_section at;
	char *node, *state, *secrets_file, *address, *advertise;
	char *roll, *roll_ca, *roll_cert, *roll_key, *roll_user, *roll_password_file;
	uint64_t port, size, memory, clients, user_clients, log_size;
	uint64_t tls; /* enum stag_pool_tls */
	char *tls_cert, *tls_key, *tls_ca;
	uint64_t beat, lease, promote, expire, retry, client_timeout,
		roll_timeout; /* microseconds */
	bool create, overwrite, mirror, roll_plain_password;

	/* made of the settings by check(): */
	struct secrets secrets;
	struct stag_pool_user *users;
	struct stag_pool_node_attr attr; /* its strings belong to this struct */
};

/* Returns whether a setting counts when the pool is created, and never again. */
bool conf_pool_counts_once(const char *setting);

extern const char
	*const conf_tls_words[]; /* by enum stag_pool_tls, stag_block_tls; NULL: the end */
/* Checks the TLS settings of a pool. Returns `tls`, or its default if it is not set. */
uint64_t conf_check_tls(struct conf *conf, const struct conf_section *at, uint64_t tls,
			const char *cert, const char *key, const char *ca);

/* [watch NAME]: a pool that other daemons serve. */
struct conf_watch {
	struct conf_section at;
	char *nodes, *user, *secret_file;
	uint64_t tls; /* enum stag_pool_tls */
	char *tls_cert, *tls_key, *tls_ca;

	char secret[CONF_SECRET_MAX];
};

/* [store NAME] */
struct conf_store {
	struct conf_section at;
	char *store, *address, *label; /* store: the path, or mem:NAME */
	uint64_t port, max_connections, staging, cache, size, block;
	uint64_t client_timeout; /* microseconds */
	uint64_t tls;		 /* enum stagdv_tls_mode, if it is set */
	bool create;

	struct stag_store_server_attr attr;
	struct stag_store_attr made; /* attributes for formatting */
};

/* A parsed line "partition.NAME = SIZE [order=…] [level=…] [cache=…] [RIGHT…]". SIZE stays text: a share needs the store's size. */
struct conf_partition {
	char size[32];
	struct stag_store_partition p;
};

/* [target NAME] */
struct conf_target {
	struct conf_section at;
	char *iqn, *alias, *address, *transports;
	char *user, *secret_file, *own_user, *own_secret_file, *state;
	uint64_t port, max_sessions, staging, spin; /* spin: microseconds */
	uint64_t tls;				    /* enum stag_block_tls */

	char secret[CONF_SECRET_MAX], own_secret[CONF_SECRET_MAX];
	struct conf_right *parsed;	 /* of each line initiator.NAME */
	struct stag_block_right *rights; /* the same, for attr */
	struct stag_block_target_attr attr;
};

/* A right to use a target: "PATTERN [user=NAME secret-file=FILE] [lun=LIST] [ro]". */
struct conf_right {
	char *text;		       /* that the others point into */
	const char *secret_file;       /* NULL: none */
	struct stag_block_right right; /* without its secret */
	char secret[CONF_SECRET_MAX];  /* room for it */
};

#define CONF_LUN_MOST 16383 /* highest number of a logical unit */

/* A parsed line "lun.N = WHERE [ro] [write-back] [block=4096]". WHERE: store:STORE/PARTITION, PATH:PARTITION, or a path. */
struct conf_lun {
	char *store, *partition;   /* if WHERE is store:…; else NULL */
	char *where;		   /* any other WHERE; else NULL */
	struct stag_block_lun lun; /* without its where */
};

/* [api]: the management API. */
struct conf_api {
	struct conf_section at;
	char *listen; /* "HOST:PORT", an IPv6 address in brackets; port 0: any free one. NULL: no TCP */
	char *socket;	    /* path of a Unix socket; NULL: none */
	char *token_file;   /* NULL: no token */
	char *hosts;	    /* further host names to accept in Host:, comma-separated; NULL: none */
	char *roots;	    /* directories, comma-separated; NULL: those that the file uses */
	char *socket_group; /* whose members may use the socket; NULL: nobody else */
	char *tls_cert, *tls_key;
	bool console; /* serve the web console */
	uint64_t body_max, connections, idle, streams;
	uint64_t socket_role; /* of that group: 0 look, 1 operate, 2 administer */
	uint64_t tls;	      /* enum conf_tls */

	char *token;		    /* the content of token_file; NULL: none */
	char *cert_text, *key_text; /* of tls_cert and tls_key; NULL: none */
	bool token_made;	    /* token_file is the default: it is made if it does not exist */
};

enum conf_tls { CONF_TLS_OFF, CONF_TLS_ALLOWED, CONF_TLS_REQUIRED };

#define CONF_API_TOKEN	"api"	    /* name of the token in token_file */
#define CONF_MADE_TOKEN "api.token" /* file in the state directory */

/* [token NAME]: a token of the management API. */
struct conf_token {
	struct conf_section at;
	char *hash, *file;
	uint64_t role; /* 0 look, 1 operate, 2 administer */

	unsigned char token_hash[32];
};

#define CONF_TOKEN_WANTED                                                                          \
	"a token has %d characters or more: letters, digits and -._~+/=. Create one with head -c " \
	"24 /dev/urandom | base64 >%s"

enum conf_log { CONF_LOG_STDERR, CONF_LOG_JOURNAL, CONF_LOG_JSON };

/* [daemon]: the process. It exists with defaults even if the file does not have it. */
struct conf_daemon {
	struct conf_section at;
	char *name, *user, *group, *state, *control, *audit_file;
	uint64_t log, log_level; /* enum conf_log; 0 err, 1 warn, 2 info, 3 debug */
	uint64_t live;		 /* processes to query: 0 of this user, 1 of all users */
};

enum conf_flags {
	CONF_TEXT_ONLY = 1 << 0, /* open no other file, and look up no name of a user or host */
	CONF_NO_DROPINS = 1 << 1,
};

struct conf {
	char *path;	    /* of the main file */
	const char *file;   /* the file that conf_fault() names; NULL: the main file */
	FILE *complaints;   /* receives the faults, a line each; NULL: none are printed */
	unsigned int flags; /* enum conf_flags */
	unsigned int faults;
	struct conf_section *sections; /* in the order of the files */
	struct conf_daemon *daemon;
};

/* Replaces the content of a drop-in for one reading; text NULL: as if the file did not exist. */
struct conf_instead {
	const char *file, *text; /* file: its name in the directory */
};

/*
 * Reads the file, its drop-ins and the secrets that they name. Returns -EBADMSG if they have faults, another -errno if the
 * file cannot be read; both are reported to `complaints`. conf_free() is required in any case. instead may be NULL.
 */
int conf_read(struct conf *conf, const char *path, FILE *complaints);
int conf_read_as(struct conf *conf, const char *path, FILE *complaints, unsigned int flags,
		 const struct conf_instead *instead);
/* Does the same for an open stream, without drop-ins. */
int conf_read_stream(struct conf *conf, const char *path, FILE *file, FILE *complaints,
		     unsigned int flags);
void conf_free(struct conf *conf);

/* Reports a fault at this line of the file; 0: of the whole file. */
void conf_fault(struct conf *conf, unsigned int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

extern const struct conf_kind conf_daemon_kind, conf_pool_kind, conf_watch_kind, conf_store_kind,
	conf_target_kind, conf_api_kind, conf_token_kind;

const char *conf_kind_word(const struct conf_kind *kind); /* "pool" */
const struct conf_kind *conf_kind_of(const char *word);	  /* NULL: no such kind */
/* Returns the next section of a kind (NULL: any kind) after `before` (NULL: the first), or NULL at the end. */
void *conf_next(const struct conf *conf, const struct conf_kind *kind, const void *before);
void *conf_find(const struct conf *conf, const struct conf_kind *kind, const char *name);
/* Returns whether a section listens on a port below 1024, which requires a privilege. */
bool conf_has_low_port(const struct conf *conf);
/* Gets the port, and the address or NULL, of a pool, store or target; false: it has none, or takes any free port. */
bool conf_listen_port(const struct conf_section *s, uint16_t *port, const char **address);
/* Returns whether both listen on the same port and address, so that only one of them can start. */
bool conf_is_same_port(const struct conf_section *a, const struct conf_section *b);
struct conf_section *conf_get(struct conf_section *s); /* takes a reference */
void conf_put(struct conf_section *s);		       /* NULL: does nothing */

/*
 * Returns the first setting whose value differs between two sections of a kind, or a phrase such as "the secret of the nodes";
 * NULL if none does. Users and items are not compared.
 */
const char *conf_differs(const void *a, const void *b);
/* Does the same for the settings that a reload does not apply. */
const char *conf_needs_restart(const void *a, const void *b);
bool conf_is_same_items(const void *a, const void *b);
const struct conf_item *conf_item_of(const struct conf_section *s, const char *name);

/*
 * conf_place.c: the directory in which nodes of this user have their state directories, DIRECTORY/POOL/NODE. It may not exist.
 * Returns false if it cannot be determined.
 */
bool conf_state_dir(char *path, size_t size);
/* Makes a directory and those above it, as mkdir -p does, accessible to this user only. Returns 0 or -errno. */
int conf_make_directories(char *path);

/* Prints a line for each thing in the files that is open to strangers. Returns their number. */
unsigned int conf_warn(const struct conf *conf, FILE *out);
/* Returns whether only this machine can reach the address of "HOST:PORT". */
bool conf_is_loopback(const char *listen);

/* Parse an item. They return false after reporting the fault. */
bool conf_store_partition(struct conf *conf, const struct conf_item *item,
			  struct conf_partition *p);
bool conf_target_lun(struct conf *conf, const struct conf_item *item, struct conf_lun *l);
void conf_lun_free(struct conf_lun *l);
/* Parses an option of a logical unit: ro, write-back or block=N. Returns false if it is none of them; N is not checked. */
bool conf_lun_word(const char *word, struct stag_block_lun *l);
/* conf_right.c: parses a right, except for the contents of its file. Returns false with the reason in why. */
bool conf_right_parse(const char *text, struct conf_right *r, char *why, size_t size);
void conf_right_free(struct conf_right *r);

/* ---- tables -------------------------------------------------------------------- */

/*
 * A row describes one setting, and is the only place that does. It drives the INI parser, the comparison at a reload, the bodies
 * that the management API takes, and what fill.c generates: openapi.yaml, stag.ini.example and the lists in stag.ini(5).
 */
enum conf_type {
	CONF_TEXT,
	CONF_NAME,
	CONF_FILE, /* relative paths start at the directory of the main file */
	CONF_MADE, /* text that `make` checks and converts */
	CONF_COUNT,
	CONF_ADDRESS, /* a memory address */
	CONF_SIZE,    /* bytes */
	CONF_TIME,    /* microseconds */
	CONF_SWITCH,
	CONF_CHOICE, /* the index of one of `words` */
};

/* The use of a setting in a request that creates a section. */
enum conf_json_use {
	CONF_JSON_OPTIONAL,
	CONF_JSON_REQUIRED,
	CONF_JSON_HANDLED, /* optional; the handler acts on it and does not write it to the drop-in */
};

/* A heading in the manual and the example, above the first of several settings. */
struct conf_group {
	const char *heading;
	const char *text; /* below the heading, in Markdown; may be NULL */
};

struct conf_setting {
	const char *name;
	enum conf_type type;
	size_t at; /* offset in the section's struct of a char *, a bool (a switch) or a uint64_t */
	uint64_t least, most; /* of a number */
	uint64_t unit;	      /* a number must be a multiple of this; 0: no such rule */
	const char *wanted;   /* MADE, CHOICE: describes a valid value, for error messages */
	char *(*make)(const struct conf *conf,
		      const char *value); /* returns NULL for an invalid value */
	const char *const *words;	  /* CHOICE; ends with NULL */

	const char *preset; /* default, as written in a file; applied before the file is read */
	const char *
		usual; /* description of a default that is computed; without preset and usual: required */
	const char *sample; /* value for the example, if there is no preset */
	bool live;	    /* a reload applies changes; without it, only a restart does */
	const char *json;   /* field in a body of the API; NULL: the API does not take it */
	enum conf_json_use json_use;

	const char *
		value; /* what the manual shows behind the =, in Markdown; NULL: derived from the type */
	const char *help; /* one plain sentence, for the manual, the example and openapi.yaml */
	const char *more; /* further sentences for the manual only, in Markdown; may be NULL */
	const struct conf_group *group; /* of which this setting is the first; else NULL */
};

struct conf_kind {
	const char *word;
	size_t size;
	const struct conf_setting *settings;
	unsigned int num_settings;
	bool is_single;			   /* at most one section, which has no name */
	bool live;			   /* a reload applies all of its settings */
	const struct conf_setting *family; /* of items, "lun."; may be NULL */
	const struct conf_setting *other;  /* of others, "initiator."; may be NULL */
	const char *sample;		   /* name of the section in the example; NULL: none */
	const char *
		sample_lines; /* lines that the example does not comment out; NULL: it comments out the section */
	void (*check)(struct conf *conf, void *section);
	void (*end)(void *section);			      /* frees what check() has made */
	const char *(*differs)(const void *a, const void *b); /* beyond settings; may be NULL */
};

#define CONF_STRING(macro)	 CONF_STRING_OF(macro)
#define CONF_STRING_OF(expanded) #expanded

/* conf_setting.c */
void conf_set(struct conf *conf, struct conf_section *s, unsigned int line, const char *name,
	      const char *value);
void conf_preset(struct conf *conf, struct conf_section *s); /* sets every preset */
void conf_clear(struct conf_section *s);
unsigned int conf_line_of(const struct conf_section *s,
			  const char *name); /* of the setting, or of its section if not set */
bool conf_is_set(const struct conf_section *s, const char *name);
char *conf_resolve_path(const struct conf *conf, const char *name);

/* conf_help.c: print all settings of a kind; errors are left to ferror(out). */
void conf_print_manual(FILE *out, const struct conf_kind *kind);  /* Markdown */
void conf_print_example(FILE *out, const struct conf_kind *kind); /* a section of an INI file */

/* conf_file.c */
bool conf_read_secret(struct conf *conf, const struct conf_section *s, const char *setting,
		      const char *path, char *to, size_t size); /* the first line */
/* Reads a file that only its owner may read. The caller frees it after explicit_bzero(). Returns NULL after reporting a fault. */
char *conf_read_private(struct conf *conf, unsigned int line, const char *setting, const char *path,
			const char *hint);
void conf_check_address(struct conf *conf, const struct conf_section *s, const char *address);

/* conf_words.c */
bool conf_parse_count(const char *text, uint64_t *n);	/* 12, 0x7f */
bool conf_parse_size(const char *text, uint64_t *size); /* 4096, 512K, 1G, 1GiB */
bool conf_parse_time(const char *text, uint64_t *us);	/* 500us, 20ms, 1.5s, 10m, 1h */
bool conf_parse_switch(const char *text, bool *on);	/* yes, no, on, off, true, false */

#endif
