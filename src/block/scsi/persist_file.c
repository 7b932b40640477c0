// SPDX-License-Identifier: BSD-2-Clause
/*
 * persist_file.c - persistent reservations that survive a restart of the target (APTPL): a file for each unit.
 *
 *     stag reservations 1
 *     unit 9f3c0a7d12e4b856
 *     type 5
 *     registrant 00000000deadbeef 1 iqn.2026-01.example:db,i,0x80000000abcd        key, holds, name
 *     crc 5d2a91c3                                                                  of all bytes before
 *
 * The name of the file is made of the unit's identifier and a hash of the target's name: two targets may serve one object, and
 * each has reservations of its own. The file is replaced atomically, by the helper thread of the units, before
 * the command that changed the reservations ends. A file that is damaged is an error: the unit is not served, rather than without
 * the reservations that others rely on.
 */
#include "block/scsi/ops.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/file.h"

#define HEAD	  "stag reservations 1\n"
#define NAME_LEN  64
#define CRC_LINE  "crc %08x\n"
#define CRC_LEN	  13
#define FILE_MOST (64u << 10)

/* A file to be written: in the buffer of the command, which is as long. */
struct save {
	int dir;
	int *result; /* set by the helper thread, before the operation ends */
	char name[NAME_LEN];
	size_t len;
	char text[];
};

static void make_name(const struct scsi_unit *u, char name[NAME_LEN])
{
	const uint8_t *id = lun_facts(u->lun)->naa;
	int n = snprintf(name, NAME_LEN, "reservations-");

	for (int i = 0; i < 16; i++)
		n += snprintf(name + n, (size_t)(NAME_LEN - n), "%02x", id[i]);
	snprintf(name + n, (size_t)(NAME_LEN - n), "-%016" PRIx64, u->target->name_hash);
}

static uint32_t crc_of(const char *text, size_t len)
{
	return ~crc32c_update(CRC32C_INIT, text, len);
}

/* ---- saving --------------------------------------------------------------------------- */

/* Prints at the end, if there is room: the registrants are limited so that there is. */
__attribute__((format(printf, 2, 3))) static void put(struct save *s, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	s->len += (size_t)vsnprintf(s->text + s->len, FILE_MOST - s->len, fmt, args);
	va_end(args);
}

static int write_file(void *arg)
{
	const struct save *s = arg;

	return *s->result = file_replace(s->dir, s->name, s->text, s->len, 0600);
}

enum scsi_next scsi_persist_save(struct scsi_cmd *c)
{
	struct scsi_unit *u = c->at;
	const struct scsi_persist *p = &u->persist;
	struct save *s = (struct save *)c->data;
	enum scsi_next next = scsi_work(c, LUN_CALL, 0, 0);

	u->save_result = -ECANCELED; /* the unit may fail before it calls write_file() */
	s->dir = u->target->dir;
	s->result = &u->save_result;
	s->len = 0;
	make_name(u, s->name);
	put(s, HEAD "unit %s\ntype %u\n", lun_facts(u->lun)->serial, p->lasting ? p->type : 0u);
	for (uint32_t i = 0; p->lasting && i < p->n; i++)
		put(s, "registrant %016" PRIx64 " %d %s\n", p->list[i].key, p->list[i].holds,
		    p->list[i].name);
	put(s, CRC_LINE, crc_of(s->text, s->len));
	c->io.call = write_file;
	c->io.arg = s;
	return next;
}

/* ---- loading -------------------------------------------------------------------------- */

/* Checks the last line, and cuts it off. */
static bool check_crc(char *text, size_t len)
{
	char *line = len > CRC_LEN ? text + len - CRC_LEN : NULL, want[CRC_LEN + 1];

	if (!line)
		return false;
	snprintf(want, sizeof(want), CRC_LINE, crc_of(text, (size_t)(line - text)));
	if (memcmp(line, want, CRC_LEN) != 0)
		return false;
	*line = '\0';
	return true;
}

static bool read_registrant(struct scsi_unit *u, const char *line)
{
	char name[SCSI_NAME_MAX];
	uint64_t key;
	int holds;

	return sscanf(line, "registrant %16" SCNx64 " %d %247s", &key, &holds, name) == 3 &&
	       (holds == 0 || holds == 1) && scsi_persist_restore(u, name, key, holds);
}

static bool read_lines(struct scsi_unit *u, char *text)
{
	char *save, *line = strtok_r(text, "\n", &save);
	unsigned int type;

	if (!line || strcmp(line, "stag reservations 1") != 0)
		return false;
	line = strtok_r(NULL, "\n", &save);
	if (!line || strncmp(line, "unit ", 5) != 0 ||
	    strcmp(line + 5, lun_facts(u->lun)->serial) != 0)
		return false;
	line = strtok_r(NULL, "\n", &save);
	if (!line || sscanf(line, "type %u", &type) != 1 || !scsi_persist_is_type((uint8_t)type))
		return false;
	u->persist.type = (uint8_t)type;
	while ((line = strtok_r(NULL, "\n", &save)))
		if (!read_registrant(u, line))
			return false;
	u->persist.lasting = u->persist.n > 0;
	return type == 0 || u->persist.n > 0;
}

int scsi_persist_load(struct scsi_unit *u)
{
	char name[NAME_LEN], *text;
	ssize_t len;
	bool good;

	if (u->target->dir < 0)
		return 0;
	make_name(u, name);
	text = malloc(FILE_MOST);
	len = text ? file_read(u->target->dir, name, text, FILE_MOST) : -ENOMEM;
	good = len >= 0 && check_crc(text, (size_t)len) && read_lines(u, text);
	free(text);
	if (good || len == -ENOENT)
		return 0;
	if (len < 0 && len != -EFBIG)
		return block_fail((int)-len, "LUN %u: cannot read its reservations, %s: %s",
				  u->number, name, strerror((int)-len));
	return block_fail(
		EBADMSG,
		"LUN %u: the file of its reservations, %s in the state directory, is damaged; "
		"restore it, or remove it to give them up",
		u->number, name);
}
