/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * serve.h - a daemon that serves what a file says, until it is told to stop.
 */
#ifndef STAG_APP_SERVE_H
#define STAG_APP_SERVE_H

#include <stdbool.h>

#include "daemon.h"

/* Until SIGTERM or SIGINT. An exit code. api: NULL: none. */
int serve(const char *config, const struct daemon_api *api, bool json);

#endif
