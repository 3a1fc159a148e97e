# bash completion for fineserved

_fineserved() {
  local current=${COMP_WORDS[COMP_CWORD]}
  local previous=${COMP_WORDS[COMP_CWORD - 1]}
  local words
  case "$previous" in
    --config | --fleet)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    --runtime-dir)
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      return
      ;;
    --gpu) words="emulated $(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null)" ;;
    --log-level) words="trace debug info warn error" ;;
    --pool) words="auto" ;;
    --reserve | --headroom | --max-pool | --store | --slab | --planes | --metrics) return ;;
    *) words="--gpu --pool --reserve --headroom --max-pool --store --slab --planes --config --fleet --metrics --runtime-dir --log-level --dry-run --supervise --check-takeover --help --version" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _fineserved fineserved
