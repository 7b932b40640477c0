// SPDX-License-Identifier: BSD-2-Clause
/*
 * history.c - histories, the operations of all clients: written to a file, read from it, and
 * checked.
 *
 * There are three checks. Is the history linearizable (app/linear)? Two more find faults that make
 * it non-linearizable and are easier to understand: an acknowledged change that is missing at the
 * end (lost), and a value that was acknowledged with one version and read with another (twice). A
 * version is the number of the change that made it, so no two changes share one.
 */
#include "torture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "linear.h"
#include "stag.h"

#define FIRST_LINE "stag torture pool 1"

static const char *const act_names[ACTS] = {"none", "insert", "update", "read",	 "delete",
					    "put",  "create", "get",	"remove"};
static const char *const outcome_names[] = {"ok", "absent", "present", "mismatch", "unknown"};
#define OUTCOMES (sizeof(outcome_names) / sizeof(*outcome_names))

struct history {
	struct entry *entries;
	size_t count, room;
	struct fault *faults;
	size_t num_faults, faults_room;
};

static bool is_change(const struct entry *d)
{
	return d->act != ACT_NONE && d->act != ACT_READ && d->act != ACT_GET;
}

static bool is_removal(const struct entry *d)
{
	return d->act == ACT_DELETE || d->act == ACT_REMOVE;
}

/* ---- input of the checker ---- */

static uint8_t kind_of(const struct entry *d)
{
	static const uint8_t kinds[ACTS] = {
		[ACT_INSERT] = LINEAR_INSERT, [ACT_UPDATE] = LINEAR_UPDATE,
		[ACT_READ] = LINEAR_READ,     [ACT_DELETE] = LINEAR_DELETE,
		[ACT_PUT] = LINEAR_PUT,	      [ACT_PUT_NEW] = LINEAR_INSERT,
		[ACT_GET] = LINEAR_READ,      [ACT_REMOVE] = LINEAR_DELETE};

	return kinds[d->act];
}

static int by_number(const void *x, const void *y)
{
	const uint64_t *a = x, *b = y;

	return *a < *b ? -1 : *a > *b;
}

/* Lists values that were updated in place or moved, it is unknown which: these are not checked. */
static size_t list_doubtful(const struct history *h, uint64_t *objects)
{
	size_t n = 0;

	for (size_t i = 0; i < h->count; i++)
		if (h->entries[i].may_move && h->entries[i].act == ACT_UPDATE &&
		    h->entries[i].outcome == LINEAR_UNKNOWN)
			objects[n++] = h->entries[i].object;
	qsort(objects, n, sizeof(*objects), by_number);
	return n;
}

static size_t make_linear_ops(const struct history *h, struct linear_op *ops)
{
	CLEANUP_FREE uint64_t *doubtful = malloc((h->count + 1) * sizeof(*doubtful));
	size_t n = 0, num_doubtful = doubtful ? list_doubtful(h, doubtful) : 0;

	for (size_t i = 0; i < h->count; i++) {
		const struct entry *d = &h->entries[i];

		if (d->act == ACT_NONE ||
		    bsearch(&d->object, doubtful, num_doubtful, sizeof(*doubtful), by_number))
			continue;
		ops[n++] = (struct linear_op){.object = d->object,
					      .call = d->call,
					      .ret = d->ret,
					      .value = d->value,
					      .expected = d->expected,
					      .version = d->version,
					      .client = d->client,
					      .kind = kind_of(d),
					      .outcome = d->outcome};
	}
	return n;
}

static bool check_linear(const struct history *h, struct check_result *j)
{
	static const enum verdict_kind verdicts[] = {[LINEAR_GOOD] = VERDICT_GOOD,
						     [LINEAR_BAD] = VERDICT_BAD,
						     [LINEAR_UNDECIDED] = VERDICT_UNDECIDED};
	struct linear_verdict verdict;
	struct linear_op *ops = malloc((h->count + 1) * sizeof(*ops));
	size_t n;

	j->linear = VERDICT_UNDECIDED;
	if (!ops)
		return false;
	n = make_linear_ops(h, ops);
	j->linear = verdicts[linear_check(ops, n, &verdict)];
	if (j->linear != VERDICT_GOOD)
		linear_explain(ops, n, &verdict, stderr);
	free(ops);
	return j->linear == VERDICT_GOOD;
}

/* ---- lost, twice ---- */

struct made {
	uint64_t value, version;
};

static int by_value(const void *x, const void *y)
{
	const struct made *a = x, *b = y;

	return a->value < b->value ? -1 : a->value > b->value;
}

static void count_twice(const struct history *h, struct check_result *j)
{
	CLEANUP_FREE struct made *made = malloc((h->count + 1) * sizeof(*made));
	size_t n = 0;

	for (size_t i = 0; made && i < h->count; i++) {
		const struct entry *d = &h->entries[i];

		if (is_change(d) && !is_removal(d) && d->outcome == LINEAR_OK && d->value)
			made[n++] = (struct made){d->value, d->version};
	}
	if (!made)
		return;
	qsort(made, n, sizeof(*made), by_value);
	for (size_t i = 0; i < h->count; i++) {
		const struct entry *d = &h->entries[i];
		const struct made key = {.value = d->value}, *found;

		if (is_change(d) || d->outcome != LINEAR_OK || !d->value || !d->version)
			continue;
		found = bsearch(&key, made, n, sizeof(*made), by_value);
		j->twice += found && found->version && found->version != d->version;
	}
}

static int by_object_and_version(const void *x, const void *y)
{
	const struct entry *const *a = x, *const *b = y;

	if ((*a)->object != (*b)->object)
		return (*a)->object < (*b)->object ? -1 : 1;
	return (*a)->version < (*b)->version ? -1 : (*a)->version > (*b)->version;
}

static bool is_of_sweep(const struct entry *d, uint16_t sweeper)
{
	return d->client == sweeper && !is_change(d);
}

/* A removal, perhaps, that came not before another change. */
static bool may_remove_later(const struct entry *d, const struct entry *change)
{
	if (!is_removal(d))
		return false;
	return d->outcome == LINEAR_UNKNOWN || (d->outcome == LINEAR_OK && d->ret > change->call);
}

/*
 * Returns whether the sweep missed the last acknowledged change of one object: it saw an older version, or no
 * value although no removal explains that. Removals have no version.
 */
static bool is_lost(const struct entry *const *entries, size_t n, uint16_t sweeper)
{
	const struct entry *last = NULL, *seen = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct entry *d = entries[i];

		if (is_of_sweep(d, sweeper))
			seen = d;
		else if (is_change(d) && !is_removal(d) && d->outcome == LINEAR_OK)
			last = d;
	}
	if (!last || !seen || !last->version)
		return false;
	if (seen->outcome == LINEAR_OK)
		return seen->version < last->version;
	for (size_t i = 0; i < n; i++)
		if (may_remove_later(entries[i], last))
			return false;
	return seen->outcome == LINEAR_ABSENT;
}

static void count_lost(const struct history *h, struct check_result *j)
{
	CLEANUP_FREE const struct entry **entries = malloc((h->count + 1) * sizeof(struct entry *));
	uint16_t sweeper = 0;

	if (!entries)
		return;
	for (size_t i = 0; i < h->count; i++) {
		entries[i] = &h->entries[i];
		if (h->entries[i].client > sweeper)
			sweeper = h->entries[i].client;
	}
	qsort(entries, h->count, sizeof(*entries), by_object_and_version);
	for (size_t first = 0, end; first < h->count; first = end) {
		for (end = first; end < h->count && entries[end]->object == entries[first]->object;)
			end++;
		j->lost += is_lost(entries + first, end - first, sweeper);
	}
	for (size_t i = 0; i < h->count; i++)
		j->seen +=
			is_of_sweep(&h->entries[i], sweeper) && h->entries[i].outcome == LINEAR_OK;
}

/* ---- length of outages ---- */

static int by_size(const void *x, const void *y)
{
	const double *a = x, *b = y;

	return *a < *b ? -1 : *a > *b;
}

/*
 * Returns the ms from a primary's death to the return of the first change called after it; -1:
 * none.
 */
static double time_away(const struct history *h, uint64_t since)
{
	uint64_t first = LINEAR_NEVER;

	for (size_t i = 0; i < h->count; i++) {
		const struct entry *d = &h->entries[i];

		if (d->call > since && d->ret < first && is_change(d) && d->outcome == LINEAR_OK)
			first = d->ret;
	}
	return first == LINEAR_NEVER ? -1 : (double)(first - since) / 1e6;
}

static void measure_failovers(const struct history *h, struct check_result *j)
{
	j->times = calloc(h->num_faults + 1, sizeof(*j->times));
	for (size_t i = 0; j->times && i < h->num_faults; i++) {
		double ms = h->faults[i].is_failover ? time_away(h, h->faults[i].at) : -1;

		if (ms >= 0)
			j->times[j->num_times++] = ms;
	}
	if (j->times)
		qsort(j->times, j->num_times, sizeof(*j->times), by_size);
}

static bool check_history(const struct history *h, struct check_result *j)
{
	*j = (struct check_result){0};
	for (size_t i = 0; i < h->count; i++) {
		j->operations += h->entries[i].act != ACT_NONE;
		j->unknown +=
			h->entries[i].act != ACT_NONE && h->entries[i].outcome == LINEAR_UNKNOWN;
	}
	count_lost(h, j);
	count_twice(h, j);
	measure_failovers(h, j);
	return check_linear(h, j) && j->lost == 0 && j->twice == 0;
}

/* ---- journals ---- */

/* Turns what the sweep found into the beginning of the next history. */
static uint32_t found_by_sweep(struct journal *d)
{
	uint32_t kept = 0;
	uint64_t now = clock_ns();

	for (uint32_t i = 0; i < atomic_load(&d->count); i++) {
		struct entry entry = d->entries[i];

		if (is_change(&entry) || entry.outcome != LINEAR_OK)
			continue;
		entry.act = ACT_PUT;
		entry.call = entry.ret = now;
		d->entries[kept++] = entry;
	}
	return kept;
}

void history_begin(struct torture *t)
{
	struct journal *sweep = &t->shared->journals[t->o.clients + 1];
	uint32_t kept = found_by_sweep(sweep);

	for (unsigned int i = 0; i < t->o.clients + 2; i++) {
		atomic_store(&t->shared->journals[i].count, 0);
		atomic_store(&t->shared->journals[i].done, 0);
		atomic_store(&t->shared->journals[i].timed_out, false);
	}
	atomic_store(&sweep->count, kept);
	t->num_faults = 0;
}

static bool gather_history(const struct torture *t, struct history *h)
{
	size_t total = 0;

	for (unsigned int i = 0; i < t->o.clients + 2; i++)
		total += atomic_load(&t->shared->journals[i].count);
	*h = (struct history){.entries = malloc((total + 1) * sizeof(struct entry)),
			      .faults = (struct fault *)t->faults,
			      .num_faults = t->num_faults};
	if (!h->entries)
		return false;
	for (unsigned int i = 0; i < t->o.clients + 2; i++) {
		const struct journal *d = &t->shared->journals[i];
		uint32_t n = atomic_load(&d->count);

		memcpy(h->entries + h->count, d->entries, n * sizeof(struct entry));
		h->count += n;
	}
	return true;
}

static size_t count_unknown_inserts(const struct history *h)
{
	size_t n = 0;

	for (size_t i = 0; i < h->count; i++)
		n += h->entries[i].outcome == LINEAR_UNKNOWN &&
		     (h->entries[i].act == ACT_INSERT || h->entries[i].may_move);
	return n;
}

bool history_check(struct torture *t, struct check_result *j)
{
	struct history h;
	bool good;

	if (!gather_history(t, &h))
		return fail_phase(t, "out of memory for the history");
	good = check_history(&h, j);
	t->unknown_inserts += count_unknown_inserts(&h);
	free(h.entries);
	if (j->lost)
		return fail_phase(t, "%zu acknowledged changes are lost", j->lost);
	if (j->twice)
		return fail_phase(t, "%zu changes happened twice", j->twice);
	if (!good)
		return fail_phase(t, "the history is %s",
				  j->linear == VERDICT_BAD ? "not linearizable"
							   : "too concurrent to be checked");
	return true;
}

/* ---- files ---- */

static void write_entry(FILE *f, const struct entry *d)
{
	fprintf(f,
		"%s %" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIx64 " %" PRIu64 " %" PRIu64
		" %u %u %s %d %d\n",
		act_names[d->act], d->object, d->call, d->ret, d->value, d->expected, d->version,
		d->length, d->client, outcome_names[d->outcome], d->error, d->may_move);
}

int history_write(const struct torture *t, const char *path)
{
	struct history h;
	FILE *f = fopen(path, "w");
	bool good = f && gather_history(t, &h);

	if (!good) {
		if (f)
			fclose(f);
		return -EIO;
	}
	fprintf(f, FIRST_LINE " seed %#" PRIx64 "\n", t->o.seed);
	for (size_t i = 0; i < h.num_faults; i++)
		fprintf(f, "fault %" PRIu64 " %d %s\n", h.faults[i].at, h.faults[i].is_failover,
			h.faults[i].what);
	for (size_t i = 0; i < h.count; i++)
		write_entry(f, &h.entries[i]);
	free(h.entries);
	return fclose(f) == 0 ? 0 : -errno;
}

static int word_index(const char *word, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(word, list[i]) == 0)
			return (int)i;
	return -1;
}

static bool parse_entry(const char *line, struct entry *d)
{
	char act[16], outcome[16];
	int may_move, a, o;

	if (sscanf(line,
		   "%15s %" SCNx64 " %" SCNu64 " %" SCNu64 " %" SCNx64 " %" SCNu64 " %" SCNu64
		   " %u %hu %15s %d %d",
		   act, &d->object, &d->call, &d->ret, &d->value, &d->expected, &d->version,
		   &d->length, &d->client, outcome, &d->error, &may_move) != 12)
		return false;
	a = word_index(act, act_names, ACTS);
	o = word_index(outcome, outcome_names, OUTCOMES);
	d->act = (uint8_t)a;
	d->outcome = (uint8_t)o;
	d->may_move = may_move;
	return a >= 0 && o >= 0;
}

static bool parse_fault(const char *line, struct fault *f)
{
	int is_failover;

	if (sscanf(line, "fault %" SCNu64 " %d %55[^\n]", &f->at, &is_failover, f->what) != 3)
		return false;
	f->is_failover = is_failover;
	return true;
}

static struct fault *add_fault(struct history *h)
{
	if (h->num_faults == h->faults_room) {
		size_t room = 2 * h->faults_room + 64;
		struct fault *more = realloc(h->faults, room * sizeof(*more));

		if (!more)
			return NULL;
		h->faults = more;
		h->faults_room = room;
	}
	h->faults[h->num_faults] = (struct fault){0};
	return &h->faults[h->num_faults++];
}

static struct entry *add_entry(struct history *h)
{
	if (h->count == h->room) {
		size_t room = 2 * h->room + 1024;
		struct entry *more = realloc(h->entries, room * sizeof(*more));

		if (!more)
			return NULL;
		h->entries = more;
		h->room = room;
	}
	h->entries[h->count] = (struct entry){0};
	return &h->entries[h->count++];
}

static bool parse_line(struct history *h, const char *line)
{
	if (strncmp(line, "fault ", 6) == 0) {
		struct fault *f = add_fault(h);

		return f && parse_fault(line, f);
	} else {
		struct entry *d = add_entry(h);

		return d && parse_entry(line, d);
	}
}

static bool read_history(FILE *f, const char *path, struct history *h)
{
	char line[400];

	if (!fgets(line, sizeof(line), f) || strncmp(line, FIRST_LINE, strlen(FIRST_LINE)) != 0) {
		complain("%s is not a history of stag torture pool", path);
		return false;
	}
	for (unsigned int n = 2; fgets(line, sizeof(line), f); n++)
		if (!parse_line(h, line)) {
			complain("%s: line %u cannot be read", path, n);
			return false;
		}
	return true;
}

int history_check_file(const char *path)
{
	struct history h = {0};
	struct check_result j;
	FILE *f = fopen(path, "r");
	int rc = EXIT_FAILED;

	if (!f) {
		complain("%s: %s", path, strerror(errno));
		return EXIT_FAILED;
	}
	if (read_history(f, path, &h)) {
		rc = check_history(&h, &j) ? EXIT_OK : EXIT_FAILED;
		printf("%zu operations, %zu of unknown outcome; %zu lost, %zu twice; %s\n",
		       j.operations, j.unknown, j.lost, j.twice,
		       j.linear == VERDICT_GOOD	 ? "linearizable"
		       : j.linear == VERDICT_BAD ? "NOT linearizable"
						 : "too concurrent to decide");
		free(j.times);
	}
	free(h.entries);
	free(h.faults);
	fclose(f);
	return rc;
}
