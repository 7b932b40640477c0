// SPDX-License-Identifier: BSD-2-Clause
/*
 * upload.c - bodies of long values, which come in several records.
 *
 * An upload belongs to a sequence number of a client, and is stored as its outcome so far: so every later primary
 * can continue it, or frees it with its client. No client reads it before the record that makes it a value.
 */
#include "pool/memory/memory.h"
#include "pool/memory/ops.h"

#include <errno.h>

static int begin_upload(struct pool_core *core, const struct pool_who *who,
			const struct pool_request *request, size_t *used,
			struct pool_answer *answer)
{
	struct pool_result result = {.sequence = request->sequence};
	uint64_t at = POOL_NOWHERE;

	if (pool_client_uploads(core, who) < POOL_MAX_UPLOADS)
		at = pool_alloc_run(core, request->length);
	else
		result.status = EBUSY;
	if (at != POOL_NOWHERE) {
		result.status = EINPROGRESS;
		result.address = core->region.address + at;
		result.length = request->length;
	} else if (result.status == 0) {
		result.status = ENOSPC;
	}
	pool_client_remember(core, who, &result, request->acknowledged);
	pool_answer_result(core, &result, answer);
	return pool_end(core, used);
}

int pool_upload_begin(struct pool_core *core, const struct pool_who *who,
		      const struct pool_request *request, void *at, size_t room, size_t *used,
		      struct pool_answer *answer)
{
	struct pool_result before;
	struct pool_build build;
	enum pool_seen seen;
	int rc;

	*used = 0;
	*answer = (struct pool_answer){.sequence = request->sequence, .op = request->op};
	if (request->length <= POOL_DIRECT_MAX || request->length > POOL_MAX_VALUE)
		return -EINVAL;
	rc = pool_begin(core, &build, at, room, 0);
	if (rc != 0)
		return rc;
	seen = pool_client_seen(core, who, request->sequence, request->acknowledged, &before);
	if (seen == POOL_NEW) {
		rc = begin_upload(core, who, request, used, answer);
		answer->after = core->number;
		return rc;
	}
	pool_give_up(core);
	answer->after = core->number;
	if (seen == POOL_UPLOADING && before.length != request->length)
		answer->status = EPROTO; /* differs from the first attempt */
	else if (seen == POOL_UPLOADING || seen == POOL_REMEMBERED)
		pool_answer_result(core, &before, answer);
	else
		answer->status = seen == POOL_TOO_MANY ? EBUSY : ESTALE;
	return 0;
}

int pool_upload_find(const struct pool_core *core, const struct pool_who *who, uint64_t sequence,
		     uint64_t offset, uint32_t length, uint64_t *to)
{
	struct pool_result upload;
	uint64_t run;

	if (pool_client_seen(core, who, sequence, 0, &upload) != POOL_UPLOADING)
		return -ESTALE;
	run = pool_offset(&core->region, upload.address);
	if (offset > upload.length || length > upload.length - offset || run == POOL_NOWHERE ||
	    pool_run_size(core, run) < upload.length)
		return -EINVAL;
	*to = run + offset;
	return 0;
}

int pool_upload_bytes(struct pool_core *core, const struct pool_who *who, uint64_t sequence,
		      uint64_t offset, const void *bytes, uint32_t length, void *at, size_t room,
		      size_t *used)
{
	struct pool_build build;
	uint64_t to;
	int rc = length <= POOL_DIRECT_MAX
			 ? pool_upload_find(core, who, sequence, offset, length, &to)
			 : -EINVAL;

	*used = 0;
	if (rc == 0)
		rc = pool_begin(core, &build, at, room, length);
	if (rc != 0)
		return rc;
	pool_build_bytes(&build, to, bytes, length);
	return pool_end(core, used);
}

int pool_upload_staged(struct pool_core *core, const struct pool_who *who, uint64_t sequence,
		       uint32_t length, const struct pool_staged *staged, void *at, size_t room,
		       size_t *used)
{
	struct pool_build build;
	uint64_t to;
	int rc = length <= POOL_STAGED_MAX ? pool_upload_find(core, who, sequence, 0, length, &to)
					   : -EINVAL;

	*used = 0;
	if (rc == 0)
		rc = pool_begin(core, &build, at, room, 0);
	if (rc != 0)
		return rc;
	pool_build_staged(&build, to, length, staged);
	return pool_end(core, used);
}
