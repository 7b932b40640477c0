// SPDX-License-Identifier: BSD-2-Clause
/*
 * roll_etcd.c - the roll as a key of etcd (3.4 and later), through its JSON gateway (roll.h).
 *
 * The key's mod_revision is the roll's revision: a swap is a transaction that compares it. One thread drives
 * one curl_multi: the watch is a response that never ends, and continues while requests are made. If an
 * endpoint does not respond, the next one is tried. If an endpoint may have received a swap and did not report
 * its result, and the swap is lost at the next endpoint, it may have lost to itself: so the result is unknown.
 */
#include "pool/role/roll.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <curl/curl.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include "pool/role/roll_where.h"

#define MAX_REPLY    (1u << 20)
#define WATCH_RETRY  (NS_PER_S / 4)
#define UNAUTHORISED 401
#define PASSWORD_LEN 256
#define MAX_B64(n)   (((n) + 2) / 3 * 4 + 1)

struct reply {
	char *text;
	size_t len;
};

struct roll_etcd {
	struct roll_backend backend;
	struct roll_where where;
	CURLM *multi;
	CURL *request, *watch;
	struct reply answer, events; /* events: the watch's last line as far as it was received */
	char *token;		     /* of the logged-in user, or NULL */
	struct curl_slist *watch_headers;
	char key[MAX_B64(ROLL_WHERE_KEY)];
	unsigned int endpoint;
	long told[ROLL_WHERE_HOSTS]; /* how each endpoint failed, as last logged; 0: it did not */
	bool watch_runs, watch_ended;
	uint64_t watch_next; /* when to retry */
	uint64_t seen;
	atomic_bool woken;
};

static struct roll_etcd *to_etcd(struct roll_backend *e)
{
	return container_of(e, struct roll_etcd, backend);
}

/* ---- requests ------------------------------------------------------------------------------ */

static size_t add_to_reply(char *data, size_t size, size_t count, void *arg)
{
	struct reply *r = arg;
	size_t len = size * count;
	char *more;

	if (len > MAX_REPLY - r->len)
		return 0;
	more = realloc(r->text, r->len + len + 1);
	if (!more)
		return 0;
	memcpy(more + r->len, data, len);
	r->text = more;
	r->len += len;
	r->text[r->len] = '\0';
	return len;
}

static struct curl_slist *headers_of(const struct roll_etcd *e)
{
	struct curl_slist *list = curl_slist_append(NULL, "Content-Type: application/json");
	char line[1024];

	if (e->token &&
	    snprintf(line, sizeof(line), "Authorization: %s", e->token) < (int)sizeof(line))
		list = curl_slist_append(list, line);
	return list;
}

static void set_tls(const struct roll_where *w, CURL *c)
{
	if (w->ca[0])
		curl_easy_setopt(c, CURLOPT_CAINFO, w->ca);
	if (w->cert[0])
		curl_easy_setopt(c, CURLOPT_SSLCERT, w->cert);
	if (w->cert_key[0])
		curl_easy_setopt(c, CURLOPT_SSLKEY, w->cert_key);
}

static void set_request(struct roll_etcd *e, CURL *c, const char *path, const char *body,
			struct curl_slist *headers, struct reply *to)
{
	char url[ROLL_WHERE_HOST + 64];

	snprintf(url, sizeof(url), "%s://%s/v3/%s", e->where.tls ? "https" : "http",
		 e->where.hosts[e->endpoint], path);
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_COPYPOSTFIELDS, body);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, add_to_reply);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, to);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_PROXY,
			 ""); /* connect directly: the user's HTTP proxy is not meant for etcd */
	curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(c, CURLOPT_TCP_KEEPIDLE, 2L);
	curl_easy_setopt(c, CURLOPT_TCP_KEEPINTVL, 1L);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)e->where.timeout_ms);
	set_tls(&e->where, c);
}

/* Runs one round of all transfers. Returns whether the request is complete, with its result in *code. */
static bool drive_transfers(struct roll_etcd *e, CURLcode *code)
{
	bool through = false;
	int running, left;
	CURLMsg *m;

	curl_multi_perform(e->multi, &running);
	while ((m = curl_multi_info_read(e->multi, &left))) {
		if (m->easy_handle == e->watch) {
			e->watch_ended = true;
		} else {
			*code = m->data.result;
			through = true;
		}
	}
	return through;
}

static CURLcode post_here(struct roll_etcd *e, const char *path, const char *body, long *status)
{
	struct curl_slist *headers = headers_of(e);
	CURLcode code = CURLE_FAILED_INIT;

	e->answer.len = 0;
	set_request(e, e->request, path, body, headers, &e->answer);
	curl_easy_setopt(e->request, CURLOPT_TIMEOUT_MS, (long)e->where.timeout_ms);
	if (curl_multi_add_handle(e->multi, e->request) == CURLM_OK) {
		while (!drive_transfers(e, &code))
			curl_multi_poll(e->multi, NULL, 0, 100, NULL);
		curl_multi_remove_handle(e->multi, e->request);
	}
	curl_easy_getinfo(e->request, CURLINFO_RESPONSE_CODE, status);
	curl_slist_free_all(headers);
	return code;
}

/* Returns whether the request never reached the endpoint, so that it cannot take effect. */
static bool is_unsent(CURLcode code)
{
	return code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
	       code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION ||
	       code == CURLE_SSL_CERTPROBLEM || code == CURLE_SSL_CACERT_BADFILE ||
	       code == CURLE_FAILED_INIT;
}

static json_t *parse_answer(const struct roll_etcd *e)
{
	return json_loadb(e->answer.text ? e->answer.text : "", e->answer.len, 0, NULL);
}

/*
 * Returns whether a failure is to be logged. A dead endpoint is tried many times a second: log it once, and when
 * it is back.
 */
static bool is_news(struct roll_etcd *e, long how)
{
	long *told = &e->told[e->endpoint];
	bool news = *told != how;

	*told = how;
	return news;
}

static void log_failure(struct roll_etcd *e, CURLcode code, long status)
{
	const char *said;
	json_t *o;

	if (!is_news(e, code != CURLE_OK ? -(long)code : status))
		return;
	o = code == CURLE_OK ? parse_answer(e) : NULL;
	said = o ? json_string_value(json_object_get(o, "message")) : e->answer.text;
	if (code != CURLE_OK)
		log_warn("etcd %s: %s", e->where.hosts[e->endpoint], curl_easy_strerror(code));
	else
		log_warn("etcd %s: status %ld: %.200s", e->where.hosts[e->endpoint], status,
			 said ? said : "no reason given");
	json_decref(o);
}

static int read_password(const struct roll_where *w, char password[PASSWORD_LEN])
{
	ssize_t len = file_read_private(AT_FDCWD, w->password_file, password, PASSWORD_LEN);

	if (len >= 0) {
		password[strcspn(password, "\r\n")] = '\0';
		return 0;
	}
	log_err("etcd: password file %s: %s", w->password_file,
		len == -EPERM ? "it must be a file of this user or of root, and accessible to "
				"nobody else: run chmod 600"
			      : strerror((int)-len));
	return (int)len;
}

static int log_in(struct roll_etcd *e)
{
	char password[PASSWORD_LEN], *body;
	int rc = read_password(&e->where, password);
	json_t *o = NULL;
	const char *token;
	CURLcode code;
	long status = 0;

	if (rc != 0)
		return rc;
	o = json_pack("{s:s, s:s}", "name", e->where.user, "password", password);
	OPENSSL_cleanse(password, sizeof(password));
	body = o ? json_dumps(o, 0) : NULL;
	json_decref(o);
	if (!body)
		return -ENOMEM;
	free(e->token);
	e->token = NULL;
	code = post_here(e, "auth/authenticate", body, &status);
	OPENSSL_cleanse(body, strlen(body));
	free(body);
	o = code == CURLE_OK && status == 200 ? parse_answer(e) : NULL;
	token = json_string_value(json_object_get(o, "token"));
	e->token = token ? strdup(token) : NULL;
	json_decref(o);
	if (!e->token)
		log_failure(e, code, status);
	return e->token ? 0 : -EACCES;
}

/*
 * Posts to the current endpoint. If the token has expired, the request had no effect, and is retried once with a
 * new token.
 */
static CURLcode post_logged_in(struct roll_etcd *e, const char *path, const char *body,
			       long *status)
{
	CURLcode code = post_here(e, path, body, status);

	if (code != CURLE_OK || *status != UNAUTHORISED || !e->where.user[0] || log_in(e) != 0)
		return code;
	return post_here(e, path, body, status);
}

/*
 * Tries each endpoint once, beginning with the one that responded last. Returns the response, or NULL. *sent: an
 * endpoint may have received the request, and did not report the result.
 */
static json_t *post_any(struct roll_etcd *e, const char *path, const char *body, bool *sent,
			int *error)
{
	*error = -ETIMEDOUT;
	for (unsigned int tries = 0; tries < e->where.num_hosts; tries++) {
		long status = 0;
		CURLcode code = post_logged_in(e, path, body, &status);

		if (code == CURLE_OK && status == 200) {
			if (is_news(e, 0))
				log_warn("etcd %s: responds again", e->where.hosts[e->endpoint]);
			return parse_answer(e);
		}
		log_failure(e, code, status);
		if (code == CURLE_OK && status < 500)
			*error = -EACCES;
		*sent |= code == CURLE_OK ? status >= 500 : !is_unsent(code);
		e->endpoint = (e->endpoint + 1) % e->where.num_hosts;
	}
	return NULL;
}

static json_t *request_json(struct roll_etcd *e, const char *path, json_t *request, bool *sent,
			    int *error)
{
	char *body = json_dumps(request, 0);
	json_t *answer = NULL;

	*error = -ENOMEM;
	if (body && e->where.user[0] && !e->token)
		log_in(e);
	if (body)
		answer = post_any(e, path, body, sent, error);
	free(body);
	json_decref(request);
	return answer;
}

/* ---- etcd's responses ------------------------------------------------------------------------ */

/* etcd sends 64-bit numbers as strings. */
static uint64_t number_of(json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? strtoull(text, NULL, 10) : 0;
}

static int roll_of_kv(json_t *kv, struct roll *roll, uint64_t *revision)
{
	const char *value = json_string_value(json_object_get(kv, "value"));
	size_t len = value ? strlen(value) : 0;
	unsigned char text[MAX_B64(ROLL_MAX_TEXT) + 4];
	const char *why = "it has no value";
	int text_len = -1, rc = -EBADMSG;

	if (len && len < sizeof(text))
		text_len = EVP_DecodeBlock(text, (const unsigned char *)value, (int)len);
	if (text_len > 0) {
		/* Base64 padding is not part of the value. */
		text_len -= (value[len - 1] == '=') + (len > 1 && value[len - 2] == '=');
		rc = roll_from_text((const char *)text, (size_t)text_len, roll, NULL, &why);
	}
	*revision = number_of(kv, "mod_revision");
	if (rc == 0 && *revision == 0)
		rc = -EBADMSG;
	if (rc != 0)
		log_err("etcd: the key's value is not a roll: %s", why);
	return rc;
}

static int read_roll(struct roll_etcd *e, struct roll *roll, uint64_t *revision, uint64_t *at)
{
	bool sent = false;
	int rc;
	json_t *o = request_json(e, "kv/range", json_pack("{s:s}", "key", e->key), &sent, &rc);
	json_t *kvs = json_object_get(o, "kvs");

	if (!o)
		return rc;
	*at = number_of(json_object_get(o, "header"), "revision");
	*revision = 0;
	rc = *at == 0 ? -EBADMSG : 0;
	if (rc == 0 && json_array_size(kvs) > 0)
		rc = roll_of_kv(json_array_get(kvs, 0), roll, revision);
	json_decref(o);
	return rc;
}

static int etcd_read(struct roll_backend *backend, struct roll *roll, uint64_t *revision)
{
	uint64_t at;

	return read_roll(to_etcd(backend), roll, revision, &at);
}

static json_t *swap_request(const struct roll_etcd *e, uint64_t revision, const struct roll *roll)
{
	char text[ROLL_MAX_TEXT], value[MAX_B64(ROLL_MAX_TEXT)], from[24];
	int len = roll_to_text(roll, 0, text, sizeof(text)); /* etcd assigns the revision */

	if (len < 0)
		return NULL;
	EVP_EncodeBlock((unsigned char *)value, (const unsigned char *)text, len);
	snprintf(from, sizeof(from), "%" PRIu64, revision);
	return json_pack("{s:[{s:s, s:s, s:s, s:s}], s:[{s:{s:s, s:s}}]}", "compare", "key", e->key,
			 "target", "MOD", "mod_revision", from, "result", "EQUAL", "success",
			 "requestPut", "key", e->key, "value", value);
}

static enum roll_result etcd_swap(struct roll_backend *backend, uint64_t *revision,
				  const struct roll *roll, int *error)
{
	struct roll_etcd *e = to_etcd(backend);
	json_t *request = swap_request(e, *revision, roll), *o;
	bool sent = false, done, told;
	uint64_t at;

	*error = -ENOMEM;
	o = request ? request_json(e, "kv/txn", request, &sent, error) : NULL;
	at = number_of(json_object_get(o, "header"), "revision");
	told = o && at != 0;
	done = json_is_true(json_object_get(o, "succeeded"));
	json_decref(o);
	if (!told)
		return ROLL_UNKNOWN;
	if (done) {
		*revision = at;
		return ROLL_WON;
	}
	*error = -ETIMEDOUT;
	return sent ? ROLL_UNKNOWN : ROLL_LOST;
}

/* ---- the watch ------------------------------------------------------------------------------- */

static void notice_roll(struct roll_etcd *e, uint64_t revision, const struct roll *roll)
{
	if (revision <= e->seen)
		return;
	e->seen = revision;
	rolls_noticed(e->backend.rolls, revision, roll);
}

static void parse_watch_events(struct roll_etcd *e, const char *line, size_t len)
{
	json_t *o = json_loadb(line, len, 0, NULL), *result = json_object_get(o, "result");
	json_t *events = json_object_get(result, "events");
	struct roll roll;
	uint64_t revision;

	if (!result || json_is_true(json_object_get(result, "canceled")))
		e->watch_ended = true;
	for (size_t i = 0; i < json_array_size(events); i++) {
		json_t *event = json_array_get(events, i);

		/* An event without a type is a put. Readers find out by themselves that a roll was deleted. */
		if (!json_object_get(event, "type") &&
		    roll_of_kv(json_object_get(event, "kv"), &roll, &revision) == 0)
			notice_roll(e, revision, &roll);
	}
	json_decref(o);
}

static void parse_watch_lines(struct roll_etcd *e)
{
	struct reply *r = &e->events;
	char *end;

	while (r->len && (end = memchr(r->text, '\n', r->len))) {
		size_t len = (size_t)(end - r->text) + 1;

		parse_watch_events(e, r->text, len);
		memmove(r->text, end + 1, r->len - len);
		r->len -= len;
	}
}

static void stop_watch(struct roll_etcd *e)
{
	if (e->watch_runs)
		curl_multi_remove_handle(e->multi, e->watch);
	e->watch_runs = e->watch_ended = false;
	e->watch_next = clock_ns() + WATCH_RETRY;
}

static void begin_watch(struct roll_etcd *e, uint64_t from)
{
	struct curl_slist *headers = headers_of(e);
	char body[MAX_B64(ROLL_WHERE_KEY) + 128];

	snprintf(body, sizeof(body),
		 "{\"create_request\": {\"key\": \"%s\", \"start_revision\": \"%" PRIu64 "\"}}",
		 e->key, from);
	e->events.len = 0;
	set_request(e, e->watch, "watch", body, headers, &e->events);
	e->watch_runs = curl_multi_add_handle(e->multi, e->watch) == CURLM_OK;
	/* The headers must live as long as the transfer; curl does not free them. */
	curl_slist_free_all(e->watch_headers);
	e->watch_headers = headers;
}

/* Watches from the current revision on, so that no change is missed in between. */
static void start_watch(struct roll_etcd *e)
{
	struct roll roll;
	uint64_t revision, at;

	e->watch_next = clock_ns() + WATCH_RETRY;
	if (read_roll(e, &roll, &revision, &at) != 0)
		return;
	if (revision)
		notice_roll(e, revision, &roll);
	begin_watch(e, at + 1);
}

static void etcd_idle(struct roll_backend *backend, bool watching)
{
	struct roll_etcd *e = to_etcd(backend);
	CURLcode code;

	if (watching && !e->watch_runs && clock_ns() >= e->watch_next)
		start_watch(e);
	drive_transfers(e, &code);
	parse_watch_lines(e);
	if (e->watch_ended)
		stop_watch(e);
	if (!atomic_exchange(&e->woken, false))
		curl_multi_poll(e->multi, NULL, 0,
				watching && !e->watch_runs ? WATCH_RETRY / NS_PER_MS : 10000, NULL);
}

static void etcd_wake(struct roll_backend *backend)
{
	struct roll_etcd *e = to_etcd(backend);

	atomic_store(&e->woken, true);
	curl_multi_wakeup(e->multi);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void etcd_close(struct roll_backend *backend)
{
	struct roll_etcd *e = to_etcd(backend);

	if (e->watch_runs)
		curl_multi_remove_handle(e->multi, e->watch);
	curl_easy_cleanup(e->request);
	curl_easy_cleanup(e->watch);
	curl_multi_cleanup(e->multi);
	curl_slist_free_all(e->watch_headers);
	free(e->answer.text);
	free(e->events.text);
	free(e->token);
	free(e);
}

static const struct roll_backend_ops etcd_ops = {
	.read = etcd_read,
	.swap = etcd_swap,
	.idle = etcd_idle,
	.wake = etcd_wake,
	.close = etcd_close,
};

static void start_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* Refuses a file of a password that is not private. One that is missing may still be created. */
static int check_password(const struct roll_where *w)
{
	char password[PASSWORD_LEN];
	int rc = w->user[0] ? read_password(w, password) : 0;

	OPENSSL_cleanse(password, sizeof(password));
	return rc == -EPERM ? rc : 0;
}

int roll_etcd_open(const char *where, struct roll_backend **backend)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct roll_etcd *e = calloc(1, sizeof(*e));
	const char *why;
	int rc;

	if (!e)
		return -ENOMEM;
	rc = roll_where_parse(where, &e->where, &why);
	if (rc != 0)
		log_err("roll %s: %s", where, why);
	else
		rc = check_password(&e->where);
	if (rc != 0) {
		free(e);
		return rc;
	}
	pthread_once(&once, start_curl);
	e->backend.ops = &etcd_ops;
	EVP_EncodeBlock((unsigned char *)e->key, (const unsigned char *)e->where.key,
			(int)strlen(e->where.key));
	e->multi = curl_multi_init();
	e->request = curl_easy_init();
	e->watch = curl_easy_init();
	if (!e->multi || !e->request || !e->watch) {
		etcd_close(&e->backend);
		return -ENOMEM;
	}
	*backend = &e->backend;
	return 0;
}
