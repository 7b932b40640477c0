// SPDX-License-Identifier: BSD-2-Clause
/*
 * xfer_link.c - the client of a benchmark: starts the target, and makes two connections to it.
 */
#include "part.h"

#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stag.h"

#define RESOLVE_MS    5000
#define MANAGED_DEPTH 1024
#define MAX_INLINE    64
#define MAX_READS     128

/* ---- a target on this machine ---- */

static void become_target(const char *at, const char *device, int out)
{
	char *args[] = {"stag",	    "bench",	"part",		"xfer", "--listen",
			(char *)at, "--device", (char *)device, NULL};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (bench_cpus() > 1)
		bench_pin(0);
	dup2(out, STDOUT_FILENO);
	execv("/proc/self/exe", args);
	_exit(EXIT_FAILED);
}

/* Reads the address from the first line that the target prints. */
static void read_address(int in, char *text, size_t size)
{
	FILE *said = fdopen(in, "r");
	char line[80] = "";

	if (!said || !fgets(line, sizeof(line), said) ||
	    strncmp(line, "listening on ", strlen("listening on ")))
		bench_die("the target did not start");
	line[strcspn(line, "\n")] = '\0';
	snprintf(text, size, "%s", line + strlen("listening on "));
	fclose(said);
}

static void start_target(struct bench_link *l, const struct bench_options *o)
{
	struct sockaddr_storage at;
	char text[80], *port;
	int fds[2];

	if (o->address)
		bench_resolve(o->address, 0, &at);
	else
		bench_address_of(o->device, &at);
	bench_print_address((struct sockaddr *)&at, text, sizeof(text));
	port = strrchr(text, ':');
	snprintf(port, sizeof(text) - (size_t)(port - text), ":0");
	if (pipe(fds))
		bench_die("pipe: %s", strerror(errno));
	l->target = fork();
	if (l->target < 0)
		bench_die("fork: %s", strerror(errno));
	if (l->target == 0)
		become_target(text, o->device, fds[1]);
	close(fds[1]);
	read_address(fds[0], l->address, sizeof(l->address));
	if (bench_cpus() > 1)
		bench_pin(1);
	if (clock_getcpuclockid(l->target, &l->cpu_time))
		bench_die("cannot read the target's CPU time");
}

/* ---- connections ---- */

static struct rdma_cm_event *expect_event(struct bench_link *l, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *ev;

	if (rdma_get_cm_event(l->events, &ev))
		bench_die("connection events: %s", strerror(errno));
	if (ev->event != want)
		bench_die("%s: %s", l->address,
			  ev->event == RDMA_CM_EVENT_REJECTED ? "the target refused"
							      : rdma_event_str(ev->event));
	return ev;
}

static void resolve_address(struct bench_link *l, struct rdma_cm_id *id)
{
	struct sockaddr_storage to;

	bench_resolve(l->address, BENCH_PORT, &to);
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS))
		bench_die("no RDMA device leads to %s: %s", l->address, strerror(errno));
	rdma_ack_cm_event(expect_event(l, RDMA_CM_EVENT_ADDR_RESOLVED));
	if (rdma_resolve_route(id, RESOLVE_MS))
		bench_die("no route to %s: %s", l->address, strerror(errno));
	rdma_ack_cm_event(expect_event(l, RDMA_CM_EVENT_ROUTE_RESOLVED));
}

static void check_device(const struct rdma_cm_id *id, const char *wanted)
{
	const char *name = ibv_get_device_name(id->verbs->device);

	if (strcmp(name, wanted))
		bench_die("that address is reached by %s, not by %s; see --device", name, wanted);
}

static void register_memory(struct bench_link *l, struct rdma_cm_id *id)
{
	if (l->pd)
		return;
	l->pd = ibv_alloc_pd(id->verbs);
	l->memory = bench_memory(l->size);
	if (l->pd) /* iWARP requires REMOTE_WRITE for the destination of a read */
		l->mr = ibv_reg_mr(l->pd, l->memory, l->size,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!l->mr)
		bench_die("cannot register %zu MiB: %s", l->size >> 20, strerror(errno));
	l->confirm = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

static bool try_qp(struct bench_link *l, struct bench_rail *r, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .send_cq = r->cq, .recv_cq = r->cq, .cap = cap};

	if (rdma_create_qp(r->id, l->pd, &attr))
		return false;
	if (r == &l->by_hand)
		l->max_inline = attr.cap.max_inline_data;
	return true;
}

/* Some devices have fewer segments or less inline data than they report if the queue is long. */
static void create_qp(struct bench_link *l, struct bench_rail *r)
{
	struct ibv_qp_cap cap = {.max_recv_wr = 1, .max_recv_sge = 1, .max_send_sge = 1};
	struct ibv_device_attr dev;

	if (ibv_query_device(r->id->verbs, &dev))
		bench_die("ibv_query_device failed");
	cap.max_send_wr = r == &l->managed ? MANAGED_DEPTH : HAND_DEPTH;
	if (r == &l->managed)
		cap.max_send_sge = (uint32_t)dev.max_sge;
	else
		cap.max_inline_data = MAX_INLINE;
	r->cq = ibv_create_cq(r->id->verbs, (int)cap.max_send_wr, NULL, NULL, 0);
	if (!r->cq)
		bench_die("ibv_create_cq: %s", strerror(errno));
	while (!try_qp(l, r, cap)) {
		if (cap.max_send_sge == 1 && !cap.max_inline_data)
			bench_die("rdma_create_qp: %s", strerror(errno));
		cap.max_inline_data = 0;
		cap.max_send_sge = cap.max_send_sge > 1 ? cap.max_send_sge - 1 : 1;
	}
	r->qp = r->id->qp;
}

static void read_welcome(struct bench_link *l, const struct rdma_cm_event *ev)
{
	struct bench_welcome w = {0};

	if (ev->param.conn.private_data_len >= sizeof(w))
		memcpy(&w, ev->param.conn.private_data, sizeof(w));
	if (be32toh(w.magic) != BENCH_MAGIC)
		bench_die("%s is not a target of 'stag bench'", l->address);
	l->remote = be64toh(w.addr);
	l->rkey = be32toh(w.rkey);
}

/* Returns the number of reads in flight that both directions allow. */
static uint8_t reads_of(struct ibv_context *verbs)
{
	struct ibv_device_attr dev;
	int reads = MAX_READS;

	if (ibv_query_device(verbs, &dev))
		bench_die("ibv_query_device failed");
	if (dev.max_qp_rd_atom < reads)
		reads = dev.max_qp_rd_atom;
	if (dev.max_qp_init_rd_atom < reads)
		reads = dev.max_qp_init_rd_atom;
	return (uint8_t)reads;
}

static void connect_rail(struct bench_link *l, struct bench_rail *r, const struct bench_options *o)
{
	struct bench_hello hello = {.magic = htobe32(BENCH_MAGIC),
				    .flags = htobe32(l->target_polls ? BENCH_POLL : 0),
				    .bytes = htobe64(l->size)};
	struct rdma_conn_param p = {.private_data = &hello,
				    .private_data_len = sizeof(hello),
				    .retry_count = 7,
				    .rnr_retry_count = 7};
	struct rdma_cm_event *ev;

	if (rdma_create_id(l->events, &r->id, NULL, RDMA_PS_TCP))
		bench_die("rdma_create_id: %s", strerror(errno));
	resolve_address(l, r->id);
	check_device(r->id, o->device);
	register_memory(l, r->id);
	create_qp(l, r);
	p.responder_resources = p.initiator_depth = reads_of(r->id->verbs);
	if (rdma_connect(r->id, &p))
		bench_die("rdma_connect: %s", strerror(errno));
	ev = expect_event(l, RDMA_CM_EVENT_ESTABLISHED);
	read_welcome(l, ev);
	rdma_ack_cm_event(ev);
}

void bench_link_open(struct bench_link *l, const struct bench_options *o, size_t bytes)
{
	/* If the two share a CPU, a target that polls would only take it away from the client. */
	*l = (struct bench_link){.size = bytes,
				 .target_polls = !o->asleep && (o->connect || bench_cpus() > 1)};
	if (o->connect)
		snprintf(l->address, sizeof(l->address), "%s", o->connect);
	else
		start_target(l, o);
	l->events = rdma_create_event_channel();
	if (!l->events)
		bench_die("rdma_create_event_channel: %s", strerror(errno));
	connect_rail(l, &l->managed, o);
	connect_rail(l, &l->by_hand, o);
}

static void close_rail(struct bench_rail *r)
{
	rdma_disconnect(r->id);
	rdma_destroy_qp(r->id);
	ibv_destroy_cq(r->cq);
	rdma_destroy_id(r->id);
}

void bench_link_close(struct bench_link *l)
{
	close_rail(&l->managed);
	close_rail(&l->by_hand);
	ibv_dereg_mr(l->mr);
	munmap(l->memory, l->size);
	ibv_dealloc_pd(l->pd);
	rdma_destroy_event_channel(l->events);
	if (l->target) {
		kill(l->target, SIGTERM);
		waitpid(l->target, NULL, 0);
	}
}
