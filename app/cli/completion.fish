# SPDX-License-Identifier: BSD-2-Clause
# fish completion for stag(1) and stagd(8); 'stag completion fish' prints it.
#
# The program itself knows what may follow the words typed so far: PROGRAM --complete WORD... prints it. A line that
# begins with a colon requests what fish does itself.

function __stag_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -l value (string replace -r '^--[^=]*=' '' -- $typed)
    set -l before (string match -r '^--[^=]*=' -- $typed)

    for line in ($program --complete $words[2..-1] "$typed" 2>/dev/null)
        switch $line
            case :files
                printf '%s\n' "$before"(__fish_complete_path "$value")
            case :directories
                printf '%s\n' "$before"(__fish_complete_directories "$value")
            case :users
                __fish_complete_users
            case :hosts
                __fish_print_hostnames
            case ':command *'
                set -l skip (string replace ':command ' '' -- $line)
                complete -C (string join ' ' -- (string escape -- $words[(math $skip + 1)..-1]) "$typed")
            case :nospace
            case '*'
                echo $line
        end
    end
end

complete -c stag -f -a '(__stag_complete)'
complete -c stagd -f -a '(__stag_complete)'
