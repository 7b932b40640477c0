# SPDX-License-Identifier: BSD-2-Clause
#
# tls.awk - the table of bench/tls, of samples: case, series, value, unit, p99, CPU of client and server,
# their base, CPU of the relay. Needs median.awk.

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
	sample["relay", key, pass] = $9
}

function figure(v) {
	return v == "-" ? "-" : sprintf("%.3g", v)
}

END {
	print "case", "series", "value", "unit", "ratio", "p99", "cpu_unit", "client_cpu", "server_cpu", "relay_cpu"
	for (k = 1; k <= keys; k++) {
		key = order[k]
		split(key, part, SUBSEP)
		plain = part[1] SUBSEP (part[2] == "stunnel" ? "tcp" : "plain")
		print part[1], part[2], figure(median("value", key)), unit[key], \
			plain in unit ? sprintf("%.2f", ratio(key, plain)) : "-", \
			figure(median("p99", key)), base[key], figure(median("client", key)), \
			figure(median("server", key)), figure(median("relay", key))
	}
}
