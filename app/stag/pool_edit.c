// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_edit.c - edits a line of stag pool shell on the terminal: completion, and a history in a file of the user.
 *
 * By libedit, which has a BSD licence; a build without it reads lines as the terminal gives them.
 */
#include "pool_use.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_LIBEDIT
#include <histedit.h>
#endif

#include "base/cleanup.h"
#include "conf.h"

#define HISTORY_MAX 1000 /* lines */

/* ---- what completes a line ---- */

void pool_offers_add(struct pool_offers *o, const char *word)
{
	if (o->count == o->room) {
		size_t room = o->room ? o->room * 2 : 64;
		char **more = reallocarray(o->list, room, sizeof(*more));

		if (!more)
			return;
		o->list = more;
		o->room = room;
	}
	o->list[o->count] = strdup(word);
	o->count += o->list[o->count] != NULL;
}

void pool_offers_free(struct pool_offers *o)
{
	for (size_t i = 0; i < o->count; i++)
		free(o->list[i]);
	free(o->list);
	*o = (struct pool_offers){0};
}

#ifndef HAVE_LIBEDIT

bool pool_edit_begin(const char *prompt, pool_complete_fn complete)
{
	return false;
}

const char *pool_edit_line(void)
{
	return NULL;
}

void pool_edit_end(void)
{
}

#else

static struct {
	EditLine *el;
	History *history;
	FILE *file; /* new lines are appended; NULL: there is no history file */
	const char *prompt;
	pool_complete_fn complete;
	char *line;
} edit;

/* ---- completion ---- */

/* Returns how many bytes all words have in common. */
static size_t common_length(const struct pool_offers *o)
{
	size_t n = strlen(o->list[0]);

	for (size_t i = 1; i < o->count; i++) {
		size_t same = 0;

		while (same < n && o->list[i][same] == o->list[0][same])
			same++;
		n = same;
	}
	while (n > 0 && (o->list[0][n] & 0xc0) == 0x80) /* not in the middle of a character */
		n--;
	return n;
}

/* Inserts the beginning of a word; libedit takes whole characters only. */
static void insert_quoted(const char *word, size_t length)
{
	CLEANUP_FREE char *text = malloc(2 * length + 1);
	char *to = text;

	for (size_t i = 0; text && i < length; i++) {
		if (strchr(" \t\\'\"#", word[i]))
			*to++ = '\\';
		*to++ = word[i];
	}
	if (!text)
		return;
	*to = '\0';
	el_insertstr(edit.el, text);
}

/* Prints a word, which may have any bytes, without control characters. */
static void print_offer(const char *word)
{
	for (; *word; word++)
		putchar((unsigned char)*word >= ' ' && *word != 0x7f ? *word : '?');
}

static void print_offers(const struct pool_offers *o)
{
	puts("");
	for (size_t i = 0; i < o->count; i++) {
		print_offer(o->list[i]);
		fputs(i + 1 < o->count ? "  " : "\n", stdout);
	}
	fflush(stdout);
}

/* Deletes the last bytes of the text before the cursor: libedit counts characters. */
static void delete_typed(const char *text, size_t bytes)
{
	size_t n = mbstowcs(NULL, text + strlen(text) - bytes, 0);

	el_deletestr(edit.el, (int)(n == (size_t)-1 ? bytes : n));
}

static unsigned char complete_line(EditLine *el, int key)
{
	const LineInfo *at = el_line(el);
	CLEANUP_FREE char *text = strndup(at->buffer, (size_t)(at->cursor - at->buffer));
	struct pool_offers o = {0};
	unsigned char rc = CC_REFRESH;

	if (!text)
		return CC_ERROR;
	edit.complete(text, &o);
	if (o.count == 0) {
		rc = CC_ERROR;
	} else {
		size_t common = common_length(&o);

		if (o.count > 1 && common <= o.typed) {
			print_offers(&o);
			rc = CC_REDISPLAY;
		}
		delete_typed(text, o.typed);
		insert_quoted(o.list[0], common);
		if (o.count == 1 && !o.goes_on && o.list[0][common - (common > 0)] != '/')
			el_insertstr(el, " ");
	}
	pool_offers_free(&o);
	return rc;
}

/* ---- history ---- */

/* A line with a leading space stays out of the file, as in shells; so does what may be a secret. */
static bool may_be_kept(const char *line)
{
	return *line != ' ' && *line != '\n' && !strcasestr(line, "secret") &&
	       !strcasestr(line, "password") && !strcasestr(line, "token");
}

/* Reads the last lines. Returns how many lines the file has. */
static size_t read_history(FILE *f)
{
	CLEANUP_FREE char *line = NULL;
	size_t room = 0, n = 0;
	HistEvent event;

	for (; getline(&line, &room, f) >= 0; n++)
		history(edit.history, &event, H_ENTER, line);
	return n;
}

/* Writes the lines again that are in memory: the file has too many. */
static void shorten_history(FILE *f)
{
	HistEvent event;

	if (ftruncate(fileno(f), 0) != 0)
		return;
	for (int rc = history(edit.history, &event, H_LAST); rc >= 0;
	     rc = history(edit.history, &event, H_PREV))
		fputs(event.str, f);
	fflush(f);
}

/* Opens the file, which only the user can read. It stays NULL if there is no place for it, or something else of this name. */
static void open_history(void)
{
	char path[PATH_MAX - 16], file[PATH_MAX];
	struct stat st;
	int fd;

	if (!conf_state_dir(path, sizeof(path)) || conf_make_directories(path) != 0)
		return;
	snprintf(file, sizeof(file), "%s/history", path);
	fd = open(file, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	/* root's shell keeps it in the directory of the user stag, who may have made the file first */
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    st.st_nlink == 1 && fchmod(fd, 0600) == 0)
		edit.file = fdopen(fd, "a+e");
	if (!edit.file)
		close(fd);
	else if (read_history(edit.file) > 2 * HISTORY_MAX)
		shorten_history(edit.file);
}

static void remember(const char *line)
{
	HistEvent event;

	if (line[strspn(line, " \t\n")] == '\0')
		return;
	history(edit.history, &event, H_ENTER, line);
	if (edit.file && may_be_kept(line)) {
		fputs(line, edit.file);
		fflush(edit.file);
	}
}

/* ---- lines ---- */

static char *prompt_of(EditLine *el)
{
	return (char *)edit.prompt;
}

bool pool_edit_begin(const char *prompt, pool_complete_fn complete)
{
	HistEvent event;

	setlocale(LC_CTYPE, ""); /* which bytes are a character */
	edit.prompt = prompt;
	edit.complete = complete;
	edit.el = el_init("stag", stdin, stdout, stderr);
	edit.history = history_init();
	if (!edit.el || !edit.history) {
		pool_edit_end();
		return false;
	}
	history(edit.history, &event, H_SETSIZE, HISTORY_MAX);
	history(edit.history, &event, H_SETUNIQUE, 1);
	open_history();
	el_set(edit.el, EL_PROMPT, prompt_of);
	el_set(edit.el, EL_HIST, history, edit.history);
	el_set(edit.el, EL_EDITOR, "emacs");
	el_set(edit.el, EL_ADDFN, "stag-complete", "Completes the word", complete_line);
	el_source(edit.el, NULL); /* the user's ~/.editrc */
	el_set(edit.el, EL_BIND, "^I", "stag-complete", NULL);
	el_set(edit.el, EL_BIND, "^R", "em-inc-search-prev", NULL);
	/* ^C clears the line while one is typed; while a command runs, it ends the shell */
	el_set(edit.el, EL_SETTY, "-d", "-isig", NULL);
	el_set(edit.el, EL_BIND, "^C", "em-kill-line", NULL);
	return true;
}

const char *pool_edit_line(void)
{
	const char *line;
	int n = 0;

	el_resize(edit.el);
	line = el_gets(edit.el, &n);
	if (!line || n <= 0)
		return NULL;
	free(edit.line);
	edit.line = strdup(line);
	if (edit.line)
		remember(edit.line);
	return edit.line;
}

void pool_edit_end(void)
{
	if (edit.history)
		history_end(edit.history);
	if (edit.el)
		el_end(edit.el);
	if (edit.file)
		fclose(edit.file);
	free(edit.line);
	memset(&edit, 0, sizeof(edit));
}

#endif
