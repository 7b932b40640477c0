/* SPDX-License-Identifier: BSD-2-Clause */
/* guid.h - the GUID of this machine's adapter. */
#ifndef STAG_GUID_H
#define STAG_GUID_H

#include <infiniband/verbs.h>

/* Returns a locally administered GUID: the same at every call, different on every machine. Safe in a signal handler. */
__be64 node_guid(void);

#endif
