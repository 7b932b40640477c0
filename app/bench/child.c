// SPDX-License-Identifier: BSD-2-Clause
/*
 * child.c - the processes of a run: those that measure, and servers.
 *
 * The first words of a command may be NAME=VALUE, as for env(1). The stderr of all processes goes
 * to the log of the run; if a process fails, its last line there is given as the reason. All
 * processes end with this one, however it ends.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "part.h"
#include "stag.h"

#define LONGEST	   (90 * NS_PER_S) /* in addition to the requested time */
#define START_MOST (10 * NS_PER_S) /* for a server to listen */
#define MAX_SERVED 32

volatile int child_interrupted;

static struct {
	pid_t servers[MAX_SERVED];
	unsigned int num_servers;
	char complaint[256];
} all;

const char *child_complaint(void)
{
	return all.complaint;
}

const char *child_self(void)
{
	static const char *const places[] = {STAG_EXE_TO_BIN "/stag", "../stag/stag"};
	static char path[PATH_MAX];

	if (!*path && find_beside_executable(places, 2, X_OK, path) != 0)
		snprintf(path, sizeof(path), "stag");
	return path;
}

/* ---- starting ---- */

/* NAME=VALUE */
static bool is_setting(const char *word)
{
	return word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_")] == '=';
}

static void exec_child(const struct suite *s, enum child_cpu cpu, int out, const char *const *words)
{
	int log = open(s->log, O_WRONLY | O_CREAT | O_APPEND, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	if (cpu != CPU_ANY && bench_cpus() > 1)
		bench_pin(cpu == CPU_SERVER ? 0 : 1);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	dup2(open("/dev/null", O_RDWR | O_CLOEXEC), STDIN_FILENO);
	dup2(out >= 0 ? out : log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	for (; is_setting(*words); words++)
		putenv((char *)(uintptr_t)*words);
	execvp(*words, (char *const *)(uintptr_t)words);
	fprintf(stderr, "%s: %s\n", *words, strerror(errno));
	_exit(EXIT_NOT_FOUND);
}

static pid_t start_child(const struct suite *s, enum child_cpu cpu, int out,
			 const char *const *words)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		exec_child(s, cpu, out, words);
	if (pid > 0)
		setpgid(pid, pid);
	return pid;
}

static void stop_child(pid_t pid)
{
	kill(-pid, SIGKILL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static long log_length(const struct suite *s)
{
	CLEANUP_CLOSE int fd = open(s->log, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? 0 : (long)lseek(fd, 0, SEEK_END);
}

/* Stores the last line of the log after `since` as the complaint; if there is none, what. */
static void note_complaint(const struct suite *s, long since, const char *what)
{
	FILE *f = fopen(s->log, "r");
	char line[256];

	snprintf(all.complaint, sizeof(all.complaint), "%s", what);
	if (!f)
		return;
	fseek(f, since, SEEK_SET);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (*line)
			snprintf(all.complaint, sizeof(all.complaint), "%s", line);
	}
	fclose(f);
}

/* ---- measuring processes ---- */

/* Reads all output. Returns NULL after the deadline, or if memory runs out. */
static char *read_all(int fd, uint64_t deadline)
{
	size_t length = 0, room = 65536;
	char *text = malloc(room);

	while (text && clock_ns() < deadline && !child_interrupted) {
		struct pollfd p = {fd, POLLIN, 0};
		ssize_t n;

		if (poll(&p, 1, 100) <= 0)
			continue;
		n = read(fd, text + length, room - length - 1);
		if (n <= 0) {
			text[length] = '\0';
			return text;
		}
		length += (size_t)n;
		if (room - length < 4096) {
			char *more = realloc(text, room *= 2);

			if (!more)
				break;
			text = more;
		}
	}
	free(text);
	return NULL;
}

char *child_output(const struct suite *s, enum child_cpu cpu, const char *const *words)
{
	uint64_t deadline = clock_ns() + LONGEST + (uint64_t)(s->o.secs * 10 * (double)NS_PER_S);
	long since = log_length(s);
	int fds[2], status = 0;
	char *text;
	pid_t pid;

	if (child_interrupted || pipe2(fds, O_CLOEXEC) != 0)
		return NULL;
	pid = start_child(s, cpu, fds[1], words);
	close(fds[1]);
	text = pid > 0 ? read_all(fds[0], deadline) : NULL;
	close(fds[0]);
	if (pid > 0 && !text)
		stop_child(pid);
	else if (pid > 0)
		waitpid(pid, &status, 0);
	if (text && status == 0)
		return text;
	note_complaint(s, since, text ? "it failed without a message" : "it timed out");
	free(text);
	return NULL;
}

json_t *child_json(const struct suite *s, enum child_cpu cpu, const char *const *words)
{
	char *text = child_output(s, cpu, words);
	const char *begins = text ? strchr(text, '{') : NULL;
	json_t *o = begins ? json_loads(begins, JSON_DISABLE_EOF_CHECK, NULL) : NULL;

	if (text && !o)
		snprintf(all.complaint, sizeof(all.complaint), "it printed no figures");
	free(text);
	return o;
}

json_t *child_stag(const struct suite *s, enum child_cpu cpu, const char *const *words)
{
	const char *full[48] = {0};
	unsigned int n = 0;

	for (; is_setting(*words); words++)
		full[n++] = *words;
	full[n++] = child_self();
	for (; *words && n < 47; words++)
		full[n++] = *words;
	return child_json(s, cpu, full);
}

/* ---- servers ---- */

static bool is_listening(uint16_t port, const char *table)
{
	CLEANUP_FREE char *line = NULL;
	FILE *f = fopen(table, "r");
	size_t room = 0;
	bool found = false;

	while (f && !found && getline(&line, &room, f) > 0) {
		unsigned int at, state;

		found = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &at, &state) ==
				2 &&
			at == port && state == 0x0a;
	}
	if (f)
		fclose(f);
	return found;
}

pid_t child_serve(const struct suite *s, enum child_cpu cpu, uint16_t port,
		  const char *const *words)
{
	uint64_t deadline = clock_ns() + START_MOST;
	const struct timespec pause = {.tv_nsec = 5 * NS_PER_MS};
	long since = log_length(s);
	pid_t pid = all.num_servers < MAX_SERVED ? start_child(s, cpu, -1, words) : -1;

	while (pid > 0 && clock_ns() < deadline && !child_interrupted) {
		if (is_listening(port, "/proc/net/tcp") || is_listening(port, "/proc/net/tcp6")) {
			all.servers[all.num_servers++] = pid;
			return pid;
		}
		if (waitpid(pid, NULL, WNOHANG) == pid) {
			note_complaint(s, since, "it ended at once");
			return -1;
		}
		nanosleep(&pause, NULL);
	}
	if (pid > 0)
		stop_child(pid);
	note_complaint(s, since, "it did not listen in time");
	return -1;
}

uint64_t child_cpu_ns(pid_t pid)
{
	clockid_t id;

	return pid > 0 && clock_getcpuclockid(pid, &id) == 0 ? clock_read(id) : 0;
}

void child_stop_all(void)
{
	while (all.num_servers)
		stop_child(all.servers[--all.num_servers]);
}
