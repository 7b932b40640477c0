// SPDX-License-Identifier: BSD-2-Clause
/* config.c - the settings in the environment, read once. */
#include "adapter/config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "adapter/device.h"
#include "base/log.h"

static struct stag_config cfg;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool env_bool(const char *name, bool fallback)
{
	static const char *const yes[] = {"1", "on", "yes", "true"};
	static const char *const no[] = {"0", "off", "no", "false"};
	const char *v = secure_getenv(name);

	if (!v || !*v)
		return fallback;
	for (unsigned i = 0; i < 4; i++) {
		if (!strcasecmp(v, yes[i]))
			return true;
		if (!strcasecmp(v, no[i]))
			return false;
	}
	log_warn("%s=%s is neither on nor off; taken as %s", name, v, fallback ? "on" : "off");
	return fallback;
}

static unsigned env_number(const char *name, unsigned min, unsigned max, unsigned fallback)
{
	const char *v = secure_getenv(name);
	char *end;
	unsigned long n;

	if (!v || !*v)
		return fallback;
	n = strtoul(v, &end, 10);
	if (*end || n < min || n > max) {
		log_warn("%s=%s is not a number from %u to %u; taken as %u", name, v, min, max,
			 fallback);
		return fallback;
	}
	return (unsigned)n;
}

static const char *env_text(const char *name)
{
	const char *v = secure_getenv(name);

	return v && *v ? v : NULL;
}

/* Returns the index of a variable's value in a list of words. */
static unsigned env_word(const char *name, const char *const *words, unsigned n, unsigned fallback)
{
	const char *v = secure_getenv(name);

	if (!v || !*v)
		return fallback;
	for (unsigned i = 0; i < n; i++)
		if (!strcasecmp(v, words[i]))
			return i;
	log_warn("%s=%s is not a known value; taken as %s", name, v, words[fallback]);
	return fallback;
}

static const char *const shot_words[] = {
	[SHOT_NONE] = "off",
	[SHOT_LITERAL] = "literal",
	[SHOT_OPCODES] = "opcodes",
	[SHOT_BITS] = "bits",
};

static const char *const tls_words[] = {
	[TLS_OFF] = "off",
	[TLS_ALLOWED] = "allowed",
	[TLS_REQUIRED] = "required",
};

/* A word that is misspelt must not turn encryption off. */
static enum tls_mode env_tls(void)
{
	return env_word("STAG_TLS", tls_words, 3, env_text("STAG_TLS") ? TLS_REQUIRED : TLS_OFF);
}

static const char *const device_words[] = {"iwarp", "roce", "both"};

static unsigned env_devices(void)
{
	static const unsigned faces[] = {1u << FACE_IWARP, 1u << FACE_ROCE,
					 1u << FACE_IWARP | 1u << FACE_ROCE};

	return faces[env_word("STAG_DEVICE", device_words, 3, 0)];
}

/* Reads "first-last". */
static void env_ports(struct stag_config *c)
{
	const char *v = env_text("STAG_PORTS");
	unsigned first, last;
	char end;

	if (!v)
		return;
	if (sscanf(v, "%5u-%5u%c", &first, &last, &end) != 2 || first == 0 || last > 65535 ||
	    first > last) {
		log_warn("STAG_PORTS=%s is not a range of ports (4800-4863); any port is used", v);
		return;
	}
	c->first_port = (uint16_t)first;
	c->last_port = (uint16_t)last;
}

static void read_environment(void)
{
	cfg = (struct stag_config){
		.crc = env_bool("STAG_CRC", true),
		.crc_near = env_bool("STAG_CRC", false),
		.markers = env_bool("STAG_MARKERS", false),
		.extensions = env_bool("STAG_EXTENSIONS", true),
		.one_shot = env_word("STAG_ONE_SHOT", shot_words, 4, SHOT_OPCODES),
		.p2p = env_bool("STAG_P2P", true),
		.mpa_rev = env_number("STAG_MPA_REV", 1, 2, 2),
		.first_delay_ms = env_number("STAG_FIRST_DELAY", 0, 10000, 10),
		.connect_timeout_ms = env_number("STAG_CONNECT_TIMEOUT", 1, 3600000, 10000),
		.refused_retry_ms = env_number("STAG_REFUSED_RETRY", 0, 60000, 200),
		.part_id = env_number("STAG_PART_ID", 0, 0xffff, 0x7374),
		.trace = env_text("STAG_TRACE"),
		.congestion = env_text("STAG_CONGESTION"),
		.tls = env_tls(),
		.tls_cert = env_text("STAG_TLS_CERT"),
		.tls_key = env_text("STAG_TLS_KEY"),
		.tls_ca = env_text("STAG_TLS_CA"),
		.tls_psk = env_text("STAG_TLS_PSK"),
		.tls_name = env_text("STAG_TLS_NAME"),
		.tls_kernel = env_bool("STAG_TLS_KERNEL", false),
		.live = env_bool("STAG_LIVE", true),
		.devices = env_devices(),
	};
	env_ports(&cfg);
}

const struct stag_config *config(void)
{
	pthread_once(&once, read_environment);
	return &cfg;
}
