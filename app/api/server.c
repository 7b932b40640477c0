// SPDX-License-Identifier: BSD-2-Clause
/*
 * server.c - callbacks of libmicrohttpd: a request from its first byte to its answer (server.h).
 *
 * All checks of the head are made before the body is read: a request that is not allowed, or for an unknown path, is answered at
 * once, and its connection is closed. Only then is the body read, up to its limit, and only a complete one reaches a handler.
 */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon.h"
#include "history.h"

#define HEAD_MAX      (16 << 10)		  /* limit of a request's head, in bytes */
#define VALUE_MAX     STAG_POOL_VALUE_MAX	  /* limit of a value */
#define HELD_MAX      (VALUE_MAX + (64ull << 20)) /* limit of all bodies together */
#define DROPPED_MAX   (64u << 20) /* bytes read beyond the limit before the connection is cut off */
#define INACTIVE_S    60
#define STACK_SIZE    (1u << 20)
#define LAST_WORDS_MS 1000

/* ---- answers -------------------------------------------------------------------------- */

static const struct {
	const char *name, *value;
} always[] = {
	{"Cache-Control", "no-store"},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
	{"Referrer-Policy", "no-referrer"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Cross-Origin-Opener-Policy", "same-origin"},
	{"Content-Security-Policy",
	 "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src "
	 "'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
	 "frame-ancestors 'none'"},
};

static struct client_conn *client_conn_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return i ? i->socket_context : NULL;
}

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
	if (value && *value)
		(void)MHD_add_response_header(response, name, value);
}

/* Moves the bytes to the response. */
static struct MHD_Response *make_response(struct request *r, const struct client_conn *conn)
{
	struct answer *a = &r->answer;
	struct MHD_Response *response;

	if (a->stream)
		return stream_response(r->api, conn->fd, &r->who, a->since);
	if (a->fixed)
		return MHD_create_response_from_buffer(a->length, (void *)(uintptr_t)a->fixed,
						       MHD_RESPMEM_PERSISTENT);
	response = MHD_create_response_from_buffer(
		a->length, a->bytes ? a->bytes : (void *)"",
		a->bytes ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
	if (response)
		a->bytes = NULL;
	return response;
}

static void answer_with_fault(struct request *r)
{
	struct fault f = r->fault;

	answer_json(r, f.status, fault_json(&f));
	if (*f.location) { /* a browser is led to where it should have gone */
		r->answer.status = 308;
		snprintf(r->answer.location, sizeof(r->answer.location), "%s", f.location);
	}
	if (r->answer.status >= 400)
		atomic_fetch_add(&r->api->refused, 1);
}

static void add_headers(const struct request *r, struct MHD_Response *response)
{
	const struct answer *a = &r->answer;

	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		add_header(response, always[i].name, always[i].value);
	add_header(response, "Content-Type", a->type);
	add_header(response, "ETag", a->etag);
	add_header(response, "Location", a->location);
	add_header(response, "Allow", r->fault.allow);
	add_header(response, "Content-Encoding", a->gzip ? "gzip" : NULL);
	add_header(response, "Vary", a->varies ? "Accept-Encoding" : NULL);
	if (r->fault.status == 401)
		add_header(response, "WWW-Authenticate", "Bearer realm=\"stagd\"");
	add_header(response, "Upgrade", r->fault.status == 426 ? "TLS/1.3" : NULL);
	if (r->refused) /* part of the body may not have been read */
		add_header(response, "Connection", "close");
}

static enum MHD_Result respond(struct request *r, struct MHD_Connection *c)
{
	struct MHD_Response *response;
	enum MHD_Result rc;

	audit_request(r, client_conn_of(c)->fd);
	if (r->fault.status)
		answer_with_fault(r);
	response = make_response(r, client_conn_of(c));
	if (!response && r->answer.stream) {
		answer_fault(r, 503, "too_many_streams", "poll GET /api/v1/events instead",
			     "too many event streams are open");
		answer_with_fault(r);
		response = make_response(r, client_conn_of(c));
	}
	if (!response)
		return MHD_NO;
	add_headers(r, response);
	if (r->answer.stream)
		timeouts_streams(&r->api->timeouts, client_conn_of(c));
	else
		timeouts_answers(&r->api->timeouts, client_conn_of(c), r->answer.length);
	rc = MHD_queue_response(c, (unsigned int)r->answer.status, response);
	MHD_destroy_response(response);
	return rc;
}

/* ---- the head ------------------------------------------------------------------------------ */

/* The headers that checks need. One that occurs twice is refused: a proxy and this server may disagree on which one counts. */
struct heads {
	struct credentials c;
	const char *length, *encoding;
};

static enum MHD_Result take_header(void *arg, enum MHD_ValueKind kind, const char *name,
				   const char *value)
{
	struct heads *h = arg;
	const struct {
		const char *name, **to;
	} known[] = {{"Host", &h->c.host},
		     {"Origin", &h->c.origin},
		     {"Sec-Fetch-Site", &h->c.site},
		     {"Sec-Fetch-Mode", &h->c.mode},
		     {"Authorization", &h->c.authorization},
		     {"Content-Type", &h->c.type},
		     {"Content-Length", &h->length},
		     {"Transfer-Encoding", &h->encoding}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcasecmp(name, known[i].name) == 0) {
			h->c.repeated |= *known[i].to != NULL;
			*known[i].to = value ? value : "";
		}
	return MHD_YES;
}

static const char *get_header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* Returns our address that the client connected to. */
static const char *local_address(struct MHD_Connection *c, char *text, size_t size)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	const void *address = NULL;

	if (!i || getsockname(i->connect_fd, (struct sockaddr *)&a, &len) != 0)
		return NULL;
	if (a.ss_family == AF_INET)
		address = &((struct sockaddr_in *)&a)->sin_addr;
	else if (a.ss_family == AF_INET6)
		address = &((struct sockaddr_in6 *)&a)->sin6_addr;
	return address ? inet_ntop(a.ss_family, address, text, (socklen_t)size) : NULL;
}

/* Returns what the peer of a Unix socket may do: everything, if it is this user or root. */
static enum role peer_role(struct api *api, struct MHD_Connection *c)
{
	const struct client_conn *conn = client_conn_of(c);
	socklen_t len = sizeof(struct ucred);
	struct ucred peer;

	if (!conn || getsockopt(conn->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
		return ROLE_NONE;
	if (peer.uid == geteuid() || peer.uid == 0)
		return ROLE_ADMINISTER;
	HOLD_FOR_SCOPE(&api->lock);
	return api->socket_role;
}

struct access *api_access(struct api *api)
{
	HOLD_FOR_SCOPE(&api->lock);

	return access_get(api->access);
}

/* Checks the body's announced length. */
static int check_length(struct request *r, const struct heads *h)
{
	const struct route *route = r->match.route;
	unsigned long long length = 0;
	char *end;

	if (h->length) {
		errno = 0;
		length = strtoull(h->length, &end, 10);
		if (*h->length < '0' || *h->length > '9' || *end || errno != 0 || h->encoding)
			return fault_set(&r->fault, 400, "bad_length", NULL,
					 "the length of the body is ambiguous");
	}
	if (route->body == BODY_NONE && (length || h->encoding))
		return fault_set(&r->fault, 400, "unexpected_body", NULL,
				 "this request takes no body");
	r->bound = route->body == BODY_BYTES ? VALUE_MAX : r->api->body_max;
	if (length > r->bound)
		return fault_set(&r->fault, 413, "body_too_large", NULL,
				 "the body has %llu bytes; the limit is %zu", length, r->bound);
	return 0;
}

/* Leads a browser that asks for a page to https; a client that has sent its token in the clear is told so. */
static int refuse_plain(struct request *r, const struct credentials *c, const struct fault *guarded)
{
	if (guarded && (guarded->status == 400 || guarded->status == 421))
		r->fault = *guarded;
	else
		fault_set(&r->fault, 426, "tls_required",
			  c->authorization ? "the token has crossed the network in the clear: "
					     "revoke it, and use https://"
					   : "use https://",
			  "this port requires TLS");
	if (r->match.route && r->match.route->role == ROLE_NONE && r->method == METHOD_GET &&
	    r->fault.status == 426 && c->host)
		snprintf(r->fault.location, sizeof(r->fault.location), "https://%.255s/", c->host);
	return -EBADMSG;
}

/* Returns 0, or -EBADMSG and r->fault. */
static int check_head(struct request *r, struct MHD_Connection *c)
{
	struct heads h = {0};
	struct fault guarded;
	char local[INET6_ADDRSTRLEN];
	struct access *access;
	int rc, refused;

	MHD_get_connection_values(c, MHD_HEADER_KIND, take_header, &h);
	h.c.local = local_address(c, local, sizeof(local));
	if (r->listener->guard.is_private)
		h.c.peer = peer_role(r->api, c);
	if (r->fault.status) /* the path is invalid */
		return -EBADMSG;
	rc = route_find(&r->target, r->method, &r->match, &r->fault);
	access = api_access(r->api);
	refused = guard_check(&r->listener->guard, access, &h.c, rc == 0 ? r->match.route : NULL,
			      &r->who, &guarded);
	access_put(access);
	if (r->listener->refuses)
		return refuse_plain(r, &h.c, refused ? &guarded : NULL);
	if (refused) {
		r->fault = guarded;
		return -EBADMSG;
	}
	return rc ?: check_length(r, &h);
}

static enum MHD_Result begin_request(struct request *r, struct MHD_Connection *c,
				     const char *method)
{
	r->begun = true;
	r->method = method_of(method);
	atomic_fetch_add(&r->api->requests, 1);
	timeouts_begins(&r->api->timeouts, client_conn_of(c));
	if (check_head(r, c) == 0) {
		r->fault.status = 0;
		return MHD_YES;
	}
	r->refused = true;
	return respond(r, c);
}

/* ---- the body -------------------------------------------------------------------------------- */

static bool grow_body(struct request *r, size_t more)
{
	size_t room = r->room ? r->room : 4096;
	char *bytes;

	if (more > r->bound - r->length)
		return false;
	while (room < r->length + more)
		room *= 2;
	if (room == r->room)
		return true;
	if (atomic_fetch_add(&r->api->held, room - r->room) + room - r->room > HELD_MAX ||
	    !(bytes = realloc(r->bytes, room))) {
		atomic_fetch_sub(&r->api->held, room - r->room);
		fault_set(&r->fault, 503, "too_much_at_once", "try again in a moment",
			  "out of memory for the body");
		return false;
	}
	r->bytes = bytes;
	r->room = room;
	return true;
}

/* Reads and discards the rest of a body that is too long, up to a limit, so that the client receives the answer. */
static enum MHD_Result receive_body(struct request *r, struct MHD_Connection *c, const char *data,
				    size_t *size)
{
	if (r->fault.status == 0 && grow_body(r, *size)) {
		memcpy(r->bytes + r->length, data, *size);
		r->length += *size;
	} else {
		if (r->fault.status == 0)
			fault_set(&r->fault, 413, "body_too_large", NULL,
				  "the body exceeds the limit of %zu bytes", r->bound);
		r->dropped += *size;
	}
	timeouts_received(&r->api->timeouts, client_conn_of(c), r->length);
	*size = 0;
	return r->dropped <= DROPPED_MAX ? MHD_YES : MHD_NO;
}

static void release_body(struct request *r)
{
	if (r->bytes) /* it may hold a secret */
		explicit_bzero(r->bytes, r->length);
	free(r->bytes);
	atomic_fetch_sub(&r->api->held, r->room);
	r->bytes = NULL;
	r->length = r->room = 0;
}

/* ---- the handler ------------------------------------------------------------------------------ */

static void run_handler(struct request *r, struct MHD_Connection *c)
{
	const struct route *route = r->match.route;

	if (r->fault.status)
		return;
	if (route->body == BODY_JSON &&
	    body_parse(route, r->bytes, r->length, &r->body, &r->fault) != 0)
		return;
	r->if_match = get_header(c, "If-Match");
	r->if_none_match = get_header(c, "If-None-Match");
	r->last_event_id = get_header(c, "Last-Event-ID");
	r->accept_encoding = get_header(c, "Accept-Encoding");
	timeouts_works(&r->api->timeouts, client_conn_of(c));
	atomic_fetch_add(&r->api->working, 1);
	handlers[route->name](r);
	atomic_fetch_sub(&r->api->working, 1);
	if (!r->fault.status && !r->answer.status)
		answer_fault(r, 500, "no_answer", NULL, "%s has no answer", route->path);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *size, void **context)
{
	struct request *r = *context;

	if (!r || !client_conn_of(c))
		return MHD_NO; /* out of memory */
	if (!r->begun)
		return begin_request(r, c, method);
	if (*size)
		return receive_body(r, c, data, size);
	run_handler(r, c);
	release_body(r);
	return respond(r, c);
}

/* ---- connections ------------------------------------------------------------------------------- */

/* Creates a request from its raw target, the first thing that libmicrohttpd reports. */
static void *on_target(void *arg, const char *target, struct MHD_Connection *c)
{
	struct listener *listener = arg;
	struct request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->api = listener->api;
	r->listener = listener;
	r->daemon = listener->api->daemon;
	target_parse(&r->target, target, &r->fault);
	return r;
}

static void on_completed(void *arg, struct MHD_Connection *c, void **context,
			 enum MHD_RequestTerminationCode how)
{
	struct request *r = *context;
	struct client_conn *conn = client_conn_of(c);

	if (conn)
		timeouts_idles(&((struct listener *)arg)->api->timeouts, conn);
	*context = NULL;
	if (!r)
		return;
	release_body(r);
	free(r->answer.bytes);
	json_decref(r->body);
	free(r);
}

static void on_connection(void *arg, struct MHD_Connection *c, void **context,
			  enum MHD_ConnectionNotificationCode what)
{
	const struct listener *d = arg;
	struct timeouts *p = &d->api->timeouts;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		*context = timeouts_admit(
			p,
			MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
			d->guard.is_private);
	} else if (*context) {
		timeouts_dismiss(p, *context);
		*context = NULL;
		lobby_wake(&d->api->lobby);
	}
}

/* Prevents libmicrohttpd from decoding: target.c does it, once. */
static size_t keep_encoded(void *arg, struct MHD_Connection *c, char *text)
{
	return strlen(text);
}

static void discard_log(void *arg, const char *fmt, va_list ap)
{
}

/* ---- start and stop -------------------------------------------------------------------------------- */

/* Connections come from the lobby, which keeps to the limit; libmicrohttpd's own has room for those that are ending. */
static int listener_serve(struct listener *d)
{
	const unsigned int flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
				   MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG |
				   MHD_USE_NO_LISTEN_SOCKET | (d->is_tls ? MHD_USE_TLS : 0);
	const unsigned int limit = 2 * d->api->connections + d->api->max_streams + 64;
	struct MHD_OptionItem secure[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, d->api->tls_cert},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, d->api->tls_key},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, "NORMAL:-VERS-ALL:+VERS-TLS1.3"},
		{MHD_OPTION_END, 0, NULL}};

	d->mhd = MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, d, MHD_OPTION_EXTERNAL_LOGGER, discard_log, NULL,
		MHD_OPTION_CONNECTION_LIMIT, limit, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned int)INACTIVE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_MAX,
		MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_SIZE, MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_URI_LOG_CALLBACK, on_target, d, MHD_OPTION_UNESCAPE_CALLBACK,
		keep_encoded, d, MHD_OPTION_NOTIFY_COMPLETED, on_completed, d,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, d, MHD_OPTION_ARRAY,
		d->is_tls ? secure : &secure[3], MHD_OPTION_END);
	return d->mhd ? 0 : -EIO;
}

static void listener_end(struct listener *d)
{
	if (d->mhd)
		MHD_stop_daemon(d->mhd);
	d->mhd = NULL;
	listener_close(d);
}

/* Returns " localhost 127.0.0.1 ::1 ADDRESS NAME... ", in lower case. */
static char *make_hosts(const char *listen, const char *more)
{
	char *text = NULL, name[256] = "";

	if (listen)
		host_name(listen, name, sizeof(name));
	if (asprintf(&text, " localhost 127.0.0.1 ::1 %s %s ", name, more ? more : "") < 0)
		return NULL;
	for (char *p = text; *p; p++)
		*p = (char)(*p == ',' || *p == '\t' ? ' ' : *p >= 'A' && *p <= 'Z' ? *p | 32 : *p);
	return text;
}

static int check_conf(const struct conf_api *conf, char *why, size_t size)
{
	struct sockaddr_storage a;
	bool is_loopback;
	socklen_t len;

	if (conf->listen && listener_address(conf->listen, &a, &len, &is_loopback) != 0) {
		snprintf(why, size, "listen must be HOST:PORT, not '%s'", conf->listen);
		return -EINVAL;
	}
	return 0;
}

static int open_listeners(struct api *api, const struct conf_api *conf, char *why, size_t size)
{
	int rc = check_conf(conf, why, size);

	if (rc == 0 && conf->listen)
		rc = listener_open_tcp(&api->tcp, conf->listen, why, size);
	if (rc == 0 && conf->socket)
		rc = listener_open_unix(&api->local, conf->socket, conf->socket_group, why, size);
	if (rc != 0)
		return rc;
	if (conf->listen)
		rc = listener_serve(&api->tcp);
	if (rc == 0 && conf->listen && api->tls.is_tls)
		rc = listener_serve(&api->tls);
	if (rc == 0 && conf->socket)
		rc = listener_serve(&api->local);
	if (rc != 0) {
		snprintf(why, size, "the HTTP server failed to start%s",
			 api->tcp.mhd && api->tls.is_tls ? "; are tls-cert and tls-key a pair?"
							 : "");
		return rc;
	}
	api->lobby.doors[0] = (struct door){
		.fd = api->tcp.fd, .plain = &api->tcp, .tls = api->tls.is_tls ? &api->tls : NULL};
	api->lobby.doors[1] = (struct door){.fd = api->local.fd, .plain = &api->local};
	return 0;
}

int api_open(struct api *api, char *why, size_t size)
{
	int rc = lobby_start(&api->lobby, &api->timeouts, api->max_idle, api->connections);

	if (rc != 0)
		snprintf(why, size, "cannot accept connections: %s", strerror(-rc));
	return rc;
}

static bool copy_conf(struct api *api, struct daemon *d, const struct conf_api *conf)
{
	api->daemon = d;
	api->body_max = conf->body_max ? conf->body_max : API_BODY_MAX;
	api->connections = conf->connections ? (unsigned int)conf->connections : API_CONNECTIONS;
	api->max_idle = conf->idle ? (unsigned int)conf->idle : API_IDLE;
	api->max_streams = conf->streams ? (unsigned int)conf->streams : API_STREAMS;
	api->console = conf->console;
	api->listen = conf->listen ? strdup(conf->listen) : NULL;
	api->hosts = make_hosts(conf->listen, conf->hosts);
	api->tls_cert = conf->cert_text ? strdup(conf->cert_text) : NULL;
	api->tls_key = conf->key_text ? strdup(conf->key_text) : NULL;
	api->tcp = (struct listener){.api = api, .fd = -1, .guard = {false, api->hosts}};
	api->tls = api->tcp;
	api->tls.is_tls = conf->tls != CONF_TLS_OFF && api->tls_cert && api->tls_key;
	api->tcp.refuses = conf->tls == CONF_TLS_REQUIRED;
	api->local = (struct listener){.api = api, .fd = -1, .guard = {true, api->hosts}};
	return api->hosts && (api->listen || !conf->listen);
}

/* Without a group nobody else can open the socket; should somebody do so anyway, he may do nothing. */
static enum role socket_role_of(const struct conf_api *conf)
{
	return conf->socket_group ? (enum role)(conf->socket_role + ROLE_LOOK) : ROLE_NONE;
}

void api_change(struct api *api, const struct conf_api *conf, struct access *access)
{
	struct access *before;

	lock_acquire(&api->lock);
	before = api->access;
	api->access = access_get(access);
	if (conf)
		api->socket_role = socket_role_of(conf);
	lock_release(&api->lock);
	access_put(before);
}

static void api_free(struct api *api)
{
	lobby_stop(&api->lobby);
	listener_end(&api->tls);
	listener_end(&api->tcp);
	listener_end(&api->local);
	lobby_close(&api->lobby); /* connections that ended have told it until now */
	history_stop(api->history);
	timeouts_stop(&api->timeouts);
	access_put(api->access);
	lock_destroy(&api->lock);
	free(api->listen);
	free(api->hosts);
	free(api->tls_cert);
	if (api->tls_key)
		explicit_bzero(api->tls_key, strlen(api->tls_key));
	free(api->tls_key);
	free(api);
}

struct api *api_start(struct daemon *d, const struct conf_api *conf, struct access *access,
		      char *why, size_t size)
{
	struct api *api = calloc(1, sizeof(*api));
	int rc;

	if (!api)
		return NULL;
	lock_init(&api->lock);
	api_change(api, conf, access);
	rc = copy_conf(api, d, conf) ? 0 : -ENOMEM;
	if (rc != 0)
		snprintf(why, size, "out of memory");
	if (timeouts_start(&api->timeouts) != 0 || !(api->history = history_start(d)))
		rc = -EAGAIN;
	if (rc == 0)
		rc = open_listeners(api, conf, why, size);
	if (rc == 0)
		return api;
	api_free(api);
	errno = -rc;
	return NULL;
}

void api_stop(struct api *api)
{
	const struct timespec nap = {.tv_nsec = 5 * NS_PER_MS};
	uint64_t until = clock_ns() + LAST_WORDS_MS * NS_PER_MS;

	if (!api)
		return;
	atomic_store(&api->stopping, true);
	lobby_stop(&api->lobby);
	while (atomic_load(&api->working) + atomic_load(&api->streams) > 0 && clock_ns() < until)
		nanosleep(&nap, NULL);
	api_free(api);
}

static const char *tls_word(const struct api *api)
{
	return !api->tls.is_tls ? "off" : api->tcp.refuses ? "required" : "allowed";
}

json_t *api_status(struct api *api)
{
	struct access *access = api_access(api);
	const struct token *own = access_named(access, CONF_API_TOKEN);
	unsigned int count;
	json_t *o;

	lock_acquire(&api->timeouts.lock);
	count = api->timeouts.open;
	lock_release(&api->timeouts.lock);
	o = json_pack(
		"{s:s? s:i s:s? s:b s:s? s:s s:b s:i s:i s:I s:I s:i}", "listen", api->listen,
		"port", (int)api->tcp.port, "socket", api->local.path, "token", access->count > 0,
		"token_file", own ? own->file : NULL, "tls", tls_word(api), "console", api->console,
		"connections", (int)count, "idle", (int)atomic_load(&api->lobby.waits), "requests",
		(json_int_t)atomic_load(&api->requests), "refused",
		(json_int_t)atomic_load(&api->refused), "streams", (int)atomic_load(&api->streams));
	access_put(access);
	return o;
}

static int api_check(const struct conf_api *conf, char *why, size_t size)
{
	struct listener d = {.fd = -1};
	int rc = conf->listen ? listener_open_tcp(&d, conf->listen, why, size) : 0;

	if (d.fd >= 0)
		close(d.fd);
	return rc;
}

const struct daemon_api api_calls = {.start = api_start,
				     .check = api_check,
				     .open = api_open,
				     .stop = api_stop,
				     .change = api_change,
				     .status = api_status};
