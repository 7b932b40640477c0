# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# libfabric.sh - libfabric's verbs provider. It does not look at lo.

entry fi_info package libfabric-bin namespace yes addr 10.77.0.1 run run_fi_info \
	client 'fi_info -p verbs -t FI_EP_MSG' shows 'the provider finds the device'

run_fi_info() {
	run_alone || return
	grep -q 'FI_PROTO_IWARP' "$work/client" || fail "no FI_PROTO_IWARP" || { show "$work/client"; return 1; }
}

entry fi_pingpong package libfabric-bin namespace yes addr 10.77.0.1 figure fi_figure \
	shows 'connected endpoints, all sizes, data checked' \
	server 'fi_pingpong -p verbs -e msg -c -I 100 -S all -B PORT' \
	client 'fi_pingpong -p verbs -e msg -c -I 100 -S all -P PORT ADDR'

# The columns: bytes, sent, acknowledged, total, time, MB/s, µs a transfer, ...
fi_figure() {
	awk '$1 == "64" { print $7 " µs at 64 bytes" }'
}
