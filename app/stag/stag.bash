# SPDX-License-Identifier: BSD-2-Clause
# bash completion for stag(1) and stagd(8)

_stag() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} i word

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W 'run info heap store block pool torture bench help --help --version' -- "$cur"))
		return
	fi
	case ${COMP_WORDS[1]} in
	help)
		COMPREPLY=($(compgen -W 'run info heap store block pool torture bench' -- "$cur"))
		;;
	info)
		case $prev in
		--library) COMPREPLY=($(compgen -f -- "$cur")) ;;
		*) COMPREPLY=($(compgen -W '--json --library --help' -- "$cur")) ;;
		esac
		;;
	store)
		_stag_store
		;;
	block)
		_stag_block
		;;
	pool)
		_stag_pool
		;;
	torture)
		_stag_torture
		;;
	heap)
		if ((COMP_CWORD == 2)); then
			COMPREPLY=($(compgen -W 'show top reap trim rm --help' -- "$cur"))
			return
		fi
		case $prev in
		--interval | --count) return ;;
		esac
		case ${COMP_WORDS[2]} in
		show) word='--blocks --check --json --help' ;;
		top) word='--interval --count --json --help' ;;
		reap) word='--shared --help' ;;
		rm) word='--force --help' ;;
		*) word=--help ;;
		esac
		[[ $cur == -* ]] || word=$(cd /dev/shm 2>/dev/null && compgen -G 'stag-heap.*' | cut -d. -f2-)
		COMPREPLY=($(compgen -W "$word" -- "$cur"))
		;;
	bench)
		if ((COMP_CWORD == 2)); then
			COMPREPLY=($(compgen -W 'xfer heap --help' -- "$cur"))
			return
		fi
		case $prev in
		--device) COMPREPLY=($(compgen -W "stag0 $(ls /sys/class/infiniband 2>/dev/null)" -- "$cur")) ;;
		--library) COMPREPLY=($(compgen -f -- "$cur")) ;;
		--op) COMPREPLY=($(compgen -W 'write read' -- "$cur")) ;;
		--connect) COMPREPLY=($(compgen -A hostname -- "$cur")) ;;
		--elements | --size | --batches | --pieces | --bytes | --descriptors | --secs | --address | --listen) ;;
		*) _stag_bench "${COMP_WORDS[2]}" ;;
		esac
		;;
	run)
		# Behind the options comes another command line, with its own completion.
		for ((i = 2; i < COMP_CWORD; i++)); do
			word=${COMP_WORDS[i]}
			if [[ $word == -- ]]; then
				_stag_program $((i + 1))
				return
			elif [[ $word != -* ]]; then
				_stag_program "$i"
				return
			elif [[ $word != *=* && $word != --help ]]; then
				((i++))
			fi
		done
		case $prev in
		--crc | --markers | --extensions | --p2p) COMPREPLY=($(compgen -W 'on off' -- "$cur")) ;;
		--log) COMPREPLY=($(compgen -W 'none err warn info debug' -- "$cur")) ;;
		--one-shot) COMPREPLY=($(compgen -W 'opcodes literal bits off' -- "$cur")) ;;
		--mpa-rev) COMPREPLY=($(compgen -W '1 2' -- "$cur")) ;;
		--congestion)
			COMPREPLY=($(compgen -W "$(cat /proc/sys/net/ipv4/tcp_available_congestion_control)" -- "$cur"))
			;;
		--trace | --log-file | --library) COMPREPLY=($(compgen -f -- "$cur")) ;;
		--connect-timeout) ;;
		*)
			if [[ $cur == -* ]]; then
				COMPREPLY=($(compgen -W '--trace --log --log-file --crc --markers --extensions --one-shot
					--p2p --mpa-rev --connect-timeout --congestion --library --help --' -- "$cur"))
			else
				COMPREPLY=($(compgen -c -- "$cur"))
			fi
			;;
		esac
		;;
	esac
}

# What can be tortured, and how.
_stag_torture() {
	if ((COMP_CWORD == 2)); then
		COMPREPLY=($(compgen -W 'pool --help' -- "$cur"))
		return
	fi
	case $prev in
	--phase) COMPREPLY=($(compgen -W 'calm kill-primary kill-standby kill-turns pause cut split slow engine cut-engine clock clients disk memory switchover mixed' -- "$cur")) ;;
	--etcd) COMPREPLY=($(compgen -W '1 3' -- "$cur")) ;;
	--check) COMPREPLY=($(compgen -f -- "$cur")) ;;
	--directory) COMPREPLY=($(compgen -d -- "$cur")) ;;
	--seconds | --rounds | --failovers | --nodes | --clients | --rate | --longest-pause | --size | --beat | --lease | --promote | --seed) ;;
	*)
		COMPREPLY=($(compgen -W '--phase --list --seconds --rounds --failovers --nodes --clients --etcd --rate --longest-pause
			--size --beat --lease --promote --seed --one-host --clock --directory --keep --check --json --help' -- "$cur"))
		;;
	esac
}

# The cases and the options of a benchmark.
_stag_bench() {
	local cases= options=
	case $1 in
	xfer)
		cases='elements elements_random elements_contiguous requests batches batches_apart large plan plan_contiguous'
		options='--elements --size --batches --pieces --bytes --descriptors --op --asleep --address --listen --connect'
		;;
	heap)
		cases='churn_64 churn_4k churn_1m churn2_64 churn2_4k churn2_1m cross_64 cross_4k cross_1m ready_4k ready_1m
			keys attach'
		;;
	esac
	case $prev in
	--case) COMPREPLY=($(compgen -W "$cases" -- "$cur")) ;;
	*) COMPREPLY=($(compgen -W "$options --case --secs --device --library --json --tsv --help" -- "$cur")) ;;
	esac
}

# Options of stag store by what is done; behind the path the names of its partitions.
_stag_store() {
	local verb=${COMP_WORDS[2]} settings='--size --order --level --cache --allow --json'

	if ((COMP_CWORD == 2)); then
		COMPREPLY=($(compgen -W 'format list show add set rename rm grow check serve read write bench --help' -- "$cur"))
		return
	fi
	case $prev in
	--order) COMPREPLY=($(compgen -W 'strict any writes reads later atomics completions processing' -- "$cur")) ;;
	--level) COMPREPLY=($(compgen -W 'visible accepted durable' -- "$cur")) ;;
	--allow) _stag_allow ;;
	--op) COMPREPLY=($(compgen -W 'read write mix' -- "$cur")) ;;
	--size | --offset | --align | --block | --label | --partition | --cache | --address | --port | --length) ;;
	--writes | --depth | --secs) ;;
	*)
		if [[ $cur == -* ]]; then
			case $verb in
			format) settings='--size --block --label --partition --force --json' ;;
			add) settings+=' --offset --align' ;;
			set) ;;
			rm) settings=--force ;;
			grow) settings='--size --json' ;;
			check) settings=--repair ;;
			serve) settings='--address --port --json' ;;
			read | write) settings='--offset --length --token --json' ;;
			bench)
				settings='--op --writes --size --depth --secs --random --sequential --order --level --poll --sleep
					--token --force --json'
				;;
			*) settings=--json ;;
			esac
			COMPREPLY=($(compgen -W "$settings --help" -- "$cur"))
		elif ((COMP_CWORD == 4)) && [[ $verb == @(show|set|rename|rm) ]]; then
			COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" store list "${COMP_WORDS[3]}" 2>/dev/null |
				awk 'NR > 1 { print $1 }')" -- "$cur"))
		else
			COMPREPLY=($(compgen -f -- "$cur"))
		fi
		;;
	esac
}

_stag_block() {
	local settings='--user --secret-file --peer-user --peer-secret-file --initiator --digests --json --help'

	if ((COMP_CWORD == 2)); then
		COMPREPLY=($(compgen -W 'serve discover info read write bench sessions stags --help' -- "$cur"))
		return
	fi
	case $prev in
	--secret-file | --own-secret-file | --peer-secret-file) COMPREPLY=($(compgen -f -- "$cur")) ;;
	--op) COMPREPLY=($(compgen -W 'read write mix' -- "$cur")) ;;
	--lun | --name | --address | --port | --spin | --user | --own-user | --peer-user | --initiator | --offset | --length) ;;
	--writes | --size | --depth | --connections | --secs) ;;
	*)
		case ${COMP_WORDS[2]} in
		serve)
			settings='--lun --name --address --port --spin --user --secret-file --own-user --own-secret-file
				--json --help'
			;;
		read | write)
			settings+=' --offset --length --stags'
			((COMP_CWORD > 3)) && [[ $cur != -* ]] && COMPREPLY=($(compgen -f -- "$cur")) && return
			;;
		sessions | stags) settings='--json --help' ;;
		bench)
			settings+=' --op --writes --size --depth --connections --secs --random --sequential --poll --sleep --force
				--stags'
			;;
		esac
		COMPREPLY=($(compgen -W "$settings" -- "$cur"))
		;;
	esac
}

# Pools of which a node was made here, then options by what is done; behind the pool its names and nodes.
_stag_pool() {
	local verb=${COMP_WORDS[2]} pool=${COMP_WORDS[3]-} settings='--user --secret-file --json --help'
	local base=${STAG_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/stag}
	local nodes='--node --dir --roll --address --advertise --port --secrets --force --serve --json --help'

	if ((COMP_CWORD == 2)); then
		COMPREPLY=($(compgen -W 'create join status put get update rm ls switchover forget watch --help' -- "$cur"))
		return
	fi
	case $prev in
	--secret-file | --secrets | --dir | --from) COMPREPLY=($(compgen -f -- "$cur")) ;;
	--user | --node | --roll | --address | --advertise | --port | --size | --memory | --clients) ;;
	--version | --value | --pointer | --interval | --count) ;;
	*)
		case $verb in
		create) settings="--size --memory --clients --overwrite $nodes" ;;
		join) settings="--from $nodes" ;;
		put) settings+=' --value --insert --exclusive --version' ;;
		get) settings+=' --pointer' ;;
		update) settings+=' --value --pointer --version' ;;
		rm) settings+=' --pointer --version' ;;
		ls) settings+=' --long' ;;
		watch) settings+=' --interval --count' ;;
		esac
		if [[ $cur == -* ]]; then
			COMPREPLY=($(compgen -W "$settings" -- "$cur"))
		elif ((COMP_CWORD == 3)); then
			[[ $EUID == 0 && -z ${STAG_STATE-} ]] && base=/var/lib/stag
			COMPREPLY=($(cd "$base" 2>/dev/null && compgen -d -- "$cur") $(compgen -f -- "$cur"))
		elif ((COMP_CWORD == 4)) && [[ $verb == @(get|update|put|rm) ]]; then
			COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" pool ls "$pool" 2>/dev/null)" -- "$cur"))
		elif [[ $verb == @(switchover|forget) ]]; then
			COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" pool status "$pool" --json 2>/dev/null |
				sed -n '/"nodes"/,$s/.*"name": "\(.*\)".*/\1/p')" -- "$cur"))
		else
			COMPREPLY=($(compgen -f -- "$cur"))
		fi
		;;
	esac
}

_stagd() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}

	case $prev in
	--config | -c) COMPREPLY=($(compgen -f -- "$cur")) ;;
	*) COMPREPLY=($(compgen -W '--config --check --json --help --version' -- "$cur")) ;;
	esac
}

# The colons divide words for bash: what is before the last one is not the word any more.
_stag_allow() {
	COMPREPLY=($(compgen -W 'user: group: local: net: remote: token: owner' -- "$cur"))
	[[ ${COMPREPLY[*]} == *: ]] && type compopt &>/dev/null && compopt -o nospace 2>/dev/null
	return 0
}

_stag_program() {
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif ((COMP_CWORD == $1)); then
		COMPREPLY=($(compgen -c -- "$cur"))
	else
		COMPREPLY=($(compgen -f -- "$cur"))
	fi
}

complete -o filenames -F _stag stag
complete -o filenames -F _stagd stagd
