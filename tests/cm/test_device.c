// SPDX-License-Identifier: BSD-2-Clause
/* test_device.c - which device ids have, by STAG_DEVICE. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stag/stagdv.h"
#include "story.h"

static struct ibv_context **devices;
static int n_devices;

static struct ibv_context *device_named(const char *name)
{
	for (int i = 0; i < n_devices; i++)
		if (strcmp(ibv_get_device_name(devices[i]->device), name) == 0)
			return devices[i];
	return NULL;
}

static struct rdma_cm_id *bound(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id = id_new(ch);
	struct sockaddr_storage a = address(IPV4, 0);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	return id;
}

static void ids_have_devices_that_are_listed(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *id = bound(ch);

	assert_ptr_equal(id->verbs, device_named(ibv_get_device_name(id->verbs->device)));
	assert_ptr_equal(id->pd->context, id->verbs);
	id_gone(id);
	rdma_destroy_event_channel(ch);
}

static int create_with(struct rdma_cm_id *id, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	return rdma_create_qp(id, pd, &attr);
}

/* An id that has not connected takes the device of its queue pair's domain, if it may use it. */
static void a_queue_pair_brings_its_device(void **state)
{
	struct rdma_event_channel *ch = channel_new();

	for (int i = 0; i < n_devices; i++) {
		struct rdma_cm_id *id = bound(ch);
		struct ibv_pd *pd = ibv_alloc_pd(devices[i]);

		assert_int_equal(create_with(id, pd), 0);
		assert_ptr_equal(id->verbs, devices[i]);
		assert_ptr_equal(id->qp->context, devices[i]);
		id_gone(id);
		assert_int_equal(ibv_dealloc_pd(pd), 0);
	}
	rdma_destroy_event_channel(ch);
}

static const char *device_of(const struct rdma_cm_id *id)
{
	return ibv_get_device_name(id->verbs->device);
}

/* Sets it before the id has a device, or after. */
static const char *device_with_tls(struct stagdv_tls *tls, enum stagdv_tls_mode mode, bool before)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *id = before ? id_new(ch) : bound(ch);
	struct sockaddr_storage a = address(IPV4, 0);
	const char *name;

	assert_int_equal(stagdv_set_tls(id, tls, mode), 0);
	if (before)
		assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	name = device_of(id);
	assert_int_equal(create_with(id, NULL), 0);
	assert_string_equal(ibv_get_device_name(id->qp->context->device), name);
	id_gone(id);
	rdma_destroy_event_channel(ch);
	return name;
}

/* roce0 has no TLS: an id that requires it has stag0 even if that is not in the list; one that allows it, if it is. */
static void an_id_to_be_encrypted_has_stag0(void **state)
{
	static const uint8_t key[32] = "0123456789abcdef0123456789abcde";
	struct stagdv_tls_attr attr = {.identity = "a", .psk = key, .psk_len = sizeof(key)};
	const char *first = ibv_get_device_name(devices[0]->device);
	const char *allowed = device_named("stag0") ? "stag0" : "roce0";
	struct stagdv_tls *tls;
	char why[128];

	assert_int_equal(stagdv_create_tls(&tls, &attr, sizeof(attr), why, sizeof(why)), 0);
	for (int before = 0; before < 2; before++) {
		assert_string_equal(device_with_tls(tls, STAGDV_TLS_OFF, before), first);
		assert_string_equal(device_with_tls(tls, STAGDV_TLS_ALLOWED, before), allowed);
		assert_string_equal(device_with_tls(tls, STAGDV_TLS_REQUIRED, before), "stag0");
	}
	stagdv_destroy_tls(tls);
}

/* As a domain of a real device is, where rdma_cm is ours. */
static void a_domain_of_another_device_is_refused(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *id = bound(ch);
	struct ibv_device fake = {.name = "mlx5_0"};
	struct ibv_context context = {.device = &fake};
	struct ibv_pd pd = {.context = &context};

	errno = 0;
	assert_int_equal(create_with(id, &pd), -1);
	assert_int_equal(errno, EINVAL);
	assert_null(id->qp);
	id_gone(id);
	rdma_destroy_event_channel(ch);
}

static void the_list_is_that_of_the_variable(void **state)
{
	const char *want = getenv("STAG_DEVICE");

	assert_int_equal(n_devices, strcmp(want, "both") == 0 ? 2 : 1);
	if (strcmp(want, "iwarp") != 0)
		assert_string_equal(ibv_get_device_name(devices[0]->device), "roce0");
	if (strcmp(want, "roce") != 0)
		assert_non_null(device_named("stag0"));
	assert_null(devices[n_devices]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_list_is_that_of_the_variable),
		cmocka_unit_test(ids_have_devices_that_are_listed),
		cmocka_unit_test(a_queue_pair_brings_its_device),
		cmocka_unit_test(an_id_to_be_encrypted_has_stag0),
		cmocka_unit_test(a_domain_of_another_device_is_refused),
	};

	devices = rdma_get_devices(&n_devices);
	if (!devices)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
