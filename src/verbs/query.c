// SPDX-License-Identifier: BSD-2-Clause
/*
 * query.c - attributes of the device, its port and its address tables.
 *
 * Structures that grow with the header come with the caller's size: no byte beyond it is
 * written. Our devices have one port and one P_Key. stag0 has one GID, roce0 has the machine's addresses (gid.c).
 */
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/clock.h"

#define PORT	     1
#define DEFAULT_PKEY 0xffff
#define PORT_SPEED   1000 /* 4X EDR, as in the port's attributes */

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
	device_query(face_of(context), &ours);
	copy_sized(attr, size, &ours, sizeof(ours));
	return 0;
}

STAG_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct ibv_device_attr_ex ours;

	if (!is_ours(context))
		return real()->query_device(context, attr);
	device_query(face_of(context), &ours);
	*attr = ours.orig_attr;
	return 0;
}

int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		     size_t size)
{
	struct ibv_port_attr ours;

	if (!is_port(port))
		return EINVAL;
	device_query_port(face_of(context), &ours);
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

static unsigned gid_count(const struct ibv_context *context)
{
	return face_of(context) == FACE_ROCE ? gid_table_len() : STAG_GID_COUNT;
}

static int gid_check(const struct ibv_context *context, unsigned port, unsigned index)
{
	if (!is_port(port))
		return -EINVAL;
	if (index < gid_count(context))
		return 0;
	log_info("device: no GID with index %u, there are %u", index, gid_count(context));
	return -EINVAL;
}

/* Returns false, and an entry of zeroes, if there is none at the index. */
static bool gid_entry(const struct ibv_context *context, unsigned index, struct ibv_gid_entry *out)
{
	struct gid_entry found = {.ifindex = 0};
	bool roce = face_of(context) == FACE_ROCE, filled = true;

	*out = (struct ibv_gid_entry){
		.gid_index = index,
		.port_num = PORT,
		/* IBV_GID_TYPE_IB is the value that the kernel reports for iWARP. */
		.gid_type = roce ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB,
	};
	if (roce)
		filled = gid_get(index, &found);
	else
		device_gid(index, &found.gid);
	out->gid = found.gid;
	out->ndev_ifindex = found.ifindex;
	return filled;
}

STAG_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
			      union ibv_gid *gid)
{
	if (!is_ours(context))
		return real()->query_gid(context, port, index, gid);

	int err = gid_check(context, port, (unsigned)index);
	struct ibv_gid_entry entry;

	if (err)
		return minus_one(err);
	gid_entry(context, (unsigned)index, &entry);
	*gid = entry.gid; /* zeroes, if the index is empty */
	return 0;
}

/* The result is 0 for RoCE v1 and for every device without RoCE, 1 for RoCE v2. */
static int query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	if (!is_ours(context))
		return real()->query_gid_type(context, port, index, type);

	int err = gid_check(context, port, index);

	if (!err)
		*type = face_of(context) == FACE_ROCE;
	return minus_one(err);
}

/*
 * Exports it as ibv_query_gid_type(). Programs and provider libraries bind to the version of the rdma-core that they were
 * built with: it names that release's private ABI.
 */
#define EXPORT_GID_TYPE(at, abi)                                                                   \
	STAG_EXPORT __typeof__(ibv_query_gid_type) query_gid_type_##abi                            \
		__attribute__((alias("query_gid_type")));                                          \
	__asm__(".symver query_gid_type_" #abi ", ibv_query_gid_type" at "IBVERBS_PRIVATE_" #abi);

EXPORT_GID_TYPE("@", 25)
EXPORT_GID_TYPE("@", 33)
EXPORT_GID_TYPE("@@", 34) /* the headers' that this is built with */
EXPORT_GID_TYPE("@", 57)
EXPORT_GID_TYPE("@", 59)
EXPORT_GID_TYPE("@", 64)
EXPORT_GID_TYPE("@", 65)

STAG_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
				  struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry ours;

	if (!is_ours(context))
		return real()->query_gid_ex ? real()->query_gid_ex(context, port, index, entry,
								   flags, entry_size)
					    : EOPNOTSUPP;
	if (flags)
		return EOPNOTSUPP;
	if (gid_check(context, port, index))
		return EINVAL;
	if (!gid_entry(context, index, &ours))
		return ENODATA;
	copy_sized(entry, entry_size, &ours, sizeof(ours));
	return 0;
}

STAG_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
					 size_t max_entries, uint32_t flags, size_t entry_size)
{
	size_t n = 0;

	if (!is_ours(context))
		return real()->query_gid_table
			       ? real()->query_gid_table(context, entries, max_entries, flags,
							 entry_size)
			       : -EOPNOTSUPP;
	if (flags)
		return -EOPNOTSUPP;
	for (unsigned i = 0; i < gid_count(context); i++) {
		struct ibv_gid_entry ours;

		if (!gid_entry(context, i, &ours))
			continue;
		if (n == max_entries) {
			log_info("device: there are more GIDs than the room for %zu", max_entries);
			return -EINVAL;
		}
		copy_sized((uint8_t *)entries + n++ * entry_size, entry_size, &ours, sizeof(ours));
	}
	return (ssize_t)n;
}

/* In units of 100 Mbit/s. */
STAG_EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	if (!is_ours(context))
		return real()->query_port_speed ? real()->query_port_speed(context, port, speed)
						: EOPNOTSUPP;
	if (!is_port(port))
		return EINVAL;
	*speed = PORT_SPEED;
	return 0;
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
