// SPDX-License-Identifier: BSD-2-Clause
/*
 * rogue.c - clients that are admitted, begin something large, and leave the server waiting.
 *
 *   rogue store PORT PARTITION    reads, and takes no answer
 *   rogue iser PORT TARGET/LUN    writes over iSER, and answers no RDMA Read
 *
 * Each is a child process, which reaches the server through a valve, and shuts that while a lot is in flight. There
 * are CLIENTS at a time; each ends when the server has disconnected it, or after HOLD_S seconds. Ends when it is killed.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <stag/block.h>
#include <stag/store.h>

#include "valve.h"

#define CLIENTS	 6
#define HOLD_S	 20
#define BYTES	 (1u << 20)
#define READS	 16
#define BEGUN_US 30000 /* in which a client has moved some bytes, so that more are in flight */

static struct valve valve;
static char bytes[BYTES];

static void shut(enum valve_way way)
{
	atomic_store(&valve.shut[way], true);
	alarm(HOLD_S);
}

static void read_store(const char *partition)
{
	struct stag_store_connect_attr attr = {.qp.cap.max_send_wr = READS, .timeout_ms = 10000};
	struct stag_store_endpoint *e;
	struct ibv_sge sge = {(uintptr_t)bytes, BYTES, 0};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	char where[256];

	snprintf(where, sizeof(where), "127.0.0.1:%u/%s", valve.port, partition);
	e = stag_store_connect(where, &attr);
	mr = e ? ibv_reg_mr(e->qp->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!mr)
		return;
	sge.lkey = mr->lkey;
	wr.wr.rdma.remote_addr = e->base;
	wr.wr.rdma.rkey = e->rkey;
	shut(VALVE_TO_CLIENT);
	for (int i = 0; i < READS && ibv_post_send(e->qp, &wr, &bad) == 0; i++)
		;
	while (ibv_poll_cq(e->qp->send_cq, 1, &wc) == 0)
		usleep(10000);
}

static void *shut_soon(void *arg)
{
	usleep(BEGUN_US);
	shut(VALVE_TO_NODE);
	return arg;
}

static void write_unit(const char *unit)
{
	struct stag_block_attr attr = {.retry_ms = -1};
	struct stag_block *b;
	pthread_t thread;
	char url[256];

	snprintf(url, sizeof(url), "iser://127.0.0.1:%u/%s", valve.port, unit);
	b = stag_block_open(url, &attr);
	if (!b || pthread_create(&thread, NULL, shut_soon, NULL) != 0)
		return;
	while (stag_block_write(b, bytes, 0, BYTES, 0) == 0)
		;
}

/* In a child: connects to the server's port, and ends when it is disconnected. */
static void be_client(const char *kind, uint16_t port, const char *where)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(HOLD_S);
	valve_open(&valve, port);
	if (strcmp(kind, "store") == 0)
		read_store(where);
	else
		write_unit(where);
	_exit(0);
}

int main(int argc, char **argv)
{
	if (argc != 4 || (strcmp(argv[1], "store") != 0 && strcmp(argv[1], "iser") != 0)) {
		fprintf(stderr, "usage: rogue store PORT PARTITION | iser PORT TARGET/LUN\n");
		return 2;
	}
	for (unsigned int n = 0;; n++) {
		pid_t pid = fork();

		if (pid == 0)
			be_client(argv[1], (uint16_t)atoi(argv[2]), argv[3]);
		if (n + 1 >= CLIENTS || pid < 0)
			wait(NULL);
		usleep(300000);
	}
}
