// SPDX-License-Identifier: BSD-2-Clause
/*
 * stage.c - helpers for tests of endpoints: see stage.h.
 */
#include "stage.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATIENCE_MS 30000

/* ---- store and server ---- */

void start_server(struct stage *s)
{
	struct stag_store_server_attr attr = {.address = "127.0.0.1", .flags = STAG_STORE_ANY_PORT};

	s->server = stag_store_serve(s->store, &attr);
	if (!s->server)
		fail_msg("%s", stag_store_error());
}

void stage_open(struct stage *s, bool far)
{
	*s = (struct stage){0};
	snprintf(s->path, sizeof(s->path), "%s", room_path("store"));
	make_store(s->path, 64 * MIB, 4096);
	s->store = open_store(s->path);
	if (far)
		start_server(s);
}

void stage_close(struct stage *s)
{
	stag_store_server_stop(s->server);
	stag_store_close(s->store);
	room_clear();
}

const char *where_is(const struct stage *s, const char *partition)
{
	static char text[256];

	if (s->server)
		snprintf(text, sizeof(text), "127.0.0.1:%u/%s", stag_store_server_port(s->server),
			 partition);
	else
		snprintf(text, sizeof(text), "%s:%s", s->path, partition);
	return text;
}

struct stag_store_right right_of(const struct stage *s, uint8_t access)
{
	return (struct stag_store_right){.who = s->server ? STAG_STORE_REMOTE : STAG_STORE_LOCAL,
					 .access = access};
}

void set_rights(struct stage *s, const char *partition, const struct stag_store_right *r,
		uint32_t n)
{
	struct stag_store_partition p = find(s->store, partition);

	p.num_rights = n;
	memset(p.rights, 0, sizeof(p.rights));
	memcpy(p.rights, r, n * sizeof(*r));
	if (stag_store_change(s->store, &p, STAG_STORE_CHANGE_RIGHTS) != 0)
		fail_msg("%s", stag_store_error());
}

void allow(struct stage *s, const char *partition, uint8_t access)
{
	struct stag_store_right r = right_of(s, access);

	set_rights(s, partition, &r, 1);
}

/* ---- users ---- */

int try_enter(struct user *u, const struct stage *s, const char *partition,
	      const struct stag_store_connect_attr *attr)
{
	struct stag_store_connect_attr patient = attr ? *attr : (struct stag_store_connect_attr){0};

	patient.timeout_ms = PATIENCE_MS;
	*u = (struct user){0};
	u->e = stag_store_connect(where_is(s, partition), &patient);
	if (!u->e)
		return errno;
	u->mem = aligned_alloc(4096, USER_MEMORY);
	assert_non_null(u->mem);
	u->mr = ibv_reg_mr(u->e->qp->pd, u->mem, USER_MEMORY, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(u->mr);
	return 0;
}

void enter(struct user *u, const struct stage *s, const char *partition)
{
	if (try_enter(u, s, partition, NULL) != 0)
		fail_msg("%s", stag_store_error());
}

void leave(struct user *u)
{
	if (u->mr)
		ibv_dereg_mr(u->mr);
	stag_store_disconnect(u->e);
	free(u->mem);
	*u = (struct user){0};
}

static struct ibv_wc wait_for_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		usleep(20);
	assert_int_equal(n, 1);
	return wc;
}

static enum ibv_wc_status post_at(struct user *u, struct ibv_send_wr *wr, uint64_t at, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)u->mem + at, len, u->mr->lkey};
	struct ibv_send_wr *bad;

	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(u->e->qp, wr, &bad) != 0)
		return IBV_WC_WR_FLUSH_ERR;
	return wait_for_one(u->e->qp->send_cq).status;
}

static enum ibv_wc_status post(struct user *u, struct ibv_send_wr *wr, uint32_t len)
{
	return post_at(u, wr, 0, len);
}

/*
 * Waits for the outcome of a write. A write over a wire completes when it is sent; the response to
 * a read behind it shows whether it was carried out.
 */
static enum ibv_wc_status wait_for_outcome(struct user *u)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ};

	wr.wr.rdma.remote_addr = u->e->base;
	wr.wr.rdma.rkey = u->e->rkey;
	return post_at(u, &wr, USER_MEMORY - 8, 8);
}

enum ibv_wc_status do_write(struct user *u, uint64_t at, const void *bytes, uint32_t len)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
	enum ibv_wc_status status;

	memcpy(u->mem, bytes, len);
	wr.wr.rdma.remote_addr = u->e->base + at;
	wr.wr.rdma.rkey = u->e->rkey;
	status = post(u, &wr, len);
	return status == IBV_WC_SUCCESS && u->e->id ? wait_for_outcome(u) : status;
}

enum ibv_wc_status do_read(struct user *u, uint64_t at, uint32_t len)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ};

	wr.wr.rdma.remote_addr = u->e->base + at;
	wr.wr.rdma.rkey = u->e->rkey;
	return post(u, &wr, len);
}

enum ibv_wc_status do_add(struct user *u, uint64_t at, uint64_t by)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};

	wr.wr.atomic.remote_addr = u->e->base + at;
	wr.wr.atomic.rkey = u->e->rkey;
	wr.wr.atomic.compare_add = by;
	return post(u, &wr, 8);
}

bool reads_as(struct user *u, uint64_t at, const void *bytes, uint32_t len)
{
	memset(u->mem, 0x5a, len);
	return do_read(u, at, len) == IBV_WC_SUCCESS && memcmp(u->mem, bytes, len) == 0;
}

/* ---- the log ---- */

bool is_logged(off_t *since, const char *word, const char *other)
{
	int fd = open(getenv("STAG_LOG_FILE"), O_RDONLY | O_CLOEXEC);
	FILE *log = fdopen(fd, "r");
	bool found = false;
	char line[512];

	assert_non_null(log);
	assert_int_equal(fseeko(log, *since, SEEK_SET), 0);
	while (fgets(line, sizeof(line), log))
		found |= strstr(line, word) && strstr(line, other);
	*since = ftello(log);
	fclose(log);
	return found;
}

void log_to_memory(char **argv)
{
	char path[32];

	if (getenv("STAG_LOG_FILE"))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memfd_create("log", 0));
	setenv("STAG_LOG_FILE", path, 1);
	setenv("STAG_LOG", "warn", 1);
	execv("/proc/self/exe", argv);
}
