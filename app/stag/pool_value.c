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
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/cleanup.h"
#include "pool_words.h"
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

/* note_room() has noted the room. */
static void explain_full(const char *what, const struct stag_pool_done *d,
			 const struct stag_pool_io *io)
{
	char text[256];
	bool helps = pool_full_words(io->length, d->version, d->length, text, sizeof(text));

	complain_for(ENOSPC, what, "%s: %s%s", what, text,
		     helps ? "; 'stag pool rm' frees memory" : "");
}

void pool_value_explain(const char *what, const struct stag_pool_done *d,
			const struct stag_pool_io *io)
{
	int error = d->error;

	if (error == ETIMEDOUT || error == ESTALE)
		error = io->op == STAG_POOL_GET || io->op == STAG_POOL_READ ? ETIMEDOUT : ESTALE;
	switch (error) {
	case ENOENT:
		complain_for(error, what, "%s: it does not exist%s", what,
			     io->name ? "; 'stag pool ls' lists the names" : " any more");
		break;
	case EEXIST:
		complain_for(error, what,
			     "%s: it exists already; without --exclusive, put replaces it", what);
		break;
	case EILSEQ:
		complain_for(error, what, "%s: its version is %" PRIu64 ", not %" PRIu64, what,
			     d->version, io->version);
		break;
	case ENOSPC:
		explain_full(what, d, io);
		break;
	case EACCES:
		complain_for(error, what,
			     "%s: this user has no right to do that; choose another with --user",
			     what);
		break;
	case ETIMEDOUT:
		complain_for(error, what,
			     "%s: no node of the pool answers; check with 'stag pool status'",
			     what);
		break;
	case ESTALE:
		complain_for(
			error, what,
			"%s: it is unknown whether that was done; check with 'stag pool get' and "
			"'stag pool status'",
			what);
		break;
	default:
		complain_for(error, what, "%s: %s", what, strerror(error));
	}
}

/* ---- one operation --------------------------------------------------------------------- */

/* Notes the size of the pool and what is free in it, in place of the version and the length that such an outcome has not. */
static void note_room(struct stag_pool *pool, struct stag_pool_done *done)
{
	struct stag_pool_info info = {0};

	if (done->error != ENOSPC || stag_pool_query(pool, &info, sizeof(info)) != 0)
		return;
	done->version = info.size;
	done->length = info.size - info.used;
}

int pool_value_run(struct stag_pool *pool, const struct stag_pool_io *io, const char *what,
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
	note_room(pool, done);
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

/* Checks that the value is given, and in one way. word: the argument, or NULL */
static bool check_value(const struct pool_use *u, const char *word)
{
	struct stat st;

	bool is_stdin = (word && strcmp(word, "-") == 0) || (u->file && strcmp(u->file, "-") == 0);

	if (is_stdin && u->in_script)
		complain("standard input has the commands; --file FILE names a file");
	else if (!word + !u->value + !u->file == 3)
		complain("the value is missing: VALUE, - for standard input, or --file FILE");
	else if (!word + !u->value + !u->file < 2)
		complain("the value is given twice; choose one of VALUE, --value and --file");
	else if (word && strcmp(word, "-") != 0 && stat(word, &st) == 0 && S_ISREG(st.st_mode))
		complain("'%s' is a file: --file %s puts its content, --value %s the word itself",
			 word, word, word);
	else
		return true;
	return false;
}

/* Reads the value from the argument, --value or a file; "-" is standard input. */
static bool read_value(const struct pool_use *u, const char *word, struct value *v)
{
	const char *text = u->value ? u->value : word, *file = u->file ? u->file : "-";
	bool is_stdin = strcmp(file, "-") == 0, good;
	FILE *f;

	if (u->value || (word && strcmp(word, "-") != 0)) {
		v->bytes = strdup(text);
		v->length = strlen(text);
		return v->bytes != NULL;
	}
	f = is_stdin ? stdin : fopen(file, "re");
	if (!f) {
		complain_for(errno, file, "%s: %s", file, strerror(errno));
		return false;
	}
	good = read_stream(f, is_stdin ? "standard input" : file, v);
	if (!is_stdin)
		fclose(f);
	return good;
}

/* Does the value leave the cursor of a terminal, or the shell's next answer, in the middle of a line? */
static bool leaves_line_open(const struct pool_use *u, const struct value *v)
{
	return (u->shared || isatty(STDOUT_FILENO)) &&
	       (v->length == 0 || v->bytes[v->length - 1] != '\n');
}

/* Writes the bytes of the value, and to a terminal the end of its line. */
static bool write_value(const struct pool_use *u, const char *file, const struct value *v)
{
	bool to_stdout = !file || strcmp(file, "-") == 0;
	FILE *f = to_stdout ? stdout : fopen(file, "we");
	bool good = f && fwrite(v->bytes, 1, v->length, f) == v->length;

	if (good && to_stdout && leaves_line_open(u, v))
		putchar('\n');
	good = good && fflush(f) == 0;

	if (f && !to_stdout)
		good = fclose(f) == 0 && good;
	if (!good)
		complain_for(errno, file, "%s: %s", to_stdout ? "standard output" : file,
			     strerror(errno));
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

json_t *pool_value_json(const char *name, const struct stag_pool_ptr *ptr, uint64_t version,
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

bool pool_value_target(const struct pool_use *u, struct stag_pool_io *io, const char **what,
		       const char **word)
{
	int named = u->pointer ? 0 : 1, most = named + (word ? 1 : 0);

	if (u->num_args < named || u->num_args > most) {
		complain(named ? "the name of the value is missing"
			       : "--pointer and a name cannot be combined");
		return false;
	}
	if (word)
		*word = u->num_args > named ? u->args[named] : NULL;
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
		store_dump(pool_value_json(io->name, &d->ptr, d->version, io->length));
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
		pool_value_explain(what, &done, io);
	else
		print_done(u, io, &done);
	pool_use_close(u, pool);
	return error ? EXIT_FAILED : EXIT_OK;
}

static int change_value_to(const struct pool_use *u, struct stag_pool_io *io, const char *what,
			   const char *word,
			   int (*run)(struct stag_pool *, const struct stag_pool_io *, const char *,
				      struct stag_pool_done *))
{
	struct value v = {0};
	int rc = EXIT_FAILED;

	if (!check_value(u, word))
		return EXIT_USAGE;
	if (read_value(u, word, &v)) {
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
	const char *what = "that value", *word = u->num_args > 0 ? u->args[0] : NULL;

	if (u->insert && (u->num_args > 1 || u->exclusive || u->version)) {
		complain("--insert takes no name; --exclusive and --version cannot be combined "
			 "with it");
		return EXIT_USAGE;
	}
	if (u->exclusive && u->version) {
		complain("--exclusive and --version cannot be combined");
		return EXIT_USAGE;
	}
	if (!u->insert && !pool_value_target(u, &io, &what, &word))
		return EXIT_USAGE;
	if (!parse_compare(u, &io))
		return EXIT_USAGE;
	io.flags |= u->exclusive ? STAG_POOL_EXCLUSIVE : 0;
	return change_value_to(u, &io, what, word, pool_value_run);
}

/* Replaces the value of a name that exists; fails if another client changes it between our get and our put. */
static int run_update(struct stag_pool *pool, const struct stag_pool_io *io, const char *what,
		      struct stag_pool_done *done)
{
	struct stag_pool_io look = {.op = STAG_POOL_GET, .name = io->name}, put = *io;
	char byte;

	look.to = &byte;
	do {
		pool_value_run(pool, &look, what, done);
		if (done->error != 0 && done->error != EMSGSIZE)
			return done->error;
		put.flags |= STAG_POOL_COMPARE;
		put.version = done->version;
	} while (pool_value_run(pool, &put, what, done) == EILSEQ);
	return done->error;
}

int pool_use_update(const struct pool_use *u)
{
	struct stag_pool_io io = {.op = u->pointer ? STAG_POOL_UPDATE : STAG_POOL_PUT};
	const char *what, *word;

	if (!pool_value_target(u, &io, &what, &word) || !parse_compare(u, &io))
		return EXIT_USAGE;
	return change_value_to(u, &io, what, word,
			       u->pointer || u->version ? pool_value_run : run_update);
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
		if (pool_value_run(pool, io, what, done) != EMSGSIZE)
			break;
		room = done->length > room ? done->length : room * 2;
	}
	v->length = done->length;
	return done->error;
}

static bool print_value(const struct pool_use *u, const struct stag_pool_io *io,
			const struct value *v, const struct stag_pool_done *d)
{
	json_t *o;

	if (u->file && !write_value(u, u->file, v))
		return false;
	if (!u->json)
		return u->file || write_value(u, NULL, v);
	o = pool_value_json(io->name, &d->ptr, d->version, v->length);
	if (!u->file)
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
	const char *what;
	bool good;

	if (!pool_value_target(u, &io, &what, NULL))
		return EXIT_USAGE;
	pool = pool_use_open(u, 0);
	if (!pool)
		return EXIT_FAILED;
	good = read_pool_value(pool, &io, what, &v, &done) == 0;
	if (!good)
		pool_value_explain(what, &done, &io);
	else
		good = print_value(u, &io, &v, &done);
	free(v.bytes);
	pool_use_close(u, pool);
	return good ? EXIT_OK : EXIT_FAILED;
}

/* ---- rm ---------------------------------------------------------------------------------------- */

static void add_removed(json_t *removed, const char *name)
{
	json_t *o = json_object();

	set_bytes(o, "name", "name_base64", name, strlen(name));
	json_array_append_new(removed, o);
}

static bool remove_one(struct stag_pool *pool, struct stag_pool_io *io, const char *what,
		       json_t *removed)
{
	struct stag_pool_done done;

	if (pool_value_run(pool, io, what, &done) != 0) {
		pool_value_explain(what, &done, io);
		return false;
	}
	add_removed(removed, what);
	return true;
}

struct names {
	char **list;
	size_t count, room;
};

static bool add_name(struct names *n, const char *name)
{
	if (n->count == n->room) {
		size_t room = n->room ? n->room * 2 : 64;
		char **more = reallocarray(n->list, room, sizeof(*more));

		if (!more)
			return false;
		n->list = more;
		n->room = room;
	}
	n->list[n->count] = strdup(name);
	return n->list[n->count++] != NULL;
}

static void free_names(struct names *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->list[i]);
	free(n->list);
}

/* Finds the names that match a pattern. Returns false after it has complained. */
static bool find_names(const struct pool_use *u, struct stag_pool *pool, const char *pattern,
		       struct names *found)
{
	struct stag_pool_entry e = {0};

	while (errno = 0, stag_pool_next(pool, &e))
		if (fnmatch(pattern, e.name, 0) == 0 && !add_name(found, e.name)) {
			complain("out of memory");
			return false;
		}
	if (errno != 0) {
		complain_for(errno, u->pool, "%s", stag_pool_error());
		return false;
	}
	if (found->count == 0)
		complain_for(ENOENT, pattern, "%s: no name matches; 'stag pool ls' lists the names",
			     pattern);
	return found->count > 0;
}

/* Asks whether to remove so many values; without a terminal only --force answers. */
static bool may_remove(const struct pool_use *u, const char *pattern, size_t count)
{
	char answer[16] = "";

	if (u->force)
		return true;
	if (u->json || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
		complain("%s: the pattern matches %zu name%s; --force removes %s", pattern, count,
			 count == 1 ? "" : "s", count == 1 ? "it" : "them");
		return false;
	}
	fprintf(stderr, "Remove %zu value%s that match%s %s? [y/N] ", count, count == 1 ? "" : "s",
		count == 1 ? "es" : "", pattern);
	if (!fgets(answer, sizeof(answer), stdin))
		clearerr(stdin);
	if (answer[0] == 'y' || answer[0] == 'Y')
		return true;
	complain("%s: nothing was removed", pattern);
	return false;
}

/* Removes what matches a pattern. A name that another client removes first does not count as an error. */
static bool remove_matching(const struct pool_use *u, struct stag_pool *pool, const char *pattern,
			    json_t *removed)
{
	struct stag_pool_io io = {.op = STAG_POOL_REMOVE};
	struct names found = {0};
	struct stag_pool_done done;
	bool good = find_names(u, pool, pattern, &found) && may_remove(u, pattern, found.count);
	size_t count = 0;

	for (size_t i = 0; good && i < found.count; i++) {
		io.name = found.list[i];
		pool_value_run(pool, &io, io.name, &done);
		if (done.error == 0)
			add_removed(removed, io.name);
		else if (done.error != ENOENT)
			pool_value_explain(io.name, &done, &io);
		good = done.error == 0 || done.error == ENOENT;
		count += done.error == 0;
	}
	if (good && !u->json)
		printf("%zu value%s removed\n", count, count == 1 ? "" : "s");
	free_names(&found);
	return good;
}

/* Removes a name; a word that is no name, and has wildcards, is a pattern. */
static bool remove_word(const struct pool_use *u, struct stag_pool *pool, struct stag_pool_io *io,
			const char *word, json_t *removed)
{
	struct stag_pool_done done;

	io->name = word;
	if (u->version || !strpbrk(word, "*?["))
		return remove_one(pool, io, word, removed);
	if (pool_value_run(pool, io, word, &done) == ENOENT)
		return remove_matching(u, pool, word, removed);
	if (done.error != 0)
		pool_value_explain(word, &done, io);
	else
		add_removed(removed, word);
	return done.error == 0;
}

static bool remove_all(const struct pool_use *u, struct stag_pool *pool, struct stag_pool_io *io,
		       json_t *removed)
{
	bool good = true;

	if (u->pointer)
		return remove_one(pool, io, u->pointer, removed);
	for (int i = 0; i < u->num_args; i++)
		good = remove_word(u, pool, io, u->args[i], removed) && good;
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
	pool_use_close(u, pool);
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

static int list_error(const struct pool_use *u)
{
	complain_for(errno, u->pool, "%s", stag_pool_error());
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
			json_array_append_new(
				list, pool_value_json(e.name, &e.ptr, e.version, e.ptr.length));
		else
			print_entry(u, &e);
	}
	if (errno != 0)
		rc = list_error(u);
	if (list && rc == EXIT_OK)
		store_dump(list);
	else
		json_decref(list);
	pool_use_close(u, pool);
	return rc;
}
