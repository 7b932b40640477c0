# SPDX-License-Identifier: BSD-2-Clause
# bash completion for stag(1) and stagd(8)
#
# Commands, verbs and options are what the program's own help says, so that nothing here has to be kept in step with it.
# What is here is what help does not know: names that are alive, files, and the words of some options.

# help of a command, and of its verb; without names of what is not there
_stag_help() {
	"$stag" help "$@" 2>/dev/null
}

# The verbs of a command: in its usage, or in a table of words.
_stag_verbs() {
	_stag_help "$1" | awk -v noun="$1" '
		/^$/ { body = 1 }
		!body { sub(/^usage:/, "      "); if ($1 == "stag" && $2 == noun && $3 ~ /^[a-z]+$/ && !seen[$3]++) { print $3; found = 1 } }
		body && !found && /^  [a-z]+  / { print $1 }'
}

# The options that a help text explains; with a value behind those that want one: --size SIZE
_stag_options() {
	awk '/^  (-[a-zA-Z], )?--[a-z]/ {
		line = substr($0, 3)
		sub(/   *.*/, "", line)
		n = split(line, parts, /, /)
		for (i = 1; i <= n; i++) if (parts[i] ~ /^--/) print parts[i]
	}'
}

# Does $prev want a value? Then the words are known, or files are, or nothing is.
_stag_value() {
	local value
	[[ $prev == --* ]] || return 1
	value=$(awk -v option="$prev" '$1 == option && NF > 1 { print $2; exit }' <<<"$options")
	[[ $value ]] || return 1
	case $prev in
	--order) value='strict any writes reads later atomics completions processing' ;;
	--level) value='visible accepted durable' ;;
	--allow)
		_stag_reply 'user: group: local: net: remote: token: owner'
		[[ ${COMPREPLY[*]} == *: ]] && type compopt &>/dev/null && compopt -o nospace 2>/dev/null
		return 0
		;;
	--op) value='read write mix' ;;
	--log) value='none err warn info debug' ;;
	--one-shot) value='opcodes literal bits off' ;;
	--congestion) value=$(cat /proc/sys/net/ipv4/tcp_available_congestion_control) ;;
	--phase) value=$("$stag" torture pool --list 2>/dev/null | awk '{ print $1 }') ;;
	--etcd) value='1 3' ;;
	--sort) value='traffic requests latency pid' ;;
	--user) [[ $noun == top ]] && COMPREPLY=($(compgen -u -- "$cur")) && return 0 ;;
	--pid) value=$("$stag" top --count 1 --interval 0.01 2>/dev/null | awk '/^[0-9]+ / { print $1 }' | sort -u) ;;
	--device) value="stag0 $(ls /sys/class/infiniband 2>/dev/null)" ;;
	--case) value=$("$stag" bench $verb --list 2>/dev/null | cut -f1 | cut -d/ -f2) ;;
	--only | --part) value=$(_stag_listed "$prev") ;;
	--connect) COMPREPLY=($(compgen -A hostname -- "$cur")) && return 0 ;;
	--dir | --directory) COMPREPLY=($(compgen -d -- "$cur")) && return 0 ;;
	--from | --check | --library | --log-file | --trace | --token | *-file | --secrets | --html | --output)
		COMPREPLY=($(compgen -f -- "$cur"))
		return 0
		;;
	*) [[ $value == *[a-z0-9]'|'* ]] && value=${value//|/ } || value= ;;
	esac
	_stag_reply "$value"
}

# The words that the help of an option lists: "  --case NAME   churn_64, churn_4k; or ..."
_stag_listed() {
	awk -v option="$1" '
		/^  --/ { on = $1 == option; sub(/^  --[a-z-]+ [^ ]+/, "") }
		on && /^ / { text = text $0 }
		END { sub(/;.*/, "", text); gsub(/,/, " ", text); print text }' <<<"$text"
}

_stag_reply() {
	COMPREPLY=($(compgen -W "$1" -- "$cur"))
}

# bash divides words at colons and equals signs: put together again what has no space in between.
_stag_words() {
	local i glue=
	words=() cword=0
	for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
		if ((i > 0)) && [[ $glue || ${COMP_WORDS[i]} == [:=]* ]]; then
			words[${#words[@]} - 1]+=${COMP_WORDS[i]}
		else
			words+=("${COMP_WORDS[i]}")
		fi
		glue=
		[[ ${COMP_WORDS[i]} == *[:=] ]] && glue=1
		((i == COMP_CWORD)) && cword=$((${#words[@]} - 1))
	done
	cur=${words[cword]} prev=${words[cword - 1]}
}

# And of what we reply, take away what bash thinks is not part of the word.
_stag_trim() {
	local i
	[[ $cur == *:* && $COMP_WORDBREAKS == *:* ]] || return 0
	for ((i = 0; i < ${#COMPREPLY[@]}; i++)); do
		COMPREPLY[i]=${COMPREPLY[i]#"${cur%"${cur##*:}"}"}
	done
}

# The arguments so far, without options and their values.
_stag_arguments() {
	local i word
	arguments=()
	for ((i = first; i < cword; i++)); do
		word=${words[i]}
		if [[ $word == --*=* ]]; then
			continue
		elif [[ $word == -* ]]; then
			grep -qE -- "^$word [^ ]" <<<"$options" && ((i++))
		else
			arguments+=("$word")
		fi
	done
}

# ---- names that are alive ------------------------------------------------------------------

_stag_heaps() {
	(cd /dev/shm 2>/dev/null && compgen -G 'stag-heap.*' | cut -d. -f2-)
}

_stag_partitions() {
	"$stag" store list "$1" 2>/dev/null | awk 'NR > 1 { print $1 }'
}

_stag_pools() {
	local base=${STAG_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/stag}
	[[ $EUID == 0 && -z ${STAG_STATE-} ]] && base=/var/lib/stag
	(cd "$base" 2>/dev/null && compgen -d)
}

_stag_nodes() {
	timeout 2 "$stag" pool status "$1" --json 2>/dev/null | sed -n '/"nodes"/,$s/.*"name": "\(.*\)".*/\1/p'
}

# NAME PORT of the targets that run here
_stag_targets() {
	timeout 2 "$stag" block sessions 2>/dev/null | sed -nE 's/^([^ ,]+), port ([0-9]+), process .*/\1 \2/p'
}

_stag_store() {
	case ${#arguments[@]} in
	0) COMPREPLY=($(compgen -f -- "$cur")) ;;
	1)
		case $verb in
		show | set | rename | rm) _stag_reply "$(_stag_partitions "${arguments[0]}")" ;;
		read | write) COMPREPLY=($(compgen -f -- "$cur")) ;;
		esac
		;;
	esac
}

_stag_block() {
	case $verb,${#arguments[@]} in
	sessions,0 | stags,0) _stag_reply "$(_stag_targets)" ;;
	discover,0) _stag_reply "$(_stag_targets | awk '{ print "iscsi://127.0.0.1:" $2 }')" ;;
	info,0 | bench,0 | read,0 | write,0) _stag_reply "$(_stag_targets | awk '{ print "stag://127.0.0.1:" $2 "/" $1 "/" }')" ;;
	read,1 | write,1) COMPREPLY=($(compgen -f -- "$cur")) ;;
	esac
}

_stag_pool() {
	case $verb,${#arguments[@]} in
	create,*) ;;
	*,0) COMPREPLY=($(compgen -W "$(_stag_pools)" -- "$cur") $(compgen -f -- "$cur")) ;;
	get,1 | update,1 | put,1 | rm,*) _stag_reply "$(timeout 2 "$stag" pool ls "${arguments[0]}" 2>/dev/null)" ;;
	switchover,1 | forget,1) _stag_reply "$(_stag_nodes "${arguments[0]}")" ;;
	*) COMPREPLY=($(compgen -f -- "$cur")) ;;
	esac
}

_stag_bench() {
	case $verb,${#arguments[@]} in
	part,0) _stag_reply 'tcp verbs xfer heap pool object file' ;;
	compare,[01] | page,[01]) COMPREPLY=($(compgen -f -- "$cur")) ;;
	part,* | compare,* | page,*) ;;
	*) _stag_reply 'verbs xfer heap store block pool' ;;
	esac
}

# Behind its options comes another command line, with its own completion.
_stag_run() {
	local i word
	for ((i = 2; i < cword; i++)); do
		word=${words[i]}
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
	_stag_value && return
	if [[ $cur == -* ]]; then
		_stag_reply "$(awk '{ print $1 }' <<<"$options") --"
	else
		COMPREPLY=($(compgen -c -- "$cur"))
	fi
}

_stag_program() {
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif ((cword == $1)); then
		COMPREPLY=($(compgen -c -- "$cur"))
	else
		COMPREPLY=($(compgen -f -- "$cur"))
	fi
}

# ---- all of it -----------------------------------------------------------------------------

_stag_argument() {
	case $noun in
	store) _stag_store ;;
	block) _stag_block ;;
	pool) _stag_pool ;;
	bench) _stag_bench ;;
	heap) ((${#arguments[@]} == 0)) && _stag_reply "$(_stag_heaps)" ;;
	bench)
		case $verb in
		compare | page) COMPREPLY=($(compgen -f -- "$cur")) ;;
		part) ;;
		*) _stag_reply "$verbs" ;;
		esac
		;;
	esac
}

_stag() {
	local stag=${COMP_WORDS[0]/#\~\//$HOME/} words cword cur prev noun verb= verbs= text options arguments first=2

	COMPREPLY=()
	_stag_words
	noun=${words[1]-}
	if ((cword == 1)); then
		_stag_reply "$("$stag" --help 2>/dev/null | awk '/^  [a-z]+ / { print $1 }') --help --version"
		return
	fi
	if [[ $noun == help ]]; then
		case $cword in
		2) _stag_reply "$("$stag" --help 2>/dev/null | awk '/^  [a-z]+ / && $1 != "help" { print $1 }')" ;;
		3) _stag_reply "$(_stag_verbs "${words[2]}")" ;;
		esac
		return
	fi
	[[ $noun == run ]] || verbs=$(_stag_verbs "$noun")
	if [[ $verbs ]]; then
		if ((cword == 2)); then
			_stag_reply "$verbs --help"
			return
		fi
		verb=${words[2]} first=3
	fi
	text=$(_stag_help "$noun" $verb)
	options=$(_stag_options <<<"$text")
	_stag_arguments
	if [[ $noun == run ]]; then
		_stag_run
	elif _stag_value; then
		:
	elif [[ $cur == -* ]]; then
		_stag_reply "$(awk '{ print $1 }' <<<"$options")"
	else
		_stag_argument
	fi
	_stag_trim
}

_stagd() {
	local stag=${COMP_WORDS[0]/#\~\//$HOME/} words cword cur prev text options

	COMPREPLY=()
	_stag_words
	text=$("$stag" --help 2>/dev/null)
	options=$(_stag_options <<<"$text")
	case $prev in
	--config | -c) COMPREPLY=($(compgen -f -- "$cur")) ;;
	*) _stag_value || _stag_reply "$(awk '{ print $1 }' <<<"$options")" ;;
	esac
}

complete -o filenames -F _stag stag
complete -o filenames -F _stagd stagd
