// SPDX-License-Identifier: BSD-2-Clause
/*
 * library.c - reads the log of the libraries from a pipe (library.h).
 *
 * The libraries open the file that STAG_LOG_FILE names when they are loaded: here, the write end of a pipe that survives exec.
 * stderr is not redirected, so messages of a sanitizer or of assert() are not lost with this process.
 */
#include "library.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "event.h"

#define FILE_NAME "STAG_LOG_FILE"
#define PIPE_NAME "STAGD_LOG_PIPE" /* both file descriptors, for the process after exec */
#define LINE_ROOM 1280

static int ends[2] = {-1, -1};
static int wake[2] = {-1, -1};
static pthread_t thread;

void library_prepare(void)
{
	const char *file = getenv(FILE_NAME);
	int fds[2];
	char text[64];

	if ((file && *file) || pipe(fds) != 0)
		return;
	snprintf(text, sizeof(text), "/proc/self/fd/%d", fds[1]);
	setenv(FILE_NAME, text, 1);
	snprintf(text, sizeof(text), "%d,%d", fds[0], fds[1]);
	setenv(PIPE_NAME, text, 1);
}

/* Logs a line "stag[17] warn: text" with its level. */
static void log_library_line(char *line)
{
	static const struct {
		const char *word;
		enum event_level level;
	} levels[] = {{"err: ", EVENT_ERR},
		      {"warn: ", EVENT_WARN},
		      {"info: ", EVENT_INFO},
		      {"debug: ", EVENT_DEBUG}};
	const char *text = strstr(line, "] ");

	for (unsigned int i = 0; text && i < sizeof(levels) / sizeof(levels[0]); i++)
		if (strncmp(text + 2, levels[i].word, strlen(levels[i].word)) == 0) {
			event_add(levels[i].level, "library", "%s",
				  text + 2 + strlen(levels[i].word));
			return;
		}
	event_add(EVENT_INFO, "library", "%s", line);
}

struct buffer {
	char text[LINE_ROOM];
	size_t len;
};

static void log_complete_lines(struct buffer *b)
{
	char *end;

	b->text[b->len] = '\0';
	while ((end = strchr(b->text, '\n'))) {
		*end = '\0';
		log_library_line(b->text);
		b->len -= (size_t)(end + 1 - b->text);
		memmove(b->text, end + 1, b->len + 1);
	}
	if (b->len == sizeof(b->text) - 1) /* too long to be a line of our libraries: drop it */
		b->len = 0;
}

static bool read_library_lines(struct buffer *b)
{
	ssize_t n = read(ends[0], b->text + b->len, sizeof(b->text) - 1 - b->len);

	if (n <= 0)
		return false;
	b->len += (size_t)n;
	log_complete_lines(b);
	return true;
}

static void *library_log_thread(void *arg)
{
	struct pollfd fds[] = {{.fd = ends[0], .events = POLLIN},
			       {.fd = wake[0], .events = POLLIN}};
	struct buffer b = {.len = 0};

	for (;;) {
		poll(fds, 2, -1);
		if (fds[0].revents & POLLIN && read_library_lines(&b))
			continue;
		if (fds[0].revents) /* all writers have closed it */
			fds[0].fd = -1;
		if (fds[1].revents)
			return NULL;
	}
}

void library_begin(void)
{
	const char *named = getenv(PIPE_NAME);

	if (!named || sscanf(named, "%d,%d", &ends[0], &ends[1]) != 2 ||
	    fcntl(ends[0], F_SETFD, FD_CLOEXEC) != 0 || pipe2(wake, O_CLOEXEC) != 0 ||
	    pthread_create(&thread, NULL, library_log_thread, NULL) != 0)
		ends[0] = -1;
	else
		close(ends[1]); /* the libraries have opened the pipe themselves */
	unsetenv(PIPE_NAME);
}

void library_end(void)
{
	if (ends[0] < 0)
		return;
	close(wake[1]);
	pthread_join(thread, NULL);
	close(wake[0]);
	close(ends[0]);
	ends[0] = -1;
}
