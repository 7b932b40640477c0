// SPDX-License-Identifier: BSD-2-Clause
/*
 * state.c - a node's state directory (state.h).
 *
 * The state is text that people can read, in a canonical form: a file that does not come out the same when it is
 * written again is damaged.
 */
#include "pool/role/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/sha.h>

#include "base/file.h"
#include "base/log.h"

#define STATE_FILE "state"
#define STATE_TEXT 512
#define SUM_LEN	   16 /* bytes of the checksum that are kept */

int state_open(const char *path)
{
	int fd, rc = 0;

	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		rc = -errno;
	fd = rc == 0 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (rc == 0 && fd < 0)
		rc = -errno;
	if (rc == 0 && flock(fd, LOCK_EX | LOCK_NB) != 0)
		rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (rc == 0)
		return fd;
	log_err("state directory %s: %s", path,
		rc == -EBUSY ? "another process holds it" : strerror(-rc));
	if (fd >= 0)
		close(fd);
	return rc;
}

static void to_hex(const uint8_t *bytes, size_t len, char *to)
{
	for (size_t i = 0; i < len; i++)
		sprintf(to + 2 * i, "%02x", bytes[i]);
}

static int to_text(const struct pool_state *s, char text[STATE_TEXT])
{
	char uuid[2 * ROLL_UUID_LEN + 1], sum[2 * SUM_LEN + 1];
	uint8_t digest[SHA256_DIGEST_LENGTH];
	int len;

	to_hex(s->uuid, ROLL_UUID_LEN, uuid);
	len = snprintf(text, STATE_TEXT,
		       "stag pool state 1\npool %s\nnode %s\nkey %08" PRIx32 "\nepoch %" PRIu64
		       "\n",
		       uuid, s->node, s->key, s->epoch);
	SHA256((const uint8_t *)text, (size_t)len, digest);
	to_hex(digest, SUM_LEN, sum);
	return len + snprintf(text + len, STATE_TEXT - (size_t)len, "sum %s\n", sum);
}

static bool from_hex(const char *text, uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (sscanf(text + 2 * i, "%2hhx", &bytes[i]) != 1)
			return false;
	return true;
}

/* Returns NULL, or what is wrong with the text. */
static const char *from_text(const char *text, struct pool_state *s)
{
	char uuid[2 * ROLL_UUID_LEN + 1], again[STATE_TEXT];
	int version;

	if (sscanf(text, "stag pool state %d\n", &version) != 1)
		return "not the state of a pool's node";
	if (version != 1)
		return "unknown version";
	if (sscanf(text,
		   "stag pool state 1\npool %32[0-9a-f]\nnode %63s\nkey %" SCNx32 "\nepoch %" SCNu64
		   "\n",
		   uuid, s->node, &s->key, &s->epoch) != 4 ||
	    strlen(uuid) != 2 * ROLL_UUID_LEN || !from_hex(uuid, s->uuid, ROLL_UUID_LEN) ||
	    !name_is_valid(s->node))
		return "a line is damaged";
	to_text(s, again);
	return strcmp(text, again) == 0 ? NULL : "its checksum is wrong";
}

int state_load(int dir, struct pool_state *state)
{
	struct pool_state found = {0};
	char text[STATE_TEXT];
	struct stat st;
	const char *fault;
	ssize_t len = file_read(dir, STATE_FILE, text, sizeof(text));

	if (len == -ENOENT)
		return -ENOENT;
	if (len == -EFBIG || (len >= 0 && strlen(text) != (size_t)len)) {
		log_err("state file: not the state of a pool's node");
		return -EBADMSG;
	}
	if (len < 0 || fstatat(dir, STATE_FILE, &st, 0) != 0) {
		log_err("state file: %s", strerror(len < 0 ? (int)-len : errno));
		return len < 0 ? (int)len : -errno;
	}
	if (st.st_mode & 077) {
		log_err("state file: mode %o lets others read the key of the pool; change it to "
			"600",
			st.st_mode & 0777);
		return -EPERM;
	}
	fault = from_text(text, &found);
	if (fault) {
		log_err("state file: %s; if it is removed, the node can join again", fault);
		return -EBADMSG;
	}
	*state = found;
	return 0;
}

int state_save(int dir, const struct pool_state *state)
{
	char text[STATE_TEXT];
	int len = to_text(state, text), rc;

	rc = file_replace(dir, STATE_FILE, text, (size_t)len, 0600);
	if (rc != 0)
		log_err("state file: cannot be written: %s", strerror(-rc));
	return rc;
}
