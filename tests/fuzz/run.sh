#!/usr/bin/env bash
# Runs every fuzz target for a time: tests/fuzz/run.sh SECONDS BUILD_DIR
# All at once: with fewer processors than targets each runs so much longer that it has SECONDS of one, and
# no processor waits for the last target.
# One line for each.  Fails when one crashes, hangs or leaks: leaves the input and the log in
# BUILD_DIR/fuzzers/NAME.found/ and prints the log's end and the input in base64, so that what was
# printed is enough to see it again (base64 -d >INPUT; BUILD_DIR/fuzzers/NAME INPUT).
set -euo pipefail

if [[ $# -ne 2 || ! $1 =~ ^[0-9]+$ || ! -d $2/fuzzers ]]; then
  echo "usage: $0 SECONDS BUILD_DIR (with the fuzzers target built)" >&2
  exit 2
fi
seconds=$1
processors=$(nproc)
fuzzers=$(cd "$2/fuzzers" && pwd)
corpora=$(cd "$(dirname "$0")" && pwd)/corpus

# In one piece: another target may be printing.
report() {
  local name=$1 found=$2 status=$3 text input
  text="$name: FAILED ($status), see $found; the log ends:"$'\n'$(tail -n 40 "$found/log")
  for input in "$found"/*-*; do
    [[ -f $input ]] || continue
    text+=$'\n'"$name: $(basename "$input"), $(wc -c <"$input") bytes in base64:"$'\n'$(base64 "$input")
  done
  printf '%s\n' "$text"
}

run_one() {
  local binary=$1 name found work
  name=$(basename "$binary")
  found=$binary.found
  work=$(mktemp -d)
  mkdir -p "$found"
  local seeds=$corpora/${name%_fuzzer}
  [[ -d $seeds ]] || { echo "$name: no seed corpus at $seeds"; return 1; }
  # New inputs go to the first folder, so the seeds in the repository stay as they are.
  local status=0
  timeout -k 10 $((shared + 60)) "$binary" "$work" "$seeds" \
    -max_total_time="$shared" -timeout="$hang" -rss_limit_mb=1024 -malloc_limit_mb=256 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="$found/" >"$found/log" 2>&1 || status=$?
  rm -rf "$work"
  local runs
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$found/log")
  if [[ $status -ne 0 ]]; then
    report "$name" "$found" "$status"
    return 1
  fi
  echo "$name: ${runs:-0} inputs in $seconds s of a processor, nothing found"
  rm -rf "$found"
}
export -f report run_one

targets=()
for binary in "$fuzzers"/*_fuzzer; do
  [[ -x $binary ]] && targets+=("$binary")
done
[[ ${#targets[@]} -gt 0 ]] || { echo "no fuzz targets in $fuzzers" >&2; exit 2; }
# An input may take 10 s of a processor.
shared=$seconds
hang=10
if [[ ${#targets[@]} -gt $processors ]]; then
  shared=$(((seconds * ${#targets[@]} + processors - 1) / processors))
  hang=$(((10 * ${#targets[@]} + processors - 1) / processors))
fi
export seconds shared hang corpora
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P 0 bash -c 'run_one "$1"' run_one
