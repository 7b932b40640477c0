// SPDX-License-Identifier: BSD-2-Clause
/*
 * 01-hello-region - open a device, register some memory, look at its keys.
 *
 *     cc 01-hello-region.c -libverbs -o 01-hello-region
 *     stag run -- ./01-hello-region
 *
 * A region is memory that the adapter may use. The local key names it in our own
 * work requests, the remote key in those of a peer: a peer that has the remote
 * key and an address can read and write the region without our program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <infiniband/verbs.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

int main(void)
{
	static char memory[4096];
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	if (!devices || !devices[0]) {
		fprintf(stderr, "no RDMA device: is this running under 'stag run'?\n");
		return 1;
	}
	context = ibv_open_device(devices[0]);
	if (!context)
		die("ibv_open_device");

	/* Objects can be used together only within one protection domain. */
	pd = ibv_alloc_pd(context);
	if (!pd)
		die("ibv_alloc_pd");

	mr = ibv_reg_mr(pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		die("ibv_reg_mr");
	printf("%s: %zu bytes at %p, local key 0x%08x, remote key 0x%08x\n",
	       ibv_get_device_name(devices[0]), mr->length, mr->addr, mr->lkey, mr->rkey);

	if (ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || ibv_close_device(context))
		die("closing");
	ibv_free_device_list(devices);
	return 0;
}
