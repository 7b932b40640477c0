// SPDX-License-Identifier: BSD-2-Clause
/* pd.c - protection domains, which tie regions, windows and queue pairs together. */
#include "adapter/pd.h"

#include <errno.h>
#include <stdlib.h>

#include "adapter/device.h"
#include "adapter/keys.h"
#include "adapter/misuse.h"

int pd_alloc(struct stag_ctx *ctx, struct stag_pd **out)
{
	static atomic_uint next = 1;
	struct stag_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return -ENOMEM;
	pd->ibv.context = &ctx->v.context;
	pd->ibv.handle = atomic_fetch_add(&next, 1);
	ctx_get(ctx);
	*out = pd;
	return 0;
}

int pd_dealloc(struct stag_pd *pd)
{
	int users = atomic_load(&pd->users);

	if (users) {
		misuse(__func__, pd->ibv.handle,
		       "pd %u: dealloc refused, %d regions, windows, queue pairs or SRQs still use "
		       "it",
		       pd->ibv.handle, users);
		return -EBUSY;
	}
	if (pd->parent)
		atomic_fetch_sub(&pd->parent->users, 1);
	ctx_put(to_stag_ctx(pd->ibv.context));
	free(pd);
	return 0;
}

struct stag_pd *pd_root(struct stag_pd *pd)
{
	while (pd->parent)
		pd = pd->parent;
	return pd;
}
