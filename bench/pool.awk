# SPDX-License-Identifier: BSD-2-Clause
#
# pool.awk - makes the table of bench/pool from the samples and the cases; needs
# median.awk before it on the command line.
#
# First file: samples, as pass, case, series, figure (operations per second, or what the case is about), microseconds of
# processor time per operation at the client, p50, p99, and the server's processor time.
# Second: cases, as name, series, which is better, target, the series that is the yardstick.

BEGIN {
	print "case", "series", "unit", "measured", "yardstick", "its", "ratio", "target", "verdict", \
		"cpu_us", "server_cpu_us", "yard_cpu_us", "yard_server_cpu_us", "p50_us", "p99_us", "yard_p50_us", "yard_p99_us"
}

FNR == NR {
	if ($1 + 0 > passes)
		passes = $1 + 0
	split("value cpu p50 p99 server", field, " ")
	for (i = 1; i <= 5; i++)
		if ($(i + 3) != "-")
			sample[field[i], $2 ":" $3, $1 + 0] = $(i + 3)
	next
}

function tenth(x) {
	return x == "-" ? x : sprintf("%.1f", x)
}

function unit(name) {
	return name ~ /^failover/ ? "ms" : name == "memory" ? "bytes" : name ~ /_1m_/ ? "GB/s" : "ops/s"
}

function value(s,    v, u) {
	v = median("value", s)
	u = unit($1)
	if (v == "-")
		return v
	return u == "GB/s" ? sprintf("%.2f", v * 1048576 / 1e9) : sprintf(u == "ops/s" ? "%.0f" : "%.1f", v)
}

{
	m = $1 ":" $2
	y = $1 ":" $5
	r = $5 == "-" ? "-" : ratio(m, y)
	print $1, $2, unit($1), value(m), $5, ($5 == "-" ? "-" : value(y)), (r == "-" ? r : sprintf("%.2f", r)), $4, \
		verdict($5 == "-" ? median("value", m) : r, $4, $3), \
		tenth(median("cpu", m)), tenth(median("server", m)), tenth(median("cpu", y)), tenth(median("server", y)), \
		tenth(median("p50", m)), tenth(median("p99", m)), tenth(median("p50", y)), tenth(median("p99", y))
}
