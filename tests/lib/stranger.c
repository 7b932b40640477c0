// SPDX-License-Identifier: BSD-2-Clause
/* stranger.c - connections of a stranger, made of plain sockets (stranger.h). */
#include "stranger.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/admit/admit.h"
#include "wire/wire.h"

#define PATIENCE_S 20

int stranger_way(struct stranger_way *way, const char *host, uint16_t port, const char *from)
{
	*way = (struct stranger_way){.to = {.sin_family = AF_INET, .sin_port = htons(port)}};
	if (inet_pton(AF_INET, host, &way->to.sin_addr) != 1)
		return -EINVAL;
	if (!from)
		return 0;
	way->from.sin_family = AF_INET;
	return inet_pton(AF_INET, from, &way->from.sin_addr) == 1 ? 0 : -EINVAL;
}

static int connect_socket(int fd, const struct stranger_way *way)
{
	struct timeval t = {.tv_sec = PATIENCE_S};
	int one = 1;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	if (way->from.sin_family &&
	    bind(fd, (const struct sockaddr *)&way->from, sizeof(way->from)) != 0)
		return -errno;
	return connect(fd, (const struct sockaddr *)&way->to, sizeof(way->to)) == 0 ? 0 : -errno;
}

int stranger_dial(const struct stranger_way *way)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	rc = connect_socket(fd, way);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

void stranger_reset(int fd)
{
	struct linger now = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

int stranger_send(int fd, const void *bytes, size_t length)
{
	ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL);

	return n < 0 ? -errno : (size_t)n == length ? 0 : -EIO;
}

int stranger_take(int fd, void *bytes, size_t length)
{
	size_t got = 0;

	while (got < length) {
		ssize_t n = recv(fd, (uint8_t *)bytes + got, length - got, 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -ECONNRESET;
		got += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* ---- MPA ---- */

size_t stranger_request(const void *private_data, size_t length, uint8_t frame[STRANGER_FRAME])
{
	struct mpa_frame f = {.rev = 2,
			      .flags = MPA_CRC | MPA_ENHANCED,
			      .ird = 8,
			      .ord = 8,
			      .private_data = private_data,
			      .private_len = length};
	int len = mpa_encode(&f, frame, STRANGER_FRAME);

	return len > 0 ? (size_t)len : 0;
}

int stranger_reply(int fd, void *private_data, size_t *length)
{
	uint8_t frame[MPA_FRAME_MAX];
	struct mpa_frame f;
	size_t rest;
	int rc = stranger_take(fd, frame, MPA_FRAME_LEN);

	if (rc != 0)
		return rc;
	rest = get_be16(frame + MPA_FRAME_LEN - sizeof(uint16_t));
	if (rest > sizeof(frame) - MPA_FRAME_LEN)
		return -EPROTO;
	rc = stranger_take(fd, frame + MPA_FRAME_LEN, rest);
	if (rc != 0)
		return rc;
	if (mpa_decode(frame, MPA_FRAME_LEN + rest, true, &f) < 0 || f.private_len > *length)
		return -EPROTO;
	if (f.private_len)
		memcpy(private_data, f.private_data, f.private_len);
	*length = f.private_len;
	return !(f.flags & MPA_REJECT);
}

/* ---- a pool's greetings ---- */

size_t stranger_hello(const char *user, uint8_t frame[STRANGER_FRAME])
{
	struct admit_session s;
	uint8_t hello[ADMIT_MAX];
	int len = admit_say_hello(&s, ADMIT_CLIENT, user, hello);

	return len > 0 ? stranger_request(hello, (size_t)len, frame) : 0;
}

/* Connects with a greeting. Returns the descriptor if the node accepts, or 0 and its challenge, or -errno. */
static int greet(const struct stranger_way *way, const void *greeting, int length, uint8_t *said,
		 size_t *said_len)
{
	uint8_t frame[STRANGER_FRAME];
	int fd, rc;

	if (length < 0)
		return length;
	fd = stranger_dial(way);
	if (fd < 0)
		return fd;
	rc = stranger_send(fd, frame, stranger_request(greeting, (size_t)length, frame));
	if (rc == 0)
		rc = stranger_reply(fd, said, said_len);
	if (rc == 1)
		return fd;
	stranger_reset(fd);
	return rc;
}

static int join_pool(const struct stranger_way *way, enum admit_as as, const char *name,
		     const char *secret)
{
	uint8_t greeting[ADMIT_MAX], said[MPA_FRAME_MAX];
	char primary[ROLL_ADDRESS_LEN];
	struct admit_session s;
	size_t len = sizeof(said);
	uint64_t epoch;
	int rc = greet(way, greeting, admit_say_hello(&s, as, name, greeting), said, &len);
	const void *facts;

	if (rc != 0)
		return rc < 0 ? rc : -EPROTO;
	rc = admit_say_proof(&s, secret, said, len, &epoch, primary, greeting);
	if (rc >= 0 && primary[0])
		rc = -EREMCHG;
	len = sizeof(said);
	rc = greet(way, greeting, rc, said, &len);
	if (rc > 0)
		return rc;
	return rc < 0 ? rc : admit_hear_welcome(&s, secret, said, len, &facts);
}

int stranger_join_pool(const struct stranger_way *way, const char *user, const char *secret)
{
	return join_pool(way, ADMIT_CLIENT, user, secret);
}

int stranger_join_pool_as_node(const struct stranger_way *way, const char *node, const char *secret)
{
	return join_pool(way, ADMIT_NODE, node, secret);
}

unsigned long stranger_raise_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) != 0)
		return 0;
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	return r.rlim_cur;
}
