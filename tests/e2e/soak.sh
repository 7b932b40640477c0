# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# soak.sh - the same programs for a long time, to detect leaks. Only ./check --long runs these.

soak soak-connections package rdmacm-utils run run_soak_connections limit 3600 \
	shows '3000 clients one after another: no descriptor, thread or memory stays behind' \
	server 'rping -s -a ADDR -p PORT -P -V -S 1000' \
	client 'rping -c -a ADDR -p PORT -V -C 20 -S 1000'

run_soak_connections() {
	local words early
	fill_in "$(of server)"
	serve "$port" "${words[@]}" || return
	fill_in "$(of client)"
	soak_clients 300 || return
	early=$(held)
	soak_clients 2700 || return
	not_grown "$early" "$(held)"
}

# soak_clients N: ten at a time
soak_clients() {
	local i j pids
	for ((i = 0; i < $1; i += 10)); do
		pids=()
		for j in {1..10}; do
			(under 60 "${words[@]}") >"$work/client.$j" 2>&1 </dev/null &
			pids+=($!)
		done
		for j in {1..10}; do
			wait "${pids[j - 1]}" || fail "client $((i + j))" || { show "$work/client.$j"; return 1; }
		done
	done
}

for op in write read send; do
	soak "soak-$op" package perftest run run_soak_traffic limit 900 \
		shows 'ten minutes of traffic in both directions: no descriptor, thread or memory more at its end than at its beginning' \
		server "ib_${op}_bw -d stag0 -p PORT -R -F -b -q 4 -s 65536 -D 600" \
		client "ib_${op}_bw -d stag0 -p PORT -R -F -b -q 4 -s 65536 -D 600 ADDR"
done

run_soak_traffic() {
	local words pid early late='' now
	fill_in "$(of server)"
	serve "$port" "${words[@]}" || return
	fill_in "$(of client)"
	(under 900 "${words[@]}") >"$work/client" 2>&1 </dev/null &
	pid=$!
	sleep 60
	early=$(held)
	while kill -0 "$pid" 2>/dev/null; do
		now=$(held)
		[[ $now == 0* ]] || late=$now
		sleep 1
	done
	wait "$pid" || fail "client: $(exit_text $?)" || { show "$work/client"; return 1; }
	served || return
	not_grown "$early" "$late"
}

# held: prints descriptors, threads and KiB of memory of the server, which timeout(1) started
held() {
	local pid
	pid=$(pgrep -P "${servers[0]}" | head -1)
	echo "$(find "/proc/$pid/fd" -mindepth 1 2>/dev/null | wc -l)" \
		"$(awk '/^Threads/ { t = $2 } /^VmRSS/ { m = $2 } END { print t + 0, m + 0 }' "/proc/$pid/status" 2>/dev/null)"
}

# not_grown EARLY LATE: allows for a few objects that are being freed, and for memory that malloc keeps.
not_grown() {
	local -a early late
	read -ra early <<<"$1"
	read -ra late <<<"$2"
	say "descriptors, threads, KiB: $1, then $2"
	((early[0] > 0 && late[0] > 0)) || fail "there was nothing to measure" || return
	((late[0] <= early[0] + 20 && late[1] <= early[1] + 20 && late[2] <= early[2] + 16384)) ||
		fail "something stays behind"
}
