// SPDX-License-Identifier: BSD-2-Clause
/*
 * files.c - files of secrets, and the words of settings. Knows nothing of OpenSSL.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error_text.h"
#include "tls/tls.h"

#define FILE_MAX (256 << 10)

static const char *const mode_names[] = {
	[TLS_OFF] = "off", [TLS_ALLOWED] = "allowed", [TLS_REQUIRED] = "required"};

int tls_mode_parse(const char *word)
{
	for (int i = TLS_OFF; i <= TLS_REQUIRED; i++)
		if (strcmp(word, mode_names[i]) == 0)
			return i;
	return -EINVAL;
}

const char *tls_mode_name(enum tls_mode mode)
{
	return mode_names[mode];
}

static int check_private(const char *path, int fd, off_t *size, char *why)
{
	struct stat st;

	if (fstat(fd, &st))
		return error_text_set(why, TLS_WHY_LEN, -errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return error_text_set(why, TLS_WHY_LEN, -EINVAL, "%s is not a file", path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return error_text_set(why, TLS_WHY_LEN, -EACCES, "%s belongs to user %u", path,
				      st.st_uid);
	if (st.st_mode & 077)
		return error_text_set(why, TLS_WHY_LEN, -EACCES,
				      "%s has mode %04o: others than its owner may access it "
				      "(chmod 600)",
				      path, st.st_mode & 07777);
	if (st.st_size > FILE_MAX)
		return error_text_set(why, TLS_WHY_LEN, -EFBIG, "%s is longer than %d bytes", path,
				      FILE_MAX);
	*size = st.st_size;
	return 0;
}

ssize_t tls_read_private(const char *path, char **text, char why[TLS_WHY_LEN])
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	off_t size = 0;
	ssize_t n;
	int err;

	if (fd < 0)
		return error_text_set(why, TLS_WHY_LEN, -errno, "%s: %s", path, strerror(errno));
	err = check_private(path, fd, &size, why);
	if (err)
		return err;
	*text = malloc((size_t)size + 1);
	if (!*text)
		return error_text_set(why, TLS_WHY_LEN, -ENOMEM, "%s: out of memory", path);
	n = read(fd, *text, (size_t)size);
	if (n < 0) {
		err = -errno;
		free(*text);
		return error_text_set(why, TLS_WHY_LEN, err, "%s: %s", path, strerror(-err));
	}
	(*text)[n] = '\0';
	return n;
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_psk(const char *text, struct tls_psk *out)
{
	const char *colon = strchr(text, ':'), *p;

	if (!colon || colon == text || colon - text >= TLS_IDENTITY_LEN)
		return -EINVAL;
	memcpy(out->identity, text, (size_t)(colon - text));
	out->identity[colon - text] = '\0';
	for (p = colon + 1, out->len = 0; digit_value(p[0]) >= 0; p += 2) {
		if (digit_value(p[1]) < 0 || out->len == TLS_PSK_MAX)
			return -EINVAL;
		out->key[out->len++] = (uint8_t)(digit_value(p[0]) << 4 | digit_value(p[1]));
	}
	return p[strspn(p, " \r\n")] || out->len < TLS_PSK_MIN ? -EINVAL : 0;
}

int tls_psk_read(const char *path, struct tls_psk *out, char why[TLS_WHY_LEN])
{
	char *text = NULL;
	ssize_t n = tls_read_private(path, &text, why);
	int err;

	if (n < 0)
		return (int)n;
	err = parse_psk(text, out);
	explicit_bzero(text, (size_t)n);
	free(text);
	if (!err)
		return 0;
	explicit_bzero(out, sizeof(*out));
	return error_text_set(why, TLS_WHY_LEN, err,
			      "%s is not a line \"identity:key\" with a key of %d to %d "
			      "hexadecimal digits",
			      path, 2 * TLS_PSK_MIN, 2 * TLS_PSK_MAX);
}
