#!/usr/bin/env bash
# Configuring again leaves every command of the build as it is, or ninja would
# compile again what has not changed. Takes the source folder.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$1"
for time in first second; do
  cmake --preset dev -B "$folder/build" >/dev/null
  ninja -C "$folder/build" -t commands >"$folder/$time"
done
[ -s "$folder/first" ] || { echo "ninja printed no command" >&2; exit 1; }
diff "$folder/first" "$folder/second"
