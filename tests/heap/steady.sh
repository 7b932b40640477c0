#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# steady.sh - test_steady as strace sees it: between the two getppid() of each working thread there is
# no other system call.
set -euo pipefail

program=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

command -v strace >/dev/null || { echo 'skipped: no strace'; exit 77; }
strace -o /dev/null true 2>/dev/null || { echo 'skipped: strace may not trace here'; exit 77; }

strace -f -qq -o "$dir/log" "$program"

# One line a call: the thread first. A call that another thread's interrupts has two, and only the
# first of a mark's counts.
awk '
	/<\.\.\. getppid resumed>/ { next }
	$2 ~ /^getppid\(/ { marks[$1]++; if (marks[$1] == 1) { threads++; next } }
	($1 in marks) && marks[$1] == 1 { print "system call in the steady state: " $0; bad++ }
	END {
		print threads + 0 " threads between their marks, " bad + 0 " system calls; " NR " in all"
		for (t in marks) if (marks[t] != 2) { print "thread " t ": " marks[t] " marks"; bad++ }
		exit !(threads == 2 && !bad)
	}' "$dir/log"
