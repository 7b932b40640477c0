# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# fio.sh - fio's rdma engine: transfers 1 GiB by each verb, and compares the memory.
#
# The engine's reading job is the passive side; the active side chooses the verb.
# The engine verifies no data, so the buffers of both jobs are shared files: the
# source is filled with a pattern that is new in each run, and the sink must be
# full of it afterwards.

fio_common='--ioengine=rdma --port=PORT --bs=1m --size=1g'

# fio_entry VERB RUN DEPTH CLIENT_OPTIONS SHOWS
fio_entry() {
	entry "fio-$1" package fio figure fio_figure run "$2" limit 120 shows "$5" \
		server "fio --name=server $fio_common --iodepth=$3 --rw=read --iomem=mmapshared:server.mem" \
		client "fio --name=client $fio_common $4 --rw=write --verb=$1 --hostname=ADDR --iomem=mmapshared:client.mem"
}

fio_entry write run_fio_to_server 16 --iodepth=16 '1 GiB by RDMA Write; the memory is compared'
fio_entry read run_fio_to_client 16 --iodepth=16 '1 GiB by RDMA Read; the memory is compared'
# The engine has no flow control of its own, and iWARP none for receives: a
# connection ends if the sender is faster than the receiver posts.
fio_entry send run_fio_to_server 128 '--iodepth=16 --rate=200m' \
	'1 GiB by Send, paced; the memory is compared'

fio_figure() {
	sed -n 's/.*WRITE: bw=\([^ ,]*\).*/\1/p'
}

# Its length is prime, so that a byte in the wrong place shows.
fio_pattern() {
	head -c 509 /dev/urandom >"$work/pattern"
	cp "$work/pattern" "$work/block"
	while (($(stat -c %s "$work/block") < 1048576)); do
		cat "$work/block" "$work/block" >"$work/twice"
		mv "$work/twice" "$work/block"
	done
	truncate -s 1048576 "$work/block"
	pattern=0x$(od -An -v -tx1 "$work/pattern" | tr -d ' \n')
}

# run_fio CLIENT_OPTION
run_fio() {
	local words
	truncate -s 129M "$work/server.mem" "$work/client.mem"
	fill_in "$(of server)"
	serve "$port" "${words[@]}" || return
	fill_in "$(of client) --scramble_buffers=0 $1"
	client "${words[@]}" || return
	served
}

run_fio_to_server() {
	local pattern
	fio_pattern
	run_fio "--buffer_pattern=$pattern" && full_of_it "$work/server.mem"
}

run_fio_to_client() {
	fio_pattern
	for _ in {1..16}; do cat "$work/block"; done >"$work/server.mem"
	run_fio --zero_buffers=1 && full_of_it "$work/client.mem"
}

# full_of_it FILE: each of its blocks that was a buffer has the pattern, to the last byte.
full_of_it() {
	local i depth
	depth=$(of server | sed 's/.*--iodepth=\([0-9]*\).*/\1/')
	for ((i = 0; i < depth; i++)); do
		cmp -n 1048576 "$work/block" "$1" 0 $((i * 1048576)) ||
			fail "block $i of the sink is not the source's" || return
	done
}
