# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# state.sh - the directory $state of one system: what is in it, and who runs.
#
#	version        of this layout
#	wanted         up or down: what was asked for last
#	ports          NAME PORT, one a line
#	a/ b/ roll     the nodes of the pool, and who is primary
#	main/          of the daemon with the store, the target and the console: stag.ini, token, disk.img
#	born           the pool was whole once: both nodes in sync. Without it there is nothing to lose
#	lost           it has no node in sync any more; what to do
#	NAME.pid       a, b, main, keeper: PID START BOOT. START and BOOT make sure that it is still the same process
#	NAME.lock      held by NAME for as long as it lives
#	NAME.log       what it said
#	up.lock        held by the ./up that starts it

# Where a function may be called by a trap, it is "return 1" and not "return": bash takes the status of before the trap then.

state_version=2
daemons=(a b main)

boot_id() {
	local id=none
	read -r id </proc/sys/kernel/random/boot_id
	echo "$id"
}
boot=$(boot_id)

# start_time PID: in $started, when that process was started, in ticks; false if it does not run. No fork: it is asked often.
start_time() {
	local line fields
	started=
	{ IFS= read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
	# the name is in brackets, and may have any character
	read -ra fields <<<"${line##*) }"
	[[ ${fields[0]} != [ZX] ]] && started=${fields[19]}
}

# runs NAME: in $pid who it is, if it runs
runs() {
	local start id
	pid=
	{ read -r pid start id <"$state/$1.pid"; } 2>/dev/null || return 1
	if [[ $id == "$boot" ]] && start_time "$pid" && [[ $started == "$start" ]]; then return 0; fi
	pid=
	return 1
}

# become NAME: this process is NAME from now on, until it ends; false if another one is. The lock is inherited by what is executed.
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

# until_true SECONDS COMMAND...: it comes true, or so many pass
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 0.05
	done
}

# want WORD: at no time is there no word in it, whoever looks
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

# The ones that we had, or usually have; where another has one, the next that is free. Only while nothing of ours runs.
choose_ports() {
	local name number used=' '
	read_ports
	for name in store a b api target; do
		number=${port[$name]}
		while is_taken "$number" || [[ $used == *" $number "* ]]; do number=$((number + 1)); done
		((number == port[$name])) || note "port ${port[$name]} ($name) is taken: $number instead"
		port[$name]=$number used+="$number "
	done
	for name in "${!port[@]}"; do echo "$name ${port[$name]}"; done | sort >"$state/ports"
}

# ---- words ----------------------------------------------------------------------------

note() {
	echo "up: $1"
}

fail() {
	echo "up: $1" >&2
	exit 1
}

# short PATH: as somebody here would type it
short() {
	case $1 in
	"$PWD"/*) printf '%q\n' "${1#"$PWD"/}" ;;
	"$HOME"/*) printf '~/%q\n' "${1#"$HOME"/}" ;;
	*) printf '%q\n' "$1" ;;
	esac
}
