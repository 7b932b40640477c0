/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * http.h - the management API from the inside: what its files share.
 *
 *	fault.c      what is wrong with a request, as a status and as a document
 *	target.c     the path and the query of a request: bytes in, decoded parts out
 *	route.c      which requests there are, and which one this is
 *	body.c       a JSON body, checked against the fields of its route
 *	guard.c      who may: tokens, Host, Origin, Sec-Fetch-Site
 *	  (all of these are pure: no sockets, no daemon; tests/fuzz/fuzz_api.c feeds them)
 *	answer.c     what a handler says
 *	door.c       sockets to listen on
 *	patience.c   connections, and how long each may take
 *	server.c     libmicrohttpd's side: a request from its first byte to its answer
 *	stream.c     events as they come
 *	handle*.c    the handlers, a table by the names of the routes
 *
 * A connection has a thread of its own, and a request is only ever its connection's. What requests share is in struct api,
 * and says which lock it is under.
 */
#ifndef STAG_APP_API_HTTP_H
#define STAG_APP_API_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

struct conf_kind;

/* ---- fault.c ---------------------------------------------------------------------- */

/* Why there is no better answer. */
struct fault {
	int status;
	const char *code;  /* a word for programs; a literal */
	char message[320]; /* the object and the cause */
	char next[200];	   /* what to do about it; may be empty */
	char allow[48];	   /* of 405: the methods that there are */
};

/* Fills f, and is -EBADMSG, so that a check can end with it. next may be NULL. */
int fault_set(struct fault *f, int status, const char *code, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
json_t *fault_json(const struct fault *f);

/* ---- target.c --------------------------------------------------------------------- */

#define TARGET_MAX	4096
#define TARGET_SEGMENTS 8
#define TARGET_QUERIES	8

struct target {
	char text[2 * TARGET_MAX]; /* where the parts are, decoded */
	unsigned int num_segments, num_queries;
	const char *segments[TARGET_SEGMENTS];
	bool odd[TARGET_SEGMENTS]; /* has a slash, a control character, or no valid UTF-8 in it */
	struct {
		const char *name, *value;
	} queries[TARGET_QUERIES];
};

/* raw: as it came, "/a/b%20c?d=e". 0, or -EBADMSG and a fault. */
int target_parse(struct target *t, const char *raw, struct fault *f);
const char *target_query(const struct target *t, const char *name); /* NULL: not asked */
bool utf8_is_valid(const char *text, size_t len);
bool api_name_is_valid(const char *name); /* letters, digits, . - _, at most 63, no dot in front */

/* ---- route.c ---------------------------------------------------------------------- */

enum method { METHOD_GET, METHOD_POST, METHOD_PUT, METHOD_PATCH, METHOD_DELETE, METHOD_OTHER };

/* How its body is to be. */
enum body_kind { BODY_NONE, BODY_JSON, BODY_BYTES };

enum field_kind {
	FIELD_TEXT,    /* a string without control characters, as it can stand in an INI file */
	FIELD_SECRET,  /* likewise; never told again */
	FIELD_NAME,    /* api_name_is_valid() */
	FIELD_SIZE,    /* bytes: a number, or a string such as "10G"; from least to most */
	FIELD_NUMBER,  /* from least to most */
	FIELD_FLAG,    /* true, false */
	FIELD_TEXTS,   /* an array of FIELD_TEXT */
	FIELD_OBJECTS, /* an array of objects, with fields of their own */
	FIELD_CHOICE,  /* one of words */
};

struct field {
	const char *name;
	enum field_kind kind;
	bool required;
	uint64_t least, most;	    /* FIELD_NUMBER, FIELD_SIZE; most 0: no limit of a size */
	const struct field *fields; /* FIELD_OBJECTS */
	const char *const *words;   /* FIELD_CHOICE; ends with NULL */
	const char *schema;	    /* FIELD_TEXTS, FIELD_OBJECTS: of an element, in openapi.yaml */
	const char *help;	    /* its description there; may be NULL */
};

/* One for each handler; route_word() is its operationId. */
#define ROUTE_NAMES(X)                                                                             \
	X(status)                                                                                  \
	X(reload)                                                                                  \
	X(daemons)                                                                                 \
	X(pools)                                                                                   \
	X(pool_create)                                                                             \
	X(pool)                                                                                    \
	X(pool_delete)                                                                             \
	X(pool_switchover)                                                                         \
	X(pool_forget)                                                                             \
	X(values)                                                                                  \
	X(value_get)                                                                               \
	X(value_put)                                                                               \
	X(value_delete)                                                                            \
	X(stores)                                                                                  \
	X(store_create)                                                                            \
	X(store)                                                                                   \
	X(store_delete)                                                                            \
	X(store_check)                                                                             \
	X(store_grow)                                                                              \
	X(partitions)                                                                              \
	X(partition_create)                                                                        \
	X(partition)                                                                               \
	X(partition_change)                                                                        \
	X(partition_delete)                                                                        \
	X(targets)                                                                                 \
	X(target_create)                                                                           \
	X(target)                                                                                  \
	X(target_delete)                                                                           \
	X(sessions)                                                                                \
	X(stags)                                                                                   \
	X(lun_create)                                                                              \
	X(lun_delete)                                                                              \
	X(processes)                                                                               \
	X(process)                                                                                 \
	X(connections)                                                                             \
	X(regions)                                                                                 \
	X(heaps)                                                                                   \
	X(heap)                                                                                    \
	X(heap_reap)                                                                               \
	X(heap_trim)                                                                               \
	X(heap_delete)                                                                             \
	X(doctor)                                                                                  \
	X(events)                                                                                  \
	X(event_stream)                                                                            \
	X(history)                                                                                 \
	X(metrics)                                                                                 \
	X(openapi)                                                                                 \
	X(console)                                                                                 \
	X(asset)

#define ROUTE_ENUM(name) ROUTE_##name,
enum route_name { ROUTE_NAMES(ROUTE_ENUM) NUM_ROUTES };

#define ROUTE_PARAMS 3

struct route {
	enum method method;
	const char *path; /* "/api/v1/pools/{pool}"; {value} may hold any bytes */
	enum route_name name;
	enum body_kind body;
	const struct field *fields;	 /* BODY_JSON; ends with one without a name */
	const struct conf_kind *section; /* its settings are fields, too; NULL: none */
	const char *queries;		 /* what may be asked, with blanks */
	bool open; /* for everybody: no token, and a link from elsewhere may lead here */
};

extern const struct route routes[];
extern const unsigned int num_routes;

struct match {
	const struct route *route;
	const char *params[ROUTE_PARAMS]; /* in the order of the path */
};

enum method method_of(const char *word);
const char *method_word(enum method method);
const char *route_word(enum route_name name);

/* 404; 405 with its Allow; 400: a parameter or a query that no such thing can have. */
int route_find(const struct target *t, enum method method, struct match *m, struct fault *f);

/* ---- body.c ----------------------------------------------------------------------- */

#define BODY_ARRAY_MAX 256 /* elements of an array in a body */

/* Field i of its body: those of the route, then the settings of its section. False: it has no more. */
bool route_field(const struct route *route, unsigned int i, struct field *field);
/* An object that has all that is required and nothing else. No text at all is {}. 0, or -EBADMSG and a fault. */
int body_parse(const struct route *route, const char *text, size_t len, json_t **body,
	       struct fault *f);
bool size_parse(const json_t *value, uint64_t *bytes); /* FIELD_SIZE */

/* ---- encoding.c ------------------------------------------------------------------- */

bool accepts_gzip(const char *header); /* Accept-Encoding, as it came; NULL: not there */

/* ---- guard.c ---------------------------------------------------------------------- */

/* What a request's headers say; NULL: not there. */
struct credentials {
	const char *host, *origin, *site, *mode, *authorization, *type;
	const char *local; /* address of ours that it came to; NULL: a Unix socket */
	bool repeated;	   /* one of the headers came twice */
};

/* What a door asks for. */
struct guard {
	bool is_private;   /* a Unix socket: its mode has decided who may */
	const char *token; /* NULL: none */
	const char *
		hosts; /* that we may be called: names and addresses, with blanks on both sides of each */
};

/* 0, or -EBADMSG and a fault: 400, 401, 403, 415, 421. The body's type is asked for where the route has a body. */
int guard_check(const struct guard *g, const struct credentials *c, const struct route *route,
		struct fault *f);
/* The name in "HOST[:PORT]", in small letters and without brackets; false: it is none. */
bool host_name(const char *host, char *name, size_t size);

/* ---- answer.c --------------------------------------------------------------------- */

struct answer {
	int status;
	const char *type;	    /* of its content; a literal */
	char *bytes;		    /* ours, to be freed; or */
	const unsigned char *fixed; /* for ever */
	size_t length;
	bool gzip;   /* it is packed so */
	bool varies; /* with what the client can unpack */
	bool stream; /* events, from since on */
	uint64_t since;
	char etag[64];	    /* empty: none */
	char location[320]; /* of what was made; empty: none */
};

/* What one request is; its connection's thread has it alone. */
struct request {
	struct api *api;
	struct door *door;
	struct daemon *daemon;
	struct target target;
	struct match match;
	struct fault fault; /* status 0: none yet */
	enum method method;
	bool begun, refused;
	char *bytes; /* its body, as it came */
	size_t length, room, bound, dropped;
	json_t *body; /* BODY_JSON */
	const char *if_match, *if_none_match, *last_event_id, *accept_encoding;
	struct answer answer;
};

typedef void (*handler)(struct request *r);
extern const handler handlers[NUM_ROUTES]; /* handle.c */

void answer_json(struct request *r, int status,
		 json_t *o);		/* takes it; NULL: there was no memory */
void answer_nothing(struct request *r); /* 204 */
void answer_fixed(struct request *r, const char *type, const void *bytes, size_t length);
void answer_bytes(struct request *r, const char *type, char *bytes, size_t length); /* takes them */
void answer_fault(struct request *r, int status, const char *code, const char *next,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* What libstag said: the status by the errno value (its sign does not matter), the code by its name. */
void answer_error(struct request *r, int error, const char *next, const char *message);
const char *param(const struct request *r, unsigned int i);

/* What a body has. The second is what is not there. */
const char *body_text(const struct request *r, const char *name, const char *otherwise);
json_int_t body_number(const struct request *r, const char *name, json_int_t otherwise);
bool body_flag(const struct request *r, const char *name);
bool body_size(const struct request *r, const char *name, uint64_t *bytes); /* false: not there */
/* A whole number in the query, up to most. False: it is none, and that was answered. */
bool query_number(struct request *r, const char *name, uint64_t most, uint64_t *n);
bool query_flag(struct request *r, const char *name); /* =1, =true, or nothing behind it */

#endif
