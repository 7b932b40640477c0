# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# build.sh - packages and compiler: build/ is up to date, with what ./up needs of it. Where STAG_BUILD names a build, it is taken as it is.

build=${STAG_BUILD:-$here/build}
stag=$build/app/stag/stag
stagd=$build/app/stagd/stagd

configure() {
	[[ -f $build/build.ninja ]] ||
		meson setup "$build" "$here" --buildtype=release -Dtests=false -Dbench=false
}

# quietly WHAT COMMAND...: its output only if it fails
quietly() {
	local what=$1 log rc=0
	shift
	log=$(mktemp) || fail "no room in ${TMPDIR:-/tmp}"
	"$@" >"$log" 2>&1 </dev/null || {
		rc=$?
		tail -n 60 "$log" >&2
		echo "up: $what failed; the lines above say why" >&2
	}
	rm -f "$log"
	return "$rc"
}

compile() {
	if [[ -t 1 ]]; then
		ninja -C "$build" product || fail 'it did not compile; the lines above say why'
	else
		quietly 'the build' ninja -C "$build" product
	fi
}

# One at a time builds here.
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
