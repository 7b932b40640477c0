#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# symbols.sh LIBRARY MAP - checks that the library exports exactly the symbols of
# its map and every public symbol of the installed libibverbs and librdmacm, and
# that it is not linked with them.
set -euo pipefail

lib=$1 map=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

# exports LIBRARY: prints "name version" of each symbol that a program binds to.
exports() {
	nm -D --defined-only --with-symbol-versions "$1" |
		sed -n 's/.* [A-Z] \([A-Za-z_0-9]*\)@@\(.*\)$/\1 \2/p' | sort
}

# same WHAT FILE FILE: prints each line that only one of the files has, and fails.
same() {
	local lines
	lines=$(diff "$2" "$3" | grep '^[<>]' || true)
	[[ -n $lines ]] || return 0
	echo "$1:"
	echo "$lines"
	failed=1
}

exports "$lib" >"$tmp/ours"
awk '/^[A-Z].*{/ { node = $1 } /^\t\t[a-z_]/ { sub(";", "", $1); print $1, node }' "$map" |
	sort >"$tmp/map"
same 'exported (<), in the map (>)' "$tmp/ours" "$tmp/map"

# Symbols without a version would be visible beside the map.
nm -D --defined-only "$lib" | awk '$2 != "A" && $3 !~ /@/ { print $3 }' >"$tmp/bare"
: >"$tmp/none"
same 'exported without a version (<)' "$tmp/bare" "$tmp/none"

PATH=$PATH:/sbin:/usr/sbin # for ldconfig, if run by an ordinary user
for real in libibverbs.so.1 librdmacm.so.1; do
	path=$(ldconfig -p | awk -v n="$real" '$1 == n && !path { path = $NF } END { print path }')
	[[ -e $path ]] || { echo "$real is not installed"; exit 77; }
	exports "$path" | grep -v PRIVATE >"$tmp/real"
	comm -23 "$tmp/real" "$tmp/ours" >"$tmp/missing"
	same "symbols of $real (<) that are missing here" "$tmp/missing" "$tmp/none"
	echo "$real: $(wc -l <"$tmp/real") public symbols, all exported unless listed"
done

# The real libraries are opened by dlopen() when a call needs them, and bring their own symbols.
if readelf -d "$lib" | grep -E 'NEEDED.*(libibverbs|librdmacm)'; then
	echo "linked with the library that it replaces"
	failed=1
fi
exit "$failed"
