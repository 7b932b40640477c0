/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * congestion.h - which congestion control TCP uses on the adapter's sockets.
 *
 * That of STAG_CONGESTION, if it is set; else the system's. Some, such as BBR, limit the rate of a connection by timers,
 * which halves the throughput between two processes of one machine. There reno is used instead. It has to be chosen before a
 * connection begins: what BBR has begun to pace stays paced.
 */
#ifndef STAG_CONGESTION_H
#define STAG_CONGESTION_H

#include <sys/socket.h>

void congestion_before_connect(int fd, const struct sockaddr *to);
void congestion_before_listen(
	int fd); /* connections that are accepted have what their listener has */
void congestion_after_accept(int fd, const struct sockaddr *peer);

#endif
