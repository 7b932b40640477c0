// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_calls.c - what the C library's functions tell a program of roce0, in each of their forms. Run by stag run --device roce.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CLASS	"/sys/class/infiniband"
#define DEVICE	CLASS "/roce0"
#define PORT	DEVICE "/ports/1"
#define UVERBS	"/dev/infiniband/uverbs200"
#define NO_FILE DEVICE "/nothing"

/* What headers make of the names of functions depends on macros; these are the symbols. */
int sym_stat(const char *, struct stat *) __asm__("stat");
int sym_stat64(const char *, struct stat *) __asm__("stat64");
int sym_lstat(const char *, struct stat *) __asm__("lstat");
int sym_lstat64(const char *, struct stat *) __asm__("lstat64");
int sym_fstat(int, struct stat *) __asm__("fstat");
int sym_fstat64(int, struct stat *) __asm__("fstat64");
int sym_fstatat(int, const char *, struct stat *, int) __asm__("fstatat");
int sym_fstatat64(int, const char *, struct stat *, int) __asm__("fstatat64");
int sym___xstat(int, const char *, struct stat *) __asm__("__xstat");
int sym___xstat64(int, const char *, struct stat *) __asm__("__xstat64");
int sym___lxstat(int, const char *, struct stat *) __asm__("__lxstat");
int sym___lxstat64(int, const char *, struct stat *) __asm__("__lxstat64");
int sym___fxstat(int, int, struct stat *) __asm__("__fxstat");
int sym___fxstat64(int, int, struct stat *) __asm__("__fxstat64");
int sym___fxstatat(int, int, const char *, struct stat *, int) __asm__("__fxstatat");
int sym___fxstatat64(int, int, const char *, struct stat *, int) __asm__("__fxstatat64");
int sym_open(const char *, int, ...) __asm__("open");
int sym_open64(const char *, int, ...) __asm__("open64");
int sym_openat(int, const char *, int, ...) __asm__("openat");
int sym_openat64(int, const char *, int, ...) __asm__("openat64");
int sym___open_2(const char *, int) __asm__("__open_2");
int sym___open64_2(const char *, int) __asm__("__open64_2");
int sym___openat_2(int, const char *, int) __asm__("__openat_2");
int sym___openat64_2(int, const char *, int) __asm__("__openat64_2");
FILE *sym_fopen(const char *, const char *) __asm__("fopen");
FILE *sym_fopen64(const char *, const char *) __asm__("fopen64");
ssize_t sym_readlink(const char *, char *, size_t) __asm__("readlink");
ssize_t sym_readlinkat(int, const char *, char *, size_t) __asm__("readlinkat");
ssize_t sym___readlink_chk(const char *, char *, size_t, size_t) __asm__("__readlink_chk");
ssize_t sym___readlinkat_chk(int, const char *, char *, size_t, size_t) __asm__("__readlinkat_chk");
char *sym_realpath(const char *, char *) __asm__("realpath");
char *sym___realpath_chk(const char *, char *, size_t) __asm__("__realpath_chk");
struct dirent *sym_readdir(DIR *) __asm__("readdir");
struct dirent *sym_readdir64(DIR *) __asm__("readdir64");

enum { STAT_VERSION = 1 }; /* of struct stat, for programs from before glibc 2.33 */

/* ---- before main ---- */

static int early_access = -2;
static char early_state[16];

/* A constructor of a library runs before this library's own, if it does not depend on it; this one runs before all of them. */
static void before_constructors(int argc, char **argv, char **env)
{
	struct stat st;

	early_access = access("/sys/class/net", F_OK) == 0 && stat("/", &st) == 0 ? 0 : -1;
}

__attribute__((section(".preinit_array"),
	       used)) static void (*preinit)(int, char **, char **) = before_constructors;

__attribute__((constructor)) static void constructor(void)
{
	int fd = open(PORT "/state", O_RDONLY);

	if (fd >= 0 && read(fd, early_state, sizeof(early_state) - 1) < 0)
		early_state[0] = '\0';
	close(fd);
}

static void calls_before_all_constructors_reach_the_kernel(void **state)
{
	assert_int_equal(early_access, 0);
}

static void constructor_may_read_files(void **state)
{
	assert_string_equal(early_state, "4: ACTIVE\n");
}

/* ---- stat ---- */

static struct stat st;

#define expect_stat(type, call)                                                                    \
	do {                                                                                       \
		memset(&st, 0x5a, sizeof(st));                                                     \
		assert_int_equal(call, 0);                                                         \
		assert_int_equal(st.st_mode &S_IFMT, type);                                        \
	} while (0)

/* UCX and Mooncake use no device without that. */
static void device_file_is_a_character_device_to_every_stat(void **state)
{
	expect_stat(S_IFCHR, sym_stat(UVERBS, &st));
	expect_stat(S_IFCHR, sym_stat64(UVERBS, &st));
	expect_stat(S_IFCHR, sym_lstat(UVERBS, &st));
	expect_stat(S_IFCHR, sym_lstat64(UVERBS, &st));
	expect_stat(S_IFCHR, sym_fstatat(AT_FDCWD, UVERBS, &st, 0));
	expect_stat(S_IFCHR, sym_fstatat64(AT_FDCWD, UVERBS, &st, AT_SYMLINK_NOFOLLOW));
	expect_stat(S_IFCHR, sym___xstat(STAT_VERSION, UVERBS, &st));
	expect_stat(S_IFCHR, sym___xstat64(STAT_VERSION, UVERBS, &st));
	expect_stat(S_IFCHR, sym___lxstat(STAT_VERSION, UVERBS, &st));
	expect_stat(S_IFCHR, sym___lxstat64(STAT_VERSION, UVERBS, &st));
	expect_stat(S_IFCHR, sym___fxstatat(STAT_VERSION, AT_FDCWD, UVERBS, &st, 0));
	expect_stat(S_IFCHR, sym___fxstatat64(STAT_VERSION, AT_FDCWD, UVERBS, &st, 0));
}

static void device_is_a_link_and_leads_to_a_directory(void **state)
{
	expect_stat(S_IFDIR, sym_stat(DEVICE, &st));
	expect_stat(S_IFDIR, sym_stat64(DEVICE, &st));
	expect_stat(S_IFLNK, sym_lstat(DEVICE, &st));
	expect_stat(S_IFLNK, sym_lstat64(DEVICE, &st));
	expect_stat(S_IFDIR, sym_fstatat(AT_FDCWD, DEVICE, &st, 0));
	expect_stat(S_IFLNK, sym_fstatat64(AT_FDCWD, DEVICE, &st, AT_SYMLINK_NOFOLLOW));
	expect_stat(S_IFDIR, sym___xstat(STAT_VERSION, DEVICE, &st));
	expect_stat(S_IFDIR, sym___xstat64(STAT_VERSION, DEVICE, &st));
	expect_stat(S_IFLNK, sym___lxstat(STAT_VERSION, DEVICE, &st));
	expect_stat(S_IFLNK, sym___lxstat64(STAT_VERSION, DEVICE, &st));
	expect_stat(S_IFLNK,
		    sym___fxstatat(STAT_VERSION, AT_FDCWD, DEVICE, &st, AT_SYMLINK_NOFOLLOW));
	expect_stat(S_IFDIR, sym___fxstatat64(STAT_VERSION, AT_FDCWD, DEVICE, &st, 0));
}

static void statx_says_the_same(void **state)
{
	struct statx sx;

	assert_int_equal(statx(AT_FDCWD, UVERBS, 0, STATX_BASIC_STATS, &sx), 0);
	assert_int_equal(sx.stx_mode & S_IFMT, S_IFCHR);
	assert_int_equal(statx(AT_FDCWD, DEVICE, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &sx), 0);
	assert_int_equal(sx.stx_mode & S_IFMT, S_IFLNK);
	assert_int_equal(statx(AT_FDCWD, PORT "/state", 0, STATX_BASIC_STATS, &sx), 0);
	assert_int_equal(sx.stx_mode, S_IFREG | 0444);
	assert_int_equal(sym_stat(PORT "/state", &st), 0);
	assert_int_equal(sx.stx_ino, st.st_ino);
	assert_int_equal(sx.stx_size, st.st_size);
}

static void size_of_a_link_is_that_of_its_target(void **state)
{
	char target[PATH_MAX];

	expect_stat(S_IFLNK, sym_lstat(DEVICE, &st));
	assert_int_equal(sym_readlink(DEVICE, target, sizeof(target)), st.st_size);
}

static void file_that_is_not_there_is_enoent(void **state)
{
	errno = 0;
	assert_int_equal(sym_stat(NO_FILE, &st), -1);
	assert_int_equal(errno, ENOENT);
	errno = 0;
	assert_int_equal(sym_open(NO_FILE, O_RDONLY), -1);
	assert_int_equal(errno, ENOENT);
	errno = 0;
	assert_int_equal(access(NO_FILE, F_OK), -1);
	assert_int_equal(errno, ENOENT);
}

/* ---- access ---- */

static void device_file_may_be_read_and_written(void **state)
{
	assert_int_equal(access(UVERBS, R_OK | W_OK), 0);
	assert_int_equal(faccessat(AT_FDCWD, UVERBS, R_OK | W_OK, 0), 0);
	assert_int_equal(faccessat(AT_FDCWD, UVERBS, R_OK | W_OK, AT_EACCESS), 0);
	assert_int_equal(euidaccess(UVERBS, R_OK | W_OK), 0);
	assert_int_equal(eaccess(UVERBS, R_OK | W_OK), 0);
}

static void other_files_may_be_read_only(void **state)
{
	assert_int_equal(access(PORT "/state", F_OK), 0);
	assert_int_equal(access(PORT "/state", R_OK), 0);
	assert_int_equal(access(PORT "/state", W_OK), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(access(PORT, R_OK | X_OK), 0);
}

/* ---- open ---- */

static void expect_content(int fd, const char *content)
{
	char got[128];
	ssize_t n = read(fd, got, sizeof(got));

	assert_int_equal(n, strlen(content));
	assert_memory_equal(got, content, strlen(content));
	assert_int_equal(read(fd, got, sizeof(got)), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(pread(fd, got, sizeof(got), 0), strlen(content));
	assert_int_equal(close(fd), 0);
}

static void every_open_gives_the_content(void **state)
{
	static const char *const text = "100 Gb/sec (4X EDR)\n";

	expect_content(sym_open(PORT "/rate", O_RDONLY), text);
	expect_content(sym_open64(PORT "/rate", O_RDONLY), text);
	expect_content(sym_openat(AT_FDCWD, PORT "/rate", O_RDONLY), text);
	expect_content(sym_openat64(AT_FDCWD, PORT "/rate", O_RDONLY), text);
	expect_content(sym___open_2(PORT "/rate", O_RDONLY), text);
	expect_content(sym___open64_2(PORT "/rate", O_RDONLY), text);
	expect_content(sym___openat_2(AT_FDCWD, PORT "/rate", O_RDONLY), text);
	expect_content(sym___openat64_2(AT_FDCWD, PORT "/rate", O_RDONLY), text);
}

static void expect_line(FILE *file, const char *line)
{
	char got[128];

	assert_non_null(file);
	assert_non_null(fgets(got, sizeof(got), file));
	assert_string_equal(got, line);
	assert_int_equal(fclose(file), 0);
}

static void every_fopen_gives_the_content(void **state)
{
	expect_line(sym_fopen(PORT "/gid_attrs/types/0", "r"), "RoCE v2\n");
	expect_line(sym_fopen64(PORT "/gid_attrs/types/0", "re"), "RoCE v2\n");
	assert_null(sym_fopen(PORT "/gid_attrs/types/0", "w"));
	assert_int_equal(errno, EACCES);
}

static void interface_of_a_gid_exists(void **state)
{
	char name[IF_NAMESIZE + 2] = "";
	FILE *file = fopen(PORT "/gid_attrs/ndevs/0", "r");

	assert_non_null(fgets(name, sizeof(name), file));
	fclose(file);
	name[strcspn(name, "\n")] = '\0';
	assert_int_not_equal(if_nametoindex(name), 0);
}

/* As in the kernel: the file is there. */
static void reading_the_type_of_an_empty_gid_is_einval(void **state)
{
	char got[16];
	int fd = open(PORT "/gid_attrs/types/15", O_RDONLY);

	assert_true(fd >= 0);
	errno = 0;
	assert_int_equal(read(fd, got, sizeof(got)), -1);
	assert_int_equal(errno, EINVAL);
	close(fd);
}

static void files_cannot_be_written(void **state)
{
	assert_int_equal(open(PORT "/state", O_WRONLY), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(open(PORT "/state", O_RDWR), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(open(PORT "/state", O_CREAT | O_EXCL | O_WRONLY, 0600), -1);
	assert_int_equal(errno, EEXIST);
	assert_int_equal(open(PORT, O_WRONLY), -1);
	assert_int_equal(errno, EISDIR);
}

static void flags_of_open_are_heeded(void **state)
{
	int fd = open(PORT "/state", O_RDONLY | O_CLOEXEC);

	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	fd = open(PORT "/state", O_RDONLY);
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	close(fd);
	assert_int_equal(open(PORT "/state", O_RDONLY | O_DIRECTORY), -1);
	assert_int_equal(errno, ENOTDIR);
	assert_int_equal(open(DEVICE, O_RDONLY | O_NOFOLLOW), -1);
	assert_int_equal(errno, ELOOP);
}

static void opening_the_device_file_is_harmless(void **state)
{
	int fd = open(UVERBS, O_RDWR | O_CLOEXEC);
	char byte;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x", 1), 1);
	assert_int_equal(read(fd, &byte, 1), 0);
	assert_int_equal(close(fd), 0);
}

static void other_files_are_opened_as_ever(void **state)
{
	char name[] = "/tmp/found-XXXXXX";
	int fd = mkstemp(name);

	close(fd);
	unlink(name);
	fd = sym_open(name, O_CREAT | O_WRONLY | O_EXCL, 0640);
	assert_true(fd >= 0);
	assert_int_equal(sym_fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07037, 0); /* the mode has come through */
	close(fd);
	fd = sym_openat64(AT_FDCWD, name, O_CREAT | O_RDONLY, 0640);
	assert_true(fd >= 0);
	close(fd);
	unlink(name);
	expect_stat(S_IFDIR, sym_stat("/sys/class/net", &st));
	expect_stat(S_IFCHR, sym_stat("/dev/null", &st));
	expect_stat(S_IFDIR, sym_stat("/dev", &st));
	expect_stat(S_IFDIR, sym_stat(".", &st));
}

static void null_is_efault(void **state)
{
	const char *volatile null = NULL;

	errno = 0;
	assert_int_equal(sym_stat(null, &st), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(sym_open(null, O_RDONLY), -1);
	assert_int_equal(errno, EFAULT);
}

/* ---- links ---- */

static void expect_target(ssize_t len, const char *got)
{
	assert_true(len > 0);
	assert_memory_equal(got + len - strlen("/infiniband/roce0"), "/infiniband/roce0",
			    strlen("/infiniband/roce0"));
	assert_memory_equal(got, "../../devices/", strlen("../../devices/"));
}

static void every_readlink_gives_the_target(void **state)
{
	char got[PATH_MAX];

	expect_target(sym_readlink(DEVICE, got, sizeof(got)), got);
	expect_target(sym_readlinkat(AT_FDCWD, DEVICE, got, sizeof(got)), got);
	expect_target(sym___readlink_chk(DEVICE, got, sizeof(got), sizeof(got)), got);
	expect_target(sym___readlinkat_chk(AT_FDCWD, DEVICE, got, sizeof(got), sizeof(got)), got);
}

static void readlink_cuts_and_adds_no_zero(void **state)
{
	char got[8] = "xxxxxxx";

	assert_int_equal(sym_readlink(DEVICE, got, 5), 5);
	assert_string_equal(got, "../..xx");
	assert_int_equal(sym_readlink(PORT "/state", got, sizeof(got)), -1);
	assert_int_equal(errno, EINVAL);
}

static void expect_path(char *got, const char *end, bool free_it)
{
	assert_non_null(got);
	assert_int_equal(strncmp(got, "/sys/devices/", strlen("/sys/devices/")), 0);
	assert_string_equal(got + strlen(got) - strlen(end), end);
	if (free_it)
		free(got);
}

/* Debian's UCX calls __realpath_chk(). */
static void every_realpath_gives_the_place_below_the_card(void **state)
{
	char room[PATH_MAX];

	expect_path(sym_realpath(DEVICE, room), "/infiniband/roce0", false);
	expect_path(sym_realpath(DEVICE, NULL), "/infiniband/roce0", true);
	expect_path(sym___realpath_chk(DEVICE, room, sizeof(room)), "/infiniband/roce0", false);
	expect_path(canonicalize_file_name(DEVICE), "/infiniband/roce0", true);
}

static void realpath_of_the_card_is_above_the_device(void **state)
{
	char card[PATH_MAX], device[PATH_MAX];

	assert_non_null(realpath(DEVICE "/device", card));
	assert_non_null(realpath(DEVICE, device));
	assert_int_equal(strncmp(device, card, strlen(card)), 0);
	assert_string_equal(device + strlen(card), "/infiniband/roce0");
	assert_non_null(realpath(DEVICE "/../..", device));
	assert_string_equal(device, card);
}

/* It is no path that only some calls know. */
static void realpath_can_be_opened(void **state)
{
	char path[PATH_MAX + 16];

	assert_non_null(realpath(DEVICE, path));
	strcat(path, "/node_type");
	expect_content(open(path, O_RDONLY), "1: CA\n");
}

static void numa_node_and_processors_of_the_card_can_be_read(void **state)
{
	int node = -7;
	FILE *file = fopen(DEVICE "/device/numa_node", "r");
	char cpus[256] = "";

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &node), 1);
	fclose(file);
	assert_true(node >= -1);
	file = fopen(DEVICE "/device/local_cpus", "r");
	assert_non_null(file);
	assert_non_null(fgets(cpus, sizeof(cpus), file));
	assert_int_equal(strspn(cpus, "0123456789abcdef,\n"), strlen(cpus));
	fclose(file);
}

/* ---- directories ---- */

static bool has_name(DIR *dir, const char *name)
{
	struct dirent *e;

	while ((e = sym_readdir(dir)))
		if (strcmp(e->d_name, name) == 0)
			return true;
	return false;
}

static void list_has_the_device(void **state)
{
	DIR *dir = opendir(CLASS);

	assert_non_null(dir);
	assert_true(has_name(dir, "roce0"));
	rewinddir(dir);
	assert_true(has_name(dir, "roce0"));
	assert_int_equal(closedir(dir), 0);
	dir = opendir("/dev/infiniband");
	assert_true(has_name(dir, "uverbs200"));
	closedir(dir);
	dir = opendir("/sys/class");
	assert_true(has_name(dir, "infiniband"));
	rewinddir(dir);
	assert_true(has_name(dir, "net"));
	closedir(dir);
}

static void entries_have_types_and_inodes(void **state)
{
	DIR *dir = opendir(PORT);
	struct dirent *e;
	int n = 0;

	while ((e = sym_readdir64(dir))) {
		char path[PATH_MAX];

		n++;
		if (strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", PORT, e->d_name);
		assert_int_equal(lstat(path, &st), 0);
		assert_int_equal(IFTODT(st.st_mode), e->d_type);
		assert_int_equal(st.st_ino, e->d_ino);
	}
	assert_true(n > 10);
	closedir(dir);
}

static void place_in_a_list_can_be_kept(void **state)
{
	DIR *dir = opendir(PORT);
	struct dirent *e;
	char name[NAME_MAX + 1];
	long at;

	sym_readdir(dir);
	sym_readdir(dir);
	at = telldir(dir);
	e = sym_readdir(dir);
	strcpy(name, e->d_name);
	while (sym_readdir(dir))
		;
	seekdir(dir, at);
	assert_string_equal(sym_readdir(dir)->d_name, name);
	closedir(dir);
}

static void end_of_a_list_is_no_error(void **state)
{
	DIR *dir = opendir(PORT);

	errno = 0;
	while (sym_readdir(dir))
		;
	assert_int_equal(errno, 0);
	closedir(dir);
}

/* find(1) */
static void files_can_be_named_from_an_open_directory(void **state)
{
	int fd = open(DEVICE "/ports", O_RDONLY | O_DIRECTORY), other;
	char got[PATH_MAX];
	DIR *dir;

	assert_true(fd >= 0);
	expect_stat(S_IFDIR, sym_fstat(fd, &st));
	expect_stat(S_IFDIR, sym_fstat64(fd, &st));
	expect_stat(S_IFDIR, sym___fxstat(STAT_VERSION, fd, &st));
	expect_stat(S_IFDIR, sym___fxstat64(STAT_VERSION, fd, &st));
	expect_stat(S_IFREG, sym_fstatat(fd, "1/state", &st, 0));
	expect_content(sym_openat(fd, "1/state", O_RDONLY), "4: ACTIVE\n");
	assert_int_equal(faccessat(fd, "1/state", R_OK, 0), 0);
	assert_true(readlinkat(fd, "../device", got, sizeof(got)) > 0);
	other = openat(fd, "1", O_RDONLY | O_DIRECTORY);
	assert_true(other >= 0);
	dir = fdopendir(other);
	assert_non_null(dir);
	assert_int_equal(dirfd(dir), other);
	assert_true(has_name(dir, "gids"));
	assert_int_equal(closedir(dir), 0);
	assert_int_equal(fcntl(other, F_GETFD), -1);
	close(fd);
}

static void duplicate_of_an_open_directory_is_as_good(void **state)
{
	int fd = open(DEVICE, O_RDONLY | O_DIRECTORY), other = dup(fd);

	close(fd);
	expect_content(openat(other, "node_type", O_RDONLY), "1: CA\n");
	close(other);
}

static void real_directories_stay_what_they_are(void **state)
{
	int ours = open(DEVICE, O_RDONLY | O_DIRECTORY), fd = open("/", O_RDONLY | O_DIRECTORY);
	DIR *dir;

	expect_stat(S_IFDIR, sym_fstat(fd, &st));
	expect_stat(S_IFDIR, sym_fstatat(fd, "proc", &st, 0));
	expect_stat(S_IFDIR, sym_fstatat(fd, "sys/class", &st, 0));
	dir = fdopendir(fd);
	assert_true(has_name(dir, "proc"));
	assert_int_equal(dirfd(dir), fd);
	closedir(dir);
	close(ours);
}

static void lists_are_given_back(void **state)
{
	for (int i = 0; i < 500; i++) {
		DIR *dir = opendir(PORT "/gids");

		assert_non_null(dir);
		assert_true(has_name(dir, "15"));
		assert_int_equal(closedir(dir), 0);
	}
}

static void too_many_lists_are_emfile(void **state)
{
	DIR *dirs[65];
	int n = 0;

	while (n < 65 && (dirs[n] = opendir(PORT)))
		n++;
	assert_int_equal(errno, EMFILE);
	assert_int_equal(n, 64);
	while (n)
		assert_int_equal(closedir(dirs[--n]), 0);
	dirs[0] = opendir(PORT);
	assert_non_null(dirs[0]);
	closedir(dirs[0]);
}

/* ls -l */
static void files_have_no_extended_attributes(void **state)
{
	char value[64];

	assert_int_equal(getxattr(PORT "/state", "system.posix_acl_access", value, sizeof(value)),
			 -1);
	assert_int_equal(errno, ENODATA);
	assert_int_equal(lgetxattr(DEVICE, "security.selinux", value, sizeof(value)), -1);
	assert_int_equal(errno, ENODATA);
	assert_int_equal(listxattr(PORT "/state", value, sizeof(value)), 0);
	assert_int_equal(llistxattr(DEVICE, value, sizeof(value)), 0);
}

/* ---- what callers rely on ---- */

static void errno_is_preserved(void **state)
{
	char got[PATH_MAX];
	DIR *dir;

	errno = 4711;
	assert_int_equal(sym_stat(PORT "/state", &st), 0);
	assert_int_equal(access(UVERBS, R_OK), 0);
	assert_true(readlink(DEVICE, got, sizeof(got)) > 0);
	assert_non_null(realpath(DEVICE, got));
	close(open(PORT "/state", O_RDONLY));
	dir = opendir(CLASS);
	while (readdir(dir))
		;
	closedir(dir);
	assert_int_equal(errno, 4711);
}

static atomic_int allocations;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_malloc(size_t size);

void *malloc(size_t size)
{
	atomic_fetch_add(&allocations, 1);
	return __libc_malloc(size);
}
#endif

/* malloc() takes a lock, which the program may hold when the signal comes. */
static void calls_for_signal_handlers_do_not_allocate(void **state)
{
	char got[PATH_MAX];
	int before = atomic_load(&allocations);

	sym_stat(PORT "/state", &st);
	sym_lstat(DEVICE, &st);
	sym_fstatat(AT_FDCWD, UVERBS, &st, 0);
	access(UVERBS, R_OK);
	close(open(PORT "/gid_attrs/types/0", O_RDONLY));
	close(openat(AT_FDCWD, PORT, O_RDONLY | O_DIRECTORY));
	assert_true(readlink(DEVICE, got, sizeof(got)) > 0);
	assert_int_equal(atomic_load(&allocations), before);
}

static atomic_int handled;

static void handler(int sig)
{
	struct stat mine;
	int fd = open(PORT "/state", O_RDONLY);
	char byte;

	if (stat(UVERBS, &mine) == 0 && read(fd, &byte, 1) == 1)
		atomic_fetch_add(&handled, 1);
	close(fd);
}

/* An alternate stack of the size that programs ask for. */
static void signal_handler_may_call_on_a_small_stack(void **state)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK}, old;
	stack_t stack = {.ss_size = (size_t)sysconf(_SC_SIGSTKSZ)}, before;

	if (stack.ss_size < 16384)
		stack.ss_size = 16384;
	stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	assert_int_equal(sigaltstack(&stack, &before), 0);
	sigaction(SIGUSR1, &action, &old);
	raise(SIGUSR1);
	sigaction(SIGUSR1, &old, NULL);
	sigaltstack(&before, NULL);
	munmap(stack.ss_sp, stack.ss_size);
	assert_int_equal(atomic_load(&handled), 1);
}

static void *use_all(void *arg)
{
	char got[PATH_MAX];
	struct stat mine;

	for (int i = 0; i < 100; i++) {
		int fd = open(PORT "/state", O_RDONLY), dirs = open(DEVICE, O_RDONLY | O_DIRECTORY);
		DIR *dir = opendir(PORT);

		if (!dir || !has_name(dir, "state") || read(fd, got, sizeof(got)) != 10 ||
		    fstat(dirs, &mine) || !S_ISDIR(mine.st_mode) || stat(UVERBS, &mine) ||
		    !S_ISCHR(mine.st_mode) || !realpath(DEVICE, got))
			return NULL;
		closedir(dir);
		close(fd);
		close(dirs);
	}
	return arg;
}

static void many_threads_may_call(void **state)
{
	pthread_t threads[4];
	void *result;

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use_all, threads), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &result), 0);
		assert_ptr_equal(result, threads);
	}
}

static void forked_child_finds_the_same(void **state)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(use_all(&status) ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void child_that_executes_a_program_finds_the_same(void **state)
{
	assert_int_equal(system("ls " CLASS "/roce0/ports/1 | grep -qx gids"), 0);
}

static void descriptors_are_not_left_open(void **state)
{
	int first = dup(0), last;

	close(first);
	use_all(&first);
	last = dup(0);
	close(last);
	assert_int_equal(first, last);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_before_all_constructors_reach_the_kernel),
		cmocka_unit_test(constructor_may_read_files),
		cmocka_unit_test(device_file_is_a_character_device_to_every_stat),
		cmocka_unit_test(device_is_a_link_and_leads_to_a_directory),
		cmocka_unit_test(statx_says_the_same),
		cmocka_unit_test(size_of_a_link_is_that_of_its_target),
		cmocka_unit_test(file_that_is_not_there_is_enoent),
		cmocka_unit_test(device_file_may_be_read_and_written),
		cmocka_unit_test(other_files_may_be_read_only),
		cmocka_unit_test(every_open_gives_the_content),
		cmocka_unit_test(every_fopen_gives_the_content),
		cmocka_unit_test(interface_of_a_gid_exists),
		cmocka_unit_test(reading_the_type_of_an_empty_gid_is_einval),
		cmocka_unit_test(files_cannot_be_written),
		cmocka_unit_test(flags_of_open_are_heeded),
		cmocka_unit_test(opening_the_device_file_is_harmless),
		cmocka_unit_test(other_files_are_opened_as_ever),
		cmocka_unit_test(null_is_efault),
		cmocka_unit_test(every_readlink_gives_the_target),
		cmocka_unit_test(readlink_cuts_and_adds_no_zero),
		cmocka_unit_test(every_realpath_gives_the_place_below_the_card),
		cmocka_unit_test(realpath_of_the_card_is_above_the_device),
		cmocka_unit_test(realpath_can_be_opened),
		cmocka_unit_test(numa_node_and_processors_of_the_card_can_be_read),
		cmocka_unit_test(list_has_the_device),
		cmocka_unit_test(entries_have_types_and_inodes),
		cmocka_unit_test(place_in_a_list_can_be_kept),
		cmocka_unit_test(end_of_a_list_is_no_error),
		cmocka_unit_test(files_can_be_named_from_an_open_directory),
		cmocka_unit_test(duplicate_of_an_open_directory_is_as_good),
		cmocka_unit_test(real_directories_stay_what_they_are),
		cmocka_unit_test(lists_are_given_back),
		cmocka_unit_test(too_many_lists_are_emfile),
		cmocka_unit_test(files_have_no_extended_attributes),
		cmocka_unit_test(errno_is_preserved),
		cmocka_unit_test(calls_for_signal_handlers_do_not_allocate),
		cmocka_unit_test(signal_handler_may_call_on_a_small_stack),
		cmocka_unit_test(many_threads_may_call),
		cmocka_unit_test(forked_child_finds_the_same),
		cmocka_unit_test(child_that_executes_a_program_finds_the_same),
		cmocka_unit_test(descriptors_are_not_left_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
