// SPDX-License-Identifier: BSD-2-Clause
/*
 * net.c - hosts: network namespaces on one bridge, which can be cut off from each other.
 *
 * All hosts have permanent neighbour entries for each other. A cut from A to B replaces B's
 * link-layer address at A by a wrong one: what A sends is lost silently, what B sends arrives. This
 * needs no packet filter. A slow link uses netem, or, if the kernel lacks it, a token bucket.
 *
 * iproute2 does the work: commands are piped into `ip -batch` in the namespace concerned.
 */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stag.h"

#define OURS	       "10.77.0.1"
#define ADDRESS	       "10.77.0.%u"
#define MAC	       "02:00:0a:4d:00:%02x"
#define NOBODY	       "02:00:0a:4d:ff:ff"
#define HOST_NUMBER(h) (10 + (h))

#define FIRST_PORT   10000
#define NUM_PORTS    9000
#define PORTS_TO_TRY 100

static void discard_output(void)
{
	int null = open("/dev/null", O_RDWR);

	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
}

/* tc(8) is in sbin, which is not in the PATH of an ordinary user. */
static void add_sbin_to_path(void)
{
	const char *path = getenv("PATH");
	char *more;

	if (asprintf(&more, "%s:/usr/sbin:/sbin", path ? path : "/usr/bin:/bin") > 0)
		setenv("PATH", more, 1);
}

/*
 * Runs a program with words as its standard input, which have to fit into the pipe, in case it
 * never reads. where: a namespace; -1: this one. Returns 0 if it exits with 0.
 */
static int run_with_input(int where, const char *words, char *const argv[], bool silent)
{
	size_t length = strlen(words);
	int pipes[2], status;
	bool fed;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) != 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		if ((where >= 0 && setns(where, CLONE_NEWNET) != 0) || dup2(pipes[0], 0) < 0)
			_exit(127);
		if (silent)
			discard_output();
		unsetenv("LD_PRELOAD"); /* it needs no adapter */
		add_sbin_to_path();
		execvp(argv[0], argv);
		_exit(127);
	}
	fed = pid > 0 && write(pipes[1], words, length) == (ssize_t)length;
	close(pipes[0]); /* only now, to avoid SIGPIPE */
	close(pipes[1]);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	return fed && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static int run_ip(int where, bool silent, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int run_ip(int where, bool silent, const char *fmt, ...)
{
	char *const argv[] = {"ip", "-force", "-batch", "-", NULL};
	char words[4096];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	return n < (int)sizeof(words) ? run_with_input(where, words, argv, silent) : -ENOBUFS;
}

static int run_tc(int where, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int run_tc(int where, const char *fmt, ...)
{
	char *const argv[] = {"tc", "-batch", "-", NULL};
	char words[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	return run_with_input(where, words, argv, true);
}

static int own_namespace(void)
{
	return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
}

/* ---- making them ---- */

static int make_namespace(struct net *net, unsigned int host)
{
	if (unshare(CLONE_NEWNET) != 0)
		return -errno;
	net->hosts[host] = own_namespace();
	if (setns(net->home, CLONE_NEWNET) != 0)
		return -errno;
	return net->hosts[host] < 0 ? -errno : 0;
}

/* Gives a host permanent neighbour entries for all others. */
static int set_neighbours(const struct net *net, unsigned int host)
{
	char words[2048];
	int n = 0;

	for (unsigned int h = 0; h < net->num_hosts; h++)
		if (h != host)
			n += snprintf(words + n, sizeof(words) - (size_t)n,
				      "neigh replace " ADDRESS " lladdr " MAC
				      " nud permanent dev eth0\n",
				      HOST_NUMBER(h), HOST_NUMBER(h));
	return run_ip(net->hosts[host], false, "%s", words);
}

static int connect_host(struct net *net, unsigned int host)
{
	int rc = run_ip(-1, false,
			"link add h%u type veth peer name eth0 netns /proc/%d/fd/%d\n"
			"link set h%u master torture0 up\n",
			host, (int)getpid(), net->hosts[host], host);

	if (rc == 0)
		rc = run_ip(net->hosts[host], false,
			    "link set lo up\n"
			    "link set eth0 address " MAC "\n"
			    "addr add " ADDRESS "/24 dev eth0\n"
			    "link set eth0 up\n",
			    HOST_NUMBER(host), HOST_NUMBER(host));
	return rc == 0 ? set_neighbours(net, host) : rc;
}

static int make_hosts(struct net *net)
{
	int rc = run_ip(-1, false,
			"link set lo up\n"
			"link add torture0 type bridge forward_delay 0\n"
			"addr add " OURS "/24 dev torture0\n"
			"link set torture0 up\n");

	for (unsigned int h = 0; rc == 0 && h < net->num_hosts; h++) {
		rc = make_namespace(net, h);
		if (rc == 0)
			rc = connect_host(net, h);
	}
	return rc;
}

static int write_file(const char *path, const char *what)
{
	FILE *f = fopen(path, "w");
	bool good = f && fputs(what, f) >= 0;

	return f && fclose(f) == 0 && good ? 0 : -errno;
}

/* Enters a user namespace, in which an ordinary user is root and may make networks. */
static int become_root(void)
{
	char users[32], groups[32];
	int rc;

	snprintf(users, sizeof(users), "0 %u 1", geteuid());
	snprintf(groups, sizeof(groups), "0 %u 1", getegid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		return -errno;
	write_file("/proc/self/setgroups", "deny");
	rc = write_file("/proc/self/uid_map", users);
	return rc == 0 ? write_file("/proc/self/gid_map", groups) : rc;
}

static int make_home(struct net *net)
{
	int rc = unshare(CLONE_NEWNET) == 0 ? 0 : become_root();

	if (rc != 0)
		return rc;
	net->home = own_namespace();
	return net->home < 0 ? -errno : 0;
}

static bool netem_works(const struct net *net)
{
	bool works = run_tc(net->hosts[0], "qdisc add dev eth0 root netem delay 1ms\n") == 0;

	if (works)
		run_tc(net->hosts[0], "qdisc del dev eth0 root\n");
	return works;
}

static bool is_port_free(uint16_t port)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool taken = fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0;

	if (fd >= 0)
		close(fd);
	return !taken;
}

/*
 * Draws ports below the kernel's ephemeral range, so that a node that was killed finds its port
 * free again.
 */
static uint16_t free_ports(unsigned int num_hosts, struct dice *dice)
{
	unsigned int from = (unsigned int)dice_below(dice, NUM_PORTS), h = 0;
	uint16_t port = FIRST_PORT;

	for (unsigned int i = 0; i < PORTS_TO_TRY && h < num_hosts; i++) {
		port = (uint16_t)(FIRST_PORT + (from + i * 2 * num_hosts) % NUM_PORTS);
		for (h = 0; h < num_hosts && is_port_free((uint16_t)(port + 2 * h)); h++)
			;
	}
	return port;
}

int net_open(struct net *net, unsigned int num_hosts, bool wanted, struct dice *dice)
{
	int rc = -EPERM;

	*net = (struct net){
		.num_hosts = num_hosts, .home = -1, .port = free_ports(num_hosts, dice)};
	for (unsigned int h = 0; h < MAX_HOSTS; h++)
		net->hosts[h] = -1;
	if (wanted) {
		rc = make_home(net);
		if (rc == 0)
			rc = make_hosts(net);
		if (rc != 0)
			complain("cannot make network namespaces (%s): everything runs on one host",
				 strerror(-rc));
	}
	net->real = rc == 0;
	if (net->home >= 0 && !net->real)
		run_ip(-1, true, "link set lo up\n");
	net->can_delay = net->real && netem_works(net);
	return 0;
}

void net_close(struct net *net)
{
	for (unsigned int h = 0; h < net->num_hosts; h++)
		if (net->hosts[h] >= 0)
			close(net->hosts[h]);
	if (net->home >= 0)
		close(net->home);
	net->home = -1;
	net->num_hosts = 0;
}

/* ---- using them ---- */

int net_enter(const struct net *net, unsigned int host)
{
	if (!net->real)
		return 0;
	return setns(net->hosts[host], CLONE_NEWNET) == 0 ? 0 : -errno;
}

uint16_t net_port(const struct net *net, unsigned int host, uint16_t port)
{
	return net->real ? port : (uint16_t)(net->port + 2 * host);
}

void net_address(const struct net *net, unsigned int host, uint16_t port, char *text, size_t size)
{
	char address[24] = "127.0.0.1";

	if (net->real)
		snprintf(address, sizeof(address), ADDRESS, HOST_NUMBER(host));
	if (port)
		snprintf(text, size, "%s:%u", address, net_port(net, host, port));
	else
		snprintf(text, size, "%s", address);
}

void net_cut(const struct net *net, unsigned int from, unsigned int to)
{
	if (net->real)
		run_ip(net->hosts[from], false,
		       "neigh replace " ADDRESS " lladdr " NOBODY " nud permanent dev eth0\n",
		       HOST_NUMBER(to));
}

void net_mend(const struct net *net, unsigned int from, unsigned int to)
{
	if (net->real)
		run_ip(net->hosts[from], false,
		       "neigh replace " ADDRESS " lladdr " MAC " nud permanent dev eth0\n",
		       HOST_NUMBER(to), HOST_NUMBER(to));
}

void net_mend_all(const struct net *net)
{
	for (unsigned int h = 0; net->real && h < net->num_hosts; h++)
		set_neighbours(net, h);
}

void net_slow(const struct net *net, unsigned int host, struct dice *dice)
{
	unsigned int ms = 1 + (unsigned int)dice_below(dice, 30);

	if (net->can_delay)
		run_tc(net->hosts[host],
		       "qdisc replace dev eth0 root netem delay %ums %ums 25%% loss %u%% reorder "
		       "10%%\n",
		       ms, ms / 2, (unsigned int)dice_below(dice, 3));
	else if (net->real)
		run_tc(net->hosts[host],
		       "qdisc replace dev eth0 root tbf rate %umbit burst 16kb latency %ums\n",
		       1 + (unsigned int)dice_below(dice, 40), 20 + 10 * ms);
}

void net_quicken(const struct net *net, unsigned int host)
{
	if (net->real)
		run_tc(net->hosts[host], "qdisc del dev eth0 root\n");
}
