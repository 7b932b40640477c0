// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_copy.c - stag store read and write: between a partition and a file, with verbs.
 *
 * Pieces are under way at once, and are taken in order, in whatever order they complete.
 */
#include "store_use.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "stag.h"
#include "stag/stagdv.h"
#include "store.h"

#define PIECE  (256u << 10)
#define PIECES 8u
#define SECRET 1024

struct copy {
	struct stag_store_endpoint *e;
	uint8_t *memory;
	struct ibv_mr *mr;
	int fd;
	uint64_t at, length; /* in the partition; length UINT64_MAX: as much as comes */
	uint64_t done;
	uint64_t since;
	uint64_t shown;	   /* when its line was written; 0: there is none */
	uint64_t put, get; /* pieces begun and ended */
	struct {
		uint32_t length;
		bool done;
	} piece[PIECES];
};

static uint8_t *memory_of(struct copy *c, uint64_t n)
{
	return c->memory + n % PIECES * PIECE;
}

/* ---- how far it is ---------------------------------------------------------------------- */

/* One line, written anew; on a terminal, and where it takes long. */
static void show(struct copy *c)
{
	uint64_t now = clock_ns(), spent = now - c->since;
	char a[32], b[32];

	if (!isatty(STDERR_FILENO) || spent < NS_PER_S || now - c->shown < NS_PER_S / 5)
		return;
	c->shown = now;
	fprintf(stderr, "\r%s%s%s, %.0f MB/s \033[K", store_size_word(c->done, a, sizeof(a)),
		c->length == UINT64_MAX ? "" : " of ",
		c->length == UINT64_MAX ? "" : store_size_word(c->length, b, sizeof(b)),
		(double)c->done * 1e3 / (double)spent);
}

static void end_line(struct copy *c)
{
	if (c->shown)
		fputs("\r\033[K", stderr);
	c->shown = 0;
}

/* ---- verbs ------------------------------------------------------------------------------ */

static bool post(struct copy *c, enum ibv_wr_opcode opcode, uint64_t at, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)memory_of(c, c->put), length, c->mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = c->put % PIECES,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = opcode,
				       .send_flags = IBV_SEND_SIGNALED};
	int rc;

	wr.wr.rdma.remote_addr = c->e->base + at;
	wr.wr.rdma.rkey = c->e->rkey;
	c->piece[c->put % PIECES].length = length;
	c->piece[c->put++ % PIECES].done = false;
	rc = ibv_post_send(c->e->qp, &wr, &bad);
	if (rc != 0)
		complain("cannot post: %s", strerror(rc));
	return rc == 0;
}

/* Sleeps until there is one. */
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

static bool wait_one(struct copy *c)
{
	struct ibv_wc wc;

	if (!next_completion(c->e->qp->send_cq, &wc)) {
		complain("no completion: %s", strerror(errno));
		return false;
	}
	if (wc.status != IBV_WC_SUCCESS) {
		end_line(c);
		complain("after %llu bytes: %s", (unsigned long long)c->done,
			 ibv_wc_status_str(wc.status));
		return false;
	}
	c->piece[wc.wr_id % PIECES].done = true;
	return true;
}

/* All that was written is on the medium. */
static bool barrier(struct copy *c)
{
	int (*wr_barrier)(struct ibv_qp * qp, struct stagdv_barrier * b) = (int (*)(
		struct ibv_qp *, struct stagdv_barrier *))dlsym(RTLD_DEFAULT, "stagdv_wr_barrier");
	struct stagdv_barrier b = {.rkey = c->e->rkey, .send_flags = IBV_SEND_SIGNALED};
	int rc = wr_barrier ? wr_barrier(c->e->qp, &b) : EOPNOTSUPP;

	if (rc != 0)
		complain("cannot post a barrier: %s", strerror(rc));
	return rc == 0 && wait_one(c);
}

/* ---- files --------------------------------------------------------------------------------- */

static bool write_all(int fd, const uint8_t *from, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, from, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			complain("cannot write: %s", strerror(errno));
			return false;
		}
		from += n;
		len -= (size_t)n;
	}
	return true;
}

/* As much as there is, up to len; -1, having complained. */
static ssize_t read_all(int fd, uint8_t *to, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, to + got, len - got);

		if (n == 0)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			complain("cannot read: %s", strerror(errno));
			return -1;
		}
		got += (size_t)n;
	}
	return (ssize_t)got;
}

/* ---- copying ---------------------------------------------------------------------------------- */

static uint32_t piece_of(uint64_t left)
{
	return left < PIECE ? (uint32_t)left : PIECE;
}

static bool copy_out(struct copy *c)
{
	uint64_t asked = 0;

	while (c->done < c->length) {
		while (asked < c->length && c->put - c->get < PIECES) {
			uint32_t n = piece_of(c->length - asked);

			if (!post(c, IBV_WR_RDMA_READ, c->at + asked, n))
				return false;
			asked += n;
		}
		if (!wait_one(c))
			return false;
		for (; c->get < c->put && c->piece[c->get % PIECES].done; c->get++) {
			uint32_t n = c->piece[c->get % PIECES].length;

			if (!write_all(c->fd, memory_of(c, c->get), n))
				return false;
			c->done += n;
		}
		show(c);
	}
	return true;
}

static bool reap(struct copy *c)
{
	if (!wait_one(c))
		return false;
	for (; c->get < c->put && c->piece[c->get % PIECES].done; c->get++)
		c->done += c->piece[c->get % PIECES].length;
	show(c);
	return true;
}

/* What can be known before anything is written. */
static bool fits(const struct copy *c, const struct store_use *u)
{
	uint64_t room = c->e->size - c->at;
	struct stat st;
	off_t from;

	if (fstat(c->fd, &st) != 0 || !S_ISREG(st.st_mode) || c->length != UINT64_MAX)
		return true;
	from = lseek(c->fd, 0, SEEK_CUR);
	if (from < 0 || from > st.st_size || (uint64_t)(st.st_size - from) <= room)
		return true;
	complain("%llu bytes do not fit: %s has room for %llu; nothing was written",
		 (unsigned long long)(st.st_size - from), u->where, (unsigned long long)room);
	return false;
}

/* A stream that is longer than the room there is for it is not written beyond it, and said to be. */
static bool copy_in(struct copy *c)
{
	uint64_t sent = 0, room = c->e->size - c->at;
	ssize_t n = 1;

	while (n > 0 && sent < c->length) {
		while (c->put - c->get == PIECES)
			if (!reap(c))
				return false;
		n = read_all(c->fd, memory_of(c, c->put), piece_of(c->length - sent));
		if (n < 0)
			return false;
		if ((uint64_t)n > room - sent) {
			end_line(c);
			complain("the partition ends after %llu bytes", (unsigned long long)room);
			return false;
		}
		if (n > 0 && !post(c, IBV_WR_RDMA_WRITE, c->at + sent, (uint32_t)n))
			return false;
		sent += (uint64_t)n;
	}
	while (c->get < c->put)
		if (!reap(c))
			return false;
	return barrier(c);
}

/* ---- the commands -------------------------------------------------------------------------------- */

static bool take_token(const char *file, char *secret, size_t size)
{
	CLEANUP_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, secret, size - 1);

	if (n < 0) {
		complain("--token %s: %s", file, strerror(errno));
		return false;
	}
	if (n > 0 && secret[n - 1] == '\n')
		n--;
	secret[n] = '\0';
	return true;
}

struct stag_store_endpoint *store_connect(const struct store_use *u,
					  struct stag_store_connect_attr *attr)
{
	char secret[SECRET];
	struct stag_store_endpoint *e;

	if (u->token) {
		if (!take_token(u->token, secret, sizeof(secret)))
			return NULL;
		attr->token = secret;
	}
	e = stag_store_connect(u->where, attr);
	attr->token = NULL;
	if (!e)
		complain("%s", stag_store_error());
	explicit_bzero(secret, sizeof(secret));
	return e;
}

static bool set_range(struct copy *c, const struct store_use *u, bool out)
{
	uint64_t all;

	if ((u->offset && !store_parse_offset(u->offset, &c->at)) ||
	    (u->length && !store_parse_size("--length", u->length, NULL, &c->length)))
		return false;
	all = c->at <= c->e->size ? c->e->size - c->at : 0;
	if (!u->length)
		c->length = out ? all : UINT64_MAX;
	if (c->at <= c->e->size && (c->length == UINT64_MAX || c->length <= all))
		return true;
	complain("%s has %llu bytes", u->where, (unsigned long long)c->e->size);
	return false;
}

static bool open_file(struct copy *c, const struct store_use *u, bool out)
{
	if (!u->file || strcmp(u->file, "-") == 0)
		c->fd = dup(out ? STDOUT_FILENO : STDIN_FILENO);
	else
		c->fd = open(u->file, O_CLOEXEC | (out ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY),
			     0666);
	if (c->fd < 0)
		complain("%s: %s", u->file ? u->file : "-", strerror(errno));
	return c->fd >= 0;
}

static void summary(const struct copy *c, const struct store_use *u, bool out)
{
	double seconds = (double)(clock_ns() - c->since) / 1e9;
	bool to_stdout = out && (!u->file || strcmp(u->file, "-") == 0);

	if (u->json && !to_stdout)
		store_dump(json_pack("{s:s, s:I, s:I, s:f}", "where", u->where, "offset",
				     (json_int_t)c->at, "bytes", (json_int_t)c->done, "seconds",
				     seconds));
}

static int copy(const struct store_use *u, bool out)
{
	struct stag_store_connect_attr attr = {.qp = {.cap = {.max_send_wr = PIECES + 1}}};
	struct copy c = {.fd = -1, .since = clock_ns()};
	bool ok = false;

	c.e = store_connect(u, &attr);
	if (!c.e)
		return EXIT_FAILED;
	c.memory = aligned_alloc(4096, PIECE * PIECES);
	c.mr = c.memory ? ibv_reg_mr(c.e->qp->pd, c.memory, PIECE * PIECES, IBV_ACCESS_LOCAL_WRITE)
			: NULL;
	if (!c.mr)
		complain("no memory: %s", strerror(errno));
	else if (!out && c.e->access != STAG_STORE_WRITE)
		complain("%s: you may read it, and not write it", u->where);
	else if (set_range(&c, u, out) && open_file(&c, u, out) && (out || fits(&c, u)))
		ok = out ? copy_out(&c) : copy_in(&c);
	end_line(&c);
	if (ok)
		summary(&c, u, out);
	stag_store_disconnect(c.e);
	if (c.mr)
		ibv_dereg_mr(c.mr);
	free(c.memory);
	if (c.fd >= 0 && close(c.fd) != 0 && ok) {
		complain("cannot write: %s", strerror(errno));
		ok = false;
	}
	return ok ? EXIT_OK : EXIT_FAILED;
}

int store_read(const struct store_use *u)
{
	return copy(u, true);
}

int store_write(const struct store_use *u)
{
	return copy(u, false);
}
