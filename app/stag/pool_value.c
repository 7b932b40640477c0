// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_value.c - stag pool put, get, update, rm and ls.
 */
#include "pool_use.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/cleanup.h"
#include "progress.h"
#include "stag.h"
#include "store.h"

#define FIRST_ROOM (1u << 20)
#define PTR_WORD   64

/* ---- words ----------------------------------------------------------------------------- */

static const char *ptr_word(const struct stag_pool_ptr *p, char text[PTR_WORD])
{
	snprintf(text, PTR_WORD, "%" PRIx64 ":%" PRIx32 ":%" PRIx32 ":%" PRIx64, p->address, p->key,
		 p->length, p->generation);
	return text;
}

static bool parse_ptr(const char *text, struct stag_pool_ptr *p)
{
	int end = 0;

	if (strspn(text, "0123456789abcdef:") == strlen(text) &&
	    sscanf(text, "%" SCNx64 ":%" SCNx32 ":%" SCNx32 ":%" SCNx64 "%n", &p->address, &p->key,
		   &p->length, &p->generation, &end) == 4 &&
	    !text[end])
		return true;
	complain("--pointer must be as 'stag pool put --insert' printed it, not '%s'", text);
	return false;
}

static bool parse_version(const char *text, uint64_t *version)
{
	char *end;

	errno = 0;
	*version = strtoull(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && errno == 0)
		return true;
	complain("--version must be a number, as 'stag pool ls --long' prints it, not '%s'", text);
	return false;
}

/* Explains why an operation failed, and what to do. */
static void explain_failure(const char *what, const struct stag_pool_done *d,
			    const struct stag_pool_io *io)
{
	switch (d->error) {
	case ENOENT:
		complain("%s: it does not exist%s", what,
			 io->name ? "; 'stag pool ls' lists the names" : " any more");
		break;
	case EEXIST:
		complain("%s: it exists already; without --exclusive, put replaces it", what);
		break;
	case EILSEQ:
		complain("%s: its version is %" PRIu64 ", not %" PRIu64, what, d->version,
			 io->version);
		break;
	case ENOSPC:
		complain("%s: the pool is full; 'stag pool rm' frees memory", what);
		break;
	case EACCES:
		complain("%s: this user has no right to do that; choose another with --user", what);
		break;
	case ETIMEDOUT:
	case ESTALE:
		complain("%s: it is unknown whether that was done; check with 'stag pool get' and "
			 "'stag pool status'",
			 what);
		break;
	default:
		complain("%s: %s", what, strerror(d->error));
	}
}

/* ---- one operation --------------------------------------------------------------------- */

static int run_io(struct stag_pool *pool, const struct stag_pool_io *io, const char *what,
		  struct stag_pool_done *done)
{
	struct progress progress;
	char size[32];

	progress_begin(&progress, what, PROGRESS_TIME, 0);
	store_size_word(io->length, size, sizeof(size));
	*done = (struct stag_pool_done){.error = stag_pool_submit(pool, io, 1)};
	if (done->error == 0) {
		while (stag_pool_poll(pool, done, 1) == 0) {
			stag_pool_wait(pool, 200);
			progress_spent(&progress, size);
		}
		progress_end(&progress);
	}
	return done->error;
}

/* ---- files ---------------------------------------------------------------------------------- */

struct value {
	char *bytes;
	size_t length;
};

static bool read_stream(FILE *f, const char *name, struct value *v)
{
	size_t room = 0;

	for (;;) {
		char *more;
		size_t n;

		if (v->length == room) {
			room = room ? room * 2 : 1u << 16;
			more = realloc(v->bytes, room);
			if (!more) {
				complain("out of memory for %s", name);
				return false;
			}
			v->bytes = more;
		}
		n = fread(v->bytes + v->length, 1, room - v->length, f);
		v->length += n;
		if (v->length > STAG_POOL_VALUE_MAX) {
			complain("%s: too long: a value has at most 1 GiB", name);
			return false;
		}
		if (n == 0)
			break;
	}
	if (ferror(f))
		complain("%s: %s", name, strerror(errno));
	return !ferror(f);
}

/* Reads --value, or a file; NULL or "-" is standard input. */
static bool read_value(const struct pool_use *u, const char *file, struct value *v)
{
	bool is_stdin = !file || strcmp(file, "-") == 0, good;
	FILE *f;

	if (u->value && file) {
		complain("a file and --value cannot be combined");
		return false;
	}
	if (u->value) {
		v->bytes = strdup(u->value);
		v->length = strlen(u->value);
		return v->bytes != NULL;
	}
	f = is_stdin ? stdin : fopen(file, "re");
	if (!f) {
		complain("%s: %s", file, strerror(errno));
		return false;
	}
	good = read_stream(f, is_stdin ? "standard input" : file, v);
	if (!is_stdin)
		fclose(f);
	return good;
}

static bool write_value(const char *file, const struct value *v)
{
	bool to_stdout = !file || strcmp(file, "-") == 0;
	FILE *f = to_stdout ? stdout : fopen(file, "we");
	bool good = f && fwrite(v->bytes, 1, v->length, f) == v->length && fflush(f) == 0;

	if (f && !to_stdout)
		good = fclose(f) == 0 && good;
	if (!good)
		complain("%s: %s", to_stdout ? "standard output" : file, strerror(errno));
	return good;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* Sets bytes as text, or under another name in base64 if they are not UTF-8. */
static void set_bytes(json_t *o, const char *name, const char *name64, const char *bytes,
		      size_t len)
{
	json_t *text = json_stringn(bytes, len);
	char *base64;

	if (text) {
		json_object_set_new(o, name, text);
		return;
	}
	base64 = malloc(len / 3 * 4 + 5);
	if (base64)
		EVP_EncodeBlock((unsigned char *)base64, (const unsigned char *)bytes, (int)len);
	json_object_set_new(o, name64, base64 ? json_string(base64) : json_null());
	free(base64);
}

static json_t *done_json(const char *name, const struct stag_pool_ptr *ptr, uint64_t version,
			 uint64_t length)
{
	char word[PTR_WORD];
	json_t *o = json_pack("{s:I, s:I, s:s}", "length", (json_int_t)length, "version",
			      (json_int_t)version, "pointer", ptr_word(ptr, word));

	if (name)
		set_bytes(o, "name", "name_base64", name, strlen(name));
	return o;
}

/* ---- put and update --------------------------------------------------------------------------- */

/* Parses the arguments after the pool: a name, unless --pointer is given, then a file or nothing. */
static bool parse_target(const struct pool_use *u, struct stag_pool_io *io, const char **what,
			 const char **file)
{
	int named = u->pointer ? 0 : 1;

	if (u->num_args < named || u->num_args > named + 1) {
		complain(named ? "the arguments must be a name, then a file or nothing"
			       : "with --pointer there must be no name: only a file or nothing");
		return false;
	}
	*file = u->num_args > named ? u->args[named] : NULL;
	*what = named ? u->args[0] : "that value";
	io->name = named ? u->args[0] : NULL;
	if (named && (strlen(io->name) > STAG_POOL_NAME_MAX || !*io->name)) {
		complain("a name must have 1 to %d bytes", STAG_POOL_NAME_MAX);
		return false;
	}
	return named || parse_ptr(u->pointer, &io->ptr);
}

static void print_done(const struct pool_use *u, const struct stag_pool_io *io,
		       const struct stag_pool_done *d)
{
	char word[PTR_WORD];

	if (u->json)
		store_dump(done_json(io->name, &d->ptr, d->version, io->length));
	else if (!io->name)
		puts(ptr_word(&d->ptr, word));
}

static int change_value(const struct pool_use *u, const struct stag_pool_io *io, const char *what,
			int (*run)(struct stag_pool *, const struct stag_pool_io *, const char *,
				   struct stag_pool_done *))
{
	struct stag_pool *pool = pool_use_open(u, 0);
	struct stag_pool_done done;
	int error;

	if (!pool)
		return EXIT_FAILED;
	error = run(pool, io, what, &done);
	if (error)
		explain_failure(what, &done, io);
	else
		print_done(u, io, &done);
	stag_pool_close(pool);
	return error ? EXIT_FAILED : EXIT_OK;
}

static int change_value_to(const struct pool_use *u, struct stag_pool_io *io, const char *what,
			   const char *file,
			   int (*run)(struct stag_pool *, const struct stag_pool_io *, const char *,
				      struct stag_pool_done *))
{
	struct value v = {0};
	int rc = EXIT_FAILED;

	if (read_value(u, file, &v)) {
		io->from = v.bytes;
		io->length = v.length;
		rc = change_value(u, io, what, run);
	}
	free(v.bytes);
	return rc;
}

static bool parse_compare(const struct pool_use *u, struct stag_pool_io *io)
{
	if (!u->version)
		return true;
	io->flags |= STAG_POOL_COMPARE;
	return parse_version(u->version, &io->version);
}

int pool_use_put(const struct pool_use *u)
{
	struct stag_pool_io io = {.op = u->insert ? STAG_POOL_INSERT : STAG_POOL_PUT};
	const char *what = "that value", *file = u->num_args > 0 ? u->args[0] : NULL;

	if (u->insert && (u->num_args > 1 || u->exclusive || u->version)) {
		complain("--insert takes no name; --exclusive and --version cannot be combined "
			 "with it");
		return EXIT_USAGE;
	}
	if (u->exclusive && u->version) {
		complain("--exclusive and --version cannot be combined");
		return EXIT_USAGE;
	}
	if (!u->insert && !parse_target(u, &io, &what, &file))
		return EXIT_USAGE;
	if (!parse_compare(u, &io))
		return EXIT_USAGE;
	io.flags |= u->exclusive ? STAG_POOL_EXCLUSIVE : 0;
	return change_value_to(u, &io, what, file, run_io);
}

/* Replaces the value of a name that exists; fails if another client changes it between our get and our put. */
static int run_update(struct stag_pool *pool, const struct stag_pool_io *io, const char *what,
		      struct stag_pool_done *done)
{
	struct stag_pool_io look = {.op = STAG_POOL_GET, .name = io->name}, put = *io;
	char byte;

	look.to = &byte;
	do {
		run_io(pool, &look, what, done);
		if (done->error != 0 && done->error != EMSGSIZE)
			return done->error;
		put.flags |= STAG_POOL_COMPARE;
		put.version = done->version;
	} while (run_io(pool, &put, what, done) == EILSEQ);
	return done->error;
}

int pool_use_update(const struct pool_use *u)
{
	struct stag_pool_io io = {.op = u->pointer ? STAG_POOL_UPDATE : STAG_POOL_PUT};
	const char *what, *file;

	if (!parse_target(u, &io, &what, &file) || !parse_compare(u, &io))
		return EXIT_USAGE;
	return change_value_to(u, &io, what, file, u->pointer || u->version ? run_io : run_update);
}

/* ---- get --------------------------------------------------------------------------------------- */

/* Reads a value, which may grow meanwhile. */
static int read_pool_value(struct stag_pool *pool, struct stag_pool_io *io, const char *what,
			   struct value *v, struct stag_pool_done *done)
{
	size_t room = FIRST_ROOM;

	for (;;) {
		free(v->bytes);
		v->bytes = malloc(room);
		if (!v->bytes) {
			done->error = ENOMEM;
			return ENOMEM;
		}
		io->to = v->bytes;
		io->length = room;
		if (run_io(pool, io, what, done) != EMSGSIZE)
			break;
		room = done->length > room ? done->length : room * 2;
	}
	v->length = done->length;
	return done->error;
}

static bool print_value(const struct pool_use *u, const struct stag_pool_io *io, const char *file,
			const struct value *v, const struct stag_pool_done *d)
{
	json_t *o;

	if (file && !write_value(file, v))
		return false;
	if (!u->json)
		return file || write_value(NULL, v);
	o = done_json(io->name, &d->ptr, d->version, v->length);
	if (!file)
		set_bytes(o, "value", "value_base64", v->bytes, v->length);
	store_dump(o);
	return true;
}

int pool_use_get(const struct pool_use *u)
{
	struct stag_pool_io io = {.op = u->pointer ? STAG_POOL_READ : STAG_POOL_GET};
	struct stag_pool_done done = {0};
	struct value v = {0};
	struct stag_pool *pool;
	const char *what, *file;
	bool good;

	if (!parse_target(u, &io, &what, &file))
		return EXIT_USAGE;
	pool = pool_use_open(u, 0);
	if (!pool)
		return EXIT_FAILED;
	good = read_pool_value(pool, &io, what, &v, &done) == 0;
	if (!good)
		explain_failure(what, &done, &io);
	else
		good = print_value(u, &io, file, &v, &done);
	free(v.bytes);
	stag_pool_close(pool);
	return good ? EXIT_OK : EXIT_FAILED;
}

/* ---- rm ---------------------------------------------------------------------------------------- */

static bool remove_one(struct stag_pool *pool, struct stag_pool_io *io, const char *what,
		       json_t *removed)
{
	struct stag_pool_done done;
	json_t *o;

	if (run_io(pool, io, what, &done) != 0) {
		explain_failure(what, &done, io);
		return false;
	}
	o = json_object();
	set_bytes(o, "name", "name_base64", what, strlen(what));
	json_array_append_new(removed, o);
	return true;
}

static bool remove_all(const struct pool_use *u, struct stag_pool *pool, struct stag_pool_io *io,
		       json_t *removed)
{
	bool good = true;

	if (u->pointer)
		return remove_one(pool, io, u->pointer, removed);
	for (int i = 0; i < u->num_args; i++) {
		io->name = u->args[i];
		good = remove_one(pool, io, u->args[i], removed) && good;
	}
	return good;
}

int pool_use_rm(const struct pool_use *u)
{
	struct stag_pool_io io = {.op = u->pointer ? STAG_POOL_DELETE : STAG_POOL_REMOVE};
	json_t *removed;
	struct stag_pool *pool;
	bool good;

	if (u->pointer ? u->num_args > 0 : u->num_args == 0) {
		complain("name what to remove, or use --pointer");
		return EXIT_USAGE;
	}
	if (u->version && u->num_args > 1) {
		complain("--version can be used with one name only, not %d", u->num_args);
		return EXIT_USAGE;
	}
	if ((u->pointer && !parse_ptr(u->pointer, &io.ptr)) || !parse_compare(u, &io))
		return EXIT_USAGE;
	pool = pool_use_open(u, 0);
	if (!pool)
		return EXIT_FAILED;
	removed = json_array();
	good = remove_all(u, pool, &io, removed);
	if (u->json)
		store_dump(removed);
	else
		json_decref(removed);
	stag_pool_close(pool);
	return good ? EXIT_OK : EXIT_FAILED;
}

/* ---- ls ---------------------------------------------------------------------------------------- */

/* Prints a name, which may have any bytes, without control characters for the terminal. */
static void print_name(const char *name)
{
	bool safe = !isatty(STDOUT_FILENO);

	for (; *name; name++)
		if (safe || ((unsigned char)*name >= ' ' && *name != 0x7f))
			putchar(*name);
		else
			printf("\\x%02x", (unsigned char)*name);
	putchar('\n');
}

static void print_entry(const struct pool_use *u, const struct stag_pool_entry *e)
{
	char word[PTR_WORD];

	if (u->details)
		printf("%12" PRIu64 " %10" PRIu32 "  %-40s ", e->version, e->ptr.length,
		       ptr_word(&e->ptr, word));
	print_name(e->name);
}

static int list_error(void)
{
	complain("%s", stag_pool_error());
	return EXIT_FAILED;
}

int pool_use_ls(const struct pool_use *u)
{
	struct stag_pool *pool = pool_use_open(u, 0);
	json_t *list = u->json ? json_array() : NULL;
	struct stag_pool_entry e = {0};
	int rc = EXIT_OK;

	if (!pool)
		return EXIT_FAILED;
	if (u->details && !list)
		printf("%12s %10s  %-40s %s\n", "VERSION", "LENGTH", "POINTER", "NAME");
	while (errno = 0, stag_pool_next(pool, &e)) {
		if (u->num_args > 0 && fnmatch(u->args[0], e.name, 0) != 0)
			continue;
		if (list)
			json_array_append_new(list,
					      done_json(e.name, &e.ptr, e.version, e.ptr.length));
		else
			print_entry(u, &e);
	}
	if (errno != 0)
		rc = list_error();
	if (list && rc == EXIT_OK)
		store_dump(list);
	else
		json_decref(list);
	stag_pool_close(pool);
	return rc;
}
