/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * families.h - the families of metrics that stagd exports: what each is, and where a daemon's status has its numbers.
 */
#ifndef STAG_APP_API_FAMILIES_H
#define STAG_APP_API_FAMILIES_H

/* The objects that a family has samples of. */
struct metric_source {
	const char *list;   /* list in a daemon's status; NULL: the daemon itself */
	const char *within; /* its member that has the numbers; NULL: the object itself */
	const char *labels
		[3]; /* labels, named as their fields; "name" becomes the kind of the object */
	const char *title;  /* of its row in the dashboard */
	const char *series; /* labels that tell its plots apart, with commas */
};

struct metric_family {
	const struct metric_source *of;
	const char *field; /* in the source; of a histogram: in its "latency" */
	const char *name, *type, *help;
};

/* Each ends with a row whose name is NULL. */
extern const struct metric_family metric_numbers[], metric_times[], metric_adapter[];
extern const struct metric_family metric_role, metric_adapter_times;

#endif
