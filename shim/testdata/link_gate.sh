#!/bin/sh
# Checks the linked shim: link_gate.sh needed|glibc|exports LIBRARY EXPORTS.MAP
set -eu
gate=$1 library=$2 map=$3

fail() {
  echo "link gate $gate: $*" >&2
  exit 1
}

[ -r "$library" ] || fail "no library $library: build fineserve_shim"

case $gate in
  needed)  # only the C library and the dynamic linker
    extra=$(objdump -p "$library" | awk '$1 == "NEEDED" { print $2 }' |
      grep -vE '^(libc\.so\.6|ld-linux-[a-z0-9_-]+\.so\.[0-9])$' || true)
    [ -z "$extra" ] || fail "needs $extra"
    ;;
  glibc)  # nothing newer than 2.35, the oldest C library that we support
    newest=$(objdump -T "$library" | grep -o 'GLIBC_[0-9.]*' |
      sed s/GLIBC_// | sort -V | tail -n 1)
    highest=$(printf '%s\n2.35\n' "$newest" | sort -V | tail -n 1)
    [ "$highest" = 2.35 ] || fail "needs glibc $newest"
    ;;
  exports)  # exactly the names in the version script
    expected=$(sed -n '/global:/,/local:/s/^ *\([a-zA-Z_0-9]*\);$/\1/p' "$map" |
      sort)
    actual=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
    [ "$expected" = "$actual" ] || fail "exports $actual"
    ;;
  *)
    fail "unknown gate"
    ;;
esac
