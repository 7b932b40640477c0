// SPDX-License-Identifier: BSD-2-Clause
/*
 * rdma_rx.c - PDUs that arrive in sends: the memory that they lend, and their delivery.
 */
#include "block/target/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "stag/stagdv.h"

/* ---- receives ------------------------------------------------------------------------- */

/* Posts the receives in the list, and empties it. */
static int post_receives(struct target_rdma *r, struct list *list)
{
	struct ibv_recv_wr wr[RDMA_BATCH], *bad;
	struct ibv_sge sge[RDMA_BATCH][2];
	int rc = 0;

	while (rc == 0 && !list_empty(list)) {
		int n = 0;

		for (; n < RDMA_BATCH && !list_empty(list); n++) {
			struct target_receive *v =
				list_entry(list->next, struct target_receive, verb.link);

			list_del(&v->verb.link);
			sge[n][0] = (struct ibv_sge){(uintptr_t)v->bytes, v->size, v->lkey};
			sge[n][1] = (struct ibv_sge){(uintptr_t)v->more, v->more_size, v->lkey};
			wr[n] = (struct ibv_recv_wr){.wr_id = (uintptr_t)&v->verb,
						     .next = &wr[n + 1],
						     .sg_list = sge[n],
						     .num_sge = v->more_size ? 2 : 1};
		}
		wr[n - 1].next = NULL;
		target_conn_count_all(&r->conn, posts, n);
		rc = -ibv_post_recv(r->id->qp, wr, &bad);
	}
	return rc;
}

int target_rdma_post_login(struct target_rdma *r)
{
	list_add_tail(&r->taken, &r->login.verb.link);
	return post_receives(r, &r->taken);
}

/*
 * Nearly all PDUs fit the first part of a receive. The second part is virtual memory that costs nothing until it is
 * used: it may be 8 KiB for each receive if the peer agreed to no limit, which is much for a thousand sessions.
 */
static int make_window(struct target_rdma *r, uint32_t more)
{
	uint8_t *rest;

	r->window_bytes = NUM_RECEIVES * (size_t)(FIRST_BYTES + more);
	r->window = mmap(NULL, r->window_bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->window == MAP_FAILED) {
		r->window = NULL;
		return -errno;
	}
	r->window_mr = ibv_reg_mr(units_pd(r->conn.target->units), r->window, r->window_bytes,
				  IBV_ACCESS_LOCAL_WRITE);
	if (!r->window_mr)
		return -errno;
	target_conn_count(&r->conn, registrations);
	rest = r->window + NUM_RECEIVES * FIRST_BYTES;
	for (unsigned int i = 0; i < NUM_RECEIVES; i++) {
		r->receives[i] = (struct target_receive){.verb = {.kind = VERB_RECEIVE},
							 .bytes = r->window + i * FIRST_BYTES,
							 .size = FIRST_BYTES,
							 .more = rest + (size_t)i * more,
							 .more_size = more,
							 .lkey = r->window_mr->lkey};
		list_add_tail(&r->taken, &r->receives[i].verb.link);
	}
	return 0;
}

int target_rdma_post_window(struct target_rdma *r)
{
	const struct keys *keys = &r->conn.login->keys.agreed;
	uint32_t data = keys->target_recv < LOGIN_BYTES ? keys->target_recv : LOGIN_BYTES;
	uint32_t size = HEADERS + AHS_ROOM + data + 4;
	int rc = make_window(r, size > FIRST_BYTES ? size - FIRST_BYTES : 0);

	return rc == 0 ? post_receives(r, &r->taken) : rc;
}

void target_rdma_repost(struct target_rdma *r)
{
	if (r->conn.state == CONN_FULL && post_receives(r, &r->taken) != 0)
		target_conn_end(&r->conn);
}

/* ---- commands ---------------------------------------------------------------------------- */

/* Returns a text if a command does not lend the memory that it needs, or NULL. */
static const char *lending_fault(const struct arrival *a)
{
	const struct pdu *p = &a->pdu;

	if ((p->flags & CMD_READ) && p->expected && !a->lent.read)
		return "a read command lends no memory";
	if ((p->flags & CMD_WRITE) && p->expected && !a->lent.write)
		return "a write command lends no memory";
	return NULL;
}

/* Sets the task's STag and base. Without immediate data, byte 0 of the data is at the base. */
static void set_lent_memory(struct target_rdma *r, struct target_task *k, const struct arrival *a)
{
	bool reads = a->pdu.flags & CMD_READ;

	if (!(reads ? a->lent.read : a->lent.write))
		return;
	k->stag = reads ? a->lent.read_stag : a->lent.write_stag;
	k->base = reads ? a->lent.read_base : a->lent.write_base;
	target_stags_opened(k);
}

static void deliver_command(struct target_rdma *r, const struct arrival *a)
{
	struct target_task *k =
		target_session_admit(r->conn.session, &a->pdu, a->bhs, a->ahs, lending_fault(a));

	if (!k)
		return;
	set_lent_memory(r, k, a);
	target_session_command(k);
}

/* ---- PDUs ----------------------------------------------------------------------------------- */

static void deliver(struct target_rdma *r, const struct arrival *a)
{
	struct target_conn *c = &r->conn;
	bool full = c->state == CONN_FULL;

	c->heard = c->target->loop.now;
	if (full && (!a->decoded || !iscsi_pdu_from_initiator(a->pdu.opcode)))
		target_conn_reject_violation(c, REJECT_NOT_SUPPORTED, a->bhs);
	else if (full && a->pdu.opcode == DATA_OUT)
		target_conn_violation(c, "unsolicited Data-Out");
	else if (full && a->pdu.opcode == SCSI_COMMAND)
		deliver_command(r, a);
	else
		target_conn_received(c, &a->pdu, a->bhs, a->data);
}

/* Chooses iSER or one-shot at the first message: the adapters have agreed on an encoding by then. */
static void choose_protocol(struct target_rdma *r)
{
	struct stagdv_qp_attr attr;

	if (r->spoken)
		return;
	r->spoken = true;
	target_rdma_query(r, &attr);
	r->crc = attr.crc;
	if (!r->peer.one_shot || !r->conn.target->rdma.one_shot ||
	    attr.one_shot == STAGDV_ONE_SHOT_NONE)
		return;
	r->one_shot = true;
	r->conn.encoding = attr.one_shot;
	r->conn.ops = &target_rdma_one_shot;
}

/* Reads the memory lent by the adapter's header. It serves either direction. */
static void read_one_shot_lending(const struct ibv_wc *wc, struct iser *lent)
{
	*lent = (struct iser){0};
	lent->read = lent->write = wc->wc_flags & STAGDV_WC_ADVERTISED;
	lent->read_stag = lent->write_stag = wc->invalidated_rkey;
}

/* Returns the body in one piece. Few are longer than the first of a receive's two parts. */
static const uint8_t *body_of(struct target_rdma *r, const struct target_receive *v, uint32_t len)
{
	uint8_t *whole = r->conn.target->rdma.whole;

	if (len <= v->size)
		return v->bytes;
	memcpy(whole, v->bytes, v->size);
	memcpy(whole + v->size, v->more, len - v->size);
	return whole;
}

void target_rdma_received(struct target_rdma *r, struct target_receive *v, const struct ibv_wc *wc)
{
	struct target_conn *c = &r->conn;
	struct arrival a;
	const char *fault;

	choose_protocol(r);
	if (r->one_shot)
		read_one_shot_lending(wc, &a.lent);
	fault = iscsi_iser_parse(body_of(r, v, wc->byte_len), wc->byte_len, !r->one_shot, &a);
	if (fault && c->state != CONN_CLOSING)
		target_conn_violation(c, "%s", fault);
	else if (!fault && (c->state == CONN_LOGIN || c->state == CONN_FULL))
		deliver(r, &a);
	if (v != &r->login)
		list_add_tail(&r->taken, &v->verb.link);
}
