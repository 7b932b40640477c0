# SPDX-License-Identifier: BSD-2-Clause
#
# verbs.gnuplot - the ratios of bench/verbs beside their targets.
# Called with table (verbs.tsv) and svg (the file to write) set.

set terminal svg size 1100,900 font "sans,12" background "white"
set output svg
set datafile separator "\t"
set datafile commentschars "#"
set datafile missing "-"
set style fill solid 0.85 border lc "#333333"
set boxwidth 0.28
set grid ytics lc "#dddddd"
set xtics rotate by -30 noenhanced nomirror scale 0
set ytics nomirror
set border 3
set key outside right top
set offsets 0.2, 0.3, 0, 0
set lmargin 7
set rmargin 20
set yrange [0:*]
set multiplot layout 3,1

# The rows of one panel, numbered: name, ratio, target, libfabric's and UCX's ratio.
rows(pattern) = "<awk -F'\\t' '$1 !~ /^#/ && $1 ~ /" . pattern . "/ { \
	l = $14 != \"-\" && $5 + 0 ? $14 / $5 : \"-\"; \
	u = $15 != \"-\" && $5 + 0 ? $15 / $5 : \"-\"; \
	printf \"%d\\t%s\\t%s\\t%s\\t%s\\t%s\\n\", n++, $1, $6, $7, l, u }' '" . table . "'"

panels = "_bw_ _lat _rate_|^connect"
titles = "'Bandwidth as a ratio to raw TCP (more is better)' \
	'Latency as a ratio to its yardstick (less is better)' \
	'Small messages and connections as a ratio to their yardstick (more is better)'"

do for [i = 1:3] {
	# --case may have left a panel without a figure.
	if (system(rows(word(panels, i))[2:] . " | awk -F'\\t' '$3 != \"-\" { n++ } END { print n + 0 }'") + 0 == 0) {
		continue
	}
	set title word(titles, i)
	plot rows(word(panels, i)) \
		using ($1 - 0.28):3:xtic(2) with boxes lc "#2b6cb0" title "stag", \
		'' using 1:5 with boxes lc "#a0aec0" title "libfabric tcp", \
		'' using ($1 + 0.28):6 with boxes lc "#e2b97f" title "UCX tcp", \
		'' using ($1 - 0.28):4:(0.2) with xerrorbars ps 0 lw 2.5 lc "#c53030" \
			title "target"
}
unset multiplot
