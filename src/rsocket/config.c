// SPDX-License-Identifier: BSD-2-Clause
/*
 * config.c - the defaults of a socket: built in, or set by the administrator.
 *
 * The files are those of rsocket(7), one number each, read once.
 */
#include "rsocket/rsocket.h"

#include <stdio.h>

#define CONFIG_DIR "/etc/rdma/rsocket/"

static struct rs_config defaults = {.sbuf_size = 1 << 17,
				    .rbuf_size = 1 << 17,
				    .sq_size = 384,
				    .rq_size = 384,
				    .inline_size = 64};
/*
 * About the cost of a sleep on a software adapter: waking the engine, and being woken by it.
 * librdmacm has 10, less than a round trip through two processes.
 */
static unsigned polling_us = 60;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Returns the number in a file, clamped to the bounds, or `otherwise`. */
static unsigned number_in(const char *path, unsigned min, unsigned max, unsigned otherwise)
{
	FILE *f = fopen(path, "re");
	unsigned n;

	if (!f)
		return otherwise;
	if (fscanf(f, "%u", &n) != 1)
		n = otherwise;
	fclose(f);
	return n < min ? min : n > max ? max : n;
}

static void read_config(void)
{
	struct rs_config *d = &defaults;

	polling_us = number_in(CONFIG_DIR "polling_time", 0, 1000000, polling_us);
	d->inline_size =
		(uint16_t)number_in(CONFIG_DIR "inline_default", 0, RS_QUEUE_MAX, d->inline_size);
	d->sq_size = (uint16_t)number_in(CONFIG_DIR "sqsize_default", RS_QUEUE_MIN, RS_QUEUE_MAX,
					 d->sq_size);
	d->rq_size = (uint16_t)number_in(CONFIG_DIR "rqsize_default", RS_QUEUE_MIN, RS_QUEUE_MAX,
					 d->rq_size);
	d->rbuf_size =
		number_in(CONFIG_DIR "mem_default", RS_BUFFER_MIN, RS_BUFFER_MAX, d->rbuf_size) &
		~1u;
	d->sbuf_size =
		number_in(CONFIG_DIR "wmem_default", RS_BUFFER_MIN, RS_BUFFER_MAX, d->sbuf_size);
	d->iomaps =
		rs_iomaps_round((int)number_in(CONFIG_DIR "iomap_size", 0, UINT16_MAX, d->iomaps));
}

const struct rs_config *rs_defaults(void)
{
	pthread_once(&once, read_config);
	return &defaults;
}

unsigned rs_polling_us(void)
{
	pthread_once(&once, read_config);
	return polling_us;
}
