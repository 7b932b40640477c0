// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_copy.c - stag store read and write: copy between a partition and a file, with verbs.
 */
#include "store_options.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "copy.h"
#include "stag.h"
#include "stag/stagdv.h"

#define SECRET 1024

struct partition_copy {
	struct copy c; /* first */
	struct stag_store_endpoint *e;
	struct ibv_mr *mr;
};

static struct partition_copy *to_partition(struct copy *c)
{
	return (struct partition_copy *)c;
}

static bool post_piece(struct copy *c, uint64_t n, uint64_t at, uint32_t length)
{
	struct partition_copy *p = to_partition(c);
	struct ibv_sge sge = {(uintptr_t)copy_memory(c, n), length, p->mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = n,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = c->out ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED};
	int rc;

	wr.wr.rdma.remote_addr = p->e->base + at;
	wr.wr.rdma.rkey = p->e->rkey;
	rc = ibv_post_send(p->e->qp, &wr, &bad);
	if (rc != 0)
		complain("cannot post a work request: %s", strerror(rc));
	return rc == 0;
}

/* Waits for a completion, asleep. */
static bool next_completion(struct ibv_cq *cq, struct ibv_wc *wc)
{
	struct ibv_cq *which;
	void *context;
	int n;

	while ((n = ibv_poll_cq(cq, 1, wc)) == 0) {
		if (ibv_req_notify_cq(cq, 0) != 0)
			return false;
		n = ibv_poll_cq(cq, 1, wc);
		if (n != 0)
			break;
		if (ibv_get_cq_event(cq->channel, &which, &context) != 0)
			return false;
		ibv_ack_cq_events(cq, 1);
	}
	return n == 1;
}

static bool wait_for_piece(struct copy *c)
{
	struct ibv_wc wc;

	if (!next_completion(to_partition(c)->e->qp->send_cq, &wc)) {
		complain("cannot get completions: %s", strerror(errno));
		return false;
	}
	if (wc.status != IBV_WC_SUCCESS) {
		copy_end_line(c);
		complain("after %llu bytes: %s", (unsigned long long)c->done,
			 ibv_wc_status_str(wc.status));
		return false;
	}
	copy_piece_done(c, wc.wr_id);
	return true;
}

/* Waits until all that was written is on the medium. */
static bool barrier(struct copy *c)
{
	int (*wr_barrier)(struct ibv_qp * qp, struct stagdv_barrier * b) = (int (*)(
		struct ibv_qp *, struct stagdv_barrier *))dlsym(RTLD_DEFAULT, "stagdv_wr_barrier");
	struct stag_store_endpoint *e = to_partition(c)->e;
	struct stagdv_barrier b = {.rkey = e->rkey, .send_flags = IBV_SEND_SIGNALED};
	int rc = wr_barrier ? wr_barrier(e->qp, &b) : EOPNOTSUPP;

	if (rc != 0)
		complain("cannot post a barrier: %s", strerror(rc));
	return rc == 0 && wait_for_piece(c);
}

/* ---- the commands -------------------------------------------------------------------------------- */

static bool read_token(const char *file, char *secret, size_t size)
{
	CLEANUP_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, secret, size - 1);

	if (n < 0) {
		complain_for(errno, file, "--token %s: %s", file, strerror(errno));
		return false;
	}
	if (n > 0 && secret[n - 1] == '\n')
		n--;
	secret[n] = '\0';
	return true;
}

/* Advises about PATH:PARTITION, of which one does not exist. */
static void advise_missing(const char *path, const char *partition)
{
	struct stag_store *store = stag_store_open(path, STAG_STORE_LOOK);

	if (store)
		complain_try("'stag store list %s'.", path);
	else if (errno == ENOENT)
		complain_try("'stag store format %s --size 1G --partition %s=max' to make it.",
			     path, partition);
	stag_store_close(store);
}

static void explain_connect_failure(const struct store_options *o, int error)
{
	const char *colon = strrchr(o->where, ':');
	CLEANUP_FREE char *path = colon ? strndup(o->where, (size_t)(colon - o->where)) : NULL;

	complain_for(error, o->where, "%s", stag_store_error());
	if (error == ECONNREFUSED)
		complain_try("'stag store serve PATH' on that machine, or HOST:PORT/PARTITION.");
	else if (error == EACCES)
		complain_try(
			"--token FILE, or let the owner grant you a right: 'stag store set PATH "
			"PARTITION --allow ...'.");
	else if (error == ENOENT && path && *path && !strchr(colon, '/'))
		advise_missing(path, colon + 1);
}

struct stag_store_endpoint *store_connect(const struct store_options *o,
					  struct stag_store_connect_attr *attr)
{
	char secret[SECRET];
	struct stag_store_endpoint *e;
	int error;

	if (o->token) {
		if (!read_token(o->token, secret, sizeof(secret)))
			return NULL;
		attr->token = secret;
	}
	attr->flags |= o->tls && strcmp(o->tls, "required") == 0 ? STAG_STORE_TLS : 0;
	e = stag_store_connect(o->where, attr);
	error = errno;
	attr->token = NULL;
	if (!e)
		explain_connect_failure(o, error);
	explicit_bzero(secret, sizeof(secret));
	return e;
}

static int copy_partition(const struct store_options *o, bool out)
{
	static const struct copy_ops ops = {post_piece, wait_for_piece, barrier, NULL};
	struct stag_store_connect_attr attr = {.qp = {.cap = {.max_send_wr = COPY_PIECES + 1}}};
	struct copy_range range = {o->file, o->offset, o->length, o->json};
	struct partition_copy w = {
		.c = {.ops = &ops, .kind = "partition", .where = o->where, .block = 1, .out = out}};
	int rc = EXIT_FAILED;

	w.e = store_connect(o, &attr);
	if (!w.e)
		return EXIT_FAILED;
	w.c.size = w.e->size;
	w.c.memory = aligned_alloc(4096, COPY_PIECE * COPY_PIECES);
	w.mr = w.c.memory ? ibv_reg_mr(w.e->qp->pd, w.c.memory, COPY_PIECE * COPY_PIECES,
				       IBV_ACCESS_LOCAL_WRITE)
			  : NULL;
	if (!w.mr)
		complain("cannot register memory: %s", strerror(errno));
	else if (!out && w.e->access != STAG_STORE_WRITE)
		complain_for(EACCES, o->where, "%s: you may read it, but not write it", o->where);
	else
		rc = copy_run(&w.c, &range);
	stag_store_disconnect(w.e);
	if (w.mr)
		ibv_dereg_mr(w.mr);
	free(w.c.memory);
	return rc;
}

int store_read(const struct store_options *o)
{
	return copy_partition(o, true);
}

int store_write(const struct store_options *o)
{
	return copy_partition(o, false);
}
