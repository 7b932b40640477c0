// SPDX-License-Identifier: BSD-2-Clause
/*
 * doctor_net.c - checks the network: interfaces, TCP's settings, and which processes use stag's default ports.
 */
#include "doctor.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TCP    "/proc/sys/net/ipv4/"
#define ENOUGH (4ll << 20) /* bytes of a socket buffer for 10 Gbit/s at a round trip of 3 ms */

/* ---- interfaces --------------------------------------------------------------------------------- */

static void check_interfaces(struct doctor *d)
{
	struct ifaddrs *all = NULL;
	bool loopback = false;
	unsigned int others = 0;

	if (getifaddrs(&all) != 0)
		all = NULL;
	for (struct ifaddrs *a = all; a; a = a->ifa_next) {
		if (!a->ifa_addr || !(a->ifa_flags & IFF_UP) || a->ifa_addr->sa_family != AF_INET)
			continue;
		if (a->ifa_flags & IFF_LOOPBACK)
			loopback = true;
		else
			others++;
	}
	freeifaddrs(all);
	if (!loopback)
		doctor_report(
			d, DOCTOR_FAULT, "loopback",
			(struct doctor_words){"programs of this machine cannot reach each other "
					      "at 127.0.0.1, and a pool of one machine does not "
					      "start",
					      "ip link set lo up"},
			"down, or without an address");
	else
		doctor_report(d, DOCTOR_GOOD, "loopback",
			      (struct doctor_words){"programs of this machine can reach each other",
						    NULL},
			      "up");
	doctor_report(d, others ? DOCTOR_GOOD : DOCTOR_NOTE, "interfaces",
		      (struct doctor_words){others ? "stag0 uses these addresses, too"
						   : "no other machine can be reached",
					    others ? NULL : "ip address show"},
		      "%u address%s besides loopback", others, others == 1 ? "" : "es");
}

static void check_namespace(struct doctor *d)
{
	char here[64] = "", first[64] = "";
	ssize_t a = readlink("/proc/self/ns/net", here, sizeof(here) - 1),
		b = readlink("/proc/1/ns/net", first, sizeof(first) - 1);

	if (a > 0 && b > 0 && strcmp(here, first) != 0)
		doctor_report(
			d, DOCTOR_NOTE, "namespace",
			(struct doctor_words){"servers outside of this namespace cannot be reached "
					      "at 127.0.0.1, nor its servers from outside",
					      "ip netns identify"},
			"a network namespace of its own, %s", here);
}

/* ---- TCP ------------------------------------------------------------------------------------------- */

static void check_congestion(struct doctor *d)
{
	const char *own = getenv("STAG_CONGESTION");
	char name[64], all[256];
	bool paced;

	doctor_line(TCP "tcp_congestion_control", name, sizeof(name));
	doctor_line(TCP "tcp_available_congestion_control", all, sizeof(all));
	paced = strncmp(own && *own ? own : name, "bbr", 3) == 0;
	doctor_report(
		d, paced ? DOCTOR_NOTE : DOCTOR_GOOD, "congestion control",
		(struct doctor_words){
			paced ? "it paces sends: on loopback and in a rack, latencies are "
				"longer than with reno or cubic"
			      : "the adapter's connections use it",
			paced ? "stag run --congestion reno -- PROGRAM, or STAG_CONGESTION=reno"
			      : NULL},
		"%s, of: %s%s%s", name, all, own && *own ? "; STAG_CONGESTION=" : "",
		own && *own ? own : "");
}

/* Returns the third number: the maximum to which TCP enlarges a buffer by itself. */
static long long most_of(const char *path)
{
	long long most = 0;
	char text[128];

	sscanf(doctor_line(path, text, sizeof(text)), "%*d %*d %lld", &most);
	return most;
}

static void check_buffers(struct doctor *d)
{
	long long in = most_of(TCP "tcp_rmem"), out = most_of(TCP "tcp_wmem");
	bool small = in < ENOUGH || out < ENOUGH;
	char a[24], b[24];

	doctor_report(
		d, small ? DOCTOR_NOTE : DOCTOR_GOOD, "socket buffers",
		(struct doctor_words){
			small ? "one connection cannot fill a fast link with a long round trip"
			      : "one connection can fill a fast link",
			small ? "sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432' "
				"net.ipv4.tcp_wmem='4096 65536 33554432'"
			      : NULL},
		"tcp_rmem up to %s, tcp_wmem up to %s", doctor_size((unsigned long long)in, a),
		doctor_size((unsigned long long)out, b));
}

/* A note, so that no user searches for the setting. */
static void check_copies(struct doctor *d)
{
	doctor_report(d, DOCTOR_NOTE, "zero copy",
		      (struct doctor_words){
			      "the kernel copies sent data once: on loopback zero copy would "
			      "not avoid that, and short sends would be slower",
			      NULL},
		      "sends do not use MSG_ZEROCOPY");
}

/* ---- ports -------------------------------------------------------------------------------------------- */

static void check_port(struct doctor *d, unsigned int port, const char *what, const char *option)
{
	char subject[32], who[128], next[128];
	bool ours;

	snprintf(subject, sizeof(subject), "port %u", port);
	if (!doctor_port_owner(port, who, sizeof(who))) {
		doctor_report(d, DOCTOR_GOOD, subject, (struct doctor_words){what, NULL}, "free");
		return;
	}
	ours = strncmp(who, "stag,", 5) == 0 || strncmp(who, "stagd,", 6) == 0;
	snprintf(next, sizeof(next), "%s, or: ss -ltnp sport = :%u", option, port);
	doctor_report(d, ours ? DOCTOR_GOOD : DOCTOR_NOTE, subject,
		      (struct doctor_words){what, ours ? NULL : next}, "used by %s",
		      *who ? who : "another user's program");
}

static void check_ports(struct doctor *d)
{
	check_port(d, 7174, "the default of 'stag store serve'", "--port PORT");
	check_port(d, 7175, "the default of pool nodes, which take the next free one",
		   "--port PORT");
	check_port(d, 7180, "the default of stagd's management API",
		   "listen = 127.0.0.1:PORT in [api]");
	check_port(d, 3260, "the default of 'stag block serve', and of all iSCSI targets",
		   "--port PORT");
}

void doctor_net(struct doctor *d)
{
	check_interfaces(d);
	check_namespace(d);
	check_congestion(d);
	check_buffers(d);
	check_copies(d);
	check_ports(d);
}
