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
	client 'iscsi-perf -i iqn.2026-01.stag:initiator -t 2 -b 128 -m 16 iser://ADDR:3260/iqn.2026-01.stag:disk/1'

entry iscsi-test-cu package libiscsi-bin run run_iser_tests namespace yes trace no limit 60 \
	shows 'cases of a conformance suite over iSER: reads, writes and verifies of several sizes' \
	server 'tgtd -f --iscsi portal=ADDR:PORT --iser pool_sz_mb=128' \
	client 'iscsi-test-cu -i iqn.2026-01.stag:initiator --dataloss --test=CASE iser://ADDR:3260/iqn.2026-01.stag:disk/1'

entry iscsi-perf-block package libiscsi-bin run run_block namespace yes trace no figure iscsi_figure limit 60 \
	shows "our own target and libiscsi over iSER: reads of 4 KiB" \
	server 'stag block serve --name iqn.2026-01.stag:disk --lun 1=DISK --address ADDR --port 3260' \
	client 'iscsi-perf -t 1 -b 8 -m 32 -r iser://ADDR:3260/iqn.2026-01.stag:disk/1'

entry iscsi-perf-block-tcp package libiscsi-bin run run_block namespace yes trace no figure iscsi_figure limit 60 \
	shows "our own target and libiscsi over TCP: reads of 4 KiB" \
	server 'stag block serve --name iqn.2026-01.stag:disk --lun 1=DISK --address ADDR --port 3260' \
	client 'iscsi-perf -t 1 -b 8 -m 32 -r iscsi://ADDR:3260/iqn.2026-01.stag:disk/1'

entry tgtd package tgt run run_bench namespace yes trace no figure bench_figure limit 60 \
	shows "tgtd and our own initiator over iSER: reads and writes of 4 KiB" \
	server 'tgtd -f --iscsi portal=ADDR:PORT --iser pool_sz_mb=128' \
	client 'stag block bench iser://ADDR:3260/iqn.2026-01.stag:disk/1 --initiator iqn.2026-01.stag:initiator --op mix --force --secs 1'

run_iser() {
	local words
	iser_target || return
	fill_in "$(of client)"
	client "${words[@]}"
}

# Each test is a process, and free() does nothing in it: iscsi-test-cu frees its first
# connection while libiscsi's thread still uses it.
run_iser_tests() {
	local words case
	iser_target || return
	fill_in "$(of client)"
	for case in Read10 Read16 Write10 Write16 Verify10 Verify16; do
		# shellcheck disable=SC2016 # that is for the shell within
		client bash -c 'LD_PRELOAD=$LD_PRELOAD:$0 exec "$@"' "$STAG_BUILD/tests/e2e/libhoard.so" \
			"${words[@]/CASE/SCSI.$case.Simple}" || return
		grep -q 'Test: Simple ...passed' "$work/client" || fail "$case" || { show "$work/client"; return 1; }
	done
}

run_block() {
	local words
	head -c 67108864 /dev/urandom >"$work/disk"
	fill_in "$(of server)"
	words=("${words[@]/DISK/"$work/disk"}")
	serve 3260 "$stag" "${words[@]:1}" || return
	fill_in "$(of client)"
	client "${words[@]}"
}

run_bench() {
	local words
	iser_target || return
	fill_in "$(of client)"
	client "$stag" "${words[@]:1}" || return
	grep -q ', iSER$' "$work/client" || fail 'another transport' || { show "$work/client"; return 1; }
}

# Waits until tgtd listens, and gives it a disk.
iser_target() {
	local words
	export TGT_IPC_SOCKET=$work/tgtd
	fill_in "$(of server)"
	serve 3260 "${words[@]}" && iser_disk
}

# A disk of random bytes behind logical unit 1. Over iSER tgtd needs both the
# address and the name of the initiators that it admits.
iser_disk() {
	head -c 67108864 /dev/urandom >"$work/disk"
	tgt target --op new --tid 1 --targetname iqn.2026-01.stag:disk &&
		tgt logicalunit --op new --tid 1 --lun 1 --backing-store "$work/disk" --bstype rdwr &&
		tgt target --op bind --tid 1 --initiator-address ALL &&
		tgt target --op bind --tid 1 --initiator-name iqn.2026-01.stag:initiator
}

tgt() {
	timeout 10 tgtadm --lld iser --mode "$@" || fail "tgtadm $*"
}

iscsi_figure() {
	tr '\r' '\n' | sed -n 's/.*iops average \([0-9]*\) (\([^)]*\)).*/\1 a second, \2/p' | tail -n 1
}

bench_figure() {
	sed -n 's/^\([0-9]*\) operations.*/\1 a second/p'
}
