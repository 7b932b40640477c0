// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_admit.c - who comes in, and above all who does not.
 *
 * As `test_pool_admit caught` it is about a build with a fault: it has to be found.
 */
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
	char address[16];
	struct admit_session inside; /* as the node sees it */
	uint8_t reply[ADMIT_MAX];
	size_t reply_len;
};

static struct fixture node;

static int set_up(void **state)
{
	memset(&node, 0, sizeof(node));
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

static enum admit_verdict knock(const void *greeting, size_t len)
{
	struct admit_place place = {.epoch = 12, .primary = "bee:4791"};

	return admit_judge(node.admit, node.now, node.address, strlen(node.address), &place,
			   greeting, len, node.reply, &node.reply_len, &node.inside);
}

/* Says hello and makes a proof of what comes back. */
static int prove(struct admit_session *s, enum admit_as as, const char *name, const char *secret,
		 uint8_t *proof)
{
	uint8_t hello[ADMIT_MAX];
	char primary[ROLL_ADDRESS_LEN];
	uint64_t epoch;
	int len = admit_say_hello(s, as, name, hello);

	assert_true(len > 0);
	assert_int_equal(knock(hello, (size_t)len), ADMIT_NO);
	len = admit_say_proof(s, secret, node.reply, node.reply_len, &epoch, primary, proof);
	if (len > 0) {
		assert_int_equal(epoch, 12);
		assert_string_equal(primary, "bee:4791");
	}
	return len;
}

static enum admit_verdict come(enum admit_as as, const char *name, const char *secret)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	int len = prove(&s, as, name, secret, proof);

	assert_true(len > 0);
	return knock(proof, (size_t)len);
}

static void who_knows_the_secret_comes_in(void **state)
{
	assert_int_equal(come(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
	assert_string_equal(node.inside.name, "ann");
	assert_int_equal(node.inside.rights, STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE);
}

static void a_node_comes_in_under_its_own_name(void **state)
{
	assert_int_equal(come(ADMIT_NODE, "bee", pool_secret), ADMIT_YES);
	assert_string_equal(node.inside.name, "bee");
	assert_int_equal(node.inside.rights, USER_RIGHT_NODE);
}

static void who_does_not_know_it_stays_outside(void **state)
{
	assert_int_equal(come(ADMIT_CLIENT, "ann", "ann's own secret, of some lengtH"), ADMIT_NO);
	assert_int_equal(come(ADMIT_CLIENT, "eve", ann_secret), ADMIT_NO);
	assert_int_equal(node.reply_len, sizeof(struct admit_head));
	/* A client is no node, and the nodes' secret is no client's. */
	assert_int_equal(come(ADMIT_NODE, "ann", ann_secret), ADMIT_NO);
	assert_int_equal(come(ADMIT_CLIENT, "pool", pool_secret), ADMIT_NO);
}

static void the_node_proves_itself_too(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX], welcome[ADMIT_MAX];
	const void *facts;
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	assert_int_equal(knock(proof, (size_t)len), ADMIT_YES);
	len = admit_make_welcome(node.admit, &node.inside, "facts", 5, welcome);
	assert_true(len > 5);
	assert_int_equal(admit_hear_welcome(&s, ann_secret, welcome, (size_t)len, &facts), 5);
	assert_memory_equal(facts, "facts", 5);
	assert_int_equal(s.rights, STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE);
	/* Whichever bit is another, it is not from a node of this pool. */
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

	assert_int_equal(knock(proof, (size_t)len), ADMIT_YES);
	assert_int_equal(knock(proof, (size_t)len), ADMIT_NO);
	node.now += 3600 * NS_PER_S;
	assert_int_equal(knock(proof, (size_t)len), ADMIT_NO);
}

static void a_challenge_expires(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	node.now += 11 * NS_PER_S;
	assert_int_equal(knock(proof, (size_t)len), ADMIT_NO);
}

static void a_challenge_is_for_who_asked(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	strcpy(node.address, "10.1.1.2");
	assert_int_equal(knock(proof, (size_t)len), ADMIT_NO);
}

/*
 * A challenge from another node, or from this one before a restart, is not accepted: the visitor asks for a new
 * one, and it does not count as a wrong secret.
 */
static void a_challenge_of_another_node_is_none(void **state)
{
	struct admit_session s;
	uint8_t proof[ADMIT_MAX];
	const void *facts;
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	admit_destroy(node.admit);
	node.admit = admit_create(uuid, &users);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(knock(proof, (size_t)len), ADMIT_NO);
		assert_int_equal(
			admit_hear_welcome(&s, ann_secret, node.reply, node.reply_len, &facts),
			-EAGAIN);
	}
	assert_int_equal(come(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

/* Not one bit of a proof may be another; what is behind it is padding. */
static void a_proof_with_any_bit_flipped_is_wrong(void **state)
{
	for (size_t i = 0; i < sizeof(struct admit_proof); i++) {
		for (int bit = 0; bit < 8; bit++) {
			struct admit_session s;
			uint8_t proof[ADMIT_MAX];
			int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

			proof[i] ^= (uint8_t)(1 << bit);
			assert_int_equal(knock(proof, (size_t)len), ADMIT_NO);
			node.now += 5 * NS_PER_S; /* patience */
		}
	}
}

/* Flipped on the way: the proof that follows is for another hello. */
static void a_hello_with_any_byte_flipped_admits_nobody(void **state)
{
	for (size_t i = 0; i < sizeof(struct admit_hello); i++) {
		struct admit_session s;
		uint8_t hello[ADMIT_MAX], proof[ADMIT_MAX];
		char primary[ROLL_ADDRESS_LEN];
		uint64_t epoch;
		int len = admit_say_hello(&s, ADMIT_CLIENT, "ann", hello);

		hello[i] ^= (uint8_t)(1 + dice(255));
		assert_int_equal(knock(hello, (size_t)len), ADMIT_NO);
		len = admit_say_proof(&s, ann_secret, node.reply, node.reply_len, &epoch, primary,
				      proof);
		if (len > 0)
			assert_int_equal(knock(proof, (size_t)len), ADMIT_NO);
		else
			assert_int_equal(len, -EACCES);
		node.now += 5 * NS_PER_S;
	}
}

static void a_challenge_with_any_byte_flipped_is_seen(void **state)
{
	for (size_t i = 0; i < offsetof(struct admit_challenge, epoch); i++) {
		struct admit_session s;
		uint8_t hello[ADMIT_MAX], proof[ADMIT_MAX];
		char primary[ROLL_ADDRESS_LEN];
		uint64_t epoch;
		int len = admit_say_hello(&s, ADMIT_CLIENT, "ann", hello);

		knock(hello, (size_t)len);
		if (i == 6 || i == 7) /* says nothing there */
			continue;
		node.reply[i] ^= (uint8_t)(1 + dice(255));
		len = admit_say_proof(&s, ann_secret, node.reply, node.reply_len, &epoch, primary,
				      proof);
		if (len > 0)
			assert_int_equal(knock(proof, (size_t)len), ADMIT_NO);
		node.now += 5 * NS_PER_S;
	}
}

static void noise_admits_nobody(void **state)
{
	for (unsigned long i = 0; i < scaled(20000); i++) {
		uint8_t noise[300];
		size_t len = dice(sizeof(noise));

		dice_fill(noise, len);
		if (len >= 8 && one_in(2))
			memcpy(noise,
			       (uint8_t[]){'S', 't', 'g', 'P', 1, (uint8_t)dice(6),
					   (uint8_t)dice(3), 0},
			       8);
		assert_int_equal(knock(noise, len), ADMIT_NO);
		assert_true(node.reply_len <= ADMIT_MAX);
	}
}

static void who_guesses_waits(void **state)
{
	unsigned int refused = 0;

	for (int i = 0; i < 100; i++) {
		struct admit_session s;
		uint8_t proof[ADMIT_MAX];
		int len = prove(&s, ADMIT_CLIENT, "ann", "a wrong secret, of some length", proof);

		assert_int_equal(knock(proof, (size_t)len), ADMIT_NO);
		refused += node.reply[7];
	}
	assert_int_equal(refused, 92);
	/* Even the right one is not looked at now. */
	assert_int_equal(come(ADMIT_CLIENT, "ann", ann_secret), ADMIT_NO);
	assert_int_equal(node.reply[7], 1);
	/* From elsewhere it is, and here in a while. */
	strcpy(node.address, "10.1.1.3");
	assert_int_equal(come(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
	strcpy(node.address, "10.1.1.1");
	node.now += NS_PER_S;
	assert_int_equal(come(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

static void a_name_that_is_guessed_from_everywhere_waits(void **state)
{
	unsigned int refused = 0;

	for (unsigned char i = 0; i < 200; i++) {
		snprintf(node.address, sizeof(node.address), "10.2.0.%hhu", i);
		come(ADMIT_CLIENT, "ann", "a wrong secret, of some length");
		refused += node.reply[7];
	}
	assert_in_range(refused, 168, 200);
	node.now += NS_PER_S;
	snprintf(node.address, sizeof(node.address), "10.3.0.1");
	assert_int_equal(come(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

/* Challenges are not kept: however many ask, who has the secret comes in. */
static void a_flood_of_hellos_keeps_nobody_out(void **state)
{
	struct admit_session s, flood;
	uint8_t proof[ADMIT_MAX], hello[ADMIT_MAX];
	int len = prove(&s, ADMIT_CLIENT, "ann", ann_secret, proof);

	for (int i = 0; i < 5000; i++)
		knock(hello, (size_t)admit_say_hello(&flood, ADMIT_CLIENT, "ann", hello));
	assert_int_equal(knock(proof, (size_t)len), ADMIT_YES);
}

/* After a failover all clients come at once, and perhaps again. */
static void thousands_come_at_once(void **state)
{
	for (int i = 0; i < 3000; i++)
		assert_int_equal(come(ADMIT_CLIENT, "ann", ann_secret), ADMIT_YES);
}

static void on_abort(int signal)
{
	_exit(0);
}

int main(int argc, char **argv)
{
#define AT_DOOR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		AT_DOOR(who_knows_the_secret_comes_in),
		AT_DOOR(a_node_comes_in_under_its_own_name),
		AT_DOOR(who_does_not_know_it_stays_outside),
		AT_DOOR(the_node_proves_itself_too),
		AT_DOOR(a_proof_is_good_once),
		AT_DOOR(a_challenge_expires),
		AT_DOOR(a_challenge_is_for_who_asked),
		AT_DOOR(a_challenge_of_another_node_is_none),
		AT_DOOR(a_proof_with_any_bit_flipped_is_wrong),
		AT_DOOR(a_hello_with_any_byte_flipped_admits_nobody),
		AT_DOOR(a_challenge_with_any_byte_flipped_is_seen),
		AT_DOOR(noise_admits_nobody),
		AT_DOOR(who_guesses_waits),
		AT_DOOR(a_name_that_is_guessed_from_everywhere_waits),
		AT_DOOR(a_flood_of_hellos_keeps_nobody_out),
		AT_DOOR(thousands_come_at_once),
	};

	dice_start();
	if (argc > 1 && strcmp(argv[1], "caught") == 0)
		signal(SIGABRT, on_abort);
	return cmocka_run_group_tests(tests, NULL, NULL) != (argc > 1);
}
