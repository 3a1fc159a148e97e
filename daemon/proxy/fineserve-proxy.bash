# bash completion for fineserve-proxy

_fineserve_proxy() {
  local current=${COMP_WORDS[COMP_CWORD]}
  local previous=${COMP_WORDS[COMP_CWORD - 1]}
  local words
  case "$previous" in
    --fleet | --access-log | --tls-cert | --tls-key)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    --runtime-dir)
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      return
      ;;
    --log-level) words="trace debug info warn error" ;;
    --listen | --admin | --max-body | --max-bodies | --max-connections | --recent-requests | --otlp-endpoint | --trace-sample) return ;;
    *) words="--fleet --listen --admin --runtime-dir --max-body --max-bodies --max-connections --no-page-logs --log-level --access-log --recent-requests --otlp-endpoint --trace-sample --tls-cert --tls-key --check --help --version" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _fineserve_proxy fineserve-proxy
