/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * api.h - the management API of stagd: HTTP on a TCP port, on a Unix socket, or on both.
 *
 * The daemon starts and stops it by the calls of struct daemon_api (daemon.h). Its inside is described in http.h.
 */
#ifndef STAG_APP_API_H
#define STAG_APP_API_H

#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

struct access;
struct api;
struct conf_api;
struct daemon;
struct daemon_api;

#define API_PORT	7180
#define API_BODY_MAX	(1u << 20)
#define API_CONNECTIONS 64
#define API_STREAMS	32
#define API_IDLE	16384

/*
 * start: listens; open: accepts, and answers from threads of its own. Returns NULL and sets why if it fails; then nothing is left open. Zero in a
 * field of conf means its default.
 * change: replaces tokens, roots and, unless conf is NULL, the role of the socket's group.
 * stop: ends event streams; requests in flight get a second to be answered, and are cut off then.
 * status: {"listen", "port", "socket", "token", "token_file", "tls", "console", "connections", "idle", "requests", "refused", "streams"}
 */
extern const struct daemon_api api_calls;

struct api *api_start(struct daemon *d, const struct conf_api *conf, struct access *access,
		      char *why, size_t size);
void api_change(struct api *api, const struct conf_api *conf, struct access *access);
int api_open(struct api *api, char *why, size_t size);
void api_stop(struct api *api);
json_t *api_status(struct api *api);

#endif
