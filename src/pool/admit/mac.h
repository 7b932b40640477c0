/* SPDX-License-Identifier: BSD-2-Clause */
/* mac.h - the MACs that both sides of an admission compute (admit.h): between admit.c and client.c. */
#ifndef STAG_POOL_ADMIT_MAC_H
#define STAG_POOL_ADMIT_MAC_H

#include "pool/admit/admit.h"

struct mac_part {
	const void *at;
	size_t len;
};

/* Computes a MAC over parts, of which all but the last have a fixed length. */
bool admit_mac(const void *key, size_t key_len, const struct mac_part *parts,
	       unsigned int num_parts, uint8_t mac[ADMIT_MAC_LEN]);
bool admit_proof_mac(const struct admit_session *s, const char *secret, uint8_t mac[ADMIT_MAC_LEN]);
bool admit_welcome_mac(const struct admit_session *s, const char *secret,
		       const struct admit_head *head, const void *facts, size_t facts_len,
		       uint8_t mac[ADMIT_MAC_LEN]);

struct admit_head admit_head(enum admit_kind kind, enum admit_as as);
bool admit_is_head(const void *greeting, size_t len, enum admit_kind kind);

#endif
