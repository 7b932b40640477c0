# SPDX-License-Identifier: BSD-2-Clause
#
# verbs.awk - makes the table of bench/verbs from the samples and the cases; needs
# median.awk before it on the command line.
#
# First file: samples, as series, pass, value, unit, p99, client CPU, server CPU,
# the base of the CPU time, share of the time that the less busy side had its CPU. Second: cases, as name, more|less, target, stag's series, its
# yardsticks, the yardsticks for CPU time (both separated by spaces).

# The best of several series, by the median of its value.
function best(list, better,    names, n, i, m, b) {
	b = "-"
	n = split(list, names, " ")
	for (i = 1; i <= n; i++) {
		m = median("value", names[i])
		if (m == "-")
			continue
		if (b == "-" || (better == "more" ? m + 0 > best_value : m + 0 < best_value)) {
			b = names[i]
			best_value = m + 0
		}
	}
	return b
}

BEGIN {
	print "case", "unit", "stag", "yardstick", "measured", "ratio", "target", "verdict", \
		"cpu_unit", "stag_client_cpu", "stag_server_cpu", "raw_client_cpu", \
		"raw_server_cpu", "libfabric", "ucx", "stag_p99"
}

FNR == NR {
	if ($2 + 0 > passes)
		passes = $2 + 0
	sample["value", $1, $2 + 0] = $3
	sample["p99", $1, $2 + 0] = $5
	sample["client", $1, $2 + 0] = $6
	sample["server", $1, $2 + 0] = $7
	unit[$1] = $4
	cpu_unit[$1] = $8
	next
}

{
	yard = best($5, $2)
	cpu = best($6, $2)
	mine = median("value", $4)
	theirs = median("value", yard)
	r = ratio($4, yard)
	any = $4 in unit ? $4 : yard
	shown = r == "-" ? r : sprintf("%.2f", r)
	print $1, (any in unit ? unit[any] : "-"), mine, yard, theirs, shown, $3, \
		verdict(r, $3, $2), \
		(any in cpu_unit ? cpu_unit[any] : "-"), median("client", $4), median("server", $4), \
		median("client", cpu), median("server", cpu), \
		median("value", "libfabric:" $1), median("value", "ucx:" $1), median("p99", $4)
}
