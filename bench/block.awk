# SPDX-License-Identifier: BSD-2-Clause
#
# block.awk - makes the table of bench/block from the samples and the cases; needs
# median.awk before it on the command line.
#
# First file: samples, as pass, case, series, operations per second, microseconds of processor
# time per operation at the client, p50, p99, posts, completions and registrations per operation, and
# the server's processor time.
# Second: cases, as name, series, target, the series that is the yardstick.

BEGIN {
	print "case", "series", "unit", "measured", "yardstick", "its", "ratio", "target", "verdict", \
		"cpu_us", "server_cpu_us", "yard_cpu_us", "yard_server_cpu_us", \
		"posts", "completions", "registrations", "p50_us", "p99_us", "yard_p50_us", "yard_p99_us"
}

FNR == NR {
	if ($1 + 0 > passes)
		passes = $1 + 0
	split("value cpu p50 p99 posts completions registrations server", field, " ")
	for (i = 1; i <= 8; i++)
		if ($(i + 3) != "-")
			sample[field[i], $2 ":" $3, $1 + 0] = $(i + 3)
	next
}

function tenth(x) {
	return x == "-" ? x : sprintf("%.1f", x)
}

function cent(x) {
	return x == "-" ? x : sprintf("%.2f", x)
}

# Of 1 MiB: in GB/s.
function value(s,    v) {
	v = median("value", s)
	if (v == "-")
		return v
	return $1 ~ /_1m$/ ? sprintf("%.2f", v * 1048576 / 1e9) : sprintf("%.0f", v)
}

{
	m = $1 ":" $2
	y = $1 ":" $4
	r = ratio(m, y)
	print $1, $2, ($1 ~ /_1m$/ ? "GB/s" : "IOPS"), value(m), $4, value(y), cent(r), $3, verdict(r, $3, "more"), \
		tenth(median("cpu", m)), tenth(median("server", m)), tenth(median("cpu", y)), tenth(median("server", y)), \
		cent(median("posts", m)), cent(median("completions", m)), cent(median("registrations", m)), \
		tenth(median("p50", m)), tenth(median("p99", m)), tenth(median("p50", y)), tenth(median("p99", y))
}
