# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154,SC2034
#
# datagrams.sh - programs that iWARP cannot carry: they must fail as they do on hardware.

entry udaddy package rdmacm-utils run run_refused client 'udaddy -s ADDR' \
	shows 'unreliable datagrams, which iWARP lacks: fails cleanly'

entry mckey package rdmacm-utils run run_refused client 'mckey -m 239.1.2.3 -b ADDR' \
	shows 'multicast, which iWARP lacks: fails cleanly'

entry rdma_xclient-xrc package rdmacm-utils run run_refused client 'rdma_xclient -s ADDR -c x' \
	shows 'extended reliable connections, which iWARP lacks: fails cleanly'

# It ends by itself, not by a signal, with an exit code other than 0 and an error
# message.
run_refused() {
	local words rc
	fill_in "$(of client)"
	client "${words[@]}"
	rc=$?
	((rc != 0)) || fail "it did not fail" || return
	((rc < 124 || rc > 160)) || fail "it did not fail cleanly" || return
	[[ -s $work/client ]] || fail "it failed without a word" || return
	if grep -q 'No RDMA devices' "$work/client"; then fail "it saw no device at all"; return; fi
}
