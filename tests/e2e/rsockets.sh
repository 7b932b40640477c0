# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# rsockets.sh - sockets over RDMA, and programs that use them.

entry rstream package rdmacm-utils figure rstream_figure run run_stream_sizes \
	shows 'rsockets: 16 bytes to 256 KiB, blocking, data verified' \
	server 'rstream -p PORT -T b -T v -S SIZE -C 10 -I 5' \
	client 'rstream -s ADDR -p PORT -T b -T v -S SIZE -C 10 -I 5'

entry rstream-async package rdmacm-utils figure rstream_figure \
	shows 'rsockets: non-blocking, with rpoll' \
	server 'rstream -p PORT -T a -T n -S 4096 -C 20 -I 10' \
	client 'rstream -s ADDR -p PORT -T a -T n -S 4096 -C 20 -I 10'

entry riostream package rdmacm-utils figure rstream_figure run run_stream_sizes \
	shows 'rsockets: remote mappings (riomap, riowrite), data verified' \
	server 'riostream -p PORT -T v -S SIZE -C 10 -I 5' \
	client 'riostream -s ADDR -p PORT -T v -S SIZE -C 10 -I 5'

# Both programs can iterate over sizes themselves, but then take minutes.
run_stream_sizes() {
	local server client size
	server=$(of server) client=$(of client)
	# With less than 16 bytes they read past their own buffer, which a sanitizer reports.
	for size in 16 64 1000 4096 65536 262144; do
		field[$name.server]=${server/SIZE/$size} field[$name.client]=${client/SIZE/$size}
		# One that fits into a segment and one that does not
		[[ $size == 64 || $size == 65536 ]] && field[$name.trace]=yes || field[$name.trace]=no
		port=$(free_port)
		run_pair || return
	done
}

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
