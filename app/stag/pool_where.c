// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_where.c - stag pool: finds the nodes of a pool, and the user and secret to authenticate with.
 *
 * On a machine with a node of the pool, these come from the node's INI file and secrets; elsewhere, from the command line
 * and the environment.
 */
#include "pool_use.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/name.h"
#include "conf.h"
#include "stag.h"

#define SECRETS_ROOM  (1u << 20)
#define OPEN_MS	      5000 /* that the library takes at most for an attempt */
#define OPEN_LEAST_MS 1000

/* ---- places -------------------------------------------------------------------------- */

const struct registry_node *pool_use_registered(const struct registry *r, const char *pool,
						enum pool_found *found)
{
	const struct registry_node *n = registry_find(r, pool);
	const struct registry_node *next = n ? registry_next_pool(r, n) : NULL;
	char places[1024];

	*found = n ? POOL_FOUND : POOL_NOT_YET;
	if (!next || strcmp(next->pool, pool) != 0)
		return n;
	registry_places(r, pool, places, sizeof(places));
	complain("there are several pools '%s' on this machine; name the directory of a node: %s",
		 pool, places);
	*found = POOL_WRONG;
	return NULL;
}

/* ---- the user ---------------------------------------------------------------------- */

static bool set_user(struct pool_where *w, const struct secret *s)
{
	strcpy(w->user, s->name);
	strcpy(w->secret, s->text);
	return true;
}

/* Returns the secret of the named user, or of the user with most rights. */
static const struct secret *find_secret(const struct secrets *all, const char *user)
{
	const struct secret *best = NULL;

	if (user)
		return secrets_find(all, user);
	for (unsigned int i = 0; i < all->count; i++) {
		const struct secret *s = &all->list[i];

		if (!(s->rights & RIGHT_NODE) && (!best || s->rights > best->rights))
			best = s;
	}
	return best;
}

static bool choose_user(struct pool_where *w, const struct secrets *all, const char *user,
			const char *file)
{
	const struct secret *s = find_secret(all, user);

	if (s)
		return set_user(w, s);
	complain_for(ENOENT, user, "%s has no user '%s'; choose one with --user", file,
		     user ? user : "");
	return false;
}

/* Reads a file of secrets as nodes have it, or a file whose first line is a secret. */
static bool parse_secret_text(struct pool_where *w, const char *file, char *text, const char *user)
{
	size_t len = strcspn(text, "\r\n");
	struct secrets all;
	bool good;

	if (*text != '#' && !memchr(text, ' ', len) && !memchr(text, '\t', len)) {
		if (len < STAG_POOL_SECRET_MIN || len > STAG_POOL_SECRET_MAX) {
			complain("%s: a secret must have %d to %d characters, not %zu", file,
				 STAG_POOL_SECRET_MIN, STAG_POOL_SECRET_MAX, len);
			return false;
		}
		snprintf(w->user, sizeof(w->user), "%s", user ? user : "client");
		memcpy(w->secret, text, len);
		w->secret[len] = '\0';
		return true;
	}
	if (secrets_parse(text, file, &all) != 0)
		return false; /* the parser has reported the line */
	good = choose_user(w, &all, user, file);
	secrets_free(&all);
	return good;
}

static bool read_secret(struct pool_where *w, const char *file, const char *user)
{
	char *text = malloc(SECRETS_ROOM);
	ssize_t len = text ? file_read(AT_FDCWD, file, text, SECRETS_ROOM) : -ENOMEM;
	bool good = false;

	if (len < 0)
		complain_for((int)-len, file, "%s: %s", file, strerror((int)-len));
	else
		good = parse_secret_text(w, file, text, user);
	if (text)
		explicit_bzero(text, SECRETS_ROOM);
	free(text);
	return good;
}

/* ---- the three ways to name a pool ----------------------------------------------------------- */

static bool is_any(const char *address)
{
	return !address || strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
}

static bool has_address(const char *nodes, const char *address)
{
	size_t len = strlen(address);

	for (const char *at = nodes; (at = strstr(at, address)); at += len)
		if ((at == nodes || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
			return true;
	return false;
}

static void add_address(struct pool_where *w, const char *address)
{
	size_t len = strlen(w->nodes);

	if (len + 1 + strlen(address) < sizeof(w->nodes) && !has_address(w->nodes, address))
		sprintf(w->nodes + len, "%s%s", len ? "," : "", address);
}

/* Returns what a node advertises that listens on all addresses: a certificate is for that. */
static const char *own_name(void)
{
	static char name[256];

	gethostname(name, sizeof(name) - 1);
	return name;
}

static void add_node(struct pool_where *w, const struct conf_pool *p)
{
	const char *host = p->advertise		 ? p->advertise
			   : !is_any(p->address) ? p->address
			   : p->tls_cert	 ? own_name()
						 : "127.0.0.1";
	bool bare6 = host[0] != '[' && strchr(host, ':') != strrchr(host, ':');
	bool has_port = !bare6 && strchr(host[0] == '[' ? strchr(host, ']') : host, ':');
	char address[512], port[16] = "";

	if (!p->attr.port && !has_port)
		return; /* any free port: which one is not known */
	if (!has_port)
		snprintf(port, sizeof(port), ":%u", p->attr.port);
	if (snprintf(address, sizeof(address), "%s%s%s%s", bare6 ? "[" : "", host, bare6 ? "]" : "",
		     port) < (int)sizeof(address))
		add_address(w, address);
}

/* Adds the other nodes from a roll in a file: if this node is down, one of them may be primary. */
static void add_others(struct pool_where *w, const struct conf_pool *p)
{
	struct stag_pool_roll roll;

	if (!p->roll || strncmp(p->roll, "file:", 5) != 0 || access(p->roll + 5, R_OK) != 0 ||
	    stag_pool_query_roll(p->roll, &roll, sizeof(roll)) != 0)
		return;
	for (unsigned int i = 0; i < roll.num_members; i++)
		if (strcmp(roll.members[i].name, p->node) != 0)
			add_address(w, roll.members[i].address);
}

static void use_certificate(struct pool_where *w, const char *cert, const char *key, const char *ca)
{
	snprintf(w->tls_cert, sizeof(w->tls_cert), "%s", cert ? cert : "");
	snprintf(w->tls_key, sizeof(w->tls_key), "%s", key ? key : "");
	snprintf(w->tls_ca, sizeof(w->tls_ca), "%s", ca ? ca : "");
}

/* Reads the section of the pool of this name; NULL: the first pool of the file. */
static bool use_ini(const struct pool_use *u, struct pool_where *w, const char *path,
		    const char *name)
{
	struct conf_pool *p;
	struct conf conf;
	bool good = conf_read(&conf, path, stderr) == 0;

	p = !good  ? NULL
	    : name ? conf_find(&conf, &conf_pool_kind, name)
		   : conf_next(&conf, &conf_pool_kind, NULL);
	if (good && !p)
		complain_for(ENOENT, name, "%s has no section [pool %s]", path, name ? name : "");
	good = p != NULL;
	if (good) {
		w->tls = (uint32_t)p->tls;
		use_certificate(w, p->tls_cert, p->tls_key, p->tls_ca);
		add_node(w, p);
		add_others(w, p);
	}
	if (good && !w->secret[0] && !u->secret_file)
		good = choose_user(w, &p->secrets, u->user, p->secrets_file);
	conf_free(&conf);
	return good;
}

static enum pool_found use_path(const struct pool_use *u, struct pool_where *w)
{
	char path[PATH_MAX];
	struct stat st;
	bool dir = stat(u->pool, &st) == 0 && S_ISDIR(st.st_mode);

	if (snprintf(path, sizeof(path), "%s%s", u->pool, dir ? "/stag.ini" : "") >=
	    (int)sizeof(path)) {
		complain("%s: %s", u->pool, strerror(ENAMETOOLONG));
		return POOL_WRONG;
	}
	if (access(path, F_OK) != 0 && errno == ENOENT)
		return POOL_NOT_YET;
	return use_ini(u, w, path, NULL) ? POOL_FOUND : POOL_WRONG;
}

bool pool_use_find_registered(const struct pool_use *u, const struct registry *r,
			      const struct registry_node *first, struct pool_where *w)
{
	*w = (struct pool_where){0};
	snprintf(w->name, sizeof(w->name), "%s", first->pool);
	for (const struct registry_node *n = first;
	     n < r->list + r->count && registry_is_same_pool(n, first); n++)
		if (!use_ini(u, w, n->ini, n->pool))
			return false;
	return true;
}

/* Can this be the name of a pool that will be made here, rather than that of a host? */
static bool may_be_made(const char *pool)
{
	return name_is_valid(pool) && !strchr(pool, '.') && strcmp(pool, "localhost") != 0;
}

static bool use_hosts(struct pool_where *w, const char *pool)
{
	const char *at = strchr(pool, '@');

	if (snprintf(w->nodes, sizeof(w->nodes), "%s", at ? at + 1 : pool) < (int)sizeof(w->nodes))
		return true;
	complain("the list of nodes is too long");
	return false;
}

/* Returns the pool that is meant if none is named, or NULL with *found. */
static const struct registry_node *only_pool(const struct registry *r, enum pool_found *found)
{
	const struct registry_node *first = registry_next_pool(r, NULL);
	char names[1024];

	*found = first ? POOL_FOUND : POOL_NOT_YET;
	if (!first || !registry_next_pool(r, first))
		return first;
	registry_names(r, names, sizeof(names));
	complain("which pool? Name one of %s, or set STAG_POOL", names);
	*found = POOL_WRONG;
	return NULL;
}

/* Finds a pool by its name, or the only one (NULL), or the hosts of this name. */
static enum pool_found find_by_name(const struct pool_use *u, struct pool_where *w)
{
	const struct registry_node *n;
	const char *pool = u->pool;
	enum pool_found found;
	struct registry r;

	registry_read(&r);
	n = pool ? pool_use_registered(&r, pool, &found) : only_pool(&r, &found);
	if (n && !pool_use_find_registered(u, &r, n, w))
		found = POOL_WRONG;
	registry_free(&r);
	if (found != POOL_NOT_YET || !pool || (may_be_made(pool) && !u->secret_file))
		return found;
	if (u->secret_file)
		return use_hosts(w, pool) ? POOL_FOUND : POOL_WRONG;
	complain_for(
		ENOENT, pool,
		"this user has no pool '%s' on this machine; a pool elsewhere needs --user NAME "
		"--secret-file FILE",
		pool);
	return POOL_WRONG;
}

static const char *from_environment(const char *option, const char *name)
{
	const char *value = option ? NULL : getenv(name);

	return value && *value ? value : option;
}

/* Sets the user: that of the option, of USER@HOST, or of the environment. */
static void set_wanted_user(struct pool_use *u, char name[SECRET_NAME_LEN])
{
	const char *at = u->pool && !strchr(u->pool, '/') ? strchr(u->pool, '@') : NULL;

	if (at && !u->user) {
		snprintf(name, SECRET_NAME_LEN, "%.*s", (int)(at - u->pool), u->pool);
		u->user = name;
	}
	u->user = from_environment(u->user, "STAG_USER");
}

static enum pool_found find_pool(const struct pool_use *given, struct pool_where *w)
{
	struct pool_use u = *given;
	char user[SECRET_NAME_LEN];
	enum pool_found found;

	u.pool = from_environment(u.pool, "STAG_POOL");
	u.secret_file = from_environment(u.secret_file, "STAG_SECRET_FILE");
	set_wanted_user(&u, user);
	*w = (struct pool_where){0};
	if (u.pool && (strchr(u.pool, '/') || strcmp(u.pool, ".") == 0))
		found = use_path(&u, w);
	else
		found = find_by_name(&u, w);
	if (u.pool)
		snprintf(w->name, sizeof(w->name), "%s", u.pool);
	if (found == POOL_FOUND && !w->nodes[0]) {
		complain("%s: its nodes listen on any free port; name it as HOST:PORT", w->name);
		return POOL_WRONG;
	}
	if (found == POOL_FOUND && u.secret_file && !read_secret(w, u.secret_file, u.user))
		return POOL_WRONG;
	return found;
}

static const char *open_advice(int error)
{
	switch (error) {
	case ECONNREFUSED:
	case ETIMEDOUT:
	case EHOSTUNREACH:
		return "; is a node running? 'stagd --config FILE' starts one";
	case EACCES:
		return "; check --user and --secret-file: the node's file 'secrets' lists its "
		       "users";
	default:
		return "";
	}
}

/* Options count more than the INI file. */
static void use_tls_options(const struct pool_use *u, struct pool_where *w)
{
	if (u->tls_cert || u->tls_key || u->tls_ca) {
		use_certificate(w, u->tls_cert, u->tls_key, u->tls_ca);
		w->tls = STAG_POOL_TLS_REQUIRED;
	}
	if (!u->tls)
		return;
	w->tls = u->tls[0] == 'r'   ? STAG_POOL_TLS_REQUIRED
		 : u->tls[0] == 'a' ? STAG_POOL_TLS_ALLOWED
				    : STAG_POOL_TLS_OFF;
	if (w->tls == STAG_POOL_TLS_OFF && !u->tls_cert)
		use_certificate(w, NULL, NULL, NULL);
}

struct stag_pool *pool_use_connect(const struct pool_use *u, struct pool_where *w, int retry_ms,
				   int timeout_ms)
{
	struct stag_pool *pool;

	use_tls_options(u, w);
	pool = stag_pool_open(w->nodes, &(struct stag_pool_attr){
						.user = w->user,
						.secret = w->secret,
						.retry_ms = retry_ms,
						.timeout_ms = timeout_ms,
						.tls = w->tls,
						.tls_cert = w->tls_cert[0] ? w->tls_cert : NULL,
						.tls_key = w->tls_key[0] ? w->tls_key : NULL,
						.tls_ca = w->tls_ca[0] ? w->tls_ca : NULL,
					});
	explicit_bzero(w->secret, sizeof(w->secret));
	return pool;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Complains that the pool was not made while we waited. */
static void refuse_unknown(const struct pool_where *w)
{
	char names[1024] = "";
	struct registry r;

	registry_read(&r);
	registry_names(&r, names, sizeof(names));
	registry_free(&r);
	if (strchr(w->name, '/') || strcmp(w->name, ".") == 0)
		complain_for(ENOENT, w->name, "%s: there is no node of a pool", w->name);
	else if (!w->name[0])
		complain_for(
			ENOENT, NULL,
			"this user has no pool on this machine: 'stag pool create' makes one; a "
			"pool elsewhere needs HOST[:PORT] and --secret-file FILE");
	else
		complain_for(
			ENOENT, w->name,
			"this user has no pool '%s' on this machine%s%s%s; a pool elsewhere needs "
			"--user NAME --secret-file FILE",
			w->name, *names ? ", but " : "", names,
			*names ? "" : ": 'stag pool create' makes one");
}

static bool may_listen_soon(int error)
{
	return error == ECONNREFUSED || error == ETIMEDOUT || error == EHOSTUNREACH;
}

/* Returns the time limit of an attempt: the library's own, unless less is left. */
static int attempt_ms(const struct pool_wait *wait)
{
	int left = pool_wait_left_ms(wait);

	if (wait->seconds == 0 || left >= OPEN_MS)
		return 0;
	return left < OPEN_LEAST_MS ? OPEN_LEAST_MS : left;
}

/* Tries once. Returns NULL with *again, or after it has complained. */
static struct stag_pool *try_to_open(const struct pool_use *u, int retry_ms, struct pool_wait *wait,
				     bool *again)
{
	struct stag_pool *pool = NULL;
	struct pool_where w;
	enum pool_found found = find_pool(u, &w);
	int error;

	*again = false;
	if (found == POOL_FOUND) {
		pool_wait_for(wait, "pool %s to answer at %s", w.name, w.nodes);
		pool = pool_use_connect(u, &w, retry_ms, attempt_ms(wait));
		error = errno;
		*again = !pool && may_listen_soon(error) && pool_wait_more(wait);
		if (!pool && !*again)
			complain_for(error, w.name, "%s%s", stag_pool_error(), open_advice(error));
	} else if (found == POOL_NOT_YET) {
		pool_wait_for(wait, "a pool%s%s to be made on this machine", w.name[0] ? " " : "",
			      w.name);
		*again = pool_wait_more(wait);
		if (!*again)
			refuse_unknown(&w);
	}
	return pool;
}

struct stag_pool *pool_use_open(const struct pool_use *u, int retry_ms)
{
	struct stag_pool *pool;
	struct pool_wait wait;
	bool again;

	if (u->shared)
		return u->shared;
	pool_wait_begin(&wait, u);
	do
		pool = try_to_open(u, retry_ms, &wait, &again);
	while (again);
	pool_wait_end(&wait);
	return pool;
}

void pool_use_close(const struct pool_use *u, struct stag_pool *pool)
{
	if (pool != u->shared)
		stag_pool_close(pool);
}
