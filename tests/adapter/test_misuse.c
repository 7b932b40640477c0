// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_misuse.c - what the adapter logs at the default level about misuse of verbs: which object, with its range and rights,
 * at both ends of a connection; and nothing about a program without mistakes.
 */
#include "side.h"

#include <byteswap.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEN 4096

/* ---- the log ---- */

static char log_text[1 << 16];

static const char *read_log(void)
{
	int fd = open(getenv("STAG_LOG_FILE"), O_RDONLY);
	ssize_t n = read(fd, log_text, sizeof(log_text) - 1);

	close(fd);
	log_text[n > 0 ? n : 0] = '\0';
	return log_text;
}

static void empty_log(void)
{
	assert_int_equal(truncate(getenv("STAG_LOG_FILE"), 0), 0);
}

static unsigned count_logged(const char *words)
{
	unsigned n = 0;

	for (const char *at = read_log(); (at = strstr(at, words)); at++)
		n++;
	return n;
}

static void expect_logged(const char *words)
{
	if (!count_logged(words))
		fail_msg("the log lacks '%s':\n%s", words, log_text);
}

#define EXPECT_LOGGED(...)                                                                         \
	do {                                                                                       \
		char words_[256];                                                                  \
		snprintf(words_, sizeof(words_), __VA_ARGS__);                                     \
		expect_logged(words_);                                                             \
	} while (0)

/* ---- a pair ---- */

static int open_pair(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	struct side_wish two = {.sge = 2};

	empty_log();
	pair_open(p, &two, &two);
	*state = p;
	return 0;
}

static int close_pair(void **state)
{
	pair_close(*state);
	free(*state);
	return 0;
}

/* Waits until both ends know that the connection is over: what there is to log is logged before that. */
static void expect_end(struct pair *p)
{
	expect_disconnected(&p->a);
	expect_disconnected(&p->b);
}

static uint64_t write_under(struct pair *p, uint32_t rkey, uint64_t addr)
{
	struct region *from = own_region(&p->a, 64);
	struct ibv_sge sge = piece(from, 0, 64);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	return post(&p->a, &wr);
}

/* ---- remote accesses ---- */

static void write_out_of_bounds_is_logged_with_the_range(void **state)
{
	struct pair *p = *state;
	struct region *r =
		lend_region(&p->b, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);

	write_under(p, r->mr->rkey, (uintptr_t)r->at + LEN - 6);
	expect_end(p);
	EXPECT_LOGGED("qp %u: the peer's write of 64 bytes at %p under rkey 0x%08x is refused: "
		      "outside of the region, which is from %p to %p (4096 bytes)",
		      p->b.qp->qp_num, (void *)(r->at + LEN - 6), r->mr->rkey, (void *)r->at,
		      (void *)(r->at + LEN - 1));
	EXPECT_LOGGED(
		"qp %u: the peer terminated the connection, it refused a write of 64 bytes at "
		"%p under rkey 0x%08x: the range is outside of the peer's region",
		p->a.qp->qp_num, (void *)(r->at + LEN - 6), r->mr->rkey);
}

static void write_without_the_right_is_logged_with_the_rights(void **state)
{
	struct pair *p = *state;
	struct region *r = lend_region(&p->b, LEN, IBV_ACCESS_REMOTE_READ);

	write_under(p, r->mr->rkey, (uintptr_t)r->at);
	expect_end(p);
	expect_logged("the region has no remote write right; it has: remote read");
	expect_logged("the peer's region does not have that right");
}

static void read_out_of_bounds_is_logged_at_both_ends(void **state)
{
	struct pair *p = *state;
	struct region *r = lend_region(&p->b, LEN, IBV_ACCESS_REMOTE_READ);
	uint64_t id = post_read(&p->a, own_region(&p->a, 64), 0, 64, r, LEN - 63);

	expect_failed(&p->a, id, IBV_WC_REM_ACCESS_ERR);
	expect_end(p);
	expect_logged("the peer's read of 64 bytes at ");
	EXPECT_LOGGED("it refused a read of 64 bytes at %p under rkey 0x%08x: the range is outside",
		      (void *)(r->at + LEN - 63), r->mr->rkey);
}

static void deregistered_region_is_logged_as_such(void **state)
{
	struct pair *p = *state;
	char *memory = calloc(1, LEN);
	struct ibv_mr *mr =
		ibv_reg_mr(p->b.pd, memory, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
	uint32_t rkey = mr->rkey;

	assert_int_equal(ibv_dereg_mr(mr), 0);
	write_under(p, rkey, (uintptr_t)memory);
	expect_end(p);
	EXPECT_LOGGED(
		"under rkey 0x%08x is refused: the region of this key was deregistered; it was "
		"%p to %p (4096 bytes)",
		rkey, (void *)memory, (void *)(memory + LEN - 1));
	free(memory);
}

static void wrong_rkey_is_logged_as_such(void **state)
{
	struct pair *p = *state;

	write_under(p, 0, 0);
	expect_end(p);
	expect_logged("under rkey 0x00000000 is refused: no region has this key");
	assert_int_equal(count_logged("deregistered; it was"), 0);
	expect_logged("the rkey is not valid there");
}

static void swapped_rkey_is_recognized(void **state)
{
	struct pair *p = *state;
	struct region *r =
		lend_region(&p->b, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);

	write_under(p, bswap_32(r->mr->rkey), (uintptr_t)r->at);
	expect_end(p);
	EXPECT_LOGGED("with its bytes swapped it is a key, 0x%08x", r->mr->rkey);
}

static void send_without_a_receive_is_logged_at_both_ends(void **state)
{
	struct pair *p = *state;

	post_send(&p->a, own_region(&p->a, 64), 0, 64);
	expect_end(p);
	EXPECT_LOGGED(
		"qp %u: the peer's send number 1 of at least 64 bytes is refused: no receive is "
		"posted",
		p->b.qp->qp_num);
	EXPECT_LOGGED(
		"qp %u: the peer terminated the connection, it refused send number 1: the peer "
		"had no receive posted",
		p->a.qp->qp_num);
}

static void send_longer_than_the_receive_is_logged(void **state)
{
	struct pair *p = *state;
	uint64_t id = post_receive(&p->b, own_region(&p->b, 60), 0, 60);

	post_send(&p->a, own_region(&p->a, 64), 0, 64);
	expect_failed(&p->b, id, IBV_WC_LOC_LEN_ERR);
	expect_end(p);
	EXPECT_LOGGED(
		"the peer's send of at least 64 bytes is refused: the receive of wr_id 0x%llx "
		"has 60",
		(unsigned long long)id);
}

/* ---- local errors ---- */

static void too_many_sges_are_logged_with_the_limit(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge[3] = {{0}};
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 3}, *bad_send;
	struct ibv_recv_wr receive = {.sg_list = sge, .num_sge = 3}, *bad_receive;

	assert_int_equal(ibv_post_send(p->a.qp, &send, &bad_send), EINVAL);
	assert_int_equal(ibv_post_recv(p->a.qp, &receive, &bad_receive), EINVAL);
	expect_logged("3 SGEs, the queue pair was made with 2");
	expect_logged("3 SGEs, the queue was made with 2");
}

static void local_memory_out_of_bounds_is_logged_with_the_range(void **state)
{
	struct pair *p = *state;
	struct region *r = own_region(&p->a, 64);
	struct region *to =
		lend_region(&p->b, 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
	uint64_t id = post_write(&p->a, r, 60, 64, to, 0);

	expect_failed(&p->a, id, IBV_WC_LOC_PROT_ERR);
	expect_end(p);
	EXPECT_LOGGED(
		"wr_id 0x%llx: SGE 0 of a request (lkey 0x%08x, 64 bytes at %p): outside of the "
		"region, which is from %p to %p (64 bytes)",
		(unsigned long long)id, r->mr->lkey, (void *)(r->at + 60), (void *)r->at,
		(void *)(r->at + 63));
}

static void region_in_use_is_not_freed_silently(void **state)
{
	struct pair *p = *state;

	assert_int_equal(ibv_dealloc_pd(p->a.pd), EBUSY);
	expect_logged("dealloc refused");
	assert_int_equal(ibv_destroy_cq(p->a.scq), EBUSY);
	expect_logged("destroy refused, 1 queue pairs use it");
}

/* ---- how often ---- */

static void repeated_misuse_is_logged_at_powers_of_ten(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge[3] = {{0}};
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 3}, *bad;

	for (int i = 0; i < 150; i++)
		assert_int_equal(ibv_post_send(p->a.qp, &send, &bad), EINVAL);
	assert_int_equal(count_logged("3 SGEs"), 3);
	expect_logged("(the 10th time; 8 were not logged)");
	expect_logged("(the 100th time; 97 were not logged)");
}

static void program_without_mistakes_logs_nothing(void **state)
{
	ping(*state);
	assert_string_equal(read_log(), "");
}

/* ---- events that were not acknowledged ---- */

static void await_logged(const char *words)
{
	await(count_logged(words) > 0);
}

static void *destroy_qp(void *qp)
{
	return ibv_destroy_qp(qp) ? qp : NULL;
}

static void *destroy_cq(void *cq)
{
	return ibv_destroy_cq(cq) ? cq : NULL;
}

static void *destroy_id(void *id)
{
	return rdma_destroy_id(id) ? id : NULL;
}

static pthread_t start(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, fn, arg), 0);
	return t;
}

static void join(pthread_t t)
{
	void *failed;

	assert_int_equal(pthread_join(t, &failed), 0);
	assert_null(failed);
}

static void destroying_a_cq_names_missing_acknowledgements(void **state)
{
	struct side_wish wish = {.channel = true};
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *got;
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_recv_wr receive = {0}, *bad;
	struct ibv_qp *qp;
	struct pair p;
	void *context;
	pthread_t t;

	pair_open(&p, &wish, NULL);
	channel = ibv_create_comp_channel(p.a.ctx);
	cq = ibv_create_cq(p.a.ctx, 4, NULL, channel, 0);
	attr.send_cq = attr.recv_cq = cq;
	qp = ibv_create_qp(p.a.pd, &attr);
	assert_non_null(qp);
	assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
	assert_int_equal(
		ibv_modify_qp(qp, &init,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	assert_int_equal(ibv_post_recv(qp, &receive, &bad), 0);
	assert_int_equal(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
	assert_int_equal(ibv_get_cq_event(channel, &got, &context), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	empty_log();
	t = start(destroy_cq, cq);
	await_logged("its destruction waits for the program: 1 of 1 completion events were not "
		     "acknowledged with ibv_ack_cq_events()");
	ibv_ack_cq_events(cq, 1);
	join(t);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	pair_close(&p);
}

static void destroying_a_qp_names_missing_acknowledgements(void **state)
{
	struct pair *p = *state;
	struct ibv_async_event event;
	struct rdma_cm_id *id = p->b.id;
	struct ibv_qp *qp = p->b.qp;
	pthread_t t;

	write_under(p, 0, 0);
	expect_disconnected(&p->a);
	expect_disconnected(&p->b);
	do
		assert_int_equal(ibv_get_async_event(p->b.ctx, &event), 0);
	while (event.event_type != IBV_EVENT_QP_ACCESS_ERR || event.element.qp != qp);
	id->qp = NULL; /* the test destroys it itself */
	t = start(destroy_qp, qp);
	await_logged("asynchronous events (IBV_EVENT_QP_ACCESS_ERR");
	ibv_ack_async_event(&event);
	join(t);
}

static void destroying_an_id_names_missing_acknowledgements(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	pthread_t t;

	empty_log();
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), 0);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	assert_int_equal(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	t = start(destroy_id, id);
	await_logged("its destruction waits for the program: 1 events were not acknowledged with "
		     "rdma_ack_cm_event(): 1 RDMA_CM_EVENT_ADDR_RESOLVED");
	rdma_ack_cm_event(event);
	join(t);
	rdma_destroy_event_channel(channel);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		STORY(write_out_of_bounds_is_logged_with_the_range),
		STORY(write_without_the_right_is_logged_with_the_rights),
		STORY(read_out_of_bounds_is_logged_at_both_ends),
		STORY(deregistered_region_is_logged_as_such),
		STORY(wrong_rkey_is_logged_as_such),
		STORY(swapped_rkey_is_recognized),
		STORY(send_without_a_receive_is_logged_at_both_ends),
		STORY(send_longer_than_the_receive_is_logged),
		STORY(too_many_sges_are_logged_with_the_limit),
		STORY(local_memory_out_of_bounds_is_logged_with_the_range),
		STORY(region_in_use_is_not_freed_silently),
		STORY(repeated_misuse_is_logged_at_powers_of_ten),
		STORY(program_without_mistakes_logs_nothing),
		cmocka_unit_test(destroying_a_cq_names_missing_acknowledgements),
		STORY(destroying_a_qp_names_missing_acknowledgements),
		cmocka_unit_test(destroying_an_id_names_missing_acknowledgements),
	};
	char log[] = "/tmp/stag-test-XXXXXX";
	int failed;

	if (!getenv("STAG_LOG_FILE")) { /* read at load time: start again */
		close(mkstemp(log));
		unsetenv("STAG_LOG");
		setenv("STAG_LOG_FILE", log, 1);
		execv("/proc/self/exe", argv);
		return 1;
	}
	failed = cmocka_run_group_tests_name("misuse", tests, NULL, NULL);
	unlink(getenv("STAG_LOG_FILE"));
	return failed;
}
