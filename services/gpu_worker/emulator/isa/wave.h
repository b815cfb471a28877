// The state of a wave and of its workgroup.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/gpu_worker/emulator/isa/dispatch.h"
#include "services/gpu_worker/emulator/isa/instruction.h"
#include "services/gpu_worker/emulator/isa/lds_race.h"

namespace tandem::rdna {

inline constexpr int kMaxLanes = 64;
inline constexpr int kNumVgprs = 256;
inline constexpr int kNumSgprs = 128;
// The loops over lanes run in steps of this many.
inline constexpr int kLaneStep = 32;

using VgprRow = std::array<uint32_t, kMaxLanes>;

// What the waves of a workgroup share.
struct Group {
  Memory* memory = nullptr;
  const Dispatch* dispatch = nullptr;
  std::vector<std::byte> lds;
  LdsRaceCheck* races = nullptr;  // nullptr: not checked
};

enum class WaveState : uint8_t { kRunning, kAtBarrier, kEnded };

// MODE, the register of float rounding and denormals: bits as in the ISA document.
struct FloatMode {
  uint8_t round32 = 0, round16_64 = 0;  // 0: to nearest even, 1: up, 2: down, 3: to zero
  bool keep_denormals32_in = false, keep_denormals32_out = false;
  bool keep_denormals16_64_in = true, keep_denormals16_64_out = true;

  static FloatMode FromBits(uint32_t bits) {
    return {.round32 = static_cast<uint8_t>(bits & 3),
            .round16_64 = static_cast<uint8_t>(bits >> 2 & 3),
            .keep_denormals32_in = (bits >> 4 & 1) != 0,
            .keep_denormals32_out = (bits >> 5 & 1) != 0,
            .keep_denormals16_64_in = (bits >> 6 & 1) != 0,
            .keep_denormals16_64_out = (bits >> 7 & 1) != 0};
  }
};

struct Wave {
  Group* group = nullptr;
  uint32_t index = 0;  // in the workgroup
  int lanes = 32;
  uint64_t pc = 0;
  uint64_t next_pc = 0;  // a branch writes it
  WaveState state = WaveState::kRunning;
  bool yields = false;  // s_sleep: other waves take their turn
  bool scc = false;
  uint32_t mode_bits = 0;
  FloatMode mode;
  uint64_t executed = 0;
  std::optional<Fault> fault;
  std::array<uint32_t, kNumSgprs> sgprs = {};
  std::vector<std::byte> scratch;  // the bytes of each lane, one lane after the other
  std::unique_ptr<std::array<VgprRow, kNumVgprs>> vgprs;

  uint64_t LaneMask() const { return lanes == 32 ? 0xffffffffu : ~uint64_t{0}; }
  uint64_t Exec() const { return Scalar64(kExecLo) & LaneMask(); }

  uint32_t* Vgpr(uint32_t index_of_register) { return (*vgprs)[index_of_register & 255].data(); }
  const uint32_t* Vgpr(uint32_t index_of_register) const {
    return (*vgprs)[index_of_register & 255].data();
  }

  uint32_t Sgpr(uint32_t code) const { return code == kNull ? 0 : sgprs[code & 127]; }
  uint64_t Scalar64(uint32_t code) const {
    return code == kNull ? 0 : sgprs[code & 127] | uint64_t{sgprs[(code + 1) & 127]} << 32;
  }
  void SetSgpr(uint32_t code, uint32_t value) {
    if (code != kNull) sgprs[code & 127] = value;
  }
  void SetScalar64(uint32_t code, uint64_t value) {
    if (code == kNull) return;
    sgprs[code & 127] = static_cast<uint32_t>(value);
    sgprs[(code + 1) & 127] = static_cast<uint32_t>(value >> 32);
  }
  // A bit for each lane: one register of a wave of 32, two of a wave of 64.
  uint64_t MaskAt(uint32_t code) const { return lanes == 32 ? Sgpr(code) : Scalar64(code); }
  void SetMask(uint32_t code, uint64_t mask) {
    if (lanes == 32) {
      SetSgpr(code, static_cast<uint32_t>(mask));
    } else {
      SetScalar64(code, mask);
    }
  }

  void SetMode(uint32_t bits) {
    mode_bits = bits;
    mode = FloatMode::FromBits(bits);
  }

  void Fail(std::string what, uint64_t address = 0) {
    if (!fault) fault = Fault{.what = std::move(what), .pc = pc, .address = address};
  }
};

// Host memory of `bytes` at each lane's address, for the active lanes.  One lookup if all of them
// lie in one mapping.
class LaneAddresses {
 public:
  // Faults, and returns false, if a lane's bytes are not mapped.
  bool Find(Wave& wave, const Instruction& instruction, const uint64_t* addresses, uint64_t lanes,
            uint32_t bytes);
  std::byte* operator[](int lane) const { return pointers_[lane]; }
  std::array<std::byte*, kMaxLanes>& pointers() { return pointers_; }

 private:
  std::array<std::byte*, kMaxLanes> pointers_ = {};
};

template <class Function>
void ForEachLane(uint64_t mask, Function function) {
  for (; mask != 0; mask &= mask - 1) function(__builtin_ctzll(mask));
}

}  // namespace tandem::rdna
