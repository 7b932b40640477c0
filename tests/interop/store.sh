#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# store.sh - tests the server of a store with a peer that uses only verbs.
#
# Run alone, the peer is a process on this host. siw.sh runs the same tests with a peer on the kernel's siw in a guest. The server is
# `stag store serve`, the peer is visit_store. Written data is checked in the file itself.
#
# Needs STAG_BUILD, the build directory.
#
# A script that sources it defines $here, $stag, $dir (with traces/, which the server may write to), and
#   peer COMMAND...   runs it where the peer is, and prints its output
#   $host             the server's address from there
#   $denied           the status of a denied read there: 5, IBV_WC_WR_FLUSH_ERR, with siw, otherwise 10,
#                     IBV_WC_REM_ACCESS_ERR
#   at_home COMMAND   executes the command as the user that serves
#   the functions of lib.sh
# shellcheck disable=SC2154

visitor=${STAG_BUILD:?the build directory}/tests/interop/visit_store

# serve_store [TRACE]: serves until stop_store.
serve_store() {
	local run=()
	store_port=$(free_port)
	[[ -z ${1-} ]] || run=("$stag" run --device iwarp --trace "$1" --)
	(at_home "${run[@]}" "$stag" store serve "$store" --address 127.0.0.1 --port "$store_port") >"$dir/ours" 2>"$dir/errors" &
	server=$!
	wait_listen "$store_port" "$server"
}

stop_store() {
	kill "$server" 2>/dev/null
	wait "$server"
	because "stag store serve" $?
	server=''
}

# visits WHAT PARTITION WORD: checks that the visit succeeds.
visits() {
	peer visit_store "$1" "$host" "$store_port" "$(printf %s "$2" | sha256sum | cut -c 1-64)" "$3" >"$dir/theirs" 2>&1
	because "the peer's $1" $?
}

make_store() {
	store=$dir/traces/store
	(at_home "$stag" store format "$store" --size 8M --partition open=512K --partition fixed=64K --partition closed=64K) &&
		(at_home "$stag" store set "$store" open --level durable --allow local:write --allow remote:write) &&
		(at_home "$stag" store set "$store" fixed --allow local:write --allow remote:read) &&
		(at_home "$stag" store set "$store" closed --allow local:write --allow remote:none)
}

# in_file PARTITION SEED: checks the contents of the partition in the file.
in_file() {
	local offset size
	read -r offset size < <("$stag" store show "$store" "$1" --json | jq -r '"\(.offset) \(.size)"')
	cmp -s -n "$size" -i "0:$offset" <("$visitor" print "$size" "$2") "$store" ||
		reason+="${reason:+, }partition $1 of the file is not as it should be"
}

peer_fills_it() {
	visits write open 7
	in_file open 7
}

peer_reads_it() {
	"$visitor" print 524288 8 | (at_home "$stag" store write "$store:open")
	because "stag store write" $?
	visits read open 8
}

# A peer without a right does not learn whether there is such a partition: the reason is the same.
peer_is_refused() {
	visits refused closed 1
	visits refused nothing 1
}

peer_is_denied() {
	local how status
	for how in beyond key write; do
		visits trespass fixed "$how"
		status=$denied
		[[ $how != write ]] || status=5 # the read after it is flushed
		grep -q "^$how: status $status," "$dir/theirs" || reason+="${reason:+, }$(<"$dir/theirs")"
	done
	visits read open 8
}

# RFC 5040 §4.8, remote protection errors: invalid STag, bounds, and access rights.
terminates_say_why() {
	local said
	said=$("$here/../lib/check-capture" --field iwarp_rdma.term_errcode_rdma "$trace" | sort | paste -sd ' ')
	[[ $said == '0x00 0x01 0x02' ]] || reason+="${reason:+, }Terminate: $said"
}

# store_story NAME FUNCTION
store_story() {
	reason=''
	"$2"
	report "$1"
}

store_stories() {
	trace=$dir/traces/store.pcapng
	make_store >"$dir/ours" 2>&1 || { reason='no store'; report 'store'; return; }
	serve_store "$trace"
	store_story 'store: a peer fills a partition, and it is in the file' peer_fills_it
	store_story 'store: a peer finds what was written here' peer_reads_it
	reason=''
	stop_store
	check_capture on
	report 'store: the capture is flawless'
	trace=$dir/traces/denied.pcapng
	serve_store "$trace"
	store_story 'store: a peer without a right is not let in' peer_is_refused
	store_story 'store: a peer gets no further than its rights' peer_is_denied
	reason=''
	stop_store
	terminates_say_why
	report 'store: the peer is told why its connection ends'
}

# ---- run alone
[[ ${BASH_SOURCE[0]} == "$0" ]] || return 0
set -uo pipefail

here=$(dirname "$(readlink -f "$0")")
stag=$STAG_BUILD/app/stag/stag
for tool in "$stag" tshark setpriv jq; do
	command -v "$tool" >/dev/null || { echo "1..0 # SKIP no $tool"; exit 77; }
done
# shellcheck source=/dev/null
source "$here/lib.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/stag-visit.XXXXXX") server=''
chmod 755 "$dir"
mkdir -m 777 "$dir/traces"
trap '[[ -z $server ]] || kill "$server"; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

at_home() {
	ulimit -l 64
	exec timeout 100 "${unprivileged[@]}" "$@"
}

peer() {
	(at_home "$stag" run --device iwarp -- "$STAG_BUILD/tests/interop/$1" "${@:2}")
}

host=127.0.0.1 denied=10
store_stories
echo "1..$runs"
((failed == 0))
