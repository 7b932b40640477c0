// SPDX-License-Identifier: BSD-2-Clause
/*
 * audit.c - reports requests that change something, and all that are refused, to the audit log (server.h, base/audit.h).
 */
#include "server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

#include "base/audit.h"

void peer_text(int fd, char *text, size_t size)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	struct ucred peer;
	char host[INET6_ADDRSTRLEN];

	*text = '\0';
	if (getpeername(fd, (struct sockaddr *)&a, &len) != 0)
		return;
	if (a.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a;

		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(text, size, "%s:%u", host, ntohs(v4->sin_port));
	} else if (a.ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a;

		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		snprintf(text, size, "[%s]:%u", host, ntohs(v6->sin6_port));
	} else {
		len = sizeof(peer);
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
			snprintf(text, size, "uid %u pid %d", peer.uid, peer.pid);
	}
}

static enum stag_audit_outcome outcome_of(int status)
{
	if (status < 400)
		return STAG_AUDIT_ALLOWED;
	return status == 401 || status == 403 || status == 421 ? STAG_AUDIT_REFUSED
							       : STAG_AUDIT_FAILED;
}

/* Joins the segments again, for people: "/api/v1/pools/shop". */
static void path_text(const struct target *t, char *text, size_t size)
{
	size_t at = 0;

	*text = '\0';
	for (unsigned int i = 0; i < t->num_segments && at < size; i++)
		at += (size_t)snprintf(text + at, size - at, "/%s", t->segments[i]);
}

/* A stranger may send faulty requests without end, so failures before authentication count as refusals, which are limited. */
static bool is_of_stranger(const struct request *r)
{
	return r->refused && r->who.role == ROLE_NONE;
}

static bool administers(const struct route *route)
{
	return route && route->role == ROLE_ADMINISTER;
}

void audit_request(const struct request *r, int fd)
{
	int status = r->fault.status ? r->fault.status : r->answer.status;
	enum stag_audit_outcome outcome = outcome_of(status);
	const struct route *route = r->match.route;
	char from[80], path[160], action[48];

	if (!audit_is_on() || (r->method == METHOD_GET && outcome != STAG_AUDIT_REFUSED))
		return;
	if (outcome == STAG_AUDIT_FAILED && is_of_stranger(r))
		outcome = STAG_AUDIT_REFUSED;
	peer_text(fd, from, sizeof(from));
	path_text(&r->target, path, sizeof(path));
	snprintf(action, sizeof(action), "%s%s%s", method_word(r->method), route ? " " : "",
		 route ? route_word(route->name) : "");
	audit_report(&(struct stag_audit_record){
		.room = "api",
		.object = path,
		.user = *r->who.token ? r->who.token : NULL,
		.from = from,
		.action = action,
		.outcome = outcome,
		.flags = administers(route) ? STAG_AUDIT_ADMINISTRATION : 0,
		.reason = r->fault.status ? r->fault.message : NULL});
}
