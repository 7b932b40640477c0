// SPDX-License-Identifier: BSD-2-Clause
/*
 * initiator.c - the states of an initiator: connecting, time limits, lost lines, reconnecting.
 */
#include "block/initiator/initiator.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/log.h"

#define FIRST_BACKOFF (10 * NS_PER_MS)
#define MAX_BACKOFF   NS_PER_S
#define MAX_PATIENCE  NS_PER_S /* for one transport, while there are others to try */
#define LOGIN_TAG     0x80000001u
#define PING_TAG      0x80000002u

static const char *const state_names[] = {"DOWN", "CONNECTING", "LOGIN", "PROBE", "LIVE", "GONE"};

void initiator_set_state(struct stag_block *b, enum initiator_state to)
{
	static const unsigned int next[] = {
		[INIT_DOWN] = 1 << INIT_CONNECTING | 1 << INIT_GONE,
		[INIT_CONNECTING] = 1 << INIT_LOGIN | 1 << INIT_DOWN,
		[INIT_LOGIN] = 1 << INIT_PROBE | 1 << INIT_LIVE | 1 << INIT_DOWN,
		[INIT_PROBE] = 1 << INIT_LIVE | 1 << INIT_DOWN,
		[INIT_LIVE] = 1 << INIT_DOWN,
		[INIT_GONE] = 0,
	};

	assert(next[b->state] & 1u << to);
	(void)next;
	log_debug("block %s: %s -> %s", b->config.url.host, state_names[b->state], state_names[to]);
	b->state = to;
	if (to == INIT_LIVE) {
		b->attempt.ever_live = true;
		b->attempt.backoff = 0;
		b->route.redirects = 0;
		b->attempt.end = 0;
	}
}

/* ---- attempts ------------------------------------------------------------------------------- */

static int follow_redirect(struct stag_block *b)
{
	char host[WORD_MAX], port[6];

	if (++b->route.redirects > MAX_REDIRECTS)
		return block_fail(ELOOP, "%s: too many redirections", b->config.url.host);
	if (initiator_url_parse_address(b->session.login->redirect, host, port) != 0)
		return block_fail(EPROTO, "redirected to an invalid address: '%s'",
				  b->session.login->redirect);
	if (initiator_resolve(host, port, &b->route.redirected, 1) < 0)
		return -EHOSTUNREACH;
	b->route.is_redirected = true;
	return 0;
}

static const struct key_wishes wishes = {
	.keys = {.max_connections = 1,
		 .initial_r2t = 0,
		 .immediate_data = 1,
		 .max_burst = 1u << 20,
		 .first_burst = INITIATOR_RECV_MAX,
		 .time2wait = 0,
		 .time2retain = 0,
		 .max_r2t = 16,
		 .pdu_in_order = 1,
		 .sequence_in_order = 1,
		 .recovery_level = 0,
		 .protocol_level = 1},
	.own_recv_max = INITIATOR_RECV_MAX,
};

/* Over verbs data goes by RDMA, except for small writes, whose data goes with the command. */
static const struct key_wishes rdma_wishes = {
	.keys = {.max_connections = 1,
		 .initial_r2t = 1,
		 .immediate_data = 1,
		 .max_burst = 1u << 20,
		 .first_burst = INITIATOR_SMALL,
		 .time2wait = 0,
		 .time2retain = 0,
		 .max_r2t = 16,
		 .pdu_in_order = 1,
		 .sequence_in_order = 1,
		 .recovery_level = 0,
		 .protocol_level = 1,
		 .rdma_extensions = 1,
		 .target_recv = INITIATOR_SMALL,
		 .initiator_recv = INITIATOR_SMALL},
	.own_recv_max = INITIATOR_SMALL,
	.rdma = true,
};

static const char *or_null(const char *word)
{
	return *word ? word : NULL;
}

static int prepare_login(struct stag_block *b, const struct initiator_line_ops *ops)
{
	struct initiator_login *e = b->session.login = calloc(1, sizeof(*e));

	if (!e)
		return block_fail(ENOMEM, "out of memory");
	e->initiator = b->config.initiator;
	e->target = b->config.discovery ? NULL : b->config.url.target;
	e->user = or_null(b->config.url.user);
	e->secret = b->config.url.secret;
	e->peer_user = or_null(b->config.peer_user);
	e->peer_secret = or_null(b->config.peer_secret);
	e->wishes = ops->rdma ? rdma_wishes : wishes;
	e->wishes.keys.header_digest = b->config.header_digest ? DIGEST_CRC32C : DIGEST_NONE;
	e->wishes.keys.data_digest = b->config.data_digest ? DIGEST_CRC32C : DIGEST_NONE;
	memcpy(e->isid, b->session.isid, sizeof(e->isid));
	e->cmd_sn = 1;
	e->itt = LOGIN_TAG;
	initiator_login_begin(e);
	return 0;
}

static const struct initiator_address *next_address(struct stag_block *b)
{
	if (!b->route.is_redirected)
		return &b->route.addresses[b->route.next++ % b->route.num_addresses];
	b->route.is_redirected = false; /* after the next loss the original address is used again */
	return &b->route.redirected;
}

/*
 * Returns the time limit of one attempt. A peer that does not support a transport, or an address that is not reachable,
 * may not respond at all: if there are other transports and addresses to try, each gets a share of the time.
 */
static uint64_t attempt_timeout(const struct stag_block *b)
{
	uint64_t share = b->config.timeout_ns / NUM_LINES;

	if (b->attempt.ever_live)
		return b->config.timeout_ns;
	if (!b->route.candidates[1])
		return b->config.timeout_ns / b->route.num_addresses;
	return share < MAX_PATIENCE ? share : MAX_PATIENCE;
}

static int connect_next(struct stag_block *b)
{
	const struct initiator_line_ops *ops = *b->route.candidates;
	const struct initiator_address *p = next_address(b);
	int rc;

	b->attempt.was_connected = b->attempt.no_tls = false;
	b->info.tls = (struct stag_block_tls_info){0};
	free(b->session.login);
	rc = prepare_login(b, ops);
	if (rc == 0)
		rc = ops->open(b, (const struct sockaddr *)&p->addr, p->len, &b->line);
	if (rc != 0)
		return rc;
	initiator_set_state(b, INIT_CONNECTING);
	b->attempt.end = b->now + attempt_timeout(b);
	return 0;
}

/* ---- losses ------------------------------------------------------------------------------------ */

static void give_up(struct stag_block *b)
{
	initiator_set_state(b, INIT_GONE);
	initiator_io_fail_all(b, ENODEV);
	if (b->attempt.ever_live)
		log_warn("block %s: gave up reconnecting: %s", b->config.url.target,
			 b->attempt.words);
}

static void plan_attempt(struct stag_block *b)
{
	b->attempt.next = b->now + b->attempt.backoff;
	b->attempt.backoff = b->attempt.backoff ? 2 * b->attempt.backoff : FIRST_BACKOFF;
	if (b->attempt.backoff > MAX_BACKOFF)
		b->attempt.backoff = MAX_BACKOFF;
}

static void keep_error(struct stag_block *b, int error)
{
	/* Errors of the socket or queue pair have no text yet. */
	if (error == ECONNREFUSED || error == ECONNRESET || error == EPIPE || error == ETIMEDOUT ||
	    error == EHOSTUNREACH || error == ENETUNREACH || error == ESHUTDOWN)
		block_fail(error, "%s:%s: %s", b->config.url.host, b->config.url.port,
			   strerror(error));
	snprintf(b->attempt.words, sizeof(b->attempt.words), "%s", stag_block_error());
	b->attempt.error = error;
}

/*
 * Chooses the next transport: another one over verbs only if there was a connection over verbs at all. Returns false if
 * there is none.
 */
static bool next_transport(struct stag_block *b)
{
	const struct initiator_line_ops **next = b->route.candidates + 1;

	while (*next && (*next)->rdma && !b->attempt.was_connected)
		next++;
	if (!*next)
		return false;
	log_warn("block %s:%s: no %s; falling back to %s: %s", b->config.url.host,
		 b->config.url.port, (*b->route.candidates)->name, (*next)->name, b->attempt.words);
	b->route.candidates = next;
	return true;
}

int initiator_fall_back(struct stag_block *b, const char *why)
{
	const struct initiator_line_ops *next = b->route.candidates[1];

	if (!next || !next->rdma)
		return block_fail(EPROTONOSUPPORT, "%s:%s: %s is not available: %s",
				  b->config.url.host, b->config.url.port,
				  (*b->route.candidates)->name, why);
	log_warn("block %s:%s: no %s; using %s: %s", b->config.url.host, b->config.url.port,
		 (*b->route.candidates)->name, next->name, why);
	b->line->ops = *++b->route.candidates;
	return 0;
}

/* Returns whether there is another address or transport to try, for a target that was never reached. */
static bool has_another_way(struct stag_block *b, int error)
{
	if (error == EREMCHG)
		return true;
	if (b->attempt.ever_live)
		return false;
	if (b->route.plain)
		return true;
	if (error == EACCES || error == ENOENT)
		return false;
	/* A target that does not respond is likely to support another transport only, at all its addresses. */
	if (b->route.next < b->route.num_addresses &&
	    (error != ETIMEDOUT || !b->route.candidates[1]))
		return true;
	b->route.next = 0;
	return next_transport(b);
}

static void line_lost(struct stag_block *b, int error)
{
	bool was_live = b->state == INIT_LIVE;

	b->info.counters.lost += was_live || b->state == INIT_PROBE;
	keep_error(b, error);
	b->route.plain = b->attempt.no_tls && b->config.tls.mode == TLS_ALLOWED;
	if (b->route.plain && b->route.next)
		b->route.next--; /* the same address once more */
	if (b->line)
		b->line->ops->close(b->line);
	b->line = NULL;
	b->probe.active = false;
	b->io.pause_end = b->session.pinged = b->attempt.end = 0;
	b->abort.step = ABORT_NONE;
	initiator_io_requeue(b);
	if (b->state != INIT_DOWN)
		initiator_set_state(b, INIT_DOWN);
	if (was_live) {
		b->attempt.give_up = b->now + b->config.retry_ns;
		log_info("block %s: connection lost: %s", b->config.url.target, b->attempt.words);
	}
	if (b->attempt.ever_live ? !b->config.retries || b->now >= b->attempt.give_up
				 : !has_another_way(b, error))
		give_up(b);
	else
		plan_attempt(b);
}

/* Handles the failure of a line or a login, or its redirection. */
static void line_failed(struct stag_block *b, int rc)
{
	if (rc == -EREMCHG) {
		int followed = follow_redirect(b);

		if (followed != 0)
			rc = followed;
		else
			b->attempt.backoff = 0;
	}
	line_lost(b, -rc);
}

/* ---- time ----------------------------------------------------------------------------------------- */

static int ping(struct stag_block *b)
{
	struct pdu p = {.opcode = NOP_OUT, .flags = PDU_FINAL, .itt = PING_TAG, .ttt = TAG_NONE};

	b->session.pinged = b->now;
	return initiator_send(b, &p, NULL, 0);
}

static int check_time_limits(struct stag_block *b)
{
	if (b->attempt.end && b->now >= b->attempt.end)
		return -ETIMEDOUT;
	if (b->io.pause_end && b->now >= b->io.pause_end)
		b->io.pause_end = 0;
	if (b->state != INIT_LIVE)
		return 0;
	if (b->session.pinged && b->now - b->session.pinged >= b->config.ping_ns)
		return -ETIMEDOUT;
	if (!b->session.pinged && b->now - b->session.heard >= b->config.ping_ns && ping(b) != 0)
		return -ENOMEM;
	return initiator_abort_tick(b);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a && (!b || a < b) ? a : b;
}

static uint64_t next_alarm(const struct stag_block *b)
{
	if (b->state == INIT_GONE)
		return 0;
	if (b->state == INIT_DOWN)
		return b->attempt.next;
	if (b->state != INIT_LIVE)
		return b->attempt.end;
	return sooner(
		initiator_abort_alarm(b),
		sooner(b->io.pause_end, (b->session.pinged ? b->session.pinged : b->session.heard) +
						b->config.ping_ns));
}

/* Each received PDU defers the alarm. To save system calls the timer is set again only when it expires. */
static void set_alarm(struct stag_block *b)
{
	uint64_t at = next_alarm(b);
	struct itimerspec t = {.it_value = {(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)}};

	if (at == b->events.alarm ||
	    (at && b->events.alarm && b->events.alarm < at && b->now < b->events.alarm))
		return;
	b->events.alarm = at;
	timerfd_settime(b->events.timer, TFD_TIMER_ABSTIME, &t, NULL);
}

static int launch_and_flush(struct stag_block *b)
{
	int rc = initiator_io_launch(b);

	return rc == 0 ? b->line->ops->flush(b->line) : rc;
}

static int step_line(struct stag_block *b)
{
	int rc;

	if (b->state == INIT_DOWN)
		return b->now >= b->attempt.next ? connect_next(b) : 0;
	rc = b->line->ops->poll(b->line);
	if (rc == 0)
		rc = check_time_limits(b);
	return rc == 0 ? launch_and_flush(b) : rc;
}

void initiator_step(struct stag_block *b)
{
	int rc;

	b->now = clock_ns();
	if (b->state != INIT_GONE) {
		rc = step_line(b);
		if (rc != 0)
			line_failed(b, rc);
	}
	set_alarm(b);
}

/* Nothing is in flight, so there is nothing to receive before sending. */
void initiator_start(struct stag_block *b)
{
	int rc;

	if (b->state != INIT_LIVE) {
		initiator_step(b);
		return;
	}
	b->now = clock_ns();
	rc = launch_and_flush(b);
	if (rc != 0)
		line_failed(b, rc);
}

int initiator_sleep(struct stag_block *b, int timeout_ms)
{
	struct epoll_event e;
	int n;

	if (b->line && b->line->ops->arm && b->line->ops->arm(b->line) != 0)
		return 0;
	n = epoll_wait(b->events.epoll, &e, 1, timeout_ms);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n ? 0 : -ETIMEDOUT;
}

int initiator_left_ms(uint64_t end)
{
	uint64_t now = clock_ns();

	return now >= end ? 0 : (int)((end - now + NS_PER_MS - 1) / NS_PER_MS);
}
