# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2154
#
# servers.sh - functions that bench/store, bench/block and bench/pool share: servers of stag and of
# others, loads, and samples. To be sourced after run.sh, in the namespace, with out set; a measurement needs
# secs, mib, and offset (of the data in the file), a sample needs pass and name.

# ---- servers -----------------------------------------------------------------

on_server=() on_client=()
taskset -c 0 true 2>/dev/null && on_server=(taskset -c 0)
taskset -c 1 true 2>/dev/null && on_client=(taskset -c 1)

work=$(mktemp -d)
files=()
servers=()
cleanup() {
	[ ${#servers[@]} = 0 ] || kill -9 "${servers[@]}" # tgtd hears of no other while it has a target
	wait
	rm -rf "$work" ${files[@]+"${files[@]}"}
} 2>/dev/null
trap cleanup EXIT

# await_port PORT: waits until a server listens there.
await_port() {
	local i hex
	hex=$(printf ':%04X' "$1")
	for i in $(seq 200); do
		awk -v p="$hex" '$4 == "0A" && substr($2, length($2) - 4) == p { f = 1 } END { exit !f }' \
			/proc/net/tcp /proc/net/tcp6 2>/dev/null && return 0
		sleep 0.05
	done
	return 1
}

# start_server NAME PORT WORDS...: starts it, and sets ${server[NAME]} to its process once it listens.
declare -A server
start_server() {
	local name=$1 port=$2
	shift 2
	${on_server[@]+"${on_server[@]}"} "$@" >>"$out/errors.log" 2>&1 &
	servers+=($!)
	if await_port "$port"; then
		server[$name]=$!
	else
		say "$name does not listen, so it is not measured (see errors.log)"
		return 1
	fi
}

# has PROGRAM PACKAGE
has() {
	PATH=$PATH:/sbin:/usr/sbin command -v "$1" >/dev/null && return 0
	say "$1 is not installed (Debian's $2), so it is not measured"
	return 1
}

# start_tgt FILE: serves FILE as LUN 1 of $target, at port 5363.
target=iqn.2026-01.stag:bench
start_tgt() {
	local tgt=(timeout 10 tgtadm --lld iscsi)
	PATH=$PATH:/sbin:/usr/sbin
	export TGT_IPC_SOCKET=$work/tgtd
	start_server tgt 5363 tgtd -f --iscsi portal=127.0.0.1:5363 || return
	"${tgt[@]}" --mode target --op new --tid 1 --targetname $target &&
		"${tgt[@]}" --mode logicalunit --op new --tid 1 --lun 1 --backing-store "$1" &&
		"${tgt[@]}" --mode target --op bind --tid 1 --initiator-address ALL || unset 'server[tgt]'
} >>"$out/errors.log" 2>&1

# ---- measurements ---------------------------------------------------------------------

client() { timeout 120 ${on_client[@]+"${on_client[@]}"} "$@" 2>>"$out/errors.log"; }

# Each of these prints operations per second, microseconds of processor time per operation, p50, p99.
run_fio() {
	client fio --name=p --size="${mib}m" --offset="$offset" --time_based --norandommap --randrepeat=0 --invalidate=0 \
		--runtime="$(awk -v s="$secs" 'BEGIN { print s * 1000 }')ms" --output-format=json "$@" |
		sed -n '/^{/,$p' | jq -r '.jobs[0] | (if .read.io_bytes > 0 then .read else .write end) as $io |
			[$io.iops, (.usr_cpu + .sys_cpu) / 100 * $io.runtime * 1000 / $io.total_ios,
			 $io.clat_ns.percentile["50.000000"] / 1000, $io.clat_ns.percentile["99.000000"] / 1000] | @tsv'
}

# run_tcp [FILE]: also in operations of 1 MiB; the faster one of polling and sleeping. Sends the same bytes again and
# again, or those of a file.
run_tcp() {
	local how case=(stream)
	[ $# = 0 ] || case=(file -f "$1")
	for how in '' -e; do
		# shellcheck disable=SC2086
		client "$stag" bench part tcp "${case[@]}" -s 1048576 -t "$secs" $how
	done | sort -g | tail -1 | awk -F'\t' -v OFS='\t' '{ print $1 * 1e9 / 1048576, $4 / 1024 * 1e6, "-", "-" }'
}

# busy_ns SERVER: prints its processor time so far, including threads that have ended.
ticks=$(getconf CLK_TCK)
busy_ns() {
	[ -n "${server[$1]:-}" ] || { echo 0; return; }
	sed 's/.*) //' "/proc/${server[$1]}/stat" | awk -v hz="$ticks" '{ printf "%.0f\n", ($12 + $13) * 1e9 / hz }'
}

# take SERIES SERVER|- WORDS...: records a sample of this case in this pass. The server's time is divided by all operations, including
# those of the warm-up.
take() {
	local series=$1 who=$2 before after figures
	shift 2
	wait_for_quiet
	before=$(busy_ns "$who")
	figures=$("$@")
	after=$(busy_ns "$who")
	if [ -z "$figures" ] || [[ $figures == 0$'\t'* ]]; then
		say "$name: $series gave no figure (see errors.log)"
		failed=1
		return
	fi
	printf '%s\t%s\t%s\t%s\n' "$pass" "$name" "$series" "$figures" |
		awk -F'\t' -v OFS='\t' -v ns=$((after - before)) -v secs="$secs" -v who="$who" \
			'{ print $0, (who == "-" ? "-" : sprintf("%.2f", ns / 1000 / ($4 * secs * 1.25))) }' >>"$out/samples.tsv"
}
