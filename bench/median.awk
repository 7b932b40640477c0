# SPDX-License-Identifier: BSD-2-Clause
#
# median.awk - medians over the passes, for the tables of all runners.
#
# Needs: passes, and sample[field, series, pass].

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

function verdict(r, target, better) {
	if (target == "-" || r == "-")
		return "-"
	return (better == "more" ? r + 0 >= target + 0 : r + 0 <= target + 0) ? "met" : "short"
}
