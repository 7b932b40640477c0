/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * serve.h - runs the daemon until a signal stops it.
 */
#ifndef STAG_APP_SERVE_H
#define STAG_APP_SERVE_H

#include <stdbool.h>

#include "daemon.h"

/* Serves until SIGTERM or SIGINT, and returns an exit code. api NULL: no management API. */
int serve(const char *config, const struct daemon_api *api, bool json);

#endif
