#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# libstag.sh - the tests of libstag on the Linux kernel's own iWARP driver, siw.
#
# The programs of tests/xfer and tests/heap run in a QEMU guest (siw-guest), shorter than elsewhere, since the
# guest is slow. They skip only what fails because of siw itself, and say so. Those of tests/heap that
# include the software adapter are left out.
#
# Needs STAG_BUILD, the build directory. An argument limits the runs to those
# whose name matches it (a bash pattern, say 'heap*' or 'xfer r*'). Those that take longest, and those
# that need no device, run with STAG_LONG set, or when they are named. STAG_TEST_DIVIDE is 200 if it is
# not set; with 1 and STAG_LONG the whole counts of the other devices are run, for hours.
set -uo pipefail

here=$(dirname "$(readlink -f "$0")")
tests=${STAG_BUILD:?the build directory}/tests
only=${1:-*}
stories=(xfer\ {pair,manager,merge,faults,rails,random,kill,alloc} heap\ {keys,steady}_real)
limit=90 # seconds that one program may take
[[ -z ${STAG_LONG:-} ]] || limit=20000

skip() {
	echo "1..0 # SKIP $*"
	exit 77
}

# program NAME: prints the path of the test "folder name"
program() {
	echo "$tests/${1% *}/test_${1// /_}"
}

# All tests of tests/heap that can run there.
long_stories() {
	local file
	printf 'xfer %s\n' pause huge
	for file in "$tests"/heap/test_heap_*; do
		[[ -f $file && -x $file && $file != *@(keys|steady)_real ]] || continue
		ldd "$file" | grep -q libstag-verbs || echo "heap ${file##*test_heap_}"
	done
}

command -v qemu-system-x86_64 >/dev/null || skip "no qemu-system-x86_64"
"$here/siw-guest" build || skip "the guest cannot be built"
if [[ -n ${STAG_LONG:-} || $# -gt 0 ]]; then
	while read -r name; do stories+=("$name"); done < <(long_stories)
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/stag-libstag.XXXXXX")

cleanup() {
	[[ ! -e $dir/guest/pid ]] || "$here/siw-guest" stop "$dir/guest" >/dev/null 2>&1
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

failed=0 runs=0

# report NAME STATUS: prints the result, and the end of the output if it failed or skipped something.
report() {
	runs=$((runs + 1))
	if (($2 == 0)); then
		echo "ok - $1"
		sed -n 's/^\[  SKIPPED \] \([a-z_0-9]*\)$/#   skipped: \1/p' "$dir/output" | sort -u
		return
	fi
	failed=$((failed + 1))
	echo "not ok - $1: status $2"
	tail -n 20 "$dir/output" | cut -c 1-200 | sed 's/^/#   /'
}

names=() add=()
for name in "${stories[@]}"; do
	# shellcheck disable=SC2053
	[[ $name == $only && -x $(program "$name") ]] || continue
	names+=("$name")
	add+=(--add "$(program "$name")")
done
((${#names[@]})) || skip "no program in $STAG_BUILD is called $only"
"$here/siw-guest" start --limit $((limit * 9 + 60)) --memory 1024 "${add[@]}" "$dir/guest" || skip "the guest does not boot"

for name in "${names[@]}"; do
	"$here/siw-guest" exec "$dir/guest" "$limit" \
		"STAG_TEST_ADDRESS=10.0.2.15 STAG_TEST_DIVIDE=${STAG_TEST_DIVIDE:-200} test_${name// /_}" >"$dir/output" 2>&1
	report "$name" $?
done

"$here/siw-guest" stop "$dir/guest" >"$dir/output" 2>&1
report "the guest's kernel has nothing to complain about" $?
rm -f "$dir/guest/pid"

echo "1..$runs"
((failed == 0))
