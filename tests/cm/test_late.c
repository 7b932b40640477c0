// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_late.c - peers that fall silent or are slow: the time that they get is limited.
 *
 * Separate from the other tests, since here a machine that stalls for long enough looks like a
 * silent peer.
 */
#include "story.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* An id of ours that has sent its Request to a bare socket, and waits. */
struct caller {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct raw_frame req;
	int listener, fd;
};

static void connect_to_socket(struct caller *c)
{
	uint16_t port;

	c->ch = channel_new();
	c->listener = raw_listen(IPV4, &port);
	c->id = id_resolved(c->ch, IPV4, port);
	assert_int_equal(rdma_connect(c->id, NULL), 0);
	c->fd = raw_accept(c->listener);
	raw_recv_frame(c->fd, false, &c->req);
}

static void expect_timeout(struct caller *c)
{
	assert_int_equal(expect_status(c->ch, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
	expect_hangup(c->fd);
	id_gone(c->id);
	rdma_destroy_event_channel(c->ch);
	close(c->listener);
}

static void silent_peer_is_unreachable(void **state)
{
	struct caller c;

	connect_to_socket(&c);
	expect_timeout(&c);
}

static void peer_silent_after_half_a_reply_is_unreachable(void **state)
{
	struct mpa_frame rep;
	uint8_t buf[MPA_FRAME_MAX];
	struct caller c;

	connect_to_socket(&c);
	rep = accepting_reply(&c.req.f);
	mpa_encode(&rep, buf, sizeof(buf));
	raw_send(c.fd, buf, 21);
	expect_timeout(&c);
}

static void peer_that_never_sends_its_rtr_times_out(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd;

	req.p2p = true;
	req.rtr = MPA_RTR_WRITE;
	fd = accepted(p, &req, NULL, &id, &rep);
	assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_CONNECT_ERROR), -ETIMEDOUT);
	expect_hangup(fd);
	id_gone(id);
	expect_service(p);
}

/*
 * Sends half a Request and then nothing; and one that would take minutes: sending a byte from time
 * to time does not extend the time limit.
 */
static void slow_requests_time_out(void **state)
{
	struct place *p = *state;
	struct mpa_frame req = enhanced_request();
	uint8_t frame[MPA_FRAME_MAX];
	int len = mpa_encode(&req, frame, sizeof(frame));
	int drip = raw_connect(IPV4, p->port), half = raw_connect(IPV4, p->port);
	struct pollfd last = {.fd = raw_connect(IPV4, p->port), .events = POLLIN};
	struct pollfd first = {.fd = drip, .events = POLLIN};

	raw_send(half, frame, 10);
	for (int sent = 0; !poll(&last, 1, 50);)
		if (sent < len - 1)
			send(drip, frame + sent++, 1, MSG_NOSIGNAL);
	assert_int_equal(poll(&first, 1, 0), 1);
	expect_end_of_data(drip);
	expect_hangup(half);
	expect_hangup(last.fd);
	expect_silence(p->ch, 0);
	expect_service(p);
}

#define PLACE(f) cmocka_unit_test_setup_teardown(f, place_open, place_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silent_peer_is_unreachable),
		cmocka_unit_test(peer_silent_after_half_a_reply_is_unreachable),
		PLACE(peer_that_never_sends_its_rtr_times_out),
		PLACE(slow_requests_time_out),
	};

	setenv("STAG_CONNECT_TIMEOUT", "1000", 1);
	return cmocka_run_group_tests_name("cm late", tests, NULL, NULL);
}
