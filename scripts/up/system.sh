# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# system.sh - start and stop the system in $state.

iqn=iqn.2026-01.stag:up
room_mb=400 # for the store and logs

# ---- files ---------------------------------------------------------------------------

new_token() {
	[[ -s $state/main/token ]] || head -c 24 /dev/urandom | base64 | tr '+/' '-_' >"$state/main/token" || return 1
	sed 's/^/Authorization: Bearer /' "$state/main/token" >"$state/main/authorization"
}

# Sets long times, so that stalls of a busy machine cause no failover. If the process of a primary ends, its standby is promoted
# at once all the same.
calm_times() {
	sed -i 's/^; beat = .*/beat = 20ms/; s/^; lease = .*/lease = 3s/; s/^; promote = .*/promote = 3600ms/' "$@"
}

write_pool() {
	local name
	rm -rf "$state"/{a,b,roll*,born,lost}
	for name in a b; do
		if [[ -f $state/$name.log ]]; then mv "$state/$name.log" "$state/$name.log.old"; fi
	done
	quietly 'the pool' "$stag" pool create shop --size 64M --node a --dir "$state/a" --roll "file:$state/roll" --port "${port[a]}" &&
		quietly 'the standby' "$stag" pool join shop --node b --dir "$state/b" --from "$state/a" --port "${port[b]}" &&
		calm_times "$state/a/stag.ini" "$state/b/stag.ini"
}

# Copies the secret of the first admin for [watch].
watch_secret() {
	awk '$2 ~ /admin/ { print $3; exit }' "$state/a/secrets" >"$state/main/watch-secret" && [[ -s $state/main/watch-secret ]]
}

write_main() {
	cat >"$state/main/stag.ini" <<-EOF
	; Written by ./up at every start. Changes by the console and the API are in conf.d/.
	[daemon]
	name = main
	state = $state/main

	[store disk]
	path = $state/main/disk.img
	create = yes
	size = 256M
	address = 127.0.0.1
	port = ${port[store]}
	partition.goods = 64M local:write net:127.0.0.0/8:write
	partition.blocks = 64M local:write net:127.0.0.0/8:write

	[target up]
	iqn = $iqn
	address = 127.0.0.1
	port = ${port[target]}
	lun.1 = store:disk/blocks

	[watch shop]
	nodes = 127.0.0.1:${port[a]},127.0.0.1:${port[b]}
	user = admin
	secret-file = $state/main/watch-secret

	[api]
	listen = 127.0.0.1:${port[api]}
	token-file = $state/main/token
	EOF
}

has_room() {
	local free
	free=$(df -Pm "$state" | awk 'NR == 2 { print $4 }')
	((free >= room_mb)) && : >"$state/.room" && rm -f "$state/.room" && return 0
	fail "$state has only $free MB left, and needs $room_mb MB: make room, or set XDG_STATE_HOME to another directory"
}

make_state() {
	mkdir -p "$state/main" && chmod 700 "$state" "$state/main" || fail "cannot create $state"
	has_room
}

# Checks the directory's version: of an older one the store is kept, and the rest is created again.
check_version() {
	local found=
	{ read -r found <"$state/version"; } 2>/dev/null || return 0
	[[ $found == "$state_version" ]] && return 0
	((found < state_version)) || fail "$(short "$state") was created by a later version of stag (layout $found, not $state_version): use that version, or move the directory away"
	if any_runs; then fail "the running system was started by an older version: run ./up --down, then ./up"; fi
	note "$(short "$state") was created by an older version: its store is kept, the rest is created again"
	rm -f "$state"/{ports,born,lost}
}

# Fails if both nodes ended without --down: the pool is memory, so its values are lost.
check_pool() {
	[[ ! -e $state/born || $fresh ]] && return 0
	fail "no node of the pool runs, and ./up --down did not stop them: the machine was restarted, or both were killed.
    The values in the pool are lost, since it is memory. The store is intact. ./up --fresh starts with an empty pool"
}

# Creates all files except the store, while nothing runs.
configure_all() {
	check_version
	check_pool
	umask 077
	make_state
	choose_ports
	echo "$state_version" >"$state/version" && write_pool && new_token && watch_secret && write_main ||
		fail "cannot create the files in $state; is the disk full?"
}

# ---- start -------------------------------------------------------------------------------

start_keeper() {
	trim_logs
	setsid "$here/scripts/up/keeper" "$state" "$stagd" "${keeper_for-}" 6>&- 7>&- 8>&- 9>&- </dev/null >>"$state/keeper.log" 2>&1 &
	disown
	until_true 10 runs keeper || fail "the keeper did not start: $(tail -n 2 "$state/keeper.log")"
}

trim_logs() {
	local log
	for log in "$state"/*.log; do
		if [[ -f $log && $(stat -c %s "$log") -gt 4000000 ]]; then mv "$log" "$log.old"; fi
	done
}

is_in_sync() {
	[[ -e $state/born ]] && [[ $(jq -r '[.members[]? | select(."in-sync")] | length' "$state/roll" 2>/dev/null) == 2 ]]
}

# api PATH [CURL OPTION...]: prints the API's response; false on an error
api() {
	local path=$1
	shift
	curl -sf -m 5 -H "@$state/main/authorization" "$@" "http://127.0.0.1:${port[api]}$path"
}

serves_all() {
	runs main && api /api/v1/status -o /dev/null
}

# await WHAT COMMAND...: waits until the command succeeds; fails after --down, a lost pool or a minute
await() {
	local what=$1 end=$((SECONDS + 60))
	shift
	until "$@"; do
		wanted up || fail 'stopped by ./up --down meanwhile'
		[[ ! -e $state/lost ]] || fail "$(<"$state/lost")"
		((SECONDS < end)) || { tail -n 5 "$state"/*.log >&2 && fail "$what: not ready after a minute; see the logs above"; }
		runs keeper || start_keeper
		sleep 0.1
	done
}

# Records that the system is wanted, before waiting or building: a later --down takes precedence.
ask_up() {
	mkdir -p "$state" && chmod 700 "$state" && : >>"$state/up.lock" && want up || fail "cannot write to $state; is the disk full?"
}

# Starts what does not run. One ./up at a time does so; a second one finds everything running.
bring_up() {
	exec 9>>"$state/up.lock"
	flock -n 9 || { note 'waiting for another ./up that is starting it' && flock 9; }
	wanted up || fail 'stopped by ./up --down meanwhile'
	if [[ $fresh ]]; then stop keeper && stop_nodes; fi
	if any_runs; then
		check_version
		read_ports
		[[ -z $fresh ]] || { umask 077 && write_pool && watch_secret; } || fail 'cannot create the pool'
	else
		configure_all
	fi
	runs keeper || { note 'starting' && start_keeper; }
	await 'the pool' is_in_sync
	await 'the store, the target and the console' serves_all
	exec 9>&-
}

# Without a trap, a shell ignores a SIGINT that arrives while it waits for a program that ends well.
up_start() {
	trap 'exit 130' INT
	ask_up
	prepare
	wanted up || fail 'stopped by ./up --down meanwhile'
	bring_up
	[[ $detach ]] || trap leave INT TERM HUP
	tell_where
	[[ $detach ]] || follow
}

# ---- stop --------------------------------------------------------------------------------

# stop NAME: stops it by SIGTERM, or after ten seconds by SIGKILL. A daemon gets SIGINT: SIGTERM does not stop a node with the only copy of
# the pool's values.
stop() {
	local signal=INT
	runs "$1" || return 0
	[[ $1 != keeper ]] || signal=TERM
	kill -s "$signal" "$pid" 2>/dev/null
	until_true 10 eval "! runs $1" && return 0
	runs "$1" || return 0
	note "$1 (process $pid) does not end; killing it"
	kill -9 "$pid" 2>/dev/null
	until_true 5 eval "! runs $1"
}

# Stops the standby first, so that the primary does not hand over.
stop_nodes() {
	local primary
	primary=$(jq -r '.primary // ""' "$state/roll" 2>/dev/null)
	if [[ $primary == a ]]; then stop b && stop a; else stop a && stop b; fi
}

take_down() {
	want down || fail "cannot write to $state"
	stop keeper && stop main && stop_nodes || fail "not all of it could be stopped: $(./up --status)"
	# the values are gone with the memory, so the rest is of no use
	rm -rf "$state"/{a,b,roll*,born,lost}
}

up_down() {
	[[ -d $state ]] || { note 'nothing runs, so nothing was stopped' && return; }
	local was=''
	if any_runs; then was=1; fi
	take_down
	if [[ $was ]]; then
		note "stopped. The store is kept: $(short "$state/main/disk.img"); the values in the pool are gone"
	else
		note 'nothing runs, so nothing was stopped'
	fi
}

up_pid() {
	local name=$1
	if [[ $name == primary ]]; then name=$(jq -r '.primary // "nobody"' "$state/roll" 2>/dev/null); fi
	any_runs || fail 'not up; ./up starts it'
	[[ $name == a || $name == b || $name == main || $name == keeper ]] || fail "--pid requires a, b, main, keeper or primary, not '$1'"
	runs "$name" || fail "$name does not run"
	echo "$pid"
}
