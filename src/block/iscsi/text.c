// SPDX-License-Identifier: BSD-2-Clause
/*
 * text.c - lists of key=value pairs (RFC 7143 §6.1), in and out of the data of login and text PDUs.
 */
#include "block/iscsi/iscsi.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- in ---------------------------------------------------------------------- */

int iscsi_text_collect(struct text_in *t, const void *data, uint32_t len)
{
	if (len > TEXT_MAX - t->len)
		return -EMSGSIZE;
	if (len) /* data may be NULL otherwise */
		memcpy(t->bytes + t->len, data, len);
	t->len += len;
	t->bytes[t->len] = '\0'; /* the last pair may lack its terminator */
	return 0;
}

static bool is_key(const char *s, size_t len)
{
	if (len == 0 || len > TEXT_KEY_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr("-.+@_/", s[i]))
			return false;
	return true;
}

int iscsi_text_next(struct text_in *t, uint32_t *at, const char **key, const char **value)
{
	char *pair, *equals;

	while (*at < t->len &&
	       t->bytes[*at] == '\0') /* padding that some initiators put between pairs */
		++*at;
	if (*at >= t->len)
		return 0;
	pair = t->bytes + *at;
	*at += (uint32_t)strlen(pair) + 1;
	equals = strchr(pair, '=');
	if (!equals || !is_key(pair, (size_t)(equals - pair)) ||
	    strlen(equals + 1) > TEXT_VALUE_MAX)
		return -EPROTO;
	*equals = '\0';
	*key = pair;
	*value = equals + 1;
	return 1;
}

/* ---- out --------------------------------------------------------------------- */

void iscsi_text_add(struct text_out *t, const char *key, const char *value)
{
	size_t room = sizeof(t->bytes) - t->len;
	int n = snprintf(t->bytes + t->len, room, "%s=%s", key, value);

	if (n < 0 || (size_t)n >= room) {
		t->full = true;
		return;
	}
	t->len += (uint32_t)n + 1;
}

void iscsi_text_addf(struct text_out *t, const char *key, const char *fmt, ...)
{
	char value[512];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(value, sizeof(value), fmt, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof(value))
		t->full = true;
	else
		iscsi_text_add(t, key, value);
}

/* ---- values -------------------------------------------------------------------- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool iscsi_text_number(const char *s, uint64_t *out)
{
	uint64_t v = 0;
	int base = strncasecmp(s, "0x", 2) == 0 ? 16 : 10;

	if (base == 16)
		s += 2;
	if (!*s)
		return false;
	for (; *s; s++) {
		int digit = hex_digit(*s);

		if (digit < 0 || digit >= base || v > (UINT64_MAX - 15) / 16)
			return false;
		v = v * (unsigned int)base + (unsigned int)digit;
	}
	*out = v;
	return true;
}

bool iscsi_text_bool(const char *s, bool *out)
{
	*out = strcmp(s, "Yes") == 0;
	return *out || strcmp(s, "No") == 0;
}

bool iscsi_text_list_has(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; *p;) {
		size_t n = strcspn(p, ",");

		if (n == len && memcmp(p, word, n) == 0)
			return true;
		p += n + (p[n] == ',');
	}
	return false;
}

static int binary_hex(const char *s, uint8_t *out, size_t size)
{
	size_t digits = strlen(s), n = (digits + 1) / 2;
	int high = 0;

	if (digits == 0)
		return -EINVAL;
	if (n > size)
		return -EMSGSIZE;
	/* If the number of digits is odd, the first byte has one digit. */
	for (size_t i = digits % 2; *s; s++, i++) {
		int digit = hex_digit(*s);

		if (digit < 0)
			return -EINVAL;
		if (i % 2)
			out[i / 2] = (uint8_t)(high << 4 | digit);
		high = i % 2 ? 0 : digit;
	}
	return (int)n;
}

static int base64_digit(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *p = c ? strchr(digits, c) : NULL;

	return p ? (int)(p - digits) : -1;
}

static int binary_base64(const char *s, uint8_t *out, size_t size)
{
	uint32_t bits = 0, have = 0;
	size_t n = 0;

	for (; *s && *s != '='; s++) {
		int digit = base64_digit(*s);

		if (digit < 0)
			return -EINVAL;
		bits = bits << 6 | (unsigned int)digit;
		have += 6;
		if (have < 8)
			continue;
		have -= 8;
		if (n == size)
			return -EMSGSIZE;
		out[n++] = (uint8_t)(bits >> have);
	}
	if (strspn(s, "=") != strlen(s) || strlen(s) > 2 || n == 0)
		return -EINVAL;
	return (int)n;
}

int iscsi_text_binary(const char *s, uint8_t *out, size_t size)
{
	if (strncasecmp(s, "0x", 2) == 0)
		return binary_hex(s + 2, out, size);
	if (strncasecmp(s, "0b", 2) == 0)
		return binary_base64(s + 2, out, size);
	return -EINVAL;
}

void iscsi_text_hex(const uint8_t *bytes, size_t len, char *out)
{
	static const char digits[] = "0123456789abcdef";

	*out++ = '0';
	*out++ = 'x';
	for (size_t i = 0; i < len; i++) {
		*out++ = digits[bytes[i] >> 4];
		*out++ = digits[bytes[i] & 15];
	}
	*out = '\0';
}

static bool all_hex(const char *s)
{
	while (hex_digit(*s) >= 0)
		s++;
	return *s == '\0';
}

/*
 * RFC 7143 §4.2.7.2: after stringprep a name has lower-case letters, digits, '-', '.' and ':'; '_' is accepted because
 * many use it, and UTF-8 is not examined.
 */
static bool is_plain(const char *s)
{
	for (; *s; s++)
		if (!(*s & 0x80) && !isalnum((unsigned char)*s) && !strchr("-.:_", *s))
			return false;
	return true;
}

bool iscsi_text_is_name(const char *s)
{
	size_t len = strlen(s);

	if (len <= 4 || len >= 224)
		return false;
	if (strncasecmp(s, "eui.", 4) == 0)
		return len == 4 + 16 && all_hex(s + 4);
	if (strncasecmp(s, "naa.", 4) == 0)
		return (len == 4 + 16 || len == 4 + 32) && all_hex(s + 4);
	return strncasecmp(s, "iqn.", 4) == 0 && is_plain(s);
}
