/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stagd.h - the daemon: what its files share.
 */
#ifndef STAG_APP_STAGD_H
#define STAG_APP_STAGD_H

#include <stdbool.h>
#include <stdint.h>

#include "conf.h"

/* A node that is served. */
struct served {
	const char *path; /* of the INI file */
	struct conf_pool *conf;
	struct stag_pool_node *node;
	struct stag_pool_node_info info;
};

/* serve.c: until SIGTERM or SIGINT. An exit code. */
int serve(struct conf *conf, bool json);

/* reload.c: who may come in, as the file says by now. */
void reload(struct served *list, unsigned int n);

/* notify.c: to whoever started us (sd_notify(3)); nothing where nobody listens. */
void notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t notify_watchdog_ms(void); /* how often it wants to hear of us; 0: it does not */

#endif
