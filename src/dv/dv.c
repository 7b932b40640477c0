// SPDX-License-Identifier: BSD-2-Clause
/*
 * dv.c - see dv.h.
 */
#include "dv/dv.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

#define MEET_NS (NS_PER_S / 2)

static struct dv found;
static bool complete;

static void find_calls(void)
{
	const struct {
		const char *name;
		void **to;
	} calls[] = {
		{"stagdv_is_supported", (void **)&found.is_supported},
		{"stagdv_reg_guarded_mr", (void **)&found.reg_guarded},
		{"stagdv_reg_mr_keyed", (void **)&found.reg_keyed},
		{"stagdv_choose_key", (void **)&found.choose_key},
		{"stagdv_set_mr_lease", (void **)&found.set_lease},
		{"stagdv_mirror_mr", (void **)&found.mirror},
		{"stagdv_unmirror_mr", (void **)&found.unmirror},
		{"stagdv_open_medium", (void **)&found.open_medium},
		{"stagdv_close_medium", (void **)&found.close_medium},
		{"stagdv_query_medium", (void **)&found.query_medium},
		{"stagdv_reg_store_mr", (void **)&found.reg_mr},
		{"stagdv_modify_store_mr", (void **)&found.modify_mr},
		{"stagdv_connect_store", (void **)&found.connect},
		{"stagdv_modify_store_qp", (void **)&found.modify_qp},
		{"stagdv_wr_barrier", (void **)&found.barrier},
		{"stagdv_adopt", (void **)&found.adopt},
		{"stagdv_create_tls", (void **)&found.create_tls},
		{"stagdv_destroy_tls", (void **)&found.destroy_tls},
		{"stagdv_set_tls", (void **)&found.set_tls},
		{"stagdv_query_tls", (void **)&found.query_tls},
		{"stagdv_query_qp", (void **)&found.query_qp},
		{"stagdv_query_qp_counters", (void **)&found.query_counters},
		{"stagdv_post_send_advertise", (void **)&found.advertise},
		{"stagdv_withdraw", (void **)&found.withdraw},
	};

	const char *want = secure_getenv("STAG_DV");

	complete = !want || strcmp(want, "off") != 0;
	if (!complete)
		log_info("stag: what only the software adapter can do is not used: STAG_DV=off");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		*calls[i].to = dlsym(RTLD_DEFAULT, calls[i].name);
		if (*calls[i].to)
			continue;
		if (complete)
			log_info("stag: no software adapter of this version is in this process (no "
				 "%s): "
				 "verbs alone are used",
				 calls[i].name);
		complete = false;
	}
}

const struct dv *dv_find(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_calls);
	return complete ? &found : NULL;
}

int dv_query_peer(const struct dv *dv, struct ibv_qp *qp, struct stagdv_qp_attr *attr)
{
	uint64_t until = clock_ns() + MEET_NS;
	int err;

	while ((err = dv->query_qp(qp, attr, sizeof(*attr))) == ENOTCONN && clock_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	return err;
}

bool dv_shares(const struct ibv_context *context, const struct ibv_context *other)
{
	const struct dv *dv = dv_find();

	return context->device == other->device ||
	       (dv && dv->is_supported(context->device) && dv->is_supported(other->device));
}

struct ibv_context *dv_open_first(const struct dv *dv)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *first = NULL;
	struct ibv_context *context = NULL;

	for (int i = 0; list && list[i]; i++)
		if (dv->is_supported(list[i]) &&
		    (!first || list[i]->transport_type == IBV_TRANSPORT_IWARP))
			first = list[i];
	if (first)
		context = ibv_open_device(first);
	if (list)
		ibv_free_device_list(list);
	return context;
}
