# SPDX-License-Identifier: BSD-2-Clause
#
# xfer.gnuplot - the ratios of bench/xfer beside their targets.
# Called with table (xfer.tsv) and svg (the file to write) set.

set terminal svg size 1000,900 font "sans,12" background "white"
set output svg
set datafile separator "\t"
set datafile commentschars "#"
set datafile missing "-"
set style fill solid 0.85 border lc "#333333"
set boxwidth 0.4
set grid ytics lc "#dddddd"
set xtics noenhanced nomirror scale 0
set ytics nomirror
set border 3
set key outside right top
set offsets 0.4, 0.4, 0, 0
set lmargin 7
set rmargin 16
set yrange [0:*]
set multiplot layout 3,1

# The rows of one panel, numbered: name, figure, target. Planning is judged by itself.
rows(pattern, column) = "<awk -F'\\t' '$1 !~ /^#/ && $1 ~ /" . pattern . "/ { \
	t = $7; sub(/[a-z]+$/, \"\", t); \
	printf \"%d\\t%s\\t%s\\t%s\\n\", n++, $1, $" . column . ", t }' '" . table . "'"

patterns = "^elements|^requests|^large ^batches ^plan"
columns = "6 6 3"
titles = "'Rate as a ratio to the yardstick (more is better)' \
	'p99 of a batch as a ratio to its bytes alone (less is better)' \
	'Planning, ns an element (less is better)'"

do for [i = 1:3] {
	# --case may have left a panel without a figure.
	if (system(rows(word(patterns, i), word(columns, i))[2:] . " | awk -F'\\t' '$3 != \"-\" { n++ } END { print n + 0 }'") + 0 == 0) {
		continue
	}
	set title word(titles, i)
	plot rows(word(patterns, i), word(columns, i)) \
		using 1:3:xtic(2) with boxes lc "#2b6cb0" title "manager", \
		'' using 1:4:(0.3) with xerrorbars ps 0 lw 2.5 lc "#c53030" title "target"
}
unset multiplot
