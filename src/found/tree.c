// SPDX-License-Identifier: BSD-2-Clause
/*
 * tree.c - the files of the adapter's devices in /sys and /dev: names, links, content.
 *
 * As on hardware, the directory of a device is below the one of its card: a program that goes up from there finds what the
 * kernel tells of the card. Pure functions of struct shown.
 */
#include <errno.h>
#include <string.h>

#include "found/found.h"
#include "found/text.h"

/*
 * Words in names, targets and content: %P the directory of the card, %p the same without /sys/, %B its last part, %N the
 * device, %I its interface, %U its file in /dev, %G its GUID. A # at the end of a name stands for each index of the GID table.
 */
struct tree_row {
	const char *name;
	enum node_kind kind;
	const char *text;
	int (*print)(const struct shown *s, const struct node *node,
		     struct text *t); /* instead of text */
	enum { ANY_CARD, MADE_UP_CARD } which;
};

/* ---- content ---- */

static int print_gid(const struct shown *s, const struct node *node, struct text *t)
{
	text_add_groups(t, node->device->gids[node->index].raw, 16);
	text_add(t, "\n");
	return 0;
}

/* The files of an empty entry are there, and reading them fails: as the kernel has it. */
static int print_netdev(const struct shown *s, const struct node *node, struct text *t)
{
	char name[IFNAMSIZ];

	if (!shown_netdev(node->device->gids[node->index].ifindex, name))
		return -EINVAL;
	text_add(t, name);
	text_add(t, "\n");
	return 0;
}

static int print_gid_type(const struct shown *s, const struct node *node, struct text *t)
{
	if (!node->device->gids[node->index].ifindex)
		return -EINVAL;
	text_add(t, node->device->roce ? "RoCE v2\n" : "IB/RoCE v1\n");
	return 0;
}

static int print_node_type(const struct shown *s, const struct node *node, struct text *t)
{
	text_add(t, node->device->roce ? "1: CA\n" : "4: RNIC\n");
	return 0;
}

/* A mask with a bit for each processor, as the kernel prints it: words of 32 bits, the highest first. */
static int print_all_cpus(const struct shown *s, const struct node *node, struct text *t)
{
	static const char hex[] = "0137f"; /* of 0 to 4 bits */
	unsigned first = s->num_cpus % 32 ?: 32;

	for (unsigned left = s->num_cpus; left; left -= first, first = 32) {
		for (unsigned digit = (first + 3) / 4; digit--;) {
			unsigned bits = first - 4 * digit;

			text_add_bytes(t, &hex[bits < 4 ? bits : 4], 1);
		}
		text_add(t, left > first ? "," : "\n");
	}
	return 0;
}

/* ---- the files; directories follow from their names ---- */

#define DEVICE "%P/infiniband/%N/"
#define PORT   DEVICE "ports/1/"

static const struct tree_row rows[] = {
	{"/sys/class/infiniband/%N", NODE_LINK, .text = "../../%p/infiniband/%N"},
	{DEVICE "board_id", NODE_FILE, .text = "stag\n"},
	{DEVICE "device", NODE_LINK, .text = "../../../%B"},
	{DEVICE "fw_ver", NODE_FILE, .text = "0.1.0\n"},
	{DEVICE "hca_type", NODE_FILE, .text = "stag\n"},
	{DEVICE "hw_rev", NODE_FILE, .text = "1\n"},
	{DEVICE "node_desc", NODE_FILE, .text = "%N\n"},
	{DEVICE "node_guid", NODE_FILE, .text = "%G\n"},
	{DEVICE "node_type", NODE_FILE, .print = print_node_type},
	{DEVICE "sys_image_guid", NODE_FILE, .text = "%G\n"},
	{PORT "cap_mask", NODE_FILE, .text = "0x00000000\n"},
	{PORT "gid_attrs/ndevs/#", NODE_FILE, .print = print_netdev},
	{PORT "gid_attrs/types/#", NODE_FILE, .print = print_gid_type},
	{PORT "gids/#", NODE_FILE, .print = print_gid},
	{PORT "lid", NODE_FILE, .text = "0x0\n"},
	{PORT "lid_mask_count", NODE_FILE, .text = "0\n"},
	{PORT "link_layer", NODE_FILE, .text = "Ethernet\n"},
	{PORT "phys_state", NODE_FILE, .text = "5: LinkUp\n"},
	{PORT "pkeys/0", NODE_FILE, .text = "0xffff\n"},
	{PORT "rate", NODE_FILE, .text = "100 Gb/sec (4X EDR)\n"},
	{PORT "sm_lid", NODE_FILE, .text = "0x0\n"},
	{PORT "sm_sl", NODE_FILE, .text = "0\n"},
	{PORT "state", NODE_FILE, .text = "4: ACTIVE\n"},
	{"%P/net/%I", NODE_LINK, .text = "/sys/class/net/%I"},
	{"%P/numa_node", NODE_FILE, .text = "-1\n", .which = MADE_UP_CARD},
	{"%P/local_cpus", NODE_FILE, .print = print_all_cpus, .which = MADE_UP_CARD},
	{"%P/local_cpulist", NODE_ELSEWHERE, .text = "/sys/devices/system/cpu/online",
	 .which = MADE_UP_CARD},
	{"%P/vendor", NODE_FILE, .text = "0x737467\n", .which = MADE_UP_CARD},
	{"%P/device", NODE_FILE, .text = "0x0001\n", .which = MADE_UP_CARD},
	{"/dev/infiniband/%U", NODE_ELSEWHERE, .text = "/dev/null"},
};

enum { NUM_ROWS = sizeof(rows) / sizeof(*rows) };

/* ---- words ---- */

/* Adds what a letter stands for. Returns false if that is nothing. */
static bool add_word(struct text *t, const struct shown *s, const struct shown_device *d, char word)
{
	size_t before = t->len;

	switch (word) {
	case 'P':
		text_add(t, s->parent);
		break;
	case 'p':
		text_add(t, s->parent + strlen("/sys/"));
		break;
	case 'B':
		text_add(t, strrchr(s->parent, '/') + 1);
		break;
	case 'N':
		text_add(t, d->name);
		break;
	case 'I':
		text_add(t, s->netdev);
		break;
	case 'U':
		text_add(t, d->dev_name ?: "");
		break;
	case 'G': {
		uint8_t bytes[8];

		for (int i = 0; i < 8; i++)
			bytes[i] = (uint8_t)(s->guid >> (56 - 8 * i));
		text_add_groups(t, bytes, sizeof(bytes));
		break;
	}
	}
	return t->len > before;
}

/* Writes a pattern with its words replaced. Returns false if that is too long, or a word stands for nothing. */
static bool expand(const struct shown *s, const struct shown_device *d, const char *pattern,
		   struct text *t)
{
	const char *percent;

	while ((percent = strchr(pattern, '%'))) {
		text_add_bytes(t, pattern, (size_t)(percent - pattern));
		if (!add_word(t, s, d, percent[1]))
			return false;
		pattern = percent + 2;
	}
	text_add(t, pattern);
	return !t->too_long;
}

int tree_text(const struct shown *s, const struct node *node, char to[FOUND_PATH])
{
	struct text t;
	int err = 0;

	text_begin(&t, to, FOUND_PATH);
	if (node->row->print)
		err = node->row->print(s, node, &t);
	else
		expand(s, node->device, node->row->text, &t);
	return err ? err : (int)t.len;
}

/* ---- names ---- */

/* Reads an index as the kernel writes it: no sign, no zeroes in front. */
static bool read_index(const char *digits, unsigned limit, unsigned *index)
{
	unsigned n = 0;

	if (!*digits || (*digits == '0' && digits[1]))
		return false;
	for (; *digits >= '0' && *digits <= '9' && n < limit; digits++)
		n = n * 10 + (unsigned)(*digits - '0');
	*index = n;
	return !*digits && n < limit;
}

enum match { MATCH_NONE, MATCH_ITSELF, MATCH_ABOVE };

/* Is path the file of a row, or a directory above it? name is the expanded name of the row. */
static enum match match(const char *name, const char *path, unsigned num_gids, unsigned *index)
{
	size_t len = strlen(path), same = 0;

	while (path[same] && path[same] == name[same] && name[same] != '#')
		same++;
	if (same == len && !name[same])
		return MATCH_ITSELF;
	if (same == len && name[same] == '/')
		return MATCH_ABOVE;
	if (name[same] == '#' && read_index(path + same, num_gids, index))
		return MATCH_ITSELF;
	return MATCH_NONE;
}

static enum match match_row(const struct shown *s, const struct shown_device *d,
			    const struct tree_row *row, const char *path, unsigned *index)
{
	char name[FOUND_PATH];
	struct text t;

	if (row->which == MADE_UP_CARD && s->parent_is_real)
		return MATCH_NONE;
	text_begin(&t, name, sizeof(name));
	return expand(s, d, row->name, &t) ? match(name, path, d->num_gids, index) : MATCH_NONE;
}

void tree_find(const struct shown *s, const char *path, struct node *node)
{
	*node = (struct node){0};
	for (unsigned i = 0; i < s->num_devices * NUM_ROWS; i++) {
		const struct shown_device *d = &s->devices[i / NUM_ROWS];
		const struct tree_row *row = &rows[i % NUM_ROWS];
		enum match m = match_row(s, d, row, path, &node->index);

		if (m == MATCH_NONE)
			continue;
		/* what the kernel has stays visible */
		if (m == MATCH_ABOVE)
			node->kind = s->kernel_has(path) ? NODE_SHARED : NODE_DIRECTORY;
		else if (!s->kernel_has(path))
			*node = (struct node){row->kind, d, row, node->index};
		return;
	}
}

/* ---- lists ---- */

/* Tells of each index of a GID table. */
static bool each_index(const struct shown_device *d,
		       bool (*fn)(void *arg, const char *name, enum node_kind kind), void *arg)
{
	char name[16];
	struct text t;

	for (unsigned i = 0; i < d->num_gids; i++) {
		text_begin(&t, name, sizeof(name));
		text_add_number(&t, i);
		if (!fn(arg, name, NODE_FILE))
			return false;
	}
	return true;
}

void tree_each(const struct shown *s, const char *dir,
	       bool (*fn)(void *arg, const char *name, enum node_kind kind), void *arg)
{
	char name[FOUND_PATH];
	struct text t;
	unsigned index;
	bool more = true;

	for (unsigned i = 0; i < s->num_devices * NUM_ROWS && more; i++) {
		const struct shown_device *d = &s->devices[i / NUM_ROWS];
		const struct tree_row *row = &rows[i % NUM_ROWS];
		char *first, *rest;

		if (match_row(s, d, row, dir, &index) != MATCH_ABOVE)
			continue;
		text_begin(&t, name, sizeof(name));
		expand(s, d, row->name, &t);
		first = name + strlen(dir) + 1;
		rest = strchr(first, '/');
		if (rest)
			*rest = '\0';
		more = strcmp(first, "#") == 0 ? each_index(d, fn, arg)
					       : fn(arg, first, rest ? NODE_DIRECTORY : row->kind);
	}
}
