// SPDX-License-Identifier: BSD-2-Clause
/*
 * complain.c - reports errors (complain.h).
 */
#include "complain.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "exit_code.h"

#define TEXT_MAX 1024

void (*complain_to)(const char *text);

static _Thread_local struct {
	char *why;
	size_t size;
} catcher;

/* Of the command that runs; several threads may report errors. */
static struct {
	pthread_mutex_t lock;
	bool json;
	int code;     /* of the first error whose kind is known; 0: none yet */
	json_t *held; /* the last error, not printed yet; NULL: none */
	const char *prefix;
} report = {.lock = PTHREAD_MUTEX_INITIALIZER};

void complain_catch(char *why, size_t size)
{
	catcher.why = why;
	catcher.size = size;
	if (why && size)
		*why = '\0';
}

/* ---- JSON ---- */

/* Prints the error that is held back. An error of unknown kind gets the exit code rc. */
static void print_held(int rc)
{
	json_t *o = report.held;

	report.held = NULL;
	if (!o)
		return;
	if (!json_object_get(o, "code") && !json_object_get(o, "warning")) {
		json_object_set_new(o, "code", json_string(exit_word(rc)));
		json_object_set_new(o, "exit", json_integer(rc));
	}
	json_dumpf(o, stderr, JSON_COMPACT);
	fputc('\n', stderr);
	json_decref(o);
}

/* Text need not be UTF-8: a name may have any bytes. */
static json_t *text_json(const char *text)
{
	char plain[TEXT_MAX];
	json_t *o = json_string(text);

	if (o)
		return o;
	snprintf(plain, sizeof(plain), "%s", text);
	for (char *p = plain; *p; p++)
		*p = (*p & 0x80) ? '?' : *p;
	return json_string(plain);
}

static void hold(const char *object, int code, const char *text)
{
	bool warns = strncmp(text, "warning: ", 9) == 0;

	print_held(EXIT_FAILED);
	report.held = json_object();
	if (object)
		json_object_set_new(report.held, "object", text_json(object));
	json_object_set_new(report.held, warns ? "warning" : "cause",
			    text_json(warns ? text + 9 : text));
	if (!code)
		return;
	json_object_set_new(report.held, "code", json_string(exit_word(code)));
	json_object_set_new(report.held, "exit", json_integer(code));
}

void complain_prefix(const char *text)
{
	report.prefix = text;
}

void complain_as_json(void)
{
	report.json = true;
}

bool complain_is_json(void)
{
	return report.json;
}

/* ---- errors ---- */

static void emit(const char *object, int code, const char *text)
{
	if (catcher.why) {
		snprintf(catcher.why, catcher.size, "%s", text);
		return;
	}
	pthread_mutex_lock(&report.lock);
	if (!report.code)
		report.code = code;
	if (complain_to)
		complain_to(text);
	else if (report.json)
		hold(object, code, text);
	else if (report.prefix)
		fprintf(stderr, "%s%s\n", report.prefix, text);
	else
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
	pthread_mutex_unlock(&report.lock);
}

void complain(const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	emit(NULL, 0, text);
}

void complain_for(int error, const char *object, const char *fmt, ...)
{
	int code = exit_code_of(error);
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	emit(object, code == EXIT_FAILED ? 0 : code, text);
}

void complain_try(const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&report.lock);
	if (!report.json)
		fprintf(stderr, "Try %s\n", text);
	else if (report.held)
		json_object_set_new(report.held, "try", text_json(text));
	pthread_mutex_unlock(&report.lock);
}

int complain_end(int rc)
{
	pthread_mutex_lock(&report.lock);
	if (rc == EXIT_FAILED && report.code)
		rc = report.code;
	print_held(rc == EXIT_OK ? EXIT_FAILED : rc);
	report.code = 0;
	report.json = false;
	pthread_mutex_unlock(&report.lock);
	return rc;
}
