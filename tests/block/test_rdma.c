// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rdma.c - a target over verbs, and initiators made of work requests: iSER, one-shot, or neither.
 *
 * The target has a thread of its own, and a file; the adapter is in this process.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "await.h"
#include "base/bytes.h"
#include "block/scsi/scsi.h"
#include "block/iscsi/iscsi.h"
#include "stag/stagdv.h"

#define SIZE	  (4u << 20)
#define BODY	  16384u
#define DATA	  (4u << 20)
#define RECEIVES  16
#define REFERENCE 0x1234
#define TARGET	  "iqn.2026-01.x:t"

/* An initiator's side of a connection. */
struct guest {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	uint8_t *memory; /* for a send, RECEIVES receives, and data */
	uint8_t *data;
	bool one_shot;
	uint32_t cmd_sn, itt;
	struct ibv_wc wc; /* of the last receive */
	struct pdu in;
};

static struct stag_block_target *target;
static char path[] = "/dev/shm/stag-rdma-XXXXXX";

/* ---- the target --------------------------------------------------------------------- */

static int begin_with(uint32_t flags)
{
	const struct stag_block_target_attr attr = {
		.name = TARGET, .address = "127.0.0.1", .flags = STAG_BLOCK_ANY_PORT | flags};
	struct stag_block_lun lun = {.lun = 1, .where = path};
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0 && ftruncate(fd, SIZE) == 0);
	close(fd);
	target = stag_block_target_start(&attr);
	if (!target || stag_block_target_add(target, &lun) != 0)
		fail_msg("%s", stag_block_error());
	return 0;
}

/* Starts a target with RDMA and TCP at one port. */
static int set_up(void **state)
{
	return begin_with(0);
}

static int begin_without_tcp(void **state)
{
	return begin_with(STAG_BLOCK_NO_TCP);
}

static int begin_asleep(void **state)
{
	return begin_with(STAG_BLOCK_NO_SPIN);
}

static int tear_down(void **state)
{
	stag_block_target_stop(target);
	unlink(path);
	return 0;
}

/* ---- guests --------------------------------------------------------------------------- */

static void post_receive(struct guest *g, unsigned int i)
{
	assert_int_equal(rdma_post_recv(g->id, g->memory + (1 + i) * BODY,
					g->memory + (1 + i) * BODY, BODY, g->mr),
			 0);
}

static void connect_with(struct guest *g, const void *hello, uint8_t len)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(stag_block_target_port(target)),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC,
				      .cap = {.max_send_wr = 16,
					      .max_recv_wr = RECEIVES,
					      .max_send_sge = 1,
					      .max_recv_sge = 1}};
	struct rdma_conn_param param = {
		.private_data = hello, .private_data_len = len, .responder_resources = 4};
	size_t bytes = (1 + RECEIVES) * BODY + DATA;

	*g = (struct guest){.cmd_sn = 1};
	assert_int_equal(rdma_create_id(NULL, &g->id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(g->id, NULL, (struct sockaddr *)&to, 2000), 0);
	assert_int_equal(rdma_resolve_route(g->id, 2000), 0);
	assert_int_equal(rdma_create_qp(g->id, NULL, &qp), 0);
	g->memory = calloc(1, bytes);
	g->data = g->memory + (1 + RECEIVES) * BODY;
	g->mr = ibv_reg_mr(
		g->id->pd, g->memory, bytes,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(g->mr);
	for (unsigned int i = 0; i < RECEIVES; i++)
		post_receive(g, i);
	assert_int_equal(rdma_connect(g->id, &param), 0);
}

static void leave(struct guest *g)
{
	rdma_disconnect(g->id);
	rdma_destroy_qp(g->id);
	ibv_dereg_mr(g->mr);
	free(g->memory);
	rdma_destroy_id(g->id);
}

static void sent(struct guest *g)
{
	struct ibv_wc wc;

	assert_int_equal(rdma_get_send_comp(g->id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void send_bytes(struct guest *g, uint32_t len)
{
	assert_int_equal(rdma_post_send(g->id, NULL, g->memory, len, g->mr, IBV_SEND_SIGNALED), 0);
	sent(g);
}

/* Writes the iSER header, if there is one, and the PDU to the body. Returns the length. */
static uint32_t write_body(struct guest *g, const struct iser *lent, struct pdu *p,
			   const void *data, uint32_t len)
{
	uint32_t head = g->one_shot ? 0 : ISER_LEN;

	if (head)
		iscsi_iser_encode(lent, g->memory);
	p->data_len = len;
	iscsi_pdu_encode(p, g->memory + head);
	memset(g->memory + head + BHS_LEN, 0, len + iscsi_pdu_pad(len));
	if (len)
		memcpy(g->memory + head + BHS_LEN, data, len);
	return head + BHS_LEN + len + iscsi_pdu_pad(len);
}

static void send_pdu(struct guest *g, struct pdu *p, const void *data, uint32_t len)
{
	static const struct iser nothing;

	send_bytes(g, write_body(g, &nothing, p, data, len));
}

static void receive_pdu(struct guest *g)
{
	uint8_t *body;

	assert_int_equal(rdma_get_recv_comp(g->id, &g->wc), 1);
	assert_int_equal(g->wc.status, IBV_WC_SUCCESS);
	body = (uint8_t *)(uintptr_t)g->wc.wr_id;
	assert_int_equal(iscsi_pdu_decode(body + (g->one_shot ? 0 : ISER_LEN), &g->in), 0);
	post_receive(g, (unsigned int)((body - g->memory) / BODY - 1));
}

/* On roce0 the queue pair does not notice that its peer is gone: the connection manager does. */
static void must_be_ended(struct guest *g)
{
	struct rdma_cm_event *e;

	assert_int_equal(rdma_get_cm_event(g->id->channel, &e), 0);
	assert_int_equal(e->event, RDMA_CM_EVENT_DISCONNECTED);
	rdma_ack_cm_event(e);
	rdma_disconnect(g->id);
	assert_int_equal(rdma_get_recv_comp(g->id, &g->wc), 1);
	assert_int_not_equal(g->wc.status, IBV_WC_SUCCESS);
}

static void ask_to_log_in(struct guest *g, const char *keys, uint32_t len)
{
	struct pdu p = {.opcode = LOGIN_REQUEST,
			.immediate = true,
			.flags = LOGIN_TRANSIT | LOGIN_STAGES(STAGE_OPERATIONAL, STAGE_FULL),
			.isid = {0x80},
			.itt = 1,
			.cmd_sn = 1};

	send_pdu(g, &p, keys, len);
	receive_pdu(g);
	assert_int_equal(g->in.opcode, LOGIN_RESPONSE);
}

#define NAMES "InitiatorName=iqn.2026-01.x:i\0TargetName=" TARGET "\0SessionType=Normal\0"

static void log_in(struct guest *g)
{
	static const char keys[] = NAMES "RDMAExtensions=Yes\0TargetRecvDataSegmentLength=4096";

	ask_to_log_in(g, keys, sizeof(keys));
	assert_int_equal(g->in.status_class, 0);
}

static const uint8_t iser_hello[] = {0xc0, 0, 0, 0};
static const uint8_t one_shot_hello[] = {0x80, 0, 0, 0, 'S', 't', 'B', '1'};

static void come(struct guest *g, bool one_shot)
{
	connect_with(g, one_shot ? one_shot_hello : iser_hello,
		     one_shot ? sizeof(one_shot_hello) : sizeof(iser_hello));
	g->one_shot = one_shot;
	log_in(g);
}

/* ---- commands ------------------------------------------------------------------------------ */

static struct pdu make_command(struct guest *g, bool write, uint32_t block, uint16_t blocks)
{
	struct pdu p = {.opcode = SCSI_COMMAND,
			.flags = PDU_FINAL | (write ? CMD_WRITE : CMD_READ),
			.lun = 1ull << 48,
			.itt = ++g->itt + 100,
			.cmd_sn = g->cmd_sn++,
			.expected = blocks * 512u};

	p.cdb[0] = write ? 0x2a : 0x28;
	put_be32(p.cdb + 2, block);
	put_be16(p.cdb + 7, blocks);
	return p;
}

/* Sends a PDU that lends memory. stag_at: offset of the STag in the body, too, or -1. */
static void advertise_at(struct guest *g, const struct iser *lent, struct pdu *p, int32_t stag_at,
			 uint32_t *stag)
{
	struct ibv_sge body = {(uintptr_t)g->memory, write_body(g, lent, p, NULL, 0), g->mr->lkey};
	struct ibv_sge memory = {(uintptr_t)g->data, p->expected, g->mr->lkey};
	struct stagdv_advertise wr = {.sg_list = &body,
				      .num_sge = 1,
				      .send_flags = IBV_SEND_SIGNALED,
				      .memory = &memory,
				      .num_memory = 1,
				      .access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
				      .reference = REFERENCE,
				      .stag_at = stag_at};

	assert_int_equal(stagdv_post_send_advertise(g->id->qp, &wr, stag), 0);
	sent(g);
}

static void advertise(struct guest *g, struct pdu *p, uint32_t *stag)
{
	static const struct iser nothing;

	advertise_at(g, &nothing, p, -1, stag);
}

/* Executes a read or write with the memory for data. */
static void carry_out(struct guest *g, bool write, uint32_t block, uint16_t blocks)
{
	struct pdu p = make_command(g, write, block, blocks);
	struct iser lent = {.write = write,
			    .read = !write,
			    .write_stag = g->mr->rkey,
			    .read_stag = g->mr->rkey,
			    .write_base = (uintptr_t)g->data,
			    .read_base = (uintptr_t)g->data};
	uint32_t stag;

	if (g->one_shot)
		advertise(g, &p, &stag);
	else
		send_bytes(g, write_body(g, &lent, &p, NULL, 0));
	receive_pdu(g);
	assert_int_equal(g->in.opcode, SCSI_RESPONSE);
	assert_int_equal(g->in.itt, p.itt);
	if (!g->one_shot) {
		assert_false(g->wc.wc_flags & IBV_WC_WITH_INV);
		return;
	}
	assert_true(g->wc.wc_flags & STAGDV_WC_CLOSED);
	assert_int_equal(g->wc.invalidated_rkey, stag);
	assert_int_equal(g->wc.vendor_err, REFERENCE);
}

static void hear_attention(struct guest *g)
{
	carry_out(g, false, 0, 1);
	assert_int_equal(g->in.status, SCSI_CHECK_CONDITION);
}

static void fill(uint8_t *to, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] = (uint8_t)((seed + i) * 2654435761u >> 24);
}

static struct stag_block_session session_now(void)
{
	struct stag_block_session s = {0};

	assert_true(stag_block_target_next(target, &s));
	return s;
}

/* Moves more than one buffer in both directions, then one block. */
static void move_data(struct guest *g)
{
	const uint16_t lengths[] = {1, 8, 513, 1500};
	uint8_t *was = malloc(DATA);

	for (unsigned int i = 0; i < 4; i++) {
		uint32_t bytes = lengths[i] * 512u;

		fill(was, bytes, i);
		memcpy(g->data, was, bytes);
		carry_out(g, true, 3, lengths[i]);
		assert_int_equal(g->in.status, SCSI_GOOD);
		memset(g->data, 0, bytes);
		carry_out(g, false, 3, lengths[i]);
		assert_int_equal(g->in.status, SCSI_GOOD);
		assert_memory_equal(g->data, was, bytes);
	}
	free(was);
}

/* Returns the encoding that STAG_ONE_SHOT chooses. */
static uint32_t encoding(void)
{
	const char *word = getenv("STAG_ONE_SHOT");

	if (!word)
		return STAGDV_ONE_SHOT_OPCODES;
	return strcmp(word, "bits") == 0 ? STAGDV_ONE_SHOT_BITS : STAGDV_ONE_SHOT_LITERAL;
}

static void speaks(bool one_shot)
{
	struct stag_block_session s;
	struct guest g;

	come(&g, one_shot);
	hear_attention(&g);
	move_data(&g);
	s = session_now();
	assert_int_equal(s.transport, one_shot ? STAG_BLOCK_ONE_SHOT : STAG_BLOCK_ISER);
	assert_int_equal(s.encoding, one_shot ? encoding() : STAGDV_ONE_SHOT_NONE);
	assert_int_equal(s.counters.stags, 9);
	assert_int_equal(s.counters.stags_open, 0);
	assert_int_equal(s.counters.violations, 0);
	leave(&g);
}

static void data_moves_over_iser(void **state)
{
	speaks(false);
}

static void data_moves_in_one_shot(void **state)
{
	speaks(true);
}

static void data_moves_without_tcp(void **state)
{
	speaks(true);
}

static void data_moves_to_a_target_that_sleeps(void **state)
{
	speaks(true);
}

static void a_reply_is_written_to_lent_memory(void **state)
{
	struct guest g;

	come(&g, true);
	hear_attention(&g);
	for (int i = 0; i < 40; i++) { /* more than there are reply slots */
		struct pdu p = make_command(&g, false, 0, 0);
		uint32_t stag;

		p.expected = 36;
		memset(p.cdb, 0, sizeof(p.cdb));
		p.cdb[0] = 0x12;
		p.cdb[4] = 36;
		memset(g.data, 0xff, 64);
		advertise(&g, &p, &stag);
		receive_pdu(&g);
		assert_int_equal(g.in.status, SCSI_GOOD);
		assert_int_equal(g.data[0], 0);
		assert_int_equal(g.data[36], 0xff);
	}
	leave(&g);
}

/* RFC 7145 §6.3 */
static void a_login_without_the_extensions_is_refused(void **state)
{
	static const char keys[] = NAMES "RDMAExtensions=No";
	struct guest g;

	connect_with(&g, iser_hello, sizeof(iser_hello));
	ask_to_log_in(&g, NAMES, sizeof(NAMES) - 1);
	assert_int_equal(g.in.status_class << 8 | g.in.status_detail, LOGIN_MISSING_PARAMETER);
	leave(&g);
	connect_with(&g, iser_hello, sizeof(iser_hello));
	ask_to_log_in(&g, keys, sizeof(keys));
	assert_int_equal(g.in.status_class << 8 | g.in.status_detail, LOGIN_MISSING_PARAMETER);
	leave(&g);
}

static void ping(struct guest *g, uint32_t len)
{
	struct pdu p = {.opcode = NOP_OUT,
			.flags = PDU_FINAL,
			.itt = 77,
			.ttt = TAG_NONE,
			.cmd_sn = g->cmd_sn++};
	uint8_t words[8192], *body;

	fill(words, len, len);
	send_pdu(g, &p, words, len);
	receive_pdu(g);
	assert_int_equal(g->in.opcode, NOP_IN);
	assert_int_equal(g->in.data_len, len);
	body = (uint8_t *)(uintptr_t)g->wc.wr_id;
	assert_memory_equal(body + ISER_LEN + BHS_LEN, words, len);
}

/* PDUs may have the negotiated length, or the default of RFC 7145. */
static void long_pdus_are_received_whole(void **state)
{
	static const char keys[] = NAMES "RDMAExtensions=Yes";
	struct guest g;

	come(&g, false);
	ping(&g, 512);
	ping(&g, 436); /* ends at the last byte of a receive's first part */
	ping(&g, 437);
	leave(&g);
	connect_with(&g, iser_hello, sizeof(iser_hello));
	ask_to_log_in(&g, keys, sizeof(keys));
	assert_int_equal(g.in.status_class, 0);
	ping(&g, 8192);
	ping(&g, 1);
	leave(&g);
}

/* ---- many at once ---------------------------------------------------------------------------- */

#define SLOTS	   4
#define SLOT_BYTES (DATA / SLOTS)
#define ROUNDS	   24 /* per slot */

/* Writes a slot's part of the unit, or reads it back, in turns. */
static void start_slot(struct guest *g, unsigned int slot, unsigned int turn)
{
	const uint16_t lengths[] = {SLOT_BYTES / 512, 1, 8};
	uint16_t blocks = lengths[(turn / 2 + slot) % 3];
	bool write = turn % 2 == 0;
	struct pdu p = make_command(g, write, slot * (SLOT_BYTES / 512), blocks);
	uint8_t *data = g->data, *own = data + slot * SLOT_BYTES;
	uint32_t stag;

	p.itt = slot;
	if (write)
		fill(own, p.expected, turn + slot);
	else
		memset(own, 0, p.expected);
	g->data = own;
	advertise(g, &p, &stag);
	g->data = data;
}

static void check_slot(struct guest *g, unsigned int slot, unsigned int turn)
{
	static uint8_t want[SLOT_BYTES];
	const uint32_t lengths[] = {SLOT_BYTES, 512, 4096};
	uint32_t bytes = lengths[(turn / 2 + slot) % 3];

	fill(want, bytes, turn / 2 * 2 + slot);
	assert_memory_equal(g->data + slot * SLOT_BYTES, want, bytes);
}

/* A tag is used again right after its response. */
static void many_commands_at_once(void **state)
{
	unsigned int turn[SLOTS] = {0}, under_way = SLOTS;
	struct guest g;

	come(&g, true);
	hear_attention(&g);
	for (unsigned int i = 0; i < SLOTS; i++)
		start_slot(&g, i, 0);
	while (under_way) {
		uint32_t slot;

		receive_pdu(&g);
		slot = g.in.itt;
		assert_int_equal(g.in.opcode, SCSI_RESPONSE);
		assert_int_equal(g.in.status, SCSI_GOOD);
		assert_true(slot < SLOTS);
		check_slot(&g, slot, turn[slot]);
		if (++turn[slot] < ROUNDS)
			start_slot(&g, slot, turn[slot]);
		else
			under_way--;
	}
	assert_int_equal(session_now().counters.stags_open, 0);
	leave(&g);
}

/* Like Linux: iSER, and the response invalidates the STag. */
static void a_response_closes_the_stag_if_the_initiator_allows(void **state)
{
	static const uint8_t hello[] = {0x80, 0, 0, 0};
	const struct iser lent = {.read = true};
	struct guest g;
	struct pdu p;
	uint32_t stag;

	connect_with(&g, hello, sizeof(hello));
	log_in(&g);
	for (int i = 0; i < 4; i++) {
		p = make_command(&g, false, 0, 8);
		advertise_at(&g, &lent, &p, 16, &stag);
		receive_pdu(&g);
		assert_int_equal(g.in.status, i == 0 ? SCSI_CHECK_CONDITION : SCSI_GOOD);
		assert_true(g.wc.wc_flags & IBV_WC_WITH_INV);
		assert_int_equal(g.wc.invalidated_rkey, stag);
	}
	assert_int_equal(session_now().transport, STAG_BLOCK_ISER);
	leave(&g);
}

/* ---- invalid sends --------------------------------------------------------------------------- */

/* Checks that this connection has ended, and that others are served. */
static void expect_connection_ended(struct guest *g)
{
	struct stag_block_counters c;
	struct guest other;

	must_be_ended(g);
	leave(g);
	come(&other, true);
	hear_attention(&other);
	move_data(&other);
	leave(&other);
	assert_int_equal(stag_block_target_query(target, &c, sizeof(c)), 0);
	assert_int_equal(c.violations, 1);
	assert_int_equal(c.stags_open, 0);
}

static void too_short_a_send_ends_the_connection(void **state)
{
	struct guest g;

	connect_with(&g, iser_hello, sizeof(iser_hello));
	g.memory[0] = 0x10;
	send_bytes(&g, ISER_LEN + BHS_LEN - 1);
	expect_connection_ended(&g);
}

static void a_send_without_the_header_ends_the_connection(void **state)
{
	struct guest g;

	come(&g, false);
	memset(g.memory, 0, 128);
	send_bytes(&g, ISER_LEN + BHS_LEN);
	expect_connection_ended(&g);
}

static void a_pdu_longer_than_its_send_ends_the_connection(void **state)
{
	struct guest g;

	come(&g, false);
	memset(g.memory, 0, 128);
	g.memory[0] = 0x10;
	g.memory[ISER_LEN + 7] = 8; /* bytes of data that the send does not have */
	send_bytes(&g, ISER_LEN + BHS_LEN + 4);
	expect_connection_ended(&g);
}

static void a_read_that_lends_nothing_ends_the_connection(void **state)
{
	struct guest g;
	struct pdu p;

	come(&g, true);
	p = make_command(&g, false, 0, 8);
	send_pdu(&g, &p, NULL, 0);
	expect_connection_ended(&g);
}

static void unsolicited_data_ends_the_connection(void **state)
{
	struct pdu p = {.opcode = DATA_OUT, .flags = PDU_FINAL, .ttt = TAG_NONE};
	struct guest g;

	come(&g, false);
	send_pdu(&g, &p, "data", 4);
	expect_connection_ended(&g);
}

/* The STag is neither the initiator's nor the target's. */
static void an_invalid_stag_ends_the_connection(void **state)
{
	struct iser lent = {.read = true, .read_stag = 0xdead00, .read_base = 4096};
	struct stag_block_counters c;
	struct guest g, other;
	struct pdu p;

	come(&g, false);
	hear_attention(&g);
	p = make_command(&g, false, 0, 8);
	send_bytes(&g, write_body(&g, &lent, &p, NULL, 0));
	must_be_ended(&g);
	leave(&g);
	come(&other, false);
	hear_attention(&other);
	move_data(&other);
	leave(&other);
	assert_int_equal(stag_block_target_query(target, &c, sizeof(c)), 0);
	assert_int_equal(c.stags_open, 0);
}

/* ---- the ledger ------------------------------------------------------------------------------- */

static int ledger(struct stag_block_stag *list, size_t n)
{
	int all = stag_block_target_stags(target, list, n, sizeof(*list));

	assert_true(all >= 0);
	return all;
}

static void the_ledger_lists_owner_and_command(void **state)
{
	struct stag_block_stag life[4];
	struct stag_block_session s;
	struct guest g;

	come(&g, true);
	hear_attention(&g);
	carry_out(&g, true, 0, 8);
	assert_int_equal(ledger(life, 4), 2);
	s = session_now();
	assert_int_equal(life[1].session, s.id);
	assert_int_equal(life[1].stag, g.wc.invalidated_rkey);
	assert_int_equal(life[1].itt, g.in.itt);
	assert_int_equal(life[1].lun, 1);
	assert_int_equal(life[1].opcode, 0x2a);
	assert_int_equal(life[1].length, 4096);
	assert_int_equal(life[1].end, STAGDV_STAG_CLOSED);
	assert_true(life[0].made <= life[0].ended && life[0].ended <= life[1].made &&
		    life[1].made <= life[1].ended);
	assert_string_equal(life[1].initiator, "iqn.2026-01.x:i");
	assert_string_equal(life[1].address, s.address);
	assert_true(s.counters.posts >= 4 && s.counters.completions >= 4);
	leave(&g);
}

/* STags of a peer without invalidation, like libiscsi; of a lost connection; and a query that only counts. */
static void the_ledger_lists_how_stags_ended(void **state)
{
	struct stag_block_stag life[4];
	struct guest g;
	struct pdu p;
	uint32_t stag, tag;

	come(&g, false);
	hear_attention(&g);
	assert_int_equal(ledger(life, 4), 1);
	assert_int_equal(life[0].end, STAGDV_STAG_WITHDRAWN);
	leave(&g);

	come(&g, true);
	p = make_command(&g, true, 0, 1024);
	p.cmd_sn++; /* held for the command before it */
	advertise(&g, &p, &stag);
	await(ledger(life, 4) == 2);
	assert_int_equal(life[1].end, STAGDV_STAG_OPEN);
	assert_int_equal(life[1].ended, 0);
	assert_int_equal(session_now().counters.stags_open, 1);
	leave(&g);
	await(ledger(life, 4) == 2 && life[1].end != STAGDV_STAG_OPEN);
	assert_int_equal(life[1].end, STAGDV_STAG_ORPHANED);
	assert_int_equal(life[1].stag, stag);
	assert_string_equal(life[1].initiator, "iqn.2026-01.x:i");
	assert_int_equal(stag_block_target_stags(target, (void *)&tag, 1, sizeof(tag)), 2);
	assert_int_equal(tag, life[0].stag);
}

/* Initiators disconnect with commands in flight. */
static void initiators_may_disconnect_at_any_time(void **state)
{
	struct stag_block_counters c;
	struct guest g;

	for (int i = 0; i < 20; i++) {
		uint32_t stag;

		come(&g, true);
		hear_attention(&g);
		for (int k = 0; k < 4; k++) {
			struct pdu p = make_command(&g, k & 1, 0, 1024);

			advertise(&g, &p, &stag);
		}
		leave(&g);
	}
	come(&g, true);
	hear_attention(&g);
	move_data(&g);
	leave(&g);
	assert_int_equal(stag_block_target_query(target, &c, sizeof(c)), 0);
	assert_int_equal(c.stags_open, 0);
}

/* An initiator that does not log out on request is dropped; its receives are flushed. */
static void a_target_stops_with_sessions(void **state)
{
	struct guest g;

	come(&g, true);
	hear_attention(&g);
	stag_block_target_stop(target);
	receive_pdu(&g);
	assert_int_equal(g.in.opcode, ASYNC_MESSAGE);
	must_be_ended(&g);
	leave(&g);
	unlink(path);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest stories[] = {
		STORY(data_moves_over_iser),
		STORY(data_moves_in_one_shot),
		cmocka_unit_test_setup_teardown(data_moves_without_tcp, begin_without_tcp,
						tear_down),
		cmocka_unit_test_setup_teardown(data_moves_to_a_target_that_sleeps, begin_asleep,
						tear_down),
		STORY(a_reply_is_written_to_lent_memory),
		STORY(a_login_without_the_extensions_is_refused),
		STORY(long_pdus_are_received_whole),
		STORY(many_commands_at_once),
		STORY(a_response_closes_the_stag_if_the_initiator_allows),
		STORY(too_short_a_send_ends_the_connection),
		STORY(a_send_without_the_header_ends_the_connection),
		STORY(a_pdu_longer_than_its_send_ends_the_connection),
		STORY(a_read_that_lends_nothing_ends_the_connection),
		STORY(unsolicited_data_ends_the_connection),
		STORY(an_invalid_stag_ends_the_connection),
		STORY(the_ledger_lists_owner_and_command),
		STORY(the_ledger_lists_how_stags_ended),
		STORY(initiators_may_disconnect_at_any_time),
		cmocka_unit_test_setup(a_target_stops_with_sessions, set_up),
	};

	return cmocka_run_group_tests(stories, NULL, NULL);
}
