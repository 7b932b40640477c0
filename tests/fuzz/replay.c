// SPDX-License-Identifier: BSD-2-Clause
/*
 * replay.c - runs a fuzz target on stored inputs, in a build without a fuzzer.
 * Arguments: files or directories.
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

static unsigned replayed;

static void replay_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;
	size_t size = 0, n;

	CHECK(f);
	do {
		data = realloc(data, size + 4096);
		CHECK(data);
		n = fread(data + size, 1, 4096, f);
		size += n;
	} while (n);
	fclose(f);
	fprintf(stderr, "%s: %zu bytes\n", path, size);
	data = realloc(data, size ? size : 1); /* exact size, for a sanitizer */
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	replayed++;
}

static void replay(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char name[4096];

	if (!dir) {
		CHECK(errno == ENOTDIR);
		replay_file(path);
		return;
	}
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		replay(name);
	}
	closedir(dir);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		replay(argv[i]);
	printf("%u inputs\n", replayed);
	return replayed ? 0 : 1;
}
