/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * iscsi.h - the words of iSCSI (RFC 7143, 7144, 7145) as structures: PDUs, text, keys, CHAP.
 *
 * Pure functions over buffers: no sockets, locks or malloc. They say what the bytes claim, or which answer a claim
 * gets; what follows from it is the session's question. Target and initiator share them.
 *
 * Words:
 *   BHS, AHS   the 48 bytes that each PDU begins with, and what may follow them
 *   ITT, TTT   the tags that initiator and target give to what they have begun
 *   ISID, TSIH the two halves of a session's name
 */
#ifndef STAG_BLOCK_ISCSI_H
#define STAG_BLOCK_ISCSI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Byte 1. The first is every PDU's; the rest by opcode. */
enum pdu_flag {
	PDU_FINAL = 0x80,
	PDU_CONTINUE = 0x40,   /* login, text: the list goes on in the next */
	CMD_READ = 0x40,       /* SCSI command */
	CMD_WRITE = 0x20,      /* SCSI command */
	RES_BIDI_OVER = 0x10,  /* SCSI response */
	RES_BIDI_UNDER = 0x08, /* SCSI response */
	RES_OVER = 0x04,       /* SCSI response, Data-In */
	RES_UNDER = 0x02,      /* SCSI response, Data-In */
	DATA_ACK = 0x40,       /* Data-In */
	DATA_STATUS = 0x01,    /* Data-In: it is the response, too */
	LOGIN_TRANSIT = 0x80,  /* login */
};

enum login_stage { STAGE_SECURITY, STAGE_OPERATIONAL, STAGE_NONE, STAGE_FULL };

/* Stages in a login PDU's flags. */
#define LOGIN_CSG(flags)       ((enum login_stage)((flags) >> 2 & 3))
#define LOGIN_NSG(flags)       ((enum login_stage)((flags)&3))
#define LOGIN_STAGES(csg, nsg) ((uint8_t)((csg) << 2 | (nsg)))

/* Every field of every PDU; which ones an opcode has is in pdu.c. The others are zero. */
struct pdu {
	uint8_t opcode; /* enum pdu_opcode */
	bool immediate;
	uint8_t flags; /* enum pdu_flag, and an opcode's small numbers: stages, function, reason, SNACK type */
	uint8_t code;	/* byte 2: response, reason (reject), async's none, version-max of login */
	uint8_t status; /* byte 3: of SCSI; version-min or -active of login */
	uint32_t ahs_len, data_len;
	uint64_t lun;
	uint8_t isid[ISID_LEN];
	uint16_t tsih, cid;
	uint32_t itt, ttt;
	uint32_t expected; /* bytes of data that a command speaks of */
	uint32_t ref_tag, ref_cmd_sn;
	uint32_t cmd_sn, exp_stat_sn;		  /* from initiators */
	uint32_t stat_sn, exp_cmd_sn, max_cmd_sn; /* from targets */
	uint32_t data_sn;			  /* also R2TSN, ExpDataSN */
	uint32_t offset, length;		  /* of data, of R2Ts; also BegRun and RunLength */
	uint32_t residual, bidi_residual;
	uint8_t status_class, status_detail; /* of a login */
	uint8_t event, vcode;		     /* of an asynchronous message */
	uint16_t param[3]; /* there; the first two of a logout response: Time2Wait, Time2Retain */
	uint8_t cdb[16];
};

/* Encodes 48 bytes; data_len and ahs_len go as they are. */
void iscsi_pdu_encode(const struct pdu *p, uint8_t bhs[BHS_LEN]);
/* 0; -EPROTO: no such opcode. */
int iscsi_pdu_decode(const uint8_t bhs[BHS_LEN], struct pdu *p);
const char *iscsi_pdu_name(uint8_t opcode);
bool iscsi_pdu_from_initiator(uint8_t opcode);
/* How much the lengths of 48 bytes say that there is behind them, digests not counted: AHS, data. */
void iscsi_pdu_lengths(const uint8_t bhs[BHS_LEN], uint32_t *ahs, uint32_t *data);

static inline uint32_t iscsi_pdu_pad(uint32_t len)
{
	return -len & 3;
}

/*
 * The next of the additional header segments: its type and contents (reserved byte and pad not counted). 1; 0: no more;
 * -EPROTO: it runs over the end.
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

/* The memory that a send lends: what the target reads (of a write), and what it writes to (of a read). */
struct iser {
	bool write, read; /* is there? */
	uint32_t write_stag, read_stag;
	uint64_t write_base, read_base;
};
/* -EPROTO: it is no header of a PDU. */
int iscsi_iser_decode(const uint8_t *bytes, size_t len, struct iser *h);
void iscsi_iser_encode(const struct iser *h, uint8_t bytes[ISER_LEN]);

/*
 * Private data of a connection, either way: byte 0 has the flags below, as Linux' and libiscsi's has; three are zero. A side
 * that speaks one-shot adds four: "StB1". Where both did, and the adapter agreed on an encoding (stagdv_query_qp()),
 * sends have no iSER header: the PDU is all of the body, the STag is the advertised one, and byte 0 of its memory, at
 * address 0, is byte 0 of the command's data. Else it is iSER.
 */
#define ISER_HELLO_MAX 8
enum { ISER_NO_ZBVA = 0x80, ISER_NO_INVALIDATE = 0x40 };
struct iser_hello {
	bool invalidates; /* may be sent what closes its STags */
	bool one_shot;
};
size_t iscsi_iser_hello_make(const struct iser_hello *h, uint8_t bytes[ISER_HELLO_MAX]);
void iscsi_iser_hello_read(const uint8_t *bytes, size_t len, struct iser_hello *h);

/* A send, taken apart: the PDU that is all of it, and what it lends. The pointers are into it. */
struct arrival {
	struct pdu pdu;
	const uint8_t *bhs, *ahs, *data;
	bool decoded; /* pdu says what it is; else it is none that we know */
	struct iser lent;
};
/* headed: iSER's header is in front, and says what is lent; else that is the caller's to know. NULL; or what is wrong with it. */
const char *iscsi_iser_parse(const uint8_t *bytes, uint32_t len, bool headed, struct arrival *a);

/* ---- text.c: lists of key=value ------------------------------------------------ */

#define TEXT_KEY_MAX   63
#define TEXT_VALUE_MAX 8192  /* of large binary values; others have 255 */
#define TEXT_MAX       16384 /* of a list, over all its PDUs */

/* A list under way: what PDUs brought so far. */
struct text_in {
	uint32_t len;
	char bytes[TEXT_MAX + 1];
};

/* Adds what a PDU brought. -EMSGSIZE: too much. */
int iscsi_text_collect(struct text_in *t, const void *data, uint32_t len);
/*
 * The next pair, which stays in the list; *at begins with 0. 1; 0: no more; -EPROTO: that is no pair.
 */
int iscsi_text_next(struct text_in *t, uint32_t *at, const char **key, const char **value);

/* A list being made. full: something did not fit. */
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
bool iscsi_text_list_has(const char *list,
			 const char *word); /* is word one of those between commas? */
/* Binary values: 0x... or 0b...; how many bytes, -EINVAL, -EMSGSIZE. */
int iscsi_text_binary(const char *s, uint8_t *out, size_t size);
void iscsi_text_hex(const uint8_t *bytes, size_t len,
		    char *out);		/* 0x and 2 len digits and a final zero */
bool iscsi_text_is_name(const char *s); /* an iSCSI name: iqn., eui. or naa., RFC 7143 §4.2.7 */

/* ---- keys.c: what is negotiated -------------------------------------------------- */

enum digest { DIGEST_NONE, DIGEST_CRC32C };

/* RFC 7143 §13, RFC 7144 §7, RFC 7145 §6. */
struct keys {
	uint32_t header_digest, data_digest; /* enum digest */
	uint32_t max_connections;
	uint32_t initial_r2t, immediate_data; /* of all these: 0 or 1 */
	uint32_t peer_recv_max;		      /* MaxRecvDataSegmentLength: what the peer takes */
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

/* What a side wants of the keys; the ranges of the RFCs apply besides. */
struct key_wishes {
	struct keys keys;
	uint32_t own_recv_max; /* declared */
	bool rdma;	       /* RFC 7145's keys are understood, digests are not */
};

enum key_verdict {
	KEY_ANSWERED,	/* the answer is in out; or none is due */
	KEY_UNKNOWN,	/* none of these; the caller knows it or answers NotUnderstood */
	KEY_REPEATED,	/* twice in one negotiation: a protocol error */
	KEY_WRONG_TIME, /* after login, of what only login negotiates */
};

/* A negotiation: what was agreed so far, and what was spoken of. */
struct negotiation {
	const struct key_wishes *wishes;
	struct keys agreed;
	uint64_t seen;	  /* a bit for each key */
	uint64_t offered; /* by us, not answered yet */
	bool discovery;
	bool full;     /* feature phase: few keys may change */
	bool declared; /* our MaxRecvDataSegmentLength */
};

void iscsi_keys_begin(struct negotiation *n, const struct key_wishes *wishes);
/* The peer offers or declares: what is agreed, and the answer. */
enum key_verdict iscsi_keys_receive(struct negotiation *n, const char *key, const char *value,
				    struct text_out *out);
/* What we declare without being asked: once. */
void iscsi_keys_declare(struct negotiation *n, struct text_out *out);
/* We offer all that we wish for, and declare. */
void iscsi_keys_offer(struct negotiation *n, struct text_out *out);
/* The peer answers, offers or declares: what is agreed, and the answer if one is due. -EPROTO: that is no answer. */
int iscsi_keys_answered(struct negotiation *n, const char *key, const char *value,
			struct text_out *out);
void iscsi_keys_conclude(struct negotiation *n); /* what depends on another key: FirstBurstLength */

/* ---- chap.c: RFC 1994, 7143 §12.1.3 -------------------------------------------------- */

#define CHAP_MAX_DIGEST	   32
#define CHAP_CHALLENGE_LEN 32
#define CHAP_MAX_CHALLENGE 1024
#define CHAP_MIN_SECRET	   12 /* bytes; 96 bits */

enum chap_algorithm { CHAP_NONE = 0, CHAP_MD5 = 5, CHAP_SHA256 = 7 };

/* The best that is in a list like "5,7". */
enum chap_algorithm iscsi_chap_choose(const char *list);
size_t iscsi_chap_digest_len(enum chap_algorithm a);
/* H(id, secret, challenge). -EIO: the library refuses, as one in FIPS mode does with MD5. */
int iscsi_chap_respond(enum chap_algorithm a, uint8_t id, const char *secret,
		       const uint8_t *challenge, size_t len, uint8_t out[CHAP_MAX_DIGEST]);
/* In a time that does not depend on where they differ. */
bool iscsi_chap_verify(enum chap_algorithm a, uint8_t id, const char *secret,
		       const uint8_t *challenge, size_t len, const uint8_t *response,
		       size_t response_len);
/* A challenge and its id. -EIO */
int iscsi_chap_challenge(uint8_t *id, uint8_t challenge[CHAP_CHALLENGE_LEN]);

#endif
