/* SPDX-License-Identifier: BSD-2-Clause */
/* cleanup.h - attributes that free, close or unlock at the end of a scope. */
#ifndef STAG_BASE_CLEANUP_H
#define STAG_BASE_CLEANUP_H

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_ptr(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_unlock(pthread_mutex_t **m)
{
	pthread_mutex_unlock(*m);
}

#define CLEANUP_FREE  __attribute__((cleanup(cleanup_free_ptr)))
#define CLEANUP_CLOSE __attribute__((cleanup(cleanup_close_fd)))

#define LOCK_SCOPE_PASTE(a, b) a##b
#define LOCK_SCOPE_NAME(line)  LOCK_SCOPE_PASTE(lock_scope_, line)

/* Holds a mutex from here to the end of the enclosing scope. */
#define LOCK_FOR_SCOPE(m)                                                                          \
	__attribute__((cleanup(cleanup_unlock), unused)) pthread_mutex_t *LOCK_SCOPE_NAME(         \
		__LINE__) = (pthread_mutex_lock(m), (m))

#endif
