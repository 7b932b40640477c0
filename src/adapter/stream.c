// SPDX-License-Identifier: BSD-2-Clause
/*
 * stream.c - a TCP connection as a stream of bytes.
 *
 * Knows sockets and nothing of iWARP. Every byte can be traced here.
 */
#include "adapter/stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/congestion.h"
#include "adapter/trace.h"

/*
 * Direct system calls: the C library's are cancellation points, whose bookkeeping costs a few
 * percent of a short message, and locks are held here. Sanitizers need to intercept them.
 */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(__clang__)
#define plain_send(fd, p, n)  send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT)
#define plain_recv(fd, p, n)  recv(fd, p, n, MSG_DONTWAIT)
#define plain_sendmsg(fd, m)  sendmsg(fd, m, MSG_NOSIGNAL | MSG_DONTWAIT)
#define plain_readv(fd, v, n) readv(fd, v, n)
#else
#define plain_send(fd, p, n)  syscall(SYS_sendto, fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0)
#define plain_recv(fd, p, n)  syscall(SYS_recvfrom, fd, p, n, MSG_DONTWAIT, NULL, NULL)
#define plain_sendmsg(fd, m)  syscall(SYS_sendmsg, fd, m, MSG_NOSIGNAL | MSG_DONTWAIT)
#define plain_readv(fd, v, n) syscall(SYS_readv, fd, v, n)
#endif

/*
 * ThreadSanitizer would note the bytes of a send when the call returns. The peer may have
 * answered by then, and its answer be placed where they were read, which looked like a race. So
 * ./check turns that off (intercept_send=0), and the bytes are noted here, before the call.
 */
#ifdef __SANITIZE_THREAD__
void __tsan_read_range(void *at, long size);

static void note_send(const struct iovec *iov, int n)
{
	for (int i = 0; i < n; i++)
		__tsan_read_range(iov[i].iov_base, (long)iov[i].iov_len);
}
#else
static void note_send(const struct iovec *iov, int n)
{
}
#endif

static ssize_t tcp_send(struct stream *s, const struct iovec *iov, int n)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
	ssize_t done;

	note_send(iov, n);
	do {
		s->tx_calls++;
		if (n == 1)
			done = plain_send(s->fd, iov->iov_base, iov->iov_len);
		else
			done = plain_sendmsg(s->fd, &msg);
	} while (done < 0 && errno == EINTR);
	if (done < 0) {
		s->tx_again += errno == EAGAIN;
		return -errno;
	}
	s->tx_bytes += (uint64_t)done;
	if (s->trace)
		trace_bytes(s->trace, true, iov, n, (size_t)done);
	return done;
}

static ssize_t tcp_recv(struct stream *s, const struct iovec *iov, int n)
{
	ssize_t done;

	do {
		s->rx_calls++;
		if (n == 1)
			done = plain_recv(s->fd, iov->iov_base, iov->iov_len);
		else
			done = plain_readv(s->fd, iov, n); /* the socket is non-blocking */
	} while (done < 0 && errno == EINTR);
	if (done < 0) {
		s->rx_again += errno == EAGAIN;
		return -errno;
	}
	s->rx_bytes += (uint64_t)done;
	if (s->trace && done > 0)
		trace_bytes(s->trace, false, iov, n, (size_t)done);
	return done;
}

static void tcp_shutdown(struct stream *s)
{
	shutdown(s->fd, SHUT_WR);
}

static void tcp_abort(struct stream *s)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	if (s->trace) {
		trace_close(s->trace, true);
		s->trace = NULL;
	}
}

/* Unread bytes would turn the close into a reset, which destroys what is in flight. */
static void discard_input(int fd)
{
	char junk[4096];

	for (int i = 0; i < 256 && recv(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0; i++)
		;
}

static ino_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) ? st.st_ino : 0;
}

/* Shuts the connection down as well: a forked child may hold the descriptor, too. */
static void close_socket(int fd)
{
	shutdown(fd, SHUT_WR);
	discard_input(fd);
	shutdown(fd, SHUT_RDWR);
	close(fd);
}

static void tcp_close(struct stream *s)
{
	if (s->trace)
		trace_close(s->trace, false);
	/*
	 * The program may have closed the descriptor, and have a file of its own under its
	 * number.
	 */
	if (inode_of(s->fd) == s->inode)
		close_socket(s->fd);
	free(s);
}

/* Takes no lock of the socket, unlike a send or receive that finds it full or empty. */
static int tcp_ready(struct stream *s)
{
	struct pollfd p = {.fd = s->fd, .events = POLLIN | POLLOUT};

	return poll(&p, 1, 0) > 0 ? p.revents : 0;
}

static unsigned tcp_emss(struct stream *s)
{
	int mss = 0;
	socklen_t len = sizeof(mss);

	if (getsockopt(s->fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &len) || mss < 536)
		return 536;
	return (unsigned)mss;
}

static unsigned tcp_unsent(struct stream *s)
{
	int n = 0;

	return ioctl(s->fd, SIOCOUTQ, &n) ? 0 : (unsigned)n;
}

static const struct stream_ops tcp_ops = {
	.send = tcp_send,
	.recv = tcp_recv,
	.shutdown = tcp_shutdown,
	.abort = tcp_abort,
	.close = tcp_close,
	.ready = tcp_ready,
	.emss = tcp_emss,
	.unsent = tcp_unsent,
};

#define KEEPALIVE_PROBES 6

static void keep_alive(int fd, unsigned seconds)
{
	int one = 1, idle = (int)seconds / 2, count = KEEPALIVE_PROBES;
	int interval = ((int)seconds - idle) / count;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

void stream_keep_alive(struct stream *s, unsigned seconds)
{
	if (seconds < STREAM_MIN_ALIVE_S)
		seconds = STREAM_MIN_ALIVE_S;
	if (seconds > STREAM_MAX_ALIVE_S)
		seconds = STREAM_MAX_ALIVE_S;
	if (s->alive_s == seconds)
		return;
	s->alive_s = seconds;
	keep_alive(s->fd, seconds);
}

int stream_open_tcp(struct stream **out, int fd, bool initiator)
{
	struct stream *s = calloc(1, sizeof(*s));
	socklen_t len = sizeof(s->local);
	int one = 1;

	if (!s)
		return -ENOMEM;
	s->ops = &tcp_ops;
	s->fd = fd;
	s->inode = inode_of(fd);
	if (getsockname(fd, (struct sockaddr *)&s->local, &len))
		goto err_free;
	len = sizeof(s->peer);
	if (getpeername(fd, (struct sockaddr *)&s->peer, &len))
		goto err_free;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (!initiator)
		congestion_after_accept(fd, (struct sockaddr *)&s->peer);
	stream_keep_alive(s, STREAM_MAX_ALIVE_S);
	s->trace = trace_open(&s->local, &s->peer, initiator);
	*out = s;
	return 0;

err_free:
	len = (socklen_t)errno;
	free(s);
	return -(int)len;
}
