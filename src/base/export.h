/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * export.h - marks the functions that a version script gives to the world.
 */
#ifndef STAG_BASE_EXPORT_H
#define STAG_BASE_EXPORT_H

#define STAG_EXPORT __attribute__((visibility("default")))

#endif
