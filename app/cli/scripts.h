/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scripts.h - the completion scripts; the build makes the array of them (embed).
 */
#ifndef STAG_APP_SCRIPTS_H
#define STAG_APP_SCRIPTS_H

struct completion_script {
	const char *shell; /* NULL: the end */
	const char *text;
};

extern const struct completion_script completion_scripts[];

#endif
