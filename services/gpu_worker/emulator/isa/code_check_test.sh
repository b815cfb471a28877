#!/usr/bin/env bash
# code_check_test.sh KERNEL_REPORT CODE_CHECK: compiles the main models' kernels for three Radeons and
# fails where the interpreter does not know an instruction.  Ends with 77 where RADV of Mesa 25.0 is
# missing.
set -euo pipefail
report=$1
check=$2
reason=$("$report" --find-radv 2>&1) || { printf 'SKIPPED: %s\n' "$reason"; exit 77; }
code=$(mktemp)
trap 'rm -f "$code"' EXIT
for chip in 780M 890M 8060S; do
  "$report" --chip "$chip" --main-set --assembly '[' >"$code" 2>/dev/null
  "$check" "$chip" <"$code"
done
