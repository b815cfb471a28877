// A workgroup that is being executed: its waves and its LDS.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "services/gpu_worker/emulator/isa/program.h"
#include "services/gpu_worker/emulator/isa/wave.h"

namespace tandem::rdna {

using KindCounts = std::array<uint64_t, static_cast<size_t>(Kind::kNumKinds)>;

// Single-thread.  Used for one workgroup after the other, so that memory is kept.
class Workgroup {
 public:
  // Borrowed; must outlive this.
  Workgroup(const Dispatch& dispatch, Memory& memory);

  // Prepares registers and LDS of the workgroup at `id`.  Registers and LDS that the hardware
  // leaves as they are hold a pattern.
  void Begin(const std::array<uint32_t, 3>& id);

  // kPassedBarrier: all waves met a barrier.  kShareUsed: a wave had its share of time; another
  // workgroup may have to run before this one can go on.
  enum class Progress { kEnded, kPassedBarrier, kShareUsed, kFaulted };
  // Executes each wave in turn until it meets a barrier, ends, or has had its share of time.
  Progress Step(Program& program, KindCounts& counts);

  const std::optional<Fault>& fault() const { return fault_; }
  uint32_t num_waves() const { return static_cast<uint32_t>(waves_.size()); }

 private:
  void BeginWave(Wave& wave, const std::array<uint32_t, 3>& id);
  void RunWave(Wave& wave, Program& program, KindCounts& counts);

  const Dispatch& dispatch_;
  Group group_;
  LdsRaceCheck races_;
  std::vector<Wave> waves_;
  std::optional<Fault> fault_;
};

}  // namespace tandem::rdna
