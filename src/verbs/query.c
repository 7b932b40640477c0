// SPDX-License-Identifier: BSD-2-Clause
/*
 * query.c - attributes of the device, its port and its address tables.
 *
 * Structures that grow with the header come with the caller's size: no byte beyond it is
 * written. stag0 has one port, one GID and one P_Key.
 */
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/clock.h"

#define PORT	     1
#define DEFAULT_PKEY 0xffff

/* The port attributes of programs older than port_cap_flags2. */
#define OLD_PORT_ATTR_SIZE offsetof(struct ibv_port_attr, port_cap_flags2)

/* Copies a structure into a newer or older one, with zeroes after the known part. */
static void copy_sized(void *dst, size_t dst_size, const void *src, size_t src_size)
{
	size_t n = dst_size < src_size ? dst_size : src_size;

	memcpy(dst, src, n);
	memset((uint8_t *)dst + n, 0, dst_size - n);
}

static bool is_port(unsigned port)
{
	if (port == PORT)
		return true;
	log_info("device: no port %u, only port %d", port, PORT);
	return false;
}

int verbs_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex ours;

	if ((input && input->comp_mask) || size < sizeof(attr->orig_attr))
		return EINVAL;
	device_query(&ours);
	copy_sized(attr, size, &ours, sizeof(ours));
	return 0;
}

STAG_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct ibv_device_attr_ex ours;

	if (!is_ours(context))
		return real()->query_device(context, attr);
	device_query(&ours);
	*attr = ours.orig_attr;
	return 0;
}

int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		     size_t size)
{
	struct ibv_port_attr ours;

	if (!is_port(port))
		return EINVAL;
	device_query_port(&ours);
	copy_sized(attr, size, &ours, sizeof(ours));
	return 0;
}

STAG_EXPORT int(ibv_query_port)(struct ibv_context *context, uint8_t port,
				struct _compat_ibv_port_attr *attr)
{
	if (!is_ours(context))
		return real()->query_port(context, port, attr);
	return verbs_query_port(context, port, (struct ibv_port_attr *)attr, OLD_PORT_ATTR_SIZE);
}

int verbs_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint32_t asked = values->comp_mask;

	values->comp_mask = 0;
	if (asked & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	if (asked & IBV_VALUES_MASK_RAW_CLOCK) {
		/* a plain count in tv_nsec, as on hardware: the unit of completion time stamps */
		values->raw_clock.tv_sec = 0;
		values->raw_clock.tv_nsec = (long)clock_ns();
		values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	}
	return 0;
}

/* ---- addresses --------------------------------------------------------- */

static int gid_check(unsigned port, unsigned index)
{
	if (!is_port(port))
		return -EINVAL;
	if (index < STAG_GID_COUNT)
		return 0;
	log_info("device: no GID with index %u, there are %d", index, STAG_GID_COUNT);
	return -EINVAL;
}

STAG_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
			      union ibv_gid *gid)
{
	if (!is_ours(context))
		return real()->query_gid(context, port, index, gid);

	int err = gid_check(port, (unsigned)index);

	if (!err)
		device_gid((unsigned)index, gid);
	return minus_one(err);
}

/* Returns 0, neither RoCE version, as the real function does for every device without RoCE. */
STAG_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
				   int *type)
{
	if (!is_ours(context))
		return real()->query_gid_type(context, port, index, type);

	int err = gid_check(port, index);

	if (!err)
		*type = 0;
	return minus_one(err);
}

static void gid_entry(unsigned index, struct ibv_gid_entry *entry, size_t size)
{
	struct ibv_gid_entry ours = {
		.gid_index = index,
		.port_num = PORT,
		.gid_type = IBV_GID_TYPE_IB, /* the value that the kernel reports for iWARP */
	};

	device_gid(index, &ours.gid);
	copy_sized(entry, size, &ours, sizeof(ours));
}

STAG_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
				  struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	if (!is_ours(context))
		return real()->query_gid_ex ? real()->query_gid_ex(context, port, index, entry,
								   flags, entry_size)
					    : EOPNOTSUPP;
	if (flags)
		return EOPNOTSUPP;

	int err = gid_check(port, index);

	if (!err)
		gid_entry(index, entry, entry_size);
	return -err;
}

STAG_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
					 size_t max_entries, uint32_t flags, size_t entry_size)
{
	if (!is_ours(context))
		return real()->query_gid_table
			       ? real()->query_gid_table(context, entries, max_entries, flags,
							 entry_size)
			       : -EOPNOTSUPP;
	if (flags)
		return -EOPNOTSUPP;
	if (max_entries < STAG_GID_COUNT) {
		log_info("device: room for %zu GIDs, there are %d", max_entries, STAG_GID_COUNT);
		return -EINVAL;
	}
	for (unsigned i = 0; i < STAG_GID_COUNT; i++)
		gid_entry(i, (void *)((uint8_t *)entries + i * entry_size), entry_size);
	return STAG_GID_COUNT;
}

STAG_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	if (!is_ours(context))
		return real()->query_pkey(context, port, index, pkey);
	if (!is_port(port) || index != 0)
		return minus_one(-EINVAL);
	*pkey = htons(DEFAULT_PKEY);
	return 0;
}

STAG_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	if (!is_ours(context))
		return real()->get_pkey_index(context, port, pkey);
	if (!is_port(port) || pkey != htons(DEFAULT_PKEY))
		return minus_one(-EINVAL);
	return 0;
}
