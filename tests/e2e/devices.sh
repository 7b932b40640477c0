# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# devices.sh - programs that only query the device.

entry ibv_devices package ibverbs-utils client 'ibv_devices' run run_devices \
	shows 'the device is listed'

run_devices() {
	run_alone || return
	grep -q stag0 "$work/client" || fail "no stag0 in the list"
}

entry ibv_devinfo package ibverbs-utils client 'ibv_devinfo -v' run run_devinfo \
	shows 'attributes of device and port, the GID table'

run_devinfo() {
	local line
	run_alone || return
	for line in 'hca_id:.*stag0' 'transport:.*iWARP (1)' 'state:.*PORT_ACTIVE (4)' \
		'link_layer:.*Ethernet' 'max_qp_rd_atom:' 'GID\[ *0\]:'; do
		grep -q "$line" "$work/client" || fail "no '$line' in the output" || { show "$work/client"; return 1; }
	done
}
