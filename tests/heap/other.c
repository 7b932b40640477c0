// SPDX-License-Identifier: BSD-2-Clause
/*
 * other.c - the second process: see other.h. It executes this program again, so that it inherits
 * nothing.
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

struct send_order {
	enum what what;
	enum access access;
	uint64_t addr;
	uint64_t len;
	uint32_t rkey;
	uint16_t port;
	uint8_t byte;
};

/* ---- the second process ---- */

static bool holds_only_byte(const uint8_t *at, size_t len, uint8_t byte)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != byte)
			return false;
	return true;
}

static bool is_disconnected(struct side *s)
{
	struct pollfd p = {.fd = s->events->fd, .events = POLLIN};

	/* The controller sends nothing more, so readable means closed. */
	return poll(&p, 1, 0) == 1;
}

/*
 * Returns true when the last completion arrived. The disconnect ends the wait, too: the kernel's
 * siw reports no completion for operations in flight then.
 */
static bool access_is_permitted(struct side *s, uint64_t last)
{
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

	do
		await(poll_wc(s, s->scq, &wc) || is_disconnected(s));
	while (wc.status == IBV_WC_SUCCESS && wc.wr_id != last && !is_disconnected(s));
	return wc.status == IBV_WC_SUCCESS && wc.wr_id == last;
}

/* Posts the access. A zero-length read behind a write completes only if the write was permitted. */
static uint64_t post_all(struct side *s, const struct send_order *o, struct ibv_sge sge)
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

/*
 * Accesses the controller's memory, on its signal: the kernel's siw loses messages that arrive
 * before the peer's connection is established.
 */
static bool access_memory(const struct send_order *o, int fd)
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
	let = access_is_permitted(&s, post_all(&s, o, piece(mine, 0, o->len)));
	if (let && !holds_only_byte(mine->at, o->len, o->byte))
		fail_msg("the access was permitted, but the bytes read are wrong");
	side_close(&s);
	return let;
}

static uint64_t execute_order(struct stag_heap *heap, const struct send_order *o, int fd)
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
		return holds_only_byte(at, o->len, o->byte);
	case ACCESS:
		return access_memory(o, fd);
	case END:
		break;
	}
	return 0;
}

static int serve_orders(const char *name, int fd)
{
	struct stag_heap *heap = stag_heap_attach(name, NULL);
	struct send_order o;

	if (!heap) {
		fprintf(stderr, "other process: %s\n", stag_heap_error());
		return 1;
	}
	while (recv(fd, &o, sizeof(o), 0) == sizeof(o) && o.what != END) {
		uint64_t read_answer = execute_order(heap, &o, fd);

		if (send(fd, &read_answer, sizeof(read_answer), MSG_NOSIGNAL) !=
		    sizeof(read_answer))
			return 1;
	}
	return stag_heap_detach(heap, false) ? 1 : 0;
}

bool other_main(int argc, char **argv, int *status)
{
	if (argc != 4 || strcmp(argv[1], "--other") != 0)
		return false;
	*status = serve_orders(argv[2], atoi(argv[3]));
	return true;
}

/* ---- the controller's side ---- */

void other_start(struct other *o, const char *heap)
{
	char number[16];
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	snprintf(number, sizeof(number), "%d", 1000);
	o->pid = fork();
	if (o->pid == 0) {
		dup2(fds[1], 1000); /* dup2() clears FD_CLOEXEC */
		execl("/proc/self/exe", "other", "--other", heap, number, NULL);
		_exit(127);
	}
	assert_true(o->pid > 0);
	close(fds[1]);
	o->fd = fds[0];
}

static void send_order(struct other *o, const struct send_order *send_order)
{
	assert_int_equal(send(o->fd, send_order, sizeof(*send_order), MSG_NOSIGNAL),
			 sizeof(*send_order));
}

static uint64_t read_answer(struct other *o)
{
	uint64_t value;

	if (recv(o->fd, &value, sizeof(value), 0) != sizeof(value))
		fail_msg("the other process has exited");
	return value;
}

static uint64_t execute_remotely(struct other *o, const struct send_order *what)
{
	send_order(o, what);
	return read_answer(o);
}

void other_end(struct other *o)
{
	int status;

	send_order(o, &(struct send_order){.what = END});
	assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
	assert_int_equal(status, 0);
	close(o->fd);
}

void *other_alloc(struct other *o, size_t size)
{
	void *ptr = (void *)(uintptr_t)execute_remotely(
		o, &(struct send_order){.what = ALLOC, .len = size});

	assert_non_null(ptr);
	return ptr;
}

void other_free(struct other *o, void *ptr)
{
	execute_remotely(o, &(struct send_order){.what = FREE, .addr = (uintptr_t)ptr});
}

void other_trim(struct other *o)
{
	execute_remotely(o, &(struct send_order){.what = TRIM});
}

void other_fill(struct other *o, void *ptr, size_t len, uint8_t byte)
{
	execute_remotely(o,
			 &(struct send_order){
				 .what = FILL, .addr = (uintptr_t)ptr, .len = len, .byte = byte});
}

bool other_finds(struct other *o, const void *ptr, size_t len, uint8_t byte)
{
	return execute_remotely(
		o, &(struct send_order){
			   .what = FIND, .addr = (uintptr_t)ptr, .len = len, .byte = byte});
}

void other_access(struct other *o, uint16_t port, enum access access, uint32_t rkey, uint64_t addr,
		  size_t len, uint8_t byte)
{
	send_order(o, &(struct send_order){.what = ACCESS,
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
	return read_answer(o);
}
