// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_store.c - arbitrary tables of a store, and messages between its peers.
 *
 * The first byte chooses the property below that the rest is for, the second the copy of a table. A
 * fuzzer cannot guess checksums; where it says "sealed" they are corrected, and the rest of the
 * header is zero.
 */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "store/endpoint.h"

enum { RAW, SEALED, ON_DISK, HELLO, WELCOME, REFUSAL, WHERE, KINDS };

#define HEADER_USED	148 /* bytes before the table of a sealed input */
#define AT_TABLE_LENGTH 136
#define AT_TABLE_CRC	140
#define AT_HEADER_CRC	4092

static struct table table, again;

static bool take_any(void *arg, uint64_t offset, uint64_t size)
{
	return true;
}

/* A decoded table can be changed, and is decoded again as it was written. */
static void use(struct table *t, struct input *in)
{
	static uint8_t image[DISK_IMAGE_MAX];
	struct stag_store_partition p = {.name = "~", .size = take(in, 2) * t->block};
	size_t len;

	memcpy(p.name, "new", 4);
	if (in->len % 2)
		p.offset = take(in, 8);
	if (t->n < STAG_STORE_MAX_PARTITIONS && t->next_id < STORE_ID_MAX &&
	    !table_find(t, p.name) && table_place(t, &p, take_any, NULL) == 0) {
		p.id = t->next_id++;
		table_insert(t, &p);
		CHECK(table_check(t) == 0);
		CHECK(table_find_id(t, p.id) == table_find(t, "new"));
	} else if (t->n > 0) {
		table_delete(t, &t->entries[take(in, 1) % t->n]);
		CHECK(table_check(t) == 0);
	}
	CHECK(table_used(t) + table_largest_gap(t) <= t->size);
	len = disk_encode(t, 1, image);
	CHECK(disk_decode(image, len, 1, &again) == 0);
	CHECK(table_is_same(t, &again));
}

static void decode(const uint8_t *image, size_t len, unsigned int copy, struct input *in)
{
	static uint8_t written[DISK_IMAGE_MAX];
	int rc = disk_decode(image, len, copy, &table);

	if (rc != 0) {
		CHECK(rc == -ENODATA || rc == -EPROTO || rc == -EBADMSG);
		CHECK(*stag_store_error());
		return;
	}
	CHECK(table_check(&table) == 0);
	CHECK(disk_encode(&table, copy, written) <= len);
	CHECK(memcmp(written, image, DISK_HEADER + table.n * DISK_ENTRY) == 0);
	use(&table, in);
}

/* A block of its own, so that a sanitizer detects accesses past its end. */
static uint8_t *seal(const uint8_t *p, size_t size, size_t *len)
{
	size_t head = size < HEADER_USED ? size : HEADER_USED, body = size - head;
	uint8_t *image = calloc(1, DISK_HEADER + body);
	uint32_t length;

	CHECK(image);
	memcpy(image, p, head);
	memcpy(image + DISK_HEADER, p + head, body);
	memcpy(&length, image + AT_TABLE_LENGTH, sizeof(length));
	length = le32toh(length);
	if (length <= body)
		crc32c_put(image + AT_TABLE_CRC,
			   crc32c_update(CRC32C_INIT, image + DISK_HEADER, length));
	crc32c_put(image + AT_HEADER_CRC, crc32c_update(CRC32C_INIT, image, AT_HEADER_CRC));
	*len = DISK_HEADER + body;
	return image;
}

/* A store that check has repaired can be opened, whatever it was. */
static void on_disk(const uint8_t *image, size_t len, unsigned int copy)
{
	struct stag_store_partition p = {.name = "new", .size = 65536};
	int fd = memfd_create("store", MFD_CLOEXEC);
	struct stag_store *store;
	char path[64];

	CHECK(fd >= 0);
	if (len > DISK_COPY)
		len = DISK_COPY;
	CHECK(ftruncate(fd, 2 * DISK_COPY + 4096) == 0);
	CHECK(pwrite(fd, image, len, (off_t)copy * DISK_COPY) == (ssize_t)len);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (stag_store_check(path, STAG_STORE_REPAIR, NULL) >= 0) {
		store = stag_store_open(path, 0);
		CHECK(store);
		CHECK(commit_good_copies(&store->now) == 2);
		stag_store_add(store, &p);
		stag_store_close(store);
	}
	close(fd);
}

/* ---- between peers ---- */

/* An accepted hello is one that a client could have made, byte for byte. */
static void hello(const uint8_t *bytes, size_t len)
{
	struct stag_store_hello h, made;
	const uint8_t *shown;
	int rc = hello_read(bytes, len, &h, &shown);

	CHECK(rc == 0 || rc == -EPROTO);
	if (rc != 0)
		return;
	CHECK(hello_make(&made, "goods", shown) == 0);
	memcpy(made.partition, h.partition, sizeof(made.partition));
	CHECK(memcmp(&made, bytes, sizeof(made)) == 0);
}

/* An invalid welcome changes nothing; no sum of a valid one overflows. */
static void welcome(const uint8_t *bytes, size_t len)
{
	struct stag_store_endpoint e = {.rkey = 7}, other = e;
	struct stag_store_welcome w, again_w;
	int rc = welcome_read(bytes, len, &e);

	CHECK(rc == 0 || rc == -EPROTO);
	if (rc != 0) {
		CHECK(e.rkey == 7 && e.size == 0 && e.block == 0);
		return;
	}
	CHECK(e.base + e.size >= e.base && e.block > 0);
	welcome_make(&w, &e);
	CHECK(welcome_read(&w, sizeof(w), &other) == 0);
	welcome_make(&again_w, &other);
	CHECK(memcmp(&w, &again_w, sizeof(w)) == 0);
}

static void refusal(const uint8_t *bytes, size_t len)
{
	int rc = refusal_read(bytes, len, "somewhere");

	CHECK(rc == -EACCES || rc == -ENOENT || rc == -EPROTO || rc == -ECONNREFUSED || rc == -EIO);
	CHECK(strstr(stag_store_error(), "somewhere"));
}

static void where(const uint8_t *bytes, size_t len)
{
	static struct where w;
	char *text = malloc(len + 1);
	int rc;

	CHECK(text);
	memcpy(text, bytes, len);
	text[len] = '\0';
	memset(&w, 0xff, sizeof(w));
	rc = where_parse(text, &w);
	CHECK(rc == 0 || rc == -EINVAL);
	if (rc == 0) {
		CHECK(strnlen(w.partition, sizeof(w.partition)) < sizeof(w.partition));
		CHECK(w.local ? strnlen(w.path, sizeof(w.path)) < sizeof(w.path)
			      : strnlen(w.host, sizeof(w.host)) < sizeof(w.host));
	}
	free(text);
}

/* ---- */

static void from_disk(unsigned int kind, struct input *in)
{
	unsigned int copy = (unsigned int)take(in, 1) % 2;
	struct input rest = *in;
	size_t len = in->len;
	uint8_t *image = kind == RAW ? copy_of(in->p, in->len) : seal(in->p, in->len, &len);

	if (kind == ON_DISK)
		on_disk(image, len, copy);
	else
		decode(image, len, copy, &rest);
	free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const said[])(const uint8_t *bytes, size_t len) = {
		[HELLO] = hello, [WELCOME] = welcome, [REFUSAL] = refusal, [WHERE] = where};
	struct input in = {data, size};
	unsigned int kind = (unsigned int)take(&in, 1) % KINDS;
	uint8_t *bytes;

	if (kind < HELLO) {
		from_disk(kind, &in);
		return 0;
	}
	bytes = copy_of(in.p, in.len);
	said[kind](bytes, in.len);
	free(bytes);
	return 0;
}
