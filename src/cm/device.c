// SPDX-License-Identifier: BSD-2-Clause
/*
 * device.c - the devices of ids: which of the adapter's faces an id uses; and for each face one context, and one
 * protection domain for queue pairs whose program gives none.
 *
 * STAG_DEVICE chooses. If it names both devices, a listener serves the peers of both, and the id of a request has the
 * device that its peer speaks (conn_passive.c); an id that connects has the first device of the list, unless the domain of
 * its queue pair is the other one's, or its connection is to be encrypted (tls.c). roce0 has no TLS: an id whose program
 * requires it uses stag0, even if that is not in the list.
 */
#include "cm/cm.h"

#include <stdlib.h>

#include "base/lock.h"
#include "verbs/verbs.h"

bool cm_has_face(enum face face)
{
	unsigned devices = config()->devices;

	/* roce0 cannot be opened where TLS is required; alone, it says so when it is */
	if (config()->tls == TLS_REQUIRED && devices & 1u << FACE_IWARP)
		devices = 1u << FACE_IWARP;
	return devices & 1u << face;
}

bool cm_may_use(const struct cm_id *id, enum face face)
{
	if (face == FACE_IWARP && id->tls.chosen && id->tls.mode == TLS_REQUIRED)
		return true;
	return cm_has_face(face);
}

/* stag0 where STAG_TLS allows TLS: roce0 has none. */
enum face cm_first_face(void)
{
	if (config()->tls != TLS_OFF && cm_has_face(FACE_IWARP))
		return FACE_IWARP;
	return cm_has_face(FACE_ROCE) ? FACE_ROCE : FACE_IWARP;
}

struct ibv_pd *default_pd(enum face face)
{
	static struct lock lock = LOCK_INITIALIZER;
	static struct ibv_pd *pd[FACES];
	struct ibv_context *context;

	HOLD_FOR_SCOPE(&lock);
	if (pd[face])
		return pd[face];
	context = stag_shared_context(face);
	if (context)
		pd[face] = ibv_alloc_pd(context);
	return pd[face];
}

/* As in the list of devices, roce0 comes first. */
STAG_EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
	PASS_TO_REAL(get_devices(num_devices));
	static const enum face faces[] = {FACE_ROCE, FACE_IWARP};
	struct ibv_context **list = calloc(FACES + 1, sizeof(*list));
	int n = 0;

	if (!list)
		return NULL;
	for (int i = 0; i < FACES; i++) {
		if (!cm_has_face(faces[i]))
			continue;
		list[n] = stag_shared_context(faces[i]);
		if (!list[n++]) {
			free(list);
			return NULL;
		}
	}
	if (num_devices)
		*num_devices = n;
	return list;
}

STAG_EXPORT void rdma_free_devices(struct ibv_context **list)
{
	PASS_TO_REAL_VOID(free_devices(list));
	free(list);
}
