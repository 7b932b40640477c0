#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# steady.sh - runs test_steady under strace: between the two getppid() of each working thread there is
# no other system call.
set -euo pipefail

program=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

command -v strace >/dev/null || { echo 'skipped: no strace'; exit 77; }
strace -o /dev/null true 2>/dev/null || { echo 'skipped: strace may not trace here'; exit 77; }

strace -f -qq -o "$dir/log" "$program"

# strace prints one line a call, the thread first, or two if a call of another thread interrupts it;
# of a mark (getppid) only the first line counts.
awk '
	/<\.\.\. getppid resumed>/ { next }
	$2 ~ /^getppid\(/ { marks[$1]++; if (marks[$1] == 1) { threads++; next } }
	($1 in marks) && marks[$1] == 1 { print "system call in the steady state: " $0; bad++ }
	END {
		print threads + 0 " threads between their marks, " bad + 0 " system calls; " NR " in all"
		for (t in marks) if (marks[t] != 2) { print "thread " t ": " marks[t] " marks"; bad++ }
		exit !(threads == 2 && !bad)
	}' "$dir/log"
