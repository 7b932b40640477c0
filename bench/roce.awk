# SPDX-License-Identifier: BSD-2-Clause
#
# roce.awk - the table of bench/roce, of samples: case, series, value, unit, p99, CPU of client and server, their base.
# Needs median.awk.

{
	key = $1 SUBSEP $2
	pass = ++seen[key]
	if (pass == 1) {
		order[++keys] = key
		unit[key] = $4
		base[key] = $8
	}
	sample["value", key, pass] = $3
	sample["p99", key, pass] = $5
	sample["client", key, pass] = $6
	sample["server", key, pass] = $7
}

function figure(v) {
	return v == "-" ? "-" : sprintf("%.3g", v)
}

function yardstick(name, series) {
	if (series ~ /^ucx/)
		return name SUBSEP "ucx-tcp"
	return name ~ /_of_/ ? "send_lat_8_one" SUBSEP series : name SUBSEP "stag0"
}

END {
	print "case", "series", "value", "unit", "ratio", "p99", "cpu_unit", "client_cpu", "server_cpu"
	for (k = 1; k <= keys; k++) {
		key = order[k]
		split(key, part, SUBSEP)
		beside = yardstick(part[1], part[2])
		print part[1], part[2], figure(median("value", key)), unit[key], \
			beside in unit ? sprintf("%.2f", ratio(key, beside)) : "-", \
			figure(median("p99", key)), base[key], figure(median("client", key)), \
			figure(median("server", key))
	}
}
