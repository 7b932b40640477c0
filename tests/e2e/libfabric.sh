# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# libfabric.sh - libfabric's verbs provider. It ignores lo.

entry fi_info package libfabric-bin on 'stag0 roce0' namespace yes addr 10.77.0.1 run run_fi_info \
	client 'fi_info -p verbs -t FI_EP_MSG' shows 'the provider finds the device'

run_fi_info() {
	local protocol=FI_PROTO_IWARP
	[[ $column == stag0 ]] || protocol=FI_PROTO_RDMA_CM_IB_RC
	run_alone || return
	grep -q "$protocol" "$work/client" || fail "no $protocol" || { show "$work/client"; return 1; }
}

# Not between hosts: without an address of its own, libfabric's server says that it is at localhost.
entry fi_pingpong package libfabric-bin on 'stag0 roce0' namespace yes addr 10.77.0.1 figure fi_figure limit 120 trace no \
	shows 'connected endpoints, all sizes to 6 MiB, data checked' \
	server 'fi_pingpong -p verbs -e msg -c -I 10 -S all -B PORT' \
	client 'fi_pingpong -p verbs -e msg -c -I 10 -S all -P PORT ADDR'

entry fi_pingpong-1024 package libfabric-bin on 'stag0 roce0' namespace yes addr 10.77.0.1 figure fi_figure \
	shows 'the same at 1 KiB, longer' \
	server 'fi_pingpong -p verbs -e msg -c -I 500 -S 1024 -B PORT' \
	client 'fi_pingpong -p verbs -e msg -c -I 500 -S 1024 -P PORT ADDR'

entry fi_pingpong-dgram package libfabric-bin on 'roce0 hosts' namespace yes addr 10.77.0.1 \
	shows 'datagrams of 1 KiB, data checked' \
	server 'fi_pingpong -p verbs -e dgram -c -I 200 -S 984 -B PORT' \
	client 'fi_pingpong -p verbs -e dgram -c -I 200 -S 984 -P PORT ADDR'

# The columns: bytes, sent, acknowledged, total, time, MB/s, µs per transfer, ...
fi_figure() {
	awk '$1 == "1k" { print $7 " µs at 1 KiB" }'
}
