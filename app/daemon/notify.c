// SPDX-License-Identifier: BSD-2-Clause
/*
 * notify.c - reports the daemon's state to systemd: a datagram to NOTIFY_SOCKET (sd_notify(3)).
 */
#include "notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"

bool notify_is_on(void)
{
	const char *path = getenv("NOTIFY_SOCKET");

	return path && *path;
}

void notify(const char *fmt, ...)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	CLEANUP_CLOSE int fd = -1;
	char text[512];
	va_list ap;
	int len;

	if (!path || !*path || strlen(path) >= sizeof(to.sun_path))
		return;
	strcpy(to.sun_path, path);
	if (*path == '@')
		to.sun_path[0] = '\0'; /* an abstract socket, see unix(7) */
	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (len < 0 || len >= (int)sizeof(text))
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) /* systemd may not listen; errors are ignored */
		(void)!sendto(fd, text, (size_t)len, MSG_NOSIGNAL, (struct sockaddr *)&to,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
}

uint64_t notify_watchdog_ms(void)
{
	const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

	if (!us || (pid && atol(pid) != (long)getpid()))
		return 0;
	return strtoull(us, NULL, 10) / 1000 / 2;
}
