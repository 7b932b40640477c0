// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_etcd.c - the roll in a real etcd: one that is killed, one that requires authentication, one of three
 * members.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "dice.h"
#include "pool/role/roll.h"

#define PATIENT "?timeout=30000"

static char dir[] = "/dev/shm/stag-etcd-XXXXXX";

static struct roll a_roll(void)
{
	struct roll r = {.epoch = 1, .in_sync = 1};

	r.members[0] = (struct roll_member){.name = "ant", .address = "[::1]:4791"};
	return r;
}

/* ---- etcd -------------------------------------------------------------------------------- */

struct etcd {
	pid_t pid;
	int port, peer_port;
	char name[8], peers[256];
	bool tls;
};

static int a_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
	getsockname(fd, (struct sockaddr *)&at, &len);
	close(fd);
	return ntohs(at.sin_port);
}

static void exec_etcd(const struct etcd *e)
{
	char url[64], peer[64], data[80], cert[80], key[80], ca[80], log_name[80];
	const char *argv[32] = {"etcd"};
	int n = 1, log;

	snprintf(url, sizeof(url), "%s://127.0.0.1:%d", e->tls ? "https" : "http", e->port);
	snprintf(peer, sizeof(peer), "http://127.0.0.1:%d", e->peer_port);
	snprintf(data, sizeof(data), "%s/%s", dir, e->name);
	snprintf(cert, sizeof(cert), "%s/node.crt", dir);
	snprintf(key, sizeof(key), "%s/node.key", dir);
	snprintf(ca, sizeof(ca), "%s/ca.crt", dir);
#define ARGS(...)                                                                                  \
	do {                                                                                       \
		const char *more[] = {__VA_ARGS__};                                                \
                                                                                                   \
		for (unsigned int i = 0; i < sizeof(more) / sizeof(more[0]); i++)                  \
			argv[n++] = more[i];                                                       \
	} while (0)
	ARGS("--name", e->name, "--data-dir", data, "--listen-client-urls", url,
	     "--advertise-client-urls", url, "--listen-peer-urls", peer,
	     "--initial-advertise-peer-urls", peer, "--initial-cluster", e->peers,
	     "--heartbeat-interval", "50", "--election-timeout", "500");
	if (e->tls)
		ARGS("--cert-file", cert, "--key-file", key, "--trusted-ca-file", ca,
		     "--client-cert-auth");
	snprintf(log_name, sizeof(log_name), "%s/%s.log", dir, e->name);
	log = open(log_name, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(log, 1);
	dup2(log, 2);
	execvp("etcd", (char **)argv);
	_exit(127);
}

static void start_etcd(struct etcd *e)
{
	e->pid = fork();
	assert_true(e->pid >= 0);
	if (e->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exec_etcd(e);
	}
}

static void kill_etcd(struct etcd *e)
{
	if (e->pid <= 0)
		return;
	kill(e->pid, SIGKILL);
	waitpid(e->pid, NULL, 0);
	e->pid = 0;
}

static struct etcd one_etcd(const char *name, bool tls)
{
	struct etcd e = {.port = a_port(), .peer_port = a_port(), .tls = tls};

	strcpy(e.name, name);
	snprintf(e.peers, sizeof(e.peers), "%s=http://127.0.0.1:%d", name, e.peer_port);
	start_etcd(&e);
	return e;
}

/* ---- rolls --------------------------------------------------------------------------------- */

static struct roll_answer noticed; /* the last change that the watch reported */

static struct roll_answer next_roll_answer(struct rolls *rolls)
{
	struct pollfd fd = {.fd = rolls_fd(rolls), .events = POLLIN};
	struct roll_answer a;

	while (!rolls_next(rolls, &a))
		poll(&fd, 1, -1);
	if (a.result == ROLL_CHANGED)
		noticed = a;
	return a;
}

/* Waits for the answer to a request, past reports of changes. */
static struct roll_answer await_answer(struct rolls *rolls)
{
	struct roll_answer a;

	do
		a = next_roll_answer(rolls);
	while (a.result == ROLL_CHANGED);
	return a;
}

static struct roll_answer read_now(struct rolls *rolls)
{
	assert_int_equal(rolls_read(rolls, 5), 0);
	return await_answer(rolls);
}

static struct roll_answer read_until_answered(struct rolls *rolls)
{
	struct roll_answer a;

	while ((a = read_now(rolls)).result != ROLL_READ)
		poll(NULL, 0, 20);
	return a;
}

static struct roll_answer swap_now(struct rolls *rolls, uint64_t revision, const struct roll *roll)
{
	assert_int_equal(rolls_swap(rolls, 6, revision, roll), 0);
	return await_answer(rolls);
}

/*
 * Swaps the roll in, and retries until a read shows it: on a busy machine requests may time out. Returns its
 * revision.
 */
static uint64_t swap_in(struct rolls *rolls, const struct roll *roll)
{
	for (;;) {
		struct roll_answer a = read_until_answered(rolls);

		if (a.revision && a.roll.epoch == roll->epoch)
			return a.revision;
		swap_now(rolls, a.revision, roll);
	}
}

__attribute__((format(printf, 1, 2))) static struct rolls *open_rolls(const char *format, ...)
{
	struct rolls *rolls;
	char where[512];
	va_list args;

	va_start(args, format);
	vsnprintf(where, sizeof(where), format, args);
	va_end(args);
	assert_int_equal(rolls_open(where, &rolls), 0);
	memset(&noticed, 0, sizeof(noticed));
	return rolls;
}

/* ---- one of them ------------------------------------------------------------------------------ */

static struct etcd etcd;

static int start_one(void **state)
{
	struct rolls *rolls;

	etcd = one_etcd("one", false);
	rolls = open_rolls("etcd://127.0.0.1:%d/ready", etcd.port);
	read_until_answered(rolls);
	rolls_close(rolls);
	return 0;
}

static int stop_one(void **state)
{
	kill_etcd(&etcd);
	return 0;
}

static void a_key_is_swapped_by_revision(void **state)
{
	struct rolls *rolls = open_rolls("etcd://127.0.0.1:%d/swap" PATIENT, etcd.port);
	struct roll r = a_roll();
	struct roll_answer a = read_now(rolls);
	uint64_t revision;

	assert_int_equal(a.result, ROLL_READ);
	assert_int_equal(a.revision, 0);
	a = swap_now(rolls, 0, &r);
	assert_int_equal(a.result, ROLL_WON);
	revision = a.revision;
	assert_true(revision > 0);
	r.epoch++;
	assert_int_equal(swap_now(rolls, 0, &r).result, ROLL_LOST);
	assert_int_equal(swap_now(rolls, revision - 1, &r).result, ROLL_LOST);
	a = swap_now(rolls, revision, &r);
	assert_int_equal(a.result, ROLL_WON);
	revision = a.revision;
	a = read_now(rolls);
	assert_int_equal(a.revision, revision);
	assert_memory_equal(&a.roll, &r, sizeof(r));
	rolls_close(rolls);
}

static void await_change(struct rolls *rolls, uint64_t epoch)
{
	while (noticed.result != ROLL_CHANGED || noticed.roll.epoch != epoch)
		next_roll_answer(rolls);
}

static void watch_reports_changes_of_others(void **state)
{
	struct rolls *one = open_rolls("etcd://127.0.0.1:%d/watch" PATIENT, etcd.port);
	struct rolls *other = open_rolls("etcd://127.0.0.1:%d/watch" PATIENT, etcd.port);
	struct roll r = a_roll();
	uint64_t revision = 0;

	assert_int_equal(rolls_watch(one), 0);
	for (int i = 0; i < 5; i++) {
		revision = swap_now(other, revision, &r).revision;
		await_change(one, r.epoch);
		r.epoch++;
	}
	rolls_close(one);
	rolls_close(other);
}

static void value_that_is_no_roll_is_reported(void **state)
{
	struct rolls *rolls = open_rolls("etcd://127.0.0.1:%d/bad" PATIENT, etcd.port);
	char command[200];

	snprintf(command, sizeof(command),
		 "ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:%d put bad '{\"stag-pool\": 2}' "
		 ">/dev/null",
		 etcd.port);
	assert_int_equal(system(command), 0);
	assert_int_equal(read_now(rolls).error, -EBADMSG);
	rolls_close(rolls);
}

/* While etcd is down, outcomes are unknown; once it is restarted, the roll is as it was. */
static void requests_wait_for_a_killed_etcd(void **state)
{
	struct rolls *rolls = open_rolls("etcd://127.0.0.1:%d/killed?timeout=300", etcd.port);
	struct rolls *other = open_rolls("etcd://127.0.0.1:%d/killed", etcd.port);
	struct roll r = a_roll();
	uint64_t revision = swap_in(rolls, &r);

	assert_int_equal(rolls_watch(rolls), 0);
	await_change(rolls, r.epoch);
	kill_etcd(&etcd);
	assert_int_equal(read_now(rolls).result, ROLL_UNKNOWN);
	r.epoch++;
	assert_int_equal(swap_now(rolls, revision, &r).result, ROLL_UNKNOWN);
	start_etcd(&etcd);
	assert_int_equal(read_until_answered(rolls).revision, revision);
	assert_true(swap_in(rolls, &r) > revision);
	/* The watch is re-established, too. */
	r.epoch++;
	swap_in(other, &r);
	await_change(rolls, r.epoch);
	rolls_close(rolls);
	rolls_close(other);
}

/* ---- endpoints that do not answer --------------------------------------------------------------- */

/* A proxy that forwards requests to etcd (or drops them, if `onward` is 0), and never returns an answer. */
struct swallower {
	pthread_t thread;
	int listener, port, onward;
};

static int connect_to(int port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	return connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 ? fd : -1;
}

static void *swallow_thread(void *arg)
{
	struct swallower *s = arg;
	int from = accept(s->listener, NULL, NULL), to = s->onward ? connect_to(s->onward) : -1;
	char bytes[4096];
	ssize_t n;

	while ((n = read(from, bytes, sizeof(bytes))) > 0)
		if (to >= 0 && write(to, bytes, (size_t)n) != n)
			break;
	close(from);
	if (to >= 0)
		close(to);
	return NULL;
}

static void start_swallower(struct swallower *s, int onward)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);

	s->onward = onward;
	s->listener = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(s->listener, (struct sockaddr *)&at, len), 0);
	assert_int_equal(listen(s->listener, 1), 0);
	getsockname(s->listener, (struct sockaddr *)&at, &len);
	s->port = ntohs(at.sin_port);
	assert_int_equal(pthread_create(&s->thread, NULL, swallow_thread, s), 0);
}

static void stop_swallower(struct swallower *s)
{
	pthread_join(s->thread, NULL);
	close(s->listener);
}

static void a_dead_endpoint_is_passed_over(void **state)
{
	struct rolls *rolls =
		open_rolls("etcd://127.0.0.1:%d,127.0.0.1:%d/dead" PATIENT, a_port(), etcd.port);
	struct roll r = a_roll();

	assert_int_equal(swap_now(rolls, 0, &r).result, ROLL_WON);
	assert_int_equal(read_now(rolls).roll.epoch, r.epoch);
	rolls_close(rolls);
}

static void a_silent_endpoint_is_passed_over(void **state)
{
	struct swallower s;
	struct roll r = a_roll();
	struct rolls *rolls;

	start_swallower(&s, 0);
	rolls = open_rolls("etcd://127.0.0.1:%d,127.0.0.1:%d/silent?timeout=200", s.port,
			   etcd.port);
	assert_true(swap_in(rolls, &r) > 0);
	rolls_close(rolls);
	stop_swallower(&s);
}

/* The swap was done and its answer lost. A retry would find another revision and report LOST: UNKNOWN is right. */
static void swap_whose_answer_is_missing_is_unknown(void **state)
{
	struct swallower s;
	struct roll r = a_roll();
	struct roll_answer a;
	struct rolls *rolls;

	start_swallower(&s, etcd.port);
	rolls = open_rolls("etcd://127.0.0.1:%d,127.0.0.1:%d/swallowed?timeout=2000", s.port,
			   etcd.port);
	assert_int_equal(swap_now(rolls, 0, &r).result, ROLL_UNKNOWN);
	a = read_now(rolls);
	assert_true(a.revision > 0);
	assert_int_equal(a.roll.epoch, r.epoch);
	rolls_close(rolls);
	stop_swallower(&s);
}

/* ---- authentication ------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static void run_command(const char *format, ...)
{
	char command[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	if (system(command) != 0)
		fail_msg("failed: %s", command);
}

/* The certificates have no common name: with passwords, etcd's gateway accepts no certificate with one. */
static void make_certificates(void)
{
	run_command(
		"cd %s && exec >openssl.log 2>&1 &&"
		"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "
		"ca.key "
		"-out ca.crt -days 2 -subj /CN=ca &&"
		"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "
		"x.key "
		"-out other.crt -days 2 -subj /CN=x &&"
		"for who in node client; do"
		" openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $who.key "
		"-out "
		"$who.csr -subj /O=$who &&"
		" printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=serverAuth,clientAuth\\n' "
		">ext &&"
		" openssl x509 -req -in $who.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 "
		"-extfile ext -out $who.crt || exit 1;"
		"done; printf 'right\\n' >password; printf wrong >wrong; chmod 600 password wrong",
		dir);
}

#define TLS "timeout=30000&ca=%1$s/ca.crt&cert=%1$s/client.crt&key=%1$s/client.key"
#define ANN "&user=ann&password-file=%1$s/password"

static void demand_passwords(const struct etcd *e)
{
	run_command("export ETCDCTL_API=3; c=\"etcdctl --endpoints https://127.0.0.1:%d --cacert "
		    "%s/ca.crt "
		    "--cert %s/client.crt --key "
		    "%s/client.key\"; exec >%s/ctl.log 2>&1; $c user add root:very && $c user "
		    "grant-role "
		    "root root; $c user add ann:right "
		    "&& $c role add pools && $c role grant-permission pools --prefix=true "
		    "readwrite pools/ "
		    "&& "
		    "$c user grant-role ann pools && $c auth enable",
		    e->port, dir, dir, dir, dir);
}

static void expect_refused(struct rolls *rolls)
{
	struct roll r = a_roll();

	assert_int_equal(read_now(rolls).result, ROLL_UNKNOWN);
	assert_int_equal(swap_now(rolls, 0, &r).result, ROLL_UNKNOWN);
	rolls_close(rolls);
}

static void only_authenticated_requests_succeed(void **state)
{
	struct roll r = a_roll();
	struct etcd e;
	struct rolls *rolls;

	if (is_slow_build())
		skip();
	make_certificates();
	e = one_etcd("tls", true);
	rolls = open_rolls("etcds://127.0.0.1:%2$d/pools/a?" TLS, dir, e.port);
	read_until_answered(rolls);
	rolls_close(rolls);
	demand_passwords(&e);

	rolls = open_rolls("etcds://127.0.0.1:%2$d/pools/a?" TLS
			   "&user=ann&password-file=%1$s/password",
			   dir, e.port);
	assert_int_equal(rolls_watch(rolls), 0);
	swap_in(rolls, &r);
	await_change(rolls, r.epoch);
	rolls_close(rolls);

	expect_refused(open_rolls("etcds://127.0.0.1:%2$d/pools/a?" TLS, dir, e.port));
	expect_refused(open_rolls("etcds://127.0.0.1:%2$d/pools/a?" TLS
				  "&user=ann&password-file=%1$s/wrong",
				  dir, e.port));
	expect_refused(open_rolls("etcds://127.0.0.1:%2$d/pools/a?" TLS
				  "&user=ann&password-file=%1$s/none",
				  dir, e.port));
	expect_refused(open_rolls("etcds://127.0.0.1:%2$d/other/a?" TLS ANN, dir, e.port));
	expect_refused(
		open_rolls("etcds://127.0.0.1:%2$d/pools/a?ca=%1$s/ca.crt" ANN, dir, e.port));
	expect_refused(
		open_rolls("etcds://127.0.0.1:%2$d/pools/a?ca=%1$s/other.crt" ANN, dir, e.port));
	expect_refused(open_rolls(
		"etcd://127.0.0.1:%2$d/pools/a?user=ann&password-file=%1$s/password", dir, e.port));
	kill_etcd(&e);
}

/* ---- three of them ---------------------------------------------------------------------------------- */

/* Members are killed and restarted one after the other: as long as two are alive, swaps succeed. */
static void two_of_three_are_enough(void **state)
{
	struct etcd e[3];
	char peers[256];
	struct roll r = a_roll();
	uint64_t revision;
	struct rolls *rolls;

	if (!getenv("STAG_LONG"))
		skip();
	for (int i = 0; i < 3; i++) {
		e[i] = (struct etcd){.port = a_port(), .peer_port = a_port()};
		strcpy(e[i].name, (const char *[]){"m0", "m1", "m2"}[i]);
	}
	snprintf(peers, sizeof(peers),
		 "m0=http://127.0.0.1:%d,m1=http://127.0.0.1:%d,m2=http://127.0.0.1:%d",
		 e[0].peer_port, e[1].peer_port, e[2].peer_port);
	for (int i = 0; i < 3; i++) {
		strcpy(e[i].peers, peers);
		start_etcd(&e[i]);
	}
	rolls = open_rolls("etcd://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/three", e[0].port,
			   e[1].port, e[2].port);
	read_until_answered(rolls);
	revision = swap_in(rolls, &r);
	for (int i = 0; i < 9; i++) {
		kill_etcd(&e[i % 3]);
		r.epoch++;
		revision = swap_in(rolls, &r);
		start_etcd(&e[i % 3]);
	}
	assert_int_equal(read_until_answered(rolls).roll.epoch, 10);
	kill_etcd(&e[0]);
	kill_etcd(&e[1]);
	r.epoch++;
	assert_int_equal(swap_now(rolls, revision, &r).result, ROLL_UNKNOWN);
	rolls_close(rolls);
	kill_etcd(&e[2]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_is_swapped_by_revision),
		cmocka_unit_test(watch_reports_changes_of_others),
		cmocka_unit_test(value_that_is_no_roll_is_reported),
		cmocka_unit_test(a_dead_endpoint_is_passed_over),
		cmocka_unit_test(a_silent_endpoint_is_passed_over),
		cmocka_unit_test(swap_whose_answer_is_missing_is_unknown),
		cmocka_unit_test(requests_wait_for_a_killed_etcd),
		cmocka_unit_test(only_authenticated_requests_succeed),
		cmocka_unit_test(two_of_three_are_enough),
	};
	char command[100];
	int rc;

	if (system("command -v etcd etcdctl openssl >/dev/null") != 0)
		return 77;
	signal(SIGPIPE, SIG_IGN);
	if (!mkdtemp(dir))
		return 1;
	dice_start();
	rc = cmocka_run_group_tests(tests, start_one, stop_one);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command) == 0 ? rc : 1;
}
