#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# siw.sh - tests stag's adapter against the Linux kernel's own iWARP driver, siw.
#
# Stock programs on both sides: stag's under `stag run`, as an ordinary user with
# little lockable memory; siw's in a QEMU guest (siw-guest). Each program runs in
# both roles, with CRC on and off: siw requests no CRC, so stag's setting decides.
# A run passes if both sides succeed and tshark finds no fault in its capture. siw also
# accesses storage of stag: perftest without knowing it, the peer of store.sh on request, and Linux as a disk
# (block.sh). And a pool has nodes and clients on both (pool.sh).
#
# Needs STAG_BUILD, the build directory. An argument limits the runs to those
# whose name matches it (a bash pattern, say '*rping*'). KEEP=1 keeps the captures.
# shellcheck disable=SC2154 # some are of lib.sh and store.sh
set -uo pipefail

here=$(dirname "$(readlink -f "$0")")
stag=${STAG_BUILD:?the build directory}/app/stag/stag
only=${1:-*}
limit=60 # seconds that one side of one run may take

# shellcheck source=/dev/null
source "$here/lib.sh"
# shellcheck source=/dev/null
source "$here/store.sh"
# shellcheck source=/dev/null
source "$here/block.sh"
# shellcheck source=/dev/null
source "$here/pool.sh"

[[ -x $stag ]] || skip "no $stag"
for tool in qemu-system-x86_64 tshark setpriv rping ib_write_bw jq; do
	command -v $tool >/dev/null || skip "no $tool"
done
"$here/siw-guest" build || skip "the guest cannot be built"

# ---- the two sides

dir=$(mktemp -d "${TMPDIR:-/tmp}/stag-siw.XXXXXX")
chmod 755 "$dir"
mkdir -m 777 "$dir/traces"
server='' relay=''

cleanup() {
	local pid
	for pid in $server $relay; do kill "$pid" 2>/dev/null; done
	[[ ! -e $dir/guest/pid ]] || "$here/siw-guest" stop "$dir/guest" >/dev/null 2>&1
	if [[ -n ${KEEP-} ]]; then echo "# kept $dir"; else rm -rf "$dir"; fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# guest [SECONDS] COMMAND
guest() {
	"$here/siw-guest" exec "$dir/guest" "$@"
}

# An emulated machine on a busy host is slow to process input: a first FPDU that arrives before siw has
# finished the MPA Reply breaks the connection (initiator) or stays unread (responder).
export STAG_FIRST_DELAY=200

# stag_run CRC TRACE PROGRAM...: the shell that calls it becomes the program.
stag_run() {
	ulimit -l 64
	exec timeout "$limit" "${unprivileged[@]}" "$stag" run --device iwarp --crc "$1" --trace "$2" -- "${@:3}"
}

# ---- one run: stag_is_ROLE CRC SERVER CLIENT. In the two command lines, ADDRESS and PORT
# are the server's. Each leaves the reason of a failure in $reason, and the two
# sides' output in the files errors, ours and theirs.

# Some servers keep running after their last client. They are killed, and their status is ignored.
endless() {
	[[ $1 == cmtime* || $1 == rcopy* ]]
}

stag_is_client() {
	local crc=$1 theirs=$2 ours=$3
	theirs=${theirs//ADDRESS/10.0.2.15} theirs=${theirs//PORT/$guest_port}
	ours=${ours//ADDRESS/127.0.0.1} ours=${ours//PORT/$relay_port}
	guest "start server $theirs; wait-listen $guest_port" >"$dir/theirs"
	because "the guest's server does not listen" $?
	# shellcheck disable=SC2086
	[[ -n $reason ]] || (stag_run "$crc" "$trace" $ours) >"$dir/ours" 2>"$dir/errors"
	because "stag's client" $?
	if endless "$theirs" || [[ -n $reason ]]; then
		guest 'finish server 0' >"$dir/theirs"
		return
	fi
	guest 60 'finish server 50' >"$dir/theirs"
	because "the guest's server" $?
}

stag_is_server() {
	local crc=$1 ours=$2 theirs=$3 port
	port=$(free_port)
	ours=${ours//ADDRESS/127.0.0.1} ours=${ours//PORT/$port}
	theirs=${theirs//ADDRESS/10.0.2.2} theirs=${theirs//PORT/$port}
	# shellcheck disable=SC2086
	(stag_run "$crc" "$trace" $ours) >"$dir/ours" 2>"$dir/errors" &
	server=$!
	wait_listen "$port" "$server"
	guest "$limit" "$theirs" >"$dir/theirs"
	because "the guest's client" $?
	if endless "$ours" || [[ -n $reason ]]; then
		kill "$server" 2>/dev/null
		wait "$server"
	else
		wait "$server"
		because "stag's server" $?
	fi
	server=''
}

# ---- all runs

# both_roles NAME SERVER CLIENT [CHECK]: runs it in both roles, with CRC on and off. CHECK is called with the role, and
# may add to $reason.
both_roles() {
	local crc role name
	for role in client server; do
		for crc in on off; do
			name="$1, stag is the $role, CRC $crc"
			# shellcheck disable=SC2053
			[[ $name == $only ]] || continue
			reason='' trace=$dir/traces/${name//[^a-zA-Z0-9]/_}.pcapng
			rm -f "$dir"/{errors,ours,theirs}
			stag_is_$role "$crc" "$2" "$3"
			[[ -n $reason || -z ${4-} ]] || "$4" "$role"
			check_capture "$crc"
			report "$name"
			[[ -n ${KEEP-} ]] || rm -f "$trace"
		done
	done
}

# cmtime counts a connection that failed, and continues.
no_errors() {
	! grep -hi 'error' "$dir"/{errors,ours,theirs} || reason='not all connections were made'
}

# Checks the file of rcopy, and removes it for the next copy.
copied() {
	local sent arrived
	case $1 in
	client)
		sent=$(sha256sum <"$dir/file")
		arrived=$(guest "sha256sum <$dir/traces/copy; rm $dir/traces/copy")
		;;
	server)
		sent=$(guest "sha256sum <$dir/file")
		arrived=$(sha256sum <"$dir/traces/copy")
		rm -f "$dir/traces/copy"
		;;
	esac
	[[ $sent == "$arrived" ]] || reason='the copy differs'
}

# on_store OP: the same with a region on storage; checks the file for the bytes written or read.
on_store() {
	local name="ib_$1_bw on storage, stag is the server" disk=$dir/traces/disk
	# shellcheck disable=SC2053
	[[ $name == $only ]] || return
	reason='' trace=$dir/traces/disk.pcapng
	rm -f "$dir"/{errors,ours,theirs} "$disk"
	[[ $1 == write ]] || head -c 131072 /dev/urandom >"$disk"
	touch "$disk" && chmod 666 "$disk"
	stag_is_server on "$here/../e2e/on-store $disk ib_$1_bw -R -F -n 10 -s 65536 -p PORT" \
		"ib_$1_bw -R -F -n 10 -s 65536 -p PORT ADDRESS"
	"$here/../e2e/in-capture" "$disk" "$trace" 65536 >>"$dir/ours"
	because 'what passed is not what is in the file' $?
	check_capture on
	report "$name"
}

# Definitions for store.sh: the guest is the peer.
peer() {
	guest "$limit" "$*"
}

at_home() {
	ulimit -l 64
	exec timeout $((limit * 4)) "${unprivileged[@]}" "$@"
}

# shellcheck disable=SC2034
host=10.0.2.2 denied=5

guest_port=7174
forwarded_port=$(free_port)
"$here/siw-guest" start --limit 1500 --hostfwd "$forwarded_port:$guest_port" --add "$visitor" \
	--add "$lender" --add "$stag" --add "$stagd" "$dir/guest" || skip "the guest does not boot"
relay_port=$(free_port)
"$here/relay" "$relay_port" "$forwarded_port" &
relay=$!
wait_listen "$relay_port" "$relay"

for size in 32 1000 4096 65535; do
	both_roles "rping -S $size" "rping -s -v -V -C 10 -S $size -a ADDRESS -p PORT" \
		"rping -c -v -V -C 10 -S $size -a ADDRESS -p PORT"
done
both_roles 'ucmatose' 'ucmatose -c 8 -C 10 -S 5000 -p PORT' 'ucmatose -c 8 -C 10 -S 5000 -p PORT -s ADDRESS'
both_roles 'cmtime' 'cmtime -c 20 -p PORT' 'cmtime -c 20 -p PORT -s ADDRESS' no_errors
for what in write read send; do
	both_roles "ib_${what}_bw" "ib_${what}_bw -R -F -n 40 -s 65536 -p PORT" \
		"ib_${what}_bw -R -F -n 40 -s 65536 -p PORT ADDRESS"
done
# Few enough bytes that no credit update is due while the server's last bytes are in flight: siw's completions come before
# the bytes arrive, and a server that closes with an unread update resets the connection.
both_roles 'rstream' 'rstream -T v -S 2000 -C 20 -p PORT' 'rstream -T v -S 2000 -C 20 -p PORT -s ADDRESS'
# The same names on both sides, so that one command line serves both roles.
head -c 1000000 /dev/urandom >"$dir/file"
guest "mkdir -p $dir/traces && head -c 1000000 /dev/urandom >$dir/file"
both_roles 'rcopy' 'rcopy -p PORT' "rcopy $dir/file ADDRESS:$dir/traces/copy -p PORT" copied

for what in write read; do
	on_store $what
done
# shellcheck disable=SC2053
[[ store != $only ]] || store_stories
# shellcheck disable=SC2053
[[ pool != $only ]] || pool_stories
# Last, since the guest's kernel keeps serving its disk at the port.
# shellcheck disable=SC2053
[[ block != $only ]] || block_stories

reason=''
"$here/siw-guest" stop "$dir/guest" 2>"$dir/theirs" || reason='see its log'
rm -f "$dir/guest/pid" "$dir"/{errors,ours}
report "the guest's kernel has nothing to complain about"

echo "1..$runs"
((failed == 0))
