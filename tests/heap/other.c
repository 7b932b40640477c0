// SPDX-License-Identifier: BSD-2-Clause
/*
 * other.c - see other.h. It is this program again, so that it inherits nothing.
 */
#include "other.h"

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

/* An empty read asks for nothing; when it is answered, what came before it has been let. */
static bool is_let(struct side *s)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ};
	uint64_t last = post(s, &wr);
	struct ibv_wc wc;

	do
		wc = await_wc(s, s->scq);
	while (wc.status == IBV_WC_SUCCESS && wc.wr_id != last);
	return wc.status == IBV_WC_SUCCESS;
}

static bool access_memory(const struct order *o)
{
	struct side s;
	struct region *mine;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1};
	bool let;

	side_resolve(&s, NULL, o->port);
	side_connect(&s);
	expect_cm(&s, RDMA_CM_EVENT_ESTABLISHED);
	mine = own_region(&s, o->len);
	if (o->access == ACCESS_WRITE)
		memset(mine->at, o->byte, o->len);
	sge = piece(mine, 0, o->len);
	wr.opcode = o->access == ACCESS_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	wr.wr.rdma.remote_addr = o->addr;
	wr.wr.rdma.rkey = o->rkey;
	post(&s, &wr);
	let = is_let(&s);
	if (let && !finds(mine->at, o->len, o->byte))
		fail_msg("it was let, and found something else");
	side_close(&s);
	return let;
}

static uint64_t obey(struct stag_heap *heap, const struct order *o)
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
		return access_memory(o);
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
		uint64_t answer = obey(heap, &o);

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
	return answer(o);
}
