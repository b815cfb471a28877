#!/usr/bin/env bash
# Runs every fuzz target for a time: tests/fuzz/run.sh SECONDS BUILD_DIR [MORE_SECONDS NAME...]
# All at once: with fewer processors than targets each runs so much longer that it has SECONDS of one, and
# no processor waits for the last target.  The targets named NAME_fuzzer have MORE_SECONDS, if that is more.
# One line for each.  Fails when one crashes, hangs or leaks: leaves the input and the log in
# BUILD_DIR/fuzzers/NAME.found/ and prints the log's end and the input in base64, so that what was
# printed is enough to see it again (base64 -d >INPUT; BUILD_DIR/fuzzers/NAME INPUT).
set -euo pipefail

if [[ $# -lt 2 || ! $1 =~ ^[0-9]+$ || ! -d $2/fuzzers || ! ${3:-0} =~ ^[0-9]+$ ]]; then
  echo "usage: $0 SECONDS BUILD_DIR [MORE_SECONDS NAME...] (with the fuzzers target built)" >&2
  exit 2
fi
seconds=$1
more_seconds=$((${3:-0} > seconds ? ${3:-0} : seconds))
more=" ${*:4} "
num_more=$(($# > 3 ? $# - 3 : 0))
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
  local status=0 time=$shared of_processor=$seconds
  if [[ $more == *" ${name%_fuzzer} "* ]]; then
    time=$shared_more of_processor=$more_seconds
  fi
  timeout -k 10 $((time + 60)) "$binary" "$work" "$seeds" \
    -max_total_time="$time" -timeout="$hang" -rss_limit_mb=1024 -malloc_limit_mb=256 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="$found/" >"$found/log" 2>&1 || status=$?
  rm -rf "$work"
  local runs
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$found/log")
  if [[ $status -ne 0 ]]; then
    report "$name" "$found" "$status"
    return 1
  fi
  echo "$name: ${runs:-0} inputs in $of_processor s of a processor, nothing found"
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
# When the others have ended, those that are named go on.
at_once=$((num_more > processors ? processors : num_more > 0 ? num_more : 1))
shared_more=$((shared + ((more_seconds - seconds) * num_more + at_once - 1) / at_once))
export seconds shared hang corpora more more_seconds shared_more
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P 0 bash -c 'run_one "$1"' run_one
