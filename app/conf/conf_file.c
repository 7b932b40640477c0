// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_file.c - reads files of secrets that settings name, and resolves addresses.
 */
#include "conf.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

#define ROOM (1u << 20)

static bool check_private(struct conf *conf, unsigned int line, const char *setting,
			  const char *path, const char *hint)
{
	struct stat st;

	if (stat(path, &st) != 0) {
		conf_fault(conf, line, "%s: %s: %s%s", setting, path, strerror(errno), hint);
		return false;
	}
	if (!S_ISREG(st.st_mode)) {
		conf_fault(conf, line, "%s: %s is not a regular file", setting, path);
		return false;
	}
	if (st.st_mode & 077) {
		conf_fault(conf, line, "%s: %s is accessible to others; run chmod 600", setting,
			   path);
		return false;
	}
	return true;
}

char *conf_read_private(struct conf *conf, unsigned int line, const char *setting, const char *path,
			const char *hint)
{
	ssize_t len;
	char *text;

	if (conf->flags & CONF_TEXT_ONLY || !check_private(conf, line, setting, path, hint))
		return NULL;
	text = malloc(ROOM);
	if (!text) {
		conf_fault(conf, line, "out of memory");
		return NULL;
	}
	len = file_read(AT_FDCWD, path, text, ROOM);
	if (len >= 0 && strlen(text) == (size_t)len)
		return text;
	conf_fault(conf, line, "%s: %s: %s", setting, path,
		   len < 0 ? strerror((int)-len) : "the file has a zero byte");
	free(text);
	return NULL;
}

bool conf_read_secret(struct conf *conf, const struct conf_section *s, const char *setting,
		      const char *path, char *to, size_t size)
{
	unsigned int line = conf_line_of(s, setting);
	char *text = conf_read_private(conf, line, setting, path, "");
	size_t len = text ? strcspn(text, "\r\n") : 0;
	bool good = len > 0 && len < size;

	if (!text)
		return false;
	if (good) {
		memcpy(to, text, len);
		to[len] = '\0';
	} else {
		conf_fault(conf, line, "%s: %s: %s", setting, path,
			   len == 0 ? "the first line is empty; it must hold the secret"
				    : "the first line is too long");
	}
	explicit_bzero(text, strlen(text));
	free(text);
	return good;
}

void conf_check_address(struct conf *conf, const struct conf_section *s, const char *address)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *list;
	int rc;

	if (!address || conf->flags & CONF_TEXT_ONLY)
		return;
	rc = getaddrinfo(address, NULL, &hints, &list);
	if (rc != 0)
		conf_fault(conf, conf_line_of(s, "address"), "address = %s: %s", address,
			   gai_strerror(rc));
	else
		freeaddrinfo(list);
}
