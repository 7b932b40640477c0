#compdef stag stagd
# SPDX-License-Identifier: BSD-2-Clause
# zsh completion for stag(1) and stagd(8); 'stag completion zsh' prints it.
#
# The program itself knows what may follow the words typed so far: PROGRAM --complete WORD... prints it. A line that
# begins with a colon requests what zsh does itself.

_stag() {
	local program=${~words[1]} line
	local -a lines offers open

	lines=(${(f)"$($program --complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"})
	(( ${lines[(I):nospace]} )) && open=(-S '')
	[[ $PREFIX == --*=* ]] && (( ${lines[(I):(files|directories|users|hosts)]} )) && compset -P '*='
	for line in $lines; do
		case $line in
		:files) _files ;;
		:directories) _files -/ ;;
		:users) _users ;;
		:hosts) _hosts ;;
		:command*)
			words=("${(@)words[${line#:command } + 1,-1]}")
			(( CURRENT -= ${line#:command } ))
			_normal
			return
			;;
		:nospace) ;;
		*$'\t'*) offers+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
		*) offers+=("${line//:/\\:}") ;;
		esac
	done
	(( $#offers )) && _describe -V stag offers "${(@)open}"
}

_stag "$@"
