// SPDX-License-Identifier: BSD-2-Clause
/*
 * doctor_port.c - finds which process listens at a port, and the names of processes.
 */
#include "doctor.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTENING 0x0a

/* By its file: the name that the kernel keeps may be "exe", of a program that executed itself again. */
const char *doctor_program(int pid, char *name, size_t size)
{
	char path[64], file[PATH_MAX], *base;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	n = readlink(path, file, sizeof(file) - 1);
	file[n > 0 ? n : 0] = '\0';
	if (n > 10 && strcmp(file + n - 10, " (deleted)") == 0)
		file[n - 10] = '\0';
	base = strrchr(file, '/');
	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	if (base && base[1])
		snprintf(name, size, "%s", base + 1);
	else
		doctor_line(path, name, size); /* another user's */
	return name;
}

/* Returns the inode of the socket that listens at a port; 0: there is none. */
static unsigned long listener_in(const char *table, unsigned int port)
{
	FILE *f = fopen(table, "re");
	unsigned long inode, found = 0;
	unsigned int local, state;
	char line[512];

	while (f && !found && fgets(line, sizeof(line), f))
		if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*d %*d %lu",
			   &local, &state, &inode) == 3 &&
		    state == LISTENING && local == port)
			found = inode;
	if (f)
		fclose(f);
	return found;
}

static bool has_socket(const char *pid, unsigned long inode)
{
	char path[PATH_MAX], link[64], wanted[64];
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
	dir = opendir(path);
	for (struct dirent *e; dir && !found && (e = readdir(dir));) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		link[n > 0 ? n : 0] = '\0';
		found = strcmp(link, wanted) == 0;
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Writes "stagd, process 4711"; "": another user's process. */
static void owner_of(unsigned long inode, char *who, size_t size)
{
	DIR *dir = opendir("/proc");
	bool found = false;

	*who = '\0';
	for (struct dirent *e; dir && !found && (e = readdir(dir));) {
		char name[64];

		found = e->d_name[0] >= '1' && e->d_name[0] <= '9' && has_socket(e->d_name, inode);
		if (!found)
			continue;
		doctor_program(atoi(e->d_name), name, sizeof(name));
		snprintf(who, size, "%s, process %.10s", name, e->d_name);
	}
	if (dir)
		closedir(dir);
}

/* Adds the ports of a table that the process listens at. */
static unsigned int add_ports(const char *table, const char *pid, unsigned int ports[DOCTOR_PORTS],
			      unsigned int n)
{
	FILE *f = fopen(table, "re");
	unsigned int port, state;
	unsigned long inode;
	char line[512];

	while (f && n < DOCTOR_PORTS && fgets(line, sizeof(line), f))
		if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*d %*d %lu",
			   &port, &state, &inode) == 3 &&
		    state == LISTENING && has_socket(pid, inode))
			ports[n++] = port;
	if (f)
		fclose(f);
	return n;
}

unsigned int doctor_ports_of(int pid, unsigned int ports[DOCTOR_PORTS])
{
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	return add_ports("/proc/net/tcp6", text, ports, add_ports("/proc/net/tcp", text, ports, 0));
}

bool doctor_port_owner(unsigned int port, char *who, size_t size)
{
	unsigned long inode = listener_in("/proc/net/tcp", port);

	if (!inode)
		inode = listener_in("/proc/net/tcp6", port);
	*who = '\0';
	if (inode)
		owner_of(inode, who, size);
	return inode != 0;
}
