// SPDX-License-Identifier: BSD-2-Clause
/*
 * markers.c - MPA's markers (RFC 5044 §4.3): inserts them into an FPDU, and strips them.
 *
 * A marker is at every 512th byte of the stream, and holds the distance back to the beginning
 * of its FPDU. The CRC is not handled here: it covers the markers, and so is computed over the
 * raw bytes.
 */
#include "wire/wire.h"

#include <errno.h>

#define FPDUPTR_OFF  2
#define FPDUPTR_MASK 0xfffc /* a receiver reads the two low bits as zero */

/* Returns the number of FPDU bytes before the next marker, at this position of the stream. */
static size_t bytes_to_marker(uint64_t pos)
{
	return (size_t)(-pos % MARKER_INTERVAL);
}

/*
 * Returns the content of a marker raw_off bytes after pos: the distance back to the length
 * field.
 */
static uint16_t fpduptr(uint64_t pos, size_t raw_off)
{
	size_t length_field = bytes_to_marker(pos) == 0 ? MARKER_LEN : 0;

	return raw_off < length_field ? 0 : (uint16_t)(raw_off - length_field);
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

size_t markers_raw_len(uint64_t pos, size_t len)
{
	size_t lead = bytes_to_marker(pos);

	if (len <= lead)
		return len;
	return len + MARKER_LEN * (1 + (len - lead - 1) / (MARKER_INTERVAL - MARKER_LEN));
}

size_t markers_insert(uint64_t pos, const uint8_t *fpdu, size_t len, uint8_t *raw)
{
	size_t out = 0;

	while (len) {
		size_t n = smaller(bytes_to_marker(pos + out), len);

		if (n == 0) {
			put_be16(raw + out, 0);
			put_be16(raw + out + FPDUPTR_OFF, fpduptr(pos, out));
			out += MARKER_LEN;
			continue;
		}
		memcpy(raw + out, fpdu, n);
		out += n;
		fpdu += n;
		len -= n;
	}
	return out;
}

int markers_strip(uint64_t pos, const uint8_t *raw, size_t raw_len, uint8_t *fpdu)
{
	size_t in = 0, out = 0;

	while (in < raw_len) {
		size_t n = smaller(bytes_to_marker(pos + in), raw_len - in);

		if (n == 0) {
			if (raw_len - in <= MARKER_LEN) /* the next FPDU's */
				return -EPROTO;
			if ((get_be16(raw + in + FPDUPTR_OFF) ^ fpduptr(pos, in)) & FPDUPTR_MASK)
				return -EPROTO;
			in += MARKER_LEN;
			continue;
		}
		memmove(fpdu + out, raw + in, n);
		in += n;
		out += n;
	}
	return (int)out;
}
