/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * http.h - the management API: definitions that its files share.
 *
 *	fault.c      describes why a request failed: status and JSON document
 *	target.c     parses the path and the query of a request
 *	route.c      the table of requests, and lookup in it
 *	body.c       parses a JSON body and checks it against the fields of its route
 *	guard.c      decides whether a request is allowed: token and role, Host, Origin, Sec-Fetch-Site
 *	  (all of these are pure: no sockets, no daemon; tests/fuzz/fuzz_api.c feeds them)
 *	answer.c     builds a handler's answer
 *	listener.c   sockets to listen on
 *	lobby.c      connections that have not sent a request yet
 *	timeouts.c   connections and their deadlines
 *	server.c     callbacks of libmicrohttpd: a request from its first byte to its answer
 *	audit.c      reports requests to the audit log
 *	stream.c     the stream of events
 *	paths.c      which paths a request may name
 *	handle*.c    the handlers, in a table by the names of the routes
 *	fill.c       a build-time program: prints the tables into openapi.yaml and the documents
 *
 * Each connection has a thread of its own, which alone uses the connection's request. Data that requests share is in struct api,
 * which says which lock protects it.
 */
#ifndef STAG_APP_API_HTTP_H
#define STAG_APP_API_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "access.h"

struct conf_kind;

/* ---- fault.c ---------------------------------------------------------------------- */

/* The reason why a request failed. */
struct fault {
	int status;
	const char *code;   /* an identifier for programs; a string literal */
	char message[320];  /* names the object and the cause */
	char next[200];	    /* what to do next; may be empty */
	char allow[48];	    /* with 405: the allowed methods */
	char location[280]; /* with 426: where a browser is redirected to; may be empty */
};

/* Fills f and returns -EBADMSG, so that a check can return its result. next may be NULL. */
int fault_set(struct fault *f, int status, const char *code, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
json_t *fault_json(const struct fault *f);

/* ---- target.c --------------------------------------------------------------------- */

#define TARGET_MAX	4096
#define TARGET_SEGMENTS 8
#define TARGET_QUERIES	8

struct target {
	char text[2 * TARGET_MAX]; /* holds the decoded parts */
	unsigned int num_segments, num_queries;
	const char *segments[TARGET_SEGMENTS];
	bool odd[TARGET_SEGMENTS]; /* contains a slash, a control character or invalid UTF-8 */
	struct {
		const char *name, *value;
	} queries[TARGET_QUERIES];
};

/* Parses a request target such as "/a/b%20c?d=e". Returns 0, or -EBADMSG and a fault. */
int target_parse(struct target *t, const char *raw, struct fault *f);
const char *target_query(const struct target *t, const char *name); /* NULL: not in the query */
bool utf8_is_valid(const char *text, size_t len);
bool api_name_is_valid(
	const char *name); /* letters, digits and . - _, at most 63, no leading dot */

/* ---- route.c ---------------------------------------------------------------------- */

enum method { METHOD_GET, METHOD_POST, METHOD_PUT, METHOD_PATCH, METHOD_DELETE, METHOD_OTHER };

/* The kind of body that a request takes. */
enum body_kind { BODY_NONE, BODY_JSON, BODY_BYTES };

enum field_kind {
	FIELD_TEXT,    /* a string without control characters that can stand in an INI file */
	FIELD_SECRET,  /* likewise; no answer contains it */
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

/* The names of routes, one for each handler; route_word() returns the operationId. */
#define ROUTE_NAMES(X)                                                                             \
	X(health)                                                                                  \
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
	X(audit)                                                                                   \
	X(tokens)                                                                                  \
	X(token_create)                                                                            \
	X(token_revoke)                                                                            \
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
	const struct field *fields;	 /* BODY_JSON; ends with an entry without a name */
	const struct conf_kind *section; /* whose settings are further fields; NULL: none */
	const char *queries;		 /* allowed query parameters, separated by blanks */
	enum role
		role; /* that it requires; ROLE_NONE: no token, and links from other sites are allowed */
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

/* Finds the route. Faults: 404, 405 with Allow, 400 for an invalid parameter or an unknown query. */
int route_find(const struct target *t, enum method method, struct match *m, struct fault *f);

/* ---- body.c ----------------------------------------------------------------------- */

#define BODY_ARRAY_MAX 256 /* elements of an array in a body */

/* Returns field i of the route's body: first its own fields, then the settings of its section. False: there are no more. */
bool route_field(const struct route *route, unsigned int i, struct field *field);
/* Parses a body into an object with all required and no unknown fields; an empty body is {}. Returns 0, or -EBADMSG and a fault. */
int body_parse(const struct route *route, const char *text, size_t len, json_t **body,
	       struct fault *f);
bool size_parse(const json_t *value, uint64_t *bytes); /* FIELD_SIZE */

/* ---- encoding.c ------------------------------------------------------------------- */

bool accepts_gzip(const char *header); /* value: of Accept-Encoding; NULL: absent */

/* ---- guard.c ---------------------------------------------------------------------- */

/* Headers of a request that decide whether it is allowed; NULL: absent. */
struct credentials {
	const char *host, *origin, *site, *mode, *authorization, *type;
	const char *local; /* our address that the client connected to; NULL: a Unix socket */
	enum role peer;	   /* what the peer may do by its user id; ROLE_NONE on TCP */
	bool repeated;	   /* one of these headers occurs twice */
};

/* The rules of a listener. */
struct guard {
	bool is_private;   /* a Unix socket: the kernel says who the peer is */
	const char *hosts; /* accepted in Host: names and addresses, each between blanks */
};

/* The client, as far as it has proven who it is. */
struct who {
	enum role role;
	char token[NAME_LEN];		    /* its token's name; empty: none */
	unsigned char hash[TOKEN_HASH_LEN]; /* of the token, to recognise it after a reload */
};

/*
 * Returns 0 and who it is, or -EBADMSG and a fault: 400, 401, 403, 415, 421. Checks Content-Type if the route takes a body. who is
 * set as far as it is known even if the request is refused.
 */
int guard_check(const struct guard *g, const struct access *access, const struct credentials *c,
		const struct route *route, struct who *who, struct fault *f);
/* Extracts the host from "HOST[:PORT]", in lower case and without brackets. Returns false if it is invalid. */
bool host_name(const char *host, char *name, size_t size);

/* ---- answer.c --------------------------------------------------------------------- */

struct answer {
	int status;
	const char *type;	    /* content type; a string literal */
	char *bytes;		    /* owned by the answer; or */
	const unsigned char *fixed; /* static data */
	size_t length;
	bool gzip;   /* the bytes are compressed */
	bool varies; /* the answer depends on Accept-Encoding */
	bool stream; /* a stream of events after `since` */
	uint64_t since;
	char etag[64];	    /* empty: none */
	char location[320]; /* of the object that was created; empty: none */
};

/* A request; only its connection's thread uses it. */
struct request {
	struct api *api;
	struct listener *listener;
	struct daemon *daemon;
	struct target target;
	struct match match;
	struct fault fault; /* status 0: no fault yet */
	enum method method;
	struct who who;
	bool begun, refused;
	char *bytes; /* the raw body */
	size_t length, room, bound, dropped;
	json_t *body; /* BODY_JSON */
	const char *if_match, *if_none_match, *last_event_id, *accept_encoding;
	struct answer answer;
};

typedef void (*handler)(struct request *r);
extern const handler handlers[NUM_ROUTES]; /* handle.c */

void answer_json(struct request *r, int status,
		 json_t *o);		/* takes ownership; NULL: out of memory */
void answer_nothing(struct request *r); /* 204 */
void answer_fixed(struct request *r, const char *type, const void *bytes, size_t length);
void answer_bytes(struct request *r, const char *type, char *bytes,
		  size_t length); /* takes ownership */
void answer_fault(struct request *r, int status, const char *code, const char *next,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Answers an error of libstag: the errno value (of either sign) determines status and code. */
void answer_error(struct request *r, int error, const char *next, const char *message);
const char *param(const struct request *r, unsigned int i);

/* Return a field of the body, or `otherwise` if it is absent. */
const char *body_text(const struct request *r, const char *name, const char *otherwise);
json_int_t body_number(const struct request *r, const char *name, json_int_t otherwise);
bool body_flag(const struct request *r, const char *name);
bool body_size(const struct request *r, const char *name, uint64_t *bytes); /* false: absent */
/* Parses a whole number of the query, up to `most`; *n is kept if it is absent. Returns false after answering a fault. */
bool query_number(struct request *r, const char *name, uint64_t most, uint64_t *n);
bool query_flag(struct request *r, const char *name); /* true for NAME, NAME=1 and NAME=true */

#endif
