# bash completion for fsctl

_fsctl_words() {
  case "$1" in
    slabs) echo "--all --by" ;;
    top) echo "--interval --once" ;;
    explain) echo "--last" ;;
    geometry) echo "--pool --model --format --slab --granule --running --engines --granularity --max-handles --all" ;;
    plan) echo "--policy --footprint --kvpr --explain --what-if --svg --history --freeze --thaw --apply --pin --unpin" ;;
    profile) echo "--model --batches --prompts --output --budget --chunk-tokens --api-key-file --chat --even-if-busy --architecture --quantisation --tp --weights --activations --kv-token-bytes" ;;
    up) echo "--dry-run --keep-orphans --logs --mps --timestamps" ;;
    apply) echo "--yes --dry-run --drain --timeout" ;;
    restart) echo "--rolling --drain --timeout" ;;
    stop) echo "--drain --timeout" ;;
    start) echo "--timeout" ;;
    logs) echo "--lines --follow" ;;
    requests) echo "--most --follow --model --admin" ;;
    trace | usage) echo "--admin" ;;
    support) echo "--fleet --config --logs --output" ;;
    drain) echo "--all --undo --wait" ;;
    limit) echo "none" ;;
    evict | activate) echo "--timeout" ;;
    keys) echo "show new trust distrust --replace" ;;
    upgrade) echo "--check --binary --timeout" ;;
    run) echo "--name --kv-size --no-daemon --view --view=required --view=1 --no-view --evict --" ;;
  esac
}

# UUIDs of the GPUs whose daemon has a socket. Finds the folder as
# daemon/contract/abi/socket_path.h does.
_fsctl_gpus() {
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

_fsctl() {
  local current=${COMP_WORDS[COMP_CWORD]}
  local previous=${COMP_WORDS[COMP_CWORD - 1]}
  local commands="status top models engines slabs requests trace usage store metrics up apply restart stop start run drain limit evict activate upgrade doctor logs stack explain support plan profile geometry nodes keys help version"
  local flags="--gpu --json --color --help"
  local i command=""
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${COMP_WORDS[i]}" in
      --)  # the command line of another program follows
        COMPREPLY=()
        if ((i + 1 == COMP_CWORD)); then
          mapfile -t COMPREPLY < <(compgen -c -- "$current")
        else
          mapfile -t COMPREPLY < <(compgen -f -- "$current")
        fi
        return
        ;;
      status | top | models | engines | slabs | requests | trace | usage | store | metrics | up | apply | restart | stop | start | run | drain | limit | evict | activate | upgrade | doctor | logs | stack | explain | support | plan | profile | geometry | nodes | keys | help | version)
        [[ -n "$command" ]] || command=${COMP_WORDS[i]}
        ;;
    esac
  done
  local words
  case "$previous" in
    --gpu) words=$(_fsctl_gpus) ;;
    --color) words="auto always never" ;;
    --footprint) words="paper released" ;;
    --kvpr) words="v1 v3" ;;
    --policy) words="fineserve fineserve-exact fineserve-opt prism prism-mended prism-opt static dedicated s-partition muxserve qlm" ;;
    --by) words="slab state format engine age density" ;;
    --interval | --timeout | --name | --kv-size | --last | --most | --admin | --pool | --model | --format | --slab | --granule | --engines | --granularity | --max-handles | --model | --batches | --prompts | --budget | --chunk-tokens | --architecture | --quantisation | --tp | --weights | --activations | --kv-token-bytes | --explain | --what-if | --pin | --unpin | --drain | --lines | --wait) return ;;
    --output | --api-key-file | --fleet | --config | --binary)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    --logs)
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      return
      ;;
    help) words="$commands $flags" ;;
    explain | stack | doctor) words="$(ps -e -o pid=) $flags $(_fsctl_words "$previous")" ;;
    *)
      words="$flags $(_fsctl_words "$command")"
      [[ -n "$command" ]] || words="$commands $flags --version"
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _fsctl fsctl
