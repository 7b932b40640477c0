# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# ucx.sh - UCX, over queue pairs that it connects itself: transports rc_verbs and ud_verbs.

entry ucx_info package ucx-utils on roce0 often roce0 client 'ucx_info -d' run run_ucx_info \
	shows 'the device has the transports rc_verbs and ud_verbs'

run_ucx_info() {
	local line
	run_alone || return
	for line in 'Transport: rc_verbs' 'Transport: ud_verbs' "Device: roce0:1"; do
		grep -q "$line" "$work/client" || fail "no '$line' in the output" || { show "$work/client"; return 1; }
	done
}

# ucx NAME TRANSPORT OPTIONS SHOWS MORE...: one entry, by UCP
ucx() {
	local name=$1 transport=$2 options=$3 shows=$4
	shift 4
	entry "$name" package ucx-utils on 'roce0 hosts' figure ucx_figure limit 120 shows "$shows" \
		vars "UCX_NET_DEVICES=roce0:1 UCX_TLS=$transport,self" \
		server 'ucx_perftest -p PORT' client "ucx_perftest -p PORT ADDR $options" "$@"
}

# The columns: "Final:", iterations, µs (50%, average, overall), MB/s, messages a second
ucx_figure() {
	awk '$1 == "Final:" { print $5 " µs, " $7 " MB/s" }'
}

# Many short messages at once are too many in one frame of a capture for tshark.
for transport in rc_v ud_v; do
	kind=${transport%_v}
	ucx "ucx_tag_lat-$kind" "$transport" '-t tag_lat -n 1000' 'messages with tags' often 'roce0'
	ucx "ucx_tag_bw-$kind" "$transport" '-t tag_bw -n 2000' 'the same, many at once' trace no
	ucx "ucx_tag_bw-64k-$kind" "$transport" '-t tag_bw -s 65536 -n 500' 'the same, 64 KiB' trace no
	ucx "ucx_put_lat-$kind" "$transport" '-t ucp_put_lat -n 1000' 'puts'
	ucx "ucx_put_bw-$kind" "$transport" '-t ucp_put_bw -n 2000' 'puts, many at once' trace no
	ucx "ucx_get-$kind" "$transport" '-t ucp_get -n 100' 'gets'
	ucx "ucx_get-64k-$kind" "$transport" '-t ucp_get -s 65536 -n 50' 'gets of 64 KiB' trace no
	ucx "ucx_fadd-$kind" "$transport" '-t ucp_fadd -n 1000' 'fetch and add'
	ucx "ucx_cswap-$kind" "$transport" '-t ucp_cswap -n 1000' 'compare and swap'
	ucx "ucx_stream_lat-$kind" "$transport" '-t stream_lat -n 1000' 'streams'
	ucx "ucx_stream_bw-$kind" "$transport" '-t stream_bw -n 2000' 'streams, many at once' trace no
	ucx "ucx_am_lat-$kind" "$transport" '-t ucp_am_lat -n 1000' 'active messages'
	ucx "ucx_am_bw-$kind" "$transport" '-t ucp_am_bw -n 2000' 'active messages, many at once' trace no
done
describe ucx_tag_lat-rc often 'roce0 hosts'
describe ucx_am_bw-rc often 'roce0 hosts'
for name in put_bw-rc get-rc fadd-rc cswap-rc stream_bw-rc put_bw-ud get-ud stream_bw-ud am_bw-ud; do
	describe "ucx_$name" often roce0
done
ucx ucx_tag_lat-rc-ipv6 rc_v '-t tag_lat -n 1000' 'messages with tags, on IPv6' on hosts \
	vars 'UCX_NET_DEVICES=roce0:1 UCX_TLS=rc_v,self UCX_IB_GID_INDEX=1'
ucx ucx_tag_lat-events rc_v '-t tag_lat -n 1000 -E sleep' 'messages with tags; both sides sleep for events' often roce0

# uct NAME TRANSPORT OPTIONS SHOWS MORE...: one entry, by UCT, the layer below
uct() {
	local name=$1 transport=$2 options=$3 shows=$4
	shift 4
	entry "$name" package ucx-utils on 'roce0 hosts' figure ucx_figure limit 120 shows "$shows" \
		server "ucx_perftest -p PORT -d roce0:1 -x $transport $options" \
		client "ucx_perftest -p PORT ADDR -d roce0:1 -x $transport $options" "$@"
}

uct uct_put_lat-rc rc_verbs '-t put_lat -n 1000' 'puts, the layer below'
uct uct_put_bw-rc rc_verbs '-t put_bw -n 2000' 'the same, many at once' trace no
uct uct_get-rc rc_verbs '-t get -D bcopy -n 1000' 'gets'
uct uct_am_lat-rc rc_verbs '-t am_lat -n 1000' 'active messages' often roce0
uct uct_am_bw-rc rc_verbs '-t am_bw -n 2000' 'the same, many at once' trace no
uct uct_fadd-rc rc_verbs '-t fadd -n 1000' 'fetch and add'
uct uct_am_lat-ud ud_verbs '-t am_lat -n 1000' 'active messages by datagrams'
uct uct_am_bw-ud ud_verbs '-t am_bw -n 2000' 'the same, many at once' trace no
