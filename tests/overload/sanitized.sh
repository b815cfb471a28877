#!/usr/bin/env bash
# Runs the fault matrix (tests/faults) and the overload suite (tests/overload) with sanitizers:
#   tests/overload/sanitized.sh [asan|tsan] [--long]
# Without a name: AddressSanitizer and UndefinedBehaviorSanitizer, then ThreadSanitizer.  The short forms take
# about 10 minutes on two processors, --long some hours.  Any report is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
presets=()
long=()
for argument in "$@"; do
  case "$argument" in
    asan | tsan) presets+=("$argument") ;;
    --long) long=(--long) ;;
    *)
      sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
  esac
done
[ "${#presets[@]}" -gt 0 ] || presets=(asan tsan)
status=0
for preset in "${presets[@]}"; do
  scripts/build "$preset" attacked_programs
  echo "==> faults ($preset)"
  python3 -B tests/faults/faults_test.py "build/$preset/bin" "${long[@]}" || status=1
  echo "==> overload ($preset)"
  python3 -B tests/overload/overload_test.py "build/$preset/bin" --sanitized "${long[@]}" || status=1
done
exit "$status"
