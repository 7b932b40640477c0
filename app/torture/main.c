// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.c - stag-torture, the program behind `stag torture`: injects faults into a pool and checks that it keeps its guarantees.
 */
#include "torture.h"

#include "helper.h"
#include "stag.h"
#include "verb.h"

static const char help_text[] =
	"usage: stag torture pool [--phase NAME]... [--secs S] [--rounds N] [--failovers N]\n"
	"                         [--nodes N] [--clients N] [--etcd MEMBERS] [--rate N]\n"
	"                         [--longest-pause S] [--size SIZE] [--beat US] [--lease MS]\n"
	"                         [--promote MS] [--seed N] [--one-host] [--clock]\n"
	"                         [--dir DIRECTORY] [--keep] [--json]\n"
	"       stag torture pool --check HISTORY\n"
	"       stag torture pool --list [--json]\n\n"
	"Serves a pool by several nodes on this machine, lets clients use it at random, and kills, "
	"stops\n"
	"and cuts off nodes meanwhile. What clients saw is judged: every history has to be "
	"linearizable,\n"
	"nothing that was acknowledged may be lost or happen twice, and the nodes' memory has to "
	"be the\n"
	"same, byte for byte. See stag-torture(1).\n\n"
	"  --phase NAME       only these faults; may repeat (all, one after the other)\n"
	"  --list             name the phases, and end\n"
	"  --secs S           of a phase (10)\n"
	"  --rounds N         all phases, again and again (1)\n"
	"  --failovers N      a phase that kills primaries goes on until it has killed so many "
	"(0)\n"
	"  --nodes N          that serve the pool: 2 to 4 (2)\n"
	"  --clients N        that use it, and one that measures how long it is away (8)\n"
	"  --etcd MEMBERS     who is primary is decided by an etcd of 1 or 3 members, that is\n"
	"                     started here (by a file)\n"
	"  --rate N           operations a second, of each client (500)\n"
	"  --longest-pause S  a node is stopped for up to so long: 0.01 to 60 (2)\n"
	"  --size SIZE        of the pool: 64M, 1G (64M)\n"
	"  --beat US, --lease MS, --promote MS\n"
	"                     of the nodes, as stagd(8) has them\n"
	"  --seed N           of all random numbers, to do the same faults once more\n"
	"  --one-host         no network namespaces: nothing is cut off\n"
	"  --clock            this machine's clock may be set, for the phase clock; it is put "
	"right again\n"
	"  --dir DIRECTORY    of logs, states and histories (one that is made, and removed at the "
	"end)\n"
	"  --keep             them also when all is well\n"
	"  --check HISTORY    judge once more what a run has left\n"
	"  --json             for programs\n"
	"  -h, --help\n\n"
	"  stag torture pool\n"
	"  stag torture pool --phase kill-primary --failovers 200 --etcd 3\n";

static int run_torture(const struct command *self, int argc, char **argv)
{
	static const struct verb verbs[] = {{.name = "pool"}};
	int rc = EXIT_USAGE;
	const char *name =
		verb_given(self, "what shall be tortured? There is: pool", argc, argv, &rc);

	if (!name)
		return rc;
	if (!verb_find(self, name, verbs, 1, sizeof(*verbs)))
		return EXIT_USAGE;
	return torture_pool(self, argc, argv);
}

int main(int argc, char **argv)
{
	static const struct command torture_command = {
		.name = "torture", .help = help_text, .run = run_torture};

	return helper_main(&torture_command, argc, argv);
}
