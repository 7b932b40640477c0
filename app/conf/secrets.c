// SPDX-License-Identifier: BSD-2-Clause
/*
 * secrets.c - reads and writes the file of secrets (secrets.h).
 */
#include "secrets.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "base/file.h"
#include "base/log.h"
#include "base/name.h"

#define MAX_TEXT  (1u << 20)
#define LINE_ROOM (SECRET_NAME_LEN + STAG_POOL_SECRET_MAX + 32)

static const char *const right_names[] = {"read", "write", "admin", "node"};

static bool add_right(const char *name, size_t len, uint32_t *rights)
{
	for (unsigned int i = 0; i < sizeof(right_names) / sizeof(right_names[0]); i++) {
		if (strlen(right_names[i]) == len && memcmp(right_names[i], name, len) == 0) {
			*rights |= 1u << i;
			return true;
		}
	}
	return false;
}

static bool parse_rights(const char *text, uint32_t *rights)
{
	for (;;) {
		size_t len = strcspn(text, ",");

		if (!add_right(text, len, rights))
			return false;
		if (!text[len])
			return true;
		text += len + 1;
	}
}

/* Parses a line. Returns NULL, or its fault; the name is empty if the line has no entry. */
static const char *parse_line(char *line, struct secret *s)
{
	char *save, *word[4];
	int n = 0;

	line[strcspn(line, "#")] = '\0';
	for (char *w = strtok_r(line, " \t\r", &save); w && n < 4;
	     w = strtok_r(NULL, " \t\r", &save))
		word[n++] = w;
	if (n == 0)
		return NULL;
	if (n != 3)
		return "a line must have a name, rights and a secret";
	if (!name_is_valid(word[0]))
		return "a name must consist of letters, digits and . - _, 63 at most";
	if (!parse_rights(word[1], &s->rights))
		return "rights must be read, write, admin or node, separated by commas";
	if (strlen(word[2]) < STAG_POOL_SECRET_MIN || strlen(word[2]) > STAG_POOL_SECRET_MAX)
		return "a secret must have 16 to 128 characters";
	strcpy(s->name, word[0]);
	strcpy(s->text, word[2]);
	return NULL;
}

static const char *add_secret(struct secrets *all, const struct secret *s)
{
	struct secret *list;

	if (secrets_find(all, s->name))
		return "duplicate name";
	if (s->rights & RIGHT_NODE && secrets_of_nodes(all))
		return "a second line with the right node";
	list = malloc((all->count + 1) * sizeof(*list));
	if (!list)
		return "no memory";
	if (all->count)
		memcpy(list, all->list, all->count * sizeof(*list));
	list[all->count] = *s;
	if (all->count)
		OPENSSL_cleanse(all->list, all->count * sizeof(*list));
	free(all->list);
	all->list = list;
	all->count++;
	return NULL;
}

static const char *take_line(const char *text, size_t len, struct secrets *all)
{
	char line[LINE_ROOM];
	struct secret s = {0};
	const char *fault;

	if (len >= sizeof(line) || memchr(text, '\0', len))
		return "the line is too long";
	memcpy(line, text, len);
	line[len] = '\0';
	fault = parse_line(line, &s);
	if (!fault && s.name[0])
		fault = add_secret(all, &s);
	OPENSSL_cleanse(line, sizeof(line));
	OPENSSL_cleanse(&s, sizeof(s));
	return fault;
}

int secrets_parse(const char *text, const char *what, struct secrets *secrets)
{
	struct secrets found = {0};
	unsigned int line = 1;

	for (; *text; line++) {
		size_t len = strcspn(text, "\n");
		const char *fault = take_line(text, len, &found);

		if (fault) {
			log_err("%s, line %u: %s", what, line, fault);
			secrets_free(&found);
			return -EBADMSG;
		}
		text += len + (text[len] == '\n');
	}
	*secrets = found;
	return 0;
}

static int check_mode(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, 0) != 0)
		return -errno;
	if (!(st.st_mode & 077))
		return 0;
	log_err("%s: with mode %o others may read the secrets; it must be 600", name,
		st.st_mode & 0777);
	return -EPERM;
}

int secrets_load(int dir, const char *name, struct secrets *secrets)
{
	char *text;
	ssize_t len;
	int rc = check_mode(dir, name);

	if (rc != 0)
		return rc;
	text = malloc(MAX_TEXT);
	if (!text)
		return -ENOMEM;
	len = file_read(dir, name, text, MAX_TEXT);
	if (len >= 0)
		rc = strlen(text) == (size_t)len ? secrets_parse(text, name, secrets) : -EBADMSG;
	else
		rc = (int)len;
	OPENSSL_cleanse(text, MAX_TEXT);
	free(text);
	return rc;
}

static int rights_to_text(uint32_t rights, char *text)
{
	int len = 0;

	for (unsigned int i = 0; i < sizeof(right_names) / sizeof(right_names[0]); i++)
		if (rights & 1u << i)
			len += sprintf(text + len, "%s%s", len ? "," : "", right_names[i]);
	return len;
}

int secrets_save(int dir, const char *name, const struct secrets *secrets)
{
	static const char head[] =
		"# Users of the pool: NAME RIGHTS SECRET; rights: read, write, admin, node.\n";
	size_t room = sizeof(head) + secrets->count * LINE_ROOM, len = 0;
	char *text = malloc(room), rights[32];
	int rc;

	if (!text)
		return -ENOMEM;
	len += (size_t)sprintf(text, "%s", head);
	for (unsigned int i = 0; i < secrets->count; i++) {
		rights_to_text(secrets->list[i].rights, rights);
		len += (size_t)sprintf(text + len, "%s %s %s\n", secrets->list[i].name, rights,
				       secrets->list[i].text);
	}
	rc = file_replace(dir, name, text, len, 0600);
	OPENSSL_cleanse(text, room);
	free(text);
	return rc;
}

void secrets_free(struct secrets *s)
{
	if (s->list)
		OPENSSL_cleanse(s->list, s->count * sizeof(*s->list));
	free(s->list);
	*s = (struct secrets){0};
}

int secret_make(char text[STAG_POOL_SECRET_MAX + 1])
{
	uint8_t bytes[32];

	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return -EIO;
	for (size_t i = 0; i < sizeof(bytes); i++)
		sprintf(text + 2 * i, "%02x", bytes[i]);
	OPENSSL_cleanse(bytes, sizeof(bytes));
	return 0;
}

const struct secret *secrets_find(const struct secrets *s, const char *name)
{
	for (unsigned int i = 0; i < s->count; i++)
		if (strcmp(s->list[i].name, name) == 0)
			return &s->list[i];
	return NULL;
}

const struct secret *secrets_of_nodes(const struct secrets *s)
{
	for (unsigned int i = 0; i < s->count; i++)
		if (s->list[i].rights & RIGHT_NODE)
			return &s->list[i];
	return NULL;
}
