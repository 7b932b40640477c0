// SPDX-License-Identifier: BSD-2-Clause
/*
 * place.c - the environment of a run: a network namespace and temporary directories.
 *
 * The namespace has only a loopback device, and a chosen congestion control: the default of some
 * machines paces even loopback, which hides the cost of software. If the machine allows no
 * namespace, its own network is used, and the report says so.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "stag.h"

#define TMPFS 0x01021994

/* ---- network ---- */

static bool put_text(const char *file, const char *text)
{
	CLEANUP_CLOSE int fd = open(file, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* Maps the user to itself, so that child processes get no further privileges. */
static bool map_self(uid_t uid, gid_t gid)
{
	char line[64];
	bool ok;

	put_text("/proc/self/setgroups", "deny");
	snprintf(line, sizeof(line), "%u %u 1", uid, uid);
	ok = put_text("/proc/self/uid_map", line);
	snprintf(line, sizeof(line), "%u %u 1", gid, gid);
	return ok && put_text("/proc/self/gid_map", line);
}

static bool loopback_up(void)
{
	CLEANUP_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};

	return fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
}

/* Returns false if there is no such congestion control. */
static bool enter_network(struct suite *s)
{
	uid_t uid = getuid();
	gid_t gid = getgid();

	if (strcmp(s->o.congestion, "inherit") == 0)
		return true;
	if (unshare(CLONE_NEWNET) != 0 &&
	    (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !map_self(uid, gid)))
		return true;
	if (!loopback_up()) {
		complain("cannot bring up the loopback of a private network: %s; see --congestion "
			 "inherit",
			 strerror(errno));
		return false;
	}
	s->private_network = true;
	if (put_text("/proc/sys/net/ipv4/tcp_congestion_control", s->o.congestion))
		return true;
	complain("no congestion control '%s' here; see "
		 "/proc/sys/net/ipv4/tcp_available_congestion_control",
		 s->o.congestion);
	return false;
}

uint16_t place_port(void)
{
	CLEANUP_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(sa);

	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &length) != 0)
		return 0;
	return ntohs(sa.sin_port);
}

/* ---- directories ---- */

static bool make_directory(const char *in, char *path, size_t size)
{
	snprintf(path, size, "%s/stag-bench-%d-XXXXXX", in, (int)getpid());
	if (mkdtemp(path))
		return true;
	*path = '\0';
	return false;
}

static bool on_tmpfs(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_type == TMPFS;
}

static const char *temporary(void)
{
	const char *dir = getenv("TMPDIR");

	return dir && *dir ? dir : "/tmp";
}

/* Makes a directory on a disk, if there is one. */
static bool make_disk(struct suite *s)
{
	const char *in = s->o.directory ? s->o.directory : temporary();

	if (!s->o.directory && on_tmpfs(in))
		in = "/var/tmp";
	if (make_directory(in, s->disk, sizeof(s->disk)) || !s->o.directory)
		return true;
	complain("cannot make a directory in %s: %s", in, strerror(errno));
	return false;
}

int place_make(struct suite *s)
{
	if (!make_directory("/dev/shm", s->shm, sizeof(s->shm)) &&
	    !make_directory(temporary(), s->shm, sizeof(s->shm))) {
		complain("cannot make a directory in /dev/shm or %s: %s", temporary(),
			 strerror(errno));
		return -errno;
	}
	snprintf(s->log, sizeof(s->log), "%s/log", s->shm);
	if (!make_disk(s) || !enter_network(s))
		return -ENOENT;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st, (void)kind, (void)at;
	return remove(path);
}

void place_remove(struct suite *s)
{
	if (*s->shm)
		nftw(s->shm, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (*s->disk)
		nftw(s->disk, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
