// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_live.c - the live queries that a process answers about itself, and that no client of them
 * can disturb it.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stag/stagdv.h>

#include "live.h"
#include "side.h"

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* ---- querying ---- */

static json_int_t number_field(const json_t *o, const char *name)
{
	json_t *n = json_object_get(o, name);

	if (!json_is_integer(n))
		fail_msg("field %s is missing or no integer", name);
	return json_integer_value(n);
}

static const char *string_field(const json_t *o, const char *name)
{
	const char *s = json_string_value(json_object_get(o, name));

	if (!s)
		fail_msg("field %s is missing or no string", name);
	return s;
}

/* Retries on ETIMEDOUT: a loaded machine may exceed the client's time limit. */
static json_t *query_process(int pid, const char *what)
{
	json_t *o = NULL;

	await((o = live_ask(pid, what)) || errno != ETIMEDOUT);
	return o;
}

static json_t *query_self(const char *what)
{
	json_t *o = query_process(getpid(), what);

	if (!o)
		fail_msg("cannot query this process: %s", strerror(errno));
	return o;
}

static json_t *find_by(const json_t *list, const char *name, json_int_t number)
{
	json_t *o;
	size_t i;

	json_array_foreach (list, i, o)
		if (json_integer_value(json_object_get(o, name)) == number)
			return o;
	return NULL;
}

static json_t *qp_of(const json_t *all, const struct side *s)
{
	json_t *o = find_by(json_object_get(all, "qps"), "qpn", s->qp->qp_num);

	if (!o)
		fail_msg("qp %u is not listed", s->qp->qp_num);
	return o;
}

static const json_t *region_of(const json_t *all, uint32_t stag)
{
	json_t *list = json_object_get(all, "regions"), *o;
	char text[16];
	size_t i;

	snprintf(text, sizeof(text), "0x%08x", stag);
	json_array_foreach (list, i, o)
		if (strcmp(string_field(o, "stag"), text) == 0)
			return o;
	return NULL;
}

/* ---- contents of the answers ---- */

static void query_reports_traffic(void **state)
{
	struct stagdv_counters c;
	struct pair p;
	json_t *o, *said;

	pair_open(&p, NULL, NULL);
	ping(&p);
	o = query_self("counters");
	assert_int_equal(stagdv_query_counters(p.a.ctx, &c, sizeof(c)), 0);
	said = json_object_get(o, "counters");
	assert_int_equal(number_field(o, "version"), 1);
	assert_int_equal(number_field(o, "pid"), getpid());
	assert_int_equal(number_field(o, "uid"), geteuid());
	assert_string_equal(string_field(o, "device"), "stag0");
	assert_string_equal(string_field(o, "program"), program_invocation_short_name);
	assert_int_equal(number_field(said, "posts"), c.posts);
	assert_int_equal(number_field(said, "tx_payload"), c.tx_payload);
	assert_int_equal(number_field(said, "mirror_stalls"), c.mirror_stalls);
	assert_int_equal(json_object_size(said), sizeof(c) / sizeof(uint64_t) - 1);
	assert_null(json_object_get(o, "qps"));
	assert_null(json_object_get(o, "regions"));
	json_decref(o);
	pair_close(&p);
}

static void assert_tls_is_told(const json_t *qp)
{
	const json_t *tls = json_object_get(qp, "tls");

	if (!getenv("STAG_TLS")) {
		assert_true(json_is_null(tls));
		return;
	}
	assert_string_equal(string_field(tls, "version"), "TLSv1.3");
	assert_string_equal(string_field(tls, "cipher"), "TLS_AES_128_GCM_SHA256");
	assert_string_equal(string_field(tls, "kernel"), "no");
}

static void query_lists_queue_pairs(void **state)
{
	struct stagdv_counters c;
	struct pair p;
	json_t *o, *a, *b;

	pair_open(&p, NULL, NULL);
	ping(&p);
	o = query_self("qps");
	a = qp_of(o, &p.a);
	b = qp_of(o, &p.b);
	assert_int_equal(stagdv_query_qp_counters(p.a.qp, &c, sizeof(c)), 0);
	assert_string_equal(string_field(a, "state"), "RTS");
	assert_string_equal(string_field(a, "kind"), getenv("STAG_EXTENSIONS") ? "iwarp" : "stag");
	assert_tls_is_told(a);
	assert_string_equal(string_field(a, "local"), string_field(b, "peer"));
	assert_string_equal(string_field(a, "peer"), string_field(b, "local"));
	assert_int_equal(number_field(a, "posts"), c.posts);
	assert_int_equal(number_field(a, "tx_bytes"), c.tx_bytes);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(a, "sq"), 0)), 0);
	assert_true(json_integer_value(json_array_get(json_object_get(a, "sq"), 1)) > 0);
	json_decref(o);
	pair_close(&p);
	o = query_self("qps"); /* queue pairs that were destroyed are not listed any more */
	assert_null(find_by(json_object_get(o, "qps"), "state", 0));
	assert_int_equal(json_array_size(json_object_get(o, "qps")), 0);
	json_decref(o);
}

static void query_lists_valid_keys(void **state)
{
	struct pair p;
	struct region *r;
	struct ibv_mr *keyed;
	uint32_t key = 0x12345678;
	json_t *o;
	const json_t *k;

	pair_open(&p, NULL, NULL);
	r = lend_region(&p.a, 8192, RIGHTS);
	keyed = stagdv_reg_mr_keyed(p.a.pd, r->at, 4096, IBV_ACCESS_REMOTE_READ, key);
	assert_non_null(keyed);
	o = query_self("regions");
	k = region_of(o, r->mr->rkey);
	assert_non_null(k);
	assert_string_equal(string_field(k, "kind"), "region");
	assert_int_equal(number_field(k, "length"), 8192);
	assert_int_equal(strtoull(string_field(k, "address"), NULL, 16), (uintptr_t)r->at);
	assert_int_equal(json_array_size(json_object_get(k, "access")), 3);
	assert_true(json_is_null(json_object_get(k, "lease_ns")));
	assert_string_equal(string_field(region_of(o, keyed->rkey), "kind"), "keyed");
	json_decref(o);
	assert_int_equal(ibv_dereg_mr(keyed), 0);
	o = query_self("regions");
	assert_null(region_of(o, key));
	json_decref(o);
	pair_close(&p);
}

/* The answer is valid JSON even if the program's name is not a valid JSON string. */
static void any_program_name_becomes_valid_json(void **state)
{
	static char odd[] = "a\"b\\\x01\xff\xc3\xa9\xed\xa0\x80\xe2\x82\xac\xf5 \xc3";
	char *old = program_invocation_short_name;
	struct pair p;
	json_t *o;

	pair_open(&p, NULL, NULL);
	program_invocation_short_name = odd;
	o = query_self("all");
	program_invocation_short_name = old;
	assert_string_equal(string_field(o, "program"),
			    "a\"b\\\x01\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
			    "\xe2\x82\xac\xef\xbf\xbd \xef\xbf\xbd");
	json_decref(o);
	pair_close(&p);
}

/* ---- latencies ---- */

static void write_many(struct pair *p, int n)
{
	struct region *from = own_region(&p->a, 64), *to = lend_region(&p->b, 64, RIGHTS);

	for (int i = 0; i < n; i++)
		expect_sent(&p->a, post_write(&p->a, from, 0, 64, to, 0));
}

static json_int_t count_of(const json_t *o, const char *name)
{
	return number_field(json_object_get(o, name), "count");
}

/* The first 64 requests are all timed, then about one of 16. */
static void latency_is_sampled(void **state)
{
	struct stag_histogram h;
	struct pair p;
	json_t *before, *o;

	pair_open(&p, NULL, NULL);
	before = query_self("counters");
	write_many(&p, 64 + 800);
	o = query_self("qps");
	live_read_histogram(json_object_get(qp_of(o, &p.a), "latency"), &h);
	assert_true(h.count >= 64 + 800 / 24 && h.count <= 64 + 800 / 8 + 1);
	assert_true(h.sum_ns > 0 && h.max_ns > 0 && h.max_ns <= h.sum_ns);
	assert_true(stag_histogram_quantile(&h, 0.5) > 0);
	assert_true(live_quantile(json_object_get(qp_of(o, &p.a), "latency"), 1) <=
		    (double)h.max_ns);
	assert_int_equal(count_of(json_object_get(o, "latency"), "write") -
				 count_of(json_object_get(before, "latency"), "write"),
			 h.count);
	assert_int_equal(count_of(qp_of(o, &p.b), "latency"), 0);
	json_decref(before);
	json_decref(o);
	pair_close(&p);
}

static void each_operation_has_its_own_latency(void **state)
{
	struct pair p;
	struct region *mine, *theirs;
	json_t *before, *o;

	pair_open(&p, NULL, NULL);
	mine = own_region(&p.a, 64);
	theirs = lend_region(&p.b, 64, RIGHTS);
	before = query_self("counters");
	expect_sent(&p.a, post_read(&p.a, mine, 0, 64, theirs, 0));
	post_receive(&p.b, theirs, 0, 64);
	expect_sent(&p.a, post_send(&p.a, mine, 0, 64));
	o = query_self("counters");
	for (int i = 0; i < 5; i++) {
		static const char *const kind[] = {"send", "write", "read", "atomic", "flush"};

		assert_int_equal(count_of(json_object_get(o, "latency"), kind[i]) -
					 count_of(json_object_get(before, "latency"), kind[i]),
				 strcmp(kind[i], "read") == 0 || strcmp(kind[i], "send") == 0);
	}
	json_decref(before);
	json_decref(o);
	pair_close(&p);
}

static void *write_on(void *arg)
{
	struct pair *p = arg;

	write_many(p, 2000);
	return NULL;
}

/* While other threads post and complete, each answer is consistent, and counts never decrease. */
static void queries_are_consistent_under_load(void **state)
{
	json_int_t before = 0, posts;
	struct pair p;
	pthread_t writer;
	json_t *o;

	pair_open(&p, NULL, NULL);
	assert_int_equal(pthread_create(&writer, NULL, write_on, &p), 0);
	do {
		o = query_self("all");
		posts = number_field(qp_of(o, &p.a), "posts");
		assert_true(posts >= before);
		before = posts;
		json_decref(o);
	} while (posts < 2000);
	assert_int_equal(pthread_join(writer, NULL), 0);
	pair_close(&p);
}

/* Requests that fail are not timed; nor is a request from before a reset, by a later completion. */
static void failed_requests_are_not_timed(void **state)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct pair p;
	struct region *mine;
	json_t *o;

	pair_open(&p, NULL, NULL);
	mine = own_region(&p.a, 64);
	assert_int_equal(ibv_modify_qp(p.a.qp, &error, IBV_QP_STATE), 0);
	expect_failed(&p.a, post_send(&p.a, mine, 0, 64), IBV_WC_WR_FLUSH_ERR);
	o = query_self("qps");
	assert_int_equal(count_of(qp_of(o, &p.a), "latency"), 0);
	assert_string_equal(string_field(qp_of(o, &p.a), "state"), "ERR");
	json_decref(o);
	pair_close(&p);
}

/* ---- malicious clients ---- */

static socklen_t name_of(struct sockaddr_un *a, int pid)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1,
					    "stag-live/%u/%d", geteuid(), pid));
}

static int connect_to_process(int pid)
{
	struct sockaddr_un a;
	socklen_t size = name_of(&a, pid);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	if (connect(fd, (struct sockaddr *)&a, size) == 0)
		return fd;
	close(fd);
	return -1;
}

static void expect_closed(int fd)
{
	char junk[4096];
	ssize_t n;

	while ((n = recv(fd, junk, sizeof(junk), 0)) > 0)
		;
	assert_true(n == 0 || errno == ECONNRESET);
	close(fd);
}

static void malformed_query_is_not_answered(void **state)
{
	static const char *const words[] = {"\n",
					    "al\n",
					    "all \n",
					    "ALL\n",
					    "GET / HTTP/1.1\r\n",
					    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
					    "%s%n\n"};
	struct pair p;

	pair_open(&p, NULL, NULL);
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		int fd = connect_to_process(getpid());
		char c;

		assert_true(fd >= 0);
		assert_true(send(fd, words[i], strlen(words[i]), MSG_NOSIGNAL) > 0);
		assert_true(recv(fd, &c, 1, 0) <= 0);
		close(fd);
		ping(&p);
	}
	json_decref(query_self("all"));
	pair_close(&p);
}

/* The answer is longer than the kernel buffers for a client that does not read. */
static void client_that_does_not_read_does_not_delay_others(void **state)
{
	struct ibv_mr *mr[4096];
	struct pair p;
	struct region *r;
	json_t *o;
	int fd;

	pair_open(&p, NULL, NULL);
	r = own_region(&p.a, 64);
	for (int i = 0; i < 4096; i++) {
		mr[i] = ibv_reg_mr(p.a.pd, r->at, 64, 0);
		assert_non_null(mr[i]);
	}
	fd = connect_to_process(getpid());
	assert_true(fd >= 0);
	assert_int_equal(send(fd, "all\n", 4, MSG_NOSIGNAL), 4);
	o = query_self("regions");
	assert_true(json_array_size(json_object_get(o, "regions")) >= 4096);
	assert_int_equal(number_field(o, "regions_left_off"), 0);
	json_decref(o);
	for (int i = 0; i < 100; i++)
		ping(&p);
	for (int i = 0; i < 4096; i++)
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
	close(fd);
	pair_close(&p);
}

/* Sets the limit so that the next descriptor exceeds it. Returns the limit as it was. */
static struct rlimit run_out_of_descriptors(void)
{
	struct rlimit was, none;
	int next = dup(0);

	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = was;
	none.rlim_cur = (rlim_t)next;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	return was;
}

/* A client that cannot be accepted costs no processor time, and is answered once there is a descriptor. */
static void queries_without_a_descriptor_do_not_spin(void **state)
{
	struct sockaddr_un a;
	socklen_t size = name_of(&a, getpid());
	struct pollfd client = {.events = POLLIN};
	struct rlimit was;
	uint64_t used;
	struct pair p;

	pair_open(&p, NULL, NULL);
	client.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(client.fd >= 0);
	was = run_out_of_descriptors();
	assert_int_equal(connect(client.fd, (struct sockaddr *)&a, size), 0);
	assert_int_equal(send(client.fd, "counters\n", 9, MSG_NOSIGNAL), 9);
	used = clock_read(CLOCK_PROCESS_CPUTIME_ID);
	/* Longer than several of its pauses, unless a query from elsewhere ends meanwhile and frees a descriptor. */
	poll(&client, 1, 500);
	used = clock_read(CLOCK_PROCESS_CPUTIME_ID) - used;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_in_range(used, 0, 150 * NS_PER_MS); /* a thread that spins takes up to 500 */
	assert_int_equal(poll(&client, 1, 60000), 1);
	expect_closed(client.fd);
	pair_close(&p);
}

/* ---- other processes ---- */

/* Runs fn in a child, which a failed assertion ends. Returns its wait status. */
static int run_child(void (*fn)(void *arg), void *arg)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		fn(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void query_as_nobody(void *arg)
{
	char c;
	int fd;

	if (setgid(65534) || setuid(65534))
		_exit(1);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (connect(fd, arg, sizeof(sa_family_t) + 1 + strlen((char *)arg + 3)))
		_exit(2);
	send(fd, "all\n", 4, MSG_NOSIGNAL);
	_exit(recv(fd, &c, 1, 0) > 0 ? 3 : 0);
}

static void query_by_another_user_is_not_answered(void **state)
{
	struct sockaddr_un a;
	struct pair p;

	if (geteuid() != 0)
		skip();
	pair_open(&p, NULL, NULL);
	name_of(&a, getpid());
	assert_int_equal(run_child(query_as_nobody, &a), 0);
	ping(&p);
	json_decref(query_self("all"));
	pair_close(&p);
}

/*
 * A child answers for itself only. It closed the inherited listener, so it does not keep its
 * parent's name in use.
 */
static void serve_queries_in_child(void *arg)
{
	int parent = *(int *)arg;
	struct pair p;
	json_t *o;

	assert_null(query_process(getpid(), "all"));
	pair_open(&p, NULL, NULL);
	ping(&p);
	o = query_self("qps");
	assert_true(json_array_size(json_object_get(o, "qps")) >= 2);
	json_decref(o);
	o = query_process(parent, "counters");
	assert_non_null(o);
	assert_int_equal(number_field(o, "pid"), parent);
	json_decref(o);
	pair_close(&p);
}

static void forked_child_serves_its_own_queries(void **state)
{
	int self = getpid();
	struct pair p;

#ifdef __SANITIZE_THREAD__
	skip(); /* TSan: the child of a multithreaded process cannot start threads */
#endif
	pair_open(&p, NULL, NULL);
	assert_int_equal(run_child(serve_queries_in_child, &self), 0);
	ping(&p);
	json_decref(query_self("all"));
	pair_close(&p);
}

static void exit_before_grandchild(void *arg)
{
	int *ends = arg;
	pid_t pid;
	struct pair p;

	pair_open(&p, NULL, NULL);
	pid = fork();
	if (pid == 0) { /* the grandchild stays, and keeps nothing of its parent's open */
		char c;

		close(ends[1]);
		_exit((int)read(ends[0], &c, 1));
	}
	_exit(0);
}

static void socket_name_is_free_after_the_process_exits(void **state)
{
	struct sockaddr_un a;
	int ends[2], status, fd;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		exit_before_grandchild(ends);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* the grandchild may not have run yet */
	await(bind(fd, (struct sockaddr *)&a, name_of(&a, pid)) == 0);
	close(fd);
	close(ends[0]);
	close(ends[1]);
}

/* Returns the descriptor that the adapter listens on for live queries, or -1. */
static int listening_fd(void)
{
	for (int fd = 3; fd < 256; fd++) {
		struct sockaddr_un a = {.sun_family = 0};
		socklen_t size = sizeof(a);

		if (getsockname(fd, (struct sockaddr *)&a, &size) == 0 && a.sun_family == AF_UNIX &&
		    strncmp(a.sun_path + 1, "stag-live/", 10) == 0)
			return fd;
	}
	return -1;
}

/* Runs a program that closes an unknown descriptor and gets its number for a socket of its own. */
static void reuse_listener_descriptor(void *arg)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	socklen_t size = sizeof(sa_family_t);
	int fd, mine, other, end;
	struct pair p;

	pair_open(&p, NULL, NULL);
	fd = listening_fd();
	assert_true(fd > 0);
	mine = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(mine, (struct sockaddr *)&a, size), 0); /* the kernel picks a name */
	assert_int_equal(listen(mine, 4), 0);
	size = sizeof(a);
	assert_int_equal(getsockname(mine, (struct sockaddr *)&a, &size), 0);
	assert_int_equal(dup2(mine, fd), fd);
	assert_null(live_ask(getpid(), "all")); /* wakes the thread that serves queries */
	for (int i = 0; i < 20; i++) {
		other = socket(AF_UNIX, SOCK_STREAM, 0);
		assert_int_equal(connect(other, (struct sockaddr *)&a, size), 0);
		end = accept(fd, NULL, NULL);
		assert_true(end >= 0);
		assert_int_equal(send(other, "x", 1, 0), 1);
		assert_int_equal(recv(end, &(char){0}, 1, 0), 1);
		close(end);
		close(other);
	}
	ping(&p);
}

static void reused_listener_descriptor_is_left_alone(void **state)
{
	assert_int_equal(run_child(reuse_listener_descriptor, NULL), 0);
}

/* Binds the name first: the adapter works without live queries. */
static void run_with_name_in_use(void *arg)
{
	struct sockaddr_un a;
	socklen_t size = name_of(&a, getpid());
	struct pair p;

	assert_int_equal(bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&a, size), 0);
	pair_open(&p, NULL, NULL);
	ping(&p);
	pair_close(&p);
}

static void socket_name_in_use_does_not_disturb_the_adapter(void **state)
{
	assert_int_equal(run_child(run_with_name_in_use, NULL), 0);
}

static void query_of_all_processes_finds_each(void **state)
{
	int ready[2], go[2];
	pid_t pid[4];
	char c;

	assert_int_equal(pipe(ready) | pipe(go), 0);
	for (int i = 0; i < 4; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			struct pair p;

			setenv("CMOCKA_TEST_ABORT", "1", 1);
			close(go[1]);
			pair_open(&p, NULL, NULL);
			if (write(ready[1], "x", 1) != 1 || read(go[0], &c, 1) != 0)
				_exit(1);
			_exit(0);
		}
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(read(ready[0], &c, 1), 1);
	for (int i = 0; i < 4; i++) {
		json_t *list = NULL, *o = NULL;

		await((json_decref(list), list = live_ask_all("qps"),
		       o = find_by(list, "pid", pid[i])));
		assert_int_equal(number_field(o, "uid"), geteuid());
		assert_true(json_array_size(json_object_get(o, "qps")) >= 2);
		json_decref(list);
	}
	close(go[0]);
	close(go[1]);
	for (int i = 0; i < 4; i++) {
		int status;

		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
	}
	close(ready[0]);
	close(ready[1]);
}

/* ---- malicious servers ---- */

enum trick { NO_JSON, NOT_ITS_PID, NO_END, SILENCE };

/* Listens under that process's name and gives each client a bad answer, until killed. */
static void serve_bad_answers(enum trick trick, int name, int ready)
{
	static char junk[65536];
	struct sockaddr_un a;
	socklen_t size = name_of(&a, name);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (bind(fd, (struct sockaddr *)&a, size) || listen(fd, 4) || write(ready, "x", 1) != 1)
		_exit(1);
	for (;;) {
		int end = accept(fd, NULL, NULL);

		switch (trick) {
		case NO_JSON:
			send(end, "{\"pid\":]", 8, MSG_NOSIGNAL);
			break;
		case NOT_ITS_PID:
			send(end, "{\"pid\":1,\"program\":\"init\"}", 26, MSG_NOSIGNAL);
			break;
		case NO_END:
			while (send(end, junk, sizeof(junk), MSG_NOSIGNAL) > 0)
				;
			break;
		case SILENCE:
			while (recv(end, junk, sizeof(junk), 0) > 0)
				;
			break;
		}
		close(end);
	}
}

static pid_t start_bad_server(enum trick trick, int name)
{
	int ready[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0)
		serve_bad_answers(trick, name ? name : getpid(), ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void stop_bad_server(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void expect_error(enum trick trick, int error)
{
	pid_t pid = start_bad_server(trick, 0);

	await((assert_null(live_ask(pid, "all")), errno == error || errno != ETIMEDOUT));
	assert_int_equal(errno, error);
	stop_bad_server(pid);
}

/*
 * Clients that send nothing, or half a query, are disconnected while others are served. A query of
 * a process that does not answer times out.
 */
static void stalled_client_is_disconnected(void **state)
{
	struct pair p;
	int fd[8];

	pair_open(&p, NULL, NULL);
	for (int i = 0; i < 8; i++) {
		fd[i] = connect_to_process(getpid());
		assert_true(fd[i] >= 0);
		if (i % 2)
			assert_int_equal(send(fd[i], "coun", 4, MSG_NOSIGNAL), 4);
	}
	for (int i = 0; i < 100; i++)
		ping(&p);
	expect_error(SILENCE, ETIMEDOUT);
	for (int i = 0; i < 8; i++)
		expect_closed(fd[i]);
	json_decref(query_self("all"));
	pair_close(&p);
}

static void malformed_answers_are_rejected(void **state)
{
	expect_error(NO_JSON, EPROTO);
	expect_error(NOT_ITS_PID, EPROTO);
	expect_error(NO_END, ENOMEM);
}

static void answer_from_another_process_is_rejected(void **state)
{
	int name = getpid() + 1000000;
	pid_t pid = start_bad_server(NO_JSON, name);

	assert_null(query_process(name, "all"));
	assert_int_equal(errno, ESRCH);
	stop_bad_server(pid);
}

/* Runs first, with STAG_LIVE=off. */
static void queries_are_not_served_when_off(void **state)
{
	struct pair p;

	pair_open(&p, NULL, NULL);
	ping(&p);
	assert_true(listening_fd() < 0);
	assert_null(query_process(getpid(), "all"));
	assert_int_equal(errno, ESRCH);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest off[] = {cmocka_unit_test(queries_are_not_served_when_off)};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(socket_name_is_free_after_the_process_exits), /* no engine yet */
		cmocka_unit_test(query_of_all_processes_finds_each),
		cmocka_unit_test(reused_listener_descriptor_is_left_alone),
		cmocka_unit_test(socket_name_in_use_does_not_disturb_the_adapter),
		cmocka_unit_test(malformed_answers_are_rejected),
		cmocka_unit_test(answer_from_another_process_is_rejected),
		cmocka_unit_test(query_reports_traffic),
		cmocka_unit_test(query_lists_queue_pairs),
		cmocka_unit_test(query_lists_valid_keys),
		cmocka_unit_test(any_program_name_becomes_valid_json),
		cmocka_unit_test(latency_is_sampled),
		cmocka_unit_test(each_operation_has_its_own_latency),
		cmocka_unit_test(queries_are_consistent_under_load),
		cmocka_unit_test(failed_requests_are_not_timed),
		cmocka_unit_test(malformed_query_is_not_answered),
		cmocka_unit_test(stalled_client_is_disconnected),
		cmocka_unit_test(client_that_does_not_read_does_not_delay_others),
		cmocka_unit_test(queries_without_a_descriptor_do_not_spin),
		cmocka_unit_test(query_by_another_user_is_not_answered),
		cmocka_unit_test(forked_child_serves_its_own_queries),
	};

	if (getenv("STAG_LIVE"))
		return cmocka_run_group_tests(off, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
