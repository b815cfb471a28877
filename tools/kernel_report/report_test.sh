#!/usr/bin/env bash
# report_test.sh SOURCES KERNEL_REPORT [renew|predict|submissions]: the main models' kernels on the three chips do not
# spill, use no scratch memory, have the instructions that they are made for, and are at most 5% worse
# than the baseline.  Skipped without RADV of Mesa 25.0.  `renew` writes the baseline.  `predict` compares
# predictions for the H200 with what was measured there.  `submissions`: on the emulated clock of a 780M no
# submission of a 27B model is longer than 100 ms.
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

if [ "${3:-}" = submissions ]; then
  submissions() {
    "$report" --chip phoenix --model 'synthetic:gemma3-27b?type=q4_0' --submissions --prompt 2048 \
      --batch 1,64 --depth 8192 "$@"
  }
  # The steps: four of a prompt of 2,048, and two that decode.
  cut=$(submissions --max-rows 512)
  printf '%s\n' "$cut"
  [ "$(grep -c '^512 rows @' <<<"$cut")" = 4 ] && [ "$(grep -c ' sequences @8192' <<<"$cut")" = 2 ]
  # Without cuts each of them is one submission, of seconds.
  whole=$(submissions --max-rows 512 --longest-submission-ms 0)
  printf '%s\n' "$whole"
  [ "$(awk '/^512 rows @/ && $4 == 1 && $5 > 1000' <<<"$whole" | wc -l)" = 4 ]
  # A stage of too many rows cannot be cut: the worker says how many fit, and that many do.
  if warned=$(TANDEM_LOG=warning submissions --max-rows 2048 2>&1); then
    printf 'a stage of 2048 rows passed the check:\n%s\n' "$warned"
    exit 1
  fi
  printf '%s\n' "$warned"
  case "$warned" in
  *'stage=Ffn layer=0 rows=2048'*'remedy="--max-rows 1024'*) ;;
  *) exit 1 ;;
  esac
  submissions --max-rows 1024
  exit
fi

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
