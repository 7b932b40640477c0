/* SPDX-License-Identifier: BSD-2-Clause */
/* export.h - marks a function as public: the library's version script exports it. */
#ifndef STAG_BASE_EXPORT_H
#define STAG_BASE_EXPORT_H

#define STAG_EXPORT __attribute__((visibility("default")))

#endif
