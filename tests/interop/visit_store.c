// SPDX-License-Identifier: BSD-2-Clause
/*
 * visit_store.c - a peer of a store's server that uses only verbs.
 *
 *	visit_store write ADDRESS PORT PARTITION SEED     fill it, and read each piece
 *	visit_store read ADDRESS PORT PARTITION SEED      check that it is filled so
 *	visit_store refused ADDRESS PORT PARTITION REASON
 *	visit_store trespass ADDRESS PORT PARTITION HOW   HOW: beyond, key, write
 *	visit_store print SIZE SEED                       the contents that write makes; needs no device
 *
 * PARTITION: the SHA-256 of its name, in hexadecimal. Plain rdma_cm and verbs, for any device; of stag it takes the layout of two structures
 * (stag_store_serve(3)). A partition is filled in pieces of any size, so that few begin or end at a
 * block; every other one first, so that neighbours meet within a block.
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

#include "dice.h"
#include "stag/store.h"

#define PIECE  70000u /* the largest */
#define REASON 9      /* offset of the reason in the private data of a refusal */

struct visit {
	struct rdma_cm_id *id;
	struct ibv_mr *mr; /* of at, two pieces */
	uint8_t *at;
	bool inside;
	uint32_t rkey;
	uint64_t base, size;
};

static int complain(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	return -1;
}

/* ---- connecting ---- */

static int come_near(struct visit *v, char **where)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *list;
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	int rc;

	if (rdma_getaddrinfo(where[0], where[1], &hints, &list) != 0)
		return complain("rdma_getaddrinfo");
	rc = rdma_create_ep(&v->id, list, NULL, &qp);
	rdma_freeaddrinfo(list);
	return rc == 0 ? 0 : complain("rdma_create_ep");
}

static int knock(struct visit *v, const char *partition)
{
	struct stag_store_hello hello = {.version = 2};
	struct rdma_conn_param param = {.private_data = &hello,
					.private_data_len = sizeof(hello),
					.initiator_depth = 4,
					.responder_resources = 1,
					.retry_count = 7};

	memcpy(hello.magic, "stagstor", sizeof(hello.magic));
	for (size_t i = 0; i < sizeof(hello.partition); i++)
		if (sscanf(partition + 2 * i, "%2hhx", &hello.partition[i]) != 1)
			return -1;
	return rdma_connect(v->id, &param);
}

static int listen_to_answer(struct visit *v)
{
	const struct rdma_conn_param *param = &v->id->event->param.conn;
	struct stag_store_welcome w;

	if (param->private_data_len < sizeof(w)) {
		printf("a welcome of %u bytes\n", param->private_data_len);
		return -1;
	}
	memcpy(&w, param->private_data, sizeof(w));
	if (memcmp(w.magic, "stagstor", sizeof(w.magic)) != 0 || w.version != 2) {
		printf("that is no welcome\n");
		return -1;
	}
	v->rkey = be32toh(w.rkey);
	v->base = be64toh(w.base);
	v->size = be64toh(w.size);
	return 0;
}

static int come(struct visit *v, char **where)
{
	if (come_near(v, where) != 0)
		return -1;
	v->at = malloc(2 * (size_t)PIECE);
	v->mr = v->at ? rdma_reg_msgs(v->id, v->at, 2 * (size_t)PIECE) : NULL;
	if (!v->mr)
		return complain("memory");
	if (knock(v, where[2]) != 0)
		return complain("rdma_connect");
	v->inside = true;
	return listen_to_answer(v);
}

static void leave(struct visit *v)
{
	if (v->inside)
		rdma_disconnect(v->id);
	if (v->mr)
		rdma_dereg_mr(v->mr);
	if (v->id)
		rdma_destroy_ep(v->id);
	free(v->at);
}

/* ---- reading and writing ---- */

static uint8_t *picture_of(uint64_t size, const char *seed)
{
	uint8_t *picture = malloc(size);

	dice_start_with(strtoull(seed, NULL, 0));
	if (picture)
		dice_fill(picture, size);
	return picture;
}

/* Returns the status of the next completion. */
static int await(struct visit *v)
{
	struct ibv_wc wc;

	if (rdma_get_send_comp(v->id, &wc) != 1) {
		complain("rdma_get_send_comp");
		return IBV_WC_GENERAL_ERR;
	}
	return wc.status;
}

static bool is_well(struct visit *v, const char *what, uint64_t offset, uint32_t len)
{
	int status = await(v);

	if (status != IBV_WC_SUCCESS)
		printf("%s of %u bytes at %llu: %s\n", what, len, (unsigned long long)offset,
		       ibv_wc_status_str(status));
	return status == IBV_WC_SUCCESS;
}

static bool look(struct visit *v, const uint8_t *picture, uint64_t offset, uint32_t len)
{
	uint8_t *at = v->at + PIECE;

	memset(at, 0, len);
	if (rdma_post_read(v->id, NULL, at, len, v->mr, 0, v->base + offset, v->rkey) != 0)
		return complain("rdma_post_read") == 0;
	if (!is_well(v, "read", offset, len))
		return false;
	if (memcmp(at, picture + offset, len) == 0)
		return true;
	printf("%u bytes at %llu are others\n", len, (unsigned long long)offset);
	return false;
}

/* The read after the write confirms that it was placed. */
static bool paint(struct visit *v, const uint8_t *picture, uint64_t offset, uint32_t len)
{
	memcpy(v->at, picture + offset, len);
	if (rdma_post_write(v->id, NULL, v->at, len, v->mr, 0, v->base + offset, v->rkey) != 0)
		return complain("rdma_post_write") == 0;
	return is_well(v, "write", offset, len) && look(v, picture, offset, len);
}

/* Handles every other piece, from the first or the second on; the seed determines the pieces. */
static bool go_over(struct visit *v, const uint8_t *picture, const char *seed, bool writes,
		    unsigned first, unsigned *pieces)
{
	uint64_t offset = 0;
	bool well = true;

	dice_start_with(strtoull(seed, NULL, 0) + 1);
	for (unsigned i = 0; well && offset < v->size; i++) {
		uint64_t left = v->size - offset,
			 len = one_in(2) ? dice_size(PIECE) : dice(PIECE) + 1;

		len = len < left ? len : left;
		if (i % 2 == first) {
			well = (writes ? paint : look)(v, picture, offset, (uint32_t)len);
			++*pieces;
		}
		offset += len;
	}
	return well;
}

static int go_over_all(struct visit *v, const char *seed, bool writes)
{
	uint8_t *picture = picture_of(v->size, seed);
	unsigned pieces = 0;
	bool well = picture && go_over(v, picture, seed, writes, 0, &pieces) &&
		    go_over(v, picture, seed, writes, 1, &pieces);

	printf("%llu bytes in %u pieces\n", (unsigned long long)v->size, pieces);
	free(picture);
	return well ? 0 : 1;
}

/* ---- denied access ---- */

/* A write completes when it has been sent: the read after it shows the outcome. */
static int trespass(struct visit *v, const char *how)
{
	uint64_t at = v->base + (strcmp(how, "beyond") == 0 ? v->size - 1 : 0);
	uint32_t key = v->rkey ^ (strcmp(how, "key") == 0 ? 0x5500 : 0);
	int status = IBV_WC_SUCCESS;

	if (strcmp(how, "write") == 0) {
		if (rdma_post_write(v->id, NULL, v->at, 2, v->mr, 0, at, key) != 0)
			return complain("rdma_post_write");
		status = await(v);
	}
	if (status == IBV_WC_SUCCESS) {
		if (rdma_post_read(v->id, NULL, v->at, 2, v->mr, 0, at, key) != 0)
			return complain("rdma_post_read");
		status = await(v);
	}
	printf("%s: status %d, %s\n", how, status, ibv_wc_status_str(status));
	return status == IBV_WC_SUCCESS;
}

static int expect_refusal(struct visit *v, char **where, const char *reason)
{
	const struct rdma_conn_param *param;
	const uint8_t *said;

	if (come_near(v, where) != 0)
		return 1;
	if (knock(v, where[2]) == 0) {
		printf("we were let in\n");
		return 1;
	}
	if (!v->id->event || v->id->event->event != RDMA_CM_EVENT_REJECTED)
		return complain("rdma_connect");
	param = &v->id->event->param.conn;
	said = param->private_data;
	printf("refused, reason %d\n", param->private_data_len > REASON ? said[REASON] : -1);
	return param->private_data_len <= REASON || said[REASON] != atoi(reason);
}

/* ---- ---- */

static int print_picture(const char *size, const char *seed)
{
	size_t n = strtoull(size, NULL, 0);
	uint8_t *picture = picture_of(n, seed);
	bool well = picture && fwrite(picture, 1, n, stdout) == n && fflush(stdout) == 0;

	free(picture);
	return well ? 0 : 1;
}

static int visit(struct visit *v, char **argv)
{
	if (strcmp(argv[1], "refused") == 0)
		return expect_refusal(v, argv + 2, argv[5]);
	if (come(v, argv + 2) != 0)
		return 1;
	if (strcmp(argv[1], "trespass") == 0)
		return trespass(v, argv[5]);
	return go_over_all(v, argv[5], strcmp(argv[1], "write") == 0);
}

int main(int argc, char **argv)
{
	struct visit v = {0};
	int rc;

	if (argc == 4 && strcmp(argv[1], "print") == 0)
		return print_picture(argv[2], argv[3]);
	if (argc != 6) {
		fprintf(stderr, "usage: visit_store write|read|refused|trespass ADDRESS PORT "
				"PARTITION WORD\n       visit_store print SIZE SEED\n");
		return 2;
	}
	rc = visit(&v, argv);
	leave(&v);
	return rc == 0 ? 0 : 1;
}
