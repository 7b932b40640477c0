/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * privileges.h - from root to the user of [daemon].
 */
#ifndef STAG_APP_PRIVILEGES_H
#define STAG_APP_PRIVILEGES_H

#include <stddef.h>

#include "conf.h"

/*
 * Before there are threads, and before any other file is opened: from then on the process is that user, for good, with no groups but
 * one, and no capability, but that to listen below port 1024 where a section wants that. What needs root is done before: limits, and
 * the directories that the user is to own. -errno: it did not work, and nothing is to go on. conf: read with CONF_TEXT_ONLY.
 */
int privileges_drop(const struct conf *conf, char *why, size_t size);

/* Is every thread of this process what it was dropped to? Of the same conf; no user: true. */
bool privileges_are_dropped(const struct conf *conf);

#endif
