# bash completion for fineserve-node

_fineserve_node() {
  local current=${COMP_WORDS[COMP_CWORD]}
  local previous=${COMP_WORDS[COMP_CWORD - 1]}
  local words
  case "$previous" in
    --fleet)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    --runtime-dir)
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      return
      ;;
    --log-level) words="trace debug info warn error" ;;
    *) words="--fleet --runtime-dir --log-level --check --help --version" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _fineserve_node fineserve-node
