// SPDX-License-Identifier: BSD-2-Clause
/*
 * class.c - size classes: in steps of 16 bytes up to 128, then eight classes for each doubling.
 *
 * Rounding up wastes up to 15 bytes, or above 128 bytes up to an eighth of the size; the end of a
 * span wastes at most a sixteenth of it.
 */
#include "heap.h"

#define SPAN_BYTES   (64u << 10) /* at least, if slices allow it */
#define SPAN_OBJECTS 64u	 /* aimed at in larger spans, up to MAX_SLICES */
#define MAX_SLICES   16u

static uint32_t class_size(unsigned int class)
{
	if (class < 8)
		return (class + 1) * 16;
	return (9u + class % 8) << (class / 8 + 3);
}

/*
 * Returns how many slices a span gets: enough that it does not become full and empty all the time,
 * and that at most a sixteenth is wasted at its end.
 */
static uint32_t class_slices(const struct stag_heap *heap, uint32_t size)
{
	uint32_t slice = 1u << heap->geo.slice_shift;
	uint32_t n = (size * SPAN_OBJECTS < SPAN_BYTES ? SPAN_BYTES : size * SPAN_OBJECTS) / slice;

	if (n == 0)
		n = 1;
	if (size > slice / 2 || n > MAX_SLICES)
		n = size > slice / 2 ? 1 : MAX_SLICES;
	while (n < MAX_SLICES && (n * slice < size || n * slice % size > n * slice / 16))
		n++;
	return n;
}

void class_init(struct stag_heap *heap)
{
	unsigned int class = 0;

	for (;; class ++) {
		struct size_class *c = &heap->geo.classes[class];
		uint32_t size = class_size(class);

		if (size > heap->geo.small_max)
			break;
		c->size = size;
		c->slices = class_slices(heap, size);
		c->count = (c->slices << heap->geo.slice_shift) / size;
		c->recip = ((1ull << 40) + size - 1) / size;
	}
	heap->geo.num_classes = class;
	heap->geo.class_of[0] = 0;
	for (uint32_t i = 1; i <= 64; i++)
		heap->geo.class_of[i] = (uint8_t)(i <= 8 ? i - 1 : class_of_big(i * 16));
}
