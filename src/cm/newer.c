// SPDX-License-Identifier: BSD-2-Clause
/*
 * newer.c - calls of rdma-core 57 and later that the adapter does not support. They have to be here: the real library would
 * take an id of ours for one of its own.
 */
#include "cm/cm.h"

/* Passes a call on if the process chose rdma-core's library, and that has the function. */
#define PASS_NEWER(name, ...)                                                                      \
	do {                                                                                       \
		const struct real_cm *real_lib = real_cm();                                        \
		if (real_lib && real_lib->name)                                                    \
			return real_lib->name(__VA_ARGS__);                                        \
	} while (0)

static int refuse(const char *call)
{
	return id_error(NULL, EOPNOTSUPP, "%s() is not supported", call);
}

STAG_EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
				      const struct rdma_addrinfo *hints)
{
	PASS_NEWER(resolve_addrinfo, id, node, service, hints);
	return refuse(__func__);
}

STAG_EXPORT int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info)
{
	PASS_NEWER(query_addrinfo, id, info);
	return refuse(__func__);
}

STAG_EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event,
				    int status, uint64_t arg)
{
	PASS_NEWER(write_cm_event, id, event, status, arg);
	return refuse(__func__);
}
