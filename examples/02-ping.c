// SPDX-License-Identifier: BSD-2-Clause
/*
 * 02-ping - two processes, one message each way.
 *
 *     cc 02-ping.c pair.c -libverbs -lrdmacm -o 02-ping
 *     stag run -- ./02-ping server                     prints its port
 *     stag run -- ./02-ping client 127.0.0.1 PORT
 *
 * Connecting, sending and receiving are in pair.c, which the following examples
 * use, too: that is the file to read here.
 */
#include <stdio.h>
#include <string.h>

#include "pair.h"

static void send_word(struct pair *p, const char *word)
{
	pair_tell(p, word, strlen(word) + 1);
}

static int receive_word(struct pair *p, const char *expected)
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
		ret = receive_word(&p, "ping");
		send_word(&p, "pong");
	} else {
		send_word(&p, "ping");
		ret = receive_word(&p, "pong");
	}
	pair_close(&p);
	return ret;
}
