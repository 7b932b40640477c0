// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_events.c - event channels: their descriptor, acknowledgements, migration.
 */
#include "story.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Creates an id with one event in its channel. */
static struct rdma_cm_id *id_with_event(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id = id_new(ch);
	struct sockaddr_storage a = address(IPV4, 9);

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	return id;
}

static void empty_nonblocking_channel_returns_eagain(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK);
	assert_int_equal(rdma_get_cm_event(ch, &ev), -1);
	assert_int_equal(errno, EAGAIN);
	id = id_with_event(ch);
	assert_int_equal(rdma_get_cm_event(ch, &ev), 0);
	rdma_ack_cm_event(ev);
	assert_int_equal(rdma_get_cm_event(ch, &ev), -1);
	assert_int_equal(errno, EAGAIN);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
}

static void descriptor_is_readable_while_events_wait(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event want = {.events = EPOLLIN}, got;
	struct rdma_cm_id *one, *two;

	assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, ch->fd, &want), 0);
	assert_int_equal(epoll_wait(ep, &got, 1, 0), 0);
	one = id_with_event(ch);
	two = id_with_event(ch);
	assert_int_equal(epoll_wait(ep, &got, 1, 0), 1);
	expect_status(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(epoll_wait(ep, &got, 1, 0), 1); /* one more event */
	expect_status(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(epoll_wait(ep, &got, 1, 0), 0);
	close(ep);
	rdma_destroy_id(one);
	rdma_destroy_id(two);
	rdma_destroy_event_channel(ch);
}

static void descriptor_is_not_inherited(void **state)
{
	struct rdma_event_channel *ch = channel_new();

	assert_true(fcntl(ch->fd, F_GETFD) & FD_CLOEXEC);
	rdma_destroy_event_channel(ch);
}

static void events_of_a_channel_come_in_order(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *id[5];

	for (int i = 0; i < 5; i++)
		id[i] = id_with_event(ch);
	for (int i = 0; i < 5; i++) {
		struct rdma_cm_event *ev = expect_event(ch, RDMA_CM_EVENT_ADDR_RESOLVED);

		assert_ptr_equal(ev->id, id[i]);
		rdma_ack_cm_event(ev);
		rdma_destroy_id(id[i]);
	}
	rdma_destroy_event_channel(ch);
}

static void events_of_a_destroyed_id_are_discarded(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *first = id_with_event(ch), *second = id_with_event(ch);
	struct rdma_cm_event *ev;

	rdma_destroy_id(first);
	ev = expect_event(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(ev->id, second);
	rdma_ack_cm_event(ev);
	expect_silence(ch, 0);
	rdma_destroy_id(second);
	rdma_destroy_event_channel(ch);
}

/* ---- waiting ---- */

struct waiting {
	pthread_t thread;
	struct rdma_cm_id *id;
	struct rdma_event_channel *ch;
	struct rdma_cm_event *ev;
	int ret, err;
	atomic_bool done;
};

static void *destroy_in_thread(void *arg)
{
	struct waiting *w = arg;

	rdma_destroy_id(w->id);
	atomic_store(&w->done, true);
	return NULL;
}

static void destroy_waits_for_acknowledgements(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct waiting w = {.id = id_with_event(ch)};
	struct rdma_cm_event *ev = expect_event(ch, RDMA_CM_EVENT_ADDR_RESOLVED);

	pthread_create(&w.thread, NULL, destroy_in_thread, &w);
	expect_silence(ch, 50);
	assert_false(atomic_load(&w.done));
	rdma_ack_cm_event(ev);
	pthread_join(w.thread, NULL);
	rdma_destroy_event_channel(ch);
}

static void *migrate_in_thread(void *arg)
{
	struct waiting *w = arg;

	w->ret = rdma_migrate_id(w->id, w->ch);
	atomic_store(&w->done, true);
	return NULL;
}

static void migration_waits_for_acknowledgements(void **state)
{
	struct rdma_event_channel *from = channel_new(), *to = channel_new();
	struct waiting w = {.id = id_with_event(from), .ch = to};
	struct rdma_cm_event *ev = expect_event(from, RDMA_CM_EVENT_ADDR_RESOLVED);

	pthread_create(&w.thread, NULL, migrate_in_thread, &w);
	expect_silence(from, 50);
	assert_false(atomic_load(&w.done));
	rdma_ack_cm_event(ev);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.ret, 0);
	assert_ptr_equal(w.id->channel, to);
	rdma_destroy_id(w.id);
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

/* A request is the listener's event: its id may be destroyed before the event is acknowledged. */
static void child_may_be_destroyed_before_its_request_is_acknowledged(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 0);
	struct rdma_cm_id *id = id_resolved(ach, IPV4, id_port(listener));
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_connect(id, NULL), 0);
	ev = expect_event(pch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(rdma_destroy_id(ev->id), 0);
	rdma_ack_cm_event(ev);
	id_gone(id);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

static void *get_in_thread(void *arg)
{
	struct waiting *w = arg;

	w->ret = rdma_get_cm_event(w->ch, &w->ev);
	w->err = errno;
	atomic_store(&w->done, true);
	return NULL;
}

static void blocking_get_waits_for_an_event(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct waiting w = {.ch = ch};
	struct rdma_cm_id *id;

	pthread_create(&w.thread, NULL, get_in_thread, &w);
	id = id_with_event(ch);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.ret, 0);
	assert_ptr_equal(w.ev->id, id);
	rdma_ack_cm_event(w.ev);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
}

static void on_signal(int sig)
{
}

/* A signal handler without SA_RESTART interrupts the wait, as it does read(). */
static void signal_interrupts_a_wait(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct waiting w = {.ch = ch};
	struct sigaction act = {.sa_handler = on_signal};

	sigaction(SIGUSR1, &act, NULL);
	pthread_create(&w.thread, NULL, get_in_thread, &w);
	do { /* until the thread waits */
		pthread_kill(w.thread, SIGUSR1);
		expect_silence(ch, 2);
	} while (!atomic_load(&w.done));
	pthread_join(w.thread, NULL);
	assert_int_equal(w.ret, -1);
	assert_int_equal(w.err, EINTR);
	rdma_destroy_event_channel(ch);
}

/* ---- migration ---- */

static void pending_events_migrate_with_their_id(void **state)
{
	struct rdma_event_channel *from = channel_new(), *to = channel_new();
	struct rdma_cm_id *moves = id_with_event(from), *stays = id_with_event(from);
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_migrate_id(moves, to), 0);
	ev = expect_event(to, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(ev->id, moves);
	rdma_ack_cm_event(ev);
	ev = expect_event(from, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(ev->id, stays);
	rdma_ack_cm_event(ev);
	expect_silence(from, 0);
	expect_silence(to, 0);
	assert_int_equal(rdma_resolve_route(moves, 1000), 0);
	assert_int_equal(expect_status(to, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	rdma_destroy_id(moves);
	rdma_destroy_id(stays);
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

static void pending_requests_migrate_with_their_listener(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *from = channel_new(), *to = channel_new();
	struct rdma_cm_id *listener = id_listening(from, IPV4, 0), *child;
	struct rdma_cm_id *id = id_resolved(ach, IPV4, id_port(listener));
	struct pollfd there = {.fd = from->fd, .events = POLLIN};

	assert_int_equal(rdma_connect(id, NULL), 0);
	assert_int_equal(poll(&there, 1, PATIENCE_MS), 1);
	assert_int_equal(rdma_migrate_id(listener, to), 0);
	expect_silence(from, 0);
	child = expect_request(to);
	assert_ptr_equal(child->channel, to);
	give_qp(child);
	assert_int_equal(rdma_accept(child, NULL), 0);
	assert_int_equal(expect_status(to, RDMA_CM_EVENT_ESTABLISHED), 0);
	id_gone(id);
	id_gone(child);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

static void synchronous_id_can_become_asynchronous_and_back(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct sockaddr_storage a = address(IPV4, 9);
	struct rdma_cm_id *id = id_new(NULL);

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_migrate_id(id, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_migrate_id(id, ch), 0);
	assert_null(id->event);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	assert_int_equal(rdma_migrate_id(id, NULL), 0);
	assert_ptr_not_equal(id->channel, ch);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
}

/* ---- destroyed channels, event names ---- */

/* rping's threads end like this: one destroys the channel, another polls it once more. */
static void channel_just_destroyed_returns_no_event(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_event *ev;

	fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK);
	id_gone(id_with_event(ch));
	rdma_destroy_event_channel(ch);
	assert_int_equal(rdma_get_cm_event(ch, &ev), -1);
	assert_int_equal(errno, EAGAIN);
}

static void every_event_has_a_name(void **state)
{
	assert_string_equal(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED),
			    "RDMA_CM_EVENT_ADDR_RESOLVED");
	for (int e = 0; e <= RDMA_CM_EVENT_TIMEWAIT_EXIT; e++)
		assert_int_equal(strncmp(rdma_event_str(e), "RDMA_CM_EVENT_", 14), 0);
	assert_string_equal(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT),
			    "RDMA_CM_EVENT_TIMEWAIT_EXIT");
	assert_string_equal(rdma_event_str(99), "UNKNOWN EVENT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_nonblocking_channel_returns_eagain),
		cmocka_unit_test(descriptor_is_readable_while_events_wait),
		cmocka_unit_test(descriptor_is_not_inherited),
		cmocka_unit_test(events_of_a_channel_come_in_order),
		cmocka_unit_test(events_of_a_destroyed_id_are_discarded),
		cmocka_unit_test(destroy_waits_for_acknowledgements),
		cmocka_unit_test(migration_waits_for_acknowledgements),
		cmocka_unit_test(child_may_be_destroyed_before_its_request_is_acknowledged),
		cmocka_unit_test(blocking_get_waits_for_an_event),
		cmocka_unit_test(signal_interrupts_a_wait),
		cmocka_unit_test(pending_events_migrate_with_their_id),
		cmocka_unit_test(pending_requests_migrate_with_their_listener),
		cmocka_unit_test(synchronous_id_can_become_asynchronous_and_back),
		cmocka_unit_test(channel_just_destroyed_returns_no_event),
		cmocka_unit_test(every_event_has_a_name),
	};

	return cmocka_run_group_tests_name("cm events", tests, NULL, NULL);
}
