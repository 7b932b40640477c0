/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * start.h - the command that starts this daemon again.
 */
#ifndef STAG_APP_DAEMON_START_H
#define STAG_APP_DAEMON_START_H

/* Returns "systemctl start UNIT" if systemd runs the daemon, else "PROGRAM --config FILE", to be freed; NULL: no memory. */
char *start_command(const char *config);

#endif
