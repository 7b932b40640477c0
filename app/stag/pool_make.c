// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_make.c - stag pool create and join: make a directory with the INI file and the secrets of a node, for stagd to serve.
 *
 * Neither uses the network: the pool itself is made, or joined, when the node starts.
 */
#include "pool_use.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/name.h"
#include "conf.h"
#include "stag.h"
#include "store.h"

#define PORTS 64 /* how many are tried */

struct made {
	const struct pool_use *u;
	bool create;
	char node[NAME_LEN];
	char dir[PATH_MAX - 64], ini[PATH_MAX];
	char roll[PATH_MAX + 512];
	const char *address; /* to listen on; NULL: all addresses */
	uint16_t port;
	struct secrets secrets;
	struct conf_pool *like; /* the node whose settings are copied; NULL: none */
};

/* ---- places and names -------------------------------------------------------------------- */

static bool set_names(struct made *m)
{
	const struct pool_use *u = m->u;
	char host[HOST_NAME_MAX + 1] = "", base[PATH_MAX];
	int len;

	gethostname(host, sizeof(host) - 1);
	if (!name_is_valid(u->pool)) {
		complain("'%s' cannot be the name of a pool: use letters, digits and . - _, 63 at "
			 "most",
			 u->pool);
		return false;
	}
	if (!name_is_valid(u->node ? u->node : host)) {
		complain("'%s' cannot be the name of a node: use letters, digits and . - _, 63 at "
			 "most; set another with --node",
			 u->node ? u->node : host);
		return false;
	}
	strcpy(m->node, u->node ? u->node : host);
	if (!u->dir && !conf_state_dir(base, sizeof(base))) {
		complain("there is no home directory; name a directory with --dir");
		return false;
	}
	if (u->dir)
		len = snprintf(m->dir, sizeof(m->dir), "%s", u->dir);
	else
		len = snprintf(m->dir, sizeof(m->dir), "%s/%s/%s", base, u->pool, m->node);
	if (len < (int)sizeof(m->dir))
		return true;
	complain("%s: %s", u->dir ? u->dir : base, strerror(ENAMETOOLONG));
	return false;
}

static bool has_new_name(const struct made *m)
{
	if (!m->like || strcmp(m->node, m->like->node) != 0)
		return true;
	complain_for(EEXIST, m->node,
		     "the pool has a node '%s' already; set another name with --node", m->node);
	return false;
}

/* Removes the state of a node that was in this directory. */
static bool remove_state(const struct made *m)
{
	CLEANUP_CLOSE int dir = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (!m->u->force)
		return true;
	if (dir >= 0 && flock(dir, LOCK_EX | LOCK_NB) == 0 &&
	    (unlinkat(dir, "state", 0) == 0 || errno == ENOENT))
		return true;
	complain_for(errno, m->dir, "%s: %s", m->dir,
		     errno == EWOULDBLOCK ? "its node is running; stop it first" : strerror(errno));
	return false;
}

/* Is the node one of the pool that is created? Two pools of one name could not be told apart, unless they are named by --dir. */
static bool is_twin(const struct made *m, const struct registry_node *n)
{
	return strcmp(n->pool, m->u->pool) == 0 &&
	       (!m->u->dir || (m->u->roll && strcmp(m->u->roll, n->roll) == 0));
}

static bool is_new_pool(const struct made *m)
{
	char ini[PATH_MAX], places[1024] = "";
	struct registry r;

	snprintf(ini, sizeof(ini), "%s/stag.ini", m->dir);
	if (!m->create || m->u->force || access(ini, F_OK) == 0) /* make_place() refuses the last */
		return true;
	registry_read(&r);
	for (size_t i = 0; i < r.count && !*places; i++)
		if (is_twin(m, &r.list[i]))
			registry_places(&r, m->u->pool, places, sizeof(places));
	registry_free(&r);
	if (!*places)
		return true;
	complain_for(
		EEXIST, m->u->pool,
		"this user has a pool '%s' already, in %s; for another node of it: stag pool join "
		"%s --node NAME; a new pool needs another name",
		m->u->pool, places, m->u->pool);
	return false;
}

static bool make_place(struct made *m)
{
	char whole[PATH_MAX];
	int rc = conf_make_directories(m->dir);

	if (rc == 0 && !realpath(m->dir, whole))
		rc = -errno;
	if (rc == 0 && strlen(whole) >= sizeof(m->dir))
		rc = -ENAMETOOLONG;
	if (rc != 0) {
		complain_for(-rc, m->dir, "%s: %s; name another directory with --dir", m->dir,
			     strerror(-rc));
		return false;
	}
	strcpy(m->dir, whole);
	snprintf(m->ini, sizeof(m->ini), "%s/stag.ini", m->dir);
	if (access(m->ini, F_OK) == 0 && !m->u->force) {
		complain_for(
			EEXIST, m->dir,
			"%s has a node already; to start it: stagd --config %s; to replace it: "
			"--force; "
			"for another on this machine: --node NAME",
			m->dir, m->ini);
		return false;
	}
	return remove_state(m);
}

/* ---- the port --------------------------------------------------------------------------- */

static bool is_free(const char *address, unsigned int port)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
				 .ai_family = address ? AF_UNSPEC : AF_INET,
				 .ai_socktype = SOCK_STREAM},
			*list;
	CLEANUP_CLOSE int fd = -1;
	char service[8];
	bool good;

	snprintf(service, sizeof(service), "%u", port);
	if (getaddrinfo(address, service, &hints, &list) != 0)
		return true; /* a host name: stagd will report it */
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	good = fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
	       bind(fd, list->ai_addr, list->ai_addrlen) == 0;
	freeaddrinfo(list);
	return good;
}

/* Has a node of this user this port, running or not? The node whose INI file is `but` does not count. */
static bool has_port(const struct registry *r, uint16_t port, const char *but)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->list[i].port == port && strcmp(r->list[i].ini, but) != 0)
			return true;
	return false;
}

static bool set_port(struct made *m)
{
	struct registry r;

	if (m->u->port)
		return serve_port(m->u->port, 0, &m->port);
	registry_read(&r);
	for (m->port = STAG_POOL_PORT; m->port < STAG_POOL_PORT + PORTS; m->port++)
		if (!has_port(&r, m->port, m->ini) && is_free(m->address, m->port))
			break;
	registry_free(&r);
	if (m->port < STAG_POOL_PORT + PORTS)
		return true;
	complain_for(EADDRINUSE, NULL, "no port from %d to %d is free; choose one with --port",
		     STAG_POOL_PORT, STAG_POOL_PORT + PORTS - 1);
	return false;
}

/* ---- secrets ---------------------------------------------------------------------------- */

static bool make_secrets(struct made *m)
{
	static const struct secret first[] = {
		{.name = "nodes", .rights = RIGHT_NODE},
		{.name = "admin", .rights = RIGHT_READ | RIGHT_WRITE | RIGHT_ADMIN},
		{.name = "client", .rights = RIGHT_READ | RIGHT_WRITE},
	};
	const unsigned int n = sizeof(first) / sizeof(first[0]);

	m->secrets.list = calloc(n, sizeof(*first));
	if (!m->secrets.list) {
		complain("out of memory");
		return false;
	}
	memcpy(m->secrets.list, first, sizeof(first));
	m->secrets.count = n;
	for (unsigned int i = 0; i < n; i++)
		if (secret_make(m->secrets.list[i].text) != 0) {
			complain("cannot get random numbers for the secrets");
			return false;
		}
	return true;
}

static bool copy_secrets(struct made *m, const char *file)
{
	int rc = secrets_load(AT_FDCWD, file, &m->secrets);

	if (rc == 0 && secrets_of_nodes(&m->secrets))
		return true;
	complain("%s: %s", file,
		 rc == -EBADMSG ? "it is damaged"
		 : rc == 0	? "the secret of the nodes is not in it; copy another node's file"
				: strerror(-rc));
	return false;
}

static bool set_secrets(struct made *m)
{
	char old[PATH_MAX];

	if (m->u->secrets)
		return copy_secrets(m, m->u->secrets);
	if (m->like)
		return copy_secrets(m, m->like->secrets_file);
	snprintf(old, sizeof(old), "%s/" CONF_SECRETS, m->dir);
	if (access(old, F_OK) == 0) /* users keep their secrets when a pool is created again */
		return copy_secrets(m, old);
	return make_secrets(m);
}

static bool write_secrets(struct made *m)
{
	CLEANUP_CLOSE int dir = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = dir < 0 ? -errno : secrets_save(dir, CONF_SECRETS, &m->secrets);

	if (rc != 0)
		complain("%s/" CONF_SECRETS ": %s", m->dir, strerror(-rc));
	return rc == 0;
}

/* ---- the roll ------------------------------------------------------------------------------- */

/* Keeps the roll in a file beside the nodes' directories, where the next node of this machine finds it. */
static void default_roll(struct made *m)
{
	char dir[PATH_MAX];

	if (m->u->dir) {
		snprintf(m->roll, sizeof(m->roll), "file:%s/roll", m->dir);
		return;
	}
	strcpy(dir, m->dir);
	snprintf(m->roll, sizeof(m->roll), "file:%s/roll", dirname(dir));
}

static bool remove_roll(struct made *m)
{
	if (!m->create || !m->u->force)
		return true;
	if (strncmp(m->roll, "file:", 5) != 0) {
		fprintf(stderr, "stag: if the pool's key is still in etcd, remove it there\n");
		return true;
	}
	if (unlink(m->roll + 5) == 0 || errno == ENOENT)
		return true;
	complain("%s: %s", m->roll + 5, strerror(errno));
	return false;
}

static bool set_roll(struct made *m)
{
	const char *roll = m->u->roll ? m->u->roll : m->like ? m->like->roll : NULL;

	if (!roll)
		default_roll(m);
	else if (strncmp(roll, "file:", 5) == 0 && roll[5] != '/') {
		complain("--roll: file: needs an absolute path, not '%s'", roll + 5);
		return false;
	} else if (snprintf(m->roll, sizeof(m->roll), "%s", roll) >= (int)sizeof(m->roll)) {
		complain("--roll: %s", strerror(ENAMETOOLONG));
		return false;
	}
	/* a roll in a file is for nodes of one machine */
	if (!m->address && strncmp(m->roll, "file:", 5) == 0)
		m->address = "127.0.0.1";
	return remove_roll(m);
}

/* ---- the INI file ------------------------------------------------------------------------- */

static void put_text(FILE *f, const char *name, const char *value, const char *why)
{
	fprintf(f, "; %s\n%s%s =%s%s\n\n", why, value ? "" : "; ", name, value ? " " : "",
		value ? value : "");
}

/* Writes the parts of "KEY?ca=FILE&user=NAME" on lines of their own: the INI parser limits the length of a line. */
static void put_roll(FILE *f, const char *roll)
{
	CLEANUP_FREE char *text = strdup(roll);
	char *save, *option;

	if (!text)
		return;
	option = strtok_r(text, "?", &save);
	fputs("; where the roll is kept: file:PATH on one machine, etcd://HOST:PORT/KEY on "
	      "several\n",
	      f);
	fprintf(f, "roll = %s\n", option);
	while ((option = strtok_r(NULL, "&", &save))) {
		size_t len = strcspn(option, "=");

		fprintf(f, "roll-%.*s = %s%s\n", (int)len, option,
			option + len + (option[len] == '='),
			strncmp(option, "timeout=", 8) == 0 ? "ms" : "");
	}
	fputs("\n", f);
}

static void put_times(FILE *f, const struct conf_pool *like)
{
	fprintf(f,
		"; heartbeats; the same on all nodes. A primary without an acknowledged heartbeat "
		"for\n"
		"; lease refuses requests; a standby without one for promote promotes itself.\n");
	if (!like || !conf_is_set(&like->at, "beat"))
		fputs("; beat = 2ms\n", f);
	else
		fprintf(f, "beat = %lluus\n", (unsigned long long)like->beat);
	if (!like || !conf_is_set(&like->at, "lease"))
		fputs("; lease = 20ms\n", f);
	else
		fprintf(f, "lease = %llums\n", (unsigned long long)like->lease / 1000);
	if (!like || !conf_is_set(&like->at, "promote"))
		fputs("; promote = 24ms\n", f);
	else
		fprintf(f, "promote = %llums\n", (unsigned long long)like->promote / 1000);
}

static void put_creation(FILE *f, const struct made *m)
{
	const struct pool_use *u = m->u;

	if (!m->create)
		return;
	fputs("; this node creates the pool, once; these settings apply then only\n"
	      "create = yes\n",
	      f);
	fprintf(f, "size = %s\n", u->size);
	fprintf(f, "%s\n", u->overwrite ? "overwrite = yes" : "; overwrite = no");
	if (u->memory)
		fprintf(f, "memory = %s\n", u->memory);
	if (u->clients)
		fprintf(f, "clients = %s\n", u->clients);
	fputs("\n", f);
}

static void put_ini(FILE *f, const struct made *m)
{
	char port[16];

	snprintf(port, sizeof(port), "%u", m->port);
	fprintf(f,
		"; A node of the pool '%s', for stagd(8). All settings: stag.ini(5).\n\n"
		"[pool %s]\n",
		m->u->pool, m->u->pool);
	put_text(f, "node", m->node, "name of this node, unique in the pool");
	put_text(f, "state", m->dir, "directory of what it must know after a restart");
	put_roll(f, m->roll);
	put_text(f, "address", m->address, "address to listen on; without it, all");
	put_text(f, "port", port, "port to listen on");
	put_text(f, "advertise", m->u->advertise,
		 "address under which others reach it, if it differs: HOST[:PORT]");
	put_creation(f, m);
	put_times(f, m->like);
}

static bool write_ini(const struct made *m)
{
	CLEANUP_CLOSE int dir = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_FREE char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	int rc = f ? 0 : -ENOMEM;

	if (f) {
		put_ini(f, m);
		rc = fclose(f) == 0 ? file_replace(dir, "stag.ini", text, len, 0600) : -ENOMEM;
	}
	if (rc != 0)
		complain("%s: %s", m->ini, strerror(-rc));
	return rc == 0;
}

/* Reads the file as stagd will, to find faults in the options now. */
static bool check_ini(const struct made *m)
{
	struct conf conf;
	bool good = conf_read(&conf, m->ini, stderr) == 0;

	conf_free(&conf);
	if (!good)
		unlink(m->ini);
	return good;
}

/* ---- the next steps ----------------------------------------------------------------------------- */

static void print_made_json(const struct made *m)
{
	store_dump(json_pack("{s:s, s:s, s:s, s:s, s:s, s:i}", "pool", m->u->pool, "node", m->node,
			     "directory", m->dir, "config", m->ini, "roll", m->roll, "port",
			     (int)m->port));
}

static void print_made(const struct made *m)
{
	bool file = strncmp(m->roll, "file:", 5) == 0;

	printf("%s node %s of pool %s in %s\n", m->create ? "made" : "added", m->node, m->u->pool,
	       m->dir);
	printf("  start it      stagd --config %s\n", m->ini);
	if (m->create) {
		printf("  add another   stag pool join %s --node NAME%s\n", m->u->pool,
		       m->u->dir ? " --dir DIRECTORY" : "");
		if (file)
			printf("                on this machine; for nodes on several, --roll "
			       "etcd://...\n");
		else
			printf("                on another machine: with --roll, and with "
			       "--secrets, a "
			       "copy of %s/" CONF_SECRETS "\n",
			       m->dir);
	}
	printf("  show it       stag pool status %s\n", m->u->pool);
}

/* Executes stagd in place of this process. */
static int exec_stagd(const struct made *m)
{
	char exe[PATH_MAX], path[PATH_MAX + 32];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	const char *dir;

	exe[n < 0 ? 0 : n] = '\0';
	dir = dirname(exe);
	snprintf(path, sizeof(path), "%s/stagd", dir);
	if (access(path, X_OK) != 0) /* in the build tree */
		snprintf(path, sizeof(path), "%s/../stagd/stagd", dir);
	fflush(stdout);
	execl(path, "stagd", "--config", m->ini, (char *)NULL);
	complain("%s: %s", path, strerror(errno));
	return EXIT_FAILED;
}

/* Waits for the first node to create the pool: until then, stagd would refuse to serve another one. */
static bool await_pool(const struct made *m)
{
	struct stag_pool_roll roll;
	struct pool_wait wait;
	int rc;

	pool_wait_begin(&wait, m->u);
	pool_wait_for(&wait, "the first node of pool %s to be served", m->u->pool);
	do
		rc = stag_pool_query_roll(m->roll, &roll, sizeof(roll));
	while (rc == ENOENT && pool_wait_more(&wait));
	pool_wait_end(&wait);
	if (rc != ENOENT)
		return true; /* of other faults stagd has more to say */
	complain_for(
		ETIMEDOUT, m->u->pool,
		"pool %s does not exist yet: start its first node, then this one: stagd --config "
		"%s",
		m->u->pool, m->ini);
	return false;
}

/* ---- create and join ------------------------------------------------------------------------- */

static int make_node(struct made *m)
{
	bool good = set_names(m) && has_new_name(m) && is_new_pool(m) && make_place(m) &&
		    set_secrets(m) && set_port(m) && set_roll(m) && write_secrets(m) &&
		    write_ini(m) && check_ini(m);

	secrets_free(&m->secrets);
	if (!good)
		return EXIT_FAILED;
	registry_add(m->ini); /* without it, the node can still be named by its directory */
	if (m->u->serve && !m->create && !await_pool(m))
		return EXIT_FAILED;
	if (m->u->serve)
		return exec_stagd(m);
	if (m->u->json)
		print_made_json(m);
	else
		print_made(m);
	return EXIT_OK;
}

int pool_use_create(const struct pool_use *u)
{
	struct made m = {.u = u, .create = true, .address = u->address};

	if (u->size)
		return make_node(&m);
	complain("the pool needs a size of memory: --size 512M");
	return EXIT_USAGE;
}

/* Finds the INI file of the node whose settings are copied. */
static enum pool_found find_like(const struct pool_use *u, char *path, size_t size)
{
	struct stat st;
	bool dir = u->from && stat(u->from, &st) == 0 && S_ISDIR(st.st_mode);
	const struct registry_node *n;
	enum pool_found found = POOL_FOUND;
	struct registry r;

	if (u->from) {
		snprintf(path, size, "%s%s", u->from, dir ? "/stag.ini" : "");
		return access(path, F_OK) == 0 || !u->serve ? POOL_FOUND : POOL_NOT_YET;
	}
	registry_read(&r);
	n = pool_use_registered(&r, u->pool, &found);
	if (n)
		snprintf(path, size, "%s", n->ini);
	registry_free(&r);
	return found;
}

/* With --serve the first node may be made at the same time, by another command: waits for it. */
static enum pool_found await_like(const struct pool_use *u, char *path, size_t size)
{
	enum pool_found found = find_like(u, path, size);
	struct pool_wait wait;

	if (found != POOL_NOT_YET || !u->serve)
		return found;
	pool_wait_begin(&wait, u);
	pool_wait_for(&wait, "the first node of pool %s to be made on this machine", u->pool);
	while (found == POOL_NOT_YET && pool_wait_more(&wait))
		found = find_like(u, path, size);
	pool_wait_end(&wait);
	return found;
}

static int join_like(struct made *m, const char *path)
{
	struct conf conf;
	int rc = EXIT_FAILED;

	if (conf_read(&conf, path, stderr) == 0) {
		m->like = conf_find(&conf, &conf_pool_kind, m->u->pool);
		if (!m->like)
			complain("%s has no section [pool %s]", path, m->u->pool);
		else
			rc = make_node(m);
	}
	conf_free(&conf);
	return rc;
}

int pool_use_join(const struct pool_use *u)
{
	struct made m = {.u = u, .address = u->address};
	enum pool_found found;
	char path[PATH_MAX];

	if (u->roll && u->secrets)
		return make_node(&m);
	found = await_like(u, path, sizeof(path));
	if (found == POOL_FOUND)
		return join_like(&m, path);
	if (found == POOL_NOT_YET)
		complain("no node of a pool '%s' was made on this machine; name one with --from, "
			 "or say where the roll is: --roll etcd://..., with --secrets, a copy of "
			 "another node's secrets",
			 u->pool);
	return EXIT_USAGE;
}
