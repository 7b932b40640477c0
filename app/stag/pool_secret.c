// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_secret.c - stag pool secret: shows and rotates the secret of a pool's nodes.
 *
 * A rotation has two steps. First every node accepts the new secret beside the old one: the files of secrets on this machine
 * get a new one with also=OLD, and the daemons read them again. Then, when every node of the pool says that it accepts the new
 * one, the old one goes. Nodes meet if they have one secret in common, so a rotation may be interrupted anywhere, nodes may
 * fail and return in it, and running the command again goes on where the files are.
 */
#include "pool_use.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "conf.h"
#include "control.h"
#include "pool_primary.h"
#include "stag.h"
#include "store.h"

#define RETRY_MS 10000
#define AWAIT_NS (5 * NS_PER_S) /* for nodes to say what they accept */
#define SLOW_NS                                                                                    \
	(30 *                                                                                      \
	 NS_PER_S) /* for daemons that do not answer, and nodes that were told to read their files */
#define AGAIN_NS  (20 * NS_PER_MS)
#define MOST_HERE 64

/* A node that was made on this machine. */
struct here {
	char ini[PATH_MAX];
	struct conf conf;
	const struct conf_pool *pool;
};

struct rotation {
	const struct pool_use *u;
	struct here *here;
	unsigned int num_here;
	struct stag_pool *pool;
	struct stag_pool_info info;
	char old[STAG_POOL_SECRET_MAX + 1], new[STAG_POOL_SECRET_MAX + 1];
	bool begun;    /* both secrets are accepted, somewhere */
	bool unserved; /* the daemon of a node on this machine was not found */
	int lock;
};

/* ---- the nodes on this machine ------------------------------------------------------------- */

static const struct secret *secret_at(const struct here *h)
{
	return secrets_of_nodes(&h->pool->secrets);
}

static bool read_here(struct here *h, const char *ini, const char *name)
{
	if (!realpath(ini, h->ini)) {
		complain("%s: %s", ini, strerror(errno));
		return false;
	}
	if (conf_read(&h->conf, h->ini, stderr) != 0)
		return false;
	h->pool = name ? conf_find(&h->conf, &conf_pool_kind, name)
		       : conf_next(&h->conf, &conf_pool_kind, NULL);
	if (!h->pool)
		complain("%s has no section [pool %s]", ini, name ? name : "");
	return h->pool != NULL;
}

static bool add_here(struct rotation *r, const char *ini, const char *name)
{
	if (r->num_here == MOST_HERE) {
		complain("more than %d nodes of the pool are on this machine", MOST_HERE);
		return false;
	}
	return read_here(&r->here[r->num_here++], ini, name);
}

static void forget_here(struct rotation *r)
{
	while (r->num_here > 0)
		conf_free(&r->here[--r->num_here].conf);
}

static bool add_path(struct rotation *r, const char *pool)
{
	char path[PATH_MAX];
	struct stat st;
	bool dir = stat(pool, &st) == 0 && S_ISDIR(st.st_mode);

	if (snprintf(path, sizeof(path), "%s%s", pool, dir ? "/stag.ini" : "") < PATH_MAX)
		return add_here(r, path, NULL);
	complain("%s: %s", pool, strerror(ENAMETOOLONG));
	return false;
}

/* Adds the nodes of the pool of this name, or of the only one (NULL). */
static bool add_registered(struct rotation *r, const struct registry *all, const char *pool)
{
	const struct registry_node *first = registry_next_pool(all, NULL);
	enum pool_found found = POOL_FOUND;
	bool good = true;

	if (pool)
		first = pool_use_registered(all, pool, &found);
	else if (first && registry_next_pool(all, first))
		first = NULL;
	for (const struct registry_node *n = first;
	     first && good && n < all->list + all->count && registry_is_same_pool(n, first); n++)
		good = add_here(r, n->ini, n->pool);
	if (!first && found != POOL_WRONG)
		complain_for(ENOENT, pool,
			     "%s%s%s; the secret of the nodes is changed on a machine that has a "
			     "node of the pool",
			     pool ? "no node of a pool '" : "which pool? Name it, or set STAG_POOL",
			     pool ? pool : "", pool ? "' is on this machine" : "");
	return first && good;
}

static bool find_here(struct rotation *r)
{
	const char *pool = r->u->pool ? r->u->pool : getenv("STAG_POOL");
	struct registry all;
	bool good;

	forget_here(r);
	memset(r->here, 0, MOST_HERE * sizeof(*r->here));
	if (pool && (strchr(pool, '/') || strcmp(pool, ".") == 0))
		return add_path(r, pool);
	registry_read(&all);
	good = add_registered(r, &all, pool && *pool ? pool : NULL);
	registry_free(&all);
	return good;
}

/* Keeps other rotations out: two at once would make two new secrets. */
static bool lock_here(struct rotation *r)
{
	r->lock = open(r->here[0].ini, O_RDONLY | O_CLOEXEC);
	if (r->lock >= 0 && flock(r->lock, LOCK_EX | LOCK_NB) == 0)
		return true;
	complain("%s: %s", r->here[0].ini,
		 errno == EWOULDBLOCK ? "another 'stag pool secret rotate' is at work"
				      : strerror(errno));
	return false;
}

static bool is_member_here(const struct rotation *r, const char *node)
{
	for (unsigned int i = 0; i < r->num_here; i++)
		if (strcmp(r->here[i].pool->node, node) == 0)
			return true;
	return false;
}

/* ---- daemons ------------------------------------------------------------------------------------ */

static bool serves(json_t *daemon, const struct here *h)
{
	json_t *p;
	size_t i;

	json_array_foreach (json_object_get(daemon, "pools"), i, p) {
		const char *file =
			json_string_value(json_object_get(json_object_get(p, "origin"), "file"));
		const char *name = json_string_value(json_object_get(p, "name"));

		if (file && name && strcmp(file, h->pool->at.path) == 0 &&
		    strcmp(name, h->pool->at.name) == 0)
			return true;
	}
	return false;
}

/* Returns the process that serves the node, 0: none; -EAGAIN: one that does not answer may be it, *silent. */
static int look_for_daemon(const struct here *h, int *silent)
{
	json_t *all = control_query_each(STAGD_KIND, 0, "status"), *d;
	int pid = 0;
	size_t i;

	json_array_foreach (all, i, d) {
		int its = (int)json_integer_value(json_object_get(d, "pid"));

		if (serves(d, h)) {
			pid = its;
			break;
		}
		if (json_is_false(json_object_get(d, "answers"))) {
			*silent = its;
			pid = -EAGAIN;
		}
	}
	json_decref(all);
	return pid;
}

/* A busy machine, or another command, may keep a daemon from answering for a while: then its node is not given up. */
static int find_daemon(const struct here *h, int *silent)
{
	uint64_t until = clock_ns() + SLOW_NS;
	int pid;

	while ((pid = look_for_daemon(h, silent)) == -EAGAIN && clock_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
	return pid;
}

static bool order_reload(const struct here *h, int pid, char *why, size_t size)
{
	json_t *o = control_order(STAGD_KIND, pid, "reload");
	const char *error = json_string_value(json_object_get(o, "error"));
	bool good = o && !error;

	if (error)
		snprintf(why, size, "stagd does not accept the change: %s", error);
	else if (!o)
		snprintf(why, size, "stagd, process %d, did not answer when it was told to reload",
			 pid);
	json_decref(o);
	return good;
}

/* A node whose daemon is not found reads the file when it starts. Returns false, and why, if the daemon has refused it. */
static bool reload(struct rotation *r, const struct here *h, char *why, size_t size)
{
	int silent = 0, pid = find_daemon(h, &silent);

	if (pid > 0)
		return order_reload(h, pid, why, size);
	if (pid == 0) {
		r->unserved = true;
		return true;
	}
	snprintf(why, size,
		 "process %d, a stagd, does not answer, and may be the one that serves the node",
		 silent);
	return false;
}

static bool write_secret(const struct here *h, const char *secret, const char *also)
{
	int rc = secrets_replace_node(AT_FDCWD, h->pool->secrets_file, secret, also);

	if (rc != 0)
		complain("%s: %s", h->pool->secrets_file,
			 rc == -EPERM ? "it is another user's file: run this command as that user"
				      : strerror(-rc));
	return rc == 0;
}

/* ---- the nodes of the pool -------------------------------------------------------------------------- */

static bool query(struct rotation *r)
{
	int rc;

	memset(&r->info, 0, sizeof(r->info));
	rc = stag_pool_query(r->pool, &r->info, sizeof(r->info));
	if (rc != 0)
		complain_for(rc, r->info.name, "%s", stag_pool_error());
	return rc == 0;
}

static bool has_new(const struct rotation *r, const struct stag_pool_member *m)
{
	const struct stag_pool_member *p = pool_primary(&r->info);
	uint32_t mark = stag_pool_secret_mark(r->info.uuid, r->new);

	if (!p || !(m->secret & STAG_POOL_SECRET_KNOWN))
		return false;
	if ((p->secret & (uint32_t)STAG_POOL_SECRET_MARK) == mark)
		return m->secret & STAG_POOL_SECRET_FIRST;
	return (m->secret & (uint32_t)STAG_POOL_SECRET_MARK) == mark;
}

static bool is_known(const struct rotation *r, const struct stag_pool_member *m)
{
	return m->secret & STAG_POOL_SECRET_KNOWN;
}

typedef bool (*judge_fn)(const struct rotation *r, const struct stag_pool_member *m);

/* Returns how many nodes do not fulfil it. here: only those on this machine count. */
static unsigned int count_not(const struct rotation *r, judge_fn good, bool here)
{
	unsigned int n = pool_primary(&r->info) ? 0 : 1;

	for (uint32_t i = 0; i < r->info.num_members; i++)
		n += !good(r, &r->info.members[i]) &&
		     (!here || is_member_here(r, r->info.members[i].name));
	return n;
}

/* Waits until all nodes, or those on this machine, fulfil it, or for so long. Returns false without an answer. */
static bool await(struct rotation *r, judge_fn good, bool here, uint64_t patience)
{
	uint64_t until = clock_ns() + patience;

	while (query(r)) {
		if (count_not(r, good, here) == 0 || clock_ns() > until)
			return true;
		nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
	}
	return false;
}

/* Returns how many nodes lack it, after it has told about each. */
static unsigned int tell_lacking(const struct rotation *r, judge_fn good)
{
	for (uint32_t i = 0; i < r->info.num_members; i++) {
		const struct stag_pool_member *m = &r->info.members[i];

		if (good(r, m))
			continue;
		if (m->role == STAG_POOL_ROLE_UNKNOWN)
			complain("node %s at %s does not answer: start it, or remove it with 'stag "
				 "pool forget %s %s'",
				 m->name, m->address, r->info.name, m->name);
		else if (!(m->secret & STAG_POOL_SECRET_KNOWN))
			complain("node %s at %s does not say which secrets it accepts: upgrade it "
				 "first",
				 m->name, m->address);
		else if (is_member_here(r, m->name))
			complain("node %s has not read its file of secrets: reload its stagd "
				 "(SIGHUP)",
				 m->name);
		else
			complain("node %s at %s does not have the new secret: copy %s to its "
				 "machine, as the file of secrets of node %s, and reload its stagd",
				 m->name, m->address, r->here[0].pool->secrets_file, m->name);
	}
	return count_not(r, good, false);
}

/* ---- what the files say ---------------------------------------------------------------------------- */

/* Continues a rotation that was interrupted. Returns false if the files belong to several. */
static bool find_begun(struct rotation *r)
{
	for (unsigned int i = 0; i < r->num_here; i++) {
		const struct secret *s = secret_at(&r->here[i]);

		if (!s->also[0])
			continue;
		if (r->begun && strcmp(r->new, s->text) != 0) {
			complain("%s and another node's file have two new secrets: copy one of the "
				 "files to all nodes, and reload",
				 r->here[i].pool->secrets_file);
			return false;
		}
		r->begun = true;
		strcpy(r->new, s->text);
		strcpy(r->old, s->also);
	}
	return true;
}

static bool check_files(const struct rotation *r)
{
	for (unsigned int i = 0; i < r->num_here; i++) {
		const struct secret *s = secret_at(&r->here[i]);

		if (strcmp(s->text, r->old) == 0 || strcmp(s->text, r->new) == 0)
			continue;
		complain("%s has another secret of the nodes than the other files: copy one of "
			 "them",
			 r->here[i].pool->secrets_file);
		return false;
	}
	return true;
}

/* Begins a rotation, if the pool uses the secret of the files, and no other rotation is at work. */
static bool begin(struct rotation *r)
{
	const struct stag_pool_member *p = pool_primary(&r->info);

	strcpy(r->old, secret_at(&r->here[0])->text);
	if (!p || (p->secret & (uint32_t)STAG_POOL_SECRET_MARK) !=
			  stag_pool_secret_mark(r->info.uuid, r->old)) {
		complain("the primary uses another secret of the nodes than %s: copy the file of "
			 "node %s, and reload",
			 r->here[0].pool->secrets_file, p ? p->name : "that is primary");
		return false;
	}
	for (uint32_t i = 0; i < r->info.num_members; i++)
		if (r->info.members[i].secret & STAG_POOL_SECRET_TWO) {
			complain("node %s at %s still accepts two secrets, of another rotation: "
				 "run 'stag pool secret rotate' on its machine first",
				 r->info.members[i].name, r->info.members[i].address);
			return false;
		}
	if (secret_make(r->new) == 0)
		return true;
	complain("cannot get random numbers for the secret");
	return false;
}

/* ---- the two steps ------------------------------------------------------------------------------------ */

static bool accept_both(struct rotation *r)
{
	char why[512];

	for (unsigned int i = 0; i < r->num_here; i++) {
		const struct here *h = &r->here[i];

		if (strcmp(secret_at(h)->text, r->new) != 0 && !write_secret(h, r->new, r->old))
			return false;
		r->begun = true;
		if (reload(r, h, why, sizeof(why)))
			continue;
		complain("node %s: %s", h->pool->node, why);
		return false;
	}
	return true;
}

/*
 * Drops the old secret at one node. The daemon refuses that while a node is not connected, which may be for a moment. Then
 * the file says again what the daemon does, and the daemon is asked again for a while.
 */
static bool drop_old_at(struct rotation *r, const struct here *h)
{
	uint64_t until = clock_ns() + SLOW_NS;
	char why[512];

	for (;;) {
		if (!write_secret(h, r->new, ""))
			return false;
		if (reload(r, h, why, sizeof(why)))
			return true;
		if (!write_secret(h, r->new, r->old))
			return false;
		if (clock_ns() > until || !await(r, has_new, false, AWAIT_NS))
			break;
		nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
	}
	complain("node %s: %s", h->pool->node, why);
	return false;
}

static bool drop_old(struct rotation *r)
{
	for (unsigned int i = 0; i < r->num_here; i++)
		if (secret_at(&r->here[i])->also[0] && !drop_old_at(r, &r->here[i]))
			return false;
	return true;
}

static void print_done(const struct rotation *r)
{
	unsigned int with_two = 0;

	for (uint32_t i = 0; i < r->info.num_members; i++)
		with_two += !is_member_here(r, r->info.members[i].name) &&
			    r->info.members[i].secret & STAG_POOL_SECRET_TWO;
	if (r->u->json) {
		store_dump(json_pack("{s:s, s:b, s:i}", "pool", r->info.name, "rotated", 1,
				     "still_accept_two", (int)with_two));
		return;
	}
	printf("the secret of the nodes is rotated: the nodes on this machine accept only the new "
	       "one\n");
	if (with_two)
		printf("%u nodes on other machines still accept the old one, too: run this command "
		       "there\n",
		       with_two);
}

/* Tells what holds after a failure. */
static int stopped(const struct rotation *r)
{
	if (r->begun)
		complain("the rotation is not complete: the old secret stays valid beside the new "
			 "one; run this command again");
	else
		complain("the secret of the nodes was not changed");
	return EXIT_FAILED;
}

static int rotate(struct rotation *r)
{
	if (!find_begun(r) || !await(r, is_known, false, AWAIT_NS))
		return stopped(r);
	if (tell_lacking(r, is_known))
		return stopped(r);
	if (!r->begun && !begin(r))
		return stopped(r);
	if (!check_files(r) || !accept_both(r) ||
	    !await(r, has_new, true, r->unserved ? AWAIT_NS : SLOW_NS))
		return stopped(r);
	if (tell_lacking(r, has_new))
		return stopped(r);
	if (!find_here(r) || !drop_old(r) || !query(r)) /* as the files are now */
		return stopped(r);
	print_done(r);
	return EXIT_OK;
}

/* ---- the command ---------------------------------------------------------------------------------------- */

static const char *secret_word(uint32_t secret)
{
	if (!(secret & STAG_POOL_SECRET_KNOWN))
		return "not known";
	if (!(secret & STAG_POOL_SECRET_TWO))
		return secret & STAG_POOL_SECRET_FIRST ? "one" : "one, the old one";
	return secret & STAG_POOL_SECRET_FIRST ? "two, while they are rotated"
					       : "two, of another rotation";
}

static int show(struct rotation *r)
{
	json_t *list = json_array();

	if (!query(r))
		return EXIT_FAILED;
	if (!r->u->json)
		printf("%-20s %-24s %s\n", "NODE", "ADDRESS", "ACCEPTS SECRETS");
	for (uint32_t i = 0; i < r->info.num_members; i++) {
		const struct stag_pool_member *m = &r->info.members[i];
		bool known = m->secret & STAG_POOL_SECRET_KNOWN;

		if (!r->u->json)
			printf("%-20s %-24s %s\n", m->name, m->address, secret_word(m->secret));
		json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:o, s:o}", "name", m->name, "address", m->address,
				  "secrets",
				  known ? json_integer(m->secret & STAG_POOL_SECRET_TWO ? 2 : 1)
					: json_null(),
				  "accepts_primarys",
				  known ? json_boolean(m->secret & STAG_POOL_SECRET_FIRST)
					: json_null()));
	}
	if (r->u->json)
		store_dump(list);
	else
		json_decref(list);
	return EXIT_OK;
}

static int with_pool(struct rotation *r, int (*run)(struct rotation *r))
{
	r->pool = pool_use_open(r->u, RETRY_MS);
	if (!r->pool)
		return EXIT_FAILED;
	if (!query(r))
		return EXIT_FAILED;
	if (r->info.rights & STAG_POOL_RIGHT_ADMIN)
		return run(r);
	complain("this needs a user with the right 'admin'; choose one with --user");
	return EXIT_FAILED;
}

static int rotate_here(struct rotation *r)
{
	int rc = EXIT_FAILED;

	r->here = calloc(MOST_HERE, sizeof(*r->here));
	if (!r->here)
		complain("out of memory");
	else if (find_here(r) && lock_here(r) && find_here(r)) /* as the files are under the lock */
		rc = with_pool(r, rotate);
	if (r->here)
		forget_here(r);
	free(r->here);
	if (r->lock >= 0)
		close(r->lock);
	return rc;
}

int pool_use_secret(const struct pool_use *u)
{
	struct pool_use of_pool = *u;
	struct rotation r = {.u = &of_pool, .lock = -1};
	int rc;

	of_pool.pool = u->num_args > 0 ? u->args[0] : NULL;
	of_pool.num_args = 0;
	if (u->pool && strcmp(u->pool, "rotate") == 0) {
		rc = rotate_here(&r);
	} else if (u->pool && strcmp(u->pool, "status") == 0) {
		rc = with_pool(&r, show);
	} else {
		complain("'%s' cannot be done with a secret: rotate or status",
			 u->pool ? u->pool : "");
		return EXIT_USAGE;
	}
	if (r.pool)
		stag_pool_close(r.pool);
	explicit_bzero(r.old, sizeof(r.old));
	explicit_bzero(r.new, sizeof(r.new));
	return rc;
}
