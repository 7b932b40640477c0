// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.c - stag-torture, the program behind `stag torture`: injects faults into a pool and checks
 * that it keeps its guarantees.
 */
#include "torture.h"

#include "helper.h"
#include "stag.h"

int main(int argc, char **argv)
{
	static const struct command torture_command = {.noun = &torture_noun, .run = torture_pool};

	return helper_main(&torture_command, argc, argv);
}
