// SPDX-License-Identifier: BSD-2-Clause
/*
 * live_tell.c - the state of this process as JSON.
 *
 * Snapshots of queue pairs are taken a few at a time, and written after the engine lock is
 * released.
 */
#include "adapter/live.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/device.h"
#include "adapter/latency.h"
#include "adapter/qp.h"
#include "base/cleanup.h"
#include "base/clock.h"

#define AT_ONCE 16   /* queue pairs per hold of the engine lock */
#define END	4096 /* bytes reserved for the text after a list */

enum { TELL_COUNTERS = 1, TELL_QPS = 2, TELL_REGIONS = 4 };

static const struct {
	const char *word;
	unsigned parts;
} words[] = {
	{"counters", TELL_COUNTERS},
	{"qps", TELL_COUNTERS | TELL_QPS},
	{"regions", TELL_REGIONS},
	{"all", TELL_COUNTERS | TELL_QPS | TELL_REGIONS},
};

#define NUMBER(c, name)                                                                            \
	{                                                                                          \
#name, offsetof(struct c, name)                                                    \
	}

static const struct {
	const char *name;
	size_t at;
} device_numbers[] = {
	NUMBER(stagdv_counters, tx_msgs),
	NUMBER(stagdv_counters, rx_msgs),
	NUMBER(stagdv_counters, tx_bytes),
	NUMBER(stagdv_counters, rx_bytes),
	NUMBER(stagdv_counters, tx_payload),
	NUMBER(stagdv_counters, rx_payload),
	NUMBER(stagdv_counters, tx_fpdus),
	NUMBER(stagdv_counters, rx_fpdus),
	NUMBER(stagdv_counters, tx_calls),
	NUMBER(stagdv_counters, rx_calls),
	NUMBER(stagdv_counters, tx_again),
	NUMBER(stagdv_counters, rx_again),
	NUMBER(stagdv_counters, crc_errors),
	NUMBER(stagdv_counters, terminates_sent),
	NUMBER(stagdv_counters, terminates_received),
	NUMBER(stagdv_counters, engine_wakeups),
	NUMBER(stagdv_counters, connects),
	NUMBER(stagdv_counters, accepts),
	NUMBER(stagdv_counters, disconnects),
	NUMBER(stagdv_counters, posts),
	NUMBER(stagdv_counters, receives),
	NUMBER(stagdv_counters, completions),
	NUMBER(stagdv_counters, registrations),
	NUMBER(stagdv_counters, advertised),
	NUMBER(stagdv_counters, closed),
	NUMBER(stagdv_counters, withdrawn),
	NUMBER(stagdv_counters, orphaned),
	NUMBER(stagdv_counters, late),
	NUMBER(stagdv_counters, lease_refusals),
	NUMBER(stagdv_counters, forwards),
	NUMBER(stagdv_counters, forwarded_bytes),
	NUMBER(stagdv_counters, mirror_stalls),
};

#define N_NUMBERS (sizeof(device_numbers) / sizeof(*device_numbers))
_Static_assert((N_NUMBERS + 1) * sizeof(uint64_t) == sizeof(struct stagdv_counters),
	       "a counter has no name here");

/* ---- lists: an item that has no room is left off, and counted ---- */

struct live_list {
	struct live_text *text;
	size_t items;
	size_t left_off;
	size_t before; /* length of the text so far */
};

static void list_open(struct live_list *l, struct live_text *t, const char *name)
{
	*l = (struct live_list){.text = t};
	text_add(t, ",\"%s\":[", name);
}

static void item_open(struct live_list *l)
{
	l->before = l->text->length;
	text_add(l->text, "%s", l->items ? "," : "");
}

static void item_close(struct live_list *l)
{
	struct live_text *t = l->text;

	if (!t->failed && t->length <= t->most - END) {
		l->items++;
		return;
	}
	t->length = l->before;
	t->failed = false;
	l->left_off++;
}

static void list_close(struct live_list *l, const char *name)
{
	text_add(l->text, "],\"%s_left_off\":%zu", name, l->left_off);
}

/* ---- counters ---- */

static void tell_counters(struct live_text *t)
{
	struct stagdv_counters c;
	const char *comma = "";

	device_counters(&c);
	text_add(t, ",\"counters\":{");
	for (size_t i = 0; i < N_NUMBERS; i++, comma = ",")
		text_add(t, "%s\"%s\":%llu", comma, device_numbers[i].name,
			 *(unsigned long long *)((char *)&c + device_numbers[i].at));
	text_add(t, "},\"latency\":{");
	comma = "";
	for (int i = 0; i < LATENCY_KINDS; i++, comma = ",") {
		struct stag_histogram h = {.count = 0};

		histogram_sum(&latency_times[i], &h);
		text_add(t, "%s\"%s\":", comma, latency_kind_str(i));
		text_add_histogram(t, &h);
	}
	text_add(t, "}");
}

/* ---- queue pairs ---- */

static void add_address(struct live_text *t, const char *name, const struct qp_look *q,
			const struct sockaddr_storage *a)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
	bool six = a->ss_family == AF_INET6, mapped = six && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
	const void *four = mapped ? in6->sin6_addr.s6_addr + 12 : (const void *)&in->sin_addr;
	char host[INET6_ADDRSTRLEN] = "";

	/* The port is at the same offset in both families. */
	if (q->linked && (mapped || a->ss_family == AF_INET) &&
	    inet_ntop(AF_INET, four, host, sizeof(host)))
		text_add(t, ",\"%s\":\"%s:%u\"", name, host, ntohs(in->sin_port));
	else if (q->linked && six && inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host)))
		text_add(t, ",\"%s\":\"[%s]:%u\"", name, host, ntohs(in6->sin6_port));
	else
		text_add(t, ",\"%s\":null", name);
}

static const char *kind_word(const struct qp_look *q)
{
	if (q->on_store)
		return "\"store\"";
	if (!q->linked)
		return "null";
	return q->stag_peer ? "\"stag\"" : "\"iwarp\"";
}

static void add_tls(struct live_text *t, const struct qp_look *q)
{
	static const char *const by_kernel[] = {"no", "sends", "receives", "both"};

	if (q->encrypted)
		text_add(t, ",\"tls\":{\"version\":\"%s\",\"cipher\":\"%s\",\"kernel\":\"%s\"}",
			 q->tls.version, q->tls.cipher, by_kernel[tls_kernel_bits(&q->tls)]);
	else
		text_add(t, ",\"tls\":null");
}

static void tell_qp(struct live_text *t, const struct qp_look *q)
{
	const struct stagdv_counters *c = &q->counters;

	text_add(t, "{\"qpn\":%u,\"state\":\"%s\"", q->number, qp_state_word(q->state));
	add_address(t, "local", q, &q->local);
	add_address(t, "peer", q, &q->peer);
	add_tls(t, q);
	text_add(t,
		 ",\"kind\":%s,\"posts\":%llu,\"receives\":%llu,\"completions\":%llu,"
		 "\"tx_bytes\":%llu,\"rx_bytes\":%llu,\"tx_msgs\":%llu,\"rx_msgs\":%llu,"
		 "\"sq\":[%u,%u],\"rq\":[%u,%u],\"latency\":",
		 kind_word(q), (unsigned long long)c->posts, (unsigned long long)c->receives,
		 (unsigned long long)c->completions, (unsigned long long)c->tx_bytes,
		 (unsigned long long)c->rx_bytes, (unsigned long long)c->tx_msgs,
		 (unsigned long long)c->rx_msgs, q->sq_used, q->sq_size, q->rq_used, q->rq_size);
	text_add_histogram(t, &q->times);
	text_add(t, "}");
}

static bool tell_qps(struct live_text *t)
{
	CLEANUP_FREE struct qp_look *looks = calloc(AT_ONCE, sizeof(*looks));
	struct live_list list;
	uint32_t at = 0;
	size_t n;

	if (!looks)
		return false;
	list_open(&list, t, "qps");
	while ((n = qp_table_look(&at, looks, AT_ONCE)))
		for (size_t i = 0; i < n; i++) {
			item_open(&list);
			tell_qp(t, &looks[i]);
			item_close(&list);
		}
	list_close(&list, "qps");
	return true;
}

/* ---- regions ---- */

static void add_access(struct live_text *t, unsigned access)
{
	static const struct {
		unsigned bit;
		const char *word;
	} rights[] = {
		{IBV_ACCESS_LOCAL_WRITE, "local_write"},
		{IBV_ACCESS_REMOTE_WRITE, "remote_write"},
		{IBV_ACCESS_REMOTE_READ, "remote_read"},
		{IBV_ACCESS_REMOTE_ATOMIC, "remote_atomic"},
		{IBV_ACCESS_MW_BIND, "mw_bind"},
		{IBV_ACCESS_ZERO_BASED, "zero_based"},
		{IBV_ACCESS_ON_DEMAND, "on_demand"},
		{IBV_ACCESS_HUGETLB, "hugetlb"},
	};
	const char *comma = "";

	text_add(t, ",\"access\":[");
	for (size_t i = 0; i < sizeof(rights) / sizeof(*rights); i++)
		if (access & rights[i].bit) {
			text_add(t, "%s\"%s\"", comma, rights[i].word);
			comma = ",";
		}
	text_add(t, "]");
}

/*
 * An address may be any 64 bits, and many JSON readers have no such numbers: it is written as a
 * string.
 */
static void tell_region(const struct key_look *k, void *arg)
{
	struct live_list *list = arg;
	struct live_text *t = list->text;
	uint64_t now = clock_boot_ns();

	item_open(list);
	text_add(t, "{\"stag\":\"0x%08x\",\"kind\":\"%s\",\"address\":\"0x%llx\",\"length\":%llu",
		 k->stag, k->kind, (unsigned long long)k->base,
		 (unsigned long long)(k->length & INT64_MAX));
	add_access(t, k->access);
	if (k->lease)
		text_add(t, ",\"lease_ns\":%llu}",
			 (unsigned long long)(k->lease > now ? k->lease - now : 0));
	else
		text_add(t, ",\"lease_ns\":null}");
	item_close(list);
}

static void tell_regions(struct live_text *t)
{
	struct live_list list;

	list_open(&list, t, "regions");
	key_each_look(tell_region, &list);
	list_close(&list, "regions");
}

/* ---- all of it ---- */

static unsigned parts_of(const char *word)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcmp(words[i].word, word) == 0)
			return words[i].parts;
	return 0;
}

static void tell_who(struct live_text *t)
{
	char program[128];

	snprintf(program, sizeof(program), "%s", program_invocation_short_name);
	text_add(t, "{\"version\":1,\"pid\":%d,\"uid\":%u,\"program\":", getpid(), geteuid());
	text_add_string(t, program);
	text_add(t, ",\"device\":\"%s\",\"now_ns\":%llu", stag_device(FACE_IWARP)->ibv.name,
		 (unsigned long long)clock_ns());
}

bool live_tell(const char *word, struct live_text *t)
{
	unsigned parts = parts_of(word);
	bool told = parts != 0;

	if (!told)
		return false;
	tell_who(t);
	if (parts & TELL_COUNTERS)
		tell_counters(t);
	if (parts & TELL_QPS)
		told = tell_qps(t);
	if (parts & TELL_REGIONS)
		tell_regions(t);
	text_add(t, "}\n");
	return told && !t->failed;
}
