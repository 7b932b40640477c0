/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tls_words.h - words for what the kernel does of a connection's TLS: in JSON, and in lines for people.
 */
#ifndef STAG_TELL_TLS_WORDS_H
#define STAG_TELL_TLS_WORDS_H

#include <string.h>

#include <stag/stagdv.h>

/* Returns the word of JSON for bits of enum stagdv_tls_kernel. */
static inline const char *tls_kernel_word(unsigned int bits)
{
	static const char *const words[] = {
		[0] = "no",
		[STAGDV_TLS_KERNEL_SENDS] = "sends",
		[STAGDV_TLS_KERNEL_RECEIVES] = "receives",
		[STAGDV_TLS_KERNEL_SENDS | STAGDV_TLS_KERNEL_RECEIVES] = "both",
	};

	return words[bits & 3];
}

/* Returns what a line says behind the cipher; word: that of JSON, or NULL. */
static inline const char *tls_kernel_text(const char *word)
{
	if (!word || strcmp(word, "no") == 0)
		return "";
	return strcmp(word, "both") == 0    ? " by the kernel"
	       : strcmp(word, "sends") == 0 ? " sent by the kernel"
					    : " received by the kernel";
}

#endif
