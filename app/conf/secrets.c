// SPDX-License-Identifier: BSD-2-Clause
/*
 * secrets.c - reads and writes the file of secrets (secrets.h).
 */
#include "secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "base/file.h"
#include "base/log.h"
#include "base/name.h"

#define MAX_TEXT (1u << 20)
#define PREFIX	 "prefix="
#define ALSO	 "also="
#define LINE_ROOM                                                                                  \
	(SECRET_NAME_LEN + 2 * STAG_POOL_SECRET_MAX + 40 +                                         \
	 STAG_POOL_PREFIXES_MAX * (sizeof(PREFIX) + STAG_POOL_NAME_MAX))
#define BLANKS " \t\r"

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

static const char *parse_prefix(const char *word, struct secret *s)
{
	const char *prefix = word + strlen(PREFIX);
	char *copy;

	if (strncmp(word, PREFIX, strlen(PREFIX)) != 0)
		return "only also=SECRET and prefix=PREFIX may follow the secret";
	if (!*prefix || strlen(prefix) > STAG_POOL_NAME_MAX)
		return "a prefix must have 1 to 255 bytes";
	if (s->rights & RIGHT_NODE)
		return "the secret of the nodes cannot have a prefix";
	if (s->num_prefixes == STAG_POOL_PREFIXES_MAX)
		return "a user has at most 16 prefixes";
	copy = strdup(prefix);
	if (!copy)
		return "no memory";
	s->prefixes[s->num_prefixes++] = copy;
	return NULL;
}

static bool is_length_good(const char *secret)
{
	size_t length = strlen(secret);

	return length >= STAG_POOL_SECRET_MIN && length <= STAG_POOL_SECRET_MAX;
}

static const char *parse_also(const char *secret, struct secret *s)
{
	if (s->also[0])
		return "a user has at most one other secret: also=SECRET";
	if (!is_length_good(secret))
		return "a secret must have 16 to 128 characters";
	if (strcmp(secret, s->text) == 0)
		return "also= must name another secret";
	strcpy(s->also, secret);
	return NULL;
}

static const char *parse_addition(const char *word, struct secret *s)
{
	if (strncmp(word, ALSO, strlen(ALSO)) == 0)
		return parse_also(word + strlen(ALSO), s);
	return parse_prefix(word, s);
}

static void free_prefixes(struct secret *s)
{
	while (s->num_prefixes)
		free((char *)s->prefixes[--s->num_prefixes]);
}

/* Parses a line. Returns NULL, or its fault; the name is empty if the line has no entry. */
static const char *parse_line(char *line, struct secret *s)
{
	const char *fault = NULL;
	char *save, *word[3];
	int n = 0;

	line[strcspn(line, "#")] = '\0';
	for (char *w = strtok_r(line, BLANKS, &save); w;
	     w = n < 3 ? strtok_r(NULL, BLANKS, &save) : NULL)
		word[n++] = w;
	if (n == 0)
		return NULL;
	if (n != 3)
		return "a line must have a name, rights and a secret";
	if (!name_is_valid(word[0]))
		return "a name must consist of letters, digits and . - _, 63 at most";
	if (!parse_rights(word[1], &s->rights))
		return "rights must be read, write, admin or node, separated by commas";
	if (!is_length_good(word[2]))
		return "a secret must have 16 to 128 characters";
	strcpy(s->name, word[0]);
	strcpy(s->text, word[2]);
	for (char *w = strtok_r(NULL, BLANKS, &save); w && !fault;
	     w = strtok_r(NULL, BLANKS, &save))
		fault = parse_addition(w, s);
	return fault;
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
	if (fault)
		free_prefixes(&s);
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
	static const char head[] = "# Users of the pool: NAME RIGHTS SECRET [also=SECRET] "
				   "[prefix=PREFIX]...; rights: read, write, admin, node.\n";
	size_t room = sizeof(head) + secrets->count * LINE_ROOM, len = 0;
	char *text = malloc(room), rights[32];
	int rc;

	if (!text)
		return -ENOMEM;
	len += (size_t)sprintf(text, "%s", head);
	for (unsigned int i = 0; i < secrets->count; i++) {
		rights_to_text(secrets->list[i].rights, rights);
		len += (size_t)sprintf(text + len, "%s %s %s", secrets->list[i].name, rights,
				       secrets->list[i].text);
		if (secrets->list[i].also[0])
			len += (size_t)sprintf(text + len, " " ALSO "%s", secrets->list[i].also);
		for (uint32_t k = 0; k < secrets->list[i].num_prefixes; k++)
			len += (size_t)sprintf(text + len, " " PREFIX "%s",
					       secrets->list[i].prefixes[k]);
		text[len++] = '\n';
	}
	rc = file_replace(dir, name, text, len, 0600);
	OPENSSL_cleanse(text, room);
	free(text);
	return rc;
}

/* Returns whether the line, which has no fault, is that with the right "node". */
static bool is_line_of_nodes(const char *text, size_t len)
{
	char line[LINE_ROOM];
	struct secret s = {0};
	bool is;

	if (len >= sizeof(line))
		return false;
	memcpy(line, text, len);
	line[len] = '\0';
	is = !parse_line(line, &s) && s.rights & RIGHT_NODE;
	free_prefixes(&s);
	OPENSSL_cleanse(line, sizeof(line));
	OPENSSL_cleanse(&s, sizeof(s));
	return is;
}

/* Returns where the node's secret begins in its line, and how long it and its also= are; the rest of the line follows. */
static const char *find_words(const char *line, size_t *length)
{
	const char *at = line + strspn(line, BLANKS), *end;

	for (int i = 0; i < 2; i++) {
		at += strcspn(at, BLANKS);
		at += strspn(at, BLANKS);
	}
	end = at + strcspn(at, BLANKS "#\n");
	*length = (size_t)(end - at);
	end += strspn(end, BLANKS);
	if (strncmp(end, ALSO, strlen(ALSO)) == 0)
		*length = (size_t)(end - at) + strcspn(end, BLANKS "#\n");
	return at;
}

/* Writes the text with another secret in its line of nodes. Returns its length, or -ENOENT. */
static ssize_t replace_words(const char *text, const char *secret, const char *also, char *to)
{
	const char *line = text, *at;
	size_t length, head;
	int n;

	while (*line && !is_line_of_nodes(line, strcspn(line, "\n"))) {
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	if (!*line)
		return -ENOENT;
	at = find_words(line, &length);
	head = (size_t)(at - text);
	memcpy(to, text, head);
	n = sprintf(to + head, "%s%s%s", secret, also[0] ? " " ALSO : "", also);
	strcpy(to + head + n, at + length);
	return (ssize_t)strlen(to);
}

/* The file is replaced by a new one, which is this user's, and no link. */
static int check_replaceable(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ELOOP;
	return st.st_uid == geteuid() ? 0 : -EPERM;
}

int secrets_replace_node(int dir, const char *name, const char *secret, const char *also)
{
	char *text, *new;
	ssize_t len = check_replaceable(dir, name);

	if (len != 0)
		return (int)len;
	text = malloc(2 * MAX_TEXT + LINE_ROOM);
	if (!text)
		return -ENOMEM;
	new = text + MAX_TEXT;
	len = file_read_private(dir, name, text, MAX_TEXT);
	if (len >= 0 && strlen(text) != (size_t)len)
		len = -EBADMSG;
	if (len >= 0)
		len = replace_words(text, secret, also, new);
	if (len >= 0)
		len = file_replace(dir, name, new, (size_t)len, 0600);
	OPENSSL_cleanse(text, 2 * MAX_TEXT + LINE_ROOM);
	free(text);
	return (int)len;
}

void secrets_free(struct secrets *s)
{
	for (unsigned int i = 0; i < s->count; i++)
		free_prefixes(&s->list[i]);
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
