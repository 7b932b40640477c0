// SPDX-License-Identifier: BSD-2-Clause
/*
 * tls.c - whether and by which keys connections are encrypted: the calls of stagdv.h, or the environment; and how much
 * of the engine's time handshakes may take.
 */
#include "cm/cm.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "stag/stagdv.h"

/* ---- the environment --------------------------------------------------- */

static struct tls_context *env_context;
static int env_error;

static void make_env_context(void)
{
	const struct stag_config *cfg = config();
	struct tls_psk psk = {.len = 0};
	struct tls_config c = {.cert = cfg->tls_cert,
			       .key = cfg->tls_key,
			       .ca = cfg->tls_ca,
			       .name = cfg->tls_name,
			       .kernel = cfg->tls_kernel};
	char why[TLS_WHY_LEN] = "";

	if (cfg->tls_psk)
		env_error = tls_psk_read(cfg->tls_psk, &psk, why);
	if (psk.len) {
		c.identity = psk.identity;
		c.psk = psk.key;
		c.psk_len = psk.len;
	}
	if (!env_error)
		env_error = tls_context_create(&env_context, &c, why);
	explicit_bzero(&psk, sizeof(psk));
	if (env_error)
		log_err("STAG_TLS=%s: %s", tls_mode_name(cfg->tls), why);
}

int id_choose_tls(struct cm_id *id)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (id->tls.chosen || config()->tls == TLS_OFF)
		return 0;
	pthread_once(&once, make_env_context);
	if (env_error)
		return env_error;
	id->tls.mode = config()->tls;
	if (!id->tls.context)
		id->tls.context = tls_context_get(env_context);
	return 0;
}

void id_drop_tls(struct cm_id *id)
{
	tls_context_put(id->tls.context);
	id->tls.context = NULL;
}

bool tls_forbids_real(void)
{
	if (config()->tls != TLS_REQUIRED || !real_cm())
		return false;
	log_err("STAG_TLS=required: rdma-core and its adapters do not speak TLS");
	errno = EOPNOTSUPP;
	return true;
}

/* ---- stagdv.h ---------------------------------------------------------- */

STAG_EXPORT int stagdv_create_tls(struct stagdv_tls **out, const struct stagdv_tls_attr *a,
				  size_t size, char *why, size_t why_size)
{
	char reason[TLS_WHY_LEN] = "";
	struct tls_config c;
	int err;

	if (size < sizeof(*a))
		return EINVAL;
	c = (struct tls_config){.cert = a->cert,
				.key = a->key,
				.ca = a->ca,
				.name = a->name,
				.identity = a->identity,
				.psk = a->psk,
				.psk_len = a->psk_len,
				.find_psk = a->find_psk,
				.arg = a->arg,
				.kernel = a->kernel};
	err = tls_context_create((struct tls_context **)out, &c, reason);
	if (err && why_size) {
		strncpy(why, reason, why_size - 1);
		why[why_size - 1] = '\0';
	}
	return -err;
}

STAG_EXPORT void stagdv_destroy_tls(struct stagdv_tls *tls)
{
	tls_context_put((struct tls_context *)tls);
}

/* Gives an id that would connect on roce0, which has no TLS, the other device if it may use that. */
static int find_device_with_tls(struct cm_id *id)
{
	assert(engine_locked());
	if (id->face != FACE_ROCE || id->has_qp || !cm_may_use(id, FACE_IWARP))
		return 0; /* where TLS is required, connecting fails and says why */
	id->face = FACE_IWARP;
	return id->cm.verbs ? -id_bind_device(id) : 0;
}

static int set_tls(struct cm_id *id, struct tls_context *context, enum tls_mode mode)
{
	assert(engine_locked());
	if (id->state == ID_LISTENING || id->state >= ID_CONNECTING)
		return EINVAL;
	tls_context_get(context);
	id_drop_tls(id);
	id->tls = (struct id_tls){.mode = mode, .context = context, .chosen = true};
	return mode == TLS_OFF ? 0 : find_device_with_tls(id);
}

STAG_EXPORT int stagdv_set_tls(struct rdma_cm_id *id, struct stagdv_tls *tls,
			       enum stagdv_tls_mode mode)
{
	int err;

	if (mode > STAGDV_TLS_REQUIRED || (mode != STAGDV_TLS_OFF && !tls))
		return EINVAL;
	if (real_cm())
		return mode == STAGDV_TLS_OFF ? 0 : EOPNOTSUPP;
	engine_lock();
	err = set_tls(to_cm_id(id), (struct tls_context *)tls, (enum tls_mode)mode);
	engine_unlock();
	return err;
}

static void copy_info(const struct tls_info *info, struct stagdv_tls_info *out)
{
	*out = (struct stagdv_tls_info){.encrypted = info != NULL};
	if (!info)
		return;
	memcpy(out->version, info->version, sizeof(out->version));
	memcpy(out->cipher, info->cipher, sizeof(out->cipher));
	memcpy(out->peer, info->peer, sizeof(out->peer));
	out->by_key = info->psk;
	out->kernel = tls_kernel_bits(info);
}

static int query_tls(struct cm_id *id, struct stagdv_tls_info *out)
{
	struct stag_qp *qp;
	int err = ENOTCONN;

	assert(engine_locked());
	if (id->conn && id->conn->stream) {
		copy_info(stream_tls_info(id->conn->stream), out);
		return 0;
	}
	qp = id_qp(id);
	if (!qp)
		return ENOTCONN;
	qp_lock_both(qp);
	if (qp->stream) {
		copy_info(stream_tls_info(qp->stream), out);
		err = 0;
	}
	qp_unlock_both(qp);
	return err;
}

STAG_EXPORT int stagdv_query_tls(struct rdma_cm_id *id, struct stagdv_tls_info *out, size_t size)
{
	struct stagdv_tls_info info = {0};
	int err = 0;

	if (size < sizeof(info))
		return EINVAL;
	if (!real_cm()) {
		engine_lock();
		err = query_tls(to_cm_id(id), &info);
		engine_unlock();
	}
	if (!err)
		*out = info;
	return err;
}

/* ---- the engine's time ------------------------------------------------- */

/*
 * A handshake costs this side more than a stranger who begins one. Strangers' handshakes get a quarter of the time, and
 * BURST at once after a pause. Those that have to wait are served by turns of their sources.
 */
#define SHARE	   4
#define BURST_NS   ((int64_t)(20 * NS_PER_MS))
#define LOOK_AGAIN (2 * NS_PER_MS)

static struct {
	int64_t credit; /* ns; negative: the last one took longer than there was time */
	uint64_t counted;
	unsigned
		age; /* the engine's: those that waited in a forked child's parent are its business */
	struct list sources; /* source.shake_turn, in their turn; nobody overtakes them */
	struct conn *turn;   /* whose turn it is */
	struct timer timer;
	void (*fn)(struct conn *c);
} shakes = {.sources = {&shakes.sources, &shakes.sources}, .credit = BURST_NS};

static bool has_credit(void)
{
	uint64_t now = clock_ns();

	if (shakes.counted)
		shakes.credit += (int64_t)((now - shakes.counted) / SHARE);
	shakes.counted = now;
	if (shakes.credit > BURST_NS)
		shakes.credit = BURST_NS;
	return shakes.credit > 0;
}

bool handshake_waits(const struct conn *c)
{
	return !list_empty(&c->shake_link);
}

void handshake_leave(struct conn *c)
{
	assert(engine_locked());
	if (!handshake_waits(c))
		return;
	list_del(&c->shake_link);
	if (list_empty(&c->source->shakes))
		list_del(&c->source->shake_turn);
}

static void join_line(struct conn *c)
{
	struct source *s = c->source;

	if (list_empty(&s->shakes))
		list_add_tail(&shakes.sources, &s->shake_turn);
	list_add_tail(&s->shakes, &c->shake_link);
}

/* Takes the oldest of the source whose turn it is off the line; the source's next turn comes after all others'. */
static struct conn *next_in_line(void)
{
	struct source *s = list_entry(shakes.sources.next, struct source, shake_turn);
	struct conn *c = list_entry(s->shakes.next, struct conn, shake_link);

	list_del(&s->shake_turn);
	list_add_tail(&shakes.sources, &s->shake_turn);
	handshake_leave(c);
	return c;
}

static void forget_older(void)
{
	if (shakes.age == engine_age())
		return;
	while (!list_empty(&shakes.sources))
		next_in_line();
	shakes.turn = NULL;
	shakes.age = engine_age();
}

static void run_waiting(struct timer *t)
{
	forget_older();
	while (!list_empty(&shakes.sources) && has_credit()) {
		shakes.turn = next_in_line();
		shakes.fn(shakes.turn);
		shakes.turn = NULL;
	}
	if (!list_empty(&shakes.sources))
		timer_set(t, clock_ns() + LOOK_AGAIN, run_waiting);
}

bool handshake_may_run(struct conn *c, void (*fn)(struct conn *c))
{
	assert(engine_locked());
	forget_older();
	if (c == shakes.turn || (list_empty(&shakes.sources) && has_credit()))
		return true;
	if (handshake_waits(c))
		return false;
	shakes.fn = fn;
	if (list_empty(&shakes.sources)) /* otherwise it is set, and must not be put off */
		timer_set(&shakes.timer, clock_ns() + LOOK_AGAIN, run_waiting);
	join_line(c);
	return false;
}

void handshake_ran(uint64_t ns)
{
	shakes.credit -= (int64_t)ns;
}
