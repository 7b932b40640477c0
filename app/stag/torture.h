/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * torture.h - stag torture: what there is to torture.
 */
#ifndef STAG_APP_TORTURE_H
#define STAG_APP_TORTURE_H

#include "stag.h"

/* argv[0] is "torture", argv[1] "pool"; an exit code */
int torture_pool(const struct command *self, int argc, char **argv);

#endif
