// SPDX-License-Identifier: BSD-2-Clause
/*
 * ops.c - requests that change something (figure 4): judged including what is ahead, turned into a record, and
 * remembered. Nothing in the region changes here.
 *
 * The order of a record's ranges is the order in which readers see them. An object that moves is hidden before its
 * successor appears, so that no client reads the old value after another has read the new one. Stored bytes are
 * written before their header, and an object before the entry that leads to it.
 */
#include "pool/memory/memory.h"
#include "pool/memory/ops.h"

#include <errno.h>
#include <string.h>

#define SCRUB_STEP   (1u << 20) /* bytes overwritten by one record */
#define SB_AT(field) offsetof(struct pool_superblock, field)

/* An object, as it will be when all earlier records are applied. */
struct target {
	uint64_t offset;
	uint64_t block; /* bytes */
	struct pool_object header;
	uint8_t start[POOL_PREFIX_MAX + sizeof(struct pool_stub)]; /* beginning of what is stored */
	struct pool_stored stored;				   /* its name points into start */
	uint64_t entry; /* of the index, if it has a name */
};

/* The object as the request wants it. */
struct wish {
	const struct pool_request *request;
	uint8_t prefix[POOL_PREFIX_MAX];
	uint32_t prefix_length; /* 0: no name */
	bool in_place; /* the new value fits the present block, which has the name already */
	struct pool_stub stub; /* length 0: the value is stored in the object */
};

/* ---- finding --------------------------------------------------------------------- */

/* Returns false if no object of this generation (0: any) begins there. */
static bool see_target(const struct pool_core *core, uint64_t offset, uint64_t generation,
		       struct target *t)
{
	uint32_t start;

	*t = (struct target){.offset = offset, .block = pool_block_size(core, offset)};
	if (t->block < sizeof(t->header))
		return false;
	pool_see_bytes(core, offset, &t->header, sizeof(t->header));
	if (t->header.generation == 0 || (generation != 0 && t->header.generation != generation) ||
	    t->header.length > t->block - sizeof(t->header))
		return false;
	start = t->header.length < sizeof(t->start) ? t->header.length : sizeof(t->start);
	pool_see_bytes(core, offset + sizeof(t->header), t->start, start);
	return pool_stored_read(&t->header, t->start, &t->stored);
}

static uint32_t value_length(const struct target *t)
{
	return t->stored.indirect ? (uint32_t)t->stored.stub.length
				  : t->header.length - t->stored.prefix;
}

static int find_by_ptr(const struct pool_core *core, const struct pool_request *request,
		       struct target *t)
{
	const struct stag_pool_ptr *ptr = &request->ptr;
	uint64_t offset = pool_offset(&core->region, ptr->address);
	uint64_t object;

	if (offset == POOL_NOWHERE || ptr->key != core->region.key || ptr->generation == 0 ||
	    !see_target(core, offset, ptr->generation, t) ||
	    !pool_scope_has_stored(request->scope, &t->stored))
		return -ENOENT;
	if (t->stored.name &&
	    (!pool_index_find(core, t->stored.name, t->stored.name_length, &t->entry, &object) ||
	     object != offset))
		return -EIO; /* its own name does not lead to it */
	return 0;
}

static int find_by_name(const struct pool_core *core, const struct pool_request *request,
			struct target *t)
{
	uint64_t entry, offset;

	if (!pool_index_find(core, request->name, request->name_length, &entry, &offset))
		return -ENOENT;
	if (!see_target(core, offset, 0, t))
		return -EIO;
	t->entry = entry;
	return 0;
}

static int find_target(const struct pool_core *core, const struct pool_request *request,
		       struct target *t)
{
	if (pool_op_takes(request->op, POOL_TAKES_NAME))
		return find_by_name(core, request, t);
	return find_by_ptr(core, request, t);
}

/* ---- writing --------------------------------------------------------------------- */

/* Zeroes the object's header: readers retry from now on, or find it gone. */
static void hide_object(struct pool_core *core, const struct target *t)
{
	static const struct pool_object none;

	pool_put_bytes(core, t->offset, &none, sizeof(none));
}

static void free_body(struct pool_core *core, const struct target *t)
{
	uint64_t at = pool_offset(&core->region, t->stored.stub.address);

	if (t->stored.indirect && at != POOL_NOWHERE &&
	    pool_run_size(core, at) >= t->stored.stub.length)
		pool_free_run(core, at);
}

/* Frees an object that is hidden. */
static void free_object(struct pool_core *core, const struct target *t)
{
	free_body(core, t);
	if (core->overwrite)
		pool_build_zero(core->build, t->offset + sizeof(t->header), t->header.length);
	pool_free(core, t->offset);
}

static uint32_t wish_stored(const struct wish *w)
{
	return w->prefix_length + (w->stub.length ? sizeof(w->stub) : w->request->length);
}

/* Empty values are not staged. */
static bool is_staged(const struct pool_request *request)
{
	return request->source == POOL_SOURCE_STAGED && request->length != 0;
}

/* Writes the value's bytes, or a reference to them. Returns the hash of all that is stored. */
static uint64_t put_value(struct pool_core *core, uint64_t at, const struct wish *w)
{
	const struct pool_request *rq = w->request;
	struct pool_piece pieces[] = {{w->prefix, w->prefix_length}, {rq->value, rq->length}};
	struct pool_staged staged = {.offset = rq->source_address};

	if (is_staged(rq) || w->prefix_length == 0)
		staged.hash = pool_hash(rq->value, rq->length);
	if (is_staged(rq))
		pool_build_staged(core->build, at, rq->length, &staged);
	else
		pool_build_bytes(core->build, at, rq->value, rq->length);
	return w->prefix_length == 0 ? staged.hash : pool_hash_pieces(pieces, 2);
}

static uint64_t put_stub(struct pool_core *core, uint64_t at, const struct wish *w)
{
	struct pool_piece pieces[] = {{w->prefix, w->prefix_length}, {&w->stub, sizeof(w->stub)}};

	pool_put_bytes(core, at, &w->stub, sizeof(w->stub));
	return pool_hash_pieces(pieces, 2);
}

/* Writes an object into an allocated block: first what is stored, then the header. */
static void put_object(struct pool_core *core, uint64_t offset, uint64_t generation,
		       const struct wish *w)
{
	uint64_t at = offset + sizeof(struct pool_object);
	struct pool_object header = {
		.generation = generation,
		.version = core->number,
		.length = wish_stored(w),
		.flags = (w->prefix_length ? POOL_NAMED : 0) | (w->stub.length ? POOL_INDIRECT : 0),
	};
	uint64_t stored;

	if (!w->in_place)
		pool_put_bytes(core, at, w->prefix, w->prefix_length);
	if (w->stub.length)
		stored = put_stub(core, at + w->prefix_length, w);
	else
		stored = put_value(core, at + w->prefix_length, w);
	header.hash = pool_object_hash(&header, core->region.address + offset, stored);
	pool_put_bytes(core, offset, &header, sizeof(header));
}

static void result_of(const struct pool_core *core, uint64_t offset, uint64_t generation,
		      const struct wish *w, struct pool_result *result)
{
	result->address = core->region.address + offset;
	result->generation = generation;
	result->version = core->number;
	result->length = w->request->length;
}

/* ---- changes --------------------------------------------------------------------- */

static int create_object(struct pool_core *core, const struct wish *w, struct pool_result *result)
{
	const struct pool_request *rq = w->request;
	uint64_t offset = pool_alloc(core, sizeof(struct pool_object) + wish_stored(w));
	int rc = 0;

	if (offset == POOL_NOWHERE)
		return -ENOSPC;
	put_object(core, offset, core->number, w);
	if (w->prefix_length != 0)
		rc = pool_index_add(core, rq->name, rq->name_length, offset);
	if (rc != 0) {
		pool_free(core, offset);
		return rc;
	}
	pool_add(core, SB_AT(objects), 1);
	pool_add(core, SB_AT(bytes), rq->length);
	pool_add(core, SB_AT(names), w->prefix_length != 0);
	result_of(core, offset, core->number, w, result);
	return 0;
}

/* Changes the object in its present block: its pointer stays valid. */
static void change_in_place(struct pool_core *core, const struct target *t, const struct wish *w,
			    struct pool_result *result)
{
	put_object(core, t->offset, t->header.generation, w);
	free_body(core, t);
	result_of(core, t->offset, t->header.generation, w, result);
}

/* Writes the object to a new block: it gets a new pointer. */
static int move_object(struct pool_core *core, const struct target *t, const struct wish *w,
		       struct pool_result *result)
{
	uint64_t offset = pool_alloc(core, sizeof(struct pool_object) + wish_stored(w));

	if (offset == POOL_NOWHERE)
		return -ENOSPC;
	hide_object(core, t);
	put_object(core, offset, core->number, w);
	if (t->stored.name)
		pool_index_move(core, t->entry, offset);
	free_object(core, t);
	result_of(core, offset, core->number, w, result);
	return 0;
}

static int change_object(struct pool_core *core, const struct target *t, struct wish *w,
			 struct pool_result *result)
{
	int rc = 0;

	memcpy(w->prefix, t->start, t->stored.prefix);
	w->prefix_length = t->stored.prefix;
	w->in_place = sizeof(struct pool_object) + wish_stored(w) <= t->block;
	if (w->in_place)
		change_in_place(core, t, w, result);
	else
		rc = move_object(core, t, w, result);
	if (rc == 0)
		pool_add(core, SB_AT(bytes), (int64_t)w->request->length - value_length(t));
	return rc;
}

static void erase_object(struct pool_core *core, const struct target *t)
{
	hide_object(core, t);
	if (t->stored.name)
		pool_index_remove(core, t->stored.name, t->stored.name_length, t->entry);
	free_object(core, t);
	pool_add(core, SB_AT(objects), -1);
	pool_add(core, SB_AT(bytes), -(int64_t)value_length(t));
	pool_add(core, SB_AT(names), t->stored.name ? -1 : 0);
}

static void name_wish(struct wish *w)
{
	w->prefix_length = pool_prefix_write(w->prefix, w->request->name, w->request->name_length);
}

/* Compares the object with what the client expects. */
static int compare_version(const struct pool_request *request, const struct target *t,
			   struct pool_result *result)
{
	result->version = t->header.version;
	if (request->flags & POOL_EXCLUSIVE)
		return -EEXIST;
	if ((request->flags & POOL_COMPARE) && request->version != t->header.version)
		return -EILSEQ;
	return 0;
}

static int carry_out_change(struct pool_core *core, struct wish *w, struct pool_result *result)
{
	const struct pool_request *rq = w->request;
	struct target t;
	int rc;

	if (rq->op == STAG_POOL_INSERT)
		return create_object(core, w, result);
	rc = find_target(core, rq, &t);
	if (rc == -ENOENT && rq->op == STAG_POOL_PUT && !(rq->flags & POOL_COMPARE)) {
		name_wish(w);
		return create_object(core, w, result);
	}
	if (rc == 0)
		rc = compare_version(rq, &t, result);
	if (rc != 0)
		return rc;
	if (pool_op_takes(rq->op, POOL_TAKES_VALUE))
		return change_object(core, &t, w, result);
	erase_object(core, &t);
	return 0;
}

/* ---- records --------------------------------------------------------------------- */

int pool_begin(struct pool_core *core, struct pool_build *build, void *at, size_t room,
	       size_t value)
{
	if (pool_ahead_room(&core->ahead) < POOL_RECORD_META / sizeof(uint64_t) ||
	    room < POOL_RECORD_META + value)
		return -EAGAIN;
	pool_build_start(build, at, room);
	core->build = build;
	core->number++;
	return 0;
}

int pool_end(struct pool_core *core, size_t *used)
{
	int rc = pool_build_finish(core->build, core->number, core->epoch, 0);

	core->build = NULL;
	if (rc < 0)
		return rc;
	*used = (size_t)rc;
	return 0;
}

void pool_begin_again(struct pool_core *core)
{
	struct pool_build *build = core->build;

	pool_ahead_undo(&core->ahead, core->number);
	pool_build_start(build, build->at, build->room);
}

void pool_give_up(struct pool_core *core)
{
	pool_ahead_undo(&core->ahead, core->number);
	core->build = NULL;
	core->number--;
}

/* ---- clients, scrubbing ---------------------------------------------------------- */

static int attach_client(struct pool_core *core, struct pool_who *who,
			 const struct pool_request *request, size_t *used,
			 struct pool_answer *answer)
{
	int rc = pool_client_find(core, who->id);

	if (rc >= 0 && pool_client_who(core, (uint32_t)rc) != who->who) {
		answer->status = EACCES;
	} else if (rc >= 0) {
		who->slot = (uint32_t)rc;
	} else if (request->version != 0) {
		answer->status = ESTALE;
	} else {
		rc = pool_client_add(core, who);
		if (rc == 0)
			return pool_end(core, used);
		answer->status = (uint32_t)-rc;
	}
	pool_give_up(core);
	return 0;
}

static int detach_client(struct pool_core *core, const struct pool_who *who, size_t *used,
			 struct pool_answer *answer)
{
	int rc = pool_client_find(core, who->id);

	if (rc < 0 || (uint32_t)rc != who->slot) {
		answer->status = ESTALE;
		pool_give_up(core);
		return 0;
	}
	pool_client_remove(core, who->slot);
	return pool_end(core, used);
}

int pool_expire(struct pool_core *core, uint32_t slot, void *at, size_t room, size_t *used)
{
	struct pool_build build;
	int rc = pool_begin(core, &build, at, room, 0);

	*used = 0;
	if (rc != 0)
		return rc;
	pool_client_remove(core, slot);
	return pool_end(core, used);
}

int pool_scrub(struct pool_core *core, void *at, size_t room, size_t *used)
{
	uint64_t size, done, n, run = pool_scrub_find(core, &size, &done);
	struct pool_build build;
	int rc;

	*used = 0;
	if (run == POOL_NOWHERE)
		return 0;
	rc = pool_begin(core, &build, at, room, 0);
	if (rc != 0)
		return rc;
	n = size - done < SCRUB_STEP ? size - done : SCRUB_STEP;
	pool_build_zero(&build, run + done, (uint32_t)n);
	pool_scrub_done(core, run, done + n);
	return pool_end(core, used);
}

int pool_mark(struct pool_core *core, void *at, size_t room, size_t *used)
{
	struct pool_build build;
	int rc = pool_begin(core, &build, at, room, 0);

	*used = 0;
	return rc == 0 ? pool_end(core, used) : rc;
}

/* ---- requests -------------------------------------------------------------------- */

void pool_answer_result(const struct pool_core *core, const struct pool_result *result,
			struct pool_answer *answer)
{
	answer->status = result->status;
	answer->version = result->version;
	answer->ptr = (struct stag_pool_ptr){result->address, core->region.key, result->length,
					     result->generation};
}

/* Uses the body that was uploaded under this sequence. */
static void stub_of(const struct pool_request *request, const struct pool_result *upload,
		    struct wish *w)
{
	w->stub = (struct pool_stub){upload->address, upload->length, request->hash};
}

/* Discards a failed change, except its outcome, and frees its upload. */
static void undo_change(struct pool_core *core, const struct wish *w, struct pool_result *result,
			int error)
{
	uint64_t at = pool_offset(&core->region, w->stub.address);

	pool_begin_again(core);
	if (w->stub.length != 0 && at != POOL_NOWHERE)
		pool_free_run(core, at);
	*result = (struct pool_result){
		.sequence = result->sequence,
		.status = (uint32_t)-error,
		.version = result->version,
	};
}

static int execute_change(struct pool_core *core, const struct pool_who *who,
			  const struct pool_request *request, const struct pool_result *upload,
			  struct pool_result *result)
{
	struct wish w = {.request = request};
	int rc;

	if (upload)
		stub_of(request, upload, &w);
	*result = (struct pool_result){.sequence = request->sequence};
	rc = carry_out_change(core, &w, result);
	if (core->build->failed) /* more than POOL_RECORD_META: an internal error */
		return -ENOBUFS;
	if (rc != 0)
		undo_change(core, &w, result, rc);
	pool_client_remember(core, who, result, request->acknowledged);
	return 0;
}

static bool has_value(const struct pool_request *request)
{
	return pool_op_takes(request->op, POOL_TAKES_VALUE);
}

/* Returns whether the value is present. If not, the caller has a bug: a client cannot cause it. */
static bool is_ready(const struct pool_request *request)
{
	if (!has_value(request) || (request->flags & POOL_UPLOADED))
		return true;
	return request->length <= POOL_DIRECT_MAX && (request->value || request->length == 0);
}

static size_t inline_length(const struct pool_request *request)
{
	bool is_inline =
		has_value(request) && !(request->flags & POOL_UPLOADED) && !is_staged(request);

	return is_inline ? request->length : 0;
}

static int change_once(struct pool_core *core, const struct pool_who *who,
		       const struct pool_request *request, size_t *used, struct pool_answer *answer)
{
	bool uploaded = request->flags & POOL_UPLOADED;
	struct pool_result before, result;
	enum pool_seen seen =
		pool_client_seen(core, who, request->sequence, request->acknowledged, &before);
	int rc;

	if (seen == (uploaded ? POOL_UPLOADING : POOL_NEW) &&
	    (!uploaded || before.length == request->length)) {
		rc = execute_change(core, who, request, uploaded ? &before : NULL, &result);
		if (rc != 0)
			return rc;
		pool_answer_result(core, &result, answer);
		return pool_end(core, used);
	}
	if (seen == POOL_REMEMBERED || seen == POOL_UPLOADING)
		pool_answer_result(core, &before, answer);
	else
		answer->status = seen == POOL_TOO_MANY ? EBUSY : ESTALE;
	pool_give_up(core);
	return 0;
}

int pool_change(struct pool_core *core, struct pool_who *who, const struct pool_request *request,
		void *at, size_t room, size_t *used, struct pool_answer *answer)
{
	struct pool_build build;
	int rc;

	*used = 0;
	*answer = (struct pool_answer){.sequence = request->sequence, .op = request->op};
	if (!pool_op_changes(request->op) || !is_ready(request))
		return -EINVAL;
	rc = pool_begin(core, &build, at, room, inline_length(request));
	if (rc != 0)
		return rc;
	if (request->op == POOL_OP_ATTACH || request->op == POOL_OP_ENROL)
		rc = attach_client(core, who, request, used, answer);
	else if (request->op == POOL_OP_DETACH)
		rc = detach_client(core, who, used, answer);
	else
		rc = change_once(core, who, request, used, answer);
	answer->after = core->number;
	return rc;
}
