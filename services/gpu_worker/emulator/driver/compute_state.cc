#include "services/gpu_worker/emulator/driver/compute_state.h"

#include <algorithm>

namespace tandem::rdna {
namespace {

// Registers hold 48 bits of an address without its lowest eight.  The program counter has no more
// either: the compiler makes a buffer's descriptor of it (s_getpc_b64), and bits above would be the
// stride.
uint64_t RegisterAddress(uint32_t low, uint32_t high) {
  return (uint64_t{high & 0xff} << 32 | low) << 8;
}

// The groups of one direction: [begin, begin + count), each of `size` threads.
struct Stretch {
  uint32_t begin, count, size;
};

std::vector<Stretch> Stretches(uint32_t start, uint32_t dimension, uint32_t threads,
                               uint32_t initiator) {
  const uint32_t full = std::max(threads & 0xffff, 1u);
  uint32_t end = dimension, last = full;
  if ((initiator & pm4::kUseThreadDimensions) != 0) {
    end = static_cast<uint32_t>((uint64_t{dimension} + full - 1) / full);
    if (dimension % full != 0) last = dimension % full;
  } else if ((initiator & pm4::kPartialGroups) != 0) {
    last = threads >> 16;
    // Groups are full where the register says nothing else.
    if (last == 0 || last > full) last = full;
  }
  if (end <= start) return {};
  if (last == full) return {{start, end - start, full}};
  std::vector<Stretch> stretches;
  if (end - start > 1) stretches.push_back({start, end - start - 1, full});
  stretches.push_back({end - 1, 1, last});
  return stretches;
}

}  // namespace

bool ComputeState::Set(uint32_t index, uint32_t value) {
  if (index >= registers_.size()) return false;
  registers_[index] = value;
  return true;
}

std::vector<Dispatch> ComputeState::Dispatches(Gfx gfx, const Size3& dimensions,
                                               uint32_t initiator) const {
  Dispatch whole;
  whole.gfx = gfx;
  whole.code = RegisterAddress(registers_[pm4::kPgmLo], registers_[pm4::kPgmLo + 1]);
  whole.rsrc1 = registers_[pm4::kPgmRsrc1];
  whole.rsrc2 = registers_[pm4::kPgmRsrc2];
  whole.rsrc3 = registers_[pm4::kPgmRsrc3];
  whole.wave32 = (initiator & pm4::kWave32) != 0;
  std::copy_n(registers_.begin() + pm4::kUserData0, pm4::kUserDataWords, whole.user_sgprs.begin());
  if ((whole.rsrc2 & 1) != 0) {
    whole.scratch =
        RegisterAddress(registers_[pm4::kScratchBaseLo], registers_[pm4::kScratchBaseLo + 1]);
    whole.scratch_bytes_per_wave = (registers_[pm4::kTmpringSize] >> 12 & 0x7fff) * 256;
  }

  std::array<std::vector<Stretch>, 3> stretches;
  for (uint32_t i = 0; i < 3; ++i) {
    const bool at_zero = (initiator & pm4::kForceStartAtZero) != 0;
    const uint32_t start = at_zero ? 0 : registers_[pm4::kStartX + i];
    stretches[i] = Stretches(start, dimensions[i], registers_[pm4::kNumThreadX + i], initiator);
  }
  std::vector<Dispatch> dispatches;
  for (const Stretch& z : stretches[2]) {
    for (const Stretch& y : stretches[1]) {
      for (const Stretch& x : stretches[0]) {
        Dispatch part = whole;
        part.first_group = {x.begin, y.begin, z.begin};
        part.groups = {x.count, y.count, z.count};
        part.group_size = {x.size, y.size, z.size};
        dispatches.push_back(part);
      }
    }
  }
  return dispatches;
}

}  // namespace tandem::rdna
