// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_scale.c - many connections: at once, and one after the other, without leaks.
 */
#include "story.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static unsigned entries_of(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static bool raise_descriptor_limit(unsigned files)
{
	struct rlimit l;

	getrlimit(RLIMIT_NOFILE, &l);
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	return l.rlim_cur >= files;
}

/* One completion queue serves all connections, as in programs that have many. */
struct side {
	struct rdma_event_channel *ch;
	struct ibv_cq *cq;
};

static void side_open(struct side *s)
{
	int n;
	struct ibv_context **list = rdma_get_devices(&n);

	s->ch = channel_new();
	s->cq = ibv_create_cq(list[0], 16, NULL, NULL, 0);
	assert_non_null(s->cq);
	rdma_free_devices(list);
}

static void side_close(struct side *s)
{
	assert_int_equal(ibv_destroy_cq(s->cq), 0);
	rdma_destroy_event_channel(s->ch);
}

static void side_qp(struct side *s, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1}};

	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
}

static struct rdma_cm_id *side_connects(struct side *s, uint16_t port)
{
	struct sockaddr_storage a = address(IPV4, port);
	struct rdma_cm_id *id = id_new(s->ch);

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	assert_int_equal(expect_status(s->ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	assert_int_equal(expect_status(s->ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	side_qp(s, id);
	assert_int_equal(rdma_connect(id, NULL), 0);
	return id;
}

/* The server's thread: accepts all requests, and destroys ids that are disconnected. */
struct server {
	struct side side;
	pthread_t thread;
	struct rdma_cm_id *listener;
	unsigned expected, ended, established, most;
};

static void serve_one(struct server *s, struct rdma_cm_event *ev)
{
	struct rdma_cm_id *id = ev->id;
	enum rdma_cm_event_type type = ev->event;

	rdma_ack_cm_event(ev);
	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		side_qp(&s->side, id);
		assert_int_equal(rdma_accept(id, NULL), 0);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		s->established++;
		if (s->established - s->ended > s->most)
			s->most = s->established - s->ended;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		id_gone(id);
		s->ended++;
		break;
	default:
		fail_msg("%s", rdma_event_str(type));
	}
}

static void *serve_all(void *arg)
{
	struct server *s = arg;

	while (s->ended < s->expected) {
		struct rdma_cm_event *ev;

		assert_int_equal(rdma_get_cm_event(s->side.ch, &ev), 0);
		serve_one(s, ev);
	}
	return NULL;
}

static void server_open(struct server *s, unsigned expected)
{
	memset(s, 0, sizeof(*s));
	side_open(&s->side);
	s->listener = id_listening(s->side.ch, IPV4, 0);
	s->expected = expected;
	pthread_create(&s->thread, NULL, serve_all, s);
}

static void server_close(struct server *s)
{
	pthread_join(s->thread, NULL);
	id_gone(s->listener);
	side_close(&s->side);
}

static void two_thousand_connections_work_at_once(void **state)
{
	enum { MANY = 2000 };
	static struct rdma_cm_id *id[MANY];
	struct server server;
	struct side side;

	if (!raise_descriptor_limit(2 * MANY + 100))
		skip();
	server_open(&server, MANY);
	side_open(&side);
	for (int i = 0; i < MANY; i++) {
		id[i] = side_connects(&side, id_port(server.listener));
		assert_int_equal(expect_status(side.ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	}
	for (int i = 0; i < MANY; i++)
		assert_int_equal(rdma_disconnect(id[i]), 0);
	for (int i = 0; i < MANY; i++)
		expect_end(side.ch);
	for (int i = 0; i < MANY; i++)
		id_gone(id[i]);
	server_close(&server);
	assert_int_equal(server.most, MANY);
	side_close(&side);
}

/* All of them connect before the first is answered. */
static void five_hundred_connect_concurrently(void **state)
{
	enum { MANY = 500 };
	static struct rdma_cm_id *id[MANY];
	struct server server;
	struct side side;

	if (!raise_descriptor_limit(2 * MANY + 100))
		skip();
	server_open(&server, MANY);
	side_open(&side);
	for (int i = 0; i < MANY; i++) {
		struct sockaddr_storage a = address(IPV4, id_port(server.listener));

		id[i] = id_new(side.ch);
		assert_int_equal(rdma_resolve_addr(id[i], NULL, (struct sockaddr *)&a, 1000), 0);
		assert_int_equal(expect_status(side.ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
		assert_int_equal(rdma_resolve_route(id[i], 1000), 0);
		assert_int_equal(expect_status(side.ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
		side_qp(&side, id[i]);
	}
	for (int i = 0; i < MANY; i++)
		assert_int_equal(rdma_connect(id[i], NULL), 0);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(expect_status(side.ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	for (int i = 0; i < MANY; i++)
		id_gone(id[i]);
	server_close(&server);
	side_close(&side);
}

/* ---- one after the other ---- */

struct footprint {
	unsigned files, threads;
	size_t heap;
	long resident; /* KiB */
};

static long resident_kib(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
	fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static struct footprint footprint(void)
{
	malloc_trim(0);
	return (struct footprint){.files = entries_of("/proc/self/fd"),
				  .threads = entries_of("/proc/self/task"),
				  .heap = mallinfo2().uordblks,
				  .resident = resident_kib()};
}

static void connect_and_disconnect(struct side *side, uint16_t port, unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		struct rdma_cm_id *id = side_connects(side, port);

		assert_int_equal(expect_status(side->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
		assert_int_equal(rdma_disconnect(id), 0);
		expect_end(side->ch);
		id_gone(id);
	}
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TIMES	       2000
#define HEAP_SLACK_KIB (1 << 20) /* a sanitizer retains freed memory */
#else
#define TIMES	       20000
#define HEAP_SLACK_KIB 2048
#endif

static void connect_times(unsigned times)
{
	struct server server;
	struct side side;

	server_open(&server, times);
	side_open(&side);
	connect_and_disconnect(&side, id_port(server.listener), times);
	server_close(&server);
	assert_int_equal(server.established, times);
	side_close(&side);
}

static void twenty_thousand_connections_in_a_row_leak_nothing(void **state)
{
	struct footprint before, after;

	connect_times(TIMES / 10); /* all caches are filled now */
	before = footprint();
	connect_times(TIMES - TIMES / 10);
	after = footprint();
	print_message("after %d: %u descriptors (%u), %u threads (%u), heap %zu (%zu), "
		      "resident %ld KiB (%ld)\n",
		      TIMES, after.files, before.files, after.threads, before.threads, after.heap,
		      before.heap, after.resident, before.resident);
	assert_int_equal(after.files, before.files);
	assert_int_equal(after.threads, before.threads);
	assert_in_range(after.heap, 0, before.heap + 64 * 1024);
	assert_in_range(after.resident, 0, before.resident + HEAP_SLACK_KIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_thousand_connections_work_at_once),
		cmocka_unit_test(five_hundred_connect_concurrently),
		cmocka_unit_test(twenty_thousand_connections_in_a_row_leak_nothing),
	};

	return cmocka_run_group_tests_name("cm scale", tests, NULL, NULL);
}
