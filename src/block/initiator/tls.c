// SPDX-License-Identifier: BSD-2-Clause
/*
 * tls.c - TLS of an initiator: the keys that its user's secret makes, for lines over TCP (tcp.c) and over verbs (verbs.c).
 */
#include "block/initiator/initiator.h"

#include <errno.h>
#include <string.h>

#include "dv/dv.h"

_Static_assert((int)STAG_BLOCK_TLS_REQUIRED == (int)TLS_REQUIRED, "the same modes");
_Static_assert((int)STAGDV_TLS_REQUIRED == (int)TLS_REQUIRED, "the same modes");

static int create_tcp(struct initiator_tls *s, const struct iscsi_tls_key *k)
{
	struct tls_config config = {
		.identity = k->identity, .psk = k->key, .psk_len = sizeof(k->key)};
	char why[TLS_WHY_LEN] = "";
	int rc = tls_context_create(&s->context, &config, why);

	return rc == 0 ? 0 : block_fail(-rc, "TLS: %s", why);
}

/* Without the software adapter there is no TLS over verbs: initiator_tls_set() says so where it is required. */
static int create_rdma(struct initiator_tls *s, const struct iscsi_tls_key *k)
{
	const struct dv *dv = dv_find();
	struct stagdv_tls_attr attr = {
		.identity = k->identity, .psk = k->key, .psk_len = sizeof(k->key)};
	char why[TLS_WHY_LEN] = "";
	int rc = dv ? dv->create_tls(&s->rdma, &attr, sizeof(attr), why, sizeof(why)) : 0;

	return rc == 0 ? 0 : block_fail(rc, "TLS: %s", why);
}

int initiator_tls_create(struct stag_block *b, uint32_t mode)
{
	struct initiator_tls *s = &b->config.tls;
	const struct initiator_url *u = &b->config.url;
	struct iscsi_tls_key keys[2];
	int rc;

	if (mode == STAG_BLOCK_TLS_OFF)
		return 0;
	if (mode > STAG_BLOCK_TLS_REQUIRED)
		return block_fail(EINVAL, "tls is off, allowed or required");
	if (!*u->user)
		return block_fail(EINVAL, "TLS needs a user and secret: its key is made of them");
	s->mode = (enum tls_mode)mode;
	rc = iscsi_tls_keys(u->user, u->secret, &keys[0], &keys[1]);
	if (rc != 0)
		return block_fail(-rc, "TLS: user '%s': %s", u->user, strerror(-rc));
	rc = create_tcp(s, &keys[0]);
	if (rc == 0)
		rc = create_rdma(s, &keys[1]);
	explicit_bzero(keys, sizeof(keys));
	return rc;
}

void initiator_tls_destroy(struct stag_block *b)
{
	tls_context_put(b->config.tls.context);
	if (b->config.tls.rdma)
		dv_find()->destroy_tls(b->config.tls.rdma);
}

int initiator_tls_set(struct stag_block *b, struct rdma_cm_id *id)
{
	struct initiator_tls *s = &b->config.tls;
	int rc = 0;

	if (s->rdma)
		rc = dv_find()->set_tls(id, s->rdma, (enum stagdv_tls_mode)s->mode);
	else if (s->mode == TLS_REQUIRED)
		rc = EOPNOTSUPP;
	if (rc == EOPNOTSUPP && s->mode == TLS_ALLOWED)
		return 0;
	return rc == 0 ? 0
		       : block_fail(rc,
				    "%s: TLS is required, and over RDMA only the software "
				    "adapter has it",
				    b->config.url.host);
}

void initiator_tls_note(struct stag_block *b, const struct stagdv_tls_info *info)
{
	struct stag_block_tls_info *to = &b->info.tls;

	*to = (struct stag_block_tls_info){.encrypted = info->encrypted, .kernel = info->kernel};
	memcpy(to->version, info->version, sizeof(to->version));
	memcpy(to->cipher, info->cipher, sizeof(to->cipher));
}
