// SPDX-License-Identifier: BSD-2-Clause
/* guid.c - the GUID of this machine's adapter, made from the machine's id. */
#include "adapter/guid.h"

#include <endian.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Reads what tells this machine from others. id ends with a zero. */
static void read_id(char *id, size_t room)
{
	int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, id, room - 1);

	if (fd >= 0)
		close(fd);
	id[n > 0 ? n : 0] = '\0';
	if (!id[0] && gethostname(id, room - 1))
		strcpy(id, "stag");
}

__be64 node_guid(void)
{
	char id[64] = "";
	uint64_t h = 0xcbf29ce484222325ull;

	read_id(id, sizeof(id));
	for (const char *p = id; *p; p++)
		h = (h ^ (uint8_t)*p) * 0x100000001b3ull;
	h = (h & 0x00ffffffffffffffull) | 0x0200000000000000ull;
	return htobe64(h);
}
