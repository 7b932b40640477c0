// SPDX-License-Identifier: BSD-2-Clause
/*
 * doctor_place.c - checks the directories that stag uses, and the etcd that keeps the roll of this machine's pools.
 */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "conf.h"

#define ETCD	    "etcd://"
#define TIMEOUT_MS  300 /* for a connection to etcd */
#define MAX_ENGINES 8

/* ---- directories ------------------------------------------------------------------------------------ */

static void check_runtime(struct doctor *d)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	struct stat st;
	char usual[32];

	snprintf(usual, sizeof(usual), "/run/user/%u", geteuid());
	if (!dir || !*dir)
		doctor_report(
			d, DOCTOR_NOTE, "XDG_RUNTIME_DIR",
			(struct doctor_words){"servers are queried by sockets in /tmp/stag-UID "
					      "instead: it must be unset for all programs of "
					      "this user, then",
					      "export XDG_RUNTIME_DIR=/run/user/$(id -u)"},
			"not set");
	else if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode) || access(dir, W_OK | X_OK) != 0)
		doctor_report(
			d, DOCTOR_WARNING, "XDG_RUNTIME_DIR",
			(struct doctor_words){"servers cannot be queried: 'stag block sessions' "
					      "and 'stag store show' do not find them",
					      "unset XDG_RUNTIME_DIR"},
			"%s: not a writable directory", dir);
	else if (st.st_uid != geteuid())
		doctor_report(
			d, DOCTOR_WARNING, "XDG_RUNTIME_DIR",
			(struct doctor_words){"servers of that user are not found, and your files "
					      "may block that user's",
					      "export XDG_RUNTIME_DIR=/run/user/$(id -u)"},
			"%s belongs to user %u", dir, st.st_uid);
	else
		doctor_report(d, DOCTOR_GOOD, "XDG_RUNTIME_DIR",
			      (struct doctor_words){"servers are queried by sockets in it", NULL},
			      "%s", dir);
}

/* Can the missing part of a path be created? */
static bool may_make(const char *path)
{
	CLEANUP_FREE char *part = strdup(path);
	char *slash;

	while (part && access(part, F_OK) != 0 && (slash = strrchr(part, '/')) && slash != part)
		*slash = '\0';
	return part && access(part, W_OK | X_OK) == 0;
}

static void check_state(struct doctor *d)
{
	char path[PATH_MAX];

	if (!conf_state_dir(path, sizeof(path)))
		doctor_report(
			d, DOCTOR_WARNING, "state",
			(struct doctor_words){"'stag pool create' does not know where to make a "
					      "node",
					      "export STAG_STATE=/PATH/TO/A/DIRECTORY"},
			"neither STAG_STATE, XDG_STATE_HOME nor HOME is set");
	else if (!may_make(path))
		doctor_report(
			d, DOCTOR_WARNING, "state",
			(struct doctor_words){"'stag pool create' and 'join' cannot make a node "
					      "there",
					      "export STAG_STATE=/PATH/TO/A/DIRECTORY"},
			"%s is not writable", path);
	else
		doctor_report(d, DOCTOR_GOOD, "state",
			      (struct doctor_words){"nodes of pools are made in it", NULL}, "%s",
			      path);
}

/* ---- etcd ------------------------------------------------------------------------------------------------- */

static bool connects(const struct addrinfo *a)
{
	CLEANUP_CLOSE int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t len = sizeof(int);
	int error = 0;

	if (fd < 0)
		return false;
	if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
		return true;
	return errno == EINPROGRESS && poll(&p, 1, TIMEOUT_MS) == 1 &&
	       getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0;
}

static bool answers(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *all;
	bool good;

	if (getaddrinfo(host, port, &hints, &all) != 0)
		return false;
	good = connects(all);
	freeaddrinfo(all);
	return good;
}

/* Checks one endpoint: HOST:PORT, HOST or [ADDRESS]:PORT. */
static void check_endpoint(struct doctor *d, const char *ini, char *where)
{
	char *port = strrchr(where, ':'), next[320], whole[256];

	snprintf(whole, sizeof(whole), "%s", where);
	if (port && !strchr(port, ']'))
		*port++ = '\0';
	else
		port = "2379";
	if (*where == '[' && where[strlen(where) - 1] == ']') {
		where[strlen(where) - 1] = '\0';
		where++;
	}
	snprintf(next, sizeof(next), "etcdctl --endpoints=%s endpoint health", whole);
	if (answers(where, port))
		doctor_report(d, DOCTOR_GOOD, "etcd",
			      (struct doctor_words){"it keeps the roll of a pool", NULL}, "%s (%s)",
			      whole, ini);
	else
		doctor_report(
			d, DOCTOR_WARNING, "etcd",
			(struct doctor_words){"without a majority of its members there is no "
					      "failover, and a primary stops when its lease ends",
					      next},
			"%s does not accept connections (%s)", whole, ini);
}

/* Checks the endpoints of roll = etcd://HOST:PORT,HOST:PORT/KEY. */
static void check_ini(struct doctor *d, const char *path)
{
	FILE *f = fopen(path, "re");
	char line[1024], *at, *rest;

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line + strspn(line, " \t"), "roll", 4) != 0 ||
		    !(at = strstr(line, ETCD)))
			continue;
		at += strlen(ETCD);
		at[strcspn(at, "/ \t\n")] = '\0';
		for (char *e = strtok_r(at, ",", &rest); e; e = strtok_r(NULL, ",", &rest))
			check_endpoint(d, path, e);
	}
	if (f)
		fclose(f);
}

static void check_etcd(struct doctor *d)
{
	char base[PATH_MAX], pattern[PATH_MAX + 16];
	glob_t found;

	check_ini(d, CONF_PATH);
	if (!conf_state_dir(base, sizeof(base)))
		return;
	snprintf(pattern, sizeof(pattern), "%s/*/*/stag.ini", base);
	if (glob(pattern, 0, NULL, &found) != 0)
		return;
	for (size_t i = 0; i < found.gl_pathc && i < MAX_ENGINES; i++)
		check_ini(d, found.gl_pathv[i]);
	globfree(&found);
}

void doctor_places(struct doctor *d)
{
	check_runtime(d);
	check_state(d);
	check_etcd(d);
}
