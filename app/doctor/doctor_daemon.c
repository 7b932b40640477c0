// SPDX-License-Identifier: BSD-2-Clause
/*
 * doctor_daemon.c - the daemons of this machine: which run, on which ports, since when; and why one does not.
 *
 * Those of this user answer on their control sockets, or have left a record of their last run. The processes of all users are in
 * /proc.
 */
#include "doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "control.h"
#include "last_run.h"

#define TEXT_MAX 400

/* ---- daemons that answer ------------------------------------------------------------------------ */

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

/* A port of 0 is none. */
static void add_service(json_t *serves, const char *what, int port)
{
	json_array_append_new(serves, json_pack("{s:s s:o}", "what", what, "port",
						port ? json_integer(port) : json_null()));
}

static int port_of(const json_t *o)
{
	return (int)json_integer_value(json_object_get(o, "port"));
}

static json_t *services_of(const json_t *status)
{
	static const struct {
		const char *list, *word;
	} kinds[] = {{"pools", "pool"},
		     {"stores", "store"},
		     {"targets", "target"},
		     {"watches", "watch"}};
	const json_t *api = json_object_get(status, "api"), *s;
	json_t *serves = json_array();
	char what[160];
	size_t at;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		json_array_foreach (json_object_get(status, kinds[i].list), at, s) {
			snprintf(what, sizeof(what), "%s %s%s%s%s%s", kinds[i].word,
				 text_of(s, "name"), *text_of(s, "node") ? "/" : "",
				 text_of(s, "node"), *text_of(s, "role") ? " " : "",
				 text_of(s, "role"));
			add_service(serves, what, port_of(s));
		}
	if (json_is_object(api))
		add_service(serves, "API", port_of(api));
	return serves;
}

/* Writes "pool shop/a primary on port 7175, store disk on port 7174". */
static void describe_services(const json_t *serves, char *text, size_t size)
{
	size_t at, used = 0;
	const json_t *s;

	*text = '\0';
	json_array_foreach (serves, at, s) {
		int port = port_of(s);

		if (used < size)
			used += (size_t)snprintf(text + used, size - used, "%s%s", at ? ", " : "",
						 text_of(s, "what"));
		if (port && used < size)
			used += (size_t)snprintf(text + used, size - used, " on port %d", port);
	}
}

static void add_daemon(struct doctor *d, const char *program, int pid, bool runs, json_t *more)
{
	json_t *o = json_pack("{s:s s:i s:b}", "program", program, "pid", pid, "runs", runs);

	json_object_update_new(o, more);
	json_array_append_new(d->daemons, o);
}

static void report_answer(struct doctor *d, const json_t *status)
{
	int pid = (int)json_integer_value(json_object_get(status, "pid"));
	json_t *serves = services_of(status);
	char subject[96], text[TEXT_MAX];

	snprintf(subject, sizeof(subject), "stagd %s", text_of(status, "name"));
	describe_services(serves, text, sizeof(text));
	doctor_report(d, DOCTOR_GOOD, subject,
		      (struct doctor_words){"it responds; 'stag top' shows what it does", NULL},
		      "process %d, since %s, %s: %s", pid, text_of(status, "started"),
		      text_of(status, "config"), *text ? text : "serves nothing");
	add_daemon(d, "stagd", pid, true,
		   json_pack("{s:b s:s s:s s:s s:n s:o}", "answers", true, "name",
			     text_of(status, "name"), "config", text_of(status, "config"),
			     "started", text_of(status, "started"), "error", "serves", serves));
}

static void report_silence(struct doctor *d, int pid)
{
	char next[64];

	snprintf(next, sizeof(next), "cat /proc/%d/status; kill %d", pid, pid);
	doctor_report(d, DOCTOR_WARNING, "stagd",
		      (struct doctor_words){"it is stopped or hangs, or the machine is overloaded: "
					    "its clients wait",
					    next},
		      "process %d does not answer on its control socket", pid);
	add_daemon(d, "stagd", pid, true, json_pack("{s:b}", "answers", false));
}

/* ---- what was left behind --------------------------------------------------------------------------- */

/* Reports sockets whose process is gone; the query that follows removes them. */
static void check_sockets_in(struct doctor *d, const char *dir)
{
	DIR *list = opendir(dir);

	for (struct dirent *e; list && (e = readdir(list));) {
		const char *dash = strrchr(e->d_name, '-');
		char proc[32];
		int pid = dash ? atoi(dash + 1) : 0;

		snprintf(proc, sizeof(proc), "/proc/%d", pid);
		if (pid <= 0 || strncmp(e->d_name, STAGD_KIND "-", strlen(STAGD_KIND) + 1) != 0 ||
		    access(proc, F_OK) == 0)
			continue;
		doctor_report(d, DOCTOR_NOTE, "stale socket",
			      (struct doctor_words){"the daemon was killed, or crashed; 'stag' "
						    "removes the socket when it finds it",
						    NULL},
			      "%s/%s, of process %d, which is gone", dir, e->d_name, pid);
	}
	if (list)
		closedir(list);
}

static void check_sockets(struct doctor *d)
{
	char dir[PATH_MAX];

	if (!control_directory(NULL, dir, sizeof(dir)))
		return;
	check_sockets_in(d, dir);
	if (strcmp(dir, CONTROL_SYSTEM_DIR) != 0)
		check_sockets_in(d, CONTROL_SYSTEM_DIR);
}

/* Returns the port of a line "port = 7174" or "listen = 127.0.0.1:7180" of an INI file; 0: the line has none. */
static unsigned int port_in_line(const char *line)
{
	const char *at = line + strspn(line, " \t"), *value = strchr(at, '='), *colon;

	if (!value++ || (strncmp(at, "port", 4) != 0 && strncmp(at, "listen", 6) != 0))
		return 0;
	colon = strrchr(value, ':');
	return (unsigned int)strtoul(colon ? colon + 1 : value, NULL, 10);
}

/* Adds which of the ports in the INI file are held, and by whom. */
static void add_port_owners(const char *config, char *text, size_t size)
{
	FILE *f = fopen(config, "re");
	char line[512], who[128];
	size_t used = strlen(text);

	while (f && used < size && fgets(line, sizeof(line), f)) {
		unsigned int port = port_in_line(line);

		if (port && doctor_port_owner(port, who, sizeof(who)))
			used += (size_t)snprintf(text + used, size - used,
						 " (port %u is held by %s)", port,
						 *who ? who : "another user's program");
	}
	if (f)
		fclose(f);
}

static void report_ended(struct doctor *d, const json_t *run)
{
	const char *config = text_of(run, "config"), *error = text_of(run, "error");
	int pid = (int)json_integer_value(json_object_get(run, "pid"));
	char text[TEXT_MAX], next[PATH_MAX + 32];

	if (*error)
		snprintf(text, sizeof(text), "ended at %s: %s", text_of(run, "ended"), error);
	else
		snprintf(text, sizeof(text),
			 "process %d, started at %s, was killed, or crashed, or the machine was "
			 "restarted",
			 pid, text_of(run, "began"));
	if (strstr(error, strerror(EADDRINUSE)))
		add_port_owners(config, text, sizeof(text));
	snprintf(next, sizeof(next), "stagd --config %s", config);
	doctor_report(d, DOCTOR_WARNING, "stagd",
		      (struct doctor_words){"what this file describes is not served", next},
		      "%s does not run; %s", config, text);
	add_daemon(d, "stagd", pid, false,
		   json_pack("{s:s s:s s:s}", "config", config, "started", text_of(run, "began"),
			     "error", text));
}

static void report_last_runs(struct doctor *d)
{
	json_t *runs = last_runs();
	const json_t *run;
	size_t i;

	json_array_foreach (runs, i, run)
		if (!json_is_true(json_object_get(run, "lives")))
			report_ended(d, run);
	json_decref(runs);
}

/* ---- other processes ---------------------------------------------------------------------------------- */

static bool is_listed(const struct doctor *d, int pid)
{
	const json_t *o;
	size_t i;

	json_array_foreach (d->daemons, i, o)
		if (json_integer_value(json_object_get(o, "pid")) == pid &&
		    json_is_true(json_object_get(o, "runs")))
			return true;
	return false;
}

/* Reports a daemon that does not answer this user. */
static void report_foreign(struct doctor *d, int pid, uid_t uid)
{
	bool ours = uid == geteuid();

	doctor_report(d, DOCTOR_GOOD, "stagd",
		      (struct doctor_words){ours ? "its control socket is elsewhere: 'control' in "
						   "its file, or another XDG_RUNTIME_DIR"
						 : "that user, or root, sees more of it",
					    NULL},
		      "process %d, of user %u, runs", pid, uid);
	add_daemon(d, "stagd", pid, true, json_pack("{s:b}", "answers", false));
}

/* Returns the arguments of a process as one text: "stag store serve disk.img". */
static void arguments_of(int pid, char *text, size_t size)
{
	char path[32];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	n = file_read(AT_FDCWD, path, text, size);
	text[n > 0 ? n : 0] = '\0';
	for (ssize_t i = 0; i + 1 < n; i++)
		if (!text[i])
			text[i] = ' ';
}

/* Reports 'stag store serve' and 'stag block serve'. */
static void report_server(struct doctor *d, int pid)
{
	unsigned int ports[DOCTOR_PORTS];
	json_t *serves = json_array();
	char text[256], where[TEXT_MAX];
	unsigned int n;

	arguments_of(pid, text, sizeof(text));
	n = strstr(text, " serve") ? doctor_ports_of(pid, ports) : 0;
	for (unsigned int i = 0; i < n; i++)
		add_service(serves, text, (int)ports[i]);
	if (n) {
		describe_services(serves, where, sizeof(where));
		doctor_report(d, DOCTOR_GOOD, "stag serve",
			      (struct doctor_words){"a command that serves", NULL},
			      "process %d: %s", pid, where);
		add_daemon(d, "stag", pid, true,
			   json_pack("{s:s s:O}", "name", text, "serves", serves));
	}
	json_decref(serves);
}

static void report_process(struct doctor *d, int pid)
{
	char path[32], name[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	doctor_program(pid, name, sizeof(name));
	if (stat(path, &st) != 0)
		return;
	if (strcmp(name, "stagd") == 0 && !is_listed(d, pid))
		report_foreign(d, pid, st.st_uid);
	else if (strcmp(name, "stag") == 0 && pid != getpid() && st.st_uid == geteuid())
		report_server(d, pid);
}

static void report_processes(struct doctor *d)
{
	DIR *dir = opendir("/proc");

	for (struct dirent *e; dir && (e = readdir(dir));)
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			report_process(d, atoi(e->d_name));
	if (dir)
		closedir(dir);
}

void doctor_daemons(struct doctor *d)
{
	json_t *all;
	const json_t *o;
	size_t i;

	check_sockets(d);
	all = control_query_each(STAGD_KIND, 0, "status");
	json_array_foreach (all, i, o)
		if (json_is_false(json_object_get(o, "answers")))
			report_silence(d, (int)json_integer_value(json_object_get(o, "pid")));
		else
			report_answer(d, o);
	json_decref(all);
	report_last_runs(d);
	report_processes(d);
	if (json_array_size(d->daemons) == 0)
		doctor_report(d, DOCTOR_GOOD, "stagd",
			      (struct doctor_words){"'stag pool create NAME --serve', or 'stagd "
						    "--config FILE', starts one",
						    NULL},
			      "none runs on this machine");
}
