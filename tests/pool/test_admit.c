// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_admit.c - authentication of clients and nodes, and above all refusals.
 *
 * `test_pool_admit caught` is for a build with a deliberate fault: it succeeds if a test fails.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/source.h"
#include "base/clock.h"
#include "dice.h"
#include "pool/admit/admit.h"

static const uint8_t uuid[ROLL_UUID_LEN] = {7, 8, 9};
#define ANN_SECRET  "ann's own secret, of some length"
#define POOL_SECRET "the secret of the nodes"

static struct user list[] = {
	{.name = "ann",
	 .rights = STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE,
	 .secret = ANN_SECRET},
	{.name = "pool", .rights = USER_RIGHT_NODE, .secret = POOL_SECRET},
};
static const struct users users = {list, 2};
static const char ann_secret[] = ANN_SECRET, pool_secret[] = POOL_SECRET;

struct fixture {
	struct admit *admit;
	uint64_t now;
	char address[24];
	struct admit_session inside; /* the node's side of the session */
	uint8_t reply[ADMIT_MAX];
	size_t reply_len;
	struct sockaddr_in6 host; /* if it has a family, instead of the address */
};

static struct fixture node;

static int set_up(void **state)
{
	memset(&node, 0, sizeof(node));
	for (unsigned int i = 0; i < users.count; i++)
		assert_true(admit_mark_name(list[i].name, list[i].mark));
	node.now = 1000 * NS_PER_S;
	strcpy(node.address, "10.1.1.1");
	node.admit = admit_create(uuid, &users);
	return node.admit ? 0 : -1;
}

static int tear_down(void **state)
{
	admit_destroy(node.admit);
	return 0;
}

static enum admit_verdict judge_greeting(const void *greeting, size_t len)
{
	struct admit_place place = {.epoch = 12, .primary = "bee:4791"};

	const void *host = node.address;
	size_t host_len = strlen(node.address);

	if (node.host.sin6_family)
		host_len = source_of_address((struct sockaddr *)&node.host, &host);
	return admit_judge(node.admit, node.now, host, host_len, &place, greeting, len, node.reply,
			   &node.reply_len, &node.inside);
}

/* Sends a hello, and makes the proof for the challenge that comes back. */
static int prove(struct admit_session *s, enum admit_as as, const char *name, const char *secret,
		 uint8_t *proof)
{
	uint8_t hello[ADMIT_MAX];
	char primary[ROLL_ADDRESS_LEN];
	uint64_t epoch;
	int len = admit_say_hello(s, as, name, hello);

	assert_true(len > 0 && len <= ADMIT_ASK_MAX);
	assert_int_equal(judge_greeting(hello, (size_t)len), ADMIT_NO);
	assert_true(node.reply_len <= ADMIT_REJECT_MAX);
	len = admit_say_proof(s, secret, node.reply, node.reply_len, &epoch, primary, proof);
	assert_true(len <= ADMIT_ASK_MAX);
	if (len > 0) {
		assert_int_equal(epoch, 12);
		assert_string_equal(primary, "bee:4791");
	}
	return len;
}

static enum admit_verdict authenticate(enum admit_as as, const char *name, const char *secret)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	int len = prove(&s, as, name, secret, proof);

	assert_true(len > 0);
	return judge_greeting(proof, (size_t)len);
}

static void client_with_the_secret_is_admitted(void **state)
{
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
	assert_string_equal(node.inside.name, "ann");
	assert_int_equal(node.inside.rights, STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE);
}

static void node_is_admitted_under_its_own_mark(void **state)
{
	uint8_t mark[ADMIT_MARK_LEN];

	assert_int_equal(authenticate(ADMIT_NODE, "bee", pool_secret), ADMIT_YES);
	assert_true(admit_mark_name("bee", mark));
	assert_memory_equal(node.inside.mark, mark, sizeof(mark));
	assert_int_equal(node.inside.name[0], '#');
	assert_int_equal(node.inside.rights, USER_RIGHT_NODE);
}

/* printf 'stag pool name:eve' | sha256sum | cut -c 1-16 */
static void a_visitor_without_a_user_is_named_by_its_mark(void **state)
{
	assert_int_equal(authenticate(ADMIT_CLIENT, "eve", ann_secret), ADMIT_NO);
	assert_string_equal(node.inside.name, "#e9ade4d1a7c473b6");
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", pool_secret), ADMIT_NO);
	assert_string_equal(node.inside.name, "ann");
}

/* An attacker has found a name with the mark of a user. */
static void a_name_with_the_mark_of_a_user_needs_its_secret(void **state)
{
	assert_true(admit_mark_name("eve", list[0].mark));
	assert_int_equal(authenticate(ADMIT_CLIENT, "eve", "eve's own secret, of some length"),
			 ADMIT_NO);
	assert_int_equal(authenticate(ADMIT_CLIENT, "eve", ann_secret), ADMIT_YES);
	assert_string_equal(node.inside.name, "ann");
}

static void wrong_secret_or_user_is_refused(void **state)
{
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", "ann's own secret, of some lengtH"),
			 ADMIT_NO);
	assert_int_equal(authenticate(ADMIT_CLIENT, "eve", ann_secret), ADMIT_NO);
	assert_int_equal(node.reply_len, sizeof(struct admit_head));
	/* A client cannot come as a node, nor is the nodes' secret good for a client. */
	assert_int_equal(authenticate(ADMIT_NODE, "ann", ann_secret), ADMIT_NO);
	assert_int_equal(authenticate(ADMIT_CLIENT, "pool", pool_secret), ADMIT_NO);
}

/* Completes the admission with this secret, on both sides. */
static void expect_admitted(enum admit_as as, const char *name, const char *secret)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX], welcome[ADMIT_MAX];
	const void *facts;
	int len = prove(&s, as, name, secret, proof);

	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_YES);
	len = admit_make_welcome(node.admit, &node.inside, "facts", 5, welcome);
	assert_int_equal(admit_hear_welcome(&s, secret, welcome, (size_t)len, &facts), 5);
}

/* The visitor may have either, and the node answers with the same one. */
static void either_secret_is_good_while_they_are_rotated(void **state)
{
	static const char new_one[] = "another secret, of some length";
	static struct user two[] = {
		{.name = "ann",
		 .rights = STAG_POOL_RIGHT_READ,
		 .secret = "another secret, of some length",
		 .also = ANN_SECRET},
		{.name = "pool",
		 .rights = USER_RIGHT_NODE,
		 .secret = "another secret, of some length",
		 .also = POOL_SECRET},
	};
	const struct users rotated = {two, 2};

	memcpy(two[0].mark, list[0].mark, sizeof(two[0].mark));
	memcpy(two[1].mark, list[1].mark, sizeof(two[1].mark));
	admit_use(node.admit, &rotated);
	expect_admitted(ADMIT_CLIENT, "ann", new_one);
	expect_admitted(ADMIT_CLIENT, "ann", ann_secret);
	expect_admitted(ADMIT_NODE, "bee", new_one);
	expect_admitted(ADMIT_NODE, "bee", pool_secret);
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", pool_secret), ADMIT_NO);
	assert_int_equal(authenticate(ADMIT_CLIENT, "eve", new_one), ADMIT_NO);
	admit_use(node.admit, &users);
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", new_one), ADMIT_NO);
}

static void the_node_proves_itself_too(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX], welcome[ADMIT_MAX];
	const void *facts;
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_YES);
	len = admit_make_welcome(node.admit, &node.inside, "facts", 5, welcome);
	assert_true(len > 5);
	assert_int_equal(admit_hear_welcome(&s, ann_secret, welcome, (size_t)len, &facts), 5);
	assert_memory_equal(facts, "facts", 5);
	assert_int_equal(s.rights, STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE);
	/* With any bit flipped, except in the unused bytes 9 to 15, the welcome is not from a node of this pool. */
	for (int i = 0; i < len; i++) {
		for (int bit = 0; bit < 8; bit++) {
			welcome[i] ^= (uint8_t)(1 << bit);
			if (i < 9 || i >= 16)
				assert_true(admit_hear_welcome(&s, ann_secret, welcome, (size_t)len,
							       &facts) < 0);
			welcome[i] ^= (uint8_t)(1 << bit);
		}
	}
	assert_int_equal(
		admit_make_welcome(node.admit, &node.inside, proof, ADMIT_FACTS_MAX + 1, welcome),
		-EMSGSIZE);
	assert_int_equal(
		admit_make_welcome(node.admit, &node.inside, proof, ADMIT_FACTS_MAX, welcome),
		ADMIT_MAX);
}

static void a_proof_is_good_once(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_YES);
	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
	node.now += 3600 * NS_PER_S;
	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
}

static void a_challenge_expires(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	node.now += 11 * NS_PER_S;
	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
}

/* A greeting has 32 bits of the time, in units of 2^20 ns. */
static void a_challenge_is_not_good_again_when_its_time_wraps(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	node.now += 1ull << (32 + 20);
	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
	node.now -= 1ull << (32 + 20);
	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_YES);
}

static void a_challenge_made_before_the_time_wraps_is_good_after_it(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	int len;

	node.now = (1ull << (32 + 20)) - NS_PER_S;
	len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);
	node.now += 9 * NS_PER_S;
	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_YES);
}

/* InfiniBand's connection manager carries 56, 148 and 196 bytes of private data, always. */
static void greetings_may_be_padded(void **state)
{
	uint8_t ask[ADMIT_ASK_MAX] = {0}, said[ADMIT_MAX] = {0};
	char primary[ROLL_ADDRESS_LEN];
	struct admit_session s;
	const void *facts;
	uint64_t epoch;

	assert_true(admit_say_hello(&s, ADMIT_CLIENT, "ann", ask) > 0);
	assert_int_equal(judge_greeting(ask, sizeof(ask)), ADMIT_NO);
	memcpy(said, node.reply, node.reply_len);
	memset(ask, 0, sizeof(ask));
	assert_true(admit_say_proof(&s, ann_secret, said, ADMIT_REJECT_MAX, &epoch, primary, ask) >
		    0);
	assert_int_equal(judge_greeting(ask, sizeof(ask)), ADMIT_YES);
	memset(said, 0, sizeof(said));
	assert_true(admit_make_welcome(node.admit, &node.inside, "facts", 5, said) > 0);
	assert_int_equal(admit_hear_welcome(&s, ann_secret, said, sizeof(said), &facts), 5);
}

static void challenge_is_bound_to_the_address(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	strcpy(node.address, "10.1.1.2");
	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
}

/*
 * A proof for a challenge of another node, or of this one before a restart, is refused with EAGAIN: the client
 * requests a new challenge, and the failure does not count as a wrong secret.
 */
static void challenge_of_another_node_is_refused(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	const void *facts;
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	admit_destroy(node.admit);
	node.admit = admit_create(uuid, &users);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
		assert_int_equal(
			admit_hear_welcome(&s, ann_secret, node.reply, node.reply_len, &facts),
			-EAGAIN);
	}
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

/* Any flipped bit of a proof is noticed; the bytes behind it are padding. */
static void a_proof_with_any_bit_flipped_is_wrong(void **state)
{
	for (size_t i = 0; i < sizeof(struct admit_proof); i++) {
		for (int bit = 0; bit < 8; bit++) {
			struct admit_session s;
			uint8_t proof[ADMIT_MAX];
			int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

			proof[i] ^= (uint8_t)(1 << bit);
			assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
			node.now += 5 * NS_PER_S; /* forget earlier failures */
		}
	}
}

/* If the hello is altered on its way, the proof that follows does not match it. */
static void a_hello_with_any_byte_flipped_admits_nobody(void **state)
{
	for (size_t i = 0; i < sizeof(struct admit_hello); i++) {
		struct admit_session s;
		uint8_t hello[ADMIT_MAX], proof[ADMIT_MAX];
		char primary[ROLL_ADDRESS_LEN];
		uint64_t epoch;
		int len = admit_say_hello(&s, ADMIT_CLIENT, "ann", hello);

		hello[i] ^= (uint8_t)(1 + dice(255));
		assert_int_equal(judge_greeting(hello, (size_t)len), ADMIT_NO);
		len = admit_say_proof(&s, ann_secret, node.reply, node.reply_len, &epoch, primary,
				      proof);
		if (len > 0)
			assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
		else
			assert_int_equal(len, -EACCES);
		node.now += 5 * NS_PER_S;
	}
}

static void challenge_with_any_byte_flipped_admits_nobody(void **state)
{
	for (size_t i = 0; i < offsetof(struct admit_challenge, epoch); i++) {
		struct admit_session s;
		uint8_t hello[ADMIT_MAX], proof[ADMIT_MAX];
		char primary[ROLL_ADDRESS_LEN];
		uint64_t epoch;
		int len = admit_say_hello(&s, ADMIT_CLIENT, "ann", hello);

		judge_greeting(hello, (size_t)len);
		if (i == 6 || i == 7) /* unused in a challenge */
			continue;
		node.reply[i] ^= (uint8_t)(1 + dice(255));
		len = admit_say_proof(&s, ann_secret, node.reply, node.reply_len, &epoch, primary,
				      proof);
		if (len > 0)
			assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
		node.now += 5 * NS_PER_S;
	}
}

/* A node of another version is told apart from what is no node. */
static void another_version_is_named(void **state)
{
	uint8_t said[ADMIT_MAX] = {'S', 't', 'g', 'P', ADMIT_VERSION - 1, ADMIT_CHALLENGE};
	uint8_t out[ADMIT_MAX];
	char primary[ROLL_ADDRESS_LEN];
	struct admit_session s;
	const void *facts;
	uint64_t epoch;

	assert_true(admit_say_hello(&s, ADMIT_CLIENT, "ann", out) > 0);
	assert_int_equal(admit_say_proof(&s, "a secret of sixteen", said, sizeof(said), &epoch,
					 primary, out),
			 -EPROTONOSUPPORT);
	assert_int_equal(admit_hear_welcome(&s, "a secret of sixteen", said, sizeof(said), &facts),
			 -EPROTONOSUPPORT);
	said[0] = 'x';
	assert_int_equal(admit_say_proof(&s, "a secret of sixteen", said, sizeof(said), &epoch,
					 primary, out),
			 -EPROTO);
}

/* Visitors of version 2 compare magic and version of a refusal: then they say that the version is another one. */
static void a_visitor_of_an_older_version_is_told_ours(void **state)
{
	static const uint8_t refusal[] = {'S', 't', 'g', 'P', 3, ADMIT_REFUSAL};
	uint8_t hello[88] = {'S', 't', 'g', 'P', 2, ADMIT_HELLO, ADMIT_CLIENT};
	uint8_t proof[144] = {'S', 't', 'g', 'P', 2, ADMIT_PROOF, ADMIT_CLIENT};

	strcpy((char *)hello + 24, "ann");
	strcpy((char *)proof + 80, "ann");
	assert_int_equal(judge_greeting(hello, sizeof(hello)), ADMIT_NO);
	assert_memory_equal(node.reply, refusal, sizeof(refusal));
	assert_int_equal(judge_greeting(proof, sizeof(proof)), ADMIT_NO);
	assert_memory_equal(node.reply, refusal, sizeof(refusal));
}

static void noise_admits_nobody(void **state)
{
	for (unsigned long i = 0; i < scaled(20000); i++) {
		uint8_t noise[300];
		size_t len = dice(sizeof(noise));

		dice_fill(noise, len);
		if (len >= 8 && one_in(2))
			memcpy(noise,
			       (uint8_t[]){'S', 't', 'g', 'P', ADMIT_VERSION, (uint8_t)dice(6),
					   (uint8_t)dice(3), 0},
			       8);
		assert_int_equal(judge_greeting(noise, len), ADMIT_NO);
		assert_true(node.reply_len <= ADMIT_MAX);
	}
}

static void guessing_is_slowed_down(void **state)
{
	unsigned int refused = 0;

	for (int i = 0; i < 100; i++) {
		struct admit_session s;
		uint8_t proof[ADMIT_MAX];
		int len = prove(&s, ADMIT_CLIENT, "ann", "a wrong secret, of some length", proof);

		assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
		refused += node.reply[7];
	}
	assert_int_equal(refused, 92);
	/* Even the right secret is not checked now. */
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_NO);
	assert_int_equal(node.reply[7], 1);
	/* It is checked if it comes from another address, or later. */
	strcpy(node.address, "10.1.1.3");
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
	strcpy(node.address, "10.1.1.1");
	node.now += NS_PER_S;
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

/* Fails so often that the name has no tries left, from so many addresses. */
static void fail_from_many(enum admit_as as, const char *name, unsigned int addresses)
{
	for (unsigned int i = 0; i < addresses; i++) {
		snprintf(node.address, sizeof(node.address), "10.%u.%u.%u", 9 + i / 65536,
			 i / 256 % 256, i % 256);
		assert_int_equal(authenticate(as, name, "a wrong secret, of some length"),
				 ADMIT_NO);
	}
}

static void right_proof_is_admitted_whatever_others_do(void **state)
{
	fail_from_many(ADMIT_CLIENT, "ann", 100);
	fail_from_many(ADMIT_NODE, "bee", 100);
	strcpy(node.address, "10.1.1.1");
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
	assert_int_equal(authenticate(ADMIT_NODE, "bee", pool_secret), ADMIT_YES);
}

static void addresses_of_a_whole_network_keep_nobody_out(void **state)
{
	fail_from_many(ADMIT_CLIENT, "ann", 70000);
	strcpy(node.address, "10.1.1.1");
	for (unsigned int i = 0; i < 100; i++)
		assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

/* While others fail for the name, too, it has one try, and then waits. */
static void address_that_has_failed_waits_while_others_fail_for_the_name(void **state)
{
	fail_from_many(ADMIT_CLIENT, "ann", 100);
	strcpy(node.address, "10.1.1.1");
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", "a wrong secret, of some length"),
			 ADMIT_NO);
	assert_int_equal(node.reply[7], 0);
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_NO);
	assert_int_equal(node.reply[7], 1);
	node.now += NS_PER_S / 2;
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

static void failures_of_clients_are_not_those_of_nodes(void **state)
{
	fail_from_many(ADMIT_CLIENT, "bee", 100);
	strcpy(node.address, "10.1.1.1");
	assert_int_equal(authenticate(ADMIT_NODE, "bee", "a wrong secret, of some length"),
			 ADMIT_NO);
	assert_int_equal(authenticate(ADMIT_NODE, "bee", pool_secret), ADMIT_YES);
}

static void set_host(const char *text)
{
	node.host.sin6_family = AF_INET6;
	assert_int_equal(inet_pton(AF_INET6, text, &node.host.sin6_addr), 1);
}

/* One host may have all addresses of its /64. */
static void addresses_of_an_ipv6_host_share_a_limit(void **state)
{
	char text[64];

	for (unsigned int i = 0; i < 8; i++) {
		snprintf(text, sizeof(text), "2001:db8:1:2:%x::%x", i + 1, i);
		set_host(text);
		assert_int_equal(
			authenticate(ADMIT_CLIENT, "ann", "a wrong secret, of some length"),
			ADMIT_NO);
		assert_int_equal(node.reply[7], 0);
	}
	set_host("2001:db8:1:2::99");
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_NO);
	assert_int_equal(node.reply[7], 1);
	set_host("2001:db8:1:3::99");
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

/* Other users of this machine cannot lock a client out that connects from the same address. */
static void loopback_addresses_have_no_limit(void **state)
{
	const char *const hosts[] = {"::1", "::ffff:127.0.0.1", "::ffff:127.1.2.3"};

	for (size_t h = 0; h < sizeof(hosts) / sizeof(*hosts); h++) {
		set_host(hosts[h]);
		for (unsigned int i = 0; i < 200; i++)
			assert_int_equal(
				authenticate(ADMIT_CLIENT, "ann", "a wrong secret, of some length"),
				ADMIT_NO);
		assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
	}
}

/* Hosts of IPv4 behind a listener of IPv6 have limits of their own. */
static void mapped_addresses_share_no_limit(void **state)
{
	set_host("::ffff:10.0.0.1");
	for (unsigned int i = 0; i < 20; i++)
		authenticate(ADMIT_CLIENT, "ann", "a wrong secret, of some length");
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_NO);
	set_host("::ffff:10.0.0.2");
	assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

/* A right proof needs room among the used tickets: wrong ones take none. */
static void wrong_proofs_use_no_tickets(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX], wrong[ADMIT_MAX];
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	memcpy(wrong, proof, sizeof(wrong));
	wrong[offsetof(struct admit_proof, mac)] ^= 1;
	assert_int_equal(judge_greeting(wrong, (size_t)len), ADMIT_NO);
	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_YES);
	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_NO);
}

static void guessing_from_few_addresses_is_slowed_down(void **state)
{
	unsigned int refused = 0;

	for (unsigned int i = 0; i < 200; i++) {
		snprintf(node.address, sizeof(node.address), "10.2.0.%u", i % 10);
		authenticate(ADMIT_CLIENT, "ann", "a wrong secret, of some length");
		refused += node.reply[7];
	}
	assert_int_equal(refused, 200 - 32);
}

/* The node keeps no state for a challenge: a flood of hellos does not keep a client with the secret out. */
static void a_flood_of_hellos_keeps_nobody_out(void **state)
{
	struct admit_session s, flood;
	uint8_t proof[ADMIT_MAX], hello[ADMIT_MAX];
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	for (int i = 0; i < 5000; i++)
		judge_greeting(hello, (size_t)admit_say_hello(&flood, ADMIT_CLIENT, "ann", hello));
	assert_int_equal(judge_greeting(proof, (size_t)len), ADMIT_YES);
}

/* After a failover all clients authenticate at once, and perhaps again. */
static void thousands_of_clients_are_admitted_at_once(void **state)
{
	for (int i = 0; i < 3000; i++)
		assert_int_equal(authenticate(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

static void on_abort(int signal)
{
	_exit(0);
}

int main(int argc, char **argv)
{
#define ADMISSION_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		ADMISSION_TEST(client_with_the_secret_is_admitted),
		ADMISSION_TEST(node_is_admitted_under_its_own_mark),
		ADMISSION_TEST(a_visitor_without_a_user_is_named_by_its_mark),
		ADMISSION_TEST(a_name_with_the_mark_of_a_user_needs_its_secret),
		ADMISSION_TEST(wrong_secret_or_user_is_refused),
		ADMISSION_TEST(either_secret_is_good_while_they_are_rotated),
		ADMISSION_TEST(the_node_proves_itself_too),
		ADMISSION_TEST(a_proof_is_good_once),
		ADMISSION_TEST(a_challenge_expires),
		ADMISSION_TEST(a_challenge_is_not_good_again_when_its_time_wraps),
		ADMISSION_TEST(a_challenge_made_before_the_time_wraps_is_good_after_it),
		ADMISSION_TEST(greetings_may_be_padded),
		ADMISSION_TEST(challenge_is_bound_to_the_address),
		ADMISSION_TEST(challenge_of_another_node_is_refused),
		ADMISSION_TEST(a_proof_with_any_bit_flipped_is_wrong),
		ADMISSION_TEST(a_hello_with_any_byte_flipped_admits_nobody),
		ADMISSION_TEST(challenge_with_any_byte_flipped_admits_nobody),
		ADMISSION_TEST(another_version_is_named),
		ADMISSION_TEST(a_visitor_of_an_older_version_is_told_ours),
		ADMISSION_TEST(noise_admits_nobody),
		ADMISSION_TEST(guessing_is_slowed_down),
		ADMISSION_TEST(guessing_from_few_addresses_is_slowed_down),
		ADMISSION_TEST(right_proof_is_admitted_whatever_others_do),
		ADMISSION_TEST(addresses_of_a_whole_network_keep_nobody_out),
		ADMISSION_TEST(address_that_has_failed_waits_while_others_fail_for_the_name),
		ADMISSION_TEST(failures_of_clients_are_not_those_of_nodes),
		ADMISSION_TEST(addresses_of_an_ipv6_host_share_a_limit),
		ADMISSION_TEST(loopback_addresses_have_no_limit),
		ADMISSION_TEST(mapped_addresses_share_no_limit),
		ADMISSION_TEST(wrong_proofs_use_no_tickets),
		ADMISSION_TEST(a_flood_of_hellos_keeps_nobody_out),
		ADMISSION_TEST(thousands_of_clients_are_admitted_at_once),
	};

	dice_start();
	if (argc > 1 && strcmp(argv[1], "caught") == 0)
		signal(SIGABRT, on_abort);
	return cmocka_run_group_tests(tests, NULL, NULL) != (argc > 1);
}
