#!/usr/bin/env bash
# run.sh PROGRAM [ARGUMENT...]: runs a program of the build on the emulated amdxdna driver, over the XRT of
# .deps/xrt (scripts/fetch-xrt) or the machine's own where that is current.  The emulated chip and faults for
# tests: variables NPU_EMU_* (profile.h, ../fault_injection.h).  Ends with 77 and a message if something is missing.
#   NPU_DRIVER=FOLDER  the emulated driver (default: build/release/lib/tandem/npu-driver)
set -euo pipefail
sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../.." && pwd)
driver=${NPU_DRIVER:-$sources/build/release/lib/tandem/npu-driver}

skip() {
  printf 'SKIPPED, so nothing ran on the emulated NPU driver: %s\n' "$*"
  exit 77
}
[ $# -ge 1 ] || { printf 'usage: run.sh PROGRAM [ARGUMENT...]\n' >&2; exit 2; }
[ -f "$driver/npu_driver.so" ] || skip "$driver/npu_driver.so is not built"

unset XILINX_XRT XCL_EMULATION_MODE
xrt=$sources/.deps/xrt
if [ -f "$xrt/stamp" ]; then
  # The C library must be one that both the program and XRT can use: the newer.  XRT finds its plugin by the
  # folder that it was loaded from, so that is no link.
  libraries=$(readlink -f "$xrt/lib")
  exec "$xrt/loader" --preload "$driver/npu_driver.so" \
    --library-path "$libraries:/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu" "$@"
fi
plugin=$(find /usr/lib -name libxrt_driver_xdna.so.2 2>/dev/null | head -n 1)
[ -n "$plugin" ] || skip "no XRT with its NPU plugin: run scripts/fetch-xrt"
LD_PRELOAD="$driver/npu_driver.so" exec "$@"
