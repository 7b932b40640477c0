// SPDX-License-Identifier: BSD-2-Clause
/*
 * state.c - the states of a socket, and the one function that changes them.
 */
#include "rsocket/rsocket.h"

#include <assert.h>

#include "base/log.h"

static const char *const names[RS_STATES] = {
	[RS_INIT] = "INIT",
	[RS_BOUND] = "BOUND",
	[RS_LISTENING] = "LISTENING",
	[RS_RESOLVING_ADDR] = "RESOLVING_ADDR",
	[RS_RESOLVING_ROUTE] = "RESOLVING_ROUTE",
	[RS_CONNECTING] = "CONNECTING",
	[RS_ACCEPTING] = "ACCEPTING",
	[RS_CONNECT_ERROR] = "CONNECT_ERROR",
	[RS_CONNECTED] = "CONNECTED",
	[RS_DISCONNECTED] = "DISCONNECTED",
	[RS_ERROR] = "ERROR",
};

#define FROM(s) (1u << (s))

/* For each state, those that it may be entered from. */
static const unsigned legal[RS_STATES] = {
	[RS_BOUND] = FROM(RS_INIT),
	[RS_LISTENING] = FROM(RS_INIT) | FROM(RS_BOUND),
	[RS_RESOLVING_ADDR] = FROM(RS_INIT) | FROM(RS_BOUND),
	[RS_RESOLVING_ROUTE] = FROM(RS_RESOLVING_ADDR),
	[RS_CONNECTING] = FROM(RS_RESOLVING_ROUTE),
	[RS_ACCEPTING] = FROM(RS_INIT),
	[RS_CONNECT_ERROR] = FROM(RS_RESOLVING_ADDR) | FROM(RS_RESOLVING_ROUTE) |
			     FROM(RS_CONNECTING) | FROM(RS_ACCEPTING),
	[RS_CONNECTED] = FROM(RS_CONNECTING) | FROM(RS_ACCEPTING),
	[RS_DISCONNECTED] = FROM(RS_CONNECTED),
	[RS_ERROR] = FROM(RS_CONNECTED),
};

void rs_set_state(struct rsocket *rs, enum rs_state state)
{
	assert(lock_held(&rs->lock));
	assert(legal[state] & FROM(rs->state));
	(void)legal; /* a release build does not check */
	log_debug("rsocket %d: %s -> %s", rs->fd, names[rs->state], names[state]);
	rs->state = state;
	rs->readable = rs->writable = state == RS_CONNECTED;
	if (state > RS_CONNECTED)
		rs_unhush(rs);
	rs_wake(rs);
}

void rs_fail(struct rsocket *rs, int err)
{
	assert(lock_held(&rs->lock));
	if (rs->state != RS_CONNECTED)
		return;
	log_info("rsocket %d: the connection failed: errno %d", rs->fd, err);
	rs->err = err;
	rs_set_state(rs, RS_ERROR);
}
