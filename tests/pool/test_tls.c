// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_tls.c - a pool whose connections are encrypted by keys made of its secrets, or by certificates; and somebody in
 * between, who relays everything: without TLS, admission succeeds through him and he reads what follows; with TLS, he has
 * nothing.
 *
 *   test_pool_tls CERTS - a directory made by tests/lib/make-certs
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "stag/pool.h"

#define SECRET	"a secret of the nodes"
#define VALUE	"words that nobody in between may read"
#define STREAMS 16
#define ALL	(STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE | STAG_POOL_RIGHT_ADMIN)

static char dir[] = "/dev/shm/stag-tls-XXXXXX", roll[64], states[64];
static const struct stag_pool_user users[] = {
	{.name = "ann", .secret = "what ann knows alone", .rights = ALL},
	{.name = "bob", .secret = "what bob knows alone", .rights = ALL},
};

static const char *certs;

static int make_dir(void **state)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(roll, sizeof(roll), "file:%s/roll", dir);
	snprintf(states, sizeof(states), "%s/a", dir);
	return 0;
}

static int remove_dir(void **state)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static struct stag_pool_node *start_with(struct stag_pool_node_attr *attr)
{
	struct stag_pool_node *node = stag_pool_node_start(attr);

	if (!node)
		fail_msg("%s", stag_pool_error());
	return node;
}

static struct stag_pool_node_attr attr_of_node(enum stag_pool_tls tls)
{
	return (struct stag_pool_node_attr){.pool = "test",
					    .node = "a",
					    .roll = roll,
					    .state = states,
					    .secret = SECRET,
					    .address = "127.0.0.1",
					    .flags = STAG_POOL_CREATE | STAG_POOL_ANY_PORT,
					    .size = 8u << 20,
					    .users = users,
					    .num_users = 2,
					    .tls = tls};
}

static struct stag_pool_node *start_node(enum stag_pool_tls tls)
{
	struct stag_pool_node_attr attr = attr_of_node(tls);

	return start_with(&attr);
}

static struct stag_pool_node_info info_of(struct stag_pool_node *node)
{
	struct stag_pool_node_info info = {0};

	assert_int_equal(stag_pool_node_query(node, &info, sizeof(info)), 0);
	return info;
}

static uint16_t port_of(struct stag_pool_node *node)
{
	return (uint16_t)info_of(node).port;
}

static struct stag_pool *open_at(uint16_t port, const char *user, const char *secret,
				 enum stag_pool_tls tls, int timeout_ms)
{
	struct stag_pool_attr attr = {.user = user,
				      .secret = secret,
				      .retry_ms = 60000,
				      .timeout_ms = timeout_ms,
				      .tls = tls};
	char where[32];

	snprintf(where, sizeof(where), "127.0.0.1:%u", port);
	return stag_pool_open(where, &attr);
}

static struct stag_pool *open_as_ann(uint16_t port, enum stag_pool_tls tls)
{
	struct stag_pool *pool = open_at(port, "ann", users[0].secret, tls, 60000);

	if (!pool)
		fail_msg("%s", stag_pool_error());
	return pool;
}

static void assert_works(struct stag_pool *pool)
{
	char got[sizeof(VALUE)] = "";
	size_t length = sizeof(got);

	assert_int_equal(stag_pool_put(pool, "name", VALUE, sizeof(VALUE), 0, NULL), 0);
	assert_int_equal(stag_pool_get(pool, "name", got, &length, NULL), 0);
	assert_string_equal(got, VALUE);
}

/* ---- somebody in between ---- */

struct relay {
	int listening;
	uint16_t port, to;
	int fd[STREAMS][2];
	unsigned n;
	atomic_bool read_it; /* the value passed in the clear */
	atomic_bool stop;
	pthread_t thread;
};

static int dial(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void take_call(struct relay *r)
{
	int from = accept(r->listening, NULL, NULL), to = dial(r->to);

	if (from < 0 || to < 0 || r->n == STREAMS) {
		close(from);
		close(to);
		return;
	}
	r->fd[r->n][0] = from;
	r->fd[r->n++][1] = to;
}

/* Passes on what one side said. */
static void pass_on(struct relay *r, int *from, int *to)
{
	static uint8_t bytes[1 << 16];
	ssize_t n = recv(*from, bytes, sizeof(bytes), 0);

	if (n > 0 && memmem(bytes, (size_t)n, VALUE, sizeof(VALUE) - 1))
		atomic_store(&r->read_it, true);
	if (n > 0 && send(*to, bytes, (size_t)n, MSG_NOSIGNAL) == n)
		return;
	close(*from);
	close(*to);
	*from = *to = -1;
}

static void *relay_thread(void *arg)
{
	struct relay *r = arg;

	while (!atomic_load(&r->stop)) {
		struct pollfd p[1 + 2 * STREAMS] = {{.fd = r->listening, .events = POLLIN}};

		for (unsigned i = 0; i < 2 * r->n; i++)
			p[i + 1] = (struct pollfd){.fd = r->fd[i / 2][i % 2], .events = POLLIN};
		poll(p, 1 + 2 * r->n, 10);
		for (unsigned i = 0; i < 2 * r->n; i++)
			if (p[i + 1].revents && r->fd[i / 2][i % 2] >= 0)
				pass_on(r, &r->fd[i / 2][i % 2], &r->fd[i / 2][!(i % 2)]);
		if (p[0].revents)
			take_call(r);
	}
	return NULL;
}

static void relay_begin(struct relay *r, uint16_t to)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	*r = (struct relay){.to = to, .listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	assert_int_equal(bind(r->listening, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(r->listening, 16), 0);
	assert_int_equal(getsockname(r->listening, (struct sockaddr *)&a, &len), 0);
	r->port = ntohs(a.sin_port);
	assert_int_equal(pthread_create(&r->thread, NULL, relay_thread, r), 0);
}

static void relay_end(struct relay *r)
{
	atomic_store(&r->stop, true);
	pthread_join(r->thread, NULL);
	for (unsigned i = 0; i < 2 * r->n; i++)
		if (r->fd[i / 2][i % 2] >= 0)
			close(r->fd[i / 2][i % 2]);
	close(r->listening);
}

static bool is_read_in_between(enum stag_pool_tls tls)
{
	struct stag_pool_node *node = start_node(tls);
	struct stag_pool *pool;
	struct relay r;

	relay_begin(&r, port_of(node));
	pool = open_as_ann(r.port, tls);
	assert_works(pool);
	stag_pool_close(pool);
	relay_end(&r);
	stag_pool_node_stop(node);
	return atomic_load(&r.read_it);
}

static void without_tls_somebody_in_between_reads_everything(void **state)
{
	assert_true(is_read_in_between(STAG_POOL_TLS_OFF));
}

static void with_tls_somebody_in_between_reads_nothing(void **state)
{
	assert_false(is_read_in_between(STAG_POOL_TLS_REQUIRED));
}

/* ---- who is let in ---- */

static void secrets_are_keys(void **state)
{
	struct stag_pool_node *node = start_node(STAG_POOL_TLS_REQUIRED);
	struct stag_pool *pool = open_as_ann(port_of(node), STAG_POOL_TLS_REQUIRED);

	assert_works(pool);
	assert_null(open_at(port_of(node), "ann", users[1].secret, STAG_POOL_TLS_REQUIRED, 1000));
	assert_null(open_at(port_of(node), "eve", users[1].secret, STAG_POOL_TLS_REQUIRED, 1000));
	assert_null(open_at(port_of(node), "ann", users[0].secret, STAG_POOL_TLS_OFF, 1000));
	assert_works(pool);
	stag_pool_close(pool);
	stag_pool_node_stop(node);
}

static void new_users_have_keys_and_removed_ones_none(void **state)
{
	struct stag_pool_user later[] = {
		users[0], {.name = "eve", .secret = "what eve knows alone", .rights = ALL}};
	struct stag_pool_node *node = start_node(STAG_POOL_TLS_REQUIRED);
	struct stag_pool *pool;

	assert_int_equal(stag_pool_node_set_users(node, later, 2), 0);
	assert_null(open_at(port_of(node), "bob", users[1].secret, STAG_POOL_TLS_REQUIRED, 1000));
	pool = open_at(port_of(node), "eve", later[1].secret, STAG_POOL_TLS_REQUIRED, 60000);
	assert_non_null(pool);
	assert_works(pool);
	stag_pool_close(pool);
	stag_pool_node_stop(node);
}

static void allowed_takes_both(void **state)
{
	struct stag_pool_node *node = start_node(STAG_POOL_TLS_ALLOWED);

	for (int tls = STAG_POOL_TLS_OFF; tls <= STAG_POOL_TLS_REQUIRED; tls++) {
		struct stag_pool *pool = open_as_ann(port_of(node), (enum stag_pool_tls)tls);

		assert_works(pool);
		stag_pool_close(pool);
	}
	stag_pool_node_stop(node);
}

static void a_client_that_allows_it_meets_a_node_without(void **state)
{
	struct stag_pool_node *node = start_node(STAG_POOL_TLS_OFF);
	struct stag_pool *pool = open_as_ann(port_of(node), STAG_POOL_TLS_ALLOWED);

	assert_works(pool);
	stag_pool_close(pool);
	assert_null(open_at(port_of(node), "ann", users[0].secret, STAG_POOL_TLS_REQUIRED, 1000));
	stag_pool_node_stop(node);
}

/* ---- certificates ---- */

struct files {
	char cert[300], key[300], ca[300];
};

static struct files files_of(const char *name, const char *ca)
{
	struct files f;

	snprintf(f.cert, sizeof(f.cert), "%s/%s.pem", certs, name);
	snprintf(f.key, sizeof(f.key), "%s/%s.key", certs, name);
	snprintf(f.ca, sizeof(f.ca), "%s/%s.pem", certs, ca);
	return f;
}

/* Node a creates the pool; node b joins it. Both listen on all addresses, and are to be reached at 127.0.0.1. */
static struct stag_pool_node *start_by_cert(const char *name, const char *cert, const char *ca,
					    void (*log)(void *arg, int level, const char *line),
					    void *arg)
{
	struct stag_pool_node_attr attr = attr_of_node(STAG_POOL_TLS_REQUIRED);
	struct files f = files_of(cert, ca);
	char own[64];

	snprintf(own, sizeof(own), "%s/%s", dir, name);
	attr.node = name;
	attr.state = own;
	attr.address = NULL;
	attr.advertise = "127.0.0.1";
	attr.tls_cert = f.cert;
	attr.tls_key = f.key;
	attr.tls_ca = f.ca;
	attr.log = log;
	attr.log_arg = arg;
	if (*name != 'a')
		attr.flags &= ~(uint32_t)STAG_POOL_CREATE;
	return start_with(&attr);
}

static struct stag_pool *open_by_cert(const char *host, uint16_t port, const char *cert,
				      const char *ca, int timeout_ms)
{
	struct files f = files_of(cert, ca);
	struct stag_pool_attr attr = {.user = "ann",
				      .secret = users[0].secret,
				      .timeout_ms = timeout_ms,
				      .tls = STAG_POOL_TLS_REQUIRED,
				      .tls_cert = f.cert,
				      .tls_key = f.key,
				      .tls_ca = f.ca};
	char where[64];

	snprintf(where, sizeof(where), "%s:%u", host, port);
	return stag_pool_open(where, &attr);
}

static void assert_refused(struct stag_pool *pool, const char *why)
{
	assert_null(pool);
	if (!strstr(stag_pool_error(), why))
		fail_msg("'%s' does not say: %s", stag_pool_error(), why);
}

/* ---- a second node, in a process of its own: the pool's memory has one address ---- */

enum fate { IS_STANDBY, IS_REFUSED, IS_NEITHER };

/* Called by the node's thread. */
static void note_refusal(void *arg, int level, const char *line)
{
	if (strstr(line, "cannot follow the primary at 127.0.0.1:") && strstr(line, "certificate"))
		atomic_store((atomic_bool *)arg, true);
}

/* Runs node b until it is a standby, or says that it is refused. */
static enum fate run_second(const char *cert, const char *ca)
{
	atomic_bool refused = false;
	struct stag_pool_node *b = start_by_cert("b", cert, ca, note_refusal, &refused);
	enum fate fate = IS_NEITHER;

	for (int ms = 0; ms < 60000 && fate == IS_NEITHER; ms += 10) {
		usleep(10000);
		if (info_of(b).role == STAG_POOL_ROLE_STANDBY)
			fate = IS_STANDBY;
		else if (atomic_load(&refused))
			fate = IS_REFUSED;
	}
	stag_pool_node_stop(b);
	return fate;
}

static int fate_of_second(const char *cert, const char *ca)
{
	char *args[] = {"test_pool_tls", (char *)certs, dir, (char *)cert, (char *)ca, NULL};
	int status;
	pid_t pid;

	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void certificates_of_one_authority_let_nodes_and_clients_in(void **state)
{
	struct stag_pool_node *a = start_by_cert("a", "node", "ca", NULL, NULL);
	struct stag_pool *pool;
	struct relay r;

	relay_begin(&r, port_of(a));
	pool = open_by_cert("127.0.0.1", r.port, "client", "ca", 60000);
	if (!pool)
		fail_msg("%s", stag_pool_error());
	assert_works(pool);
	assert_false(atomic_load(&r.read_it));
	assert_int_equal(fate_of_second("other", "ca"), IS_STANDBY);
	assert_works(pool);
	stag_pool_close(pool);
	relay_end(&r);
	stag_pool_node_stop(a);
}

static void a_certificate_does_not_replace_the_secret(void **state)
{
	struct stag_pool_node *a = start_by_cert("a", "node", "ca", NULL, NULL);
	struct files f = files_of("client", "ca");
	struct stag_pool_attr attr = {.user = "ann",
				      .secret = users[1].secret,
				      .timeout_ms = 60000,
				      .tls = STAG_POOL_TLS_REQUIRED,
				      .tls_cert = f.cert,
				      .tls_key = f.key,
				      .tls_ca = f.ca};
	char where[64];

	snprintf(where, sizeof(where), "127.0.0.1:%u", port_of(a));
	assert_refused(stag_pool_open(where, &attr), "no such user, or wrong secret");
	stag_pool_node_stop(a);
}

static void clients_of_another_authority_are_refused(void **state)
{
	struct stag_pool_node *a = start_by_cert("a", "node", "ca", NULL, NULL);
	uint16_t port = port_of(a);

	assert_refused(open_by_cert("127.0.0.1", port, "client", "wrong-ca", 60000),
		       "the node's certificate is not accepted");
	assert_refused(open_by_cert("127.0.0.1", port, "stranger", "ca", 60000),
		       "the node does not accept our certificate");
	assert_refused(open_by_cert("127.0.0.2", port, "client", "ca", 60000),
		       "not for this address");
	stag_pool_node_stop(a);
}

static void clients_without_a_certificate_are_refused(void **state)
{
	struct stag_pool_node *a = start_by_cert("a", "node", "ca", NULL, NULL);
	uint16_t port = port_of(a);

	assert_refused(open_at(port, "ann", users[0].secret, STAG_POOL_TLS_REQUIRED, 60000),
		       "or the node uses certificates");
	assert_null(open_at(port, "ann", users[0].secret, STAG_POOL_TLS_OFF, 1000));
	stag_pool_node_stop(a);
}

static void clients_with_a_certificate_refuse_a_node_without(void **state)
{
	struct stag_pool_node *a = start_node(STAG_POOL_TLS_REQUIRED);

	assert_refused(open_by_cert("127.0.0.1", port_of(a), "client", "ca", 60000), "certificate");
	stag_pool_node_stop(a);
}

static void nodes_of_another_authority_are_refused(void **state)
{
	struct stag_pool_node *a = start_by_cert("a", "node", "ca", NULL, NULL);

	assert_int_equal(fate_of_second("stranger", "wrong-ca"), IS_REFUSED);
	stag_pool_node_stop(a);
}

static void files_come_together(void **state)
{
	const struct stag_pool_attr one = {.tls = STAG_POOL_TLS_REQUIRED, .tls_ca = "ca.pem"},
				    off = {.tls_cert = "x", .tls_key = "x", .tls_ca = "x"},
				    none = {.tls = STAG_POOL_TLS_REQUIRED,
					    .tls_cert = "/no/cert",
					    .tls_key = "/no/key",
					    .tls_ca = "/no/ca"};

	assert_refused(stag_pool_open("127.0.0.1:1", &one), "come together");
	assert_refused(stag_pool_open("127.0.0.1:1", &off), "while tls is off");
	assert_refused(stag_pool_open("127.0.0.1:1", &none), "/no/cert");
}

#define POOL_TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		POOL_TEST(without_tls_somebody_in_between_reads_everything),
		POOL_TEST(with_tls_somebody_in_between_reads_nothing),
		POOL_TEST(secrets_are_keys),
		POOL_TEST(new_users_have_keys_and_removed_ones_none),
		POOL_TEST(allowed_takes_both),
		POOL_TEST(a_client_that_allows_it_meets_a_node_without),
		POOL_TEST(certificates_of_one_authority_let_nodes_and_clients_in),
		POOL_TEST(a_certificate_does_not_replace_the_secret),
		POOL_TEST(clients_of_another_authority_are_refused),
		POOL_TEST(clients_without_a_certificate_are_refused),
		POOL_TEST(clients_with_a_certificate_refuse_a_node_without),
		POOL_TEST(nodes_of_another_authority_are_refused),
		POOL_TEST(files_come_together),
	};

	if (argc != 2 && argc != 5)
		return 2;
	certs = argv[1];
	if (argc == 5) {
		strcpy(dir, argv[2]);
		snprintf(roll, sizeof(roll), "file:%s/roll", dir);
		return run_second(argv[3], argv[4]);
	}

	return cmocka_run_group_tests(tests, NULL, NULL);
}
