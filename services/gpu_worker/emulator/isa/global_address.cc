#include "services/gpu_worker/emulator/isa/global_address.h"

#include <algorithm>

namespace tandem::rdna {
namespace {

constexpr uint8_t kScratch = 1;
// Addresses have 48 bits.
constexpr uint64_t kAddressMask = 0xffffffffffff;
// Lanes that lie farther apart are looked up one by one.
constexpr uint64_t kMaxSpan = uint64_t{1} << 30;

// Scratch is private to a lane, so it lies in the wave, lane after lane, and not in the GPU's memory.
bool FindScratch(Wave& wave, const Instruction& i, uint32_t bytes,
                 std::array<std::byte*, kMaxLanes>& out) {
  const uint64_t lane_bytes = wave.scratch.size() / static_cast<size_t>(wave.lanes);
  const int64_t base = int64_t{i.offset} + wave.Sgpr(i.saddr);
  ForEachLane(wave.Exec(), [&](int lane) {
    int64_t offset = base;
    if (i.scratch_vgpr) offset += wave.Vgpr(i.address)[lane];
    if (offset < 0 || static_cast<uint64_t>(offset) + bytes > lane_bytes) {
      wave.Fail(std::string(i.name) + " outside the " + std::to_string(lane_bytes) +
                    " bytes of scratch memory of lane " + std::to_string(lane),
                static_cast<uint64_t>(offset));
      return;
    }
    out[lane] = wave.scratch.data() + static_cast<uint64_t>(lane) * lane_bytes + offset;
  });
  return !wave.fault;
}

}  // namespace

bool LaneAddresses::Find(Wave& wave, const Instruction& i, const uint64_t* addresses,
                         uint64_t lanes, uint32_t bytes) {
  if (lanes == 0) return true;
  uint64_t low = ~uint64_t{0}, high = 0;
  ForEachLane(lanes, [&](int lane) {
    low = std::min(low, addresses[lane]);
    high = std::max(high, addresses[lane]);
  });
  Memory& memory = *wave.group->memory;
  std::byte* base = high - low <= kMaxSpan ? memory.Find(low, high - low + bytes) : nullptr;
  if (base != nullptr) {
    ForEachLane(lanes, [&](int lane) { pointers_[lane] = base + (addresses[lane] - low); });
    return true;
  }
  ForEachLane(lanes, [&](int lane) {
    pointers_[lane] = memory.Find(addresses[lane], bytes);
    if (pointers_[lane] != nullptr) return;
    wave.Fail(
        std::string(i.name) + " of memory that is not mapped, by lane " + std::to_string(lane),
        addresses[lane]);
  });
  return !wave.fault;
}

bool FindLanes(Wave& wave, const Instruction& i, uint32_t bytes, LaneAddresses& out) {
  if (i.segment == kScratch) return FindScratch(wave, i, bytes, out.pointers());
  std::array<uint64_t, kMaxLanes> addresses;
  const uint64_t offset = static_cast<uint64_t>(int64_t{i.offset});
  const uint32_t* low = wave.Vgpr(i.address);
  if (i.saddr != kNull) {
    const uint64_t base = wave.Scalar64(i.saddr) + offset;
    for (int lane = 0; lane < wave.lanes; ++lane) {
      addresses[lane] = (base + low[lane]) & kAddressMask;
    }
  } else {
    const uint32_t* high = wave.Vgpr(i.address + 1u);
    for (int lane = 0; lane < wave.lanes; ++lane) {
      addresses[lane] = ((low[lane] | uint64_t{high[lane]} << 32) + offset) & kAddressMask;
    }
  }
  return out.Find(wave, i, addresses.data(), wave.Exec(), bytes);
}

}  // namespace tandem::rdna
