// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_place.c - the default directory for the state of nodes, and directories on the way to it.
 */
#include "conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool conf_state_dir(char *path, size_t size)
{
	const char *own = getenv("STAG_STATE"), *xdg = getenv("XDG_STATE_HOME"),
		   *home = getenv("HOME");
	int len;

	if (own && *own)
		len = snprintf(path, size, "%s", own);
	else if (geteuid() == 0)
		len = snprintf(path, size, "%s", CONF_STATE);
	else if (xdg && *xdg)
		len = snprintf(path, size, "%s/stag", xdg);
	else
		len = home ? snprintf(path, size, "%s/.local/state/stag", home) : -1;
	return len > 0 && len < (int)size;
}

int conf_make_directories(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0700) != 0 && errno != EEXIST) {
			*slash = '/';
			return -errno;
		}
		*slash = '/';
	}
	return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}
