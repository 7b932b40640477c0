# SPDX-License-Identifier: BSD-2-Clause
#
# verbs.awk - from the samples and the cases to the table of bench/verbs.
#
# First file: samples, as series, pass, value, unit, p99, client CPU, server CPU,
# per what, share of the time that the less busy side had its CPU. Second: cases, as name, more|less, target, stag's series, its
# yardsticks, the yardsticks for CPU time (both separated by spaces).

function sort(v, n,    i, j, t) {
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) {
			t = v[j]; v[j] = v[j - 1]; v[j - 1] = t
		}
}

function median(field, s,    n, p, v) {
	for (p = 1; p <= passes; p++)
		if ((field, s, p) in sample)
			v[++n] = sample[field, s, p]
	if (!n)
		return "-"
	sort(v, n)
	return v[int((n + 1) / 2)]
}

# The median of the passes' own ratios: what a pass compares ran within seconds,
# and the machine is not the same an hour, or a minute, later.
function ratio(a, b,    n, p, v) {
	for (p = 1; p <= passes; p++)
		if (("value", a, p) in sample && ("value", b, p) in sample)
			v[++n] = sample["value", a, p] / sample["value", b, p]
	if (!n)
		return "-"
	sort(v, n)
	return v[int((n + 1) / 2)]
}

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

function verdict(r, target, better) {
	if (target == "-" || r == "-")
		return "-"
	return (better == "more" ? r + 0 >= target + 0 : r + 0 <= target + 0) ? "met" : "short"
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
