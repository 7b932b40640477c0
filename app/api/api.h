/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * api.h - the management API of stagd: HTTP on a TCP port, on a Unix socket, or on both.
 *
 * What stagd starts and stops, by the calls of struct daemon_api (daemon.h). What is behind the doors is in http.h.
 */
#ifndef STAG_APP_API_H
#define STAG_APP_API_H

#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

struct api;
struct conf_api;
struct daemon;
struct daemon_api;

#define API_PORT	7180
#define API_BODY_MAX	(1u << 20)
#define API_CONNECTIONS 64

/*
 * start: opens its doors and answers from threads of its own; NULL and why, nothing is left open then. An address that is not
 * only this machine's is refused without a token. Zero in a field of conf is its default.
 * stop: event streams end; requests under way are answered, or cut off after a second.
 * status: {"listen", "port", "socket", "token", "console", "connections", "requests", "refused", "streams"}
 */
extern const struct daemon_api api_calls;

struct api *api_start(struct daemon *d, const struct conf_api *conf, char *why, size_t size);
void api_stop(struct api *api);
json_t *api_status(struct api *api);

#endif
