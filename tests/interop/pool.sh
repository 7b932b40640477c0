# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# pool.sh - nodes and clients of a pool on two adapters: stag's on the host, and Linux' siw in the guest, which has neither
# keys chosen by the program nor leases. A node in the guest with clients on both sides, and the other way round.
#
# siw.sh sources it, with the functions of store.sh and block.sh. It uses the installed programs.

stagd=$STAG_BUILD/app/stagd/stagd

# at_home_pool ARGUMENT...: runs stag pool on the host; without CRC, see block.sh.
at_home_pool() {
	[[ -z $reason ]] || return
	(STAG_CRC=off at_home "$stag" pool "$@") 2>>"$dir/errors"
	because "stag pool $1" $?
}

# Puts the bytes of file $1, which are too long for a message, and reads them by name; inserts, updates and reads a value by its pointer.
use_pool_from_home() {
	local pool=client@127.0.0.1:$relay_port secret=(--secret-file "$dir/traces/pool-secret") pointer
	at_home_pool put "$pool" bytes --file "$1" "${secret[@]}" >"$dir/ours"
	at_home_pool get "$pool" bytes "${secret[@]}" | cmp - "$1"
	because 'the value is another' $?
	pointer=$(at_home_pool put "$pool" --insert --value before "${secret[@]}" | tail -n 1)
	at_home_pool update "$pool" --pointer "$pointer" --value behind "${secret[@]}" >"$dir/ours"
	[[ $(at_home_pool get "$pool" --pointer "$pointer" "${secret[@]}") == behind ]] || reason+="${reason:+, }not what it was updated to"
	at_home_pool ls "$pool" "${secret[@]}" >"$dir/ours"
	grep -qx bytes "$dir/ours" || reason+="${reason:+, }its name is not there"
}

node_on_siw() {
	local bytes=$dir/traces/pool-bytes
	head -c 300001 /dev/urandom >"$bytes" && chmod 644 "$bytes"
	linux on-siw stag pool create p --size 16M --node there --dir /tmp/p --roll file:/tmp/roll --address 10.0.2.15 \
		--port "$guest_port" --advertise "127.0.0.1:$relay_port"
	linux start "stagd on-siw stagd --config /tmp/p/stag.ini; wait-listen $guest_port"
	(umask 077 && guest 'cat /tmp/p/secrets' | (at_home tee "$dir/traces/pool-secret") >/dev/null)
	use_pool_from_home "$bytes"
	# Node and client on the same adapter.
	linux on-siw "stag pool get client@10.0.2.15:$guest_port bytes --secret-file /tmp/p/secrets >/tmp/bytes"
	[[ $(guest 'sha256sum </tmp/bytes') == "$(sha256sum <"$bytes")" ]] || reason+="${reason:+, }other bytes on siw"
	# shellcheck disable=SC2016
	guest 'kill $(cat /tmp/stagd.pid); finish stagd 10' >"$dir/theirs" 2>&1
	because "the guest's stagd" $?
}

client_on_siw() {
	local port pool secrets
	port=$(free_port) pool=$dir/traces/pool
	mkdir -m 777 "$pool"
	at_home_pool create p --size 16M --node here --dir "$pool/here" --roll "file:$pool/roll" --port "$port" >"$dir/ours"
	(STAG_CRC=off at_home "$stagd" --config "$pool/here/stag.ini") >"$dir/ours" 2>"$dir/errors" &
	server=$!
	wait_listen "$port" "$server"
	secrets=$(base64 -w0 "$pool/here/secrets")
	linux umask "077; echo $secrets | base64 -d >/tmp/secret; head -c 300001 /dev/urandom >/tmp/bytes"
	for what in 'put POOL bytes --file /tmp/bytes' 'get POOL bytes --file /tmp/back' 'put POOL word --value hello' 'ls POOL'; do
		linux on-siw stag pool "${what/POOL/client@$host:$port}" --secret-file /tmp/secret
	done
	linux cmp /tmp/bytes /tmp/back
	[[ $(at_home_pool get "$pool/here" word) == hello ]] || reason+="${reason:+, }the word is another here"
	kill "$server" 2>/dev/null
	wait "$server"
	because 'stagd' $?
	server=''
}

pool_story() {
	reason=''
	rm -f "$dir"/{errors,ours,theirs}
	"$2"
	report "$1"
}

pool_stories() {
	to_guest on-siw on_siw
	# Linux 6.1's siw loses count of a connection that it refuses while its peer hangs up, and may listen no more. A node
	# refuses every first connect: on a busy machine that is seen now and then.
	if [[ -n ${STAG_LONG:-} || $only == pool ]]; then
		pool_story 'pool: a node on siw' node_on_siw
	fi
	pool_story 'pool: a client on siw' client_on_siw
}
