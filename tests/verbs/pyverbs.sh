#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pyverbs.sh STAG DEVICE - runs rdma-core's own tests, from Debian's python3-pyverbs, on a device.
#
# roce0: all of them; pyverbs.md lists those that are skipped. stag0: left out are those of other transports, those that connect
# queue pairs by GID and number, which iWARP cannot do, and the one that takes a write's completion as proof of its arrival,
# which iWARP does not promise (RFC 5040 §5.5).
set -euo pipefail

stag=$(realpath "$1") device=$2
here=$(dirname "$(readlink -f "$0")")
source=/usr/share/doc/rdma-core/tests
python=/usr/bin/python3
if ! [[ -d $source ]] || ! "$python" -c 'import pyverbs.device' 2>/dev/null; then
	echo "python3-pyverbs or its tests are not installed"
	exit 77
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp -r "$source" "$tmp/tests"
find "$tmp/tests" -name '*.gz' -exec gunzip {} +

# Port 7471 may be in use, and other tests use the ports from 20000 on.
port=$((10000 + RANDOM % 10000))
sed -i "s/'7471'/'$port'/" "$tmp/tests/base_rdmacm.py"

# Python does not free its memory at exit, which a leak checker reports.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0" PYTHONDONTWRITEBYTECODE=1
cd "$tmp"

on_roce0() {
	"$stag" run --device roce -- "$python" "$here/rdma_core_tests.py" "$here/pyverbs.md" --dev roce0 -v
}

# The tests look in /sys for the device's interface, which is there with --device both.
on_stag0() {
	local claims=(DeviceTest PDTest QPTest AHTest test_create_cq test_reg_mr_bad_flow test_reg_mw_wrong_type ForkTest
		SharedPD rdmacm_sync_traffic rdmacm_async_read rdmacm_async_reject) passed
	rm -f tests/test_*{mlx5,efa,cuda}*
	export PYTHONPATH=$tmp/tests:$tmp
	"$stag" run --device both -- "$python" tests/run_tests.py --dev stag0 -v "${claims[@]/#/-k}" 2>&1 | tee out
	passed=$(grep -c '\.\.\. ok' out)
	((passed >= 20)) || { echo "only $passed tests passed, the others were skipped"; exit 1; }
}

"on_$device"
