// SPDX-License-Identifier: BSD-2-Clause
/*
 * info.c - stag info: shows the devices that a program under `stag run` finds.
 *
 * It executes itself again with the library preloaded, and then uses verbs as any
 * program would, so it sees what a program sees. The result is one JSON tree; the
 * text is printed from it.
 */
#include "stag.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <jansson.h>
#include <rdma/rdma_cma.h>

#include "base/crc32c.h"
#include "stag/stagdv.h"

/* Set before stag executes itself again, to prevent a loop. */
#define AGAIN "STAG_INFO_PRELOADED"

/* The stagdv calls are in the preloaded library, which this program is not linked to. */
static struct {
	bool (*is_supported)(struct ibv_device *);
	int (*query_device)(struct ibv_context *, struct stagdv_device_attr *, size_t);
	const char *library;
} dv;

static bool find_library(void)
{
	Dl_info where;

	*(void **)&dv.is_supported = dlsym(RTLD_DEFAULT, "stagdv_is_supported");
	*(void **)&dv.query_device = dlsym(RTLD_DEFAULT, "stagdv_query_device");
	if (!dv.is_supported || !dv.query_device || !dladdr((void *)dv.query_device, &where))
		return false;
	dv.library = where.dli_fname;
	return true;
}

/* ---- findings ---------------------------------------------------------- */

struct name {
	unsigned bit;
	const char *word;
};

/* Returns an array of the names of the bits that are set. */
static json_t *words_of(uint64_t bits, const struct name *names, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		if (bits & names[i].bit)
			json_array_append_new(list, json_string(names[i].word));
	return list;
}

static const struct name abilities[] = {
	{STAGDV_ABILITY_IMM, "immediate-data"},
	{STAGDV_ABILITY_ATOMIC, "atomics"},
	{STAGDV_ABILITY_SEND_IMM, "send-with-immediate"},
	{STAGDV_ABILITY_MW, "memory-windows"},
	{STAGDV_ABILITY_FAST_REG, "fast-registration"},
	{STAGDV_ABILITY_CRC_HW, "crc-by-processor"},
	{STAGDV_ABILITY_TRACE, "trace"},
	{STAGDV_ABILITY_GUARD, "guards"},
	{STAGDV_ABILITY_STORE, "storage"},
	{STAGDV_ABILITY_FLUSH, "flush"},
	{STAGDV_ABILITY_ONE_SHOT, "one-shot-sends"},
	{STAGDV_ABILITY_KEYED, "chosen-keys"},
	{STAGDV_ABILITY_LEASE, "leases"},
	{STAGDV_ABILITY_MIRROR, "mirrors"},
};

static const struct name verbs_abilities[] = {
	{IBV_DEVICE_RESIZE_MAX_WR, "resize-queues"},
	{IBV_DEVICE_SRQ_RESIZE, "resize-srq"},
	{IBV_DEVICE_MEM_WINDOW, "memory-windows"},
	{IBV_DEVICE_MEM_WINDOW_TYPE_2B, "memory-windows-type-2"},
	{IBV_DEVICE_MEM_MGT_EXTENSIONS, "memory-management"},
	{IBV_DEVICE_XRC, "xrc"},
};

static json_t *limits_of(const struct ibv_device_attr *a)
{
	return json_pack("{s:I s:i s:i s:i s:i s:i s:i s:i s:i s:i s:i s:i s:i}", "max_mr_size",
			 (json_int_t)(a->max_mr_size > INT64_MAX ? INT64_MAX : a->max_mr_size),
			 "max_mr", a->max_mr, "max_mw", a->max_mw, "max_pd", a->max_pd, "max_qp",
			 a->max_qp, "max_qp_wr", a->max_qp_wr, "max_sge", a->max_sge, "max_cq",
			 a->max_cq, "max_cqe", a->max_cqe, "max_srq", a->max_srq, "max_srq_wr",
			 a->max_srq_wr, "max_rd_atom", a->max_qp_rd_atom, "max_init_rd_atom",
			 a->max_qp_init_rd_atom);
}

static const char *atomics_word(enum ibv_atomic_cap cap)
{
	switch (cap) {
	case IBV_ATOMIC_NONE:
		return "none";
	case IBV_ATOMIC_HCA:
		return "among peers of this device";
	case IBV_ATOMIC_GLOB:
		return "with the processor too";
	}
	return "unknown";
}

static const char *transport_word(enum ibv_transport_type t)
{
	switch (t) {
	case IBV_TRANSPORT_IB:
		return "InfiniBand";
	case IBV_TRANSPORT_IWARP:
		return "iWARP";
	case IBV_TRANSPORT_USNIC:
	case IBV_TRANSPORT_USNIC_UDP:
		return "usNIC";
	case IBV_TRANSPORT_UNSPECIFIED:
	case IBV_TRANSPORT_UNKNOWN:
		break;
	}
	return "unknown";
}

static const char *link_layer_word(uint8_t layer)
{
	return layer == IBV_LINK_LAYER_ETHERNET	    ? "Ethernet"
	       : layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
						    : "unspecified";
}

static json_t *gids_of(struct ibv_context *ctx, uint8_t port, int count)
{
	json_t *list = json_array();
	char text[INET6_ADDRSTRLEN];
	union ibv_gid gid, zero = {0};

	for (int i = 0; i < count; i++) {
		if (ibv_query_gid(ctx, port, i, &gid) || !memcmp(&gid, &zero, sizeof(gid)))
			continue;
		inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
		json_array_append_new(list, json_string(text));
	}
	return list;
}

static json_t *port_of(struct ibv_context *ctx, uint8_t number)
{
	struct ibv_port_attr p;

	if (ibv_query_port(ctx, number, &p))
		return json_pack("{s:i s:s}", "port", number, "state", "unknown");
	return json_pack("{s:i s:s s:s s:i s:i s:o}", "port", number, "state",
			 ibv_port_state_str(p.state), "link_layer", link_layer_word(p.link_layer),
			 "mtu", 128 << p.active_mtu, "max_mtu", 128 << p.max_mtu, "gids",
			 gids_of(ctx, number, p.gid_tbl_len));
}

/* Adds what only the software adapter reports. */
static void add_software(json_t *device, struct ibv_context *ctx)
{
	struct stagdv_device_attr a = {0};
	char version[32];

	if (dv.query_device(ctx, &a, sizeof(a)))
		return;
	snprintf(version, sizeof(version), "%u.%u.%u", a.version >> 16, a.version >> 8 & 0xff,
		 a.version & 0xff);
	json_object_set_new(device, "version", json_string(version));
	json_object_set_new(
		device, "abilities",
		words_of(a.abilities, abilities, sizeof(abilities) / sizeof(*abilities)));
	json_object_set_new(device, "max_segment", json_integer(a.max_ulpdu));
	json_object_set_new(device, "crc32c", json_string(crc32c_implementation()));
	json_object_set_new(device, "asks_peers_for",
			    json_pack("{s:b s:b s:b}", "crc", a.crc, "markers", a.markers,
				      "extensions", a.extensions));
}

static void add_attributes(json_t *device, struct ibv_context *ctx)
{
	struct ibv_device_attr_ex a = {0};
	json_t *ports = json_array();

	if (ibv_query_device_ex(ctx, NULL, &a))
		return;
	json_object_set_new(device, "firmware", json_string(a.orig_attr.fw_ver));
	json_object_set_new(device, "atomics", json_string(atomics_word(a.orig_attr.atomic_cap)));
	json_object_set_new(device, "abilities",
			    words_of(a.orig_attr.device_cap_flags, verbs_abilities,
				     sizeof(verbs_abilities) / sizeof(*verbs_abilities)));
	json_object_set_new(device, "limits", limits_of(&a.orig_attr));
	for (unsigned port = 1; port <= a.orig_attr.phys_port_cnt; port++)
		json_array_append_new(ports, port_of(ctx, (uint8_t)port));
	json_object_set_new(device, "ports", ports);
}

static json_t *device_of(struct ibv_device *d)
{
	struct ibv_context *ctx = ibv_open_device(d);
	bool ours = dv.is_supported(d);
	char guid[24];
	json_t *device;

	snprintf(guid, sizeof(guid), "%016" PRIx64, be64toh(ibv_get_device_guid(d)));
	device = json_pack("{s:s s:s s:s s:s s:s s:[]}", "name", ibv_get_device_name(d), "kind",
			   ours ? "software" : "real", "transport",
			   transport_word(d->transport_type), "node_type",
			   ibv_node_type_str(d->node_type), "guid", guid, "addresses");
	if (!ctx) {
		json_object_set_new(device, "error", json_string(strerror(errno)));
		return device;
	}
	add_attributes(device, ctx);
	if (ours)
		add_software(device, ctx);
	ibv_close_device(ctx);
	return device;
}

/* Returns the device that the connection manager uses for a local address, or NULL. */
static struct ibv_device *device_of_address(struct sockaddr *addr)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_device *device = NULL;
	struct rdma_cm_id *id;

	if (!channel)
		return NULL;
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0) {
		if (rdma_bind_addr(id, addr) == 0 && id->verbs)
			device = id->verbs->device;
		rdma_destroy_id(id);
	}
	rdma_destroy_event_channel(channel);
	return device;
}

static bool is_software(const json_t *device)
{
	return !strcmp(json_string_value(json_object_get(device, "kind")), "software");
}

/* Both devices of the software adapter have all its addresses; the connection manager names one of them. */
static void add_address(json_t *devices, const struct ifaddrs *a)
{
	struct ibv_device *d = device_of_address(a->ifa_addr);
	const void *raw = a->ifa_addr->sa_family == AF_INET
				  ? (const void *)&((struct sockaddr_in *)a->ifa_addr)->sin_addr
				  : (const void *)&((struct sockaddr_in6 *)a->ifa_addr)->sin6_addr;
	bool ours = d && dv.is_supported(d);
	char text[INET6_ADDRSTRLEN];
	json_t *device;
	size_t i;

	if (!d || !inet_ntop(a->ifa_addr->sa_family, raw, text, sizeof(text)))
		return;
	json_array_foreach (devices, i, device)
		if (ours ? is_software(device)
			 : !strcmp(json_string_value(json_object_get(device, "name")),
				   ibv_get_device_name(d)))
			json_array_append_new(
				json_object_get(device, "addresses"),
				json_pack("{s:s s:s}", "address", text, "interface", a->ifa_name));
}

static void add_addresses(json_t *devices)
{
	struct ifaddrs *all;

	if (getifaddrs(&all))
		return;
	for (struct ifaddrs *a = all; a; a = a->ifa_next)
		if (a->ifa_addr && (a->ifa_flags & IFF_UP) &&
		    (a->ifa_addr->sa_family == AF_INET || a->ifa_addr->sa_family == AF_INET6))
			add_address(devices, a);
	freeifaddrs(all);
}

static json_t *find_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	json_t *devices = json_array();

	for (struct ibv_device **d = list; d && *d; d++)
		json_array_append_new(devices, device_of(*d));
	add_addresses(devices);
	if (list)
		ibv_free_device_list(list);
	return json_pack("{s:s s:s s:o}", "version", STAG_VERSION, "library", dv.library, "devices",
			 devices);
}

/* ---- as text ----------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "?";
}

static void print_line(const char *label)
{
	printf("    %-16s", label);
}

static void print_words(const char *label, const json_t *list, const char *none)
{
	const json_t *word;
	size_t i;

	print_line(label);
	json_array_foreach (list, i, word)
		printf("%s%s", i ? ", " : "", json_string_value(word));
	puts(json_array_size(list) ? "" : none);
}

static void print_addresses(const json_t *list)
{
	const json_t *a;
	size_t i;

	json_array_foreach (list, i, a) {
		print_line(i ? "" : "addresses");
		printf("%s (%s)\n", text_of(a, "address"), text_of(a, "interface"));
	}
	if (!json_array_size(list)) {
		print_line("addresses");
		puts("none: the connection manager does not use this device");
	}
}

static void print_ports(const json_t *list)
{
	const json_t *p;
	size_t i;

	json_array_foreach (list, i, p) {
		print_line(i ? "" : "ports");
		printf("%d: %s, %s, MTU %d\n", (int)json_integer_value(json_object_get(p, "port")),
		       text_of(p, "state"), text_of(p, "link_layer"),
		       (int)json_integer_value(json_object_get(p, "mtu")));
	}
}

static void print_limits(json_t *limits)
{
	const size_t columns = 3;
	const char *key;
	json_t *value;
	size_t i = 0;

	json_object_foreach (limits, key, value) {
		if (i % columns == 0)
			print_line(i ? "" : "limits");
		printf("%s %" JSON_INTEGER_FORMAT, key + strlen("max_"), json_integer_value(value));
		i++;
		fputs(i == json_object_size(limits) || i % columns == 0 ? "\n" : ", ", stdout);
	}
}

static void print_requested(json_t *asks)
{
	json_t *list = json_array();
	const char *key;
	json_t *wanted;

	json_object_foreach (asks, key, wanted)
		if (json_is_true(wanted))
			json_array_append_new(list, json_string(key));
	print_words("asks peers for", list, "nothing");
	json_decref(list);
}

static void print_device(const json_t *d)
{
	printf("%s  (%s, %s, GUID %s)\n", text_of(d, "name"), text_of(d, "kind"),
	       text_of(d, "transport"), text_of(d, "guid"));
	if (json_object_get(d, "error")) {
		print_line("error");
		printf("cannot be opened: %s\n", text_of(d, "error"));
		return;
	}
	print_addresses(json_object_get(d, "addresses"));
	print_ports(json_object_get(d, "ports"));
	print_words("abilities", json_object_get(d, "abilities"), "none");
	print_line("atomics");
	puts(text_of(d, "atomics"));
	if (json_object_get(d, "crc32c")) {
		print_line("CRC32C");
		puts(text_of(d, "crc32c"));
		print_requested(json_object_get(d, "asks_peers_for"));
	}
	print_limits(json_object_get(d, "limits"));
}

static void print_text(const json_t *all)
{
	const json_t *device;
	size_t i;

	printf("stag %s, %s\n", text_of(all, "version"), text_of(all, "library"));
	if (!json_array_size(json_object_get(all, "devices")))
		puts("no devices");
	json_array_foreach (json_object_get(all, "devices"), i, device) {
		puts("");
		print_device(device);
	}
}

/* ---- the command ------------------------------------------------------- */

static int start_again(const char *chosen, bool as_json)
{
	char library[PATH_MAX];
	char *args[] = {"stag", "info", as_json ? "--json" : NULL, NULL};

	if (getenv(AGAIN)) {
		complain("%s was not loaded, or is not libstag-verbs", getenv(AGAIN));
		return EXIT_FAILED;
	}
	if (preload_find(chosen, library, sizeof(library)) || preload_set(library))
		return EXIT_FAILED;
	setenv(AGAIN, library, 1);
	setenv("STAG_DEVICE", "both", 0);
	execv("/proc/self/exe", args);
	complain("cannot execute stag again: %s", strerror(errno));
	return EXIT_FAILED;
}

static int show_devices(bool as_json)
{
	json_t *all = find_all();
	int rc = json_array_size(json_object_get(all, "devices")) ? EXIT_OK : EXIT_FAILED;

	if (as_json) {
		json_dumpf(all, stdout, JSON_INDENT(2));
		puts("");
	} else {
		print_text(all);
	}
	json_decref(all);
	return rc;
}

struct options {
	const char *library; /* NULL: the default */
	bool json;
};

static const struct cli_option info_options[] = {
	{"json", CLI_FLAG_AT(struct options, json), .help = "the same as a JSON document"},
	{"library", .value = "FILE", CLI_FILE_AT(struct options, library),
	 .help = "the libstag-verbs.so to load (default: STAG_LIB, or the one of this stag)"},
	{0},
};

static const struct cli_verb info_verb = {.name = ""};

static const struct cli_noun info_noun = {
	.call = "stag info",
	.name = "info",
	.summary = "show the RDMA devices, real and software",
	.about = "Shows the RDMA devices that programs find under 'stag run', real and software: "
		 "their addresses, ports, limits and abilities.",
	.examples = "stag info --json | jq '.devices[].name'",
	.verbs = &info_verb,
	.num_verbs = 1,
	.options = info_options,
};

static int run_info(const struct command *self, int argc, char **argv)
{
	struct options o = {0};
	struct cli_call call;
	int rc;

	if (!cli_parse(&info_noun, argc, argv, &o, &call, &rc))
		return rc;
	return find_library() ? show_devices(o.json) : start_again(o.library, o.json);
}

const struct command info_command = {.noun = &info_noun, .run = run_info};
