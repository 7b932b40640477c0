# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# fio.sh - fio's rdma engine: 1 GiB each way, and the memory it landed in compared.
#
# The engine's reading job is the passive side. It verifies nothing of what it
# moves, so its buffers are a shared file, which is looked at afterwards.

fio_common='--ioengine=rdma --port=PORT --bs=1m --size=1g --iodepth=16'

fio_entry() {
	entry "fio-$1" package fio figure fio_figure run run_fio trace no limit 120 shows "$2" \
		server "fio --name=server $fio_common --rw=read --iomem=mmapshared:SERVER" \
		client "fio --name=client $fio_common --rw=write --verb=$1 --hostname=ADDR --iomem=mmapshared:CLIENT"
}

fio_entry write 'RDMA Write of 1 GiB in 1 MiB blocks; the memory is compared'
fio_entry read 'RDMA Read of 1 GiB in 1 MiB blocks; the memory is compared'
fio_entry send 'Send of 1 GiB in 1 MiB blocks; the memory is compared'

fio_figure() {
	sed -n 's/.*WRITE: bw=\([^ ,]*\).*/\1/p'
}

run_fio() { run_pair; }
