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
static const char *const levels[] = {"err", "warn", "info", "debug", NULL};

static const struct conf_setting settings[] = {
#define FIELD(field) .at = offsetof(struct conf_daemon, field)
	{"name", CONF_NAME, FIELD(name)},
	{"user", CONF_TEXT, FIELD(user)},
	{"group", CONF_TEXT, FIELD(group)},
	{"state", CONF_PLACE, FIELD(state)},
	{"control", CONF_PLACE, FIELD(control)},
	{"log", CONF_CHOICE, FIELD(log), .wanted = "stderr, journal or json", .words = logs},
	{"log-level", CONF_CHOICE, FIELD(log_level), .wanted = "err, warn, info or debug",
	 .words = levels},
#undef FIELD
};

static void init(void *section)
{
	struct conf_daemon *d = section;

	d->log_level = 2;
}

/* /var/lib/stag of /etc/stag/stag.ini, and beside any other file a directory with its name. */
static char *usual_state(const struct conf *conf)
{
	size_t len = strlen(conf->path);
	char *text = NULL;

	if (strcmp(conf->path, CONF_PATH) == 0)
		return strdup(CONF_STATE);
	if (len > 4 && strcmp(conf->path + len - 4, ".ini") == 0)
		len -= 4;
	return asprintf(&text, "%.*s.state", (int)len, conf->path) > 0 ? text : NULL;
}

static void check_who(struct conf *conf, const struct conf_daemon *d)
{
	if (d->group && !d->user)
		conf_fault(conf, conf_line_of(&d->at, "group"), "group wants a user, too");
	if (conf->flags & CONF_TEXT_ONLY)
		return;
	if (d->user && !getpwnam(d->user))
		conf_fault(conf, conf_line_of(&d->at, "user"), "there is no user '%s' here",
			   d->user);
	if (d->group && !getgrnam(d->group))
		conf_fault(conf, conf_line_of(&d->at, "group"), "there is no group '%s' here",
			   d->group);
}

static void check(struct conf *conf, void *section)
{
	struct conf_daemon *d = section;
	char host[HOST_NAME_MAX + 1] = "";

	if (!d->name && gethostname(host, sizeof(host) - 1) == 0)
		d->name = strdup(host);
	if (!d->state)
		d->state = usual_state(conf);
	if (!d->name || !d->state)
		conf_fault(conf, d->at.line, "no memory");
	check_who(conf, d);
}

const struct conf_kind conf_daemon_kind = {
	.word = "daemon",
	.size = sizeof(struct conf_daemon),
	.settings = settings,
	.num_settings = sizeof(settings) / sizeof(settings[0]),
	.is_single = true,
	.init = init,
	.check = check,
};
