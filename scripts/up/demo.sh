# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# demo.sh - a demonstration in a system of its own, with its own directory and ports: unmodified programs use it, its primary is killed
# under load, and its data is checked afterwards. Each chapter is checked; measurements are printed at the end.

figures=()
background=()
telling='' interrupted=

# figure WHAT VALUE: adds a line to the table at the end
figure() {
	figures+=("$(printf '%-58s %s' "$1" "$2")")
}

# chapter WHAT COMMAND...: runs a step and prints a line; if it fails, all of its output
chapter() {
	local start=$EPOCHREALTIME
	telling=$1
	shift
	printf '  %-62s' "$telling"
	"$@" >"$work/said" 2>&1 || exit 1
	telling=
	awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "ok %6.1f s\n", b - a }'
}

# Prints the output of the failed chapter, and the ends of the logs.
tell_failure() {
	local log
	echo FAILED
	sed 's/^/    | /' "$work/said"
	for log in "$state"/*.log; do
		echo "    ${log##*/}:"
		tail -n 8 "$log" | sed 's/^/    | /'
	done
	echo
	echo 'up: the demo ends here, since this step failed'
}

# refuse WHY: prints why a chapter failed, and fails
refuse() {
	echo "$1"
	return 1
}

# Stops all processes and removes all files, however the demo ends.
clean_up() {
	local process
	trap '' INT TERM HUP
	exec >&6 2>&1
	if [[ $telling && -z $interrupted ]]; then tell_failure; fi
	for process in "${background[@]}"; do kill "$process" 2>/dev/null; done
	if [[ -d $state ]]; then take_down >/dev/null 2>&1; fi
	rm -rf "$work"
	if [[ $interrupted ]]; then echo && note 'stopped; all of its files are removed'; fi
}

# ---- chapters ----------------------------------------------------------------------------

demo_start() {
	local start=$EPOCHREALTIME
	ask_up
	bring_up
	figure 'from the start until everything is served and in sync' "$(elapsed "$start") s"
}

# elapsed SINCE: prints the seconds since then
elapsed() {
	awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }'
}

demo_values() {
	"$stag" pool put "$state/a" greeting 'hello, pool' || return 1
	[[ $("$stag" pool get "$state/b" greeting) == 'hello, pool' ]] || refuse 'the pool returned another value' || return 1
	"$stag" pool put "$state/a" big --file "$work/data" && "$stag" pool get "$state/a" big --file "$work/back" && cmp "$work/data" "$work/back" || return 1
	[[ $(api /api/v1/pools/shop/values/greeting) == 'hello, pool' ]] || refuse 'the API returned another value'
}

# Runs two processes of an unmodified stock program over the software adapter.
demo_stock_pair() {
	local server rc number=$((port[api] + 1))
	while is_taken "$number"; do number=$((number + 1)); done
	timeout 60 "$stag" run -- rping -s -a 127.0.0.1 -p "$number" -C 100 -S 4096 -V &
	server=$!
	background+=("$server")
	until_true 10 is_taken "$number" || refuse 'rping does not listen' || return 1
	timeout 60 "$stag" run -- rping -c -a 127.0.0.1 -p "$number" -C 100 -S 4096 -V
	rc=$?
	wait "$server" && return "$rc"
}

unit() {
	echo "$1://127.0.0.1:${port[target]}/$iqn/1"
}

# Writes to the store by RDMA, and reads it back by RDMA with QEMU: libiscsi's iSER on librdmacm, as Debian ships them.
demo_stock_on_store() {
	local said
	local -x MALLOC_PERTURB_=0 # libiscsi's iSER thread reads uninitialised memory, which must be zero
	timeout 60 "$stag" store write "127.0.0.1:${port[store]}/blocks" "$work/data" || return 1
	timeout 60 "$stag" run -- qemu-img dd -f raw -O raw bs=65536 "if=$(unit iser)" "of=$work/back" &&
		cmp -n "$(stat -c %s "$work/data")" "$work/data" "$work/back" || return 1
	said=$(timeout 60 "$stag" run -- iscsi-perf -t 1 -b 8 -m 32 -r "$(unit iser)" </dev/null) || refuse "$said" || return 1
	said=$(grep -oE 'iops average [0-9]+' <<<"$said" | tail -n 1) && [[ $said ]] || refuse 'iscsi-perf printed no result' || return 1
	figure "iscsi-perf (stock, iSER) on the store, 4 KiB reads" "${said##* } per second"
}

demo_block() {
	timeout 60 iscsi-inq "$(unit iscsi)" | grep -q DIRECT_ACCESS || refuse 'iscsi-inq does not see a disk' || return 1
	timeout 60 qemu-img convert -f raw -O raw "$(unit iscsi)" "$work/back" &&
		cmp -n "$(stat -c %s "$work/data")" "$work/data" "$work/back" || return 1
	timeout 60 "$stag" block read "$(unit stag)" "$work/back" --length "$(stat -c %s "$work/data")" && cmp "$work/data" "$work/back" || return 1
	timeout 60 "$stag" block bench "$(unit stag)" --secs 1 --depth 32 --json >"$work/bench.json" || return 1
	figure "stag block bench (one-shot), 4 KiB reads" "$(jq -r '.per_second // .iops // .ops_per_s | floor' "$work/bench.json") per second"
}

primary() {
	jq -r '.primary // ""' "$state/roll" 2>/dev/null
}

# kill_primary: kills the primary, and waits until the other node serves and the killed one is back in sync
kill_primary() {
	local old start
	old=$(primary)
	until_true 60 is_in_sync && runs "$old" || refuse 'the pool was not in sync' || return 1
	start=$EPOCHREALTIME
	kill -9 "$pid"
	until_true 60 eval "[[ \$(primary) != $old ]]" || refuse "no failover happened after $old was killed" || return 1
	until_true 60 is_in_sync || refuse "$old did not get in sync again" || return 1
	figure "$old killed under load: restarted and in sync after" "$(elapsed "$start") s"
}

demo_failover() {
	local load rc
	"$stag" pool load "$state/a" --secs 100 --json >"$work/load.json" 2>"$work/load.err" &
	load=$!
	background+=("$load")
	until_true 60 grep -q 'are running' "$work/load.err" || refuse "$(<"$work/load.err")" || return 1
	sleep 1
	kill_primary || return 1
	sleep 1
	kill_primary || return 1
	sleep 1
	kill -INT "$load"
	wait "$load"
	rc=$?
	cat "$work/load.err" "$work/load.json"
	((rc == 0)) && jq -e '.lost == 0 and .wrong == 0 and .unknown == 0 and .failovers >= 2 and .puts > 0' "$work/load.json" >/dev/null
}

load_figures() {
	local f=$work/load.json
	figure 'puts acknowledged while two primaries were killed' "$(jq -r '"\(.puts), \(.puts_per_s | floor) per second"' "$f")"
	figure 'acknowledged values that were lost or wrong afterwards' "$(jq -r '.lost + .wrong' "$f")"
	figure 'time of a put, median' "$(jq -r '.us.p50 | floor' "$f") µs"
	figure 'time of a put, 99th percentile' "$(jq -r '.us.p99 | floor' "$f") µs"
	figure 'longest time of a put: a failover as a client sees it' "$(jq -r '.longest_ms * 10 | floor / 10' "$f") ms"
}

demo_after() {
	[[ $("$stag" pool get "$state/a" greeting) == 'hello, pool' ]] || refuse 'the first value is lost' || return 1
	"$stag" pool get "$state/a" big --file "$work/back" && cmp "$work/data" "$work/back" || return 1
	"$stag" store read "127.0.0.1:${port[store]}/blocks" "$work/back" --length "$(stat -c %s "$work/data")" && cmp "$work/data" "$work/back" || return 1
	status_json >"$work/now" && jq -e .well "$work/now" >/dev/null || refuse "$(jq . "$work/now")" || return 1
	curl -sf --compressed -m 5 -o "$work/page" "http://127.0.0.1:${port[api]}/" && grep -qi '<html' "$work/page" || refuse 'the console does not respond'
}

demo_stop() {
	take_down || return 1
	! any_runs
}

# ---- the demonstration ---------------------------------------------------------------------------

up_demo() {
	local began
	prepare
	work=$(mktemp -d -p "${TMPDIR:-/tmp}" stag-demo.XXXXXX) || fail "cannot write to ${TMPDIR:-/tmp}; is the disk full?"
	export STAG_STATE=$work # its pool is none that 'stag pool' lists
	state=$work began=$SECONDS keeper_for=$$ # the keeper stops the system if this process is killed
	exec 6>&1
	trap clean_up EXIT
	trap 'interrupted=1; exit 130' INT TERM HUP
	port=([store]=$((20000 + RANDOM % 10000)))
	port+=([a]=$((port[store] + 1)) [b]=$((port[store] + 2)) [api]=$((port[store] + 3)) [target]=$((port[store] + 4)))
	head -c 1000000 /dev/urandom >"$work/data" || fail "cannot write to $work; is the disk full?"

	echo 'A demonstration on this machine, as an ordinary user'
	chapter 'a pool with two nodes, a store, a block target, a console' demo_start
	chapter 'values: put and get, by command and by HTTP' demo_values
	chapter 'rping, a stock RDMA program, client and server' demo_stock_pair
	chapter 'QEMU and libiscsi, stock, read the store by RDMA (iSER)' demo_stock_on_store
	chapter 'block reads: iSCSI by libiscsi and QEMU, one-shot by stag' demo_block
	chapter 'SIGKILL of the primary under load, twice; each rejoins' demo_failover
	chapter 'all data is intact: values, store, console' demo_after
	chapter 'a clean stop' demo_stop
	load_figures
	echo
	printf '  %s\n' "${figures[@]}"
	echo
	echo "All steps passed, in $((SECONDS - began)) seconds. ./up starts such a system to keep."
}
