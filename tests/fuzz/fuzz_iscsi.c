// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_iscsi.c - a target that gets arbitrary bytes from one initiator.
 *
 * The first byte chooses the side that gets the bytes (initiator.c has the other), whether it is
 * logged in already, and its keys; the rest are chunks with two bytes of length each, between which
 * the target is stepped. Units are in memory, and may be held. Or each chunk is a send of a
 * connection over verbs, which is parsed.
 *
 * Checks that the target sends only PDUs of targets, and that no session, task or buffer is left
 * when the connection has ended.
 */
#include "fuzz.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "block/target/target.h"
#include "initiator.h"
#include "memory_unit.h"

enum {
	LOGGED_IN = 1,
	UNSOLICITED = 2,
	HELD = 4,
	HEADED = 8,
	FAILING = 16,
	OTHER_SIDE = 32,
	VERBS = 64,
	LENDS = 64, /* target over TCP: its unit lends memory */
	SENDS = 128
};

static struct stag_block_target *target;
static uint8_t heard[1 << 20];
static size_t heard_len;
static bool deaf;

static void start(void)
{
	struct stag_block_target_attr attr = {.name = "iqn.2026-01.x:t",
					      .flags = STAG_BLOCK_NO_TCP | STAG_BLOCK_NO_RDMA,
					      .staging_bytes = 3 * UNITS_BUFFER};
	struct stag_block_lun unit = {.lun = 1, .where = "memory"};
	struct lun *l;

	CHECK(target_create(&attr, &target) == 0);
	CHECK(lun_open(target->units, &unit, &l) == 0);
	CHECK(scsi_target_add(target->scsi, 1, l) == 0);
}

/* With digests the target's PDUs are not parsed. */
static bool has_digests(void)
{
	list_for_each (it, &target->sessions.list) {
		const struct target_session *s = list_entry(it, struct target_session, link);

		if (s->keys.header_digest || s->keys.data_digest)
			return true;
	}
	return false;
}

/* Checks the complete PDUs that the target has sent. */
static void check_sent_pdus(int fd)
{
	size_t at = 0;
	ssize_t n;

	while ((n = recv(fd, heard + heard_len, sizeof(heard) - heard_len, MSG_DONTWAIT)) > 0)
		heard_len += (size_t)n;
	deaf |= has_digests();
	if (deaf)
		heard_len = 0;
	while (heard_len - at >= BHS_LEN) {
		struct pdu p;
		size_t len;

		CHECK(iscsi_pdu_decode(heard + at, &p) == 0 && !iscsi_pdu_from_initiator(p.opcode));
		CHECK(p.data_len <= UNITS_BUFFER && p.ahs_len == 0);
		len = BHS_LEN + p.data_len + iscsi_pdu_pad(p.data_len);
		if (heard_len - at < len)
			break;
		at += len;
	}
	heard_len -= at;
	memmove(heard, heard + at, heard_len);
}

static void send_bytes(int fd, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	for (int tries = 0; len && tries < 64; tries++) {
		ssize_t n = send(fd, p, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (errno != EAGAIN) {
			return;
		}
		target_step(target, 0);
		check_sent_pdus(fd);
	}
}

static void log_in(int fd, unsigned int mode)
{
	static const char list[] = "InitiatorName=iqn.2026-01.x:i\0TargetName=iqn.2026-01.x:t\0"
				   "InitialR2T=No\0FirstBurstLength=4096\0MaxBurstLength=8192";
	uint32_t len = mode & UNSOLICITED ? sizeof(list) : 57;
	uint8_t bytes[BHS_LEN + sizeof(list) + 4] = {0};
	struct pdu p = {.opcode = LOGIN_REQUEST,
			.immediate = true,
			.flags = LOGIN_TRANSIT | LOGIN_STAGES(STAGE_OPERATIONAL, STAGE_FULL),
			.isid = {0x80},
			.cmd_sn = 1,
			.data_len = len};

	iscsi_pdu_encode(&p, bytes);
	memcpy(bytes + BHS_LEN, list, len);
	send_bytes(fd, bytes, BHS_LEN + len + iscsi_pdu_pad(len));
}

static void settle(void)
{
	memory_unit.hold = false;
	for (int i = 0; i < 1000 && (target->conns.count || target->sessions.count); i++)
		target_step(target, 0);
	CHECK(target->conns.count == 0 && target->sessions.count == 0 &&
	      target->strangers.count == 0);
	CHECK(list_empty(&target->buffers.waiters) && list_empty(&target->tasks.tmfs) &&
	      list_empty(&target->conns.dirty));
	CHECK(memory_unit.in_use == 0 && memory_unit.lent == 0);
}

/* ---- over verbs ----------------------------------------------------------------------------- */

static void check_header(const struct iser *h)
{
	uint8_t bytes[ISER_LEN];
	struct iser again;

	iscsi_iser_encode(h, bytes);
	CHECK(iscsi_iser_decode(bytes, sizeof(bytes), &again) == 0);
	CHECK(again.read == h->read && again.write == h->write);
	CHECK(!h->read || (again.read_stag == h->read_stag && again.read_base == h->read_base));
	CHECK(!h->write ||
	      (again.write_stag == h->write_stag && again.write_base == h->write_base));
}

/* Checks that all pointers are inside the send, and that only padding is left over. */
static void check_arrival(const struct arrival *a, const uint8_t *bytes, size_t len)
{
	uint32_t ahs_len, data_len, at = 0;
	struct ahs ahs;

	iscsi_pdu_lengths(a->bhs, &ahs_len, &data_len);
	CHECK(a->bhs + BHS_LEN == a->ahs && a->ahs + ahs_len == a->data);
	CHECK(a->data + data_len <= bytes + len && bytes + len <= a->data + data_len + 3);
	CHECK(!a->decoded || (a->pdu.ahs_len == ahs_len && a->pdu.data_len == data_len));
	while (iscsi_ahs_next(a->ahs, ahs_len, &at, &ahs) > 0)
		CHECK(ahs.bytes >= a->ahs && ahs.bytes + ahs.len <= a->data);
}

static void take_send(const uint8_t *bytes, size_t len, bool headed)
{
	uint8_t *send = copy_of(bytes, len);
	struct iser_hello hello;
	struct arrival a;

	iscsi_iser_hello_read(send, len, &hello);
	if (!iscsi_iser_parse(send, (uint32_t)len, headed, &a)) {
		check_arrival(&a, send, len);
		if (headed)
			check_header(&a.lent);
	}
	free(send);
}

static void take_sends(struct input *in, bool headed)
{
	while (in->len) {
		size_t len = take(in, 2) % 16384;

		len = len < in->len ? len : in->len;
		take_send(in->p, len, headed);
		in->p += len;
		in->len -= len;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	unsigned int mode = (unsigned int)take(&in, 1);
	int fd[2];

	if (mode & SENDS) {
		take_sends(&in, mode & HEADED);
		return 0;
	}
	if (mode & OTHER_SIDE) {
		if (mode & VERBS)
			fuzz_initiator_verbs(&in, mode & LOGGED_IN);
		else
			fuzz_initiator(&in, mode & LOGGED_IN);
		return 0;
	}
	if (!target)
		start();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
	CHECK(target_tcp_adopt(target, fd[0]) == 0);
	heard_len = 0;
	deaf = false;
	memory_unit.error = 0;
	if (mode & LOGGED_IN)
		log_in(fd[1], mode);
	memory_unit.hold = mode & HELD;
	memory_unit.error = mode & FAILING ? -EIO : 0;
	memory_unit.lends = mode & LENDS;
	while (in.len) {
		size_t len = take(&in, 2) % 8192;

		len = len < in.len ? len : in.len;
		send_bytes(fd[1], in.p, len);
		in.p += len;
		in.len -= len;
		if (in.len % 3 == 0)
			memory_unit.hold = false;
	}
	target_step(target, 0);
	check_sent_pdus(fd[1]);
	close(fd[1]);
	settle();
	return 0;
}
