// SPDX-License-Identifier: BSD-2-Clause
/*
 * ucx_pair.c - the cases over UCX: put, get and tagged messages of UCP.
 *
 * UCX chooses the transport; the runner sets UCX_TLS to tcp. The passive side
 * spins in ucp_worker_progress; that of ucx_perftest calls it only about once a
 * millisecond, which does not show the speed of the library.
 */
#include "peer_cases.h"

#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define TAG 1

static ucp_worker_h worker;
static ucp_ep_h ep;
static ucp_rkey_h rkey;
static uint64_t remote_base;

static void check(ucs_status_t s, const char *what)
{
	if (s != UCS_OK)
		pair_die("%s: %s", what, ucs_status_string(s));
}

static void progress(void)
{
	ucp_worker_progress(worker);
}

static void on_done(void *request, ucs_status_t status, void *arg)
{
	check(status, "operation");
	(*(uint64_t *)arg)++;
	ucp_request_free(request);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *tag,
			void *arg)
{
	on_done(request, status, arg);
}

static ucp_request_param_t counting(uint64_t *counter)
{
	ucp_request_param_t p = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.user_data = counter};

	p.cb.send = on_done;
	return p;
}

/* NULL: done before the call returned, so the callback will not be called. */
static void started(ucs_status_ptr_t r, uint64_t *counter)
{
	if (UCS_PTR_IS_ERR(r))
		check(UCS_PTR_STATUS(r), "operation");
	if (!r)
		(*counter)++;
}

static void write_ucx(size_t from, size_t to, size_t len)
{
	ucp_request_param_t p = counting(&peer.done);

	started(ucp_put_nbx(ep, peer.region + from, len, remote_base + to, rkey, &p), &peer.done);
}

static void read_ucx(size_t to, size_t from, size_t len)
{
	ucp_request_param_t p = counting(&peer.done);

	started(ucp_get_nbx(ep, peer.region + to, len, remote_base + from, rkey, &p), &peer.done);
}

static void send_ucx(size_t from, size_t len)
{
	ucp_request_param_t p = counting(&peer.done);

	started(ucp_tag_send_nbx(ep, peer.region + from, len, TAG, &p), &peer.done);
}

static void receive_ucx(size_t to, size_t len)
{
	ucp_request_param_t p = counting(&peer.received);

	p.cb.recv = on_received;
	started(ucp_tag_recv_nbx(worker, peer.region + to, len, TAG, UINT64_MAX, &p),
		&peer.received);
}

static void flush_ucx(void)
{
	uint64_t done = 0;
	ucp_request_param_t p = counting(&done);

	started(ucp_ep_flush_nbx(ep, &p), &done);
	while (!done)
		progress();
}

/* Exchanges a block of bytes with the peer. Returns the peer's, which the caller frees. */
static void *exchange_block(const void *mine, size_t len)
{
	uint64_t n = len;
	void *theirs;

	pair_tell(&n, sizeof(n));
	pair_tell(mine, len);
	pair_hear(&n, sizeof(n));
	theirs = malloc(n);
	if (!theirs)
		pair_die("malloc");
	pair_hear(theirs, n);
	return theirs;
}

static ucp_context_h open_ucx(void)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
			       .features = UCP_FEATURE_RMA | UCP_FEATURE_TAG};
	ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				  .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_ep_params_t epp = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
	ucp_context_h context;
	ucp_address_t *address;
	size_t len;

	check(ucp_init(&params, NULL, &context), "ucp_init");
	check(ucp_worker_create(context, &wp, &worker), "ucp_worker_create");
	check(ucp_worker_get_address(worker, &address, &len), "ucp_worker_get_address");
	epp.address = exchange_block(address, len);
	check(ucp_ep_create(worker, &epp, &ep), "ucp_ep_create");
	free((void *)epp.address);
	ucp_worker_release_address(worker, address);
	return context;
}

static void register_region(ucp_context_h context)
{
	ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
						     UCP_MEM_MAP_PARAM_FIELD_LENGTH};
	uint64_t base;
	ucp_mem_h mem;
	void *key, *theirs;
	size_t len;

	peer.region_len = peer_region_len();
	peer.region = pair_memory(peer.region_len);
	params.address = peer.region;
	params.length = peer.region_len;
	check(ucp_mem_map(context, &params, &mem), "ucp_mem_map");
	check(ucp_rkey_pack(context, mem, &key, &len), "ucp_rkey_pack");
	theirs = exchange_block(key, len);
	check(ucp_ep_rkey_unpack(ep, theirs, &rkey), "ucp_ep_rkey_unpack");
	free(theirs);
	ucp_rkey_buffer_release(key);
	base = (uintptr_t)peer.region;
	pair_tell(&base, sizeof(base));
	pair_hear(&remote_base, sizeof(remote_base));
}

static const struct peer_transport transport = {
	.write = write_ucx,
	.read = read_ucx,
	.send = send_ucx,
	.receive = receive_ucx,
	.flush = flush_ucx,
	.progress = progress,
};

int main(int argc, char **argv)
{
	const struct pair_case *c = pair_start(argc, argv, peer_cases);
	ucp_context_h context = open_ucx();

	peer.transport = &transport;
	register_region(context);
	/* Connections are made on first use, in both directions, which must not be timed. */
	flush_ucx();
	pair_run(c, progress);
	return 0;
}
