# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154,SC2034
#
# pingpong.sh - libibverbs' examples: queue pairs connected by number and GID, without rdma_cm.

# pingpong NAME OPTIONS SHOWS MORE...: one entry; the program's name is the first part of NAME
pingpong() {
	local name=$1 options=$2 shows=$3 program=${1%%-*}
	shift 3
	entry "$name" package ibverbs-utils on 'roce0 hosts' figure pingpong_figure shows "$shows" \
		server "$program -d DEVICE -p PORT $options" \
		client "$program -d DEVICE -p PORT $options ADDR" "$@"
}

# "1000 iters in 0.01 seconds = 12.34 usec/iter"
pingpong_figure() {
	awk '/usec\/iter/ { print $(NF - 1) " µs" }'
}

pingpong ibv_rc_pingpong '-g 0 -n 200 -c' 'reliable connections; the bytes are checked' often 'roce0 hosts'
pingpong ibv_rc_pingpong-ipv6 '-g 1 -n 200 -c' 'the same on IPv6' on hosts
pingpong ibv_rc_pingpong-events '-g 0 -n 200 -c -e' 'completion events'
pingpong ibv_rc_pingpong-times '-g 0 -n 200 -c -t' 'ibv_create_cq_ex, completions with time stamps' figure ''
pingpong ibv_rc_pingpong-new-api '-g 0 -n 200 -c -N' 'ibv_wr_start and its family'
pingpong ibv_rc_pingpong-1 '-g 0 -n 200 -c -s 1' 'one byte'
pingpong ibv_rc_pingpong-1m '-g 0 -n 50 -c -s 1048576' 'one MiB'
pingpong ibv_uc_pingpong '-g 0 -n 200 -c' 'unreliable connections' often roce0
pingpong ibv_uc_pingpong-events '-g 0 -n 200 -c -e -s 65536' 'completion events, 64 KiB'
pingpong ibv_ud_pingpong '-g 0 -n 200 -s 1024' 'datagrams' often 'roce0 hosts'
pingpong ibv_ud_pingpong-ipv6 '-g 1 -n 200 -s 1024' 'the same on IPv6' on hosts
pingpong ibv_ud_pingpong-1 '-g 0 -n 200 -s 1' 'one byte'
pingpong ibv_ud_pingpong-events '-g 0 -n 200 -s 1024 -e' 'completion events'
pingpong ibv_srq_pingpong '-g 0 -n 200 -c' '16 queue pairs and a shared receive queue' often roce0
pingpong ibv_srq_pingpong-events '-g 0 -n 200 -c -e -q 64 -r 1000 -s 16384' '64 of them, completion events, 16 KiB'

entry ibv_xsrq_pingpong package ibverbs-utils on roce0 often roce0 run run_refused \
	client 'ibv_xsrq_pingpong -d DEVICE -g 0 ADDR' shows 'extended reliable connections, which the adapter lacks: fails cleanly'

entry ibv_rc_pingpong-no-gid package ibverbs-utils on roce0 run run_refused_pair \
	server 'ibv_rc_pingpong -d DEVICE -p PORT' client 'ibv_rc_pingpong -d DEVICE -p PORT ADDR' \
	shows 'without -g: refused, as RoCE needs a GID'

# The client fails cleanly; its server has listened before, and fails as well.
run_refused_pair() {
	local words trace=
	fill_in "$(of server)"
	serve "$port" "${words[@]}" || return
	run_refused
}
