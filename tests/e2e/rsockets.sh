# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# rsockets.sh - sockets over RDMA, and what is built on them.

entry rstream package rdmacm-utils figure rstream_figure trace no limit 120 \
	shows 'rsockets: all sizes, data verified' \
	server 'rstream -p PORT -S all -T v' \
	client 'rstream -s ADDR -p PORT -S all -T v'

entry rstream-async package rdmacm-utils figure rstream_figure \
	shows 'rsockets: non-blocking, with rpoll' \
	server 'rstream -p PORT -T a -T n -S 4096 -C 20 -I 10' \
	client 'rstream -s ADDR -p PORT -T a -T n -S 4096 -C 20 -I 10'

entry riostream package rdmacm-utils figure rstream_figure trace no limit 120 \
	shows 'rsockets: remote mappings (riomap, riowrite)' \
	server 'riostream -p PORT -S all' \
	client 'riostream -s ADDR -p PORT -S all'

rstream_figure() {
	awk '$NF ~ /^[0-9.]+$/ && $(NF - 1) ~ /^[0-9.]+$/ && $(NF - 1) > best { best = $(NF - 1) }
		END { if (best) print best " Gb/s" }'
}

entry rcopy package rdmacm-utils run run_rcopy persistent yes trace no \
	shows 'a file of 32 MiB copied over rsockets, and compared' \
	server 'rcopy -p PORT' \
	client 'rcopy SOURCE ADDR:COPY -p PORT'

run_rcopy() {
	head -c 33554432 /dev/urandom >"$work/SOURCE"
	run_pair || return
	cmp "$work/SOURCE" "$work/COPY" || fail "the copy differs"
}
