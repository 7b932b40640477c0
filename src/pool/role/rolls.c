// SPDX-License-Identifier: BSD-2-Clause
/*
 * rolls.c - asynchronous access to the roll (roll.h).
 *
 * A thread takes requests from a queue, one after the other, and puts the answers into another queue; an
 * eventfd signals them. A request contains the room for its answer, so an answer never fails for lack of
 * memory. If the watch reports several changes, only the last is kept.
 */
#include "pool/role/roll.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "pool/role/roll_where.h"

struct request {
	struct list next;
	bool is_swap;
	uint64_t revision;
	struct roll want;
	struct roll_answer answer;
};

struct rolls {
	struct roll_backend *backend;
	pthread_t thread;
	int fd;
	struct lock lock; /* protects the fields below */
	struct list requests, answers;
	struct roll_answer noticed;
	bool has_noticed, watching, closing;
};

static void notify_reader(struct rolls *rolls)
{
	uint64_t one = 1;

	if (write(rolls->fd, &one, sizeof(one)) != sizeof(one))
		log_err("roll: eventfd: cannot be written");
}

/* ---- the thread ---------------------------------------------------------------------- */

static void execute_request(struct rolls *rolls, struct request *q)
{
	struct roll_backend *e = rolls->backend;
	struct roll_answer *a = &q->answer;

	if (q->is_swap) {
		a->revision = q->revision;
		a->result = e->ops->swap(e, &a->revision, &q->want, &a->error);
	} else {
		a->error = e->ops->read(e, &a->roll, &a->revision);
		a->result = a->error ? ROLL_UNKNOWN : ROLL_READ;
	}
}

static struct request *next_request(struct rolls *rolls, bool *watching)
{
	HOLD_FOR_SCOPE(&rolls->lock);
	*watching = rolls->watching;
	if (list_empty(&rolls->requests))
		return NULL;
	return list_entry(rolls->requests.next, struct request, next);
}

static bool is_closing(struct rolls *rolls)
{
	HOLD_FOR_SCOPE(&rolls->lock);
	return rolls->closing;
}

static void enqueue_answer(struct rolls *rolls, struct request *q)
{
	lock_acquire(&rolls->lock);
	list_del(&q->next);
	list_add_tail(&rolls->answers, &q->next);
	lock_release(&rolls->lock);
	notify_reader(rolls);
}

static void *rolls_thread(void *arg)
{
	struct rolls *rolls = arg;

	while (!is_closing(rolls)) {
		bool watching;
		struct request *q = next_request(rolls, &watching);

		if (q) {
			execute_request(rolls, q);
			enqueue_answer(rolls, q);
		} else {
			rolls->backend->ops->idle(rolls->backend, watching);
		}
	}
	return NULL;
}

void rolls_noticed(struct rolls *rolls, uint64_t revision, const struct roll *roll)
{
	lock_acquire(&rolls->lock);
	rolls->noticed =
		(struct roll_answer){.result = ROLL_CHANGED, .revision = revision, .roll = *roll};
	rolls->has_noticed = true;
	lock_release(&rolls->lock);
	notify_reader(rolls);
}

/* ---- the calls ---------------------------------------------------------------------------- */

static bool is_etcd(const char *where)
{
	return strncmp(where, "etcd://", 7) == 0 || strncmp(where, "etcds://", 8) == 0;
}

const char *roll_place_fault(const char *where)
{
	struct roll_where parsed;
	const char *why = NULL;

	if (is_etcd(where))
		roll_where_parse(where, &parsed, &why);
	else if (strncmp(where, "file:", 5) != 0)
		why = "it is kept in file:/path, or in etcd://host:port/key";
	return why;
}

static int open_backend(const char *where, struct roll_backend **backend)
{
	const char *why = roll_place_fault(where);

	if (!why)
		return is_etcd(where) ? roll_etcd_open(where, backend)
				      : roll_file_open(where + 5, backend);
	log_err("roll %s: %s", where, why);
	return -EINVAL;
}

int roll_read_once(const char *where, struct roll *roll, uint64_t *revision)
{
	struct roll_backend *backend;
	int rc = open_backend(where, &backend);

	if (rc != 0)
		return rc;
	rc = backend->ops->read(backend, roll, revision);
	backend->ops->close(backend);
	return rc;
}

int rolls_open(const char *where, struct rolls **out)
{
	struct rolls *rolls = calloc(1, sizeof(*rolls));
	int rc;

	if (!rolls)
		return -ENOMEM;
	list_init(&rolls->requests);
	list_init(&rolls->answers);
	lock_init(&rolls->lock);
	rolls->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (rolls->fd < 0) {
		rc = -errno;
		goto err_free;
	}
	rc = open_backend(where, &rolls->backend);
	if (rc != 0)
		goto err_close;
	rolls->backend->rolls = rolls;
	rc = -pthread_create(&rolls->thread, NULL, rolls_thread, rolls);
	if (rc != 0)
		goto err_backend;
	*out = rolls;
	return 0;

err_backend:
	rolls->backend->ops->close(rolls->backend);
err_close:
	close(rolls->fd);
err_free:
	lock_destroy(&rolls->lock);
	free(rolls);
	return rc;
}

static void free_all(struct list *list)
{
	list_for_each_safe (it, list)
		free(list_entry(it, struct request, next));
}

void rolls_close(struct rolls *rolls)
{
	if (!rolls)
		return;
	lock_acquire(&rolls->lock);
	rolls->closing = true;
	lock_release(&rolls->lock);
	rolls->backend->ops->wake(rolls->backend);
	pthread_join(rolls->thread, NULL);
	rolls->backend->ops->close(rolls->backend);
	free_all(&rolls->requests);
	free_all(&rolls->answers);
	close(rolls->fd);
	lock_destroy(&rolls->lock);
	free(rolls);
}

int rolls_fd(const struct rolls *rolls)
{
	return rolls->fd;
}

static int enqueue_request(struct rolls *rolls, const struct request *what)
{
	struct request *q = malloc(sizeof(*q));

	if (!q)
		return -ENOMEM;
	*q = *what;
	lock_acquire(&rolls->lock);
	list_add_tail(&rolls->requests, &q->next);
	lock_release(&rolls->lock);
	rolls->backend->ops->wake(rolls->backend);
	return 0;
}

int rolls_read(struct rolls *rolls, uint64_t id)
{
	return enqueue_request(rolls, &(struct request){.answer.id = id});
}

int rolls_swap(struct rolls *rolls, uint64_t id, uint64_t revision, const struct roll *roll)
{
	assert(roll_is_valid(roll));
	return enqueue_request(
		rolls,
		&(struct request){
			.is_swap = true, .revision = revision, .want = *roll, .answer.id = id});
}

int rolls_watch(struct rolls *rolls)
{
	lock_acquire(&rolls->lock);
	rolls->watching = true;
	lock_release(&rolls->lock);
	rolls->backend->ops->wake(rolls->backend);
	return 0;
}

bool rolls_next(struct rolls *rolls, struct roll_answer *answer)
{
	struct request *q = NULL;
	uint64_t count;

	HOLD_FOR_SCOPE(&rolls->lock);
	if (!list_empty(&rolls->answers)) {
		q = list_entry(rolls->answers.next, struct request, next);
		list_del(&q->next);
		*answer = q->answer;
		free(q);
		return true;
	}
	if (rolls->has_noticed) {
		rolls->has_noticed = false;
		*answer = rolls->noticed;
		return true;
	}
	/* notify_reader() is called after an answer was queued, so no answer is missed. */
	if (read(rolls->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_err("roll: eventfd: cannot be read");
	return false;
}
