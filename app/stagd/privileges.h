/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * privileges.h - switches from root to the user of [daemon].
 */
#ifndef STAG_APP_PRIVILEGES_H
#define STAG_APP_PRIVILEGES_H

#include <stddef.h>

#include "conf.h"

/*
 * Switches to the user for good, with one group, and without capabilities except the one to listen below port 1024, if a section
 * needs it. Creates the directories that the user is to own first. Call it before there are threads and before any other file is
 * opened, with conf read by CONF_TEXT_ONLY. Returns -errno on failure; then the process must not continue.
 */
int privileges_drop(const struct conf *conf, char *why, size_t size);

/* Returns whether every thread of this process runs as that user; true if conf has no user. */
bool privileges_are_dropped(const struct conf *conf);

#endif
