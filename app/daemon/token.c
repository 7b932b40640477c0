// SPDX-License-Identifier: BSD-2-Clause
/*
 * token.c - tokens of the management API: the one that is made if none is configured, and those that are created and revoked while
 * the daemon runs, each in a drop-in with its hash.
 */
#include "daemon_own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/name.h"

/* ---- the API's own token ------------------------------------------------------------------ */

/* Makes DIRECTORY/FILE with a new token, of mode 0600. */
static int make_token_file(const char *directory, const char *file, char text[TOKEN_ROOM])
{
	CLEANUP_CLOSE int dir = -1;
	char line[TOKEN_ROOM + 1];
	int rc;

	mkdir(directory, 0700);
	dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	token_make(text);
	snprintf(line, sizeof(line), "%s\n", text);
	rc = file_replace(dir, file, line, strlen(line), 0600);
	explicit_bzero(line, sizeof(line));
	return rc;
}

/* Makes it in the state directory or, if that cannot be written, among the control sockets. Sets conf->token_file. */
static int make_own_token(struct daemon *d, struct conf_api *conf, char text[TOKEN_ROOM], char *why,
			  size_t size)
{
	const struct conf_daemon *daemon = (const struct conf_daemon *)d->conf;
	char dir[108], file[NAME_LEN + 16];
	int rc = make_token_file(daemon->state, CONF_MADE_TOKEN, text);
	char *path = NULL;

	if (rc == 0)
		return 0;
	snprintf(file, sizeof(file), "api-%.63s.token", daemon->name);
	if (!control_directory(daemon->control, dir, sizeof(dir)) ||
	    make_token_file(dir, file, text) != 0)
		return service_fail(why, size, -rc,
				    "cannot make a token in %s: %s; set token-file = PATH, or "
				    "state = DIRECTORY in [daemon]",
				    daemon->state, strerror(-rc));
	if (asprintf(&path, "%s/%s", dir, file) < 0)
		return service_fail(why, size, ENOMEM, "out of memory");
	free(conf->token_file);
	conf->token_file = path;
	return 0;
}

/* Finds the token that this daemon made at its start in another place than the state directory. */
static const struct token *own_token_elsewhere(struct daemon *d, const struct conf_api *conf)
{
	const struct token *own = d->access ? access_named(d->access, CONF_API_TOKEN) : NULL;

	return own && own->file && strcmp(own->file, conf->token_file) != 0 ? own : NULL;
}

int token_make_own(struct daemon *d, struct conf_api *conf, char *why, size_t size)
{
	const struct token *own;
	int rc;

	if (!conf->token_made || conf->token || !conf->token_file)
		return 0;
	own = own_token_elsewhere(d, conf);
	if (d->access && !own)
		return 0; /* its file was removed since the start: it is revoked */
	conf->token = calloc(1, TOKEN_MAX + 2);
	if (!conf->token)
		return service_fail(why, size, ENOMEM, "out of memory");
	if (own && file_read(AT_FDCWD, own->file, conf->token, TOKEN_ROOM + 1) > 0) {
		conf->token[strcspn(conf->token, "\n")] = '\0';
		free(conf->token_file);
		conf->token_file = strdup(own->file);
		return conf->token_file ? 0 : -ENOMEM;
	}
	rc = make_own_token(d, conf, conf->token, why, size);
	if (rc == 0)
		event_add(EVENT_INFO, "api",
			  "clients need a token on TCP; none was configured, so %s was made",
			  conf->token_file);
	return rc;
}

void daemon_set_access(struct daemon *d, struct access *access)
{
	struct access *before;

	lock_acquire(&d->lock);
	before = d->access;
	d->access = access;
	lock_release(&d->lock);
	access_put(before);
}

/* ---- tokens with names --------------------------------------------------------------------- */

static struct access *get_access(struct daemon *d)
{
	HOLD_FOR_SCOPE(&d->lock);

	return d->access ? access_get(d->access) : NULL;
}

/* Looks a token up while the caller holds changing, so that the answer stays true. */
static int look_up(struct daemon *d, const char *name, bool *exists, bool *dropin, char *why,
		   size_t size)
{
	struct access *a = get_access(d);
	const struct token *t = a ? access_named(a, name) : NULL;

	assert(lock_held(&d->changing));
	*exists = t;
	*dropin = t && t->dropin;
	if (!a)
		return service_fail(why, size, ENOENT,
				    "this daemon serves no API: it has no [api]");
	access_put(a);
	return 0;
}

int daemon_token_create(struct daemon *d, const char *name, enum role role, char text[TOKEN_ROOM],
			char *why, size_t size)
{
	char file[NAME_LEN + 16], section[NAME_LEN + TOKEN_HEX_LEN + 64];
	char hex[TOKEN_HEX_LEN + 1];
	unsigned char hash[TOKEN_HASH_LEN];
	bool exists, dropin;
	int rc;

	if (!name_is_valid(name))
		return service_fail(why, size, EINVAL,
				    "invalid name '%s': use letters, digits and . - _, 63 at most",
				    name);
	HOLD_FOR_SCOPE(&d->changing);
	rc = look_up(d, name, &exists, &dropin, why, size);
	if (rc != 0)
		return rc;
	if (exists)
		return service_fail(why, size, EEXIST, "there is a token '%s' already", name);
	token_make(text);
	if (!token_hash(text, hash))
		return service_fail(why, size, ENOMEM, "out of memory");
	token_to_hex(hash, hex);
	snprintf(file, sizeof(file), "token-%s.ini", name);
	snprintf(section, sizeof(section), "[token %s]\nrole = %s\nhash = %s\n", name,
		 role_word(role), hex);
	rc = daemon_replace_dropin(d, file, section, why, size);
	if (rc == 0)
		event_add(EVENT_INFO, "api", "token %s was created, role %s", name,
			  role_word(role));
	return rc;
}

/* Lets the API forget the token. This needs no valid configuration: whoever revokes a token may have no time to mend one. */
static int forget_token(struct daemon *d, const char *name)
{
	struct access *a = get_access(d), *without = a ? access_without(a, name) : NULL;

	assert(lock_held(&d->changing));
	access_put(a);
	if (!without)
		return -ENOMEM;
	d->api_calls->change(d->api, NULL, without);
	daemon_set_access(d, without);
	return 0;
}

int daemon_token_revoke(struct daemon *d, const char *name, char *why, size_t size)
{
	char file[NAME_LEN + 16], cause[256] = "";
	bool exists, dropin;
	int rc;

	HOLD_FOR_SCOPE(&d->changing);
	rc = look_up(d, name, &exists, &dropin, why, size);
	if (rc != 0)
		return rc;
	if (!exists)
		return service_fail(why, size, ENOENT, "there is no token '%s'", name);
	if (!dropin)
		return service_fail(why, size, EPERM,
				    strcmp(name, CONF_API_TOKEN) == 0
					    ? "token %s is in the file of token-file: replace or "
					      "remove the file, then reload"
					    : "token %s is in the main file: remove it there, then "
					      "reload",
				    name);
	if (forget_token(d, name) != 0)
		return service_fail(why, size, ENOMEM, "out of memory");
	event_add(EVENT_INFO, "api", "token %s was revoked", name);
	snprintf(file, sizeof(file), "token-%s.ini", name);
	rc = daemon_remove_dropin(d, file, cause, sizeof(cause));
	if (rc == 0)
		return 0;
	return service_fail(why, size, EIO,
			    "token %s is refused from now on, but its file was not removed: %s",
			    name, cause);
}

json_t *daemon_tokens(struct daemon *d)
{
	struct access *a = get_access(d);
	json_t *list = json_array();

	for (unsigned int i = 0; a && i < a->count; i++)
		json_array_append_new(
			list, json_pack("{s:s s:s s:s? s:b}", "name", a->list[i].name, "role",
					role_word(a->list[i].role), "file", a->list[i].file,
					"revocable", a->list[i].dropin));
	access_put(a);
	return list;
}
