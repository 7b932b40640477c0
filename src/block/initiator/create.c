// SPDX-License-Identifier: BSD-2-Clause
/*
 * create.c - creates an initiator from a URL and attributes, connects it, logs it out, and frees it.
 */
#include "block/initiator/initiator.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"

#define TIMEOUT_MS 5000
#define RETRY_MS   30000
#define COMMAND_MS 60000
#define ABORT_NS   (10 * NS_PER_S)
#define PING_NS	   (10 * NS_PER_S)
#define LOGOUT_NS  NS_PER_S
#define LOGOUT_TAG 0x80000003u

int initiator_resolve(const char *host, const char *port, struct initiator_address *to,
		      unsigned int max)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *list;
	unsigned int n = 0;
	int rc = getaddrinfo(host, port, &hints, &list);

	if (rc != 0) {
		hints.ai_flags = 0; /* the host may have loopback addresses only */
		rc = getaddrinfo(host, port, &hints, &list);
	}
	if (rc != 0)
		return block_fail(EHOSTUNREACH, "%s: %s", host, gai_strerror(rc));
	for (const struct addrinfo *a = list; a && n < max; a = a->ai_next) {
		if (a->ai_addrlen > sizeof(to[n].addr))
			continue;
		memcpy(&to[n].addr, a->ai_addr, a->ai_addrlen);
		to[n++].len = a->ai_addrlen;
	}
	freeaddrinfo(list);
	return n ? (int)n : block_fail(EHOSTUNREACH, "%s: no address found", host);
}

static int set_string(char *to, size_t size, const char *word)
{
	if (word && strlen(word) >= size)
		return block_fail(EINVAL,
				  "a name or secret is too long: %zu bytes; the limit is %zu",
				  strlen(word), size - 1);
	if (word)
		snprintf(to, size, "%s", word);
	return 0;
}

static void make_name(char *name, size_t size)
{
	char host[64] = "";

	gethostname(host, sizeof(host) - 1);
	for (char *p = host; *p; p++)
		*p = isalnum((unsigned char)*p) || *p == '.' ? (char)tolower((unsigned char)*p)
							     : '-';
	snprintf(name, size, "iqn.2026-01.stag:%s-initiator", *host ? host : "some");
}

static int check_secrets(const struct stag_block *b)
{
	if (!*b->config.url.user != !*b->config.url.secret)
		return block_fail(EINVAL, "user and secret must be set together");
	if (*b->config.peer_secret && !*b->config.url.user)
		return block_fail(EINVAL,
				  "authenticating the target requires a user and a secret, too");
	if (*b->config.peer_secret && strcmp(b->config.peer_secret, b->config.url.secret) == 0)
		return block_fail(EINVAL, "the secrets of initiator and target must differ");
	if (*b->config.peer_user && !*b->config.peer_secret)
		return block_fail(EINVAL, "the target's user requires a secret of the target");
	return 0;
}

static void choose_transports(struct stag_block *b)
{
	static const struct initiator_line_ops *const all[NUM_LINES] = {
		&initiator_one_shot_line, &initiator_iser_line, &initiator_tcp_line};
	unsigned int n = 0;

	for (unsigned int i = 0; i < NUM_LINES; i++)
		if (b->config.url.transport == STAG_BLOCK_BEST ||
		    b->config.url.transport == all[i]->kind)
			b->route.transports[n++] = all[i];
	b->route.candidates = b->route.transports;
}

static int set_attr(struct stag_block *b, const struct stag_block_attr *a)
{
	int timeout = a->timeout_ms ? a->timeout_ms : TIMEOUT_MS;
	int retry = a->retry_ms ? a->retry_ms : RETRY_MS;
	int command = a->command_ms ? a->command_ms : COMMAND_MS;
	int rc;

	if ((a->comp_mask & ~STAG_BLOCK_ATTR_TLS) || a->transport > STAG_BLOCK_ONE_SHOT ||
	    a->depth > INITIATOR_MAX_DEPTH || timeout < 0)
		return block_fail(EINVAL, "invalid attributes");
	if (a->transport != STAG_BLOCK_BEST)
		b->config.url.transport = a->transport;
	b->config.depth = a->depth ? a->depth : INITIATOR_DEPTH;
	b->config.timeout_ns = (uint64_t)timeout * NS_PER_MS;
	b->config.retries = retry > 0;
	b->config.retry_ns = retry > 0 ? (uint64_t)retry * NS_PER_MS : 0;
	b->config.ping_ns = PING_NS;
	b->config.abort_ns = ABORT_NS;
	b->config.command_ns = command > 0 ? (uint64_t)command * NS_PER_MS : 0;
	b->config.header_digest = a->header_digest;
	b->config.data_digest = a->data_digest;
	make_name(b->config.initiator, sizeof(b->config.initiator));
	rc = set_string(b->config.initiator, sizeof(b->config.initiator), a->initiator);
	if (rc == 0 && !iscsi_text_is_name(b->config.initiator))
		rc = block_fail(EINVAL, "'%s' is not an iSCSI name (iqn., eui. or naa.)",
				b->config.initiator);
	if (rc == 0)
		rc = set_string(b->config.url.user, WORD_MAX, a->user);
	if (rc == 0)
		rc = set_string(b->config.url.secret, WORD_MAX, a->secret);
	if (rc == 0)
		rc = set_string(b->config.peer_user, WORD_MAX, a->peer_user);
	if (rc == 0)
		rc = set_string(b->config.peer_secret, WORD_MAX, a->peer_secret);
	if (rc == 0)
		rc = check_secrets(b);
	if (rc == 0 && (a->comp_mask & STAG_BLOCK_ATTR_TLS))
		rc = initiator_tls_create(b, a->tls);
	return rc;
}

static int make_commands(struct stag_block *b)
{
	b->io.cmds = calloc(b->config.depth + 1, sizeof(*b->io.cmds));
	if (!b->io.cmds)
		return block_fail(ENOMEM, "out of memory for %u commands", b->config.depth);
	for (uint32_t i = 0; i <= b->config.depth; i++) {
		b->io.cmds[i].index = (uint16_t)i;
		b->io.cmds[i].itt = TAG_NONE;
		list_init(&b->io.cmds[i].link);
		if (i < b->config.depth)
			list_add_tail(&b->io.spare, &b->io.cmds[i].link);
	}
	return 0;
}

static int make_descriptors(struct stag_block *b)
{
	struct epoll_event e = {.events = EPOLLIN};

	b->events.epoll = epoll_create1(EPOLL_CLOEXEC);
	b->events.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (b->events.epoll < 0 || b->events.timer < 0 ||
	    epoll_ctl(b->events.epoll, EPOLL_CTL_ADD, b->events.timer, &e) != 0)
		return block_fail(errno, "cannot create an epoll set or timer: %s",
				  strerror(errno));
	return 0;
}

/* Makes a random ISID (RFC 7143 §11.12.5). All logins use the same, so that each one ends the session before it. */
static void make_isid(struct stag_block *b)
{
	uint32_t a = random_u32();

	b->session.isid[0] = 0x80;
	memcpy(b->session.isid + 1, &a, sizeof(a));
	b->session.isid[5] = (uint8_t)random_u32();
}

static void init_lists(struct stag_block *b)
{
	struct list *lists[] = {&b->io.spare, &b->io.in_flight, &b->io.retry,
				&b->io.queue, &b->io.done,	&b->regions};

	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		list_init(lists[i]);
}

int initiator_create(const char *url, bool whole, const struct stag_block_attr *attr,
		     struct stag_block **out)
{
	static const struct stag_block_attr plain;
	struct stag_block *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return block_fail(ENOMEM, "out of memory");
	init_lists(b);
	b->events.epoll = b->events.timer = -1;
	b->config.discovery = !whole;
	make_isid(b);
	rc = initiator_url_parse(url, whole, &b->config.url);
	if (rc == 0)
		rc = set_attr(b, attr ? attr : &plain);
	if (rc == 0)
		choose_transports(b);
	if (rc == 0)
		rc = make_commands(b);
	if (rc == 0)
		rc = make_descriptors(b);
	if (rc == 0)
		rc = initiator_resolve(b->config.url.host, b->config.url.port, b->route.addresses,
				       MAX_ADDRESSES);
	if (rc < 0) {
		initiator_destroy(b);
		return rc;
	}
	b->route.num_addresses = (unsigned int)rc;
	*out = b;
	return 0;
}

void initiator_destroy(struct stag_block *b)
{
	if (b->line)
		b->line->ops->close(b->line);
	b->line = NULL;
	if (b->io.cmds) {
		initiator_io_requeue(b);
		initiator_io_fail_all(b, ECANCELED);
	}
	initiator_io_free_all(b);
	list_for_each_safe (it, &b->regions) {
		list_del(it);
		free(list_entry(it, struct initiator_region, link));
	}
	if (b->events.epoll >= 0)
		close(b->events.epoll);
	if (b->events.timer >= 0)
		close(b->events.timer);
	initiator_tls_destroy(b);
	explicit_bzero(b->config.url.secret, sizeof(b->config.url.secret));
	explicit_bzero(b->config.peer_secret, sizeof(b->config.peer_secret));
	free(b->session.login);
	free(b->io.cmds);
	free(b);
}

int initiator_bring_up(struct stag_block *b)
{
	uint64_t end = clock_ns() + b->config.timeout_ns;

	for (;;) {
		initiator_step(b);
		if (b->state == INIT_LIVE)
			return 0;
		if (b->state == INIT_GONE)
			return block_fail(b->attempt.error, "%s", b->attempt.words);
		if (clock_ns() >= end)
			return block_fail(ETIMEDOUT, "%s:%s: connecting timed out",
					  b->config.url.host, b->config.url.port);
		initiator_sleep(b, initiator_left_ms(end));
	}
}

void initiator_log_out(struct stag_block *b)
{
	struct pdu p = {
		.opcode = LOGOUT_REQUEST, .flags = PDU_FINAL | LOGOUT_SESSION, .itt = LOGOUT_TAG};
	uint64_t end =
		clock_ns() + (b->config.timeout_ns < LOGOUT_NS ? b->config.timeout_ns : LOGOUT_NS);

	if (b->state != INIT_LIVE || initiator_send(b, &p, NULL, 0) != 0)
		return;
	b->info.counters.logouts++;
	while (b->state == INIT_LIVE && !b->session.logged_out && clock_ns() < end) {
		initiator_step(b);
		if (b->state == INIT_LIVE && !b->session.logged_out)
			initiator_sleep(b, initiator_left_ms(end));
	}
}
