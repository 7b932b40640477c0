/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * notify.h - how we are, to whoever started us (sd_notify(3)); nothing where nobody listens.
 */
#ifndef STAG_APP_NOTIFY_H
#define STAG_APP_NOTIFY_H

#include <stdint.h>

void notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t notify_watchdog_ms(void); /* how often it wants to hear of us; 0: it does not */

#endif
