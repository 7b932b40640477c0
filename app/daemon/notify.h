/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * notify.h - reports the daemon's state to systemd (sd_notify(3)); does nothing without NOTIFY_SOCKET.
 */
#ifndef STAG_APP_NOTIFY_H
#define STAG_APP_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

bool notify_is_on(void); /* a service manager listens */
void notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t notify_watchdog_ms(
	void); /* the interval at which systemd expects WATCHDOG=1; 0: it does not */

#endif
