#include "services/gpu_worker/emulator/isa/workgroup.h"

#include <algorithm>
#include <string>

namespace tandem::rdna {
namespace {

// What registers and LDS hold before they are written: a float that is not a number, so that a
// kernel that relies on it gives wrong results.
constexpr uint32_t kUndefined = 0x7fc0dead;
constexpr uint32_t kLdsGranule = 512;
// Instructions before the next wave takes its turn.  A wave that waits in a loop for another one
// must not keep it from running.
constexpr uint64_t kShare = 1 << 16;

// Fields of COMPUTE_PGM_RSRC1 and 2.
uint32_t FloatModeOf(uint32_t rsrc1) { return rsrc1 >> 12 & 0xff; }
uint32_t NumUserSgprs(uint32_t rsrc2) { return rsrc2 >> 1 & 31; }
bool HasGroupId(uint32_t rsrc2, int axis) { return (rsrc2 >> (7 + axis) & 1) != 0; }
bool HasGroupSize(uint32_t rsrc2) { return (rsrc2 >> 10 & 1) != 0; }
uint32_t LdsBytes(uint32_t rsrc2) { return (rsrc2 >> 15 & 0x1ff) * kLdsGranule; }

// Registers come in units of 8, of 4 in waves of 64.
uint32_t NumVgprs(const Dispatch& dispatch) {
  return std::min(((dispatch.rsrc1 & 63) + 1) * (dispatch.wave32 ? 8u : 4u),
                  static_cast<uint32_t>(kNumVgprs));
}

uint32_t NumThreads(const Dispatch& dispatch) {
  return dispatch.group_size[0] * dispatch.group_size[1] * dispatch.group_size[2];
}

}  // namespace

Workgroup::Workgroup(const Dispatch& dispatch, Memory& memory) : dispatch_(dispatch) {
  group_.memory = &memory;
  group_.dispatch = &dispatch;
  group_.lds.resize(LdsBytes(dispatch.rsrc2));
  group_.races = dispatch.check_lds_races ? &races_ : nullptr;
  const uint32_t lanes = dispatch.wave32 ? 32 : 64;
  waves_.resize((NumThreads(dispatch) + lanes - 1) / lanes);
  for (uint32_t index = 0; index < waves_.size(); ++index) {
    Wave& wave = waves_[index];
    wave.group = &group_;
    wave.index = index;
    wave.lanes = static_cast<int>(lanes);
    wave.vgprs = std::make_unique<std::array<VgprRow, kNumVgprs>>();
    wave.scratch.resize(dispatch.scratch_bytes_per_wave);
  }
}

void Workgroup::Begin(const std::array<uint32_t, 3>& id) {
  fault_.reset();
  auto* words = reinterpret_cast<uint32_t*>(group_.lds.data());
  std::fill_n(words, group_.lds.size() / 4, kUndefined);
  races_.BeginGroup(static_cast<uint32_t>(group_.lds.size()));
  for (Wave& wave : waves_) BeginWave(wave, id);
}

void Workgroup::BeginWave(Wave& wave, const std::array<uint32_t, 3>& id) {
  wave.pc = dispatch_.code;
  wave.state = WaveState::kRunning;
  wave.scc = false;
  wave.executed = 0;
  wave.fault.reset();
  wave.SetMode(FloatModeOf(dispatch_.rsrc1));
  wave.sgprs.fill(kUndefined);
  std::for_each_n(wave.vgprs->begin(), NumVgprs(dispatch_),
                  [](VgprRow& row) { row.fill(kUndefined); });

  uint32_t next = NumUserSgprs(dispatch_.rsrc2);
  std::copy_n(dispatch_.user_sgprs.begin(), next, wave.sgprs.begin());
  for (int axis = 0; axis < 3; ++axis) {
    if (HasGroupId(dispatch_.rsrc2, axis)) wave.sgprs[next++] = id[axis];
  }
  // The number of waves in bits 5:0, the wave's own number in bits 24:20.
  if (HasGroupSize(dispatch_.rsrc2)) wave.sgprs[next++] = num_waves() | wave.index << 20;

  const uint32_t first = wave.index * static_cast<uint32_t>(wave.lanes);
  const uint32_t size_x = dispatch_.group_size[0], size_y = dispatch_.group_size[1];
  const uint32_t threads = NumThreads(dispatch_);
  uint64_t exec = 0;
  for (uint32_t lane = 0; lane < static_cast<uint32_t>(wave.lanes); ++lane) {
    const uint32_t thread = first + lane;
    if (thread >= threads) continue;
    exec |= uint64_t{1} << lane;
    const uint32_t x = thread % size_x, y = thread / size_x % size_y, z = thread / size_x / size_y;
    wave.Vgpr(0)[lane] = x | y << 10 | z << 20;
  }
  wave.SetScalar64(kExecLo, exec);
}

void Workgroup::RunWave(Wave& wave, Program& program, KindCounts& counts) {
  std::string why;
  wave.yields = false;
  for (uint64_t left = kShare; left > 0 && wave.state == WaveState::kRunning && !wave.yields;
       --left) {
    const Instruction* instruction = program.At(wave.pc, why);
    if (instruction == nullptr) {
      wave.Fail(why);
      wave.fault->unknown = true;
      return;
    }
    wave.next_pc = wave.pc + uint64_t{4} * instruction->dwords;
    instruction->handler(wave, *instruction);
    if (wave.fault) return;
    ++counts[static_cast<size_t>(instruction->kind)];
    ++wave.executed;
    wave.pc = wave.next_pc;
  }
  if (dispatch_.instruction_limit != 0 && wave.executed > dispatch_.instruction_limit) {
    wave.Fail("a wave has not ended after " + std::to_string(wave.executed) + " instructions");
  }
}

Workgroup::Progress Workgroup::Step(Program& program, KindCounts& counts) {
  bool any_running = false, any_waiting = false;
  for (Wave& wave : waves_) {
    if (wave.state == WaveState::kRunning) RunWave(wave, program, counts);
    if (wave.fault) {
      fault_ = wave.fault;
      return Progress::kFaulted;
    }
    any_running = any_running || wave.state == WaveState::kRunning;
    any_waiting = any_waiting || wave.state == WaveState::kAtBarrier;
  }
  if (any_running) return Progress::kShareUsed;
  if (!any_waiting) return Progress::kEnded;
  // All waves that have not ended are at the barrier.
  races_.PassBarrier();
  for (Wave& wave : waves_) {
    if (wave.state == WaveState::kAtBarrier) wave.state = WaveState::kRunning;
  }
  return Progress::kPassedBarrier;
}

}  // namespace tandem::rdna
