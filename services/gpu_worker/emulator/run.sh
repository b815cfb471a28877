#!/usr/bin/env bash
# run.sh PROGRAM [ARGUMENT...]: runs a Vulkan program on the emulated Radeon, below the RADV of
# Mesa 25.0 from .deps/radv (scripts/fetch-radv), or the machine's where that is of this series.
# PROGRAM is one of a build's (build/release/bin/...).  The emulated chip, and faults for tests: variables
# GPU_EMU_* (driver/settings.h).  Ends with 77 and a message if RADV or the emulator is not there.
#   EMULATED_RADEON=FOLDER  the emulator's libraries (default: build/release/lib/tandem/radeon-emulated)
set -euo pipefail
sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
emulator=${EMULATED_RADEON:-$sources/build/release/lib/tandem/radeon-emulated}

skip() {
  printf 'SKIPPED, so nothing ran on the emulated Radeon: %s\n' "$*"
  exit 77
}
[ $# -ge 1 ] || { printf 'usage: run.sh PROGRAM [ARGUMENT...]\n' >&2; exit 2; }
for library in libdrm.so.2 libdrm_amdgpu.so.1; do
  [ -f "$emulator/$library" ] || skip "$emulator/$library is not built; it needs libdrm-dev"
done

unset RADV_FORCE_FAMILY AMD_FORCE_FAMILY VK_ICD_FILENAMES
export VK_LOADER_LAYERS_DISABLE='*'
radv=$sources/.deps/radv
if [ -f "$radv/stamp" ]; then
  export VK_DRIVER_FILES=$radv/root/usr/share/vulkan/icd.d/radeon_icd.json
  # The C library must be one that both the program and the driver can use: the newer.
  exec "$radv/loader" --preload "$emulator/libdrm.so.2 $emulator/libdrm_amdgpu.so.1" \
    --library-path "$radv/lib:/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu" "$@"
fi
driver=/usr/lib/x86_64-linux-gnu/libvulkan_radeon.so
grep -qs 'Mesa 25\.0\.' "$driver" || skip "no RADV of Mesa 25.0: run scripts/fetch-radv"
for file in /usr/share/vulkan/icd.d/radeon_icd*.json; do export VK_DRIVER_FILES=$file; done
LD_PRELOAD="$emulator/libdrm.so.2 $emulator/libdrm_amdgpu.so.1" exec "$@"
