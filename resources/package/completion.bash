# bash completion for pipewright. Commands, options and their values are read from the program's own --help, so they are those of the
# program that is called.

# The entries of one section of a help text ("Options", "Subcommands", "Positionals"), a line each.
_pipewright_section() { sed -n "/^$1:\$/,/^\$/ { /^  [^ ]/ s/^  //p }" <<<"$2"; }

_pipewright() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]/#\~\//"$HOME/"} command='' help label i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      command=${COMP_WORDS[i]}
      break
    fi
  done
  help=$("$program" ${command:+"$command"} --help 2>/dev/null) || return
  COMPREPLY=()

  # What the option before takes: `--balance time|memory`, `--out F.json`; nothing for a flag.
  label=''
  if [[ $before == -* ]]; then
    label=$(_pipewright_section Options "$help" | awk -v name="$before" '$1 == name && !/^[^ ]+  / { print $2 }')
  elif [[ $command == schedule && $before == schedule && $word != -* ]]; then
    label=NAME
  fi
  if [[ -z $label && $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_pipewright_section Options "$help" | awk '{ print $1 }' | tr ',' '\n')" -- "$word")
  elif [[ -z $label && -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_pipewright_section Subcommands "$help" | awk '{ print $1 }')" -- "$word")
  elif [[ $label == *\|* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(tr '|' '\n' <<<"$label" | grep -x '[a-z0-9-]*')" -- "$word")
  elif [[ $label == NAME && ($before == --schedule || $before == schedule) ]]; then
    mapfile -t COMPREPLY < <(compgen -W "list $("$program" schedule list 2>/dev/null | awk 'NR > 1 && /^[a-z0-9]/ { print $1 }')" -- "$word")
  fi
  if ((${#COMPREPLY[@]} == 0)) && [[ $word != -* ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}

complete -F _pipewright pipewright
