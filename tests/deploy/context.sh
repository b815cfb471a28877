#!/usr/bin/env bash
# Configures what the image files copy, alone: whatever else building needs would be missing in a container.
#   context.sh IMAGE_FILE SHADER_TOOLS
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The lines of the stages that compile, as docker reads them.
sed -n '/^FROM .* AS packages$/,/^FROM .* AS service$/s/^COPY //p' "$1" >"$work/lines"
[ -s "$work/lines" ] || { echo "no COPY in the build stage of $1" >&2; exit 1; }
while read -r -a words; do
  target=$work/src/${words[-1]}
  for source in "${words[@]:0:${#words[@]}-1}"; do
    if [ -d "$repository/$source" ]; then mkdir -p "$target" && cp -r "$repository/$source/." "$target"
    else mkdir -p "$target" && cp "$repository/$source" "$target"; fi
  done
done <"$work/lines"
cmake -S "$work/src" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTANDEM_BUILD_TESTS=OFF \
  -DTANDEM_SHADER_TOOLS="$2" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }
