// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_json.c - block targets, their sessions and the STags advertised to them, as JSON.
 */
#include "block_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "stag/stagdv.h"
#include "tls_words.h"

#define MORE_STAGS 256

json_t *block_counters_json(const struct stag_block_counters *c)
{
	json_t *o =
		json_pack("{s:I s:I s:I s:I s:I s:I s:I s:I}", "commands", (json_int_t)c->commands,
			  "reads", (json_int_t)c->reads, "writes", (json_int_t)c->writes, "errors",
			  (json_int_t)c->errors, "read_bytes", (json_int_t)c->read_bytes,
			  "written_bytes", (json_int_t)c->written_bytes, "posts",
			  (json_int_t)c->posts, "completions", (json_int_t)c->completions);

	json_object_update_new(
		o, json_pack("{s:I s:I s:I s:I s:I s:I s:I s:I s:I}", "registrations",
			     (json_int_t)c->registrations, "stags", (json_int_t)c->stags,
			     "stags_open", (json_int_t)c->stags_open, "logins",
			     (json_int_t)c->logins, "logouts", (json_int_t)c->logouts, "lost",
			     (json_int_t)c->lost, "violations", (json_int_t)c->violations,
			     "refused", (json_int_t)c->refused, "evicted", (json_int_t)c->evicted));
	return o;
}

static const char *encoding_word(uint32_t encoding)
{
	static const char *const words[] = {[STAGDV_ONE_SHOT_NONE] = "none",
					    [STAGDV_ONE_SHOT_LITERAL] = "literal",
					    [STAGDV_ONE_SHOT_OPCODES] = "opcodes",
					    [STAGDV_ONE_SHOT_BITS] = "bits"};

	return encoding < sizeof(words) / sizeof(words[0]) ? words[encoding] : "unknown";
}

const char *block_transport_word(uint32_t transport)
{
	switch (transport) {
	case STAG_BLOCK_TCP:
		return "iSCSI over TCP";
	case STAG_BLOCK_ISER:
		return "iSER";
	case STAG_BLOCK_ONE_SHOT:
		return "one-shot";
	}
	return "unknown";
}

/* The name of an initiator may have any bytes; JSON needs UTF-8. */
static json_t *name_json(const char *name)
{
	json_t *text = json_string(name);

	return text ? text : json_string("(no UTF-8)");
}

json_t *block_tls_json(const struct stag_block_tls_info *t)
{
	if (!t->encrypted)
		return json_null();
	return json_pack("{s:s s:s s:s}", "version", t->version, "cipher", t->cipher, "kernel",
			 tls_kernel_word(t->kernel));
}

const char *block_tls_word(const struct stag_block_tls_info *t, char *text, size_t size)
{
	if (!t->encrypted)
		return "no";
	snprintf(text, size, "%s, %s%s", t->version, t->cipher,
		 tls_kernel_text(tls_kernel_word(t->kernel)));
	return text;
}

json_t *block_sessions_json(struct stag_block_target *target)
{
	struct stag_block_session s = {.comp_mask = STAG_BLOCK_SESSION_TLS};
	json_t *list = json_array();

	while (stag_block_target_next(target, &s))
		json_array_append_new(
			list,
			json_pack("{s:I s:o s:o s:s s:s s:s s:o s:o}", "id", (json_int_t)s.id,
				  "initiator", name_json(s.initiator), "user",
				  *s.user ? name_json(s.user) : json_null(), "address", s.address,
				  "transport", block_transport_word(s.transport), "encoding",
				  encoding_word(s.encoding), "tls", block_tls_json(&s.tls),
				  "counters", block_counters_json(&s.counters)));
	return list;
}

const char *block_end_word(uint32_t end)
{
	static const char *const words[] = {[STAGDV_STAG_OPEN] = "open",
					    [STAGDV_STAG_CLOSED] = "closed",
					    [STAGDV_STAG_WITHDRAWN] = "withdrawn",
					    [STAGDV_STAG_ORPHANED] = "orphaned"};

	return end < sizeof(words) / sizeof(words[0]) ? words[end] : "unknown";
}

static json_t *stag_json(const struct stag_block_stag *s)
{
	return json_pack("{s:I s:s s:I s:o s:s s:I s:i s:i s:I s:I s:I}", "stag",
			 (json_int_t)s->stag, "end", block_end_word(s->end), "session",
			 (json_int_t)s->session, "initiator", name_json(s->initiator), "address",
			 s->address, "itt", (json_int_t)s->itt, "lun", (int)s->lun, "opcode",
			 (int)s->opcode, "length", (json_int_t)s->length, "made",
			 (json_int_t)s->made, "ended", (json_int_t)s->ended);
}

/* More may have been advertised since the count. */
json_t *block_stags_json(struct stag_block_target *target)
{
	int n = stag_block_target_stags(target, NULL, 0, sizeof(struct stag_block_stag));
	size_t room = n > 0 ? (size_t)n + MORE_STAGS : MORE_STAGS;
	CLEANUP_FREE struct stag_block_stag *all = calloc(room, sizeof(*all));
	json_t *list = json_array();

	if (n > 0 && all)
		n = stag_block_target_stags(target, all, room, sizeof(*all));
	for (int i = 0; all && i < n && (size_t)i < room; i++)
		json_array_append_new(list, stag_json(&all[i]));
	return list;
}
