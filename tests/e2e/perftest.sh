# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154,SC2034
#
# perftest.sh - perftest's bandwidth and latency programs, connected by rdma_cm, or by number.
#
# perftest posts through ibv_wr_* on adapters that it knows, and through
# ibv_post_send on all others. For the former the device pretends to be a known one.

bw_figure() {
	awk '$1 ~ /^[0-9]+$/ && NF >= 5 && $4 > 0 { best = $4 > best ? $4 : best }
		END { if (best) printf best < 10 ? "%.2f MiB/s\n" : "%.0f MiB/s\n", best }'
}

lat_figure() {
	awk '$1 ~ /^[0-9]+$/ && NF >= 6 && $6 > 0 { if (!least || $6 < least) least = $6 }
		END { if (least) printf "%.1f µs\n", least }'
}

# perftest NAME PROGRAM OPTIONS SHOWS MORE...: one entry
perftest() {
	local name=$1 program=$2 options=$3 shows=$4
	shift 4
	entry "$name" package perftest figure "${program##*_}_figure" shows "$shows" \
		server "$program -d DEVICE -p PORT -R -F $options" \
		client "$program -d DEVICE -p PORT -R -F $options ADDR" "$@"
}

# by_number NAME PROGRAM OPTIONS SHOWS MORE...: the same, connected by number and GID, which perftest exchanges by TCP
by_number() {
	local name=$1-by-number program=$2 options=$3 shows=$4
	shift 4
	entry "$name" package perftest on 'roce0 hosts' figure "${program##*_}_figure" shows "$shows" \
		server "$program -d DEVICE -p PORT -F $options" \
		client "$program -d DEVICE -p PORT -F $options ADDR" "$@"
}

for op in write read send; do
	for kind in bw lat; do
		p=ib_${op}_$kind
		# Both sides of a latency test spin, which takes long on two cores that are shared.
		[[ $kind == bw ]] && n=100 || n=10
		perftest "$p" "$p" "-a -n $n" 'all sizes from 2 bytes to 8 MiB, ibv_post_send' trace no limit 120
		perftest "$p-new-api" "$p" '-s 4096 -n 300' 'ibv_wr_start and its family (STAG_PART_ID=4119)' run run_new_api
	done
	p=ib_${op}_bw
	perftest "$p-new-api-all" "$p" '-a -n 20' 'ibv_wr_start and its family, all sizes' trace no limit 120 run run_new_api
	perftest "$p-8-qps" "$p" '-q 8 -s 8192 -n 200' 'eight queue pairs'
	perftest "$p-both-ways" "$p" '-b -s 65536 -n 500' 'both directions at once' trace no
	perftest "$p-infinite" "$p" '--run_infinitely -D 1 -s 65536' 'three seconds of traffic, then the client is stopped' \
		trace no run run_infinite
done

run_new_api() {
	export STAG_PART_ID=4119
	run_pair || return
	grep -q 'ibv_wr\* API *: ON' "$work/client" || fail "perftest did not take the new API"
}

# perftest itself refuses events for writes. On iWARP ib_send_bw counts the
# receiver's credits, which come by RDMA Write, and then sleeps for a completion
# that will not come: with many receives it never runs out of credits.
for p in ib_read_bw ib_read_lat ib_send_lat; do
	perftest "$p-events" "$p" '-e -s 1024 -n 300' 'completion events'
done
perftest ib_send_bw-events ib_send_bw '-e -s 65536 -n 5000 -r 5000' 'completion events' trace no

# The client reports every second without end: it is stopped after three reports or
# at its time limit.
run_infinite() {
	local words pid trace=
	fill_in "$(of server)"
	serve "$port" "${words[@]}" || return
	fill_in "$(of client)"
	say "client: ${words[*]}"
	: >"$work/client"
	under_on_client "$client_limit" "${words[@]}" >"$work/client" 2>&1 </dev/null &
	pid=$!
	servers+=("$pid") # ended with the servers
	while (($(bw_rows <"$work/client") < 3)) && kill -0 "$pid" 2>/dev/null; do
		sleep 0.2
	done
	if ! kill -0 "$pid" 2>/dev/null; then
		wait "$pid"
		(($? == 124)) || fail "the client ended by itself" || { show "$work/client"; return 1; }
	fi
	(($(bw_rows <"$work/client") >= 2)) || fail "fewer than two reports" || { show "$work/client"; return 1; }
}

bw_rows() {
	awk '$1 ~ /^[0-9]+$/ && NF >= 5 && $4 > 0 { n++ } END { print n + 0 }'
}

for kind in bw lat; do
	p=ib_atomic_$kind
	perftest "$p" "$p" '-A FETCH_AND_ADD -n 1000' 'RFC 7306 FetchAdd'
	perftest "$p-cas" "$p" '-A CMP_AND_SWAP -n 1000' 'RFC 7306 CmpSwap'
done

# The server's region is on storage, without the knowledge of either side.
for op in write read; do
	perftest "ib_${op}_bw-on-store" "ib_${op}_bw" '-s 65536 -n 20' "the server's region is a file" run run_on_store
done
# No figure: perftest may print 0.00 MiB/s for so few bytes.
perftest ib_atomic_bw-on-store ib_atomic_bw '-A FETCH_AND_ADD -n 100' "the server's region is a file" run run_on_store figure ''

# The file has the bytes that were written or read.
run_on_store() {
	local words trace=$work/server.pcapng disk=$work/disk
	: >"$disk"
	[[ $name != *read* ]] || head -c 131072 /dev/urandom >"$disk"
	fill_in "$(of server)"
	serve "$port" "$here/on-store" "$disk" "${words[@]}" || return
	trace=$work/client.pcapng
	fill_in "$(of client)"
	client "${words[@]}" && served || return
	captures "$work/server.pcapng" "$trace" || return
	if [[ $name == *atomic* ]]; then
		(($(sum_of_words <"$disk") == 100)) || fail "the sum of what was added is $(sum_of_words <"$disk")"
	else
		"$here/in-capture" "$disk" "$trace" 65536 >"$work/found" || fail "$(<"$work/found")"
	fi
}

sum_of_words() {
	od -An -v -td8 | awk '{ for (i = 1; i <= NF; i++) sum += $i } END { print sum }'
}

# ---- by number ----

for op in write read send; do
	for kind in bw lat; do
		p=ib_${op}_$kind
		[[ $kind == bw ]] && n=100 || n=10
		by_number "$p" "$p" "-a -n $n" 'without rdma_cm: all sizes from 2 bytes to 8 MiB' trace no limit 120
		by_number "$p-4096" "$p" '-s 4096 -n 300' 'the same at 4 KiB'
	done
	p=ib_${op}_bw
	by_number "$p-new-api" "$p" '-s 4096 -n 300' 'ibv_wr_start and its family (STAG_PART_ID=4119)' run run_new_api
	by_number "$p-8-qps" "$p" '-q 8 -s 8192 -n 200' 'eight queue pairs'
	by_number "$p-both-ways" "$p" '-b -s 65536 -n 500' 'both directions at once' trace no
	by_number "$p-infinite" "$p" '--run_infinitely -D 1 -s 65536' 'three seconds of traffic, then the client is stopped' \
		trace no run run_infinite
done
for p in ib_read_bw ib_read_lat ib_send_lat ib_send_bw; do
	by_number "$p-events" "$p" '-e -s 1024 -n 300' 'completion events'
done
for kind in bw lat; do
	p=ib_atomic_$kind
	by_number "$p" "$p" '-A FETCH_AND_ADD -n 1000' 'fetch and add'
	by_number "$p-cas" "$p" '-A CMP_AND_SWAP -n 1000' 'compare and swap'
	many=$([[ $kind == lat ]] || echo '-q 4 ') # queue pairs, which only the tests of bandwidth can have
	by_number "ib_send_$kind-srq" "ib_send_$kind" "--use-srq $many-s 4096 -n 300" 'a shared receive queue'
	by_number "ib_send_$kind-ud" "ib_send_$kind" '-c UD -s 1024 -n 1000' 'datagrams'
	by_number "ib_send_$kind-uc" "ib_send_$kind" '-c UC -s 4096 -n 300' 'unreliable connections'
	by_number "ib_write_$kind-uc" "ib_write_$kind" '-c UC -s 4096 -n 300' 'unreliable connections, writes'
done
for name in ib_send_lat-4096 ib_atomic_bw ib_read_bw-events ib_send_bw-8-qps ib_write_bw-both-ways ib_send_bw-srq ib_send_bw-ud \
	ib_write_bw-uc; do
	describe "$name-by-number" often roce0
done
for name in ib_write_bw-4096 ib_send_lat-ud; do
	describe "$name-by-number" often 'roce0 hosts'
done
# What UDP loses between hosts, this program waits for.
describe ib_send_bw-ud-by-number on roce0
