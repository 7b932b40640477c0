/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * refusal.h - what was refused, to whom, and from where, as a line for people.
 */
#ifndef STAG_APP_REFUSAL_H
#define STAG_APP_REFUSAL_H

#include <stdbool.h>
#include <stddef.h>

#include <stag/audit.h>

/* Returns false for the parts of stag that log what they refuse themselves: nodes of pools, and block targets. */
bool refusal_is_unsaid(const struct stag_audit_record *record);
/* Writes "refused: login by user 'ann' from 10.0.0.7:41288: wrong secret (and 3 more before)". */
void refusal_text(const struct stag_audit_record *record, char *text, size_t size);

#endif
