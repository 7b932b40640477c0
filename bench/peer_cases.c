// SPDX-License-Identifier: BSD-2-Clause
/*
 * peer_cases.c - the cases of part_verbs.c, over another library.
 *
 * The same operations, windows, sizes and end of a phase, for any library. Both
 * sides always call its progress function, since these libraries need that.
 */
#include "peer_cases.h"

#include <string.h>

#define CREDIT_EVERY 128

/* At the end of the region. */
struct words {
	uint64_t stop;
	uint64_t credits;
	uint64_t source;
	uint64_t sink;
} __attribute__((aligned(64)));

struct peer peer;

static uint64_t handled, sent;

/* ---- the region: out, in, receives, words ---- */

static size_t half(void)
{
	return options.list * options.size;
}

static size_t words_at(void)
{
	size_t end = 2 * half() + PEER_RECEIVES * (options.size <= 4096 ? options.size : 0);

	return (end + 63) / 64 * 64;
}

size_t peer_region_len(void)
{
	return words_at() + sizeof(struct words);
}

static volatile struct words *words(void)
{
	return (volatile struct words *)(peer.region + words_at());
}

static size_t receive_at(uint64_t n)
{
	return 2 * half() + n % PEER_RECEIVES * options.size;
}

/* ---- steps ---- */

static void write_at(size_t from, size_t to, size_t len)
{
	peer.transport->write(from, to, len);
	peer.posted++;
}

static void read_at(size_t to, size_t from, size_t len)
{
	peer.transport->read(to, from, len);
	peer.posted++;
}

static void send_at(size_t from)
{
	peer.transport->send(from, options.size);
	peer.posted++;
}

static void wait_all_done(void)
{
	while (peer.done < peer.posted)
		peer.transport->progress();
}

/* Writes one word at a time: its source may change only when the last write is done. */
static void write_word(uint64_t value, size_t offset)
{
	wait_all_done();
	words()->source = value;
	write_at(words_at() + offsetof(struct words, source), words_at() + offset, sizeof(value));
}

static void stop_server(const struct pair_phase *ph)
{
	size_t stop = words_at() + offsetof(struct words, stop);

	wait_all_done();
	if (peer.transport->flush)
		peer.transport->flush();
	write_word(ph->number, offsetof(struct words, stop));
	if (peer.transport->flush)
		peer.transport->flush();
	read_at(words_at() + offsetof(struct words, sink), stop, sizeof(uint64_t));
	wait_all_done();
	if (words()->sink != ph->number)
		pair_die("read back %lu, wrote %lu", words()->sink, ph->number);
}

static void serve_until_stopped(struct pair_phase *ph)
{
	while (words()->stop != ph->number)
		peer.transport->progress();
}

/* ---- one-sided operations ---- */

static void post_list(void (*post)(size_t, size_t, size_t))
{
	for (size_t i = 0; i < options.list; i++)
		post(i * options.size, i * options.size, options.size);
}

static void drive_window(struct pair_phase *ph, void (*post)(size_t, size_t, size_t))
{
	uint64_t start = clock_ns(), end = start + ph->length, before = peer.posted;

	while (clock_ns() < end) {
		while (peer.posted - peer.done + options.list <= pair_window())
			post_list(post);
		peer.transport->progress();
	}
	ph->ops = peer.posted - before;
	stop_server(ph);
	ph->ns = clock_ns() - start;
}

static void drive_writes(struct pair_phase *ph)
{
	drive_window(ph, write_at);
}

static void drive_reads(struct pair_phase *ph)
{
	drive_window(ph, read_at);
}

static void drive_read_lat(struct pair_phase *ph)
{
	uint64_t last = clock_ns();

	for (size_t i = 0; i < ph->iters; i++) {
		read_at(0, 0, options.size);
		wait_all_done();
		pair_sample(ph, i, &last);
	}
	stop_server(ph);
}

static void write_serial(uint64_t serial)
{
	wait_all_done();
	memcpy(peer.region + options.size - sizeof(serial), &serial, sizeof(serial));
	write_at(0, half(), options.size);
}

static void await_serial(uint64_t serial)
{
	volatile uint64_t *word = (void *)(peer.region + half() + options.size - sizeof(serial));

	while (*word != serial)
		peer.transport->progress();
}

static void drive_write_lat(struct pair_phase *ph)
{
	uint64_t serial = ph->number << 32, last = clock_ns();

	for (size_t i = 0; i < ph->iters; i++) {
		write_serial(++serial);
		await_serial(serial);
		pair_sample(ph, i, &last);
	}
	wait_all_done();
}

static void serve_write_lat(struct pair_phase *ph)
{
	uint64_t serial = ph->number << 32;

	for (size_t i = 0; i < ph->iters; i++) {
		await_serial(++serial);
		write_serial(serial);
	}
	wait_all_done();
}

/* ---- sends ---- */

static void prepare_receives(void)
{
	for (uint64_t i = 0; i < PEER_RECEIVES; i++)
		peer.transport->receive(receive_at(i), options.size);
}

static void await_message(void)
{
	while (peer.received == handled)
		peer.transport->progress();
	handled++;
}

static void repost_receive(void)
{
	peer.transport->receive(receive_at(handled - 1), options.size);
}

static void drive_send_lat(struct pair_phase *ph)
{
	uint64_t last = clock_ns();

	for (size_t i = 0; i < ph->iters; i++) {
		send_at(0);
		await_message();
		repost_receive();
		wait_all_done();
		pair_sample(ph, i, &last);
	}
}

static void serve_send_lat(struct pair_phase *ph)
{
	for (size_t i = 0; i < ph->iters; i++) {
		await_message();
		send_at(0);
		repost_receive();
		wait_all_done();
	}
}

static bool may_send(void)
{
	return peer.posted - peer.done + options.list <= pair_window() &&
	       sent + options.list - words()->credits <= PEER_RECEIVES;
}

static void drive_send_rate(struct pair_phase *ph)
{
	uint64_t start = clock_ns(), end = start + ph->length, before = sent;

	while (clock_ns() < end) {
		for (; may_send(); sent += options.list)
			for (size_t i = 0; i < options.list; i++)
				send_at(i * options.size);
		peer.transport->progress();
	}
	wait_all_done();
	peer.region[0] = 1;
	send_at(0);
	sent++;
	while (words()->credits != sent)
		peer.transport->progress();
	wait_all_done();
	peer.region[0] = 0;
	ph->ops = sent - before;
	ph->ns = clock_ns() - start;
}

static bool take_message(void)
{
	bool last = peer.region[receive_at(handled)];

	handled++;
	repost_receive();
	if (last || handled % CREDIT_EVERY == 0)
		write_word(handled, offsetof(struct words, credits));
	return last;
}

static void serve_send_rate(struct pair_phase *ph)
{
	bool last = false;

	while (!last) {
		peer.transport->progress();
		while (handled < peer.received)
			last = take_message();
	}
	wait_all_done();
}

const struct pair_case peer_cases[] = {
	{"write_bw", PAIR_BANDWIDTH, NULL, drive_writes, serve_until_stopped, PAIR_TWO_SIDED},
	{"read_bw", PAIR_BANDWIDTH, NULL, drive_reads, serve_until_stopped, PAIR_TWO_SIDED},
	{"write_lat", PAIR_HALF_TRIP, NULL, drive_write_lat, serve_write_lat, PAIR_TWO_SIDED},
	{"read_lat", PAIR_ROUND_TRIP, NULL, drive_read_lat, serve_until_stopped, PAIR_TWO_SIDED},
	{"send_lat", PAIR_HALF_TRIP, prepare_receives, drive_send_lat, serve_send_lat,
	 PAIR_TWO_SIDED},
	{"write_rate", PAIR_RATE, NULL, drive_writes, serve_until_stopped, PAIR_TWO_SIDED},
	{"send_rate", PAIR_RATE, prepare_receives, drive_send_rate, serve_send_rate,
	 PAIR_TWO_SIDED},
	{.name = NULL},
};
