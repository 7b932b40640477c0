# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2154
#
# run.sh - functions that the runners of benchmarks share: network namespace, waiting for a quiet
# machine, tables. To be sourced with these set: self, here, args, cc, build, reps, patience.

export STAG_DEVICE=${STAG_DEVICE:-iwarp} # the device of stag's services, which the figures are about

say() { echo "bench/$(basename "$self"): $*" >&2; }
die() { say "$*"; exit 2; }
usage() { sed -n '4,/^set -u/s/^# \{0,1\}//p' "$self"; }

# enter_namespace: enters a new network namespace, and sets the congestion control there.
# May execute the runner again.
enter_namespace() {
	if [ -z "${STAG_BENCH_NS:-}" ]; then
		if unshare -Urn true 2>/dev/null; then
			STAG_BENCH_NS=private exec unshare -Urn -- "$self" ${args[@]+"${args[@]}"}
		fi
		say "cannot make a network namespace; using the machine's own loopback"
		STAG_BENCH_NS=shared
	fi
	if [ "$STAG_BENCH_NS" = private ]; then
		ip link set lo up || die "cannot bring up lo"
		if [ "$cc" != inherit ]; then
			echo "$cc" >/proc/sys/net/ipv4/tcp_congestion_control || die "no congestion control $cc here"
		fi
	fi
}

# find_build: makes $build absolute, and sets $stag to the command in it.
find_build() {
	build=$(cd "$build" 2>/dev/null && pwd) || die "not built (meson setup build && ninja -C build)"
	stag=$build/app/stag/stag
	[ -x "$stag" ] || die "no $stag"
}

# busy: prints the percentage of CPU time that was not idle during a tenth of a second.
busy() {
	{ head -1 /proc/stat; sleep 0.1; head -1 /proc/stat; } | awk '
		{ all = 0; for (i = 2; i <= 9; i++) all += $i; t[NR] = all; idle[NR] = $5 + $6 }
		END { d = t[2] - t[1]; print (d > 0 ? int(100 - 100 * (idle[2] - idle[1]) / d) : 0) }'
}

# begin_pass N: starts a pass with fresh patience.
begin_pass() {
	quiet_left=$patience
	say "pass $1 of $reps ($(date +%T), other load $(busy) %)"
}

wait_for_quiet() {
	while [ "$quiet_left" -gt 0 ] && [ "$(busy)" -gt 15 ]; do
		sleep 0.9
		quiet_left=$((quiet_left - 1))
	done
}

# lost_cpu SHARE: did a side that polls lose its CPU to another program?
lost_cpu() {
	awk -v share="$1" 'BEGIN { exit !(share < 0.95) }'
}

describe_machine() {
	echo "# kernel $(uname -r), $(nproc) CPUs:$(sed -n 's/^model name[^:]*://p' /proc/cpuinfo | head -1)"
	if [ -n "${STAG_BENCH_NS:-}" ]; then
		echo "# congestion control $(cat /proc/sys/net/ipv4/tcp_congestion_control)," \
			"$STAG_BENCH_NS network namespace"
	fi
	echo "# medians of $reps"
}

# align: prints the table aligned in columns, without its last LEAVE columns.
align() {
	awk -F'\t' -v leave="$1" '
		/^#/ { next }
		{ columns = NF - leave }
		{ for (i = 1; i <= columns; i++) { cell[NR, i] = $i; if (length($i) > w[i]) w[i] = length($i) } }
		{ row[++rows] = NR }
		END {
			for (r = 1; r <= rows; r++) {
				line = ""
				for (i = 1; i <= columns; i++)
					line = line sprintf("%-" w[i] "s  ", cell[row[r], i])
				sub(/ +$/, "", line)
				print line
			}
		}'
}

# plot NAME: NAME.gnuplot draws OUT/NAME.tsv as OUT/NAME.svg.
plot() {
	command -v gnuplot >/dev/null || { say "gnuplot is not installed, so there is no plot"; return; }
	gnuplot -e "table='$out/$1.tsv'; svg='$out/$1.svg'" "$here/$1.gnuplot" 2>>"$out/errors.log" ||
		say "gnuplot failed (see errors.log)"
}
