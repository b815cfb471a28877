#!/usr/bin/env bash
# GCC takes the precompiled headers of cmake/TandemPrecompiled.cmake, whatever macros a package brings; and where a
# header cannot fit, the build goes on without it.  With a compiler cache, a header is known by what it includes.
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

if ! ccache=$(command -v ccache); then
  echo "NOT TESTED: precompiled headers with a compiler cache, as there is no ccache"
  exit 0
fi
export CCACHE_DIR=$work/ccache
echo 'inline constexpr int kIncluded = 1;' >"$work/included.h"
printf '#pragma GCC system_header\n#include "included.h"\n' >"$work/header.hxx"  # as CMake writes it
touch "$work/header.hxx.cxx"
precompile() {
  (cd "$work" && "$here/../../scripts/compile-cached" "$ccache" g++ -fpch-preprocess -Wall -Werror -Winvalid-pch -x c++-header -include "$work/header.hxx" -MD \
    -MT header.hxx.gch -MF header.d -o header.hxx.gch -c "$work/header.hxx.cxx") >"$work/log" 2>&1 || fail "no precompiled header"
  grep -q "included.h" "$work/header.d" || fail "the header's dependencies are $(cat "$work/header.d")"
}
precompile
cp "$work/header.hxx.gch.sum" "$work/before"
precompile
cmp "$work/header.hxx.gch.sum" "$work/before" || fail "the same header has another hash"
echo 'inline constexpr int kIncluded = 2;' >"$work/included.h"
precompile
if cmp -s "$work/header.hxx.gch.sum" "$work/before"; then fail "another header has the same hash"; fi
echo "the cache knows a precompiled header by what it includes"
