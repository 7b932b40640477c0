// SPDX-License-Identifier: BSD-2-Clause
/*
 * mpi_check.c - an MPI program that checks every byte it gets.
 *
 * Messages of all sizes, collectives and one-sided access between all ranks. Ends with exit code 0 and one line, or at the
 * first wrong byte with MPI_Abort().
 *
 * usage: mpi_check [LARGEST_MESSAGE]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_LARGEST (4u << 20)
#define WINDOW_WORDS	4096

static int rank, ranks;
static size_t largest = DEFAULT_LARGEST;

/* ---- patterns ---- */

/* Byte i of the message of this size from one rank to another: differs in each of them. */
static uint8_t byte_of(int from, int to, size_t size, size_t i)
{
	uint32_t x = (uint32_t)(i * 2654435761u) + (uint32_t)size * 40503u +
		     (uint32_t)(from * 31 + to) * 977u;

	return (uint8_t)(x >> 16 ^ x >> 7);
}

static void fill(uint8_t *buf, int from, int to, size_t size)
{
	for (size_t i = 0; i < size; i++)
		buf[i] = byte_of(from, to, size, i);
}

static void fail(const char *what, int from, size_t size, size_t i)
{
	fprintf(stderr, "rank %d: %s of %zu bytes from rank %d: byte %zu is wrong\n", rank, what,
		size, from, i);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(const uint8_t *buf, const char *what, int from, int to, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (buf[i] != byte_of(from, to, size, i))
			fail(what, from, size, i);
}

static void check_value(const char *what, double is, double expected)
{
	if (is == expected)
		return;
	fprintf(stderr, "rank %d: %s: %g, expected %g\n", rank, what, is, expected);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint8_t *allocate(size_t size)
{
	uint8_t *p = malloc(size ? size : 1);

	if (!p)
		MPI_Abort(MPI_COMM_WORLD, 2);
	return p;
}

/* ---- messages ---- */

/* Sends to the next rank, and receives from the one before. */
static void exchange(uint8_t *out, uint8_t *in, size_t size)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	MPI_Status status;
	int got;

	fill(out, rank, next, size);
	memset(in, 0xee, size);
	MPI_Sendrecv(out, (int)size, MPI_BYTE, next, 1, in, (int)size, MPI_BYTE, before, 1,
		     MPI_COMM_WORLD, &status);
	MPI_Get_count(&status, MPI_BYTE, &got);
	check_value("the length of a message", got, (double)size);
	check(in, "a message", before, rank, size);
}

/* Every power of two, and the sizes beside it. */
static void all_sizes(void)
{
	uint8_t *out = allocate(largest + 1), *in = allocate(largest + 1);

	exchange(out, in, 0);
	for (size_t size = 1; size <= largest; size *= 2) {
		exchange(out, in, size - 1);
		exchange(out, in, size);
		exchange(out, in, size + 1);
	}
	free(out);
	free(in);
}

/* Many at once, received in the other order: most are unexpected when they come. */
static void many_at_once(void)
{
	enum { N = 64, SIZE = 3000 };
	uint8_t *out = allocate(N * SIZE), *in = allocate(N * SIZE);
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	MPI_Request request[2 * N];

	for (int i = 0; i < N; i++) {
		fill(out + i * SIZE, rank, next, SIZE - (size_t)i);
		MPI_Isend(out + i * SIZE, SIZE - i, MPI_BYTE, next, i, MPI_COMM_WORLD, &request[i]);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = N - 1; i >= 0; i--)
		MPI_Irecv(in + i * SIZE, SIZE, MPI_BYTE, before, i, MPI_COMM_WORLD,
			  &request[N + i]);
	MPI_Waitall(2 * N, request, MPI_STATUSES_IGNORE);
	for (int i = 0; i < N; i++)
		check(in + i * SIZE, "one of many messages", before, rank, SIZE - (size_t)i);
	free(out);
	free(in);
}

/* ---- collectives ---- */

static void sums(int n)
{
	double *mine = (double *)allocate((size_t)n * sizeof(*mine));
	double *sum = (double *)allocate((size_t)n * sizeof(*sum));

	for (int i = 0; i < n; i++)
		mine[i] = (rank + 1) * (double)i;
	MPI_Allreduce(mine, sum, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		check_value("allreduce", sum[i], ranks * (ranks + 1) / 2 * (double)i);
	free(mine);
	free(sum);
}

static void all_to_all(size_t size)
{
	uint8_t *out = allocate(size * (size_t)ranks), *in = allocate(size * (size_t)ranks);

	for (int to = 0; to < ranks; to++)
		fill(out + (size_t)to * size, rank, to, size);
	MPI_Alltoall(out, (int)size, MPI_BYTE, in, (int)size, MPI_BYTE, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		check(in + (size_t)from * size, "alltoall", from, rank, size);
	free(out);
	free(in);
}

static void broadcast(size_t size)
{
	uint8_t *buf = allocate(size);

	for (int root = 0; root < ranks; root++) {
		if (rank == root)
			fill(buf, root, root, size);
		else
			memset(buf, 0xee, size);
		MPI_Bcast(buf, (int)size, MPI_BYTE, root, MPI_COMM_WORLD);
		check(buf, "a broadcast", root, root, size);
	}
	free(buf);
}

/* ---- one-sided ---- */

/* The word that a rank writes at this place of a window. */
static int64_t word_of(int from, int i)
{
	return (int64_t)from << 32 | i;
}

/* Each writes its part of every window, and reads all parts back. */
static void put_and_get(MPI_Win win, int64_t *window)
{
	int part = WINDOW_WORDS / ranks;
	int64_t *mine = (int64_t *)allocate((size_t)part * sizeof(*mine));
	int64_t *theirs = (int64_t *)allocate((size_t)part * sizeof(*theirs));

	for (int i = 0; i < part; i++)
		mine[i] = word_of(rank, i);
	MPI_Win_fence(0, win);
	for (int to = 0; to < ranks; to++)
		MPI_Put(mine, part, MPI_INT64_T, to, (MPI_Aint)rank * part, part, MPI_INT64_T, win);
	MPI_Win_fence(0, win);
	for (int from = 0; from < ranks; from++)
		for (int i = 0; i < part; i++)
			check_value("a put", (double)window[from * part + i],
				    (double)word_of(from, i));
	for (int from = 0; from < ranks; from++) {
		MPI_Win_lock(MPI_LOCK_SHARED, from, 0, win);
		MPI_Get(theirs, part, MPI_INT64_T, from, (MPI_Aint)from * part, part, MPI_INT64_T,
			win);
		MPI_Win_unlock(from, win);
		for (int i = 0; i < part; i++)
			check_value("a get", (double)theirs[i], (double)word_of(from, i));
	}
	MPI_Barrier(MPI_COMM_WORLD);
	free(mine);
	free(theirs);
}

/* All ranks add to the same words at once. */
static void accumulate(MPI_Win win, int64_t *window)
{
	enum { WORDS = 16, TIMES = 50 };
	int64_t one[WORDS], old, add = 1, tickets;

	for (int i = 0; i < WORDS; i++)
		one[i] = 1;
	memset(window, 0, WINDOW_WORDS * sizeof(*window));
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < TIMES; i++)
		for (int to = 0; to < ranks; to++)
			MPI_Accumulate(one, WORDS, MPI_INT64_T, to, 0, WORDS, MPI_INT64_T, MPI_SUM,
				       win);
	for (int i = 0; i < TIMES; i++) {
		MPI_Fetch_and_op(&add, &old, MPI_INT64_T, 0, WORDS, MPI_SUM, win);
		MPI_Win_flush(0, win);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	for (int i = 0; i < WORDS; i++)
		check_value("accumulate", (double)window[i], (double)TIMES * ranks);
	MPI_Win_unlock(rank, win);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Get(&tickets, 1, MPI_INT64_T, 0, WORDS, 1, MPI_INT64_T, win);
	MPI_Win_unlock(0, win);
	check_value("fetch and op", (double)tickets, (double)TIMES * ranks);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void one_sided(void)
{
	int64_t *window;
	MPI_Win win;

	MPI_Win_allocate(WINDOW_WORDS * sizeof(*window), sizeof(*window), MPI_INFO_NULL,
			 MPI_COMM_WORLD, &window, &win);
	memset(window, 0, WINDOW_WORDS * sizeof(*window));
	put_and_get(win, window);
	accumulate(win, window);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc > 1)
		largest = strtoul(argv[1], NULL, 10);
	all_sizes();
	many_at_once();
	sums(1);
	sums(1000);
	sums(100000);
	all_to_all(1);
	all_to_all(5000);
	all_to_all(100000);
	broadcast(300000);
	one_sided();
	if (rank == 0)
		printf("%d ranks: all as expected\n", ranks);
	return MPI_Finalize();
}
