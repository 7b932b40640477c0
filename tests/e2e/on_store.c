// SPDX-License-Identifier: BSD-2-Clause
/*
 * on_store.c - preloaded: puts the large regions that a program offers to peers on storage, at the
 * addresses of its buffers.
 *
 * $STAG_TEST_STORE is the file. The contents of the program's buffer are not copied to or from the
 * file: this is for servers that only offer their memory. Small regions, with which it sends and
 * receives, stay in memory.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "stag/stagdv.h"

#undef ibv_reg_mr

#define LARGE	8192
#define FOR_ALL (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define EXPORT	__attribute__((visibility("default")))

static struct ibv_mr *on_store(struct ibv_pd *pd, size_t length, uint64_t iova, unsigned int access,
			       const char *file)
{
	__typeof__(&stagdv_open_medium) open_medium = dlsym(RTLD_DEFAULT, "stagdv_open_medium");
	__typeof__(&stagdv_reg_store_mr) reg = dlsym(RTLD_DEFAULT, "stagdv_reg_store_mr");
	struct stagdv_medium_attr medium = {.fd = open(file, O_RDWR | O_CLOEXEC)};
	struct stagdv_store_attr attr = {
		.length = length, .access = access & FOR_ALL, .iova = iova};
	struct stagdv_medium *m;
	struct ibv_mr *mr = NULL;

	if (medium.fd >= 0 && ftruncate(medium.fd, (off_t)length) == 0 && open_medium && reg) {
		m = open_medium(pd->context, &medium);
		mr = m ? reg(pd, m, &attr) : NULL; /* one medium per process */
	}
	if (!mr) {
		perror("on_store: no region on storage");
		exit(3);
	}
	close(medium.fd);
	fprintf(stderr, "on_store: %zu bytes of %s at 0x%llx\n", length, file,
		(unsigned long long)iova);
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	const char *file = getenv("STAG_TEST_STORE");
	__typeof__(&ibv_reg_mr_iova2) plain = dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");

	if (file && length >= LARGE && (access & FOR_ALL))
		return on_store(pd, length, iova, access, file);
	return plain(pd, addr, length, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}
