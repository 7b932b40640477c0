# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# follow.sh - prints addresses and commands to try, then the status: in place on a terminal, else at each change.

url() {
	echo "http://127.0.0.1:${port[api]}/#token=$(<"$state/main/token")"
}

tell_where() {
	cat <<-EOF

	  console   $(url)
	  pool      shop: nodes a and b, ports ${port[a]} and ${port[b]}; $(pool_name) for 'stag pool'
	  store     127.0.0.1:${port[store]}, partitions goods and blocks; $(short "$state/main/disk.img")
	  target    iscsi://127.0.0.1:${port[target]}/$iqn/1, which is the store's partition blocks
	  API       http://127.0.0.1:${port[api]}/api/v1/status, with the header in $(short "$state/main/authorization")
	  logs      $(short "$state")/*.log

	Five commands to try:
	EOF
	lines_to_try | sed 's/^/  /'
	echo
}

# Prints how 'stag pool' names the pool: by its name, unless there is another one of this name.
pool_name() {
	if [[ $("$stag" pool --json 2>/dev/null | jq 'map(select(.name == "shop")) | length') == 1 ]]; then echo shop; else short "$state/a"; fi
}

# tests/app/test_up runs each of them as it is printed.
lines_to_try() {
	local s node up
	s=$(short "$stag") node=$(pool_name) up=$(short "$here/up")
	[[ $up == */* ]] || up=./$up
	cat <<-EOF
	$s pool put $node greeting hello && $s pool get $node greeting
	echo hello | $s store write 127.0.0.1:${port[store]}/goods && $s store read 127.0.0.1:${port[store]}/goods --length 6
	iscsi-inq iscsi://127.0.0.1:${port[target]}/$iqn/1 && $s block info stag://127.0.0.1:${port[target]}/$iqn/1
	curl -sf -H @$(printf %q "$state/main/authorization") http://127.0.0.1:${port[api]}/api/v1/pools
	kill -9 "\$($up --pid primary)" && $s pool get $node greeting
	EOF
}

up_try() {
	[[ $1 == [1-5] ]] || fail '--try requires a number from 1 to 5'
	read_ports
	lines_to_try | sed -n "${1}p"
}

# ---- status ------------------------------------------------------------------------------

# processes_json: prints {"a": {"pid": 1}, "b": null, ...}
processes_json() {
	local name list=
	for name in "${daemons[@]}" keeper; do
		if runs "$name"; then list+=",\"$name\":{\"pid\":$pid}"; else list+=",\"$name\":null"; fi
	done
	echo "{${list#,}}"
}

# Prints the status as JSON; the store and the target only while their daemon responds.
status_json() {
	local roll main=null lost='' room
	read_ports
	room=$(df -Pm "$state" 2>/dev/null | awk 'NR == 2 { print $4 }')
	roll=$(jq -c '{primary, epoch, in_sync: [.members[]? | select(."in-sync") | .name]}' "$state/roll" 2>/dev/null) || roll=null
	if runs main; then main=$(api /api/v1/status 2>/dev/null) || main=null; fi
	if [[ -e $state/lost ]]; then lost=$(<"$state/lost"); fi
	jq -n -c --argjson processes "$(processes_json)" --argjson roll "${roll:-null}" --argjson main "$main" --arg lost "$lost" --arg state "$state" --argjson room "${room:-null}" \
		--arg console "$(url 2>/dev/null)" '
		{up: ([$processes[] | . != null] | any), state: $state, room_mb: $room, console: $console, processes: $processes,
		 pool: ($roll + (($main.watches // [])[0] // {} | {number, lag, names, bytes, used, size})),
		 lost: (if $lost == "" then null else $lost end),
		 answers: ($main != null), stores: ($main.stores // []), targets: ($main.targets // [])} |
		.well = (([.processes[] | . != null] | all) and (.pool.in_sync | length) == 2 and .answers and .lost == null and .room_mb >= 5)'
}

# Prints the status for people, one line a part.
status_words() {
	jq -r '
		def mark(name): if .processes[name] == null then "not running" elif .pool.primary == name then "primary"
			elif (.pool.in_sync // [] | index(name)) then "standby, in sync" else "joining" end;
		def process(name): name + " " + (.processes[name].pid // "-" | tostring);
		"pool shop    a: \(mark("a"))   b: \(mark("b"))   epoch \(.pool.epoch // "-")" +
			(if .pool.names != null then "   \(.pool.names) names, lag \(.pool.lag // 0) records" else "" end),
		"store disk   " + (if .answers then ([.stores[] | "\(.partitions | length) partitions, \(.counters.reads) reads, \(.counters.writes) writes"] | first // "missing")
			else "its daemon does not respond" end),
		"target up    " + (if .answers then ([.targets[] | "\(.luns | length) \(if (.luns | length) == 1 then "unit" else "units" end), \(.sessions | length) sessions"] | first // "missing") else "its daemon does not respond" end),
		"console      \(.console | sub("#.*"; ""))",
		"processes    " + ([process("a"), process("b"), process("main"), process("keeper")] | join("   ")),
		(if .lost then "LOST         \(.lost)" else empty end),
		(if .room_mb and .room_mb < 5 then "NO ROOM      \(.state) has only \(.room_mb) MB left: daemons cannot be restarted; make room" else empty end)' <<<"$1"
}

up_status() {
	local now
	if ! any_runs; then
		if [[ $json ]]; then jq -n --arg state "$state" '{up: false, well: false, state: $state}'; else echo 'not up; ./up starts it'; fi
		return 3
	fi
	now=$(status_json)
	if [[ $json ]]; then jq . <<<"$now"; else status_words "$now"; fi
	jq -e .well <<<"$now" >/dev/null
}

# ---- follow ------------------------------------------------------------------------------

# show_in_place TEXT: prints it over the previous text
shown=0
show_in_place() {
	local columns=${COLUMNS:-$(tput cols 2>/dev/null || echo 80)}
	hide_shown
	cut -c "1-$columns" <<<"$1"
	shown=$(wc -l <<<"$1")
}

hide_shown() {
	((shown == 0)) || printf '\033[%dA\033[J' "$shown"
	shown=0
}

# Prints new lines of the keeper's log.
tell_events() {
	local lines
	lines=$(tail -n "+$((told + 1))" "$state/keeper.log" 2>/dev/null)
	[[ $lines ]] || return 0
	told=$((told + $(wc -l <<<"$lines")))
	if [[ -t 1 ]]; then hide_shown; fi
	echo "$lines"
}

leave() {
	echo
	note 'the system keeps running. ./up shows its status again, ./up --down stops it'
	exit 0
}

follow() {
	local now before=''
	told=$(wc -l <"$state/keeper.log")
	while wanted up; do
		runs keeper || { note 'the keeper had ended; starting another one' && start_keeper; }
		tell_events
		now=$(status_words "$(status_json)")
		if [[ -t 1 ]]; then
			show_in_place "$now"
		elif [[ $now != "$before" ]]; then
			sed 's/^/  /' <<<"$now"
		fi
		before=$now
		sleep 1 &
		wait $!
	done
	note 'stopped by ./up --down'
}
