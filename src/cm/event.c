// SPDX-License-Identifier: BSD-2-Clause
/*
 * event.c - event channels, and the events that a program fetches from them and acknowledges.
 *
 * A channel's descriptor is a semaphore eventfd whose count is the length of the queue, so that
 * poll, epoll and O_NONBLOCK behave as with rdma-core. A thread that fetches decrements the count
 * by read(), and then takes an event. Dropping an event decrements the count, too, unless a reader
 * was faster: that reader finds the queue empty and reads again.
 */
#include "cm/ud.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"

/* Protects owed and owed_of of every id. */
static struct lock acks_lock = LOCK_INITIALIZER;
static pthread_cond_t acks_changed = PTHREAD_COND_INITIALIZER;

int cm_channel_open(struct rdma_event_channel **out)
{
	struct cm_channel *ch = calloc(1, sizeof(*ch));
	int err;

	if (!ch)
		return -ENOMEM;
	ch->cm.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (ch->cm.fd < 0) {
		err = -errno;
		free(ch);
		return err;
	}
	lock_init(&ch->lock);
	list_init(&ch->events);
	*out = &ch->cm;
	return 0;
}

static void channel_free(struct cm_channel *ch)
{
	if (!ch)
		return;
	lock_destroy(&ch->lock);
	close(ch->cm.fd);
	free(ch);
}

/*
 * The channel closed last is kept until the next one is closed. A program that ends (rping) closes
 * its channel while one of its threads may be about to fetch another event: that thread must block
 * forever, as if it had already been in the call, and not see an error of a closed descriptor.
 */
static _Atomic(struct cm_channel *) closed_last;

void cm_channel_close(struct rdma_event_channel *channel)
{
	struct cm_channel *ch = to_cm_channel(channel);

	if (!channel)
		return;
	lock_acquire(&ch->lock);
	list_for_each_safe (it, &ch->events) {
		free(list_entry(it, struct cm_event, link));
	}
	list_init(&ch->events);
	lock_release(&ch->lock);
	channel_free(atomic_exchange(&closed_last, ch));
}

/* Counts one more event. The count cannot overflow: memory ends before 2^64 events. */
static void count_up(struct cm_channel *ch)
{
	if (eventfd_write(ch->cm.fd, 1))
		log_err("cm: event channel %d: errno %d", ch->cm.fd, errno);
}

/* Counts one event less, unless a reader was faster; never blocks, O_NONBLOCK or not. */
static void count_down(struct cm_channel *ch)
{
	eventfd_t one;
	struct iovec iov = {.iov_base = &one, .iov_len = sizeof(one)};
	struct pollfd p = {.fd = ch->cm.fd, .events = POLLIN};

	if (preadv2(ch->cm.fd, &iov, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN)
		return;
	/* a kernel before 5.8 */
	if (poll(&p, 1, 0) == 1 && read(ch->cm.fd, &one, sizeof(one)) < 0)
		log_debug("cm: event channel %d: errno %d", ch->cm.fd, errno);
}

static void queue_event(struct cm_channel *ch, struct cm_event *ev)
{
	HOLD_FOR_SCOPE(&ch->lock);
	list_add_tail(&ch->events, &ev->link);
	count_up(ch);
}

static struct cm_event *event_new(struct cm_id *owner, struct cm_id *id,
				  enum rdma_cm_event_type type, int status)
{
	struct cm_event *ev = calloc(1, sizeof(*ev));

	if (!ev) {
		log_err("cm %u: no memory for event %s", id->num, rdma_event_str(type));
		return NULL;
	}
	ev->owner = owner;
	ev->cm.id = &id->cm;
	ev->cm.event = ev->type = type;
	ev->cm.status = status;
	list_init(&ev->link);
	return ev;
}

static void fill_conn(struct cm_event *ev, const struct rdma_conn_param *peer)
{
	struct rdma_conn_param *p = &ev->cm.param.conn;

	*p = *peer;
	p->private_data = NULL;
	if (!peer->private_data_len)
		return;
	memcpy(ev->private_data, peer->private_data, peer->private_data_len);
	p->private_data = ev->private_data;
}

void event_post_conn(struct cm_id *id, enum rdma_cm_event_type type, int status,
		     const struct rdma_conn_param *peer)
{
	struct cm_event *ev = event_new(id, id, type, status);

	assert(engine_locked());
	if (!ev)
		return;
	if (peer)
		fill_conn(ev, peer);
	log_debug("cm %u: %s, status %d", id->num, rdma_event_str(type), status);
	queue_event(to_cm_channel(id->cm.channel), ev);
}

void event_post(struct cm_id *id, enum rdma_cm_event_type type, int status)
{
	assert(engine_locked());
	event_post_conn(id, type, status, NULL);
}

/* Without a length, private_data is a context of the program. */
static void fill_ud(struct cm_event *ev, const struct rdma_ud_param *told)
{
	struct rdma_ud_param *p = &ev->cm.param.ud;

	*p = *told;
	if (!told->private_data_len)
		return;
	memcpy(ev->private_data, told->private_data, told->private_data_len);
	p->private_data = ev->private_data;
}

void event_post_ud(struct cm_id *id, enum rdma_cm_event_type type, int status,
		   const struct rdma_ud_param *told)
{
	struct cm_event *ev = event_new(id, id, type, status);

	assert(engine_locked());
	if (!ev)
		return;
	fill_ud(ev, told);
	log_debug("cm %u: %s, status %d", id->num, rdma_event_str(type), status);
	queue_event(to_cm_channel(id->cm.channel), ev);
}

static void queue_request(struct cm_id *listener, struct cm_id *child, struct cm_event *ev)
{
	ev->cm.listen_id = &listener->cm;
	log_debug("cm %u: request, its id is cm %u", listener->num, child->num);
	queue_event(to_cm_channel(listener->cm.channel), ev);
}

int event_post_ud_request(struct cm_id *listener, struct cm_id *child,
			  const struct rdma_ud_param *told)
{
	struct cm_event *ev = event_new(listener, child, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	assert(engine_locked());
	if (!ev)
		return -ENOMEM;
	fill_ud(ev, told);
	queue_request(listener, child, ev);
	return 0;
}

int event_post_request(struct cm_id *listener, struct cm_id *child,
		       const struct rdma_conn_param *peer)
{
	struct cm_event *ev = event_new(listener, child, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	assert(engine_locked());
	if (!ev)
		return -ENOMEM;
	fill_conn(ev, peer);
	queue_request(listener, child, ev);
	return 0;
}

/* Moves the events of id from its channel to out. */
static void dequeue_events_of(struct cm_id *id, struct list *out)
{
	struct cm_channel *ch = to_cm_channel(id->cm.channel);

	HOLD_FOR_SCOPE(&ch->lock);
	list_for_each_safe (it, &ch->events) {
		if (list_entry(it, struct cm_event, link)->owner != id)
			continue;
		list_del(it);
		list_add_tail(out, it);
		count_down(ch);
	}
}

void event_drop(struct cm_id *id)
{
	struct list dropped;

	assert(engine_locked());
	list_init(&dropped);
	dequeue_events_of(id, &dropped);
	list_for_each_safe (it, &dropped) {
		struct cm_event *ev = list_entry(it, struct cm_event, link);

		if (ev->cm.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			id_drop_request(to_cm_id(ev->cm.id));
		free(ev);
	}
}

void event_move(struct cm_id *id, struct cm_channel *to)
{
	struct list moved;

	assert(engine_locked());
	list_init(&moved);
	dequeue_events_of(id, &moved);
	list_for_each_safe (it, &moved) {
		list_del(it);
		queue_event(to, list_entry(it, struct cm_event, link));
	}
	id->cm.channel = &to->cm;
}

bool event_pending(struct cm_id *id)
{
	struct cm_channel *ch = to_cm_channel(id->cm.channel);

	assert(engine_locked());
	HOLD_FOR_SCOPE(&ch->lock);
	list_for_each (it, &ch->events) {
		if (list_entry(it, struct cm_event, link)->owner == id)
			return true;
	}
	return false;
}

/* A program that forgot an acknowledgement waits for ever, and learns what for. */
static void log_owed(const struct cm_id *id)
{
	char types[256] = "";
	size_t used = 0;

	assert(lock_held(&acks_lock));
	for (int i = 0; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT && used < sizeof(types); i++)
		if (id->owed_of[i])
			used += (size_t)snprintf(types + used, sizeof(types) - used, "%s%u %s",
						 used ? ", " : "", id->owed_of[i],
						 rdma_event_str((enum rdma_cm_event_type)i));
	log_warn("cm %u: its destruction waits for the program: %u events were not acknowledged "
		 "with rdma_ack_cm_event(): %s",
		 id->num, id->owed, types);
}

void event_wait_acks(struct cm_id *id)
{
	struct timespec until;
	bool told = false;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ACKS_PATIENCE_S;
	HOLD_FOR_SCOPE(&acks_lock);
	while (id->owed) {
		assert(!engine_locked()); /* the program may need it before it acknowledges */
		if (told) {
			lock_wait(&acks_lock, &acks_changed);
		} else if (lock_wait_until(&acks_lock, &acks_changed, &until) == ETIMEDOUT &&
			   id->owed) {
			log_owed(id);
			told = true;
		}
	}
}

/* Returns the oldest event, now owned by the program; NULL if it was dropped meanwhile. */
static struct cm_event *fetch_event(struct cm_channel *ch)
{
	HOLD_FOR_SCOPE(&ch->lock);
	struct cm_event *ev;

	if (list_empty(&ch->events))
		return NULL;
	ev = list_entry(ch->events.next, struct cm_event, link);
	list_del(&ev->link);
	HOLD_FOR_SCOPE(&acks_lock);
	ev->owner->owed++;
	ev->owner->owed_of[ev->type]++;
	return ev;
}

/*
 * Removes a request from the listener's backlog; its child now reports to the listener's channel.
 */
static void hand_over_request(struct cm_event *ev)
{
	struct cm_id *child = to_cm_id(ev->cm.id);

	engine_lock();
	if (!child->sync)
		child->cm.channel = ev->owner->cm.channel;
	if (ev->owner->listener)
		listener_delivered(ev->owner->listener);
	ud_delivered(ev->owner);
	engine_unlock();
}

STAG_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	PASS_TO_REAL(create_event_channel());
	struct rdma_event_channel *ch = NULL;
	int err = engine_start();

	if (!err)
		err = cm_channel_open(&ch);
	if (err) {
		errno = -err;
		return NULL;
	}
	return ch;
}

STAG_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	PASS_TO_REAL_VOID(destroy_event_channel(channel));
	cm_channel_close(channel);
}

STAG_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	PASS_TO_REAL(get_cm_event(channel, event));
	struct cm_event *ev;
	uint64_t one;

	if (!channel || !event)
		return id_error(NULL, EINVAL, "the channel or the event pointer is NULL");
	do {
		if (read(channel->fd, &one, sizeof(one)) < 0)
			return -1;
		ev = fetch_event(to_cm_channel(channel));
	} while (!ev);
	if (ev->cm.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		hand_over_request(ev);
	*event = &ev->cm;
	return 0;
}

STAG_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	PASS_TO_REAL(ack_cm_event(event));
	struct cm_event *ev = (struct cm_event *)event;

	if (!event)
		return id_error(NULL, EINVAL, "no event to acknowledge");
	lock_acquire(&acks_lock);
	ev->owner->owed--;
	ev->owner->owed_of[ev->type]--;
	pthread_cond_broadcast(&acks_changed);
	lock_release(&acks_lock);
	free(ev);
	return 0;
}

static const char *const event_names[] = {
	[RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
	[RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
	[RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
	[RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
	[RDMA_CM_EVENT_CONNECT_REQUEST] = "RDMA_CM_EVENT_CONNECT_REQUEST",
	[RDMA_CM_EVENT_CONNECT_RESPONSE] = "RDMA_CM_EVENT_CONNECT_RESPONSE",
	[RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
	[RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
	[RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
	[RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
	[RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
	[RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
	[RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
	[RDMA_CM_EVENT_MULTICAST_ERROR] = "RDMA_CM_EVENT_MULTICAST_ERROR",
	[RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
	[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
};

STAG_EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
	if ((unsigned)event >= sizeof(event_names) / sizeof(*event_names))
		return "UNKNOWN EVENT";
	return event_names[event];
}
