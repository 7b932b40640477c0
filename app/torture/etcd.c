// SPDX-License-Identifier: BSD-2-Clause
/*
 * etcd.c - who is primary: a file, or members of etcd that are started, killed and started again here.
 */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "stag.h"

#define CLIENTS_PORT 2379
#define PEERS_PORT   2380
#define START_S	     30

/* ---- etcd ------------------------------------------------------------------------------ */

/* On one host all members have ports of their own: the second of a pair is for peers. */
static void url(const struct torture *t, unsigned int e, bool of_peers, char *text, size_t size)
{
	char address[32];
	unsigned int host = engine_host(t, e);

	net_address(&t->net, host, 0, address, sizeof(address));
	if (t->net.real)
		snprintf(text, size, "http://%s:%d", address, of_peers ? PEERS_PORT : CLIENTS_PORT);
	else
		snprintf(text, size, "http://%s:%d", address,
			 net_port(&t->net, host, 0) + (of_peers ? 1 : 0));
}

static void list_members(const struct torture *t, char *text, size_t size)
{
	size_t used = 0;

	for (unsigned int e = 0; e < t->o.engines; e++) {
		char peers[64];

		url(t, e, true, peers, sizeof(peers));
		used += (size_t)snprintf(text + used, size - used, "%sm%u=%s", e ? "," : "", e,
					 peers);
	}
}

static void execute(const struct torture *t, unsigned int e)
{
	char name[8], data[260], clients[64], peers[64], members[300];

	snprintf(name, sizeof(name), "m%u", e);
	snprintf(data, sizeof(data), "%s/etcd%u", t->directory, e);
	url(t, e, false, clients, sizeof(clients));
	url(t, e, true, peers, sizeof(peers));
	list_members(t, members, sizeof(members));
	log_to(t, "etcd", e);
	unsetenv("LD_PRELOAD"); /* it needs no adapter */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (net_enter(&t->net, engine_host(t, e)) != 0)
		_exit(127);
	execlp("etcd", "etcd", "--name", name, "--data-dir", data, "--listen-client-urls", clients,
	       "--advertise-client-urls", clients, "--listen-peer-urls", peers,
	       "--initial-advertise-peer-urls", peers, "--initial-cluster", members,
	       "--heartbeat-interval", "50", "--election-timeout", "500", "--logger", "zap", NULL);
	_exit(127);
}

bool engine_start_member(struct torture *t, unsigned int e)
{
	pid_t pid;

	if (t->engines[e])
		return true;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		execute(t, e);
	if (pid < 0)
		return fail(t, "cannot fork: %s", strerror(errno));
	t->engines[e] = pid;
	note(t, false, "start etcd%u", e);
	return true;
}

void engine_kill_member(struct torture *t, unsigned int e)
{
	if (t->engines[e] == 0)
		return;
	kill(t->engines[e], SIGKILL);
	waitpid(t->engines[e], NULL, 0);
	t->engines[e] = 0;
}

static bool etcd_died(const struct torture *t, unsigned int *which)
{
	for (unsigned int e = 0; e < t->o.engines; e++)
		if (t->engines[e] && waitpid(t->engines[e], NULL, WNOHANG) > 0) {
			*which = e;
			return true;
		}
	return false;
}

static bool start_etcd(struct torture *t)
{
	uint64_t until = clock_ns() + START_S * NS_PER_S;
	size_t used = (size_t)snprintf(t->roll, sizeof(t->roll), "etcd://");
	unsigned int dead;
	struct stag_pool_roll roll;

	for (unsigned int e = 0; e < t->o.engines; e++) {
		char text[64];

		url(t, e, false, text, sizeof(text));
		used += (size_t)snprintf(t->roll + used, sizeof(t->roll) - used, "%s%s",
					 e ? "," : "", text + strlen("http://"));
	}
	snprintf(t->roll + used, sizeof(t->roll) - used, "/torture");
	for (unsigned int e = 0; e < t->o.engines; e++)
		if (!engine_start_member(t, e))
			return false;
	while (!engine_read(t, &roll)) {
		if (etcd_died(t, &dead)) {
			t->engines[dead] = 0;
			return fail(t, "etcd%u has ended: is it installed? (%s/etcd%u.log)", dead,
				    t->directory, dead);
		}
		if (clock_ns() > until)
			return fail(t, "etcd does not answer after %d s", START_S);
		if (!pass_time(t, 0.1))
			return false;
	}
	return true;
}

/* ---- either ------------------------------------------------------------------------------ */

bool engine_start(struct torture *t)
{
	t->engine_lock = -1;
	if (t->o.engines)
		return start_etcd(t);
	snprintf(t->roll, sizeof(t->roll), "file:%s/roll", t->directory);
	return true;
}

bool engine_read(struct torture *t, struct stag_pool_roll *roll)
{
	int rc = stag_pool_query_roll(t->roll, roll, sizeof(*roll));

	if (rc == ENOENT)
		*roll = (struct stag_pool_roll){0};
	return rc == 0 || rc == ENOENT;
}

void engine_resume(struct torture *t)
{
	if (t->engine_lock < 0)
		return;
	flock(t->engine_lock, LOCK_UN); /* whoever was forked meanwhile has it open, too */
	close(t->engine_lock);
	t->engine_lock = -1;
}

void engine_stall(struct torture *t)
{
	char path[260];

	if (t->engine_lock >= 0)
		return;
	snprintf(path, sizeof(path), "%s/roll.lock", t->directory);
	t->engine_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	/* Somebody who is stopped may have it. */
	if (t->engine_lock >= 0 && flock(t->engine_lock, LOCK_EX | LOCK_NB) != 0)
		engine_resume(t);
}

void engine_end(struct torture *t)
{
	engine_resume(t);
	for (unsigned int e = 0; e < t->o.engines; e++)
		engine_kill_member(t, e);
}
