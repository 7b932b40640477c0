// SPDX-License-Identifier: BSD-2-Clause
/* trace_ip.c - IP headers and checksums of packets that were never on a wire. */
#include "adapter/trace_file.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <string.h>

static uint16_t fold(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

void checksum_add(struct checksum *c, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t sum = 0;
	uint16_t last = 0, folded;
	uint32_t word;
	size_t left = len;

	for (; left >= 4; left -= 4, p += 4) {
		memcpy(&word, p, 4);
		sum += word;
	}
	for (; left >= 2; left -= 2, p += 2) {
		memcpy(&last, p, 2);
		sum += last;
	}
	if (left) {
		last = 0;
		memcpy(&last, p, 1);
		sum += last;
	}
	folded = fold(sum);
	c->sum += c->odd ? __builtin_bswap16(folded) : folded;
	c->odd ^= len & 1;
}
uint16_t checksum_end(const struct checksum *c)
{
	return (uint16_t)~fold(c->sum);
}

void checksum_add_path(struct checksum *c, const struct trace_path *path, uint8_t protocol,
		       size_t len)
{
	size_t addr_len = path->ipv6 ? 16 : 4;
	uint32_t tail[2] = {htonl((uint32_t)len), htonl(protocol)};

	checksum_add(c, path->from, addr_len);
	checksum_add(c, path->to, addr_len);
	checksum_add(c, tail, sizeof(tail));
}

static size_t put_ipv4(uint8_t *p, const struct trace_path *path, uint8_t protocol, size_t len)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tos = path->traffic_class,
		.tot_len = htons((uint16_t)(sizeof(ip) + len)),
		.id = htons(path->id),
		.frag_off = htons(IP_DF),
		.ttl = path->hop_limit,
		.protocol = protocol,
	};
	struct checksum c = {0};

	memcpy(&ip.saddr, path->from, 4);
	memcpy(&ip.daddr, path->to, 4);
	checksum_add(&c, &ip, sizeof(ip));
	ip.check = checksum_end(&c);
	memcpy(p, &ip, sizeof(ip));
	return sizeof(ip);
}

static size_t put_ipv6(uint8_t *p, const struct trace_path *path, uint8_t protocol, size_t len)
{
	struct ip6_hdr ip = {0};

	ip.ip6_flow = htonl(6u << 28 | (uint32_t)path->traffic_class << 20 | path->flow_label);
	ip.ip6_plen = htons((uint16_t)len);
	ip.ip6_nxt = protocol;
	ip.ip6_hlim = path->hop_limit;
	memcpy(&ip.ip6_src, path->from, 16);
	memcpy(&ip.ip6_dst, path->to, 16);
	memcpy(p, &ip, sizeof(ip));
	return sizeof(ip);
}

size_t trace_put_ip(uint8_t *p, const struct trace_path *path, uint8_t protocol, size_t len)
{
	return path->ipv6 ? put_ipv6(p, path, protocol, len) : put_ipv4(p, path, protocol, len);
}
