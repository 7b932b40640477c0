// SPDX-License-Identifier: BSD-2-Clause
/*
 * top_screen.c - stag top on a terminal: draws the screen, reads keys, and restores the terminal at the end.
 *
 * Signals are read like keys (signalfd), so no handler interrupts the drawing, and the terminal is restored before any
 * signal but SIGKILL ends the process.
 */
#include "top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "colour.h"

#define HEAD_LINES 2
#define FOOT_LINES 1

static struct {
	struct termios before;
	bool keys; /* standard input is a terminal, and has not ended */
	int signals;
	sigset_t old;
	size_t first, shown, page; /* row at the top, number of rows, rows that fit */
	bool open;
} screen = {.signals = -1};

static void write_terminal(const char *text)
{
	fputs(text, stdout);
	fflush(stdout);
}

/* ---- the terminal ---- */

/* Turns off line editing; keys still send signals. */
static void enter_screen(void)
{
	struct termios raw = screen.before;

	if (screen.keys) {
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	write_terminal("\033[?1049h\033[?25l");
}

static void leave_screen(void)
{
	write_terminal("\033[?25h\033[?1049l");
	if (screen.keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &screen.before);
}

bool top_screen_open(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
	const char *term = getenv("TERM");
	sigset_t set;

	if (!isatty(STDOUT_FILENO) || (term && strcmp(term, "dumb") == 0))
		return false;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		sigaddset(&set, numbers[i]);
	screen.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (screen.signals < 0)
		return false;
	sigprocmask(SIG_BLOCK, &set, &screen.old);
	screen.keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen.before) == 0;
	screen.open = true;
	enter_screen();
	return true;
}

void top_screen_close(void)
{
	if (!screen.open)
		return;
	leave_screen();
	close(screen.signals);
	sigprocmask(SIG_SETMASK, &screen.old, NULL);
	screen.open = false;
}

static int number_of(const char *variable, int usual)
{
	const char *text = getenv(variable);
	int n = text ? atoi(text) : 0;

	return n > 0 ? n : usual;
}

static void size_of_screen(int *width, int *height)
{
	struct winsize w;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_row > 0) {
		*width = w.ws_col;
		*height = w.ws_row;
	} else {
		*width = number_of("COLUMNS", 80);
		*height = number_of("LINES", 24);
	}
}

/* ---- drawing ---- */

static void draw_line(const char *text, int width, enum colour which)
{
	printf("%s%.*s%s\033[K\r\n", colour(which), width, text, colour(COLOUR_NONE));
}

static size_t draw_rows(const struct top_rows *rows, const struct top_options *o, int width,
			size_t room)
{
	char line[512];
	size_t at = 0, drawn = 0;

	for (size_t i = 0; i < rows->n; i++) {
		const struct top_row *r = &rows->row[i];

		if (!top_is_shown(r, o))
			continue;
		if (at++ < screen.first || drawn == room)
			continue;
		top_line(rows, r, o, width, line, sizeof(line));
		draw_line(line, width,
			  r->kind == TOP_PROCESS || r->kind == TOP_DAEMON ? COLOUR_BOLD
									  : COLOUR_NONE);
		drawn++;
	}
	return drawn;
}

static size_t count_shown(const struct top_rows *rows, const struct top_options *o)
{
	size_t n = 0;

	for (size_t i = 0; i < rows->n; i++)
		n += top_is_shown(&rows->row[i], o);
	return n;
}

static void draw_no_processes(const struct top_options *o, int width)
{
	draw_line(o->pid ? "this process does not use the adapter, or has ended"
			 : "no process of yours uses the adapter; try: stag run PROGRAM",
		  width, COLOUR_NONE);
}

void top_screen_draw(const struct top_rows *rows, const struct top_options *o)
{
	char line[512];
	int width, height;

	size_of_screen(&width, &height);
	width -=
		width > 1; /* clearing the rest of a line would erase a letter in the last column */
	screen.page =
		height > HEAD_LINES + FOOT_LINES ? (size_t)(height - HEAD_LINES - FOOT_LINES) : 1;
	screen.shown = count_shown(rows, o);
	if (screen.first + screen.page > screen.shown)
		screen.first = screen.shown > screen.page ? screen.shown - screen.page : 0;
	fputs("\033[H", stdout);
	top_head(rows, o, width, line, sizeof(line));
	draw_line(line, width, COLOUR_BOLD);
	top_titles(width, line, sizeof(line));
	draw_line(line, width, COLOUR_CYAN);
	if (!screen.shown)
		draw_no_processes(o, width);
	else
		draw_rows(rows, o, width, screen.page);
	fputs("\033[J", stdout);
	printf("\033[%d;1H%.*s\033[K", height, width,
	       "q quit  arrows, j, k move  p by process  c by connection  s sort  space now");
	fflush(stdout);
}

/* ---- keys and signals ---- */

static void scroll(long by)
{
	long last = screen.shown > screen.page ? (long)(screen.shown - screen.page) : 0;
	long at = (long)screen.first + by;

	screen.first = (size_t)(at < 0 ? 0 : at > last ? last : at);
}

static enum top_wish handle_key(int key, struct top_options *o)
{
	switch (key) {
	case 'q':
	case 'Q':
		return TOP_END;
	case 'p':
		o->connections = false;
		return TOP_DRAW;
	case 'c':
		o->connections = true;
		return TOP_DRAW;
	case 's':
		o->order = (o->order + 1) % TOP_ORDERS;
		return TOP_DRAW;
	case ' ':
		return TOP_LOOK;
	case 'j':
		scroll(1);
		return TOP_DRAW;
	case 'k':
		scroll(-1);
		return TOP_DRAW;
	case 'g':
		scroll(-(long)screen.shown);
		return TOP_DRAW;
	case 'G':
		scroll((long)screen.shown);
		return TOP_DRAW;
	default:
		return TOP_GO_ON;
	}
}

/* Interprets the escape sequence of a key: ESC [ A, or ESC O A; pages are ESC [ 5 ~. */
static enum top_wish handle_sequence(const char *s)
{
	switch (s[1]) {
	case 'A':
		scroll(-1);
		break;
	case 'B':
		scroll(1);
		break;
	case 'H':
		scroll(-(long)screen.shown);
		break;
	case 'F':
		scroll((long)screen.shown);
		break;
	case '5':
		scroll(-(long)screen.page);
		break;
	case '6':
		scroll((long)screen.page);
		break;
	default:
		return TOP_GO_ON;
	}
	return TOP_DRAW;
}

static enum top_wish read_keys(struct top_options *o)
{
	enum top_wish wish = TOP_GO_ON, w;
	char keys[64] = "";
	ssize_t n = read(STDIN_FILENO, keys, sizeof(keys) - 4);

	if (n <= 0) {
		screen.keys = n < 0 && (errno == EAGAIN || errno == EINTR);
		return TOP_GO_ON;
	}
	for (ssize_t i = 0; i < n; i++) {
		if (keys[i] == 033 && (keys[i + 1] == '[' || keys[i + 1] == 'O')) {
			w = handle_sequence(keys + i + 1);
			for (i += 2; i < n && keys[i] >= '0' && keys[i] <= ';'; i++)
				;
		} else {
			w = handle_key(keys[i], o);
		}
		wish = w > wish ? w : wish;
	}
	return wish;
}

/* Stops the process (SIGTSTP), and leaves the terminal to others meanwhile. */
static void stop_process(void)
{
	leave_screen();
	kill(getpid(), SIGSTOP);
	enter_screen();
}

static enum top_wish read_signals(void)
{
	struct signalfd_siginfo info;
	enum top_wish wish = TOP_GO_ON;

	while (wish != TOP_END && read(screen.signals, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGTSTP:
			stop_process();
			wish = TOP_DRAW;
			break;
		case SIGCONT:
		case SIGWINCH:
			wish = TOP_DRAW;
			break;
		default:
			wish = TOP_END;
		}
	}
	return wish;
}

enum top_wish top_screen_wait(uint64_t until, struct top_options *o)
{
	uint64_t now = clock_ns();
	enum top_wish wish = TOP_GO_ON, w;

	/* polls at least once: if a process does not answer, a query takes as long as the interval */
	do {
		struct pollfd fds[] = {{.fd = screen.signals, .events = POLLIN},
				       {.fd = screen.keys ? STDIN_FILENO : -1, .events = POLLIN}};

		if (poll(fds, 2, now < until ? (int)((until - now) / NS_PER_MS + 1) : 0) > 0) {
			wish = fds[0].revents ? read_signals() : TOP_GO_ON;
			w = fds[1].revents ? read_keys(o) : TOP_GO_ON;
			wish = w > wish ? w : wish;
		}
		now = clock_ns();
	} while (wish == TOP_GO_ON && now < until);
	return wish == TOP_GO_ON ? TOP_LOOK : wish;
}
