// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_place.c - the default directory for the state of nodes.
 */
#include "conf.h"

#include <stdlib.h>
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
