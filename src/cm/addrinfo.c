// SPDX-License-Identifier: BSD-2-Clause
/*
 * addrinfo.c - rdma_getaddrinfo(): getaddrinfo() with RDMA's structs. There are no routes to add.
 */
#include "cm/cm.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

static int qp_type_of(const struct rdma_addrinfo *hints)
{
	if (hints->ai_qp_type)
		return hints->ai_qp_type;
	return hints->ai_port_space == RDMA_PS_UDP || hints->ai_port_space == RDMA_PS_IPOIB
		       ? IBV_QPT_UD
		       : IBV_QPT_RC;
}

static int port_space_of(const struct rdma_addrinfo *hints)
{
	if (hints->ai_port_space)
		return hints->ai_port_space;
	return qp_type_of(hints) == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
}

static struct addrinfo plain_hints(const struct rdma_addrinfo *hints)
{
	struct addrinfo ai = {0};

	ai.ai_flags = (hints->ai_flags & RAI_PASSIVE ? AI_PASSIVE : 0) |
		      (hints->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0);
	if (hints->ai_flags & RAI_FAMILY)
		ai.ai_family = hints->ai_family;
	ai.ai_socktype = qp_type_of(hints) == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
	return ai;
}

static int copy_address(const struct sockaddr *from, socklen_t len, struct sockaddr **to,
			socklen_t *to_len)
{
	if (!from || !len)
		return 0;
	*to = malloc(len);
	if (!*to)
		return -ENOMEM;
	memcpy(*to, from, len);
	*to_len = len;
	return 0;
}

/* Returns the result of getaddrinfo(): one of its own codes (negative), or an errno value. */
static int query_getaddrinfo(const char *node, const char *service,
			     const struct rdma_addrinfo *hints, struct rdma_addrinfo *rai)
{
	struct addrinfo want = plain_hints(hints), *got;
	int ret = getaddrinfo(node, service, &want, &got);

	if (ret)
		return ret;
	rai->ai_family = got->ai_family;
	if (hints->ai_flags & RAI_PASSIVE)
		ret = copy_address(got->ai_addr, got->ai_addrlen, &rai->ai_src_addr,
				   &rai->ai_src_len);
	else
		ret = copy_address(got->ai_addr, got->ai_addrlen, &rai->ai_dst_addr,
				   &rai->ai_dst_len);
	freeaddrinfo(got);
	return ret ? EAI_MEMORY : 0;
}

/* Copies the fields that the caller already knew. */
static int copy_hints(const struct rdma_addrinfo *hints, struct rdma_addrinfo *rai)
{
	int err = 0;

	if (!rai->ai_family)
		rai->ai_family = hints->ai_family;
	if (!rai->ai_src_len)
		err = copy_address(hints->ai_src_addr, hints->ai_src_len, &rai->ai_src_addr,
				   &rai->ai_src_len);
	if (!err && !rai->ai_dst_len)
		err = copy_address(hints->ai_dst_addr, hints->ai_dst_len, &rai->ai_dst_addr,
				   &rai->ai_dst_len);
	return err ? EAI_MEMORY : 0;
}

STAG_EXPORT int rdma_getaddrinfo(const char *node, const char *service,
				 const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	PASS_TO_REAL(getaddrinfo(node, service, hints, res));
	static const struct rdma_addrinfo none;
	struct rdma_addrinfo *rai;
	int ret = 0;

	if (!node && !service && !hints)
		return id_error(NULL, EINVAL, "neither node nor service to resolve");
	if (!hints)
		hints = &none;
	rai = calloc(1, sizeof(*rai));
	if (!rai)
		return id_error(NULL, ENOMEM, "an address");
	rai->ai_flags = hints->ai_flags;
	rai->ai_qp_type = qp_type_of(hints);
	rai->ai_port_space = port_space_of(hints);
	if (node || service)
		ret = query_getaddrinfo(node, service, hints, rai);
	if (!ret)
		ret = copy_hints(hints, rai);
	if (ret) {
		rdma_freeaddrinfo(rai);
		return ret;
	}
	*res = rai;
	return 0;
}

STAG_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	PASS_TO_REAL_VOID(freeaddrinfo(res));
	struct rdma_addrinfo *next;

	for (; res; res = next) {
		next = res->ai_next;
		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_route);
		free(res->ai_connect);
		free(res);
	}
}
