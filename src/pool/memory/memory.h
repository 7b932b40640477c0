/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory.h - the memory of a pool, and what changes it.
 *
 * Terms. The *region* is the pool's memory, byte for byte the same on every node. An *object* is a header and
 * what is stored behind it, in a *block* of the allocator. A *span* is 64 KiB of the region; a *slab* is one or
 * more spans with blocks of one size. A *record* is one change: ranges of bytes of the region. The *log* is all
 * records, by number. The *core* is the primary's: it makes records, and knows which words the records that are
 * not yet applied will change (what is *ahead*).
 *
 * A change (ops.c): request -> pool_change() -> record and answer -> the standbys have the record ->
 * pool_settle() applies it here -> the answer is sent. Until then the region is as it was, so that no client
 * reads a change that may still be lost; the next requests are judged including what is ahead.
 *
 *     region.c   layout, mapping, superblock           record.c     ranges: build, check, apply
 *     check.c    consistency of a region               ring.c       the log in memory
 *     alloc.c    blocks of the region                  core.c       the primary's view
 *     object.c   headers, one-sided reads              ahead.c      words that records in flight will change
 *     hash.c     the hash of all that is stored        operation.c  the table of operations
 *     index.c    names                                 ops.c        changes: judged, carried out, remembered
 *     lookup.c   names, one-sided                      upload.c     values that come in pieces
 *     clients.c  outcomes of requests: exactly once    look.c       reads served by the node
 *     wire.c     messages                              map.c        the program's map of pointers
 *     scope.c    users that may use some names only
 *
 * All of it is pure: no sockets, clocks, or threads; memory is allocated only when a core or a log is made. Everything in
 * the region may come from a record of a peer: no number found there is used before it has been checked.
 *
 * All numbers in the region and on the wire are little endian, and used as they lie.
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

#define POOL_MAGIC	  "StagPool"
#define POOL_VERSION	  2u
#define POOL_PAGE	  4096u
#define POOL_SPAN_SHIFT	  16u
#define POOL_SPAN	  (1u << POOL_SPAN_SHIFT)
#define POOL_MIN_SIZE	  (1ull << 20)
#define POOL_MAX_SIZE	  (1ull << 46)
#define POOL_ALIGN	  16u
#define POOL_MAX_NAME	  STAG_POOL_NAME_MAX
#define POOL_MAX_VALUE	  STAG_POOL_VALUE_MAX
#define POOL_MAX_PREFIXES STAG_POOL_PREFIXES_MAX
#define POOL_DIRECT_MAX                                                                            \
	(256u                                                                                      \
	 << 10) /* bytes of a value that is stored in its object; a longer one has a stub there */
#define POOL_BLOCK_MAX	    (288u << 10)
#define POOL_STAGED_MAX	    (1u << 20) /* bytes of a value that can be staged as a whole */
#define POOL_WINDOW	    64u	       /* outcomes that are kept for each client */
#define POOL_MAX_UPLOADS    8u	       /* uploads in flight of one client */
#define POOL_BUCKET_ENTRIES 7u
#define POOL_NOWHERE	    UINT64_MAX

/*
 * The default address of a region: one that programs leave free. ThreadSanitizer leaves only a low range to
 * programs, AddressSanitizer only a high one.
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
	/* Set at creation: no record changes it. */
	char magic[8];
	uint32_t version;
	uint32_t key;	  /* the key in pointers */
	uint64_t size;	  /* of the region */
	uint64_t address; /* of the first byte, the same on every node */
	uint8_t uuid[16];
	uint64_t name_key[2]; /* of the names' hash */
	uint64_t num_buckets, max_clients;
	uint64_t check; /* XXH3 of all above */
	/* Changed by records. */
	uint64_t objects;
	uint64_t bytes; /* bytes of all values */
	uint64_t names;
	uint64_t clients;
	/* The last record applied. */
	uint64_t number;
	uint64_t epoch;
};

#define POOL_FIXED                                                                                 \
	offsetof(struct pool_superblock,                                                           \
		 objects) /* bytes at the beginning that no range may touch */

/*
 * An entry of the span table, for the first span of a slab or of a run. All zero: free, or a further span of a
 * run. The entries of a slab's further spans say how far back its first one is. A slab of more than 64 blocks has
 * its bits at its beginning.
 */
struct pool_span {
	uint16_t kind; /* enum pool_span_kind, or POOL_SLAB + class */
	uint16_t
		used; /* slab: blocks in use; run: 1 if it becomes free once it has been overwritten */
	uint32_t spans; /* run: its length; tail: distance to the first span of the slab */
	uint64_t bits;	/* slab of at most 64 blocks: those in use; run: bytes overwritten so far */
};

enum pool_span_kind { POOL_SPAN_FREE, POOL_SPAN_RUN, POOL_SPAN_TAIL, POOL_SLAB };

/*
 * The header before a value. The generation is the number of the record that made the object, and therefore
 * unique; the version is the number of the record that changed it last. The header of a free block is zero, or was
 * never written; a block in use that is no object begins with a word of zero.
 */
struct pool_object {
	uint64_t generation;
	uint64_t version;
	uint64_t hash;	 /* of all other fields, the address, and the hash of the stored bytes */
	uint32_t length; /* bytes stored: name, then value or stub */
	uint32_t flags;	 /* enum pool_object_flags */
};

enum pool_object_flags {
	POOL_NAMED = 1 << 0,	/* begins with {u16 length; name}, padded to 8 */
	POOL_INDIRECT = 1 << 1, /* the value is a stub */
};

/*
 * Stored instead of a value longer than POOL_DIRECT_MAX. Its body is a run, and never changes: an update makes a
 * new one.
 */
struct pool_stub {
	uint64_t address;
	uint64_t length;
	uint64_t hash; /* XXH3 of the body */
};

/*
 * An entry is tag << 48 | offset / 16, or 0. next is offset / 16 of the bucket behind this one, which begins 16
 * bytes after the beginning of its block. An entry stays where it is as long as its name exists, and a bucket as
 * long as one behind it is in use: so a lookup without a lock misses nothing that exists all the time.
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

/*
 * A client has a block of its own; the directory (at clients_at) has its offset, or 0. The result of sequence s is
 * at s % POOL_WINDOW.
 */
struct pool_client {
	uint64_t zero;
	uint64_t id[2];
	uint64_t
		who; /* hash of the user's name that it was admitted by: no other user can continue as this client */
	uint64_t acknowledged; /* outcomes up to this sequence are not needed any more */
	struct pool_result results[POOL_WINDOW];
};

_Static_assert(sizeof(struct pool_superblock) == 136, "as it lies");
_Static_assert(sizeof(struct pool_span) == 16, "as it lies");
_Static_assert(sizeof(struct pool_object) == 32, "as it lies");
_Static_assert(sizeof(struct pool_bucket) == 64, "as it lies");
_Static_assert(sizeof(struct pool_result) == 40, "as it lies");
_Static_assert(sizeof(struct stag_pool_ptr) == 24, "as it lies");

/* A region in this process, and the numbers of its superblock, checked. */
struct pool_region {
	uint8_t *at; /* equals address, except in tests */
	uint64_t size, address;
	uint32_t key;
	uint8_t uuid[16];
	uint64_t name_key[2];
	uint64_t spans_at, index_at, clients_at, memory_at;
	uint64_t num_spans, num_buckets, max_clients;
};

/* ---- region.c ------------------------------------------------------------------ */

struct pool_format {
	uint64_t size; /* a multiple of POOL_PAGE */
	uint64_t address;
	uint32_t key;
	uint8_t uuid[16];
	uint64_t name_key[2]; /* random: who does not know it cannot choose names that collide */
	uint64_t max_clients; /* 0: 1024 */
	uint64_t num_buckets; /* 0: size / 1024 */
};

/* Formats zeroed memory of format->size bytes. Returns -EINVAL for an invalid format. */
int pool_region_format(struct pool_region *r, void *at, const struct pool_format *format);

/*
 * Adopts a region that was formatted or copied. Returns -EPROTO if it is no region, or of another version,
 * -EBADMSG if it is damaged, -EINVAL if it has another size.
 */
int pool_region_adopt(struct pool_region *r, void *at, uint64_t size);

/*
 * Maps memory at the pool's address. Returns -EADDRINUSE if something is mapped there (why quotes
 * /proc/self/maps), -ENOMEM, or another error. why may be NULL.
 */
int pool_region_map(uint64_t address, uint64_t size, char *why, size_t room);
void pool_region_unmap(uint64_t address, uint64_t size);

/* Checks the whole region (check.c). Returns 0, or -EBADMSG, with the reason in why. */
int pool_region_check(const struct pool_region *r, char *why, size_t room);

static inline bool pool_holds(const struct pool_region *r, uint64_t offset, uint64_t length)
{
	return offset <= r->size && length <= r->size - offset;
}

/* Returns the offset of an address, or POOL_NOWHERE if it is not in the region. */
static inline uint64_t pool_offset(const struct pool_region *r, uint64_t address)
{
	return address - r->address < r->size ? address - r->address : POOL_NOWHERE;
}

/* Reads a word. The caller has checked the offset, which is a multiple of 8. */
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
	uint32_t length; /* bytes, including this header; a multiple of 8 */
	uint16_t ranges;
	uint16_t flags; /* enum pool_record_flags */
	uint64_t hash; /* XXH3 of the bytes that follow; its seed is the hash of the fields above */
};

enum pool_record_flags { POOL_RECORD_SKIP = 1 << 0 /* in a ring: nothing follows up to the end */ };

/* Ranges are applied in their order. The bytes that follow are padded to 8. */
struct pool_range {
	uint64_t offset;
	uint32_t length;
	uint32_t kind; /* enum pool_range_kind */
};

enum pool_range_kind {
	POOL_RANGE_INLINE, /* followed by its bytes */
	POOL_RANGE_STAGED, /* followed by struct pool_staged */
	POOL_RANGE_ZERO,   /* followed by nothing: zeroes */
};

struct pool_staged {
	uint64_t offset; /* in the staging memory */
	uint64_t hash;	 /* XXH3 of the bytes */
};

#define POOL_RECORD_META 8192u /* bytes of a record beside its value, at most */
#define POOL_RECORD_MAX	 (POOL_DIRECT_MAX + POOL_RECORD_META)

/*
 * Staged bytes [base, base + length) are at `at`: the staging memory, or a copy of the bytes that a record refers
 * to.
 */
struct pool_staging {
	const uint8_t *at;
	uint64_t base, length;
	bool trusted; /* skip the check of the hash: this node has made the record from these bytes */
};

/* A record being built, in the caller's memory. If that is too small, `failed` is set, and stays set. */
struct pool_build {
	uint8_t *at;
	size_t room, used;
	uint64_t last; /* offset of the last range's header; 0: none */
	uint16_t ranges;
	bool failed;
};

void pool_build_start(struct pool_build *b, void *at, size_t room);
void pool_build_bytes(struct pool_build *b, uint64_t offset, const void *bytes, uint32_t length);
/* The same for bytes in several pieces. */
struct pool_piece {
	const void *bytes;
	uint32_t length;
};
void pool_build_pieces(struct pool_build *b, uint64_t offset, const struct pool_piece *pieces,
		       int n);
void pool_build_staged(struct pool_build *b, uint64_t offset, uint32_t length,
		       const struct pool_staged *staged);
void pool_build_zero(struct pool_build *b, uint64_t offset, uint32_t length);
/* Returns the length of the record, or -ENOBUFS if building it failed. */
int pool_build_finish(struct pool_build *b, uint64_t number, uint64_t epoch, uint16_t flags);

/*
 * Checks whether a whole record is at `at`, of which room bytes are ours. Sets header as it was read. Returns
 * -EAGAIN if it is not there (yet): its length is impossible, or the hash is wrong; -EBADMSG if the hash is
 * right, but ranges are out of bounds. The bytes may change during the check.
 */
int pool_record_check(const struct pool_region *r, const void *at, size_t room,
		      struct pool_record *header);

/*
 * Applies a record that has been checked. Whatever its bytes are by now, nothing is written except what records
 * may change. Returns -EALREADY if its number is not above the last one; -EPROTO if it is not the next one, or its
 * epoch has passed; -EILSEQ if staged bytes have the wrong hash, and nothing but their place was changed (send it
 * again with its bytes inline); -EBADMSG as pool_record_check(). staging may be NULL.
 */
int pool_record_apply(struct pool_region *r, const void *at, size_t room,
		      const struct pool_staging *staging);

/* ---- ahead.c ------------------------------------------------------------------- */

/* The words (at offsets that are multiples of 8) that records which are made, but not applied, will change. */
struct pool_ahead {
	struct pool_ahead_slot {
		uint64_t offset; /* 0: empty */
		uint64_t value;
		uint64_t number; /* of the last record that changes it */
	} * slots;
	struct pool_ahead_note {
		uint64_t number, offset;
		uint64_t value,
			before; /* the slot's value before, and the number of its record; 0: none */
	} * notes;		/* ring, oldest first */
	uint32_t mask, used;
	uint32_t put, get; /* indices of notes, free-running */
};

int pool_ahead_create(struct pool_ahead *a, unsigned int bits);
void pool_ahead_destroy(struct pool_ahead *a);
uint32_t pool_ahead_room(const struct pool_ahead *a); /* words that still fit */
bool pool_ahead_get(const struct pool_ahead *a, uint64_t offset, uint64_t *value);
void pool_ahead_set(struct pool_ahead *a, uint64_t offset, uint64_t value, uint64_t number);
/* Removes the words of records up to this number, which are applied. */
void pool_ahead_settle(struct pool_ahead *a, uint64_t number);
/* Removes the words of the last record, which has this number and is given up. */
void pool_ahead_undo(struct pool_ahead *a, uint64_t number);

/* ---- the core ------------------------------------------------------------------ */

/* Free spans, and slabs with room: scanned from the region, and kept beside it (alloc.c). */
struct pool_room {
	uint64_t *free; /* one bit for each span, set if it is free */
	uint32_t *next,
		*prev; /* lists of slabs with room, by their first span; num_spans + class is the head of a list */
	uint8_t *hint;	 /* for each slab: the first word of its bits that may have room */
	uint64_t *freed; /* for each span: number of the last record that freed it */
	uint64_t lowest; /* no span below is free */
	uint64_t scrubs; /* number of runs to be overwritten */
	uint64_t free_spans;
};

struct pool_core {
	struct pool_region region;
	struct pool_ahead ahead;
	struct pool_room room;
	struct pool_build *build; /* the record being made */
	uint64_t number;	  /* of that record, or of the last one */
	uint64_t epoch;
	uint64_t quiet; /* number up to which records are applied on every node */
	bool overwrite; /* deleted values are overwritten with zeroes */
};

/*
 * Opens a core on a region of the caller, which must outlive it. The core finds everything that it needs in the
 * region: so a standby becomes primary, at whatever record its region is. Returns -EPROTO if the region has
 * records of a later epoch, -EBADMSG if it contradicts itself, or -ENOMEM.
 */
int pool_core_open(struct pool_core *core, const struct pool_region *region, uint64_t epoch);
void pool_core_close(struct pool_core *core);

/* Words of the region, including what is ahead, for the parts below. Written words go into the record being built. */
uint64_t pool_see(const struct pool_core *core, uint64_t offset);
void pool_see_bytes(const struct pool_core *core, uint64_t offset, void *to,
		    size_t length); /* offset: a multiple of 8 */
void pool_put(struct pool_core *core, uint64_t offset, uint64_t value);
void pool_put_bytes(struct pool_core *core, uint64_t offset, const void *from,
		    size_t length); /* both multiples of 8 */
void pool_add(struct pool_core *core, uint64_t offset, int64_t value);

/* ---- alloc.c ------------------------------------------------------------------- */

int pool_room_create(struct pool_core *core); /* scans the region */
void pool_room_destroy(struct pool_core *core);

/*
 * Counts free spans in the region itself, for a node that has no core: reads at most `most` entries of the span table from *span on,
 * adds to *free, and moves *span. Entries that no allocator wrote are counted as in use: memory that is being copied is not trusted.
 */
void pool_count_free(const struct pool_region *r, uint64_t *span, uint32_t most, uint64_t *free);

/*
 * Returns the offset of a block of at least size bytes (at most POOL_BLOCK_MAX), or POOL_NOWHERE. Its bytes are
 * undefined.
 */
uint64_t pool_alloc(struct pool_core *core, uint64_t size);
/* The same for whole spans, preferably ones that no record in flight touches. */
uint64_t pool_alloc_run(struct pool_core *core, uint64_t size);
/* Returns the number of the last record that touched any of its spans before it was allocated. */
uint64_t pool_run_since(const struct pool_core *core, uint64_t offset, uint64_t size);
void pool_free(struct pool_core *core,
	       uint64_t offset); /* a block or a run; does nothing if none begins there */
/* Frees a run that holds a value: later, if deleted values are overwritten. */
void pool_free_run(struct pool_core *core, uint64_t offset);
/* Returns a run that is to be overwritten, and how far it has been, or POOL_NOWHERE. */
uint64_t pool_scrub_find(const struct pool_core *core, uint64_t *size, uint64_t *done);
void pool_scrub_done(struct pool_core *core, uint64_t offset,
		     uint64_t done); /* at its end the run becomes free */
bool pool_region_is_scrub(const struct pool_region *r, uint64_t offset);
/* Returns the size of the block or run that begins at offset, or 0 if none in use does. */
uint64_t pool_block_size(const struct pool_core *core, uint64_t offset);
uint64_t pool_run_size(const struct pool_core *core, uint64_t offset);
/* The same in the region as it is. */
uint64_t pool_region_block_size(const struct pool_region *r, uint64_t offset);
uint64_t pool_region_run_size(const struct pool_region *r, uint64_t offset);

/* ---- hash.c -------------------------------------------------------------------- */

uint64_t pool_hash(const void *bytes, size_t length);
uint64_t pool_hash_pieces(const struct pool_piece *pieces, int n);

/* Incremental hashing, of pieces in their order. */
struct pool_hashing;
struct pool_hashing *pool_hashing_new(void); /* NULL: out of memory */
void pool_hashing_free(struct pool_hashing *h);
void pool_hashing_start(struct pool_hashing *h);
void pool_hashing_add(struct pool_hashing *h, const void *bytes, size_t length);
uint64_t pool_hashing_end(const struct pool_hashing *h);

/* ---- object.c ------------------------------------------------------------------ */

uint64_t pool_object_hash(const struct pool_object *o, uint64_t address, uint64_t stored);

#define POOL_PREFIX_MAX 264u /* bytes of a name before its value, at most */

static inline uint32_t pool_prefix_length(uint16_t name_length)
{
	return (sizeof(uint16_t) + name_length + 7u) & ~7u;
}

/* Writes the length and the name, padded. Returns the number of bytes. */
uint32_t pool_prefix_write(uint8_t to[POOL_PREFIX_MAX], const char *name, uint16_t length);

/* The contents of an object: name, then value or stub. Functions return false if they are invalid. */
struct pool_stored {
	const char *name; /* NULL: none */
	uint16_t name_length;
	uint32_t prefix; /* bytes before the value or stub */
	bool indirect;
	struct pool_stub stub;
};

bool pool_stored_read(const struct pool_object *object, const void *bytes,
		      struct pool_stored *stored);

/*
 * A one-sided read as a state machine: the caller reads `length` bytes from `address`, and feeds them, until no
 * more are wanted. Bytes that were changed during a read are noticed, and read again.
 */
enum pool_step {
	POOL_MORE, /* read what is wanted now, and feed it */
	POOL_DONE, /* the value has been read */
	POOL_GONE, /* the object is gone; in a lookup: there is no such name */
	POOL_ASK,  /* the retries are exhausted, or something is inconsistent: ask the node */
};

struct pool_read {
	uint64_t address, length; /* wanted: a header and what follows it, or a body */
	bool body;		  /* a body is wanted */
	/* When done: */
	uint32_t at; /* offset of the value in what was fed last, behind the header */
	uint32_t value_length;
	uint64_t version;
	struct stag_pool_ptr ptr; /* with the right length */
	/* Internal. */
	uint64_t base, size; /* the region */
	const char *name;    /* the object must have this name; NULL: any */
	uint16_t name_length;
	uint8_t tries;
	bool other; /* gone, and another object is in its place */
	struct pool_stub stub;
	uint64_t
		hash; /* of a body whose bytes are not fed, because the caller has hashed them as they came */
};

#define POOL_READ_TRIES 32u

/* A generation of 0 in ptr matches any. The name stays the caller's until the read is done. */
void pool_read_start(struct pool_read *read, uint64_t base, uint64_t size,
		     const struct stag_pool_ptr *ptr, const char *name, uint16_t name_length);
/* header: 32 bytes; stored: what was read behind them. For a body: NULL and its bytes, or NULL and read->hash. */
enum pool_step pool_read_feed(struct pool_read *read, const void *header, const void *stored);

/* Finds the object of ptr in the region as it is. -ENOENT. */
int pool_object_find(const struct pool_region *r, const struct stag_pool_ptr *ptr,
		     struct pool_object *object, uint64_t *offset);

/* ---- index.c, lookup.c ----------------------------------------------------------- */

uint64_t pool_name_hash(const uint64_t key[2], const char *name, uint16_t length);
/* Returns the offset of the name's first bucket. */
uint64_t pool_name_bucket(uint64_t hash, uint64_t index_at, uint64_t num_buckets);
/* Returns the entry, tag and offset, of a name with this hash whose object is at this offset. */
uint64_t pool_name_entry(uint64_t hash, uint64_t offset);
static inline uint64_t pool_entry_offset(uint64_t entry)
{
	return (entry & ((1ull << 48) - 1)) * POOL_ALIGN;
}

/* Finds the entry of a name, and the offset of its object, including what is ahead. Returns false if there is none. */
bool pool_index_find(const struct pool_core *core, const char *name, uint16_t length,
		     uint64_t *entry, uint64_t *object);
/* Adds the entry of an object that has its name already. -ENOSPC. */
int pool_index_add(struct pool_core *core, const char *name, uint16_t length, uint64_t object);
void pool_index_move(struct pool_core *core, uint64_t entry, uint64_t object);
void pool_index_remove(struct pool_core *core, const char *name, uint16_t length, uint64_t entry);

/* A walk through all entries of the region as it is. */
struct pool_index_walk {
	const struct pool_region *region;
	uint64_t cursor; /* of the next entry; where a later walk can continue */
	uint64_t bucket; /* the bucket of that entry; POOL_NOWHERE: the end */
};

/* Starts at a cursor; 0: at the first entry. */
void pool_index_walk(struct pool_index_walk *walk, const struct pool_region *r, uint64_t cursor);
/* Examines the next entry. Returns its object if it leads to one with a name, otherwise POOL_NOWHERE. */
uint64_t pool_index_step(struct pool_index_walk *walk);
/* Returns the next named object, or POOL_NOWHERE at the end. */
uint64_t pool_index_next(struct pool_index_walk *walk);
/* Returns the object of a name in the region as it is, or POOL_NOWHERE. */
uint64_t pool_index_look(const struct pool_region *r, const char *name, uint16_t length);
uint64_t pool_index_buckets(const struct pool_region *r); /* number of overflow buckets */

/* A region, as a client knows it. */
struct pool_place {
	uint64_t base, size, index_at, num_buckets;
	uint64_t name_key[2];
	uint32_t key;
};

/* A one-sided lookup as a state machine, like a read: buckets, then objects. */
struct pool_lookup {
	uint64_t address, length; /* wanted */
	bool reading; /* (part of) an object is wanted, to be fed as to pool_read_feed(); otherwise a bucket */
	struct pool_read read; /* when done: the read of the object */
	/* Internal. */
	struct pool_place place;
	const char *name;
	uint16_t name_length;
	uint8_t tries, hops, next; /* next: index of an entry of the bucket */
	bool doubt;		   /* an entry led to something else */
	uint32_t hint;
	uint64_t hash;
	struct pool_bucket bucket;
};

/* hint: expected length of the value, so that one read is enough. */
void pool_lookup_start(struct pool_lookup *l, const struct pool_place *place, const char *name,
		       uint16_t name_length, uint32_t hint);
/* head: a bucket, or as for pool_read_feed(). */
enum pool_step pool_lookup_feed(struct pool_lookup *l, const void *head, const void *stored);

/* ---- clients.c ----------------------------------------------------------------- */

/* The client of a request: facts of its connection, which no message carries. */
struct pool_who {
	uint64_t id[2];
	uint64_t who;
	uint32_t slot;
	uint32_t leave; /* slots that it leaves to others, if it needs a new one */
	uint64_t
		acknowledged; /* sequence up to which a new slot of it knows nothing, and repeats nothing */
};

enum pool_seen {
	POOL_NEW,	 /* to be carried out */
	POOL_REMEMBERED, /* has an outcome */
	POOL_UPLOADING,	 /* its upload is in flight */
	POOL_STALE,	 /* acknowledged before, or from a client that is not known any more */
	POOL_TOO_MANY,	 /* more than POOL_WINDOW above what is acknowledged */
};

/* Returns the slot, or -ENOENT. */
int pool_client_find(const struct pool_core *core, const uint64_t id[2]);
uint64_t pool_client_who(const struct pool_core *core, uint32_t slot);
int pool_client_add(struct pool_core *core,
		    struct pool_who *who); /* sets who->slot; -ENOSPC, -EUSERS */
void pool_client_remove(struct pool_core *core, uint32_t slot);
uint64_t pool_client_room(const struct pool_core *core); /* free slots */
/* Returns the highest sequence number that the client in this slot has used. */
uint64_t pool_client_last(const struct pool_core *core, uint32_t slot);
/*
 * acknowledged: as in the request. A request that was carried out is never carried out again, whatever
 * `acknowledged` is.
 */
enum pool_seen pool_client_seen(const struct pool_core *core, const struct pool_who *who,
				uint64_t sequence, uint64_t acknowledged,
				struct pool_result *result);
/* Stores the outcome, and what was acknowledged. */
void pool_client_remember(struct pool_core *core, const struct pool_who *who,
			  const struct pool_result *result, uint64_t acknowledged);
unsigned int pool_client_uploads(const struct pool_core *core, const struct pool_who *who);

/* ---- wire.c -------------------------------------------------------------------- */

/* Operations beside enum stag_pool_op, between the client library and nodes. */
enum pool_op {
	POOL_OP_ATTACH =
		64, /* the first request of a client, without a name. version 1: it was attached before; ESTALE if it is not known */
	POOL_OP_DETACH, /* the client needs its outcomes no more */
	POOL_OP_LIST,	/* names from version (a cursor) on; the answer has as many as fit */
	POOL_OP_NODES,	/* query of the members: the answer's bytes are struct node_status */
	POOL_OP_SWITCH, /* the node of this name is to become primary */
	POOL_OP_FORGET, /* the node of this name is to be removed from the roll */
	POOL_OP_FRESH, /* query whether the node is still primary; answered only within its lease */
	POOL_OP_STAGING, /* never requested: announces slots that the client may write to (protocol.h) */
	POOL_OP_ENROL, /* the client gets a slot for the outcomes of its changes, unless it has one */
	POOL_OP_EVENTS, /* query of the nodes' logs after version (an id): the answer's bytes are struct node_event */
	POOL_OP_MAX,
};

enum pool_request_flags {
	POOL_HAS_VALUE = 1 << 0,
	POOL_HAS_PTR = 1 << 1,
	POOL_COMPARE = 1 << 2,	 /* only if the object's version is `version` */
	POOL_EXCLUSIVE = 1 << 3, /* put: only if the name does not exist */
	POOL_UPLOADED = 1 << 4,	 /* set by nodes: the value was uploaded under this sequence */
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
	POOL_DO_ENROL,	/* likewise */
	POOL_DO_DETACH, /* likewise */
	POOL_DO_READ,	/* of a value */
	POOL_DO_LIST,
	POOL_DO_NODES,
	POOL_DO_EVENTS,
	POOL_DO_ADMINISTER,
	POOL_DO_FRESH,
};

/* What an operation reaches that a user's prefixes can limit. */
enum pool_reach {
	POOL_REACH_NOTHING, /* no value and no name of one */
	POOL_REACH_NAME,    /* the value of the request's name */
	POOL_REACH_PTR,	    /* the value of the request's pointer */
	POOL_REACH_NEW,	    /* a new value without a name */
	POOL_REACH_NAMES,   /* all names */
};

struct pool_operation {
	const char *name; /* NULL: there is no such operation */
	uint8_t takes;	  /* operands: enum pool_takes */
	uint8_t flags;	  /* enum pool_request_flags that are allowed */
	uint8_t rights;	  /* STAG_POOL_RIGHT_* that the user needs */
	uint8_t reach;	  /* enum pool_reach */
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

/* Returns the operation that STAG_POOL_IMPLICIT stands for, by its operands, or STAG_POOL_IMPLICIT if there is none. */
uint8_t pool_op_implied(bool has_value, bool has_ptr);
uint32_t pool_op_needs(uint8_t op); /* rights; all bits for an unknown operation */
const char *pool_op_name(uint8_t op);

/* The place of a value; in a read, its destination. */
enum pool_source {
	POOL_SOURCE_INLINE, /* in the message */
	POOL_SOURCE_STAGED, /* in the client's slice of the staging memory, at address, which the node checks */
	POOL_SOURCE_PULL, /* in the client's memory: address, key */
};

struct pool_request {
	uint8_t op; /* enum stag_pool_op or enum pool_op; never STAG_POOL_IMPLICIT once decoded */
	uint8_t flags;
	uint8_t source;
	uint16_t name_length;
	uint32_t key;	 /* of source_address */
	uint32_t length; /* of the value, or of the room for it */
	uint64_t source_address;
	uint64_t sequence, acknowledged;
	uint64_t version;
	struct stag_pool_ptr ptr;
	const char *name;
	const void
		*value; /* must not change while the request is carried out; NULL: not here yet */
	/* Not on the wire: */
	uint64_t hash;			/* of the body, with POOL_UPLOADED */
	const struct pool_scope *scope; /* of the user; NULL: everything */
};

struct pool_answer {
	uint64_t sequence;
	uint64_t
		version; /* of the object; in POOL_OP_LIST the next cursor, 0 at the end. A page may be empty before the end */
	uint32_t status; /* errno value */
	uint8_t op;
	uint32_t length; /* of bytes */
	struct stag_pool_ptr ptr;
	const void *bytes; /* of a read, get, list or nodes */
	/* Not on the wire: the answer is sent when this record is applied. */
	uint64_t after;
};

enum pool_message_kind {
	POOL_MESSAGE_REQUESTS = 1,
	POOL_MESSAGE_ANSWERS,
	POOL_MESSAGE_NODE, /* between nodes (link.h) */
	POOL_MESSAGE_KINDS,
};

struct pool_message {
	uint8_t kind;
	uint16_t count;	 /* of requests or answers */
	uint32_t length; /* bytes, including its header */
	uint64_t epoch;
};

#define POOL_MESSAGE_HEADER 16u
#define POOL_REQUEST_HEADER 72u
#define POOL_ANSWER_HEADER  56u

/* Write at `at`, from *used on, which advances; it begins as 0. -ENOBUFS: no room. */
int pool_message_start(void *at, size_t room, size_t *used, uint8_t kind, uint64_t epoch);
int pool_message_request(void *at, size_t room, size_t *used, const struct pool_request *request);
int pool_message_answer(void *at, size_t room, size_t *used, const struct pool_answer *answer);
/* Adds bytes to a message between nodes that are in place already. Returns its length, or -ENOBUFS. */
int pool_message_extend(void *at, size_t room, size_t *used, size_t more);

/* Read from *where on, which advances; it begins as 0. -EBADMSG. Names and values stay in the message. */
int pool_message_read(const void *at, size_t length, size_t *where, struct pool_message *message);
int pool_request_read(const void *at, size_t length, size_t *where, struct pool_request *request);
int pool_answer_read(const void *at, size_t length, size_t *where, struct pool_answer *answer);

/* ---- scope.c --------------------------------------------------------------------- */

/* The prefixes to which the names that a user may use are limited. */
struct pool_scope {
	unsigned int count;
	char prefixes[POOL_MAX_PREFIXES][POOL_MAX_NAME + 1];
};

/* Returns whether the name is in the scope; NULL has all names. */
bool pool_scope_has(const struct pool_scope *scope, const char *name, size_t length);
/* The same for a value: one without a name is in no scope. */
bool pool_scope_has_stored(const struct pool_scope *scope, const struct pool_stored *stored);
/* Returns whether the request's scope allows it, as far as its name and operation tell; pointers are checked with what they lead to. */
bool pool_scope_allows(const struct pool_request *request);
/* Returns whether the request's pointer leads to a value that is outside of its scope, in the region as it is. */
bool pool_scope_hides(const struct pool_region *r, const struct pool_request *request);

/* ---- ops.c, upload.c ------------------------------------------------------------- */

/*
 * Judges a request that changes something, and makes a record of it. Returns 0 if the answer is valid: it is
 * sent when record answer->after is applied; *used is the length of the record that was made at `at`, or 0 if
 * none was needed. Returns -EAGAIN if too much is ahead, or there is too little room (POOL_RECORD_META + the
 * value is needed): retry when records have been settled. -EINVAL: no change, or its value is missing.
 * -ENOBUFS: an internal error.
 */
int pool_change(struct pool_core *core, struct pool_who *who, const struct pool_request *request,
		void *at, size_t room, size_t *used, struct pool_answer *answer);

/* Forgets the client in this slot, which was not seen for long. Returns as pool_change(). */
int pool_expire(struct pool_core *core, uint32_t slot, void *at, size_t room, size_t *used);

/*
 * Overwrites a part of a deleted long value, with core->overwrite: long values are not overwritten at once, because
 * that would take longer than a lease. To be called as long as it makes records (*used).
 */
int pool_scrub(struct pool_core *core, void *at, size_t room, size_t *used);

/* Makes a record that changes nothing but the number: marks the beginning of an epoch. */
int pool_mark(struct pool_core *core, void *at, size_t room, size_t *used);

/* Applies a record of this core that all standbys have. An error is internal, or the memory is damaged. */
int pool_settle(struct pool_core *core, const void *record, size_t room,
		const struct pool_staging *staging);

/*
 * Uploads a value longer than POOL_DIRECT_MAX: a record allocates its body, others fill it, in any order, with at
 * most POOL_DIRECT_MAX bytes each, and pool_change() with POOL_UPLOADED and the body's hash makes it a value. A
 * retry of the same sequence starts again in the same place. pool_upload_begin(): the answer's status is
 * EINPROGRESS, and its ptr.address the body; any other status is the outcome.
 */
int pool_upload_begin(struct pool_core *core, const struct pool_who *who,
		      const struct pool_request *request, void *at, size_t room, size_t *used,
		      struct pool_answer *answer);
/* -ESTALE: there is no such upload; -EINVAL: out of its bounds; -EAGAIN. */
int pool_upload_bytes(struct pool_core *core, const struct pool_who *who, uint64_t sequence,
		      uint64_t offset, const void *bytes, uint32_t length, void *at, size_t room,
		      size_t *used);
/*
 * Returns the place of these bytes in the region, for a caller that writes them without a record, on every node.
 * Errors as above.
 */
int pool_upload_find(const struct pool_core *core, const struct pool_who *who, uint64_t sequence,
		     uint64_t offset, uint32_t length, uint64_t *to);

/* The same for a whole staged value of at most POOL_STAGED_MAX bytes. */
int pool_upload_staged(struct pool_core *core, const struct pool_who *who, uint64_t sequence,
		       uint32_t length, const struct pool_staged *staged, void *at, size_t room,
		       size_t *used);

/* ---- look.c ---------------------------------------------------------------------- */

/*
 * Serves READ and GET from the region as it is, which has every acknowledged change. The answer's bytes are in the
 * region. Bodies are not hashed: that takes long, and they never change.
 */
void pool_look(const struct pool_region *r, const struct pool_request *request,
	       struct pool_answer *answer);

/* An entry of a list of names; the name follows, padded to 8. */
struct pool_listed {
	struct stag_pool_ptr ptr;
	uint64_t version;
	uint64_t cursor; /* names after this entry are listed from here */
	uint16_t name_length;
	uint16_t reserved[3];
};

/* Serves LIST: as many names as have room at `to`. Returns how many entries of the index it has examined. */
uint32_t pool_list(const struct pool_region *r, const struct pool_request *request, void *to,
		   size_t room, struct pool_answer *answer);

#define POOL_LOG_MIN (1u << 20) /* bytes: room for three of the longest records */

/* ---- ring.c -------------------------------------------------------------------- */

/*
 * The primary's log: a ring with the same bytes at the same places as in each standby's memory. Records are built
 * in place, and never wrap: a record with POOL_RECORD_SKIP, or less than a header's room, is left after the last
 * one that fits. Positions count bytes since this node became primary, and never wrap.
 */
struct pool_log {
	uint8_t *at;
	uint64_t size; /* a power of two, POOL_LOG_MIN or more */
	uint64_t put;  /* position of the next record */
	uint64_t tail; /* position before which nothing is needed any more */
};

/* Returns contiguous room for a record of at most `need` bytes, or NULL if older records must be released first. */
void *pool_log_room(struct pool_log *log, size_t need, uint64_t number, uint64_t epoch);
void pool_log_add(struct pool_log *log, size_t length); /* adds the record that was built there */

/* The bytes [from, to) as at most two segments of the ring. */
struct pool_segment {
	uint64_t offset, length;
};
int pool_log_segments(uint64_t size, uint64_t from, uint64_t to, struct pool_segment segments[2]);

/* A standby's ring, written by its primary. */
struct pool_ring {
	const uint8_t *at;
	uint64_t size;
	uint64_t get; /* position before which everything has been applied */
};

/*
 * Applies whole records, at most `most`. Returns how many, 0 if none is there, or, if the first one fails, -EILSEQ,
 * -EBADMSG or -EPROTO as pool_record_apply(); the ring stops before that record.
 */
int pool_ring_drain(struct pool_ring *ring, struct pool_region *r,
		    const struct pool_staging *staging, unsigned int most);

#endif
