// SPDX-License-Identifier: BSD-2-Clause
/*
 * storage.c - see storage.h.
 */
#include "storage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct ibv_context *open_stag(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	assert_non_null(list);
	for (int i = 0; list[i] && !ctx; i++)
		if (stagdv_is_supported(list[i]))
			ctx = ibv_open_device(list[i]);
	assert_non_null(ctx);
	ibv_free_device_list(list);
	return ctx;
}

static int make_file(enum backing b)
{
	char path[] = "stag-store-XXXXXX";
	int fd;

	if (b == IN_MEMORY) {
		fd = memfd_create("store", MFD_CLOEXEC);
	} else {
		fd = mkostemp(path, O_CLOEXEC);
		unlink(path);
	}
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, SPACE), 0);
	return fd;
}

static void open_medium(struct storage *s, enum backing b)
{
	struct stagdv_medium_attr medium = {.flags = b == ON_PAGES ? STAGDV_MEDIUM_BUFFERED : 0};
	struct stagdv_store_attr region = {.length = SPACE, .access = ALL_RIGHTS};

	medium.fd = s->fd = make_file(b);
	s->medium = stagdv_open_medium(s->ctx, &medium);
	if (!s->medium)
		fail_msg("cannot open the medium: %s", strerror(errno));
	s->region = stagdv_reg_store_mr(s->pd, s->medium, &region);
	assert_non_null(s->region);
	s->mem = mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(s->mem != MAP_FAILED);
	s->mr = ibv_reg_mr(s->pd, s->mem, SPACE, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(s->mr);
}

void storage_open(struct storage *s, enum backing b)
{
	memset(s, 0, sizeof(*s));
	s->ctx = open_stag();
	s->pd = ibv_alloc_pd(s->ctx);
	assert_non_null(s->pd);
	open_medium(s, b);
}

void storage_open_in(struct storage *s, enum backing b, struct ibv_pd *pd)
{
	memset(s, 0, sizeof(*s));
	s->ctx = pd->context;
	s->pd = pd;
	s->borrowed = true;
	open_medium(s, b);
}

void storage_close(struct storage *s)
{
	assert_int_equal(ibv_dereg_mr(s->mr), 0);
	assert_int_equal(ibv_dereg_mr(s->region), 0);
	assert_int_equal(stagdv_close_medium(s->medium), 0);
	if (!s->borrowed) {
		assert_int_equal(ibv_dealloc_pd(s->pd), 0);
		assert_int_equal(ibv_close_device(s->ctx), 0);
	}
	munmap(s->mem, SPACE);
	close(s->fd);
}

void peek(const struct storage *s, void *to, size_t n, uint64_t offset)
{
	assert_int_equal(pread(s->fd, to, n, (off_t)offset), n);
}

void poke(const struct storage *s, const void *from, size_t n, uint64_t offset)
{
	assert_int_equal(pwrite(s->fd, from, n, (off_t)offset), n);
	assert_int_equal(fdatasync(s->fd), 0);
}

/* ---- queue pairs ---- */

static struct ibv_cq *make_cq(struct user *u)
{
	struct ibv_cq *cq = ibv_create_cq(u->s->ctx, 1024, u, u->channel, 0);

	assert_non_null(cq);
	return cq;
}

void user_open(struct user *u, struct storage *s, const struct user_wish *w)
{
	static const struct user_wish nothing;
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	w = w ? w : &nothing;
	memset(u, 0, sizeof(*u));
	u->s = s;
	if (w->channel)
		u->channel = ibv_create_comp_channel(s->ctx);
	u->own_cqs = !w->cq;
	u->scq = w->cq ? w->cq : make_cq(u);
	u->rcq = w->cq ? w->cq : make_cq(u);
	init.send_cq = u->scq;
	init.recv_cq = u->rcq;
	init.srq = w->srq;
	init.sq_sig_all = !w->quiet;
	init.cap = (struct ibv_qp_cap){.max_send_wr = w->send_wr ? w->send_wr : 64,
				       .max_recv_wr = 16,
				       .max_send_sge = 4,
				       .max_recv_sge = 1,
				       .max_inline_data = 256};
	u->qp = ibv_create_qp(s->pd, &init);
	assert_non_null(u->qp);
	assert_int_equal(
		ibv_modify_qp(u->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	assert_int_equal(stagdv_connect_store(u->qp, &w->attr), 0);
}

void user_close(struct user *u)
{
	assert_int_equal(ibv_destroy_qp(u->qp), 0);
	if (u->own_cqs) {
		assert_int_equal(ibv_destroy_cq(u->scq), 0);
		assert_int_equal(ibv_destroy_cq(u->rcq), 0);
	}
	if (u->channel)
		assert_int_equal(ibv_destroy_comp_channel(u->channel), 0);
}

struct ibv_sge piece(const struct storage *s, size_t at, uint32_t n)
{
	return (struct ibv_sge){.addr = (uintptr_t)s->mem + at, .length = n, .lkey = s->mr->lkey};
}

struct ibv_send_wr request(struct user *u, uint64_t id, enum ibv_wr_opcode opcode,
			   struct ibv_sge *sge, uint64_t offset)
{
	return (struct ibv_send_wr){
		.wr_id = id,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = sge,
		.num_sge = sge ? 1 : 0,
		.wr.rdma = {.remote_addr = offset, .rkey = u->s->region->rkey},
	};
}

void post(struct user *u, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(u->qp, wr, &bad), 0);
}

static void post_plain(struct user *u, uint64_t id, enum ibv_wr_opcode opcode, struct ibv_sge sge,
		       uint64_t offset, int flags)
{
	struct ibv_send_wr wr = request(u, id, opcode, &sge, offset);

	wr.send_flags |= (unsigned)flags;
	post(u, &wr);
}

void post_write(struct user *u, uint64_t id, size_t at, uint32_t n, uint64_t offset, int flags)
{
	post_plain(u, id, IBV_WR_RDMA_WRITE, piece(u->s, at, n), offset, flags);
}

void post_read(struct user *u, uint64_t id, size_t at, uint32_t n, uint64_t offset, int flags)
{
	post_plain(u, id, IBV_WR_RDMA_READ, piece(u->s, at, n), offset, flags);
}

static void post_atomic(struct user *u, uint64_t id, enum ibv_wr_opcode opcode, size_t at,
			uint64_t offset, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = piece(u->s, at, sizeof(uint64_t));
	struct ibv_send_wr wr = {
		.wr_id = id,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.atomic = {.remote_addr = offset,
			      .rkey = u->s->region->rkey,
			      .compare_add = compare_add,
			      .swap = swap},
	};

	post(u, &wr);
}

void post_add(struct user *u, uint64_t id, size_t at, uint64_t offset, uint64_t add)
{
	post_atomic(u, id, IBV_WR_ATOMIC_FETCH_AND_ADD, at, offset, add, 0);
}

void post_swap(struct user *u, uint64_t id, size_t at, uint64_t offset, uint64_t compare,
	       uint64_t swap)
{
	post_atomic(u, id, IBV_WR_ATOMIC_CMP_AND_SWP, at, offset, compare, swap);
}

void post_barrier(struct user *u, uint64_t id)
{
	struct stagdv_barrier b = {
		.wr_id = id, .rkey = u->s->region->rkey, .send_flags = IBV_SEND_SIGNALED};

	assert_int_equal(stagdv_wr_barrier(u->qp, &b), 0);
}

void post_receive(struct user *u, uint64_t id)
{
	struct ibv_recv_wr wr = {.wr_id = id}, *bad;

	assert_int_equal(ibv_post_recv(u->qp, &wr, &bad), 0);
}

/* ---- expected results ---- */

struct ibv_wc await_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	await((n = ibv_poll_cq(cq, 1, &wc)) != 0);
	assert_int_equal(n, 1);
	return wc;
}

void expect_failed(struct user *u, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = await_wc(u->scq);

	if (wc.wr_id != id || wc.status != status)
		fail_msg("completed wr_id %llu (%s), expected %llu (%s)",
			 (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
			 (unsigned long long)id, ibv_wc_status_str(status));
	assert_int_equal(wc.qp_num, u->qp->qp_num);
}

void expect_done(struct user *u, uint64_t id)
{
	expect_failed(u, id, IBV_WC_SUCCESS);
}

static enum ibv_qp_state state_of(struct user *u)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	assert_int_equal(ibv_query_qp(u->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void expect_state(struct user *u, enum ibv_qp_state state)
{
	await(state_of(u) == state);
}

void expect_on_medium(struct user *u, const void *bytes, size_t n, uint64_t offset)
{
	uint8_t *there = malloc(n);

	peek(u->s, there, n, offset);
	assert_memory_equal(there, bytes, n);
	free(there);
}
