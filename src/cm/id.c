// SPDX-License-Identifier: BSD-2-Clause
/*
 * id.c - the rdma_cm_id: lifetime, state, channel.
 *
 * An id without a channel of the program's is synchronous: it has a private channel, and every call
 * waits there for the event that ends it.
 */
#include "cm/conn.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs/verbs.h"

static const char *const state_names[] = {
	[ID_IDLE] = "IDLE",
	[ID_BOUND] = "BOUND",
	[ID_ADDR_RESOLVED] = "ADDR_RESOLVED",
	[ID_ROUTE_RESOLVED] = "ROUTE_RESOLVED",
	[ID_LISTENING] = "LISTENING",
	[ID_CONNECTING] = "CONNECTING",
	[ID_ANSWERED] = "ANSWERED",
	[ID_REQUESTED] = "REQUESTED",
	[ID_ACCEPTING] = "ACCEPTING",
	[ID_CONNECTED] = "CONNECTED",
	[ID_LEFT] = "LEFT",
	[ID_CLOSED] = "CLOSED",
};

#define FROM(s) (1u << (s))

/* For each state, those that it may be entered from. */
static const unsigned legal_from[] = {
	[ID_IDLE] = 0,
	[ID_BOUND] = FROM(ID_IDLE),
	[ID_ADDR_RESOLVED] = FROM(ID_IDLE) | FROM(ID_BOUND),
	[ID_ROUTE_RESOLVED] = FROM(ID_ADDR_RESOLVED),
	[ID_LISTENING] = FROM(ID_BOUND),
	[ID_CONNECTING] = FROM(ID_ROUTE_RESOLVED),
	[ID_REQUESTED] = FROM(ID_IDLE),
	[ID_ACCEPTING] = FROM(ID_REQUESTED),
	[ID_ANSWERED] = FROM(ID_CONNECTING),
	[ID_CONNECTED] = FROM(ID_CONNECTING) | FROM(ID_ANSWERED) | FROM(ID_ACCEPTING),
	[ID_LEFT] = FROM(ID_CONNECTED),
	[ID_CLOSED] = ~0u,
};

const char *id_state_str(enum id_state s)
{
	return state_names[s];
}

void id_set_state(struct cm_id *id, enum id_state to)
{
	assert(engine_locked());
	assert(legal_from[to] & FROM(id->state));
	(void)legal_from; /* a release build does not check */
	log_debug("cm %u: %s -> %s", id->num, id_state_str(id->state), id_state_str(to));
	id->state = to;
	if (id->asked_by)
		listener_answered(id->asked_by);
}

int id_error(const struct cm_id *id, int err, const char *fmt, ...)
{
	char what[256];
	va_list ap;

	if (log_level >= LOG_LEVEL_INFO) {
		va_start(ap, fmt);
		vsnprintf(what, sizeof(what), fmt, ap);
		va_end(ap);
		if (id)
			log_info("cm %u (%s): %s: %s", id->num, id_state_str(id->state), what,
				 strerror(err));
		else
			log_info("cm: %s: %s", what, strerror(err));
	}
	errno = err;
	return -1;
}

int id_create(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
	      enum ibv_qp_type type, struct cm_id **out)
{
	static atomic_uint count;
	struct cm_id *id = calloc(1, sizeof(*id));
	int err;

	if (!id)
		return -ENOMEM;
	id->num = atomic_fetch_add(&count, 1) + 1;
	id->fd = -1;
	id->sync = !channel;
	id->cm.channel = channel;
	id->cm.context = context;
	id->cm.ps = ps;
	id->cm.qp_type = type;
	id->face = cm_first_face();
	list_init(&id->groups);
	if (id->sync) {
		err = cm_channel_open(&id->cm.channel);
		if (err) {
			free(id);
			return err;
		}
	}
	*out = id;
	return 0;
}

void id_destroy(struct cm_id *id)
{
	engine_lock();
	id_close(id);
	event_drop(id);
	engine_unlock();
	if (id->cm.event)
		rdma_ack_cm_event(id->cm.event);
	event_wait_acks(id);
	if (id->sync)
		cm_channel_close(id->cm.channel);
	id_drop_tls(id);
	free(id->cm.route.path_rec);
	free(id->ep_attr);
	free(id->ep_private);
	free(id);
}

int id_bind_device(struct cm_id *id)
{
	struct ibv_pd *pd = default_pd(id->face);

	if (!pd)
		return -errno;
	id->cm.verbs = pd->context;
	id->cm.pd = pd;
	id->cm.port_num = 1;
	return 0;
}

bool id_follow_pd(struct cm_id *id, const struct ibv_pd *pd)
{
	enum face face;

	assert(engine_locked());
	if (!is_ours(pd->context))
		return false;
	face = face_of(pd->context);
	if (face == id->face || id->state == ID_REQUESTED)
		return true;
	if (id->state > ID_ROUTE_RESOLVED || !cm_may_use(id, face))
		return false;
	id->face = face;
	return !id_bind_device(id);
}

int id_create_child(struct cm_id *listener, enum face face, const struct sockaddr_storage *local,
		    const struct sockaddr_storage *peer, struct cm_id **out)
{
	struct rdma_event_channel *channel = listener->sync ? NULL : listener->cm.channel;
	struct cm_id *id;
	int err;

	assert(engine_locked());
	err = id_create(channel, listener->cm.context, listener->cm.ps, listener->cm.qp_type, &id);
	if (err)
		return err;
	id->face = face;
	id->tos = listener->tos;
	id->has_tos = listener->has_tos;
	id->ack_timeout = listener->ack_timeout;
	id->has_ack_timeout = listener->has_ack_timeout;
	id->cm.route.addr.src_storage = *local;
	id->cm.route.addr.dst_storage = *peer;
	address_unmap(&id->cm.route.addr.src_storage);
	address_unmap(&id->cm.route.addr.dst_storage);
	err = id_bind_device(id);
	if (err) {
		id_destroy(id);
		return err;
	}
	id_set_state(id, ID_REQUESTED);
	*out = id;
	return 0;
}

static int wait_for_event(struct cm_id *id)
{
	const struct rdma_cm_event *ev;

	if (id->cm.event) {
		rdma_ack_cm_event(id->cm.event);
		id->cm.event = NULL;
	}
	if (rdma_get_cm_event(id->cm.channel, &id->cm.event))
		return -1;
	ev = id->cm.event;
	if (!ev->status)
		return 0;
	errno = ev->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : abs(ev->status);
	return -1;
}

int id_complete(struct cm_id *id, int ret)
{
	bool waits = !ret && id->sync;

	assert(engine_locked());
	engine_unlock();
	return waits ? wait_for_event(id) : ret;
}

static bool port_space_type(enum rdma_port_space ps, enum ibv_qp_type *type)
{
	switch (ps) {
	case RDMA_PS_TCP:
	case RDMA_PS_IB:
		*type = IBV_QPT_RC;
		return true;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		*type = IBV_QPT_UD;
		return true;
	}
	return false;
}

STAG_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
			       void *context, enum rdma_port_space ps)
{
	PASS_TO_REAL(create_id(channel, id, context, ps));
	enum ibv_qp_type type;
	struct cm_id *made;
	int err;

	if (!port_space_type(ps, &type))
		return id_error(NULL, EINVAL, "unknown port space %#x", ps);
	err = engine_start();
	if (err)
		return id_error(NULL, -err, "cannot start the engine");
	if (!default_pd(cm_first_face()))
		return -1;
	err = id_create(channel, context, ps, type, &made);
	if (err)
		return id_error(NULL, -err, "no new id");
	*id = &made->cm;
	return 0;
}

STAG_EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	PASS_TO_REAL(destroy_id(id));
	id_destroy(to_cm_id(id));
	return 0;
}

STAG_EXPORT int rdma_migrate_id(struct rdma_cm_id *cm, struct rdma_event_channel *channel)
{
	PASS_TO_REAL(migrate_id(cm, channel));
	struct cm_id *id = to_cm_id(cm);
	struct rdma_event_channel *old = cm->channel, *to = channel;
	bool was_sync = id->sync;
	int err;

	if (was_sync && !channel)
		return id_error(id, EINVAL, "the id is already synchronous");
	if (!channel) {
		err = cm_channel_open(&to);
		if (err)
			return id_error(id, -err, "cannot create a channel to migrate to");
	}
	engine_lock();
	event_move(id, to_cm_channel(to));
	id->sync = !channel;
	engine_unlock();
	if (was_sync && cm->event) {
		rdma_ack_cm_event(cm->event);
		cm->event = NULL;
	}
	/* Waits until events fetched from the old channel are acknowledged. */
	event_wait_acks(id);
	if (was_sync)
		cm_channel_close(old);
	return 0;
}

STAG_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	PASS_TO_REAL(get_src_port(id));
	return address_port(&id->route.addr.src_addr);
}

STAG_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	PASS_TO_REAL(get_dst_port(id));
	return address_port(&id->route.addr.dst_addr);
}
