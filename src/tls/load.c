// SPDX-License-Identifier: BSD-2-Clause
/*
 * load.c - finds stag-tls.so and passes the calls of tls.h on to it.
 *
 * It is looked for only beside the file that this code is part of: no search path decides what handles secrets.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error_text.h"
#include "tls/module.h"

static const struct tls_module *module;
static char load_error[TLS_WHY_LEN];

/* Where it is, as seen from the installed libraries; then from the build tree's libraries and programs. */
static const char *const places[] = {
	"stag/" TLS_MODULE_NAME,
	"../tls/" TLS_MODULE_NAME,
	"tls/" TLS_MODULE_NAME,
	"../../src/tls/" TLS_MODULE_NAME,
	"../../../src/tls/" TLS_MODULE_NAME,
};

static void *open_beside(const char *self)
{
	const char *slash = strrchr(self, '/');
	char path[PATH_MAX];
	void *lib = NULL;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && slash && !lib; i++) {
		int n = snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - self), self,
				 places[i]);

		if (n < 0 || (size_t)n >= sizeof(path) || access(path, F_OK) != 0)
			continue;
		lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!lib)
			error_text_set(load_error, sizeof(load_error), 0, "cannot load %s: %s",
				       path, dlerror());
	}
	return lib;
}

/*
 * Finds the file that this code is part of. For a program, the linker knows only what its caller called it, which may
 * name another file.
 */
static bool find_self(char self[PATH_MAX])
{
	struct link_map *map;
	Dl_info at;

	if (!dladdr1((void *)tls_mode_name, &at, (void **)&map, RTLD_DL_LINKMAP))
		return false;
	return realpath(*map->l_name ? map->l_name : "/proc/self/exe", self) != NULL;
}

static void load(void)
{
	char self[PATH_MAX];
	const struct tls_module *found;
	void *lib = NULL;

	snprintf(load_error, sizeof(load_error), "%s is not installed beside this library",
		 TLS_MODULE_NAME);
	if (!find_self(self))
		return;
	lib = open_beside(self);
	if (!lib)
		return;
	found = dlsym(lib, TLS_MODULE_SYMBOL);
	if (found && found->version == TLS_MODULE_VERSION) {
		module = found;
		return;
	}
	snprintf(load_error, sizeof(load_error), "%s is of another version of stag",
		 TLS_MODULE_NAME);
	dlclose(lib);
}

int tls_context_create(struct tls_context **out, const struct tls_config *cfg,
		       char why[TLS_WHY_LEN])
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	if (!module)
		return error_text_set(why, TLS_WHY_LEN, -ENOSYS, "%s", load_error);
	return module->context_create(out, cfg, why);
}

/* Each of the following has a context or a session, so the module is loaded. */

struct tls_context *tls_context_get(struct tls_context *c)
{
	return c ? module->context_get(c) : NULL;
}

void tls_context_put(struct tls_context *c)
{
	if (c)
		module->context_put(c);
}

int tls_open(struct tls_session **out, struct tls_context *c, int fd, enum tls_side side,
	     char why[TLS_WHY_LEN])
{
	return module->open(out, c, fd, side, why);
}

void tls_hold_finish(struct tls_session *s)
{
	module->hold_finish(s);
}

int tls_handshake(struct tls_session *s)
{
	return module->handshake(s);
}

short tls_events(struct tls_session *s)
{
	return module->events(s);
}

const char *tls_why(struct tls_session *s)
{
	return module->why(s);
}

void tls_describe(struct tls_session *s, struct tls_info *out)
{
	module->describe(s, out);
}

int tls_export(struct tls_session *s, const char *label, uint8_t *out, size_t len)
{
	return module->export(s, label, out, len);
}

ssize_t tls_sendv(struct tls_session *s, const struct iovec *iov, int n)
{
	return module->sendv(s, iov, n);
}

ssize_t tls_recvv(struct tls_session *s, const struct iovec *iov, int n)
{
	return module->recvv(s, iov, n);
}

bool tls_pending(struct tls_session *s)
{
	return module->pending(s);
}

int tls_shutdown(struct tls_session *s)
{
	return module->shutdown(s);
}

int tls_rekey(struct tls_session *s)
{
	return module->rekey(s);
}

void tls_close(struct tls_session *s)
{
	if (s)
		module->close(s);
}

int tls_first_byte(int fd)
{
	uint8_t byte;
	ssize_t n;

	do
		n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n ? byte : -ENODATA;
}
