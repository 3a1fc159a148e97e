# shellcheck shell=bash
# bash completion for fsctl and for each fineserve program, from its --help.

# Reads a help text; prints its commands.
_fineserve_commands() {
  awk '/^Examples:/ { exit } /^  [a-z]+( |$)/ { print $1 }'
}

# Reads a help text; prints a line for each option: its name, the kind of its
# value (- if it takes none, = if it is joined to it), and the values by name.
_fineserve_options() {
  awk '/^Examples:/ { exit }
    match($0, /^ +(-[a-z],)?--[a-z0-9-]+/) {
      name = substr($0, 1, RLENGTH)
      sub(/^ +(-[a-z],)?/, "", name)
      rest = substr($0, RLENGTH + 1)
      kind = rest ~ /^\{/ ? "=" : "-"
      if (match(rest, /^ [A-Z=]+/) && rest !~ /^ [A-Z]+[a-z]/)
        kind = substr(rest, 2, RLENGTH - 1)
      values = ""
      if (match(rest, /:\{[^}]*\}/))
        values = substr(rest, RSTART + 2, RLENGTH - 3)
      gsub(/,/, " ", values)
      print name, kind, values
    }'
}

# UUIDs of the GPUs whose daemon has a socket. Finds the folder as
# daemon/contract/abi/socket_path.h does.
_fineserve_gpus() {
  local folder socket
  for folder in "${FINESERVE_RUNTIME_DIR:-}" /run/fineserve \
    "${XDG_RUNTIME_DIR:-/nonexistent}/fineserve" "/tmp/fineserve-$(id -u)"; do
    [[ -d "$folder" ]] || continue
    for socket in "$folder"/*.sock; do
      [[ -S "$socket" ]] && basename "$socket" .sock
    done
    return
  done
}

_fineserve() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]}
  local previous=${COMP_WORDS[COMP_CWORD - 1]}
  local help commands options command="" words="" name kind values value i
  help=$("$program" --help 2>/dev/null)
  commands=$(_fineserve_commands <<<"$help")
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ "${COMP_WORDS[i]}" == -- ]]; then  # another program's command line
      local what=-f
      ((i + 1 < COMP_CWORD)) || what=-c
      mapfile -t COMPREPLY < <(compgen "$what" -- "$current")
      return
    fi
    if [[ -z "$command" ]] && grep -qxF -e "${COMP_WORDS[i]}" <<<"$commands"; then
      command=${COMP_WORDS[i]}
    fi
  done
  options=$(_fineserve_options <<<"$help")
  if [[ -n "$command" ]]; then
    [[ "$command" == help ]] || commands=""
    help=$("$program" "$command" --help 2>/dev/null)
    commands+=" $(_fineserve_commands <<<"$help")"
    options+=$'\n'$(_fineserve_options <<<"$help")
  fi
  while read -r name kind values; do
    if [[ "$name" == "$previous" && "$kind" == [A-Z]* ]]; then
      if [[ "$program $name" == *"fsctl --gpu" ]]; then
        values=$(_fineserve_gpus)
      elif [[ "$name" == --gpu ]]; then
        values="emulated $(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null)"
      fi
      if [[ -n "$values" ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
      elif [[ "$kind" == TEXT ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
      fi
      return
    fi
    words+=" $name"
    for value in $values; do
      [[ "$kind" != "=" ]] || words+=" $name=$value"
    done
  done <<<"$options"
  case "$command" in
    run) words+=" --" ;;
    explain | stack | doctor) words+=" $(ps -e -o pid=)" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$commands $words" -- "$current")
}

complete -F _fineserve fsctl fineserved fineserve-node fineserve-proxy fineserve-sim
