/* SPDX-License-Identifier: BSD-2-Clause */
/* frames.h - FPDUs from the peer of a stream in memory (peer.h), and checks of those that it receives. */
#ifndef STAG_FUZZ_FRAMES_H
#define STAG_FUZZ_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qp_link;

/* Makes a whole FPDU of a ULPDU, as negotiated; spoil: flips one bit of its CRC. */
void frames_send(const struct qp_link *link, const uint8_t *ulpdu, size_t len, bool spoil);

/* Checks that the peer has received FPDUs that make sense, and nothing after a Terminate. */
void frames_check(const struct qp_link *link);

#endif
