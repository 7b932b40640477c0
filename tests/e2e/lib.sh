# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# lib.sh - functions of the end-to-end tests: free ports, servers, clients, captures.
#
# Handles processes, ports and figures, and knows no program under test. Everything
# it starts is in a process group of its own with a time limit, and is killed when
# the script ends.

: "${STAG_BUILD:=$PWD/build-gcc}"
stag=$STAG_BUILD/app/stag/stag

set -m # each background command gets its own process group
servers=()
work=
inside=()                  # what a command is started by: nothing, or a program that enters the other host
client_host=${STAG_FAR-} # the network namespace of clients; empty: this one

# strays: lists processes of this run that left their group, as fio's jobs do, by
# their environment.
strays() {
	local dir
	for dir in /proc/[0-9]*; do
		if [[ -O $dir && $dir != "/proc/$$" ]] && grep -qzxF "STAG_E2E_RUN=$work" "$dir/environ" 2>/dev/null; then
			echo "${dir#/proc/}"
		fi
	done
}

# begin: makes a directory for the files of this run; all processes end with it.
begin() {
	work=$(mktemp -d "${TMPDIR:-/tmp}/stag-e2e.XXXXXX") || exit 1
	export STAG_E2E_RUN=$work
	trap 'end' EXIT
	trap 'exit 143' INT TERM HUP
}

end() {
	stop_servers
	rm -rf "$work"
}

stop_servers() {
	local pid
	for pid in "${servers[@]}"; do
		kill -KILL -- "-$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
	for pid in $(strays); do
		kill -KILL "$pid" 2>/dev/null
	done
	servers=()
}

say() {
	printf '# %s\n' "$*"
}

# fail WHY: for `... || fail "why" || return`
fail() {
	say "$*"
	return 1
}

# listening PORT: does a process listen there? Reading /proc does not disturb it,
# as a connection would.
listening() {
	local hex
	printf -v hex ':%04X' "$1"
	# Columns: slot, local address, remote address, state; 0A is LISTEN.
	awk -v port="$hex" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 }
		END { exit !found }' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# in_use PORT: does any socket use it?
in_use() {
	local hex
	printf -v hex ':%04X ' "$1"
	cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q "$hex"
}

# free_port: finds one below the kernel's ephemeral range.
free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		in_use "$port" || break
	done
	echo "$port"
}

# under LIMIT COMMAND...: runs the command under stag, for LIMIT seconds at most.
# $device is the face, and $trace names a capture file, if any. Leaks are not checked here: a sanitizer would
# report those of the third-party program.
under() {
	local limit=$1
	shift
	export ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0
	exec timeout --kill-after=2 "$limit" "${inside[@]}" "$stag" run --device "${device:-iwarp}" ${trace:+--trace "$trace"} -- "$@"
}

# under_on_client LIMIT COMMAND...: the same on the host of clients
under_on_client() {
	local inside=(${client_host:+nsenter "--net=$client_host"})
	under "$@"
}

# start COMMAND...: starts a server under stag. Its output goes to $work/server.N.
start() {
	say "server: $*"
	under "${server_limit:-90}" "$@" >"$work/server.${#servers[@]}" 2>&1 </dev/null &
	servers+=($!)
}

# serve PORT COMMAND...: starts a server under stag, and returns when it listens.
serve() {
	local port=$1
	shift
	start "$@"
	wait_listening "$port" "${servers[-1]}" || {
		fail "server: not listening on port $port"
		show "$work/server.$((${#servers[@]} - 1))"
		return 1
	}
}

# wait_listening PORT PID: waits until it listens; fails if the process ends first.
wait_listening() {
	local tries=1200
	until listening "$1"; do
		kill -0 "$2" 2>/dev/null && ((tries-- > 0)) || return 1
		sleep 0.05
	done
}

# client COMMAND...: runs a client under stag to its end. Its output is in
# $work/client.
client() {
	local rc
	say "client: $*"
	(under_on_client "${client_limit:-60}" "$@" >"$work/client" 2>&1 </dev/null)
	rc=$?
	((rc == 0)) || {
		fail "client: $(exit_text "$rc")"
		show "$work/client"
		show_servers
		return "$rc"
	}
}

# served [N]: checks that server N (the last one) ended by itself with success.
served() {
	local n=${1:-$((${#servers[@]} - 1))} rc
	wait_end "${servers[n]}" || {
		fail "server: still there after its client"
		show "$work/server.$n"
		return 1
	}
	wait "${servers[n]}"
	rc=$?
	((rc == 0)) || {
		fail "server: $(exit_text "$rc")"
		show "$work/server.$n"
		return 1
	}
}

# wait_end PID: waits for its end, at most a minute.
wait_end() {
	local tries=1200
	while kill -0 "$1" 2>/dev/null; do
		((tries-- > 0)) || return 1
		sleep 0.05
	done
}

exit_text() {
	case $1 in
	124) echo "no end within its time limit" ;;
	12[5-7]) echo "it could not be started" ;;
	1[2-6][0-9]) echo "killed by SIG$(kill -l $(($1 - 128)))" ;;
	*) echo "exit $1" ;;
	esac
}

# Shows the output of each server, and whether it still runs.
show_servers() {
	local n state
	for n in "${!servers[@]}"; do
		state='has ended'
		kill -0 "${servers[n]}" 2>/dev/null && state=runs
		say "server $n $state"
		show "$work/server.$n"
	done
}

# show FILE: prints a sanitizer's report, or the end of the file
show() {
	if grep -q 'ERROR: AddressSanitizer' "$1"; then
		sed -n '/ERROR: AddressSanitizer/,$p' "$1" | head -n 70
	else
		tail -n 25 "$1"
	fi | sed 's/^/#   | /'
}

# captures FILE...: tshark finds no fault in any of them; with STAG_CAPTURES=unread they only have to exist.
captures() {
	local file
	for file; do
		[[ -s $file ]] || fail "$file: no capture was written" || return
	done
	[[ ${STAG_CAPTURES-} != unread ]] || return 0
	"$STAG_CHECK_CAPTURE" "$@" >"$work/capture" 2>&1 || {
		fail "capture: $*"
		show "$work/capture"
		return 1
	}
	sed 's/^/# capture: /' "$work/capture"
}
