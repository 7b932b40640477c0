// SPDX-License-Identifier: BSD-2-Clause
/* congestion.c - which congestion control TCP uses on the adapter's sockets. */
#include "adapter/congestion.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "adapter/config.h"
#include "adapter/gid.h"
#include "base/log.h"

#define NAME_MAX_LEN 16	    /* TCP_CA_NAME_MAX */
#define UNPACED	     "reno" /* every kernel has it, and every user may choose it */

static char system_name[NAME_MAX_LEN + 1]; /* empty: not known */

static void ask_system(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = NAME_MAX_LEN;

	if (fd < 0)
		return;
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, system_name, &len))
		system_name[0] = '\0';
	close(fd);
}

/* Does the system's choice pace loopback? */
static bool system_paces(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, ask_system);
	return strncmp(system_name, "bbr", 3) == 0;
}

static bool is_of_this_machine(const struct sockaddr *a)
{
	union ibv_gid gid;

	gid_from_addr(a, &gid);
	return gid_is_local(&gid);
}

static bool choose(int fd, const char *name)
{
	return !setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
}

/* Returns false if the user has not chosen. */
static bool choose_users(int fd)
{
	const char *name = config()->congestion;

	if (name && !choose(fd, name))
		log_warn("cannot set congestion control %s: %s", name, strerror(errno));
	return name;
}

void congestion_before_connect(int fd, const struct sockaddr *to)
{
	if (!choose_users(fd) && system_paces() && is_of_this_machine(to))
		choose(fd, UNPACED);
}

void congestion_before_listen(int fd)
{
	if (!choose_users(fd) && system_paces())
		choose(fd, UNPACED);
}

void congestion_after_accept(int fd, const struct sockaddr *peer)
{
	if (!config()->congestion && system_paces() && !is_of_this_machine(peer))
		choose(fd, system_name);
}
