// SPDX-License-Identifier: BSD-2-Clause
/*
 * completion.c - stag completion: prints the script that lets a shell complete stag's command lines.
 */
#include "stag.h"

static const struct cli_option completion_options[] = {{0}};

static const struct completion_verb {
	struct cli_verb cli;
} completion_verbs[] = {
	{{"bash", .summary = "Prints the completion script for bash.",
	  .example = "stag completion bash >~/.local/share/bash-completion/completions/stag"}},
	{{"zsh", .summary = "Prints the completion script for zsh.",
	  .example = "stag completion zsh >~/.zfunc/_stag"}},
	{{"fish", .summary = "Prints the completion script for fish.",
	  .example = "stag completion fish >~/.config/fish/completions/stag.fish"}},
};

static const struct cli_noun completion_noun = {
	.call = "stag completion",
	.name = "completion",
	.summary = "print the script that completes commands in bash, zsh or fish",
	.about = "Prints the script that lets a shell complete the commands, options and values of "
		 "stag and stagd. An installed stag has put it where the shell looks for it.",
	.examples = "stag completion zsh >~/.zfunc/_stag",
	CLI_VERBS(completion_verbs),
	.options = completion_options,
};

static int print_script(const struct command *self, int argc, char **argv)
{
	struct cli_call call;
	int rc;

	if (!cli_parse(&completion_noun, argc, argv, NULL, &call, &rc))
		return rc;
	fputs(cli_completion_script(call.verb->name), stdout);
	return EXIT_OK;
}

const struct command completion_command = {.noun = &completion_noun, .run = print_script};
