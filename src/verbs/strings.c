// SPDX-License-Identifier: BSD-2-Clause
/* strings.c - names for the numbers of verbs, for people who read a log. */
#include "verbs/verbs.h"

#define WORD_FOR(table, i)                                                                         \
	((size_t)(i) < sizeof(table) / sizeof((table)[0]) && (table)[i] ? (table)[i] : "unknown")

STAG_EXPORT const char *ibv_node_type_str(enum ibv_node_type type)
{
	static const char *const words[] = {
		[IBV_NODE_CA] = "InfiniBand channel adapter",
		[IBV_NODE_SWITCH] = "InfiniBand switch",
		[IBV_NODE_ROUTER] = "InfiniBand router",
		[IBV_NODE_RNIC] = "iWARP NIC",
		[IBV_NODE_USNIC] = "usNIC",
		[IBV_NODE_USNIC_UDP] = "usNIC UDP",
		[IBV_NODE_UNSPECIFIED] = "unspecified",
	};

	return WORD_FOR(words, type);
}

STAG_EXPORT const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const words[] = {
		[IBV_PORT_NOP] = "no state change (NOP)",
		[IBV_PORT_DOWN] = "down",
		[IBV_PORT_INIT] = "init",
		[IBV_PORT_ARMED] = "armed",
		[IBV_PORT_ACTIVE] = "active",
		[IBV_PORT_ACTIVE_DEFER] = "active defer",
	};

	return WORD_FOR(words, state);
}

STAG_EXPORT const char *ibv_event_type_str(enum ibv_event_type event)
{
	static const char *const words[] = {
		[IBV_EVENT_CQ_ERR] = "completion queue error",
		[IBV_EVENT_QP_FATAL] = "queue pair failed",
		[IBV_EVENT_QP_REQ_ERR] = "invalid request on a queue pair",
		[IBV_EVENT_QP_ACCESS_ERR] = "access violation on a queue pair",
		[IBV_EVENT_COMM_EST] = "communication established",
		[IBV_EVENT_SQ_DRAINED] = "send queue drained",
		[IBV_EVENT_PATH_MIG] = "path migrated",
		[IBV_EVENT_PATH_MIG_ERR] = "path migration failed",
		[IBV_EVENT_DEVICE_FATAL] = "device failed",
		[IBV_EVENT_PORT_ACTIVE] = "port active",
		[IBV_EVENT_PORT_ERR] = "port error",
		[IBV_EVENT_LID_CHANGE] = "LID changed",
		[IBV_EVENT_PKEY_CHANGE] = "P_Key table changed",
		[IBV_EVENT_SM_CHANGE] = "subnet manager changed",
		[IBV_EVENT_SRQ_ERR] = "shared receive queue error",
		[IBV_EVENT_SRQ_LIMIT_REACHED] = "shared receive queue below its limit",
		[IBV_EVENT_QP_LAST_WQE_REACHED] = "last receive of a queue pair taken",
		[IBV_EVENT_CLIENT_REREGISTER] = "clients must register again",
		[IBV_EVENT_GID_CHANGE] = "GID table changed",
		[IBV_EVENT_WQ_FATAL] = "work queue failed",
	};

	return WORD_FOR(words, event);
}

STAG_EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const words[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local queue pair operation error",
		[IBV_WC_LOC_EEC_OP_ERR] = "local end-to-end context operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "work request flushed",
		[IBV_WC_MW_BIND_ERR] = "memory window bind error",
		[IBV_WC_BAD_RESP_ERR] = "bad response",
		[IBV_WC_LOC_ACCESS_ERR] = "local access error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote: invalid request",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retries exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "receiver-not-ready retries exceeded",
		[IBV_WC_LOC_RDD_VIOL_ERR] = "local reliable datagram domain violation",
		[IBV_WC_REM_INV_RD_REQ_ERR] = "remote: invalid reliable datagram request",
		[IBV_WC_REM_ABORT_ERR] = "aborted by the remote side",
		[IBV_WC_INV_EECN_ERR] = "invalid end-to-end context number",
		[IBV_WC_INV_EEC_STATE_ERR] = "invalid end-to-end context state",
		[IBV_WC_FATAL_ERR] = "fatal error",
		[IBV_WC_RESP_TIMEOUT_ERR] = "response timed out",
		[IBV_WC_GENERAL_ERR] = "general error",
		[IBV_WC_TM_ERR] = "tag matching error",
		[IBV_WC_TM_RNDV_INCOMPLETE] = "tag matching: rendezvous incomplete",
	};

	return WORD_FOR(words, status);
}
