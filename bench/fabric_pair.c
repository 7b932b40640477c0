// SPDX-License-Identifier: BSD-2-Clause
/*
 * fabric_pair.c - the cases over libfabric: the tcp provider's message endpoints.
 */
#include "peer_cases.h"

#include <arpa/inet.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXTS  1024 /* more than the operations in flight */
#define EVENT_MS  10000
#define CQ_BATCH  16
#define NAME_SIZE 256

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_mr *mr;
static void *desc;
static uint64_t remote_base, remote_key;
static struct fi_context contexts[CONTEXTS];
static unsigned int next_context;

static void check(long err, const char *what)
{
	if (err)
		pair_die("%s: %s", what, fi_strerror((int)-err));
}

static void *context(void)
{
	return &contexts[next_context++ % CONTEXTS];
}

static void progress(void)
{
	struct fi_cq_msg_entry e[CQ_BATCH];
	ssize_t n = fi_cq_read(cq, e, CQ_BATCH);

	if (n == -FI_EAGAIN)
		return;
	if (n < 0)
		pair_die("completion: %s", fi_strerror((int)-n));
	for (ssize_t i = 0; i < n; i++) {
		if (e[i].flags & FI_RECV)
			peer.received++;
		else
			peer.done++;
	}
}

/* Repeats a posting call until the provider accepts it. */
#define POST(call)                                                                                 \
	do {                                                                                       \
		ssize_t err_;                                                                      \
                                                                                                   \
		while ((err_ = (call)) == -FI_EAGAIN)                                              \
			progress();                                                                \
		check(err_, #call);                                                                \
	} while (0)

static void write_fabric(size_t from, size_t to, size_t len)
{
	POST(fi_write(ep, peer.region + from, len, desc, 0, remote_base + to, remote_key,
		      context()));
}

static void read_fabric(size_t to, size_t from, size_t len)
{
	POST(fi_read(ep, peer.region + to, len, desc, 0, remote_base + from, remote_key,
		     context()));
}

static void send_fabric(size_t from, size_t len)
{
	POST(fi_send(ep, peer.region + from, len, desc, 0, context()));
}

static void receive_fabric(size_t to, size_t len)
{
	POST(fi_recv(ep, peer.region + to, len, desc, 0, context()));
}

static void look_up(void)
{
	struct fi_info *hints = fi_allocinfo();

	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT;
	hints->domain_attr->mr_mode =
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->fabric_attr->prov_name = strdup("tcp");
	hints->rx_attr->size = PEER_RECEIVES;
	check(fi_getinfo(FI_VERSION(1, 15), options.address, NULL, FI_SOURCE, hints, &info),
	      "fi_getinfo");
	fi_freeinfo(hints);
}

static void open_endpoint(struct fi_info *fi)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_MSG, .size = CONTEXTS};

	check(fi_domain(fabric, fi, &domain, NULL), "fi_domain");
	check(fi_cq_open(domain, &attr, &cq, NULL), "fi_cq_open");
	check(fi_endpoint(domain, fi, &ep, NULL), "fi_endpoint");
	check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_ep_bind(ep, &eq->fid, 0), "fi_ep_bind");
	check(fi_enable(ep), "fi_enable");
}

static struct fi_info *wait_event(uint32_t want)
{
	struct fi_eq_cm_entry e;
	uint32_t event = 0;
	ssize_t n = fi_eq_sread(eq, &event, &e, sizeof(e), EVENT_MS, 0);

	if (n < 0 || event != want)
		pair_die("connection event %u, expected %u: %zd", event, want, n);
	return e.info;
}

static void accept_client(void)
{
	struct fid_pep *pep;
	char name[NAME_SIZE] = "";
	size_t len = sizeof(name);

	check(fi_passive_ep(fabric, info, &pep, NULL), "fi_passive_ep");
	check(fi_pep_bind(pep, &eq->fid, 0), "fi_pep_bind");
	check(fi_listen(pep), "fi_listen");
	check(fi_getname(&pep->fid, name, &len), "fi_getname");
	pair_tell(name, sizeof(name));
	open_endpoint(wait_event(FI_CONNREQ));
	check(fi_accept(ep, NULL, 0), "fi_accept");
	wait_event(FI_CONNECTED);
}

static void connect_server(void)
{
	char name[NAME_SIZE];

	pair_hear(name, sizeof(name));
	open_endpoint(info);
	check(fi_connect(ep, name, NULL, 0), "fi_connect");
	wait_event(FI_CONNECTED);
}

static void open_fabric(void)
{
	struct fi_eq_attr attr = {.wait_obj = FI_WAIT_UNSPEC};

	look_up();
	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_eq_open(fabric, &attr, &eq, NULL), "fi_eq_open");
	if (pair_is_server)
		accept_client();
	else
		connect_server();
}

static void register_region(void)
{
	uint64_t access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV;
	uint64_t base = 0, key;

	peer.region_len = peer_region_len();
	peer.region = pair_memory(peer.region_len);
	check(fi_mr_reg(domain, peer.region, peer.region_len, access, 0, 1, 0, &mr, NULL),
	      "fi_mr_reg");
	desc = fi_mr_desc(mr);
	if (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		base = (uintptr_t)peer.region;
	key = fi_mr_key(mr);
	pair_tell(&base, sizeof(base));
	pair_tell(&key, sizeof(key));
	pair_hear(&remote_base, sizeof(remote_base));
	pair_hear(&remote_key, sizeof(remote_key));
}

static const struct peer_transport transport = {
	.write = write_fabric,
	.read = read_fabric,
	.send = send_fabric,
	.receive = receive_fabric,
	.progress = progress,
};

int main(int argc, char **argv)
{
	const struct pair_case *c = pair_start(argc, argv, peer_cases);

	peer.transport = &transport;
	open_fabric();
	register_region();
	pair_run(c, progress);
	return 0;
}
