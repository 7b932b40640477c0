// SPDX-License-Identifier: BSD-2-Clause
/*
 * foreign_shot.c - one-shot sends on queue pairs of other devices: the same calls in plain verbs.
 *
 * User-space verbs has no fast registration, and a window would need a region that allows it, and a
 * second work request. So advertised memory is registered for its command, and the region's key is
 * the STag. The command ends with a Send with Invalidate if the device has that, otherwise with a
 * plain send. If the device does not report an invalidation with the receive, nobody can know of it:
 * the program ends the STag itself (withdraw), and the rest ends when the queue pair goes to ERROR or
 * is destroyed.
 *
 * A queue pair that made such a call has an entry here. The device is never called under the lock.
 */
#include "verbs/verbs.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/lock.h"
#include "stag/stagdv.h"

#define BUCKETS	 256
#define MOST	 4096 /* of one queue pair at the same time */
#define FOR_VERB (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)

struct loan {
	struct list link;
	struct ibv_mr *mr;
	uint32_t reference;
};

struct foreign_qp {
	struct list link;
	const struct ibv_qp *qp;
	bool invalidates;
	unsigned n_loans;
	struct list loans; /* oldest first */
};

static struct lock lock = LOCK_INITIALIZER;
static struct list table[BUCKETS]; /* all zero: no such queue pair */

/* ---- queue pairs ---- */

static struct list *bucket_of(const struct ibv_qp *qp)
{
	struct list *b = &table[((uintptr_t)qp >> 4) % BUCKETS];

	if (!b->next)
		list_init(b);
	return b;
}

static struct foreign_qp *find_qp(const struct ibv_qp *qp)
{
	list_for_each (it, bucket_of(qp)) {
		struct foreign_qp *f = list_entry(it, struct foreign_qp, link);

		if (f->qp == qp)
			return f;
	}
	return NULL;
}

static bool device_invalidates(struct ibv_context *context)
{
	const unsigned can = IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2A |
			     IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	struct ibv_device_attr attr = {0};

	return real()->query_device(context, &attr) == 0 && (attr.device_cap_flags & can);
}

/* Creates the entry at the queue pair's first call; only the end of the queue pair removes it. */
static int know(struct ibv_qp *qp, bool *invalidates)
{
	struct foreign_qp *f, *made;

	{
		HOLD_FOR_SCOPE(&lock);
		f = find_qp(qp);
		if (f) {
			*invalidates = f->invalidates;
			return 0;
		}
	}
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->qp = qp;
	list_init(&made->loans);
	*invalidates = made->invalidates = device_invalidates(qp->context);

	HOLD_FOR_SCOPE(&lock);
	if (find_qp(qp))
		free(made); /* another thread created it first */
	else
		list_add_tail(bucket_of(qp), &made->link);
	return 0;
}

/* ---- what is lent ---- */

/* Adjacent pieces are one range: a region needs that. */
static int one_range(const struct stagdv_advertise *wr, uint64_t *addr, uint64_t *length)
{
	*length = 0;
	for (int i = 0; i < wr->num_memory; i++) {
		struct ibv_sge sge;

		memcpy(&sge, &wr->memory[i], sizeof(sge));
		if (!sge.length)
			continue;
		if (!*length)
			*addr = sge.addr;
		else if (sge.addr != *addr + *length)
			return -E2BIG;
		*length += sge.length;
	}
	return *length ? 0 : -EINVAL;
}

static int check_advertise(const struct stagdv_advertise *wr)
{
	const unsigned rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

	if (wr->num_memory < 1 || wr->num_memory > STAGDV_ADVERTISE_SGE || !wr->access ||
	    (wr->access & ~rights))
		return -EINVAL;
	if (wr->stag_at >= 0 && (wr->num_sge < 1 || wr->sg_list[0].length < sizeof(uint32_t) ||
				 (uint32_t)wr->stag_at > wr->sg_list[0].length - sizeof(uint32_t)))
		return -EINVAL;
	return 0;
}

static int make_region(struct ibv_qp *qp, const struct stagdv_advertise *wr, struct ibv_mr **mr)
{
	unsigned access =
		wr->access | (wr->access & IBV_ACCESS_REMOTE_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0);
	uint64_t addr = 0, length;
	int err = one_range(wr, &addr, &length);

	if (!err && wr->iova != addr)
		err = -EOPNOTSUPP; /* some devices require another one, and do not use it */
	if (err)
		return err;
	*mr = real()->reg_mr(qp->pd, (void *)(uintptr_t)addr, length, (int)access);
	return *mr ? 0 : -errno;
}

/* The search is bounded by the number of loans. */
static int keep(const struct ibv_qp *qp, struct loan *l)
{
	HOLD_FOR_SCOPE(&lock);

	struct foreign_qp *f = find_qp(qp);

	if (!f)
		return -EINVAL; /* the queue pair went to ERROR meanwhile */
	if (f->n_loans == MOST)
		return -ENOMEM;
	f->n_loans++;
	list_add_tail(&f->loans, &l->link);
	return 0;
}

/* Removes it from the table: the caller has to end it. */
static struct loan *take_loan(const struct ibv_qp *qp, uint32_t stag)
{
	HOLD_FOR_SCOPE(&lock);

	struct foreign_qp *f = find_qp(qp);

	if (!f)
		return NULL;
	list_for_each (it, &f->loans) {
		struct loan *l = list_entry(it, struct loan, link);

		if (l->mr->rkey != stag)
			continue;
		list_del(&l->link);
		f->n_loans--;
		return l;
	}
	return NULL;
}

static void end_loan(struct loan *l)
{
	int err = real()->dereg_mr(l->mr);

	if (err)
		log_warn("verbs: STag 0x%08x of a real adapter cannot be deregistered: %s",
			 l->mr->rkey, strerror(err));
	free(l);
}

static int lend(struct ibv_qp *qp, const struct stagdv_advertise *wr, uint32_t *stag)
{
	struct loan *l = calloc(1, sizeof(*l));
	int err = l ? make_region(qp, wr, &l->mr) : -ENOMEM;

	if (err) {
		free(l);
		return err;
	}
	l->reference = wr->reference;
	*stag = l->mr->rkey; /* from here on another thread may end it */
	err = keep(qp, l);
	if (err)
		end_loan(l);
	return err;
}

/* ---- the sends ---- */

/* The first piece of an inline body may be read-only: then a copy of it is sent. */
static int put_stag(const struct stagdv_advertise *wr, uint32_t stag, struct ibv_sge *first,
		    void **copy)
{
	uint32_t bytes = htobe32(stag);

	if (wr->send_flags & IBV_SEND_INLINE) {
		*copy = malloc(first->length);
		if (!*copy)
			return -ENOMEM;
		memcpy(*copy, (void *)(uintptr_t)first->addr, first->length);
		first->addr = (uintptr_t)*copy;
	}
	memcpy((uint8_t *)(uintptr_t)first->addr + wr->stag_at, &bytes, sizeof(bytes));
	return 0;
}

static int send_body(struct ibv_qp *qp, const struct stagdv_advertise *wr, struct ibv_sge *list,
		     uint32_t stag)
{
	struct ibv_send_wr *bad, send = {
					 .wr_id = wr->wr_id,
					 .sg_list = list,
					 .num_sge = wr->num_sge,
					 .opcode = IBV_WR_SEND,
					 .send_flags = wr->send_flags & FOR_VERB,
				 };
	void *copy = NULL;
	int err = wr->stag_at >= 0 ? put_stag(wr, stag, list, &copy) : 0;

	if (!err)
		err = -ibv_post_send(qp, &send, &bad);
	free(copy);
	return err;
}

static int send_with_stag(struct ibv_qp *qp, const struct stagdv_advertise *wr, uint32_t stag)
{
	struct ibv_sge *list;
	int err;

	if (wr->num_sge < 1)
		return send_body(qp, wr, NULL, stag);
	list = calloc((size_t)wr->num_sge, sizeof(*list));
	if (!list)
		return -ENOMEM;
	memcpy(list, wr->sg_list, (size_t)wr->num_sge * sizeof(*list));
	err = send_body(qp, wr, list, stag);
	free(list);
	return err;
}

int foreign_advertise(struct ibv_qp *qp, const struct stagdv_advertise *wr, uint32_t *stag)
{
	bool invalidates;
	uint32_t made;
	int err = check_advertise(wr);

	if (!err)
		err = know(qp, &invalidates);
	if (!err)
		err = lend(qp, wr, &made);
	if (err) {
		log_info("qp %u of a real adapter: memory to advertise, reference %u: %s",
			 qp->qp_num, wr->reference, strerror(-err));
		return err;
	}
	*stag = made; /* set before the peer can close it */
	err = send_with_stag(qp, wr, made);
	if (err)
		foreign_withdraw(qp, made, NULL);
	return err;
}

int foreign_close(struct ibv_qp *qp, const struct stagdv_close *wr)
{
	struct ibv_send_wr *bad, send = {
					 .wr_id = wr->wr_id,
					 .sg_list = wr->sg_list,
					 .num_sge = wr->num_sge,
					 .opcode = IBV_WR_SEND,
					 .send_flags = wr->send_flags & FOR_VERB,
				 };
	bool invalidates;
	int err = know(qp, &invalidates);

	if (err)
		return err;
	if (invalidates) {
		send.opcode = IBV_WR_SEND_WITH_INV;
		send.invalidate_rkey = wr->stag;
		send.wr.rdma.rkey = wr->stag; /* libsiw reads it there; no other device does */
	}
	return -ibv_post_send(qp, &send, &bad);
}

int foreign_withdraw(struct ibv_qp *qp, uint32_t stag, uint32_t *reference)
{
	struct loan *l = take_loan(qp, stag);

	if (!l)
		return -ENOENT;
	if (reference)
		*reference = l->reference;
	end_loan(l);
	return 0;
}

int foreign_one_shot(struct ibv_qp *qp, uint8_t *which)
{
	bool invalidates;
	int err = know(qp, &invalidates);

	if (!err)
		*which = invalidates ? STAGDV_ONE_SHOT_REGION : STAGDV_ONE_SHOT_PLAIN;
	return err;
}

/* ---- the end of a queue pair ---- */

static struct foreign_qp *take_out(const struct ibv_qp *qp)
{
	HOLD_FOR_SCOPE(&lock);

	struct foreign_qp *f = find_qp(qp);

	if (f)
		list_del(&f->link);
	return f;
}

static void put_back(struct foreign_qp *f)
{
	HOLD_FOR_SCOPE(&lock);
	list_add_tail(bucket_of(f->qp), &f->link);
}

static void end_loans(struct foreign_qp *f)
{
	list_for_each_safe (it, &f->loans)
		end_loan(list_entry(it, struct loan, link));
	list_init(&f->loans);
	f->n_loans = 0;
}

/* Removed first: once it is destroyed, another thread's new one may have the same address. */
int foreign_destroy_qp(struct ibv_qp *qp)
{
	struct foreign_qp *f = take_out(qp);
	int rc = real()->destroy_qp(qp);

	if (f && rc) {
		put_back(f);
	} else if (f) {
		end_loans(f);
		free(f);
	}
	return rc;
}

int foreign_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int rc = real()->modify_qp(qp, attr, mask);
	bool over = !rc && (mask & IBV_QP_STATE) &&
		    (attr->qp_state == IBV_QPS_ERR || attr->qp_state == IBV_QPS_RESET);
	struct foreign_qp *f = over ? take_out(qp) : NULL;

	if (f) {
		end_loans(f);
		free(f); /* the next call creates another */
	}
	return rc;
}
