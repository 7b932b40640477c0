// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_dlopen.c - what dlopen() gives a program, with both libraries preloaded (by stag run).
 *
 * libfound-plugin.so is in a directory that only the RUNPATH of this program names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Finds the file that has a symbol. */
static const char *file_of(void *symbol)
{
	Dl_info at;

	assert_non_null(symbol);
	assert_int_not_equal(dladdr(symbol, &at), 0);
	return at.dli_fname;
}

static void expect_ours(void *symbol)
{
	assert_non_null(strstr(file_of(symbol), "libstag-verbs.so"));
}

static void expect_real(void *symbol)
{
	assert_null(strstr(file_of(symbol), "libstag-verbs.so"));
}

static void expect_name_is_ours(const char *name, const char *symbol)
{
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	assert_non_null(lib);
	expect_ours(dlsym(lib, symbol));
	assert_int_equal(dlclose(lib), 0);
}

static void each_name_of_libibverbs_is_ours(void **state)
{
	expect_name_is_ours("libibverbs.so", "ibv_get_device_list");
	expect_name_is_ours("libibverbs.so.1", "ibv_get_device_list");
}

static void each_name_of_librdmacm_is_ours(void **state)
{
	expect_name_is_ours("librdmacm.so", "rdma_create_id");
	expect_name_is_ours("librdmacm.so.1", "rdma_create_id");
}

/* Finds the file that the C library's dlopen() would have opened. */
static const char *real_file(const char *name)
{
	void *(*next)(const char *, int) = dlsym(RTLD_DEFAULT, "stag_found_next_dlopen");
	static char path[4096];
	struct link_map *map;
	void *lib;

	assert_non_null(next);
	lib = next(name, RTLD_LAZY | RTLD_LOCAL);
	if (!lib)
		skip();
	assert_int_equal(dlinfo(lib, RTLD_DI_LINKMAP, &map), 0);
	assert_non_null(realpath(map->l_name, path));
	return path;
}

static void full_path_of_the_real_library_is_ours(void **state)
{
	expect_name_is_ours(real_file("libibverbs.so.1"), "ibv_get_device_list");
	expect_name_is_ours(real_file("librdmacm.so.1"), "rdma_create_id");
}

static void path_of_no_file_is_an_error(void **state)
{
	assert_null(dlopen("/nonexistent/libibverbs.so.1", RTLD_NOW));
	assert_non_null(strstr(dlerror(), "/nonexistent/libibverbs.so.1"));
}

static void other_names_are_not_ours(void **state)
{
	static const char *const names[] = {"libibverbs.so.2", "libibverbs.so.10", "libibverbs",
					    "xlibibverbs.so",  "libibverbs.so.1x", NULL};

	for (const char *const *n = names; *n; n++)
		assert_null(dlopen(*n, RTLD_NOW));
}

/* What nccl asks for. */
static void symbols_are_found_under_their_versions(void **state)
{
	static const char *const names[] = {
		"ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name",
		"ibv_open_device",     "ibv_close_device",     "ibv_get_async_event",
		"ibv_ack_async_event", "ibv_query_device",     "ibv_query_port",
		"ibv_query_gid",       "ibv_query_qp",	       "ibv_alloc_pd",
		"ibv_dealloc_pd",      "ibv_reg_mr",	       "ibv_dereg_mr",
		"ibv_create_cq",       "ibv_destroy_cq",       "ibv_create_qp",
		"ibv_modify_qp",       "ibv_destroy_qp",       "ibv_fork_init",
		"ibv_event_type_str"};
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		expect_ours(dlvsym(lib, names[i], "IBVERBS_1.1"));
	expect_ours(dlvsym(lib, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
	expect_ours(dlvsym(lib, "ibv_query_ece", "IBVERBS_1.10"));
	expect_ours(dlvsym(lib, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"));
}

/* Versions of rdma-core 59 and later. Programs ask for versions that they know, and do without those that are absent. */
static void newer_versions_are_found(void **state)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);

	expect_ours(dlvsym(lib, "ibv_reg_mr_ex", "IBVERBS_1.15"));
	expect_ours(dlvsym(lib, "ibv_query_port_speed", "IBVERBS_1.16"));
	assert_null(dlvsym(lib, "ibv_query_port_speed", "IBVERBS_1.99"));
}

static void library_is_the_one_that_is_preloaded(void **state)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);

	assert_ptr_equal(dlsym(lib, "ibv_get_device_list"),
			 dlsym(RTLD_DEFAULT, "ibv_get_device_list"));
	assert_ptr_equal(lib, dlopen("librdmacm.so", RTLD_LAZY | RTLD_NOLOAD));
}

/* The adapter passes calls on other devices to it. */
static void real_library_stays_within_reach(void **state)
{
	void *(*next)(const char *, int) = dlsym(RTLD_DEFAULT, "stag_found_next_dlopen");
	void *lib = next("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);

	if (!lib)
		skip();
	expect_real(dlsym(lib, "ibv_get_device_list"));
}

/* libmlx5 and libefa need symbols of the real library that are not public: perftest, UCX and libfabric are linked with these two. */
static void providers_load(void **state)
{
	static const char *const names[] = {"libmlx5.so.1", "libefa.so.1"};

	for (size_t i = 0; i < 2; i++)
		if (!dlopen(names[i], RTLD_NOW | RTLD_LOCAL))
			assert_null(strstr(dlerror(), "undefined symbol"));
}

/* The C library looks at who calls dlopen(), and searches in that file's RUNPATH. */
static void runpath_of_the_caller_keeps_its_meaning(void **state)
{
	if (getenv("FOUND_SANITIZED")) /* its runtime calls dlopen() in place of the program */
		skip();
	assert_non_null(dlopen("libfound-plugin.so", RTLD_NOW));
}

static void program_itself_can_be_opened(void **state)
{
	assert_non_null(dlopen(NULL, RTLD_NOW));
}

static void errno_is_preserved(void **state)
{
	errno = 4711;
	assert_non_null(dlopen("libibverbs.so.1", RTLD_NOW));
	assert_int_equal(errno, 4711);
}

static void *open_often(void *arg)
{
	for (int i = 0; i < 200; i++) {
		void *lib = dlopen(i % 2 ? "libibverbs.so" : "librdmacm.so.1", RTLD_NOW);

		if (!lib || !dlsym(lib, "rdma_create_id") || dlclose(lib))
			return NULL;
	}
	return arg;
}

static void many_threads_may_open_it(void **state)
{
	pthread_t threads[4];
	void *result;

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_often, threads), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &result), 0);
		assert_ptr_equal(result, threads);
	}
}

static void forked_child_may_open_it(void **state)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(dlsym(dlopen("libibverbs.so.1", RTLD_NOW), "ibv_open_device") ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_name_of_libibverbs_is_ours),
		cmocka_unit_test(each_name_of_librdmacm_is_ours),
		cmocka_unit_test(full_path_of_the_real_library_is_ours),
		cmocka_unit_test(path_of_no_file_is_an_error),
		cmocka_unit_test(other_names_are_not_ours),
		cmocka_unit_test(symbols_are_found_under_their_versions),
		cmocka_unit_test(newer_versions_are_found),
		cmocka_unit_test(library_is_the_one_that_is_preloaded),
		cmocka_unit_test(real_library_stays_within_reach),
		cmocka_unit_test(providers_load),
		cmocka_unit_test(runpath_of_the_caller_keeps_its_meaning),
		cmocka_unit_test(program_itself_can_be_opened),
		cmocka_unit_test(errno_is_preserved),
		cmocka_unit_test(many_threads_may_open_it),
		cmocka_unit_test(forked_child_may_open_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
