/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * openapi.h - openapi.yaml, as JSON; made by embed.
 */
#ifndef STAG_APP_OPENAPI_H
#define STAG_APP_OPENAPI_H

#include <stddef.h>

extern const char openapi_json[];
extern const size_t openapi_json_length;

#endif
