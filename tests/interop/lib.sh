# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2154
#
# lib.sh - functions of the scripts that test against another peer: ports, users, results.
#
# The script that sources it sets $stag and $dir. A run leaves the reason of a failure in $reason, the capture in $trace, and
# the output of the two sides in the files errors, ours and theirs of $dir.

failed=0 runs=0 reason='' trace=''

skip() {
	echo "1..0 # SKIP $*"
	exit 77
}

# If this is run by root, the user nobody runs the programs; if nobody cannot read the
# build directory, root does, without any capability.
unprivileged=()
if ((EUID == 0)); then
	unprivileged=(setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs)
	"${unprivileged[@]}" test -x "$stag" -a -r "$STAG_BUILD/src/verbs/libstag-verbs.so" ||
		unprivileged=(setpriv --bounding-set=-all --inh-caps=-all --no-new-privs)
fi

# sockets PORT [STATE]: does this host have a TCP socket there (in that state)?
sockets() {
	local port
	printf -v port ':%04X' "$1"
	awk -v port="$port" -v state="${2-}" \
		'substr($2, length($2) - 4) == port && (state == "" || $4 == state) { found = 1 }
		END { exit !found }' /proc/net/tcp /proc/net/tcp6
}

# Finds a port below the kernel's ephemeral range.
free_port() {
	local port
	until port=$((20000 + RANDOM % 12000)) && ! sockets "$port"; do :; done
	echo "$port"
}

# wait_listen PORT PID: waits until a process listens there (state 0A), or the process has ended.
wait_listen() {
	for _ in {1..600}; do
		sockets "$1" 0A && return
		kill -0 "$2" 2>/dev/null || return
		sleep 0.05
	done
}

# because WHAT STATUS: adds a reason, unless the status is 0.
because() {
	(($2 == 0)) || reason+="${reason:+, }$1: status $2"
}

# check_capture CRC: checks that the capture has no fault, and that all connections use CRC as given.
check_capture() {
	local summary with=0
	if [[ ! -s $trace ]]; then
		reason+="${reason:+, }no capture"
	elif ! summary=$("${BASH_SOURCE[0]%/*}/../lib/check-capture" "$trace" 2>"$dir/faults"); then
		reason+="${reason:+, }capture: $(head -n 3 "$dir/faults" | sed "s#^$trace: ##" | paste -sd ';')"
	elif [[ $summary =~ \ ([0-9]+)\ connections\ \(([0-9]+)\ with\ CRC ]]; then
		[[ $1 == off ]] || with=${BASH_REMATCH[1]}
		((BASH_REMATCH[2] == with)) || reason+="${reason:+, }CRC should be $1: $summary"
	else
		reason+="${reason:+, }no summary: $summary"
	fi
}

# report NAME: prints the result, by $reason.
report() {
	runs=$((runs + 1))
	if [[ -z $reason ]]; then
		echo "ok - $1"
		return
	fi
	failed=$((failed + 1))
	echo "not ok - $1: $reason"
	local side
	for side in errors ours theirs; do
		[[ -e $dir/$side ]] || continue
		sed "s/^/#   $side: /" "$dir/$side" | tail -n 15 | cut -c 1-200
	done
}
