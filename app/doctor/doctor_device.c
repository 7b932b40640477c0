// SPDX-License-Identifier: BSD-2-Clause
/*
 * doctor_device.c - checks the RDMA devices of the kernel, real and soft, the modules for soft devices, and rdma-core.
 *
 * Reads /sys and finds the libraries, but calls no driver: a device that hangs does not hang the doctor.
 */
#include "doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CLASS "/sys/class/infiniband"

/* ---- devices ------------------------------------------------------------------------------ */

/* Finds the device node of a device's verbs. Returns false if there is none. */
static bool uverbs_of(const char *device, char *path, size_t size)
{
	DIR *dir = opendir("/sys/class/infiniband_verbs");
	bool found = false;

	for (struct dirent *e; dir && !found && (e = readdir(dir));) {
		char file[PATH_MAX], name[64];

		snprintf(file, sizeof(file), "/sys/class/infiniband_verbs/%s/ibdev", e->d_name);
		found = e->d_name[0] == 'u' &&
			strcmp(doctor_line(file, name, sizeof(name)), device) == 0;
		if (found)
			snprintf(path, size, "/dev/infiniband/%s", e->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

static void report_device(struct doctor *d, const char *name)
{
	char path[PATH_MAX], state[64], layer[64], node[PATH_MAX];
	bool real;

	snprintf(path, sizeof(path), CLASS "/%s/device", name);
	real = access(path, F_OK) == 0;
	snprintf(path, sizeof(path), CLASS "/%s/ports/1/state", name);
	doctor_line(path, state, sizeof(state));
	snprintf(path, sizeof(path), CLASS "/%s/ports/1/link_layer", name);
	doctor_line(path, layer, sizeof(layer));
	if (!uverbs_of(name, node, sizeof(node)))
		doctor_report(d, DOCTOR_WARNING, name,
			      (struct doctor_words){"programs cannot use it", "modprobe ib_uverbs"},
			      "%s, port 1 %s, without verbs", real ? "an adapter" : "soft", state);
	else if (access(node, R_OK | W_OK) != 0)
		doctor_report(d, DOCTOR_WARNING, name,
			      (struct doctor_words){"this user's programs cannot use it, and find "
						    "stag0 alone",
						    "ls -l /dev/infiniband; adduser $USER rdma"},
			      "%s, port 1 %s; you have no access to %s",
			      real ? "an adapter" : "soft", state, node);
	else
		doctor_report(d, strstr(state, "ACTIVE") ? DOCTOR_GOOD : DOCTOR_NOTE, name,
			      (struct doctor_words){
				      "programs under 'stag run' find it beside stag0; stag's own "
				      "services use stag0, which can do more (stagdv(7))",
				      strstr(state, "ACTIVE") ? NULL : "rdma link show"},
			      "%s, %s, port 1 %s",
			      real ? "an adapter" : "a soft device of the kernel", layer, state);
}

static int report_devices(struct doctor *d)
{
	DIR *dir = opendir(CLASS);
	int n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));)
		if (e->d_name[0] != '.') {
			report_device(d, e->d_name);
			n++;
		}
	if (dir)
		closedir(dir);
	return n;
}

/* ---- modules --------------------------------------------------------------------------------- */

static bool is_in(const char *path, const char *word)
{
	FILE *f = fopen(path, "re");
	char line[4096];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, ":\n")] = '\0';
		found = strstr(line, word);
	}
	if (f)
		fclose(f);
	return found;
}

static const char *module_state(const char *name, const char *file)
{
	struct utsname u;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/module/%s", name);
	if (access(path, F_OK) == 0)
		return "loaded";
	if (uname(&u) != 0)
		return "unknown";
	snprintf(path, sizeof(path), "/lib/modules/%s/modules.builtin", u.release);
	if (is_in(path, file))
		return "built in";
	snprintf(path, sizeof(path), "/lib/modules/%s/modules.dep", u.release);
	return is_in(path, file) ? "loadable" : "not in this kernel";
}

static void report_modules(struct doctor *d, int devices)
{
	const char *siw = module_state("siw", "/siw.ko"),
		   *rxe = module_state("rdma_rxe", "/rdma_rxe.ko");
	bool could = !strcmp(siw, "loadable") || !strcmp(rxe, "loadable");

	doctor_report(
		d, DOCTOR_NOTE, "modules",
		(struct doctor_words){
			could ? "the kernel could provide a soft device; stag needs neither a "
				"module nor root"
			      : "stag needs neither a module nor root",
			could && devices == 0
				? !strcmp(siw, "loadable")
					  ? "modprobe siw && rdma link add siw0 type siw netdev "
					    "eth0"
					  : "modprobe rdma_rxe && rdma link add rxe0 type rxe "
					    "netdev eth0"
				: NULL},
		"siw %s, rdma_rxe %s", siw, rxe);
}

/* ---- rdma-core ---------------------------------------------------------------------------------- */

/* Finds the version 1.14.44.0 of "libibverbs.so.1.14.44.0". */
static bool version_of(const char *soname, char *version, size_t size)
{
	void *library = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
	struct link_map *map = NULL;
	char path[PATH_MAX];
	const char *at;

	*version = '\0';
	if (!library)
		return false;
	if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, path)) {
		at = strstr(path, ".so.");
		snprintf(version, size, "%s", at ? at + 4 : path);
	}
	dlclose(library);
	return true;
}

static void report_library(struct doctor *d, const char *soname, const char *package)
{
	char version[PATH_MAX], next[64];

	if (version_of(soname, version, sizeof(version))) {
		doctor_report(d, DOCTOR_GOOD, soname,
			      (struct doctor_words){
				      "programs linked with it run with stag's instead", NULL},
			      "%s", version);
		return;
	}
	snprintf(next, sizeof(next), "apt-get install %s", package);
	doctor_report(d, DOCTOR_WARNING, soname,
		      (struct doctor_words){"programs that need it do not start", next},
		      "not installed");
}

void doctor_devices(struct doctor *d)
{
	int devices = report_devices(d);

	if (devices == 0)
		doctor_report(
			d, DOCTOR_NOTE, "RDMA adapters",
			(struct doctor_words){"programs use stag0, the software adapter, which is "
					      "about as fast as TCP",
					      NULL},
			"no devices of the kernel");
	report_modules(d, devices);
	report_library(d, "libibverbs.so.1", "libibverbs1");
	report_library(d, "librdmacm.so.1", "librdmacm1");
}
