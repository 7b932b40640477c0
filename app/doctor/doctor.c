// SPDX-License-Identifier: BSD-2-Clause
/*
 * doctor.c - collects the findings of the other files (doctor.h).
 */
#include "doctor.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static const char *const level_words[] = {"good", "note", "warning", "fault"};

void doctor_report(struct doctor *d, enum doctor_level level, const char *subject,
		   struct doctor_words w, const char *fmt, ...)
{
	char found[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(found, sizeof(found), fmt, ap);
	va_end(ap);
	d->counts[level]++;
	json_array_append_new(d->findings,
			      json_pack("{s:s s:s s:s s:s s:s s:s?}", "area", d->area, "subject",
					subject, "level", level_words[level], "found", found,
					"means", w.means, "next", w.next));
}

const char *doctor_line(const char *path, char *text, size_t size)
{
	ssize_t n = file_read(AT_FDCWD, path, text, size);

	text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
	return text;
}

long long doctor_number(const char *path, long long otherwise)
{
	char text[64], *end;
	long long n = strtoll(doctor_line(path, text, sizeof(text)), &end, 10);

	return end == text ? otherwise : n;
}

const char *doctor_size(unsigned long long bytes, char text[24])
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	unsigned int i = 0;

	for (; bytes >= 10240 && i < 4; i++)
		bytes >>= 10;
	snprintf(text, 24, "%llu %s", bytes, units[i]);
	return text;
}

json_t *doctor_examine(void)
{
	static const struct {
		const char *name;
		void (*check)(struct doctor *d);
	} areas[] = {
		{"daemons", doctor_daemons}, {"adapter", doctor_adapter},
		{"devices", doctor_devices}, {"system", doctor_system},
		{"storage", doctor_storage}, {"network", doctor_net},
		{"places", doctor_places},
	};
	struct doctor d = {.findings = json_array(), .daemons = json_array()};
	json_t *counts = json_object();

	for (size_t i = 0; i < sizeof(areas) / sizeof(*areas); i++) {
		d.area = areas[i].name;
		areas[i].check(&d);
	}
	for (int i = 0; i < DOCTOR_LEVELS; i++)
		json_object_set_new(counts, level_words[i], json_integer(d.counts[i]));
	return json_pack("{s:s s:o s:o s:o}", "version", STAG_VERSION, "counts", counts, "findings",
			 d.findings, "daemons", d.daemons);
}
