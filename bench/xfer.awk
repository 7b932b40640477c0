# SPDX-License-Identifier: BSD-2-Clause
#
# xfer.awk - makes the table of bench/xfer from the samples and the cases; needs
# median.awk before it on the command line.
#
# First file: samples, as pass and then a line of `stag bench xfer --tsv`.
# Second: cases, as name, more|less, target, what the target is for (ratio|value), the
# series that is the yardstick.

BEGIN {
	names = "value p50 p90 p99 max client target share rounds descriptors mallocs"
	split("4 6 7 8 9 10 11 13 14 17 18", column, " ")
	fields = split(names, field, " ")
	print "case", "unit", "manager", "yardstick", "measured", "ratio", "target", "verdict", \
		"cpu_unit", "client_cpu", "target_cpu", "yard_client_cpu", "yard_target_cpu", \
		"descriptors", "mallocs", "p50_us", "p90_us", "p99_us", "max_us", "share"
}

FNR == NR {
	if ($1 + 0 > passes)
		passes = $1 + 0
	s = $2 ":" $3
	for (i = 1; i <= fields; i++)
		if ($(column[i]) != "-")
			sample[field[i], s, $1 + 0] = $(column[i])
	unit[$2] = $5
	cpu_unit[$2] = $12
	next
}

# Allocations: of all passes together, not of one.
function sum(name, s,    p, n, any) {
	for (p = 1; p <= passes; p++)
		if ((name, s, p) in sample) {
			n += sample[name, s, p]
			any = 1
		}
	return any ? n : "-"
}

{
	m = $1 ":manager"
	y = $1 ":" $5
	r = ratio(m, y)
	v = $4 == "value" ? median("value", m) : r
	print $1, ($1 in unit ? unit[$1] : "-"), median("value", m), $5, median("value", y), \
		(r == "-" ? r : sprintf("%.2f", r)), ($4 == "value" ? $3 unit[$1] : $3), \
		verdict(v, $3, $2), ($1 in cpu_unit ? cpu_unit[$1] : "-"), \
		median("client", m), median("target", m), median("client", y), median("target", y), \
		median("descriptors", m), sum("mallocs", m), \
		median("p50", m), median("p90", m), median("p99", m), median("max", m), \
		median("share", m)
}
