// SPDX-License-Identifier: BSD-2-Clause
/*
 * fault.c - describes why a request failed (http.h).
 */
#include "http.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"

/* Replaces bytes that are not UTF-8, which JSON must be: text from outside may be invalid, or truncated within a character. */
static void make_valid(char *text)
{
	if (utf8_is_valid(text, strlen(text)))
		return;
	for (; *text; text++)
		if (*text & 0x80)
			*text = '?';
}

int fault_set(struct fault *f, int status, const char *code, const char *next, const char *fmt, ...)
{
	va_list ap;

	*f = (struct fault){.status = status, .code = code};
	va_start(ap, fmt);
	vsnprintf(f->message, sizeof(f->message), fmt, ap);
	va_end(ap);
	snprintf(f->next, sizeof(f->next), "%s", next ? next : "");
	make_printable(f->message);
	make_valid(f->message);
	make_valid(f->next);
	return -EBADMSG;
}

json_t *fault_json(const struct fault *f)
{
	json_t *o = json_pack("{s:i s:s s:s}", "status", f->status, "code", f->code, "message",
			      f->message);

	if (*f->next)
		json_object_set_new(o, "next", json_string(f->next));
	return json_pack("{s:o}", "error", o);
}
