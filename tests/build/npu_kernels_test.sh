#!/usr/bin/env bash
# npu_kernels_test.sh REPOSITORY PACKAGE_TOOL: scripts/npu-kernels without a toolchain, and with programs in place of
# Peano, aiecc, xclbinutil and bootgen that write down how they are called.  PACKAGE_TOOL: tandem-npu-package.
set -euo pipefail
repository=$1
package_tool=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/tandem-npu-kernels.XXXXXX")
trap 'rm -rf "$work"' EXIT
die() { echo "npu_kernels_test: $*" >&2; echo "it said:" >&2; cat "$work/said" >&2; exit 1; }
clone=$work/clone
mkdir -p "$work/tools" "$clone/scripts" "$clone/build/release/bin"
cp "$repository/scripts/npu-kernels" "$clone/scripts/"
ln -s "$repository/services" "$clone/services"
ln -s "$package_tool" "$clone/build/release/bin/tandem-npu-package"
calls=$work/calls
for tool in bash cat cp cut dirname env git grep head mkdir mv rm sed tail tr; do ln -s "$(command -v "$tool")" "$work/tools/$tool"; done
ln -s "$(python3 -c 'import sys; print(sys.executable)')" "$work/tools/python3"
# $1: a path; then lines.
program() { mkdir -p "$(dirname "$1")"; printf '%s\n' "${@:2}" >"$1"; chmod +x "$1"; }
program "$clone/scripts/build" '#!/usr/bin/env bash' "echo \"build \$*\" >>'$calls'"
printf 'build tandem_npu_aie_kernels: phony x\nbuild npu_array_designs: phony x\nbuild tandem_npu_driver_packages: phony x\n' \
  >"$clone/build/release/build.ninja"
# $1: folders before the tools; then arguments.
npu_kernels() {
  local path=$1
  shift
  : >"$calls"
  code=0
  env -i PATH="$path$work/tools" HOME="$work" PEANO_INSTALL_DIR="${peano:-}" MLIR_AIE_INSTALL_DIR="${mlir_aie:-}" \
    "$clone/scripts/npu-kernels" "$@" >"$work/said" 2>&1 || code=$?
}
says() { grep -qF -- "$1" "$work/said" || die "it does not say: $1"; }

echo "== wrong arguments"
for arguments in --wrong "--device npu9" --device; do
  # shellcheck disable=SC2086
  npu_kernels "" $arguments
  [ "$code" = 2 ] || die "$arguments: code $code"
  says "usage: scripts/npu-kernels"
done

echo "== no toolchain: each missing part by name, the host's builds, code 3"
npu_kernels ""
[ "$code" = 3 ] || die "code $code"
for part in "missing: Peano" "missing: aiecc" "missing: the AIE API's headers" "missing: xclbinutil" "missing: bootgen" \
  "Xilinx/llvm-aie" "Xilinx/mlir-aie" "libxrt-utils" "no package for an NPU: 5 parts"; do
  says "$part"
done
printf 'build release tandem-npu-package\nbuild release tandem_npu_aie_kernels npu_array_designs tandem_npu_driver_packages\n' |
  cmp - "$calls" || die "it built $(cat "$calls")"
npu_kernels "" --check
[ "$code" = 3 ] && [ ! -s "$calls" ] || die "--check: code $code, it ran $(cat "$calls")"

echo "== a clang without AIE is no Peano"
peano=$work/other
program "$peano/bin/clang++" '#!/usr/bin/env bash' 'echo "    x86-64 - 64-bit X86"'
npu_kernels "" --check
says "missing: Peano"

echo "== a toolchain: every operator of both devices"
peano=$work/peano
mlir_aie=$work/mlir_aie
mkdir -p "$mlir_aie/include/aie_api"
touch "$mlir_aie/include/aie_api/aie.hpp"
# Of one device it checks the programs' syntax, with the host's AIE API.
program "$peano/bin/clang++" '#!/usr/bin/env bash' \
  'case "$1" in --print-targets) printf "    aie2 - AI Engine\n    aie2p - AI Engine\n"; exit ;; --version) echo "clang version 0 (fake)"; exit ;; esac' \
  "echo \"clang \$*\" >>'$calls'" \
  "last=\${*: -1}; if grep -qsxF \"\${last##*/}\" '$work/fails'; then echo 'error: no such vector'; exit 1; fi" \
  'macros=(); for a in "$@"; do case "$a" in -D*) macros+=("$a") ;; esac; done' \
  'source=; object=; while [ $# -gt 0 ]; do case "$1" in -c) source=$2 ;; -o) object=$2 ;; esac; shift; done' \
  "if [ -e '$work/syntax' ]; then" \
  "  '$(command -v "${CXX:-c++}")' -std=c++20 -w -fsyntax-only \"\${macros[@]}\" -I '$repository' \\" \
  "    -isystem '$repository/services/npu_worker/kernels/aie_host' -include '$work/locks.h' \"\$source\" || exit 1" \
  'fi' 'echo object >"$object"'
printf '#include <aie_api/aie.hpp>\nvoid acquire_greater_equal(unsigned, unsigned);\nvoid release(unsigned, unsigned);\n' >"$work/locks.h"
program "$mlir_aie/bin/xclbinutil" '#!/bin/sh'
program "$mlir_aie/bin/bootgen" '#!/bin/sh'
cat >"$mlir_aie/bin/aiecc" <<'AIECC'
#!/usr/bin/env python3
"""In place of aiecc: takes the options that the script gives, and adds a kernel to an xclbin."""
import os
import re
import struct
import sys

FLAGS = {{flags}}
arguments = dict(a[2:].split("=", 1) if "=" in a else (a[2:], "") for a in sys.argv[1:] if a.startswith("--"))
if "help" in arguments:
    print(*FLAGS)
    sys.exit()
with open("{{calls}}", "a") as file:
    print("aiecc", *(f"{k}={os.path.basename(v)}" for k, v in sorted(arguments.items()) if k.startswith("xclbin")), file=file)
assert all(f[2:] in arguments for f in FLAGS), arguments
text = open(sys.argv[-1]).read()
for name in re.findall(r'link_with = "([^"]*)"', text):
    assert os.path.exists(name), f"no {name} in {os.getcwd()}"
name = arguments["xclbin-kernel-name"]
if os.path.exists("{{fails}}") and name in open("{{fails}}").read().split():
    print("error: no route")
    sys.exit(1)
names = [name]
if "xclbin-input" in arguments:
    names = open(arguments["xclbin-input"] + ".names").read().split() + names
if os.path.exists("{{drops}}"):
    names = names[:1]
layout = struct.pack("<ii", len(names), 0)
for kernel in names:
    layout += struct.pack("<II8s64s", 7, 1, b"\xff" * 8, f"{kernel}:{kernel}".encode())
connections = [(argument, i, 1 if argument == 1 else 0) for i in range(len(names)) for argument in (1, 3, 4, 5, 6, 7)]
connectivity = struct.pack("<i", len(connections)) + b"".join(struct.pack("<iii", *c) for c in connections)
columns = 8 if "device(npu2)" in text else 4
partition = bytearray(184)
struct.pack_into("<H", partition, 32, 3 if os.path.exists("{{narrow}}") else columns)
parts = ((8, layout), (27, connectivity), (32, bytes(partition)))
at = 456 + len(parts) * 40
head = bytearray(at)
head[:7] = b"xclbin2"
struct.pack_into("<Q", head, 304, at + sum(len(data) for _, data in parts))
struct.pack_into("<I", head, 448, len(parts))
for i, (kind, data) in enumerate(parts):
    struct.pack_into("<I", head, 456 + 40 * i, kind)
    struct.pack_into("<QQ", head, 456 + 40 * i + 24, at, len(data))
    at += len(data)
with open(arguments["xclbin-name"], "wb") as file:
    file.write(bytes(head) + b"".join(data for _, data in parts))
with open(arguments["xclbin-name"] + ".names", "w") as file:
    file.write(" ".join(names))
AIECC
chmod +x "$mlir_aie/bin/aiecc"
cp "$mlir_aie/bin/aiecc" "$work/aiecc.template"
# $1: the flags that this release asks for an xclbin with.
aiecc() {
  sed -e "s|{{flags}}|$1|" -e "s|{{calls}}|$calls|" -e "s|{{fails}}|$work/fails|g" -e "s|{{drops}}|$work/drops|" -e "s|{{narrow}}|$work/narrow|" \
    "$work/aiecc.template" >"$mlir_aie/bin/aiecc"
}
aiecc "['--get-xclbin']"
npu_kernels "" --device npu1
[ "$code" = 0 ] || die "code $code"
touch "$work/syntax"
npu_kernels "" --device npu4
[ "$code" = 0 ] || die "code $code"
rm "$work/syntax"
operators="attention_64 attention_128 attention_256 gemm_q8_0 gemm_q4_0 gemm_bf16 rows"
previous=
id=$((0x901))
for operator in $operators; do
  grep -q "^clang --target=aie2p-none-unknown-elf .*-DTANDEM_PROGRAM=${operator}_program .*-DAIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16 .*/$operator.o$" "$calls" ||
    die "$operator is not compiled for aie2p: $(grep clang "$calls")"
  expected="aiecc ${previous:+xclbin-input=$previous.xclbin }xclbin-instance-name=$operator xclbin-kernel-id=$(printf '0x%x' "$id") xclbin-kernel-name=$operator xclbin-name=$operator.xclbin"
  grep -qxF "$expected" "$calls" || die "not called: $expected; but $(grep aiecc "$calls")"
  previous=$operator
  id=$((id + 1))
done
[ "$(grep -c ^clang "$calls")" = 7 ] && [ "$(grep -c ^aiecc "$calls")" = 7 ] || die "other calls: $(cat "$calls")"
for device in npu1 npu4; do
  folder=$clone/build/npu-kernels/$device/package
  [ "$(cd "$folder" && echo *)" = "licences.txt operators.xclbin package.json" ] || die "it wrote $(ls "$folder")"
  "$package_tool" check "$folder" | grep -q "7 operators for $device" || die "the package of $device is not accepted"
  grep -q "IRON (Apache-2.0).*mlir-air (MIT)" "$folder/licences.txt" || die "licences are missing"
done
grep -q '"toolchain": "mlir-aie .*; clang version 0 (fake); .*IRON' "$folder/package.json" || die "its toolchain is missing"

echo "== an older aiecc, some operators, another folder"
aiecc "['--aie-generate-xclbin', '--no-compile-host', '--no-xchesscc', '--no-xbridge']"
npu_kernels "" --device npu4 --operators gemm_q4_0,rows --output "$work/out"
[ "$code" = 0 ] || die "code $code"
"$package_tool" check "$work/out/npu4/package" | grep -q "2 operators" || die "the package is not accepted"
npu_kernels "" --operators conv
[ "$code" = 1 ] || die "code $code"
says "no operator of conv: there are attention_64"

echo "== a step that fails names its operator"
echo gemm_q8_0.o >"$work/fails"
npu_kernels ""
[ "$code" = 1 ] || die "code $code"
says "operator gemm_q8_0 for npu1: the cores' program does not compile"
says "error: no such vector"
echo rows >"$work/fails"
npu_kernels "" --device npu4
[ "$code" = 1 ] || die "code $code"
says "operator rows for npu4: aiecc makes no xclbin of its array"
[ ! -e "$clone/build/npu-kernels/npu4/package" ] || die "the package before is left"
rm "$work/fails"

echo "== an xclbin without the kernels that were merged, or of fewer columns"
touch "$work/drops"
npu_kernels "" --device npu4
[ "$code" = 1 ] || die "code $code"
says "no kernel attention_128"
rm "$work/drops"
touch "$work/narrow"
npu_kernels "" --device npu4 --operators rows
[ "$code" = 1 ] || die "code $code"
says "it is for 3 columns, operator rows has 8"
echo "all of it holds"
