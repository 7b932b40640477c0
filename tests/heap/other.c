// SPDX-License-Identifier: BSD-2-Clause
/*
 * other.c - see other.h. It is this program again, so that it inherits nothing.
 */
#include "other.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "side.h"
#include "stag/heap.h"

enum what { ALLOC, FREE, TRIM, FILL, FIND, ACCESS, END };

struct order {
	enum what what;
	enum access access;
	uint64_t addr;
	uint64_t len;
	uint32_t rkey;
	uint16_t port;
	uint8_t byte;
};

/* ---- the other process ---- */

static bool finds(const uint8_t *at, size_t len, uint8_t byte)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != byte)
			return false;
	return true;
}

static bool is_over(struct side *s)
{
	struct pollfd p = {.fd = s->events->fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1; /* nothing else comes but the end */
}

/* The last completion, or the end: the kernel's siw has no completion for what was under way then. */
static bool is_let(struct side *s, uint64_t last)
{
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

	do
		await(poll_wc(s, s->scq, &wc) || is_over(s));
	while (wc.status == IBV_WC_SUCCESS && wc.wr_id != last && !is_over(s));
	return wc.status == IBV_WC_SUCCESS && wc.wr_id == last;
}

/* What tells that a write has been let: a read behind it, of nothing, that is answered. */
static uint64_t post_all(struct side *s, const struct order *o, struct ibv_sge sge)
{
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};

	wr.wr.rdma.remote_addr = o->addr;
	wr.wr.rdma.rkey = o->rkey;
	if (o->access == ACCESS_READ)
		return post(s, &wr);
	wr.opcode = IBV_WR_RDMA_WRITE;
	post(s, &wr);
	sge.length = 0;
	wr = (struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
	return post(s, &wr);
}

/* The kernel's siw loses what comes to an end that is not established yet: its master says when. */
static bool access_memory(const struct order *o, int fd)
{
	struct side s;
	struct region *mine;
	char go;
	bool let;

	side_resolve(&s, &(struct side_wish){.inline_data = OTHER_INLINE}, o->port);
	side_connect(&s);
	expect_cm(&s, RDMA_CM_EVENT_ESTABLISHED);
	mine = lend_region(&s, o->len, IBV_ACCESS_REMOTE_WRITE);
	if (o->access == ACCESS_WRITE)
		memset(mine->at, o->byte, o->len);
	assert_int_equal(recv(fd, &go, 1, 0), 1);
	let = is_let(&s, post_all(&s, o, piece(mine, 0, o->len)));
	if (let && !finds(mine->at, o->len, o->byte))
		fail_msg("it was let, and found something else");
	side_close(&s);
	return let;
}

static uint64_t obey(struct stag_heap *heap, const struct order *o, int fd)
{
	void *at = (void *)(uintptr_t)o->addr;

	switch (o->what) {
	case ALLOC:
		at = stag_heap_alloc(heap, o->len);
		if (at && stag_heap_share(heap, at))
			return 0;
		return (uintptr_t)at;
	case FREE:
		stag_heap_free(heap, at);
		return 0;
	case TRIM:
		return stag_heap_trim(heap);
	case FILL:
		memset(at, o->byte, o->len);
		return 0;
	case FIND:
		return finds(at, o->len, o->byte);
	case ACCESS:
		return access_memory(o, fd);
	case END:
		break;
	}
	return 0;
}

static int serve(const char *name, int fd)
{
	struct stag_heap *heap = stag_heap_attach(name, NULL);
	struct order o;

	if (!heap) {
		fprintf(stderr, "other process: %s\n", stag_heap_error());
		return 1;
	}
	while (recv(fd, &o, sizeof(o), 0) == sizeof(o) && o.what != END) {
		uint64_t answer = obey(heap, &o, fd);

		if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
			return 1;
	}
	return stag_heap_detach(heap, false) ? 1 : 0;
}

bool other_main(int argc, char **argv, int *status)
{
	if (argc != 4 || strcmp(argv[1], "--other") != 0)
		return false;
	*status = serve(argv[2], atoi(argv[3]));
	return true;
}

/* ---- its master ---- */

void other_start(struct other *o, const char *heap)
{
	char number[16];
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	snprintf(number, sizeof(number), "%d", 1000);
	o->pid = fork();
	if (o->pid == 0) {
		dup2(fds[1], 1000); /* without FD_CLOEXEC */
		execl("/proc/self/exe", "other", "--other", heap, number, NULL);
		_exit(127);
	}
	assert_true(o->pid > 0);
	close(fds[1]);
	o->fd = fds[0];
}

static void order(struct other *o, const struct order *order)
{
	assert_int_equal(send(o->fd, order, sizeof(*order), MSG_NOSIGNAL), sizeof(*order));
}

static uint64_t answer(struct other *o)
{
	uint64_t value;

	if (recv(o->fd, &value, sizeof(value), 0) != sizeof(value))
		fail_msg("the other process has gone");
	return value;
}

static uint64_t obeyed(struct other *o, const struct order *what)
{
	order(o, what);
	return answer(o);
}

void other_end(struct other *o)
{
	int status;

	order(o, &(struct order){.what = END});
	assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
	assert_int_equal(status, 0);
	close(o->fd);
}

void *other_alloc(struct other *o, size_t size)
{
	void *ptr = (void *)(uintptr_t)obeyed(o, &(struct order){.what = ALLOC, .len = size});

	assert_non_null(ptr);
	return ptr;
}

void other_free(struct other *o, void *ptr)
{
	obeyed(o, &(struct order){.what = FREE, .addr = (uintptr_t)ptr});
}

void other_trim(struct other *o)
{
	obeyed(o, &(struct order){.what = TRIM});
}

void other_fill(struct other *o, void *ptr, size_t len, uint8_t byte)
{
	obeyed(o, &(struct order){.what = FILL, .addr = (uintptr_t)ptr, .len = len, .byte = byte});
}

bool other_finds(struct other *o, const void *ptr, size_t len, uint8_t byte)
{
	return obeyed(
		o, &(struct order){.what = FIND, .addr = (uintptr_t)ptr, .len = len, .byte = byte});
}

void other_access(struct other *o, uint16_t port, enum access access, uint32_t rkey, uint64_t addr,
		  size_t len, uint8_t byte)
{
	order(o, &(struct order){.what = ACCESS,
				 .port = port,
				 .access = access,
				 .rkey = rkey,
				 .addr = addr,
				 .len = len,
				 .byte = byte});
}

bool other_answer(struct other *o)
{
	assert_int_equal(send(o->fd, "!", 1, MSG_NOSIGNAL), 1);
	return answer(o);
}
