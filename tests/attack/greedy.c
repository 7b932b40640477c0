// SPDX-License-Identifier: BSD-2-Clause
/*
 * greedy.c - a client of a pool that asks for much and takes nothing.
 *
 *   greedy USER SECRET-FILE PORT...
 *
 * Logs in at the primary, which is at one of the ports, sends 60 messages of 200 NODES requests, and reads no answer;
 * the next time 60 messages of as many requests as a client may have unanswered. When it is disconnected, or
 * after a second, it comes again. Ends when it is killed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raw.h"
#include "valve.h"

#define MESSAGES 60
#define ALLOWED	 60 /* requests in a message that the node answers */
#define TOO_MANY 200

static char secret[128];

static bool read_secret(const char *path)
{
	FILE *f = fopen(path, "r");
	bool good = f && fgets(secret, sizeof(secret), f);

	if (f)
		fclose(f);
	secret[strcspn(secret, "\n")] = 0;
	return good;
}

static void ask_for_much(struct valve *v, struct raw *r, unsigned int requests)
{
	struct pool_request rq = {.op = POOL_OP_NODES, .length = NODE_MESSAGE};

	v->shut[VALVE_TO_CLIENT] = true;
	for (unsigned int i = 0; i < MESSAGES; i++)
		if (raw_send_many(r, &rq, requests) != 0)
			return;
	sleep(1);
}

static void visit(const char *user, uint16_t port, unsigned int requests)
{
	const uint64_t id[2] = {(uint64_t)getpid(), (uint64_t)random()};
	struct valve v;
	struct raw r;

	valve_open(&v, port);
	if (raw_open(&r, v.port, user, secret) == 0) {
		if (raw_attach(&r, id, false) == 0)
			ask_for_much(&v, &r, requests);
		raw_close(&r);
	}
	valve_close(&v);
}

int main(int argc, char **argv)
{
	if (argc < 4 || !read_secret(argv[2])) {
		fprintf(stderr, "usage: greedy USER SECRET-FILE PORT...\n");
		return 2;
	}
	for (unsigned int n = 0;; n++) {
		for (int i = 3; i < argc; i++)
			visit(argv[1], (uint16_t)atoi(argv[i]), n % 2 ? ALLOWED : TOO_MANY);
		usleep(300000);
	}
}
