// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_own.c - stag block read, write and bench --stags: lists the STags that this process made.
 *
 * The adapter keeps the list, with the queue pairs that used an STag after its end. Over TCP there are no STags.
 */
#include "block_control.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "stag/stagdv.h"
#include "store.h"

#define SPARE 256 /* STags that may be made between the two queries */

/* The list belongs to the process: any context of the adapter can query it. */
static struct ibv_context *open_adapter(void)
{
	bool (*is_supported)(struct ibv_device *) =
		(bool (*)(struct ibv_device *))dlsym(RTLD_DEFAULT, "stagdv_is_supported");
	struct ibv_device **list = is_supported ? ibv_get_device_list(NULL) : NULL;
	struct ibv_context *context = NULL;

	for (int i = 0; list && list[i] && !context; i++)
		if (is_supported(list[i]))
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return context;
}

/* Returns how many there are in *out, which the caller frees. */
static size_t read_ledger(struct stagdv_stag **out)
{
	int (*query)(struct ibv_context *, struct stagdv_stag *, size_t, size_t) =
		(int (*)(struct ibv_context *, struct stagdv_stag *, size_t, size_t))dlsym(
			RTLD_DEFAULT, "stagdv_query_stags");
	struct ibv_context *context = query ? open_adapter() : NULL;
	size_t room = SPARE;
	int n = context ? query(context, NULL, 0, sizeof(**out)) : 0;

	room += n > 0 ? (size_t)n : 0;
	*out = calloc(room, sizeof(**out));
	if (n > 0)
		n = *out ? query(context, *out, room, sizeof(**out)) : 0;
	if (context)
		ibv_close_device(context);
	return n < 0 ? 0 : (size_t)n < room ? (size_t)n : room;
}

json_t *block_own_stags_json(void)
{
	CLEANUP_FREE struct stagdv_stag *all = NULL;
	size_t n = read_ledger(&all);
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(
			list, json_pack("{s:I s:s s:I s:I s:I s:I s:I s:I s:I s:I s:I}", "stag",
					(json_int_t)all[i].stag, "end", block_end_word(all[i].end),
					"reference", (json_int_t)all[i].reference, "qp",
					(json_int_t)all[i].qp_num, "length",
					(json_int_t)all[i].length, "made", (json_int_t)all[i].made,
					"ended", (json_int_t)all[i].ended, "reads",
					(json_int_t)all[i].reads, "writes",
					(json_int_t)all[i].writes, "late", (json_int_t)all[i].late,
					"late_qp", (json_int_t)all[i].late_qp_num));
	return list;
}

void block_print_own_stags(FILE *to)
{
	CLEANUP_FREE struct stagdv_stag *all = NULL;
	size_t n = read_ledger(&all);

	if (n == 0)
		fprintf(to, "no STags\n");
	else
		fprintf(to, "%-10s  %-9s %9s  %-10s %6s %9s %6s %6s %5s\n", "STag", "end",
			"life us", "command", "QP", "bytes", "reads", "writes", "late");
	for (size_t i = 0; i < n; i++) {
		const struct stagdv_stag *s = &all[i];
		double life = s->ended ? (double)(s->ended - s->made) / 1e3 : 0;

		fprintf(to, "0x%08x  %-9s %9.1f  0x%08x %6u %9llu %6u %6u %5u", s->stag,
			block_end_word(s->end), life, s->reference, s->qp_num,
			(unsigned long long)s->length, s->reads, s->writes, s->late);
		if (s->late)
			fprintf(to, ", the last on QP %u", s->late_qp_num);
		fputc('\n', to);
	}
}
