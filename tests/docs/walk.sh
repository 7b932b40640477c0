# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# walk.sh - types what a newcomer types, and looks at what they see: sourced by each walk.
#
#	step NAME              begins a claim of the walk
#	types COMMAND          types it; it must succeed, or go on in the background if it ends with &
#	fails COMMAND [CODE]   types it; it must not succeed, and end with that exit code
#	on_terminal COMMAND    as types, with a terminal for its input and output
#	shows REGEX            the last command has printed a line like this; shows_not, none
#	until_shows REGEX      the last command, or one in the background, prints such a line within 20 seconds
#	until_true COMMAND     the command succeeds within 20 seconds; it is not typed
#	wrong MESSAGE          ends the walk
#	clone_stag             makes the current directory a clone of stag that is built already
#
# What is typed runs in this shell: cd, export and jobs last until the end of the walk.
set -u

screen=$HOME/../screen
from=1 claims=0 claim='' typed=''
: >"$screen"

# Ends the claim that is under way.
passed() {
	[[ -z $claim ]] || echo "ok $claims - $claim"
}

step() {
	passed
	claim=$1 claims=$((claims + 1))
}

wrong() {
	echo "not ok $claims - $claim"
	echo "# $1"
	echo "# \$ ${typed//$'\n'/$'\n# '}"
	tail -n 40 "$screen" | cut -c1-400 | sed 's/^/# /'
	echo "1..$claims"
	exit 1
}

end_of_walk() {
	passed
	echo "1..$claims"
}

# enter COMMAND: runs it, and puts its exit code into $code
enter() {
	typed=$1
	echo "# \$ ${1//$'\n'/$'\n# > '}"
	[[ -z $(tail -c 1 "$screen") ]] || echo >>"$screen"
	from=$(($(stat -c %s "$screen") + 1))
	eval "$1" >>"$screen" 2>&1 </dev/null
	code=$?
}

types() {
	enter "$1"
	((code == 0)) || wrong "it ended with exit code $code"
}

fails() {
	enter "$1"
	((code)) || wrong 'it succeeded'
	((code == ${2-$code})) || wrong "it ended with exit code $code instead of $2"
}

on_terminal() {
	types "script -qefc $(printf %q "$1") /dev/null"
}

printed() {
	tail -c "+$from" "$screen" | tr -d '\r' | grep -qE -- "$1"
}

shows() {
	printed "$1" || wrong "it did not show \"$1\""
}

shows_not() {
	if printed "$1"; then wrong "it showed \"$1\""; fi
}

until_true() {
	local i
	for ((i = 0; i < 400; i++)); do
		eval "$1" >/dev/null 2>&1 && return
		sleep 0.05
	done
	wrong "not within 20 seconds: $1"
}

until_shows() {
	until_true "printed $(printf %q "$1")"
}

# Makes the current directory a clone of stag that is built already.
clone_stag() {
	cp -r "$STAG_TREE"/. ~/stag
	mkdir -p ~/stag/build/app/stag ~/stag/build/app/stagd
	cd ~/stag || exit
	ln -s /usr/local/bin/stag build/app/stag/
	ln -s /usr/local/bin/stagd build/app/stagd/
	export STAG_BUILD=$PWD/build
}

listens() {
	[[ -n $(ss -Hltn "sport = :$1") ]]
}
