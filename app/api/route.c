// SPDX-License-Identifier: BSD-2-Clause
/*
 * route.c - the table of requests, and lookup in it (http.h). A test compares it with openapi.yaml.
 */
#include "http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "conf.h"

#define V1 "/api/v1"

/* ---- fields of bodies, besides the settings of a section ---------------------------------------- */

static const struct field no_fields[] = {{0}};

static const struct field pool_fields[] = {
	{"name", FIELD_NAME, .required = true, .help = "Name of the pool."},
	{0},
};

static const struct field switchover_fields[] = {
	{"to", FIELD_NAME, .help = "The next primary; without it, the pool chooses one."},
	{0},
};

static const struct field store_fields[] = {
	{"name", FIELD_NAME, .required = true, .help = "Name of the store."},
	{"format", FIELD_FLAG,
	 .help = "Format the store first, with size, block, label and force."},
	{"force", FIELD_FLAG, .help = "Format even if the path holds data, which is lost."},
	{0},
};

static const struct field check_fields[] = {
	{"repair", FIELD_FLAG, .help = "Rewrite a damaged copy of the table from the good one."},
	{0},
};
static const struct field grow_fields[] = {
	{"size", FIELD_SIZE, .help = "New size; without it, that of the file or device."},
	{0},
};

static const char *const levels[] = {"visible", "accepted", "durable", NULL};

#define PARTITION_SETTINGS(rights_help)                                                            \
	{"order", FIELD_TEXT,                                                                      \
	 .help = "Ordering rules that need not hold, as for stag store add: strict, any, or a "    \
		 "list."},                                                                         \
		{"level", FIELD_CHOICE, .words = levels,                                           \
		 .help = "When a write is complete: visible, accepted or durable."},               \
		{"cache_ms", FIELD_NUMBER, .most = UINT32_MAX,                                     \
		 .help = "How long data may stay in the cache, in milliseconds."},                 \
	{                                                                                          \
		"rights", FIELD_TEXTS, .schema = "Right", .help = rights_help                      \
	}

static const struct field partition_fields[] = {
	{"name", FIELD_NAME, .required = true, .help = "Name of the partition."},
	{"size", FIELD_SIZE, .required = true, .help = "Size of the partition."},
	{"offset", FIELD_SIZE, .help = "Offset in the store; without it, the first gap that fits."},
	{"alignment", FIELD_SIZE, .help = "Alignment of its offset."},
	PARTITION_SETTINGS("Rights to the partition."),
	{0},
};

static const struct field change_fields[] = {
	{"name", FIELD_NAME, .help = "New name."},
	{"size", FIELD_SIZE, .help = "New size."},
	PARTITION_SETTINGS("These rights replace the present ones."),
	{0},
};

static const struct field lun_fields[] = {
	{"lun", FIELD_NUMBER, .required = true, .most = CONF_LUN_MOST,
	 .help = "Number of the unit."},
	{"where", FIELD_TEXT, .required = true,
	 .help = "store:STORE/PARTITION, a partition of another store as PATH:PARTITION, or a file "
		 "or block device."},
	{"read_only", FIELD_FLAG, .help = "Refuse writes."},
	{"write_back", FIELD_FLAG, .help = "A write is durable only after a flush."},
	{"block", FIELD_NUMBER, .least = 512, .most = 4096, .help = "Block size: 512 or 4096."},
	{0},
};

static const struct field initiator_fields[] = {
	{"name", FIELD_NAME, .required = true, .help = "Name of the line, for people."},
	{"pattern", FIELD_TEXT, .required = true,
	 .help = "Name of an initiator, or a pattern with * and ?."},
	{"user", FIELD_TEXT, .help = "CHAP user that it logs in as; requires secret_file."},
	{"secret_file", FIELD_TEXT, .help = "File whose first line is that user's secret."},
	{"luns", FIELD_TEXT, .help = "Units that it sees, such as 0,2,8-15; without it, all."},
	{"read_only", FIELD_FLAG, .help = "It may only read."},
	{0},
};

static const struct field target_fields[] = {
	{"name", FIELD_NAME, .required = true, .help = "Name of the section."},
	{"luns", FIELD_OBJECTS, .fields = lun_fields, .schema = "NewLun",
	 .help = "Its logical units."},
	{"secret", FIELD_SECRET,
	 .help = "The secret of user, 12 characters or more, instead of secret_file: the daemon "
		 "keeps it in a file of its own."},
	{"initiators", FIELD_OBJECTS, .fields = initiator_fields, .schema = "NewInitiator",
	 .help = "Initiators that may log in; without it, all may."},
	{0},
};

static const struct field reap_fields[] = {
	{"shared", FIELD_FLAG, .help = "Also free shared allocations of processes that ended."},
	{0},
};

static const char *const roles[] = {"look", "operate", "administer", NULL};

static const struct field token_fields[] = {
	{"name", FIELD_NAME, .required = true, .help = "Name of the token."},
	{"role", FIELD_CHOICE, .required = true, .words = roles,
	 .help = "What its bearer may do: look, operate or administer."},
	{0},
};

/* ---- the routes ------------------------------------------------------------------------------- */

#define LOOK	   ROLE_LOOK
#define OPERATE	   ROLE_OPERATE
#define ADMINISTER ROLE_ADMINISTER

#define GET(path, name, queries) GET_AS(LOOK, path, name, queries)
#define GET_AS(role, path, name, queries)                                                          \
	{                                                                                          \
		METHOD_GET, path, ROUTE_##name, BODY_NONE, NULL, NULL, queries, role               \
	}
#define OPEN(path, name) GET_AS(ROLE_NONE, path, name, "")
#define POST(role, path, name, fields)                                                             \
	{                                                                                          \
		METHOD_POST, path, ROUTE_##name, BODY_JSON, fields, NULL, "", role                 \
	}
/* Creates a section of the INI file. */
#define CREATE(path, name, fields, section)                                                        \
	{                                                                                          \
		METHOD_POST, path, ROUTE_##name, BODY_JSON, fields, section, "", ADMINISTER        \
	}
#define DELETE(role, path, name, queries)                                                          \
	{                                                                                          \
		METHOD_DELETE, path, ROUTE_##name, BODY_NONE, NULL, NULL, queries, role            \
	}

const struct route routes[] = {
	OPEN(V1 "/health", health),
	GET(V1 "/status", status, ""),
	POST(OPERATE, V1 "/reload", reload, no_fields),
	GET(V1 "/daemons", daemons, ""),

	GET(V1 "/pools", pools, ""),
	CREATE(V1 "/pools", pool_create, pool_fields, &conf_pool_kind),
	GET(V1 "/pools/{pool}", pool, ""),
	DELETE(ADMINISTER, V1 "/pools/{pool}", pool_delete, "force"),
	POST(OPERATE, V1 "/pools/{pool}/switchover", pool_switchover, switchover_fields),
	DELETE(ADMINISTER, V1 "/pools/{pool}/nodes/{node}", pool_forget, ""),
	GET_AS(OPERATE, V1 "/pools/{pool}/values", values, "limit after match"),
	GET_AS(OPERATE, V1 "/pools/{pool}/values/{value}", value_get, ""),
	{METHOD_PUT, V1 "/pools/{pool}/values/{value}", ROUTE_value_put, BODY_BYTES, NULL, NULL, "",
	 OPERATE},
	DELETE(OPERATE, V1 "/pools/{pool}/values/{value}", value_delete, ""),

	GET(V1 "/stores", stores, ""),
	CREATE(V1 "/stores", store_create, store_fields, &conf_store_kind),
	GET(V1 "/stores/{store}", store, ""),
	DELETE(ADMINISTER, V1 "/stores/{store}", store_delete, ""),
	POST(OPERATE, V1 "/stores/{store}/check", store_check, check_fields),
	POST(ADMINISTER, V1 "/stores/{store}/grow", store_grow, grow_fields),
	GET(V1 "/stores/{store}/partitions", partitions, ""),
	POST(ADMINISTER, V1 "/stores/{store}/partitions", partition_create, partition_fields),
	GET(V1 "/stores/{store}/partitions/{partition}", partition, ""),
	{METHOD_PATCH, V1 "/stores/{store}/partitions/{partition}", ROUTE_partition_change,
	 BODY_JSON, change_fields, NULL, "", ADMINISTER},
	DELETE(ADMINISTER, V1 "/stores/{store}/partitions/{partition}", partition_delete, "force"),

	GET(V1 "/targets", targets, ""),
	CREATE(V1 "/targets", target_create, target_fields, &conf_target_kind),
	GET(V1 "/targets/{target}", target, ""),
	DELETE(ADMINISTER, V1 "/targets/{target}", target_delete, ""),
	GET(V1 "/targets/{target}/sessions", sessions, ""),
	GET(V1 "/targets/{target}/stags", stags, "limit"),
	POST(ADMINISTER, V1 "/targets/{target}/luns", lun_create, lun_fields),
	DELETE(ADMINISTER, V1 "/targets/{target}/luns/{lun}", lun_delete, ""),

	GET(V1 "/processes", processes, ""),
	GET(V1 "/processes/{pid}", process, ""),
	GET(V1 "/connections", connections, ""),
	GET(V1 "/regions", regions, ""),

	GET(V1 "/heaps", heaps, ""),
	GET(V1 "/heaps/{heap}", heap, "blocks check"),
	POST(OPERATE, V1 "/heaps/{heap}/reap", heap_reap, reap_fields),
	POST(OPERATE, V1 "/heaps/{heap}/trim", heap_trim, no_fields),
	DELETE(ADMINISTER, V1 "/heaps/{heap}", heap_delete, "force"),

	GET(V1 "/doctor", doctor, ""),
	GET(V1 "/events", events, "since limit"),
	GET(V1 "/events/stream", event_stream, "since"),
	GET(V1 "/history", history, "since"),
	GET_AS(ADMINISTER, V1 "/audit", audit, "since limit"),
	GET_AS(ADMINISTER, V1 "/tokens", tokens, ""),
	POST(ADMINISTER, V1 "/tokens", token_create, token_fields),
	DELETE(ADMINISTER, V1 "/tokens/{token}", token_revoke, ""),
	GET("/metrics", metrics, ""),
	OPEN("/openapi.json", openapi),
	OPEN("/", console),
	OPEN("/assets/{file}", asset),
};

const unsigned int num_routes = sizeof(routes) / sizeof(routes[0]);

/* ---- names --------------------------------------------------------------------------------------- */

static const char *const method_words[] = {"GET", "POST", "PUT", "PATCH", "DELETE"};

enum method method_of(const char *word)
{
	enum method m = METHOD_GET;

	if (strcmp(word, "HEAD") == 0)
		return METHOD_GET;
	while (m < METHOD_OTHER && strcmp(method_words[m], word) != 0)
		m++;
	return m;
}

const char *method_word(enum method method)
{
	return method < METHOD_OTHER ? method_words[method] : "?";
}

const char *route_word(enum route_name name)
{
#define ROUTE_WORD(word) #word,
	static const char *const words[] = {ROUTE_NAMES(ROUTE_WORD)};

	return words[name];
}

/* ---- lookup ----------------------------------------------------------------------------- */

/* Matches the segments against the path of a route, and stores the parameters in m. */
static bool path_matches(const char *path, const struct target *t, struct match *m)
{
	unsigned int params = 0, i = 0;

	for (path++; *path; i++) {
		size_t len = strcspn(path, "/");

		if (i == t->num_segments)
			return false;
		if (*path == '{')
			m->params[params++] = t->segments[i];
		else if (strlen(t->segments[i]) != len || memcmp(path, t->segments[i], len) != 0)
			return false;
		path += len + (path[len] == '/');
	}
	return i == t->num_segments;
}

static bool is_param(const char *path, const char *param)
{
	return strncmp(path, param, strlen(param)) == 0;
}

/* Accepts OWNER/NAME; stag_heap_attach(3) says which names are valid. */
static bool is_owned_name(const char *text)
{
	const char *slash = strchr(text, '/');

	for (const char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f || *p == '\\')
			return false;
	return slash && slash > text && slash[1] && slash[1] != '.' && !strchr(slash + 1, '/') &&
	       utf8_is_valid(text, strlen(text));
}

/* Refuses unusual characters in parameters; only a value's name may have them, and a heap's name its owner. */
static int check_params(const struct route *r, const struct target *t, struct fault *f)
{
	const char *path = r->path + 1;

	for (unsigned int i = 0; i < t->num_segments; i++) {
		if (t->odd[i] && !is_param(path, "{value}") &&
		    !(is_param(path, "{heap}") && is_owned_name(t->segments[i])))
			return fault_set(
				f, 400, "bad_path", NULL,
				"a name in the path contains a slash, a control character or "
				"invalid UTF-8");
		path += strcspn(path, "/");
		path += *path == '/';
	}
	return 0;
}

static bool has_word(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (; *words; words += strcspn(words, " "), words += *words == ' ')
		if (strncmp(words, word, len) == 0 && (words[len] == ' ' || !words[len]))
			return true;
	return false;
}

static int check_queries(const struct route *r, const struct target *t, struct fault *f)
{
	for (unsigned int i = 0; i < t->num_queries; i++)
		if (!has_word(r->queries, t->queries[i].name))
			return fault_set(f, 400, "bad_query", NULL,
					 "%s has no query parameter '%.40s'%s%s", r->path,
					 t->queries[i].name, *r->queries ? "; it has: " : "",
					 r->queries);
	return 0;
}

static void add_allowed(char *allow, size_t size, enum method method)
{
	size_t len = strlen(allow);

	snprintf(allow + len, size - len, "%s%s%s", len ? ", " : "", method_word(method),
		 method == METHOD_GET ? ", HEAD" : "");
}

int route_find(const struct target *t, enum method method, struct match *m, struct fault *f)
{
	char allow[sizeof(f->allow)] = "";

	for (unsigned int i = 0; i < num_routes; i++) {
		*m = (struct match){.route = &routes[i]};
		if (!path_matches(routes[i].path, t, m))
			continue;
		if (routes[i].method == method)
			return check_params(m->route, t, f) ?: check_queries(m->route, t, f);
		add_allowed(allow, sizeof(allow), routes[i].method);
	}
	m->route = NULL;
	if (!*allow)
		return fault_set(f, 404, "no_such_path", "GET /openapi.json lists every path",
				 "there is no such path");
	fault_set(f, 405, "wrong_method", NULL, "this path supports %s", allow);
	snprintf(f->allow, sizeof(f->allow), "%s", allow);
	return -EBADMSG;
}
