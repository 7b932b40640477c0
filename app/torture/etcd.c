// SPDX-License-Identifier: BSD-2-Clause
/*
 * etcd.c - the roll backend of the run: a file, or members of etcd, which are started, killed and
 * restarted here.
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

/* ---- etcd ---- */

/* If all members are on one host, each has a pair of ports: the second is for its peers. */
static void etcd_url(const struct torture *t, unsigned int e, bool of_peers, char *text,
		     size_t size)
{
	char address[32];
	unsigned int host = etcd_host(t, e);

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

	for (unsigned int e = 0; e < t->o.etcd_members; e++) {
		char peers[64];

		etcd_url(t, e, true, peers, sizeof(peers));
		used += (size_t)snprintf(text + used, size - used, "%sm%u=%s", e ? "," : "", e,
					 peers);
	}
}

static void exec_etcd(const struct torture *t, unsigned int e)
{
	char name[8], data[260], clients[64], peers[64], members[300];

	snprintf(name, sizeof(name), "m%u", e);
	snprintf(data, sizeof(data), "%s/etcd%u", t->directory, e);
	etcd_url(t, e, false, clients, sizeof(clients));
	etcd_url(t, e, true, peers, sizeof(peers));
	list_members(t, members, sizeof(members));
	log_to_file(t, "etcd", e);
	unsetenv("LD_PRELOAD"); /* etcd needs no adapter */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (net_enter(&t->net, etcd_host(t, e)) != 0)
		_exit(127);
	execlp("etcd", "etcd", "--name", name, "--data-dir", data, "--listen-client-urls", clients,
	       "--advertise-client-urls", clients, "--listen-peer-urls", peers,
	       "--initial-advertise-peer-urls", peers, "--initial-cluster", members,
	       "--heartbeat-interval", "50", "--election-timeout", "500", "--logger", "zap", NULL);
	_exit(127);
}

bool etcd_start_member(struct torture *t, unsigned int e)
{
	pid_t pid;

	if (t->etcd_members[e])
		return true;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		exec_etcd(t, e);
	if (pid < 0)
		return fail_phase(t, "cannot fork: %s", strerror(errno));
	t->etcd_members[e] = pid;
	note_fault(t, false, "start etcd%u", e);
	return true;
}

void etcd_kill_member(struct torture *t, unsigned int e)
{
	if (t->etcd_members[e] == 0)
		return;
	kill(t->etcd_members[e], SIGKILL);
	waitpid(t->etcd_members[e], NULL, 0);
	t->etcd_members[e] = 0;
}

static bool etcd_died(const struct torture *t, unsigned int *which)
{
	for (unsigned int e = 0; e < t->o.etcd_members; e++)
		if (t->etcd_members[e] && waitpid(t->etcd_members[e], NULL, WNOHANG) > 0) {
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

	for (unsigned int e = 0; e < t->o.etcd_members; e++) {
		char text[64];

		etcd_url(t, e, false, text, sizeof(text));
		used += (size_t)snprintf(t->roll + used, sizeof(t->roll) - used, "%s%s",
					 e ? "," : "", text + strlen("http://"));
	}
	snprintf(t->roll + used, sizeof(t->roll) - used, "/torture");
	for (unsigned int e = 0; e < t->o.etcd_members; e++)
		if (!etcd_start_member(t, e))
			return false;
	while (!roll_backend_read(t, &roll)) {
		if (etcd_died(t, &dead)) {
			t->etcd_members[dead] = 0;
			return fail_phase(
				t, "etcd%u has ended; is etcd installed? (see %s/etcd%u.log)", dead,
				t->directory, dead);
		}
		if (clock_ns() > until)
			return fail_phase(t, "etcd does not answer after %d s", START_S);
		if (!pass_time(t, 0.1))
			return false;
	}
	return true;
}

/* ---- etcd or a file ---- */

bool roll_backend_start(struct torture *t)
{
	t->roll_lock = -1;
	if (t->o.etcd_members)
		return start_etcd(t);
	snprintf(t->roll, sizeof(t->roll), "file:%s/roll", t->directory);
	return true;
}

bool roll_backend_read(struct torture *t, struct stag_pool_roll *roll)
{
	int rc = stag_pool_query_roll(t->roll, roll, sizeof(*roll));

	if (rc == ENOENT)
		*roll = (struct stag_pool_roll){0};
	return rc == 0 || rc == ENOENT;
}

void roll_backend_unlock(struct torture *t)
{
	if (t->roll_lock < 0)
		return;
	flock(t->roll_lock, LOCK_UN); /* processes forked meanwhile have the file open, too */
	close(t->roll_lock);
	t->roll_lock = -1;
}

void roll_backend_lock(struct torture *t)
{
	char path[260];

	if (t->roll_lock >= 0)
		return;
	snprintf(path, sizeof(path), "%s/roll.lock", t->directory);
	t->roll_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	/* A node that is stopped may hold the lock. */
	if (t->roll_lock >= 0 && flock(t->roll_lock, LOCK_EX | LOCK_NB) != 0)
		roll_backend_unlock(t);
}

void roll_backend_stop(struct torture *t)
{
	roll_backend_unlock(t);
	for (unsigned int e = 0; e < t->o.etcd_members; e++)
		etcd_kill_member(t, e);
}
