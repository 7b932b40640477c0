# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# state.sh - the directory $state of one system: its files and processes.
#
#	version        of this layout
#	wanted         up or down: the last request
#	ports          NAME PORT, one a line
#	a/ b/ roll     the nodes of the pool, and its roll (membership record)
#	main/          the daemon with the store, the target and the console: stag.ini, token, disk.img
#	born           both nodes were in sync once. Without it the pool holds nothing yet
#	lost           no node is in sync any more; says what to do
#	NAME.pid       a, b, main, keeper: PID START BOOT. START and BOOT make sure that it is still the same process
#	NAME.lock      held by NAME for as long as it lives
#	NAME.log       its output
#	up.lock        held by the ./up that starts it

# Functions that a trap may call use "return 1", not "return": in a trap, bash returns the status from before the trap.

state_version=2
daemons=(a b main)

boot_id() {
	local id=none
	read -r id </proc/sys/kernel/random/boot_id
	echo "$id"
}
boot=$(boot_id)

# start_time PID: sets $started to the start time of the process in ticks; false if it does not run. No fork, since it is called often.
start_time() {
	local line fields
	started=
	{ IFS= read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
	# the name is in parentheses, and may contain any character
	read -ra fields <<<"${line##*) }"
	[[ ${fields[0]} != [ZX] ]] && started=${fields[19]}
}

# runs NAME: tests whether it runs, and sets $pid
runs() {
	local start id
	pid=
	{ read -r pid start id <"$state/$1.pid"; } 2>/dev/null || return 1
	if [[ $id == "$boot" ]] && start_time "$pid" && [[ $started == "$start" ]]; then return 0; fi
	pid=
	return 1
}

# become NAME: makes this process NAME until it ends; false if another one is. A program that it executes inherits the lock.
become() {
	exec 8>>"$state/$1.lock" && flock -w 5 8 && start_time "$BASHPID" &&
		echo "$BASHPID $started $boot" >"$state/$1.new" && mv "$state/$1.new" "$state/$1.pid"
}

any_runs() {
	local name
	for name in "${daemons[@]}" keeper; do
		if runs "$name"; then return 0; fi
	done
	return 1
}

# until_true SECONDS COMMAND...: repeats the command until it succeeds, for so many seconds at most
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 0.05
	done
}

# want WORD: replaces the file atomically, so that readers always find a word
want() {
	echo "$1" >"$state/wanted.$BASHPID" && mv "$state/wanted.$BASHPID" "$state/wanted"
}

wanted() {
	local word=
	{ read -r word <"$state/wanted"; } 2>/dev/null
	[[ $word == "$1" ]]
}

# ---- ports ----------------------------------------------------------------------------

declare -A port=([store]=7174 [a]=7175 [b]=7176 [api]=7180 [target]=3260)

is_taken() {
	[[ -n $(ss -Hltn "sport = :$1" 2>/dev/null) ]]
}

read_ports() {
	local name number
	[[ -f $state/ports ]] || return 1
	while read -r name number; do port[$name]=$number; done <"$state/ports"
}

# Selects the previous or default ports; if one is in use, the next free one. Only while the system does not run.
choose_ports() {
	local name number used=' '
	read_ports
	for name in store a b api target; do
		number=${port[$name]}
		while is_taken "$number" || [[ $used == *" $number "* ]]; do number=$((number + 1)); done
		((number == port[$name])) || note "port ${port[$name]} ($name) is in use; using $number instead"
		port[$name]=$number used+="$number "
	done
	for name in "${!port[@]}"; do echo "$name ${port[$name]}"; done | sort >"$state/ports"
}

# ---- messages ----------------------------------------------------------------------------

note() {
	echo "up: $1"
}

fail() {
	echo "up: $1" >&2
	exit 1
}

# short PATH: prints it relative to the current or the home directory
short() {
	case $1 in
	"$PWD"/*) printf '%q\n' "${1#"$PWD"/}" ;;
	"$HOME"/*) printf '~/%q\n' "${1#"$HOME"/}" ;;
	*) printf '%q\n' "$1" ;;
	esac
}
