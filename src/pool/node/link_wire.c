// SPDX-License-Identifier: BSD-2-Clause
/*
 * link_wire.c - messages between nodes: bytes in, structures out (link.h).
 */
#include "pool/node/link.h"

#include <errno.h>

static size_t size_of(uint32_t what)
{
	static const size_t sizes[LINK_WHATS] = {
		[LINK_HELLO] = sizeof(struct link_hello),
		[LINK_WELCOME] = sizeof(struct link_welcome),
		[LINK_ASK] = sizeof(struct link_ask),
		[LINK_HASHES] = sizeof(struct link_hashes),
		[LINK_COPIED] = sizeof(struct link_number),
		[LINK_CATCH_UP] = sizeof(struct link_number),
		[LINK_SYNCED] = sizeof(struct link_number),
		[LINK_HANDOVER] = sizeof(struct link_number),
		[LINK_SECRETS] = sizeof(struct link_secrets),
		[LINK_EVENT] = sizeof(struct link_event),
		[LINK_EVENT_TAKEN] = sizeof(struct link_number),
	};

	return what < LINK_WHATS ? sizes[what] : 0;
}

int link_message_write(const union link_message *said, uint64_t epoch, void *to, size_t room)
{
	size_t used = 0, size = size_of(said->what);
	int rc = pool_message_start(to, room, &used, POOL_MESSAGE_NODE, epoch);

	if (rc != 0)
		return rc;
	if (size > room - used)
		return -ENOBUFS;
	memcpy((uint8_t *)to + used, said, size);
	return pool_message_extend(to, room, &used, size);
}

/* Checks what determines a size or an end. The users of other numbers check those. */
static bool is_sane(const union link_message *m)
{
	if (m->what == LINK_HELLO)
		return memchr(m->hello.address, '\0', ROLL_ADDRESS_LEN) &&
		       name_is_valid(m->hello.name);
	if (m->what == LINK_ASK)
		return m->ask.count <= LINK_HASHES_MAX;
	if (m->what == LINK_HASHES)
		return m->hashes.count <= LINK_HASHES_MAX;
	if (m->what == LINK_EVENT)
		return memchr(m->event.event.node, '\0', ROLL_NAME_LEN) &&
		       memchr(m->event.event.text, '\0', STAG_POOL_EVENT_MAX);
	return true;
}

int link_message_read(const void *at, size_t length, union link_message *heard, uint64_t *epoch)
{
	struct pool_message header;
	size_t where = 0, size;
	uint32_t what;
	int rc = pool_message_read(at, length, &where, &header);

	if (rc != 0)
		return rc;
	if (header.kind != POOL_MESSAGE_NODE || length - where < sizeof(what))
		return -EBADMSG;
	memcpy(&what, (const uint8_t *)at + where, sizeof(what));
	size = size_of(what);
	if (size == 0 || length - where != size)
		return -EBADMSG;
	memcpy(heard, (const uint8_t *)at + where, size);
	*epoch = header.epoch;
	return is_sane(heard) ? 0 : -EBADMSG;
}

uint64_t link_check(const void *block, size_t words)
{
	return pool_hash(block, (words - 1) * sizeof(uint64_t));
}
