// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_scsi.c - arbitrary commands with arbitrary data-out, from two initiators to a small unit.
 *
 * Each command of an input has the initiator, the expected length, a CDB, and the data. fake_unit.c
 * ends the program if a command accesses blocks outside the unit, or replies with more than
 * expected.
 */
#include "fuzz.h"

#include "fake_unit.h"

#define SIZE	 (1u << 16)
#define DATA_MAX (SIZE + 4096)

static uint8_t in_data[DATA_MAX], out_data[DATA_MAX];

/* Repeats the following bytes, so that long data needs no long input. */
static void fill_out(const struct input *in, uint32_t len)
{
	uint32_t have = in->len < len ? (uint32_t)in->len : len;

	memset(out_data, 0, len);
	for (uint32_t at = 0; have && at < len; at += have)
		memcpy(out_data + at, in->p, have < len - at ? have : len - at);
}

static void one_command(struct scsi_target *t, struct scsi_nexus *n[2], struct input *in)
{
	struct wire w = {.out = out_data, .in = in_data};
	uint8_t how = (uint8_t)take(in, 1);
	struct scsi_cmd *c = calloc(1, sizeof(*c));

	CHECK(c);
	c->nexus = n[how & 1];
	c->reads = how & 2;
	c->writes = !c->reads && (how & 4);
	c->lun = how & 8 ? take(in, 8) : 0;
	c->expected = (uint32_t)take(in, 3) % DATA_MAX;
	c->cdb_len = how & 16 ? 6 : 16;
	for (uint32_t i = 0; i < c->cdb_len; i++)
		c->cdb[i] = (uint8_t)take(in, 1);
	fill_out(in, c->expected);
	if (how & 32)
		scsi_tmf(t, c->nexus, (enum scsi_tmf)(how >> 6), c->lun);
	fake_carry(t, c, &w);
	free(c);
}

static void no_more(void *arg, struct lun *l)
{
	fake_free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	uint8_t kind = (uint8_t)take(&in, 1);
	struct lun *l = fake_unit(SIZE, kind & 1 ? 4096 : 512);
	struct scsi_nexus *n[2];
	struct scsi_target *t;

	fake_facts(l)->discards = kind & 2;
	fake_facts(l)->write_back = kind & 4;
	fake_facts(l)->read_only = kind & 8;
	CHECK(scsi_target_create(&t) == 0);
	CHECK(scsi_target_add(t, 0, l) == 0);
	CHECK(scsi_nexus_create(t, "one", NULL, &n[0]) == 0);
	CHECK(scsi_nexus_create(t, "two", NULL, &n[1]) == 0);
	for (int i = 0; i < 8 && in.len; i++)
		one_command(t, n, &in);
	scsi_nexus_destroy(n[0]);
	scsi_nexus_destroy(n[1]);
	CHECK(scsi_target_remove(t, 0, no_more, NULL) == 0);
	scsi_target_destroy(t);
	return 0;
}
