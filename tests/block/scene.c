// SPDX-License-Identifier: BSD-2-Clause
/*
 * scene.c - see scene.h.
 */
#include "scene.h"

#include <stdio.h>
#include <stdlib.h>

static void hear_all(struct scene *s, struct scsi_nexus *n)
{
	while (go_as(s, n, "00 00 00 00 00 00") != SCSI_GOOD)
		;
}

int open_scene(void **state)
{
	struct scene *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->l = fake_unit((uint64_t)BLOCK * BLOCKS, BLOCK);
	assert_int_equal(scsi_target_create(&s->t), 0);
	assert_int_equal(scsi_target_add(s->t, 0, s->l), 0);
	assert_int_equal(scsi_nexus_create(s->t, "a", NULL, &s->a), 0);
	assert_int_equal(scsi_nexus_create(s->t, "b", NULL, &s->b), 0);
	hear_all(s, s->a);
	hear_all(s, s->b);
	*state = s;
	return 0;
}

int close_scene(void **state)
{
	struct scene *s = *state;

	scsi_nexus_destroy(s->a);
	scsi_nexus_destroy(s->b);
	scsi_target_destroy(s->t);
	fake_free(s->l);
	free(s);
	return 0;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t from_hex(const char *hex, uint8_t *to, size_t room)
{
	size_t n = 0;

	for (; *hex; hex++) {
		if (*hex == ' ')
			continue;
		assert_true(n < room && digit(hex[0]) >= 0 && digit(hex[1]) >= 0);
		to[n++] = (uint8_t)(digit(hex[0]) << 4 | digit(hex[1]));
		hex++;
	}
	return n;
}

static uint8_t carry(struct scene *s, struct scsi_nexus *n, uint64_t lun, const char *cdb)
{
	s->c.nexus = n;
	s->c.lun = lun;
	memset(s->c.cdb, 0, sizeof(s->c.cdb));
	s->c.cdb_len = (uint32_t)from_hex(cdb, s->c.cdb, sizeof(s->c.cdb));
	s->w.in = s->in;
	fake_carry(s->t, &s->c, &s->w);
	return s->c.status;
}

static void expect_data(struct scene *s, bool in, bool out, uint32_t len)
{
	s->c.reads = in;
	s->c.writes = out;
	s->c.expected = len;
}

uint8_t go_as(struct scene *s, struct scsi_nexus *n, const char *cdb)
{
	expect_data(s, false, false, 0);
	return carry(s, n, 0, cdb);
}

uint8_t go(struct scene *s, const char *cdb)
{
	return go_as(s, s->a, cdb);
}

uint8_t go_in(struct scene *s, const char *cdb, uint32_t expected)
{
	return go_at(s, 0, cdb, expected);
}

uint8_t go_at(struct scene *s, uint64_t lun, const char *cdb, uint32_t expected)
{
	assert_true(expected <= DATA_MAX);
	expect_data(s, expected > 0, false, expected);
	return carry(s, s->a, lun, cdb);
}

uint8_t go_out(struct scene *s, const char *cdb, const void *data, uint32_t len)
{
	expect_data(s, false, true, len);
	s->w.out = data;
	return carry(s, s->a, 0, cdb);
}

void expect_bytes(const struct scene *s, const char *hex)
{
	uint8_t bytes[4096];
	size_t len = from_hex(hex, bytes, sizeof(bytes));

	assert_int_equal(s->w.in_len, len);
	assert_memory_equal(s->in, bytes, len);
}

static bool is_fixed(const struct scene *s)
{
	return (s->c.sense[0] & 0x7f) == 0x70;
}

void expect_sense(const struct scene *s, uint8_t key, uint16_t asc_ascq)
{
	const uint8_t *p = s->c.sense;

	assert_int_equal(s->c.status, SCSI_CHECK_CONDITION);
	assert_int_equal(is_fixed(s) ? p[2] : p[1], key);
	assert_int_equal(is_fixed(s) ? get_be16(p + 12) : get_be16(p + 2), asc_ascq);
}

void expect_field(const struct scene *s, bool in_cdb, uint16_t byte, uint8_t bit)
{
	expect_sense(s, SCSI_ILLEGAL_REQUEST, in_cdb ? 0x2400 : 0x2600);
	assert_true(is_fixed(s));
	assert_int_equal(s->c.sense[15], 0x88 | (in_cdb ? 0x40 : 0) | bit);
	assert_int_equal(get_be16(s->c.sense + 16), byte);
}
