// SPDX-License-Identifier: BSD-2-Clause
/* device.c - the list of devices: the real ones, followed by ours, which STAG_DEVICE chooses. */
#include "verbs/verbs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The program sees devs; the real list is kept to be freed with it. */
struct device_list {
	struct ibv_device **real;
	struct ibv_device *devs[];
};

/* Returns the real library's devices; none if it is missing or finds none. */
static struct ibv_device **real_device_list(int *n)
{
	struct ibv_device **list = NULL;

	*n = 0;
	if (real()->get_device_list)
		list = real()->get_device_list(n);
	return list;
}

static void free_real_list(struct ibv_device **list)
{
	if (list)
		real()->free_device_list(list);
}

/* Many programs take the first device that they see: roce0, which more of them accept, is before stag0. */
static int add_ours(struct ibv_device **to)
{
	int n = 0;

	if (config()->devices & 1u << FACE_ROCE)
		to[n++] = &stag_device(FACE_ROCE)->ibv;
	if (config()->devices & 1u << FACE_IWARP)
		to[n++] = &stag_device(FACE_IWARP)->ibv;
	return n;
}

/* Set while this thread is in a real function that looks for its own devices. */
static __thread bool real_ones_only;

STAG_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	int n;
	struct ibv_device **found = real_device_list(&n);
	struct device_list *list =
		calloc(1, sizeof(*list) + (n + FACES + 1) * sizeof(list->devs[0]));

	if (!list) {
		free_real_list(found);
		return fail_with(ENOMEM);
	}
	list->real = found;
	if (n)
		memcpy(list->devs, found, n * sizeof(list->devs[0]));
	if (!real_ones_only)
		n += add_ours(list->devs + n);
	if (num_devices)
		*num_devices = n;
	errno = 0; /* the real library leaves ENOSYS where the kernel has no RDMA */
	return list->devs;
}

STAG_EXPORT void ibv_free_device_list(struct ibv_device **devs)
{
	if (!devs)
		return;

	struct device_list *list = container_of(devs, struct device_list, devs);

	free_real_list(list->real);
	free(list);
}

static bool any_real_device;

static void look_for_real_devices(void)
{
	int n;
	struct ibv_device **list = real_device_list(&n);

	any_real_device = n > 0;
	free_real_list(list);
}

bool real_devices_exist(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look_for_real_devices);
	return any_real_device;
}

STAG_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

STAG_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	if (is_our_device(device) || !real()->get_device_index)
		return -1; /* the kernel does not know this device */
	return real()->get_device_index(device);
}

STAG_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	struct ibv_device_attr_ex attr;

	if (!is_our_device(device))
		return real()->get_device_guid(device);
	device_query(((struct stag_device *)device)->face, &attr);
	return attr.orig_attr.node_guid;
}

STAG_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct stag_ctx *ctx = NULL;

	if (!is_our_device(device))
		return real()->open_device(device);
	FACE_RETURN(context_open(((struct stag_device *)device)->face, &ctx), &ctx->v.context);
}

STAG_EXPORT int ibv_close_device(struct ibv_context *context)
{
	if (!is_ours(context))
		return real()->close_device(context);
	/*
	 * A program may close a context that belongs to an rdma_cm_id: all ids share it, so it
	 * stays open.
	 */
	if (!is_shared_context(context))
		ctx_destroy(to_stag_ctx(context));
	return 0;
}

/* Is this the cmd_fd of one of our contexts? They are all /dev/null. */
static bool is_our_cmd_fd(int fd)
{
	struct stat st, null;

	return !fstat(fd, &st) && !stat("/dev/null", &null) && S_ISCHR(st.st_mode) &&
	       st.st_rdev == null.st_rdev;
}

/*
 * Import hands objects to another process through the kernel, which has none of ours. The real function would dereference every device in the
 * list.
 */
STAG_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_context *context;

	if (is_our_cmd_fd(cmd_fd) || !real()->import_device)
		return fail_with(EOPNOTSUPP);
	real_ones_only = true;
	context = real()->import_device(cmd_fd);
	real_ones_only = false;
	return context;
}

STAG_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	if (is_ours(context) || !real()->import_pd)
		return fail_with(EOPNOTSUPP);
	return real()->import_pd(context, handle);
}

STAG_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	if (!is_ours(pd->context) && real()->unimport_pd)
		real()->unimport_pd(pd);
}

STAG_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	if (is_ours(pd->context) || !real()->import_mr)
		return fail_with(EOPNOTSUPP);
	return real()->import_mr(pd, handle);
}

STAG_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	if (!is_ours(mr->context) && real()->unimport_mr)
		real()->unimport_mr(mr);
}

STAG_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	if (is_ours(context) || !real()->import_dm)
		return fail_with(EOPNOTSUPP);
	return real()->import_dm(context, handle);
}

STAG_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
	if (!is_ours(dm->context) && real()->unimport_dm)
		real()->unimport_dm(dm);
}

/* For drivers older than 2018; the real library accepts the call and ignores it. */
STAG_EXPORT void ibv_register_driver(const char *name, void *init_func)
{
	if (real()->register_driver)
		real()->register_driver(name, init_func);
}
