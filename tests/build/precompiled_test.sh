#!/usr/bin/env bash
# GCC takes the precompiled headers of cmake/TandemPrecompiled.cmake, whatever macros a package brings; and where a
# header cannot fit, the build goes on without it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { cat "$work/log"; echo "FAILED: $*"; exit 1; }

cmake -S "$here/precompiled" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER=g++ >"$work/log" 2>&1 ||
  fail "the small project cannot be configured"
cmake --build "$work/build" -j 2 >"$work/log" 2>&1 || fail "the small project does not build"
for header in library library_rpc program_rpc; do
  [ -s "$work/build/CMakeFiles/tandem_precompiled_$header.dir/cmake_pch.hxx.gch" ] ||
    fail "no precompiled header $header"
done
uses() { grep -q "^build CMakeFiles/$1.dir/unit.*CMakeFiles/tandem_precompiled_$2.dir/" "$work/build/build.ninja"; }
for library in messages beside more misfit; do
  uses "tandem_$library" library || fail "tandem_$library does not use the plain header"
done
for library in calls hidden_calls; do
  uses "tandem_$library" library_rpc || fail "tandem_$library does not use the header with RPCs"
done
refused=$(grep -c 'cmake_pch.hxx.gch.*\[-Winvalid-pch\]' "$work/log" || true)
[ "$refused" = 1 ] || fail "GCC refused $refused precompiled headers, not that of tandem_misfit alone"
grep -q "STANDARD_HEADER_ASKS_FOR_THIS" "$work/log" || fail "GCC does not name the macro"
echo "precompiled headers fit all targets but the one that was made not to fit"
