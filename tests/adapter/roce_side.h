/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roce_side.h - one of two sides of a random tear-down: queue pairs of all types in random states, with random requests
 * under way, which are reset, used again and destroyed at random.
 *
 * Queue pair i of one side is connected to number i of the other, or to itself. The sides tell each other their numbers
 * through a socket, and may be in one process or in two. Each checks all that it hears:
 *
 *   messages    name their sender's queue pair and life (how many times it was reset), and a count: on RC they come
 *               once each, from the first one on, and of one life of the peer for each life of the receiver. Their
 *               bytes follow from that.
 *   writes      with immediate, the same. Others are read back.
 *   reads       bytes that do not change; or the last write
 *   atomics     each adds 1 to a word of its own, and so each sees the number of those before it
 *   completions come in the order of posting, and none twice
 */
#ifndef STAG_TEST_ROCE_SIDE_H
#define STAG_TEST_ROCE_SIDE_H

#include <stdbool.h>
#include <stdint.h>

#define SIDE_QPS 4

struct side;

/* number: 0 or 1. seed: of this round, the same for both sides. fd: a socket of packets to the other side. */
struct side *side_open(unsigned number, uint64_t seed, int fd);
void side_step(struct side *s); /* one random action; none once it is taken apart */
/* Destroys one more of its objects. Returns false if nothing is left: then s is gone. */
bool side_take_apart(struct side *s);

unsigned side_count_fds(void);
void side_print_fds(void);

struct side_totals { /* of this process */
	unsigned long messages, writes, reads, atomics, datagrams, failures;
};

extern struct side_totals side_totals;

#endif
