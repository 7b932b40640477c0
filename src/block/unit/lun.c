// SPDX-License-Identifier: BSD-2-Clause
/*
 * lun.c - a logical unit: opens its backing, and describes it to initiators.
 *
 * A partition of a store is used by stag_store_connect(), as in any program: the store decides on its rights, size and cache,
 * and may change them at any time. A file or a block device is opened exclusively, and used through the adapter's own calls.
 */
#include "block/unit/lun.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_BLOCK	512
#define DEFAULT_PRODUCT "stag block"
#define FILE_BLOCK	4096	   /* the block of a file system, and a page */
#define STAGING_BYTES	(4u << 20) /* of a medium, for unaligned requests */
#define ALL_RELAX                                                                                  \
	(STAGDV_RELAX_WRITES | STAGDV_RELAX_READS | STAGDV_RELAX_LATER | STAGDV_RELAX_ATOMICS |    \
	 STAGDV_RELAX_COMPLETIONS)

/* ---- names ------------------------------------------------------------------------ */

/* FNV-1a */
static uint64_t hash(const char *text, uint64_t h)
{
	for (; *text; text++)
		h = (h ^ (uint8_t)*text) * 0x100000001b3u;
	return h ^ h >> 29;
}

#define HASH_START 0xcbf29ce484222325u

/* NAA 6 requires a company ID: this one is locally administered, which IEEE assigns to no company. */
static void make_naa(struct lun_facts *f)
{
	uint64_t a = hash(f->serial, HASH_START), b = hash(f->serial, ~a);

	f->naa[0] = 0x60;
	f->naa[1] = 0x25;
	f->naa[2] = 0x35;
	f->naa[3] = (uint8_t)(0x40 | (b & 0x0f));
	for (int i = 0; i < 4; i++)
		f->naa[4 + i] = (uint8_t)(b >> (8 * i + 8));
	for (int i = 0; i < 8; i++)
		f->naa[8 + i] = (uint8_t)(a >> 8 * i);
}

/* Derives a serial number from an identity that does not change while the backing exists. */
static void make_serial(struct lun *l, const char *identity)
{
	uint64_t a = hash(identity, HASH_START);

	snprintf(l->facts.serial, sizeof(l->facts.serial), "%016llx", (unsigned long long)a);
}

static bool is_printable(const char *text)
{
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			return false;
	return true;
}

/* Names the unit after its partition or file, as far as there is room. */
static void name_after_backing(const struct lun *l, char product[17])
{
	const char *last = strrchr(l->where, l->fd < 0 ? ':' : '/');
	const char *name = last ? last + 1 : l->where;

	snprintf(product, 17, "%.16s", is_printable(name) && *name ? name : DEFAULT_PRODUCT);
}

static int set_names(struct lun *l, const struct stag_block_lun *attr)
{
	struct lun_facts *f = &l->facts;
	char own[sizeof(f->product)];
	const char *product = attr->product ? attr->product : own;

	name_after_backing(l, own);
	if (strlen(product) >= sizeof(f->product) || !is_printable(product))
		return block_fail(
			EINVAL,
			"LUN %u: the product name must have 1 to %zu printable ASCII characters",
			attr->lun, sizeof(f->product) - 1);
	if (attr->serial && (!*attr->serial || strlen(attr->serial) >= sizeof(f->serial) ||
			     !is_printable(attr->serial)))
		return block_fail(
			EINVAL,
			"LUN %u: the serial number must have 1 to %zu printable ASCII characters",
			attr->lun, sizeof(f->serial) - 1);
	strcpy(f->product, product);
	if (attr->serial)
		strcpy(f->serial, attr->serial);
	make_naa(f);
	return 0;
}

/* ---- queue pairs -------------------------------------------------------------------- */

static struct ibv_qp_init_attr qp_attr(const struct units *u)
{
	return (struct ibv_qp_init_attr){
		.send_cq = u->cq,
		.recv_cq = u->cq,
		.cap = {.max_send_wr = LUN_DEPTH,
			.max_send_sge = LUN_MAX_IOV,
			.max_recv_wr = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
}

static int connect_file(struct lun *l)
{
	struct ibv_qp_init_attr attr = qp_attr(l->u);
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct stagdv_store_qp_attr store = {.relax = ALL_RELAX};
	int rc;

	l->qp = ibv_create_qp(l->u->pd, &attr);
	if (!l->qp)
		return block_fail(errno, "%s: cannot create a queue pair: %s", l->where,
				  strerror(errno));
	rc = ibv_modify_qp(l->qp, &init,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (rc == 0)
		rc = l->u->dv->connect(l->qp, &store);
	if (rc != 0)
		return block_fail(rc, "%s: cannot connect a queue pair: %s", l->where,
				  strerror(rc));
	l->rkey = l->mr->rkey;
	return 0;
}

static int connect_partition(struct lun *l)
{
	struct stag_store_connect_attr attr = {.qp = qp_attr(l->u),
					       .pd = l->u->pd,
					       .relax = ALL_RELAX,
					       .level = STAG_STORE_VISIBLE,
					       .flags = STAG_STORE_HAS_LEVEL};
	int error;

	l->endpoint = stag_store_connect(l->where, &attr);
	error = errno;
	if (!l->endpoint)
		return block_fail(error, "%s", stag_store_error());
	if (l->endpoint->id)
		return block_fail(EINVAL, "%s: not a partition on this machine; use PATH:PARTITION",
				  l->where);
	l->qp = l->endpoint->qp;
	l->rkey = l->endpoint->rkey;
	l->no_writes = l->endpoint->access != STAG_STORE_WRITE;
	return 0;
}

static void disconnect(struct lun *l)
{
	if (l->endpoint)
		stag_store_disconnect(l->endpoint);
	else if (l->qp)
		ibv_destroy_qp(l->qp);
	l->endpoint = NULL;
	l->qp = NULL;
}

/* Compares ids: a new partition that got the same name is not this unit. */
static int is_same_partition(struct lun *l)
{
	struct stag_store_partition p;
	uint32_t index = 0;

	HOLD_FOR_SCOPE(&l->table_lock);
	while (stag_store_next(l->store, &index, &p))
		if (p.id == l->id)
			return strcmp(strrchr(l->where, ':') + 1, p.name) == 0 ? 0 : -ENODEV;
	return -ENODEV;
}

int lun_reconnect(struct lun *l)
{
	int rc;

	disconnect(l);
	if (l->fd >= 0)
		return connect_file(l);
	rc = is_same_partition(l);
	if (rc != 0)
		return block_fail(ENODEV, "%s: the partition was removed", l->where);
	rc = connect_partition(l);
	if (rc != 0)
		disconnect(l);
	return rc;
}

/* ---- partitions ------------------------------------------------------------------------- */

static int describe_partition(struct lun *l, const char *name)
{
	struct stag_store_partition p;
	struct stag_store_info info;
	char identity[64];
	int rc = stag_store_find(l->store, name, &p);

	if (rc == 0)
		rc = stag_store_query(l->store, &info, sizeof(info));
	if (rc != 0)
		return block_fail(rc, "%s", stag_store_error());
	l->id = p.id;
	l->facts.size = p.size / l->facts.block * l->facts.block;
	l->facts.physical = info.block;
	for (int i = 0; i < 16; i++)
		snprintf(identity + 2 * i, 3, "%02x", info.uuid[i]);
	snprintf(identity + 32, sizeof(identity) - 32, "/%llu", (unsigned long long)p.id);
	make_serial(l, identity);
	return 0;
}

static int open_partition(struct lun *l)
{
	const char *colon = strrchr(l->where, ':');
	char path[PATH_MAX];
	int rc;

	if (!colon || (size_t)(colon - l->where) >= sizeof(path))
		return block_fail(ENOENT, "%s: no such file, and not of the form PATH:PARTITION",
				  l->where);
	snprintf(path, sizeof(path), "%.*s", (int)(colon - l->where), l->where);
	l->store = stag_store_open(path, STAG_STORE_LOOK);
	if (!l->store)
		return block_fail(errno, "%s", stag_store_error());
	l->sync_fd = open(path, O_RDONLY | O_CLOEXEC);
	rc = describe_partition(l, colon + 1);
	if (rc == 0)
		rc = connect_partition(l);
	l->facts.read_only |= l->no_writes;
	return rc;
}

static int partition_size(struct lun *l, uint64_t *size)
{
	struct stag_store_partition p;
	uint32_t index = 0;

	HOLD_FOR_SCOPE(&l->table_lock);
	while (stag_store_next(l->store, &index, &p)) {
		if (p.id != l->id)
			continue;
		*size = p.size;
		return 0;
	}
	return -ENODEV;
}

/* ---- files and devices -------------------------------------------------------------------- */

static int file_size(struct lun *l, uint64_t *size)
{
	struct stat st;

	if (l->is_device)
		return ioctl(l->fd, BLKGETSIZE64, size) == 0 ? 0 : -errno;
	if (fstat(l->fd, &st) != 0)
		return -errno;
	*size = (uint64_t)st.st_size;
	return 0;
}

/* Protects a store from being served, and overwritten, as a plain file. */
static bool is_store(const char *path)
{
	struct stag_store *s = stag_store_open(path, STAG_STORE_LOOK);

	stag_store_close(s);
	return s;
}

static int open_path(struct lun *l)
{
	int mode = l->facts.read_only ? O_RDONLY : O_RDWR;

	if (is_store(l->where))
		return block_fail(EINVAL,
				  "%s: is a store; use one of its partitions: PATH:PARTITION",
				  l->where);
	l->fd = open(l->where, mode | O_CLOEXEC | (l->is_device && mode == O_RDWR ? O_EXCL : 0));
	if (l->fd < 0)
		return block_fail(errno, "%s: %s", l->where, strerror(errno));
	if (flock(l->fd, LOCK_NB | (l->facts.read_only ? LOCK_SH : LOCK_EX)) != 0)
		return block_fail(EBUSY, "%s: in use by another process", l->where);
	return 0;
}

static uint32_t physical_block(const struct lun *l)
{
	unsigned int block = 0;

	if (!l->is_device)
		return FILE_BLOCK;
	return ioctl(l->fd, BLKPBSZGET, &block) == 0 ? block : 0;
}

/* Registers the file, without a partial block of the medium at its end. */
static int register_file(struct lun *l)
{
	struct stagdv_medium_attr medium = {
		.fd = l->fd, .staging_bytes = STAGING_BYTES, .depth = LUN_DEPTH};
	struct stagdv_store_attr attr = {
		.access = IBV_ACCESS_REMOTE_READ |
			  (l->facts.read_only ? 0 : IBV_ACCESS_REMOTE_WRITE)};

	l->medium = l->u->dv->open_medium(l->u->context, &medium);
	if (!l->medium)
		return block_fail(errno, "%s: cannot be used as a medium: %s", l->where,
				  strerror(errno));
	for (uint64_t unit = l->facts.block; unit <= FILE_BLOCK && !l->mr; unit *= 2) {
		attr.length = l->facts.size / unit * unit;
		l->mr = l->u->dv->reg_mr(l->u->pd, l->medium, &attr);
	}
	if (!l->mr)
		return block_fail(errno, "%s: cannot be registered as a memory region: %s",
				  l->where, strerror(errno));
	l->facts.size = attr.length;
	return 0;
}

static int open_file(struct lun *l, bool is_device)
{
	char path[PATH_MAX];
	uint64_t size;
	int rc;

	l->is_device = is_device;
	rc = open_path(l);
	if (rc == 0)
		rc = file_size(l, &size);
	if (rc != 0)
		return rc;
	l->facts.size = size / l->facts.block * l->facts.block;
	l->facts.physical = physical_block(l);
	l->facts.discards = l->punches = !l->facts.read_only;
	l->sync_fd = l->fd;
	make_serial(l, realpath(l->where, path) ? path : l->where);
	rc = register_file(l);
	if (rc == 0)
		rc = connect_file(l);
	if (rc == 0)
		lun_map(l);
	return rc;
}

/* ---- a unit ---------------------------------------------------------------------------------- */

static int check_attr(const struct stag_block_lun *a)
{
	const uint32_t known = STAG_BLOCK_READ_ONLY | STAG_BLOCK_WRITE_BACK;

	if (a->comp_mask || (a->flags & ~known) || !a->where || !*a->where)
		return block_fail(EINVAL, "LUN %u: invalid attributes", a->lun);
	if (a->block && a->block != 512 && a->block != 4096)
		return block_fail(EINVAL, "LUN %u: the block size must be 512 or 4096", a->lun);
	return 0;
}

static struct lun *alloc_lun(struct units *u, const struct stag_block_lun *attr)
{
	struct lun *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->u = u;
	l->state = LUN_UP;
	l->fd = l->sync_fd = -1;
	l->flags = attr->flags;
	l->where = strdup(attr->where);
	l->facts.block = attr->block ? attr->block : DEFAULT_BLOCK;
	l->facts.read_only = attr->flags & STAG_BLOCK_READ_ONLY;
	l->facts.write_back = attr->flags & STAG_BLOCK_WRITE_BACK;
	list_init(&l->active);
	list_init(&l->held);
	list_init(&l->to_post);
	list_init(&l->dirty);
	lock_init(&l->table_lock);
	if (!l->where) {
		free(l);
		return NULL;
	}
	return l;
}

static int open_backing(struct lun *l)
{
	struct stat st;

	if (stat(l->where, &st) != 0)
		return open_partition(l);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return block_fail(EINVAL, "%s: not a regular file or block device", l->where);
	return open_file(l, S_ISBLK(st.st_mode));
}

/* Makes the physical block size a power of two, and at least one block. */
static void fix_physical(struct lun_facts *f)
{
	if (f->physical < f->block || (f->physical & (f->physical - 1)))
		f->physical = f->block;
}

int lun_open(struct units *u, const struct stag_block_lun *attr, struct lun **out)
{
	struct lun *l;
	int rc = check_attr(attr);

	if (rc != 0)
		return rc;
	l = alloc_lun(u, attr);
	if (!l)
		return block_fail(ENOMEM, "out of memory");
	rc = open_backing(l);
	if (rc == 0 && l->facts.size == 0)
		rc = block_fail(EINVAL, "%s: too small for one block", l->where);
	if (rc == 0)
		rc = set_names(l, attr);
	if (rc != 0) {
		lun_close(l);
		return rc;
	}
	fix_physical(&l->facts);
	*out = l;
	return 0;
}

void lun_close(struct lun *l)
{
	if (!l)
		return;
	assert(l->state != LUN_RECONNECTING); /* the helper uses it */
	disconnect(l);
	lun_unmap(l);
	if (l->mr)
		ibv_dereg_mr(l->mr);
	if (l->medium)
		l->u->dv->close_medium(l->medium);
	if (l->sync_fd >= 0 && l->sync_fd != l->fd)
		close(l->sync_fd);
	if (l->fd >= 0)
		close(l->fd);
	stag_store_close(l->store);
	list_del(&l->dirty);
	lock_destroy(&l->table_lock);
	free(l->where);
	free(l);
}

const struct lun_facts *lun_facts(const struct lun *l)
{
	return &l->facts;
}

/* ---- its size --------------------------------------------------------------------------------- */

static int grow_region(struct lun *l, uint64_t size)
{
	struct stagdv_store_attr attr = {.length = size};
	int rc;

	if (l->fd < 0 || size <= l->mr->length)
		return 0;
	rc = l->u->dv->modify_mr(l->mr, &attr, STAGDV_STORE_LENGTH);
	return rc == 0 ? 0
		       : block_fail(rc, "%s: cannot grow to %llu bytes: %s", l->where,
				    (unsigned long long)size, strerror(rc));
}

/* Reads the size of the backing, in whole blocks. */
static int backing_size(struct lun *l, uint64_t *size)
{
	uint64_t unit = l->fd >= 0 ? l->facts.physical : l->facts.block;
	int rc = l->fd >= 0 ? file_size(l, size) : partition_size(l, size);

	if (rc == 0)
		*size = *size / unit * unit;
	return rc;
}

int lun_follow_growth(struct lun *l)
{
	uint64_t size, before = l->seen_size;

	if (backing_size(l, &size) != 0)
		return 0; /* operations will fail, and tell why */
	l->seen_size = size;
	if (size <= l->facts.size || size != before)
		return 0;
	return lun_refresh_size(l) > 0;
}

int lun_refresh_size(struct lun *l)
{
	uint64_t size;
	int rc = backing_size(l, &size);

	if (rc != 0)
		return block_fail(-rc, "%s: cannot read the size: %s", l->where, strerror(-rc));
	if (size == l->facts.size)
		return 0;
	rc = grow_region(l, size);
	if (rc != 0)
		return rc;
	l->facts.size = size;
	lun_map(l);
	return 1;
}
