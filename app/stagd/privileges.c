// SPDX-License-Identifier: BSD-2-Clause
/*
 * privileges.c - switches from root to the daemon's user (privileges.h).
 */
#include "privileges.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

struct who {
	uid_t uid;
	gid_t gid;
	bool low_ports;
	const struct passwd *pw;
};

__attribute__((format(printf, 4, 5))) static int fail(char *why, size_t size, int error,
						      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, size, fmt, ap);
	va_end(ap);
	return -error;
}

static int find_user(const struct conf *conf, struct who *who, char *why, size_t size)
{
	const struct conf_daemon *d = conf->daemon;
	const struct group *gr;

	who->pw = getpwnam(d->user);
	if (!who->pw)
		return fail(why, size, ENOENT, "%s:%u: user '%s' does not exist", conf->path,
			    conf_line_of(&d->at, "user"), d->user);
	who->uid = who->pw->pw_uid;
	who->gid = who->pw->pw_gid;
	gr = d->group ? getgrnam(d->group) : NULL;
	if (d->group && !gr)
		return fail(why, size, ENOENT, "%s:%u: group '%s' does not exist", conf->path,
			    conf_line_of(&d->at, "group"), d->group);
	if (gr)
		who->gid = gr->gr_gid;
	who->low_ports = conf_has_low_port(conf);
	return 0;
}

/* ---- as root ---------------------------------------------------------------------- */

/* Creates the directory for the user. An existing one keeps its owner. */
static int make_user_directory(const char *path, const struct who *who, char *why, size_t size)
{
	if (!path || (mkdir(path, 0700) != 0 && errno == EEXIST))
		return 0;
	if (chown(path, who->uid, who->gid) != 0)
		return fail(why, size, errno, "%s: %s", path, strerror(errno));
	return 0;
}

/* ---- capabilities ------------------------------------------------------------------------------ */

static struct __user_cap_data_struct wanted_capabilities(const struct who *who)
{
	const uint32_t low_ports = 1u << CAP_NET_BIND_SERVICE;

	return (struct __user_cap_data_struct){.effective = who->low_ports ? low_ports : 0,
					       .permitted = who->low_ports ? low_ports : 0};
}

static int set_capabilities(const struct who *who)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {wanted_capabilities(who)};

	return syscall(SYS_capset, &head, data) == 0 ? 0 : -errno;
}

static bool has_only_wanted_capabilities(const struct who *who)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}}, want = wanted_capabilities(who);

	return syscall(SYS_capget, &head, data) == 0 && data[0].permitted == want.permitted &&
	       data[0].effective == want.effective && data[1].permitted == 0 &&
	       data[1].effective == 0;
}

/* ---- switching ---------------------------------------------------------------------------------- */

static int change_user(const struct who *who)
{
	if (prctl(PR_SET_KEEPCAPS, who->low_ports) != 0 || setgroups(0, NULL) != 0 ||
	    setresgid(who->gid, who->gid, who->gid) != 0 ||
	    setresuid(who->uid, who->uid, who->uid) != 0)
		return -errno;
	return set_capabilities(who);
}

/* Tries to become root again, instead of trusting the return values. */
static bool can_become_root_again(const struct who *who)
{
	uid_t r, e, s;
	gid_t rg, eg, sg;

	if (getresuid(&r, &e, &s) != 0 || getresgid(&rg, &eg, &sg) != 0)
		return true;
	if (r != who->uid || e != who->uid || s != who->uid || rg != who->gid || eg != who->gid ||
	    sg != who->gid || getgroups(0, NULL) != 0)
		return true;
	return setresuid(0, 0, 0) == 0 || setuid(0) == 0 || setgid(0) == 0 ||
	       !has_only_wanted_capabilities(who);
}

/* Replaces root's environment by the user's. */
static void set_environment(const struct who *who)
{
	setenv("HOME", who->pw->pw_dir, 1);
	setenv("USER", who->pw->pw_name, 1);
	setenv("LOGNAME", who->pw->pw_name, 1);
	unsetenv("XDG_RUNTIME_DIR");
}

int privileges_drop(const struct conf *conf, char *why, size_t size)
{
	struct who who;
	int rc;

	if (!conf->daemon->user)
		return 0;
	rc = find_user(conf, &who, why, size);
	if (rc != 0 || who.uid == geteuid())
		return rc;
	if (geteuid() != 0)
		return fail(why, size, EPERM,
			    "%s:%u: user = %s: only root can switch users; start stagd as root or "
			    "as %s",
			    conf->path, conf_line_of(&conf->daemon->at, "user"), who.pw->pw_name,
			    who.pw->pw_name);
	rc = make_user_directory(conf->daemon->state, &who, why, size);
	if (rc == 0)
		rc = make_user_directory(conf->daemon->control, &who, why, size);
	if (rc != 0)
		return rc;
	rc = change_user(&who);
	if (rc != 0 || can_become_root_again(&who))
		return fail(why, size, rc ? -rc : EPERM,
			    "cannot drop root's privileges: %s; nothing is served",
			    rc ? strerror(-rc) : "the process could become root again");
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_DUMPABLE,
	      1); /* as usual for a process of that user; setresuid(2) cleared it */
	set_environment(&who);
	return 0;
}

/* ---- check of all threads ------------------------------------------------------------------------------------ */

static bool is_thread_of(const char *task, uid_t uid, gid_t gid)
{
	unsigned int u[4] = {0}, g[4] = {0}, found = 0;
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", task);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		found += sscanf(line, "Uid: %u %u %u %u", &u[0], &u[1], &u[2], &u[3]) == 4;
		found += sscanf(line, "Gid: %u %u %u %u", &g[0], &g[1], &g[2], &g[3]) == 4;
	}
	if (!f)
		return errno == ENOENT; /* the thread has ended */
	fclose(f);
	for (unsigned int i = 0; i < 4 && found == 2; i++)
		if (u[i] != uid || g[i] != gid)
			return false;
	return found == 2;
}

bool privileges_are_dropped(const struct conf *conf)
{
	struct who who = {0};
	struct dirent *e;
	bool good = true;
	char why[256];
	DIR *d;

	if (!conf->daemon->user)
		return true;
	if (find_user(conf, &who, why, sizeof(why)) != 0)
		return false;
	d = opendir("/proc/self/task");
	while (d && (e = readdir(d)))
		if (*e->d_name != '.')
			good &= is_thread_of(e->d_name, who.uid, getegid());
	if (d)
		closedir(d);
	return d && good;
}
