// SPDX-License-Identifier: BSD-2-Clause
/*
 * peer.c - see peer.h.
 */
#include "peer.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/crc32c.h"

#define PATIENCE 60000 /* limit of waiting, in steps of a millisecond */

static const char names[] = "InitiatorName=iqn.2026-01.x:i\0TargetName=iqn.2026-01.x:t";

/* ---- the target ------------------------------------------------------------------------ */

struct stag_block_target *make_target(const struct stag_block_target_attr *attr)
{
	struct stag_block_target_attr plain = {.name = "iqn.2026-01.x:t"};
	struct stag_block_lun unit = {.lun = 1, .where = "memory"};
	struct stag_block_target *t;
	struct lun *l;

	if (attr)
		plain = *attr;
	plain.address = "127.0.0.1";
	plain.flags = STAG_BLOCK_ANY_PORT | STAG_BLOCK_NO_RDMA;
	assert_int_equal(target_create(&plain, &t), 0);
	assert_int_equal(lun_open(t->units, &unit, &l), 0);
	assert_int_equal(scsi_target_add(t->scsi, 1, l), 0);
	return t;
}

void end_target(struct stag_block_target *t)
{
	target_portal_close(t); /* nobody comes in while it ends */
	list_for_each_safe (it, &t->conns.list)
		target_conn_end(list_entry(it, struct target_conn, link));
	for (int i = 0; i < PATIENCE && !list_empty(&t->sessions.list); i++)
		target_step(t, 0);
	target_step(t, 0);
	assert_true(list_empty(&t->sessions.list) && list_empty(&t->buffers.waiters) &&
		    list_empty(&t->tasks.tmfs));
	target_destroy(t);
}

/* Lets the target make progress: stepped here, or by its own thread. */
static void step_target(struct peer *p, short events)
{
	struct pollfd fd = {.fd = p->fd, .events = events};

	if (p->target)
		target_step(p->target, 1);
	else
		poll(&fd, 1, 1);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

void peer_connect(struct peer *p, struct stag_block_target *t)
{
	peer_connect_to(p, t->portal.port);
	p->target = t;
}

void peer_connect_to(struct peer *p, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(port),
				.sin_addr = {htonl(INADDR_LOOPBACK)}};
	int on = 1;

	*p = (struct peer){.cmd_sn = 1, .next_itt = 100, .isid = {0x80, 0, 0, 0, 0, 1}};
	p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	assert_int_equal(connect(p->fd, (struct sockaddr *)&a, sizeof(a)), 0);
}

void peer_close(struct peer *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

void peer_say_bytes(struct peer *p, const void *bytes, size_t len)
{
	for (int i = 0; len && i < PATIENCE; i++) {
		ssize_t n = send(p->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			bytes = (const uint8_t *)bytes + n;
			len -= (size_t)n;
			continue;
		}
		if (errno == EPIPE || errno == ECONNRESET)
			return; /* the next receive shows the end */
		assert_int_equal(errno, EAGAIN);
		step_target(p, POLLOUT);
	}
}

void peer_say(struct peer *p, struct pdu *out, const void *data, uint32_t len)
{
	static uint8_t bytes[BHS_LEN + 2 * DIGEST_LEN + PEER_DATA + 4];
	uint32_t at = BHS_LEN, pad = iscsi_pdu_pad(len);

	assert_true(len <= PEER_DATA);
	out->data_len = len;
	out->exp_stat_sn = p->exp_stat_sn;
	iscsi_pdu_encode(out, bytes);
	if (p->header_digest) {
		crc32c_put(bytes + at, crc32c_update(CRC32C_INIT, bytes, at));
		bytes[at] ^= p->spoil_header;
		at += DIGEST_LEN;
	}
	if (len)
		memcpy(bytes + at, data, len);
	memset(bytes + at + len, 0, pad);
	at += len + pad;
	if (p->data_digest && len) {
		crc32c_put(bytes + at,
			   crc32c_update(CRC32C_INIT, bytes + at - len - pad, len + pad));
		bytes[at] ^= p->spoil_data;
		at += DIGEST_LEN;
	}
	peer_say_bytes(p, bytes, at);
}

/* Receives len bytes. Returns false if the target closed before the first one. */
static bool receive_bytes(struct peer *p, void *to, size_t len)
{
	size_t have = 0;

	for (int i = 0; have < len && i < PATIENCE; i++) {
		ssize_t n = recv(p->fd, (uint8_t *)to + have, len - have, MSG_DONTWAIT);

		if (n > 0)
			have += (size_t)n;
		else if (n == 0 || errno == ECONNRESET)
			break;
		else
			step_target(p, POLLIN);
	}
	if (have == 0 && len)
		return false;
	assert_int_equal(have, len);
	return true;
}

bool peer_hear(struct peer *p)
{
	uint8_t bhs[BHS_LEN], digest[DIGEST_LEN], pad[4];
	uint32_t len;

	if (!receive_bytes(p, bhs, sizeof(bhs)))
		return false;
	assert_int_equal(iscsi_pdu_decode(bhs, &p->in), 0);
	assert_false(iscsi_pdu_from_initiator(p->in.opcode));
	if (p->header_digest) {
		assert_true(receive_bytes(p, digest, sizeof(digest)));
		assert_true(crc32c_matches(digest, crc32c_update(CRC32C_INIT, bhs, sizeof(bhs))));
	}
	len = p->in.data_len;
	assert_true(len <= PEER_DATA);
	receive_bytes(p, p->data, len);
	receive_bytes(p, pad, iscsi_pdu_pad(len));
	if (p->data_digest && len) {
		uint32_t crc = crc32c_update(CRC32C_INIT, p->data, len);

		assert_true(receive_bytes(p, digest, sizeof(digest)));
		assert_true(crc32c_matches(digest, crc32c_update(crc, pad, iscsi_pdu_pad(len))));
	}
	if (p->in.opcode != R2T && !(p->in.opcode == DATA_IN && !(p->in.flags & DATA_STATUS)) &&
	    !(p->in.opcode == NOP_IN && p->in.itt == TAG_NONE))
		p->exp_stat_sn = p->in.stat_sn + 1;
	return true;
}

void peer_hear_a(struct peer *p, uint8_t opcode)
{
	assert_true(peer_hear(p));
	if (p->in.opcode != opcode)
		fail_msg("%s where %s should be", iscsi_pdu_name(p->in.opcode),
			 iscsi_pdu_name(opcode));
}

bool peer_hears_nothing(struct peer *p)
{
	struct pollfd fd = {.fd = p->fd, .events = POLLIN};

	for (int i = 0; i < 50; i++)
		target_step(p->target, 0);
	return poll(&fd, 1, 0) == 0;
}

void peer_must_be_closed(struct peer *p)
{
	while (peer_hear(p))
		assert_int_equal(p->in.opcode, REJECT);
}

/* ---- sessions ------------------------------------------------------------------------------------ */

void peer_login_with(struct peer *p, const char *keys, size_t len)
{
	struct pdu out = {.opcode = LOGIN_REQUEST,
			  .immediate = true,
			  .flags = LOGIN_TRANSIT | LOGIN_STAGES(STAGE_OPERATIONAL, STAGE_FULL),
			  .itt = p->next_itt++,
			  .cmd_sn = p->cmd_sn};
	char list[1024];

	memcpy(out.isid, p->isid, ISID_LEN);
	memcpy(list, names, sizeof(names));
	if (len)
		memcpy(list + sizeof(names), keys, len);
	peer_say(p, &out, list, (uint32_t)(sizeof(names) + len));
	peer_hear_a(p, LOGIN_RESPONSE);
	p->data[p->in.data_len] = '\0';
}

void peer_clear_attention(struct peer *p)
{
	static const uint8_t test_unit_ready[16];

	for (int i = 0; i < 8; i++) {
		uint32_t itt = peer_command(p, test_unit_ready, PDU_FINAL, 0, NULL, 0);

		if (peer_finish(p, itt, NULL) == SCSI_GOOD)
			return;
	}
	fail_msg("the unit is never ready");
}

void peer_login(struct peer *p)
{
	static const char keys[] = "InitialR2T=No\0MaxRecvDataSegmentLength=65536";

	peer_login_with(p, keys, sizeof(keys));
	assert_int_equal(p->in.status_class, 0);
	peer_clear_attention(p);
}

/* ---- commands ---------------------------------------------------------------------------------------- */

uint32_t peer_command(struct peer *p, const uint8_t cdb[16], uint8_t flags, uint32_t expected,
		      const void *data, uint32_t len)
{
	struct pdu out = {.opcode = SCSI_COMMAND,
			  .flags = flags,
			  .lun = 1ull << 48,
			  .itt = p->next_itt++,
			  .cmd_sn = p->cmd_sn++,
			  .expected = expected};

	memcpy(out.cdb, cdb, 16);
	peer_say(p, &out, data, len);
	return out.itt;
}

static void fill_cdb(uint8_t cdb[16], uint8_t op, uint32_t block, uint16_t blocks)
{
	memset(cdb, 0, 16);
	cdb[0] = op;
	put_be32(cdb + 2, block);
	put_be16(cdb + 7, blocks);
}

uint32_t peer_read(struct peer *p, uint32_t block, uint16_t blocks)
{
	uint8_t cdb[16];

	fill_cdb(cdb, 0x28, block, blocks);
	return peer_command(p, cdb, PDU_FINAL | CMD_READ, blocks * 512u, NULL, 0);
}

uint32_t peer_write(struct peer *p, uint32_t block, uint16_t blocks, const void *immediate,
		    uint32_t len, uint8_t flags)
{
	uint8_t cdb[16];

	fill_cdb(cdb, 0x2a, block, blocks);
	return peer_command(p, cdb, flags | CMD_WRITE, blocks * 512u, immediate, len);
}

void peer_data(struct peer *p, uint32_t itt, uint32_t ttt, uint32_t sn, uint32_t offset,
	       const void *data, uint32_t len, bool final)
{
	struct pdu out = {.opcode = DATA_OUT,
			  .flags = final ? PDU_FINAL : 0,
			  .lun = 1ull << 48,
			  .itt = itt,
			  .ttt = ttt,
			  .data_sn = sn,
			  .offset = offset};

	peer_say(p, &out, data, len);
}

void peer_answer_r2t(struct peer *p, const uint8_t *all)
{
	struct pdu r = p->in;
	uint32_t sn = 0;

	assert_int_equal(r.opcode, R2T);
	for (uint32_t at = 0; at < r.length;) {
		uint32_t n = r.length - at < 65536 ? r.length - at : 65536;

		peer_data(p, r.itt, r.ttt, sn++, r.offset + at, all + r.offset + at, n,
			  at + n == r.length);
		at += n;
	}
}

static void take_data_in(const struct peer *p, uint8_t *to, uint32_t *at, uint32_t *sn)
{
	assert_int_equal(p->in.offset, *at);
	assert_int_equal(p->in.data_sn, (*sn)++);
	if (to)
		memcpy(to + *at, p->data, p->in.data_len);
	*at += p->in.data_len;
}

uint8_t peer_finish(struct peer *p, uint32_t itt, uint8_t *to)
{
	uint32_t at = 0, sn = 0;

	for (;;) {
		assert_true(peer_hear(p));
		assert_int_equal(p->in.itt, itt);
		if (p->in.opcode == SCSI_RESPONSE)
			return p->in.status;
		assert_int_equal(p->in.opcode, DATA_IN);
		take_data_in(p, to, &at, &sn);
		if (p->in.flags & DATA_STATUS)
			return p->in.status;
	}
}

uint32_t peer_sense(const struct peer *p)
{
	const uint8_t *s = p->data + 2;

	assert_int_equal(p->in.opcode, SCSI_RESPONSE);
	assert_true(p->in.data_len >= 2 + 14);
	return (s[2] & 15u) << 16 | (unsigned int)s[12] << 8 | s[13];
}
