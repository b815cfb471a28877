#!/usr/bin/env bash
# report_test.sh SOURCES KERNEL_REPORT [renew]: the main models' kernels on the three chips do not spill,
# use no scratch memory, have the instructions that they are made for, and are no more than 5% worse than
# the baseline.  Skipped without RADV of Mesa 25.0.  `renew` writes the baseline.
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
exec "$report" "${arguments[@]}" --check --baseline "$baseline"
