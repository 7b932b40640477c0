# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# typist.sh - runs the commands of a document: sourced by the script that test_commands makes of it.

out=$HOME/../out
: >"$out"

listeners() {
	ss -Hltn | sort
}

# await BEFORE JOB COMMAND FROM: waits until it listens on a new port, or has ended with success; stagd has to print that it serves,
# because other processes may begin to listen meanwhile, and it has several listeners
await() {
	local i
	for ((i = 0; i < 400; i++)); do
		if [[ $3 == *stagd* || $3 == *--serve* ]]; then
			tail -c "+$4" "$out" | grep -E '^(serving|console and API) ' >/dev/null && return 0
		elif [[ $(listeners) != "$1" ]]; then
			return 0
		fi
		kill -0 "$2" 2>/dev/null || { wait "$2"; return; }
		sleep 0.025
	done
	echo "it listens nowhere after ten seconds"
	return 1
}

# block LINE: the following commands are from that line
block() {
	line=$1
	: >"$out"
}

# fail: prints the command and its output
fail() {
	echo "line $line: $1"
	echo "\$ $2"
	tail -n 25 "$out" | cut -c1-300
	exit 1
}

# typed COMMAND
typed() {
	local before from rc background=
	[[ $1 =~ \&[[:space:]]*(\#.*)?$ && ! $1 =~ \&\&[[:space:]]*$ ]] && background=1
	[[ $background ]] && before=$(listeners)
	echo "types line $line: ${1%%$'\n'*}"
	[[ -z $(tail -c 1 "$out") ]] || echo >>"$out"
	from=$(($(stat -c %s "$out") + 1))
	eval "$1" >>"$out" 2>&1 </dev/null
	rc=$?
	((rc == 0)) || fail "exit code $rc" "$1"
	[[ $background ]] || return 0
	await "$before" $! "$1" "$from" >>"$out" 2>&1 || fail "it did not start" "$1"
}

# shows TEXT: checks that the block has printed it
shows() {
	grep -qE -- "$1" "$out" || fail "no \"$1\" in its output" ''
}
