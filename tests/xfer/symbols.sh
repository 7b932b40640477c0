#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# symbols.sh LIBRARY MAP HEADER... - the library exports what its map says, which is what its
# headers declare, no more and no less; and it does not need the software adapter.
set -euo pipefail

lib=$1 map=$2
shift 2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

# same WHAT FILE FILE: prints each line that only one of them has, and records the failure.
same() {
	local lines
	lines=$(diff "$2" "$3" | grep '^[<>]' || true)
	[[ -n $lines ]] || return 0
	echo "$1:"
	echo "$lines"
	failed=1
}

nm -D --defined-only --with-symbol-versions "$lib" | awk '$2 != "A" { print $3 }' | sort >"$tmp/ours"
awk '/^[A-Z].*{/ { node = $1 } /^\t\t[a-z_]/ { sub(";", "", $1); print $1 "@@" node }' "$map" |
	sort >"$tmp/map"
same 'exported (<), in the map (>)' "$tmp/ours" "$tmp/map"

# Finds function declarations: they begin in column 1, with the name before the first bracket.
sed -n 's/^[a-z][^(]*[ *]\(stag_[a-z_]*\)(.*/\1/p' "$@" | sort >"$tmp/headers"
sed 's/@@.*//' "$tmp/map" >"$tmp/names"
same 'in the map (<), in the headers (>)' "$tmp/names" "$tmp/headers"
echo "$(wc -l <"$tmp/headers") calls"

if readelf -d "$lib" | grep -E 'NEEDED.*libstag-verbs'; then
	echo "linked with the software adapter"
	failed=1
fi
exit "$failed"
