/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory.h - the inside of the pool: its memory, and what changes it.
 *
 * Words. The *region* is the pool's memory, byte for byte the same on every node. An *object* is a header and what is
 * stored behind it, in a *block* of the allocator's. A *span* is 64 KiB of the region; a *slab* is one or more
 * spans with blocks of one size. A *record* is one change: ranges of bytes of the region; the *log* is all of them, by
 * number. The *core* is the primary's: it makes records, and knows ahead of the region what those
 * that are not yet applied will change.
 *
 * How a change goes (ops.c): request -> pool_change() -> record + answer -> the record is on the standbys ->
 * pool_settle(): applied here -> the answer goes out. Between the first and the last the region is as it was,
 * so that nobody reads what may yet be lost; the next requests are judged by what is ahead.
 *
 *     region.c   layout, mapping, superblock           record.c   ranges: build, check, apply
 *     check.c    does a region contradict itself       ring.c     the log, in memory here and there
 *     alloc.c    blocks of the region                  core.c     the primary's view,
 *     object.c   header, one-sided reads               ahead.c    by words that records will have changed
 *     hash.c     the hash of all that is stored
 *     index.c    names                                 ops.c      requests: judged, carried out, remembered
 *     lookup.c   names, one-sided                      upload.c   values that come in pieces
 *     clients.c  who has asked what: exactly once      look.c     reads by the node, from the region as it is
 *     wire.c     messages                              map.c      a client's pointers by key
 *     operation.c  the table of operations
 *
 * All of it is pure: no sockets, clocks, threads; memory is allocated when a core or a log is made. What nodes
 * do with it has headers of its own. Everything in the region may come from a record of a peer's: no number found there
 * is followed before it has been checked.
 *
 * Everything in the region and on the wire is little endian, and read as it lies.
 *
 * Includes no other room of src/pool.
 */
#ifndef POOL_MEMORY_H
#define POOL_MEMORY_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stag/pool.h"

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "the region is read as it lies");

#define POOL_MAGIC	    "StagPool"
#define POOL_VERSION	    1u
#define POOL_PAGE	    4096u
#define POOL_SPAN_SHIFT	    16u
#define POOL_SPAN	    (1u << POOL_SPAN_SHIFT)
#define POOL_MIN_SIZE	    (1ull << 20)
#define POOL_MAX_SIZE	    (1ull << 46)
#define POOL_ALIGN	    16u
#define POOL_MAX_NAME	    STAG_POOL_NAME_MAX
#define POOL_MAX_VALUE	    STAG_POOL_VALUE_MAX
#define POOL_DIRECT_MAX	    (256u << 10) /* of a value in its object; a longer one has a stub there */
#define POOL_BLOCK_MAX	    (288u << 10)
#define POOL_STAGED_MAX	    (1u << 20) /* of a value that is staged as a whole */
#define POOL_WINDOW	    64u	       /* outcomes that are kept of a client */
#define POOL_MAX_UPLOADS    8u	       /* of a client, under way */
#define POOL_BUCKET_ENTRIES 7u
#define POOL_MAX_CHAIN	    64u /* buckets behind each other */
#define POOL_NOWHERE	    UINT64_MAX

/*
 * Where a region is if nobody says otherwise: an address that programs leave free. ThreadSanitizer has only the low range for
 * a program, AddressSanitizer only the high one.
 */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define POOL_DEFAULT_ADDRESS 0x4000000000ull
#endif
#elif defined(__SANITIZE_THREAD__)
#define POOL_DEFAULT_ADDRESS 0x4000000000ull
#endif
#ifndef POOL_DEFAULT_ADDRESS
#define POOL_DEFAULT_ADDRESS STAG_POOL_MEMORY
#endif

/* ---- the region -------------------------------------------------------------- */

struct pool_superblock {
	/* As it was made: no record changes it. */
	char magic[8];
	uint32_t version;
	uint32_t key;	  /* in pointers */
	uint64_t size;	  /* of the region */
	uint64_t address; /* of its first byte, on every node */
	uint8_t uuid[16];
	uint64_t spans_at, index_at, clients_at, memory_at; /* offsets */
	uint64_t num_spans, num_buckets, max_clients;
	uint64_t check; /* XXH3 of all above */
	/* What records change. */
	uint64_t objects;
	uint64_t bytes; /* of values */
	uint64_t names;
	uint64_t clients;
	/* The last record applied. */
	uint64_t number;
	uint64_t epoch;
};

#define POOL_FIXED offsetof(struct pool_superblock, objects) /* bytes that no range may touch */

/*
 * An entry of the span table: of a slab's first span, or of a run's. All zero: free, or a further span of a run;
 * those of a slab say how far back its first is. A slab of more than 64 blocks has its bits at its beginning.
 */
struct pool_span {
	uint16_t kind;	/* enum pool_span_kind, or POOL_SLAB + class */
	uint16_t used;	/* slab: blocks; run: 1: it is free when it has been overwritten */
	uint32_t spans; /* run: its length; tail: how far back the slab begins */
	uint64_t bits;	/* slab of at most 64 blocks: those in use; run: bytes overwritten */
};

enum pool_span_kind { POOL_SPAN_FREE, POOL_SPAN_RUN, POOL_SPAN_TAIL, POOL_SLAB };

/*
 * Before a value. The generation is the number of the record that made the object, and therefore of no other; the version
 * that of the record that changed it last. A free block's header is zero, or was never one; a block that is in use, and no
 * object, begins with a word of zero.
 */
struct pool_object {
	uint64_t generation;
	uint64_t version;
	uint64_t hash;	 /* of all else here, the address, and the hash of what is stored */
	uint32_t length; /* of what is stored: name, then value or stub */
	uint32_t flags;	 /* enum pool_object_flags */
};

enum pool_object_flags {
	POOL_NAMED = 1 << 0,	/* begins with {u16 length; name}, padded to 8 */
	POOL_INDIRECT = 1 << 1, /* a stub in the value's place */
};

/* In the place of a value longer than POOL_DIRECT_MAX. Its body is a run, and never changed: an update is a new one. */
struct pool_stub {
	uint64_t address;
	uint64_t length;
	uint64_t hash; /* XXH3 of the body */
};

/*
 * An entry: tag << 48 | offset / 16; 0: none. next: offset / 16 of the bucket behind this one, 16 bytes behind its
 * block's beginning. An entry stays where it is as long as its name lives, and a bucket as long as one behind it is in use: who looks
 * without a lock misses nothing that is there all the time.
 */
struct pool_bucket {
	uint64_t entries[POOL_BUCKET_ENTRIES];
	uint64_t next;
};

struct pool_result {
	uint64_t sequence;
	uint64_t address, generation, version;
	uint32_t status; /* errno value; EINPROGRESS: an upload, to the run at address */
	uint32_t length; /* of the value */
};

/* In a block of its own; the directory (clients_at) has its offset, or 0. Result of sequence s: s % POOL_WINDOW. */
struct pool_client {
	uint64_t zero;
	uint64_t id[2];
	uint64_t who; /* hash of the name it was admitted by: nobody else goes on in its place */
	uint64_t acknowledged; /* it needs no outcome up to this sequence any more */
	struct pool_result results[POOL_WINDOW];
};

_Static_assert(sizeof(struct pool_superblock) == 160, "as it lies");
_Static_assert(sizeof(struct pool_span) == 16, "as it lies");
_Static_assert(sizeof(struct pool_object) == 32, "as it lies");
_Static_assert(sizeof(struct pool_bucket) == 64, "as it lies");
_Static_assert(sizeof(struct pool_result) == 40, "as it lies");
_Static_assert(sizeof(struct stag_pool_ptr) == 24, "as it lies");

/* A region in this process, and what its superblock said when it was checked. */
struct pool_region {
	uint8_t *at; /* == address, except in tests */
	uint64_t size, address;
	uint32_t key;
	uint8_t uuid[16];
	uint64_t spans_at, index_at, clients_at, memory_at;
	uint64_t num_spans, num_buckets, max_clients;
};

/* ---- region.c ------------------------------------------------------------------ */

struct pool_format {
	uint64_t size; /* a multiple of POOL_PAGE */
	uint64_t address;
	uint32_t key;
	uint8_t uuid[16];
	uint64_t max_clients; /* 0: 1024 */
	uint64_t num_buckets; /* 0: as many as size / 1024 */
};

/* Zeroed memory of format->size bytes. -EINVAL: what was asked for cannot be. */
int pool_region_format(struct pool_region *r, void *at, const struct pool_format *format);

/* What is there, from a format or a copy. -EPROTO: no region, or of a newer version; -EBADMSG: damaged; -EINVAL: another size. */
int pool_region_adopt(struct pool_region *r, void *at, uint64_t size);

/*
 * Memory at the pool's address. -EADDRINUSE: why says what is there, from /proc/self/maps; -ENOMEM and others. why may
 * be NULL.
 */
int pool_region_map(uint64_t address, uint64_t size, char *why, size_t room);
void pool_region_unmap(uint64_t address, uint64_t size);

/* Walks over all of it (check.c): 0, or -EBADMSG, and why. */
int pool_region_check(const struct pool_region *r, char *why, size_t room);

static inline bool pool_holds(const struct pool_region *r, uint64_t offset, uint64_t length)
{
	return offset <= r->size && length <= r->size - offset;
}

/* Of an address of the region; POOL_NOWHERE: none of it. */
static inline uint64_t pool_offset(const struct pool_region *r, uint64_t address)
{
	return address - r->address < r->size ? address - r->address : POOL_NOWHERE;
}

/* offset: checked, a multiple of 8. */
static inline uint64_t pool_word(const struct pool_region *r, uint64_t offset)
{
	return __atomic_load_n((const uint64_t *)(r->at + offset), __ATOMIC_RELAXED);
}

static inline struct pool_superblock *pool_superblock(const struct pool_region *r)
{
	return (struct pool_superblock *)r->at;
}

/* ---- record.c ------------------------------------------------------------------ */

struct pool_record {
	uint64_t number; /* consecutive */
	uint64_t epoch;
	uint32_t length; /* with this header; a multiple of 8 */
	uint16_t ranges;
	uint16_t flags; /* enum pool_record_flags */
	uint64_t hash;	/* XXH3 of what follows, its seed that of what is above */
};

enum pool_record_flags { POOL_RECORD_SKIP = 1 << 0 /* of a ring: nothing more up to its end */ };

/* In a record, in the order in which they are applied. What follows is padded to 8. */
struct pool_range {
	uint64_t offset;
	uint32_t length;
	uint32_t kind; /* enum pool_range_kind */
};

enum pool_range_kind {
	POOL_RANGE_INLINE, /* its bytes */
	POOL_RANGE_STAGED, /* struct pool_staged */
	POOL_RANGE_ZERO,   /* nothing: zeroes */
};

struct pool_staged {
	uint64_t offset; /* in the staging memory */
	uint64_t hash;	 /* XXH3 of the bytes */
};

#define POOL_RECORD_META 8192u /* bytes of a record beside its value, at most */
#define POOL_RECORD_MAX	 (POOL_DIRECT_MAX + POOL_RECORD_META)

/* Staged bytes [base, base + length) are at `at`: the staging memory, or a copy of what a record names. */
struct pool_staging {
	const uint8_t *at;
	uint64_t base, length;
	bool trusted; /* the hash is not asked for: who applies it has made the record from these very bytes */
};

/* Being made, in memory of the caller's. Too little of it: failed, from then on. */
struct pool_build {
	uint8_t *at;
	size_t room, used;
	uint64_t last; /* offset of the last range's header; 0: none */
	uint16_t ranges;
	bool failed;
};

void pool_build_start(struct pool_build *b, void *at, size_t room);
void pool_build_bytes(struct pool_build *b, uint64_t offset, const void *bytes, uint32_t length);
/* As above, from several pieces behind each other. */
struct pool_piece {
	const void *bytes;
	uint32_t length;
};
void pool_build_pieces(struct pool_build *b, uint64_t offset, const struct pool_piece *pieces,
		       int n);
void pool_build_staged(struct pool_build *b, uint64_t offset, uint32_t length,
		       const struct pool_staged *staged);
void pool_build_zero(struct pool_build *b, uint64_t offset, uint32_t length);
/* -ENOBUFS: failed. Else the record's length. */
int pool_build_finish(struct pool_build *b, uint64_t number, uint64_t epoch, uint16_t flags);

/*
 * Is there a whole record at `at`, of which room bytes are ours? Its header as it was when it was looked at. -EAGAIN: not (yet): too short, or
 * the hash does not fit; -EBADMSG: its hash fits, and its ranges are not in bounds. The bytes may change while we look.
 */
int pool_record_check(const struct pool_region *r, const void *at, size_t room,
		      struct pool_record *header);

/*
 * Applies one that has been checked. Whatever its bytes are by now, nothing outside what records may change is written.
 * -EALREADY: its number is not above the last; -EPROTO: it is not the next, or its epoch has passed; -EILSEQ: staged
 * bytes do not fit, and nothing but their place was changed: wanted with its bytes inline; -EBADMSG: as pool_record_check().
 * staging may be NULL.
 */
int pool_record_apply(struct pool_region *r, const void *at, size_t room,
		      const struct pool_staging *staging);

/* ---- ahead.c ------------------------------------------------------------------- */

/* Words (offsets, multiples of 8) that records which are made, and not applied, change. */
struct pool_ahead {
	struct pool_ahead_slot {
		uint64_t offset; /* 0: empty */
		uint64_t value;
		uint64_t number; /* the last record that changes it */
	} * slots;
	struct pool_ahead_note {
		uint64_t number, offset;
		uint64_t value, before; /* what was ahead, of which record; 0: nothing was */
	} * notes;			/* a ring, oldest first */
	uint32_t mask, used;
	uint32_t put, get; /* notes, free-running */
};

int pool_ahead_create(struct pool_ahead *a, unsigned int bits);
void pool_ahead_destroy(struct pool_ahead *a);
uint32_t pool_ahead_room(const struct pool_ahead *a); /* words */
bool pool_ahead_get(const struct pool_ahead *a, uint64_t offset, uint64_t *value);
void pool_ahead_set(struct pool_ahead *a, uint64_t offset, uint64_t value, uint64_t number);
void pool_ahead_settle(struct pool_ahead *a, uint64_t number); /* records up to this are applied */
void pool_ahead_undo(struct pool_ahead *a, uint64_t number);   /* this record, the last, is none */

/* ---- the core ------------------------------------------------------------------ */

/* Which spans are free, and which slabs have room: from the region, and kept beside it (alloc.c). */
struct pool_room {
	uint64_t *free; /* bits of spans */
	uint32_t *next,
		*prev; /* of slabs with room, by their first span; num_spans + class: the list's head */
	uint8_t *hint;	 /* of a slab: the first word of its bits that may have room */
	uint64_t *freed; /* of a span: the last record that freed it */
	uint64_t lowest; /* no span below is free */
	uint64_t scrubs; /* runs to be overwritten */
	uint64_t free_spans;
};

struct pool_core {
	struct pool_region region;
	struct pool_ahead ahead;
	struct pool_room room;
	struct pool_build *build; /* the record being made */
	uint64_t number;	  /* of it, or of the last */
	uint64_t epoch;
	uint64_t quiet; /* records up to this one are applied wherever the region is */
	bool overwrite; /* what is deleted is zeroed */
};

/*
 * The region is the caller's, and outlives the core. All that the core knows is found in it: so a standby becomes a
 * primary, from whatever record its region is at. -EBADMSG: the region contradicts itself.
 */
int pool_core_open(struct pool_core *core, const struct pool_region *region, uint64_t epoch);
void pool_core_close(struct pool_core *core);

/* What is ahead of the region, for the rooms below. Words are written to the record being made. */
uint64_t pool_see(const struct pool_core *core, uint64_t offset);
void pool_see_bytes(const struct pool_core *core, uint64_t offset, void *to,
		    size_t length); /* offset: of 8 */
void pool_put(struct pool_core *core, uint64_t offset, uint64_t value);
void pool_put_bytes(struct pool_core *core, uint64_t offset, const void *from,
		    size_t length); /* both of 8 */
void pool_add(struct pool_core *core, uint64_t offset, int64_t value);

/* ---- alloc.c ------------------------------------------------------------------- */

int pool_room_create(struct pool_core *core); /* from the region */
void pool_room_destroy(struct pool_core *core);

/* The offset of a block of at least size bytes (at most POOL_BLOCK_MAX), or POOL_NOWHERE. Its bytes are what they are. */
uint64_t pool_alloc(struct pool_core *core, uint64_t size);
/* The same of whole spans; rather of such as are quiet. */
uint64_t pool_alloc_run(struct pool_core *core, uint64_t size);
/* The last record that touched any of it before it was allocated. */
uint64_t pool_run_since(const struct pool_core *core, uint64_t offset, uint64_t size);
void pool_free(struct pool_core *core, uint64_t offset); /* either; nothing, if none is there */
/* Of a run with somebody's bytes in it: later, if what is deleted is overwritten. */
void pool_free_run(struct pool_core *core, uint64_t offset);
/* A run that is to be overwritten, and how far it has been; POOL_NOWHERE: there is none. */
uint64_t pool_scrub_find(const struct pool_core *core, uint64_t *size, uint64_t *done);
void pool_scrub_done(struct pool_core *core, uint64_t offset,
		     uint64_t done); /* at its end it is free */
bool pool_region_is_scrub(const struct pool_region *r, uint64_t offset);
/* Bytes of the block, or run, that begins at offset; 0: none in use does. */
uint64_t pool_block_size(const struct pool_core *core, uint64_t offset);
uint64_t pool_run_size(const struct pool_core *core, uint64_t offset);
/* The same in the region as it is. */
uint64_t pool_region_block_size(const struct pool_region *r, uint64_t offset);
uint64_t pool_region_run_size(const struct pool_region *r, uint64_t offset);

/* ---- hash.c -------------------------------------------------------------------- */

uint64_t pool_hash(const void *bytes, size_t length);
uint64_t pool_hash_pieces(const struct pool_piece *pieces, int n);

/* The same of what comes in pieces, in their order. */
struct pool_hashing;
struct pool_hashing *pool_hashing_new(void); /* NULL: no memory */
void pool_hashing_free(struct pool_hashing *h);
void pool_hashing_start(struct pool_hashing *h);
void pool_hashing_add(struct pool_hashing *h, const void *bytes, size_t length);
uint64_t pool_hashing_end(const struct pool_hashing *h);

/* ---- object.c ------------------------------------------------------------------ */

uint64_t pool_object_hash(const struct pool_object *o, uint64_t address, uint64_t stored);

#define POOL_PREFIX_MAX 264u /* a name before its value */

static inline uint32_t pool_prefix_length(uint16_t name_length)
{
	return (sizeof(uint16_t) + name_length + 7u) & ~7u;
}

/* Bytes of it. */
uint32_t pool_prefix_write(uint8_t to[POOL_PREFIX_MAX], const char *name, uint16_t length);

/* What is stored in an object: name, then value or stub. false: it cannot be. */
struct pool_stored {
	const char *name; /* NULL: none */
	uint16_t name_length;
	uint32_t prefix; /* where the value or stub begins */
	bool indirect;
	struct pool_stub stub;
};

bool pool_stored_read(const struct pool_object *object, const void *bytes,
		      struct pool_stored *stored);

/*
 * A one-sided read, step by step: the caller reads `length` bytes from `address`, and feeds them, until the machine wants
 * nothing more. Whatever was read while it changed is noticed, and read again.
 */
enum pool_step {
	POOL_MORE, /* read what it wants now, and feed it */
	POOL_DONE, /* the value has been read */
	POOL_GONE, /* no such object any more; of a lookup: no such name */
	POOL_ASK,  /* tries are exhausted, or something is odd: the node's word is wanted */
};

struct pool_read {
	uint64_t address, length; /* what it wants: a header and what is behind it, or a body */
	bool body;		  /* it wants a body */
	/* Done: */
	uint32_t at; /* where in what was last fed (behind the header) the value begins */
	uint32_t value_length;
	uint64_t version;
	struct stag_pool_ptr ptr; /* with the right length */
	/* Its own. */
	uint64_t base, size; /* the region */
	const char *name;    /* the object has to be of this name; NULL: any */
	uint16_t name_length;
	uint8_t tries;
	bool other; /* gone: something else is in its place */
	struct pool_stub stub;
	uint64_t hash; /* of a body whose bytes are not fed: the caller has taken it as they came */
};

#define POOL_READ_TRIES 32u

/* ptr: generation 0: any. name: stays the caller's until the read is done. */
void pool_read_start(struct pool_read *read, uint64_t base, uint64_t size,
		     const struct stag_pool_ptr *ptr, const char *name, uint16_t name_length);
/* header: its 32 bytes, stored: what was read behind them; of a body: NULL, and its bytes, or NULL and read->hash. */
enum pool_step pool_read_feed(struct pool_read *read, const void *header, const void *stored);

/* The object of ptr in the region as it is. -ENOENT. */
int pool_object_find(const struct pool_region *r, const struct stag_pool_ptr *ptr,
		     struct pool_object *object, uint64_t *offset);

/* ---- index.c, lookup.c ----------------------------------------------------------- */

uint64_t pool_name_hash(const char *name, uint16_t length);
/* Where its first bucket is, from the region's beginning; what its entry has beside the offset. */
uint64_t pool_name_bucket(uint64_t hash, uint64_t index_at, uint64_t num_buckets);
uint64_t pool_name_entry(uint64_t hash, uint64_t offset);
static inline uint64_t pool_entry_offset(uint64_t entry)
{
	return (entry & ((1ull << 48) - 1)) * POOL_ALIGN;
}

/* With what is ahead: where a name's entry is, and its object's offset. false: there is none. */
bool pool_index_find(const struct pool_core *core, const char *name, uint16_t length,
		     uint64_t *entry, uint64_t *object);
/* The entry of an object whose name is in its place. -ENOSPC. */
int pool_index_add(struct pool_core *core, const char *name, uint16_t length, uint64_t object);
void pool_index_move(struct pool_core *core, uint64_t entry, uint64_t object);
void pool_index_remove(struct pool_core *core, const char *name, uint16_t length, uint64_t entry);

/* Objects of names in the region as it is, from *cursor (0: the first) on; POOL_NOWHERE: no more. */
uint64_t pool_index_next(const struct pool_region *r, uint64_t *cursor);
/* The object of a name in the region as it is; POOL_NOWHERE. */
uint64_t pool_index_look(const struct pool_region *r, const char *name, uint16_t length);
uint64_t pool_index_buckets(const struct pool_region *r); /* that are no first ones */

/* A region, as a client knows it. */
struct pool_place {
	uint64_t base, size, index_at, num_buckets;
	uint32_t key;
};

/* A lookup, step by step, as a read: buckets, then objects. */
struct pool_lookup {
	uint64_t address, length; /* what it wants */
	bool reading; /* it wants (part of) an object: fed as to pool_read_feed(); else a bucket */
	struct pool_read read; /* done: of the object */
	/* Its own. */
	struct pool_place place;
	const char *name;
	uint16_t name_length;
	uint8_t tries, hops, next; /* next: of the bucket's entries */
	bool doubt;		   /* an entry led to something else */
	uint32_t hint;
	uint64_t hash;
	struct pool_bucket bucket;
};

/* hint: how long its value may be, so that one read is enough. */
void pool_lookup_start(struct pool_lookup *l, const struct pool_place *place, const char *name,
		       uint16_t name_length, uint32_t hint);
/* head: a bucket, or as to pool_read_feed(). */
enum pool_step pool_lookup_feed(struct pool_lookup *l, const void *head, const void *stored);

/* ---- clients.c ----------------------------------------------------------------- */

/* Who asks: what its connection knows, and no message says. */
struct pool_who {
	uint64_t id[2];
	uint64_t who;
	uint32_t slot;
};

enum pool_seen {
	POOL_NEW,	 /* carry it out */
	POOL_REMEMBERED, /* its outcome */
	POOL_UPLOADING,	 /* its outcome is that it is under way */
	POOL_STALE,	 /* acknowledged, or of a client that is not known any more */
	POOL_TOO_MANY,	 /* more than POOL_WINDOW ahead of what is acknowledged */
};

/* -ENOENT; else the slot. */
int pool_client_find(const struct pool_core *core, const uint64_t id[2]);
uint64_t pool_client_who(const struct pool_core *core, uint32_t slot);
int pool_client_add(struct pool_core *core, struct pool_who *who); /* sets slot; -ENOSPC, -EUSERS */
void pool_client_remove(struct pool_core *core, uint32_t slot);
/* acknowledged: what the request says; nothing that was executed is executed again, whatever that is. */
enum pool_seen pool_client_seen(const struct pool_core *core, const struct pool_who *who,
				uint64_t sequence, uint64_t acknowledged,
				struct pool_result *result);
/* Remembers; and what was acknowledged. */
void pool_client_remember(struct pool_core *core, const struct pool_who *who,
			  const struct pool_result *result, uint64_t acknowledged);
unsigned int pool_client_uploads(const struct pool_core *core, const struct pool_who *who);

/* ---- wire.c -------------------------------------------------------------------- */

/* Beside enum stag_pool_op: what clients' libraries and nodes say to each other. */
enum pool_op {
	POOL_OP_ATTACH =
		64, /* a client's first: name is none, version 1: it has been here before, ESTALE if not */
	POOL_OP_DETACH,	 /* it needs nothing any more */
	POOL_OP_LIST,	 /* names from version (a cursor); the answer has as many as fit */
	POOL_OP_NODES,	 /* who is there: the answer's value is node.c's */
	POOL_OP_SWITCH,	 /* the primary is to be the node of this name */
	POOL_OP_FORGET,	 /* the node of this name is to be no member any more */
	POOL_OP_FRESH,	 /* is it primary still? Answered within its lease only */
	POOL_OP_STAGING, /* nobody asks for it: slots that a client may write to (protocol.h) */
	POOL_OP_MAX,
};

enum pool_request_flags {
	POOL_HAS_VALUE = 1 << 0,
	POOL_HAS_PTR = 1 << 1,
	POOL_COMPARE = 1 << 2,	 /* only if the object's version is `version` */
	POOL_EXCLUSIVE = 1 << 3, /* put: only if there is no such name */
	POOL_UPLOADED =
		1 << 4, /* a node's own: the value is what was uploaded under this sequence */
};

/* ---- operation.c --------------------------------------------------------------- */

enum pool_takes {
	POOL_TAKES_PTR = 1 << 0,
	POOL_TAKES_NAME = 1 << 1,
	POOL_TAKES_ANY_NAME = 1 << 2, /* with a name or without */
	POOL_TAKES_VALUE = 1 << 3,
	POOL_TAKES_ROOM = 1 << 4, /* for the bytes of the answer */
};

/* Selects the function that carries an operation out, on the node. */
enum pool_handler {
	POOL_DO_CHANGE =
		1, /* of objects. Sequenced: sent again to the next primary, and carried out exactly once */
	POOL_DO_ATTACH, /* pool_change(), too: changes the table of clients */
	POOL_DO_DETACH, /* likewise */
	POOL_DO_READ,	/* of a value */
	POOL_DO_LIST,
	POOL_DO_NODES,
	POOL_DO_ADMINISTER,
	POOL_DO_FRESH,
};

struct pool_operation {
	const char *name; /* NULL: there is no such operation */
	uint8_t takes;	  /* operands: enum pool_takes */
	uint8_t flags;	  /* enum pool_request_flags that are allowed */
	uint8_t rights;	  /* STAG_POOL_RIGHT_* that the user needs */
	uint8_t handler;  /* enum pool_handler */
};

extern const struct pool_operation pool_operations[POOL_OP_MAX];

/* Returns NULL for an unknown operation. */
static inline const struct pool_operation *pool_operation(uint8_t op)
{
	return op < POOL_OP_MAX && pool_operations[op].name ? &pool_operations[op] : NULL;
}

static inline bool pool_op_takes(uint8_t op, enum pool_takes what)
{
	const struct pool_operation *o = pool_operation(op);

	return o && (o->takes & what);
}

/* Returns whether an operation reads one value: what clients do by themselves, if they can. */
static inline bool pool_op_reads(uint8_t op)
{
	const struct pool_operation *o = pool_operation(op);

	return o && o->handler == POOL_DO_READ;
}

/* Returns whether an operation goes to pool_change(). */
static inline bool pool_op_changes(uint8_t op)
{
	const struct pool_operation *o = pool_operation(op);

	return o && o->handler <= POOL_DO_DETACH;
}

/* Returns whether an operation is one of the library's own, not of enum stag_pool_op. Its answer's bytes are no value. */
static inline bool pool_op_is_own(uint8_t op)
{
	return op >= POOL_OP_ATTACH;
}

/* The operation that STAG_POOL_IMPLICIT stands for, by its operands; STAG_POOL_IMPLICIT: none. */
uint8_t pool_op_implied(bool has_value, bool has_ptr);
uint32_t pool_op_needs(uint8_t op); /* rights; all bits for an unknown operation */
const char *pool_op_name(uint8_t op);

/* Where a value is; of a read, where it is to go. */
enum pool_source {
	POOL_SOURCE_INLINE, /* in the message */
	POOL_SOURCE_STAGED, /* in the client's slice of the staging memory, at address: which the node judges */
	POOL_SOURCE_PULL, /* in the client's memory: address, key */
};

struct pool_request {
	uint8_t op; /* enum stag_pool_op, never STAG_POOL_IMPLICIT when it has been decoded; enum pool_op */
	uint8_t flags;
	uint8_t source;
	uint16_t name_length;
	uint32_t key;	 /* of source_address */
	uint32_t length; /* of the value, or of what there is room for */
	uint64_t source_address;
	uint64_t sequence, acknowledged;
	uint64_t version;
	struct stag_pool_ptr ptr;
	const char *name;
	const void *value; /* stable while the request is carried out; NULL: not here yet */
	uint64_t hash;	   /* POOL_UPLOADED, and not on the wire: of the body */
};

struct pool_answer {
	uint64_t sequence;
	uint64_t version; /* of the object; POOL_OP_LIST: where to go on, 0: that was all */
	uint32_t status;  /* errno value */
	uint8_t op;
	uint32_t length; /* of bytes */
	struct stag_pool_ptr ptr;
	const void *bytes; /* read, get, list, nodes */
	/* Not on the wire: goes out when this record is applied. */
	uint64_t after;
};

enum pool_message_kind {
	POOL_MESSAGE_REQUESTS = 1,
	POOL_MESSAGE_ANSWERS,
	POOL_MESSAGE_NODE, /* between nodes: link.c's own */
	POOL_MESSAGE_KINDS,
};

struct pool_message {
	uint8_t kind;
	uint16_t count;	 /* of requests or answers */
	uint32_t length; /* with its header */
	uint64_t epoch;
};

#define POOL_MESSAGE_HEADER 16u
#define POOL_REQUEST_HEADER 72u
#define POOL_ANSWER_HEADER  56u

/* Being written, at `at`, from *used on, which advances; it begins as 0. -ENOBUFS: no room for this one. */
int pool_message_start(void *at, size_t room, size_t *used, uint8_t kind, uint64_t epoch);
int pool_message_request(void *at, size_t room, size_t *used, const struct pool_request *request);
int pool_message_answer(void *at, size_t room, size_t *used, const struct pool_answer *answer);
/* Of a node's message: more bytes, which are there already. Its length, or -ENOBUFS. */
int pool_message_extend(void *at, size_t room, size_t *used, size_t more);

/* Read, from *where on, which advances; it begins as 0. -EBADMSG. Names and values are in the message. */
int pool_message_read(const void *at, size_t length, size_t *where, struct pool_message *message);
int pool_request_read(const void *at, size_t length, size_t *where, struct pool_request *request);
int pool_answer_read(const void *at, size_t length, size_t *where, struct pool_answer *answer);

/* STAG_POOL_RIGHT_*; what an operation needs. */

/* ---- ops.c, upload.c ------------------------------------------------------------- */

/*
 * Judges a changing request. 0: answer is valid, and goes out when the record answer->after is applied; *used is the length of the
 * record that was made at `at`, or 0: none was needed. -EAGAIN: too much is ahead, or there is no room (it takes POOL_RECORD_META + the value): ask again
 * when records have been settled. -EINVAL: the value is not there yet. -ENOBUFS: a fault of ours.
 */
int pool_change(struct pool_core *core, struct pool_who *who, const struct pool_request *request,
		void *at, size_t room, size_t *used, struct pool_answer *answer);

/* The client of this slot is to be forgotten: it has not been seen for long. As pool_change(). */
int pool_expire(struct pool_core *core, uint32_t slot, void *at, size_t room, size_t *used);

/*
 * Some of what was deleted is overwritten, if it is to be: long values are not at once, which would take longer than a lease. To be
 * called as long as it makes records (*used).
 */
int pool_scrub(struct pool_core *core, void *at, size_t room, size_t *used);

/* Nothing but a number: says that this epoch has begun. */
int pool_mark(struct pool_core *core, void *at, size_t room, size_t *used);

/* A record of ours is on all standbys: applies it. Errors are faults of our own, or of the memory. */
int pool_settle(struct pool_core *core, const void *record, size_t room,
		const struct pool_staging *staging);

/*
 * A value longer than POOL_DIRECT_MAX: its body is allocated by a record, filled by others, in any order, each of at most
 * POOL_DIRECT_MAX, and becomes a value by pool_change() with POOL_UPLOADED and the body's hash. Whoever asks again
 * for the same sequence begins again in the same place. pool_upload_begin(): the answer's status is EINPROGRESS and
 * its ptr.address the body, or something else, and it is the outcome.
 */
int pool_upload_begin(struct pool_core *core, const struct pool_who *who,
		      const struct pool_request *request, void *at, size_t room, size_t *used,
		      struct pool_answer *answer);
/* -ESTALE: there is no such upload; -EINVAL: not in its bounds; -EAGAIN. */
int pool_upload_bytes(struct pool_core *core, const struct pool_who *who, uint64_t sequence,
		      uint64_t offset, const void *bytes, uint32_t length, void *at, size_t room,
		      size_t *used);
/* Where these bytes of it belong in the region, for who places them there without a record, on every node. As above. */
int pool_upload_find(const struct pool_core *core, const struct pool_who *who, uint64_t sequence,
		     uint64_t offset, uint32_t length, uint64_t *to);

/* The same of all of it, which is staged: at most POOL_STAGED_MAX. */
int pool_upload_staged(struct pool_core *core, const struct pool_who *who, uint64_t sequence,
		       uint32_t length, const struct pool_staged *staged, void *at, size_t room,
		       size_t *used);

/* ---- look.c ---------------------------------------------------------------------- */

/* READ, GET in the region as it is, which is what has been acknowledged. The answer's bytes are in the region. */
/* A body is not hashed: that takes long, and nobody changes it. */
void pool_look(const struct pool_region *r, const struct pool_request *request,
	       struct pool_answer *answer);

/* A name of a list; the name follows, padded to 8. */
struct pool_listed {
	struct stag_pool_ptr ptr;
	uint64_t version;
	uint64_t cursor; /* from which the names behind it are listed */
	uint16_t name_length;
	uint16_t reserved[3];
};

/* LIST: as many as have room at `to`. */
void pool_list(const struct pool_region *r, const struct pool_request *request, void *to,
	       size_t room, struct pool_answer *answer);

#define POOL_LOG_MIN (1u << 20) /* the longest record, three times */

/* ---- ring.c -------------------------------------------------------------------- */

/*
 * The primary's log: a ring with the same bytes at the same places as in each standby's memory. Records are made in
 * place, and never cross its end: a record with POOL_RECORD_SKIP, or less than a header's bytes, are left behind them.
 * Positions count bytes from the pool's beginning, and never wrap.
 */
struct pool_log {
	uint8_t *at;
	uint64_t size; /* a power of two, POOL_LOG_MIN or more */
	uint64_t put;  /* where the next record goes */
	uint64_t tail; /* what is before is not needed any more */
};

/* Contiguous room for a record of at most `need` bytes, or NULL: records have to be let go. */
void *pool_log_room(struct pool_log *log, size_t need, uint64_t number, uint64_t epoch);
void pool_log_add(struct pool_log *log, size_t length); /* what was made there */

/* The bytes [from, to) as at most two pieces of the ring. */
struct pool_segment {
	uint64_t offset, length;
};
int pool_log_segments(uint64_t size, uint64_t from, uint64_t to, struct pool_segment segments[2]);

/* The standby's ring, written by its primary. */
struct pool_ring {
	const uint8_t *at;
	uint64_t size;
	uint64_t get; /* what is before has been applied */
};

/*
 * Applies whole records, at most `most`. How many; 0: none is there; -EILSEQ, -EBADMSG, -EPROTO as pool_record_apply(), and
 * the ring stands before that record.
 */
int pool_ring_drain(struct pool_ring *ring, struct pool_region *r,
		    const struct pool_staging *staging, unsigned int most);

#endif
