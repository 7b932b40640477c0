// SPDX-License-Identifier: BSD-2-Clause
/*
 * listener.c - sockets that the API listens on (server.h).
 */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"

#define BACKLOG 4096

/* ---- addresses ------------------------------------------------------------------------ */

static bool is_loopback_address(const struct sockaddr_storage *a)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;

	if (a->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* Splits "HOST[:PORT]". Returns false if the text has another form. */
static bool split_host_port(const char *listen, char *host, size_t size, char *port,
			    size_t port_size)
{
	const char *end = *listen == '[' ? strchr(listen, ']') : listen + strcspn(listen, ":");
	size_t len = end ? (size_t)(end - listen) - (*listen == '[') : 0;

	if (len == 0 || len >= size)
		return false;
	memcpy(host, listen + (*listen == '['), len);
	host[len] = '\0';
	end += *listen == '[';
	if (!*end)
		return snprintf(port, port_size, "%d", API_PORT) > 0;
	if (*end != ':' || !end[1] || strspn(end + 1, "0123456789") != strlen(end + 1) ||
	    strlen(end + 1) > 5 || atoi(end + 1) > UINT16_MAX)
		return false;
	return snprintf(port, port_size, "%s", end + 1) < (int)port_size;
}

int listener_address(const char *listen, struct sockaddr_storage *a, socklen_t *len,
		     bool *is_loopback)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
				 .ai_socktype = SOCK_STREAM};
	struct addrinfo *list;
	char host[256], port[8];

	if (!split_host_port(listen, host, sizeof(host), port, sizeof(port)) ||
	    getaddrinfo(host, port, &hints, &list) != 0)
		return -EINVAL;
	memcpy(a, list->ai_addr, list->ai_addrlen);
	*len = list->ai_addrlen;
	*is_loopback = is_loopback_address(a);
	freeaddrinfo(list);
	return 0;
}

/* ---- TCP ------------------------------------------------------------------------------- */

/* mode: of a Unix socket; set before bind(), so that the socket never has another one (unix(7)). */
static int listen_on_address(const struct sockaddr *a, socklen_t len, mode_t mode, int *fd)
{
	*fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0)
		return -errno;
	if (a->sa_family == AF_UNIX)
		fchmod(*fd, mode);
	else
		setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	if (bind(*fd, a, len) == 0 && listen(*fd, BACKLOG) == 0)
		return 0;
	int error = errno;

	close(*fd);
	*fd = -1;
	return -error;
}

int listener_open_tcp(struct listener *d, const char *listen, char *why, size_t size)
{
	struct sockaddr_storage a;
	socklen_t len;
	bool is_loopback;
	int rc = listener_address(listen, &a, &len, &is_loopback);

	if (rc == 0)
		rc = listen_on_address((struct sockaddr *)&a, len, 0, &d->fd);
	if (rc != 0) {
		snprintf(why, size, "%s: %s", listen,
			 rc == -EINVAL ? "not a literal address of this machine" : strerror(-rc));
		return rc;
	}
	len = sizeof(a);
	if (getsockname(d->fd, (struct sockaddr *)&a, &len) == 0)
		d->port = ntohs(a.ss_family == AF_INET ? ((struct sockaddr_in *)&a)->sin_port
						       : ((struct sockaddr_in6 *)&a)->sin6_port);
	return 0;
}

/* ---- a Unix socket ------------------------------------------------------------------------ */

/* Removes the socket that a killed daemon left behind. */
static void remove_stale_socket(const struct sockaddr_un *a)
{
	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stat st;

	if (fd >= 0 && lstat(a->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
	    connect(fd, (const struct sockaddr *)a, sizeof(*a)) != 0 && errno == ECONNREFUSED)
		unlink(a->sun_path);
}

/* The socket is made for its owner alone; only then is it given to the group. */
static int give_to_group(const char *path, const char *group)
{
	const struct group *gr = getgrnam(group);

	if (!gr)
		return -ENOENT;
	if (lchown(path, (uid_t)-1, gr->gr_gid) != 0 || chmod(path, 0660) != 0)
		return -errno;
	return 0;
}

static int open_unix(struct listener *d, const char *path, const char *group)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct stat st;
	int rc;

	if (strlen(path) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	strcpy(a.sun_path, path);
	remove_stale_socket(&a);
	rc = listen_on_address((struct sockaddr *)&a, sizeof(a), 0600, &d->fd);
	if (rc != 0)
		return rc;
	d->path = strdup(path);
	if (!d->path || lstat(path, &st) != 0)
		return -ENOMEM;
	d->device = st.st_dev;
	d->inode = st.st_ino;
	return group ? give_to_group(path, group) : 0;
}

int listener_open_unix(struct listener *d, const char *path, const char *group, char *why,
		       size_t size)
{
	int rc = open_unix(d, path, group);

	if (rc != 0)
		snprintf(why, size, "%s: %s%s%s", path, strerror(-rc),
			 group ? "; it is for the group " : "", group ? group : "");
	return rc;
}

void listener_close(struct listener *d)
{
	struct stat st;

	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
	if (d->path && lstat(d->path, &st) == 0 && st.st_dev == d->device && st.st_ino == d->inode)
		unlink(d->path); /* unless another process has replaced it */
	free(d->path);
	d->path = NULL;
}
