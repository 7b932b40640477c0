// SPDX-License-Identifier: BSD-2-Clause
/*
 * lend.c - one-shot sends between an adapter of any kind and the software adapter.
 *
 *	lend serve ADDRESS PORT     one connection
 *	lend visit ADDRESS PORT
 *
 * The visitor advertises memory with a command: the server reads it, writes the complement of each
 * byte back, and closes. Then the server advertises, and the visitor does the same. At the end the
 * server answers without a close, and reads memory that the visitor has withdrawn, which must fail.
 * Both sides use the calls of <stag/stagdv.h>, whatever the device is.
 */
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "stag/stagdv.h"

#define SIZE   50000u
#define ROUNDS 20 /* commands with a close; the one after them has none */

struct command {
	uint32_t stag; /* in network order, like the rest */
	uint32_t reference;
	uint64_t address;
};

struct memory {
	uint8_t lent[SIZE], taken[SIZE];
	struct command command, received[2]; /* an answer, and a command right after it */
};

struct side {
	struct rdma_cm_id *id, *listener;
	struct ibv_mr *mr;
	struct memory *m;
	uint8_t way; /* enum stagdv_one_shot */
	bool over;   /* the peer has disconnected */
};

static bool complain(const char *what, int err)
{
	printf("%s: %s\n", what, strerror(err));
	return false;
}

static struct ibv_sge piece(const struct side *s, void *at, uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)at, len, s->mr->lkey};
}

/* ---- connecting ---- */

static bool make_endpoint(struct side *s, char **where, bool serves)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
				      .ai_flags = serves ? RAI_PASSIVE : 0};
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_addrinfo *list;
	int rc;

	if (rdma_getaddrinfo(where[0], where[1], &hints, &list) != 0)
		return complain("rdma_getaddrinfo", errno);
	rc = rdma_create_ep(serves ? &s->listener : &s->id, list, NULL, &qp);
	rdma_freeaddrinfo(list);
	if (rc != 0)
		return complain("rdma_create_ep", errno);
	if (serves &&
	    (rdma_listen(s->listener, 1) != 0 || rdma_get_request(s->listener, &s->id) != 0))
		return complain("rdma_listen", errno);
	return true;
}

static bool post_receive(struct side *s, struct command *at)
{
	return rdma_post_recv(s->id, at, at, sizeof(*at), s->mr) == 0 ||
	       complain("rdma_post_recv", errno);
}

static bool meet(struct side *s, char **where, bool serves)
{
	struct rdma_conn_param param = {
		.initiator_depth = 4, .responder_resources = 4, .retry_count = 7};
	struct stagdv_qp_attr attr;
	int err;

	if (!make_endpoint(s, where, serves))
		return false;
	s->m = calloc(1, sizeof(*s->m));
	s->mr = s->m ? rdma_reg_msgs(s->id, s->m, sizeof(*s->m)) : NULL;
	if (!s->mr)
		return complain("memory", errno);
	if (!post_receive(s, &s->m->received[0]) || !post_receive(s, &s->m->received[1]))
		return false;
	if ((serves ? rdma_accept : rdma_connect)(s->id, &param) != 0)
		return complain("connection", errno);
	err = stagdv_query_qp(s->id->qp, &attr, sizeof(attr));
	if (err)
		return complain("stagdv_query_qp", err);
	s->way = attr.one_shot;
	printf("%s, way %u\n", ibv_get_device_name(s->id->verbs->device), s->way);
	return true;
}

static void part(struct side *s)
{
	if (s->id && !s->over)
		rdma_disconnect(s->id);
	if (s->mr)
		rdma_dereg_mr(s->mr);
	if (s->id)
		rdma_destroy_ep(s->id);
	if (s->listener)
		rdma_destroy_ep(s->listener);
	free(s->m);
}

/* ---- completions ---- */

static bool sent(struct side *s, const char *what)
{
	struct ibv_wc wc;

	if (rdma_get_send_comp(s->id, &wc) != 1)
		return complain(what, errno);
	if (wc.status != IBV_WC_SUCCESS)
		printf("%s: %s\n", what, ibv_wc_status_str(wc.status));
	return wc.status == IBV_WC_SUCCESS;
}

/* Stores the completion in *c, unless that is NULL. */
static bool received(struct side *s, struct ibv_wc *wc, struct command *c)
{
	struct command *at;

	if (rdma_get_recv_comp(s->id, wc) != 1)
		return complain("rdma_get_recv_comp", errno);
	if (wc->status != IBV_WC_SUCCESS)
		printf("receive: %s\n", ibv_wc_status_str(wc->status));
	at = (void *)(uintptr_t)wc->wr_id;
	if (c)
		*c = *at;
	return wc->status == IBV_WC_SUCCESS && post_receive(s, at);
}

/* ---- the side that advertises ---- */

static uint8_t byte_of(uint32_t round, uint32_t i)
{
	return (uint8_t)(round * 7 + i * 13 + (i >> 8));
}

static uint32_t reference_of(uint32_t round)
{
	return 1000 + round;
}

static bool advertise(struct side *s, uint32_t reference, uint32_t *stag)
{
	struct memory *m = s->m;
	struct ibv_sge body = piece(s, &m->command, sizeof(m->command)),
		       memory[] = {piece(s, m->lent, 1000), piece(s, m->lent + 1000, SIZE - 1000)};
	struct stagdv_advertise wr = {
		.sg_list = &body,
		.num_sge = 1,
		.memory = memory,
		.num_memory = 2,
		.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
		.iova = (uintptr_t)m->lent,
		.reference = reference,
		.stag_at = offsetof(struct command, stag),
	};
	int err;

	m->command = (struct command){0, htobe32(reference), htobe64((uintptr_t)m->lent)};
	err = stagdv_post_send_advertise(s->id->qp, &wr, stag);
	return err ? complain("stagdv_post_send_advertise", err) : sent(s, "the command");
}

/*
 * Withdraws the STag if the completion does not report that it was closed, as any caller must. A
 * real adapter never reports it.
 */
static bool is_back(struct side *s, const struct ibv_wc *wc, uint32_t stag, uint32_t round)
{
	bool closed = wc->wc_flags & STAGDV_WC_CLOSED, real = s->way >= STAGDV_ONE_SHOT_REGION;
	uint32_t got = closed ? wc->vendor_err : 0;
	int err = closed ? 0 : stagdv_withdraw(s->id->qp, stag, &got);

	if (err)
		return complain("stagdv_withdraw", err);
	if (closed != (!real && round < ROUNDS))
		printf("round %u: closed, it says: %d\n", round, closed);
	else if (got != reference_of(round))
		printf("reference %u, not %u\n", got, reference_of(round));
	else if (stagdv_withdraw(s->id->qp, stag, &got) != ENOENT)
		printf("it is there after its end\n");
	else
		return true;
	return false;
}

static bool lend(struct side *s, uint32_t round)
{
	uint32_t stag;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < SIZE; i++)
		s->m->lent[i] = byte_of(round, i);
	if (!advertise(s, reference_of(round), &stag) || !received(s, &wc, NULL) ||
	    !is_back(s, &wc, stag, round))
		return false;
	for (uint32_t i = 0; i < SIZE; i++)
		if ((s->m->lent[i] ^ byte_of(round, i)) != 0xff) {
			printf("round %u: byte %u is another\n", round, i);
			return false;
		}
	return true;
}

/* ---- the side that uses it ---- */

static bool read_it(struct side *s, uint32_t stag, uint64_t address)
{
	return rdma_post_read(s->id, NULL, s->m->taken, SIZE, s->mr, 0, address, stag) == 0 &&
	       sent(s, "read");
}

static bool close_it(struct side *s, uint32_t stag)
{
	struct ibv_sge body = piece(s, &s->m->command, sizeof(s->m->command));
	struct stagdv_close wr = {.sg_list = &body, .num_sge = 1, .stag = stag};
	int err = stagdv_post_send_close(s->id->qp, &wr);

	return err ? complain("stagdv_post_send_close", err) : sent(s, "the answer");
}

/* Sends a message without data. */
static bool send_word(struct side *s)
{
	struct command *at = &s->m->command;

	return rdma_post_send(s->id, NULL, at, sizeof(*at), s->mr, 0) == 0 && sent(s, "a word");
}

static bool use(struct side *s, uint32_t round, struct command *c)
{
	uint8_t *at = s->m->taken;
	struct ibv_wc wc;

	if (!received(s, &wc, c))
		return false;
	c->stag = be32toh(c->stag);
	c->address = be64toh(c->address);
	if (!read_it(s, c->stag, c->address))
		return false;
	for (uint32_t i = 0; i < SIZE; i++) {
		if (at[i] != byte_of(round, i)) {
			printf("round %u: byte %u that was read is another\n", round, i);
			return false;
		}
		at[i] ^= 0xff;
	}
	return rdma_post_write(s->id, NULL, at, SIZE, s->mr, 0, c->address, c->stag) == 0 &&
	       sent(s, "write") && (round < ROUNDS ? close_it(s, c->stag) : send_word(s));
}

/* ---- ---- */

static bool serve(struct side *s)
{
	struct command c;
	struct ibv_wc wc;

	for (uint32_t round = 0; round < ROUNDS; round++)
		if (!use(s, round, &c) || !lend(s, round))
			return false;
	/* The last message of the visitor: it has withdrawn the STag. */
	if (!use(s, ROUNDS, &c) || !received(s, &wc, NULL))
		return false;
	if (read_it(s, c.stag, c.address)) {
		printf("what was taken back can be read\n");
		return false;
	}
	return true;
}

/* The read ends the connection; siw does not flush the receives. */
static bool is_over(struct side *s)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(s->id->channel, &event) != 0)
		return complain("rdma_get_cm_event", errno);
	s->over = event->event == RDMA_CM_EVENT_DISCONNECTED;
	rdma_ack_cm_event(event);
	return s->over;
}

static bool visit(struct side *s)
{
	struct command c;

	for (uint32_t round = 0; round < ROUNDS; round++)
		if (!lend(s, round) || !use(s, round, &c))
			return false;
	return lend(s, ROUNDS) && send_word(s) && is_over(s);
}

int main(int argc, char **argv)
{
	struct side s = {0};
	bool serves, well;

	if (argc != 4) {
		fprintf(stderr, "usage: lend serve|visit ADDRESS PORT\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	serves = strcmp(argv[1], "serve") == 0;
	well = meet(&s, argv + 2, serves) && (serves ? serve : visit)(&s);
	printf("%s\n", well ? "all is well" : "failed");
	part(&s);
	return well ? 0 : 1;
}
