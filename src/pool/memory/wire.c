// SPDX-License-Identifier: BSD-2-Clause
/*
 * wire.c - messages between clients and nodes: bytes in, structures out.
 *
 * A message is a header, followed by requests or answers, each padded to 8 bytes. This file checks that a request
 * has the operands of its operation, and no others; whether it is allowed is decided elsewhere.
 */
#include "pool/memory/memory.h"

#include <errno.h>
#include <string.h>

#define VERSION 1u

struct wire_message {
	uint8_t version, kind;
	uint16_t count;
	uint32_t length;
	uint64_t epoch;
};

struct wire_request {
	uint8_t op, flags, source, reserved;
	uint16_t name_length, reserved_too;
	uint32_t length, key;
	uint64_t source_address;
	uint64_t sequence, acknowledged, version;
	struct stag_pool_ptr ptr;
};

struct wire_answer {
	uint64_t sequence, version;
	uint32_t status;
	uint8_t op, reserved[3];
	uint32_t length, reserved_too;
	struct stag_pool_ptr ptr;
};

_Static_assert(sizeof(struct wire_message) == POOL_MESSAGE_HEADER, "as it is sent");
_Static_assert(sizeof(struct wire_request) == POOL_REQUEST_HEADER, "as it is sent");
_Static_assert(sizeof(struct wire_answer) == POOL_ANSWER_HEADER, "as it is sent");

/* ---- writing --------------------------------------------------------------------- */

static size_t padded(size_t length)
{
	return (length + 7) & ~(size_t)7;
}

/* A part of a message, to be padded. */
struct part {
	const void *bytes;
	size_t length;
};

static int write_parts(uint8_t *at, size_t room, size_t *used, const struct part *parts, int n)
{
	size_t need = 0;

	for (int i = 0; i < n; i++) {
		if (parts[i].length > UINT32_MAX)
			return -ENOBUFS;
		need += padded(parts[i].length);
	}
	if (*used > room || need > room - *used)
		return -ENOBUFS;
	for (int i = 0; i < n; i++) {
		if (parts[i].length != 0)
			memcpy(at + *used, parts[i].bytes, parts[i].length);
		memset(at + *used + parts[i].length, 0, padded(parts[i].length) - parts[i].length);
		*used += padded(parts[i].length);
	}
	return 0;
}

/* Counts one more request or answer in the message's header. */
static void count_one(uint8_t *at, size_t used)
{
	struct wire_message header;

	memcpy(&header, at, sizeof(header));
	header.count++;
	header.length = (uint32_t)used;
	memcpy(at, &header, sizeof(header));
}

static bool is_full(const uint8_t *at)
{
	struct wire_message header;

	memcpy(&header, at, sizeof(header));
	return header.count == UINT16_MAX;
}

int pool_message_start(void *at, size_t room, size_t *used, uint8_t kind, uint64_t epoch)
{
	struct wire_message header = {
		.version = VERSION,
		.kind = kind,
		.length = sizeof(header),
		.epoch = epoch,
	};
	struct part part = {&header, sizeof(header)};

	return write_parts(at, room, used, &part, 1);
}

int pool_message_request(void *at, size_t room, size_t *used, const struct pool_request *rq)
{
	bool has_bytes = (rq->flags & POOL_HAS_VALUE) && rq->source == POOL_SOURCE_INLINE;
	struct wire_request wire = {
		.op = rq->op,
		.flags = rq->flags,
		.source = rq->source,
		.name_length = rq->name_length,
		.length = rq->length,
		.key = rq->key,
		.source_address = rq->source_address,
		.sequence = rq->sequence,
		.acknowledged = rq->acknowledged,
		.version = rq->version,
		.ptr = rq->ptr,
	};
	struct part parts[] = {{&wire, sizeof(wire)},
			       {rq->name, rq->name_length},
			       {rq->value, has_bytes ? rq->length : 0}};
	int rc = is_full(at) ? -ENOBUFS : write_parts(at, room, used, parts, 3);

	if (rc == 0)
		count_one(at, *used);
	return rc;
}

int pool_message_answer(void *at, size_t room, size_t *used, const struct pool_answer *answer)
{
	struct wire_answer wire = {
		.sequence = answer->sequence,
		.version = answer->version,
		.status = answer->status,
		.op = answer->op,
		.length = answer->length,
		.ptr = answer->ptr,
	};
	struct part parts[] = {{&wire, sizeof(wire)},
			       {answer->bytes, answer->bytes ? answer->length : 0}};
	int rc;

	if (!answer->bytes)
		wire.length = 0;
	rc = is_full(at) ? -ENOBUFS : write_parts(at, room, used, parts, 2);
	if (rc == 0)
		count_one(at, *used);
	return rc;
}

int pool_message_extend(void *at, size_t room, size_t *used, size_t more)
{
	struct wire_message header;

	if (*used > room || more > room - *used || more > UINT32_MAX / 2)
		return -ENOBUFS;
	*used += more;
	memcpy(&header, at, sizeof(header));
	header.length = (uint32_t)*used;
	memcpy(at, &header, sizeof(header));
	return (int)*used;
}

/* ---- reading --------------------------------------------------------------------- */

/* Returns the next n bytes of the message, and skips their padding, or NULL if it has fewer. */
static const uint8_t *take_bytes(const uint8_t *at, size_t length, size_t *where, size_t n)
{
	const uint8_t *bytes = at + *where;

	if (*where > length || n > length - *where || padded(n) > length - *where)
		return NULL;
	*where += padded(n);
	return bytes;
}

int pool_message_read(const void *at, size_t length, size_t *where, struct pool_message *message)
{
	const uint8_t *bytes = take_bytes(at, length, where, sizeof(struct wire_message));
	struct wire_message wire;

	if (!bytes)
		return -EBADMSG;
	memcpy(&wire, bytes, sizeof(wire));
	if (wire.version != VERSION || wire.kind == 0 || wire.kind >= POOL_MESSAGE_KINDS ||
	    wire.length != length)
		return -EBADMSG;
	*message = (struct pool_message){wire.kind, wire.count, wire.length, wire.epoch};
	return 0;
}

/* Returns the maximum length of a value from this source. */
static uint32_t max_length_of(uint8_t source)
{
	switch (source) {
	case POOL_SOURCE_PULL:
		return POOL_MAX_VALUE;
	case POOL_SOURCE_STAGED:
		return POOL_STAGED_MAX;
	default:
		return POOL_DIRECT_MAX;
	}
}

/* Returns whether the request has the operands that its operation takes, and nothing else. */
static bool has_right_operands(const struct pool_operation *o, const struct pool_request *rq)
{
	uint8_t has = (rq->flags & POOL_HAS_PTR ? POOL_TAKES_PTR : 0) |
		      (rq->flags & POOL_HAS_VALUE ? POOL_TAKES_VALUE : 0) |
		      (rq->name_length ? POOL_TAKES_NAME : 0);
	uint8_t takes = o->takes & (POOL_TAKES_PTR | POOL_TAKES_NAME | POOL_TAKES_VALUE);
	uint8_t flags = rq->flags & ~(POOL_HAS_PTR | POOL_HAS_VALUE);

	if (o->takes & POOL_TAKES_ANY_NAME)
		has &= (uint8_t)~POOL_TAKES_NAME;
	if (has != takes || (flags & ~o->flags) != 0)
		return false;
	if ((o->takes & POOL_TAKES_VALUE) && rq->length > max_length_of(rq->source))
		return false;
	if (rq->source > POOL_SOURCE_PULL || rq->name_length > POOL_MAX_NAME)
		return false;
	if (!(o->takes & POOL_TAKES_VALUE) && rq->source == POOL_SOURCE_STAGED)
		return false;
	return (o->takes & (POOL_TAKES_VALUE | POOL_TAKES_ROOM)) || rq->length == 0;
}

int pool_request_read(const void *at, size_t length, size_t *where, struct pool_request *rq)
{
	const uint8_t *bytes = take_bytes(at, length, where, sizeof(struct wire_request));
	const struct pool_operation *o;
	struct wire_request w;

	if (!bytes)
		return -EBADMSG;
	memcpy(&w, bytes, sizeof(w));
	*rq = (struct pool_request){
		.op = w.op == STAG_POOL_IMPLICIT
			      ? pool_op_implied(w.flags & POOL_HAS_VALUE, w.flags & POOL_HAS_PTR)
			      : w.op,
		.flags = w.flags,
		.source = w.source,
		.name_length = w.name_length,
		.key = w.key,
		.length = w.length,
		.source_address = w.source_address,
		.sequence = w.sequence,
		.acknowledged = w.acknowledged,
		.version = w.version,
		.ptr = w.ptr,
	};
	o = pool_operation(rq->op);
	if (!o || !has_right_operands(o, rq))
		return -EBADMSG;
	rq->name = (const char *)take_bytes(at, length, where, rq->name_length);
	if (!rq->name || memchr(rq->name, '\0', rq->name_length))
		return -EBADMSG;
	if (!(o->takes & POOL_TAKES_VALUE) || rq->source != POOL_SOURCE_INLINE)
		return 0;
	rq->value = take_bytes(at, length, where, rq->length);
	return rq->value ? 0 : -EBADMSG;
}

int pool_answer_read(const void *at, size_t length, size_t *where, struct pool_answer *answer)
{
	const uint8_t *bytes = take_bytes(at, length, where, sizeof(struct wire_answer));
	struct wire_answer w;

	if (!bytes)
		return -EBADMSG;
	memcpy(&w, bytes, sizeof(w));
	*answer = (struct pool_answer){
		.sequence = w.sequence,
		.version = w.version,
		.status = w.status,
		.op = w.op,
		.length = w.length,
		.ptr = w.ptr,
		.bytes = take_bytes(at, length, where, w.length),
	};
	return answer->bytes ? 0 : -EBADMSG;
}
