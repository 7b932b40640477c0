/* SPDX-License-Identifier: BSD-2-Clause */
/* roll_where.h - the place of the roll in etcd, parsed from the form that users write (roll.h). */
#ifndef STAG_POOL_ROLL_WHERE_H
#define STAG_POOL_ROLL_WHERE_H

#include <stdbool.h>
#include <limits.h>

#define ROLL_WHERE_HOSTS 8
#define ROLL_WHERE_HOST	 256
#define ROLL_WHERE_KEY	 256

struct roll_where {
	bool tls;
	unsigned int num_hosts;
	char hosts[ROLL_WHERE_HOSTS][ROLL_WHERE_HOST]; /* host:port */
	char key[ROLL_WHERE_KEY];
	char ca[PATH_MAX], cert[PATH_MAX], cert_key[PATH_MAX];
	char user[64];
	char password_file[PATH_MAX];
	bool plain_password;	 /* may cross the network in the clear */
	unsigned int timeout_ms; /* per endpoint */
};

/* Returns 0, or -EINVAL, with *why saying what is wrong. */
int roll_where_parse(const char *text, struct roll_where *where, const char **why);

#endif
