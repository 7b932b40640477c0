// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_daemon.c - [daemon] of the INI file: the process.
 */
#include "conf.h"

#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const logs[] = {"stderr", "journal", "json", NULL};
static const char *const lives[] = {"own", "all", NULL};
static const char *const levels[] = {"err", "warn", "info", "debug", NULL};

static const struct conf_setting settings[] = {
#define FIELD(field) .at = offsetof(struct conf_daemon, field)
	{"name", CONF_NAME, FIELD(name), .usual = "the host's name", .sample = "alpha",
	 .help = "The daemon's name, where several are listed."},
	{"user", CONF_TEXT, FIELD(user), .usual = "the user who starts stagd", .sample = "stag",
	 .value = "*name*", .help = "Switch to this user; requires that root starts stagd.",
	 .more = "**stagd** switches for good, before it opens any other file. It keeps no "
		 "capability except the one to listen below port 1024, and that only if a section "
		 "has such a port. Limits are raised first, and the state and control directories "
		 "are created if they do not exist. **stagd** does not start if switching fails, "
		 "or "
		 "if it is started by a user who is neither root nor this one."},
	{"group", CONF_TEXT, FIELD(group), .usual = "the user's own", .sample = "stag",
	 .value = "*name*", .help = "Group to switch to, the only one; requires user."},
	{"state", CONF_FILE, FIELD(state), .usual = "*/var/lib/stag* for */etc/stag/stag.ini*",
	 .sample = "/var/lib/stag",
	 .help = "Directory for drop-ins (conf.d) and the state directories of pools.",
	 .more = "For any other file the default is *FILE.state* beside it, without the file's "
		 "*.ini*."},
	{"control", CONF_FILE, FIELD(control), .usual = "systemd's **RuntimeDirectory=**",
	 .sample = "/run/stag",
	 .help = "Directory of the sockets through which stag finds the daemon.",
	 .more = "Only the daemon's user may access it. Without systemd the default is "
		 "*$XDG_RUNTIME_DIR/stag*, or */tmp/stag-UID*. **stag** looks in these and in "
		 "*/run/stag*, and nowhere else."},
	{"log", CONF_CHOICE, FIELD(log), .wanted = "stderr, journal or json", .words = logs,
	 .preset = "stderr", .live = true,
	 .help = "Log to stderr as text, to the journal, or to stderr as JSON.",
	 .more = "Text begins with the time and the level of each line; if stderr is systemd's "
		 "journal, with its priority. The journal gets the priority and the object of "
		 "each line. JSON is one object a line: **time**, **level**, **object**, **text**, "
		 "**pid**, **id**."},
	{"audit-file", CONF_FILE, FIELD(audit_file), .usual = "none", .live = true,
	 .sample = "/var/log/stag/audit.log",
	 .help = "File for a record of who did what, from where, also what was refused.",
	 .more = "One JSON object a line; only the daemon's user may read the file. A reload opens "
		 "it again, after **logrotate**(8) has moved it. A full disk loses records, which "
		 "the log reports, and stops nothing. Without a file the last records are in "
		 "memory only. **stagd**(8) has the format."},
	{"log-level", CONF_CHOICE, FIELD(log_level), .wanted = "err, warn, info or debug",
	 .words = levels, .preset = "info", .live = true, .help = "Least severity that is logged."},
	{"live", CONF_CHOICE, FIELD(live), .wanted = "own or all", .words = lives, .preset = "own",
	 .help = "Whose processes with the adapter are shown: the daemon's user's, or all.",
	 .more = "Only root can query all. A process says of itself what it likes, and **stagd** "
		 "parses it: with **all**, every user of the machine can make it do so. Responses "
		 "are limited in size, depth and time."},
#undef FIELD
};

/* Returns /var/lib/stag for /etc/stag/stag.ini, and a directory beside any other file. */
static char *default_state_dir(const struct conf *conf)
{
	size_t len = strlen(conf->path);
	char *text = NULL;

	if (strcmp(conf->path, CONF_PATH) == 0)
		return strdup(CONF_STATE);
	if (len > 4 && strcmp(conf->path + len - 4, ".ini") == 0)
		len -= 4;
	return asprintf(&text, "%.*s.state", (int)len, conf->path) > 0 ? text : NULL;
}

static void check_user_and_group(struct conf *conf, const struct conf_daemon *d)
{
	if (d->group && !d->user)
		conf_fault(conf, conf_line_of(&d->at, "group"), "group requires user");
	if (conf->flags & CONF_TEXT_ONLY)
		return;
	if (d->user && !getpwnam(d->user))
		conf_fault(conf, conf_line_of(&d->at, "user"), "user '%s' does not exist", d->user);
	if (d->group && !getgrnam(d->group))
		conf_fault(conf, conf_line_of(&d->at, "group"), "group '%s' does not exist",
			   d->group);
}

static void check_daemon_section(struct conf *conf, void *section)
{
	struct conf_daemon *d = section;
	char host[HOST_NAME_MAX + 1] = "";

	if (!d->name && gethostname(host, sizeof(host) - 1) == 0)
		d->name = strdup(host);
	if (!d->state)
		d->state = default_state_dir(conf);
	if (!d->name || !d->state)
		conf_fault(conf, d->at.line, "out of memory");
	check_user_and_group(conf, d);
}

const struct conf_kind conf_daemon_kind = {
	.word = "daemon",
	.size = sizeof(struct conf_daemon),
	.settings = settings,
	.num_settings = sizeof(settings) / sizeof(settings[0]),
	.is_single = true,
	.sample_lines = "",
	.check = check_daemon_section,
};
