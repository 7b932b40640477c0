// SPDX-License-Identifier: BSD-2-Clause
/*
 * device.c - the device of all ids: one context, and one protection domain for queue pairs whose
 * program gives none.
 */
#include "cm/cm.h"

#include <stdlib.h>

#include "base/lock.h"
#include "verbs/verbs.h"

struct ibv_pd *default_pd(void)
{
	static struct lock lock = LOCK_INITIALIZER;
	static struct ibv_pd *pd;
	struct ibv_context *context;

	HOLD_FOR_SCOPE(&lock);
	if (pd)
		return pd;
	context = stag_shared_context();
	if (context)
		pd = ibv_alloc_pd(context);
	return pd;
}

STAG_EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
	PASS_TO_REAL(get_devices(num_devices));
	struct ibv_context **list = calloc(2, sizeof(*list));

	if (!list)
		return NULL;
	list[0] = stag_shared_context();
	if (!list[0]) {
		free(list);
		return NULL;
	}
	if (num_devices)
		*num_devices = 1;
	return list;
}

STAG_EXPORT void rdma_free_devices(struct ibv_context **list)
{
	PASS_TO_REAL_VOID(free_devices(list));
	free(list);
}
