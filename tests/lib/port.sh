# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# port.sh - ports for tests that run beside others.

# free_port [FROM TO]: prints a random port that no TCP socket of this machine uses. The default range is below the one from which
# the kernel takes ports for outgoing connections.
free_port() {
	local from=${1:-20000} to=${2:-31999} port
	while port=$((from + RANDOM % (to - from + 1))); do
		grep -q "$(printf '^ *[0-9]*: [0-9A-F]*:%04X ' "$port")" /proc/net/tcp /proc/net/tcp6 || break
	done
	echo "$port"
}
