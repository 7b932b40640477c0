// SPDX-License-Identifier: BSD-2-Clause
/* device.c - the devices: their attributes, their contexts and the asynchronous events of these. */
#include "adapter/device.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "adapter/config.h"
#include "adapter/cq.h"
#include "adapter/face.h"
#include "adapter/gid.h"
#include "adapter/guid.h"
#include "adapter/qp.h"
#include "adapter/srq.h"
#include "base/log.h"

static struct stag_device devices[FACES] = {
	[FACE_IWARP] = {.ibv =
				{
					.node_type = IBV_NODE_RNIC,
					.transport_type = IBV_TRANSPORT_IWARP,
					.name = "stag0",
					.dev_name = "stag0",
				},
			.face = FACE_IWARP},
	[FACE_ROCE] = {.ibv =
			       {
				       .node_type = IBV_NODE_CA,
				       .transport_type = IBV_TRANSPORT_IB,
				       .name = "roce0",
				       .dev_name = "uverbs200", /* real ones count from 0 */
				       .dev_path = "/sys/class/infiniband_verbs/uverbs200",
				       .ibdev_path = "/sys/class/infiniband/roce0",
			       },
		       .face = FACE_ROCE},
};

struct stag_device *stag_device(enum face face)
{
	return &devices[face];
}

/* ---- contexts ---- */

static struct {
	struct lock lock;
	struct list list; /* stag_ctx.link */
} open_on_roce = {.lock = LOCK_INITIALIZER, .list = {&open_on_roce.list, &open_on_roce.list}};

static void note_open(struct stag_ctx *ctx)
{
	lock_acquire(&open_on_roce.lock);
	list_add_tail(&open_on_roce.list, &ctx->link);
	lock_release(&open_on_roce.lock);
}

static void note_closed(struct stag_ctx *ctx)
{
	bool was_last;

	lock_acquire(&open_on_roce.lock);
	list_del(&ctx->link);
	was_last = list_empty(&open_on_roce.list);
	lock_release(&open_on_roce.lock);
	if (was_last)
		gid_watch_stop();
}

/* The child has the events of contexts that it opens itself. */
void ctx_after_fork(void)
{
	lock_init(&open_on_roce.lock);
	list_for_each_safe (l, &open_on_roce.list)
		list_del(l);
}

/* Nothing that roce0 sends is encrypted. */
static bool is_too_open(enum face face)
{
	if (face != FACE_ROCE || config()->tls != TLS_REQUIRED)
		return false;
	log_err("roce0 cannot be opened: STAG_TLS requires TLS, and roce0 has none; stag0 has "
		"(STAG_DEVICE=iwarp)");
	return true;
}

int ctx_create(enum face face, struct stag_ctx **out)
{
	struct stag_ctx *ctx;
	struct ibv_context *c;
	int err;

	if (is_too_open(face))
		return -EOPNOTSUPP;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return -ENOMEM;
	c = &ctx->v.context;
	ctx->v.sz = sizeof(ctx->v);
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->device = &devices[face].ibv;
	c->num_comp_vectors = 1;
	c->cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	c->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (c->cmd_fd < 0 || c->async_fd < 0) {
		err = -errno;
		goto err_close;
	}
	pthread_mutex_init(&c->mutex, NULL);
	lock_init(&ctx->async_lock);
	list_init(&ctx->async_events);
	list_init(&ctx->link);
	atomic_store(&ctx->refs, 1);
	if (face == FACE_ROCE)
		note_open(ctx);
	*out = ctx;
	return 0;

err_close:
	if (c->cmd_fd >= 0)
		close(c->cmd_fd);
	if (c->async_fd >= 0)
		close(c->async_fd);
	free(ctx);
	return err;
}

void ctx_get(struct stag_ctx *ctx)
{
	atomic_fetch_add(&ctx->refs, 1);
}

void ctx_put(struct stag_ctx *ctx)
{
	if (atomic_fetch_sub(&ctx->refs, 1) > 1)
		return;
	list_for_each_safe (l, &ctx->async_events)
		free(list_entry(l, struct async_item, link));
	close(ctx->v.context.cmd_fd);
	close(ctx->v.context.async_fd);
	lock_destroy(&ctx->async_lock);
	free(ctx);
}

/* A program may close a device while objects use it: they keep the context alive. */
void ctx_destroy(struct stag_ctx *ctx)
{
	int others = atomic_load(&ctx->refs) - 1;

	if (others)
		log_info("context: closed while %d domains, queues or channels use it", others);
	if (face_of(&ctx->v.context) == FACE_ROCE)
		note_closed(ctx);
	ctx_put(ctx);
}

/* ---- asynchronous events ---- */

void ctx_async(struct stag_ctx *ctx, const struct ibv_async_event *ev)
{
	struct async_item *item = malloc(sizeof(*item));
	uint64_t one = 1;

	if (!item) {
		log_err("context: no memory for asynchronous event %d", ev->event_type);
		return;
	}
	item->event = *ev;
	lock_acquire(&ctx->async_lock);
	list_add_tail(&ctx->async_events, &item->link);
	if (write(ctx->v.context.async_fd, &one, sizeof(one)) < 0)
		log_err("context: an asynchronous event could not be raised");
	lock_release(&ctx->async_lock);
}

static bool has_event(struct stag_ctx *ctx, enum ibv_event_type type)
{
	bool has = false;

	lock_acquire(&ctx->async_lock);
	list_for_each (l, &ctx->async_events)
		has |= list_entry(l, struct async_item, link)->event.event_type == type;
	lock_release(&ctx->async_lock);
	return has;
}

void ctx_async_all(enum ibv_event_type type)
{
	struct ibv_async_event ev = {.element.port_num = 1, .event_type = type};

	lock_acquire(&open_on_roce.lock);
	list_for_each (l, &open_on_roce.list) {
		struct stag_ctx *ctx = list_entry(l, struct stag_ctx, link);

		if (!has_event(ctx, type))
			ctx_async(ctx, &ev);
	}
	lock_release(&open_on_roce.lock);
}

/* Counts an event for its object, whose destruction waits for as many acknowledgements. */
static void count_handed(struct stag_ctx *ctx, const struct ibv_async_event *ev)
{
	assert(lock_held(&ctx->async_lock));
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		to_stag_cq(ev->element.cq)->async_sent++;
		to_stag_cq(ev->element.cq)->async_types |= 1u << ev->event_type;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		to_stag_srq(ev->element.srq)->async_sent++;
		to_stag_srq(ev->element.srq)->async_types |= 1u << ev->event_type;
		break;
	case IBV_EVENT_GID_CHANGE: /* of the port */
		break;
	default: /* the adapter raises no others but for queue pairs */
		to_stag_qp(ev->element.qp)->async_sent++;
		to_stag_qp(ev->element.qp)->async_types |= 1u << ev->event_type;
		break;
	}
}

/* Names the types in a set. */
static void name_types(uint32_t types, char *to, size_t room)
{
#define NAME(type) [type] = #type
	static const char *const names[] = {
		NAME(IBV_EVENT_CQ_ERR),
		NAME(IBV_EVENT_QP_FATAL),
		NAME(IBV_EVENT_QP_REQ_ERR),
		NAME(IBV_EVENT_QP_ACCESS_ERR),
		NAME(IBV_EVENT_COMM_EST),
		NAME(IBV_EVENT_SQ_DRAINED),
		NAME(IBV_EVENT_PATH_MIG),
		NAME(IBV_EVENT_PATH_MIG_ERR),
		NAME(IBV_EVENT_DEVICE_FATAL),
		NAME(IBV_EVENT_PORT_ACTIVE),
		NAME(IBV_EVENT_PORT_ERR),
		NAME(IBV_EVENT_LID_CHANGE),
		NAME(IBV_EVENT_PKEY_CHANGE),
		NAME(IBV_EVENT_SM_CHANGE),
		NAME(IBV_EVENT_SRQ_ERR),
		NAME(IBV_EVENT_SRQ_LIMIT_REACHED),
		NAME(IBV_EVENT_QP_LAST_WQE_REACHED),
		NAME(IBV_EVENT_CLIENT_REREGISTER),
		NAME(IBV_EVENT_GID_CHANGE),
		NAME(IBV_EVENT_WQ_FATAL),
	};
#undef NAME
	size_t used = 0;

	*to = '\0';
	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && used < room; i++)
		if (types & 1u << i)
			used += (size_t)snprintf(to + used, room - used, "%s%s", used ? ", " : "",
						 names[i]);
}

static void log_missing_acks(const struct acks *a, const char *name)
{
	uint32_t missing = a->handed - *a->acked;
	char types[512];

	name_types(a->types, types, sizeof(types));
	if (a->types)
		log_warn("%s: its destruction waits for the program: %u of %u asynchronous events "
			 "(%s) were not acknowledged with ibv_ack_async_event()",
			 name, missing, a->handed, types);
	else
		log_warn("%s: its destruction waits for the program: %u of %u completion events "
			 "were "
			 "not acknowledged with ibv_ack_cq_events()",
			 name, missing, a->handed);
}

void wait_for_acks(const struct acks *a, const char *name)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ACKS_PATIENCE_S;
	pthread_mutex_lock(a->mutex);
	while (*a->acked != a->handed && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(a->cond, a->mutex, &until);
	if (*a->acked != a->handed)
		log_missing_acks(a, name);
	while (*a->acked != a->handed)
		pthread_cond_wait(a->cond, a->mutex);
	pthread_mutex_unlock(a->mutex);
}

/* Takes one off the descriptor's count, which is not zero: never blocks. */
static void lower_count(struct stag_ctx *ctx)
{
	uint64_t n;

	assert(lock_held(&ctx->async_lock));
	if (read(ctx->v.context.async_fd, &n, sizeof(n)) < 0)
		log_err("context: the descriptor counts other events than are queued");
}

static struct async_item *take_item(struct stag_ctx *ctx)
{
	struct async_item *item = NULL;

	lock_acquire(&ctx->async_lock);
	if (!list_empty(&ctx->async_events)) {
		item = list_entry(ctx->async_events.next, struct async_item, link);
		list_del(&item->link);
		count_handed(ctx, &item->event);
		lower_count(ctx);
	}
	lock_release(&ctx->async_lock);
	return item;
}

int ctx_get_async(struct stag_ctx *ctx, struct ibv_async_event *ev)
{
	struct pollfd p = {.fd = ctx->v.context.async_fd, .events = POLLIN};
	struct async_item *item;

	while (!(item = take_item(ctx))) {
		int flags = fcntl(p.fd, F_GETFL);

		if (flags < 0)
			return -errno;
		if (flags & O_NONBLOCK)
			return -EAGAIN;
		if (poll(&p, 1, -1) < 0)
			return -errno;
	}
	*ev = item->event;
	free(item);
	return 0;
}

void ctx_drop_async(struct stag_ctx *ctx, const void *object)
{
	lock_acquire(&ctx->async_lock);
	list_for_each_safe (l, &ctx->async_events) {
		struct async_item *item = list_entry(l, struct async_item, link);

		/* the element is a union of pointers */
		if ((const void *)item->event.element.qp != object)
			continue;
		list_del(&item->link);
		free(item);
		lower_count(ctx);
	}
	lock_release(&ctx->async_lock);
}

/* ---- what it can do ---- */

static void query_basic(struct ibv_device_attr *a)
{
	snprintf(a->fw_ver, sizeof(a->fw_ver), "0.1.0");
	a->node_guid = a->sys_image_guid = node_guid();
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = ~0xfffull;
	a->vendor_id = 0x737467; /* "stg": assigned to nobody */
	a->vendor_part_id = config()->part_id;
	a->hw_ver = 1;
	a->max_qp = STAG_MAX_QP;
	a->max_qp_wr = STAG_MAX_QP_WR;
	a->device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SRQ_RESIZE |
			      IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW |
			      IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	a->max_sge = STAG_MAX_SGE;
	a->max_sge_rd = STAG_MAX_SGE;
	a->max_cq = STAG_MAX_CQ;
	a->max_cqe = STAG_MAX_CQE;
	a->max_mr = 1 << 23;
	a->max_pd = 1 << 16;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = STAG_MAX_RD_ATOM;
	a->max_res_rd_atom = STAG_MAX_RD_ATOM * 1024;
	a->atomic_cap = IBV_ATOMIC_GLOB;
	a->max_mw = 1 << 23;
	a->max_srq = 1 << 16;
	a->max_srq_wr = STAG_MAX_SRQ_WR;
	a->max_srq_sge = STAG_MAX_SGE;
	a->max_pkeys = 1;
	a->phys_port_cnt = 1;
}

void device_query(enum face face, struct ibv_device_attr_ex *attr)
{
	memset(attr, 0, sizeof(*attr));
	query_basic(&attr->orig_attr);
	if (face == FACE_ROCE)
		face_roce_attr(&attr->orig_attr);
	attr->phys_port_cnt_ex = attr->orig_attr.phys_port_cnt;
	attr->completion_timestamp_mask = UINT64_MAX;
	attr->hca_core_clock = 1000000; /* kHz: time stamps count nanoseconds */
}

void device_query_port(enum face face, struct ibv_port_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->state = IBV_PORT_ACTIVE;
	a->max_mtu = IBV_MTU_4096;
	a->active_mtu = IBV_MTU_4096;
	a->gid_tbl_len = STAG_GID_COUNT;
	a->max_msg_sz = STAG_MAX_MSG;
	a->pkey_tbl_len = 1;
	a->active_width = 2;  /* 4X */
	a->active_speed = 32; /* EDR */
	a->phys_state = 5;    /* link up */
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	if (face == FACE_ROCE)
		face_roce_port(a);
}

void device_gid(unsigned index, union ibv_gid *gid)
{
	uint64_t guid = node_guid();

	memset(gid, 0, sizeof(*gid));
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	memcpy(gid->raw + 8, &guid, sizeof(guid));
}
