// SPDX-License-Identifier: BSD-2-Clause
/* plugin.c - a library in a directory of its own, for test_dlopen.c. */
int found_plugin(void);

__attribute__((visibility("default"))) int found_plugin(void)
{
	return 1;
}
