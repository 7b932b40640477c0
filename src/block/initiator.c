// SPDX-License-Identifier: BSD-2-Clause
/*
 * initiator.c - a unit in use: its states, what time does to them, and the public calls.
 */
#include "block/initiator.h"

#include <assert.h>
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
#include "base/export.h"
#include "base/log.h"
#include "base/random.h"

#define TIMEOUT_MS    5000
#define RETRY_MS      30000
#define COMMAND_MS    60000
#define ABORT_NS      (10 * NS_PER_S)
#define PING_NS	      (10 * NS_PER_S)
#define FIRST_BACKOFF (10 * NS_PER_MS)
#define MAX_BACKOFF   NS_PER_S
#define LOGOUT_NS     NS_PER_S
#define MAX_PATIENCE  NS_PER_S /* with a transport, while there are others */
#define LOGIN_TAG     0x80000001u
#define PING_TAG      0x80000002u
#define LOGOUT_TAG    0x80000003u

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
	log_debug("block %s: %s -> %s", b->url.host, state_names[b->state], state_names[to]);
	b->state = to;
	if (to == INIT_LIVE) {
		b->ever_live = true;
		b->backoff = 0;
		b->redirects = 0;
		b->attempt_end = 0;
	}
}

/* ---- places ------------------------------------------------------------------------------ */

static int resolve(const char *host, const char *port, struct place *to, unsigned int max)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *list;
	unsigned int n = 0;
	int rc = getaddrinfo(host, port, &hints, &list);

	if (rc != 0) {
		hints.ai_flags = 0; /* a host that has loopback only */
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
	return n ? (int)n : block_fail(EHOSTUNREACH, "%s has no address", host);
}

static int follow_redirect(struct stag_block *b)
{
	char host[WORD_MAX], port[6];

	if (++b->redirects > MAX_REDIRECTS)
		return block_fail(ELOOP, "%s: redirected again and again", b->url.host);
	if (url_parse_address(b->entry->redirect, host, port) != 0)
		return block_fail(EPROTO, "redirected to '%s'", b->entry->redirect);
	if (resolve(host, port, &b->redirected, 1) < 0)
		return -EHOSTUNREACH;
	b->is_redirected = true;
	return 0;
}

/* ---- attempts ------------------------------------------------------------------------------- */

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

/* Over verbs the target fetches and brings data: but for what is so little that it goes with the command. */
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

static int prepare_entry(struct stag_block *b, const struct line_ops *ops)
{
	struct entry *e = b->entry = calloc(1, sizeof(*e));

	if (!e)
		return block_fail(ENOMEM, "no memory for a login");
	e->initiator = b->initiator;
	e->target = b->discovery ? NULL : b->url.target;
	e->user = or_null(b->url.user);
	e->secret = b->url.secret;
	e->peer_user = or_null(b->peer_user);
	e->peer_secret = or_null(b->peer_secret);
	e->wishes = ops->rdma ? rdma_wishes : wishes;
	e->wishes.keys.header_digest = b->header_digest ? DIGEST_CRC32C : DIGEST_NONE;
	e->wishes.keys.data_digest = b->data_digest ? DIGEST_CRC32C : DIGEST_NONE;
	memcpy(e->isid, b->isid, sizeof(e->isid));
	e->cmd_sn = 1;
	e->itt = LOGIN_TAG;
	entry_begin(e);
	return 0;
}

static const struct place *next_place(struct stag_block *b)
{
	if (!b->is_redirected)
		return &b->places[b->place++ % b->num_places];
	b->is_redirected = false; /* the next loss leads back to the beginning */
	return &b->redirected;
}

/* Who does not speak a transport may say nothing at all: where there are others, they get their share of the time. */
static uint64_t patience(const struct stag_block *b)
{
	uint64_t share = b->timeout_ns / NUM_LINES;

	if (b->ever_live || !b->candidates[1])
		return b->timeout_ns;
	return share < MAX_PATIENCE ? share : MAX_PATIENCE;
}

static int attempt(struct stag_block *b)
{
	const struct line_ops *ops = *b->candidates;
	const struct place *p = next_place(b);
	int rc;

	b->was_connected = false;
	free(b->entry);
	rc = prepare_entry(b, ops);
	if (rc == 0)
		rc = ops->open(b, (const struct sockaddr *)&p->addr, p->len, &b->line);
	if (rc != 0)
		return rc;
	initiator_set_state(b, INIT_CONNECTING);
	b->attempt_end = b->now + patience(b);
	return 0;
}

/* ---- losses ------------------------------------------------------------------------------------ */

static void give_up(struct stag_block *b)
{
	initiator_set_state(b, INIT_GONE);
	io_fail_all(b, ENODEV);
	if (b->ever_live)
		log_warn("block %s: lost for good: %s", b->url.target, b->words);
}

static void plan_attempt(struct stag_block *b)
{
	b->next_attempt = b->now + b->backoff;
	b->backoff = b->backoff ? 2 * b->backoff : FIRST_BACKOFF;
	if (b->backoff > MAX_BACKOFF)
		b->backoff = MAX_BACKOFF;
}

static void keep_words(struct stag_block *b, int error)
{
	/* The line's own errors come without words. */
	if (error == ECONNREFUSED || error == ECONNRESET || error == EPIPE || error == ETIMEDOUT ||
	    error == EHOSTUNREACH || error == ENETUNREACH || error == ESHUTDOWN)
		block_fail(error, "%s:%s: %s", b->url.host, b->url.port, strerror(error));
	snprintf(b->words, sizeof(b->words), "%s", stag_block_error());
	b->error = error;
}

/* To the next transport: one over verbs only if there was a connection over verbs at all. False: there is none. */
static bool fall_back(struct stag_block *b)
{
	const struct line_ops **next = b->candidates + 1;

	while (*next && (*next)->rdma && !b->was_connected)
		next++;
	if (!*next)
		return false;
	log_warn("block %s:%s: no %s, now %s is tried: %s", b->url.host, b->url.port,
		 (*b->candidates)->name, (*next)->name, b->words);
	b->candidates = next;
	return true;
}

int initiator_settle(struct stag_block *b, const char *why)
{
	const struct line_ops *next = b->candidates[1];

	if (!next || !next->rdma)
		return block_fail(EPROTONOSUPPORT, "%s:%s: no %s: %s", b->url.host, b->url.port,
				  (*b->candidates)->name, why);
	log_warn("block %s:%s: no %s, but %s: %s", b->url.host, b->url.port, (*b->candidates)->name,
		 next->name, why);
	b->line->ops = *++b->candidates;
	return 0;
}

/* Is there another way to a target that was never reached? */
static bool has_another_way(struct stag_block *b, int error)
{
	if (error == EREMCHG)
		return true;
	if (b->ever_live)
		return false;
	if (error == EACCES || error == ENOENT)
		return false;
	if (b->place < b->num_places)
		return true;
	b->place = 0;
	return fall_back(b);
}

static void lost(struct stag_block *b, int error)
{
	bool was_live = b->state == INIT_LIVE;

	b->info.counters.lost += was_live || b->state == INIT_PROBE;
	keep_words(b, error);
	if (b->line)
		b->line->ops->close(b->line);
	b->line = NULL;
	b->probing = false;
	b->pause_end = b->pinged = b->attempt_end = 0;
	b->abort_step = ABORT_NONE;
	io_lost(b);
	if (b->state != INIT_DOWN)
		initiator_set_state(b, INIT_DOWN);
	if (was_live) {
		b->give_up = b->now + b->retry_ns;
		log_info("block %s: connection lost: %s", b->url.target, b->words);
	}
	if (b->ever_live ? !b->retries || b->now >= b->give_up : !has_another_way(b, error))
		give_up(b);
	else
		plan_attempt(b);
}

/* The line's, or a login's end: where it leads. */
static void line_failed(struct stag_block *b, int rc)
{
	if (rc == -EREMCHG) {
		int followed = follow_redirect(b);

		if (followed != 0)
			rc = followed;
		else
			b->backoff = 0;
	}
	lost(b, -rc);
}

/* ---- time ----------------------------------------------------------------------------------------- */

static int ping(struct stag_block *b)
{
	struct pdu p = {.opcode = NOP_OUT, .flags = PDU_FINAL, .itt = PING_TAG, .ttt = TAG_NONE};

	b->pinged = b->now;
	return initiator_send(b, &p, NULL, 0);
}

static int watch_line(struct stag_block *b)
{
	if (b->attempt_end && b->now >= b->attempt_end)
		return -ETIMEDOUT;
	if (b->pause_end && b->now >= b->pause_end)
		b->pause_end = 0;
	if (b->state != INIT_LIVE)
		return 0;
	if (b->pinged && b->now - b->pinged >= b->ping_ns)
		return -ETIMEDOUT;
	if (!b->pinged && b->now - b->heard >= b->ping_ns && ping(b) != 0)
		return -ENOMEM;
	return abort_watch(b);
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
		return b->next_attempt;
	if (b->state != INIT_LIVE)
		return b->attempt_end;
	return sooner(abort_alarm(b),
		      sooner(b->pause_end, (b->pinged ? b->pinged : b->heard) + b->ping_ns));
}

/* Each PDU that is heard moves the alarm away: it is set anew when it rings, not before. */
static void set_alarm(struct stag_block *b)
{
	uint64_t at = next_alarm(b);
	struct itimerspec t = {.it_value = {(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)}};

	if (at == b->alarm || (at && b->alarm && b->alarm < at && b->now < b->alarm))
		return;
	b->alarm = at;
	timerfd_settime(b->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

static int send_some(struct stag_block *b)
{
	int rc = io_launch(b);

	return rc == 0 ? b->line->ops->flush(b->line) : rc;
}

static int go_on(struct stag_block *b)
{
	int rc;

	if (b->state == INIT_DOWN)
		return b->now >= b->next_attempt ? attempt(b) : 0;
	rc = b->line->ops->poll(b->line);
	if (rc == 0)
		rc = watch_line(b);
	return rc == 0 ? send_some(b) : rc;
}

void initiator_step(struct stag_block *b)
{
	int rc;

	b->now = clock_ns();
	if (b->state != INIT_GONE) {
		rc = go_on(b);
		if (rc != 0)
			line_failed(b, rc);
	}
	set_alarm(b);
}

int initiator_sleep(struct stag_block *b, int timeout_ms)
{
	struct epoll_event e;
	int n;

	if (b->line && b->line->ops->arm && b->line->ops->arm(b->line) != 0)
		return 0;
	n = epoll_wait(b->epoll, &e, 1, timeout_ms);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n ? 0 : -ETIMEDOUT;
}

static int left_ms(uint64_t end)
{
	uint64_t now = clock_ns();

	return now >= end ? 0 : (int)((end - now + NS_PER_MS - 1) / NS_PER_MS);
}

/* ---- making one --------------------------------------------------------------------------------------- */

static int take_word(char *to, size_t size, const char *word)
{
	if (word && strlen(word) >= size)
		return block_fail(EINVAL, "a name or secret of %zu bytes", strlen(word));
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
	if (!*b->url.user != !*b->url.secret)
		return block_fail(EINVAL, "a user has a secret, and a secret a user");
	if (*b->peer_secret && !*b->url.user)
		return block_fail(EINVAL, "who wants a proof of the target gives one: a user");
	if (*b->peer_secret && strcmp(b->peer_secret, b->url.secret) == 0)
		return block_fail(EINVAL, "both sides have the same secret");
	if (*b->peer_user && !*b->peer_secret)
		return block_fail(EINVAL, "the target's user has a secret");
	return 0;
}

static void choose_lines(struct stag_block *b)
{
	static const struct line_ops *const all[NUM_LINES] = {&one_shot_line, &iser_line,
							      &tcp_line};
	unsigned int n = 0;

	for (unsigned int i = 0; i < NUM_LINES; i++)
		if (b->url.transport == STAG_BLOCK_BEST || b->url.transport == all[i]->kind)
			b->lines[n++] = all[i];
	b->candidates = b->lines;
}

static int take_attr(struct stag_block *b, const struct stag_block_attr *a)
{
	int timeout = a->timeout_ms ? a->timeout_ms : TIMEOUT_MS;
	int retry = a->retry_ms ? a->retry_ms : RETRY_MS;
	int command = a->command_ms ? a->command_ms : COMMAND_MS;
	int rc;

	if (a->comp_mask || a->transport > STAG_BLOCK_ONE_SHOT || a->depth > INITIATOR_MAX_DEPTH ||
	    timeout < 0)
		return block_fail(EINVAL, "an attribute is out of its range");
	if (a->transport != STAG_BLOCK_BEST)
		b->url.transport = a->transport;
	b->depth = a->depth ? a->depth : INITIATOR_DEPTH;
	b->timeout_ns = (uint64_t)timeout * NS_PER_MS;
	b->retries = retry > 0;
	b->retry_ns = retry > 0 ? (uint64_t)retry * NS_PER_MS : 0;
	b->ping_ns = PING_NS;
	b->abort_ns = ABORT_NS;
	b->command_ns = command > 0 ? (uint64_t)command * NS_PER_MS : 0;
	b->header_digest = a->header_digest;
	b->data_digest = a->data_digest;
	make_name(b->initiator, sizeof(b->initiator));
	rc = take_word(b->initiator, sizeof(b->initiator), a->initiator);
	if (rc == 0 && !text_is_name(b->initiator))
		rc = block_fail(EINVAL, "'%s' is no initiator's name", b->initiator);
	if (rc == 0)
		rc = take_word(b->url.user, WORD_MAX, a->user);
	if (rc == 0)
		rc = take_word(b->url.secret, WORD_MAX, a->secret);
	if (rc == 0)
		rc = take_word(b->peer_user, WORD_MAX, a->peer_user);
	if (rc == 0)
		rc = take_word(b->peer_secret, WORD_MAX, a->peer_secret);
	return rc == 0 ? check_secrets(b) : rc;
}

static int make_commands(struct stag_block *b)
{
	b->cmds = calloc(b->depth + 1, sizeof(*b->cmds));
	if (!b->cmds)
		return block_fail(ENOMEM, "no memory for commands");
	for (uint32_t i = 0; i <= b->depth; i++) {
		b->cmds[i].index = (uint16_t)i;
		b->cmds[i].itt = TAG_NONE;
		list_init(&b->cmds[i].link);
		if (i < b->depth)
			list_add_tail(&b->spare, &b->cmds[i].link);
	}
	return 0;
}

static int make_descriptors(struct stag_block *b)
{
	struct epoll_event e = {.events = EPOLLIN};

	b->epoll = epoll_create1(EPOLL_CLOEXEC);
	b->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (b->epoll < 0 || b->timer < 0 || epoll_ctl(b->epoll, EPOLL_CTL_ADD, b->timer, &e) != 0)
		return block_fail(errno, "no descriptors: %s", strerror(errno));
	return 0;
}

/* A random one (RFC 7143 §11.12.5): the same for all logins, so that each ends the session before. */
static void make_isid(struct stag_block *b)
{
	uint32_t a = random_u32();

	b->isid[0] = 0x80;
	memcpy(b->isid + 1, &a, sizeof(a));
	b->isid[5] = (uint8_t)random_u32();
}

static void init_lists(struct stag_block *b)
{
	struct list *lists[] = {&b->spare, &b->under_way, &b->again, &b->queue, &b->done, &b->lent};

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
		return block_fail(ENOMEM, "no memory for an initiator");
	init_lists(b);
	b->epoll = b->timer = -1;
	b->discovery = !whole;
	make_isid(b);
	rc = url_parse(url, whole, &b->url);
	if (rc == 0)
		rc = take_attr(b, attr ? attr : &plain);
	if (rc == 0)
		choose_lines(b);
	if (rc == 0)
		rc = make_commands(b);
	if (rc == 0)
		rc = make_descriptors(b);
	if (rc == 0)
		rc = resolve(b->url.host, b->url.port, b->places, MAX_PLACES);
	if (rc < 0) {
		initiator_destroy(b);
		return rc;
	}
	b->num_places = (unsigned int)rc;
	*out = b;
	return 0;
}

void initiator_destroy(struct stag_block *b)
{
	if (b->line)
		b->line->ops->close(b->line);
	b->line = NULL;
	if (b->cmds) {
		io_lost(b);
		io_fail_all(b, ECANCELED);
	}
	io_drop(b);
	list_for_each_safe (it, &b->lent) {
		list_del(it);
		free(list_entry(it, struct lent, link));
	}
	if (b->epoll >= 0)
		close(b->epoll);
	if (b->timer >= 0)
		close(b->timer);
	explicit_bzero(b->url.secret, sizeof(b->url.secret));
	explicit_bzero(b->peer_secret, sizeof(b->peer_secret));
	free(b->entry);
	free(b->cmds);
	free(b);
}

int initiator_bring_up(struct stag_block *b)
{
	uint64_t end = clock_ns() + b->timeout_ns;

	for (;;) {
		initiator_step(b);
		if (b->state == INIT_LIVE)
			return 0;
		if (b->state == INIT_GONE)
			return block_fail(b->error, "%s", b->words);
		if (clock_ns() >= end)
			return block_fail(ETIMEDOUT, "%s:%s does not answer", b->url.host,
					  b->url.port);
		initiator_sleep(b, left_ms(end));
	}
}

void initiator_log_out(struct stag_block *b)
{
	struct pdu p = {
		.opcode = LOGOUT_REQUEST, .flags = PDU_FINAL | LOGOUT_SESSION, .itt = LOGOUT_TAG};
	uint64_t end = clock_ns() + (b->timeout_ns < LOGOUT_NS ? b->timeout_ns : LOGOUT_NS);

	if (b->state != INIT_LIVE || initiator_send(b, &p, NULL, 0) != 0)
		return;
	b->info.counters.logouts++;
	while (b->state == INIT_LIVE && !b->logged_out && clock_ns() < end) {
		initiator_step(b);
		if (b->state == INIT_LIVE && !b->logged_out)
			initiator_sleep(b, left_ms(end));
	}
}

/* ---- public ---------------------------------------------------------------------------------------------- */

STAG_EXPORT struct stag_block *stag_block_open(const char *url, const struct stag_block_attr *attr)
{
	struct stag_block *b;
	int rc = initiator_create(url, true, attr, &b);

	if (rc == 0) {
		rc = initiator_bring_up(b);
		if (rc != 0)
			initiator_destroy(b);
	}
	if (rc == 0)
		return b;
	errno = -rc;
	return NULL;
}

STAG_EXPORT void stag_block_close(struct stag_block *b)
{
	if (!b)
		return;
	initiator_log_out(b);
	initiator_destroy(b);
}

STAG_EXPORT int stag_block_query(struct stag_block *b, struct stag_block_info *info, size_t size)
{
	struct stag_block_info now = b->info;

	snprintf(now.target, sizeof(now.target), "%s", b->url.target);
	memset(info, 0, size);
	memcpy(info, &now, size < sizeof(now) ? size : sizeof(now));
	return 0;
}

static struct lent *find_lent(struct stag_block *b, const void *addr)
{
	list_for_each (it, &b->lent) {
		struct lent *l = list_entry(it, struct lent, link);

		if (l->addr == addr)
			return l;
	}
	return NULL;
}

STAG_EXPORT int stag_block_lend(struct stag_block *b, void *addr, size_t length)
{
	struct lent *l;
	int rc;

	if (!addr || !length)
		return EINVAL;
	if (find_lent(b, addr))
		return EEXIST;
	l = malloc(sizeof(*l));
	if (!l)
		return ENOMEM;
	*l = (struct lent){.addr = addr, .length = length};
	rc = b->line && b->line->ops->lend ? b->line->ops->lend(b->line, l) : 0;
	if (rc != 0) {
		free(l);
		return -rc;
	}
	list_add_tail(&b->lent, &l->link);
	return 0;
}

static bool request_uses(const struct request *r, const struct lent *l)
{
	for (int i = 0; r && i < r->n_iov; i++) {
		const uint8_t *at = r->iov[i].iov_base;

		if (at < l->addr + l->length && at + r->iov[i].iov_len > l->addr)
			return true;
	}
	return false;
}

STAG_EXPORT int stag_block_unlend(struct stag_block *b, void *addr)
{
	struct lent *l = find_lent(b, addr);

	if (!l)
		return ENOENT;
	for (uint32_t i = 0; i < b->depth; i++)
		if (request_uses(b->cmds[i].request, l))
			return EBUSY;
	list_for_each (it, &b->queue)
		if (request_uses(list_entry(it, struct request, link), l))
			return EBUSY;
	if (b->line && b->line->ops->unlend)
		b->line->ops->unlend(b->line, l);
	list_del(&l->link);
	free(l);
	return 0;
}

/* Nothing is under way: so nothing has come that had to be looked at first. */
static void start(struct stag_block *b)
{
	int rc;

	if (b->state != INIT_LIVE) {
		initiator_step(b);
		return;
	}
	b->now = clock_ns();
	rc = send_some(b);
	if (rc != 0)
		line_failed(b, rc);
}

/* What is alone goes out at once; else whoever reaps the others sends it, together with more. */
STAG_EXPORT int stag_block_submit(struct stag_block *b, const struct stag_block_io *io)
{
	int rc;

	if (b->state == INIT_GONE)
		return -block_fail(ENODEV, "%s", b->words);
	rc = io_check(b, io);
	if (rc == 0)
		rc = io_queue(b, io);
	if (rc == 0 && b->num_under_way == 0)
		start(b);
	return -rc;
}

static int deliver(struct stag_block *b, struct stag_block_done *done, int n)
{
	int given = 0;

	while (given < n && !list_empty(&b->done)) {
		struct request *r = list_entry(b->done.next, struct request, link);

		done[given++] = (struct stag_block_done){r->user, r->error, r->sense};
		list_del(&r->link);
		free(r);
	}
	return given;
}

STAG_EXPORT int stag_block_poll(struct stag_block *b, struct stag_block_done *done, int n)
{
	int given = deliver(b, done, n);

	if (given == n)
		return given;
	do {
		initiator_step(b);
		given += deliver(b, done + given, n - given);
	} while (given == 0 && b->wakes_fd && b->line && b->line->ops->arm &&
		 b->line->ops->arm(b->line) != 0);
	return given;
}

STAG_EXPORT int stag_block_wait(struct stag_block *b, int timeout_ms)
{
	uint64_t end = timeout_ms < 0 ? 0 : clock_ns() + (uint64_t)timeout_ms * NS_PER_MS;

	for (;;) {
		initiator_step(b);
		if (!list_empty(&b->done))
			return 0;
		if (b->state == INIT_GONE)
			return ENODEV;
		if (end && clock_ns() >= end)
			return ETIMEDOUT;
		initiator_sleep(b, end ? left_ms(end) : -1);
	}
}

STAG_EXPORT int stag_block_fd(struct stag_block *b)
{
	b->wakes_fd = true;
	return b->epoll;
}

/* ---- one at a time ---------------------------------------------------------------------------------------- */

/* Its own request ends up in done like all others; theirs stay there. */
static int take_own(struct stag_block *b, const void *mark, int *error)
{
	list_for_each (it, &b->done) {
		struct request *r = list_entry(it, struct request, link);

		if (r->user != mark)
			continue;
		*error = r->error;
		list_del(it);
		free(r);
		return 1;
	}
	return 0;
}

static int one(struct stag_block *b, struct stag_block_io *io)
{
	int error, rc;

	io->user = &error; /* no other's */
	rc = stag_block_submit(b, io);
	if (rc != 0)
		return rc;
	while (!take_own(b, &error, &error)) {
		initiator_step(b);
		if (take_own(b, &error, &error))
			break;
		initiator_sleep(b, -1);
	}
	if (error)
		block_fail(error, "%s: %s", b->url.target, strerror(error));
	return error;
}

STAG_EXPORT int stag_block_read(struct stag_block *b, void *to, uint64_t offset, size_t length)
{
	struct iovec iov = {to, length};
	struct stag_block_io io = {
		.op = STAG_BLOCK_READ, .offset = offset, .length = length, .iov = &iov, .n_iov = 1};

	return one(b, &io);
}

STAG_EXPORT int stag_block_write(struct stag_block *b, const void *from, uint64_t offset,
				 size_t length, unsigned int flags)
{
	struct iovec iov = {(void *)(uintptr_t)from, length};
	struct stag_block_io io = {.op = STAG_BLOCK_WRITE,
				   .flags = flags,
				   .offset = offset,
				   .length = length,
				   .iov = &iov,
				   .n_iov = 1};

	return one(b, &io);
}

STAG_EXPORT int stag_block_flush(struct stag_block *b)
{
	struct stag_block_io io = {.op = STAG_BLOCK_FLUSH};

	return one(b, &io);
}
