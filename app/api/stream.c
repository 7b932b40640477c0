// SPDX-License-Identifier: BSD-2-Clause
/*
 * stream.c - the stream of events, text/event-stream (server.h).
 *
 * The connection's own thread waits for the next event, in short intervals, so that it notices when the API stops.
 */
#include "server.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "event.h"

#define ROOM   (16 << 10)
#define NAP_MS 200
#define QUIET_NS                                                                                   \
	(10 * NS_PER_S) /* without an event, a comment is sent to detect a lost connection */

struct stream {
	struct api *api;
	struct who who; /* the client: its stream ends when its token is revoked */
	int fd;		/* socket of the connection */
	uint64_t since; /* id of the last event sent */
	uint64_t said;	/* time of the last send */
	char *text;	/* text that remains to be sent; NULL: none */
	size_t length, at;
};

static char *event_text(json_t *events, uint64_t *since)
{
	char *text = NULL, *data;
	size_t len, i;
	FILE *f = open_memstream(&text, &len);
	json_t *e;

	if (!f)
		return NULL;
	json_array_foreach (events, i, e) {
		*since = (uint64_t)json_integer_value(json_object_get(e, "id"));
		data = json_dumps(e, JSON_COMPACT);
		if (data)
			fprintf(f, "id: %llu\nevent: event\ndata: %s\n\n",
				(unsigned long long)*since, data);
		free(data);
	}
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* Fills s->text; may wait for a short interval. */
static void fetch_events(struct stream *s)
{
	json_t *events = events_since(s->since, NAP_MS);

	if (json_array_size(events) > 0)
		s->text = event_text(events, &s->since);
	else if (clock_ns() - s->said > QUIET_NS)
		s->text = strdup(": quiet\n\n");
	json_decref(events);
	s->length = s->text ? strlen(s->text) : 0;
	s->at = 0;
}

/* Detects that the client has closed: nobody else reads the socket during this callback. */
static bool is_gone(int fd)
{
	char c;
	ssize_t n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static bool is_revoked(const struct stream *s)
{
	struct access *access = api_access(s->api);
	bool revoked = *s->who.token && !access_find_hash(access, s->who.hash);

	access_put(access);
	return revoked;
}

static ssize_t on_room(void *arg, uint64_t position, char *to, size_t room)
{
	struct stream *s = arg;
	size_t n;

	while (!s->text) {
		if (atomic_load(&s->api->stopping))
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (is_gone(s->fd) || is_revoked(s))
			return MHD_CONTENT_READER_END_WITH_ERROR;
		fetch_events(s);
	}
	n = s->length - s->at < room ? s->length - s->at : room;
	memcpy(to, s->text + s->at, n);
	s->at += n;
	s->said = clock_ns();
	if (s->at == s->length) {
		free(s->text);
		s->text = NULL;
	}
	return (ssize_t)n;
}

static void on_end(void *arg)
{
	struct stream *s = arg;

	atomic_fetch_sub(&s->api->streams, 1);
	free(s->text);
	free(s);
}

struct MHD_Response *stream_response(struct api *api, int fd, const struct who *who, uint64_t since)
{
	struct stream *s = calloc(1, sizeof(*s));
	struct MHD_Response *response;

	if (!s)
		return NULL;
	*s = (struct stream){.api = api, .who = *who, .fd = fd, .since = since, .said = clock_ns()};
	if (atomic_fetch_add(&api->streams, 1) >= api->max_streams) {
		on_end(s);
		return NULL;
	}
	s->text = strdup("retry: 1000\n\n");
	s->length = s->text ? strlen(s->text) : 0;
	response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, ROOM, on_room, s, on_end);
	if (!response)
		on_end(s);
	return response;
}
