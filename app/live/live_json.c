// SPDX-License-Identifier: BSD-2-Clause
/*
 * live_json.c - converts histograms to and from JSON.
 */
#include "live.h"

json_t *live_histogram(const struct stag_histogram *h)
{
	json_t *buckets = json_array();

	for (unsigned int i = 0; i < STAG_HISTOGRAM_BUCKETS; i++)
		if (h->bucket[i])
			json_array_append_new(buckets,
					      json_pack("[II]", (json_int_t)stag_histogram_upper(i),
							(json_int_t)h->bucket[i]));
	return json_pack("{s:I s:I s:I s:o}", "count", (json_int_t)h->count, "sum_ns",
			 (json_int_t)h->sum_ns, "max_ns", (json_int_t)h->max_ns, "buckets",
			 buckets);
}

static uint64_t number_at(const json_t *o)
{
	json_int_t n = json_integer_value(o);

	return n > 0 ? (uint64_t)n : 0;
}

void live_read_histogram(const json_t *o, struct stag_histogram *h)
{
	json_t *buckets = json_object_get(o, "buckets"), *one;
	size_t i;

	*h = (struct stag_histogram){
		.sum_ns = number_at(json_object_get(o, "sum_ns")),
		.max_ns = number_at(json_object_get(o, "max_ns")),
	};
	json_array_foreach (buckets, i, one) {
		uint64_t upper = number_at(json_array_get(one, 0));
		uint64_t n = number_at(json_array_get(one, 1));

		h->bucket[stag_histogram_bucket(upper)] += n;
		h->count += n;
	}
}

double live_quantile(const json_t *o, double q)
{
	struct stag_histogram h;

	live_read_histogram(o, &h);
	return stag_histogram_quantile(&h, q);
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

void live_histogram_since(struct stag_histogram *h, const struct stag_histogram *before)
{
	h->count = 0;
	h->sum_ns = less(h->sum_ns, before->sum_ns);
	for (unsigned int i = 0; i < STAG_HISTOGRAM_BUCKETS; i++) {
		h->bucket[i] = less(h->bucket[i], before->bucket[i]);
		h->count += h->bucket[i];
	}
}
