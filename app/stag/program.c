// SPDX-License-Identifier: BSD-2-Clause
/*
 * program.c - finds the program for `stag run`, and checks whether a library
 * can be preloaded into it.
 */
#include "stag.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

static int check_executable(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	return access(path, X_OK) == 0 ? 0 : -errno;
}

/* Finds the first executable file of that name in PATH. */
static int search_path(const char *name, char *path, size_t size)
{
	const char *dirs = getenv("PATH");
	int result = -ENOENT;

	for (const char *d = dirs ? dirs : "/bin:/usr/bin", *next; d; d = next) {
		const char *colon = strchr(d, ':');
		int len = colon ? (int)(colon - d) : (int)strlen(d);
		int err;

		next = colon ? colon + 1 : NULL;
		if (snprintf(path, size, "%.*s%s%s", len, d, len ? "/" : "", name) >= (int)size)
			continue;
		err = check_executable(path);
		if (err == 0)
			return 0;
		if (err == -EACCES)
			result = err;
	}
	return result;
}

int program_find(const char *name, char *path, size_t size)
{
	if (!strchr(name, '/'))
		return search_path(name, path, size);
	if (snprintf(path, size, "%s", name) >= (int)size)
		return -ENAMETOOLONG;
	return check_executable(path);
}

/* A program without an ELF interpreter is not loaded by ld.so, which is what reads LD_PRELOAD. */
static bool has_interpreter(int fd, const Elf64_Ehdr *elf)
{
	for (unsigned i = 0; i < elf->e_phnum; i++) {
		Elf64_Phdr segment;
		off_t at = (off_t)(elf->e_phoff + i * sizeof(segment));

		if (pread(fd, &segment, sizeof(segment), at) != sizeof(segment))
			return true; /* unreadable: the kernel will report it */
		if (segment.p_type == PT_INTERP)
			return true;
	}
	return false;
}

const char *program_obstacle(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr elf;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	if (geteuid() != 0 && (st.st_mode & (S_ISUID | S_ISGID)))
		return "it is setuid or setgid";
	if (pread(fd, &elf, sizeof(elf), 0) != sizeof(elf) || memcmp(elf.e_ident, ELFMAG, SELFMAG))
		return NULL; /* a script: the library is loaded into its interpreter */
	if (elf.e_ident[EI_CLASS] != ELFCLASS64)
		return "it is not a 64-bit program";
	if (!has_interpreter(fd, &elf))
		return "it is linked statically";
	return NULL;
}
