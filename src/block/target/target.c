// SPDX-License-Identifier: BSD-2-Clause
/*
 * target.c - a target: creation, and the event loop of its thread.
 *
 * The thread serves sockets, verbs and units in turn, and waits when there is no work (wait.c). PDUs that are queued to
 * a connection during a round are sent together at its end.
 */
#include "block/target/target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"

#define EVENTS	      64
#define ROUNDS	      64 /* of one step, before the thread looks at descriptors again */
#define SPIN_US	      50
#define TICK_NS	      (NS_PER_S / 2)
#define STANDSTILL_NS (2 * NS_PER_S) /* between two rounds: much longer than the thread sleeps */
#define MAX_SESSIONS  1024
#define STAGING_BYTES (64ull << 20)
#define LINE	      512
#define MAX_LUN	      16383 /* of flat space addresses (SAM-5) */

/* ---- epoll ----------------------------------------------------------------------------- */

static int epoll_control(struct stag_block_target *t, int op, struct target_watch *w,
			 uint32_t events)
{
	struct epoll_event e = {.events = events, .data = {.ptr = w}};

	return epoll_ctl(t->loop.epoll, op, w->fd, &e) == 0 ? 0 : -errno;
}

int target_watch(struct stag_block_target *t, struct target_watch *w, uint32_t events)
{
	return epoll_control(t, EPOLL_CTL_ADD, w, events);
}

int target_rewatch(struct stag_block_target *t, struct target_watch *w, uint32_t events)
{
	return epoll_control(t, EPOLL_CTL_MOD, w, events);
}

void target_unwatch(struct stag_block_target *t, struct target_watch *w)
{
	epoll_control(t, EPOLL_CTL_DEL, w, 0);
}

/* ---- a turn ---------------------------------------------------------------------------------- */

static void unpark_conns(struct stag_block_target *t)
{
	t->conns.unpark_due = false;
	list_for_each_safe (it, &t->conns.list) {
		struct target_conn *c = list_entry(it, struct target_conn, link);

		if (c->state == CONN_PARKED)
			target_conn_unpark(c);
	}
}

static void flush_conns(struct stag_block_target *t)
{
	struct list now;

	if (list_empty(&t->conns.dirty))
		return;
	/* Connections that become dirty during this are flushed in the next round. */
	now = t->conns.dirty;
	now.next->prev = now.prev->next = &now;
	list_init(&t->conns.dirty);
	while (!list_empty(&now)) {
		struct target_conn *c = list_entry(now.next, struct target_conn, dirty);

		list_del(&c->dirty);
		c->ops->flush(c);
	}
}

static void free_dead_conns(struct stag_block_target *t)
{
	if (list_empty(&t->conns.dead))
		return;
	while (!list_empty(&t->conns.dead)) {
		struct target_conn *c = list_entry(t->conns.dead.next, struct target_conn, link);

		list_del(&c->link);
		c->ops->free(c);
	}
	target_portal_resume(t);
}

/*
 * After the process was stopped, or had no processor, initiators had no chance to meet the time limits: what they sent is not read
 * yet. That time is not counted.
 */
static bool stood_still(struct stag_block_target *t)
{
	uint64_t lost = t->loop.now - t->loop.served;

	t->loop.served = t->loop.now;
	if (lost < STANDSTILL_NS)
		return false;
	target_log(t, "the target stood still for %u ms", (unsigned int)(lost / NS_PER_MS));
	list_for_each (it, &t->conns.list)
		target_conn_forgive(list_entry(it, struct target_conn, link), lost);
	return true;
}

static void on_grown(void *arg, uint16_t lun, uint64_t size)
{
	target_log(arg, "LUN %u has grown to %llu bytes; initiators are notified", lun,
		   (unsigned long long)size);
}

static void tick(struct stag_block_target *t)
{
	bool skip = stood_still(t);

	if (!skip && t->loop.now < t->loop.next_tick)
		return;
	t->loop.next_tick = t->loop.now + TICK_NS;
	if (skip)
		return;
	t->buffers.scarce = target_buffers_starve(t, t->loop.now - t->config.limits.starved_ns);
	list_for_each_safe (it, &t->conns.list)
		target_conn_tick(list_entry(it, struct target_conn, link), t->loop.now);
	target_strangers_tick(t);
	target_portal_resume(t);
	scsi_target_follow_growth(t->scsi, on_grown, t);
}

static bool is_due(const struct stag_block_target *t)
{
	return !list_empty(&t->conns.dirty) || t->tasks.tmf_due || t->conns.unpark_due ||
	       (t->buffers.returned && !list_empty(&t->buffers.waiters));
}

/* Serves units, buffers, task management and connections. Returns true if there is more to do. */
static bool serve_all(struct stag_block_target *t)
{
	bool more = true;

	t->loop.now = clock_ns();
	tick(t);
	for (int i = 0; i < ROUNDS && more; i++) {
		more = units_poll(t->units) > 0;
		if (t->buffers.returned && !list_empty(&t->buffers.waiters))
			target_buffers_serve(t);
		if (t->tasks.tmf_due)
			target_tmf_finish_ready(t);
		if (t->conns.unpark_due)
			unpark_conns(t);
		if (!list_empty(&t->tls.waiting))
			target_tls_serve(t);
		flush_conns(t);
		more |= target_rdma_poll(t) > 0;
		more |= is_due(t);
	}
	free_dead_conns(t);
	return more;
}

void target_step(struct stag_block_target *t, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	bool more = serve_all(t);
	int n = target_wait_events(t, events, EVENTS, more ? 0 : target_tls_sleep(t, timeout_ms));

	t->loop.now = clock_ns();
	for (int i = 0; i < n; i++) {
		struct target_watch *w = events[i].data.ptr;

		w->ready(w, events[i].events);
	}
	serve_all(t);
}

/* ---- strings ----------------------------------------------------------------------------------- */

void target_log(struct stag_block_target *t, const char *fmt, ...)
{
	char line[LINE];
	va_list args;

	if (!t->config.log && log_level < LOG_LEVEL_INFO)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	make_printable(line);
	if (t->config.log)
		t->config.log(t->config.log_arg, line);
	else
		log_info("block: %s", line);
}

static bool copy_string(struct stag_block_target *t, const char **word)
{
	char **place = t->config.words;

	if (!*word)
		return true;
	while (*place)
		place++;
	*word = *place = strdup(*word);
	return *place;
}

/* ---- creation ------------------------------------------------------------------------------------- */

static bool has_a_user(const struct stag_block_target_attr *a)
{
	uint32_t n = a->comp_mask & STAG_BLOCK_TARGET_RIGHTS ? a->num_rights : 0;

	for (uint32_t i = 0; i < n; i++)
		if (a->rights[i].user)
			return true;
	return a->user;
}

static int check_secrets(const struct stag_block_target_attr *a)
{
	if (!a->user != !a->secret || !a->own_user != !a->own_secret)
		return block_fail(EINVAL, "CHAP: user and secret must be set together");
	if (a->own_user && !has_a_user(a))
		return block_fail(EINVAL, "CHAP: own_user and own_secret require user and secret, "
					  "of the target or of a right");
	if ((a->secret && strlen(a->secret) < CHAP_MIN_SECRET) ||
	    (a->own_secret && strlen(a->own_secret) < CHAP_MIN_SECRET))
		return block_fail(EINVAL, "CHAP: a secret must have at least %d characters",
				  CHAP_MIN_SECRET);
	if (a->secret && a->own_secret && strcmp(a->secret, a->own_secret) == 0)
		return block_fail(EINVAL, "CHAP: secret and own_secret must differ");
	return 0;
}

static int check_attr(const struct stag_block_target_attr *a)
{
	const uint32_t flags = STAG_BLOCK_ANY_PORT | STAG_BLOCK_NO_TCP | STAG_BLOCK_NO_RDMA |
			       STAG_BLOCK_NO_ONE_SHOT | STAG_BLOCK_NO_SPIN;

	if (!a ||
	    (a->comp_mask &
	     ~(STAG_BLOCK_TARGET_RIGHTS | STAG_BLOCK_TARGET_STATE | STAG_BLOCK_TARGET_TLS)) ||
	    (a->flags & ~flags))
		return block_fail(EINVAL, "target: invalid attributes");
	if (!a->name || !iscsi_text_is_name(a->name))
		return block_fail(EINVAL, "'%s' is not an iSCSI name (iqn., eui. or naa.)",
				  a->name ? a->name : "");
	return check_secrets(a);
}

static const struct key_wishes wishes = {
	.keys = {.header_digest = DIGEST_CRC32C,
		 .data_digest = DIGEST_CRC32C,
		 .max_connections = 1,
		 .initial_r2t = 0,
		 .immediate_data = 1,
		 .max_burst = DATA_MAX / 512 * 512,
		 .first_burst = UNITS_BUFFER,
		 .time2wait = 2,
		 .time2retain = 0,
		 .max_r2t = TASK_PIECES,
		 .pdu_in_order = 1,
		 .sequence_in_order = 1,
		 .recovery_level = 0,
		 .protocol_level = 1},
	.own_recv_max = UNITS_BUFFER,
};

static const struct target_limits limits = {.login_ns = 15 * NS_PER_S,
					    .slow_login_ns = NS_PER_S,
					    .ping_ns = 30 * NS_PER_S,
					    .answer_ns = 30 * NS_PER_S,
					    .data_ns = 60 * NS_PER_S,
					    .scarce_ns = 5 * NS_PER_S,
					    .starved_ns = NS_PER_S,
					    .close_ns = 2 * NS_PER_S};

/* Data goes by RDMA, so sends are small, except for logins. */
static const struct key_wishes rdma_wishes = {
	.keys = {.max_connections = 1,
		 .initial_r2t = 1,
		 .immediate_data = 0,
		 .max_burst = DATA_MAX / 512 * 512,
		 .first_burst = 512,
		 .time2wait = 2,
		 .time2retain = 0,
		 .max_r2t = TASK_PIECES,
		 .pdu_in_order = 1,
		 .sequence_in_order = 1,
		 .recovery_level = 0,
		 .protocol_level = 1,
		 .rdma_extensions = 1,
		 .target_recv = 512,
		 .initiator_recv = 8192,
		 .max_unexpected = SESSION_IMMEDIATE},
	.own_recv_max = 512,
	.rdma = true,
};

static bool copy_strings(struct stag_block_target *t)
{
	return copy_string(t, &t->config.rules.target) && copy_string(t, &t->config.rules.alias) &&
	       copy_string(t, &t->config.rules.user) && copy_string(t, &t->config.rules.secret) &&
	       copy_string(t, &t->config.rules.own_user) &&
	       copy_string(t, &t->config.rules.own_secret);
}

static int set_rules(struct stag_block_target *t, const struct stag_block_target_attr *a)
{
	int rc;

	t->config.rules = (struct target_login_rules){.target = a->name,
						      .alias = a->alias,
						      .user = a->user,
						      .secret = a->secret,
						      .own_user = a->own_user,
						      .own_secret = a->own_secret,
						      .wishes = wishes};
	if (!copy_strings(t))
		return block_fail(ENOMEM, "out of memory");
	rc = target_rights_create(a, &t->config.rules);
	t->config.rdma_rules = t->config.rules;
	t->config.rdma_rules.wishes = rdma_wishes;
	return rc;
}

static void free_rules(struct target_login_rules *rules, char *words[TARGET_WORDS])
{
	target_rights_destroy(rules);
	for (unsigned int i = 0; i < TARGET_WORDS; i++)
		free(words[i]);
}

static void wipe(const char *secret)
{
	if (secret)
		explicit_bzero((char *)(uintptr_t)secret, strlen(secret));
}

static void wipe_secrets(const struct target_login_rules *rules)
{
	wipe(rules->secret);
	wipe(rules->own_secret);
	for (uint32_t i = 0; i < rules->num_rights; i++)
		wipe(rules->rights[i].secret);
}

int target_replace_rules(struct stag_block_target *t, const struct stag_block_target_attr *attr)
{
	struct target_replaced *old = malloc(sizeof(*old));
	struct stag_block_target_attr a = *attr;
	int rc;

	if (!old)
		return block_fail(ENOMEM, "out of memory");
	*old = (struct target_replaced){.rules = t->config.rules};
	memcpy(old->words, t->config.words, sizeof(old->words));
	memset(t->config.words, 0, sizeof(t->config.words));
	a.name = old->rules.target;
	a.alias = old->rules.alias;
	rc = check_attr(&a);
	t->config.rules.rights = NULL;
	t->config.rules.num_rights = 0;
	if (rc == 0)
		rc = set_rules(t, &a);
	if (rc == 0)
		rc = target_tls_replace_keys(t);
	if (rc == 0) {
		wipe_secrets(&old->rules);
		list_add_tail(&t->config.replaced, &old->link);
		return 0;
	}
	free_rules(&t->config.rules, t->config.words);
	memcpy(t->config.words, old->words, sizeof(old->words));
	t->config.rules = t->config.rdma_rules = old->rules;
	t->config.rdma_rules.wishes = rdma_wishes;
	free(old);
	return rc;
}

/* Opens the directory for reservations that survive. */
static int open_state(struct stag_block_target *t, const struct stag_block_target_attr *a)
{
	if (!(a->comp_mask & STAG_BLOCK_TARGET_STATE) || !a->state)
		return 0;
	if (mkdir(a->state, 0700) == 0 || errno == EEXIST)
		t->state_dir = open(a->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->state_dir < 0)
		return block_fail(errno, "%s: cannot open the state directory: %s", a->state,
				  strerror(errno));
	scsi_target_keep(t->scsi, t->state_dir, a->name);
	return 0;
}

static void on_units(struct target_watch *w, uint32_t events)
{
	/* Nothing to do: every step polls the units. */
}

static void on_calls(struct target_watch *w, uint32_t events)
{
	uint64_t n;

	if (read(w->fd, &n, sizeof(n)) > 0)
		target_calls_run(w->target);
}

static int open_watches(struct stag_block_target *t)
{
	t->loop.epoll = epoll_create1(EPOLL_CLOEXEC);
	t->loop.units_watch =
		(struct target_watch){.ready = on_units, .fd = units_fd(t->units), .target = t};
	t->loop.call_watch = (struct target_watch){
		.ready = on_calls, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .target = t};
	if (t->loop.epoll < 0 || t->loop.call_watch.fd < 0 ||
	    target_watch(t, &t->loop.units_watch, EPOLLIN) != 0 ||
	    target_watch(t, &t->loop.call_watch, EPOLLIN) != 0)
		return block_fail(errno, "cannot set up epoll: %s", strerror(errno));
	return 0;
}

static struct stag_block_target *new_target(const struct stag_block_target_attr *attr)
{
	struct stag_block_target *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->config.limits = limits;
	t->config.max_sessions = attr->max_sessions ? attr->max_sessions : MAX_SESSIONS;
	target_wait_init(&t->loop.wait, attr->flags & STAG_BLOCK_NO_SPIN ? 0
					: attr->spin_us			 ? attr->spin_us
									 : SPIN_US);
	t->config.log = attr->log;
	t->config.log_arg = attr->log_arg;
	t->loop.epoll = t->loop.call_watch.fd = t->state_dir = -1;
	t->loop.now = t->loop.served = clock_ns();
	lock_init(&t->calls.lock);
	lock_init(&t->tls.lock);
	list_init(&t->config.replaced);
	list_init(&t->conns.list);
	list_init(&t->conns.dirty);
	list_init(&t->conns.dead);
	target_strangers_init(t);
	list_init(&t->sessions.list);
	list_init(&t->tasks.tmfs);
	list_init(&t->buffers.waiters);
	list_init(&t->tasks.spare);
	list_init(&t->tasks.spare_pieces);
	list_init(&t->calls.queue);
	list_init(&t->rdma.busy);
	list_init(&t->tls.waiting);
	return t;
}

int target_create(const struct stag_block_target_attr *attr, struct stag_block_target **out)
{
	uint64_t staging = attr && attr->staging_bytes ? attr->staging_bytes : STAGING_BYTES;
	struct stag_block_target *t;
	int rc = check_attr(attr);

	if (rc != 0)
		return rc;
	t = new_target(attr);
	if (!t)
		return block_fail(ENOMEM, "out of memory");
	rc = set_rules(t, attr);
	if (rc == 0)
		rc = target_tls_create(t, attr);
	if (rc == 0)
		rc = units_create(&t->units, staging);
	if (rc == 0)
		rc = scsi_target_create(&t->scsi);
	if (rc == 0)
		rc = open_state(t, attr);
	if (rc == 0)
		rc = target_stags_create(&t->stags);
	if (rc == 0)
		rc = open_watches(t);
	if (rc == 0 && !(attr->flags & STAG_BLOCK_NO_TCP))
		rc = target_portal_open(t, attr);
	if (rc == 0 && !(attr->flags & STAG_BLOCK_NO_RDMA))
		rc = target_rdma_open(t, attr);
	if (rc != 0) {
		target_destroy(t);
		return rc;
	}
	*out = t;
	return 0;
}

/* ---- its end ------------------------------------------------------------------------------------- */

static void close_unit(void *arg, struct lun *l)
{
	lun_close(l);
}

static void close_units(struct stag_block_target *t)
{
	for (unsigned int i = 0; i <= MAX_LUN; i++)
		if (scsi_target_find(t->scsi, (uint16_t)i))
			scsi_target_remove(t->scsi, (uint16_t)i, close_unit, NULL);
}

/* Frees a target that has no session left, or was never served. */
void target_destroy(struct stag_block_target *t)
{
	target_portal_close(t);
	target_rdma_destroy(t);
	target_tls_destroy(t);
	if (t->scsi) {
		close_units(t);
		scsi_target_destroy(t->scsi);
	}
	if (t->units)
		units_destroy(t->units);
	target_spare_free(t);
	target_stags_destroy(t->stags);
	if (t->loop.call_watch.fd >= 0)
		close(t->loop.call_watch.fd);
	if (t->loop.epoll >= 0)
		close(t->loop.epoll);
	if (t->state_dir >= 0)
		close(t->state_dir);
	lock_destroy(&t->calls.lock);
	lock_destroy(&t->tls.lock);
	free_rules(&t->config.rules, t->config.words);
	list_for_each_safe (it, &t->config.replaced) {
		struct target_replaced *r = list_entry(it, struct target_replaced, link);

		free_rules(&r->rules, r->words);
		free(r);
	}
	free(t);
}
