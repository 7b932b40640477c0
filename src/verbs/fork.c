// SPDX-License-Identifier: BSD-2-Clause
/*
 * fork.c - fork safety. Our regions are not pinned, so a child's copies change nothing for its
 * parent. A real adapter's regions are pinned: those calls go to the real library.
 */
#include "verbs/verbs.h"

STAG_EXPORT int ibv_fork_init(void)
{
	if (!real_devices_exist())
		return 0;
	return real()->fork_init();
}

STAG_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	if (!real_devices_exist() || !real()->is_fork_initialized)
		return IBV_FORK_UNNEEDED;
	return real()->is_fork_initialized();
}

/* The real library's providers call these two for their own queues. */
STAG_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	return real()->dontfork_range ? real()->dontfork_range(base, size) : 0;
}

STAG_EXPORT int ibv_dofork_range(void *base, size_t size)
{
	return real()->dofork_range ? real()->dofork_range(base, size) : 0;
}
