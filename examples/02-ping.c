// SPDX-License-Identifier: BSD-2-Clause
/*
 * 02-ping - two processes, one message each way.
 *
 *     cc 02-ping.c pair.c -libverbs -lrdmacm -o 02-ping
 *     stag run -- ./02-ping server                     says which port it listens on
 *     stag run -- ./02-ping client 127.0.0.1 PORT
 *
 * What it takes to connect, to send and to receive is in pair.c, which the
 * examples behind this one use too: that is the file to read here.
 */
#include <stdio.h>
#include <string.h>

#include "pair.h"

static void say(struct pair *p, const char *word)
{
	pair_tell(p, word, strlen(word) + 1);
}

static int hear(struct pair *p, const char *expected)
{
	char word[PAIR_MESSAGE];

	pair_hear(p, word, sizeof(word));
	printf("heard '%s'\n", word);
	return strcmp(word, expected) ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct pair p;
	int ret;

	pair_open(&p, argc, argv);
	if (p.server) {
		ret = hear(&p, "ping");
		say(&p, "pong");
	} else {
		say(&p, "ping");
		ret = hear(&p, "pong");
	}
	pair_close(&p);
	return ret;
}
