# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# devices.sh - programs that only query the device.

entry ibv_devices package ibverbs-utils on 'stag0 roce0' often 'stag0 roce0' client 'ibv_devices' run run_devices \
	shows 'the device is listed'

run_devices() {
	run_alone || return
	grep -q "$(device_in "$column")" "$work/client" || fail "no $(device_in "$column") in the list"
}

entry ibv_devinfo package ibverbs-utils on 'stag0 roce0' often 'stag0 roce0' client 'ibv_devinfo -v' run run_devinfo \
	shows 'attributes of device and port, the GID table'

run_devinfo() {
	local line transport='iWARP (1)'
	[[ $column == stag0 ]] || transport='InfiniBand (0)'
	run_alone || return
	for line in "hca_id:.*$(device_in "$column")" "transport:.*$transport" 'state:.*PORT_ACTIVE (4)' \
		'link_layer:.*Ethernet' 'max_qp_rd_atom:' 'GID\[ *0\]:'; do
		grep -q "$line" "$work/client" || fail "no '$line' in the output" || { show "$work/client"; return 1; }
	done
}
