// DS: moves between lanes, which use no LDS.  Each half of a wave of 64 is by itself.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

// A lane that is not active reads as 0.
void Gather(Wave& wave, const Instruction& i, const std::array<int, kMaxLanes>& from) {
  const uint64_t exec = wave.Exec();
  const uint32_t* values = wave.Vgpr(i.data);
  Lanes32 out = {};
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((exec >> from[lane] & 1) != 0) out[lane] = values[from[lane]];
  }
  WriteLanes32(wave, i.dst, out.data(), exec);
}

int InHalf(int lane, uint32_t other) { return (lane & ~31) | static_cast<int>(other & 31); }

// Each lane names the lane that it reads, in bytes.
void BackwardPermute(Wave& wave, const Instruction& i) {
  std::array<int, kMaxLanes> from = {};
  const uint32_t* addresses = wave.Vgpr(i.address);
  for (int lane = 0; lane < wave.lanes; ++lane) {
    from[lane] = InHalf(lane, (addresses[lane] + static_cast<uint32_t>(i.offset)) >> 2);
  }
  Gather(wave, i, from);
}

// Each lane names the lane that it writes; of several the highest wins, without any 0 is read.
void ForwardPermute(Wave& wave, const Instruction& i) {
  const uint64_t exec = wave.Exec();
  const uint32_t *addresses = wave.Vgpr(i.address), *values = wave.Vgpr(i.data);
  Lanes32 out = {};
  ForEachLane(exec, [&](int lane) {
    out[InHalf(lane, (addresses[lane] + static_cast<uint32_t>(i.offset)) >> 2)] = values[lane];
  });
  WriteLanes32(wave, i.dst, out.data(), exec);
}

// The offset is a pattern: lanes of four, a rotation, or bits to keep, set and flip.
void Swizzle(Wave& wave, const Instruction& i) {
  const auto pattern = static_cast<uint32_t>(i.offset);
  std::array<int, kMaxLanes> from = {};
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const auto number = static_cast<uint32_t>(lane & 31);
    if (pattern >= 0xe000) {
      wave.Fail("ds_swizzle_b32 of FFT pattern " + std::to_string(pattern));
      return;
    }
    if (pattern >= 0xc000) {
      const uint32_t kept = pattern & 31, by = pattern >> 5 & 31;
      const uint32_t turned = (pattern >> 10 & 1) != 0 ? number - by : number + by;
      from[lane] = InHalf(lane, (number & kept) | (turned & ~kept & 31));
    } else if ((pattern & 0x8000) != 0) {
      from[lane] = (lane & ~3) | static_cast<int>(pattern >> (2 * (lane & 3)) & 3);
    } else {
      const uint32_t kept = pattern & 31, set = pattern >> 5 & 31, flipped = pattern >> 10 & 31;
      from[lane] = InHalf(lane, ((number & kept) | set) ^ flipped);
    }
  }
  // The value is in the address's register.
  Instruction view = i;
  view.data = i.address;
  Gather(wave, view, from);
}

constexpr Entry Lds(int op, const char* name, Handler handler) {
  return Special(op, name, handler, 0, Kind::kLds);
}

const Entry kLaneMoves[] = {
    Lds(53, "ds_swizzle_b32", &Swizzle),
    Lds(178, "ds_permute_b32", &ForwardPermute),
    Lds(179, "ds_bpermute_b32", &BackwardPermute),
};

}  // namespace

Table LdsLaneTable() { return kLaneMoves; }

}  // namespace tandem::rdna
