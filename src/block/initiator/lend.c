// SPDX-License-Identifier: BSD-2-Clause
/*
 * lend.c - memory that commands lend to the target: in regions that the caller lent to the unit, in regions registered for one
 * command, or in a copy.
 */
#include "block/initiator/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the caller's regions ---------------------------------------------------------------- */

/*
 * With one-shot STags only these grant remote access, while their command runs; otherwise the region's key does, all the
 * time.
 */
static int region_access(const struct initiator_verbs_line *v)
{
	return IBV_ACCESS_LOCAL_WRITE |
	       (v->dv ? 0 : IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
}

int initiator_lend_register(struct initiator_line *l, struct initiator_region *r)
{
	struct initiator_verbs_line *v = to_verbs_line(l);

	if (!v->id->pd)
		return 0; /* registered with all others when there is a connection */
	r->mr = ibv_reg_mr(v->id->pd, r->addr, r->length, region_access(v));
	if (!r->mr)
		return block_fail(errno, "cannot register %zu bytes: %s", r->length,
				  strerror(errno));
	l->b->info.counters.registrations++;
	return 0;
}

void initiator_lend_deregister(struct initiator_line *l, struct initiator_region *r)
{
	if (r->mr)
		ibv_dereg_mr(r->mr);
	r->mr = NULL;
}

int initiator_lend_register_all(struct initiator_verbs_line *v)
{
	int rc = 0;

	list_for_each (it, &v->line.b->regions)
		if (rc == 0)
			rc = initiator_lend_register(&v->line,
						     list_entry(it, struct initiator_region, link));
	return rc;
}

void initiator_lend_deregister_all(struct initiator_verbs_line *v)
{
	list_for_each (it, &v->line.b->regions)
		initiator_lend_deregister(&v->line, list_entry(it, struct initiator_region, link));
}

static struct ibv_mr *find_region(const struct initiator_verbs_line *v, const struct iovec *piece)
{
	const uint8_t *at = piece->iov_base;

	list_for_each (it, &v->line.b->regions) {
		const struct initiator_region *r = list_entry(it, struct initiator_region, link);

		if (at >= r->addr && (size_t)(at - r->addr) <= r->length &&
		    piece->iov_len <= r->length - (size_t)(at - r->addr))
			return r->mr;
	}
	return NULL;
}

/* ---- regions of a command ------------------------------------------------------------------ */

static struct ibv_mr *make_region(struct initiator_verbs_line *v, struct initiator_loan *l,
				  const struct initiator_cmd *c, void *addr, size_t len)
{
	int far = c->reads ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	int access = (c->reads ? IBV_ACCESS_LOCAL_WRITE : 0) | (v->dv ? 0 : far);
	struct ibv_mr *mr = ibv_reg_mr(v->id->pd, addr, len, access);

	if (!mr)
		return NULL;
	v->line.b->info.counters.registrations++;
	l->own[l->n_own++] = mr;
	return mr;
}

static struct ibv_sge piece_of(const struct iovec *piece, const struct ibv_mr *mr)
{
	return (struct ibv_sge){(uintptr_t)piece->iov_base, (uint32_t)piece->iov_len, mr->lkey};
}

static int lend_copy(struct initiator_verbs_line *v, struct initiator_cmd *c,
		     struct initiator_loan *l, struct ibv_sge *sge, struct initiator_lending *out)
{
	struct iovec all = {NULL, c->length};
	struct ibv_mr *mr;

	all.iov_base = l->copy = malloc(c->length);
	if (!l->copy)
		return ENOMEM;
	if (c->writes)
		initiator_cmd_gather(c, 0, c->length, l->copy);
	mr = make_region(v, l, c, l->copy, c->length);
	if (!mr)
		return errno;
	*sge = piece_of(&all, mr);
	*out = (struct initiator_lending){sge, 1, sge->addr, mr->rkey};
	return 0;
}

/* Returns how many parts of the data are in no region; more than VERBS_OWN_KEYS if the data has to be copied. */
static unsigned int count_unregistered(const struct initiator_verbs_line *v,
				       const struct initiator_cmd *c, int n, uint32_t covered)
{
	unsigned int strangers = 0;

	if (covered < c->length || (n > 1 && !v->dv))
		return VERBS_OWN_KEYS + 1;
	for (int i = 0; i < n; i++)
		strangers += !find_region(v, &v->iov[i]);
	return strangers;
}

int initiator_lend_command(struct initiator_verbs_line *v, struct initiator_cmd *c,
			   struct initiator_lending *out)
{
	struct ibv_sge *sge = v->sge[++v->turn % 2];
	struct initiator_loan *l = &v->loans[c->index];
	struct ibv_mr *mr = NULL;
	uint32_t covered;
	int n = initiator_cmd_slice(c, 0, c->length, v->iov, STAGDV_ADVERTISE_SGE, &covered);

	if (count_unregistered(v, c, n, covered) > VERBS_OWN_KEYS)
		return lend_copy(v, c, l, sge, out);
	for (int i = 0; i < n; i++) {
		mr = find_region(v, &v->iov[i]);
		if (!mr)
			mr = make_region(v, l, c, v->iov[i].iov_base, v->iov[i].iov_len);
		if (!mr)
			return errno;
		sge[i] = piece_of(&v->iov[i], mr);
	}
	*out = (struct initiator_lending){sge, n, sge->addr, mr->rkey};
	return 0;
}

void initiator_lend_copy_back(struct initiator_verbs_line *v, const struct initiator_cmd *c)
{
	const uint8_t *from = v->loans[c->index].copy;

	if (from)
		initiator_cmd_scatter(c, 0, c->got, from);
}

/* ---- closing ---------------------------------------------------------------------------------- */

void initiator_lend_opened(struct initiator_verbs_line *v, struct initiator_loan *l, uint32_t stag,
			   uint32_t reference)
{
	l->open = true;
	l->stag = stag;
	l->reference = reference;
	v->line.b->info.counters.stags++;
	v->line.b->info.counters.stags_open++;
}

void initiator_lend_closed(struct initiator_verbs_line *v, struct initiator_loan *l)
{
	l->open = false;
	v->line.b->info.counters.stags_open--;
}

void initiator_lend_end(struct initiator_verbs_line *v, struct initiator_loan *l)
{
	if (l->open && v->dv && v->id->qp)
		v->dv->withdraw(v->id->qp, l->stag, NULL);
	if (l->open)
		initiator_lend_closed(v, l);
	while (l->n_own)
		ibv_dereg_mr(l->own[--l->n_own]);
	free(l->copy);
	l->copy = NULL;
}
