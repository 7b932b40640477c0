# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154,SC2034
#
# datagrams.sh - datagrams and multicast by rdma_cm, on roce0. iWARP cannot carry them: on stag0 these programs must
# fail as they do on hardware.

entry udaddy package rdmacm-utils run run_udaddy run@stag0 run_refused often 'stag0 roce0' \
	server 'udaddy -b ADDR -C 20 -S 900' client 'udaddy -s ADDR -C 20 -S 900' \
	shows 'datagrams; iWARP has none: fails cleanly on stag0'

entry udaddy-8 package rdmacm-utils on 'roce0 hosts' run run_udaddy \
	server 'udaddy -b ADDR -c 8 -C 20' client 'udaddy -s ADDR -c 8 -C 20' shows 'the same for 8 ids'

entry mckey package rdmacm-utils run run_mckey run@stag0 run_refused often 'stag0 roce0' \
	server 'mckey -m 239.1.2.3 -b ADDR -C 20' client 'mckey -s -m 239.1.2.3 -b FROM -C 20' \
	shows 'multicast; iWARP has none: fails cleanly on stag0'

entry rdma_xclient-xrc package rdmacm-utils on 'stag0 roce0' run run_refused client 'rdma_xclient -s ADDR -c x' \
	shows 'extended reliable connections, which the adapter lacks: fails cleanly'

# udaddy's port. Its server listens by UDP.
udaddy_port=7174

run_udaddy() {
	run_after bound_udp
}

bound_udp() {
	local hex
	printf -v hex ':%04X' "$udaddy_port"
	awk -v port="$hex" 'substr($2, length($2) - 4) == port { found = 1 } END { exit !found }' /proc/net/udp /proc/net/udp6 2>/dev/null
}

# The receiver has to be a member before the sender begins. Its output is not held back, so that it tells.
run_mckey() {
	run_after has_joined stdbuf -oL
}

has_joined() {
	grep -q 'receiving data' "$work/server.0"
}

# run_after CONDITION [PREFIX...]: runs a server, waits for the condition, and runs the client.
run_after() {
	local condition=$1 words trace=$work/server.pcapng tries=1200
	shift
	fill_in "$(of server)"
	start "$@" "${words[@]}"
	until "$condition"; do
		kill -0 "${servers[-1]}" 2>/dev/null && ((tries-- > 0)) || {
			fail "server: it did not begin"
			show "$work/server.0"
			return 1
		}
		sleep 0.05
	done
	trace=$work/client.pcapng
	fill_in "$(of client)"
	client "${words[@]/FROM/$from}" && served && captures "$work/server.pcapng" "$trace"
}

# It ends by itself, not by a signal, with an exit code other than 0 and an error
# message.
run_refused() {
	local words rc
	fill_in "$(of client)"
	client "${words[@]/FROM/$addr}"
	rc=$?
	((rc != 0)) || fail "it did not fail" || return
	((rc < 124 || rc > 160)) || fail "it did not fail cleanly" || return
	[[ -s $work/client ]] || fail "it failed without a word" || return
	if grep -q 'No RDMA devices' "$work/client"; then fail "it saw no device at all"; return; fi
}
