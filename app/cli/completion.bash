# SPDX-License-Identifier: BSD-2-Clause
# bash completion for stag(1) and stagd(8); 'stag completion bash' prints it.
#
# The program itself knows what may follow the words typed so far: PROGRAM --complete WORD... prints it. A line that
# begins with a colon requests what bash does itself.
# shellcheck shell=bash

# bash divides words at colons and equals signs: join again what has no space in between.
_stag_join_words() {
	local i glue=
	words=() cword=0
	for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
		if ((i > 0)) && [[ $glue || ${COMP_WORDS[i]} == [:=]* ]]; then
			words[${#words[@]} - 1]+=${COMP_WORDS[i]}
		else
			words+=("${COMP_WORDS[i]}")
		fi
		glue=
		[[ ${COMP_WORDS[i]} == *[:=] ]] && glue=1
		((i == COMP_CWORD)) && cword=$((${#words[@]} - 1))
	done
	cur=${words[cword]}
}

# Remove from the replies what bash does not take for a part of the word.
_stag_trim_replies() {
	local i before
	[[ $cur == *[:=]* ]] || return 0
	before=${cur%"${cur##*[:=]}"}
	for ((i = 0; i < ${#COMPREPLY[@]}; i++)); do
		COMPREPLY[i]=${COMPREPLY[i]#"$before"}
	done
}

# Add the lines that a command prints.
_stag_add() {
	local more
	mapfile -t more < <("$@")
	COMPREPLY+=("${more[@]}")
}

# Complete the words from the one of this number on as a command line of their own.
_stag_command() {
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif ((cword == $1)); then
		_stag_add compgen -c -- "$cur"
	else
		_stag_add compgen -f -- "$cur"
	fi
}

_stag() {
	local program=${COMP_WORDS[0]/#\~\//$HOME/} words cword cur value line

	COMPREPLY=()
	_stag_join_words
	value=$cur
	[[ $cur == --*=* ]] && value=${cur#*=}
	while IFS= read -r line; do
		case $line in
		:files) _stag_add compgen -f -- "$value" ;;
		:directories) _stag_add compgen -d -- "$value" ;;
		:users) _stag_add compgen -u -- "$value" ;;
		:hosts) _stag_add compgen -A hostname -- "$value" ;;
		:command*) _stag_command "${line#:command }" ;;
		:nospace) type compopt &>/dev/null && compopt -o nospace 2>/dev/null ;;
		*) COMPREPLY+=("${line%%$'\t'*}") ;;
		esac
	done < <("$program" --complete "${words[@]:1:cword}" 2>/dev/null)
	_stag_trim_replies
}

complete -o filenames -F _stag stag stagd
