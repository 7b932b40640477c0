# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# build.sh - installs packages and brings build/ up to date, as far as ./up needs it. If STAG_BUILD names a build, that is used as it is.

build=${STAG_BUILD:-$here/build}
stag=$build/app/stag/stag
stagd=$build/app/stagd/stagd

configure() {
	[[ -f $build/build.ninja ]] ||
		meson setup "$build" "$here" --buildtype=release -Dtests=false -Dbench=false
}

# quietly WHAT COMMAND...: runs a command, and prints its output only if it fails
quietly() {
	local what=$1 log rc=0
	shift
	log=$(mktemp) || fail "cannot write to ${TMPDIR:-/tmp}; is the disk full?"
	"$@" >"$log" 2>&1 </dev/null || {
		rc=$?
		tail -n 60 "$log" >&2
		echo "up: $what failed; see the lines above" >&2
	}
	rm -f "$log"
	return "$rc"
}

compile() {
	if [[ -t 1 ]]; then
		ninja -C "$build" product || fail 'the build failed; see the lines above'
	else
		quietly 'the build' ninja -C "$build" product
	fi
}

# Builds, one process at a time.
build_all() {
	mkdir -p "$build" && : >>"$build/.up.lock" || fail "cannot write to $build"
	exec 7>>"$build/.up.lock"
	flock -n 7 || { note 'another ./up is building: waiting for it' && flock 7; }
	if [[ ! -f $build/build.ninja ]]; then note "building into $(short "$build"), which takes a minute or two"; fi
	quietly 'meson' configure && compile
	local rc=$?
	exec 7>&-
	return "$rc"
}

prepare() {
	[[ -z ${STAG_BUILD-} ]] || return 0
	"$here/scripts/install-packages" --up || exit 1
	build_all || exit 1
}
