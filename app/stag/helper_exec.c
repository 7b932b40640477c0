// SPDX-License-Identifier: BSD-2-Clause
/*
 * helper_exec.c - replaces stag by one of its programs in libexec; see helper.h.
 */
#include "helper.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "stag.h"

/*
 * Looks where the program is installed, then in the build tree: app/bench/stag-bench beside
 * app/stag/stag.
 */
static int find_helper(const char *name, char *path)
{
	char installed[PATH_MAX], built[PATH_MAX];
	const char *const places[] = {installed, built};

	snprintf(installed, sizeof(installed), STAG_BIN_TO_LIBEXEC "/stag-%s", name);
	snprintf(built, sizeof(built), "../%s/stag-%s", name, name);
	return find_beside_executable(places, 2, X_OK, path);
}

int helper_exec(const struct command *self, int argc, char **argv)
{
	const char *name = self->noun->name;
	char path[PATH_MAX], *words[argc + 2];

	if (find_helper(name, path) != 0) {
		complain("cannot find the program stag-%s, which 'stag %s' runs; it belongs in %s: "
			 "install all of stag ('meson install'), or build it ('ninja "
			 "app/%s/stag-%s')",
			 name, name, STAG_LIBEXEC, name, name);
		return EXIT_FAILED;
	}
	words[0] = "stag";
	memcpy(words + 1, argv, ((size_t)argc + 1) * sizeof(*argv));
	execv(path, words);
	complain("cannot execute %s: %s", path, strerror(errno));
	return EXIT_FAILED;
}
