# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154,SC2034
#
# perftest.sh - perftest's bandwidth and latency programs, connected by rdma_cm.
#
# perftest posts through ibv_wr_* unless told to use the older ibv_post_send.

bw_figure() {
	awk '$1 ~ /^[0-9]+$/ && NF >= 5 && $4 > 0 { best = $4 > best ? $4 : best }
		END { if (best) printf "%.0f MiB/s\n", best }'
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
		server "$program -d stag0 -p PORT -R -F $options" \
		client "$program -d stag0 -p PORT -R -F $options ADDR" "$@"
}

for op in write read send; do
	for kind in bw lat; do
		p=ib_${op}_$kind
		perftest "$p" "$p" '-a -n 200' 'all sizes from 2 bytes to 8 MiB, new post API' trace no limit 120
		perftest "$p-old-api" "$p" '--use_old_post_send -s 4096 -n 300' 'ibv_post_send'
		# perftest itself refuses events for writes.
		[[ $op == write ]] || perftest "$p-events" "$p" '-e -s 1024 -n 300' 'completion events'
	done
	p=ib_${op}_bw
	perftest "$p-8-qps" "$p" '-q 8 -s 8192 -n 200' 'eight queue pairs'
	perftest "$p-both-ways" "$p" '-b -s 65536 -n 500' 'both directions at once' trace no
	perftest "$p-infinite" "$p" '--run_infinitely -D 1 -s 65536' 'ten seconds of traffic, then the client is stopped' \
		trace no run run_infinite
done

# The client reports every second, and would for ever.
run_infinite() {
	local words trace=
	fill_in "$(of server)"
	serve "$port" "${words[@]}" || return
	fill_in "$(of client)"
	client_limit=11
	client "${words[@]}"
	(($? == 124)) || fail "the client ended by itself" || return
	(($(bw_rows <"$work/client") >= 4)) || fail "fewer than four reports" || { show "$work/client"; return 1; }
}

bw_rows() {
	awk '$1 ~ /^[0-9]+$/ && NF >= 5 && $4 > 0 { n++ } END { print n + 0 }'
}

for kind in bw lat; do
	p=ib_atomic_$kind
	perftest "$p" "$p" '-A FETCH_AND_ADD -n 1000' 'RFC 7306 FetchAdd'
	perftest "$p-cas" "$p" '-A CMP_AND_SWAP -n 1000' 'RFC 7306 CmpSwap'
done
