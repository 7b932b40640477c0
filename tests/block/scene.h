/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scene.h - what the tests of SCSI share: a target with one unit in memory, two initiators, and commands in hex.
 */
#ifndef STAG_TEST_BLOCK_SCENE_H
#define STAG_TEST_BLOCK_SCENE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "block/scsi/ops.h"
#include "fake_unit.h"

#define BLOCK	 512
#define BLOCKS	 8192u
#define DATA_MAX (4u << 20)

struct scene {
	struct scsi_target *t;
	struct scsi_nexus *a, *b; /* without pending attentions */
	struct lun *l;		  /* LUN 0 */
	struct scsi_cmd c;	  /* the last command */
	struct wire w;
	uint8_t in[DATA_MAX];
};

int open_scene(void **state);
int close_scene(void **state);

/* Execute a command, of LUN 0 and nexus a unless the name says otherwise. Return its status. */
uint8_t go(struct scene *s, const char *cdb);			    /* without data */
uint8_t go_in(struct scene *s, const char *cdb, uint32_t expected); /* data-in to in */
uint8_t go_out(struct scene *s, const char *cdb, const void *data, uint32_t len);
uint8_t go_as(struct scene *s, struct scsi_nexus *n, const char *cdb); /* without data */
uint8_t go_at(struct scene *s, uint64_t lun, const char *cdb, uint32_t expected);

void expect_bytes(const struct scene *s, const char *hex); /* all of the data-in */
void expect_sense(const struct scene *s, uint8_t key, uint16_t asc_ascq);
void expect_field(const struct scene *s, bool in_cdb, uint16_t byte, uint8_t bit);
size_t from_hex(const char *hex, uint8_t *to, size_t room);

#endif
