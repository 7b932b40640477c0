// SPDX-License-Identifier: BSD-2-Clause
/*
 * honest.c - a client that only wants to be served, while others attack.
 *
 *   honest [--busy] pool WHERE USER SECRET-FILE [tls]
 *   honest [--busy] store HOST:PORT/PARTITION [TOKEN-FILE]
 *   honest [--busy] block URL [USER SECRET-FILE]
 *   honest control STALL_MS
 *
 * With "tls", a token or a user, it requires TLS. Between two rounds it waits 2 ms, or not at all (--busy).
 *
 * Writes a counter to one slot after the other, reads each back, and checks that no slot has less
 * than what was acknowledged. Measures how long each operation takes, and how long the machine kept
 * processes from running meanwhile, which is not the service's fault: on each processor, a thread
 * that only sleeps notices that (a control). Ends at the end of its standard input, checks every
 * slot once more, and prints one line of JSON.
 *
 * honest control is no client: only controls, which have a real-time priority if they may. So nothing that other processes
 * do delays them, but only the machine itself; a stall is a delay of STALL_MS.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <stag/block.h>
#include <stag/pool.h>
#include <stag/store.h>

#define SLOTS	 16
#define BYTES	 4096 /* of a slot */
#define WORDS	 (BYTES / sizeof(uint64_t))
#define ROUND_MS 2  /* from one round to the next, unless --busy */
#define PATIENCE 60 /* seconds until a service that was lost is back */

/* How slots are written and read. Both return 0, or an errno value. */
struct service {
	int (*open)(void);
	void (*close)(void);
	int (*put)(unsigned slot, const uint64_t *from);
	int (*get)(unsigned slot, uint64_t *to);
	const char *(*error)(void);
};

static struct {
	uint64_t operations, wrong, lost, worst_us, worst_own_us;
	unsigned reopened;
} result;

static uint64_t tried[SLOTS], acknowledged[SLOTS];
static char **args;
static bool busy;

static char secret[256];

/* Reads the first line of a file. */
static bool read_secret(const char *path)
{
	FILE *f = fopen(path, "r");
	bool good = f && fgets(secret, sizeof(secret), f);

	if (f)
		fclose(f);
	secret[strcspn(secret, "\n")] = 0;
	return good;
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- the machine's share --------------------------------------------------------------- */

#define NAP_US	10000
#define LATE_US 20000 /* shorter delays are those of any busy machine */

/* What the controls have seen, all processors together. */
static _Atomic uint64_t late_us; /* sum of the time by which they woke too late */
static _Atomic uint64_t worst_late_us;
static _Atomic unsigned stalls; /* wakes that were stall_us too late */
static uint64_t stall_us = UINT64_MAX;
static bool real_time; /* the controls are */

static void note_late(uint64_t us)
{
	uint64_t worst = atomic_load(&worst_late_us);

	atomic_fetch_add(&late_us, us);
	if (us >= stall_us)
		atomic_fetch_add(&stalls, 1);
	while (us > worst && !atomic_compare_exchange_weak(&worst_late_us, &worst, us))
		;
}

/* A control: does nothing but sleep, on one processor, and notes how late it wakes. */
static void *sleep_and_measure(void *arg)
{
	struct timespec nap = {.tv_nsec = NAP_US * 1000};

	(void)arg;
	for (;;) {
		uint64_t before = now_us(), slept;

		nanosleep(&nap, NULL);
		slept = now_us() - before;
		if (slept > NAP_US + LATE_US)
			note_late(slept - NAP_US);
	}
	return NULL;
}

/* Starts a control on one processor. Returns 0, or an errno value. */
static int start_control(int cpu)
{
	struct sched_param priority = {.sched_priority = sched_get_priority_max(SCHED_FIFO)};
	pthread_attr_t attr;
	pthread_t thread;
	cpu_set_t one;
	int rc;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(one), &one);
	if (real_time) {
		pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
		pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
		pthread_attr_setschedparam(&attr, &priority);
	}
	rc = pthread_create(&thread, &attr, sleep_and_measure, NULL);
	pthread_attr_destroy(&attr);
	return rc;
}

/* Starts a control on each processor that this process may use. */
static bool start_controls(void)
{
	cpu_set_t all;
	int rc;

	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		return false;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		rc = start_control(cpu);
		if (rc == EPERM && real_time) {
			real_time = false;
			rc = start_control(cpu);
		}
		if (rc != 0)
			return false;
	}
	return true;
}

/* ---- a pool ---------------------------------------------------------------------------- */

static struct stag_pool *pool;

static int pool_open(void)
{
	struct stag_pool_attr attr = {
		.user = args[1], .secret = secret, .retry_ms = PATIENCE * 1000};

	if (!read_secret(args[2]))
		return EINVAL;
	if (args[3])
		attr.tls = STAG_POOL_TLS_REQUIRED;
	pool = stag_pool_open(args[0], &attr);
	return pool ? 0 : errno;
}

static void pool_close(void)
{
	stag_pool_close(pool);
	pool = NULL;
}

static const char *slot_name(unsigned slot)
{
	static char name[32];

	snprintf(name, sizeof(name), "honest-%d-%u", (int)getpid(), slot);
	return name;
}

static int pool_put(unsigned slot, const uint64_t *from)
{
	return stag_pool_put(pool, slot_name(slot), from, BYTES, 0, NULL) ? errno : 0;
}

static int pool_get(unsigned slot, uint64_t *to)
{
	size_t length = BYTES;

	if (stag_pool_get(pool, slot_name(slot), to, &length, NULL))
		return errno;
	return length == BYTES ? 0 : EPROTO;
}

/* ---- a partition of a store --------------------------------------------------------------- */

static struct stag_store_endpoint *store;
static struct ibv_mr *store_mr;
static uint64_t *store_bytes;

static int store_open(void)
{
	struct stag_store_connect_attr attr = {.timeout_ms = 10000};

	if (args[1]) {
		if (!read_secret(args[1]))
			return EINVAL;
		attr.token = secret;
		attr.flags = STAG_STORE_TLS;
	}
	store = stag_store_connect(args[0], &attr);
	if (!store)
		return errno;
	store_bytes = calloc(1, BYTES);
	store_mr = store_bytes
			   ? ibv_reg_mr(store->qp->pd, store_bytes, BYTES, IBV_ACCESS_LOCAL_WRITE)
			   : NULL;
	return store_mr ? 0 : ENOMEM;
}

static void store_close(void)
{
	stag_store_disconnect(store);
	if (store_mr)
		ibv_dereg_mr(store_mr);
	free(store_bytes);
	store = NULL;
	store_mr = NULL;
	store_bytes = NULL;
}

static int store_move(unsigned slot, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = {(uintptr_t)store_bytes, BYTES, store_mr->lkey};
	struct ibv_send_wr wr = {
		.opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	wr.wr.rdma.remote_addr = store->base + (uint64_t)slot * BYTES;
	wr.wr.rdma.rkey = store->rkey;
	n = ibv_post_send(store->qp, &wr, &bad);
	if (n)
		return n;
	while ((n = ibv_poll_cq(store->qp->send_cq, 1, &wc)) == 0)
		usleep(50);
	return n > 0 && wc.status == IBV_WC_SUCCESS ? 0 : ECONNRESET;
}

static int store_put(unsigned slot, const uint64_t *from)
{
	memcpy(store_bytes, from, BYTES);
	return store_move(slot, IBV_WR_RDMA_WRITE);
}

static int store_get(unsigned slot, uint64_t *to)
{
	int rc = store_move(slot, IBV_WR_RDMA_READ);

	if (rc == 0)
		memcpy(to, store_bytes, BYTES);
	return rc;
}

/* ---- a unit of a block target --------------------------------------------------------------- */

static struct stag_block *block;

static int block_open(void)
{
	struct stag_block_attr attr = {.retry_ms = PATIENCE * 1000};

	if (args[1]) {
		if (!read_secret(args[2]))
			return EINVAL;
		attr.user = args[1];
		attr.secret = secret;
		attr.comp_mask = STAG_BLOCK_ATTR_TLS;
		attr.tls = STAG_BLOCK_TLS_REQUIRED;
	}
	block = stag_block_open(args[0], &attr);
	return block ? 0 : errno;
}

static void block_close(void)
{
	stag_block_close(block);
	block = NULL;
}

static int block_put(unsigned slot, const uint64_t *from)
{
	return stag_block_write(block, from, (uint64_t)slot * BYTES, BYTES, 0) ? errno : 0;
}

static int block_get(unsigned slot, uint64_t *to)
{
	return stag_block_read(block, to, (uint64_t)slot * BYTES, BYTES) ? errno : 0;
}

/* ---- what every service is asked ------------------------------------------------------------ */

static const struct service services[] = {
	{pool_open, pool_close, pool_put, pool_get, stag_pool_error},
	{store_open, store_close, store_put, store_get, stag_store_error},
	{block_open, block_close, block_put, block_get, stag_block_error},
};
static const char *const names[] = {"pool", "store", "block"};
static const int needs[][2] = {{3, 4}, {1, 2}, {1, 3}}; /* arguments: without TLS, and with it */

static const struct service *service;

static void note_error(const char *what, unsigned slot, int error)
{
	const char *text = service->error();

	fprintf(stderr, "honest: %s slot %u: %s (%s)\n", what, slot, strerror(error),
		text ? text : "");
}

static void note_time(uint64_t began, uint64_t late)
{
	uint64_t took = now_us() - began, theirs, own;

	if (took > 10 * NAP_US) /* a control may be about to wake */
		usleep(2 * NAP_US);
	theirs = atomic_load(&late_us) - late;
	own = took > theirs ? took - theirs : 0;
	result.operations++;
	if (took > result.worst_us)
		result.worst_us = took;
	if (own > result.worst_own_us)
		result.worst_own_us = own;
}

/* Opens the service again, for as long as a restart may take. */
static bool reopen(void)
{
	uint64_t end = now_us() + PATIENCE * 1000000ull;

	service->close();
	result.reopened++;
	for (;;) {
		if (service->open() == 0)
			return true;
		if (now_us() > end)
			return false;
		usleep(100000);
	}
}

static int put_slot(unsigned slot)
{
	uint64_t bytes[WORDS], began = now_us(), late = atomic_load(&late_us);
	int rc;

	tried[slot]++;
	for (size_t i = 0; i < WORDS; i++)
		bytes[i] = tried[slot];
	rc = service->put(slot, bytes);
	note_time(began, late);
	if (rc == 0)
		acknowledged[slot] = tried[slot];
	else
		note_error("writing", slot, rc);
	return rc;
}

/* A slot holds one counter throughout, between the one acknowledged last and the one tried last. */
static int check_slot(unsigned slot)
{
	uint64_t bytes[WORDS], began = now_us(), late = atomic_load(&late_us);
	int rc = service->get(slot, bytes);

	note_time(began, late);
	if (rc != 0) {
		note_error("reading", slot, rc);
		return rc;
	}
	if (bytes[0] < acknowledged[slot])
		result.lost++;
	for (size_t i = 0; i < WORDS; i++)
		if (bytes[i] != bytes[0] || bytes[i] > tried[slot]) {
			result.wrong++;
			break;
		}
	return 0;
}

static bool told_to_end(void)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	char c;

	return poll(&p, 1, busy ? 0 : ROUND_MS) > 0 && read(STDIN_FILENO, &c, 1) <= 0;
}

static bool run_until_told(void)
{
	for (unsigned slot = 0; !told_to_end(); slot = (slot + 1) % SLOTS)
		if ((put_slot(slot) != 0 || check_slot(slot) != 0) && !reopen())
			return false;
	for (unsigned slot = 0; slot < SLOTS; slot++)
		while (acknowledged[slot] && check_slot(slot) != 0)
			if (!reopen())
				return false;
	return true;
}

static void choose_service(int argc, char **argv)
{
	busy = argc > 1 && strcmp(argv[1], "--busy") == 0;
	argc -= 1 + busy;
	argv += 1 + busy;
	for (size_t i = 0; argc > 0 && i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(argv[0], names[i]) == 0 &&
		    (argc == 1 + needs[i][0] || argc == 1 + needs[i][1]))
			service = &services[i];
	args = argv + 1;
}

static void print_result(void)
{
	printf("{\"operations\": %" PRIu64 ", \"wrong\": %" PRIu64 ", \"lost\": %" PRIu64
	       ", \"reopened\": %u, \"worst_ms\": %.1f, \"worst_own_ms\": %.1f"
	       ", \"worst_late_ms\": %.1f}\n",
	       result.operations, result.wrong, result.lost, result.reopened,
	       (double)result.worst_us / 1000, (double)result.worst_own_us / 1000,
	       (double)atomic_load(&worst_late_us) / 1000);
}

static int be_control(const char *stall_ms)
{
	stall_us = (uint64_t)atoi(stall_ms) * 1000;
	real_time = true;
	if (!start_controls())
		return 1;
	printf("served\n");
	fflush(stdout);
	while (!told_to_end())
		;
	printf("{\"real_time\": %s, \"stalls\": %u, \"worst_late_ms\": %.1f}\n",
	       real_time ? "true" : "false", atomic_load(&stalls),
	       (double)atomic_load(&worst_late_us) / 1000);
	return 0;
}

int main(int argc, char **argv)
{
	bool served;

	if (argc == 3 && strcmp(argv[1], "control") == 0)
		return be_control(argv[2]);
	choose_service(argc, argv);
	if (!service) {
		fprintf(stderr,
			"usage: honest [--busy] pool WHERE USER SECRET-FILE [tls] | store WHERE "
			"[TOKEN-FILE]\n"
			"       | block URL [USER SECRET-FILE], or honest control STALL_MS\n");
		return 2;
	}
	if (!start_controls())
		return 1;
	if (service->open() != 0) {
		fprintf(stderr, "honest: %s\n", service->error());
		return 1;
	}
	for (unsigned slot = 0; slot < SLOTS; slot++)
		put_slot(slot);
	printf("served\n");
	fflush(stdout);
	served = run_until_told();
	service->close();
	print_result();
	return served ? 0 : 1;
}
