// SPDX-License-Identifier: BSD-2-Clause
/*
 * 10-heap - a pointer, and its key.
 *
 *     cc 10-heap.c pair.c -lstag -libverbs -lrdmacm -o 10-heap
 *     stag run -- ./10-heap server
 *     stag run -- ./10-heap client 127.0.0.1 PORT
 *
 * Both processes have attached one heap at the same address: a pointer of one is valid in the
 * other. Its memory is ready for RDMA: stag_heap_keys() gives the keys of any pointer, and nothing
 * is registered. When the memory returns to the system, its key becomes invalid for all peers.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_verbs.h>
#include <stag/heap.h>

#include "pair.h"

#define SIZE (1 << 20)

static void complain(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, stag_heap_error());
	errno = ECANCELED;
	die(what);
}

static struct stag_heap *open_heap(struct pair *p, const char *port, unsigned int *device)
{
	struct stag_heap_attr attr = {
		.retain_ms = -1}; /* empty blocks are returned only by stag_heap_trim() */
	struct stag_heap *heap;
	char name[STAG_HEAP_NAME_MAX];

	snprintf(name, sizeof(name), "example.%s", port);
	heap = p->server ? stag_heap_create(name, &attr) : stag_heap_attach(name, &attr);
	if (!heap)
		complain("the heap");
	if (stag_heap_add_device(heap, p->id->pd, NULL, device))
		complain("its device");
	return heap;
}

/* The receive that is always posted is flushed when the connection ends. */
static void wait_for_the_end(struct pair *p)
{
	struct ibv_wc wc;

	if (rdma_get_recv_comp(p->id, &wc) < 0)
		die("waiting for the end");
	printf("the peer used an old key: %s\n", ibv_wc_status_str(wc.status));
}

static int serve(struct pair *p)
{
	struct stag_heap_keys keys;
	struct stag_heap *heap;
	unsigned int device;
	char *text, port[16], done;
	struct place place;

	snprintf(port, sizeof(port), "%u", ntohs(rdma_get_src_port(p->listener)));
	heap = open_heap(p, port, &device);
	text = stag_heap_alloc(heap, SIZE);
	if (!text || stag_heap_keys(heap, device, text, &keys))
		complain("memory and its keys");
	strcpy(text, "one memory, two ways to it");
	place = (struct place){(uintptr_t)text, keys.rkey, SIZE};
	pair_tell(p, &place, sizeof(place));
	pair_hear(p, &done, sizeof(done));
	stag_heap_free(heap, text);
	printf("%llu bytes back to the system\n", (unsigned long long)stag_heap_trim(heap));
	pair_tell(p, "!", 1);
	wait_for_the_end(p);
	stag_heap_detach(heap, false);
	return 0;
}

static enum ibv_wc_status read_place(struct pair *p, const struct place *place, char *to,
				     uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)to, 64, lkey};
	struct ibv_send_wr read = {.sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_READ,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_wc wc;

	read.wr.rdma.remote_addr = place->addr;
	read.wr.rdma.rkey = place->rkey;
	errno = ibv_post_send(p->id->qp, &read, &bad);
	if (errno)
		die("ibv_post_send");
	if (rdma_get_send_comp(p->id, &wc) < 0)
		die("waiting for the read");
	return wc.status;
}

static int use_peer(struct pair *p, const char *port)
{
	enum ibv_wc_status first, second;
	struct stag_heap_keys keys;
	struct stag_heap *heap;
	unsigned int device;
	struct place place;
	char *sink, gone;

	pair_hear(p, &place, sizeof(place));
	heap = open_heap(p, port, &device);
	printf("by its pointer: '%s'\n", (char *)(uintptr_t)place.addr);
	sink = stag_heap_alloc(heap, 64);
	if (!sink || stag_heap_keys(heap, device, sink, &keys))
		complain("a sink and its keys");
	first = read_place(p, &place, sink, keys.lkey);
	printf("by its key: %s, '%s'\n", ibv_wc_status_str(first), sink);
	pair_tell(p, "!", 1);
	pair_hear(p, &gone, sizeof(gone));
	second = read_place(p, &place, sink, keys.lkey);
	printf("when it has gone: %s\n", ibv_wc_status_str(second));
	stag_heap_free(heap, sink);
	stag_heap_detach(heap, false);
	return first != IBV_WC_SUCCESS || second == IBV_WC_SUCCESS;
}

int main(int argc, char **argv)
{
	struct pair p;
	int rc;

	pair_open(&p, argc, argv);
	rc = p.server ? serve(&p) : use_peer(&p, argv[3]);
	pair_close(&p);
	return rc;
}
