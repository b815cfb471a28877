#!/usr/bin/env bash
# report_test.sh SOURCES KERNEL_REPORT [renew|predict]: the main models' kernels on the three chips do not
# spill, use no scratch memory, have the instructions that they are made for, and are no more than 5% worse
# than the baseline.  Skipped without RADV of Mesa 25.0.  `renew` writes the baseline.  `predict` compares
# predictions for the H200 with what was measured there.
set -euo pipefail
sources=$1
report=$2
baseline=$sources/tools/kernel_report/baseline.json

arguments=(--main-set --chip 'phoenix,gfx1150,gfx1151')
if [ "${3:-}" = renew ]; then exec "$report" "${arguments[@]}" --check --write-baseline "$baseline"; fi

# The exit code for a missing RADV is also that of other missing files, so look first.
if ! reason=$("$report" --find-radv 2>&1); then
  printf 'SKIPPED, so no kernel was compiled for a Radeon: %s\n' "$reason"
  exit 77
fi
if [ "${3:-}" = predict ]; then exec "$report" --validate "$sources/tools/kernel_report/h200.json"; fi

# The check sees what it is for: the kernel of prompt attention for other chips spills on these.
if seen=$("$report" --model 'synthetic:gemma3-4b?type=q4_k_m' --chip phoenix --check --set tiled_rows=0 2>&1); then
  printf 'a kernel that spills passed the check\n'
  exit 1
fi
case "$seen" in
*'tiled_cooperative['*'spills 604 vector registers'*) ;;
*)
  printf 'a kernel that spills was refused for another reason: %s\n' "$seen"
  exit 1
  ;;
esac
exec "$report" "${arguments[@]}" --check --baseline "$baseline"
