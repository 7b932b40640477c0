// SPDX-License-Identifier: BSD-2-Clause
/*
 * trace_file.c - the pcapng file of a trace.
 *
 * Knows blocks, and nothing of what the packets in them are. Every block reaches the file by one writev(): a killed
 * process leaves a file that ends with a whole packet. A file that cannot be written on is given up, with one line in the
 * log; the program never notices.
 *
 * Names: %p becomes the process id. A name without %p belongs to the first
 * process that opens it; a process that finds it there already puts its id before
 * the extension (run.pcapng, run.4711.pcapng). So nothing is ever overwritten by
 * a process that only inherited STAG_TRACE.
 */
#include "adapter/trace_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "adapter/config.h"
#include "base/log.h"

#define BLOCK_SECTION	 0x0a0d0d0au
#define BLOCK_INTERFACE	 1u
#define BLOCK_PACKET	 6u
#define BYTE_ORDER_MAGIC 0x1a2b3c4du
#define LINKTYPE_RAW	 101 /* packets begin with their IP header */
#define SNAPLEN		 65535u

enum { OPT_END = 0, OPT_USERAPPL = 4, OPT_IF_NAME = 2, OPT_IF_TSRESOL = 9, OPT_PACKET_FLAGS = 2 };
enum { PACKET_INBOUND = 1, PACKET_OUTBOUND = 2 };

#define HEAD_LEN 28 /* bytes of a packet block before its packet */
#define TAIL_LEN 16 /* bytes behind it and its padding: direction, end of options, length */

struct lock trace_lock = LOCK_INITIALIZER;

static struct {
	pthread_once_t once;
	enum { FILE_UNOPENED, FILE_OPEN, FILE_GIVEN_UP } state; /* written by set_file_state() */
	unsigned age; /* counts forks: a child writes a file of its own */
	int fd;
	dev_t dev; /* identify the file: a descriptor that the program closed */
	ino_t ino; /* and reused must not be written to */
	off_t size;
} file = {
	.once = PTHREAD_ONCE_INIT,
	.fd = -1,
};

/* ---- opening, forking, giving up -------------------------------------- */

/* UNOPENED -> OPEN -> GIVEN_UP, or at once GIVEN_UP; a forked child begins again with UNOPENED. */
static void set_file_state(int to)
{
	assert(lock_held(&trace_lock));
	assert(to == FILE_UNOPENED || file.state < (unsigned)to);
	file.state = to;
}

static void before_fork(void)
{
	lock_acquire(&trace_lock);
}

static void after_fork_in_parent(void)
{
	lock_release(&trace_lock);
}

static void after_fork_in_child(void)
{
	if (file.state == FILE_OPEN)
		close(file.fd);
	set_file_state(FILE_UNOPENED);
	file.age++;
	lock_release(&trace_lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void give_up(const char *why)
{
	log_warn("trace: %s, tracing stops", why);
	if (file.fd >= 0)
		close(file.fd);
	file.fd = -1;
	set_file_state(FILE_GIVEN_UP);
}

/* The program may have closed our descriptor (daemons do) and got its number for another file. */
static bool still_ours(void)
{
	struct stat st;

	return fstat(file.fd, &st) == 0 && st.st_dev == file.dev && st.st_ino == file.ino;
}

static void write_block(const struct iovec *iov, int n, size_t len)
{
	ssize_t done;
	int err;

	assert(lock_held(&trace_lock));
	if (file.state != FILE_OPEN)
		return;
	if (!still_ours()) {
		file.fd = -1;
		give_up("the program closed its file");
		return;
	}
	do {
		done = writev(file.fd, iov, n);
	} while (done < 0 && errno == EINTR);
	if (done == (ssize_t)len) {
		file.size += done;
		return;
	}
	err = done < 0 ? errno : ENOSPC;
	if (ftruncate(file.fd, file.size) < 0)
		log_debug("trace: the last packet is cut off");
	give_up(strerror(err));
}

static uint8_t *put_u32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static uint8_t *put_u16(uint8_t *p, uint16_t v)
{
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static uint8_t *put_option(uint8_t *p, uint16_t code, const void *value, uint16_t len)
{
	p = put_u16(p, code);
	p = put_u16(p, len);
	if (len)
		memcpy(p, value, len);
	memset(p + len, 0, -len & 3u);
	return p + len + (-len & 3u);
}

/* Fills in the two lengths of a block from start to p, where its last field goes. */
static size_t end_block(uint8_t *start, uint8_t *p)
{
	uint32_t len = (uint32_t)(p - start) + 4;

	put_u32(start + 4, len);
	put_u32(p, len);
	return len;
}

static size_t section_block(uint8_t *buf)
{
	static const char app[] = "stag";
	uint8_t *p = put_u32(buf, BLOCK_SECTION) + 4;

	p = put_u32(p, BYTE_ORDER_MAGIC);
	p = put_u16(p, 1); /* version 1.0 */
	p = put_u16(p, 0);
	memset(p, 0xff, 8); /* a section of unknown length */
	p = put_option(p + 8, OPT_USERAPPL, app, sizeof(app) - 1);
	return end_block(buf, put_option(p, OPT_END, NULL, 0));
}

static size_t interface_block(uint8_t *buf)
{
	static const char name[] = "stag0";
	static const uint8_t nanoseconds = 9;
	uint8_t *p = put_u32(buf, BLOCK_INTERFACE) + 4;

	p = put_u16(p, LINKTYPE_RAW);
	p = put_u16(p, 0);
	p = put_u32(p, SNAPLEN);
	p = put_option(p, OPT_IF_NAME, name, sizeof(name) - 1);
	p = put_option(p, OPT_IF_TSRESOL, &nanoseconds, 1);
	return end_block(buf, put_option(p, OPT_END, NULL, 0));
}

static void write_file_header(void)
{
	uint8_t buf[256];
	size_t len = section_block(buf);
	struct iovec iov;

	len += interface_block(buf + len);
	iov = (struct iovec){buf, len};
	write_block(&iov, 1, len);
}

/* Replaces %p in the pattern by the process id. Returns 1, 0 if there was none, or -errno. */
static int expand_name(char *out, size_t size, const char *pattern)
{
	const char *mark = strstr(pattern, "%p");
	int n;

	if (mark)
		n = snprintf(out, size, "%.*s%d%s", (int)(mark - pattern), pattern, (int)getpid(),
			     mark + 2);
	else
		n = snprintf(out, size, "%s", pattern);
	return n < (int)size ? mark != NULL : -ENAMETOOLONG;
}

/* run.pcapng -> run.4711.pcapng */
static int name_with_pid(char *out, size_t size, const char *name)
{
	const char *slash = strrchr(name, '/');
	const char *dot = strrchr(slash ? slash : name, '.');
	size_t stem = dot ? (size_t)(dot - name) : strlen(name);
	int n = snprintf(out, size, "%.*s.%d%s", (int)stem, name, (int)getpid(), name + stem);

	return n < (int)size ? 0 : -ENAMETOOLONG;
}

/* The file contains payload: only the user may read it. */
static int open_new(const char *name, int flag)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | flag, 0600);

	return fd < 0 ? -errno : fd;
}

static int open_by_pattern(const char *pattern, char *name, size_t size)
{
	int has_pid = expand_name(name, size, pattern);
	int fd, err;

	if (has_pid < 0)
		return has_pid;
	fd = open_new(name, has_pid ? O_TRUNC : O_EXCL);
	if (has_pid || fd != -EEXIST)
		return fd;
	err = name_with_pid(name, size, pattern);
	return err ? err : open_new(name, O_TRUNC);
}

static void open_file(void)
{
	char name[PATH_MAX];
	struct stat st;
	int fd = open_by_pattern(config()->trace, name, sizeof(name));

	if (fd < 0 || fstat(fd, &st) < 0) {
		log_warn("trace: cannot write %s: %s", config()->trace,
			 strerror(fd < 0 ? -fd : errno));
		set_file_state(FILE_GIVEN_UP);
		return;
	}
	/* Tells `stag run` that the file is in use: see app/stag/run.c. */
	flock(fd, LOCK_EX | LOCK_NB);
	file.fd = fd;
	file.dev = st.st_dev;
	file.ino = st.st_ino;
	file.size = 0;
	set_file_state(FILE_OPEN);
	log_info("trace: writing %s", name);
	write_file_header();
}
void trace_file_prepare(void)
{
	pthread_once(&file.once, watch_forks);
}

bool trace_file_open(void)
{
	assert(lock_held(&trace_lock));
	if (file.state == FILE_UNOPENED && config()->trace)
		open_file();
	return file.state == FILE_OPEN;
}

bool trace_file_is_open(void)
{
	assert(lock_held(&trace_lock));
	return file.state == FILE_OPEN;
}

unsigned trace_file_age(void)
{
	assert(lock_held(&trace_lock));
	return file.age;
}

/* ---- packets ----------------------------------------------------------- */

static uint8_t *put_packet_header(uint8_t *p)
{
	struct timespec now;
	uint64_t ns;

	clock_gettime(CLOCK_REALTIME, &now);
	ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	p = put_u32(p, BLOCK_PACKET) + 4;
	p = put_u32(p, 0); /* the one interface */
	p = put_u32(p, (uint32_t)(ns >> 32));
	p = put_u32(p, (uint32_t)ns);
	return p + 8; /* the lengths follow when they are known */
}

/* Padding, options and the block's length again. */
static size_t put_packet_tail(uint8_t *p, bool outbound, uint32_t pad, uint32_t total)
{
	uint32_t direction = outbound ? PACKET_OUTBOUND : PACKET_INBOUND;

	memset(p, 0, pad);
	p = put_option(p + pad, OPT_PACKET_FLAGS, &direction, sizeof(direction));
	p = put_option(p, OPT_END, NULL, 0);
	put_u32(p, total);
	return pad + TAIL_LEN;
}
void trace_file_packet(bool outbound, const uint8_t *headers, size_t headers_len, const void *data,
		       size_t len)
{
	uint8_t head[HEAD_LEN], tail[3 + TAIL_LEN];
	struct iovec out[4];
	uint32_t captured = (uint32_t)(headers_len + len), pad = -captured & 3u;
	uint32_t total = HEAD_LEN + captured + pad + TAIL_LEN;
	uint8_t *end = put_packet_header(head);

	put_u32(head + 4, total);
	put_u32(put_u32(end - 8, captured), captured);
	out[0] = (struct iovec){head, sizeof(head)};
	out[1] = (struct iovec){(void *)headers, headers_len};
	out[2] = (struct iovec){(void *)data, len};
	out[3] = (struct iovec){tail, put_packet_tail(tail, outbound, pad, total)};
	write_block(out, 4, total);
}
