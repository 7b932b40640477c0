// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_datagram.c - arbitrary datagrams, and arbitrary 40 bytes before a payload.
 *
 * The first byte chooses the property below that the rest is for.
 */
#include "fuzz.h"

#include <errno.h>

#include "wire/datagram.h"

enum { DATAGRAM, REPAIRED, GRH, KINDS };

static void check_grh(const struct datagram *d)
{
	uint8_t bytes[GRH_LEN];
	struct grh g;

	grh_put(d, bytes);
	CHECK(grh_get(bytes, &g) == 0);
	CHECK(g.version == (grh_is_v4(d) ? 4 : 6) && g.next_header == 17);
	CHECK(g.traffic_class == d->traffic_class && g.hop_limit == d->hop_limit);
	CHECK(!memcmp(g.sgid, d->sgid, DATAGRAM_GID) && !memcmp(g.dgid, d->dgid, DATAGRAM_GID));
}

/* What is decoded is encoded to the same bytes, but for the magic and the CRC. */
static void check_decoded(const uint8_t *p, size_t len)
{
	uint8_t buf[DATAGRAM_HDR];
	struct datagram d;
	bool sealed;

	CHECK(datagram_first(p, len) <= len);
	if (datagram_decode(p, len, &d, &sealed))
		return;
	CHECK(datagram_first(p, len) == len);
	CHECK(d.length == len - DATAGRAM_HDR && d.length <= DATAGRAM_PAYLOAD);
	CHECK(d.src_qpn < DATAGRAM_MULTICAST && d.dst_qpn <= DATAGRAM_MULTICAST);
	CHECK((d.dst_qpn == DATAGRAM_MULTICAST) == datagram_is_mgid(d.dgid));
	datagram_encode(&d, buf);
	CHECK(!memcmp(buf + 4, p + 4, 60));
	CHECK(sealed == !!memcmp(buf, p, 4));
	if (!grh_is_v4(&d) && d.sgid[12] == 0x45)
		return; /* an IPv6 header can look like one of IPv4 */
	check_grh(&d);
}

static void datagram(uint8_t *p, size_t len)
{
	check_decoded(p, len);
}

/* The same with what a fuzzer does not guess: the magic, the length, and the CRC. */
static void repaired(uint8_t *p, size_t len)
{
	struct datagram d = {.length = (uint32_t)(len - DATAGRAM_HDR)};
	uint8_t head[DATAGRAM_HDR];

	if (len < DATAGRAM_HDR)
		return;
	datagram_encode(&d, head);
	memcpy(p, head, 5);
	memcpy(p + 28, head + 28, 4);
	memcpy(p + 64, head + 64, 4);
	check_decoded(p, len);
	datagram_seal(p, len - DATAGRAM_HDR);
	check_decoded(p, len);
}

static void grh(uint8_t *p, size_t len)
{
	struct grh g;
	int ret;

	if (len < GRH_LEN)
		return;
	ret = grh_get(p, &g);
	CHECK(ret == -EPROTONOSUPPORT || (ret == 0 && (g.version == 4 || g.version == 6)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const properties[KINDS])(uint8_t * p, size_t len) = {
		[DATAGRAM] = datagram,
		[REPAIRED] = repaired,
		[GRH] = grh,
	};
	struct input in = {data, size};
	unsigned kind = (unsigned)take(&in, 1) % KINDS;
	uint8_t *exact = copy_of(in.p, in.len);

	properties[kind](exact, in.len);
	free(exact);
	return 0;
}
