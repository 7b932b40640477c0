// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_foreign_shot.c - one-shot sends on a queue pair of another device: the calls that the device
 * gets, and that all regions are freed. The test plays the device, behind the library of
 * fake/ibverbs.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "stag/stagdv.h"

#define KEY_BASE 0x5000u

typedef intptr_t played(intptr_t a, intptr_t b, intptr_t c, intptr_t d);

/* ---- the device ---- */

static struct {
	unsigned caps;
	atomic_uint made, live; /* regions registered so far, and still registered */
	int access;		/* of the last registration */
	void *addr;
	size_t length;
	int reg_error, post_error, destroy_error;
	struct ibv_send_wr sent; /* the last send posted */
	uint8_t body[64];
	unsigned body_len;
} dev;

static intptr_t reg_mr(intptr_t pd, intptr_t addr, intptr_t length, intptr_t access)
{
	struct ibv_mr *mr;

	if (dev.reg_error) {
		errno = dev.reg_error;
		return 0;
	}
	mr = calloc(1, sizeof(*mr));
	assert_non_null(mr);
	mr->rkey = KEY_BASE + atomic_fetch_add(&dev.made, 1);
	atomic_fetch_add(&dev.live, 1);
	dev.addr = (void *)addr;
	dev.length = (size_t)length;
	dev.access = (int)access;
	return (intptr_t)mr;
}

static intptr_t dereg_mr(intptr_t mr, intptr_t b, intptr_t c, intptr_t d)
{
	free((void *)mr);
	atomic_fetch_sub(&dev.live, 1);
	return 0;
}

static intptr_t query_device(intptr_t context, intptr_t attr, intptr_t c, intptr_t d)
{
	((struct ibv_device_attr *)attr)->device_cap_flags = dev.caps;
	return 0;
}

static intptr_t destroy_qp(intptr_t qp, intptr_t b, intptr_t c, intptr_t d)
{
	return dev.destroy_error;
}

static intptr_t modify_qp(intptr_t qp, intptr_t attr, intptr_t mask, intptr_t d)
{
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	dev.sent = *wr;
	dev.body_len = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		assert_true(dev.body_len + wr->sg_list[i].length <= sizeof(dev.body));
		memcpy(dev.body + dev.body_len, (void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		dev.body_len += wr->sg_list[i].length;
	}
	*bad = wr;
	return dev.post_error;
}

static struct ibv_device fake_device = {.name = "fake0"};
static struct ibv_context ctx = {.device = &fake_device, .ops = {.post_send = post_send}};
static struct ibv_pd pd = {.context = &ctx};
static struct ibv_qp qp = {.context = &ctx, .pd = &pd, .qp_num = 7};
static uint8_t memory[4096];
static char body[16];

static int replace_function(void *lib, const char *name, played *part)
{
	played **at = dlsym(lib, name);

	if (!at)
		return -1; /* rdma-core's library was loaded: LD_LIBRARY_PATH is not set */
	*at = part;
	return 0;
}

static int replace_functions(void **state)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return -1;
	return replace_function(lib, "fake_ibv_reg_mr", reg_mr) |
	       replace_function(lib, "fake_ibv_dereg_mr", dereg_mr) |
	       replace_function(lib, "fake_ibv_query_device", query_device) |
	       replace_function(lib, "fake_ibv_destroy_qp", destroy_qp) |
	       replace_function(lib, "fake_ibv_modify_qp", modify_qp);
}

static int reset_device(void **state)
{
	memset(&dev, 0, sizeof(dev));
	dev.caps = IBV_DEVICE_MEM_MGT_EXTENSIONS;
	memcpy(body, "0123456789abcdef", sizeof(body));
	return 0;
}

/* Destroys the queue pair, and expects that no region outlives it. */
static int destroy_and_check(void **state)
{
	dev.destroy_error = 0;
	assert_int_equal(ibv_destroy_qp(&qp), 0);
	assert_int_equal(dev.live, 0);
	return 0;
}

/* ---- calls that the device gets ---- */

static struct ibv_sge whole_body, pieces[2];

static struct stagdv_advertise default_advertise(void)
{
	whole_body = (struct ibv_sge){(uintptr_t)body, sizeof(body), 1};
	pieces[0] = (struct ibv_sge){(uintptr_t)memory, 1000, 1};
	pieces[1] = (struct ibv_sge){(uintptr_t)memory + 1000, 24, 1};
	return (struct stagdv_advertise){
		.wr_id = 99,
		.sg_list = &whole_body,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED | STAGDV_SEND_MORE,
		.memory = pieces,
		.num_memory = 2,
		.access = IBV_ACCESS_REMOTE_WRITE,
		.iova = (uintptr_t)memory,
		.reference = 4711,
		.stag_at = 4,
	};
}

static uint32_t stag_in(const void *at)
{
	uint32_t bytes;

	memcpy(&bytes, at, sizeof(bytes));
	return be32toh(bytes);
}

static void advertise_registers_memory_and_sends(void **state)
{
	struct stagdv_advertise wr = default_advertise();
	uint32_t stag = 0, reference = 0;

	assert_int_equal(stagdv_post_send_advertise(&qp, &wr, &stag), 0);
	assert_int_equal(stag, KEY_BASE);
	assert_ptr_equal(dev.addr, memory);
	assert_int_equal(dev.length, 1024);
	assert_int_equal(dev.access, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
	assert_int_equal(dev.sent.opcode, IBV_WR_SEND);
	assert_int_equal(dev.sent.wr_id, 99);
	assert_int_equal(dev.sent.send_flags, IBV_SEND_SIGNALED);
	assert_int_equal(dev.body_len, sizeof(body));
	assert_int_equal(stag_in(dev.body + 4), stag);
	assert_int_equal(dev.live, 1);

	assert_int_equal(stagdv_withdraw(&qp, stag + 1, NULL), ENOENT);
	assert_int_equal(stagdv_withdraw(&qp, stag, &reference), 0);
	assert_int_equal(reference, 4711);
	assert_int_equal(dev.live, 0);
	assert_int_equal(stagdv_withdraw(&qp, stag, &reference), ENOENT);
}

static void read_right_does_not_allow_writes(void **state)
{
	struct stagdv_advertise wr = default_advertise();
	uint32_t stag;

	wr.access = IBV_ACCESS_REMOTE_READ;
	assert_int_equal(stagdv_post_send_advertise(&qp, &wr, &stag), 0);
	assert_int_equal(dev.access, IBV_ACCESS_REMOTE_READ);
}

/* The caller's body is not written to: it may be a constant. */
static void inline_body_is_copied(void **state)
{
	struct stagdv_advertise wr = default_advertise();
	uint32_t stag;

	wr.send_flags |= IBV_SEND_INLINE;
	assert_int_equal(stagdv_post_send_advertise(&qp, &wr, &stag), 0);
	assert_int_equal(stag_in(dev.body + 4), stag);
	assert_memory_equal(body, "0123456789abcdef", sizeof(body));
}

static void close_is_a_send_with_invalidate(void **state)
{
	struct stagdv_close wr = {.wr_id = 5, .stag = 0x1234};
	struct stagdv_qp_attr attr;

	assert_int_equal(stagdv_post_send_close(&qp, &wr), 0);
	assert_int_equal(dev.sent.opcode, IBV_WR_SEND_WITH_INV);
	assert_int_equal(dev.sent.invalidate_rkey, 0x1234);
	assert_int_equal(stagdv_query_qp(&qp, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.one_shot, STAGDV_ONE_SHOT_REGION);
}

static void close_is_a_plain_send_without_memory_management_extensions(void **state)
{
	struct stagdv_close wr = {.wr_id = 5, .stag = 0x1234};
	struct stagdv_qp_attr attr;

	dev.caps = 0;
	assert_int_equal(stagdv_post_send_close(&qp, &wr), 0);
	assert_int_equal(dev.sent.opcode, IBV_WR_SEND);
	assert_int_equal(stagdv_query_qp(&qp, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.one_shot, STAGDV_ONE_SHOT_PLAIN);
}

/* ---- errors ---- */

static void expect_error_and_no_region(const struct stagdv_advertise *wr, int err)
{
	struct stagdv_advertise copy = *wr;
	uint32_t stag;

	assert_int_equal(stagdv_post_send_advertise(&qp, &copy, &stag), err);
	assert_int_equal(dev.live, 0);
}

static void failed_advertise_leaves_no_region(void **state)
{
	struct stagdv_advertise wr = default_advertise();

	dev.reg_error = EFAULT;
	expect_error_and_no_region(&wr, EFAULT);
	dev.reg_error = 0;
	dev.post_error = ENOMEM;
	expect_error_and_no_region(&wr, ENOMEM);
	dev.post_error = 0;
	pieces[1].addr++;
	expect_error_and_no_region(&wr, E2BIG);
	wr = default_advertise();
	wr.iova = 0;
	expect_error_and_no_region(&wr, EOPNOTSUPP);
	wr = default_advertise();
	wr.stag_at = sizeof(body) - 3;
	expect_error_and_no_region(&wr, EINVAL);
	wr = default_advertise();
	wr.access |= IBV_ACCESS_REMOTE_ATOMIC;
	expect_error_and_no_region(&wr, EINVAL);
	wr = default_advertise();
	wr.num_memory = 0;
	expect_error_and_no_region(&wr, EINVAL);
	wr = default_advertise();
	pieces[0].length = pieces[1].length = 0;
	expect_error_and_no_region(&wr, EINVAL);
	wr = default_advertise();
	wr.comp_mask = 1;
	expect_error_and_no_region(&wr, EINVAL);
}

/* ---- the end of STags ---- */

static void advertise_regions(unsigned n)
{
	struct stagdv_advertise wr = default_advertise();
	uint32_t stag;

	while (n--)
		assert_int_equal(stagdv_post_send_advertise(&qp, &wr, &stag), 0);
}

static void stags_beyond_the_limit_are_refused(void **state)
{
	struct stagdv_advertise wr = default_advertise();
	uint32_t stag;

	advertise_regions(4096);
	assert_int_equal(stagdv_post_send_advertise(&qp, &wr, &stag), ENOMEM);
	assert_int_equal(dev.live, 4096);
	assert_int_equal(stagdv_withdraw(&qp, KEY_BASE + 4000, NULL), 0);
	advertise_regions(1);
}

/* A queue pair whose destruction failed keeps its STags. */
static void stags_end_with_the_queue_pair(void **state)
{
	struct ibv_qp other = qp;

	advertise_regions(3);
	dev.destroy_error = EBUSY;
	assert_int_equal(ibv_destroy_qp(&qp), EBUSY);
	assert_int_equal(dev.live, 3);
	dev.destroy_error = 0;
	assert_int_equal(stagdv_withdraw(&other, KEY_BASE, NULL), ENOENT);
	assert_int_equal(ibv_destroy_qp(&other), 0);
	assert_int_equal(dev.live, 3);
	assert_int_equal(ibv_destroy_qp(&qp), 0);
	assert_int_equal(dev.live, 0);
	assert_int_equal(stagdv_withdraw(&qp, KEY_BASE, NULL), ENOENT);
}

static void stags_end_with_the_connection(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};

	advertise_regions(3);
	assert_int_equal(ibv_modify_qp(&qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_ERR;
	assert_int_equal(ibv_modify_qp(&qp, &attr, IBV_QP_PORT), 0);
	assert_int_equal(dev.live, 3);
	assert_int_equal(ibv_modify_qp(&qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(dev.live, 0);
	advertise_regions(1);
}

/* Advertises without a body, since the played device has room for one only. */
static void *advertise_and_withdraw(void *arg)
{
	for (unsigned i = 0; i < 500; i++) {
		struct ibv_sge piece = {(uintptr_t)memory, 100, 1};
		struct stagdv_advertise wr = {.memory = &piece,
					      .num_memory = 1,
					      .access = IBV_ACCESS_REMOTE_READ,
					      .iova = (uintptr_t)memory,
					      .reference = i,
					      .stag_at = -1};
		struct ibv_qp *at = arg;
		uint32_t stag, reference;

		if (stagdv_post_send_advertise(at, &wr, &stag) != 0 ||
		    stagdv_withdraw(at, stag, &reference) != 0 || reference != i)
			return arg;
	}
	return NULL;
}

static intptr_t reg_mr_without_checks(intptr_t domain, intptr_t addr, intptr_t length,
				      intptr_t access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	if (mr)
		mr->rkey = KEY_BASE + atomic_fetch_add(&dev.made, 1);
	atomic_fetch_add(&dev.live, 1);
	return (intptr_t)mr;
}

static int post_send_without_checks(struct ibv_qp *at, struct ibv_send_wr *wr,
				    struct ibv_send_wr **bad)
{
	return 0;
}

static void threads_advertise_on_one_queue_pair(void **state)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	pthread_t threads[4];
	void *failed;

	assert_int_equal(replace_function(lib, "fake_ibv_reg_mr", reg_mr_without_checks), 0);
	ctx.ops.post_send = post_send_without_checks;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, advertise_and_withdraw, &qp), 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	assert_int_equal(dev.live, 0);
	ctx.ops.post_send = post_send;
	assert_int_equal(replace_function(lib, "fake_ibv_reg_mr", reg_mr), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(advertise_registers_memory_and_sends, reset_device,
						destroy_and_check),
		cmocka_unit_test_setup_teardown(read_right_does_not_allow_writes, reset_device,
						destroy_and_check),
		cmocka_unit_test_setup_teardown(inline_body_is_copied, reset_device,
						destroy_and_check),
		cmocka_unit_test_setup_teardown(close_is_a_send_with_invalidate, reset_device,
						destroy_and_check),
		cmocka_unit_test_setup_teardown(
			close_is_a_plain_send_without_memory_management_extensions, reset_device,
			destroy_and_check),
		cmocka_unit_test_setup_teardown(failed_advertise_leaves_no_region, reset_device,
						destroy_and_check),
		cmocka_unit_test_setup_teardown(stags_beyond_the_limit_are_refused, reset_device,
						destroy_and_check),
		cmocka_unit_test_setup_teardown(stags_end_with_the_queue_pair, reset_device,
						destroy_and_check),
		cmocka_unit_test_setup_teardown(stags_end_with_the_connection, reset_device,
						destroy_and_check),
		cmocka_unit_test_setup_teardown(threads_advertise_on_one_queue_pair, reset_device,
						destroy_and_check),
	};

	return cmocka_run_group_tests(tests, replace_functions, NULL);
}
