// SPDX-License-Identifier: BSD-2-Clause
/*
 * top_screen.c - stag top in place: the screen, the keys, and the terminal as it was when all is over.
 *
 * Signals are waited for, together with keys (signalfd): so nothing runs in between, and whatever ends this process but
 * SIGKILL finds the terminal in order first.
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
	bool keys; /* there are some: standard input is a terminal, and has not ended */
	int signals;
	sigset_t old;
	size_t first, shown, page; /* row at the top, rows there are, rows that fit */
	bool open;
} screen = {.signals = -1};

static void say(const char *text)
{
	fputs(text, stdout);
	fflush(stdout);
}

/* ---- the terminal ---- */

/* Without a line's editing; signals by keys stay. */
static void enter(void)
{
	struct termios raw = screen.before;

	if (screen.keys) {
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	say("\033[?1049h\033[?25l");
}

static void leave(void)
{
	say("\033[?25h\033[?1049l");
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
	enter();
	return true;
}

void top_screen_close(void)
{
	if (!screen.open)
		return;
	leave();
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

static void draw_nobody(const struct top_options *o, int width)
{
	draw_line(o->pid ? "this process has no adapter, or has ended"
			 : "no process of yours uses the adapter; try: stag run PROGRAM",
		  width, COLOUR_NONE);
}

void top_screen_draw(const struct top_rows *rows, const struct top_options *o)
{
	char line[512];
	int width, height;

	size_of_screen(&width, &height);
	width -= width >
		 1; /* what clears the rest of a line would take a letter in the last column */
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
		draw_nobody(o, width);
	else
		draw_rows(rows, o, width, screen.page);
	fputs("\033[J", stdout);
	printf("\033[%d;1H%.*s\033[K", height, width,
	       "q quit  arrows, j, k move  p by process  c by connection  s sort  space now");
	fflush(stdout);
}

/* ---- keys and signals ---- */

static void move(long by)
{
	long last = screen.shown > screen.page ? (long)(screen.shown - screen.page) : 0;
	long at = (long)screen.first + by;

	screen.first = (size_t)(at < 0 ? 0 : at > last ? last : at);
}

static enum top_wish take_key(int key, struct top_options *o)
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
		move(1);
		return TOP_DRAW;
	case 'k':
		move(-1);
		return TOP_DRAW;
	case 'g':
		move(-(long)screen.shown);
		return TOP_DRAW;
	case 'G':
		move((long)screen.shown);
		return TOP_DRAW;
	default:
		return TOP_GO_ON;
	}
}

/* What a key of more than one byte stands for: ESC [ A, or ESC O A; pages are ESC [ 5 ~. */
static enum top_wish take_sequence(const char *s)
{
	switch (s[1]) {
	case 'A':
		move(-1);
		break;
	case 'B':
		move(1);
		break;
	case 'H':
		move(-(long)screen.shown);
		break;
	case 'F':
		move((long)screen.shown);
		break;
	case '5':
		move(-(long)screen.page);
		break;
	case '6':
		move((long)screen.page);
		break;
	default:
		return TOP_GO_ON;
	}
	return TOP_DRAW;
}

static enum top_wish hear_keys(struct top_options *o)
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
			w = take_sequence(keys + i + 1);
			for (i += 2; i < n && keys[i] >= '0' && keys[i] <= ';'; i++)
				;
		} else {
			w = take_key(keys[i], o);
		}
		wish = w > wish ? w : wish;
	}
	return wish;
}

/* Stopped from the terminal: which is another's meanwhile. */
static void stop(void)
{
	leave();
	kill(getpid(), SIGSTOP);
	enter();
}

static enum top_wish hear_signals(void)
{
	struct signalfd_siginfo info;
	enum top_wish wish = TOP_GO_ON;

	while (wish != TOP_END && read(screen.signals, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGTSTP:
			stop();
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

	/* At least once: where somebody does not answer a look takes as long as there is between two. */
	do {
		struct pollfd fds[] = {{.fd = screen.signals, .events = POLLIN},
				       {.fd = screen.keys ? STDIN_FILENO : -1, .events = POLLIN}};

		if (poll(fds, 2, now < until ? (int)((until - now) / NS_PER_MS + 1) : 0) > 0) {
			wish = fds[0].revents ? hear_signals() : TOP_GO_ON;
			w = fds[1].revents ? hear_keys(o) : TOP_GO_ON;
			wish = w > wish ? w : wish;
		}
		now = clock_ns();
	} while (wish == TOP_GO_ON && now < until);
	return wish == TOP_GO_ON ? TOP_LOOK : wish;
}
