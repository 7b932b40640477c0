# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# iser.sh - a SCSI target and an initiator, iSCSI extensions for RDMA between them.
#
# tgtd's control socket is put in the run's directory. iSER listens on the usual
# 3260, in a network namespace of its own, and the plain iSCSI front end moves
# aside, since both are real TCP ports here. (tgtd has an option for the other way
# round, --iser port=N; Debian's takes a stale errno for a bad number there.)

entry iscsi-perf package libiscsi-bin run run_iser namespace yes trace no figure iscsi_figure limit 60 \
	shows 'tgtd and libiscsi over iSER: reads of 64 KiB from a 64 MiB disk' \
	server 'tgtd -f --iscsi portal=ADDR:PORT --iser pool_sz_mb=128' \
	client 'iscsi-perf -t 5 -b 128 -m 16 iser://ADDR:3260/iqn.2026-01.stag:disk/1'

entry iscsi-test package libiscsi-bin run run_iser namespace yes trace no limit 120 \
	shows 'a conformance suite over iSER: reads and writes of SBC, data compared' \
	server 'tgtd -f --iscsi portal=ADDR:PORT --iser pool_sz_mb=128' \
	client 'iscsi-test-cu --dataloss --test=SCSI.Read10,SCSI.Write10,SCSI.ReadWrite iser://ADDR:3260/iqn.2026-01.stag:disk/1'

run_iser() {
	local words
	export TGT_IPC_SOCKET=$work/tgtd
	fill_in "$(of server)"
	serve 3260 "${words[@]}" || return
	iser_disk || return
	fill_in "$(of client)"
	client "${words[@]}"
}

# A disk of random bytes behind logical unit 1.
iser_disk() {
	head -c 67108864 /dev/urandom >"$work/disk"
	tgt target --op new --tid 1 --targetname iqn.2026-01.stag:disk &&
		tgt logicalunit --op new --tid 1 --lun 1 --backing-store "$work/disk" --bstype rdwr &&
		tgt target --op bind --tid 1 --initiator-address ALL
}

tgt() {
	timeout 10 tgtadm --lld iser --mode "$@" || fail "tgtadm $*"
}

iscsi_figure() {
	tr '\r' '\n' | awk '/iops average/ { line = $0 } END { print line }'
}
