// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rights.c - which users and peers get which access to a partition.
 */
#include "room.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>

#include "dice.h"

#define OWNER 1000

static struct stag_store_partition partition(unsigned int n, const struct stag_store_right *rights)
{
	struct stag_store_partition p = {.name = "p", .num_rights = n};

	memcpy(p.rights, rights, n * sizeof(*rights));
	return p;
}

static struct stag_store_right net(const char *address, uint8_t prefix, uint8_t access)
{
	struct stag_store_right r = {.who = STAG_STORE_NET, .access = access, .prefix = prefix};

	r.family = strchr(address, ':') ? AF_INET6 : AF_INET;
	assert_int_equal(inet_pton(r.family, address, r.address), 1);
	return r;
}

static struct sockaddr_storage peer(const char *address)
{
	struct sockaddr_storage s = {0};

	if (strchr(address, ':')) {
		s.ss_family = AF_INET6;
		inet_pton(AF_INET6, address, &((struct sockaddr_in6 *)&s)->sin6_addr);
	} else {
		s.ss_family = AF_INET;
		inet_pton(AF_INET, address, &((struct sockaddr_in *)&s)->sin_addr);
	}
	return s;
}

static enum stag_store_access local(const struct stag_store_partition *p, uid_t uid, gid_t gid)
{
	gid_t gids[] = {5, gid};

	return rights_of(p, OWNER, &(struct visitor){.uid = uid, .gids = gids, .num_gids = 2});
}

static enum stag_store_access remote(const struct stag_store_partition *p, const char *address,
				     const char *secret)
{
	struct sockaddr_storage s = peer(address);
	struct visitor v = {.peer = (struct sockaddr *)&s, .uid = OWNER};
	uint8_t shown[TOKEN_BYTES];

	if (secret) {
		assert_int_equal(token_shown(secret, strlen(secret), shown), 0);
		v.shown = shown;
	}
	return rights_of(p, OWNER, &v);
}

static void without_rights_only_the_owner_has_access(void **state)
{
	struct stag_store_partition p = {0};

	assert_int_equal(local(&p, OWNER, 0), STAG_STORE_WRITE);
	assert_int_equal(local(&p, OWNER + 1, 0), STAG_STORE_NONE);
	assert_int_equal(local(&p, 0, 0), STAG_STORE_NONE);
	assert_int_equal(remote(&p, "127.0.0.1", NULL), STAG_STORE_NONE);
	assert_int_equal(rights_of_self(&p, geteuid()), STAG_STORE_WRITE);
	assert_int_equal(rights_of_self(&p, geteuid() + 1), STAG_STORE_NONE);
}

static void the_first_matching_right_decides(void **state)
{
	struct stag_store_partition p = partition(
		4, (struct stag_store_right[]){
			   {.who = STAG_STORE_USER, .id = 7, .access = STAG_STORE_NONE},
			   {.who = STAG_STORE_USER, .id = OWNER, .access = STAG_STORE_READ},
			   {.who = STAG_STORE_GROUP, .id = 50, .access = STAG_STORE_WRITE},
			   {.who = STAG_STORE_LOCAL, .access = STAG_STORE_READ},
		   });

	assert_int_equal(local(&p, 7, 50), STAG_STORE_NONE);
	assert_int_equal(local(&p, OWNER, 50), STAG_STORE_READ); /* the owner is bound, too */
	assert_int_equal(local(&p, 8, 50), STAG_STORE_WRITE);
	assert_int_equal(local(&p, 8, 51), STAG_STORE_READ);
	assert_int_equal(remote(&p, "10.0.0.1", NULL), STAG_STORE_NONE);
}

static void rights_of_local_users_do_not_apply_to_peers(void **state)
{
	struct stag_store_partition p = partition(
		2, (struct stag_store_right[]){
			   {.who = STAG_STORE_USER, .id = OWNER, .access = STAG_STORE_WRITE},
			   {.who = STAG_STORE_LOCAL, .access = STAG_STORE_WRITE}});

	assert_int_equal(remote(&p, "127.0.0.1", NULL), STAG_STORE_NONE);
	p = partition(1, (struct stag_store_right[]){
				 {.who = STAG_STORE_REMOTE, .access = STAG_STORE_WRITE}});
	assert_int_equal(remote(&p, "127.0.0.1", NULL), STAG_STORE_WRITE);
	assert_int_equal(local(&p, 8, 0), STAG_STORE_NONE);
}

static void networks_match_by_their_prefix(void **state)
{
	struct stag_store_partition p =
		partition(4, (struct stag_store_right[]){
				     net("10.1.2.3", 32, STAG_STORE_NONE),
				     net("10.0.0.0", 8, STAG_STORE_READ),
				     net("192.168.0.128", 25, STAG_STORE_WRITE),
				     net("2001:db8:8000::", 33, STAG_STORE_WRITE),
			     });

	assert_int_equal(remote(&p, "10.1.2.3", NULL), STAG_STORE_NONE);
	assert_int_equal(remote(&p, "10.1.2.4", NULL), STAG_STORE_READ);
	assert_int_equal(remote(&p, "11.1.2.4", NULL), STAG_STORE_NONE);
	assert_int_equal(remote(&p, "192.168.0.200", NULL), STAG_STORE_WRITE);
	assert_int_equal(remote(&p, "192.168.0.127", NULL), STAG_STORE_NONE);
	assert_int_equal(remote(&p, "2001:db8:8123::1", NULL), STAG_STORE_WRITE);
	assert_int_equal(remote(&p, "2001:db8:7123::1", NULL), STAG_STORE_NONE);
	assert_int_equal(remote(&p, "::ffff:10.9.9.9", NULL), STAG_STORE_READ);
	assert_int_equal(remote(&p, "::ffff:10.1.2.3", NULL), STAG_STORE_NONE);
	p = partition(1, (struct stag_store_right[]){net("0.0.0.0", 0, STAG_STORE_READ)});
	assert_int_equal(remote(&p, "8.8.8.8", NULL), STAG_STORE_READ);
	assert_int_equal(remote(&p, "::1", NULL), STAG_STORE_NONE);
}

static void only_the_right_secret_gives_access(void **state)
{
	struct stag_store_right r = {.who = STAG_STORE_TOKEN, .access = STAG_STORE_WRITE};
	struct sockaddr_storage s = peer("10.0.0.1");
	struct visitor thief = {.peer = (struct sockaddr *)&s, .shown = r.token};
	struct stag_store_partition p;
	uint8_t shown[TOKEN_BYTES];

	assert_int_equal(stag_store_token("open sesame", 11, r.token), 0);
	p = partition(2, (struct stag_store_right[]){r, net("10.0.0.0", 8, STAG_STORE_READ)});
	assert_int_equal(remote(&p, "11.0.0.1", "open sesame"), STAG_STORE_WRITE);
	assert_int_equal(remote(&p, "10.0.0.1", "open sesame"), STAG_STORE_WRITE);
	assert_int_equal(remote(&p, "10.0.0.1", "open barley"), STAG_STORE_READ);
	assert_int_equal(remote(&p, "11.0.0.1", NULL), STAG_STORE_NONE);
	assert_int_equal(local(&p, 8, 0), STAG_STORE_NONE);
	/*
	 * The stored token is not the one that a client sends: reading the table does not give
	 * access.
	 */
	assert_int_equal(token_shown("open sesame", 11, shown), 0);
	assert_memory_not_equal(shown, r.token, sizeof(shown));
	assert_int_equal(rights_of(&p, OWNER, &thief), STAG_STORE_READ);
	assert_int_equal(stag_store_token("", 0, shown), EINVAL);
}

static void the_digests_are_sha_256(void **state)
{
	static const uint8_t abc[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea};
	uint8_t shown[TOKEN_BYTES], kept[TOKEN_BYTES], token[TOKEN_BYTES];

	assert_int_equal(token_shown("abc", 3, shown), 0);
	assert_memory_equal(shown, abc, sizeof(abc));
	assert_int_equal(token_kept(shown, kept), 0);
	assert_int_equal(stag_store_token("abc", 3, token), 0);
	assert_memory_equal(kept, token, sizeof(kept));
}

static bool bits_agree(const uint8_t *a, const uint8_t *b, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if ((a[i / 8] ^ b[i / 8]) >> (7 - i % 8) & 1)
			return false;
	return true;
}

/* Compares with counting bits one by one, for networks and peers that are close to each other. */
static void prefixes_agree_with_counting_bits(void **state)
{
	for (unsigned long i = 0; i < scaled(200000); i++) {
		bool six = one_in(2);
		unsigned int bits = six ? 128 : 32;
		struct stag_store_right r = {.who = STAG_STORE_NET,
					     .access = STAG_STORE_READ,
					     .family = six ? AF_INET6 : AF_INET,
					     .prefix = (uint8_t)dice(bits + 1)};
		struct sockaddr_storage s = peer(six ? "2000::" : "0.0.0.0");
		uint8_t *at = six ? ((struct sockaddr_in6 *)&s)->sin6_addr.s6_addr
				  : (uint8_t *)&((struct sockaddr_in *)&s)->sin_addr;
		struct visitor v = {.peer = (struct sockaddr *)&s};
		struct stag_store_partition p;
		unsigned int flip = (unsigned int)dice(bits);

		dice_fill(at + six, bits / 8 - six);
		memcpy(r.address, at, bits / 8);
		r.address[flip / 8] ^= (uint8_t)(0x80 >> flip % 8);
		p = partition(1, &r);
		assert_int_equal(rights_of(&p, OWNER, &v), bits_agree(at, r.address, r.prefix)
								   ? STAG_STORE_READ
								   : STAG_STORE_NONE);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_rights_only_the_owner_has_access),
		cmocka_unit_test(the_first_matching_right_decides),
		cmocka_unit_test(rights_of_local_users_do_not_apply_to_peers),
		cmocka_unit_test(networks_match_by_their_prefix),
		cmocka_unit_test(only_the_right_secret_gives_access),
		cmocka_unit_test(the_digests_are_sha_256),
		cmocka_unit_test(prefixes_agree_with_counting_bits),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
