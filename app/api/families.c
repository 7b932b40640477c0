// SPDX-License-Identifier: BSD-2-Clause
/*
 * families.c - the metrics: one table, from which /metrics and the dashboard for Grafana are made.
 *
 * Pure data: metrics.c finds the numbers, dashboard.c plots them.
 */
#include "families.h"

#include <stddef.h>

static const struct metric_source daemons = {NULL, NULL, {NULL}, "Daemons", "daemon"};
static const struct metric_source apis = {NULL, "api", {NULL}, "Management API", "daemon"};
static const struct metric_source pools = {
	"pools", NULL, {"name", "node", NULL}, "Pools, at each node", "pool,node"};
static const struct metric_source roles = {
	"pools", NULL, {"name", "node", NULL}, "Pools, at each node", "pool,node,role"};
static const struct metric_source watches = {
	"watches", NULL, {"name", NULL}, "Pools that are watched", "pool"};
static const struct metric_source stores = {"stores", NULL, {"name", NULL}, "Stores", "store"};
static const struct metric_source store_counters = {
	"stores", "counters", {"name", NULL}, "Stores", "store"};
static const struct metric_source targets = {
	"targets", "counters", {"name", NULL}, "Block targets", "target"};
static const struct metric_source adapters = {
	NULL, NULL, {NULL}, "Processes with the adapter", "program,pid"};
static const struct metric_source all_adapters = {
	NULL, NULL, {NULL}, "Processes with the adapter", "op"};

const struct metric_family metric_numbers[] = {
	{&daemons, "uptime_s", "stag_uptime_seconds", "gauge",
	 "Seconds since the daemon was started."},
	{&apis, "requests", "stag_api_requests_total", "counter",
	 "Requests to the management API."},
	{&apis, "refused", "stag_api_refused_total", "counter",
	 "Requests to the management API that were answered with an error."},
	{&apis, "connections", "stag_api_connections", "gauge",
	 "Open connections to the management API."},

	{&pools, "epoch", "stag_pool_epoch", "gauge", "Epoch of the pool as known to this node."},
	{&pools, "number", "stag_pool_record_number", "gauge", "Number of the node's last record."},
	{&pools, "lag", "stag_pool_lag_records", "gauge",
	 "Records that the slowest standby is behind; on a primary."},
	{&pools, "size", "stag_pool_size_bytes", "gauge", "Memory of the pool."},
	{&pools, "used", "stag_pool_used_bytes", "gauge", "Memory of the pool that is not free."},
	{&pools, "objects", "stag_pool_objects", "gauge", "Values in the pool."},
	{&pools, "names", "stag_pool_names", "gauge", "Values in the pool that have names."},
	{&pools, "clients", "stag_pool_clients", "gauge", "Clients that are known to the node."},
	{&pools, "changes", "stag_pool_changes_total", "counter",
	 "Changes that the node carried out."},
	{&pools, "reads", "stag_pool_asked_reads_total", "counter",
	 "Reads that the node did for clients that could not read the memory themselves."},
	{&pools, "records", "stag_pool_records_total", "counter", "Records sent to each standby."},
	{&pools, "record_bytes", "stag_pool_record_bytes_total", "counter",
	 "Bytes of records sent to each standby."},
	{&pools, "mirrored_bytes", "stag_pool_mirrored_bytes_total", "counter",
	 "Bytes of values that the adapter forwarded."},
	{&pools, "promotions", "stag_pool_promotions_total", "counter",
	 "Times that the node became primary."},
	{&pools, "lapses", "stag_pool_lapses_total", "counter",
	 "Times that the node's lease expired."},
	{&pools, "resyncs", "stag_pool_resyncs_total", "counter",
	 "Times that a standby was resynchronised."},
	{&pools, "refused", "stag_pool_refused_total", "counter",
	 "Connections whose authentication failed."},
	{&pools, "limited", "stag_pool_limited_total", "counter",
	 "Connection requests that were refused unread: too many in a second."},
	{&pools, "paused", "stag_pool_clients_paused", "gauge",
	 "Clients whose requests wait because they do not take their answers."},
	{&pools, "pauses", "stag_pool_client_pauses_total", "counter",
	 "Times that a client was paused because it did not take its answers."},
	{&pools, "evicted", "stag_pool_clients_evicted_total", "counter",
	 "Clients that were disconnected: too slow, or against the protocol."},
	{&pools, "slots", "stag_pool_client_slots", "gauge",
	 "Clients whose last changes are remembered."},
	{&pools, "max_slots", "stag_pool_client_slots_max", "gauge",
	 "Clients whose last changes can be remembered."},
	{&pools, "reclaimed", "stag_pool_client_slots_reclaimed_total", "counter",
	 "Clients that were forgotten because others needed the room."},

	{&watches, "epoch", "stag_watched_pool_epoch", "gauge", "Epoch of a pool that is watched."},
	{&watches, "number", "stag_watched_pool_record_number", "gauge",
	 "Number of the last record of a pool that is watched."},
	{&watches, "lag", "stag_watched_pool_lag_records", "gauge",
	 "Records that the slowest standby of a watched pool is behind."},
	{&watches, "used", "stag_watched_pool_used_bytes", "gauge",
	 "Memory of a watched pool that is not free."},
	{&watches, "objects", "stag_watched_pool_objects", "gauge", "Values in a watched pool."},

	{&stores, "size", "stag_store_size_bytes", "gauge", "Size of the store."},
	{&stores, "used", "stag_store_used_bytes", "gauge", "Bytes of the store in partitions."},
	{&stores, "copies", "stag_store_table_copies", "gauge",
	 "Intact copies of the store's table; fewer than 2 mean damage."},
	{&store_counters, "reads", "stag_store_reads_total", "counter", "Reads of the store."},
	{&store_counters, "writes", "stag_store_writes_total", "counter", "Writes to the store."},
	{&store_counters, "flushes", "stag_store_flushes_total", "counter",
	 "Flushes of the store."},
	{&store_counters, "atomics", "stag_store_atomics_total", "counter",
	 "Atomic operations on the store."},
	{&store_counters, "read_bytes", "stag_store_read_bytes_total", "counter",
	 "Bytes read from the store."},
	{&store_counters, "written_bytes", "stag_store_written_bytes_total", "counter",
	 "Bytes written to the store."},
	{&store_counters, "errors", "stag_store_errors_total", "counter",
	 "Operations on the store that failed."},
	{&store_counters, "cache_hits", "stag_store_cache_hits_total", "counter",
	 "Reads that the store's cache served completely."},
	{&store_counters, "cache_misses", "stag_store_cache_misses_total", "counter",
	 "Reads that the store's cache could not serve completely."},
	{&store_counters, "connections", "stag_store_connections", "gauge",
	 "Clients connected to the store's server."},
	{&store_counters, "refused", "stag_store_refused_total", "counter",
	 "Requests to connect that the store's server refused."},
	{&store_counters, "evicted", "stag_store_evicted_total", "counter",
	 "Clients that the store's server disconnected because they took no answers."},

	{&targets, "commands", "stag_target_commands_total", "counter", "Commands to the target."},
	{&targets, "reads", "stag_target_reads_total", "counter", "Reads of the target."},
	{&targets, "writes", "stag_target_writes_total", "counter", "Writes to the target."},
	{&targets, "errors", "stag_target_errors_total", "counter",
	 "Commands that ended with a status other than GOOD."},
	{&targets, "read_bytes", "stag_target_read_bytes_total", "counter",
	 "Bytes read from the target."},
	{&targets, "written_bytes", "stag_target_written_bytes_total", "counter",
	 "Bytes written to the target."},
	{&targets, "logins", "stag_target_logins_total", "counter", "Logins to the target."},
	{&targets, "lost", "stag_target_lost_total", "counter", "Connections that were lost."},
	{&targets, "violations", "stag_target_violations_total", "counter",
	 "Violations of the protocol by initiators."},
	{&targets, "refused", "stag_target_refused_total", "counter",
	 "Logins that were refused, or not completed in time."},
	{&targets, "evicted", "stag_target_evicted_total", "counter",
	 "Sessions that were evicted: the initiator moved no data, or did not answer."},
	{&targets, "stags_open", "stag_target_stags_open", "gauge",
	 "STags that initiators lend to the target now."},
	{0},
};

const struct metric_family metric_role = {
	&roles,
	NULL,
	"stag_pool_role",
	"gauge",
	"Role of the node: 1 for its role, 0 for the others.",
};

const struct metric_family metric_times[] = {
	{&pools, "change", "stag_pool_change_seconds", "histogram", "Time to carry out a change."},
	{&pools, "replication", "stag_pool_replication_seconds", "histogram",
	 "Time from a record to its acknowledgement by all standbys in sync."},
	{&stores, "read", "stag_store_read_seconds", "histogram", "Time of a read of the store."},
	{&stores, "write", "stag_store_write_seconds", "histogram",
	 "Time of a write to the store."},
	{&stores, "flush", "stag_store_flush_seconds", "histogram",
	 "Time of a flush of the store."},
	{&targets, "read", "stag_target_read_seconds", "histogram",
	 "Time of a read of the target."},
	{&targets, "write", "stag_target_write_seconds", "histogram",
	 "Time of a write to the target."},
	{0},
};

/* Samples for each process that has loaded the adapter. */
const struct metric_family metric_adapter[] = {
	{&adapters, "tx_bytes", "stag_adapter_tx_bytes_total", "counter",
	 "Bytes sent, headers included."},
	{&adapters, "rx_bytes", "stag_adapter_rx_bytes_total", "counter",
	 "Bytes received, headers included."},
	{&adapters, "tx_msgs", "stag_adapter_tx_messages_total", "counter", "RDMAP messages sent."},
	{&adapters, "rx_msgs", "stag_adapter_rx_messages_total", "counter",
	 "RDMAP messages received."},
	{&adapters, "posts", "stag_adapter_posts_total", "counter",
	 "Work requests posted to send queues."},
	{&adapters, "completions", "stag_adapter_completions_total", "counter",
	 "Work completions delivered."},
	{&adapters, "crc_errors", "stag_adapter_crc_errors_total", "counter",
	 "Frames with a wrong CRC."},
	{&adapters, "terminates_sent", "stag_adapter_terminates_sent_total", "counter",
	 "Terminate messages sent."},
	{&adapters, "terminates_received", "stag_adapter_terminates_received_total", "counter",
	 "Terminate messages received."},
	{0},
};

/* Samples for all these processes together. */
const struct metric_family metric_adapter_times = {
	&all_adapters,
	NULL,
	"stag_adapter_latency_seconds",
	"histogram",
	"Time of a work request, from post to completion; sampled.",
};
