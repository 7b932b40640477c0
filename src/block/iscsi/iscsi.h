/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * iscsi.h - iSCSI's data structures (RFC 7143, 7144, 7145): PDUs, text, keys, CHAP, iSER headers, keys of TLS. The index of this room.
 *
 * Pure functions over buffers: no sockets, locks or malloc. They decode and encode, and negotiate keys; the sessions of target/
 * and initiator/ act on the results.
 *
 * Words:
 *   BHS, AHS   basic header segment, the first 48 bytes of a PDU; additional header segment, which may follow
 *   ITT, TTT   initiator task tag, target transfer tag
 *   ISID, TSIH the initiator's and the target's part of a session's identifier
 */
#ifndef STAG_BLOCK_ISCSI_H
#define STAG_BLOCK_ISCSI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dv/private_data.h"

/* ---- pdu.c ------------------------------------------------------------------- */

#define BHS_LEN	   48
#define AHS_MAX	   1020 /* TotalAHSLength is one byte of four-byte words */
#define DATA_MAX   0xffffffu
#define DIGEST_LEN 4
#define TAG_NONE   0xffffffffu
#define ISID_LEN   6

enum pdu_opcode {
	NOP_OUT = 0x00,
	SCSI_COMMAND = 0x01,
	TASK_REQUEST = 0x02,
	LOGIN_REQUEST = 0x03,
	TEXT_REQUEST = 0x04,
	DATA_OUT = 0x05,
	LOGOUT_REQUEST = 0x06,
	SNACK_REQUEST = 0x10,
	NOP_IN = 0x20,
	SCSI_RESPONSE = 0x21,
	TASK_RESPONSE = 0x22,
	LOGIN_RESPONSE = 0x23,
	TEXT_RESPONSE = 0x24,
	DATA_IN = 0x25,
	LOGOUT_RESPONSE = 0x26,
	R2T = 0x31,
	ASYNC_MESSAGE = 0x32,
	REJECT = 0x3f,
};

/* Byte 1. PDU_FINAL applies to all opcodes, the others to some. */
enum pdu_flag {
	PDU_FINAL = 0x80,
	PDU_CONTINUE = 0x40,   /* login, text: the list continues in the next PDU */
	CMD_READ = 0x40,       /* SCSI command */
	CMD_WRITE = 0x20,      /* SCSI command */
	RES_BIDI_OVER = 0x10,  /* SCSI response */
	RES_BIDI_UNDER = 0x08, /* SCSI response */
	RES_OVER = 0x04,       /* SCSI response, Data-In */
	RES_UNDER = 0x02,      /* SCSI response, Data-In */
	DATA_ACK = 0x40,       /* Data-In */
	DATA_STATUS = 0x01,    /* Data-In: carries the status, instead of a response */
	LOGIN_TRANSIT = 0x80,  /* login */
};

enum login_stage { STAGE_SECURITY, STAGE_OPERATIONAL, STAGE_NONE, STAGE_FULL };

/* Stages in a login PDU's flags. */
#define LOGIN_CSG(flags)       ((enum login_stage)((flags) >> 2 & 3))
#define LOGIN_NSG(flags)       ((enum login_stage)((flags)&3))
#define LOGIN_STAGES(csg, nsg) ((uint8_t)((csg) << 2 | (nsg)))

/* The fields of all PDUs; pdu.c has those of each opcode. The others are zero. */
struct pdu {
	uint8_t opcode; /* enum pdu_opcode */
	bool immediate;
	uint8_t flags; /* enum pdu_flag, and small numbers of some opcodes: stages, function, reason, SNACK type */
	uint8_t code;	/* byte 2: response, reason of a reject, Version-max of a login */
	uint8_t status; /* byte 3: SCSI status; Version-min or -active of a login */
	uint32_t ahs_len, data_len;
	uint64_t lun;
	uint8_t isid[ISID_LEN];
	uint16_t tsih, cid;
	uint32_t itt, ttt;
	uint32_t expected; /* Expected Data Transfer Length of a command */
	uint32_t ref_tag, ref_cmd_sn;
	uint32_t cmd_sn, exp_stat_sn;		  /* from initiators */
	uint32_t stat_sn, exp_cmd_sn, max_cmd_sn; /* from targets */
	uint32_t data_sn;			  /* also R2TSN, ExpDataSN */
	uint32_t offset, length;		  /* of data and R2Ts; also BegRun and RunLength */
	uint32_t residual, bidi_residual;
	uint8_t status_class, status_detail; /* of a login */
	uint8_t event, vcode;		     /* of an asynchronous message */
	uint16_t param[3]; /* Parameter1 to 3; in a logout response: Time2Wait, Time2Retain */
	uint8_t cdb[16];
};

/* Encodes the BHS, with data_len and ahs_len as they are. */
void iscsi_pdu_encode(const struct pdu *p, uint8_t bhs[BHS_LEN]);
/* Returns 0, or -EPROTO if there is no such opcode. */
int iscsi_pdu_decode(const uint8_t bhs[BHS_LEN], struct pdu *p);
const char *iscsi_pdu_name(uint8_t opcode);
bool iscsi_pdu_from_initiator(uint8_t opcode);
/* Returns the lengths of AHS and data that follow a BHS, without digests and padding. */
void iscsi_pdu_lengths(const uint8_t bhs[BHS_LEN], uint32_t *ahs, uint32_t *data);

static inline uint32_t iscsi_pdu_pad(uint32_t len)
{
	return -len & 3;
}

/*
 * Iterates over additional header segments: type and contents, without reserved byte and padding. *at begins with 0. Returns 1,
 * 0 at the end, or -EPROTO if a segment exceeds the total length.
 */
struct ahs {
	uint8_t type; /* AHS_CDB, AHS_READ_LENGTH */
	const uint8_t *bytes;
	uint32_t len;
};
enum { AHS_CDB = 1, AHS_READ_LENGTH = 2 };
int iscsi_ahs_next(const uint8_t *all, uint32_t len, uint32_t *at, struct ahs *out);

/* RFC 7143 §11.9.1, §11.13.5, §11.14.1, §11.15.1, §11.17.1 */
enum async_event {
	ASYNC_SCSI,
	ASYNC_LOGOUT,
	ASYNC_DROP_CONNECTION,
	ASYNC_DROP_SESSION,
	ASYNC_NEGOTIATE,
};
enum task_outcome {
	TASK_FUNCTION_COMPLETE,
	TASK_NO_TASK,
	TASK_NO_LUN,
	TASK_STILL_ALLEGIANT,
	TASK_NO_REASSIGNMENT,
	TASK_NOT_SUPPORTED,
	TASK_NOT_AUTHORIZED,
	TASK_REJECTED = 255,
};
enum logout_reason { LOGOUT_SESSION, LOGOUT_CONNECTION, LOGOUT_RECOVERY };
enum logout_outcome { LOGOUT_DONE, LOGOUT_NO_CID, LOGOUT_NO_RECOVERY, LOGOUT_FAILED };
enum reject_reason {
	REJECT_DATA_DIGEST = 2,
	REJECT_SNACK,
	REJECT_PROTOCOL,
	REJECT_NOT_SUPPORTED,
	REJECT_TOO_MANY_IMMEDIATE,
	REJECT_TASK_IN_PROGRESS,
	REJECT_INVALID_ACK,
	REJECT_INVALID_FIELD,
	REJECT_NO_RESOURCES,
	REJECT_NEGOTIATION_RESET,
	REJECT_WAITING_FOR_LOGOUT,
};

/* Class and detail, RFC 7143 §11.13.5. */
enum login_status {
	LOGIN_OK = 0,
	LOGIN_INITIATOR_ERROR = 0x0200,
	LOGIN_AUTHENTICATION_FAILED,
	LOGIN_FORBIDDEN,
	LOGIN_NOT_FOUND,
	LOGIN_REMOVED,
	LOGIN_BAD_VERSION,
	LOGIN_TOO_MANY_CONNECTIONS,
	LOGIN_MISSING_PARAMETER,
	LOGIN_NOT_INCLUDED,
	LOGIN_NO_SESSION_TYPE,
	LOGIN_NO_SESSION,
	LOGIN_INVALID_REQUEST,
	LOGIN_TARGET_ERROR = 0x0300,
	LOGIN_UNAVAILABLE,
	LOGIN_NO_RESOURCES,
};
const char *iscsi_login_status_name(enum login_status s);

/* ---- iser.c: RFC 7145 --------------------------------------------------------- */

#define ISER_LEN 28

/* The memory that a send lends: for a write the target reads it, for a read it writes to it. */
struct iser {
	bool write, read; /* which of the two are present */
	uint32_t write_stag, read_stag;
	uint64_t write_base, read_base;
};
/* Returns -EPROTO if it is not the iSER header of a PDU. */
int iscsi_iser_decode(const uint8_t *bytes, size_t len, struct iser *h);
void iscsi_iser_encode(const struct iser *h, uint8_t bytes[ISER_LEN]);

/*
 * Private data of a connection, in both directions: byte 0 has the flags below, as in Linux and libiscsi; three bytes
 * are zero. A side that supports one-shot appends "StB1". If both did, and the adapters agreed on an encoding
 * (stagdv_query_qp()), sends have no iSER header: the PDU is the whole body, the STag is the advertised one, and byte 0
 * of the command's data is at address 0 of its memory. Otherwise the connection uses iSER.
 */
#define ISER_HELLO_MAX 8
_Static_assert(ISER_HELLO_MAX <= PRIVATE_IN_REQUEST, "private data");
enum { ISER_NO_ZBVA = 0x80, ISER_NO_INVALIDATE = 0x40 };
struct iser_hello {
	bool invalidates; /* accepts Send with Invalidate for its STags */
	bool one_shot;
};
size_t iscsi_iser_hello_make(const struct iser_hello *h, uint8_t bytes[ISER_HELLO_MAX]);
void iscsi_iser_hello_read(const uint8_t *bytes, size_t len, struct iser_hello *h);

/* A parsed send: its PDU, and the memory that it lends. The pointers point into the send. */
struct arrival {
	struct pdu pdu;
	const uint8_t *bhs, *ahs, *data;
	bool decoded; /* pdu is valid; else the opcode is unknown */
	struct iser lent;
};
/*
 * Parses a send. headed: it begins with an iSER header, which sets a->lent; else the caller sets that. Returns NULL, or
 * a text that says what is wrong.
 */
const char *iscsi_iser_parse(const uint8_t *bytes, uint32_t len, bool headed, struct arrival *a);

/* ---- text.c: lists of key=value ------------------------------------------------ */

#define TEXT_KEY_MAX   63
#define TEXT_VALUE_MAX 8192  /* of large binary values; others have at most 255 */
#define TEXT_MAX       16384 /* of a list, in all its PDUs together */

/* A list that is being received, from one or more PDUs. */
struct text_in {
	uint32_t len;
	char bytes[TEXT_MAX + 1];
};

/* Appends the data of a PDU. Returns -EMSGSIZE if the list becomes too long. */
int iscsi_text_collect(struct text_in *t, const void *data, uint32_t len);
/*
 * Iterates over pairs, which point into the list; *at begins with 0. Returns 1, 0 at the end, or -EPROTO for a malformed pair.
 */
int iscsi_text_next(struct text_in *t, uint32_t *at, const char **key, const char **value);

/* A list that is being built. full: a pair did not fit. */
struct text_out {
	uint32_t len;
	bool full;
	char bytes[TEXT_MAX];
};
void iscsi_text_add(struct text_out *t, const char *key, const char *value);
void iscsi_text_addf(struct text_out *t, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

bool iscsi_text_number(const char *s, uint64_t *out); /* decimal, or hexadecimal with 0x */
bool iscsi_text_bool(const char *s, bool *out);	      /* Yes, No */
/* Returns whether word is in a comma-separated list. */
bool iscsi_text_list_has(const char *list, const char *word);
/* Decodes a binary value, 0x... or 0b... (base64). Returns its length, -EINVAL or -EMSGSIZE. */
int iscsi_text_binary(const char *s, uint8_t *out, size_t size);
/* Writes 0x, 2 * len digits and a final zero. */
void iscsi_text_hex(const uint8_t *bytes, size_t len, char *out);
bool iscsi_text_is_name(const char *s); /* an iSCSI name: iqn., eui. or naa., RFC 7143 §4.2.7 */

/* ---- keys.c: negotiation --------------------------------------------------------- */

enum digest { DIGEST_NONE, DIGEST_CRC32C };

/* RFC 7143 §13, RFC 7144 §7, RFC 7145 §6. */
struct keys {
	uint32_t header_digest, data_digest; /* enum digest */
	uint32_t max_connections;
	uint32_t initial_r2t, immediate_data; /* booleans are 0 or 1 */
	uint32_t peer_recv_max;		      /* MaxRecvDataSegmentLength of the peer */
	uint32_t max_burst, first_burst;
	uint32_t time2wait, time2retain;
	uint32_t max_r2t;
	uint32_t pdu_in_order, sequence_in_order;
	uint32_t recovery_level;
	uint32_t task_reporting; /* RFC3720 only */
	uint32_t protocol_level;
	uint32_t if_marker, of_marker;
	uint32_t rdma_extensions, target_recv, initiator_recv, max_unexpected, max_ahs,
		tagged_for_solicited, hello_required;
};

/* The values that a side prefers; the ranges of the RFCs apply besides. */
struct key_wishes {
	struct keys keys;
	uint32_t own_recv_max; /* MaxRecvDataSegmentLength that this side declares */
	bool rdma;	       /* the keys of RFC 7145 are supported, digests are not */
};

enum key_verdict {
	KEY_ANSWERED, /* the answer, if one is due, is in out */
	KEY_UNKNOWN,  /* not an operational key: the caller handles it, or answers NotUnderstood */
	KEY_REPEATED, /* a second time in one negotiation: a protocol error */
	KEY_WRONG_TIME, /* can be negotiated during login only */
};

/* A negotiation: the values agreed so far, and the keys that were used. */
struct negotiation {
	const struct key_wishes *wishes;
	struct keys agreed;
	uint64_t seen;	  /* keys that the peer sent: one bit each */
	uint64_t offered; /* keys offered by this side and not answered yet */
	bool discovery;
	bool full;     /* in full feature phase, where few keys may change */
	bool declared; /* this side has declared its MaxRecvDataSegmentLength */
};

void iscsi_keys_begin(struct negotiation *n, const struct key_wishes *wishes);
/* Handles a key that the peer offers or declares: sets the agreed value, and adds the answer to out. */
enum key_verdict iscsi_keys_receive(struct negotiation *n, const char *key, const char *value,
				    struct text_out *out);
/* Adds the keys that this side declares of its own accord, once. */
void iscsi_keys_declare(struct negotiation *n, struct text_out *out);
/* Offers all preferred values, and adds the declarations. */
void iscsi_keys_offer(struct negotiation *n, struct text_out *out);
/*
 * Handles a key that the peer answers, offers or declares: sets the agreed value, and adds an answer if one is due.
 * Returns -EPROTO if it is not a legal answer.
 */
int iscsi_keys_answered(struct negotiation *n, const char *key, const char *value,
			struct text_out *out);
/* Adjusts values that depend on other keys: FirstBurstLength. */
void iscsi_keys_conclude(struct negotiation *n);

/* ---- chap.c: RFC 1994, 7143 §12.1.3 -------------------------------------------------- */

#define CHAP_MAX_DIGEST	   32
#define CHAP_CHALLENGE_LEN 32
#define CHAP_MAX_CHALLENGE 1024
#define CHAP_MIN_SECRET	   12 /* bytes; 96 bits */

enum chap_algorithm { CHAP_NONE = 0, CHAP_MD5 = 5, CHAP_SHA256 = 7 };

/* Returns the strongest supported algorithm of a list like "5,7", or CHAP_NONE. */
enum chap_algorithm iscsi_chap_choose(const char *list);
size_t iscsi_chap_digest_len(enum chap_algorithm a);
/* Computes H(id, secret, challenge). Returns -EIO if libcrypto refuses, as it does for MD5 in FIPS mode. */
int iscsi_chap_respond(enum chap_algorithm a, uint8_t id, const char *secret,
		       const uint8_t *challenge, size_t len, uint8_t out[CHAP_MAX_DIGEST]);
/* Compares in constant time. */
bool iscsi_chap_verify(enum chap_algorithm a, uint8_t id, const char *secret,
		       const uint8_t *challenge, size_t len, const uint8_t *response,
		       size_t response_len);
/* Makes a random challenge and its id. Returns -EIO without random bytes. */
int iscsi_chap_challenge(uint8_t *id, uint8_t challenge[CHAP_CHALLENGE_LEN]);

/* ---- tls.c: connections encrypted by a CHAP user's secret ----------------------------- */

#define ISCSI_TLS_KEY_LEN      32
#define ISCSI_TLS_IDENTITY_LEN 129 /* with its zero byte, as in src/tls */
#define ISCSI_TLS_HELLO_MAX                                                                        \
	4096 /* bytes of a first message that is looked into; ours are shorter */

/* A pre-shared key. Its identity is "iscsi:USER" or "rdma:USER": what the connection carries, and whose it is. */
struct iscsi_tls_key {
	char identity[ISCSI_TLS_IDENTITY_LEN];
	uint8_t key[ISCSI_TLS_KEY_LEN];
};

/* Makes both keys of a user. Takes about a millisecond. Returns 0, -ENAMETOOLONG, or -EIO if libcrypto refuses. */
int iscsi_tls_keys(const char *user, const char *secret, struct iscsi_tls_key *iscsi,
		   struct iscsi_tls_key *rdma);
const char *iscsi_tls_user(const char *identity); /* returns the user in it */

/*
 * Tells what a TLS connection carries from its first bytes. SHORT: *wanted bytes are needed. ISCSI: PDUs, by a key
 * "iscsi:...". OTHER: something else, or by another key, or no valid message.
 */
enum iscsi_tls_hello { TLS_HELLO_SHORT, TLS_HELLO_ISCSI, TLS_HELLO_OTHER };
enum iscsi_tls_hello iscsi_tls_hello(const uint8_t *bytes, size_t len, size_t *wanted);

#endif
