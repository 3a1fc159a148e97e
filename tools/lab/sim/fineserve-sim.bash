# bash completion for fineserve-sim

_fineserve_sim() {
  local current=${COMP_WORDS[COMP_CWORD]}
  local previous=${COMP_WORDS[COMP_CWORD - 1]}
  local words
  case "$previous" in
    --fleet | --site | --trace | --lengths | --json | --svg)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    --policy) words="fineserve moore-hodgson fcfs" ;;
    --map | --model | --seconds | --scale | --speed | --seed | --most-input | --most-output | --limit) return ;;
    *) words="--fleet --site --trace --map --lengths --model --seconds --scale --speed --seed --most-input --most-output --policy --frozen --limit --no-max-tokens --no-bound --json --svg --quiet --help --version" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _fineserve_sim fineserve-sim
