// SPDX-License-Identifier: BSD-2-Clause
/*
 * start.c - the command that starts this daemon again, for people whom it no longer answers.
 */
#include "start.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define SERVICE ".service"

/* Returns the command for the unit of systemd that runs us, from a line of /proc/self/cgroup; NULL: it names none. */
static char *unit_command(char *line)
{
	char *unit = strrchr(line, '/'), *command = NULL;
	size_t len;

	if (!unit)
		return NULL;
	unit[strcspn(unit, "\n")] = '\0';
	len = strlen(unit);
	if (len <= strlen(SERVICE) || strcmp(unit + len - strlen(SERVICE), SERVICE) != 0)
		return NULL;
	if (asprintf(&command, "systemctl %sstart %s", strstr(line, "/user@") ? "--user " : "",
		     unit + 1) < 0)
		return NULL;
	return command;
}

static char *systemd_command(void)
{
	const char *notify = getenv("NOTIFY_SOCKET");
	FILE *f = notify && *notify ? fopen("/proc/self/cgroup", "re") : NULL;
	char *command = NULL, line[PATH_MAX];

	while (f && !command && fgets(line, sizeof(line), f))
		command = unit_command(line);
	if (f)
		fclose(f);
	return command;
}

char *start_command(const char *config)
{
	CLEANUP_FREE char *path = realpath(config, NULL);
	char program[PATH_MAX] = "stagd", *command = systemd_command();
	ssize_t n;

	if (command)
		return command;
	n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	if (n > 0)
		program[n] = '\0';
	if (asprintf(&command, "%s --config %s", program, path ?: config) < 0)
		return NULL;
	return command;
}
