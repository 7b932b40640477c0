# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# rping.sh - rdmacm-utils' ping-pong: Send, RDMA Read and RDMA Write on one connection.

rping_shows='Send, Read and Write with a completion channel; the data is verified'

entry rping package rdmacm-utils shows "$rping_shows" \
	server 'rping -s -a ADDR -p PORT -v -V -C 10 -S 4096' \
	client 'rping -c -a ADDR -p PORT -v -V -C 10 -S 4096'

entry rping-ipv6 package rdmacm-utils addr ::1 addr@hosts fd77::1 shows 'the same on IPv6' \
	server 'rping -s -a ADDR -p PORT -v -V -C 10' \
	client 'rping -c -a ADDR -p PORT -v -V -C 10'

entry rping-own-qp package rdmacm-utils shows 'a queue pair that the program makes and moves through its states itself' \
	server 'rping -s -a ADDR -p PORT -V -q -C 10' \
	client 'rping -c -a ADDR -p PORT -V -q -C 10'

entry rping-sizes package rdmacm-utils run run_rping_sizes limit 120 \
	shows 'every kind of size: 23 (the least rping takes) to 65535 bytes, one connection each' \
	server 'rping -s -a ADDR -p PORT -P -v -V -S 65535' \
	client 'rping -c -a ADDR -p PORT -v -V -C 3 -S SIZE'

run_rping_sizes() {
	local words size trace='' traces=()
	fill_in "$(of server)"
	serve "$port" "${words[@]}" || return
	for size in 23 24 25 26 27 64 127 1023 1024 1025 1459 1460 1461 4095 4096 4097 \
		16384 32767 40000 65532 65533 65534 65535; do
		trace=$work/client-$size.pcapng
		traces+=("$trace")
		fill_in "$(of client)"
		client "${words[@]/SIZE/$size}" || return
	done
	mergecap -w "$work/client.pcapng" "${traces[@]}" && captures "$work/client.pcapng"
}

entry rping-20-clients package rdmacm-utils run run_rping_clients \
	shows 'a persistent server and 20 clients at once' \
	server 'rping -s -a ADDR -p PORT -P -V -S 1000' \
	client 'rping -c -a ADDR -p PORT -v -V -C 1000 -S 1000'

# rping's server mistakes two simultaneous requests for one, and two of its threads free the same id. So the clients connect one by
# one: each is stopped once it has connected, and all continue at the same time.
run_rping_clients() {
	local words i pids=() bad=0
	fill_in "$(of server)"
	serve "$port" "${words[@]}" || return
	fill_in "$(of client)"
	for i in {1..20}; do
		(under_on_client 60 "${words[@]}") >"$work/client.$i" 2>&1 </dev/null &
		pids+=($!)
		until [[ -s $work/client.$i ]] || ! kill -0 $! 2>/dev/null; do sleep 0.01; done
		kill -STOP -- -$! 2>/dev/null
	done
	for i in "${pids[@]}"; do kill -CONT -- "-$i" 2>/dev/null; done
	for i in {1..20}; do
		wait "${pids[i - 1]}" || { fail "client $i: $(exit_text $?)"; show "$work/client.$i"; bad=1; }
	done
	kill -0 "${servers[0]}" 2>/dev/null || fail "the server did not stay" || { show "$work/server.0"; bad=1; }
	return "$bad"
}
