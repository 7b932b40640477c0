// SPDX-License-Identifier: BSD-2-Clause
/*
 * admission.c - see admission.h.
 */
#include "admission.h"

#include <errno.h>

#include "base/log.h"
#include "pool/admit/admit.h"
#include "pool/role/roll_where.h"
#include "secrets.h"

#define SECRET "a secret that nobody guesses"

static const uint8_t uuid[ROLL_UUID_LEN] = {1, 2, 3};

/* Only a peer that knows the secret is admitted, and the answer fits its buffer. */
void greetings(struct input *in)
{
	static struct user list[] = {
		{.name = "ann", .rights = STAG_POOL_RIGHT_READ, .secret = SECRET},
		{.name = "pool", .rights = USER_RIGHT_NODE, .secret = SECRET SECRET}};
	static const struct users users = {list, 2};
	struct admit *a;
	struct admit_place place = {.epoch = 3, .primary = "host:1"};
	uint64_t now = 1;

	CHECK(admit_mark_name(list[0].name, list[0].mark));
	a = admit_create(uuid, &users);
	CHECK(a);
	while (in->len) {
		size_t len = take(in, 1), reply_len;
		uint8_t *greeting, reply[ADMIT_MAX];
		struct admit_session session;

		now += take(in, 1) << 20;
		len = len < in->len ? len : in->len;
		greeting = copy_of(in->p, len);
		CHECK(admit_judge(a, now, "10.0.0.1", 8, &place, greeting, len, reply, &reply_len,
				  &session) == ADMIT_NO);
		CHECK(reply_len <= ADMIT_MAX);
		free(greeting);
		in->p += len;
		in->len -= len;
	}
	admit_destroy(a);
}

void welcomes(struct input *in)
{
	uint8_t *said, hello[ADMIT_ASK_MAX], proof[ADMIT_ASK_MAX];
	char primary[ROLL_ADDRESS_LEN];
	struct admit_session s;
	const void *facts;
	uint64_t epoch;
	int len;

	CHECK(admit_say_hello(&s, ADMIT_CLIENT, "ann", hello) > 0);
	said = copy_of(in->p, in->len);
	CHECK(admit_hear_welcome(&s, SECRET, said, in->len, &facts) < 0);
	len = admit_say_proof(&s, SECRET, said, in->len, &epoch, primary, proof);
	CHECK(len < 0 || len == sizeof(struct admit_proof));
	if (len > 0)
		CHECK(memchr(primary, 0, sizeof(primary)));
	free(said);
}

/* A text that is accepted as a roll is one, and is the same when it is written again. */
static void roll(const char *text, size_t len)
{
	char again[ROLL_MAX_TEXT];
	struct roll first, second;
	const char *why;
	uint64_t revision;

	if (roll_from_text(text, len, &first, &revision, &why) != 0) {
		CHECK(why);
		return;
	}
	CHECK(roll_is_valid(&first));
	len = (size_t)roll_to_text(&first, revision, again, sizeof(again));
	CHECK(roll_from_text(again, len, &second, NULL, &why) == 0);
	CHECK(memcmp(&first, &second, sizeof(first)) == 0);
}

void texts(struct input *in)
{
	char *text = malloc(in->len + 1);
	struct secrets secrets;
	struct roll_where where;
	const char *why;

	CHECK(text);
	memcpy(text, in->p, in->len);
	text[in->len] = '\0';
	log_level = LOG_LEVEL_NONE;
	roll(text, in->len);
	if (secrets_parse(text, "fuzz", &secrets) == 0)
		secrets_free(&secrets);
	if (roll_where_parse(text, &where, &why) == 0)
		CHECK(where.num_hosts > 0 && where.key[0]);
	free(text);
}
