// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_attack.c - tries every key that was ever valid after its block has been released.
 *
 * Three kinds of processes. The owner takes blocks and returns them to the system without notifying
 * anyone. The victim (the test's process) has registered them, hands out each key, and accepts
 * every connection. The attackers keep all keys, and try them once the blocks are released:
 * immediately, when another owner's memory is in their place, and again much later. Each attempt
 * must be refused, and none may change a byte.
 *
 * A refusal ends the connection, so each attempt costs one: the attackers are bare sockets that do
 * only the minimum. With STAG_LONG a million attempts, else some thousands.
 */
#include "other.h"
#include "raw_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stag/heap.h"

#define BLOCK	  (256u << 10)
#define BLOCKS	  16
#define AT_ONCE	  8 /* blocks of the owner at a time */
#define SIZE	  (BLOCK / 4 * 3)
#define ATTACKERS 2
#define OLD	  24 /* older keys that each attacker tries in each round */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TRIES 2000
#else
#define TRIES 10000
#endif

struct target {
	uint64_t addr;
	uint32_t rkey;
	uint32_t reads; /* 1: RDMA Read, 0: RDMA Write */
};

struct wave { /* an order to an attacker */
	uint32_t n;
	uint16_t port;
	struct target target[2 * AT_ONCE + OLD];
};

struct outcome {
	uint64_t refused, other;
};

/* ---- an attacker ---- */

static bool is_refusal(const struct terminate *t)
{
	return t->fault.set && ((t->fault.layer == FAULT_DDP_INVALID_STAG.layer &&
				 t->fault.etype == FAULT_DDP_INVALID_STAG.etype &&
				 t->fault.code == FAULT_DDP_INVALID_STAG.code) ||
				(t->fault.layer == FAULT_RDMAP_INVALID_STAG.layer &&
				 t->fault.etype == FAULT_RDMAP_INVALID_STAG.etype &&
				 t->fault.code == FAULT_RDMAP_INVALID_STAG.code));
}

static bool is_refused(const struct target *t, uint16_t port)
{
	static const uint8_t junk[64] = {[0 ... 63] = 0xbd};
	static const struct raw_wish wish;
	struct rdmap_read_req read = {.sink_stag = 0x01020304,
				      .size = sizeof(junk),
				      .src_stag = t->rkey,
				      .src_to = t->addr};
	struct raw_peer p;
	struct terminate answer = {0};

	raw_dial(&p, port);
	raw_send_request(&p, &wish);
	raw_take_reply(&p, &wish);
	if (t->reads)
		raw_read(&p, &read);
	else
		raw_write(&p, t->rkey, t->addr, junk, sizeof(junk));
	raw_take_terminate(&p, &answer);
	raw_reset(&p);
	return is_refusal(&answer);
}

static int run_attacker(int fd)
{
	struct wave w;

	while (recv(fd, &w, sizeof(w), 0) == sizeof(w)) {
		struct outcome o = {0};

		for (uint32_t i = 0; i < w.n; i++) {
			if (is_refused(&w.target[i], w.port))
				o.refused++;
			else
				o.other++;
		}
		if (send(fd, &o, sizeof(o), MSG_NOSIGNAL) != sizeof(o))
			return 1;
	}
	return 0;
}

/* ---- the victim ---- */

struct attacker {
	pid_t pid;
	int fd;
};

struct victim {
	struct stag_heap *heap;
	struct ibv_context **contexts;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	unsigned int device;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct other owner;
	struct attacker attacker[ATTACKERS];
	struct target *known;	/* every key that was ever valid */
	size_t n_known, n_gone; /* the first n_gone of them: blocks released */
	uint64_t tries, let;
	uint64_t connections; /* open now */
};

static void accept_one(struct victim *v, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = v->cq,
		.recv_cq = v->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4};

	assert_int_equal(rdma_create_qp(id, v->pd, &attr), 0);
	assert_int_equal(rdma_accept(id, &param), 0);
	v->connections++;
}

static void close_connection(struct victim *v, struct rdma_cm_id *id)
{
	v->connections--;
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void serve_event(struct victim *v)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;

	if (rdma_get_cm_event(v->events, &ev))
		return;
	id = ev->id;
	type = ev->event;
	rdma_ack_cm_event(ev);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		accept_one(v, id);
	else if (type == RDMA_CM_EVENT_DISCONNECTED)
		close_connection(v, id);
}

/* Accepts and serves connections until all attackers have reported. */
static void serve_until_all_report(struct victim *v)
{
	struct pollfd p[1 + ATTACKERS] = {{.fd = v->events->fd, .events = POLLIN}};
	int left = ATTACKERS;

	for (int i = 0; i < ATTACKERS; i++)
		p[1 + i] = (struct pollfd){.fd = v->attacker[i].fd, .events = POLLIN};
	while (left) {
		struct outcome o;

		if (poll(p, 1 + ATTACKERS, PATIENCE_MS) < 1)
			fail_msg("no event before the time limit");
		if (p[0].revents)
			serve_event(v);
		for (int i = 1; i <= ATTACKERS; i++) {
			if (!p[i].revents)
				continue;
			if (recv(p[i].fd, &o, sizeof(o), 0) != sizeof(o))
				fail_msg("an attacker has exited");
			v->tries += o.refused + o.other;
			v->let += o.other;
			p[i].fd = -1;
			left--;
		}
	}
}

static struct target pick_old_key(struct victim *v, uint64_t i)
{
	struct target t = v->known[i * 2654435761u % v->n_gone];

	t.reads = i % 2;
	return t;
}

static void attack_with_keys(struct victim *v, const struct target *fresh, unsigned n)
{
	for (int i = 0; i < ATTACKERS; i++) {
		struct wave w = {.port = ntohs(rdma_get_src_port(v->listener))};

		for (unsigned k = (unsigned)i; k < n; k += ATTACKERS)
			for (uint32_t reads = 0; reads < 2; reads++) {
				w.target[w.n] = fresh[k];
				w.target[w.n++].reads = reads;
			}
		for (unsigned k = 0; k < OLD; k++)
			w.target[w.n++] =
				pick_old_key(v, v->tries * ATTACKERS + k * 7 + (unsigned)i);
		assert_int_equal(send(v->attacker[i].fd, &w, sizeof(w), MSG_NOSIGNAL), sizeof(w));
	}
	serve_until_all_report(v);
}

/* ---- one round: blocks are allocated, registered, released, and reused by others ---- */

/* Registers an object of the owner and records its key for the attacks. */
static struct target record_key(struct victim *v, void *ptr)
{
	struct stag_heap_keys k;
	struct target t = {.addr = (uintptr_t)ptr};

	assert_int_equal(stag_heap_keys(v->heap, v->device, ptr, &k), 0);
	t.rkey = k.rkey;
	v->known[v->n_known++] = t;
	return t;
}

static void release_all(struct victim *v, void **ptr)
{
	for (int i = 0; i < AT_ONCE; i++)
		other_free(&v->owner, ptr[i]);
	other_trim(&v->owner);
	v->n_gone = v->n_known;
}

static void run_round(struct victim *v, unsigned number)
{
	struct target fresh[AT_ONCE], later[AT_ONCE];
	void *ptr[AT_ONCE];
	uint8_t byte = (uint8_t)(number | 1);
	bool look = number % 4 < 2; /* a lookup drops the stale registration and makes a new one */

	for (int i = 0; i < AT_ONCE; i++) {
		ptr[i] = other_alloc(&v->owner, SIZE);
		fresh[i] = record_key(v, ptr[i]);
	}
	release_all(v, ptr);
	if (number % 2)
		attack_with_keys(v, fresh, AT_ONCE); /* no block is in their place */
	for (int i = 0; i < AT_ONCE; i++) {
		ptr[i] = other_alloc(&v->owner, SIZE);
		other_fill(&v->owner, ptr[i], SIZE, byte);
		if (look)
			later[i] = record_key(v, ptr[i]);
	}
	attack_with_keys(v, fresh, AT_ONCE);
	for (int i = 0; i < AT_ONCE; i++)
		assert_true(other_finds(&v->owner, ptr[i], SIZE, byte));
	release_all(v, ptr);
	if (look)
		attack_with_keys(v, later, AT_ONCE);
}

/* ---- the test ---- */

static void start_attacker(struct attacker *a)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	a->pid = fork();
	if (a->pid == 0) {
		dup2(fds[1], 1000);
		execl("/proc/self/exe", "attacker", "--attack", NULL);
		_exit(127);
	}
	assert_true(a->pid > 0);
	close(fds[1]);
	a->fd = fds[0];
}

static void end_attacker(struct attacker *a)
{
	int status;

	close(a->fd);
	assert_int_equal(waitpid(a->pid, &status, 0), a->pid);
	assert_int_equal(status, 0);
}

static void victim_open(struct victim *v, const char *name, uint64_t tries)
{
	struct stag_heap_attr attr = {.block_size = BLOCK,
				      .max_blocks = BLOCKS,
				      .retain_ms = -1,
				      .flags = STAG_HEAP_EXCLUSIVE};
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	v->heap = stag_heap_create(name, &attr);
	if (!v->heap)
		fail_msg("%s", stag_heap_error());
	v->known = calloc(tries, sizeof(*v->known)); /* room for one key per attempt */
	v->contexts = rdma_get_devices(NULL);
	v->pd = ibv_alloc_pd(v->contexts[0]);
	v->cq = ibv_create_cq(v->contexts[0], 1024, NULL, NULL, 0);
	assert_int_equal(stag_heap_add_device(v->heap, v->pd, NULL, &v->device), 0);
	v->events = rdma_create_event_channel();
	fcntl(v->events->fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(rdma_create_id(v->events, &v->listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(v->listener, (struct sockaddr *)&at), 0);
	assert_int_equal(rdma_listen(v->listener, 64), 0);
	other_start(&v->owner, name);
	for (int i = 0; i < ATTACKERS; i++)
		start_attacker(&v->attacker[i]);
}

static void victim_close(struct victim *v)
{
	for (int i = 0; i < ATTACKERS; i++)
		end_attacker(&v->attacker[i]);
	other_end(&v->owner);
	assert_int_equal(stag_heap_check(v->heap, stderr), 0);
	assert_int_equal(stag_heap_detach(v->heap, false), 0);
	/* Connections whose disconnect has not been reported yet. */
	await((serve_event(v), !v->connections));
	assert_int_equal(rdma_destroy_id(v->listener), 0);
	rdma_destroy_event_channel(v->events);
	assert_int_equal(ibv_destroy_cq(v->cq), 0);
	assert_int_equal(ibv_dealloc_pd(v->pd), 0);
	rdma_free_devices(v->contexts);
	free(v->known);
}

static void keys_of_released_blocks_are_refused(void **state)
{
	uint64_t tries = getenv("STAG_LONG") ? 1000000 : TRIES;
	struct victim *v = calloc(1, sizeof(*v));
	char name[STAG_HEAP_NAME_MAX];
	struct stag_heap_stats stats;
	unsigned rounds = 0;

	snprintf(name, sizeof(name), "test-attack.%d", getpid());
	victim_open(v, name, tries);
	while (v->tries < tries) {
		run_round(v, rounds++);
		assert_int_equal(v->let, 0);
	}
	assert_int_equal(stag_heap_query(v->heap, &stats, sizeof(stats)), 0);
	assert_int_equal(stats.registrations_made, v->n_known); /* no key was left out */
	print_message(
		"%lu attempts with %zu keys in %u rounds, all refused; %lu registrations, %lu "
		"found stale\n",
		v->tries, v->n_known, rounds, stats.registrations_made, stats.stale_found);
	victim_close(v);
	free(v);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_of_released_blocks_are_refused),
	};
	int status;

	if (other_main(argc, argv, &status))
		return status;
	if (argc == 2 && strcmp(argv[1], "--attack") == 0)
		return run_attacker(1000);
	return cmocka_run_group_tests_name("old keys", tests, NULL, NULL);
}
