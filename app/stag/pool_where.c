// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_where.c - stag pool: finds the nodes of a pool, and the user and secret to authenticate with.
 *
 * On a machine with a node of the pool, these come from the node's INI file and secrets; elsewhere, from the command line.
 */
#include "pool_use.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
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

#define SECRETS_ROOM (1u << 20)

/* ---- places -------------------------------------------------------------------------- */

/* Finds the INI files of the nodes of a pool on this machine. Returns false if there are none. */
static bool find_inis(const char *pool, glob_t *found)
{
	char base[PATH_MAX], pattern[PATH_MAX + 80];

	if (!name_is_valid(pool) || !conf_state_dir(base, sizeof(base)))
		return false;
	snprintf(pattern, sizeof(pattern), "%s/%s/*/stag.ini", base, pool);
	return glob(pattern, 0, NULL, found) == 0;
}

bool pool_use_first_ini(const char *pool, char *path, size_t size)
{
	glob_t found;
	bool good;

	if (!find_inis(pool, &found))
		return false;
	good = snprintf(path, size, "%s", found.gl_pathv[0]) < (int)size;
	globfree(&found);
	return good;
}

bool pool_use_has_port(const char *pool, unsigned int port, const char *but)
{
	const struct conf_pool *p;
	struct conf conf;
	bool has = false;
	glob_t found;

	if (!find_inis(pool, &found))
		return false;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		conf_read(&conf, found.gl_pathv[i], NULL);
		for (p = NULL; (p = conf_next(&conf, &conf_pool_kind, p));)
			has |= p->attr.port == port && strcmp(conf.path, but) != 0;
		conf_free(&conf);
	}
	globfree(&found);
	return has;
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
	complain("%s has no user '%s'; choose one with --user", file, user ? user : "");
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
		complain("%s: %s", file, strerror((int)-len));
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

static void add_node(struct pool_where *w, const struct conf_pool *p)
{
	const char *host = p->advertise		? p->advertise
			   : is_any(p->address) ? "127.0.0.1"
						: p->address;
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
		complain("%s has no section [pool %s]", path, name ? name : "");
	good = p != NULL;
	if (good) {
		add_node(w, p);
		add_others(w, p);
	}
	if (good && !w->secret[0] && !u->secret_file)
		good = choose_user(w, &p->secrets, u->user, p->secrets_file);
	conf_free(&conf);
	return good;
}

static bool use_path(const struct pool_use *u, struct pool_where *w)
{
	char path[PATH_MAX];
	struct stat st;
	bool dir = stat(u->pool, &st) == 0 && S_ISDIR(st.st_mode);

	if (snprintf(path, sizeof(path), "%s%s", u->pool, dir ? "/stag.ini" : "") <
	    (int)sizeof(path))
		return use_ini(u, w, path, NULL);
	complain("%s: %s", u->pool, strerror(ENAMETOOLONG));
	return false;
}

static bool use_inis(const struct pool_use *u, struct pool_where *w, const glob_t *found)
{
	for (size_t i = 0; i < found->gl_pathc; i++)
		if (!use_ini(u, w, found->gl_pathv[i], u->pool))
			return false;
	return true;
}

static bool use_hosts(const struct pool_use *u, struct pool_where *w, const char **user)
{
	const char *at = strchr(u->pool, '@');
	static char name[SECRET_NAME_LEN];

	if (at && !*user) {
		snprintf(name, sizeof(name), "%.*s", (int)(at - u->pool), u->pool);
		*user = name;
	}
	if (!u->secret_file) {
		complain("no node of a pool '%s' was made on this machine; a pool elsewhere needs "
			 "--user NAME --secret-file FILE",
			 u->pool);
		return false;
	}
	if (snprintf(w->nodes, sizeof(w->nodes), "%s", at ? at + 1 : u->pool) <
	    (int)sizeof(w->nodes))
		return true;
	complain("the list of nodes is too long");
	return false;
}

bool pool_use_find(const struct pool_use *u, struct pool_where *w)
{
	const char *user = u->user;
	glob_t found;
	bool good;

	*w = (struct pool_where){0};
	if (strchr(u->pool, '/') || strcmp(u->pool, ".") == 0) {
		good = use_path(u, w);
	} else if (find_inis(u->pool, &found)) {
		good = use_inis(u, w, &found);
		globfree(&found);
	} else {
		good = use_hosts(u, w, &user);
	}
	if (good && !w->nodes[0]) {
		complain("%s: its nodes listen on any free port; name it as HOST:PORT", u->pool);
		good = false;
	}
	return good && (!u->secret_file || read_secret(w, u->secret_file, user));
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

struct stag_pool *pool_use_open(const struct pool_use *u, int retry_ms)
{
	struct stag_pool *pool;
	struct pool_where w;

	if (!pool_use_find(u, &w))
		return NULL;
	pool = stag_pool_open(
		w.nodes,
		&(struct stag_pool_attr){.user = w.user, .secret = w.secret, .retry_ms = retry_ms});
	explicit_bzero(w.secret, sizeof(w.secret));
	if (!pool) {
		int error = errno;

		complain("%s%s", stag_pool_error(), open_advice(error));
	}
	return pool;
}
