# SPDX-License-Identifier: BSD-2-Clause
#
# heap.awk - makes the table of bench/heap from the samples and the cases; needs
# median.awk before it on the command line.
#
# First file: samples, as pass and then a line of `stag bench heap --tsv`.
# Second: cases, as name, more|less, target, what the target is for (ratio|value), the
# series that is the yardstick.

BEGIN {
	names = "value p50 p99 max mine theirs share rounds"
	split("4 6 8 9 10 11 13 14", column, " ")
	fields = split(names, field, " ")
	print "case", "unit", "heap", "yardstick", "measured", "ratio", "target", "verdict", \
		"cpu_ns", "other_cpu_ns", "yard_cpu_ns", "yard_other_cpu_ns", \
		"round_p50_us", "round_p99_us", "round_max_us", "share"
}

FNR == NR {
	if ($1 + 0 > passes)
		passes = $1 + 0
	s = $2 ":" $3
	for (i = 1; i <= fields; i++)
		if ($(column[i]) != "-")
			sample[field[i], s, $1 + 0] = $(column[i])
	unit[$2] = $5
	next
}

function tenth(x) {
	return x == "-" ? x : sprintf("%.1f", x)
}

{
	h = $1 ":heap"
	y = $1 ":" $5
	r = ratio(y, h)
	v = $4 == "value" ? median("value", h) : r
	print $1, ($1 in unit ? unit[$1] : "-"), sprintf("%.2f", median("value", h)), $5, \
		tenth(median("value", y)), (r == "-" ? r : sprintf("%.2f", r)), \
		($4 == "value" ? $3 " " unit[$1] : $3), verdict(v, $3, $2), \
		tenth(median("mine", h)), tenth(median("theirs", h)), \
		tenth(median("mine", y)), tenth(median("theirs", y)), \
		median("p50", h), median("p99", h), median("max", h), median("share", h)
}
