// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_serve.c - servers: one per store, and how they treat peers, disconnects and invalid
 * requests.
 */
#include "stage.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_verbs.h>

#include "dice.h"
#include "store/endpoint.h"

static void open_shop(struct stage *s)
{
	stage_open(s, true);
	add(s->store, "goods", 64 * KIB);
	allow(s, "goods", STAG_STORE_WRITE);
}

static void a_store_has_one_server(void **state)
{
	struct stag_store_server_attr attr = {.flags = STAG_STORE_ANY_PORT};
	struct stag_store *again;
	struct stag_store_info info;
	struct stage s;
	char words[64];

	open_shop(&s);
	again = open_store(s.path);
	assert_null(stag_store_serve(again, &attr));
	assert_int_equal(errno, EBUSY);
	snprintf(words, sizeof(words), "store: process %d serves it already", getpid());
	assert_says(words);
	assert_int_equal(stag_store_query(again, &info, sizeof(info)), 0);
	assert_int_equal(info.served_by, getpid());
	stag_store_server_stop(s.server);
	s.server = stag_store_serve(again, &attr); /* now on all addresses */
	assert_non_null(s.server);
	stag_store_close(again); /* the server does not need the store's handle */
	{
		struct user u;

		enter(&u, &s, "goods");
		leave(&u);
	}
	stage_close(&s);
}

static void stopping_ends_connections(void **state)
{
	struct stage s;
	struct user u[4];

	open_shop(&s);
	for (int i = 0; i < 4; i++)
		enter(&u[i], &s, "goods");
	stag_store_server_stop(s.server);
	for (int i = 0; i < 4; i++) {
		assert_int_not_equal(do_read(&u[i], 0, 8), IBV_WC_SUCCESS);
		leave(&u[i]);
	}
	assert_int_equal(stag_store_remove(s.store, "goods", 0), 0); /* no connection uses it */
	s.server = NULL;
	stage_close(&s);
}

/* A client that died holds no reference: the partition can be removed. */
static void a_dead_client_releases_its_partition(void **state)
{
	struct stage s;
	struct user u;
	const char *where;
	int status;
	pid_t child;

	open_shop(&s);
	where = where_is(&s, "goods");
	child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "test_store_serve", "client", where, (char *)NULL);
		_exit(1);
	}
	enter(&u, &s, "goods");
	while (!reads_as(&u, 0, "here", 4))
		usleep(1000);
	leave(&u);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	while (stag_store_remove(s.store, "goods", 0) == EBUSY)
		usleep(1000);
	stage_close(&s);
}

/* ---- invalid connection requests ------------------------------------------------------------- */

/*
 * Connects as a plain rdma_cm program. Returns true if it was accepted. reason: that of the
 * refusal, 0: none was given.
 */
static bool connect_with_private_data(uint16_t port, const void *bytes, uint8_t len,
				      uint8_t *reason)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *where;
	struct ibv_qp_init_attr qp = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_conn_param param = {.private_data = len > 0 ? bytes : NULL,
					.private_data_len = len,
					.initiator_depth = 1,
					.responder_resources = 1};
	const struct stag_store_refusal *r;
	struct rdma_cm_id *id;
	char word[8];
	bool in;

	snprintf(word, sizeof(word), "%u", port);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", word, &hints, &where), 0);
	assert_int_equal(rdma_create_ep(&id, where, NULL, &qp), 0);
	rdma_freeaddrinfo(where);
	in = rdma_connect(id, &param) == 0;
	*reason = 0;
	if (!in && id->event && id->event->param.conn.private_data_len >= sizeof(*r)) {
		r = id->event->param.conn.private_data;
		*reason = r->reason;
	}
	if (in)
		rdma_disconnect(id);
	rdma_destroy_ep(id);
	return in;
}

static void invalid_connection_requests_are_refused(void **state)
{
	struct stag_store_hello h;
	uint8_t older[112] = {[8] = 1, [16] = 'g'}, junk[200], reason;
	struct stage s;
	struct user u;

	open_shop(&s);
	assert_int_equal(hello_make(&h, "goods", NULL), 0);
	assert_true(connect_with_private_data(stag_store_server_port(s.server), &h, sizeof(h),
					      &reason));
	assert_false(connect_with_private_data(stag_store_server_port(s.server), &h, sizeof(h) - 1,
					       &reason));
	assert_int_equal(reason, REFUSED_PROTOCOL);
	assert_false(connect_with_private_data(stag_store_server_port(s.server), NULL, 0, &reason));
	assert_int_equal(reason, REFUSED_PROTOCOL);
	memcpy(older, h.magic, sizeof(h.magic));
	assert_false(connect_with_private_data(stag_store_server_port(s.server), older,
					       sizeof(older), &reason));
	assert_int_equal(reason, REFUSED_PROTOCOL);
	for (unsigned long n = scaled(50); n > 0; n--) {
		dice_fill(junk, sizeof(junk));
		if (one_in(2))
			memcpy(junk, &h, dice(offsetof(struct stag_store_hello, token)));
		if (memcmp(junk, &h, offsetof(struct stag_store_hello, token)) != 0)
			assert_false(connect_with_private_data(stag_store_server_port(s.server),
							       junk, (uint8_t)dice(sizeof(junk)),
							       &reason));
	}
	enter(&u, &s, "goods"); /* the server still works */
	leave(&u);
	stage_close(&s);
}

/* One answer for a partition that does not exist, and for one that is not theirs. */
static void strangers_do_not_learn_which_partitions_exist(void **state)
{
	struct stag_store_right r = {.who = STAG_STORE_TOKEN, .access = STAG_STORE_WRITE};
	struct stag_store_connect_attr wrong = {.token = "Sesame"};
	const char *names[] = {"goods", "goodz"};
	const uint8_t *shown[] = {NULL, (const uint8_t *)"0123456789abcdef0123456789abcdef"};
	struct stag_store_hello h;
	char said[2][200];
	struct stage s;
	struct user u;
	uint8_t reason;

	open_shop(&s);
	assert_int_equal(stag_store_token("sesame", 6, r.token), 0);
	set_rights(&s, "goods", &r, 1);
	for (int name = 0; name < 2; name++) {
		for (int token = 0; token < 2; token++) {
			assert_int_equal(hello_make(&h, names[name], shown[token]), 0);
			assert_false(connect_with_private_data(stag_store_server_port(s.server), &h,
							       sizeof(h), &reason));
			assert_int_equal(reason, REFUSED_RIGHT);
		}
		assert_int_equal(try_enter(&u, &s, names[name], &wrong), EACCES);
		snprintf(said[name], sizeof(said[name]), "%s", strchr(stag_store_error(), ' '));
	}
	assert_string_equal(said[0], said[1]);
	stage_close(&s);
}

static void a_client_with_the_secret_is_admitted(void **state)
{
	struct stag_store_right r = {.who = STAG_STORE_TOKEN, .access = STAG_STORE_WRITE};
	struct stag_store_connect_attr attr = {.token = "sesame"};
	struct stage s;
	struct user u;

	open_shop(&s);
	assert_int_equal(stag_store_token("sesame", 6, r.token), 0);
	set_rights(&s, "goods", &r, 1);
	assert_int_equal(try_enter(&u, &s, "goods", NULL), EACCES);
	assert_int_equal(try_enter(&u, &s, "goods", &attr), 0);
	leave(&u);
	attr.token = "Sesame";
	assert_int_equal(try_enter(&u, &s, "goods", &attr), EACCES);
	stage_close(&s);
}

/* The token does not cross the network in the clear, and neither does anything else. */
static void a_token_encrypts_the_connection(void **state)
{
	struct stag_store_right r = {.who = STAG_STORE_TOKEN, .access = STAG_STORE_WRITE};
	struct stag_store_server_attr attr = {.comp_mask = STAG_STORE_SERVER_TLS,
					      .address = "127.0.0.1",
					      .flags = STAG_STORE_ANY_PORT,
					      .tls = STAGDV_TLS_REQUIRED};
	struct stag_store_connect_attr tls = {.token = "sesame", .flags = STAG_STORE_TLS};
	struct stag_store_connect_attr plain = {.token = "sesame"};
	struct stagdv_tls_info info = {0};
	struct stage s;
	struct user u;

	open_shop(&s);
	stag_store_server_stop(s.server);
	s.server = stag_store_serve(s.store, &attr);
	if (!s.server)
		fail_msg("%s", stag_store_error());
	assert_int_equal(stag_store_token("sesame", 6, r.token), 0);
	set_rights(&s, "goods", &r, 1);
	while (try_enter(&u, &s, "goods", &tls) != 0) /* the server reads its table after a while */
		usleep(10000);
	assert_int_equal(stagdv_query_tls(u.e->id, &info, sizeof(info)), 0);
	assert_true(info.encrypted && info.by_key);
	assert_int_equal(do_write(&u, 100, "hush", 4), IBV_WC_SUCCESS);
	assert_true(reads_as(&u, 100, "hush", 4));
	leave(&u);
	assert_int_not_equal(try_enter(&u, &s, "goods", &plain), 0);
	tls.token = "Sesame";
	assert_int_not_equal(try_enter(&u, &s, "goods", &tls), 0);
	tls.token = NULL;
	assert_int_equal(try_enter(&u, &s, "goods", &tls), EINVAL);
	stage_close(&s);
}

/* A server without TLS is not trusted with the token. */
static void a_client_that_requires_tls_gets_it_or_nothing(void **state)
{
	struct stag_store_right r = {.who = STAG_STORE_TOKEN, .access = STAG_STORE_WRITE};
	struct stag_store_connect_attr tls = {.token = "sesame", .flags = STAG_STORE_TLS};
	struct stage s;
	struct user u;

	open_shop(&s);
	assert_int_equal(stag_store_token("sesame", 6, r.token), 0);
	set_rights(&s, "goods", &r, 1);
	assert_int_not_equal(try_enter(&u, &s, "goods", &tls), 0);
	stage_close(&s);
}

/* A key is valid only on the connection that it was given to. */
static void a_key_of_another_connection_is_refused(void **state)
{
	struct stage s;
	struct user u, thief;

	open_shop(&s);
	enter(&u, &s, "goods");
	enter(&thief, &s, "goods");
	thief.e->rkey = u.e->rkey;
	assert_int_not_equal(do_read(&thief, 0, 8), IBV_WC_SUCCESS);
	assert_int_equal(do_read(&u, 0, 8), IBV_WC_SUCCESS);
	leave(&thief);
	leave(&u);
	stage_close(&s);
}

/* ---- the client that dies ------------------------------------------------------------------- */

static int run_as_client(const char *where)
{
	struct stag_store_connect_attr attr = {.timeout_ms = 30000};
	struct user u = {.e = stag_store_connect(where, &attr)};

	if (!u.e)
		return 1;
	u.mem = aligned_alloc(4096, USER_MEMORY);
	u.mr = ibv_reg_mr(u.e->qp->pd, u.mem, USER_MEMORY, IBV_ACCESS_LOCAL_WRITE);
	if (do_write(&u, 0, "here", 4) != IBV_WC_SUCCESS)
		return 1;
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_store_has_one_server),
		cmocka_unit_test(stopping_ends_connections),
		cmocka_unit_test(a_dead_client_releases_its_partition),
		cmocka_unit_test(invalid_connection_requests_are_refused),
		cmocka_unit_test(strangers_do_not_learn_which_partitions_exist),
		cmocka_unit_test(a_client_with_the_secret_is_admitted),
		cmocka_unit_test(a_token_encrypts_the_connection),
		cmocka_unit_test(a_client_that_requires_tls_gets_it_or_nothing),
		cmocka_unit_test(a_key_of_another_connection_is_refused),
	};

	if (argc == 3)
		return run_as_client(argv[2]);
	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
